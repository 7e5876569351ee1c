"""What is in the integers that a model computes from its shapes: numbers, and products of symbols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from superopt.models.model import standard_domain
from superopt.models.tensors import is_external
from superopt.operators import dtype_name
from superopt.terms import Dim, TensorType

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


def contents(graph: onnx.GraphProto, types: Mapping[str, TensorType | None]) -> dict[str, Content]:
    """What is known of the contents of values of a graph, by name, where the types of its values are these.

    The nodes come in an order in which they can run. An operator that is not known here says nothing.
    """
    found: dict[str, Content] = {}
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.name not in inputs:
            _add(found, tensor.name, _of_tensor(tensor))
    for node in graph.node:
        if standard_domain(node.domain) or len(node.output) != 1:
            continue
        if node.op_type == "Constant":
            held = node.attribute[0].t if node.attribute and node.attribute[0].name == "value" else None
            _add(found, node.output[0], None if held is None else _of_tensor(held))
            continue
        rule = _RULES.get(node.op_type)
        if rule is not None:
            made = rule(_Site(node, found, types))
            _add(found, node.output[0], made if made is None or _agrees(made, types.get(node.output[0])) else None)
    return found


def _add(found: dict[str, Content], name: str, content: Content | None) -> None:
    if content is not None and len(content.entries) <= LONGEST:
        found[name] = content


def _agrees(content: Content, known: TensorType | None) -> bool:
    """Whether a content is of the type that its value has: what is of none that was understood is left alone."""
    if known is None or known.dtype != content.dtype or known.shape is None or len(known.shape) != content.rank:
        return False
    return content.rank == 0 or not isinstance(known.shape[0], int) or known.shape[0] == len(content.entries)


def _of_tensor(tensor: onnx.TensorProto) -> Content | None:
    dtype = dtype_name(tensor.data_type) if tensor.data_type else ""
    if (
        dtype not in ("int64", "int32", "bool")
        or len(tensor.dims) > 1
        or prod(tensor.dims) > LONGEST
        or is_external(tensor)
    ):
        return None
    items = numpy_helper.to_array(tensor).reshape(-1).tolist()
    entries = tuple(item if dtype == "bool" else Size(item) for item in items)
    return Content(dtype, entries, len(tensor.dims))


@dataclass(frozen=True)
class _Site:
    """A node, and what is known of what it reads."""

    node: onnx.NodeProto
    found: Mapping[str, Content]
    types: Mapping[str, TensorType | None]

    def content(self, place: int) -> Content | None:
        return self.found.get(self.node.input[place]) if place < len(self.node.input) else None

    def given(self, place: int) -> bool:
        return place < len(self.node.input) and bool(self.node.input[place])

    def shape(self, place: int = 0) -> tuple[Dim, ...] | None:
        known = self.types.get(self.node.input[place])
        return None if known is None else known.shape

    def numbers(self, place: int) -> list[int] | None:
        """The integers of an input that is known in full."""
        content = self.content(place)
        array = None if content is None or content.dtype == "bool" else content.array()
        return None if array is None else [int(item) for item in array.reshape(-1).tolist()]

    def attribute(self, name: str, default: int | None = None) -> int | None:
        return next((int(item.i) for item in self.node.attribute if item.name == name), default)


def _shape(site: _Site) -> Content | None:
    dims = site.shape()
    if dims is None:
        return None
    start, end = site.attribute("start", 0), site.attribute("end")
    return Content("int64", tuple(size_of(dim) for dim in dims[start:end]))


def _size(site: _Site) -> Content | None:
    dims = site.shape()
    return None if dims is None else Content("int64", (_product(map(size_of, dims)),), 0)


def _same(site: _Site) -> Content | None:
    return site.content(0)


def _cast(site: _Site) -> Content | None:
    """Between whole numbers: a dimension beyond the reach of int32 is one that no runtime has."""
    content, to = site.content(0), site.attribute("to")
    dtype = dtype_name(to) if to else ""
    if content is None or dtype not in ("int64", "int32") or content.dtype == "bool":
        return None
    small = dtype == "int64" or all(_is_short(entry) for entry in content.entries)
    return Content(dtype, content.entries, content.rank) if small else None


def _is_short(entry: Entry) -> bool:
    return isinstance(entry, Size) and (len(entry.symbols) <= 1 and -(2**31) <= entry.number < 2**31)


def _gather(site: _Site) -> Content | None:
    content, indices, places = site.content(0), site.content(1), site.numbers(1)
    if content is None or indices is None or places is None or content.rank != 1:
        return None
    count = len(content.entries)
    if any(not -count <= place < count for place in places):
        return None
    return Content(content.dtype, tuple(content.entries[place] for place in places), indices.rank)


def _slice(site: _Site) -> Content | None:
    content = site.content(0)
    if content is None or content.rank != 1 or not site.given(2):
        return None
    starts, ends = site.numbers(1), site.numbers(2)
    steps = site.numbers(4) if site.given(4) else [1]
    if starts is None or ends is None or steps is None or len(starts) != 1 or len(ends) != 1 or steps[:1] < [1]:
        return None
    return Content(content.dtype, content.entries[starts[0] : ends[0] : steps[0]])


def _concat(site: _Site) -> Content | None:
    parts = [site.content(place) for place in range(len(site.node.input))]
    entries: list[Entry] = []
    dtype = None
    for place, part in enumerate(parts):
        known, shape = site.types.get(site.node.input[place]), site.shape(place)
        if part is not None:
            dtype, more = part.dtype, part.entries
        elif known is not None and shape is not None and len(shape) == 1 and isinstance(shape[0], int):
            dtype, more = known.dtype, (None,) * min(shape[0], LONGEST + 1)
        else:
            return None
        entries += more
    return None if dtype is None else Content(dtype, tuple(entries))


def _unsqueeze(site: _Site) -> Content | None:
    content = site.content(0)
    return None if content is None or content.rank else Content(content.dtype, content.entries)


def _squeeze(site: _Site) -> Content | None:
    content = site.content(0)
    return None if content is None or len(content.entries) != 1 else Content(content.dtype, content.entries, 0)


def _reshape(site: _Site) -> Content | None:
    content, target = site.content(0), site.numbers(1)
    if content is None or target is None or len(target) > 1:
        return None
    return Content(content.dtype, content.entries, len(target))


def _pairs(site: _Site, count: int = 2) -> tuple[list[Content], list[tuple[Entry, ...]]] | None:
    """Operands that broadcast, and their elements side by side."""
    found = [site.content(place) for place in range(count)]
    parts = [part for part in found if part is not None]
    if len(parts) < count:
        return None
    length = max((len(part.entries) for part in parts if len(part.entries) != 1), default=1)
    if any(len(part.entries) not in (1, length) for part in parts):
        return None
    rows = [part.entries * (length if len(part.entries) == 1 else 1) for part in parts]
    return parts, list(zip(*rows, strict=True))


def _arithmetic(combine: Callable[[Size, Size], Size | None]) -> Callable[[_Site], Content | None]:
    def apply(site: _Site) -> Content | None:
        both = _pairs(site)
        if both is None:
            return None
        parts, rows = both
        entries = [combine(a, b) if isinstance(a, Size) and isinstance(b, Size) else None for a, b in rows]
        kept = tuple(entry if entry is None or abs(entry.number) < 2**31 else None for entry in entries)
        return Content(parts[0].dtype, kept, max(part.rank for part in parts))

    return apply


def _times(one: Size, other: Size) -> Size:
    number = one.number * other.number
    return Size(number, tuple(sorted(one.symbols + other.symbols)) if number else ())


def _plus(one: Size, other: Size) -> Size | None:
    if one.symbols == other.symbols:
        return _times(Size(one.number + other.number), Size(1, one.symbols))
    if Size(0) in (one, other):
        return other if one == Size(0) else one
    return None


def _minus(one: Size, other: Size) -> Size | None:
    return _plus(one, Size(-other.number, other.symbols))


def _over(one: Size, other: Size) -> Size | None:
    """Where it comes out even; a symbol by which is divided is not zero, or the model does not run."""
    if one.known and other.known and one.number >= 0 and other.number > 0:
        return Size(one.number // other.number)
    left, right = Counter(one.symbols), Counter(other.symbols)
    if other.number == 0 or one.number % other.number or right - left:
        return None
    return Size(one.number // other.number, tuple(sorted((left - right).elements())))


def _product(sizes: Iterable[Entry]) -> Size | None:
    result = Size(1)
    for size in sizes:
        if not isinstance(size, Size):
            return None
        result = _times(result, size)
    return result


def _equal(site: _Site) -> Content | None:
    both = _pairs(site)
    if both is None:
        return None
    return Content("bool", tuple(_is_equal(a, b) for a, b in both[1]), max(part.rank for part in both[0]))


def _is_equal(one: Entry, other: Entry) -> bool | None:
    if not isinstance(one, Size) or not isinstance(other, Size):
        return None
    if one == other:
        return True
    if one.known and other.known:
        return False
    # What is below zero is no dimension.
    low, high = sorted((one, other), key=lambda size: size.number)
    return False if low.known and low.number < 0 <= high.number else None


def _where(site: _Site) -> Content | None:
    all_three = _pairs(site, 3)
    if all_three is None:
        return None
    parts, rows = all_three
    entries = tuple((a if c else b) if isinstance(c, bool) else a if a == b else None for c, a, b in rows)
    return Content(parts[1].dtype, entries, max(part.rank for part in parts))


def _filled(site: _Site) -> Content | None:
    """ConstantOfShape, of few elements."""
    count = site.numbers(0)
    if count is None or len(count) > 1 or prod(count) > LONGEST or min(count, default=0) < 0:
        return None
    held = next((item.t for item in site.node.attribute if item.name == "value"), None)
    content = None if held is None else _of_tensor(held)
    if content is None or len(content.entries) != 1:
        return None
    return Content(content.dtype, content.entries * prod(count), len(count))


def _reduced(site: _Site) -> Content | None:
    content = site.content(0)
    if content is None or content.rank != 1 or content.dtype == "bool":
        return None
    return Content(content.dtype, (_product(content.entries),), 1 if site.attribute("keepdims", 1) else 0)


_RULES: Mapping[str, Callable[[_Site], Content | None]] = {
    "Shape": _shape, "Size": _size, "Identity": _same, "Cast": _cast, "Gather": _gather, "Slice": _slice,
    "Concat": _concat, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Reshape": _reshape, "Equal": _equal,
    "Where": _where, "ConstantOfShape": _filled, "ReduceProd": _reduced, "Mul": _arithmetic(_times),
    "Add": _arithmetic(_plus), "Sub": _arithmetic(_minus), "Div": _arithmetic(_over),
}  # fmt: skip
