"""Rule functions about every second place of two axes: the four phases side by side are blocks of two by two."""

from __future__ import annotations

from superopt.values import Unknown, Value, attribute, predicate

Ints = tuple[int, ...]


@predicate()
def has_phases(value: Value, axes: Ints, ends: Ints) -> bool:
    """Slices up to these ends with a step of two, from 0 and from 1, have each half of the places of each axis."""
    sizes = [value.dim(axis) for axis in axes]
    return all(size % 2 == 0 and end >= size for size, end in zip(sizes, ends, strict=True))


def _sizes(value: Value) -> Ints:
    """The sizes of all axes, all above zero; the first one is copied (0) where it is no number."""
    rest = tuple(value.dim(axis) for axis in range(1, value.rank))
    first = value.shape[0]
    if 0 in (first, *rest):
        raise Unknown("nothing is there")
    return (first if isinstance(first, int) else 0, *rest)


@attribute()
def with_phases(value: Value, axes: Ints) -> Ints:
    """The target that divides each of these axes in places and phases."""
    target: list[int] = []
    for axis, size in enumerate(_sizes(value)):
        target += (size // 2, 2) if axis in axes else (size,)
    return tuple(target)


@attribute()
def phases_before(value: Value, axes: Ints, axis: int) -> Ints:
    """The permutation that brings the phases of two axes, those of the second before those of the first, before another
    axis."""
    if axis in axes:
        raise Unknown("an axis that is halved")
    place = [one + sum(halved < one for halved in axes) for one in range(value.rank)]
    order: list[int] = []
    for one in range(value.rank):
        if one == axis:
            order += (place[axes[1]] + 1, place[axes[0]] + 1)
        order.append(place[one])
    return tuple(order)


@attribute()
def phases_joined(value: Value, axes: Ints, axis: int) -> Ints:
    """The target that makes one axis of four phases and the axis after them."""
    if axis == 0 and not isinstance(value.shape[0], int):
        raise Unknown("four times what is not known")
    sizes = enumerate(_sizes(value))
    return tuple(size // 2 if one in axes else 4 * size if one == axis else size for one, size in sizes)


@attribute()
def twice(items: Ints) -> Ints:
    """Each number times two."""
    return tuple(2 * item for item in items)
