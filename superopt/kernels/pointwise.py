"""Kernels of operators that work element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import ml_dtypes
import numpy as np

from superopt.errors import EvaluationError
from superopt.kernels.algebra import Algebra, Array, check_divisor, is_float
from superopt.kernels.registry import KERNELS, Args, Kernel, all_given, given, integer, kernel, number, string
from superopt.terms import Attrs

_FUNCTIONS = {
    "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Log": "log", "Sigmoid": "sigmoid", "Sin": "sin", "Sinh": "sinh",
    "Softplus": "softplus", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip


def _function(op: str, name: str) -> Kernel:
    def apply(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
        x = given(op, args, 0)
        return algebra.function(name, x).astype(x.dtype, copy=False)

    return apply


for _op, _name in _FUNCTIONS.items():
    KERNELS[_op] = _function(_op, _name)


def _ordered(op: str, function: Callable[[Array, Attrs], Array]) -> Kernel:
    """A function of one argument that looks at signs or digits."""

    def apply(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
        algebra.compares(op)
        x = given(op, args, 0)
        result = np.asarray(function(x, attrs))
        return result if result.dtype == np.bool_ else result.astype(x.dtype, copy=False)

    return apply


def _celu(x: Array, attrs: Attrs) -> Array:
    alpha = number(attrs, "alpha")
    return np.asarray(np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0))


def _selu(x: Array, attrs: Attrs) -> Array:
    alpha = number(attrs, "alpha")
    return np.asarray(number(attrs, "gamma") * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))


def _elu(x: Array, attrs: Attrs) -> Array:
    return np.asarray(np.where(x > 0, x, number(attrs, "alpha") * np.expm1(np.minimum(x, 0))))


def _shrink(x: Array, attrs: Attrs) -> Array:
    bias, limit = number(attrs, "bias"), number(attrs, "lambd")
    return np.asarray(np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0)))


def _is_infinite(x: Array, attrs: Attrs) -> Array:
    positive, negative = integer(attrs, "detect_positive"), integer(attrs, "detect_negative")
    return np.asarray(np.isinf(x) & (((x > 0) & bool(positive)) | ((x < 0) & bool(negative))))


_ORDERED: dict[str, Callable[[Array, Attrs], Array]] = {
    "Abs": lambda x, _: np.abs(x),
    "Ceil": lambda x, _: np.ceil(x),
    "Floor": lambda x, _: np.floor(x),
    "Round": lambda x, _: np.rint(x),
    "Sign": lambda x, _: np.sign(x),
    "Relu": lambda x, _: np.maximum(x, 0),
    "LeakyRelu": lambda x, attrs: np.where(x >= 0, x, number(attrs, "alpha") * x),
    "ThresholdedRelu": lambda x, attrs: np.where(x > number(attrs, "alpha"), x, 0),
    "Celu": _celu,
    "Selu": _selu,
    "Elu": _elu,
    "HardSigmoid": lambda x, attrs: np.clip(number(attrs, "alpha") * x + number(attrs, "beta"), 0, 1),
    "HardSwish": lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1),
    "Softsign": lambda x, _: x / (1 + np.abs(x)),
    "Shrink": _shrink,
    "IsInf": _is_infinite,
    "IsNaN": lambda x, _: np.isnan(x),
    "BitwiseNot": lambda x, _: np.bitwise_not(x),
}
for _op, _what in _ORDERED.items():
    KERNELS[_op] = _ordered(_op, _what)


@kernel("Identity", "Dropout")
def _identity(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return given("Identity", args, 0)


@kernel("Neg")
def _neg(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Neg", args, 0)
    # Not 0 - x: that loses the sign of zero.
    return algebra.sub(np.zeros_like(x), x) if algebra.exact else np.negative(x)


@kernel("Not")
def _not(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return np.asarray(np.logical_not(given("Not", args, 0)))


@kernel("Reciprocal")
def _reciprocal(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return algebra.div(algebra.number(1), given("Reciprocal", args, 0))


@kernel("Gelu")
def _gelu(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    name = "gelu_tanh" if string(attrs, "approximate") == "tanh" else "gelu"
    return algebra.function(name, given("Gelu", args, 0))


@kernel("Mish")
def _mish(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Mish", args, 0)
    return algebra.mul(x, algebra.function("tanh", algebra.function("softplus", x)))


@kernel("Swish")
def _swish(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Swish", args, 0)
    return algebra.mul(x, algebra.function("sigmoid", algebra.mul(x, algebra.number(number(attrs, "alpha")))))


@kernel("Cast")
def _cast(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    """Between floats of 16 bits and more nothing happens: over the reals a cast only rounds."""
    x, to = given("Cast", args, 0), string(attrs, "to")
    if to.startswith(_EIGHT_BITS):
        algebra.compares(f"Cast to {to}")
        return _to_eight_bits(x, to, saturate=bool(integer(attrs, "saturate")))
    if "float" in to:
        if algebra.exact:
            return x.astype(np.int64, copy=False)
        if x.dtype.kind in "OUS":
            return np.asarray([float(item) for item in x.ravel()], dtype=np.float64).reshape(x.shape)
        return x.astype(np.float64, copy=False)
    algebra.compares(f"Cast to {to}")
    if to == "string" or x.dtype.kind in "OUS":
        raise EvaluationError(f"Cast from {x.dtype} to {to} has no kernel")
    return _to_integer(x, to)


_EIGHT_BITS = ("float8e4m3", "float8e5m2")


def _to_eight_bits(x: Array, to: str, *, saturate: bool) -> Array:
    """Rounded, since three bits of a number are another number; beyond the largest it is that, or none."""
    dtype, value = dtype_of(to), x.astype(np.float64)
    if saturate:
        most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it
        value = np.clip(value, -most, most)
    return np.asarray(value.astype(dtype).astype(np.float64))


def _to_integer(x: Array, to: str) -> Array:
    if to == "bool":
        return np.asarray(x != 0)
    dtype = dtype_of(to)
    if not is_float(x.dtype):
        return x.astype(dtype)
    whole = np.trunc(x)
    # What is outside of the range is not defined by ONNX; through int64 it is at least the same on every machine.
    safe = np.where(np.isfinite(whole) & (np.abs(whole) < 2.0**63), whole, np.float64(-(2.0**63)))
    if to == "uint64":
        large = whole >= 2.0**63
        rest = np.where(large, whole - 2.0**63, safe).astype(np.int64).astype(np.uint64)
        return np.asarray(rest + large.astype(np.uint64) * np.uint64(1 << 63))
    return safe.astype(np.int64).astype(dtype)


def dtype_of(name: str) -> np.dtype[np.generic]:
    """The numpy or ml_dtypes dtype of an element type."""
    if name == "string":
        return np.dtype(object)
    name = _ML_NAMES.get(name, name)
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


_ML_NAMES = {
    "float4e2m1": "float4_e2m1fn", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz", "float8e8m0": "float8_e8m0fnu",
}  # fmt: skip


@kernel("Clip")
def _clip(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    """As ONNX's function body says it: a bound that is NaN bounds nothing, where Max and Min would spread it."""
    algebra.compares("Clip")
    result = given("Clip", args, 0)
    if len(args) > 1 and args[1] is not None:
        result = np.where(result < args[1], args[1], result)
    if len(args) > 2 and args[2] is not None:
        result = np.where(args[2] < result, args[2], result)
    return np.asarray(result)


