"""Latencies of calls that run in turn, of whole models mostly, and tests of which is slower.

The test is the exact one-sided sign test on paired rounds. In each round every model runs once, one right after the
other, so that what else the machine does hits all of them alike; if the median of the ratio of two latencies is at most
a factor, the ratio is above it in at most half of the rounds, whatever the distribution of the noise (with two modes,
heavy tails, drifting load). Measuring may end after ``LOOKS`` rounds: each look has its share of ``ALPHA``, so
that all together err no more often. The interval of a ratio is that of its median, from order statistics, by the same
binomial distribution.

Where a model lies in memory makes a session slower or faster for as long as it lives. Rounds do not average that out:
each model may have several sessions (``replicas``), and how much those of the same model differ is measured too.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

ALPHA = 0.05
"""The error probability of a comparison (one-sided) over all looks, and of an interval (two-sided)."""

LOOKS = (12, 24, 48, 96, 192, 384)
"""Rounds after which measuring may end."""

LOOK_ALPHA = ALPHA / len(LOOKS)
"""The error probability of a comparison at one look; 7 rounds of 7 have a probability of 0.0078."""

NEGLIGIBLE = 0.005
"""A relative difference of latencies that is none: how sessions of the same model differ on a quiet machine."""

_LARGEST_TOLERANCE = 0.05
"""However much sessions of the same model differ, a difference beyond this counts."""

SHORTEST_SAMPLE = 2e-3
"""Seconds that one sample lasts at least: a faster model runs several times for it."""

_PRECISE = 2e-3
"""The relative half-width of all intervals at which measuring ends early."""

_WARM_UP = 3
_WARM_UP_SHARE = 0.2
"""The share of the time budget beyond which no model is warmed up by another run."""

_REFRESHED_BELOW = 10e-3


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
    """Seconds per run, by model and round; round i of one model stands beside round i of every other. Each is the
    median of ``runs_a_sample`` runs or more.

    ``session_noise`` is the relative standard deviation of one session's latency against another's of the same model,
    as far as it is certain; 0 where each model had one.
    """

    samples: tuple[tuple[float, ...], ...]
    threads: int
    runs_a_sample: int
    session_noise: float = 0.0

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

    @property
    def tolerance(self) -> float:
        """The relative difference of two models' latencies that the place of sessions in memory may make."""
        return min(max(NEGLIGIBLE, self.session_noise), _LARGEST_TOLERANCE)

    def compare(self, first: int, second: int) -> Comparison:
        """How the first model's latency compares with the second's."""
        return compare(self.samples[first], self.samples[second])

    def above(self, first: int, second: int, factor: float) -> float:
        """The sign test's p-value of the first model's latency being at most ``factor`` times the second's: small
        means that it is more."""
        above, below = _sides(self.samples[first], self.samples[second], factor)
        return _sign_test(above, below)

    def below(self, first: int, second: int, factor: float) -> float:
        """The sign test's p-value of the first model's latency being at least ``factor`` times the second's: small
        means that it is less."""
        above, below = _sides(self.samples[first], self.samples[second], factor)
        return _sign_test(below, above)

    def slower(self, first: int, second: int, alpha: float = LOOK_ALPHA) -> bool:
        """Whether the first model is slower than the second with statistical confidence, beyond ``tolerance``."""
        return self.above(first, second, 1 + self.tolerance) < alpha


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """How paired samples of latency compare; ties count for neither side."""
    ratios = sorted(a / b for a, b in zip(first, second, strict=True))
    above, below = _sides(first, second, 1.0)
    rank = _interval_rank(len(ratios), ALPHA)
    low, high = (ratios[rank], ratios[-1 - rank]) if rank is not None else (0.0, math.inf)
    return Comparison(median(ratios), low, high, _sign_test(above, below), _sign_test(below, above), len(ratios))


def _sides(first: Sequence[float], second: Sequence[float], factor: float) -> tuple[int, int]:
    """In how many rounds the ratio is above a factor, and in how many below."""
    differences = [a - factor * b for a, b in zip(first, second, strict=True)]
    return sum(each > 0 for each in differences), sum(each < 0 for each in differences)


