"""Rule functions about data movement: permutations, reshapes, slices, pads of whole tensors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superopt.conditions.types import numpy_dtype, same_dim, shape
from superopt.terms import Attrs
from superopt.values import Unknown, Value, attribute, predicate, tensor

Ints = tuple[int, ...]

_LARGEST = (1 << 63) - 1
"""Where a Slice ends that takes what there is, whatever its size."""


@attribute()
def composed(first: Ints, then: Ints) -> Ints:
    """The permutation of ``Transpose(Transpose(x, perm=first), perm=then)``."""
    return tuple(first[axis] for axis in then)


@attribute()
def inverse(perm: Ints) -> Ints:
    """The permutation that undoes this one."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


@predicate()
def unmoved(perm: Ints) -> bool:
    """The permutation is the identity."""
    return perm == tuple(range(len(perm)))


@attribute()
def swapped_last(rank: int) -> Ints:
    """The permutation that exchanges the last two of ``rank`` axes."""
    if rank < 2:
        raise Unknown("no two axes")
    return (*range(rank - 2), rank - 1, rank - 2)


@attribute()
def shape_at_rank(value: Value, rank: int) -> Ints:
    """The shape of a value with ones before it, up to a rank."""
    if value.rank > rank:
        raise Unknown("of higher rank")
    return (1,) * (rank - value.rank) + shape(value)


@attribute()
def chosen(perm: Ints, axes: Ints) -> Ints:
    """The axes of x that axes of ``Transpose(x, perm=perm)`` are, in order."""
    return tuple(sorted(perm[axis] for axis in axes))


@attribute()
def left_over(perm: Ints, axes: Ints) -> Ints:
    """The permutation of the axes that are left when axes of ``Transpose(x, perm=perm)`` are removed."""
    gone = {perm[axis] for axis in axes}
    kept = [axis for axis in range(len(perm)) if axis not in gone]
    return tuple(kept.index(axis) for axis in perm if axis not in gone)


@predicate()
def reshaped_to_itself(value: Value, target: Ints) -> bool:
    """Reshape to ``target`` (0 copies, -1 infers) does not change the shape."""
    if len(target) != value.rank or target.count(-1) > 1:
        return False
    pairs = zip(value.shape, target, strict=True)
    return all(wanted in (0, -1) or same_dim(size, wanted) for size, wanted in pairs)


@attribute()
def squeezed(target: Ints, axes: Ints) -> Ints:
    """A Reshape's target without axes whose size in it is one."""
    if any(axis >= len(target) or target[axis] != 1 for axis in axes):
        raise Unknown("not of size one")
    return tuple(size for axis, size in enumerate(target) if axis not in axes)


@attribute()
def unsqueezed(target: Ints, axes: Ints) -> Ints:
    """A Reshape's target with axes of size one put in, where they stand in the result."""
    rest = iter(target)
    return tuple(1 if axis in axes else next(rest) for axis in range(len(target) + len(axes)))


@attribute()
def squeezed_axes(inner: Ints, outer: Ints, rank: int) -> Ints:
    """The axes of x that ``Squeeze(Squeeze(x, axes=inner), axes=outer)`` removes; ``rank`` is that of x."""
    left = [axis for axis in range(rank) if axis not in inner]
    return tuple(sorted((*inner, *(left[axis] for axis in outer))))


@attribute()
def unsqueezed_axes(inner: Ints, outer: Ints, rank: int) -> Ints:
    """The axes that ``Unsqueeze(Unsqueeze(x, axes=inner), axes=outer)`` puts into x; ``rank`` is that of x."""
    places = [axis for axis in range(rank + len(inner) + len(outer)) if axis not in outer]
    return tuple(sorted((*outer, *(places[axis] for axis in inner))))


@predicate()
def expands_nothing(value: Value, target: Ints) -> bool:
    """Expand to ``target`` does not change the shape."""
    if len(target) > value.rank:
        return False
    aligned = value.shape[value.rank - len(target) :]
    return all(wanted == 1 or same_dim(size, wanted) for size, wanted in zip(aligned, target, strict=True))


def _parts(attrs: Attrs) -> dict[int, tuple[int, int, int]]:
    """Start, end and step of each axis of a Slice that counts from the begin and forwards."""
    found: dict[int, tuple[int, int, int]] = {}
    columns = [attrs.get(name) for name in ("axes", "starts", "ends", "steps")]
    rows = [tuple(int(item) for item in column) for column in columns if isinstance(column, tuple)]
    if len(rows) != 4 or min((0, *rows[1], *rows[2])) < 0 or min((1, *rows[3])) < 1:
        raise Unknown("a slice from the end or backwards")
    for axis, start, end, step in zip(*rows, strict=True):
        found[axis] = start, end, step
    return found


def _merged(inner: Attrs, outer: Attrs) -> tuple[Ints, Ints, Ints, Ints]:
    """Axes, starts, ends and steps of a Slice of a Slice as one."""
    parts = _parts(inner)
    for axis, (start, end, step) in _parts(outer).items():
        first = parts.get(axis)
        if first is None:
            parts[axis] = start, end, step
        else:
            parts[axis] = first[0] + start * first[2], min(first[1], first[0] + end * first[2]), first[2] * step
    axes = tuple(sorted(parts))
    columns = list(zip(*(parts[axis] for axis in axes), strict=True))
    if not columns:
        return (), (), (), ()
    # mypy does not count what is unpacked.
    return axes, *(tuple(min(item, _LARGEST) for item in column) for column in columns)  # type: ignore[return-value]


