"""Rule functions about element types, ranks, dimensions and broadcasting."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.operators import dtype_number, has_number
from superopt.terms import Dim
from superopt.values import Unknown, Value, attribute, predicate, tensor

FLOATS = ("float64", "float32", "float16", "bfloat16")
SIGNED = ("int64", "int32", "int16", "int8")
UNSIGNED = ("uint64", "uint32", "uint16", "uint8")


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """numpy's (or ml_dtypes') dtype of an element type."""
    result: np.dtype[np.generic] = onnx.helper.tensor_dtype_to_np_dtype(dtype_number(name))
    return result


def all_values(values: Iterable[Value | tuple[Value, ...]]) -> tuple[Value, ...]:
    """The values, those in tuples (stars) among them."""
    flat: list[Value] = []
    for value in values:
        flat.extend(value if isinstance(value, tuple) else (value,))
    return tuple(flat)


def same_dim(one: Dim, other: Dim) -> bool:
    """Whether two dimensions are known to be equal: the same number or the same symbol."""
    return one is not None and one == other


@predicate()
def same_dtype(*values: Value | tuple[Value, ...]) -> bool:
    """All have the same element type."""
    return len({value.dtype for value in all_values(values)}) == 1


@predicate()
def same_shape(*values: Value | tuple[Value, ...]) -> bool:
    """All have the same shape, dimension by dimension."""
    first, *others = all_values(values)
    return all(
        other.rank == first.rank and all(same_dim(a, b) for a, b in zip(first.shape, other.shape, strict=True))
        for other in others
    )


@predicate()
def varying(*values: Value | tuple[Value, ...]) -> bool:
    """None is constant."""
    return not any(value.constant for value in all_values(values))


def same_rank(*values: Value | tuple[Value, ...]) -> bool:
    """All have the same rank."""
    return len({value.rank for value in all_values(values)}) == 1


@predicate()
def floating(*values: Value) -> bool:
    """All are of floating point types."""
    return all(value.dtype in FLOATS for value in values)


@predicate()
def signed(*values: Value) -> bool:
    """All are of types that have negative numbers: floating point or signed integers."""
    return all(value.dtype in FLOATS + SIGNED for value in values)


@predicate()
def precise(*values: Value) -> bool:
    """All are of one type, float32 or float64: arithmetic on them, and with numbers like an epsilon, needs no cast."""
    return values[0].dtype in ("float32", "float64") and same_dtype(*values)


@predicate()
def fits(value: Value, onto: Value) -> bool:
    """Broadcasting ``value`` with ``onto`` gives the shape of ``onto``."""
    if value.rank > onto.rank:
        return False
    aligned = onto.shape[onto.rank - value.rank :]
    return all(small == 1 or same_dim(small, large) for small, large in zip(value.shape, aligned, strict=True))


@predicate()
def along(value: Value, axis: int, rank: int, size: int) -> bool:
    """``value`` varies along one axis alone of a tensor of that rank, whose size there is ``size``: broadcast with that
    tensor it does not change its shape. A negative axis counts from the end."""
    axis = axis + rank if axis < 0 else axis
    if not 0 <= axis < rank or value.rank > rank:
        return False
    padded = (1,) * (rank - value.rank) + value.shape
    return all(dim == 1 or (place == axis and dim == size) for place, dim in enumerate(padded))


@predicate()
def single(*values: Value) -> bool:
    """Each has exactly one element."""
    return all(value.tensor.is_static and value.tensor.size == 1 for value in values)


@predicate()
def lossless(source: str, target: str) -> bool:
    """Every value of one element type is a value of the other (NaN may get other bits; no strings)."""
    if source == target:
        return source != "string"
    if source == "bool":
        return target in FLOATS + SIGNED + UNSIGNED
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
    if source in FLOATS:
        return target in FLOATS and (target == "float64" or (target == "float32" and source != "float64"))
    if source not in SIGNED + UNSIGNED:
        return False
    width = int(source.lstrip("uint")) - (source in SIGNED)
    if target in digits:
        reach = 16 if target == "float16" else 127
        return width <= digits[target] and width < reach
    if target in SIGNED:
        return width <= int(target[3:]) - 1
    return target in UNSIGNED and source in UNSIGNED and width <= int(target[4:])


@predicate()
def common(dtype: str) -> bool:
    """An element type that operators take: no number of less than 8 bits, and no float of 8."""
    return dtype in (*FLOATS, *SIGNED, *UNSIGNED, "bool")


@predicate()
def value_cast(source: str, through: str, target: str) -> bool:
    """Casting by way of ``through`` is casting at once: the first step is lossless, and the second does not depend on
    how a value is represented (no strings; no floating point to integer, which is undefined out of range)."""
    if "string" in (source, through, target) or not lossless(source, through):
        return False
    return target in FLOATS or target == "bool" or source not in FLOATS


@attribute()
def dtype(value: Value) -> str:
    """The element type."""
    return value.dtype


@attribute()
def wide(*values: Value) -> str:
    """The type in which arithmetic on floating point values loses little: float32, or float64 if one of them is."""
    names = {value.dtype for value in values}
    if not names <= set(FLOATS):
        raise Unknown("not of floating point type")
    return "float64" if "float64" in names else "float32"


@attribute()
def rank(value: Value) -> int:
    """The number of dimensions."""
    return value.rank


@attribute()
def dim(value: Value, axis: int) -> int:
    """The size of an axis; a negative axis counts from the end."""
    return value.dim(axis)


@attribute()
def dims(values: tuple[Value, ...], axis: int) -> tuple[int, ...]:
    """The sizes of an axis of each of several."""
    return tuple(value.dim(axis) for value in values)


@attribute()
def shape(value: Value) -> tuple[int, ...]:
    """All dimensions, as numbers."""
    return tuple(value.dim(axis) for axis in range(value.rank))


@attribute()
def size(value: Value) -> int:
    """The number of elements."""
    return prod(shape(value))


@attribute()
def product_rank(left: Value, right: Value) -> int:
    """The rank of ``MatMul(left, right)``."""
    ranks = left.rank, right.rank
    if 0 in ranks:
        raise Unknown("MatMul takes no scalars")
    return max(max(ranks), 2) - ranks.count(1)


@attribute()
def column(count: int, rank: int) -> tuple[int, ...]:
    """The shape ``(count, 1, ..., 1)`` of that rank."""
    return (count,) + (1,) * (rank - 1)


@attribute()
def gemm_column_shape(count: int, transposed: int) -> tuple[int, ...]:
    """The shape in which something per output column meets Gemm's B: ``(1, count)``, or ``(count, 1)`` for transB."""
    return (count, 1) if transposed else (1, count)


