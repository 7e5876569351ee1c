"""What a model computes of its sizes is written as constants where it is the same whatever the symbols are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from superopt.models.model import load
from superopt.sizes.known import known_sizes
from superopt.sizes.size import Size
from superopt.sizes.written import with_known_sizes

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

ATTENTION = """
g (float[batch, seq, 12] x, float[batch, 1, seq] mask) => (float[batch, seq, 12] y, float[rows, columns] z)
<int64 at0 = {0}, int64 at1 = {1}, int64[1] heads = {3}, int64[1] each = {4}, int64[1] width = {12}, int64[1] ax = {0},
 int64[1] one = {1}> {
    shape = Shape(x)
    b = Gather(shape, at0)
    t = Gather(shape, at1)
    bs = Unsqueeze(b, ax)
    ts = Unsqueeze(t, ax)
    apart = Concat<axis = 0>(bs, ts, heads, each)
    r = Reshape(x, apart)
    q = Transpose<perm = [0, 2, 1, 3]>(r)
    k = Transpose<perm = [0, 2, 3, 1]>(r)
    s = MatMul(q, k)
    mask4 = Unsqueeze(mask, one)
    wide = Concat<axis = 0>(bs, one, ts, ts)
    expanded = Expand(mask4, wide)
    masked = Add(s, expanded)
    p = Softmax(masked)
    c = MatMul(p, q)
    back = Transpose<perm = [0, 2, 1, 3]>(c)
    together = Concat<axis = 0>(bs, ts, width)
    y = Reshape(back, together)
    bt = Mul(bs, ts)
    flat = Concat<axis = 0>(bt, width)
    z = Reshape(y, flat)
}
"""


def written(text: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model in ONNX text, and what becomes of it."""
    model = load(parser.parse_model(HEAD + text))
    return model.proto, with_known_sizes(model).proto


def counts(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in proto.graph.node)


def targets(proto: onnx.ModelProto, op: str) -> list[list[int] | None]:
    """The constant second inputs of the nodes of an operator; None where one is computed."""
    held = {node.output[0]: node.attribute[0].t for node in proto.graph.node if node.op_type == "Constant"}
    held |= {tensor.name: tensor for tensor in proto.graph.initializer}
    names = [node.input[1] for node in proto.graph.node if node.op_type == op]
    return [onnx.numpy_helper.to_array(held[name]).tolist() if name in held else None for name in names]


def run(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, feed)


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (2, 5), (0, 3), (2, 0), (3, 1)])
def test_attention_with_dynamic_sizes_computes_none_of_them(batch: int, seq: int) -> None:
    before, after = written(ATTENTION)
    assert not counts(after).keys() & {"Shape", "Gather", "Concat", "Expand", "Mul"}
    assert targets(after, "Reshape") == [[0, 0, 3, 4], [0, 0, 12], [-1, 12]]
    random = np.random.default_rng(0)
    feed = {
        "x": random.standard_normal((batch, seq, 12)).astype(np.float32),
        "mask": random.standard_normal((batch, 1, seq)).astype(np.float32),
    }
    if seq == 0:
        # The first model does not run: its zero in the flat target copies the batch instead.
        with pytest.raises(Exception, match="Reshape"):
            run(before, feed)
        return
    for one, other in zip(run(before, feed), run(after, feed), strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)


