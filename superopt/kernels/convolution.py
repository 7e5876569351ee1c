"""Kernels of the linear operators: convolution by im2col and BLAS, matrix products, Einsum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from superopt.errors import EvaluationError
from superopt.kernels.algebra import Algebra, Array
from superopt.kernels.registry import Args, all_given, given, integer, integers, kernel, number, string
from superopt.terms import Attrs

_CHUNK_BYTES = 1 << 26
"""How large the unrolled input of a convolution may get before it is cut into pieces."""


@kernel("Conv")
def _conv(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, w = given("Conv", args, 0), given("Conv", args, 1)
    spatial = x.ndim - 2
    group, pads = integer(attrs, "group"), integers(attrs, "pads")
    strides, dilations = integers(attrs, "strides"), integers(attrs, "dilations")
    if w.ndim != x.ndim or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise EvaluationError(f"Conv: weight {list(w.shape)} does not fit input {list(x.shape)} in {group} groups")
    x = padded(x, pads)
    out = tuple((x.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(spatial))
    if any(size < 0 for size in out):
        raise EvaluationError(f"Conv: kernel {list(w.shape)} is larger than padded input {list(x.shape)}")
    if w.shape[1] == 1 and w.shape[0] == group:
        result = _depthwise(algebra, x, w, out, strides, dilations)
    else:
        result = _grouped(algebra, x, w, group, out, strides, dilations)
    return _with_bias(algebra, result, args)


def _with_bias(algebra: Algebra, result: Array, args: Args) -> Array:
    bias = args[2] if len(args) > 2 else None
    return result if bias is None else algebra.add(result, bias.reshape((1, -1) + (1,) * (result.ndim - 2)))


def padded(x: Array, pads: tuple[int, ...], value: float = 0) -> Array:
    """Input with its spatial axes padded by begins and ends; negative pads crop."""
    if not any(pads):
        return x
    spatial = len(pads) // 2
    crop = tuple(slice(max(-pads[i], 0), x.shape[2 + i] - max(-pads[spatial + i], 0)) for i in range(spatial))
    grow = [(0, 0), (0, 0)] + [(max(pads[i], 0), max(pads[spatial + i], 0)) for i in range(spatial)]
    return np.pad(x[(slice(None), slice(None), *crop)], grow, constant_values=value)


def window(
    x: Array, offset: tuple[int, ...], out: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Array:
    """What one position of the kernel sees: a view [n, c, *out] of the padded input."""
    places = [slice(None), slice(None)] + [
        slice(at * dilation, at * dilation + (size - 1) * stride + 1 if size else at * dilation, stride)
        for at, size, stride, dilation in zip(offset, out, strides, dilations, strict=True)
    ]
    return x[tuple(places)]


def offsets(kernel_shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(size) for size in kernel_shape))


def _depthwise(
    algebra: Algebra, x: Array, w: Array, out: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Array:
    result = np.zeros((*x.shape[:2], *out), dtype=x.dtype)
    for tap, offset in enumerate(offsets(w.shape[2:])):
        factor = w.reshape(w.shape[0], -1)[:, tap].reshape((1, -1) + (1,) * len(out))
        result = algebra.add(result, algebra.mul(window(x, offset, out, strides, dilations), factor))
    return result


def _grouped(
    algebra: Algebra, x: Array, w: Array, group: int,
    out: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
) -> Array:  # fmt: skip
    n, m, per_group = x.shape[0], w.shape[0], w.shape[1]
    taps = math.prod(w.shape[2:])
    weight = w.reshape(1, group, m // group, per_group * taps)
    if taps == 1:
        seen = window(x, (0,) * len(out), out, strides, dilations).reshape(n, group, per_group, math.prod(out))
        return algebra.matmul(weight, seen).reshape(n, m, *out)
    if not out or not math.prod(out) or not n:
        return np.zeros((n, m, *out), dtype=x.dtype)
    # The first output axis is cut into pieces, so that the unrolled input stays in bounds.
    row_bytes = x.shape[1] * taps * math.prod(out[1:]) * 8
    rows = max(1, min(out[0], _CHUNK_BYTES // max(row_bytes, 1)))
    result = np.empty((n, m, *out), dtype=x.dtype)
    for image in range(n):
        for start in range(0, out[0], rows):
            piece = (min(rows, out[0] - start), *out[1:])
            columns = np.empty((x.shape[1], taps, *piece), dtype=x.dtype)
            part = x[image : image + 1, :, start * strides[0] :]
            for tap, offset in enumerate(offsets(w.shape[2:])):
                columns[:, tap] = window(part, offset, piece, strides, dilations)[0]
            product = algebra.matmul(weight[0], columns.reshape(group, per_group * taps, math.prod(piece)))
            result[image, :, start : start + piece[0]] = product.reshape(m, *piece)
    return result


@kernel("ConvTranspose")
def _conv_transpose(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    """Every input element adds its multiple of the kernel to the output: a product, then sums of shifted pieces."""
    x, w = given("ConvTranspose", args, 0), given("ConvTranspose", args, 1)
    spatial = x.ndim - 2
    group, pads = integer(attrs, "group"), integers(attrs, "pads")
    strides, dilations = integers(attrs, "strides"), integers(attrs, "dilations")
    extra = integers(attrs, "output_padding") if "output_padding" in attrs else (0,) * spatial
    n, c, size = x.shape[0], x.shape[1], x.shape[2:]
    if w.shape[0] != c or c % group:
        raise EvaluationError(f"ConvTranspose: weight {list(w.shape)} does not fit input {list(x.shape)}")
    per_group, kernel_shape = w.shape[1], w.shape[2:]
    taps = math.prod(kernel_shape)
    weight = w.reshape(1, group, c // group, per_group * taps).swapaxes(-1, -2)
    pieces = algebra.matmul(weight, x.reshape(n, group, c // group, math.prod(size)))
    pieces = pieces.reshape(n, group, per_group, taps, *size)
    # The end pad may reach beyond what the kernels cover: there the output is the bias.
    full = tuple(
        (size[i] - 1) * strides[i] + (kernel_shape[i] - 1) * dilations[i] + 1 + extra[i] for i in range(spatial)
    )
    result = np.zeros((n, group * per_group, *full), dtype=x.dtype)
    for tap, offset in enumerate(offsets(kernel_shape)):
        target = window(result, offset, size, strides, dilations)
        target[...] = algebra.add(target, pieces[:, :, :, tap].reshape(target.shape))
    return _with_bias(algebra, padded(result, tuple(-pad for pad in pads)), args)


@kernel("MatMul")
def _matmul(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return np.asarray(algebra.matmul(given("MatMul", args, 0), given("MatMul", args, 1)))


@kernel("Gemm")
def _gemm(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    a, b = given("Gemm", args, 0), given("Gemm", args, 1)
    a = a.T if integer(attrs, "transA") else a
    b = b.T if integer(attrs, "transB") else b
    alpha, beta = number(attrs, "alpha"), number(attrs, "beta")
    result = algebra.matmul(a, b)
    if alpha != 1:
        result = algebra.mul(result, algebra.number(alpha)).astype(a.dtype, copy=False)
    c = args[2] if len(args) > 2 else None
    if c is None or beta == 0:
        return result
    if beta != 1:
        c = algebra.mul(c, algebra.number(beta)).astype(a.dtype, copy=False)
    return algebra.add(result, c)


@kernel("Einsum")
def _einsum(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return algebra.einsum(string(attrs, "equation").replace(" ", ""), all_given("Einsum", args))
