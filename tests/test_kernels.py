"""Every kernel against onnxruntime in float32, against onnx.reference in float64, and the algebra modulo a prime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from superopt.errors import EvaluationError
from superopt.forms import onnx_form
from superopt.kernels import FLOAT64, NotInRing, ZeroDivisor, apply, evaluate_graph, modular
from superopt.kernels.algebra import erf, rational
from superopt.kernels.registry import KERNELS, kernel
from superopt.operators import FORMS, operator
from superopt.terms import ABSENT, Attrs, Node, TensorType, TermGraph

Args = Sequence["np.ndarray[Any, Any] | None"]
RNG = np.random.default_rng(20240901)
OPSET = 23
"""The newest opset that both onnxruntime and the reference are asked for."""


def f32(*shape: int, low: float = -2, high: float = 2) -> np.ndarray[Any, Any]:
    return RNG.uniform(low, high, shape).astype(np.float32)


def i64(*shape: int, low: int = -5, high: int = 6) -> np.ndarray[Any, Any]:
    return RNG.integers(low, high, shape).astype(np.int64)


def boolean(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 2, shape).astype(bool)


def complete(op: str, given: dict[str, Any]) -> Attrs:
    spec = operator(op)
    assert spec is not None
    single = {key: float(np.float32(value)) if isinstance(value, float) else value for key, value in given.items()}
    return Attrs.of({**dict(spec.defaults.items), **single})


def conv(k: tuple[int, ...], **given: Any) -> dict[str, Any]:
    rank = len(k)
    return {"dilations": (1,) * rank, "group": 1, "pads": (0,) * (2 * rank), "strides": (1,) * rank, **given}


def pool(k: tuple[int, ...], **given: Any) -> dict[str, Any]:
    rank = len(k)
    plain = {"dilations": (1,) * rank, "pads": (0,) * (2 * rank), "strides": (1,) * rank}
    return {**plain, "kernel_shape": k, **given}


X = f32(2, 3, 4, 5)
SPECIAL = np.asarray([0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 30, -30], np.float32)
CASES: list[tuple[str, dict[str, Any], Args]] = []


def case(op: str, *args: np.ndarray[Any, Any] | None, **given: Any) -> None:
    CASES.append((op, given, args))


for (
    _op
) in "Abs Neg Ceil Floor Round Sign Relu Erf Exp Sigmoid Tanh HardSwish Mish Softplus Softsign Sin Cos Atan".split():
    case(_op, X)
    if _op not in ("Mish", "Sin", "Cos"):
        case(_op, SPECIAL)
for _op in "Asin Acos Atanh".split():
    case(_op, f32(5, 3, low=-0.95, high=0.95))
for _op in "Acosh Log Sqrt Reciprocal".split():
    case(_op, f32(5, 3, low=1.1, high=9))
for _op in "Asinh Sinh Cosh Tan".split():
    case(_op, f32(5, 3, low=-1.4, high=1.4))
case("Identity", X)
case("Dropout", X, ratio=0.3)
case("Not", boolean(3, 4))
case("BitwiseNot", i64(3, 4))
case("IsInf", SPECIAL, detect_positive=0)
case("IsInf", SPECIAL)
case("IsNaN", SPECIAL)
case("Abs", i64(7))
case("Neg", i64(7))
case("Celu", X, alpha=0.7)
case("Elu", X, alpha=1.3)
case("Selu", X)
case("LeakyRelu", X, alpha=0.3)
case("ThresholdedRelu", X, alpha=0.4)
case("HardSigmoid", X, alpha=0.3, beta=0.4)
case("Shrink", X, lambd=0.6, bias=0.2)
case("Gelu", X)
case("Gelu", X, approximate="tanh")
case("Swish", X, alpha=1.7)
for _to in ("int32", "int64", "uint8", "bool", "float32", "float64"):
    case("Cast", f32(4, 5, low=0, high=100), to=_to)
case("Cast", f32(4, 5, low=-100, high=100), to="int8")
case("Cast", i64(4, 5), to="float32")
case("Cast", boolean(4, 5), to="int64")
case("Clip", X, np.float32(-0.5), np.float32(0.7))
case("Clip", X, None, np.float32(0.7))
case("Clip", X, np.float32(0.1), None)
case("Clip", X, np.float32(0.5), np.float32(-0.5))
case("Clip", i64(9), np.int64(-2), np.int64(3))
for _op in "Add Sub Mul".split():
    case(_op, f32(2, 1, 3), f32(4, 1))
    case(_op, i64(2, 1, 3), i64(4, 1))
case("Div", f32(2, 1, 3), f32(4, 1, low=0.5))
case("Div", i64(4, 5, low=-9, high=9), np.asarray([1, -2, 3, -4, 5]))
case("Pow", f32(3, 4, low=0.1), f32(4))
case("Pow", f32(3, 4), np.asarray(2.0, np.float32))
case("Pow", i64(3, 4), np.asarray(3, np.int64))
case("Pow", f32(3, 4), np.asarray(2, np.int64))
case("Mod", i64(20, low=-9, high=9), np.asarray(4), fmod=0)
case("Mod", i64(20, low=-9, high=9), np.asarray(-4), fmod=0)
case("Mod", f32(20), np.asarray(0.7, np.float32), fmod=1)
case("PRelu", X, f32(3, 1, 1))
for _op in "And Or Xor".split():
    case(_op, boolean(3, 4), boolean(4))
for _op in "Equal Less LessOrEqual Greater GreaterOrEqual".split():
    case(_op, i64(5, 6), i64(6))
    case(_op, SPECIAL, SPECIAL[::-1].copy())
for _op in "BitwiseAnd BitwiseOr BitwiseXor".split():
    case(_op, i64(5, 6), i64(6))
case("BitShift", np.asarray([1, 2, 200], np.uint8), np.asarray([1, 3, 2], np.uint8), direction="LEFT")
case("BitShift", np.asarray([1, 2, 200], np.uint8), np.asarray([1, 3, 2], np.uint8), direction="RIGHT")
case("Where", boolean(3, 1), f32(3, 4), f32(4))
for _op in "Sum Mean Max Min".split():
    case(_op, f32(3, 1), f32(1, 4), f32(3, 4))
    case(_op, f32(3))
case("Max", SPECIAL, np.float32([0]))
case("Max", i64(5), i64(5))

case("Conv", f32(2, 4, 7, 9), f32(6, 4, 3, 3), f32(6), **conv((3, 3), pads=(1, 0, 2, 1), strides=(2, 1)))
case("Conv", f32(2, 4, 9, 9), f32(6, 2, 3, 2), f32(6), **conv((3, 2), group=2, dilations=(2, 3)))
case("Conv", f32(1, 6, 7, 7), f32(6, 1, 3, 3), f32(6), **conv((3, 3), group=6, pads=(1, 1, 1, 1), strides=(2, 2)))
case("Conv", f32(1, 3, 7, 7), f32(6, 1, 3, 3), f32(6), **conv((3, 3), group=3))
case("Conv", f32(2, 5, 6, 6), f32(3, 5, 1, 1), f32(3), **conv((1, 1), strides=(2, 3)))
case("Conv", f32(2, 5, 6, 6), f32(3, 5, 1, 1), f32(3), **conv((1, 1), pads=(1, 1, 0, 2)))
case("Conv", f32(2, 5, 9), f32(3, 5, 4), f32(3), **conv((4,), pads=(3, 1), strides=(2,)))
case("Conv", f32(1, 2, 5, 4, 6), f32(4, 2, 2, 3, 2), f32(4), **conv((2, 3, 2), pads=(1, 0, 1, 0, 2, 1)))
case("Conv", f32(0, 2, 5, 5), f32(4, 2, 3, 3), f32(4), **conv((3, 3)))
for _group, _c, _m in ((1, 4, 3), (2, 4, 3), (4, 4, 1)):
    case(
        "ConvTranspose", f32(2, _c, 5, 4), f32(_c, _m, 3, 2), f32(_m * _group),
        **conv((3, 2), group=_group, strides=(2, 3), pads=(1, 0, 2, 1), output_padding=(1, 2), dilations=(2, 1)),
    )  # fmt: skip
case("ConvTranspose", f32(1, 2, 5), f32(2, 3, 3), f32(3), **conv((3,), output_padding=(0,), strides=(4,)))
case("ConvTranspose", f32(1, 2, 3, 3, 2), f32(2, 2, 2, 2, 3), f32(2), **conv((2, 2, 3), output_padding=(0, 0, 0)))
case("MatMul", f32(3, 4), f32(4, 5))
case("MatMul", f32(2, 1, 3, 4), f32(5, 4, 2))
case("MatMul", f32(4), f32(4, 5))
case("MatMul", f32(3, 4), f32(4))
case("MatMul", i64(3, 4).astype(np.int32), i64(4, 5).astype(np.int32))
case("Gemm", f32(4, 3), f32(5, 4), f32(5), transA=1, transB=1, alpha=0.5, beta=2.0)
case("Gemm", f32(3, 4), f32(4, 5), f32(3, 1))
case("Gemm", f32(3, 4), f32(4, 5), None)
case("Einsum", f32(2, 3, 4), f32(2, 4, 5), equation="bij,bjk->bik")
case("Einsum", f32(2, 3, 4), equation="bij->ji")
case("Einsum", f32(2, 3, 4), f32(4, 5), equation="...j,jk -> ...k")

for _ceil in (0, 1):
    for _pads, _strides, _k in (
        ((0, 0, 0, 0), (2, 2), (3, 3)), ((1, 0, 1, 1), (3, 2), (2, 3)), ((1, 1, 1, 1), (2, 3), (2, 2)),
    ):  # fmt: skip
        for _size in ((7, 8), (9, 6)):
            _given = pool(_k, pads=_pads, strides=_strides, ceil_mode=_ceil)
            case("MaxPool", f32(2, 3, *_size), **_given)
            case("LpPool", f32(2, 3, *_size), **_given, p=2)
            for _include in (0, 1):
                case("AveragePool", f32(2, 3, *_size), **_given, count_include_pad=_include)
case("MaxPool", f32(1, 2, 9, 9), **pool((3, 2), dilations=(2, 3), pads=(1, 1, 1, 1)))
case("AveragePool", f32(1, 2, 9, 9), **pool((3, 2), dilations=(2, 3), pads=(1, 1, 1, 1)))
case("MaxPool", RNG.integers(-100, 100, (1, 2, 6, 6)).astype(np.int8), **pool((3, 3), pads=(1, 1, 1, 1)))
case("AveragePool", f32(1, 2, 9), **pool((4,), pads=(2, 1), count_include_pad=1))
case("MaxPool", f32(1, 2, 4, 5, 6), **pool((2, 2, 3), strides=(1, 2, 2)))
case("LpPool", f32(1, 2, 7), **pool((3,)), p=3)
case("GlobalAveragePool", X)
case("GlobalMaxPool", X)
case("LRN", f32(2, 7, 3, 3), size=3, alpha=0.1, beta=0.6, bias=1.5)
case("LRN", f32(2, 7, 3, 3), size=5, alpha=0.1)
case("BatchNormalization", X, f32(3), f32(3), f32(3), f32(3, low=0.1), epsilon=1e-3)
case("BatchNormalization", f32(4, 3), f32(3), f32(3), f32(3), f32(3, low=0.1))
case("InstanceNormalization", X, f32(3), f32(3), epsilon=1e-2)
case("LayerNormalization", X, f32(4, 5), f32(4, 5), axis=2)
case("LayerNormalization", X, f32(5), None)
case("RMSNormalization", X, f32(5))
case("GroupNormalization", f32(2, 6, 4, 3), f32(6), f32(6), num_groups=3)
case("LpNormalization", X, axis=1, p=1)
case("LpNormalization", X, axis=3, p=2)
case("Softmax", X, axis=1)
case("Softmax", X * 100, axis=3)
case("LogSoftmax", X, axis=2)
for _op in "Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp LogSum".split():
    _x = f32(3, 4, 5, low=0.1)
    case(f"Reduce{_op}", _x, axes=(0, 2), keepdims=1)
    case(f"Reduce{_op}", _x, axes=(1,), keepdims=0)
    case(f"Reduce{_op}", _x, axes=(0, 1, 2), keepdims=0)
case("ReduceMean", i64(3, 4, low=-9, high=9), axes=(1,))
case("ReduceSum", i64(3, 4), axes=(1,))
case("ReduceMax", i64(3, 4), axes=(0,))
case("ReduceSum", f32(3, 0, 2), axes=(1,))
for _op in ("ArgMax", "ArgMin"):
    for _last in (0, 1):
        case(_op, i64(4, 9, low=0, high=3).astype(np.float32), axis=1, select_last_index=_last, keepdims=_last)
for _exclusive in (0, 1):
    for _reverse in (0, 1):
        case("CumSum", f32(3, 4), axis=1, exclusive=_exclusive, reverse=_reverse)

case("Concat", f32(2, 3), f32(2, 1), f32(2, 2), axis=1)
case("Split", f32(2, 7), axis=1, split=(1, 4, 2))
case("Slice", f32(6, 7), starts=(1, -1), ends=(5, -100), axes=(0, 1), steps=(2, -2))
case("Slice", f32(6, 7), starts=(-2,), ends=(9223372036854775807,), axes=(1,), steps=(1,))
case("Slice", f32(6, 7), starts=(5,), ends=(-7,), axes=(0,), steps=(-1,))
case("Slice", f32(6, 7), starts=(4,), ends=(2,), axes=(0,), steps=(1,))
case("Pad", f32(3, 4), np.float32(2.5), pads=(1, 0, 2, 1))
case("Pad", f32(3, 4), None, pads=(1, -1, 0, 2))
for _mode in ("edge", "reflect", "wrap"):
    case("Pad", f32(3, 4), None, pads=(1, 2, 2, 1), mode=_mode)
case("Reshape", f32(2, 3, 4), shape=(0, -1))
case("Reshape", f32(2, 3, 4), shape=(4, 6))
case("Reshape", f32(0, 3), shape=(3, 0), allowzero=1)
case("Flatten", X, axis=2)
case("Flatten", X, axis=0)
case("Squeeze", f32(1, 3, 1), axes=(0, 2))
case("Unsqueeze", f32(3, 2), axes=(0, 2))
case("Transpose", X, perm=(0, 2, 3, 1))
case("Expand", f32(3, 1), shape=(2, 1, 4))
case("Tile", f32(2, 3), repeats=(2, 3))
case("Gather", f32(5, 4), np.asarray([[0, -1], [2, 4]]), axis=0)
case("Gather", f32(5, 4), np.asarray(3), axis=1)
case("GatherElements", f32(4, 5), i64(3, 5, low=-4, high=4), axis=0)
case("GatherND", f32(2, 3, 4), np.asarray([[[0], [-1]], [[2], [1]]]), batch_dims=1)
case("GatherND", f32(2, 3, 4), np.asarray([[0, 1], [1, -2]]))
for _mode in ("none", "add", "mul", "max", "min"):
    case("ScatterND", f32(5, 2), np.asarray([[1], [-1], [3]]), f32(3, 2), reduction=_mode)
case("ScatterND", f32(5, 2), np.asarray([[1], [1], [3]]), f32(3, 2), reduction="add")
case("DepthToSpace", f32(1, 8, 2, 3), blocksize=2, mode="DCR")
case("DepthToSpace", f32(1, 8, 2, 3), blocksize=2, mode="CRD")
case("SpaceToDepth", f32(1, 2, 4, 6), blocksize=2)
case("Trilu", f32(2, 4, 5), k=1, upper=1)
case("Trilu", f32(4, 5), k=-1, upper=0)
case("Shape", X, start=1, end=3)
case("Shape", X)
case("Size", X)
for _one in (0, 1):
    case("STFT", f32(2, 40), f32(8), frame_step=5, frame_length=8, onesided=_one)
    case("STFT", f32(2, 40, 1), f32(6), frame_step=7, frame_length=6, onesided=_one)
for _how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
    for _scales, _sizes in (((1.0, 1.0, 2.0, 1.5), ()), ((1.0, 1.0, 0.5, 0.75), ()), ((), (2, 3, 7, 1))):
        _given = {"scales": _scales, "sizes": _sizes, "coordinate_transformation_mode": _how}
        case("Resize", f32(2, 3, 4, 5), **_given, mode="linear")
        case("Resize", f32(2, 3, 4, 5), **_given, mode="cubic", cubic_coeff_a=-0.5)
        for _near in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            case("Resize", f32(2, 3, 4, 5), **_given, mode="nearest", nearest_mode=_near)
case("Resize", f32(4, 5), scales=(2.0, 3.0), sizes=(), mode="linear")
_scale = np.asarray([0.1, 0.2, 0.3], np.float32)
for _zero in (np.asarray(7, np.uint8), np.asarray(-3, np.int8), None):
    case("QuantizeLinear", f32(3, 4, low=-20, high=20), np.float32(0.1), _zero)
    _codes = RNG.integers(0, 99, (3, 4)).astype(np.uint8 if _zero is None else _zero.dtype)
    case("DequantizeLinear", _codes, np.float32(0.1), _zero)
case("QuantizeLinear", f32(2, 3, 4), _scale, np.asarray([0, 9, 8], np.uint8), axis=1)
_codes = RNG.integers(0, 99, (2, 3, 4)).astype(np.uint8)
case("DequantizeLinear", _codes, _scale, np.asarray([0, 9, 8], np.uint8), axis=1)
case("DequantizeLinear", RNG.integers(0, 99, (4, 3)).astype(np.int8), f32(2, 3, low=0.1), None, axis=0, block_size=2)
case("QuantizeLinear", f32(4, 3), f32(2, 3, low=0.1), None, axis=0, block_size=2, output_dtype="int8")


def name_of(index: int) -> str:
    op, _, _ = CASES[index]
    return f"{index}-{op}"


def one_node_model(op: str, attrs: Attrs, args: Args, double: bool = False) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model of one operator, with everything that is not constant in the normal form as an input."""
    feed: dict[str, Any] = {}
    for index, arg in enumerate(args):
        if arg is not None:
            feed[f"a{index}"] = arg.astype(np.float64) if double and arg.dtype == np.float32 else np.asarray(arg)
    opset = 24 if op == "Swish" else OPSET
    form = onnx_form(op, attrs, tuple(arg is not None for arg in args), opset)
    names, initializers = [], []
    for place, item in enumerate(form.inputs):
        if item is None:
            names.append("")
        elif isinstance(item, int):
            names.append(f"a{item}")
        else:
            names.append(f"c{place}")
            initializers.append(onnx.numpy_helper.from_array(np.asarray(item), f"c{place}"))
    outputs = len(attrs["split"]) if op == "Split" else 1  # type: ignore[arg-type]
    attributes = dict(form.attributes)
    if double and attributes.get("to") == onnx.TensorProto.FLOAT:
        attributes["to"] = onnx.TensorProto.DOUBLE
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    inputs = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for key, value in feed.items()
    ]
    results = [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "g", inputs, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feed


def run_kernel(op: str, attrs: Attrs, args: Args) -> tuple[np.ndarray[Any, Any], ...]:
    return apply(op, attrs, [None if arg is None else FLOAT64.enter(np.asarray(arg)) for arg in args], FLOAT64)


def scale_of(args: Args) -> float:
    """The largest finite magnitude among float arguments, at least 1."""
    floats = [arg for arg in args if arg is not None and arg.dtype.kind == "f"]
    return max([1.0, *(float(np.max(np.abs(arg[np.isfinite(arg)]), initial=0)) for arg in floats)])


def compare(actual: Sequence[np.ndarray[Any, Any]], expected: Sequence[Any], rtol: float, atol: float) -> None:
    assert len(actual) == len(expected)
    for mine, other in zip(actual, expected, strict=True):
        assert mine.shape == other.shape
        if other.dtype.kind == "f":
            assert mine.dtype == np.float64
            np.testing.assert_allclose(mine, other.astype(np.float64), rtol=rtol, atol=atol)
        else:
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)


