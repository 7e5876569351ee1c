"""Rule functions about what broadcasts: which operand gives a result its shape, and which may be left out of it."""

from __future__ import annotations

from math import prod

from superopt.conditions.types import same_dim
from superopt.terms import Dim
from superopt.values import Unknown, Value, attribute, predicate

Ints = tuple[int, ...]


def _at(shape: tuple[Dim, ...], axis: int) -> Dim:
    """The dimension of an axis below zero, 1 where there is none."""
    return shape[axis] if -axis <= len(shape) else 1


def _spread(target: tuple[Dim, ...], values: tuple[Value, ...]) -> bool:
    """Broadcasting values with this shape too gives what they give without it."""
    if len(target) > max(value.rank for value in values):
        return False
    axes = range(-len(target), 0)
    return all(
        target[axis] == 1 or any(same_dim(target[axis], _at(value.shape, axis)) for value in values) for axis in axes
    )


@predicate()
def spread_alike(target: Ints, *values: Value) -> bool:
    """Expand to ``target`` gives one of these values no shape that broadcasting them does not give anyway."""
    return _spread(target, values)


@predicate()
def spread_by_batch(target: Ints, value: Value, other: Value) -> bool:
    """Expand of ``value`` to ``target`` only repeats matrices that a product with ``other`` repeats anyway."""
    if min(value.rank, other.rank, len(target)) < 2 or len(target) > max(value.rank, other.rank):
        return False
    matrix = all(target[axis] == 1 or same_dim(target[axis], value.shape[axis]) for axis in (-2, -1))
    batches = (
        target[axis] == 1 or any(same_dim(target[axis], _at(one.shape, axis)) for one in (value, other))
        for axis in range(-len(target), -2)
    )
    return matrix and all(batches)


@predicate()
def absorbed_by_broadcast(value: Value, *others: Value) -> bool:
    """Others broadcast to a shape that is the same with ``value`` among them."""
    return _spread(value.shape, others)


@predicate()
def exceeds_masks(value: Value, *masks: Value) -> bool:
    """What masks broadcast to is smaller than ``value``: one for several heads, or for several rows."""
    axes = range(-value.rank, 0)
    if max(mask.rank for mask in masks) > value.rank:
        return False
    dims = [(_at(value.shape, axis), [_at(mask.shape, axis) for mask in masks]) for axis in axes]
    return any(size != 1 and all(dim == 1 for dim in each) for size, each in dims)


@attribute()
def expanded_twice(first: Ints, then: Ints) -> Ints:
    """The target of ``Expand(Expand(x, shape=first), shape=then)`` as one Expand."""
    rank = max(len(first), len(then))
    result = []
    for axis in range(-rank, 0):
        sizes = {int(str(_at(target, axis))) for target in (first, then)} - {1}
        if len(sizes) > 1:
            raise Unknown("do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


@attribute()
def tiled_twice(first: Ints, then: Ints) -> Ints:
    """The repeats of ``Tile(Tile(x, repeats=first), repeats=then)`` as one Tile."""
    return tuple(prod(pair) for pair in zip(first, then, strict=True))


@attribute()
def tiled_as_expanded(value: Value, repeats: Ints) -> Ints:
    """The target with which Expand repeats a value as Tile does: only axes of size one are repeated."""
    if any(count != 1 and size != 1 for count, size in zip(repeats, value.shape, strict=True)):
        raise Unknown("more than one element is repeated")
    return repeats


@attribute()
def repeated_along(axis: int, count: int, rank: int) -> Ints:
    """The target with which Expand repeats a tensor of that rank and of size one along an axis."""
    return tuple(count if place == axis else 1 for place in range(rank))
