"""Bodies of If, Loop and Scan: each optimized like the graph around it, and put back where it came from."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import superopt
from superopt.bodies.bodies import bodies
from superopt.errors import ModelError
from superopt.models.model import load
from superopt.models.scopes import graphs_in
from superopt.rule_text import parse

Array = np.ndarray[Any, Any]


def read(text: str, weights: dict[str, Array] | None = None, opset: int = 17) -> onnx.ModelProto:
    """The model whose graph is written in ONNX's text form; ``weights`` become initializers of the main graph."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    return proto


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def batchnorm() -> dict[str, Array]:
    return {"s": normal(4), "t": normal(4, seed=1), "m": normal(4, seed=2), "v": np.abs(normal(4, seed=3)) + 1}


def run(proto: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, feed))


def optimized(proto: onnx.ModelProto, **options: Any) -> superopt.Result:
    result = superopt.optimize(proto, **{"rules": ["batchnorm", "identity"], "select": "modelled", **options})
    onnx.checker.check_model(result.model)
    assert result.report["verified"], result.report["problems"]
    return result


def same(result: superopt.Result, proto: onnx.ModelProto, *feeds: dict[str, Array]) -> None:
    for feed in feeds:
        for left, right in zip(run(result.model, feed), run(proto, feed), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for graph in graphs_in(proto.graph) for node in graph.node]


def stored(proto: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in proto.graph.initializer]


BRANCHES = """
    agraph (float[n, 3, 8, 8] x, bool c) => (float[n, 4, 8, 8] y) {
        y = If (c) <
            then_branch = then () => (float[n, 4, 8, 8] yt) {
                conv = Conv <pads = [1, 1, 1, 1]> (x, w)
                yt = BatchNormalization (conv, s, t, m, v)
            },
            else_branch = other () => (float[n, 4, 8, 8] ye) {
                conv = Conv <pads = [1, 1, 1, 1]> (x, w)
                twice = Identity (conv)
                ye = Relu (twice)
            }
        >
    }
"""


def test_a_branch_is_optimized_with_weights_captured_from_outside() -> None:
    proto = read(BRANCHES, {"w": normal(4, 3, 3, 3), **batchnorm()})
    result = optimized(proto, max_growth=1.0)
    assert operators(result.model) == ["If", "Conv", "Conv", "Relu"]
    assert stored(result.model) == ["w"], "what the other branch uses stays, what nothing uses goes"
    assert result.report["rules_used"]
    assert result.report["nodes"] == {"before": 6, "after": 4}
    assert result.report["cost"]["after"] < result.report["cost"]["before"]
    assert result.report["rule_runs"]["fold-batchnorm-into-conv"]["matches"] >= 1
    x = normal(2, 3, 8, 8)
    same(result, proto, {"x": x, "c": np.array(True)}, {"x": x, "c": np.array(False)})


def test_growth_is_that_of_the_whole_model() -> None:
    proto = read(BRANCHES, {"w": normal(4, 3, 3, 3), **batchnorm()})
    result = optimized(proto)
    assert operators(result.model) == ["If", "Conv", "BatchNormalization", "Conv", "Relu"], "w would be there twice"
    assert result.report["bytes"]["after"] <= 1.05 * result.report["bytes"]["before"]


def test_names_made_in_a_body_are_new_in_the_whole_model() -> None:
    proto = read(BRANCHES, {"w": normal(4, 3, 3, 3), **batchnorm()})
    plain = optimized(proto, max_growth=1.0).model
    (made,) = [graph.initializer for graph in graphs_in(plain.graph)[1:] if graph.initializer]
    clash = read(BRANCHES, {"w": normal(4, 3, 3, 3), **batchnorm()})
    for tensor in made:
        clash.graph.node.append(helper.make_node("Neg", ["x"], [tensor.name]))
        clash.graph.output.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, ["n", 3, 8, 8]))
    result = optimized(clash, max_growth=1.0)
    names = [tensor.name for graph in graphs_in(result.model.graph)[1:] for tensor in graph.initializer]
    assert len(names) == len(made)
    assert not {*names} & {tensor.name for tensor in made}


LOOP = """
    agraph (float[2, 4] x, int64 n) => (float[2, 4] last, float[k, 2, 4] all) {
        last, all = Loop (n, , x) <body = round (int64 i, bool going, float[2, 4] a) => (bool on, float[2, 4] b, float[2, 4] c) {
            on = Identity (going)
            flat = Reshape (a, shape)
            wide = Reshape (flat, back)
            b = Add (wide, x)
            c = Identity (b)
        }>
    }
"""  # noqa: E501


