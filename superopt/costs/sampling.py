"""Samples of how long something takes, and what is made of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

LEAST_SAMPLES, MOST_SAMPLES = 7, 41
SECONDS = 0.06
"""How long something is sampled, once it is warm; at least ``LEAST_SAMPLES`` times."""

WARM_UP = 3
"""How often something runs before it is sampled."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one instance: the median, half the distance of the quartiles, and how many samples there were."""

    seconds: float
    spread: float
    samples: int


def seconds_of(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """The seconds of one call."""
    begin = clock()
    call()
    return clock() - begin


def samples(sample: Callable[[], float]) -> list[float]:
    """Samples for about ``SECONDS``."""
    taken: list[float] = []
    start = time.perf_counter()
    while len(taken) < MOST_SAMPLES:
        taken.append(sample())
        if len(taken) >= LEAST_SAMPLES and time.perf_counter() - start > SECONDS:
            break
    return taken


def timing(taken: list[float]) -> Timing:
    """What samples come to."""
    ordered = sorted(taken)
    quarter = len(ordered) // 4
    spread = (ordered[-1 - quarter] - ordered[quarter]) / 2
    return Timing(max(0.0, median(ordered)), spread, len(ordered))
