"""The distinct operator instances of a graph, or of a saturated e-graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from superopt.costs.instances import Instance, single
from superopt.costs.model import FREE
from superopt.costs.operands import Operand, content_of
from superopt.engine.eclasses import EGraph
from superopt.terms import ABSENT, CONST, OPAQUE, TermGraph
from superopt.workload import Sizes


def graph_instances(graph: TermGraph, operands: Sequence[Operand], sizes: Sizes) -> dict[str, Instance]:
    """The instances of a graph's operators that run, by key, in order; ``operands`` are what its nodes are as
    arguments. What has a type that is not known is left out."""
    found: dict[str, Instance] = {}
    for index, node in enumerate(graph.nodes):
        if node.op in FREE or operands[index].constant:
            continue
        given = [None if arg == ABSENT else operands[arg] for arg in node.args]
        opaque = graph.opaque.get(str(node.attrs["key"])) if node.op == OPAQUE else None
        instance = single(node.op, node.attrs, given, graph.types[index], sizes, opaque)
        if instance is not None:
            found.setdefault(instance.key, instance)
    return found


def class_operands(egraph: EGraph) -> list[Operand]:
    """What each class of an e-graph is as an argument."""
    return [
        Operand(
            eclass.type,
            eclass.constant,
            frozenset(node.op for node in eclass.nodes),
            next((content_of(egraph.constants[str(n.attrs["key"])]) for n in eclass.nodes if n.op == CONST), ""),
        )
        for eclass in egraph.classes
    ]


def egraph_instances(egraph: EGraph, sizes: Mapping[str, int]) -> dict[str, Instance]:
    """The instances of all e-nodes that may run, by key, in order of their classes."""
    found: dict[str, Instance] = {}
    operands, nominal = class_operands(egraph), Sizes(dict(sizes))
    for eclass in egraph.classes:
        if eclass.constant:
            continue
        for node in eclass.nodes:
            if node.op in FREE:
                continue
            given = [None if child == ABSENT else operands[child] for child in node.children]
            opaque = egraph.opaque.get(str(node.attrs["key"])) if node.op == OPAQUE else None
            instance = single(node.op, node.attrs, given, eclass.type, nominal, opaque)
            if instance is not None:
                found.setdefault(instance.key, instance)
    return found
