"""Groups of nodes, of a graph or of an e-graph, that a runtime makes one operator of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from superopt.costs.fusions import ClassNode, FusionMatch, Fusions, found_at
from superopt.costs.instances import InstanceNode
from superopt.costs.model import Group
from superopt.costs.operands import Operand
from superopt.engine.eclasses import EGraph
from superopt.terms import ABSENT, CONST, INPUT, TermGraph, ValueType
from superopt.values import Value


class GraphSpace:
    """A graph as forms are looked for in it: every node is a class of its own."""

    def __init__(self, graph: TermGraph, constant: Sequence[bool]) -> None:
        self.graph = graph
        self.constant = constant

    def members(self, place: int) -> Sequence[ClassNode]:
        """The node, if it runs."""
        node = self.graph.nodes[place]
        if self.constant[place] or node.op in (INPUT, CONST):
            return ()
        return (ClassNode((place, 0), node.op, node.args, node.attrs),)

    def value(self, place: int) -> Value:
        """What is known of a node."""
        return self._values[place]

    @cached_property
    def _values(self) -> list[Value]:
        graph = self.graph
        loads = [graph.constants[str(node.attrs["key"])].load if node.op == CONST else None for node in graph.nodes]
        return [Value(*known) for known in zip(graph.types, self.constant, loads, strict=True)]


def groups(graph: TermGraph, fusions: Fusions, operands: Sequence[Operand]) -> dict[int, Group]:
    """What a runtime fuses of a graph, by the node that makes the result. Outer forms are looked for first, and a value
    inside a group is not used outside of it."""
    if not fusions.forms:
        return {}
    space = GraphSpace(graph, [operand.constant for operand in operands])
    users: list[set[int]] = [set() for _ in graph.nodes]
    for index, node in enumerate(graph.nodes):
        for arg in node.args:
            if arg != ABSENT:
                users[arg].add(index)
    roots = set(graph.roots)
    found: dict[int, Group] = {}
    taken: set[int] = set()
    for index in reversed(range(len(graph.nodes))):
        if index in taken:
            continue
        match = next(
            (
                match
                for fusion in fusions.by_root.get(graph.nodes[index].op, ())
                for match in found_at(fusion, index, space)
                if taken.isdisjoint(match.inside)
                and all(
                    place not in roots and users[place] <= match.inside.keys()
                    for place in match.inside
                    if place != index
                )
            ),
            None,
        )
        if match is not None:
            taken.update(match.inside)
            found[index] = group_of(match, graph.types, operands)
    return found


class EGraphSpace:
    """An e-graph as forms are looked for in it."""

    def __init__(self, egraph: EGraph) -> None:
        self.egraph = egraph

    def members(self, place: int) -> Sequence[ClassNode]:
        """The e-nodes of a class that run."""
        return self._members[place]

    def value(self, place: int) -> Value:
        """What is known of a class."""
        return self._values[place]

    @cached_property
    def _members(self) -> list[tuple[ClassNode, ...]]:
        return [
            ()
            if eclass.constant
            else tuple(
                ClassNode((place, index), node.op, node.children, node.attrs) for index, node in enumerate(eclass.nodes)
            )
            for place, eclass in enumerate(self.egraph.classes)
        ]

    @cached_property
    def _values(self) -> list[Value]:
        loads = [
            next((self.egraph.constants[str(n.attrs["key"])].load for n in eclass.nodes if n.op == CONST), None)
            for eclass in self.egraph.classes
        ]
        return [
            Value(eclass.type, eclass.constant, load) for eclass, load in zip(self.egraph.classes, loads, strict=True)
        ]


def egraph_groups(egraph: EGraph, fusions: Fusions, operands: Sequence[Operand]) -> Iterator[tuple[int, Group]]:
    """Every group of an e-graph that a runtime would make one operator of, with the class of its result, in order of
    the classes."""
    if not fusions.forms:
        return
    space, types = EGraphSpace(egraph), [eclass.type for eclass in egraph.classes]
    present = {node.op for eclass in egraph.classes if not eclass.constant for node in eclass.nodes}
    # Looking for a form of several products takes long where they stand in every order; in vain if no Tanh is there.
    for owner, eclass in enumerate(egraph.classes):
        if eclass.constant:
            continue
        seen: set[tuple[tuple[int, int], ...]] = set()
        for op in dict.fromkeys(node.op for node in eclass.nodes):
            for fusion in fusions.by_root.get(op, ()):
                for match in found_at(fusion, owner, space) if fusion.operators <= present else ():
                    key = tuple(sorted(member.key for member in match.inside.values()))
                    if key not in seen and not _has_cycle(match.inside):  # the first form that fits
                        seen.add(key)
                        yield owner, group_of(match, types, operands)


def group_of(match: FusionMatch, types: Sequence[ValueType], operands: Sequence[Operand]) -> Group:
    """The group of a match; types and operands are those of the classes, by number."""
    inside = _in_order(match.inside)
    parts = {
        place: InstanceNode(
            member.op, member.attrs, tuple(None if arg == ABSENT else arg for arg in member.args), types[place]
        )
        for place, member in inside.items()
    }
    given = {
        arg: operands[arg] for member in inside.values() for arg in member.args if arg != ABSENT and arg not in parts
    }
    return Group(match, parts, given)


def _has_cycle(inside: Mapping[int, ClassNode]) -> bool:
    """Whether members need each other: in an e-graph they may (where a class needs itself), and are then no group."""
    try:
        TopologicalSorter(
            {place: [a for a in member.args if a in inside] for place, member in inside.items()}
        ).prepare()
    except CycleError:
        return True
    return False


def _in_order(inside: Mapping[int, ClassNode]) -> dict[int, ClassNode]:
    """Arguments before what uses them."""
    ordered: dict[int, ClassNode] = {}

    def add(place: int) -> None:
        if place in ordered:
            return
        for arg in inside[place].args:
            if arg in inside:
                add(arg)
        ordered[place] = inside[place]

    for place in inside:
        add(place)
    return ordered
