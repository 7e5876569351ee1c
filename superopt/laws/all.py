"""The laws of many rules, in parallel over processes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from superopt.laws import laws
from superopt.laws.laws import LawResult
from superopt.rules import Rule

POINTS = 24
"""On how many instances a rule is checked."""

_FEW = 8
"""Rules for which no process is started: that takes as long as checking so many."""


@dataclass(frozen=True)
class Checked:
    """A rule, what its law came to, and the seconds that it took."""

    rule: Rule
    result: LawResult
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the rule keeps its law; a rejected rule has to break it."""
        return self.result.error is None and self.result.passed != (self.rule.rejected is not None)


def check_all(rules: Iterable[Rule], *, points: int = POINTS, seed: int = 0, jobs: int = 1) -> Iterator[Checked]:
    """Checks rules, ``jobs`` at a time (-1: one for each processor); results come in the order of the rules."""
    waiting = list(rules)
    if jobs == 1 or len(waiting) <= _FEW:
        yield from (_checked(rule, points, seed) for rule in waiting)
        return
    import joblib  # takes as long as to check a rule

    tasks = (joblib.delayed(_checked)(rule, points, seed) for rule in waiting)
    with warnings.catch_warnings():
        # Processes that have grown are replaced, which is no matter for who asked.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator", pre_dispatch="4*n_jobs", batch_size=4)(tasks)


def _checked(rule: Rule, points: int, seed: int) -> Checked:
    start = time.perf_counter()
    try:
        # Of a rule that is wrong as it says, nobody is shown how.
        result = laws.check(rule, points=points, seed=seed, smallest=rule.rejected is None)
    except Exception as error:  # Whatever it is: of this one rule, and no reason not to check the others.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        result = LawResult(rule.name, False, 0, 0, 0, ("can be checked",), error=reason)
    return Checked(rule, result, time.perf_counter() - start)
