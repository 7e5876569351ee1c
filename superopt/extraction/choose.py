"""Chooses terms from an e-graph: solves the extraction problem that it is, and builds the graph that was chosen."""

from __future__ import annotations

import gc
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from superopt.cost import CostModel
from superopt.engine.eclasses import EGraph, ENode
from superopt.errors import EGraphError
from superopt.extraction.pricing import Priced, banned, cautious, evaluable, price
from superopt.extraction.problem import Choice
from superopt.extraction.solve import DEFAULT_EFFORT, Solution, Status, solve
from superopt.extraction.whole import originals, spread
from superopt.terms import ABSENT, CONST, Node, TermGraph, ValueType
from superopt.workload import Sizes


@dataclass(frozen=True)
class Extraction:
    """What was chosen.

    ``runtime`` are the constant nodes of ``graph`` that stay nodes; every other constant node is to be evaluated.
    ``cost`` is in the cost model's unit and includes ``constant_bytes`` at the price of a byte; ``running`` leaves them
    out. ``bound`` is a proven lower bound of ``cost``. ``rules_used`` counts, by rule, the chosen nodes that it made;
    ``classes`` tells the class of each node; ``chosen`` are the problem's nodes that run, to compare with another
    extraction of the same ``Extractor``.
    """

    graph: TermGraph
    runtime: frozenset[int]
    cost: float
    bound: float
    gap: float
    status: Status
    seconds: float
    running: float
    constant_bytes: int
    byte_price: float
    rules_used: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[int, ...] = ()
    chosen: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Extractor:
    """Extracts from one e-graph under one cost model, as often as is asked for; what that needs is found out once.

    ``byte_price`` is for each byte of a constant (the cost model's own by default), ``sizes`` are what symbolic
    dimensions are priced at.
    """

    egraph: EGraph
    cost_model: CostModel
    byte_price: float | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def paid(self) -> float:
        """The price of a byte."""
        return self.cost_model.constant_byte if self.byte_price is None else self.byte_price

    @cached_property
    def values(self) -> Mapping[int, ENode]:
        """The nodes that constant classes are evaluated by."""
        return evaluable(self.egraph)

    @cached_property
    def priced(self) -> Priced:
        """The extraction problem."""
        return price(self.egraph, self.cost_model, self.paid, Sizes(dict(self.sizes)), self.values)

    def extract(
        self,
        *,
        caution: float = 0.0,
        without: Collection[str] = (),
        effort: float = DEFAULT_EFFORT,
        seconds: float | None = None,
    ) -> Extraction:
        """The cheapest graph, as the function ``extract`` says; without the nodes that some rules made."""
        # Many small records are made here, none of them in cycles: looking for cycles takes a quarter of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            priced = self.priced
            solution = solve(banned(cautious(priced, caution), without).problem, effort, seconds)
            if spread(priced, solution.choice) is None:
                # Two groups have different nodes inside for one class, and each would have to come before the other.
                priced = priced.apart
                solution = solve(banned(cautious(priced, caution), without).problem, effort, seconds)
            return _built(self.egraph, priced, self.values, solution, self.paid, caution)
        finally:
            if collecting:
                gc.enable()


def extract(
    egraph: EGraph,
    cost_model: CostModel,
    *,
    byte_price: float | None = None,
    caution: float = 0.0,
    sizes: Mapping[str, int] | None = None,
    effort: float = DEFAULT_EFFORT,
    seconds: float | None = None,
) -> Extraction:
    """The cheapest graph in an e-graph, shared nodes paid once; never dearer than the original, original nodes first
    among equals.

    ``byte_price`` and ``sizes`` are those of ``Extractor``. Nodes that rules made are taken for dearer by the fraction
    ``caution``, so that only what gains more than that is changed; the result's costs are the true ones. ``effort`` is
    counted, so that runs repeat; ``seconds`` is by the clock. Raises ``EGraphError`` where a root cannot be computed.
    """
    extractor = Extractor(egraph, cost_model, byte_price, dict(sizes or {}))
    return extractor.extract(caution=caution, effort=effort, seconds=seconds)


