"""Whether a rule fires: on the left side of an instance, the e-graph puts the right side into the left's class."""

from __future__ import annotations

from superopt.engine.eclasses import EGraph
from superopt.engine.saturate import Limits, saturate
from superopt.instantiate import instantiate
from superopt.laws.instances import Instance
from superopt.laws.runtime import opset_of
from superopt.models.tensors import constant_of_array
from superopt.rules import Rule, RuleSet
from superopt.terms import ABSENT, CONST, INPUT, Attrs, Constant, Node, TermGraph, ValueType
from superopt.values import Value

LIMITS = Limits(nodes=2000, iterations=2)


def fires(rule: Rule, instance: Instance) -> bool:
    """Whether one step of this rule alone makes the right side of the instance equal to the left."""
    left = _closed(instance.left, instance)
    right = _closed(instantiate(instance.rule.right, instance.binding, as_stored=True), instance)
    saturation = saturate(left, RuleSet((rule,)), LIMITS, opset_of((left, right)))
    return _holds(saturation.egraph, right)


def _closed(graph: TermGraph, instance: Instance) -> TermGraph:
    """The graph with the variables that the rule wants constant as constants."""
    nodes: list[Node] = []
    types: list[ValueType] = []
    constants: dict[str, Constant] = dict(graph.constants)
    place: list[int] = []
    known: dict[Node, int] = {}
    for node, value_type in zip(graph.nodes, graph.types, strict=True):
        moved = Node(node.op, tuple(ABSENT if arg == ABSENT else place[arg] for arg in node.args), node.attrs)
        if node.op == INPUT:
            name = str(node.attrs["name"])
            value = instance.binding[name]
            if isinstance(value, Value) and value.constant:
                constant = constant_of_array(instance.arrays[name])
                constants[constant.key] = constant
                moved = Node(CONST, (), Attrs.of(key=constant.key))
        if moved not in known:
            known[moved] = len(nodes)
            nodes.append(moved)
            types.append(value_type)
        place.append(known[moved])
    return TermGraph(tuple(nodes), tuple(types), tuple(place[root] for root in graph.roots), constants)


def _holds(egraph: EGraph, right: TermGraph) -> bool:
    """Whether the terms of a graph are in the e-graph, and its roots in the classes of the e-graph's roots."""
    index: dict[tuple[str, tuple[int, ...], Attrs], int] = {}
    for number, eclass in enumerate(egraph.classes):
        index |= {(made.op, made.children, made.attrs): number for made in eclass.nodes}
    classes: list[int | None] = []
    for node in right.nodes:
        children = tuple(ABSENT if arg == ABSENT else classes[arg] for arg in node.args)
        known = [child for child in children if child is not None]
        classes.append(index.get((node.op, tuple(known), node.attrs)) if len(known) == len(children) else None)
    return all(classes[root] == wanted for root, wanted in zip(right.roots, egraph.roots, strict=True))
