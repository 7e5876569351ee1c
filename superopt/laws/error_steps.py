"""What each operator does to the errors of its arguments, and what it adds: the steps of a running error analysis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from superopt.kernels import FLOAT64, apply
from superopt.operators import named, numpy_dtype
from superopt.terms import Attrs, Node

Array: TypeAlias = NDArray[np.generic]
Float: TypeAlias = NDArray[np.float64]

ROUNDOFF: Mapping[str, float] = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Half the distance from 1 to the next number, by element type."""

FUNCTION_ULPS = 8
"""What is taken for the error of a runtime's pointwise functions, in units in the last place of the larger of the value
and 1 (their documented approximations of exp, erf and tanh stay below 4)."""

MOVES = frozenset(named(lambda form: form.made in ("moved", "chosen")))
"""Operators whose result's error is at most what the operator makes of its arguments' errors."""
DISCRETE = frozenset(named(lambda form: form.discrete))
_POINTWISE = frozenset(named(lambda form: form.made == "pointwise" or form.reduces))
"""Operators that are pointwise, or are where they reduce axes of one element."""


def few_bits(value: Float) -> NDArray[np.bool_]:
    """Whether numbers stand for themselves alone: they are whole, or have a mantissa of at most 7 bits (and are not so
    small that a short type has no more)."""
    mantissa, exponent = np.frexp(value)
    return np.asarray((np.floor(value) == value) | (np.floor(mantissa * 128) == mantissa * 128) & (exponent > -12))


def of_rounding(array: Array, dtype: str) -> Float:
    """What rounding to an element type may have changed."""
    if dtype not in ROUNDOFF:
        return np.zeros(array.shape)
    value = np.abs(array.astype(np.float64))
    # Nothing is rounded to NaN.
    return np.where(few_bits(value) | np.isnan(value), 0.0, value * ROUNDOFF[dtype] + _SMALLEST.get(dtype, 0.0))


_SMALLEST: Mapping[str, float] = {
    "float16": 2.0**-25, "bfloat16": 2.0**-134, "float32": 2.0**-150, "float64": 2.0**-1074,
}  # fmt: skip
"""Half the smallest number above zero, by element type (all of it where float64 is the type): what rounding to it may
lose, however small the value."""


@dataclass(frozen=True)
class Call:
    node: Node
    args: Sequence[Array | None]
    errs: Sequence[Float | None]
    unit: float
    out: Array | None

    @cached_property
    def unmoved(self) -> bool:
        """Whether no argument has an error."""
        return all(err is None or not err.any() for err in self.errs)

    def base(self) -> Float:
        """The result in float64."""
        return self.of(self.args) if self.out is None else self.out.astype(np.float64)

    def arg(self, place: int) -> Float:
        array = self.args[place]
        return np.zeros(()) if array is None else np.abs(array.astype(np.float64))

    def err(self, place: int) -> Float:
        error = self.errs[place]
        return np.zeros(()) if error is None else error

    def result(self) -> Float:
        """The magnitude of the result, of which rounding is a part; zero where it is not finite."""
        if self.out is None:
            return np.zeros(())
        return np.nan_to_num(np.abs(self.out.astype(np.float64)), nan=0.0, posinf=0.0)

    def of(self, args: Sequence[Array | None], attrs: Attrs | None = None) -> Float:
        return apply(self.node.op, attrs or self.node.attrs, args, FLOAT64)[0].astype(np.float64)


def moves(node: Node) -> bool:
    """Whether an operator moves or chooses elements, as it is applied here."""
    return node.op in MOVES and node.attrs.get("reduction") not in ("add", "mul")