def test_a_loop_body_is_optimized() -> None:
    proto = read(LOOP, {"shape": np.array([8], np.int64), "back": np.array([2, 4], np.int64)})
    result = optimized(proto, rules="default")
    assert "Reshape" not in operators(result.model)
    assert not stored(result.model)
    same(result, proto, *({"x": normal(2, 4), "n": np.array(count)} for count in (0, 1, 3)))


def test_a_shape_that_grows_from_round_to_round_is_not_known() -> None:
    text = """
        agraph (float[1, 4] x, int64 n) => (float[r, 4] last) {
            last = Loop (n, , x) <body = round (int64 i, bool going, float[1, 4] a) => (bool on, float[1, 4] b) {
                on = Identity (going)
                expanded = Expand (a, shape)
                b = Concat <axis = 0> (expanded, x)
            }>
        }
    """
    proto = read(text, {"shape": np.array([1, 4], np.int64)})
    (body,) = bodies(load(proto))
    (carried,) = [value for value in body.proto.graph.input if value.name == "a"]
    assert not carried.type.tensor_type.shape.dim[0].HasField("dim_value")
    assert carried.type.tensor_type.shape.dim[1].dim_value == 4
    same(optimized(proto, rules="default"), proto, {"x": normal(1, 4), "n": np.array(3)})


def test_a_scan_body_gets_slices_of_what_is_scanned() -> None:
    text = """
        agraph (float[2] start, float[2, 5] xs) => (float[2] last, float[5, 2] all) {
            last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], body = step (float[2] a, float[2] x) => (float[2] b, float[2] c) {
                same = Reshape (x, two)
                b = Add (a, same)
                c = Identity (b)
            }> (start, xs)
        }
    """  # noqa: E501
    proto = read(text, {"two": np.array([2], np.int64)})
    (body,) = bodies(load(proto))
    assert [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in body.proto.graph.input] == [
        [2],
        [2],
    ]
    result = optimized(proto, rules="default")
    assert "Reshape" not in operators(result.model)
    same(result, proto, {"start": normal(2), "xs": normal(2, 5)})


def test_a_body_whose_inputs_are_not_what_its_node_gives_is_left_alone() -> None:
    proto = read(LOOP, {"shape": np.array([8], np.int64), "back": np.array([2, 4], np.int64)})
    node = proto.graph.node[0]
    del node.attribute[0].g.input[2]
    assert list(bodies(load(proto))) == []


CURIOUS = {
    "carried values change places, one shadows nothing": """
        agraph (float[2, 4] x, int64 n) => (float[2, 4] p, float[2, 4] q, float[k, 2, 4] all) {
            p, q, all = Loop (n, , x, x) <body = round (int64 i, bool on, float[2, 4] a, float[2, 4] b) =>
                    (bool go, float[2, 4] b, float[2, 4] a2, float[2, 4] sum) {
                go = Identity (on) z = Identity (a) a2 = Identity (z) u = Add (a, b) sum = Identity (u)
            }>
        }
    """,
    "a sequence is captured": """
        agraph (float[2, 4] x, bool c) => (float[2, 4] y) {
            q = SequenceConstruct (x, x)
            y = If (c) <
                then_branch = then () => (float[2, 4] a) {
                    i = Constant <value = int64 {1}> () e = SequenceAt (q, i) f = Identity (e) a = Neg (f)
                },
                else_branch = other () => (float[2, 4] b) { h = Identity (x) b = Abs (h) }
            >
        }
    """,
    "an outer constant is an output": """
        agraph (float[2, 4] x, bool c) => (float[2, 4] y) {
            y = If (c) <
                then_branch = then () => (float[2, 4] a) { a = Identity (k) },
                else_branch = other () => (float[2, 4] b) { h = Identity (k) b = Add (h, x) }
            >
        }
    """,
    "integers": """
        agraph (int64[2] n, bool c) => (int64[d] y) {
            y = If (c) <
                then_branch = then () => (int64[d] a) { s = Identity (n) a = Where (e, s, s) },
                else_branch = other () => (int64[e] b) { b = Concat <axis = 0> (n, n) }
            >
            e = Constant <value = bool {1}> ()
        }
    """,
}


