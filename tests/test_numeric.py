"""Constants: settled as the runtime has them, materialized in float64, rounded once, and checked."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt import numeric
from superopt.crosscheck import check_equal, second_values
from superopt.errors import NumericError
from superopt.evaluate import Runner, same_bits
from superopt.kernels import FLOAT64, apply
from superopt.lowering.lower import lower
from superopt.models.model import load
from superopt.models.tensors import constant_of_array
from superopt.numeric import constant_terms, materialize, settle
from superopt.reference import round_to
from superopt.rounding import rounding_bound
from superopt.terms import ABSENT, Attrs, AttrValue, Constant, Node, TensorType, TermGraph, ValueType

RNG = np.random.default_rng(7)


class Terms:
    """Builds a term graph by hand."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.types: list[ValueType] = []
        self.constants: dict[str, Constant] = {}

    def add(self, op: str, *args: int, kind: ValueType, **attrs: Any) -> int:
        self.nodes.append(Node(op, args, Attrs.of(attrs)))
        self.types.append(kind)
        return len(self.nodes) - 1

    def const(self, array: np.ndarray[Any, Any], dtype: str | None = None) -> int:
        constant = constant_of_array(array, dtype)
        self.constants[constant.key] = constant
        return self.add("Const", kind=constant.type, key=constant.key)

    def graph(self, *roots: int) -> TermGraph:
        return TermGraph(tuple(self.nodes), tuple(self.types), roots, self.constants)


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def value_of(graph: TermGraph, index: int) -> np.ndarray[Any, Any]:
    assert graph.nodes[index].op == "Const"
    return graph.constants[str(graph.nodes[index].attrs["key"])].array()


def folded_bn(dtype: str = "float32") -> tuple[TermGraph, dict[str, np.ndarray[Any, Any]]]:
    """Conv(x, w * k) where k = s / sqrt(v + e), in a weight type of one's choice and float32 statistics."""
    t = Terms()
    w, s, v = f32(4, 3, 2, 2), f32(4), np.abs(f32(4)) + np.float32(0.1)
    data = w.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else w.astype(dtype)
    x = t.add("Input", kind=TensorType(dtype, (1, 3, 5, 5)), name="x")
    cw, cs, cv, ce = t.const(data), t.const(s), t.const(v), t.const(np.asarray(1e-3, np.float32))
    four = TensorType("float32", (4,))
    k = t.add("Div", cs, t.add("Sqrt", t.add("Add", cv, ce, kind=four), kind=four), kind=four)
    k4 = t.add("Unsqueeze", k, kind=TensorType("float32", (4, 1, 1, 1)), axes=(1, 2, 3))
    whole = TensorType("float32", (4, 3, 2, 2))
    scaled = t.add("Mul", t.add("Cast", cw, kind=whole, to="float32", saturate=1, round_mode="up"), k4, kind=whole)
    narrow = t.add("Cast", scaled, kind=TensorType(dtype, (4, 3, 2, 2)), to=dtype, saturate=1, round_mode="up")
    zero = t.const(np.zeros(4, data.dtype))
    conv = t.add(
        "Conv", x, narrow, zero, kind=TensorType(dtype, (1, 4, 4, 4)),
        dilations=(1, 1), group=1, pads=(0, 0, 0, 0), strides=(1, 1),
    )  # fmt: skip
    k_true = s.astype(np.float64) / np.sqrt(v.astype(np.float64) + np.float64(np.float32(1e-3)))
    return t.graph(conv), {"weight": data.astype(np.float64) * k_true.reshape(4, 1, 1, 1), "data": data}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_constant_part_is_computed_in_float64_and_rounded_once(dtype: str) -> None:
    graph, true = folded_bn(dtype)
    result = materialize(graph)
    assert sorted(node.op for node in result.nodes) == ["Const", "Const", "Conv", "Input"]
    conv = result.nodes[result.roots[0]]
    np.testing.assert_array_equal(value_of(result, conv.args[1]), round_to(true["weight"], dtype))
    assert result.types[conv.args[1]] == TensorType(dtype, (4, 3, 2, 2))


