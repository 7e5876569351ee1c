"""An e-graph as an extraction problem: what each of its nodes costs, and how its constants are come by."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from superopt.cost import CostModel, Operand
from superopt.costs.gather import class_operands
from superopt.engine.eclasses import EClass, EGraph, ENode
from superopt.extraction.fusing import fused
from superopt.extraction.heuristics import by_trees
from superopt.extraction.layouts import Layouts
from superopt.extraction.problem import Problem
from superopt.extraction.reduction import Item
from superopt.terms import ABSENT, CONST, TensorType, ValueType
from superopt.workload import Sizes


@dataclass(frozen=True)
class Priced:
    """An e-graph as an extraction problem: ``node`` is what each of the problem's nodes stands for, None for a constant
    that is to be evaluated; ``stored`` is its bytes then. What the runtime fuses stands there as one more node of the
    problem, for its result's e-node; ``inside`` are by such a node the problem's nodes that the group takes the place
    of."""

    problem: Problem
    node: tuple[ENode | None, ...]
    stored: tuple[int, ...]
    inside: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def spread(self, index: int) -> tuple[int, ...]:
        """The problem's nodes that a node stands for: itself, or those of its group."""
        return self.inside.get(index, (index,))

    @property
    def apart(self) -> Priced:
        """The same without what the runtime fuses: the nodes one by one."""
        count = len(self.node) - len(self.inside)  # groups come last
        problem = self.problem
        return Priced(
            replace(
                problem, node_class=problem.node_class[:count], children=problem.children[:count],
                costs=problem.costs[:count], preferred=problem.preferred[:count],
            ),
            self.node[:count], self.stored[:count],
        )  # fmt: skip


def cautious(priced: Priced, caution: float) -> Priced:
    """The same with nodes that rules made dearer by a fraction."""
    if not caution:
        return priced
    costs = [
        cost if node is None or original else cost * (1 + caution)
        for cost, node, original in zip(priced.problem.costs, priced.node, priced.problem.preferred, strict=True)
    ]
    return replace(priced, problem=replace(priced.problem, costs=costs))


def banned(priced: Priced, without: Collection[str]) -> Priced:
    """The same without the nodes that some rules made."""
    if not without:
        return priced
    costs = [
        math.inf if any((node := priced.node[part]) is not None and node.rule in without for part in parts) else cost
        for cost, parts in zip(priced.problem.costs, map(priced.spread, range(len(priced.node))), strict=True)
    ]
    return replace(priced, problem=replace(priced.problem, costs=costs))


def price(
    egraph: EGraph, cost_model: CostModel, byte_price: float, sizes: Sizes, values: Mapping[int, ENode]
) -> Priced:
    """The extraction problem of an e-graph.

    A constant class is a leaf that costs its bytes, if it can be evaluated, or one of its original nodes, left to run;
    any other class is one of its nodes. ``values`` are the nodes that constant classes are evaluated by. Where bytes
    are dearer than usual, what a rule writes shortly may be left to run too: runtimes unfold it when they load the
    model.
    """
    node_class: list[int] = []
    children: list[tuple[int, ...]] = []
    costs: list[float] = []
    preferred: list[bool] = []
    nodes: list[ENode | None] = []
    stored: list[int] = []

    def add(
        owner: int, kids: tuple[int, ...], cost: float, original: bool, node: ENode | None, nbytes: int = 0
    ) -> None:
        node_class.append(owner)
        children.append(kids)
        costs.append(cost)
        preferred.append(original)
        nodes.append(node)
        stored.append(nbytes)

    number: dict[tuple[int, int], int] = {}
    operands = class_operands(egraph)
    pricer = _pricer(operands, cost_model, sizes)
    layouts = Layouts(egraph, cost_model, operands, sizes)
    short = _short(egraph, sizes) if byte_price > cost_model.constant_byte else frozenset[int]()
    for owner, eclass in enumerate(egraph.classes):
        if eclass.constant and owner in values and not isinstance(eclass.type, tuple):
            nbytes = _stored_bytes(egraph, eclass, sizes)
            add(owner, (), byte_price * nbytes, values[owner].op == CONST, None, nbytes)
        for place, node in enumerate(eclass.nodes):
            kids = tuple(child for child in node.children if child != ABSENT)
            if not eclass.constant:
                number[owner, place] = len(nodes)
                add(owner, kids, pricer(node, eclass.type) + layouts.of_node(owner, node), node.rule is None, node)
            elif node.rule is None and node.op != CONST:
                add(owner, kids, cost_model.kept_constant, True, node)
            elif owner in short and node.op != CONST:
                add(owner, kids, cost_model.kept_constant, False, node)
    inside: dict[int, tuple[int, ...]] = {}
    for group in fused(egraph, cost_model, operands, sizes, layouts):
        parts = tuple(number[part] for part in group.inside)
        inside[len(nodes)] = parts
        add(group.owner, group.given, group.cost, all(preferred[part] for part in parts), nodes[parts[-1]])
    problem = Problem(len(egraph.classes), node_class, children, costs, egraph.roots, preferred)
    return Priced(problem, tuple(nodes), tuple(stored), inside)