@attribute()
def merged_axes(inner: Attrs, outer: Attrs) -> Ints:
    """The axes of ``Slice(Slice(x, **inner), **outer)`` as one Slice."""
    return _merged(inner, outer)[0]


@attribute()
def merged_starts(inner: Attrs, outer: Attrs) -> Ints:
    """The starts of ``Slice(Slice(x, **inner), **outer)`` as one Slice."""
    return _merged(inner, outer)[1]


@attribute()
def merged_ends(inner: Attrs, outer: Attrs) -> Ints:
    """The ends of ``Slice(Slice(x, **inner), **outer)`` as one Slice."""
    return _merged(inner, outer)[2]


@attribute()
def merged_steps(inner: Attrs, outer: Attrs) -> Ints:
    """The steps of ``Slice(Slice(x, **inner), **outer)`` as one Slice."""
    return _merged(inner, outer)[3]


@predicate()
def takes_all(value: Value, attrs: Attrs) -> bool:
    """A Slice with these attributes takes the whole value."""
    parts = _parts(attrs).items()
    return all(
        start == 0 and step == 1 and (end >= _LARGEST or end >= value.dim(axis)) for axis, (start, end, step) in parts
    )


@attribute()
def tuple_sum(left: Ints, right: Ints) -> Ints:
    """The sums of two tuples, place by place."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


@predicate()
def growing(pads: Ints) -> bool:
    """No pad crops."""
    return all(pad >= 0 for pad in pads)


@attribute()
def moved_pads(pads: Ints, perm: Ints) -> Ints:
    """The pads, of all axes, of x with which ``Pad(Transpose(x, perm=perm), pads=pads)`` is a Transpose."""
    places, count = inverse(perm), len(perm)
    return tuple(pads[place] for place in places) + tuple(pads[count + place] for place in places)


@predicate()
def resizes_space_only(value: Value, scales: tuple[float, ...], sizes: Ints) -> bool:
    """Resize with these scales, or else to these sizes, leaves the first two axes as they are."""
    if scales:
        return scales[:2] == (1.0, 1.0)
    return len(sizes) >= 2 and all(value.dim(axis) == sizes[axis] for axis in (0, 1))


@attribute()
def with_channels(sizes: Ints, channels: int) -> Ints:
    """The sizes with another number of channels; none where there are none."""
    return (sizes[0], channels, *sizes[2:]) if sizes else ()


@attribute()
def moved(items: Ints, perm: Ints) -> Ints:
    """What is said of each axis of ``Transpose(x, perm=perm)``, in the order of the axes of x."""
    return tuple(items[place] for place in inverse(perm))


@attribute()
def to_rank(target: Ints, rank: int) -> Ints:
    """The target of an Expand with ones before it, up to a rank."""
    if len(target) > rank:
        raise Unknown("of higher rank")
    return (1,) * (rank - len(target)) + target


@attribute()
def spread_out(perm: Ints, axes: Ints) -> Ints:
    """The permutation of as many axes more, which stay in these places."""
    rest = [axis for axis in range(len(perm) + len(axes)) if axis not in axes]
    places = iter(rest[axis] for axis in perm)
    return tuple(axis if axis in axes else next(places) for axis in range(len(perm) + len(axes)))


def _runs(value: Value, perm: Ints, target: Ints) -> list[Ints]:
    """The sizes into which a Reshape splits each axis of a transposed value, in the order of its axes."""
    sizes, runs, rest = [value.dim(axis) for axis in perm], [], list(target)
    if min((*sizes, *rest), default=1) < 1:
        raise Unknown("a size that is copied, inferred, or zero")
    for size in sizes:
        run: list[int] = []
        count = 1
        while rest and (not run or count < size):
            run.append(rest.pop(0))
            count *= run[-1]
        if count != size or not run:
            raise Unknown("sizes of two axes are put together")
        runs.append(tuple(run))
    if rest or all(len(run) == 1 for run in runs):
        raise Unknown("nothing is split")
    return runs


@attribute()
def split_before(value: Value, perm: Ints, target: Ints) -> Ints:
    """The target that splits the axes of x as ``Reshape(Transpose(x, perm=perm), shape=target)`` splits them later."""
    runs = _runs(value, perm, target)
    return tuple(size for axis in inverse(perm) for size in runs[axis])


@attribute()
def split_order(value: Value, perm: Ints, target: Ints) -> Ints:
    """The permutation of the axes that were split before it."""
    runs = _runs(value, perm, target)
    counts = [len(runs[axis]) for axis in inverse(perm)]
    return tuple(sum(counts[:axis]) + place for axis in perm for place in range(counts[axis]))


@attribute()
def of_space(items: Ints, perm: Ints) -> Ints:
    """What is said of each spatial axis of ``Transpose(x, perm=perm)``, in the order of those of x."""
    return tuple(items[place - 2] for place in inverse(perm)[2:])


@attribute()
def pads_of_space(pads: Ints, perm: Ints) -> Ints:
    """The pads of the spatial axes of ``Transpose(x, perm=perm)``, in the order of those of x."""
    count = len(pads) // 2
    return of_space(pads[:count], perm) + of_space(pads[count:], perm)


@tensor()
def signs(negative: int, positive: int, rank: int, like: Value) -> NDArray[np.generic]:
    """Minus one for so many places of the first of ``rank`` axes, one for so many after them, of the element type of
    ``like``; the other axes are of size one."""
    column = np.repeat([-1, 1], [negative, positive]).reshape(-1, *[1] * (rank - 1))
    return column.astype(numpy_dtype(like.dtype))