def _moved(call: Call) -> tuple[Float, ...]:
    """Errors move as the values do; the largest operand's error bounds that of a maximum."""
    errs: list[Array | None] = [
        err if arg is not None and arg.dtype.kind == "f" else arg for arg, err in zip(call.args, call.errs, strict=True)
    ]
    if call.node.op in ("Relu", "Clip"):
        whole = np.zeros(call.result().shape)
        for err in call.errs:
            whole = whole + (0.0 if err is None else err)
        return (whole,)
    if call.node.op in ("Max", "Min"):
        return (apply("Max", Attrs(), errs, FLOAT64)[0],)
    if call.node.op in ("ReduceMax", "ReduceMin"):
        return (apply("ReduceMax", call.node.attrs, errs, FLOAT64)[0],)
    if call.node.attrs.get("reduction") == "min":
        return (call.of(errs, call.node.attrs.replaced(reduction="max")),)
    results = apply(call.node.op, call.node.attrs, errs, FLOAT64)
    return tuple(np.maximum(result, 0.0) for result in results)


def _of_one_rounding(call: Call) -> Float:
    """What rounding adds to a sum, a difference, a product or a quotient: nothing where the type has the very number,
    so that a tie among such numbers is one in every runtime."""
    bound = call.unit * call.result() + (_tiny(call) if call.node.op in ("Mul", "Div") else 0.0)
    dtype = next((name for name, unit in ROUNDOFF.items() if unit == call.unit), "")
    if not call.unmoved or call.out is None or not dtype:
        return bound
    a, b = (np.zeros(()) if arg is None else arg.astype(np.float64) for arg in call.args)
    out = call.out.astype(np.float64)
    # Of numbers with 24 bits float64 has the product.
    exact = _is_of("float32", a) & _is_of("float32", b) & _is_of("float32", out) & _is_of(dtype, out)
    match call.node.op:
        case "Add":
            exact = exact & (out - a == b) & (out - b == a)
        case "Sub":
            exact = exact & (a - out == b) & (out + b == a)
        case "Div":
            exact = exact & (out * b == a)
    return np.where(exact, 0.0, bound)


def _is_of(dtype: str, value: Float) -> NDArray[np.bool_]:
    return np.asarray(value.astype(numpy_dtype(dtype)).astype(np.float64) == value)


def _sum(call: Call) -> Float:
    return call.err(0) + call.err(1) + _of_one_rounding(call)


def _product(call: Call) -> Float:
    a, b, da, db = call.arg(0), call.arg(1), call.err(0), call.err(1)
    return a * db + b * da + da * db + _of_one_rounding(call)


def _quotient(call: Call) -> Float:
    room = call.arg(1) - call.err(1)
    inherited = (call.err(0) + call.result() * call.err(1)) / np.where(room > 0, room, np.nan)
    # By what is zero and not for rounding, the quotient is infinite and not for rounding.
    inherited = np.where((call.arg(1) == 0) & (call.err(1) == 0), 0.0, inherited)
    return np.nan_to_num(inherited, nan=np.inf, posinf=np.inf) + _of_one_rounding(call)


def _same(call: Call) -> Float:
    return call.err(0)


def _cast(call: Call) -> Float:
    """What a number without an error is rounded to is known: an integer that its float type has stays what it is."""
    value = np.zeros(()) if call.out is None else call.out.astype(np.float64)
    source = call.args[0]
    dtype = next((name for name, unit in ROUNDOFF.items() if unit == call.unit), "")
    if source is None or not dtype:
        return call.err(0) + call.unit * call.result()
    kept = value.astype(numpy_dtype(dtype)).astype(np.float64) == value
    if source.dtype.kind in "iu":
        kept &= np.abs(value) <= 2.0**53
    return np.where(kept & (call.err(0) == 0), 0.0, call.err(0) + call.unit * call.result())