def test_materialized_graph_has_no_two_equal_terms_and_only_its_own_constants() -> None:
    t = Terms()
    x = t.add("Input", kind=TensorType("float32", (2,)), name="x")
    two, four = t.const(np.full(2, 2, np.float32)), t.const(np.full(2, 4, np.float32))
    kind = TensorType("float32", (2,))
    doubled = t.add("Add", two, two, kind=kind)
    root = t.add("Add", t.add("Mul", x, doubled, kind=kind), t.add("Mul", x, four, kind=kind), kind=kind)
    result = materialize(t.graph(root))
    assert [node.op for node in result.nodes] == ["Input", "Const", "Mul", "Add"]
    assert len(result.constants) == 1


def test_terms_kept_at_run_time_stay_operators_but_their_arguments_are_folded() -> None:
    t = Terms()
    small = t.const(np.ones((1, 3), np.float32))
    x = t.add("Input", kind=TensorType("float32", (50, 3)), name="x")
    negated = t.add("Neg", small, kind=TensorType("float32", (1, 3)))
    wide = t.add("Expand", negated, kind=TensorType("float32", (50, 3)), shape=(50, 3))
    root = t.add("Add", x, wide, kind=TensorType("float32", (50, 3)))
    result = materialize(t.graph(root), frozenset({wide}))
    assert sorted(node.op for node in result.nodes) == ["Add", "Const", "Expand", "Input"]
    assert sorted(node.op for node in materialize(t.graph(root)).nodes) == ["Add", "Const", "Input"]


def test_parts_of_a_constant_split_become_constants() -> None:
    t = Terms()
    whole = t.const(np.arange(5, dtype=np.int64))
    parts = (TensorType("int64", (2,)), TensorType("int64", (3,)))
    bundle = t.add("Split", whole, kind=parts, axis=0, split=(2, 3))
    first, second = (t.add("Project", bundle, kind=parts[i], index=i) for i in range(2))
    result = materialize(t.graph(second, first))
    np.testing.assert_array_equal(value_of(result, result.roots[0]), [2, 3, 4])
    np.testing.assert_array_equal(value_of(result, result.roots[1]), [0, 1])


def test_what_has_no_elements_is_a_constant_too() -> None:
    t = Terms()
    none = TensorType("float32", (0, 3))
    root = t.add("Neg", t.const(np.zeros((0, 3), np.float32)), kind=none)
    result = materialize(t.graph(root))
    assert [node.op for node in result.nodes] == ["Const"]
    assert value_of(result, result.roots[0]).shape == (0, 3)


def test_a_sequence_that_needs_no_input_is_no_constant() -> None:
    nodes = [
        helper.make_node("Identity", ["c"], ["d"]),
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("SequenceInsert", ["none", "d"], ["one"]),
        helper.make_node("SequenceInsert", ["one", "x"], ["two"]),
        helper.make_node("ConcatFromSequence", ["two"], ["y"], axis=0),
    ]
    graph = lower(load(small_model(*nodes, c=f32(2, 3)))).graph
    result = materialize(graph)
    assert [graph.opaque[str(node.attrs["key"])].op_type for node in result.nodes if node.op == "Opaque"] == [
        "SequenceEmpty", "SequenceInsert", "SequenceInsert", "ConcatFromSequence",
    ]  # fmt: skip
    assert sum(node.op == "Const" for node in result.nodes) == 1


def test_nan_and_infinity_are_kept() -> None:
    t = Terms()
    kind = TensorType("float32", (4,))
    a = t.const(np.asarray([np.nan, np.inf, 1, 0], np.float32))
    root = t.add("Div", a, t.const(np.zeros(4, np.float32)), kind=kind)
    np.testing.assert_array_equal(value_of(materialize(t.graph(root)), 0), [np.nan, np.inf, np.inf, np.nan])


