"""Kernels of QuantizeLinear and DequantizeLinear: per tensor, per axis, and in blocks."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from superopt.kernels.algebra import Algebra, Array, is_float
from superopt.kernels.pointwise import dtype_of
from superopt.kernels.registry import Args, given, integer, kernel
from superopt.terms import Attrs


def _spread(parameter: Array, x: Array, attrs: Attrs) -> Array:
    """A scale or a zero point in a shape that broadcasts with the data."""
    axis = integer(attrs, "axis")
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if parameter.ndim == 1:
        return parameter.reshape(tuple(-1 if place == axis % x.ndim else 1 for place in range(x.ndim)))
    repeated = np.repeat(parameter, integer(attrs, "block_size") or 1, axis=axis)
    return np.take(repeated, range(x.shape[axis]), axis=axis)


@kernel("QuantizeLinear")
def _quantize(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("QuantizeLinear")
    x, scale = given("QuantizeLinear", args, 0), given("QuantizeLinear", args, 1)
    zero = args[2] if len(args) > 2 else None
    name = str(attrs.get("output_dtype") or "")
    dtype = dtype_of(name) if name else (np.dtype(np.uint8) if zero is None else zero.dtype)
    scaled = x.astype(np.float64) / _spread(scale, x, attrs)
    if is_float(dtype):
        # The carrier is float64 already: what is left of the type is its rounding.
        return scaled if dtype == np.float64 else scaled.astype(dtype).astype(np.float64)
    shift = 0.0 if zero is None else _spread(zero, x, attrs).astype(np.float64)
    info = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it
    whole = np.clip(np.rint(scaled) + shift, float(info.min), float(info.max))
    return np.nan_to_num(whole).astype(np.int64).astype(dtype)


@kernel("DequantizeLinear")
def _dequantize(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, scale = given("DequantizeLinear", args, 0), given("DequantizeLinear", args, 1)
    zero = args[2] if len(args) > 2 else None
    value = x if algebra.exact else x.astype(np.float64)
    if zero is not None:
        shift = _spread(zero, x, attrs)
        value = algebra.sub(value, shift if algebra.exact else shift.astype(np.float64))
    return algebra.mul(value, _spread(scale, x, attrs))
