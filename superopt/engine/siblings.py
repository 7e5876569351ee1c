"""Rules about siblings: all terms of one form that share what is not starred are found as a set, and merged once; and
rules about sums and about chains of constants, which are written anew as a whole.

This runs on the frozen e-graph between steps. Merging pair by pair would close under itself and never end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from superopt.engine.addends import LINEAR, SUMS, Regrouped, layer_operator, regrouped_sums, uses_of
from superopt.engine.chains import Chain, joined_chains
from superopt.engine.eclasses import EClass, EGraph
from superopt.engine.matching import Match, bind
from superopt.engine.variants import variant_of
from superopt.errors import InferenceError
from superopt.expressions import Binding
from superopt.instantiate import Filled, Skeleton, Slot, fill, holds, skeleton
from superopt.operators import operator
from superopt.rules import Apply, Each, Pattern, Rule, Star, Var, element_name
from superopt.shapes import infer, join
from superopt.terms import ABSENT, CONST, INPUT, Attrs, Node, ValueType
from superopt.values import Unknown, Value

MAX_SIBLINGS = 32
"""Sets larger than this are merged in part: the first ones. (How long the engine takes to learn of an operator grows
with the cube of the number of its arguments.)"""


MAX_PARTS = 256
"""How many classes between a member and its input are looked at."""


@dataclass(frozen=True)
class Siblings:
    """A set to merge: the rule, the right side for it, the classes of the variables, and each sibling's class."""

    rule: Rule
    shape: Skeleton
    filled: Filled
    variables: Mapping[str, int]
    members: tuple[int, ...]


@dataclass(frozen=True)
class Member:
    """One way in which a class has the form: classes of the variables and of the stars, attributes by left slot."""

    shared: Mapping[str, int]
    own: Mapping[str, int]
    attrs: Mapping[int, Attrs]


def find_siblings(rule: Rule, egraph: EGraph) -> list[Siblings]:
    """Every set of two or more classes that a siblings rule merges, in the order of their first member; every sum that
    an addends rule puts in another order; every chain that a chain rule makes short."""
    if rule.whole == "addends":
        op = layer_operator(rule)
        return [] if op is None else [_reordered(rule, found, egraph) for found in regrouped_sums(op, egraph)]
    if rule.whole == "chain":
        return [_shortened(rule, found, egraph) for found in joined_chains(egraph)]
    form = rule.left[0]
    groups: dict[tuple[tuple[int, ...], tuple[Attrs, ...]], dict[int, Member]] = {}
    for number, eclass in enumerate(egraph.classes):
        if eclass.constant:
            continue
        for member in _members(form, number, rule, egraph):
            key = (tuple(member.shared.values()), tuple(member.attrs.values()))
            groups.setdefault(key, {}).setdefault(number, member)
    uses = uses_of(egraph)
    return [found for members in groups.values() for found in _merged(rule, members, egraph, uses)]


def _reordered(rule: Rule, found: Regrouped, egraph: EGraph) -> Siblings:
    """The sum in its other order. The addends stay what they are: as members they tell this sum from a later one of the
    same class."""
    numbers = tuple(dict.fromkeys(found.addends))
    names = [f"addend.{index}" for index in range(len(numbers))]
    slots = [Slot(Var(name), ()) for name in names]
    nodes = [Node(INPUT, (), Attrs.of(name=name)) for name in names]
    types = [egraph.classes[number].type for number in numbers]

    def added(terms: Sequence[int]) -> int:
        total = terms[0]
        for term in terms[1:]:
            slots.append(Slot(Apply("Add", ()), (total, term)))
            nodes.append(Node("Add", (total, term)))
            types.append(egraph.classes[found.root].type)
            total = len(slots) - 1
        return total

    total = added([added([numbers.index(addend) for addend in group]) for group in found.groups])
    filled = Filled(tuple(nodes), tuple(types), (None,) * len(nodes))
    shape = Skeleton(tuple(slots), (total, *range(len(numbers))))
    return Siblings(rule, shape, filled, dict(zip(names, numbers, strict=True)), (found.root, *numbers))