def test_wrong_kernel_is_caught_by_the_second_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = folded_bn()

    def wrong(op: str, attrs: Attrs, args: Any, algebra: Any) -> tuple[np.ndarray[Any, Any], ...]:
        results = apply(op, attrs, args, algebra)
        return (results[0] * (1 + 2.0**-45),) if op == "Mul" else results

    monkeypatch.setattr(numeric, "apply", wrong)
    with pytest.raises(NumericError, match="two evaluators differ"):
        materialize(graph)


def test_type_that_the_value_contradicts_is_an_error() -> None:
    t = Terms()
    root = t.add("Neg", t.const(f32(3)), kind=TensorType("float32", (4,)))
    with pytest.raises(NumericError, match="shape"):
        materialize(t.graph(root))


CHECKED: list[tuple[str, dict[str, Any], list[np.ndarray[Any, Any]]]] = [
    (
        "Conv",
        {"dilations": (2, 1), "group": 2, "pads": (1, 0, 2, 3), "strides": (2, 3)},
        [f32(2, 4, 9, 8), f32(6, 2, 3, 2), f32(6)],
    ),
    ("Conv", {"dilations": (1,), "group": 1, "pads": (5, 4), "strides": (1,)}, [f32(2, 4, 3), f32(6, 4, 2), f32(6)]),
    (
        "ConvTranspose",
        {"dilations": (2, 1), "group": 2, "pads": (1, 0, 2, 1), "strides": (2, 3), "output_padding": (1, 2)},
        [f32(2, 4, 5, 4), f32(4, 3, 3, 2), f32(6)],
    ),
    ("MatMul", {}, [f32(3, 200), f32(200, 5)]),
    ("Gemm", {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 0}, [f32(30, 4), f32(30, 5), f32(5)]),
    ("Add", {}, [f32(3, 1), f32(4)]),
    ("Sub", {}, [f32(3, 1), f32(4)]),
    ("Mul", {}, [f32(3, 1), f32(4)]),
    ("Div", {}, [f32(3, 1), f32(4)]),
    ("Div", {}, [np.asarray([7, -7, 7]), np.asarray([2, 2, -2])]),
    ("Mean", {}, [f32(3, 1), f32(4)]),
    ("Sqrt", {}, [np.abs(f32(9))]),
    ("Reciprocal", {}, [f32(9)]),
    ("Exp", {}, [f32(9)]),
    ("Log", {}, [np.abs(f32(9))]),
    ("Erf", {}, [f32(9)]),
    ("Tanh", {}, [f32(9)]),
    ("Pow", {}, [np.abs(f32(9)), f32(9)]),
    ("ReduceSum", {"axes": (1,), "keepdims": 1}, [f32(3, 500)]),
    ("ReduceMean", {"axes": (0, 1), "keepdims": 0}, [f32(3, 500)]),
    ("ReduceSumSquare", {"axes": (1,), "keepdims": 1}, [f32(3, 500)]),
    ("Pad", {"mode": "constant", "pads": (1, 0, 0, 2)}, [f32(3, 5)]),
    ("Transpose", {"perm": (1, 0)}, [f32(3, 5)]),
    ("Concat", {"axis": 1}, [f32(3, 5), f32(3, 2)]),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CHECKED)), ids=lambda i: f"{i}-{CHECKED[i][0]}")
def test_two_evaluators_agree_within_the_derived_bound(index: int) -> None:
    op, given, arrays = CHECKED[index]
    t = Terms()
    args = [t.const(array) for array in arrays]
    attrs = Attrs.of(given)
    values = [FLOAT64.enter(array) for array in arrays]
    if op == "Pad":
        args.append(ABSENT)
    (first,) = apply(op, attrs, [*values, None] if op == "Pad" else values, FLOAT64)
    root = t.add(op, *args, kind=TensorType("float32", first.shape), **given)
    (second,) = second_values(t.graph(root), [root], dict(zip(args, values, strict=False)), [root])
    bound = rounding_bound(op, attrs, values, [0.0] * len(values), (first,))
    assert math.isfinite(bound)
    assert bound <= 1e-9 * max(1.0, float(np.max(np.abs(first))))
    check_equal(op, first, second, bound)


