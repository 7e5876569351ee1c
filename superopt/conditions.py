"""The named predicates, attribute functions and constants that rules may call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from superopt.values import Value, attribute, predicate, tensor


@predicate()
def same_dtype(*terms: Value) -> bool:
    """Whether all these terms have one element type."""
    return len({term.dtype for term in terms}) == 1


@attribute()
def trailing_axes(w: Value) -> tuple[int, ...]:
    """The axes after the first: what a per-channel vector is to be unsqueezed by to meet a weight's first axis."""
    return tuple(range(1, w.rank))


@attribute()
def dims(terms: Sequence[Value], axis: int) -> tuple[int, ...]:
    """The size of an axis in each of these terms."""
    return tuple(term.dim(axis) for term in terms)


@tensor()
def scalar(value: float, like: Value) -> NDArray[np.generic]:
    """A constant of rank 0 with the element type of a term."""
    return np.asarray(value, dtype=np.dtype(like.dtype))