@attribute()
def gemm_row_shape(count: int, transposed: int) -> tuple[int, ...]:
    """The shape in which something per inner index meets Gemm's B: ``(count, 1)``, or ``(1, count)`` for transB."""
    return (1, count) if transposed else (count, 1)


@attribute()
def trailing_axes(value: Value) -> tuple[int, ...]:
    """The axes ``(1, 2, ..., rank - 1)``."""
    return tuple(range(1, value.rank))


@attribute()
def axes_from(first: int, rank: int) -> tuple[int, ...]:
    """The axes ``(first, ..., rank - 1)``."""
    return tuple(range(first, rank))


@predicate()
def alike_but(axis: int, values: tuple[Value, ...]) -> bool:
    """All have the same rank and the same sizes on all axes but one."""
    axes = [place for place in range(values[0].rank) if place != axis]
    return same_rank(values) and len({tuple(value.dim(place) for place in axes) for value in values}) == 1


@predicate()
def each_rank(values: tuple[Value, ...], wanted: int) -> bool:
    """All have that rank."""
    return all(value.rank == wanted for value in values)


@attribute()
def chain_products(left: Value, middle: Value, right: Value) -> tuple[int, int]:
    """The multiplications of ``(left middle) right`` and of ``left (middle right)``, all of them matrices."""
    if (left.rank, middle.rank, right.rank) != (2, 2, 2):
        raise Unknown("not matrices")
    m, k, j, n = left.dim(0), left.dim(1), middle.dim(1), right.dim(1)
    return m * k * j + m * j * n, k * j * n + m * k * n


@tensor()
def scalar(value: int | float, like: Value) -> NDArray[np.generic]:
    """A constant without dimensions, of the element type of ``like``."""
    return scalar_of(value, like.dtype)


@tensor()
def scalar_of(value: int | float, dtype: str) -> NDArray[np.generic]:
    """A constant without dimensions, of an element type."""
    if not has_number(dtype, value):
        raise Unknown(f"{dtype} has no {value}")
    return np.array(value).astype(numpy_dtype(dtype))


@tensor()
def zeros(count: int, like: Value) -> NDArray[np.generic]:
    """A constant vector of zeros, of the element type of ``like``."""
    return np.zeros((count,), dtype=numpy_dtype(like.dtype))


@tensor()
def ones(count: int, like: Value) -> NDArray[np.generic]:
    """A constant vector of ones, of the element type of ``like``."""
    return np.ones((count,), dtype=numpy_dtype(like.dtype))
