"""The second evaluator of constants: onnx.reference in float64, and a bound on how far two evaluators may differ.

It shares no code with the kernels. Where onnx.reference is known to be wrong, slow, or to compute in float32, operators
of this module take its place, written in another way than the kernels are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from superopt.errors import EvaluationError, NumericError, one_line
from superopt.kernels import Array
from superopt.term_model import term_model, value_name
from superopt.terms import TensorType, TermGraph

_BLOCK = 1 << 20
"""Elements that are compared at a time: weights are large, and need no copies for this."""


# onnx.reference's base class has no types, and finds the attributes of an operator by the names of these arguments.
class Conv(OpRun):
    op_domain = ""

    def _run(  # type: ignore[no-untyped-def]
        self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None
    ):
        ones = [1] * (x.ndim - 2)
        return _convolved(x, w, b, strides or ones, dilations or ones, pads or [0] * (2 * x.ndim - 4), group or 1)


def _convolved(
    x: Array, w: Array, b: Array | None,
    strides: list[int], dilations: list[int], pads: list[int], group: int,
) -> tuple[Array]:  # fmt: skip
    """One tap of the kernel after the other: each multiplies the whole input and is added where it falls."""
    rank = x.ndim - 2
    sizes = [
        (x.shape[2 + i] + pads[i] + pads[rank + i] - dilations[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    out = np.zeros((x.shape[0], group, w.shape[0] // group, *sizes))
    source = x.reshape(x.shape[0], group, x.shape[1] // group, *x.shape[2:])
    weight = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    every: list[Any] = [slice(None)] * 3
    for tap in itertools.product(*(range(size) for size in w.shape[2:])):
        # The outputs whose tap falls inside the input, and where it falls.
        to, at = [], []
        for i, place in enumerate(tap):
            shift = place * dilations[i] - pads[i]
            first = max(0, -(shift // strides[i]))
            last = min(sizes[i] - 1, (x.shape[2 + i] - 1 - shift) // strides[i])
            begin = first * strides[i] + shift
            count = max(0, last - first + 1)
            to.append(slice(first, first + count))
            at.append(slice(begin, begin + (count - 1) * strides[i] + 1 if count else begin, strides[i]))
        part = np.asarray(weight[(*every, *tap)])
        out[(*every, *to)] += np.einsum("ngc...,gmc->ngm...", source[(*every, *at)], part, optimize=True)
    out = out.reshape(x.shape[0], w.shape[0], *sizes)
    return (out if b is None else out + b.reshape(1, -1, *[1] * rank),)


class ConvTranspose(OpRun):
    """The gradient of a convolution: the input is spread by the strides and convolved with the mirrored kernel."""

    op_domain = ""

    def _run(  # type: ignore[no-untyped-def]
        self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, output_padding=None,
        output_shape=None, pads=None, strides=None,
    ):  # fmt: skip
        rank = x.ndim - 2
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        pads, group = pads or [0] * (2 * rank), group or 1
        extra = output_padding or [0] * rank
        reach = [dilations[i] * (w.shape[2 + i] - 1) for i in range(rank)]
        spread = np.zeros((*x.shape[:2], *((x.shape[2 + i] - 1) * strides[i] + 1 + extra[i] for i in range(rank))))
        inside = [slice(0, (x.shape[2 + i] - 1) * strides[i] + 1, strides[i]) for i in range(rank)]
        spread[(slice(None), slice(None), *inside)] = x
        begins, ends = [reach[i] - pads[i] for i in range(rank)], [reach[i] - pads[rank + i] for i in range(rank)]
        mirrored = np.flip(w, tuple(range(2, w.ndim)))
        grouped = mirrored.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
        kernel = grouped.reshape(group * w.shape[1], w.shape[0] // group, *w.shape[2:])
        return _convolved(spread, kernel, b, [1] * rank, dilations, begins + ends, group)


class Div(OpRun):
    """Integers are divided towards zero."""

    op_domain = ""

    def _run(self, a, b):  # type: ignore[no-untyped-def]
        if np.issubdtype(a.dtype, np.integer):
            return ((np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype),)
        return (np.divide(a, b),)


class Mean(OpRun):
    op_domain = ""

    def _run(self, *args):  # type: ignore[no-untyped-def]
        return (np.mean(np.stack(np.broadcast_arrays(*args)), axis=0),)


class Erf(OpRun):
    op_domain = ""

    def _run(self, x):  # type: ignore[no-untyped-def]
        return (np.asarray([math.erf(value) for value in x.ravel().tolist()], dtype=x.dtype).reshape(x.shape),)


NEW_OPS = [Conv, ConvTranspose, Div, Mean, Erf]

NOT_CHECKED = frozenset({"Gelu", "HardSwish", "GroupNormalization", "LRN", "LpNormalization", "LpPool", "AveragePool"})
"""Operators that onnx.reference has wrong or in float32: what comes through one is checked to float32's digits."""


def second_values(
    graph: TermGraph, order: Sequence[int], leaves: Mapping[int, Array], outputs: Sequence[int]
) -> list[Array]:
    """The outputs computed by onnx.reference with every float in float64. Raises EvaluationError where it cannot."""
    types = {leaf: graph.types[leaf] for leaf in leaves}
    tensors = {leaf: kind if isinstance(kind, TensorType) else None for leaf, kind in types.items()}
    model = term_model(graph, order, tensors, outputs, double=True)
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(model, new_ops=NEW_OPS)
            names = [item.name for item in model.graph.output]
            results = evaluator.run(names, {value_name(leaf): value for leaf, value in leaves.items()})
    except Exception as error:  # onnx.reference raises whatever numpy and Python raise
        raise EvaluationError(f"onnx.reference does not run it: {one_line(error)}") from error
    return [np.asarray(result) for result in results]


def blocks(first: Array, second: Array) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one size in flat pieces: weights are large, and so is what is made of them on the way."""
    left, right = first.reshape(-1), second.reshape(-1)
    for start in range(0, left.size, _BLOCK):
        yield left[start : start + _BLOCK], right[start : start + _BLOCK]


def check_equal(what: str, first: Array, second: Array, bound: float) -> None:
    """Raises NumericError where two evaluators differ by more than twice the bound on each one's error.

    Where the bound says nothing (an ill-conditioned step, or an operator without a derivative here), half of float64's
    digits must agree, relative to the largest magnitude.
    """
    if first.shape != second.shape:
        raise NumericError(f"{what}: shapes {list(first.shape)} and {list(second.shape)} from two evaluators")
    if first.dtype.kind != "f":
        if not np.array_equal(first, second):
            raise NumericError(f"{what}: two evaluators disagree about an integer")
        return
    scale = worst = 0.0
    for a, b in blocks(first, second):
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            raise NumericError(f"{what}: two evaluators disagree about what is finite")
        a, b = a[finite], b[finite]
        scale = max(scale, float(np.max(np.abs(a), initial=0.0)))
        worst = max(worst, float(np.max(np.abs(a - b), initial=0.0)))
    allowed = 2 * bound if math.isfinite(bound) else 2.0**-26 * scale
    if worst > allowed:
        raise NumericError(
            f"{what}: two evaluators differ by {worst:.3g}, of which {allowed:.3g} may be rounding "
            f"(largest value {scale:.3g})"
        )