@pytest.mark.parametrize("name", CURIOUS)
def test_curious_bodies(name: str) -> None:
    proto = read(CURIOUS[name], {"k": normal(2, 4)} if "k" in name or "constant" in name else {})
    if name == "integers":
        proto.graph.node.insert(0, proto.graph.node.pop())
    result = optimized(proto, rules="default")
    assert result.report["changed"]
    values = {"x": [normal(2, 4)], "n": [np.array(0), np.array(3)], "c": [np.array(True), np.array(False)]}
    if name == "integers":
        values["n"] = [np.array([3, 4])]
    names = [value.name for value in proto.graph.input]
    for chosen in itertools.product(*(values[name] for name in names)):
        same(result, proto, dict(zip(names, chosen, strict=True)))


def test_large_weights_move_into_the_only_body_that_uses_them() -> None:
    text = BRANCHES.replace("3, 8, 8", "128, 8, 8").replace("4, 8, 8", "256, 8, 8")
    proto = read(text, {"w": normal(256, 128, 3, 3), **{name: np.tile(a, 64) for name, a in batchnorm().items()}})
    other = proto.graph.node[0].attribute[1].g
    del other.node[:2]
    other.node[0].input[0] = "k"
    proto.graph.initializer.append(numpy_helper.from_array(normal(1, 256, 8, 8), "k"))
    result = optimized(proto)
    assert "BatchNormalization" not in operators(result.model)
    assert "w" not in stored(result.model)
    assert result.report["bytes"]["after"] < result.report["bytes"]["before"]


SHADOWING = {
    "an input of a body around it": """
        agraph (float[2, 4] x, int64 n) => (float[2, 4] y) {
            a = Identity (x)
            y = Loop (n, , a) <body = round (int64 i, bool going, float[2, 4] x) => (bool on, float[2, 4] s) {
                on = Identity (going)
                s = If (going) <
                    then_branch = then () => (float[2, 4] r) { r = Add (x, a) },
                    else_branch = other () => (float[2, 4] q) { q = Relu (a) }
                >
            }>
        }
    """,
    "an initializer of a body around it": """
        agraph (float[2, 4] x, int64 n) => (float[2, 4] y) {
            a = Identity (x) zero = Constant <value = int64 {0}> () c = Greater (n, zero)
            y = If (c) <
                then_branch = outer () => (float[2, 4] p) <float x = {2.0}> {
                    p = If (c) <
                        then_branch = then () => (float[2, 4] r) { r = Mul (x, a) },
                        else_branch = other () => (float[2, 4] q) { q = Relu (a) }
                    >
                },
                else_branch = last () => (float[2, 4] s) { s = Abs (a) }
            >
        }
    """,
}


@pytest.mark.parametrize("name", SHADOWING)
def test_a_captured_value_does_not_get_a_name_that_is_taken_where_it_is_used(name: str) -> None:
    """``a`` is ``x``, but in a body two levels further in ``x`` is something else."""
    proto = read(SHADOWING[name])
    result = optimized(proto, numeric="exact")
    for count in (0, 1, 3):
        same(result, proto, {"x": normal(2, 4), "n": np.array(count)})


NESTED = """
    agraph (float[n, 3, 8, 8] x, bool c, int64 k) => (float[n, 4, 8, 8] y) {
        y = If (c) <
            then_branch = then () => (float[n, 4, 8, 8] yt) {
                start = Conv <pads = [1, 1, 1, 1]> (x, w)
                yt = Loop (k, , start) <body = round (int64 i, bool going, float[n, 4, 8, 8] a) => (bool on, float[n, 4, 8, 8] b) {
                    on = Identity (going)
                    conv = Conv <pads = [1, 1, 1, 1]> (a, u)
                    b = BatchNormalization (conv, s, t, m, v)
                }>
            },
            else_branch = other () => (float[n, 4, 8, 8] ye) { ye = Conv <pads = [1, 1, 1, 1]> (x, w) }
        >
    }
"""  # noqa: E501


def test_bodies_in_bodies_are_optimized() -> None:
    proto = read(NESTED, {"w": normal(4, 3, 3, 3), "u": normal(4, 4, 3, 3) / 10, **batchnorm()})
    result = optimized(proto)
    assert "BatchNormalization" not in operators(result.model)
    assert stored(result.model) == ["w"], "u was folded into the weight inside"
    feed = {"x": normal(1, 3, 8, 8), "k": np.array(2)}
    same(result, proto, {**feed, "c": np.array(True)}, {**feed, "c": np.array(False)})


