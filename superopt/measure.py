"""Latencies of whole models in onnxruntime, run in turn on the same inputs, and tests of which is slower.

The test is the exact sign test on paired rounds: in each round every model runs once, one right after the other, so
that what else the machine does hits all of them alike; under the hypothesis that two are equally fast each is the
slower one in half of the rounds. It assumes nothing about the distribution of the noise. The interval of a ratio is
that of its median, from order statistics, by the same binomial distribution.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from superopt.errors import EvaluationError

ALPHA = 0.05
"""The error probability of one comparison (one-sided), and of an interval (two-sided)."""

LEAST_ROUNDS = 9
"""Rounds below which the sign test can hardly tell anything (9 of 9 have a probability of 0.002)."""

MOST_ROUNDS = 400
"""Rounds after which measuring ends, whatever time is left."""

SHORTEST_SAMPLE = 2e-3
"""Seconds that one sample lasts at least: a faster model runs several times for it."""

_OVERTIME = 3.0
"""The multiple of the time budget after which measuring ends even before ``LEAST_ROUNDS``."""

_PRECISE = 2e-3
"""The relative half-width of all intervals at which measuring ends early."""

_WARM_UP = 3
_REFRESHED_BELOW = 10e-3

Runnable: TypeAlias = bytes | str | os.PathLike[str]
"""A model: serialized, or the path of its file (needed where its data lies in files beside it)."""

Feeds: TypeAlias = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Comparison:
    """How the latency of one model compares with another's, over paired rounds.

    ``ratio`` is the median of the first's latency over the second's, ``low`` and ``high`` its interval (1 - ``ALPHA``;
    infinite where there are too few rounds). ``slower`` and ``faster`` are the sign test's one-sided p-values of the
    first being no slower, or no faster, than the second: small means that it is.
    """

    ratio: float
    low: float
    high: float
    slower: float
    faster: float
    rounds: int


@dataclass(frozen=True)
class Latencies:
    """Seconds per run, by model and round; round i of one model stands beside round i of every other."""

    samples: tuple[tuple[float, ...], ...]
    threads: int
    runs_a_sample: int

    @property
    def medians(self) -> tuple[float, ...]:
        """The median latency of each model in seconds."""
        return tuple(median(samples) for samples in self.samples)

    @property
    def rounds(self) -> int:
        return len(self.samples[0])

    @property
    def noise(self) -> float:
        """The relative standard deviation of one sample against the next of the same model (robust: from the median
        absolute difference), the largest over the models; slow drifts do not count."""
        return max((_noise(samples) for samples in self.samples), default=0.0)

    def compare(self, first: int, second: int) -> Comparison:
        """How the first model's latency compares with the second's."""
        return compare(self.samples[first], self.samples[second])

    def slower(self, first: int, second: int, alpha: float = ALPHA) -> bool:
        """Whether the first model is slower than the second with statistical confidence."""
        return self.compare(first, second).slower < alpha

    def best(self, original: int, candidates: Sequence[int], prices: Mapping[int, float]) -> int:
        """The model to keep.

        A candidate that is slower than the original with confidence is out. Of the rest, those that the fastest one
        does not beat with confidence are equals: the one with the lowest price wins. The original wins only when all
        are out.
        """
        left = [candidate for candidate in candidates if not self.slower(candidate, original)]
        if not left:
            return original
        medians = self.medians
        fastest = min(left, key=lambda candidate: (medians[candidate], candidate))
        equals = [candidate for candidate in left if not self.slower(candidate, fastest)]
        return min(equals, key=lambda candidate: (prices[candidate], medians[candidate], candidate))


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """How paired samples of latency compare; ties count for neither side."""
    ratios = sorted(a / b for a, b in zip(first, second, strict=True))
    above = sum(ratio > 1 for ratio in ratios)
    below = sum(ratio < 1 for ratio in ratios)
    rank = _interval_rank(len(ratios), ALPHA)
    low, high = (ratios[rank], ratios[-1 - rank]) if rank is not None else (0.0, math.inf)
    return Comparison(
        median(ratios), low, high, _at_least(above, above + below), _at_least(below, above + below), len(ratios)
    )


def _at_least(heads: int, tosses: int) -> float:
    """The probability of so many heads or more of a fair coin."""
    return float(sum(math.comb(tosses, number) for number in range(heads, tosses + 1)) / 2**tosses)


def _interval_rank(count: int, alpha: float) -> int | None:
    """How many of the lowest and highest of so many sorted values may be left out of an interval of the median."""
    tail, rank = 0, None
    for number in range((count + 1) // 2):
        tail += math.comb(count, number)
        if 2 * tail > alpha * 2**count:
            break
        rank = number
    return rank


def _noise(samples: Sequence[float]) -> float:
    steps = [abs(math.log(later / earlier)) for earlier, later in pairwise(samples)]
    # 1.4826: from the median absolute deviation of a normal distribution to its standard deviation.
    return 1.4826 * median(steps) / math.sqrt(2) if steps else 0.0


def measure(
    models: Sequence[Runnable],
    feeds: Feeds,
    *,
    threads: int = 0,
    seconds: float = 20.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Latencies:
    """The latencies of several models on the same inputs, run in turn with all of onnxruntime's optimizations.

    ``threads`` 0 is onnxruntime's own choice. Ends when ``seconds`` are over (but not before ``LEAST_ROUNDS``, if that
    takes less than three times as long), or when all intervals are narrow. Each model is warmed up first. Raises
    ``EvaluationError`` where a model cannot be loaded or run.
    """
    if not models:
        raise EvaluationError("no model to measure, expected one or more")
    sessions = [_session(model, threads) for model in models]
    runs = [_runner(session, feeds) for session in sessions]
    return measure_calls(runs, threads=threads, seconds=seconds, clock=clock)


def measure_calls(
    runs: Sequence[Callable[[], object]],
    *,
    threads: int = 0,
    seconds: float = 20.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Latencies:
    """The latencies of several calls, run in turn; what ``measure`` does to models. ``clock`` tells seconds."""
    start = clock()
    once = [_warm(run, clock) for run in runs]
    repeats = max(1, math.ceil(SHORTEST_SAMPLE / max(min(once), 1e-7)))
    samples: list[list[float]] = [[] for _ in runs]
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(MOST_ROUNDS):
            spent = clock() - start
            if spent > seconds and (number >= LEAST_ROUNDS or spent > _OVERTIME * seconds):
                break
            if number >= 3 * LEAST_ROUNDS and number % LEAST_ROUNDS == 0 and _is_precise(samples):
                break
            # Every model runs equally often first, second and so on, forwards and backwards.
            order = [(number // 2 + place) % len(runs) for place in range(len(runs))]
            for index in reversed(order) if number % 2 else order:
                samples[index].append(_sample(runs[index], repeats, once[index], clock))
    finally:
        if collecting:
            gc.enable()
    if not samples[0]:
        samples = [[each] for each in once]
    return Latencies(tuple(tuple(each) for each in samples), threads, repeats)


def _warm(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """Runs a few times, and returns the seconds of the fastest run."""
    fastest = math.inf
    for _ in range(_WARM_UP):
        begin = clock()
        run()
        fastest = min(fastest, clock() - begin)
    return fastest


def _sample(run: Callable[[], object], repeats: int, once: float, clock: Callable[[], float]) -> float:
    if once < _REFRESHED_BELOW:
        run()  # Brings this model's weights back into the caches, as if it ran alone.
    begin = clock()
    for _ in range(repeats):
        run()
    # A clock that does not tick in time must not make a ratio of nothing.
    return max(clock() - begin, 1e-9) / repeats


def _is_precise(samples: Sequence[Sequence[float]]) -> bool:
    for index, mine in enumerate(samples):
        for other in samples[:index]:
            comparison = compare(mine, other)
            if comparison.high - comparison.low > 2 * _PRECISE * comparison.ratio:
                return False
    return True


def _session(model: Runnable, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The threads of one session must not spin on while the next one is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    source = model if isinstance(model, bytes) else os.fspath(Path(model))
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common base class for its own.
        raise EvaluationError(f"onnxruntime cannot load the model: {_line(error)}") from error


def _runner(session: Any, feeds: Feeds) -> Callable[[], object]:
    given = {item.name: feeds[item.name] for item in session.get_inputs() if item.name in feeds}
    try:
        session.run(None, given)
    except Exception as error:
        raise EvaluationError(f"onnxruntime cannot run the model: {_line(error)}") from error
    return lambda: session.run(None, given)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
