"""Attributes that instances never vary, since no kernel computes what they ask for: of these a law can tell nothing.

A rule may leave them out (it then is about their default), name their value, or take them over; a rule that drops what
it matches would be wrong without any instance to show it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from superopt.laws.instances_clues import applications
from superopt.operators import operator
from superopt.rules import Apply, Rule

FIXED: Mapping[tuple[str, str], str] = {
    ("Cast", "round_mode"): "rounding to a float that is an exponent alone",
    ("QuantizeLinear", "saturate"): "what is out of range of an 8-bit float",
    ("QuantizeLinear", "precision"): "the element type in which is divided",
    ("LayerNormalization", "stash_type"): "the element type in which is summed",
    ("RMSNormalization", "stash_type"): "the element type in which is summed",
    ("GroupNormalization", "stash_type"): "the element type in which is summed",
}
"""What each such attribute of an operator decides."""


def unvaried(rule: Rule) -> str | None:
    """Why instances cannot tell whether a rule is right: an attribute that it matches whatever its value, and that its
    right side does not take over. None where there is none."""
    made = [part for root in rule.right for part in applications(root)]
    for part in (part for root in rule.left for part in applications(root)):
        for op, attr in FIXED:
            if op != part.op:
                continue
            bound = _bound(part, attr)
            if bound is None or _equated(rule, bound, attr) or _taken_over(part, made, attr, rule):
                continue
            default = None if (known := operator(op)) is None else known.default(attr)
            return (
                f"instances never vary {attr} of {op} ({FIXED[op, attr]}): "
                f"write {attr}={default!r} on the left side, or take it over"
            )
    return None


def _bound(part: Apply, attr: str) -> ast.Name | str | None:
    """What stands for an attribute that may have any value: a name, or the name of a bundle. None where it is fixed."""
    for name, expr in part.attrs:
        if name == attr:
            return expr.tree if isinstance(expr.tree, ast.Name) else None
    return part.rest


def _equated(rule: Rule, bound: ast.Name | str, attr: str) -> bool:
    """Whether a ``when`` says which value it has."""
    for expr in rule.when:
        match expr.tree:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant()]):
                pass
            case _:
                continue
        match left:
            case ast.Name(id=name) if isinstance(bound, ast.Name) and name == bound.id:
                return True
            case ast.Attribute(value=ast.Name(id=name), attr=named) if name == bound and named == attr:
                return True
            case _:
                continue
    return False


def _taken_over(part: Apply, made: list[Apply], attr: str, rule: Rule) -> bool:
    """Whether something that a right side makes has this attribute of this part of the left side, and all that is of
    its operator has that of some part."""
    names = set(_names(rule, part.op, attr))
    kept = any(_from(other, attr) == _from(part, attr) for other in made if _has(other.op, attr))
    return kept and all(_from(other, attr) in names for other in made if other.op == part.op)


def _names(rule: Rule, op: str, attr: str) -> Iterator[str]:
    for part in (part for root in rule.left for part in applications(root)):
        name = _from(part, attr) if part.op == op else None
        if name is not None:
            yield name


def _from(part: Apply, attr: str) -> str | None:
    """The name, of an attribute or of a bundle, that an operator has this attribute from."""
    bound = _bound(part, attr)
    return bound.id if isinstance(bound, ast.Name) else bound


def _has(op: str, attr: str) -> bool:
    known = operator(op)
    return known is not None and attr in known.attributes
