"""Seeded inputs for any model: open dimensions get sizes that it runs with, several of them."""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from superopt.errors import EvaluationError, FeedError, SuperoptError
from superopt.evaluate import TOO_LARGE, TOO_LONG, Feed, Runner, RuntimeValue, arrays_of
from superopt.inputs.derived_sizes import with_derived
from superopt.inputs.feeds import Feeds, SampleFeed, checked_feed, load_feed, sizes_of
from superopt.inputs.input_roles import Plan, values
from superopt.inputs.open_sizes import SIZES, SMALL_SIZES, assignments, edges, kinds_of, masked_totals, other_sizes
from superopt.inputs.wanted import WantedInput, open_ranks, symbols_of, wanted_inputs, with_rank
from superopt.kernels import is_float
from superopt.models.functions import has_loop
from superopt.models.model import Model
from superopt.reference import TermRunner

_MOST_TRIES = 48
"""Assignments of sizes that are tried before a model counts as one that cannot be run."""

_MOST_NUMBERS = 1 << 28
"""Numbers that are made up for one feed: each takes 8 bytes on the way, a few times over."""

_MODEST_VALUE = 1 << 27
"""Bytes of the largest value of a model up to which sizes are chosen here: images as large as classifiers take them are
too large for a network in which every pixel attends to every other."""

_MOST_CHOSEN = 1 << 24
"""The same where the sizes are chosen here: what comes of larger ones is slow, and shows no more."""

_LONGEST_LOOP = 30.0
_LONGEST_RUN = 120.0
"""Seconds that a run on made-up inputs may take where a Loop may go on for ever, and where sizes are chosen here."""

FEEDS = 3
"""How many inputs models are compared on, where nothing speaks for more."""


