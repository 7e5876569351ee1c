"""Seeded inputs for any model: open dimensions get sizes that it runs with, several of them."""

from __future__ import annotations

import itertools
import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from superopt.errors import EvaluationError, FeedError, SuperoptError
from superopt.evaluate import Feed, Runner, Value, arrays_of, required_inputs
from superopt.inputs.feeds import Feeds, SampleFeed, checked_feed, load_feed, sizes_of
from superopt.inputs.input_roles import Plan, Role, roles, values
from superopt.models.inference import symbol_of
from superopt.models.model import Model
from superopt.verification.truth import TermRunner

_MOST_TRIES = 48
"""Assignments of sizes that are tried before a model counts as one that cannot be run."""

_SIZES: Mapping[str, tuple[int, ...]] = {
    "batch": (1, 2, 4),
    "channel": (3, 1, 4, 64),
    "spatial": (224, 64, 128, 32, 48, 320),
    "volume": (16, 32, 8),
    "time": (32, 64, 16, 128, 7, 1),
    "samples": (16000, 512, 4096, 1024, 576, 256),
    "feature": (80, 64, 128, 32, 16, 8, 4, 3, 2, 1),
    "other": (8, 1, 2, 4, 3, 16),
}
"""Sizes of an open dimension by what it seems to be, in the order in which they are tried."""

_SMALL_SIZES: Mapping[str, tuple[int, ...]] = {**_SIZES, "spatial": (16, 8, 32, 64, 224), "samples": (64, 256, 1024)}
"""For a part of a model: what comes to it has been made smaller, and there are many parts."""


