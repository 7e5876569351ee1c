"""What is in the integers that a model computes from its shapes, operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from superopt.operators import dtype_name
from superopt.sizes.size import LONGEST, Content, Entry, Site, Size, content_of, minus, over, plus, product, times


def _shape(site: Site) -> Content | None:
    dims = site.shape()
    if dims is None:
        return None
    start, end = site.attribute("start", 0), site.attribute("end")
    return Content("int64", tuple(dim if isinstance(dim, Size) else None for dim in dims[start:end]))


def _size(site: Site) -> Content | None:
    dims = site.shape()
    return None if dims is None else Content("int64", (product(dims),), 0)


def _same(site: Site) -> Content | None:
    return site.content(0)


def _cast(site: Site) -> Content | None:
    """Between whole numbers: a dimension beyond the reach of int32 is one that no runtime has."""
    content, to = site.content(0), site.attribute("to")
    dtype = dtype_name(to) if to else ""
    if content is None or dtype not in ("int64", "int32") or content.dtype == "bool":
        return None
    small = dtype == "int64" or all(_is_short(entry) for entry in content.entries)
    return Content(dtype, content.entries, content.rank) if small else None


def _remainder(one: Size, other: Size) -> Size | None:
    """Of numbers alone."""
    if one.known and other.known and one.number >= 0 and other.number > 0:
        return Size(one.number % other.number)
    return None


def _is_short(entry: Entry) -> bool:
    return isinstance(entry, Size) and (len(entry.symbols) <= 1 and -(2**31) <= entry.number < 2**31)


def _gather(site: Site) -> Content | None:
    content, indices, places = site.content(0), site.content(1), site.numbers(1)
    if content is None or indices is None or places is None or content.rank != 1:
        return None
    count = len(content.entries)
    if any(not -count <= place < count for place in places):
        return None
    return Content(content.dtype, tuple(content.entries[place] for place in places), indices.rank)


def _slice(site: Site) -> Content | None:
    content = site.content(0)
    if content is None or content.rank != 1 or not site.given(2):
        return None
    starts, ends = site.numbers(1), site.numbers(2)
    steps = site.numbers(4) if site.given(4) else [1]
    if starts is None or ends is None or steps is None or len(starts) != 1 or len(ends) != 1 or steps[:1] < [1]:
        return None
    return Content(content.dtype, content.entries[starts[0] : ends[0] : steps[0]])


def _concat(site: Site) -> Content | None:
    parts = [site.content(place) for place in range(len(site.node.input))]
    entries: list[Entry] = []
    dtype = None
    for place, part in enumerate(parts):
        shape = site.shape(place)
        if part is not None:
            dtype, more = part.dtype, part.entries
        elif shape is not None and len(shape) == 1 and isinstance(shape[0], Size) and shape[0].known:
            more = (None,) * min(shape[0].number, LONGEST + 1)
        else:
            return None
        entries += more
    return None if dtype is None else Content(dtype, tuple(entries))


def _unsqueeze(site: Site) -> Content | None:
    content = site.content(0)
    return None if content is None or content.rank else Content(content.dtype, content.entries)


def _squeeze(site: Site) -> Content | None:
    content = site.content(0)
    return None if content is None or len(content.entries) != 1 else Content(content.dtype, content.entries, 0)


def _reshape(site: Site) -> Content | None:
    content, target = site.content(0), site.numbers(1)
    if content is None or target is None or len(target) > 1:
        return None
    return Content(content.dtype, content.entries, len(target))


def _pairs(site: Site, count: int = 2) -> tuple[list[Content], list[tuple[Entry, ...]]] | None:
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


def _arithmetic(combine: Callable[[Size, Size], Size | None]) -> Callable[[Site], Content | None]:
    def apply(site: Site) -> Content | None:
        both = _pairs(site)
        if both is None:
            return None
        parts, rows = both
        entries = [combine(a, b) if isinstance(a, Size) and isinstance(b, Size) else None for a, b in rows]
        kept = tuple(entry if entry is None or abs(entry.number) < 2**31 else None for entry in entries)
        return Content(parts[0].dtype, kept, max(part.rank for part in parts))

    return apply


def _equal(site: Site) -> Content | None:
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


def _where(site: Site) -> Content | None:
    all_three = _pairs(site, 3)
    if all_three is None:
        return None
    parts, rows = all_three
    entries = tuple((a if c else b) if isinstance(c, bool) else a if a == b else None for c, a, b in rows)
    return Content(parts[1].dtype, entries, max(part.rank for part in parts))


def _filled(site: Site) -> Content | None:
    """ConstantOfShape, of few elements."""
    count = site.numbers(0)
    if count is None or len(count) > 1 or prod(count) > LONGEST or min(count, default=0) < 0:
        return None
    held = next((item.t for item in site.node.attribute if item.name == "value"), None)
    content = None if held is None else content_of(held)
    if content is None or len(content.entries) != 1:
        return None
    return Content(content.dtype, content.entries * prod(count), len(count))


def _reduced(site: Site) -> Content | None:
    content = site.content(0)
    if content is None or content.rank != 1 or content.dtype == "bool":
        return None
    return Content(content.dtype, (product(content.entries),), 1 if site.attribute("keepdims", 1) else 0)


CONTENTS: Mapping[str, Callable[[Site], Content | None]] = {
    "Shape": _shape, "Size": _size, "Identity": _same, "Cast": _cast, "Gather": _gather, "Slice": _slice,
    "Concat": _concat, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Reshape": _reshape, "Equal": _equal,
    "Where": _where, "ConstantOfShape": _filled, "ReduceProd": _reduced, "Mul": _arithmetic(times),
    "Add": _arithmetic(plus), "Sub": _arithmetic(minus), "Div": _arithmetic(over), "Mod": _arithmetic(_remainder),
}  # fmt: skip
"""What an operator of integers makes, where that is known, by its name."""
