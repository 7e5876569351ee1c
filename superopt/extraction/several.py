"""The best few choices that differ, for measuring: a cost model errs by rule rather than by node."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

from superopt.extraction.choose import Extraction, Extractor
from superopt.extraction.solve import DEFAULT_EFFORT

_EXTRACTIONS_A_CHOICE = 12
"""Extractions that looking for one more choice may take on average."""


def several(
    extractor: Extractor,
    count: int,
    *,
    kept: Sequence[Extraction] = (),
    differ: int = 1,
    effort: float = DEFAULT_EFFORT,
    seconds: float | None = None,
) -> list[Extraction]:
    """The best choices, at most ``count``, the cheapest first, each two of which differ in at least ``differ`` nodes
    that run, from those ``kept`` before too (of which the first is the best of all).

    What is looked through are the cheapest choices without the nodes of this rule or that: each choice is tried again
    without one of the rules that made nodes of it, the cheapest first. A choice costs no less than the one it came
    from, so they come in the order of their costs. Ends early after a number of extractions, in which rules come by
    how many nodes they made, or after ``seconds``.
    """
    until = None if seconds is None else time.monotonic() + seconds
    first = kept[0] if kept else extractor.extract(effort=effort, seconds=seconds)
    queue: list[tuple[float, tuple[str, ...], Extraction]] = [(first.cost, (), first)]
    seen = {frozenset[str]()}
    found: list[Extraction] = []
    budget = _EXTRACTIONS_A_CHOICE * count
    while queue and len(found) < count:
        _, left_out, best = heapq.heappop(queue)
        if all(distance(best, other) >= max(1, differ) for other in (*kept, *found)):
            found.append(best)
        if len(found) == count:
            break
        for rule in sorted(best.rules_used, key=lambda name: (-best.rules_used[name], name)):
            without = frozenset({*left_out, rule})
            if without in seen or not budget or (until is not None and time.monotonic() > until):
                continue
            seen.add(without)
            budget -= 1
            left = None if until is None else max(0.0, until - time.monotonic())
            again = extractor.extract(without=without, effort=effort, seconds=left)
            heapq.heappush(queue, (again.cost, tuple(sorted(without)), again))
    return found


def distance(first: Extraction, second: Extraction) -> int:
    """In how many nodes that run two extractions of one extractor differ: the more that one has alone."""
    return max(len(first.chosen - second.chosen), len(second.chosen - first.chosen))