_SHORT = 8
"""A constant is written shortly where what it is made of takes at most one byte for so many of its own."""

_NODE_BYTES = 64
"""What a node takes in a file, about: two or three names, an operator, an attribute."""

_RUN_AT_LOAD = ("float32", "int64")
"""Element types in which runtimes compute what rules make constants of."""


def _short(egraph: EGraph, sizes: Sizes) -> frozenset[int]:
    """The constant classes that take much less in a file when they are written as nodes."""
    items: dict[int, list[Item]] = {}
    for owner, eclass in enumerate(egraph.classes):
        if not eclass.constant or not isinstance(eclass.type, TensorType):
            continue
        items[owner] = [Item(_stored_bytes(egraph, eclass, sizes), (), 0, 0)]
        if eclass.type.dtype not in _RUN_AT_LOAD or any(node.op == CONST for node in eclass.nodes):
            continue
        for node in eclass.nodes:
            kids = tuple(sorted({child for child in node.children if child != ABSENT}))
            items[owner].append(Item(_NODE_BYTES, kids, 0, 0))
    written: dict[int, float] = {}
    for owner, index in by_trees(items, lambda owner, index: items[owner][index].cost).items():  # children come first
        item = items[owner][index]
        written[owner] = item.cost + sum(written[child] for child in item.children)
    return frozenset(owner for owner, least in written.items() if least * _SHORT <= items[owner][0].cost)


def _stored_bytes(egraph: EGraph, eclass: EClass, sizes: Sizes) -> int:
    """The bytes that a constant class takes when it is stored."""
    for node in eclass.nodes:
        if node.op == CONST:
            return egraph.constants[str(node.attrs["key"])].nbytes
    return sizes.nbytes(eclass.type)


def _pricer(operands: Sequence[Operand], cost_model: CostModel, sizes: Sizes) -> Callable[[ENode, ValueType], float]:
    """The price of a node, remembered by operator, attributes and what is known of its operands."""
    numbers: dict[Operand, int] = {}
    number = [numbers.setdefault(operand, len(numbers)) for operand in operands]
    known: dict[tuple[str, str, tuple[int, ...], ValueType], float] = {}

    def priced(node: ENode, result: ValueType) -> float:
        args = tuple(ABSENT if child == ABSENT else number[child] for child in node.children)
        key = (node.op, node.attrs.text, args, result)
        cost = known.get(key)
        if cost is None:
            given = [None if child == ABSENT else operands[child] for child in node.children]
            cost = known[key] = cost_model.price(node.op, node.attrs, given, result, sizes)
        return cost

    return priced


def evaluable(egraph: EGraph) -> dict[int, ENode]:
    """For each constant class that can be evaluated, the node at the head of its smallest derivation (counted in nodes;
    original ones first among equals)."""
    values: dict[int, ENode] = {}
    for owner, eclass in enumerate(egraph.classes):
        if eclass.constant:
            values.update((owner, node) for node in eclass.nodes if node.op == CONST)
    items: dict[int, list[Item]] = {}
    nodes: dict[int, list[ENode]] = {}
    for owner, eclass in enumerate(egraph.classes):
        if eclass.constant and owner not in values:
            items[owner], nodes[owner] = [], []
            for node in eclass.nodes:
                kids = tuple(sorted({child for child in node.children if child != ABSENT and child not in values}))
                rank = 0 if node.rule is None else 1
                if all(egraph.classes[child].constant for child in kids):
                    items[owner].append(Item(1 + 1e-6 * rank, kids, rank, 0))
                    nodes[owner].append(node)
    chosen = by_trees(items, lambda owner, index: items[owner][index].cost)
    values.update((owner, nodes[owner][index]) for owner, index in chosen.items())
    return values
