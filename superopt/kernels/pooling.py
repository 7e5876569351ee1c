"""Kernels of the pooling operators, for any number of spatial axes."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from superopt.kernels.algebra import Algebra, Array, is_float
from superopt.kernels.convolution import offsets, padded, window
from superopt.kernels.registry import Args, given, integer, integers, kernel, number
from superopt.terms import Attrs


class _Windows:
    """How a pooling's windows lie on its input: the output's size, and the padding that makes every window whole."""

    def __init__(self, attrs: Attrs, x: Array) -> None:
        spatial = x.ndim - 2
        self.kernel = integers(attrs, "kernel_shape")
        self.strides = integers(attrs, "strides") if "strides" in attrs else (1,) * spatial
        self.dilations = integers(attrs, "dilations") if "dilations" in attrs else (1,) * spatial
        self.pads = integers(attrs, "pads") if "pads" in attrs else (0,) * (2 * spatial)
        ceil = bool(attrs.get("ceil_mode", 0))
        out, whole = [], []
        for i in range(spatial):
            begin, end, size = self.pads[i], self.pads[spatial + i], x.shape[2 + i]
            reach = (self.kernel[i] - 1) * self.dilations[i] + 1
            free = size + begin + end - reach
            count = (-(-free // self.strides[i]) if ceil else free // self.strides[i]) + 1
            if ceil and (count - 1) * self.strides[i] >= size + begin:
                # A window that would begin in the end padding is left out.
                count -= 1
            out.append(count)
            whole.append(max(end, (count - 1) * self.strides[i] + reach - size - begin))
        self.out = tuple(out)
        self.whole = (*self.pads[:spatial], *whole)

    def views(self, x: Array, value: float) -> list[Array]:
        """What each position of the kernel sees, the padding filled with a value."""
        full = padded(x, self.whole, value)
        return [window(full, offset, self.out, self.strides, self.dilations) for offset in offsets(self.kernel)]


@kernel("MaxPool")
def _max_pool(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("MaxPool")
    x = given("MaxPool", args, 0)
    lowest = -np.inf if is_float(x.dtype) else int(np.iinfo(x.dtype).min)
    return np.asarray(reduce(np.maximum, _Windows(attrs, x).views(x, lowest))).copy()


@kernel("AveragePool")
def _average_pool(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("AveragePool", args, 0)
    windows = _Windows(attrs, x)
    total = reduce(algebra.add, windows.views(x, 0))
    ones = np.ones((1, 1, *x.shape[2:]), dtype=np.int64)
    if attrs.get("count_include_pad", 0):
        # The padding that is asked for counts; what ceil_mode adds beyond it does not.
        ones = padded(ones, windows.pads, 1)
        spatial = len(windows.out)
        beyond = tuple(w - p for w, p in zip(windows.whole[spatial:], windows.pads[spatial:], strict=True))
        ones = padded(ones, (*(0,) * spatial, *beyond))
        count = np.asarray(
            sum(
                window(ones, offset, windows.out, windows.strides, windows.dilations)
                for offset in offsets(windows.kernel)
            )
        )
    else:
        count = np.asarray(sum(windows.views(ones, 0)))
    return algebra.div(total, algebra.enter(count.astype(np.float64)))


@kernel("LpPool")
def _lp_pool(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("LpPool")
    x, p = given("LpPool", args, 0), integer(attrs, "p")
    views = _Windows(attrs, x).views(np.abs(x) ** p, 0)
    return np.asarray(np.asarray(reduce(np.add, views)) ** (1 / p))


@kernel("GlobalAveragePool")
def _global_average_pool(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("GlobalAveragePool", args, 0)
    total = algebra.sum(x, tuple(range(2, x.ndim)), True)
    return algebra.div(total, algebra.number(math.prod(x.shape[2:])))


@kernel("GlobalMaxPool")
def _global_max_pool(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    algebra.compares("GlobalMaxPool")
    x = given("GlobalMaxPool", args, 0)
    return np.asarray(np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True))


@kernel("LRN")
def _lrn(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, size = given("LRN", args, 0), integer(attrs, "size")
    channels = x.shape[1]
    square = algebra.mul(x, x)
    total = np.zeros_like(x)
    for shift in range(-((size - 1) // 2), size // 2 + 1):
        source = slice(max(shift, 0), channels + min(shift, 0))
        target = slice(max(-shift, 0), channels - max(shift, 0))
        total[:, target] = algebra.add(total[:, target], square[:, source])
    scaled = algebra.mul(algebra.div(algebra.number(number(attrs, "alpha")), algebra.number(size)), total)
    base = algebra.add(algebra.number(number(attrs, "bias")), scaled)
    return algebra.div(x, algebra.power(base, algebra.number(number(attrs, "beta"))))
