"""Rule functions about products of matrices between Reshapes that fold axes together and apart again."""

from __future__ import annotations

from math import prod

from superopt.conditions.types import same_dim
from superopt.values import Unknown, Value, attribute, predicate

Ints = tuple[int, ...]


@predicate()
def folds_rows(value: Value, target: Ints) -> bool:
    """Reshape to ``target`` makes a matrix of all rows of a value, which has two axes or more and some columns."""
    if value.rank < 2 or len(target) != 2:
        return False
    width = value.shape[-1]
    return isinstance(width, int) and width > 0 and target[1] == width


@predicate()
def folds_batches(value: Value, target: Ints, other: Value) -> bool:
    """Reshape to ``target`` makes one axis of all axes of a value but the last two, which are numbers above zero. The
    other has that axis and two more, the last of which is such a number too."""
    matrix = value.shape[-2:]
    if value.rank < 3 or len(target) != 3 or other.rank != 3 or other.shape[0] != prod(batches(value)):
        return False
    numbers = all(isinstance(size, int) and size > 0 for size in (*matrix, other.shape[2]))
    return target[0] != 0 and numbers and target[1:] == matrix


@attribute()
def batches(value: Value) -> Ints:
    """The sizes of all axes but the last two."""
    return tuple(value.dim(axis) for axis in range(value.rank - 2))


@predicate()
def along_kept_columns(value: Value, before: Value, target: Ints) -> bool:
    """A value varies along the last axis alone of what Reshape to ``target`` makes, which was the last one before."""
    if not target or not before.rank or before.shape[-1] != target[-1] or value.rank > len(target):
        return False
    return bool(value.rank) and value.shape[-1] == target[-1] and all(size == 1 for size in value.shape[:-1])


@predicate()
def lifts(value: Value, target: Ints) -> bool:
    """Reshape to ``target`` puts axes of size one before those of a value, and does nothing else."""
    more = len(target) - value.rank
    if more < 1 or any(size != 1 for size in target[:more]):
        return False
    return all(same_dim(size, wanted) for size, wanted in zip(value.shape, target[more:], strict=True))


@predicate()
def fits_product(value: Value, left: Value, right: Value, left_turned: int, right_turned: int) -> bool:
    """A value broadcasts to the shape of the product of two matrices, either of which may be turned first."""
    sizes = (left.shape[left_turned], right.shape[1 - right_turned])
    if value.rank > 2:
        return False
    return all(
        size == 1 or same_dim(size, wanted) for size, wanted in zip(value.shape, sizes[2 - value.rank :], strict=True)
    )


@predicate()
def flattens_all(value: Value, target: Ints) -> bool:
    """Reshape to ``target`` leaves the first axis of a value as it is and makes one of all others, of a size above
    zero."""
    width = prod(value.dim(axis) for axis in range(1, value.rank))
    if len(target) != 2 or not width or target[1] not in (width, -1) or target == (-1, -1):
        return False
    return target[0] in (0, -1) or same_dim(value.shape[0], target[0])


@attribute()
def turned_columns(value: Value, perm: Ints) -> Ints:
    """The sizes of all axes of ``Transpose(value, perm=perm)`` but the first, which stays where it is."""
    if perm[0] != 0:
        raise Unknown("the first axis moves")
    return tuple(value.dim(axis) for axis in perm[1:])


@attribute()
def columns_back(perm: Ints, first: int, rank: int) -> Ints:
    """The permutation, of as many axes, that turns the axes from ``first`` on back where the columns of
    ``Transpose(x, perm=perm)`` came from, and leaves the others alone."""
    back = [first + perm.index(axis) - 1 for axis in range(1, len(perm))]
    return (*range(first), *back, *range(first + len(back), rank))
