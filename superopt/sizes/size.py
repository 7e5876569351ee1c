"""Sizes of a model as far as they are known: numbers, and products of symbols; and a node with what it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from superopt.models.tensors import is_external
from superopt.operators import dtype_name
from superopt.terms import Dim

LONGEST = 64
"""Elements up to which a value is looked at: shapes are shorter, and so is what is made of them."""


@dataclass(frozen=True)
class Size:
    """A number times symbols, each as often as it stands there. Symbols are dimensions: at least zero."""

    number: int
    symbols: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether it is a number, whatever the symbols are."""
        return not self.symbols


@dataclass(frozen=True)
class AtMost:
    """The size of what is sliced up to a size: that size where there is so much, so wherever both broadcast."""

    size: Size


Sized = Size | AtMost | None
"""One dimension; None where nothing is known of it."""

Entry = Size | bool | None
"""One element: a size, a truth value, or not known."""


@dataclass(frozen=True)
class Content:
    """The elements of a value of rank 0 or 1, and its element type."""

    dtype: str
    entries: tuple[Entry, ...]
    rank: int = 1

    def array(self) -> NDArray[np.generic] | None:
        """The value, where all of it is known."""
        items = [entry.number if isinstance(entry, Size) and entry.known else entry for entry in self.entries]
        if any(isinstance(item, Size) or item is None for item in items):
            return None
        flat = np.asarray(items, dtype=self.dtype)
        return flat.reshape(()) if self.rank == 0 else flat


def size_of(dim: Dim) -> Size | None:
    """A dimension as a size; None where it is not known."""
    return None if dim is None else Size(dim) if isinstance(dim, int) else Size(1, (dim,))


def content_of(tensor: onnx.TensorProto) -> Content | None:
    """The content of a short list of integers or truth values, or of one; None for other tensors."""
    dtype = dtype_name(tensor.data_type) if tensor.data_type else ""
    if dtype not in ("int64", "int32", "bool") or is_external(tensor):
        return None
    if len(tensor.dims) > 1 or prod(tensor.dims) > LONGEST:
        return None
    items = numpy_helper.to_array(tensor).reshape(-1).tolist()
    entries = tuple(item if dtype == "bool" else Size(item) for item in items)
    return Content(dtype, entries, len(tensor.dims))


@dataclass(frozen=True)
class Site:
    """A node, and what is known of what it reads."""

    node: onnx.NodeProto
    found: Mapping[str, Content]
    shapes: Mapping[str, tuple[Sized, ...] | None]

    def content(self, place: int) -> Content | None:
        return self.found.get(self.node.input[place]) if self.given(place) else None

    def given(self, place: int) -> bool:
        return place < len(self.node.input) and bool(self.node.input[place])

    def shape(self, place: int = 0) -> tuple[Sized, ...] | None:
        return self.shapes.get(self.node.input[place]) if self.given(place) else None

    def numbers(self, place: int) -> list[int] | None:
        """The integers of an input that is known in full."""
        content = self.content(place)
        array = None if content is None or content.dtype == "bool" else content.array()
        return None if array is None else [int(item) for item in array.reshape(-1).tolist()]

    def attribute(self, name: str, default: int | None = None) -> int | None:
        return next((int(item.i) for item in self.node.attribute if item.name == name), default)

    def listed(self, name: str, place: int) -> list[int] | None:
        """Integers that are an attribute, or an input that is known."""
        held = next((list(item.ints) for item in self.node.attribute if item.name == name), None)
        return self.numbers(place) if held is None else held


def times(one: Size, other: Size) -> Size:
    """The product."""
    number = one.number * other.number
    return Size(number, tuple(sorted(one.symbols + other.symbols)) if number else ())


def plus(one: Size, other: Size) -> Size | None:
    """The sum, where it is a number times symbols again."""
    if one.symbols == other.symbols:
        return times(Size(one.number + other.number), Size(1, one.symbols))
    if Size(0) in (one, other):
        return other if one == Size(0) else one
    return None


def minus(one: Size, other: Size) -> Size | None:
    """The difference, where it is a number times symbols again."""
    return plus(one, Size(-other.number, other.symbols))


def over(one: Size, other: Size) -> Size | None:
    """Where it comes out even; a symbol by which is divided is not zero, or the model does not run."""
    if one.known and other.known and one.number >= 0 and other.number > 0:
        return Size(one.number // other.number)
    left, right = Counter(one.symbols), Counter(other.symbols)
    if other.number == 0 or one.number % other.number or right - left:
        return None
    return Size(one.number // other.number, tuple(sorted((left - right).elements())))


def product(sizes: Iterable[Sized | bool]) -> Size | None:
    """The product of all, where all are known."""
    result = Size(1)
    for size in sizes:
        if not isinstance(size, Size):
            return None
        result = times(result, size)
    return result