def _shortened(rule: Rule, found: Chain, egraph: EGraph) -> Siblings:
    """The chain as one scale and one shift of where it begins."""
    slots: list[Slot] = []
    nodes: list[Node] = []
    types: list[ValueType] = []
    variables: dict[str, int] = {}
    places: dict[int, int] = {}

    def placed(term: int) -> int:
        if term not in places:
            name = f"term.{len(variables)}"
            variables[name] = term
            add(Slot(Var(name), ()), Node(INPUT, (), Attrs.of(name=name)), egraph.classes[term].type)
            places[term] = len(slots) - 1
        return places[term]

    def add(slot: Slot, node: Node, value_type: ValueType) -> int:
        slots.append(slot)
        nodes.append(node)
        types.append(value_type)
        return len(slots) - 1

    def applied(op: str, one: int, other: int, value_type: ValueType) -> int:
        return add(Slot(Apply(op, ()), (one, other)), Node(op, (one, other)), value_type)

    for number, (node, value_type) in enumerate(zip(found.nodes, found.types, strict=True), start=len(egraph.classes)):
        places[number] = applied(node.op, placed(node.args[0]), placed(node.args[1]), value_type)
    total = placed(found.end)
    for op, term in (("Mul", found.scale), ("Add", found.shift)):
        if term is not None:
            constant = placed(term)
            total = applied(op, total, constant, infer(op, Attrs(), [types[total], types[constant]]))
    filled = Filled(tuple(nodes), tuple(types), (None,) * len(nodes))
    end = placed(found.end)
    return Siblings(rule, Skeleton(tuple(slots), (total, end)), filled, variables, (found.root, found.end))


def _members(form: Pattern, number: int, rule: Rule, egraph: EGraph) -> list[Member]:
    """All ways in which a class has the form; operators from the outside in and from left to right."""
    found: list[Member] = []

    def match(rest: list[tuple[Pattern | Star | Each, int]], member: Member) -> None:
        if not rest:
            found.append(member)
            return
        (pattern, child), *others = rest
        if child == ABSENT:
            return
        match pattern:
            case Var(name):
                if member.shared.get(name, child) == child:
                    match(others, Member({**member.shared, name: child}, member.own, member.attrs))
            case Star(name):
                match(others, Member(member.shared, {**member.own, name: child}, member.attrs))
            case Apply(op, args):
                for node in egraph.classes[child].nodes:
                    # What this rule merged is not merged again.
                    if node.op != op or len(node.children) != len(args) or node.rule == rule.name:
                        continue
                    attrs = {**member.attrs, len(member.attrs): node.attrs}
                    spec = operator(op)
                    for children in _orders(node.children, spec is not None and spec.commutative):
                        match([*zip(args, children, strict=True), *others], Member(member.shared, member.own, attrs))
            case _:
                return

    match([(form, number)], Member({}, {}, {}))
    return found


def _orders(children: tuple[int, ...], commutative: bool) -> list[tuple[int, ...]]:
    return [children, children[::-1]] if commutative and children[0] != children[-1] else [children]


def _merged(rule: Rule, members: Mapping[int, Member], egraph: EGraph, uses: Sequence[set[int]]) -> list[Siblings]:
    """The set merged; where a condition refuses it (other element types or kernels, not constant), its parts whose
    members fit the first of each."""
    kept = dict(list(_outermost(members, egraph, uses).items())[:MAX_SIBLINGS])
    left = _independent(kept, egraph)
    found: list[Siblings] = []
    whole = _attempt(rule, left, egraph) if len(left) >= 2 else None
    if whole is not None:
        return [whole]
    while len(left) >= 2:
        first, *others = left
        fitting = [
            other for other in others if _attempt(rule, {first: left[first], other: left[other]}, egraph) is not None
        ]
        part = {number: left[number] for number in (first, *fitting)}
        made = _attempt(rule, part, egraph) if fitting else None
        if made is not None:
            found.append(made)
        left = {number: member for number, member in left.items() if number not in (part if made else (first,))}
    return found


