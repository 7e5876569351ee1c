"""What a runtime fuses in the original, kept whole beside what rules make of its parts.

A scale of ones and a shift of zeros make several terms of a written-out normalization one e-class, of which one node
can be chosen: then the runtime no longer finds its form, and a kernel becomes seven. So such groups stand a second time
in the e-graph that is chosen from, their nodes in classes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from superopt.cost import constant_nodes, operands_of
from superopt.costs.fusions import Fusions
from superopt.costs.grouping import groups
from superopt.engine.eclasses import EClass, EGraph, ENode, with_joined_types
from superopt.terms import ABSENT, TermGraph


@dataclass(frozen=True)
class Kept:
    """An e-graph to choose from, with groups of the original; ``equal`` is by a class that was added for one the class
    that it is equal to."""

    egraph: EGraph
    equal: Mapping[int, int] = field(default_factory=dict)

    def classes(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The classes as they were before any was added."""
        return tuple(self.equal.get(number, number) for number in numbers)


def with_groups_kept(egraph: EGraph, graph: TermGraph, fusions: Fusions) -> Kept:
    """The e-graph of a graph with those groups added that could not be chosen as they stand: where nodes of one class
    follow each other in them, or one has the class of what it is given."""
    known = with_joined_types(graph, egraph)
    found = groups(known, fusions, operands_of(known, constant_nodes(known)))
    added: list[EClass] = []
    more: dict[int, list[ENode]] = {}
    equal: dict[int, int] = {}
    for root, group in found.items():
        own = _own(graph, egraph, list(group.parts))
        for term in own:
            equal[len(egraph.classes) + len(added) + own[term]] = egraph.class_of[term]
        start = len(egraph.classes) + len(added)
        for term in (*own, root) if own else ():
            node = graph.nodes[term]
            children = tuple(
                arg if arg == ABSENT else start + own[arg] if arg in own else egraph.class_of[arg] for arg in node.args
            )
            made = ENode(node.op, children, node.attrs, None, term)
            if term == root:
                more.setdefault(egraph.class_of[root], []).append(made)
            else:
                added.append(EClass((made,), egraph.classes[egraph.class_of[term]].type))
    if not added:
        return Kept(egraph)
    classes = [
        replace(eclass, nodes=(*eclass.nodes, *more[number])) if number in more else eclass
        for number, eclass in enumerate(egraph.classes)
    ]
    return Kept(replace(egraph, classes=(*classes, *added)), equal)


def _own(graph: TermGraph, egraph: EGraph, parts: Sequence[int]) -> dict[int, int]:
    """The terms inside of a group that need classes of their own, counted: those that share theirs with another part or
    with what the group is given, and those that are computed from such. The last part is the result."""
    inside = set(parts)
    given = {arg for part in parts for arg in graph.nodes[part].args if arg != ABSENT and arg not in inside}
    times: dict[int, int] = {}
    for term in (*parts, *given):
        times[egraph.class_of[term]] = times.get(egraph.class_of[term], 0) + 1
    own: dict[int, int] = {}
    for part in parts[:-1]:
        if times[egraph.class_of[part]] > 1 or any(arg in own for arg in graph.nodes[part].args):
            own[part] = len(own)
    return own