def sample(
    model: Model,
    *,
    seed: int = 0,
    count: int = FEEDS,
    shapes: Mapping[str, Sequence[int]] | None = None,
    given: str | os.PathLike[str] | Mapping[str, RuntimeValue] | None = None,
    edge_sizes: bool = False,
    special: bool = False,
    small: bool = False,
) -> Feeds:
    """Inputs that the model runs on: up to ``count`` of them, of different sizes where it leaves sizes open.

    ``shapes`` are sizes to use for inputs by name; ``given`` are real inputs (a path of an .npz file, or arrays), which
    are then the only ones. With ``edge_sizes`` more have open dimensions of one and of none, and with ``special`` one
    more has NaN, infinities and zeros of both signs among its floats, as far as the model runs on such; ``small``
    prefers small images and short waves.
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
    inputs = wanted_inputs(proto, shapes or {})
    if isinstance(runner, Runner):
        longest = _LONGEST_RUN if any(map(_is_open, inputs)) else None
        runner.seconds = _LONGEST_LOOP if has_loop(proto) else longest
    choices = SMALL_SIZES if small else SIZES
    kinds = kinds_of(inputs, choices)
    first = partial(_first, runner, inputs, kinds, seed, choices)
    base, failed = first() if isinstance(runner, TermRunner) else _modest(runner, inputs, first)
    feeds = [base.feed]
    again = [[dict(base.sizes)] for _ in range(2 * count)]
    for choice in itertools.chain(other_sizes(base.sizes, kinds), again):
        for sizes in choice:
            if len(feeds) >= count:
                break
            made = _attempt(runner, inputs, sizes, base.plan, seed, len(feeds), "seeded")
            if not isinstance(made, str):
                feeds.append(made)
                break
            failed.append(made)
    if edge_sizes:
        for choice in edges(base.sizes, kinds):
            tries = (
                _attempt(runner, inputs, sizes, base.plan, seed, len(feeds), "seeded", empty=True)
                for sizes in choice
                if not any(sizes.items() <= feed.dims.items() for feed in feeds)
            )
            feeds.extend(itertools.islice((made for made in tries if not isinstance(made, str)), 1))
    if special:
        made = _tried(runner, _with_special(base.feed.values, seed), base.feed.dims, "special values")
        if not isinstance(made, str):
            feeds.append(made)
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


def _modest(
    runner: Runner, inputs: Sequence[WantedInput], first: Callable[[], tuple[_Base, list[str]]]
) -> tuple[_Base, list[str]]:
    """The ``first`` of sizes at which no value is large, where there are such; others may then be somewhat larger."""
    machine = runner.most
    if machine is None or not any(map(_is_open, inputs)):
        return first()
    runner.most = min(machine, _MODEST_VALUE)
    try:
        found = first()
    except EvaluationError as error:
        if TOO_LARGE not in str(error):
            raise
        runner.most = machine
        return first()
    runner.most = min(machine, 4 * _MODEST_VALUE)
    return found


def _is_open(item: WantedInput) -> bool:
    return item.dims is None or any(isinstance(dim, str) for dim in item.dims)


@dataclass(frozen=True)
class _Base:
    feed: SampleFeed
    sizes: Mapping[str, int]
    plan: Plan


def _first(
    runner: Runner | TermRunner,
    inputs: list[WantedInput],
    kinds: dict[str, tuple[str, tuple[int, ...]]],
    seed: int,
    choices: Mapping[str, tuple[int, ...]],
) -> tuple[_Base, list[str]]:
    """The likeliest sizes and values that the model gives ordinary outputs for; else any that it runs with."""
    failed: list[str] = []
    second_best: _Base | None = None
    guesses = any(item.dtype.kind in "iu" and item.role.below is None for item in inputs)
    readings = [(rank, totals) for rank in open_ranks(inputs) for totals in dict.fromkeys(((), masked_totals(inputs)))]
    for rank, totals in readings:
        left = _MOST_TRIES // len(readings)
        settled = [item if item.dims is not None else with_rank(item, rank) for item in inputs]
        open_kinds = {**kinds, **kinds_of(settled, choices)}
        for symbol in totals:
            open_kinds.pop(symbol, None)
        for sizes in assignments(open_kinds):
            for integers in ("guess", "time", "ones", "zeros") if guesses else ("guess",):
                plan = Plan(integers, totals=totals)
                made = _attempt(runner, settled, sizes, plan, seed, 0, "seeded")
                # What may never end is not waited for as often as what fails at once.
                left -= _MOST_TRIES // 2 if isinstance(made, str) and TOO_LONG in made else 1
                if isinstance(made, str):
                    positive = replace(plan, positive=True)
                    retry = _attempt(runner, settled, sizes, positive, seed, 0, "seeded") if "NaN" in made else made
                    made, plan = retry, positive if not isinstance(retry, str) else plan
                if not isinstance(made, str):
                    inputs[:] = settled
                    kinds.clear()
                    kinds.update(open_kinds)
                    return _Base(made, sizes, plan), failed
                failed.append(made)
                if left <= 0:
                    break
                if second_best is None:
                    poor = _attempt(runner, settled, sizes, plan, seed, 0, "seeded", empty=True)
                    second_best = None if isinstance(poor, str) else _Base(poor, sizes, plan)
            if left <= 0:
                break
    if second_best is not None:
        return second_best, failed
    large = next((reason for reason in failed if TOO_LARGE in reason), failed[0])
    help_by = "input-shape or inputs" if any(map(_is_open, inputs)) else "inputs"
    raise EvaluationError(f"no inputs were found that it runs with, {help_by} may tell some; one try was {large}")


def _attempt(
    runner: Runner | TermRunner,
    inputs: Sequence[WantedInput],
    sizes: Mapping[str, int],
    plan: Plan,
    seed: int,
    number: int,
    origin: str,
    empty: bool = False,
) -> SampleFeed | str:
    """A feed of these sizes, or what happened when the model was run on it."""
    sizes = with_derived(sizes, symbols_of(inputs), plan.totals)
    shapes = {item.name: tuple(sizes[d] if isinstance(d, str) else d for d in item.dims or ()) for item in inputs}
    what = ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items())
    count = sum(math.prod(shape) for shape in shapes.values())
    most = _MOST_CHOSEN if sizes else _MOST_NUMBERS
    if count > most:
        return f"{what}: {count:,} numbers to make up, at most {most:,} are"
    plan = replace(plan, time=_time(inputs, shapes))
    feed: dict[str, RuntimeValue] = {}
    for item in inputs:
        rng = np.random.default_rng([seed, number, zlib.crc32(item.name.encode())])
        made = [
            values(item.name, item.dtype, shapes[item.name], item.role, plan, rng)
            for _ in range(2 if item.container == "sequence" else 1)
        ]
        feed[item.name] = made if item.container == "sequence" else made[0]
    used = {symbol: size for symbol, size in sizes.items() if any(symbol in (item.dims or ()) for item in inputs)}
    if used and isinstance(runner, Runner):
        try:
            runner.check_unseen(feed)
        except EvaluationError as error:
            return f"{what}: {error}"
    made_up = _tried(runner, feed, used, f"{origin} {number}")
    problem = made_up if isinstance(made_up, str) else None if empty else _problem(made_up.outputs or {})
    return f"{what}: {problem}" if problem else made_up


def _tried(runner: Runner | TermRunner, feed: Feed, used: Mapping[str, int], origin: str) -> SampleFeed | str:
    """A feed with what the model gives on it, or why it does not run on it."""
    try:
        return SampleFeed(feed, origin, used, runner.run(feed))
    except EvaluationError as error:
        return str(error)


_SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0)

_SPECIAL_SHARE = 0.1
"""How many of the numbers are special: some in every window, and most of them not."""


def _with_special(feed: Feed, seed: int) -> Feed:
    """The same inputs with numbers among the floats that are not ordinary."""
    changed: dict[str, RuntimeValue] = {}
    for name, value in feed.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        arrays = [
            np.where(rng.random(array.shape) < _SPECIAL_SHARE, rng.choice(_SPECIAL, array.shape), array).astype(
                array.dtype
            )
            if is_float(array.dtype)
            else array
            for array in arrays_of(value)
        ]
        changed[name] = arrays if isinstance(value, list) else arrays[0]
    return changed


def _time(inputs: Sequence[WantedInput], shapes: Mapping[str, tuple[int, ...]]) -> int:
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
