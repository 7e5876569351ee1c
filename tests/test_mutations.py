"""Breaking rules on purpose makes their laws fail: at least once for every shipped rule, and nearly always."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from superopt import rule_text
from superopt.laws import laws
from tests.mutate import mutants

SHIPPED = rule_text.load("all")
MOST = 5
"""How many mutants of a rule are tried, when one of them has been caught."""
LEAST_CAUGHT = 0.85
"""The share of mutants that must be caught: the others are nearly all equivalent to their rule (a dilation of a kernel
of one element, a condition that an attribute's function repeats)."""

FILES = sorted({rule.file for rule in SHIPPED})


@pytest.mark.parametrize("file", FILES)
def test_every_rule_is_broken_and_caught(file: str, record_property: Callable[[str, object], None]) -> None:
    caught = tried = 0
    never: list[str] = []
    survivors: list[str] = []
    for rule in SHIPPED:
        if rule.file != file or rule.rejected is not None:
            continue
        mine = 0
        for number, (what, mutant) in enumerate(mutants(rule)):
            if number >= MOST and mine:
                break
            tried += 1
            if laws.refuted(mutant, points=12) is not None:
                mine += 1
            else:
                survivors.append(f"{rule.name}: {what}")
        caught += mine
        never += [] if mine else [rule.name]
    record_property("kill rate", f"{caught} of {tried}")
    print(f"{file}: {caught} of {tried} mutants caught; not: {'; '.join(survivors) or 'none'}")
    assert never == [], "no mutant of these rules was caught"
    assert caught >= LEAST_CAUGHT * tried, survivors