def _bilinear(call: Call) -> Float:
    """|A||dB| + |dA||B| + |dA||dB| + n u |A||B|, and the same for an addend."""
    attrs = call.node.attrs
    if call.node.op == "Gemm":
        attrs = attrs.replaced(alpha=abs(float(str(attrs["alpha"]))), beta=abs(float(str(attrs["beta"]))))
    a, b, da, db = call.arg(0), call.arg(1), call.err(0), call.err(1)
    zero = None if len(call.args) < 3 or call.args[2] is None else np.zeros(call.arg(2).shape)
    rest = [] if len(call.args) < 3 else [zero]
    whole = call.of([a, b] + ([] if len(call.args) < 3 else [None if zero is None else call.arg(2)]), attrs)
    inherited = np.zeros(whole.shape)
    # An infinity that meets an error of zero leaves no bound.
    if da.any() or db.any() or not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        inherited = call.of([a, db + np.zeros_like(b), *rest], attrs) + call.of(
            [da + np.zeros_like(a), b + db, *rest], attrs
        )
    addend = np.zeros(())
    if zero is not None and call.err(2).any():
        addend = call.of([np.zeros_like(a), np.zeros_like(b), call.err(2) + zero], attrs)
    return inherited + addend + (_length(call) + 3) * call.unit * whole + _length(call) * _tiny(call)


def _length(call: Call) -> int:
    """How many products an element of the result sums."""
    a, b = call.arg(0), call.arg(1)
    if call.node.op in ("Conv", "ConvTranspose"):
        channels = b.shape[1] if call.node.op == "Conv" else b.shape[0] // int(str(call.node.attrs["group"]))
        return int(channels * prod(b.shape[2:]))
    if call.node.op == "Gemm" and call.node.attrs["transA"]:
        return int(a.shape[0])
    return int(a.shape[-1])


def _linear(call: Call) -> Float:
    magnitudes = [None if arg is None else np.abs(arg.astype(np.float64)) for arg in call.args]
    whole = call.of(magnitudes)
    count = sum(array.size for array in magnitudes if array is not None) / max(whole.size, 1)
    if call.node.op == "AveragePool":
        kernel = call.node.attrs["kernel_shape"]
        count = prod(int(size) for size in kernel) if isinstance(kernel, tuple) else count
    if call.node.op in ("Sum", "Mean"):
        count = len(call.args)
    if call.node.op == "CumSum":
        count = max(call.arg(0).shape, default=1)
    inherited = np.zeros(whole.shape)
    if not call.unmoved:
        inherited = call.of([None if arg is None else call.err(place) for place, arg in enumerate(call.args)])
    return inherited + (count + 2) * call.unit * whole


def _batch_normalization(call: Call) -> Float:
    """s (x - m) / sqrt(v + e) + t, however it is arranged."""
    x, s, t, m, v = (_per_channel(call, place) for place in range(5))
    dx, ds, dt, dm, dv = (_per_channel(call, place, of_error=True) for place in range(5))
    variance = call.args[4]
    signed = np.zeros(()) if variance is None else variance.astype(np.float64)
    total = signed.reshape(v.shape) + float(str(call.node.attrs["epsilon"]))
    room = np.where(total - dv > 0, total - dv, np.nan)
    r = 1 / np.sqrt(room)
    dr = r * dv / (2 * room) + 4 * call.unit * r * (1 + v / room)
    spread = x + m + dx + dm
    error = (
        s * r * (dx + dm)
        + spread * (ds * r + s * dr + ds * dr)
        + dt
        + 8 * call.unit * (spread * (s + ds) * (r + dr) + t)
    )
    return np.asarray(np.nan_to_num(error, nan=np.inf, posinf=np.inf))


def _per_channel(call: Call, place: int, of_error: bool = False) -> Float:
    array = call.err(place) if of_error else call.arg(place)
    rank = call.arg(0).ndim
    return np.asarray(array.reshape((1, -1) + (1,) * (rank - 2)) if place and array.ndim else array)


def _tiny(call: Call) -> float:
    """What underflow may lose in one operation."""
    return {ROUNDOFF[dtype]: small for dtype, small in _SMALLEST.items()}.get(call.unit, 0.0)


def _is_pointwise(call: Call) -> bool:
    shapes = [arg.shape for arg in call.args if arg is not None]
    if call.out is None or call.node.op not in _POINTWISE:
        return False
    try:
        return np.broadcast_shapes(*shapes) == call.out.shape
    except ValueError:
        return False