REFUSED = {
    "a symbol copied and one inferred, which zero would not allow": """
        g (float[n, 3, h, w] x) => (float[a, b, c] y) <int64 at0 = {0}, int64 at2 = {2}, int64 at3 = {3},
        int64[1] ax = {0}, int64[1] three = {3}>
        { s = Shape(x)  n = Gather(s, at0)  h = Gather(s, at2)  w = Gather(s, at3)  hw = Mul(h, w)
        n1 = Unsqueeze(n, ax)  hw1 = Unsqueeze(hw, ax)  t = Concat<axis = 0>(n1, three, hw1)  y = Reshape(x, t) }""",
    "a zero that does not copy": """
        g (float[n, 6] x) => (float[a, b, c] y) <int64 at0 = {0}, int64[1] ax = {0}, int64[2] rest = {0, 3}>
        { s = Shape(x)  n = Gather(s, at0)  n1 = Unsqueeze(n, ax)  t = Concat<axis = 0>(n1, rest)
        y = Reshape<allowzero = 1>(x, t) }""",
    "two symbols inferred": """
        g (float[n, m] x) => (float[a, b] y) <int64[2] turned = {1, 0}>
        { s = Shape(x)  t = Gather(s, turned)  y = Reshape(x, t) }""",
    "an axis that is repeated": """
        g (float[n, m] x, float[1, m] z) => (float[a, b] y) { s = Shape(x)  y = Expand(z, s) }""",
    "an expanded operand that is longer than the others": """
        g (float[n, m] x, float[1, m] z, float[1, m] u) => (float[a, b] y)
        { s = Shape(x)  e = Expand(z, s)  y = Add(e, u) }""",
    "a difference of symbols": """
        g (float[n, m] x) => (float[a] y) <int64 at0 = {0}, int64 at1 = {1}, int64[1] ax = {0}, int64[1] from = {0},
        float[9] c = {1, 2, 3, 4, 5, 6, 7, 8, 9}> { s = Shape(x)  n = Gather(s, at0)  m = Gather(s, at1)  d = Sub(n, m)
        e = Unsqueeze(d, ax)  y = Slice(c, from, e, ax) }""",
    "an end that is not the size of the axis": """
        g (float[n, m] x) => (float[a, b] y) <int64 at0 = {0}, int64[1] ax = {0}, int64[1] from = {0},
        int64[1] along = {1}>
        { s = Shape(x)  n = Gather(s, at0)  e = Unsqueeze(n, ax)  y = Slice(x, from, e, along) }""",
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_depends_on_symbols_is_left_alone(why: str) -> None:
    before, after = written(REFUSED[why])
    assert counts(before) == counts(after), why


KNOWN = {
    "Reshape": """
        g (float[n, 2, 3] x) => (float[n, 6] y) <int64 at0 = {0}, int64[1] ax = {0}, int64[1] rest = {-1}>
        { s = Shape(x)  n = Gather(s, at0)  n1 = Unsqueeze(n, ax)  t = Concat<axis = 0>(n1, rest)
        y = Reshape(x, t) }""",
    "Reshape ": """
        g (float[n, 6] x) => (float[n, 2, 3] y) <int64[1] rest = {2}>
        { n = Shape<start = 0, end = 1>(x)  three = Constant<value_ints = [3]>()  t = Concat<axis = 0>(n, rest, three)
        y = Reshape<allowzero = 1>(x, t) }""",
    "Expand": """
        g (float[n, 1] x) => (float[n, 4] y) <int64[1] first = {0}, int64[1] four = {4}, int64[1] two = {2}>
        { s = Shape(x)  n = Gather(s, first)  t = Concat<axis = 0>(n, four)
        minus = ConstantOfShape<value = int64[1] {-1}>(two)  e = Equal(t, minus)
        ones = ConstantOfShape<value = int64[1] {1}>(two)  w = Where(e, ones, t)  y = Expand(x, w) }""",
    "Slice": """
        g (float[n, 7] x) => (float[a, 7] y) <int64 at0 = {0}, int64[1] ax = {0}, int64[1] from = {1}>
        { s = Shape(x)  n = Gather(s, at0)  e = Unsqueeze(n, ax)  y = Slice(x, from, e, ax) }""",
}


# onnxruntime infers no size of a Reshape from nothing, before and after.
KNOWN_OF_ROWS = [(op, rows) for op in KNOWN for rows in (0, 1, 3) if (op, rows) != ("Reshape", 0)]


@pytest.mark.parametrize(("op", "rows"), KNOWN_OF_ROWS)
def test_target_is_a_constant(op: str, rows: int) -> None:
    before, after = written(KNOWN[op])
    assert counts(after) <= Counter({op.strip(): 1, "Constant": 1})
    shape = [rows if dim.dim_param else dim.dim_value for dim in before.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
    np.testing.assert_array_equal(run(before, feed)[0], run(after, feed)[0])


def test_known_sizes_in_arithmetic_are_numbers() -> None:
    text = """
        g (float[n, 12, 14] x) => (int64[k] y) <int64 at1 = {1}, int64 at2 = {2}, int64 two = {2},
        int64 at0 = {0}, int64[1] ax = {0}>
        { s = Shape(x)  h = Gather(s, at1)  w = Gather(s, at2)  n = Gather(s, at0)  hh = Div(h, two)  a = Mul(hh, w)
        nn = Mul(n, two)  m = Div(nn, n)  k = Sub(nn, n)
        u0 = Unsqueeze(a, ax)  u1 = Unsqueeze(m, ax)  u2 = Unsqueeze(k, ax)
        y = Concat<axis = 0>(u0, u1, u2) }"""
    before, after = written(text)
    feed = {"x": np.zeros((5, 12, 14), np.float32)}
    assert run(before, feed)[0].tolist() == run(after, feed)[0].tolist() == [84, 2, 5]
    assert counts(after)["Div"] == 0
    assert counts(after)["Mul"] == 1


def test_a_model_that_asks_no_size_is_the_same_object() -> None:
    model = load(parser.parse_model(HEAD + "g (float[n] x) => (float[n] y) { y = Relu(x) }"))
    assert with_known_sizes(model) is model


POSITIONS = """
g (int64[batch, seq] ids) => (float[batch, seq, 2, 2] y)
<float[5, 4] words = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19},
 int64[1, 5] places = {0, 1, 2, 3, 4}, int64[1] first = {0}, int64[1] second = {1},
 int64[2] pair = {2, 2}, int64 none = {0}, int64 one = {1}, int64[1] ax = {0}> {
    shape = Shape(ids)
    n = Gather(shape, first)
    t = Gather(shape, second)
    some = Slice(places, first, t, second)
    w = Gather(words, ids)
    p = Gather(words, some)
    e = Add(w, p)
    end = Squeeze(t, ax)
    counted = Range(none, end, one)
    q = Gather(words, counted)
    f = Add(e, q)
    target = Concat<axis = 0>(n, t, pair)
    y = Reshape(f, target)
}
"""


def test_sizes_are_followed_through_what_is_sliced_or_counted_up_to_them() -> None:
    before, after = written(POSITIONS)
    assert targets(after, "Reshape") == [[0, 0, 2, 2]]
    assert counts(after)["Concat"] == 0
    feed = {"ids": np.asarray([[1, 2, 0], [3, 2, 4]])}
    np.testing.assert_array_equal(run(before, feed)[0], run(after, feed)[0])


LATE = """
g (float[n, 96] x, int32[n, 2] w, float[3, k, 2, 2] kernel, int32[m] j, int32[1, m] r) => (float[a, b, c, d] y)
<int64 at = {0}, int64[1] ax = {0}, int64[1] one = {1}, int64[3] image = {3, 4, 4}> {
    shape = Shape(x)
    first = Gather(shape, at)
    rows = Unsqueeze(first, ax)
    twice = Add(rows, rows)
    pictures = Concat<axis = 0>(twice, image)
    z = Reshape(x, pictures)
    y = ConvTranspose<group = 3>(z, kernel)
    p = LpPool<kernel_shape = [2, 2], p = 2>(z)
    column = Concat<axis = 0>(twice, one)
    i = Reshape(w, column)
    t = BitwiseAnd(i, j)
    u = BitwiseNot(t)
    v = BitShift<direction = "LEFT">(u, u)
    there = Unsqueeze(ax, ax)
    s = ScatterND(v, there, r)
}
"""


def test_sizes_that_onnx_does_not_infer_pass_through_later_operators() -> None:
    shapes = known_sizes(load(parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>' + LATE))).shapes
    n, m = Size(2, ("n",)), Size(1, ("m",))
    assert (shapes["y"] or ())[:2] == (n, Size(3, ("k",)))
    assert (shapes["p"] or ())[:2] == (n, Size(3))
    assert [shapes[name] for name in "tuvs"] == [(n, m)] * 4


def test_a_target_of_constants_put_together_is_a_constant() -> None:
    """As exporters write it that leave folding to others: no size is asked for at all."""
    _, after = written("""g (float[n, 4, 6] x) => (float[m, k, 8] y)
        <int64[1] a = {-1}, int64[1] b = {3}, int64[1] c = {8}> { s = Concat<axis = 0>(a, b, c)  y = Reshape(x, s) }""")
    assert counts(after)["Concat"] == 0
