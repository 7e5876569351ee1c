"""Why a rule is hardly ever tried: the condition or the attribute that no instance gets past."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from superopt.expressions import Binding, evaluate
from superopt.laws.exclusion import filled
from superopt.laws.instances import MOST_ELEMENTS, Instance, elements, instances
from superopt.rules import Apply, Each, Expr, Output, Pattern, Rule, Star
from superopt.values import Unknown

DRAWN = 8
"""On how many instances without it a condition or an attribute is asked for its value."""

_FREE = "free_attribute"


def reason(rule: Rule, tried: Sequence[Instance], seed: int, *, few: bool) -> str:
    """Why so few instances of a rule were found, where these are ``few``, or why they say so little, in a line."""
    if tried:
        little = f"only {len(tried)} were found" if few else "what was tried has no values that could be compared"
        return _of_right(tried) or little
    conditions = [("when", expr) for expr in rule.when] + [("only if", expr) for expr in rule.only_if]
    for key, expr in conditions:
        others = replace(
            rule, when=tuple(one for one in rule.when if one != expr),
            only_if=tuple(one for one in rule.only_if if one != expr),
        )  # fmt: skip
        found = list(instances(others, points=DRAWN, seed=seed))
        if found:
            problem = _problem(expr, [filled(instance) for instance in found])
            return f"{key} {expr.text} " + (
                f"cannot be evaluated: {problem}" if problem else "holds on no instance that meets the rest"
            )
    bare = replace(rule, when=(), only_if=())
    if conditions and any(True for _ in instances(bare, points=1, seed=seed)):
        return "no instance meets all conditions at once"
    return _of_left(bare, seed) or "no operands were found that the left side takes"


def _of_right(tried: Sequence[Instance]) -> str | None:
    problems: dict[str, None] = {}
    for instance in tried:
        try:
            most = elements(instance.right())
        except Unknown as unknown:
            problems[str(unknown)] = None
            continue
        if most > MOST_ELEMENTS:
            return f"the right side is too large to be tried: {most} elements, at most {MOST_ELEMENTS} are evaluated"
    return f"the right side cannot be made: {next(iter(problems))}" if problems else None


def _of_left(rule: Rule, seed: int) -> str | None:
    """The first attribute of a left side without which there are instances."""
    for part in _applied(rule.left):
        for name, expr in part.attrs:
            if isinstance(expr.tree, ast.Name):
                continue
            freed = tuple(
                (key, Expr(_FREE, ast.Name(_FREE, ast.Load()))) if key == name else (key, value)
                for key, value in part.attrs
            )
            left = tuple(_put(root, part, replace(part, attrs=freed)) for root in rule.left)
            found = list(instances(replace(rule, left=left), points=DRAWN, seed=seed))
            if found:
                problem = _problem(expr, [instance.binding for instance in found])
                what = f"cannot be evaluated: {problem}" if problem else "is on no instance what the operator takes"
                return f"{part.op}'s {name}={expr.text} {what}"
    return None


def _problem(expr: Expr, bindings: Sequence[Binding]) -> str | None:
    """Why an expression has no value on any of these; None where it has one."""
    said = ""
    for binding in bindings:
        try:
            evaluate(expr, binding)
        except Unknown as unknown:
            said = str(unknown).removeprefix(f"{expr.text}: ")
        else:
            return None
    return said


def _applied(patterns: Sequence[Pattern | Star | Each]) -> Iterator[Apply]:
    for pattern in patterns:
        match pattern:
            case Apply(_, args):
                yield pattern
                yield from _applied(args)
            case Output(of):
                yield from _applied([of])
            case Each(template):
                yield from _applied([template])
            case _:
                pass


def _put(pattern: Pattern, old: Apply, new: Apply) -> Pattern:
    """The pattern with one operator for another."""
    if pattern == old:
        return new
    match pattern:
        case Apply(_, args):
            inner = tuple(arg if isinstance(arg, (Star, Each)) else _put(arg, old, new) for arg in args)
            return replace(pattern, args=inner)
        case Output(of):
            return replace(pattern, of=_put(of, old, new))
        case _:
            return pattern