def _sign_test(heads: int, tails: int) -> float:
    """The probability of so many heads or more of a fair coin in as many tosses."""
    tosses = heads + tails
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


def measure_calls(
    runs: Sequence[Callable[[], object]],
    *,
    threads: int = 0,
    seconds: float = 20.0,
    replicas: int = 1,
    settled: Callable[[Latencies], bool] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Latencies:
    """The latencies of several calls, run in turn; each model has ``replicas`` of them, one after the other in
    ``runs``.

    Each is warmed up first. Ends at the latest when ``seconds`` are over and every call has run once, or after the last
    of ``LOOKS``; before, at any of them at which ``settled`` says that what was asked is known (by default, when all
    intervals are narrow). ``clock`` tells seconds.
    """
    start = clock()
    once = [_warm(run, clock, start + _WARM_UP_SHARE * seconds) for run in runs]
    repeats = [max(1, math.ceil(SHORTEST_SAMPLE / max(each, 1e-7))) for each in once]
    samples: list[list[float]] = [[] for _ in runs]

    def found() -> Latencies:
        rows = samples if samples[0] else [[each] for each in once]
        return _of_models(rows, replicas, threads, min(repeats))

    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(LOOKS[-1]):
            if clock() - start > seconds or (number in LOOKS and (settled or _is_precise)(found())):
                break
            # Every model runs equally often first, second and so on, forwards and backwards.
            order = [(number // 2 + place) % len(runs) for place in range(len(runs))]
            for index in reversed(order) if number % 2 else order:
                samples[index].append(_sample(runs[index], repeats[index], once[index], clock))
    finally:
        if collecting:
            gc.enable()
    return found()


def _of_models(rows: Sequence[Sequence[float]], replicas: int, threads: int, repeats: int) -> Latencies:
    """What calls took, as what models took: in each round the geometric mean over a model's sessions."""
    models = [rows[start : start + replicas] for start in range(0, len(rows), replicas)]
    means = [
        tuple(math.exp(math.fsum(map(math.log, taken)) / replicas) for taken in zip(*model, strict=True))
        for model in models
    ]
    # A session's logarithm deviates by s, the difference of two sessions' by the root of 2 s^2.
    steps = [_certain_step(compare(first, second)) for model in models for first, second in pairwise(model)]
    spread = math.sqrt(math.fsum(step * step for step in steps) / (2 * len(steps))) if steps else 0.0
    return Latencies(tuple(means), threads, repeats, spread)


def _certain_step(comparison: Comparison) -> float:
    """How much two latencies differ at least, as the logarithm of their ratio: the end of its interval nearest to none.

    What noise from round to round might be is not taken for a difference of sessions: the test allows for it already.
    """
    if comparison.low <= 1 <= comparison.high:
        return 0.0
    return min(abs(math.log(comparison.low)), abs(math.log(comparison.high)))


def _warm(run: Callable[[], object], clock: Callable[[], float], until: float) -> float:
    """Runs a few times, once at least, and returns the seconds of the fastest run."""
    fastest = math.inf
    for _ in range(_WARM_UP):
        begin = clock()
        run()
        end = clock()
        fastest = min(fastest, end - begin)
        if end > until:
            break
    return fastest


def _sample(run: Callable[[], object], repeats: int, once: float, clock: Callable[[], float]) -> float:
    """The seconds of a run, the median of several: one that something else interrupts does not count."""
    if once < _REFRESHED_BELOW:
        run()  # Brings this model's weights back into the caches, as if it ran alone.
    taken = []
    begin = clock()
    for _ in range(repeats):
        run()
        end = clock()
        taken.append(end - begin)
        begin = end
    # A clock that does not tick in time must not make a ratio of nothing.
    return max(median(taken), 1e-9)


def _is_precise(latencies: Latencies) -> bool:
    for index in range(len(latencies.samples)):
        for other in range(index):
            comparison = latencies.compare(index, other)
            if comparison.high - comparison.low > 2 * _PRECISE * comparison.ratio:
                return False
    return True
