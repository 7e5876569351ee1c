"""Sums whose addends are put in another order: layers of one input side by side, for rules about two addends to merge.

Every order of every part of a sum is a term of its own, and a sum of ten addends has a thousand parts. So a sum is
looked at as a whole, between steps, and put in one other order. That is an equation whatever the order; which one is
chosen here only decides what is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from superopt.conditions.convolution import aligned
from superopt.engine.eclasses import EGraph, ENode
from superopt.rules import Apply, Rule
from superopt.terms import ABSENT, TensorType

SUMS = frozenset({"Add", "Sum"})

LINEAR = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "BatchNormalization", "AveragePool", "Conv", "MatMul", "Gemm"})
"""Operators that are linear, up to a shift, in the one term that varies: their chains may be merged with a layer."""

MAX_STEPS = 4
"""How long such a chain is at most."""

MAX_ADDENDS = 256
"""Sums of more are left as they are: what a sum holds is compared with each other."""


@dataclass(frozen=True)
class Regrouped:
    """A sum in another order: its class, and the classes of its addends, to be added from left to right.

    Neighbours come in groups that are added up by themselves first.
    """

    root: int
    groups: tuple[tuple[int, ...], ...]

    @property
    def addends(self) -> tuple[int, ...]:
        return tuple(addend for group in self.groups for addend in group)


@dataclass(frozen=True)
class _Layer:
    """A layer of constant weights, and the class of the only term that it varies with."""

    node: ENode
    input: int


def layer_operator(rule: Rule) -> str | None:
    """The operator of the layers that an ``addends`` rule puts side by side: of the left side's first addend."""
    pattern = rule.left[0]
    while isinstance(pattern, Apply) and pattern.op in SUMS:
        first = pattern.args[0]
        if not isinstance(first, Apply):
            return None
        pattern = first
    return pattern.op if isinstance(pattern, Apply) else None


def regrouped_sums(op: str, egraph: EGraph) -> list[Regrouped]:
    """Every sum of three or more addends in which layers of an operator and what varies with the same input alone stand
    apart, put side by side. A sum that is used in several places is not taken apart within another."""
    if not any(node.op == op for eclass in egraph.classes if not eclass.constant for node in eclass.nodes):
        return []
    uses = uses_of(egraph)
    known: dict[tuple[int, int], int] = {}
    for number, eclass in enumerate(egraph.classes):
        for node in eclass.nodes:
            if node.op == "Add":
                known[_pair(*node.children)] = number
    found: list[Regrouped] = []
    for number, eclass in enumerate(egraph.classes):
        if eclass.constant or not isinstance(eclass.type, TensorType):
            continue
        parts = _parts(egraph, number, number)
        if (
            parts is None
            or _layers(egraph, number, op)
            or (len(uses[number]) == 1 and _parts_hold(egraph, uses, number))
        ):
            continue
        addends = _addends(egraph, number, op, uses)
        if not 3 <= len(addends) <= MAX_ADDENDS:
            continue
        groups = _groups(egraph, addends, op, eclass.type)
        if groups and _sum_of(groups, known) != number:
            found.append(Regrouped(number, groups))
    return found


def _pair(left: int, right: int) -> tuple[int, int]:
    return (left, right) if left <= right else (right, left)


def uses_of(egraph: EGraph) -> list[set[int]]:
    """By class, the classes that the model itself computes from it; -1 stands for the model's outputs."""
    uses: list[set[int]] = [set() for _ in egraph.classes]
    for number, eclass in enumerate(egraph.classes):
        for node in eclass.nodes:
            if node.original is not None:
                for child in node.children:
                    if child != ABSENT:
                        uses[child].add(number)
    for root in egraph.roots:
        uses[root].add(-1)
    return uses


def _parts(egraph: EGraph, number: int, root: int) -> tuple[int, ...] | None:
    """What a class is the sum of, by the model's own node if there is one; None where it is no sum of the root's type.

    A shift that a rule made belongs to what it shifts.
    """
    if egraph.classes[number].type != egraph.classes[root].type:
        return None
    made: tuple[int, ...] | None = None
    for node in egraph.classes[number].nodes:
        if node.op not in SUMS or number in node.children:
            continue
        if node.original is not None:
            return node.children
        if made is None and not any(egraph.classes[child].constant for child in node.children):
            made = node.children
    return made


def _parts_hold(egraph: EGraph, uses: Sequence[set[int]], number: int) -> bool:
    """Whether the only user of a sum is a larger sum, which takes it apart."""
    (user,) = uses[number]
    parts = _parts(egraph, user, number) if user >= 0 else None
    return parts is not None and number in parts


