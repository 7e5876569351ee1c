"""The weakest simple condition under which a rule that breaks its law would keep it, if one of those below does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import ceil, log

from superopt.expressions import Binding, Bound, evaluate
from superopt.laws.instances import Instance, instances
from superopt.laws.instances_clues import clues_of
from superopt.laws.judge import judge
from superopt.rules import Expr, Rule
from superopt.terms import Attrs
from superopt.values import Unknown, Value

DRAWN = 48
"""Instances on which candidates are tried: false on every one that breaks the law, true on some that do not."""

KEPT = 3
"""On how many instances a condition must hold: one that excludes all there is says nothing."""

CONFIRMED = 6
"""How many candidates are tried by a law of their own."""

LUCK = 1e-3
"""How likely a condition may be that has nothing to do with what is wrong, and meets none of it by chance."""

FEWEST, MOST = 8, 16
"""How many times as many instances as a law has are drawn for that: what is wrong may show more rarely where the
condition holds, on fewer elements say."""

TRIES = 4
"""How many tries each of these has: a condition that is met less often is no simple way out."""

_OF_ONE = (
    "floating({0})", "not floating({0})", "precise({0})", "single({0})", "rank({0}) > 0", "rank({0}) > 1",
    "rank({0}) == 4",
)  # fmt: skip
_OF_CONSTANTS = ("positive({0})", "invertible({0})", "zero({0})", "one({0})")
_OF_TWO = (
    "same_shape({0}, {1})", "same_rank({0}, {1})", "same_dtype({0}, {1})", "fits({0}, {1})", "fits({1}, {0})",
    "dim({0}, 0) == dim({1}, 0)", "dim({0}, 1) == dim({1}, 1)", "dim({0}, -1) == dim({1}, -1)",
)  # fmt: skip
_NUMBERS = (0, 1)


@dataclass(frozen=True)
class _Tried:
    """A candidate, and on how many of the right instances it holds."""

    condition: Expr
    kept: int


def excluding(rule: Rule, broken: Instance, *, points: int, seed: int) -> str | None:
    """A condition that is false on the broken instance, and with which the rule is not refuted; None where none of the
    simple ones is.

    Of those that hold on as many of the other instances, the first and simplest.
    """
    wrong, right = [broken], list[Instance]()
    for instance in instances(rule, points=DRAWN, seed=seed):
        (wrong if judge(instance).finding is not None else right).append(instance)
    fitting = [
        _Tried(condition, KEPT if _is_of_content(condition) else kept)
        for condition in dict.fromkeys(_candidates(rule, broken))
        if not any(_holds(condition, instance) for instance in wrong)
        and ((kept := sum(_holds(condition, instance) for instance in right)) >= KEPT or _is_of_content(condition))
    ]
    share = min(len(wrong) / (len(wrong) + len(right)), 0.5)
    enough = min(max(FEWEST * points, ceil(log(LUCK) / log(1 - share))), MOST * points)
    for tried in sorted(fitting, key=lambda one: -one.kept)[:CONFIRMED]:
        if _keeps(replace(rule, when=(*rule.when, tried.condition)), enough, seed + 1):
            return tried.condition.text
    return None


def _is_of_content(condition: Expr) -> bool:
    """Whether it is about what a constant holds: few are drawn that meet it before a rule asks for it."""
    return any(condition.text.startswith(form.split("(")[0]) for form in _OF_CONSTANTS)


def _keeps(rule: Rule, points: int, seed: int) -> bool:
    """Whether none of so many instances fails, most of them are found, and several different ones say something."""
    found, telling = 0, set[str]()
    for instance in instances(rule, points=points, seed=seed, tries=TRIES):
        verdict = judge(instance)
        if verdict.finding is not None:
            return False
        found += 1
        telling |= {instance.signature} if verdict.telling else set()
    return found >= points / 2 and len(telling) >= KEPT


def _holds(condition: Expr, instance: Instance) -> bool:
    try:
        return bool(evaluate(condition, filled(instance)))
    except Unknown:
        return False


def filled(instance: Instance) -> Binding:
    """The binding with the contents that no condition has looked at so far."""
    filled: dict[str, Bound] = dict(instance.binding)
    for name, value in filled.items():
        if isinstance(value, Value) and name in instance.arrays:
            filled[name] = replace(value, load=partial(instance.arrays.__getitem__, name))
    return filled


def _candidates(rule: Rule, instance: Instance) -> Iterator[Expr]:
    """Conditions about the names of a rule, as an instance binds them: terms one by one and in pairs, attributes."""
    constant = clues_of(rule).constant
    terms = [name for name, bound in instance.binding.items() if isinstance(bound, Value) and name.isidentifier()]
    texts: list[str] = []
    for name in terms:
        texts += [form.format(name) for form in (*_OF_ONE, *(_OF_CONSTANTS if name in constant else ()))]
    for pair in combinations(terms, 2):
        texts += [form.format(*pair) for form in _OF_TWO]
    texts += _of_attributes(instance.binding)
    return (Expr(text, ast.parse(text, mode="eval").body) for text in texts)


def _of_attributes(binding: Binding) -> Iterator[str]:
    bundles = {name: bound for name, bound in binding.items() if isinstance(bound, Attrs) and name.isidentifier()}
    for name, attrs in bundles.items():
        for key, value in attrs.items:
            if isinstance(value, int):
                yield from (f"{name}.{key} == {number}" for number in _NUMBERS)
            elif isinstance(value, tuple):
                yield from (f"all(item == {number} for item in {name}.{key})" for number in _NUMBERS)
    for (left, mine), (right, other) in combinations(bundles.items(), 2):
        for key in (key for key, _ in mine.items if key in dict(other.items)):
            yield f"{left}.{key} == {right}.{key}"
    loose = [name for name, bound in binding.items() if _is_attribute(bound) and name.isidentifier()]
    for name in loose:
        yield from (f"{name} == {number}" for number in _NUMBERS if isinstance(binding[name], int))
    yield from (f"{left} == {right}" for left, right in combinations(loose, 2))


def _is_attribute(bound: Bound) -> bool:
    items: Sequence[object] = bound if isinstance(bound, tuple) else (bound,)
    return not any(isinstance(item, (Value, Attrs)) for item in items)
