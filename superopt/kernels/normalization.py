"""Kernels of the normalization operators, composed of ring operations, square roots and powers."""

from __future__ import annotations

import numpy as np

from superopt.kernels.algebra import Algebra, Array
from superopt.kernels.reduction import reduced_mean
from superopt.kernels.registry import Args, all_given, given, integer, kernel, number
from superopt.terms import Attrs


def _per_channel(x: Array, parameter: Array) -> Array:
    return parameter.reshape((1, -1) + (1,) * (x.ndim - 2))


@kernel("BatchNormalization")
def _batch_normalization(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, scale, bias, mean, variance = all_given("BatchNormalization", args)
    deviation = algebra.function("sqrt", algebra.add(variance, algebra.number(number(attrs, "epsilon"))))
    # One multiplication and one addition an element, as a float64 sum of two roundings.
    factor = algebra.div(scale, deviation)
    shift = algebra.sub(bias, algebra.mul(mean, factor))
    if algebra.exact:
        return algebra.add(algebra.mul(x, _per_channel(x, factor)), _per_channel(x, shift))
    centered = algebra.sub(x, _per_channel(x, mean))
    return algebra.add(algebra.mul(centered, _per_channel(x, factor)), _per_channel(x, bias))


def _standardized(algebra: Algebra, attrs: Attrs, x: Array, axes: tuple[int, ...], center: bool = True) -> Array:
    """(x - mean) / sqrt(variance + epsilon) over axes; without ``center`` the mean is taken for zero."""
    if center:
        x = algebra.sub(x, reduced_mean(algebra, x, axes, True))
    variance = reduced_mean(algebra, algebra.mul(x, x), axes, True)
    epsilon = algebra.number(number(attrs, "epsilon"))
    return algebra.div(x, algebra.function("sqrt", algebra.add(variance, epsilon)))


@kernel("InstanceNormalization")
def _instance_normalization(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, scale, bias = all_given("InstanceNormalization", args)
    result = algebra.mul(_standardized(algebra, attrs, x, tuple(range(2, x.ndim))), _per_channel(x, scale))
    return algebra.add(result, _per_channel(x, bias))


@kernel("GroupNormalization")
def _group_normalization(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, scale, bias = all_given("GroupNormalization", args)
    groups = integer(attrs, "num_groups")
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    whole = _standardized(algebra, attrs, split, tuple(range(2, split.ndim))).reshape(x.shape)
    return algebra.add(algebra.mul(whole, _per_channel(x, scale)), _per_channel(x, bias))


@kernel("LayerNormalization")
def _layer_normalization(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, scale = given("LayerNormalization", args, 0), given("LayerNormalization", args, 1)
    axes = tuple(range(integer(attrs, "axis") % x.ndim, x.ndim))
    result = algebra.mul(_standardized(algebra, attrs, x, axes), scale)
    bias = args[2] if len(args) > 2 else None
    return result if bias is None else algebra.add(result, bias)


@kernel("RMSNormalization")
def _rms_normalization(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, scale = all_given("RMSNormalization", args)
    axes = tuple(range(integer(attrs, "axis") % x.ndim, x.ndim))
    return algebra.mul(_standardized(algebra, attrs, x, axes, center=False), scale)


@kernel("LpNormalization")
def _lp_normalization(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, axis = given("LpNormalization", args, 0), (integer(attrs, "axis"),)
    if integer(attrs, "p") == 1:
        algebra.compares("LpNormalization of p = 1")
        norm = algebra.sum(np.abs(x), axis, True)
    else:
        norm = algebra.function("sqrt", algebra.sum(algebra.mul(x, x), axis, True))
    if algebra.exact:
        return algebra.div(x, norm)
    return np.where(norm == 0, 0.0, algebra.div(x, np.where(norm == 0, 1.0, norm)))