@pytest.mark.parametrize("op", ["Sqrt", "Reciprocal", "Exp", "Log", "Tanh", "Add", "Mul", "Div", "MatMul", "ReduceSum"])
def test_bound_covers_what_an_error_in_the_arguments_does(op: str) -> None:
    size = 1e-6
    given = {"ReduceSum": {"axes": (1,), "keepdims": 1}}.get(op, {})
    attrs = Attrs.of(given)
    for _ in range(50):
        arrays = [
            np.abs(RNG.standard_normal((3, 3))) + 1e-2 for _ in range(2 if op in ("Add", "Mul", "Div", "MatMul") else 1)
        ]
        moved = [array + size * RNG.choice([-1.0, 1.0], array.shape) for array in arrays]
        (exact,), (other,) = apply(op, attrs, arrays, FLOAT64), apply(op, attrs, moved, FLOAT64)
        bound = rounding_bound(op, attrs, arrays, [size] * len(arrays), (exact,))
        assert np.max(np.abs(exact - other)) <= bound * (1 + 1e-3)


@pytest.mark.parametrize(
    ("op", "given", "sizes"),
    [
        ("PRelu", {}, (-100.0, 0.5)),
        ("LeakyRelu", {"alpha": 3.0}, (-2.0,)),
        ("ScatterND", {"reduction": "mul"}, (50.0, None, 70.0)),
        ("ScatterND", {"reduction": "none"}, (50.0, None, 70.0)),
        ("Einsum", {"equation": "i,i,i->i"}, (90.0, 80.0, 70.0)),
        ("Einsum", {"equation": "i,i->"}, (90.0, 80.0)),
        ("Floor", {}, (1 - 1e-7,)),
    ],
)
def test_bound_covers_errors_of_large_arguments(
    op: str, given: dict[str, AttrValue], sizes: tuple[float | None, ...]
) -> None:
    error, attrs = 1e-6, Attrs.of(given)
    arrays = [np.asarray([[0]]) if size is None else np.full(1, size) for size in sizes]
    moved = [array if array.dtype.kind == "i" else array + error * np.sign(array) for array in arrays]
    (exact,), (other,) = apply(op, attrs, arrays, FLOAT64), apply(op, attrs, moved, FLOAT64)
    bounds = [0.0 if array.dtype.kind == "i" else error for array in arrays]
    assert np.max(np.abs(exact - other)) <= rounding_bound(op, attrs, arrays, bounds, (exact,)) * (1 + 1e-3)


def test_rounding_to_a_narrow_type_happens_once() -> None:
    # 1 + 2^-8 + 2^-40 lies above the middle between two bfloat16; by way of float32 it would fall on the middle.
    value = np.asarray([1 + 2.0**-8 + 2.0**-40, -(1 + 2.0**-8 + 2.0**-40), 1 + 2.0**-8, np.nan, np.inf, -0.0, 1e300])
    rounded = round_to(value, "bfloat16").astype(np.float64)
    np.testing.assert_array_equal(rounded, [1 + 2.0**-7, -(1 + 2.0**-7), 1.0, np.nan, np.inf, -0.0, np.inf])
    assert np.signbit(rounded[5])
    for number in RNG.standard_normal(500):
        near = float(round_to(np.asarray(number), "bfloat16"))
        step = 2.0 ** (math.frexp(number)[1] - 8)
        assert abs(Fraction(near) - Fraction(number)) <= Fraction(step) / 2