def test_every_operator_has_a_kernel_and_a_case() -> None:
    assert set(KERNELS) == set(FORMS) == {op for op, _, _ in CASES}


def test_a_second_kernel_of_an_operator_is_refused() -> None:
    before = KERNELS["Add"]
    with pytest.raises(ValueError, match="Add has a kernel already"):

        @kernel("Add")
        def again(algebra: Any, attrs: Any, args: Any) -> Any:
            return args[0]

    assert KERNELS["Add"] is before


@pytest.mark.parametrize("index", range(len(CASES)), ids=name_of)
def test_kernel_is_what_onnxruntime_computes(index: int) -> None:
    op, given, args = CASES[index]
    attrs = complete(op, given)
    model, feed = one_node_model(op, attrs, args)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    # float32 rounds 2^-24 of what enters a sum; the longest sum here has 72 terms of products up to 4.
    compare(run_kernel(op, attrs, args), session.run(None, feed), 2e-5, 4e-6 * scale_of(args))


def reference_is_known_to_be_wrong(op: str, given: dict[str, Any], args: Args) -> bool:
    """Where onnx.reference departs from the specification, or from onnxruntime where that is silent."""
    first = args[0]
    assert first is not None
    match op:
        case "ConvTranspose":
            return given["group"] > 1 or len(given["strides"]) != 2 or any(given["output_padding"])
        case "Div" | "Mod" | "ReduceMean":
            return first.dtype.kind == "i"
        case "AveragePool" | "LpPool" | "MaxPool":
            return bool(given.get("ceil_mode", 0)) or any(given["pads"]) or first.dtype.kind == "i"
        case "Conv":
            return first.size == 0
        case "Clip":
            return args[1] is None
        case "STFT":
            return first.ndim == 2
        case "Pad":
            return min(given["pads"]) < 0
        case "Gemm" | "LayerNormalization":
            return args[2] is None
        case "Resize":  # the size before it is rounded, and other weights
            return given["mode"] == "cubic" or given.get("coordinate_transformation_mode") == "align_corners"
        case _:
            return op in REFERENCE_LACKS


