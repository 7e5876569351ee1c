"""What the runtime fuses, as further nodes of an extraction problem: a group of e-nodes that costs what its one kernel
does, in the place of its nodes one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from superopt.cost import CostModel
from superopt.costs.grouping import egraph_groups
from superopt.costs.operands import Operand
from superopt.engine.eclasses import EGraph
from superopt.extraction.layouts import Layouts
from superopt.workload import Sizes


@dataclass(frozen=True)
class Fused:
    """A group in an e-graph: the class of its result, its e-nodes (class and place in it, the result's last), the
    classes that it is computed from, and its price."""

    owner: int
    inside: tuple[tuple[int, int], ...]
    given: tuple[int, ...]
    cost: float


def fused(
    egraph: EGraph, cost_model: CostModel, operands: Sequence[Operand], sizes: Sizes, layouts: Layouts
) -> Iterator[Fused]:
    """Every group of an e-graph that the cost model's runtime makes one operator of, in order of the classes."""
    for owner, group in egraph_groups(egraph, cost_model.fusions, operands):
        cost = cost_model.fused(group, sizes)[0] + layouts.of_group(owner, group)
        inside = tuple(member.key for member in group.match.inside.values())
        yield Fused(owner, inside, tuple(group.operands), cost)
