"""Rules about siblings: all terms of one form that share what is not starred are found as a set, and merged once.

This runs on the frozen e-graph between steps. Merging pair by pair would close under itself and never end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from superopt.eclasses import EClass, EGraph, ENode
from superopt.errors import InferenceError
from superopt.expressions import Binding
from superopt.instantiate import Filled, Skeleton, fill, holds, skeleton
from superopt.matching import Match, bind, variant_of
from superopt.rules import Apply, Rule, Star, Var, element_name
from superopt.shapes import join
from superopt.terms import ABSENT, CONST, Attrs
from superopt.values import Unknown, Value

MAX_SIBLINGS = 64
"""Sets larger than this are merged in part: the first ones."""


MAX_CHAIN = 4
"""How long a chain of operators with constants (a bias, a normalization) may be between a member and a later form
of it."""


@dataclass(frozen=True)
class Siblings:
    """A set to merge: the rule, the right side for it, the classes of the variables, and each sibling's class."""

    rule: Rule
    shape: Skeleton
    filled: Filled
    variables: Mapping[str, int]
    members: tuple[int, ...]


def find_siblings(rule: Rule, egraph: EGraph) -> list[Siblings]:
    """Every set of two or more classes that a siblings rule merges, in the order of their first member."""
    form = rule.left[0]
    if not isinstance(form, Apply):
        return []
    groups: dict[tuple[tuple[int, ...], Attrs], dict[int, ENode]] = {}
    for number, eclass in enumerate(egraph.classes):
        if eclass.constant:
            continue
        for node in eclass.nodes:
            # What this rule merged is not merged again.
            if node.op != form.op or len(node.children) != len(form.args) or node.rule == rule.name:
                continue
            shared = _shared(form, node)
            if shared is not None:
                groups.setdefault((shared, node.attrs), {}).setdefault(number, node)
    found = []
    for members in groups.values():
        merged = _merged(rule, form, members, egraph)
        if merged is not None:
            found.append(merged)
    return found


def _shared(form: Apply, node: ENode) -> tuple[int, ...] | None:
    """The children that siblings have in common, or None where one variable stands for two classes."""
    places: dict[str, int] = {}
    for arg, child in zip(form.args, node.children, strict=True):
        if isinstance(arg, Var) and places.setdefault(arg.name, child) != child:
            return None
        if child == ABSENT:
            return None
    return tuple(places.values())


def _merged(rule: Rule, form: Apply, members: Mapping[int, ENode], egraph: EGraph) -> Siblings | None:
    chosen = dict(list(_outermost(members, egraph).items())[:MAX_SIBLINGS])
    # Members that a condition refuses (another element type, not constant) are left out, not all the others with them.
    while len(chosen) >= 2:
        outcome = _attempt(rule, form, chosen, egraph)
        if outcome is not None:
            return outcome
        fitting = {
            number: node for number, node in chosen.items() if _pairs_with_any(rule, form, number, chosen, egraph)
        }
        if len(fitting) == len(chosen):
            return None
        chosen = fitting
    return None


def _outermost(members: Mapping[int, ENode], egraph: EGraph) -> dict[int, ENode]:
    """The members that no other member can be computed from by a chain of operators with constants.

    A convolution and the same one with a batch normalization folded into it share their input, but only one is needed.
    """
    inner: set[int] = set()
    for member in members:
        seen, frontier = {member}, [member]
        for _ in range(MAX_CHAIN):
            frontier = [child for number in frontier for child in _single_inputs(egraph, number) if child not in seen]
            seen.update(frontier)
        inner |= seen - {member}
    return {number: node for number, node in members.items() if number not in inner}


def _single_inputs(egraph: EGraph, number: int) -> list[int]:
    """For each node of a class that takes one varying term, that term's class."""
    found = []
    for node in egraph.classes[number].nodes:
        varying = [child for child in node.children if child != ABSENT and not egraph.classes[child].constant]
        if len(varying) == 1:
            found.append(varying[0])
    return found


def _pairs_with_any(rule: Rule, form: Apply, number: int, chosen: Mapping[int, ENode], egraph: EGraph) -> bool:
    return any(
        _attempt(rule, form, {number: chosen[number], other: chosen[other]}, egraph) is not None
        for other in chosen
        if other != number
    )


def _attempt(rule: Rule, form: Apply, chosen: Mapping[int, ENode], egraph: EGraph) -> Siblings | None:
    expanded = rule.expanded(len(chosen))
    variables: dict[str, int] = {}
    for index, node in enumerate(chosen.values()):
        for arg, child in zip(form.args, node.children, strict=True):
            if isinstance(arg, Star):
                variables[element_name(arg.name, index)] = child
            elif isinstance(arg, Var):
                variables[arg.name] = child
    binding = _binding(expanded, variables, next(iter(chosen.values())).attrs, egraph)
    if binding is None:
        return None
    try:
        if not holds((*expanded.when, *expanded.only_if), binding):
            return None
        shape = skeleton(expanded.right)
        filled = fill(shape, binding)
        for root, member in zip(shape.roots, chosen, strict=True):
            join(egraph.classes[member].type, filled.types[root])
    except (Unknown, InferenceError):
        return None
    return Siblings(rule, shape, filled, variables, tuple(chosen))


def _binding(rule: Rule, variables: Mapping[str, int], attrs: Attrs, egraph: EGraph) -> Binding | None:
    types = {name: egraph.classes[number].type for name, number in variables.items()}
    content = {name: value for name, number in variables.items() if (value := _content(egraph, number)) is not None}
    variant = variant_of(rule, tuple(name for name, number in variables.items() if egraph.classes[number].constant))
    slots = skeleton(rule.left).slots
    by_slot = {index: attrs for index, slot in enumerate(slots) if isinstance(slot.pattern, Apply)}
    return bind(variant, Match(types, (), by_slot, content))


def _content(egraph: EGraph, number: int) -> Value | None:
    eclass: EClass = egraph.classes[number]
    for node in eclass.nodes:
        if node.op == CONST and (constant := egraph.constants.get(str(node.attrs["key"]))) is not None:
            return Value(constant.type, True, constant.load)
    return None
