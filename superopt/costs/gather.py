"""The distinct operator instances of a graph, or of a saturated e-graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from superopt.costs.fusions import Fusions
from superopt.costs.grouping import egraph_groups, groups
from superopt.costs.instances import OperatorInstance, instance_of, single
from superopt.costs.layout import WAYS, conversion_instance, conversions, layout
from superopt.costs.model import FREE
from superopt.costs.operands import Operand, content_of
from superopt.engine.eclasses import EGraph
from superopt.terms import ABSENT, CONST, OPAQUE, TermGraph
from superopt.workload import Sizes


def graph_instances(
    graph: TermGraph, operands: Sequence[Operand], sizes: Sizes, fusions: Fusions, block: int = 0
) -> dict[str, OperatorInstance]:
    """The instances of a graph's operators that run, by key; those that the runtime fuses as one; and the conversions
    into a layout of blocks of so many channels (0: there is none). ``operands`` are what its nodes are as arguments.
    What has a type that is not known is left out."""
    found: dict[str, OperatorInstance] = {}
    fused = groups(graph, fusions, operands)
    inside = {place for group in fused.values() for place in group.parts}
    for index, node in enumerate(graph.nodes):
        if node.op in FREE or operands[index].constant or (index in inside and index not in fused):
            continue
        if index in fused:
            instance = instance_of(fused[index].parts, fused[index].operands, sizes)
        else:
            given = [None if arg == ABSENT else operands[arg] for arg in node.args]
            opaque = graph.opaque.get(str(node.attrs["key"])) if node.op == OPAQUE else None
            instance = single(node.op, node.attrs, given, graph.types[index], sizes, opaque)
        if instance is not None:
            found.setdefault(instance.key, instance)
    following = {place for group in fused.values() if group.follows for place in group.parts}
    for conversion in conversions(graph, operands, following, sizes, block).conversions:
        instance = conversion_instance(conversion.way, conversion.value, sizes, block)
        if instance is not None:
            found.setdefault(instance.key, instance)
    return found


def class_operands(egraph: EGraph) -> list[Operand]:
    """What each class of an e-graph is as an argument."""
    return [
        Operand(
            eclass.type,
            eclass.constant,
            next((content_of(egraph.constants[str(n.attrs["key"])]) for n in eclass.nodes if n.op == CONST), ""),
        )
        for eclass in egraph.classes
    ]


def egraph_instances(
    egraph: EGraph, sizes: Mapping[str, int], fusions: Fusions, block: int = 0
) -> dict[str, OperatorInstance]:
    """The instances of all e-nodes that may run, and of what the runtime makes of several, by key; and the conversions
    of every class into a layout of blocks of so many channels, and out of it (0: there is none), where any operator
    works in blocks."""
    found: dict[str, OperatorInstance] = {}
    operands, nominal = class_operands(egraph), Sizes(dict(sizes))
    converts = any(
        layout(node.op, node.attrs, given, eclass.type, nominal, block) in ("blocked", "opens")
        for eclass in egraph.classes
        for node in eclass.nodes
        if not (node.op in FREE or eclass.constant)
        for given in [[None if child == ABSENT else operands[child] for child in node.children]]
    )
    for eclass in egraph.classes:
        if eclass.constant:
            continue
        for way in WAYS if converts else ():
            instance = conversion_instance(way, eclass.type, nominal, block)
            if instance is not None:
                found.setdefault(instance.key, instance)
        for node in eclass.nodes:
            if node.op in FREE:
                continue
            given = [None if child == ABSENT else operands[child] for child in node.children]
            opaque = egraph.opaque.get(str(node.attrs["key"])) if node.op == OPAQUE else None
            instance = single(node.op, node.attrs, given, eclass.type, nominal, opaque)
            if instance is not None:
                found.setdefault(instance.key, instance)
    for _, group in egraph_groups(egraph, fusions, operands):
        instance = instance_of(group.parts, group.operands, nominal)
        if instance is not None:
            found.setdefault(instance.key, instance)
    return found
