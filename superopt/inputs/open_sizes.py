"""Sizes to try for open dimensions: what a symbol seems to count, and in which order its sizes are likely."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from superopt.inputs.derived_sizes import PAST, expressions
from superopt.inputs.wanted import WantedInput, symbols_of

SIZES: Mapping[str, tuple[int, ...]] = {
    "batch": (1, 2, 4),
    "channel": (3, 1, 4, 64),
    "spatial": (224, 64, 128, 32, 48, 320),
    "volume": (16, 32, 8),
    "time": (32, 64, 16, 128, 7, 1),
    "new": (32, 1, 64, 16, 7),
    "samples": (16000, 512, 4096, 1024, 576, 256),
    "feature": (80, 64, 128, 32, 16, 8, 4, 3, 2, 1),
    "other": (8, 1, 2, 4, 3, 16),
}
"""Sizes of an open dimension by what it seems to be, in the order in which they are tried; ``new`` is time that comes
after what is past, which is one step in many a model."""

SMALL_SIZES: Mapping[str, tuple[int, ...]] = {**SIZES, "spatial": (16, 8, 32, 64, 224), "samples": (64, 256, 1024)}
"""For a part of a model: what comes to it has been made smaller, and there are many parts."""


_MASK = re.compile(r"mask", re.IGNORECASE)
_BATCH = re.compile(r"batch|^b$|^bs$", re.IGNORECASE)
_TIME = re.compile(r"seq|time|frames|len|tokens|^t$|^s$", re.IGNORECASE)
_SPATIAL = re.compile(r"height|width|^h$|^w$", re.IGNORECASE)


def kinds_of(
    inputs: Sequence[WantedInput], choices: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What every symbol that is free seems to be, and the sizes to try for it."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    derived = expressions(symbols_of(inputs))
    for item in inputs:
        for axis, dim in enumerate(item.dims or ()):
            if isinstance(dim, str) and dim not in found and dim not in derived:
                kind, first = _kind(item, axis, dim)
                found[dim] = (kind, (first,) if first is not None else choices[kind])
    times = [symbol for symbol, (kind, _) in found.items() if kind == "time"]
    if any(PAST.search(symbol) for symbol in times):
        found.update((symbol, ("new", choices["new"])) for symbol in times if not PAST.search(symbol))
    return found


def masked_totals(inputs: Sequence[WantedInput]) -> tuple[str, ...]:
    """Open dimensions that only masks have, in a model that is also given what is past: they may count both that and
    what is new, whatever they are called."""
    others = {dim for item in inputs if not _MASK.search(item.name) for dim in item.dims or ()}
    if not any(isinstance(dim, str) and PAST.search(dim) for dim in others):
        return ()
    return tuple(symbol for symbol in symbols_of(inputs) if symbol not in others)


def _kind(item: WantedInput, axis: int, symbol: str) -> tuple[str, int | None]:
    dims = item.dims or ()
    rank = len(dims)
    is_index = item.dtype.kind in "iub"
    named = "[" not in symbol
    if named and _BATCH.search(symbol):
        return "batch", None
    if axis == 1 and item.role.channels is not None:
        return "channel", item.role.channels
    if axis == rank - 1 and rank > 1 and item.role.features is not None:
        return "feature", item.role.features
    if named and PAST.search(symbol):
        return "time", None
    if rank == 4 and (axis >= 2 or (named and _SPATIAL.search(symbol)) or (axis == 1 and dims[3] in (1, 3))):
        return "spatial", None
    if rank == 5 and axis >= 2:
        return "volume", None
    if axis == 0 and rank >= 2:
        return "batch", None
    if rank >= 4 and axis == 1:
        return "channel", None
    if rank == 3 and axis == 1 and isinstance(dims[0], int) and isinstance(dims[2], int) and dims[0] > 1:
        return "batch", None  # the state of a recurrent network: [layers, batch, features]
    if rank == 3 and axis > 0:
        return ("time" if axis == 2 or isinstance(dims[2], int) or _TIME.search(symbol) else "feature"), None
    if rank == 2 and axis == 1:
        return ("time" if is_index else "samples"), None
    if rank == 1:
        return ("batch" if is_index else "other"), None
    return "other", None


def assignments(kinds: Mapping[str, tuple[str, tuple[int, ...]]]) -> Iterator[dict[str, int]]:
    """Sizes for all symbols, the likeliest first: symbols of a kind step through their sizes together."""
    groups = sorted({kind for kind, _ in kinds.values()})
    lengths = [max(len(sizes) for kind, sizes in kinds.values() if kind == group) for group in groups]
    steps = sorted(itertools.product(*(range(length) for length in lengths)), key=lambda step: (sum(step), step))
    for step in steps:
        at = dict(zip(groups, step, strict=True))
        yield {symbol: sizes[min(at[kind], len(sizes) - 1)] for symbol, (kind, sizes) in kinds.items()}


_MOST_OTHERS = 3
"""Sizes of a kind of dimension that are tried beside the first that ran."""


def other_sizes(
    sizes: Mapping[str, int], kinds: Mapping[str, tuple[str, tuple[int, ...]]]
) -> tuple[list[dict[str, int]], ...]:
    """Other sizes than those that ran, by the kind of dimension, the likeliest first: of each the first that a model
    runs with is enough."""
    found: dict[str, list[dict[str, int]]] = {}
    for kind in ("batch", "time", "new", "samples", "spatial", "volume"):
        others = {s: [c for c in choices if c != sizes[s]] for s, (own, choices) in kinds.items() if own == kind}
        steps = range(min(_MOST_OTHERS, max(map(len, others.values()), default=0)))
        moved = ({s: left[step] for s, left in others.items() if len(left) > step} for step in steps)
        found[kind] = [{**sizes, **one} for one in moved]
    return tuple(found.values())


_MOST_EDGES = 3
"""Sizes that are tried in the hope that a model runs with one or none of something."""


def edges(
    sizes: Mapping[str, int], kinds: Mapping[str, tuple[str, tuple[int, ...]]]
) -> tuple[list[dict[str, int]], ...]:
    """Sizes at the edge of what models allow, by what they try: one of everything, none of what is not a batch (a
    cache of no steps), an empty batch. Of each the first that a model runs with is enough."""
    free = {symbol: kind for symbol, (kind, choices) in kinds.items() if len(choices) > 1}
    batches = [symbol for symbol, kind in free.items() if kind == "batch"]
    # A cache that is empty at first is what models are made for.
    others = sorted((symbol for symbol in free if symbol not in batches), key=lambda name: not PAST.search(name))
    ones = [{**sizes, **dict.fromkeys(free, 1)}, *({**sizes, symbol: 1} for symbol in others)]
    none = [{**sizes, symbol: 0} for symbol in others]
    empty = [{**sizes, **dict.fromkeys(batches, 0)}, *({**sizes, symbol: 0} for symbol in batches[1:])]
    known = (dict(sizes),)
    return tuple([edge for edge in found if edge not in known][:_MOST_EDGES] for found in (ones, none, empty))