REFERENCE_LACKS = {
    "Erf": "in float32", "Gelu": "in float32", "HardSwish": "a sixth in float32", "GroupNormalization": "in float32",
    "LRN": "as many channels as there are images", "Mean": "does not broadcast", "LpNormalization": "no absolute value",
}  # fmt: skip


COMPARED = [index for index, case in enumerate(CASES) if not reference_is_known_to_be_wrong(*case)]


@pytest.mark.parametrize("index", COMPARED, ids=name_of)
def test_kernel_is_what_the_reference_computes(index: int) -> None:
    op, given, args = CASES[index]
    attrs = complete(op, given)
    model, feed = one_node_model(op, attrs, args, double=True)
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(model).run(None, feed)
    compare(run_kernel(op, attrs, args), [np.asarray(item) for item in expected], 1e-9, 1e-12 * scale_of(args))


def test_erf_is_that_of_the_standard_library() -> None:
    x = np.concatenate([RNG.uniform(-7, 7, 5000), RNG.uniform(-1e-3, 1e-3, 1000), [0.0, -0.0, 1e-300, 40, -40]])
    expected = np.asarray([math.erf(value) for value in x])
    np.testing.assert_array_max_ulp(erf(x), expected, 4)
    assert np.signbit(erf(np.asarray([-0.0])))[0]
    assert np.isnan(erf(np.asarray([np.nan])))[0]


