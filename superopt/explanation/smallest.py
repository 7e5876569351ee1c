"""The smallest set of rules that still reaches a cost: rules are left out in turn, and the search is run anew."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from superopt.cost import CostModel
from superopt.errors import SuperoptError
from superopt.extraction import extract
from superopt.progress import Watcher
from superopt.rules import RuleSet
from superopt.search.candidates import Search

EFFORT = 1.0
"""How hard the extraction of each trial tries, in the units of ``extract``."""

_SAME = 1e-6
"""Costs are the same that differ by this fraction: sums in another order."""


@dataclass(frozen=True)
class Reached:
    """A cost to reach in one search, at the price of a byte that it was reached at; ``running`` leaves bytes out."""

    search: Search
    cost: float
    byte_price: float | None = None
    running: bool = False


@dataclass(frozen=True)
class Smallest:
    """The rules that are left, in order. ``complete`` where none of them can be left out; ``trials`` were searches.

    ``reached`` is false where not even all rules together reach the cost again.
    """

    rules: tuple[str, ...]
    complete: bool
    reached: bool
    trials: int
    seconds: float


def smallest(
    goals: Sequence[Reached], rules: RuleSet, likely: Sequence[str], cost_model: CostModel, seconds: float,
    watcher: Watcher | None = None,
) -> Smallest:  # fmt: skip
    """The rules that are left when as many as possible were left out, one by one, within some seconds.

    ``likely`` are those that led to the result; the others are tried only if these do not suffice. ``watcher`` is told
    before each search.
    """
    started = time.perf_counter()
    trials = 0

    def reaches(names: Sequence[str]) -> bool:
        nonlocal trials
        trials += 1
        (watcher or Watcher()).advanced(f"smallest set: search {trials}, under {len(names)} rules")
        chosen = rules.only(*names)
        try:
            return all(_reached(goal, chosen, cost_model) for goal in goals)
        except SuperoptError:
            return False

    def finished(names: Sequence[str], complete: bool, reached: bool = True) -> Smallest:
        return Smallest(tuple(names), complete, reached, trials, time.perf_counter() - started)

    kept = list(dict.fromkeys(likely))
    if not reaches(kept):
        kept = [rule.name for rule in rules]
        if not reaches(kept):
            return finished(kept, False, False)
        halves = True
        # What led to the result may need others beside it: they are left out by halves, then one by one.
        while halves and time.perf_counter() - started < seconds:
            halves = False
            others = [name for name in kept if name not in likely]
            for part in (others[: len(others) // 2], others[len(others) // 2 :]):
                if len(part) > 1 and reaches([name for name in kept if name not in part]):
                    kept = [name for name in kept if name not in part]
                    halves = True
    for name in list(kept):
        if time.perf_counter() - started > seconds:
            return finished(kept, False)
        without = [other for other in kept if other != name]
        if reaches(without):
            kept = without
    return finished(kept, True)


def _reached(goal: Reached, rules: RuleSet, cost_model: CostModel) -> bool:
    search = goal.search
    egraph = search.extractable(search.saturate(rules).egraph, cost_model).egraph
    found = extract(egraph, cost_model, byte_price=goal.byte_price, sizes=search.sizes, effort=EFFORT)
    cost = found.running if goal.running else found.cost
    return cost <= goal.cost + _SAME * abs(goal.cost)