def _deviation(call: Call) -> Float:
    """How far the result moves when every argument moves by its error, either way."""
    if call.unmoved and call.out is not None:
        return np.zeros(call.out.shape)
    base = call.base()
    most = np.zeros(base.shape)
    moving = [place for place, err in enumerate(call.errs) if err is not None and err.any()]
    for signs in itertools.product((-1.0, 1.0), repeat=len(moving)):
        moved = list(call.args)
        for place, sign in zip(moving, signs, strict=True):
            array = call.args[place]
            if array is not None:
                moved[place] = array.astype(np.float64) + sign * call.err(place)
        there = call.of(moved)
        most = np.fmax(most, np.abs(there - base))
        most = np.where(np.isfinite(base) != np.isfinite(there), np.inf, most)
    return most


def _of_attributes(call: Call) -> Float:
    """How far the result moves when float attributes move by what rounding them to float32 may have changed."""
    rounded = [
        (name, value)
        for name, value in call.node.attrs.items
        if isinstance(value, float) and not few_bits(np.asarray(value))
    ]
    if not rounded:
        return np.zeros(())
    base = call.base()
    most = np.zeros(base.shape)
    for name, value in rounded:
        for sign in (-1.0, 1.0):
            moved = call.of(call.args, call.node.attrs.replaced(**{name: value * (1 + sign * ROUNDOFF["float32"])}))
            most = np.fmax(most, np.abs(moved - base))
    return most


def _pointwise(call: Call) -> Float:
    return _deviation(call) + _of_attributes(call) + FUNCTION_ULPS * call.unit * np.maximum(call.result(), 1.0)


def _mixing(call: Call) -> Float:
    """Softmax, the normalizations and the like: what moving all arguments does in seeded directions, eightfold, and
    one rounding of the largest value for every element that a result is made of."""
    base = call.base()
    most = np.zeros(base.shape)
    if not call.unmoved:
        generator = np.random.default_rng(0)
        for _ in range(12):
            moved: list[Array | None] = []
            for place, array in enumerate(call.args):
                if array is not None and array.dtype.kind == "f":
                    array = array.astype(np.float64) + generator.choice((-1.0, 1.0), array.shape) * call.err(place)
                moved.append(array)
            there = call.of(moved)
            most = np.fmax(most, np.abs(there - base))
            most = np.where(np.isfinite(there) & ~np.isfinite(base), np.inf, most)
    length = max((arg.size for arg in call.args if arg is not None), default=1)
    largest = np.max(call.result(), initial=1.0, where=np.isfinite(call.result()))
    return 8 * most + (length + FUNCTION_ULPS) * call.unit * largest


_RULES: Mapping[str, Callable[[Call], Float]] = {
    **{name: _bilinear for name in named(lambda form: form.made == "bilinear") if name != "Einsum"},
    **dict.fromkeys(named(lambda form: form.made == "summed"), _linear),
    "Add": _sum, "Sub": _sum, "Mul": _product, "Div": _quotient, "Neg": _same, "Abs": _same, "Cast": _cast,
    "BatchNormalization": _batch_normalization,
}  # fmt: skip


def added(call: Call, dtype: str) -> tuple[Float, ...]:
    """The errors of an operator's outputs, the first of which has this element type."""
    if call.unmoved and moves(call.node):
        if call.out is not None:
            return (np.zeros(call.out.shape),)
        results = apply(call.node.op, call.node.attrs, call.args, FLOAT64)
        return tuple(np.zeros(result.shape) for result in results)
    if moves(call.node):
        return _moved(call)
    if dtype not in ROUNDOFF or call.node.op in DISCRETE:
        return (np.where(_deviation(call) > 0, np.inf, 0.0),)
    return (_RULES.get(call.node.op, _pointwise if _is_pointwise(call) else _mixing)(call),)
