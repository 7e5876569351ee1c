"""The latencies of many models on a machine that does other things too, and how far they can be trusted.

Models run in heats. For each heat every model is loaded anew (where it comes to lie in memory makes a session slower or
faster for as long as it lives), and then runs once a round, in an order that is shuffled for every round. A sample is
divided by the median of its round, for what slows a whole round down says nothing of a model; a model's figure is the
median of these over the rounds, for what else hits a sample may hit either side of a ratio. The latency is the
geometric mean over the heats.

Heats are measurements of the same thing that share neither sessions nor time: Spearman's rank correlation between them
is the reliability of each, and what a perfect prediction would reach against one of them is no more than about its
square root.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

HEATS = 2

LEAST_ROUNDS = 5
"""Rounds of a heat, however long they take."""

MOST_ROUNDS = 100

SAMPLE = 4e-3
"""Seconds that one sample lasts at least: a faster model runs several times for it."""

_REFRESHED_BELOW = 20e-3
"""Seconds up to which a model runs once before its sample, for its weights to be where they are when it runs alone."""

Run = Callable[[], object]


@dataclass(frozen=True)
class Truth:
    """Seconds by heat and model, and the rounds of each heat."""

    heats: tuple[tuple[float, ...], ...]
    rounds: tuple[int, ...]

    @property
    def seconds(self) -> tuple[float, ...]:
        """The latency of each model."""
        return tuple(math.exp(math.fsum(map(math.log, taken)) / len(taken)) for taken in zip(*self.heats, strict=True))

    @property
    def reliability(self) -> float:
        """Spearman's rank correlation between the heats."""
        return correlation(*self.heats)

    @property
    def noise(self) -> float:
        """By how much a model's latency differs from heat to heat: the median over the models, as a fraction."""
        first, second = self.heats
        return median(abs(math.log(a / b)) for a, b in zip(first, second, strict=True))

    def regret(self, predicted: Sequence[float]) -> float:
        """How much slower, as a fraction, the predicted best is than the best; of several that are predicted alike the
        median counts.

        The best is found in one heat, and both are judged in the other, each way: the fastest of a heat owes a part of
        its lead to that heat's noise. So a regret may be a little below zero.
        """
        least = min(predicted)
        alike = [place for place, price in enumerate(predicted) if price <= least * (1 + 1e-12)]
        lost = []
        for choosing, judging in (self.heats, self.heats[::-1]):
            best = min(range(len(choosing)), key=choosing.__getitem__)
            lost.append(median(judging[place] for place in alike) / judging[best] - 1)
        return sum(lost) / len(lost)


def latencies(
    load: Callable[[], Sequence[Run]], *, seconds: float, seed: int, clock: Callable[[], float] = time.perf_counter
) -> Truth:
    """The latencies of models, in seconds of ``clock``; ``load`` makes a new session of each and returns their runs.
    Running takes about ``seconds`` of the wall's time, and no less than ``LEAST_ROUNDS`` rounds a heat."""
    heats, rounds = [], []
    for number in range(HEATS):
        samples = _heat(load(), seconds / HEATS, seed + number, clock)
        heats.append(figures(samples))
        rounds.append(len(samples))
    return Truth(tuple(heats), tuple(rounds))


def figures(rounds: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The latency of each model, from its seconds by round."""
    table: NDArray[np.float64] = np.asarray(rounds, np.float64)
    pace = np.median(table, axis=1, keepdims=True)
    return tuple((np.median(table / pace, axis=0) * np.median(pace)).tolist())


def _heat(runs: Sequence[Run], seconds: float, seed: int, clock: Callable[[], float]) -> list[list[float]]:
    random = np.random.default_rng(seed)
    once = [min(_timed(run, 1, clock) for _ in range(2)) for run in runs]
    found: list[list[float]] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        while len(found) < LEAST_ROUNDS or (time.perf_counter() - start < seconds and len(found) < MOST_ROUNDS):
            taken = [0.0] * len(runs)
            for index in random.permutation(len(runs)).tolist():
                if once[index] < _REFRESHED_BELOW:
                    runs[index]()
                taken[index] = _timed(runs[index], math.ceil(SAMPLE / max(once[index], 1e-6)), clock)
            found.append(taken)
    finally:
        if collecting:
            gc.enable()
    return found


def _timed(run: Run, repeats: int, clock: Callable[[], float]) -> float:
    """Seconds per run; never zero, for a clock may not tick in time."""
    begin = clock()
    for _ in range(repeats):
        run()
    return max(clock() - begin, 1e-9) / repeats


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """The rank of each value, equal ones at their mean rank."""
    array = np.asarray(values, np.float64)
    below = (array[:, None] > array[None, :]).sum(axis=1)
    equal = (array[:, None] == array[None, :]).sum(axis=1)
    result: NDArray[np.float64] = below + (equal - 1) / 2
    return result


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; 0 where all values of a side are the same."""
    mine, theirs = ranks(one), ranks(other)
    if np.ptp(mine) == 0 or np.ptp(theirs) == 0:
        return 0.0
    return float(np.corrcoef(mine, theirs)[0, 1])