def small_model(*nodes: onnx.NodeProto, **initializers: np.ndarray[Any, Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_settled_constants_have_the_bits_that_onnxruntime_gives() -> None:
    a, b = f32(64, 300), f32(300, 3)
    model = small_model(
        helper.make_node("MatMul", ["a", "b"], ["ab"]),
        helper.make_node("Exp", ["ab"], ["e"]),
        helper.make_node("ReduceMean", ["e"], ["m"], axes=[0], keepdims=0),
        helper.make_node("Mul", ["x", "m"], ["y"]),
        a=a, b=b,
    )  # fmt: skip
    lowered = lower(load(model))
    result = settle(lowered.graph)
    assert sorted(node.op for node in result.nodes) == ["Const", "Input", "Mul"]
    ones = {"x": np.ones((2, 3), np.float32)}
    (constant,) = result.constants.values()
    assert same_bits(np.broadcast_to(constant.array(), (2, 3)), Runner(model).run(ones)["y"])


def test_settling_does_not_grow_a_model_unless_asked() -> None:
    model = small_model(
        helper.make_node("Expand", ["c", "s"], ["big"]),
        helper.make_node("ReduceSum", ["big", "axes"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["z"]),
        helper.make_node("ReduceMax", ["big"], ["top"], keepdims=0),
        helper.make_node("Add", ["z", "top"], ["zz"]),
        helper.make_node("Slice", ["big", "begin", "end"], ["part"]),
        helper.make_node("Add", ["zz", "part"], ["y"]),
        c=f32(1, 3), s=np.asarray([5000, 3]), axes=np.asarray([0, 1]), begin=np.asarray([0]), end=np.asarray([2]),
    )  # fmt: skip
    graph = lower(load(model)).graph
    assert not any(node.op in ("ReduceSum", "ReduceMax", "Expand") for node in settle(graph).nodes)
    kept = lower(load(small_model(
        helper.make_node("Expand", ["c", "s"], ["big"]),
        helper.make_node("MatMul", ["x", "big"], ["y"]),
        c=f32(3, 1), s=np.asarray([3, 5000]),
    ))).graph  # fmt: skip
    assert any(node.op == "Expand" for node in settle(kept).nodes)
    assert not any(node.op == "Expand" for node in settle(kept, None).nodes)


def test_random_operators_are_never_constant() -> None:
    model = small_model(
        helper.make_node("RandomNormal", [], ["r"], shape=[2, 3]),
        helper.make_node("RandomNormalLike", ["c"], ["q"]),
        helper.make_node("Add", ["r", "q"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
        c=f32(2, 3),
    )  # fmt: skip
    graph = lower(load(model)).graph
    assert constant_terms(graph).count(True) == 1
    for result in (settle(graph), materialize(graph)):
        assert sum(node.op == "Opaque" for node in result.nodes) == 2


def test_opaque_deterministic_constants_are_settled_with_the_subgraphs_they_hold() -> None:
    branch = helper.make_graph(
        [helper.make_node("Mul", ["c", "c"], ["inner"])],
        "then",
        [],
        [helper.make_tensor_value_info("inner", 1, [2, 3])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["inner2"])],
        "else",
        [],
        [helper.make_tensor_value_info("inner2", 1, [2, 3])],
    )
    c = f32(2, 3)
    model = small_model(
        helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=other),
        helper.make_node("Add", ["x", "z"], ["y"]),
        c=c, yes=np.asarray(True),
    )  # fmt: skip
    result = settle(lower(load(model)).graph)
    assert sorted(node.op for node in result.nodes) == ["Add", "Const", "Input"]
    np.testing.assert_array_equal(next(iter(result.constants.values())).array(), c * c)


def test_what_onnxruntime_lacks_stays_an_operator() -> None:
    model = small_model(
        helper.make_node("Conv", ["a", "a"], ["bad"]),
        helper.make_node("Neg", ["b"], ["good"]),
        helper.make_node("Add", ["x", "good"], ["y"]),
        a=f32(1, 1, 2, 2), b=f32(2, 3),
    )  # fmt: skip
    t = Terms()
    kind = TensorType("bfloat16", (2,))
    left = t.const(np.ones(2, ml_dtypes.bfloat16))
    unknown = t.add("Sinh", left, kind=kind)
    fine = t.add("Neg", t.const(f32(2)), kind=TensorType("float32", (2,)))
    result = settle(t.graph(unknown, fine))
    assert [node.op for node in result.nodes] == ["Const", "Sinh", "Const"]
    assert sorted(node.op for node in settle(lower(load(model)).graph).nodes) == ["Add", "Const", "Input"]
