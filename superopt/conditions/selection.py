"""Rule functions about selections: which axis of an operand an axis of a result is, and who has it."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from superopt.conditions.types import same_dim
from superopt.values import Unknown, Value, attribute, predicate, tensor

Ints = tuple[int, ...]

FEW = 4
"""A selection is worth moving where it leaves at most one in so many."""


def _place(axis: int, value: Value, others: tuple[Value, ...]) -> int:
    """The axis of ``value``, below zero where it has none, that is an axis of what it broadcasts to with others."""
    return axis - (max((value.rank, *(other.rank for other in others))) - value.rank)


@attribute()
def own_axis(axis: int, value: Value, *others: Value) -> int:
    """The axis of ``value`` that is an axis of what it broadcasts to with others; Unknown where it has none."""
    place = _place(axis, value, others)
    if place < 0:
        raise Unknown("the axis is not there")
    return place


@predicate()
def constant_along(axis: int, value: Value, *others: Value) -> bool:
    """``value`` does not vary along an axis of what it broadcasts to with others: it has none, or one of size one."""
    place = _place(axis, value, others)
    return place < 0 or value.shape[place] == 1


@predicate()
def constant_along_all(axes: Ints, value: Value, *others: Value) -> bool:
    """``value`` does not vary along any of these axes of what it broadcasts to with others."""
    return all(constant_along(axis, value, *others) for axis in axes)


@predicate()
def alike_along(axis: int, value: Value, other: Value) -> bool:
    """Two that broadcast have the same size along an axis of the result."""
    places = _place(axis, value, (other,)), _place(axis, other, (value,))
    return min(places) >= 0 and same_dim(value.shape[places[0]], other.shape[places[1]])


@predicate()
def few_indices(indices: Value, value: Value, axis: int) -> bool:
    """A list of indices, of one element or of few for the size of that axis of ``value``; not of a vector, such as
    those of shape arithmetic."""
    if indices.rank != 1 or value.rank < 2:
        return False
    return indices.dim(0) == 1 or indices.dim(0) * FEW <= value.dim(axis)


@attribute()
def axis_before(axis: int, removed: Ints) -> int:
    """The axis of x that is this axis of what is left of x when axes are removed."""
    for gone in removed:
        axis += gone <= axis
    return axis


@attribute()
def axis_within(axis: int, added: Ints) -> int:
    """The axis of x that is this axis of x with axes of size one put in; Unknown for one of those."""
    if axis in added:
        raise Unknown("an axis that was put in")
    return axis - sum(one < axis for one in added)


@attribute()
def shape_of_selected(value: Value, target: Ints, axis: int) -> Ints:
    """The target with which what is selected along an axis of ``value`` is reshaped as ``Reshape(value, target)`` is.

    The axes up to this one must be those of ``value``: the others then share among them what they did before.
    """
    if axis >= len(target) or axis >= value.rank:
        raise Unknown("the axis is not there")
    for place, wanted in enumerate(target[: axis + 1]):
        size = value.shape[place]
        if wanted == 0 or same_dim(size, wanted):
            continue
        rest = target[place + 1 :]
        inferred = wanted == -1 and place == axis and min(rest, default=1) > 0
        if not inferred or prod(rest) != prod(value.dim(after) for after in range(place + 1, value.rank)):
            raise Unknown("the axis is not kept")
    return (0,) * (axis + 1) + target[axis + 1 :]


@tensor()
def range_of(start: int, end: int) -> NDArray[np.generic]:
    """The indices from a start up to an end, as a list."""
    return np.arange(start, end, dtype=np.int64)


@predicate(reads=("indices",))
def within(indices: Value, low: int, high: int) -> bool:
    """Every index is at least ``low`` and below ``high``."""
    numbers = indices.array().astype(np.int64)
    return bool(((numbers >= low) & (numbers < high)).all())
