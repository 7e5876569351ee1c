"""Where types and arrays differ: bit by bit, by what is allowed, and in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from superopt.rules import Rule
from superopt.terms import TensorType, TermGraph

Array = NDArray[np.generic]


def first_of(wrong: NDArray[np.bool_], left: Array, right: Array, allowed: Array | None = None) -> str:
    """Where the first of the wrong elements is and what both sides have there, or how far apart they are."""
    place = tuple(int(index) for index in np.argwhere(wrong)[0])
    at = f" at {list(place)}" if left.size > 1 else ""
    if allowed is None or left.dtype.kind != "f" or not np.isfinite(left[place]) or not np.isfinite(right[place]):
        return f"{at}: {left[place]} on the left, {right[place]} on the right"
    gap, most = abs(float(left[place]) - float(right[place])), float(np.broadcast_to(allowed, wrong.shape)[place])
    return f"{at}: by {gap:.3g}, of which the rule's class allows {most:.2g}"


def equal_bits(left: Array, right: Array, rule: Rule) -> NDArray[np.bool_]:
    """Which elements are the same as an exact rule promises, but for what it ignores; any NaN is any other."""
    if left.dtype.kind != "f":
        return np.asarray(left == right)
    bits = np.dtype(f"u{left.dtype.itemsize}")
    same = np.ascontiguousarray(left).view(bits) == np.ascontiguousarray(right).view(bits)
    same |= np.isnan(left) & np.isnan(right)
    if "signed-zero" in rule.ignoring:
        same |= left == right
    if "nan" in rule.ignoring:
        same |= np.isnan(left) | np.isnan(right)
    if "infinity" in rule.ignoring:
        same |= ~np.isfinite(left) | ~np.isfinite(right)
    # An array without axes has got one on the way.
    return np.asarray(same).reshape(left.shape)


def identical(values: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether all are equal, with NaN where there is NaN: no bound can make a difference of that."""
    return all(
        mine.dtype == other.dtype and np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f")
        for mine, other in zip(values, others, strict=True)
    )


def same_type(left: object, right: object) -> bool:
    """Whether a right side may stand for a left one: what is known of its type is the same."""
    if not isinstance(left, TensorType) or not isinstance(right, TensorType):
        return left == right
    if left.dtype != right.dtype or left.rank != right.rank or left.shape is None or right.shape is None:
        return False
    return all(mine == other or other is None for mine, other in zip(left.shape, right.shape, strict=True))


def largest(graph: TermGraph, place: int) -> float:
    """Beyond which magnitude a root of a graph may have overflowed."""
    kind = graph.types[graph.roots[place]]
    dtype = kind.dtype if isinstance(kind, TensorType) else ""
    return {"float16": 3e4, "float64": 1e300}.get(dtype, 1e38)


def stated(rule: Rule, value: NDArray[np.float64], finite: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The bound that an ``approximates`` rule states, relative to the largest value of the tensor, or to 1."""
    largest = np.max(np.abs(value), initial=1.0, where=finite)
    return np.full(value.shape, (rule.within or 0.0) * largest)