RING = modular(seed=3)
NOT_RING = set(
    """Abs Ceil Celu Elu Floor HardSigmoid HardSwish IsInf IsNaN LeakyRelu Relu Round Selu Shrink Sign Softsign
    ThresholdedRelu Clip Max Min MaxPool GlobalMaxPool LpPool ArgMax ArgMin ReduceMax ReduceMin ReduceL1 Less
    LessOrEqual Greater GreaterOrEqual PRelu BitwiseNot BitwiseAnd BitwiseOr BitwiseXor BitShift Mod
    QuantizeLinear STFT Resize""".split()
)
NOT_RATIONAL = set(
    """Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Gelu Log Mish Sigmoid Sin Sinh Softplus Sqrt Swish Tan Tanh
    BatchNormalization InstanceNormalization GroupNormalization LayerNormalization RMSNormalization LRN LpNormalization
    Softmax LogSoftmax ReduceL2 ReduceLogSum ReduceLogSumExp Pow""".split()
)
INDICES = {"Gather": (1,), "GatherElements": (1,), "GatherND": (1,), "ScatterND": (1,)}


def dyadic(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Eighths near the values, so that float64 computes products and sums without rounding."""
    return np.rint(np.nan_to_num(array.astype(np.float64), posinf=3, neginf=-3) * 8) / 8


@pytest.mark.parametrize("index", range(len(CASES)), ids=name_of)
def test_kernel_modulo_a_prime_is_the_residue_of_the_exact_result(index: int) -> None:
    op, given, args = CASES[index]
    attrs = complete(op, {key: dyadic(np.asarray(v)).item() if isinstance(v, float) else v for key, v in given.items()})
    exact = [
        None if a is None else dyadic(np.asarray(a)) if np.asarray(a).dtype.kind == "f" else np.asarray(a) for a in args
    ]
    ring = [a if a is None or place in INDICES.get(op, ()) else RING.enter(a) for place, a in enumerate(exact)]
    if op in NOT_RING or (op == "Cast" and "float" not in given["to"]) or given.get("reduction") in ("max", "min"):
        with pytest.raises(NotInRing):
            apply(op, attrs, ring, RING)
        return
    if op == "LpNormalization" and given["p"] == 1:
        return
    try:
        results = apply(op, attrs, ring, RING)
    except ZeroDivisor:
        return
    assert all(result.dtype == (np.bool_ if result.dtype == np.bool_ else np.int64) for result in results)
    if op == "ReduceProd" and len(given["axes"]) == 3:
        return  # 60 factors of 5 bits are more than float64 holds
    if op in NOT_RATIONAL or (op in ("Div", "ReduceMean") and np.asarray(args[0]).dtype.kind == "i"):
        return
    for mine, other in zip(results, apply(op, attrs, exact, FLOAT64), strict=True):
        np.testing.assert_array_equal(mine, RING.enter(other))


def test_large_residues_multiply_exactly() -> None:
    a, b = RNG.integers(RING.prime - 9, RING.prime, (3, 700)), RNG.integers(RING.prime - 9, RING.prime, (700, 2))
    expected = [
        [sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) % RING.prime for column in b.T] for row in a
    ]
    np.testing.assert_array_equal(RING.matmul(a, b), expected)
    np.testing.assert_array_equal(RING.einsum("ij,jk->ik", [a, b]), expected)
    assert RING.prod(a, (1,), False)[0] == math.prod(int(x) for x in a[0]) % RING.prime


def test_numbers_enter_the_ring_as_the_fractions_they_stand_for() -> None:
    p = RING.prime
    assert RING.number(0.5) * 2 % p == 1
    assert RING.number(-3) == p - 3
    assert RING.number(float(np.float32(1 / 9))) * 9 % p == 1
    assert RING.number(1 / 49) * 49 % p == 1
    assert rational(float(np.float32(1e-5))) == Fraction(float(np.float32(1e-5)))
    values = np.asarray([0.25, 1 / 3, np.pi, 1e-5, 3.0], np.float32)
    assert len(set(RING.enter(values).tolist())) == 5
    with pytest.raises(NotInRing):
        RING.number(math.inf)


def test_division_modulo_a_prime_undoes_multiplication() -> None:
    a, b = RNG.integers(1, RING.prime, 50), RNG.integers(1, RING.prime, 50)
    np.testing.assert_array_equal(RING.div(RING.mul(a, b), b), a)
    with pytest.raises(ZeroDivisor):
        RING.div(a, np.zeros_like(b))


def test_uninterpreted_functions_differ_by_name_seed_and_argument() -> None:
    x = RNG.integers(0, RING.prime, 100)
    sine = RING.function("sin", x)
    assert np.all((sine > 0) & (sine < RING.prime))
    assert len(np.unique(sine)) == len(np.unique(x))
    assert np.all(sine != RING.function("cos", x))
    assert np.all(sine != modular(seed=4).function("sin", x))
    np.testing.assert_array_equal(sine, modular(seed=3).function("sin", x + RING.prime))


def test_batch_normalization_is_its_formula_modulo_a_prime() -> None:
    def residues(*shape: int) -> np.ndarray[Any, Any]:
        return RNG.integers(1, RING.prime, shape)

    x, s, t, m, v = residues(2, 3, 2, 2), residues(3), residues(3), residues(3), residues(3)
    attrs = complete("BatchNormalization", {})
    (mine,) = apply("BatchNormalization", attrs, [x, s, t, m, v], RING)
    root = RING.function("sqrt", RING.add(v, RING.number(float(attrs["epsilon"]))))  # type: ignore[arg-type]
    c = [a.reshape(3, 1, 1) for a in (s, t, m, root)]
    expected = RING.add(RING.div(RING.mul(c[0], RING.sub(x, c[2])), c[3]), c[1])
    np.testing.assert_array_equal(mine, expected)


def graph_of(*nodes: Node, roots: tuple[int, ...]) -> TermGraph:
    return TermGraph(nodes, (TensorType("float32", None),) * len(nodes), roots)


def test_graph_is_evaluated_in_order_and_keeps_what_is_asked_for() -> None:
    graph = graph_of(
        Node("Input", (), Attrs.of(name="x")),
        Node("Split", (0,), Attrs.of(axis=1, split=(1, 2))),
        Node("Project", (1,), Attrs.of(index=1)),
        Node("Clip", (2, ABSENT, ABSENT)),
        Node("Opaque", (0,), Attrs.of(key="never computed")),
        roots=(3, 0, 3),
    )
    x = f32(2, 3)
    keep: dict[int, np.ndarray[Any, Any]] = {}
    first, second, third = evaluate_graph(graph, {"x": x}, FLOAT64, keep)
    np.testing.assert_array_equal(first, x[:, 1:])
    np.testing.assert_array_equal(second, x)
    assert third is first
    assert sorted(keep) == [0, 2, 3]


def test_deep_graph_is_evaluated_without_recursion() -> None:
    nodes = [Node("Input", (), Attrs.of(name="x"))] + [Node("Add", (i, 0)) for i in range(3000)]
    (result,) = evaluate_graph(graph_of(*nodes, roots=(3000,)), {"x": np.ones(2, np.float32)}, FLOAT64)
    np.testing.assert_array_equal(result, [3001, 3001])


def test_what_cannot_be_applied_is_an_evaluation_error() -> None:
    with pytest.raises(EvaluationError, match="MatMul"):
        apply("MatMul", Attrs(), [np.zeros((2, 3)), np.zeros((2, 3))], FLOAT64)
    with pytest.raises(EvaluationError, match="division by zero"):
        apply("Div", Attrs(), [np.asarray(3), np.asarray(0)], FLOAT64)
    with pytest.raises(EvaluationError, match="no kernel"):
        apply("NonZero", Attrs(), [], FLOAT64)
    with pytest.raises(EvaluationError, match="x is not given"):
        evaluate_graph(graph_of(Node("Input", (), Attrs.of(name="x")), roots=(0,)), {}, FLOAT64)
