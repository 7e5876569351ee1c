"""Breaking rules on purpose makes their laws fail: for every shipped rule, and every time but where nothing was broken.

A mutant that survives a first look gets a longer one; one that survives that too is either a gap in the laws, which
fails here, or equivalent to its rule: these are listed, each with the reason.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from superopt import rule_text
from superopt.instantiate import holds
from superopt.laws import laws
from superopt.laws.instances import instances
from superopt.laws.judge import judge
from superopt.rules import Rule
from tests.mutate import mutants

SHIPPED = tuple(rule for rule in rule_text.load("all") if rule.rejected is None)
SEED, COUNT = 2026, 200
FIRST_LOOK, LONG_LOOK = 24, 300

FILES = sorted({rule.file for rule in SHIPPED})

EQUIVALENT = {
    ("clip-of-clip", "swap the operands of Min"): "Min is the same in either order",
    ("extreme-of-extreme", "swap the operands of Min"): "Min is the same in either order",
    ("extreme-of-three-constants", "swap the operands of Min"): "Min is the same in either order",
    (
        "select-from-second-of-two",
        "drop rank(c) == 1",
    ): "few_indices(c, ...), which makes it worth while, is of lists alone",
}
"""Mutants of the drawn ones that are no other rule than their own, by rule text and mutation, and why."""


def family(rule: Rule) -> str:
    return rule.name.partition("[")[0]


def drawn() -> list[Rule]:
    """The rules whose mutants are tried: each by its own draw, so that a new rule changes little of what is drawn."""
    return sorted(SHIPPED, key=lambda rule: random.Random(f"{SEED}/{rule.name}").random())[:COUNT]


def survives(rule: Rule, what: str, mutant: Rule) -> bool:
    """Whether neither a first nor a long look finds anything against a mutant of a rule.

    What a dropped condition excluded is looked for among instances that it excluded.
    """
    if (
        laws.refuted(mutant, points=FIRST_LOOK) is not None
        or laws.refuted(mutant, points=LONG_LOOK, seed=1) is not None
    ):
        return False
    dropped = next((place for place, expr in enumerate(rule.when) if what == f"drop {expr.text}"), None)
    if dropped is None:
        return True
    excluded = instances(rule, points=LONG_LOOK, seed=2, dropped=dropped)
    return all(judge(one).finding is None for one in excluded if holds(rule.only_if, one.binding))


def test_two_hundred_mutants_are_caught_or_equivalent(record_property: Callable[[str, object], None]) -> None:
    tried: list[tuple[Rule, str]] = []
    alive: list[tuple[str, str]] = []
    for rule in drawn():
        what, mutant = random.Random(f"{SEED}/{rule.name}").choice(list(mutants(rule)))
        tried.append((rule, what))
        if (family(rule), what) not in EQUIVALENT and survives(rule, what, mutant):
            alive.append((rule.name, what))
    equivalent = [(rule.name, what) for rule, what in tried if (family(rule), what) in EQUIVALENT]
    caught = COUNT - len(alive) - len(equivalent)
    rate = (
        f"{caught} of {COUNT} mutants caught ({100 * caught / (COUNT - len(equivalent)):.1f} % of those not equivalent)"
    )
    record_property("kill rate", rate)
    print(f"{rate}; equivalent: {equivalent}; alive: {alive}")
    assert alive == [], "gaps in the laws, or more equivalent mutants"


@pytest.mark.parametrize("file", FILES)
def test_every_rule_can_be_broken(file: str) -> None:
    never = []
    for rule in SHIPPED:
        if rule.file == file and all(laws.refuted(mutant, points=FIRST_LOOK) is None for _, mutant in mutants(rule)):
            never.append(rule.name)
    assert never == [], "no mutant of these rules was caught"


def test_what_is_listed_as_equivalent_is_not_caught() -> None:
    rules = {family(rule): rule for rule in SHIPPED}
    for name, what in EQUIVALENT:
        found = [made for done, made in mutants(rules[name]) if done == what]
        assert found, f"{name} has no mutant: {what}"
        for mutant in found:
            assert laws.refuted(mutant, points=FIRST_LOOK) is None, f"{name}: {what} is no longer equivalent"
