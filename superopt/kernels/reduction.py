"""Kernels of reductions and of what is defined by them: Softmax, ArgMax, CumSum."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from superopt.kernels.algebra import Algebra, Array, is_float
from superopt.kernels.registry import KERNELS, Args, Kernel, given, integer, integers, kernel
from superopt.terms import Attrs

_Reduction = Callable[[Algebra, Array, tuple[int, ...], bool], Array]


def reduced_mean(algebra: Algebra, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The mean over axes; of integers, truncated."""
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = algebra.number(count) if algebra.exact or is_float(x.dtype) else np.asarray(count, dtype=x.dtype)
    return algebra.div(algebra.sum(x, axes, keepdims), divisor)


def _log_sum_exp(algebra: Algebra, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    if algebra.exact:
        return algebra.function("log", algebra.sum(algebra.function("exp", x), axes, keepdims))
    if x.size == 0:
        return np.asarray(np.log(np.sum(np.exp(x), axis=axes, keepdims=keepdims)))
    peak = np.max(x, axis=axes, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0)
    total = np.log(np.sum(np.exp(x - peak), axis=axes, keepdims=keepdims))
    return np.asarray(total + (peak if keepdims else np.squeeze(peak, axis=axes)))


def _l1(algebra: Algebra, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    algebra.compares("ReduceL1")
    return algebra.sum(np.abs(x), axes, keepdims)


def _sum_square(algebra: Algebra, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return algebra.sum(algebra.mul(x, x), axes, keepdims)


def _l2(algebra: Algebra, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return algebra.function("sqrt", _sum_square(algebra, x, axes, keepdims)).astype(x.dtype, copy=False)


def _log_sum(algebra: Algebra, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return algebra.function("log", algebra.sum(x, axes, keepdims)).astype(x.dtype, copy=False)


def _extreme(op: str, highest: bool) -> _Reduction:
    def reduce(algebra: Algebra, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        algebra.compares(op)
        if x.dtype == np.bool_:
            return np.asarray((np.any if highest else np.all)(x, axis=axes, keepdims=keepdims))
        # Of nothing at all the result is the neutral element.
        if is_float(x.dtype):
            neutral: float = -np.inf if highest else np.inf
        else:
            neutral = int(np.iinfo(x.dtype).min if highest else np.iinfo(x.dtype).max)
        return np.asarray((np.max if highest else np.min)(x, axis=axes, keepdims=keepdims, initial=neutral))

    return reduce


def _reduction(op: str, reduce: _Reduction) -> Kernel:
    def apply(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
        return reduce(algebra, given(op, args, 0), integers(attrs, "axes"), bool(integer(attrs, "keepdims")))

    return apply


_REDUCTIONS: dict[str, _Reduction] = {
    "ReduceSum": lambda algebra, x, axes, keepdims: algebra.sum(x, axes, keepdims),
    "ReduceMean": reduced_mean,
    "ReduceProd": lambda algebra, x, axes, keepdims: algebra.prod(x, axes, keepdims),
    "ReduceMax": _extreme("ReduceMax", True),
    "ReduceMin": _extreme("ReduceMin", False),
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}
for _op, _reduce in _REDUCTIONS.items():
    KERNELS[_op] = _reduction(_op, _reduce)


def _arg_extreme(op: str, find: Callable[..., Array]) -> Kernel:
    def apply(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
        algebra.compares(op)
        x, axis = given(op, args, 0), integer(attrs, "axis")
        if integer(attrs, "select_last_index"):
            place = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)
        else:
            place = find(x, axis=axis)
        place = np.asarray(place, dtype=np.int64)
        return np.expand_dims(place, axis) if integer(attrs, "keepdims") else place

    return apply


KERNELS["ArgMax"] = _arg_extreme("ArgMax", np.argmax)
KERNELS["ArgMin"] = _arg_extreme("ArgMin", np.argmin)


@kernel("CumSum")
def _cumsum(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, axis = given("CumSum", args, 0), integers(attrs, "axis")[0]
    if integer(attrs, "reverse"):
        x = np.flip(x, axis)
    if integer(attrs, "exclusive") and x.shape[axis]:
        zero = np.zeros_like(np.take(x, [0], axis=axis))
        x = np.concatenate([zero, np.take(x, range(x.shape[axis] - 1), axis=axis)], axis=axis)
    total = algebra.cumsum(x, axis)
    return np.flip(total, axis) if integer(attrs, "reverse") else total


@kernel("Softmax")
def _softmax(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, axis = given("Softmax", args, 0), integer(attrs, "axis")
    if not algebra.exact and x.size:
        x = x - np.max(x, axis=axis, keepdims=True)
    power = algebra.function("exp", x)
    return algebra.div(power, algebra.sum(power, (axis,), True))


@kernel("LogSoftmax")
def _log_softmax(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, axis = given("LogSoftmax", args, 0), integer(attrs, "axis")
    return algebra.sub(x, _log_sum_exp(algebra, x, (axis,), True))
