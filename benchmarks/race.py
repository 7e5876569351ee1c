"""Latencies of several models in onnxruntime, each in a process of its own, run in turn in a shuffled order.

Processes of their own keep one model's threads, memory and caches out of another's; running in turn lets whatever else
the machine does hit all of them alike, so that ratios within a round are what is reported. The order of a round is
shuffled, and turned around for the next one: each model runs before each other as often as after it.

Where a model comes to lie in memory makes a process slower or faster for as long as it lives, by some percent, and
rounds do not average that out. So rounds are run in legs, each with new processes. The interval of a ratio is that of
its median over the rounds (from order statistics, 95 %), and it reaches as far as the medians of the legs do. Where the
interval of the one model that is watched is wide, more legs are run; how the ratio comes out does not matter for that.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from superopt.measure import compare
from superopt.sessions import CPU, session_options

Outputs = Mapping[str, NDArray[Any]]

SAMPLE = 0.02
"""Seconds that one sample lasts at least: a faster model runs several times for it."""

LEGS = 3
"""How often every model is loaded anew."""

PRECISE = 0.005
"""The half-width of an interval, as a fraction, at which it is narrow enough."""

START_SECONDS = 300.0
"""What loading a model and running it once may take."""


class Failed(Exception):
    """onnxruntime does not load or run a model."""


@dataclass(frozen=True)
class Race:
    """Seconds per run: ``samples[i][r]`` is model i in round r; None for a model that does not run, and ``errors`` says
    why. ``outputs`` are each model's, for each of the feeds. Each leg had ``leg`` rounds."""

    samples: tuple[tuple[float, ...] | None, ...]
    outputs: tuple[tuple[Outputs, ...], ...]
    errors: tuple[str, ...]
    leg: int = 1

    def faster(self, index: int, than: int = 0) -> tuple[float, float, float]:
        """How many times faster model ``index`` is: lower quartile, median and upper quartile over the rounds."""
        mine, other = self.samples[index], self.samples[than]
        if mine is None or other is None:
            return math.nan, math.nan, math.nan
        low, middle, high = np.percentile(np.array(other) / np.array(mine), (25, 50, 75))
        return float(low), float(middle), float(high)

    def interval(self, index: int, than: int = 0) -> tuple[float, float]:
        """Between what the median of how many times faster model ``index`` is lies: by the rounds, and from leg to
        leg."""
        mine, other = self.samples[index], self.samples[than]
        if mine is None or other is None:
            return math.nan, math.nan
        found = compare(other, mine)
        ratios = np.array(other) / np.array(mine)
        legs = [float(np.median(ratios[start : start + self.leg])) for start in range(0, len(ratios), self.leg)]
        return min(found.low, *legs), max(found.high, *legs)

    def median(self, index: int) -> float:
        """The median of its seconds per run."""
        mine = self.samples[index]
        return math.nan if mine is None else float(np.median(mine))


def outputs_of(model: Path, feeds: Sequence[Outputs], *, optimized: bool) -> tuple[Outputs, ...]:
    """What a model computes, in a process of its own, with onnxruntime's optimizations or without. Raises Failed."""
    runner = _Runner(model, feeds, 0, optimized)
    try:
        return runner.ready()[1]
    finally:
        runner.stop()


def race(
    models: Sequence[Path], feeds: Sequence[Outputs], *, rounds: int, seed: int = 0, threads: int = 0,
    watched: int | None = None,
) -> Race:  # fmt: skip
    """Time the models on the first of the feeds, in so many rounds at least; ``threads`` 0 is onnxruntime's own choice,
    everything else is its default. Twice as many legs are run while the interval of the model ``watched`` against the
    first is not ``PRECISE``."""
    random = np.random.default_rng(seed)
    legs = min(LEGS, rounds)
    each = math.ceil(rounds / legs)
    samples: dict[int, list[float]] = {}
    errors = [""] * len(models)
    outputs: list[tuple[Outputs, ...]] = [()] * len(models)

    def found() -> Race:
        timed = tuple(tuple(samples[index]) if index in samples else None for index in range(len(models)))
        return Race(timed, tuple(outputs), tuple(errors), each)

    for number in range(2 * legs):
        if number >= legs and (watched is None or watched not in samples or _is_precise(found().interval(watched))):
            break
        runners: dict[int, _Runner] = {}
        once: dict[int, float] = {}
        try:
            for index in range(len(models)) if number == 0 else list(samples):
                runners[index] = _Runner(models[index], feeds, threads, True)
                try:
                    once[index], outputs[index] = runners[index].ready()
                except Failed as error:
                    if number:
                        raise
                    errors[index] = str(error)
            samples = samples or {index: [] for index in once}
            for index, seconds in _leg(runners, once, each, random):
                samples[index].append(seconds)
        finally:
            for runner in runners.values():
                runner.stop()
    return found()


def _leg(
    runners: Mapping[int, _Runner], once: Mapping[int, float], rounds: int, random: np.random.Generator
) -> Iterator[tuple[int, float]]:
    """The models and their seconds, as they run."""
    order: list[int] = []
    for number in range(rounds):
        order = order[::-1] if number % 2 else random.permutation(list(once)).tolist()
        for index in order:
            yield index, runners[index].sample(max(1, math.ceil(SAMPLE / once[index])))


def _is_precise(interval: tuple[float, float]) -> bool:
    low, high = interval
    return high - low <= PRECISE * (high + low)


class _Runner:
    """A process that holds a session and runs it when asked."""

    def __init__(self, model: Path, feeds: Sequence[Outputs], threads: int, optimized: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, model, list(feeds), threads, optimized), daemon=True
        )
        self.process.start()
        theirs.close()

    def ready(self) -> tuple[float, tuple[Outputs, ...]]:
        """Seconds of one run, and the outputs for each feed."""
        seconds, outputs = self._heard(START_SECONDS)
        return seconds, outputs

    def sample(self, repeats: int) -> float:
        """Seconds per run, over so many runs after one that brings the model back into the caches."""
        self.connection.send(repeats)
        return float(self._heard(START_SECONDS))

    def _heard(self, seconds: float) -> Any:
        try:
            if not self.connection.poll(seconds):
                raise Failed(f"no answer after {seconds:g} s")
            answer = self.connection.recv()
        except EOFError:
            self.process.join(10)
            raise Failed(f"its process ended with code {self.process.exitcode}") from None
        if isinstance(answer, Failed):
            raise answer
        return answer

    def stop(self) -> None:
        self.connection.close()  # it waits for a word, and ends when there can be none
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(connection: Connection, model: Path, feeds: list[Outputs], threads: int, optimized: bool) -> None:
    options = session_options(optimized=optimized, threads=threads)
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=[CPU])
        names = [item.name for item in session.get_outputs()]
        wanted = [item.name for item in session.get_inputs()]
        given = [{name: array for name, array in feed.items() if name in wanted} for feed in feeds]
        outputs = tuple(dict(zip(names, session.run(names, feed), strict=True)) for feed in given)
        seconds = min(_timed(session, given[0], 1) for _ in range(2))
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        connection.send(Failed(" ".join(str(error).split())[:200]))
        return
    connection.send((seconds, outputs))
    gc.disable()
    while True:
        try:
            repeats = connection.recv()
        except EOFError:
            return
        session.run(None, given[0])
        connection.send(_timed(session, given[0], repeats))


def _timed(session: Any, feed: Outputs, repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        session.run(None, feed)
    return (time.perf_counter() - started) / repeats
