"""Rule functions about Gather, Slice, Pad and Reshape as one another: indices as ranges, targets by way of others."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from superopt.conditions.types import numpy_dtype, same_dim
from superopt.terms import Attrs, Dim
from superopt.values import Unknown, Value, attribute, predicate, tensor

Ints = tuple[int, ...]


def _ramp(indices: Value) -> tuple[int, int, int]:
    """First, last and step of a list of indices that count up evenly from a number that is not negative."""
    numbers = indices.array().astype(np.int64)
    if numbers.ndim != 1 or not numbers.size or numbers[0] < 0:
        raise Unknown("no list of indices from the begin")
    steps = set(np.diff(numbers).tolist()) or {1}
    if len(steps) > 1 or min(steps) < 1:
        raise Unknown("not evenly upwards")
    return int(numbers[0]), int(numbers[-1]), int(min(steps))


@attribute(reads=("indices",))
def ramp_start(indices: Value) -> Ints:
    """The start of the Slice that takes what a list of indices does."""
    return (_ramp(indices)[0],)


@attribute(reads=("indices",))
def ramp_end(indices: Value) -> Ints:
    """The end of the Slice that takes what a list of indices does."""
    return (_ramp(indices)[1] + 1,)


@attribute(reads=("indices",))
def ramp_step(indices: Value) -> Ints:
    """The step of the Slice that takes what a list of indices does."""
    return (_ramp(indices)[2],)


@tensor(reads=("indices",))
def line_of(indices: Value, axis: int) -> NDArray[np.generic]:
    """The list of indices that stand along an axis, where they are the same on every line of it."""
    numbers = indices.array()
    if not numbers.size:
        raise Unknown("no indices")
    first = numbers[tuple(slice(None) if place == axis else slice(0, 1) for place in range(numbers.ndim))]
    if not (numbers == first).all():
        raise Unknown("not the same on every line")
    return np.asarray(first.reshape(-1))


@predicate()
def same_shape_but(axis: int, one: Value, other: Value) -> bool:
    """Two have the same rank and the same sizes on all axes but one."""
    if one.rank != other.rank:
        return False
    pairs = enumerate(zip(one.shape, other.shape, strict=True))
    return all(place == axis or same_dim(*pair) for place, pair in pairs)


@attribute()
def inner_pads(pads: Ints, axes: Ints) -> Ints:
    """The pads of the axes that are not among these; zeros for those that are."""
    rank = len(pads) // 2
    return tuple(0 if place % rank in axes else pad for place, pad in enumerate(pads))


@attribute()
def places_before_pad(value: Value, places: Ints, pads: Ints, attrs: Attrs) -> Ints:
    """Starts or ends of a Slice of a padded value as those of the value: nothing of what is taken is padding."""
    columns = [attrs[name] for name in ("axes", "starts", "ends", "steps")]
    rows = [tuple(int(item) for item in column) for column in columns if isinstance(column, tuple)]
    if len(rows) != 4 or any(step != 1 for step in rows[3]):
        raise Unknown("not one by one")
    result = []
    for place, axis, start, end in zip(places, *rows[:3], strict=True):
        low, high = pads[axis], pads[len(pads) // 2 + axis]
        if not max(low, 0) <= start <= end <= low + value.dim(axis) + min(high, 0):
            raise Unknown("padding is taken")
        result.append(place - low)
    return tuple(result)


@attribute()
def reshaped_twice(value: Value, first: Ints, then: Ints) -> Ints:
    """The target of ``Reshape(Reshape(x, shape=first), shape=then)`` as one: a 0 copies of x what it copied before.

    Where ``first`` infers what ``then`` copies, that is inferred again, of numbers above zero.
    """
    result = []
    for axis, size in enumerate(then):
        if size != 0:
            result.append(size)
        elif axis >= len(first):
            raise Unknown("copies what is not there")
        else:
            result.append(first[axis])
    if result.count(-1) > 1 or (-1 in result and -1 not in then and min(size for size in result if size != -1) < 1):
        raise Unknown("two sizes are inferred, or one beside none")
    if any(size == 0 and axis >= value.rank for axis, size in enumerate(result)):
        raise Unknown("copies what is not there")
    return tuple(result)


@predicate()
def copies_before(target: Ints, axes: Ints) -> bool:
    """What a target copies (0) stands before the first of these axes, so that it is in the same place without them."""
    return all(size != 0 or place < min(axes, default=0) for place, size in enumerate(target))


@attribute()
def flattened_to(value: Value, axis: int) -> Ints:
    """The target with which Reshape does what Flatten does, whatever the symbols are, and where they are zero."""
    rows, columns = value.shape[:axis], value.shape[axis:]
    if not all(isinstance(dim, int) for dim in columns):
        raise Unknown("the columns are not a number")
    width = prod(value.dim(place) for place in range(axis, value.rank))
    if axis == 1 and width:
        return (0, width)
    if not all(isinstance(dim, int) for dim in rows) or not width or 0 in rows:
        raise Unknown("the rows are not a number, or there is nothing")
    return (prod(value.dim(place) for place in range(axis)), width)


@attribute()
def turned_as_reshaped(value: Value, perm: Ints) -> Ints:
    """The target with which Reshape does what Transpose does: only axes of size one change places."""
    moving = [axis for axis in perm if value.shape[axis] != 1]
    if moving != sorted(moving):
        raise Unknown("elements change places")
    result: list[int] = []
    for place, axis in enumerate(perm):
        size = value.shape[axis]
        if isinstance(size, int):
            result.append(size)
        elif same_dim(size, value.shape[place]):
            result.append(0)
        else:
            result.append(-1)
    if result.count(-1) > 1 or any(value.shape[axis] == 0 for axis in perm):
        raise Unknown("more than one size is not known")
    if -1 in result and 0 in result:
        raise Unknown("a size is inferred beside one that may be zero")
    return tuple(result)


@predicate()
def ones_along(axes: Ints, value: Value) -> bool:
    """A value has the size one along all of these axes."""
    return all(value.shape[axis] == 1 for axis in axes)


@attribute()
def all_axes(first: Ints, then: Ints) -> Ints:
    """Axes of either list, in order."""
    return tuple(sorted({*first, *then}))


def _asked(value: Value, attrs: Attrs) -> tuple[Dim, ...]:
    """The dimensions that Shape with these attributes asks for."""
    start, end = int(str(attrs.get("start", 0))), attrs.get("end")
    return value.shape[start:] if end is None else value.shape[start : int(str(end))]


def _sizes(dims: tuple[Dim, ...]) -> NDArray[np.int64]:
    sizes = [dim for dim in dims if isinstance(dim, int)]
    if len(sizes) < len(dims):
        raise Unknown("a size is not known")
    return np.array(sizes, dtype=np.int64)


@tensor()
def shape_of(value: Value, attrs: Attrs) -> NDArray[np.generic]:
    """What the operator Shape gives for a tensor, where all that is asked is known."""
    return _sizes(_asked(value, attrs))


@tensor()
def part_of_shape(value: Value, attrs: Attrs, start: int, end: int) -> NDArray[np.generic]:
    """What a Slice of a Shape gives, where all that is asked is known."""
    return _sizes(_asked(value, attrs)[start:end])


@tensor(reads=("indices",))
def sizes_at(value: Value, attrs: Attrs, indices: Value) -> NDArray[np.generic]:
    """What a Gather of a Shape gives, where all that is asked is known."""
    places, asked = indices.array().astype(np.int64), _asked(value, attrs)
    if places.size and not (-len(asked) <= places.min() and places.max() < len(asked)):
        raise Unknown("no such axis")
    return _sizes(tuple(asked[place] for place in places.reshape(-1).tolist())).reshape(places.shape)


@tensor()
def count_of(value: Value) -> NDArray[np.generic]:
    """What the operator Size gives for a tensor whose shape is known in full."""
    return np.array(prod(value.dim(axis) for axis in range(value.rank)), dtype=np.int64)


@predicate(reads=("indices",))
def counts_rows(indices: Value, value: Value) -> bool:
    """Indices, one in each row of a list of them, that are those of all rows of a value, in order."""
    numbers = indices.array()
    return numbers.shape == (value.dim(0), 1) and bool((numbers[:, 0] == np.arange(len(numbers))).all())


@predicate(reads=("indices",))
def follow(indices: tuple[Value, ...], value: Value) -> bool:
    """Single indices of the first axis of a value, one after the other, none of them below zero."""
    numbers = [int(index.array().reshape(())) for index in indices]
    places = list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers == places and places[0] >= 0 and places[-1] < value.dim(0)


@attribute(reads=("indices",))
def first_of(indices: tuple[Value, ...]) -> int:
    """The first of single indices."""
    return int(indices[0].array().reshape(()))


@tensor(reads=("indices",))
def places_taken(indices: Value, size: int, like: Value) -> NDArray[np.generic]:
    """The matrix that has a one where an index of a list (a row) takes one of so many places (a column); all are taken.
    It is of the element type of ``like``."""
    numbers = indices.array().astype(np.int64)
    if numbers.ndim != 1 or any(not -size <= number < size for number in numbers):
        raise Unknown("no list of places that are there")
    if len({number % size for number in numbers.tolist()}) < size:
        raise Unknown("not every place is taken")
    return np.eye(size, dtype=numpy_dtype(like.dtype))[numbers]


@tensor()
def rolled(size: int, start: int) -> NDArray[np.generic]:
    """The indices of so many places, beginning with one of them and coming round to it."""
    return np.roll(np.arange(size, dtype=np.int64), -start)