def test_bodies_that_are_alike_but_for_large_weights_around_them_are_not_one() -> None:
    """Both branches hold the same If, and each a weight of its own by the same name."""
    proto = read("""
        agraph (float[1200] x, bool c, bool d) => (float[1200] y) {
            y = If (c) <
                then_branch = then () => (float[1200] o) {
                    o = If (d) <then_branch = a () => (float[1200] r) { h = Mul (x, w) r = Mul (h, w) },
                                else_branch = b () => (float[1200] s) { s = Neg (x) }>
                },
                else_branch = other () => (float[1200] o) {
                    o = If (d) <then_branch = a () => (float[1200] r) { h = Mul (x, w) r = Mul (h, w) },
                                else_branch = b () => (float[1200] s) { s = Neg (x) }>
                }
            >
        }
    """)
    for branch, value in zip(proto.graph.node[0].attribute, (2, 3), strict=True):
        branch.g.initializer.append(numpy_helper.from_array(np.full(1200, value, np.float32), "w"))
    feeds = [{"x": normal(1200), "c": np.array(c), "d": np.array(True)} for c in (True, False)]
    result = optimized(proto, rules=["affine"], inputs=feeds[0])
    assert operators(result.model).count("Mul") == 2
    same(result, proto, *feeds)


def test_nothing_to_do_changes_nothing() -> None:
    proto = read(BRANCHES, {"w": normal(4, 3, 3, 3), **batchnorm()})
    del proto.graph.node[0].attribute[0].g.node[1]
    proto.graph.node[0].attribute[0].g.node[0].output[0] = "yt"
    before = proto.SerializeToString()
    result = superopt.optimize(proto, rules="batchnorm", select="modelled")
    assert result.model.SerializeToString() == before
    assert not result.report["changed"]


def test_a_wrong_rule_is_found_guilty_in_a_branch_that_no_feed_takes() -> None:
    rules = parse("rule no-relu: reassociates\n  Relu(x) => x\n  from nowhere\n", "wrong.rules")
    proto = read(BRANCHES, {"w": normal(4, 3, 3, 3), **batchnorm()})
    feed = {"x": normal(1, 3, 8, 8), "c": np.array(True)}
    result = optimized(proto, rules=[rules, "batchnorm"], trust_rules=True, inputs=feed, max_growth=1.0)
    assert [line["rule"] for line in result.report["left_out"]] == ["no-relu"]
    assert operators(result.model) == ["If", "Conv", "Conv", "Identity", "Relu"]


def test_classes_are_checked_in_bodies_too() -> None:
    """The wrong rule makes nothing that is chosen: only its class shows it."""
    rules = parse("rule dear: reassociates\n  Relu(x) => Tanh(Tanh(Tanh(x)))\n  from nowhere\n", "wrong.rules")
    proto = read(BRANCHES, {"w": normal(4, 3, 3, 3), **batchnorm()})
    found = [
        superopt.optimize(proto, rules=rules, trust_rules=True, select="modelled", check_classes=check).report
        for check in (False, True)
    ]
    assert found[0]["verified"]
    assert any(text.startswith("the body 'other': rule dear is unsound") for text in found[1]["problems"])


def nest(depth: int) -> onnx.ModelProto:
    """An If in an If in an If; the innermost could do without its Identity."""
    proto = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    proto.graph.name = "g"
    proto.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]))
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    graph = proto.graph
    for level in range(depth):
        graph.output.append(helper.make_tensor_value_info(f"y{level}", TensorProto.FLOAT, [4]))
        node = graph.node.add(op_type="If", input=["c"], output=[f"y{level}"])
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["z"])],
            "e",
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4])],
        )
        node.attribute.add(name="else_branch", type=onnx.AttributeProto.GRAPH).g.CopyFrom(other)
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.name = f"g{level}"
    graph.node.append(helper.make_node("Identity", ["x"], ["h"]))
    graph.node.append(helper.make_node("Relu", ["h"], ["y"]))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]))
    return proto


def test_what_is_nested_deep_is_optimized() -> None:
    proto = nest(12)
    result = superopt.optimize(proto, rules="identity", select="modelled")
    assert "Identity" not in operators(result.model)


def test_what_is_nested_a_thousand_deep_is_an_error_of_one_line() -> None:
    with pytest.raises(ModelError) as caught:
        superopt.optimize(nest(1000), rules="identity", select="modelled")
    assert len(str(caught.value).splitlines()) == 1
