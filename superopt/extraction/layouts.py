"""What conversions between a runtime's layouts add to the prices of an e-graph's nodes."""

from __future__ import annotations

from collections.abc import Sequence

from superopt.cost import CostModel, Operand
from superopt.costs.layout import Layout, Way
from superopt.costs.model import Group
from superopt.engine.eclasses import EClass, EGraph, ENode
from superopt.terms import ABSENT, CONST, INPUT, PROJECT
from superopt.workload import Sizes


class Layouts:
    """In which layout each class of an e-graph is taken to be: the runtime's own wherever a node can make it so.

    A node pays for the conversions of what it takes from classes in the other layout, and for that of its result where
    its class is in the other one; results of the graph are in the plain one. A tensor that several nodes need converted
    is paid at each, which the runtime does once: nodes of an e-graph do not know each other.
    """

    def __init__(self, egraph: EGraph, cost_model: CostModel, operands: Sequence[Operand], sizes: Sizes) -> None:
        self.egraph, self.cost_model, self.operands, self.sizes = egraph, cost_model, operands, sizes
        self.own = [False] * len(egraph.classes)
        if not cost_model.block:
            return
        following: list[tuple[int, ENode]] = []
        for owner, eclass in enumerate(egraph.classes):
            for node in eclass.nodes if not eclass.constant else ():
                how = self._of(node, eclass)
                self.own[owner] = self.own[owner] or how in ("blocked", "opens")
                if how == "follows":
                    following.append((owner, node))
        waiting = True
        while waiting:
            now = [owner for owner, node in following if not self.own[owner] and self._all_own(node.children)]
            for owner in now:
                self.own[owner] = True
            waiting = bool(now)
        for root in egraph.roots:
            self.own[root] = False

    def of_node(self, owner: int, node: ENode) -> float:
        """What a node pays for conversions."""
        if not self.cost_model.block or node.op in (INPUT, CONST):
            return 0.0
        if node.op == PROJECT:
            # Its node has paid for what it takes; no operator with several results makes them in blocks.
            return self._converted(owner, into=True) if self.own[owner] else 0.0
        return self._paid(self._of(node, self.egraph.classes[owner]), owner, node.children)

    def of_group(self, owner: int, group: Group) -> float:
        """What a group of nodes pays for conversions, that the runtime makes one operator of."""
        if not self.cost_model.block:
            return 0.0
        how: Layout = "follows" if group.follows else "plain"
        for part in group.parts.values():
            if part.op == "Conv":
                given = [group.operand(arg) for arg in part.args]
                how = self.cost_model.layout(part.op, part.attrs, given, part.type, self.sizes)
        return self._paid(how, owner, list(group.operands))

    def _of(self, node: ENode, eclass: EClass) -> Layout:
        given = [None if child == ABSENT else self.operands[child] for child in node.children]
        return self.cost_model.layout(node.op, node.attrs, given, eclass.type, self.sizes)

    def _varying(self, children: Sequence[int]) -> list[int]:
        """Distinct tensors that are not constant."""
        return [
            child
            for child in dict.fromkeys(children)
            if child != ABSENT
            and not self.operands[child].constant
            and not isinstance(self.operands[child].type, tuple)
        ]

    def _all_own(self, children: Sequence[int]) -> bool:
        return all(self.own[child] for child in self._varying(children))

    def _paid(self, how: Layout, owner: int, children: Sequence[int]) -> float:
        takes = how == "blocked" or (how == "follows" and self._all_own(children))
        ways = [child for child in self._varying(children) if self.own[child] != takes]
        paid = sum(self._converted(child, into=takes) for child in ways)
        makes = takes or how == "opens"
        if makes != self.own[owner] and not isinstance(self.operands[owner].type, tuple):
            paid += self._converted(owner, into=self.own[owner])
        return paid

    def _converted(self, place: int, *, into: bool) -> float:
        way: Way = "ReorderInput" if into else "ReorderOutput"
        return self.cost_model.converted(way, self.operands[place].type, self.sizes)
