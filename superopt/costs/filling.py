"""Fills the database: times the instances that it does not have, until the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from superopt.costs.database import Database, Place
from superopt.costs.instances import OperatorInstance
from superopt.costs.sampling import Timing
from superopt.costs.timing import Runtime, time_instance
from superopt.errors import EvaluationError

_WRITTEN_EVERY = 2.0
"""Seconds after which what was timed is written, so that an interruption costs little."""


@dataclass(frozen=True)
class FillCounts:
    """What came of filling a database: how many instances were timed, were there before, and were left when the time
    was over; and those that cannot be timed, with the reason."""

    timed: int
    known: int
    left: int
    failed: dict[str, str]


def fill(
    database: Database,
    instances: Iterable[OperatorInstance],
    runtime: Runtime,
    *,
    seconds: float = float("inf"),
    again: bool = False,
    seen: Callable[[int, int, OperatorInstance, Timing | None], None] = lambda *_: None,
) -> FillCounts:
    """Times instances, in order, on this machine. Those that the database has are timed ``again`` only if asked.

    ``seen`` is told of each: its number, how many there are, and its timing (None where it failed). Raises
    ``OptionError`` where the provider is not there, ``CostModelError`` where the database cannot be used.
    """
    runtime.check()
    place = Place.here(runtime)
    known = {} if again else database.timings(place)
    distinct = {instance.key: instance for instance in instances}
    waiting = [instance for key, instance in distinct.items() if key not in known]
    timings: dict[str, Timing] = {}
    failed: dict[str, str] = {}
    done, start = 0, time.perf_counter()
    written = start
    try:
        for number, instance in enumerate(waiting, 1):
            if time.perf_counter() - start >= seconds:
                break
            try:
                timing: Timing | None = timings.setdefault(instance.key, time_instance(instance, runtime))
                done += 1
            except EvaluationError as error:
                timing = None
                failed[instance.name] = str(error)
            seen(number, len(waiting), instance, timing)
            if time.perf_counter() - written > _WRITTEN_EVERY:
                database.add(place, timings)
                timings, written = {}, time.perf_counter()
    finally:
        database.add(place, timings)
    left = len(waiting) - done - len(failed)
    return FillCounts(done, len(distinct) - len(waiting), left, failed)