def _binary(op: str, apply_to: Callable[[Algebra, Array, Array], Array]) -> Kernel:
    def apply(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
        return np.asarray(apply_to(algebra, given(op, args, 0), given(op, args, 1)))

    return apply


def _compared(op: str, function: Callable[[Array, Array], Array]) -> Kernel:
    def apply(algebra: Algebra, a: Array, b: Array) -> Array:
        algebra.compares(op)
        return function(a, b)

    return _binary(op, apply)


KERNELS["Add"] = _binary("Add", lambda algebra, a, b: algebra.add(a, b))
KERNELS["Sub"] = _binary("Sub", lambda algebra, a, b: algebra.sub(a, b))
KERNELS["Mul"] = _binary("Mul", lambda algebra, a, b: algebra.mul(a, b))
KERNELS["Div"] = _binary("Div", lambda algebra, a, b: algebra.div(a, b))
KERNELS["Pow"] = _binary("Pow", lambda algebra, a, b: algebra.power(a, b))
KERNELS["And"] = _binary("And", lambda algebra, a, b: np.logical_and(a, b))
KERNELS["Or"] = _binary("Or", lambda algebra, a, b: np.logical_or(a, b))
KERNELS["Xor"] = _binary("Xor", lambda algebra, a, b: np.logical_xor(a, b))
KERNELS["Equal"] = _binary("Equal", lambda algebra, a, b: np.equal(a, b))
KERNELS["Less"] = _compared("Less", np.less)
KERNELS["LessOrEqual"] = _compared("LessOrEqual", np.less_equal)
KERNELS["Greater"] = _compared("Greater", np.greater)
KERNELS["GreaterOrEqual"] = _compared("GreaterOrEqual", np.greater_equal)
KERNELS["PRelu"] = _compared("PRelu", lambda x, slope: np.where(x < 0, slope * x, x).astype(x.dtype, copy=False))
KERNELS["BitwiseAnd"] = _compared("BitwiseAnd", np.bitwise_and)
KERNELS["BitwiseOr"] = _compared("BitwiseOr", np.bitwise_or)
KERNELS["BitwiseXor"] = _compared("BitwiseXor", np.bitwise_xor)


@kernel("Mod")
def _mod(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("Mod")
    a, b = given("Mod", args, 0), given("Mod", args, 1)
    if not is_float(b.dtype):
        check_divisor(a, b)
    return np.asarray(np.fmod(a, b) if integer(attrs, "fmod") else np.mod(a, b))


@kernel("BitShift")
def _bit_shift(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("BitShift")
    a, b = given("BitShift", args, 0), given("BitShift", args, 1)
    shift = np.left_shift if string(attrs, "direction") == "LEFT" else np.right_shift
    return np.asarray(shift(a, b))


@kernel("Where")
def _where(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    condition, a, b = all_given("Where", args)
    return np.where(condition, a, b)


@kernel("Sum")
def _sum(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return reduce(algebra.add, all_given("Sum", args))


@kernel("Mean")
def _mean(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return algebra.div(reduce(algebra.add, all_given("Mean", args)), algebra.number(len(args)))


@kernel("Max")
def _max(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("Max")
    return np.asarray(reduce(np.maximum, all_given("Max", args)))


@kernel("Min")
def _min(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("Min")
    return np.asarray(reduce(np.minimum, all_given("Min", args)))
