"""Sums written so that the runtime does not lose by what it fuses.

It makes one kernel of an Add and the normalization after it, slower than the two, and does not ask whether it gains; a
Sum it does not know there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from superopt.cost import CostModel, constant_nodes, graph_cost, operands_of
from superopt.costs.grouping import groups
from superopt.engine.eclasses import EGraph, ENode
from superopt.extraction import Extraction
from superopt.terms import Node


def respelled(extraction: Extraction, egraph: EGraph, cost_model: CostModel, sizes: Mapping[str, int]) -> Extraction:
    """The choice with Adds that are part of what is fused written as Sums, where rules have made these of the same
    class, form by form wherever the whole costs less then. Extraction itself takes what is fused for an offer."""
    graph = extraction.graph
    found: dict[str, dict[int, ENode]] = {}
    for group in groups(graph, cost_model.fusions, operands_of(graph, constant_nodes(graph))).values():
        for place, part in group.parts.items():
            other = _sum(graph.nodes[place], place, extraction, egraph) if part.op == "Add" else None
            if other is not None:
                found.setdefault(group.match.fusion.rule.name, {})[place] = other
    if not found:
        return extraction
    rules, least = Counter(extraction.rules_used), graph_cost(graph, cost_model, sizes).total
    for others in found.values():
        nodes = list(graph.nodes)
        for place, other in others.items():
            nodes[place] = Node(other.op, nodes[place].args, other.attrs)
        tried = replace(graph, nodes=tuple(nodes))
        cost = graph_cost(tried, cost_model, sizes).total
        if cost < least:
            graph, least = tried, cost
            rules.update(other.rule for other in others.values() if other.rule is not None)
    return replace(extraction, graph=graph, rules_used=dict(sorted(rules.items())))


def _sum(node: Node, place: int, extraction: Extraction, egraph: EGraph) -> ENode | None:
    """The Sum of the same terms in the class of an Add."""
    children = sorted(extraction.classes[arg] for arg in node.args)
    members = egraph.classes[extraction.classes[place]].nodes
    return next((other for other in members if other.op == "Sum" and sorted(other.children) == children), None)