def _built(
    egraph: EGraph, priced: Priced, values: Mapping[int, ENode], solution: Solution, byte_price: float, caution: float
) -> Extraction:
    costs = priced.problem.costs
    choice = replace(solution.choice, cost=math.fsum(costs[index] for index in solution.choice.node.values()))
    for original in originals(priced):
        if original.cost <= choice.cost:
            choice = original
    # No node is dearer by more than the caution: nor is any choice.
    bound = min(solution.bound / (1 + caution), choice.cost)
    builder = _Builder(egraph, priced, values, choice)
    graph, runtime = builder.graph()
    constant_bytes = sum(priced.stored[index] for index in choice.node.values())
    gap = 0.0 if choice.cost <= 0 else (choice.cost - bound) / choice.cost
    return Extraction(
        graph=graph, runtime=runtime, cost=choice.cost, bound=bound, gap=gap,
        status=solution.status, seconds=solution.seconds,
        running=math.fsum(costs[index] for index in choice.node.values() if priced.node[index] is not None),
        constant_bytes=constant_bytes, byte_price=byte_price, rules_used=dict(sorted(builder.rules.items())),
        classes=tuple(builder.owners),
        chosen=frozenset(
            part
            for index in choice.node.values()
            if priced.node[index] is not None
            for part in priced.spread(index)
        ),
    )  # fmt: skip


class _Builder:
    """Builds the graph of a choice: equal nodes once, children first, in the order in which the roots reach them."""

    def __init__(self, egraph: EGraph, priced: Priced, values: Mapping[int, ENode], choice: Choice) -> None:
        self.egraph = egraph
        self.values = values
        running = spread(priced, choice)
        if running is None:
            raise EGraphError("the choice has a cycle")
        self.running = running
        self.nodes: dict[Node, int] = {}
        self.types: list[ValueType] = []
        self.owners: list[int] = []
        self.runtime: set[int] = set()
        self.rules: dict[str, int] = {}

    def graph(self) -> tuple[TermGraph, frozenset[int]]:
        """The graph, and its constant nodes that are left to run."""
        # A class is computed when the model runs (True), or evaluated on the way to a constant (False).
        place: dict[tuple[int, bool], int] = {}
        for root in self.egraph.roots:
            stack = [(root, True)]
            while stack:
                top = stack[-1]
                if top in place:
                    stack.pop()
                    continue
                owner, runs = top
                node = self.running[owner] if runs else None
                runs = node is not None
                if node is None:
                    node = self.values[owner]
                waiting = [(c, runs) for c in node.children if c != ABSENT and (c, runs) not in place]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                stack.pop()
                args = tuple(ABSENT if child == ABSENT else place[child, runs] for child in node.children)
                place[top] = self._add(node, args, owner, runs)
        nodes = tuple(self.nodes)
        constants = {str(node.attrs["key"]) for node in nodes if node.op == CONST}
        opaque = {str(node.attrs["key"]) for node in nodes if node.op == "Opaque"}
        built = TermGraph(
            nodes, tuple(self.types), tuple(place[root, True] for root in self.egraph.roots),
            {key: constant for key, constant in self.egraph.constants.items() if key in constants},
            {key: operator for key, operator in self.egraph.opaque.items() if key in opaque},
        )  # fmt: skip
        return built, frozenset(self.runtime)

    def _add(self, node: ENode, args: tuple[int, ...], owner: int, runs: bool) -> int:
        made = Node(node.op, args, node.attrs)
        index = self.nodes.get(made)
        if index is None:
            index = self.nodes[made] = len(self.nodes)
            eclass = self.egraph.classes[owner]
            stored = self.egraph.constants.get(str(node.attrs.get("key"))) if node.op == CONST else None
            self.types.append(eclass.type if stored is None else stored.type)
            self.owners.append(owner)
            if node.rule is not None:
                self.rules[node.rule] = self.rules.get(node.rule, 0) + 1
        if runs and node.op != CONST and self.egraph.classes[owner].constant:
            self.runtime.add(index)
        return index