def _outermost(members: Mapping[int, Member], egraph: EGraph, uses: Sequence[set[int]]) -> dict[int, Member]:
    """The members that the model needs for something else than other members, or what these are computed from.

    A convolution and the same one with a batch normalization folded into it share their input, but only one is needed;
    and so it is with the branches of a sum that is one convolution of the same input.
    """
    inner: set[int] = set()
    for member in members:
        shared = set(members[member].shared.values())
        inner |= _linear_parts(egraph, member, shared)
    within = inner | set(members)
    return {
        number: member
        for number, member in members.items()
        if uses[number] and not (number in inner and uses[number] <= within)
    }


def _linear_parts(egraph: EGraph, root: int, ends: set[int]) -> set[int]:
    """The varying classes that a class is computed from by linear operators, as far as its form's own variables."""
    seen: set[int] = set()
    stack = [root]
    while stack and len(seen) < MAX_PARTS:
        for node in egraph.classes[stack.pop()].nodes:
            if node.op not in LINEAR and node.op not in SUMS:
                continue
            for child in node.children:
                if child in (ABSENT, root) or child in seen or child in ends:
                    continue
                if not egraph.classes[child].constant:
                    seen.add(child)
                    stack.append(child)
    return seen


def _independent(members: Mapping[int, Member], egraph: EGraph) -> dict[int, Member]:
    """The members whose own inputs need no other member: what is merged with its own input can never be chosen."""
    kept: dict[int, Member] = {}
    needs: dict[int, set[int]] = {}
    for number, member in members.items():
        below = _below(egraph, member.own.values())
        if not any(other in below or number in needs[other] for other in kept):
            kept[number], needs[number] = member, below
    return kept


def _below(egraph: EGraph, classes: Iterable[int]) -> set[int]:
    """The varying classes that some nodes of these depend on, themselves included."""
    stack = [number for number in classes if not egraph.classes[number].constant]
    seen = set(stack)
    while stack:
        for node in egraph.classes[stack.pop()].nodes:
            found = [child for child in node.children if child != ABSENT and child not in seen]
            varying = [child for child in found if not egraph.classes[child].constant]
            seen.update(varying)
            stack += varying
    return seen


def _attempt(rule: Rule, chosen: Mapping[int, Member], egraph: EGraph) -> Siblings | None:
    expanded = rule.expanded(len(chosen))
    variables: dict[str, int] = {}
    for index, member in enumerate(chosen.values()):
        variables |= member.shared
        variables |= {element_name(name, index): child for name, child in member.own.items()}
    binding = _binding(expanded, variables, list(chosen.values()), egraph)
    if binding is None:
        return None
    try:
        if not holds((*expanded.when, *expanded.only_if), binding):
            return None
        shape = skeleton(expanded.right)
        filled = fill(shape, binding, as_stored=True)
        for root, number in zip(shape.roots, chosen, strict=True):
            join(egraph.classes[number].type, filled.types[root])
    except (Unknown, InferenceError):
        return None
    return Siblings(rule, shape, filled, variables, tuple(chosen))


def _binding(rule: Rule, variables: Mapping[str, int], members: Sequence[Member], egraph: EGraph) -> Binding | None:
    types = {name: egraph.classes[number].type for name, number in variables.items()}
    content = {name: value for name, number in variables.items() if (value := _content(egraph, number)) is not None}
    variant = variant_of(rule, tuple(name for name, number in variables.items() if egraph.classes[number].constant))
    shape = skeleton(rule.left)
    attrs: dict[int, Attrs] = {}
    for root, member in zip(shape.roots, members, strict=True):
        attrs |= dict(zip(_operators_of(shape, root), member.attrs.values(), strict=True))
    return bind(variant, Match(types, (), attrs, content))


def _operators_of(shape: Skeleton, root: int) -> list[int]:
    """The slots of a root's operators, from the outside in and from left to right, as members are matched."""
    slots = [root]
    for arg in shape.slots[root].args:
        if arg != ABSENT and isinstance(shape.slots[arg].pattern, Apply):
            slots += _operators_of(shape, arg)
    return slots


def _content(egraph: EGraph, number: int) -> Value | None:
    eclass: EClass = egraph.classes[number]
    for node in eclass.nodes:
        if node.op == CONST and (constant := egraph.constants.get(str(node.attrs["key"]))) is not None:
            return Value(constant.type, True, constant.load)
    return None