def _addends(egraph: EGraph, root: int, op: str, uses: Sequence[set[int]]) -> list[int]:
    """The addends of a sum, through the sums in it that nothing else uses and that are no layer by themselves."""
    addends: list[int] = []
    stack, inside = [root], {root}
    while stack:
        number = stack.pop()
        parts = _parts(egraph, number, root)
        inner = number == root or (len(uses[number]) <= 1 and number not in inside and not _layers(egraph, number, op))
        if parts is None or not inner or len(addends) + len(stack) > MAX_ADDENDS:
            addends.append(number)
        else:
            inside.add(number)
            stack += reversed(parts)
    return addends


def _layers(egraph: EGraph, number: int, op: str) -> list[_Layer]:
    """A class's nodes of an operator that have constant weights, one for each input."""
    found: dict[int, _Layer] = {}
    for node in egraph.classes[number].nodes:
        if node.op == op and (term := _varying(egraph, node)) is not None and term == node.children[0]:
            found.setdefault(term, _Layer(node, term))
    return list(found.values())


def _varying(egraph: EGraph, node: ENode) -> int | None:
    """The class of the only child that is not constant."""
    found = {child for child in node.children if child != ABSENT and not egraph.classes[child].constant}
    return found.pop() if len(found) == 1 else None


def _origins(egraph: EGraph, number: int) -> set[int]:
    """The classes that a class is a chain of linear operators of, itself included."""
    seen, frontier = {number}, [number]
    for _ in range(MAX_STEPS):
        terms = [_varying(egraph, node) for at in frontier for node in egraph.classes[at].nodes if node.op in LINEAR]
        frontier = list(dict.fromkeys(term for term in terms if term is not None and term not in seen))
        seen.update(frontier)
    return seen


def _groups(egraph: EGraph, addends: Sequence[int], op: str, wanted: TensorType) -> tuple[tuple[int, ...], ...]:
    """The addends in groups: layers that may merge, with what varies with the same input; constants; all the others.

    Empty where nothing is to be merged. A group never depends on the order in which the addends stood.
    """
    left = sorted(addends)
    layers = {number: _layers(egraph, number, op) for number in set(left) if egraph.classes[number].type == wanted}
    inputs: dict[int, dict[int, _Layer]] = {}
    for number, known in layers.items():
        for layer in known:
            inputs.setdefault(layer.input, {})[number] = layer
    groups: list[tuple[int, ...]] = []
    for term, members in sorted(inputs.items(), key=lambda item: (-len(item[1]), item[0])):
        kin = [number for number in left if number in members]
        others = [
            number
            for number in left
            if number not in members and number in layers and (number == term or term in _origins(egraph, number))
        ]
        for index, cluster in enumerate(_clusters(egraph, kin, members)):
            group = (*cluster, *(others if index == 0 else ()))
            if len(group) >= 2:
                groups.append(group)
                for number in group:
                    left.remove(number)
    if not groups or (len(groups) == 1 and len(groups[0]) < 2):
        return ()
    shifts = [number for number in left if egraph.classes[number].constant]
    rest = [number for number in left if not egraph.classes[number].constant]
    # A shift stands by the first group, whose bias may take it up.
    return (*groups[:1], *((shift,) for shift in shifts), *groups[1:], *((number,) for number in rest))


def _clusters(egraph: EGraph, kin: Iterable[int], members: Mapping[int, _Layer]) -> list[list[int]]:
    """Layers that may all be merged with each other, the largest kernels first: they hold the others' taps."""
    clusters: list[list[int]] = []
    for number in sorted(kin, key=lambda number: (-_weight_size(egraph, members[number]), number)):
        for cluster in clusters:
            if all(_alike(egraph, members[number], members[other]) for other in cluster):
                cluster.append(number)
                break
        else:
            clusters.append([number])
    return sorted(clusters, key=len, reverse=True)


def _weight(egraph: EGraph, layer: _Layer) -> TensorType | None:
    value_type = egraph.classes[layer.node.children[1]].type
    return value_type if isinstance(value_type, TensorType) else None


def _weight_size(egraph: EGraph, layer: _Layer) -> int:
    weight = _weight(egraph, layer)
    return 0 if weight is None else weight.size or 0


def _alike(egraph: EGraph, one: _Layer, other: _Layer) -> bool:
    """Whether two layers of one input and one type may become one."""
    mine, others = _weight(egraph, one), _weight(egraph, other)
    if mine is None or others is None:
        return False
    if one.node.op == "Conv":
        return aligned(mine, one.node.attrs, others, other.node.attrs)
    return mine == others and one.node.attrs == other.node.attrs


def _sum_of(groups: Sequence[Sequence[int]], known: Mapping[tuple[int, int], int]) -> int | None:
    """The class of a sum in this order, where it is there already."""
    total: int | None = None
    for group in groups:
        part: int | None = group[0]
        for addend in group[1:]:
            part = None if part is None else known.get(_pair(part, addend))
        if part is None:
            return None
        total = part if total is None else known.get(_pair(total, part))
        if total is None:
            return None
    return total