@dataclass(frozen=True)
class _Input:
    """A tensor that the model wants: dimensions are sizes or symbols, None where the rank is not known."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str, ...] | None
    container: str
    role: Role


_MOST_NUMBERS = 1 << 28
"""Numbers that are made up for one feed: each takes 8 bytes on the way, a few times over."""

_MOST_CHOSEN = 1 << 24
"""The same where the sizes are chosen here: what comes of larger ones is slow, and shows no more."""

FEEDS = 3
"""How many inputs models are compared on, where nothing speaks for more."""


def sample(
    model: Model,
    *,
    seed: int = 0,
    count: int = FEEDS,
    shapes: Mapping[str, Sequence[int]] | None = None,
    given: str | os.PathLike[str] | Mapping[str, Value] | None = None,
    zero_sizes: bool = False,
    small: bool = False,
) -> Feeds:
    """Inputs that the model runs on: up to ``count`` of them, of different sizes where it leaves sizes open.

    ``shapes`` are sizes to use for inputs by name; ``given`` are real inputs (a path of an .npz file, or arrays), which
    are then the only ones. With ``zero_sizes`` one more has an open dimension of size zero, if the model runs with it;
    ``small`` prefers small images and short waves.
    Raises FeedError where what is given does not fit, EvaluationError where the model runs with no sizes tried.
    """
    proto = model.proto
    if given is not None:
        if not isinstance(given, (str, os.PathLike, Mapping)):
            raise FeedError(f"inputs: a {type(given).__name__}, expected the path of an .npz file or arrays by name")
        where = "inputs" if isinstance(given, Mapping) else str(os.fspath(given))
        feed = checked_feed(proto, given if isinstance(given, Mapping) else load_feed(given), where)
        return Feeds((SampleFeed(feed, "given" if isinstance(given, Mapping) else where, sizes_of(proto, feed)),), seed)
    runner = runner_of(model)
    inputs = _inputs(proto, shapes or {})
    choices = _SMALL_SIZES if small else _SIZES
    kinds = _kinds(inputs, choices)
    base, failed = _first(runner, inputs, kinds, seed, choices)
    feeds = [base.feed]
    for sizes in itertools.islice(_others(base.sizes, kinds), 3 * count):
        if len(feeds) >= count:
            break
        made = _attempt(runner, inputs, sizes, base.plan, seed, len(feeds), "seeded")
        if isinstance(made, str):
            failed.append(made)
        else:
            feeds.append(made)
    if zero_sizes:
        for symbol in kinds:
            made = _attempt(
                runner, inputs, {**base.sizes, symbol: 0}, base.plan, seed, len(feeds), "seeded", empty=True
            )
            if not isinstance(made, str):
                feeds.append(made)
                break
    return Feeds(tuple(feeds), seed, tuple(dict.fromkeys(failed)), isinstance(runner, TermRunner))


def runner_of(model: Model) -> Runner | TermRunner:
    """The model in onnxruntime without optimizations, or where that does not load it, as terms in float64.

    Raises EvaluationError, with onnxruntime's reason, where neither can.
    """
    try:
        return Runner(model)
    except EvaluationError as error:
        try:
            runner = TermRunner(model)
        except SuperoptError:
            raise error from None
        if runner.lowered.graph.opaque:
            raise
        return runner


def _inputs(proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> list[_Input]:
    known = roles(proto)
    found: list[_Input] = []
    for info in required_inputs(proto):
        kind, container = info.type, "tensor"
        if kind.HasField("optional_type"):
            kind, container = kind.optional_type.elem_type, "optional"
        if kind.HasField("sequence_type"):
            kind, container = kind.sequence_type.elem_type, "sequence"
        if not kind.HasField("tensor_type"):
            raise EvaluationError(f"input {info.name}: no inputs can be made up for its type")
        tensor = kind.tensor_type
        dims: tuple[int | str, ...] | None = None
        if tensor.HasField("shape"):
            dims = tuple(
                dim.dim_value
                if dim.HasField("dim_value") and dim.dim_value >= 0
                else symbol_of(dim) or f"{info.name}[{axis}]"
                for axis, dim in enumerate(tensor.shape.dim)
            )
        if info.name in shapes:
            dims = _fixed(info.name, dims, tuple(shapes[info.name]))
        role = known[info.name]
        if dims is None and role.rank is not None:
            dims = tuple(f"{info.name}[{axis}]" for axis in range(role.rank))
        number = tensor.elem_type
        dtype = np.dtype(object) if number == onnx.TensorProto.STRING else helper.tensor_dtype_to_np_dtype(number)
        found.append(_Input(info.name, dtype, dims, container, role))
    for name in shapes:
        if name not in {item.name for item in found}:
            wanted = ", ".join(item.name for item in found) or "none"
            raise FeedError(f"input-shape: {name!r} is not an input, expected {wanted}")
    return _with_symbols_fixed(found, proto, shapes)


def _fixed(name: str, dims: tuple[int | str, ...] | None, shape: tuple[int, ...]) -> tuple[int | str, ...]:
    fits = dims is None or (
        len(dims) == len(shape)
        and all(isinstance(dim, str) or dim == size for dim, size in zip(dims, shape, strict=True))
    )
    if not fits:
        raise FeedError(f"input-shape: {name}:{','.join(map(str, shape))} does not fit {list(dims or ())}")
    return shape


def _with_symbols_fixed(
    inputs: list[_Input], proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]
) -> list[_Input]:
    """A symbol that a given shape decides has that size in other inputs too."""
    decided: dict[str, int] = {}
    for info in required_inputs(proto):
        if info.name in shapes and info.type.HasField("tensor_type"):
            for dim, size in zip(info.type.tensor_type.shape.dim, shapes[info.name], strict=False):
                symbol = symbol_of(dim)
                if symbol is not None and decided.setdefault(symbol, size) != size:
                    raise FeedError(f"input-shape: {symbol} is {decided[symbol]} and {size}")
    return [
        _Input(
            item.name,
            item.dtype,
            None if item.dims is None else tuple(decided.get(d, d) if isinstance(d, str) else d for d in item.dims),
            item.container,
            item.role,
        )
        for item in inputs
    ]


_BATCH = re.compile(r"batch|^b$|^bs$", re.IGNORECASE)
_TIME = re.compile(r"seq|time|frames|len|tokens|^t$|^s$", re.IGNORECASE)
_SPATIAL = re.compile(r"height|width|^h$|^w$", re.IGNORECASE)


def _kinds(inputs: Sequence[_Input], choices: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What every symbol seems to be, and the sizes to try for it."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for item in inputs:
        for axis, dim in enumerate(item.dims or ()):
            if isinstance(dim, str) and dim not in found:
                kind, first = _kind(item, axis, dim)
                found[dim] = (kind, (first,) if first is not None else choices[kind])
    return found


def _kind(item: _Input, axis: int, symbol: str) -> tuple[str, int | None]:
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


def _assignments(kinds: Mapping[str, tuple[str, tuple[int, ...]]]) -> Iterator[dict[str, int]]:
    """Sizes for all symbols, the likeliest first: symbols of a kind step through their sizes together."""
    groups = sorted({kind for kind, _ in kinds.values()})
    lengths = [max(len(sizes) for kind, sizes in kinds.values() if kind == group) for group in groups]
    steps = sorted(itertools.product(*(range(length) for length in lengths)), key=lambda step: (sum(step), step))
    for step in steps:
        at = dict(zip(groups, step, strict=True))
        yield {symbol: sizes[min(at[kind], len(sizes) - 1)] for symbol, (kind, sizes) in kinds.items()}


def _others(sizes: Mapping[str, int], kinds: Mapping[str, tuple[str, tuple[int, ...]]]) -> Iterator[dict[str, int]]:
    """Other sizes than those that ran, then the same again with other values."""
    for group in ("batch", "time", "samples", "spatial", "volume"):
        members = {symbol: choices for symbol, (kind, choices) in kinds.items() if kind == group and len(choices) > 1}
        for step in range(2):
            other = {s: next((c for c in choices[step:] if c != sizes[s]), sizes[s]) for s, choices in members.items()}
            if other and {**sizes, **other} != dict(sizes):
                yield {**sizes, **other}
                break
    while True:
        yield dict(sizes)


@dataclass(frozen=True)
class _Base:
    feed: SampleFeed
    sizes: Mapping[str, int]
    plan: Plan


def _first(
    runner: Runner | TermRunner,
    inputs: list[_Input],
    kinds: dict[str, tuple[str, tuple[int, ...]]],
    seed: int,
    choices: Mapping[str, tuple[int, ...]],
) -> tuple[_Base, list[str]]:
    """The likeliest sizes and values that the model gives ordinary outputs for; else any that it runs with."""
    failed: list[str] = []
    second_best: _Base | None = None
    guesses = any(item.dtype.kind in "iu" and item.role.below is None for item in inputs)
    open_ranks = _open_ranks(inputs)
    for ranks in open_ranks:
        left = _MOST_TRIES // len(open_ranks)
        settled = [item if item.dims is not None else _with_rank(item, ranks) for item in inputs]
        open_kinds = {**kinds, **_kinds(settled, choices)}
        for sizes in _assignments(open_kinds):
            for integers in ("guess", "time", "ones", "zeros") if guesses else ("guess",):
                plan = Plan(integers)
                made = _attempt(runner, settled, sizes, plan, seed, 0, "seeded")
                left -= 1
                if isinstance(made, str):
                    positive = Plan(integers, positive=True)
                    retry = _attempt(runner, settled, sizes, positive, seed, 0, "seeded") if "NaN" in made else made
                    made, plan = retry, positive if not isinstance(retry, str) else plan
                if not isinstance(made, str):
                    inputs[:] = settled
                    kinds.update(open_kinds)
                    return _Base(made, sizes, plan), failed
                failed.append(made)
                if second_best is None:
                    poor = _attempt(runner, settled, sizes, plan, seed, 0, "seeded", empty=True)
                    second_best = None if isinstance(poor, str) else _Base(poor, sizes, plan)
            if left <= 0:
                break
    if second_best is not None:
        return second_best, failed
    raise EvaluationError(f"no inputs were found that it runs with; the first try was {failed[0]}")


def _open_ranks(inputs: Sequence[_Input]) -> Sequence[int | None]:
    return (4, 2, 3, 1, 0) if any(item.dims is None for item in inputs) else (None,)


def _with_rank(item: _Input, rank: int | None) -> _Input:
    dims = tuple(f"{item.name}[{axis}]" for axis in range(rank or 0))
    return _Input(item.name, item.dtype, dims, item.container, item.role)


def _attempt(
    runner: Runner | TermRunner,
    inputs: Sequence[_Input],
    sizes: Mapping[str, int],
    plan: Plan,
    seed: int,
    number: int,
    origin: str,
    empty: bool = False,
) -> SampleFeed | str:
    """A feed of these sizes, or what happened when the model was run on it."""
    shapes = {item.name: tuple(sizes[d] if isinstance(d, str) else d for d in item.dims or ()) for item in inputs}
    what = ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items())
    count = sum(math.prod(shape) for shape in shapes.values())
    most = _MOST_CHOSEN if sizes else _MOST_NUMBERS
    if count > most:
        return f"{what}: {count:,} numbers to make up, at most {most:,} are"
    plan = Plan(plan.integers, plan.positive, _time(inputs, shapes))
    feed: dict[str, Value] = {}
    for item in inputs:
        rng = np.random.default_rng([seed, number, zlib.crc32(item.name.encode())])
        made = [
            values(item.name, item.dtype, shapes[item.name], item.role, plan, rng)
            for _ in range(2 if item.container == "sequence" else 1)
        ]
        feed[item.name] = made if item.container == "sequence" else made[0]
    used = {symbol: size for symbol, size in sizes.items() if any(symbol in (item.dims or ()) for item in inputs)}
    try:
        outputs = runner.run(feed)
    except EvaluationError as error:
        return f"{what}: {error}"
    problem = None if empty else _problem(outputs)
    return f"{what}: {problem}" if problem else SampleFeed(feed, f"{origin} {number}", used, outputs)


def _time(inputs: Sequence[_Input], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How long the inputs are along the axis that lengths count: the longest that is open, else the longest of all."""
    open_sizes = [
        shapes[item.name][axis]
        for item in inputs
        for axis, dim in enumerate(item.dims or ())
        if isinstance(dim, str) and (axis > 0 or len(item.dims or ()) == 1) and item.dtype.kind not in "iub"
    ]
    every = [size for item in inputs for size in shapes[item.name][1:] if item.dtype.kind not in "iub"]
    return max(open_sizes or every or [1])


def _problem(outputs: Feed) -> str | None:
    """Why outputs are no good for comparing models, if they are not."""
    arrays = [array for value in outputs.values() for array in arrays_of(value)]
    if not arrays or not any(array.size for array in arrays):
        return "every output is empty"
    floats = [array for array in arrays if array.dtype.kind == "f" and array.size]
    if floats and not any(np.isfinite(array).any() for array in floats):
        return "every output is NaN or infinite"
    return None
