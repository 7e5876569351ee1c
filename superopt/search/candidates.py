"""From rules to a candidate: saturate, choose, make the weights, write the model; and choose again where it grew too
much."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from superopt.cost import CostModel, graph_cost
from superopt.emitting.correspondence import same_values
from superopt.emitting.emit import emit
from superopt.engine.eclasses import EGraph, with_joined_types, without_classes
from superopt.engine.saturate import Limits, Saturation, saturate
from superopt.errors import RangeError
from superopt.extraction import Extraction, Extractor, distance, extract, several
from superopt.lowering.lower import Lowered
from superopt.models.byte_counts import model_bytes, stored_bytes
from superopt.models.model import Model
from superopt.numeric import bits_of_packing, materialize
from superopt.options import Options
from superopt.progress import Clock
from superopt.rules import RuleSet
from superopt.search.kept import Kept, with_groups_kept
from superopt.search.spelling import respelled
from superopt.terms import TermGraph, ValueType

_BYTE_STEP = 4.0
_STEPS = 20
"""The price of a byte is raised in this many steps by this factor, around the price at which all bytes of the chosen
model cost as much as running it: from where bytes hardly count to where nothing else does."""


_LEAST_SECONDS = 0.5
"""What an extraction may take when the time is over: something has to be chosen."""


_AFTERWARDS = 3.5
"""What reading out, extracting from, writing and pricing an e-graph takes for each of its nodes, beside what lowering
took for each node of the model (2.3 to 3 on a made-up network of 10,000 nodes); and the same of weights."""


_A_NODE = 5e-4
"""Seconds that lowering a node takes at most (0.15 to 0.2 ms on one core of a server). What it took beyond that was
reading the weights, and the nodes that rules make have none to read."""


_TO_BEGIN = 0.8
"""Seconds that adding the rules to the engine takes, about: with less there is no use in beginning."""


CAUTION = 0.25
"""How much of a gain a second opinion asks for before it changes anything."""


_EFFORT = 3.0
"""How hard extraction tries to prove its choice optimal, in the units of ``extract``: some seconds on a graph that
resists. What is left open then is a gap of a few percent by a cost model that is less exact than that."""


_ALIKE = 1e-9
"""By what share sums of the same prices may differ."""

_MOST_UNFIT = 8
"""How often a choice is made again without constants that do not fit their types."""


class _UnfitError(RangeError):
    """Constants that do not fit their types; ``terms`` are their classes in the e-graph."""


@dataclass(frozen=True)
class Found:
    """A model that was found, and how. ``graph`` is what it computes; its ``bytes`` are those of all its files;
    ``bodies`` are the searches in its subgraphs."""

    name: str
    model: Model
    graph: TermGraph
    extraction: Extraction
    bytes: int
    bodies: tuple[BodyRun, ...] = ()

    @property
    def text(self) -> str:
        """What it computes, in its bodies too: equal for equal models."""
        return "\n".join([self.graph.text(), *(run.found.text for run in self.bodies if run.found is not None)])

    @property
    def rules_used(self) -> tuple[str, ...]:
        """The rules that made what was chosen, each once."""
        inner = [run.found.rules_used for run in self.bodies if run.found is not None]
        return tuple(dict.fromkeys(rule for rules in (self.extraction.rules_used, *inner) for rule in rules))


@dataclass(frozen=True)
class BodyRun:
    """A body that was searched, and what was found for it."""

    search: Search
    saturation: Saturation
    found: Found | None

    @property
    def better(self) -> Model | None:
        """The body as it is to be; None where that is as it was."""
        if self.found is None or (self.found.model is self.search.lowered.model and not self.search.ahead):
            return None
        return self.found.model


@dataclass(frozen=True)
class Search:
    """What stays the same while a model is searched for, under whatever rules. ``lowered`` is where the search starts:
    the ``original``, or what it was prepared to, which is ``ahead`` where that is better already. ``sizes`` are what
    symbolic dimensions are priced at, ``deadline`` is when the time that the user gave ends (by
    ``time.perf_counter``), ``place`` is the way to the body that is searched, empty for a main graph."""

    original: Model
    lowered: Lowered
    graph: TermGraph
    options: Options
    clock: Clock
    sizes: Mapping[str, int]
    deadline: float | None
    ahead: bool = False
    place: str = ""
    _before: dict[tuple[str, tuple[ValueType, ...]], float] = field(default_factory=dict, init=False, repr=False)
    _kept: dict[str, tuple[EGraph, Kept]] = field(default_factory=dict, init=False, repr=False)

    @property
    def limits(self) -> Limits:
        """The limits that the options ask for, with what is left of the time."""
        limits = limits_of(self.options.limit)
        if self.deadline is None:
            return limits
        return replace(limits, seconds=max(0.0, self._left(0.0) - self._weights), reserve=self._reserve)

    @property
    def out_of_time(self) -> bool:
        """Whether the time that the user gave does not even allow for the e-graph of the model as it is."""
        if self.deadline is None:
            return False
        return self._left(0.0) <= self._weights + self._reserve * len(self.graph.nodes) + _TO_BEGIN

    def saturate(self, rules: RuleSet, *, count_classes: bool = False) -> Saturation:
        """The saturated e-graph under these rules; with its e-classes by iteration where that is asked for."""
        with self.clock.stage("saturate"):
            return saturate(self.graph, rules, self.limits, self.lowered.model.opset, count_classes=count_classes)

    def price(self, found: Found, cost_model: CostModel) -> float:
        """What running a model costs, by any cost model."""
        inner = (run.search.price(run.found, cost_model) for run in found.bodies if run.found is not None)
        return self._running(found.graph, cost_model) + sum(inner)

    def choose(self, saturation: Saturation, cost_model: CostModel) -> Found | None:
        """The cheapest model that has grown no more than allowed, bodies left as they are; it may be the same model.

        None where every model has grown too much. What needs a constant beyond the range of its type is chosen again
        without that. Raises RangeError where it needs others again and again.
        """
        for _ in range(_MOST_UNFIT):
            try:
                return self._choose(saturation, cost_model)
            except _UnfitError as error:
                saturation = replace(saturation, egraph=without_classes(saturation.egraph, error.terms))
        return self._choose(saturation, cost_model)

    def _choose(self, saturation: Saturation, cost_model: CostModel) -> Found | None:
        kept = self.extractable(saturation.egraph, cost_model)
        extraction = self._extract(kept, cost_model, None)
        found = self.within_bounds(saturation, cost_model, extraction)
        if found is not None:
            return None if self._lost_a_fusion(found, saturation, cost_model) else found
        even = extraction.running / max(1, self.original_bytes) if extraction.running > 0 else 1.0

        def at(step: int) -> Found | None:
            price = even * _BYTE_STEP ** (step - _STEPS // 2)
            return self.within_bounds(saturation, cost_model, self._extract(kept, cost_model, price))

        small = _first(at, _STEPS)
        # Where bytes were expensive, the smallest model may be one that is slower than the original.
        slower = small is not None and self._running(small.graph, cost_model) > self.before(saturation, cost_model)
        return None if slower else small

    def _lost_a_fusion(self, found: Found, saturation: Saturation, cost_model: CostModel) -> bool:
        """Whether the cost model alone decides, and prices what was found above the original: what looked cheaper node
        by node may share with others what the runtime would have fused."""
        if self.options.select != "modelled":
            return False
        return self._running(found.graph, cost_model) > self.before(saturation, cost_model) * (1 + _ALIKE)

    def before(self, saturation: Saturation | None, cost_model: CostModel) -> float:
        """What running the graph costs before any rule, bodies apart, with all that an e-graph knows of its types. It
        is computed once."""
        graph = with_joined_types(self.graph, saturation.egraph) if saturation else self.graph
        key = (cost_model.hash, graph.types)
        if key not in self._before:
            self._before[key] = self._running(graph, cost_model)
        return self._before[key]

    def _running(self, graph: TermGraph, cost_model: CostModel) -> float:
        return graph_cost(graph, cost_model, self.sizes).total

    @property
    def original_bytes(self) -> int:
        """The bytes of the original, in all its files."""
        return model_bytes(self.original)

    @property
    def allowed_bytes(self) -> float:
        """The bytes that a result may have."""
        return self.original_bytes + self._allowed_growth

    @property
    def _allowed_growth(self) -> float:
        growth = self.options.max_growth
        return float("inf") if growth is None else self.original_bytes * growth

    def fits(self, model: Model, size: int) -> bool:
        """Whether a model of this size has grown no more than allowed.

        In a tiny model a longer name is growth of some percent, and so are attributes that it left at their defaults:
        it fits too where its tensors alone have not grown.
        """
        if size <= self.allowed_bytes:
            return True
        return stored_bytes(model) - stored_bytes(self.original) <= self._allowed_growth

    def alternatives(
        self, saturation: Saturation, cost_model: CostModel, first: Extraction, count: int, seconds: float
    ) -> list[Extraction]:
        """Other choices than the first at the same price of a byte, to be measured, at most so many: one with caution,
        and the best that do without what some rule made. Each two differ in as many nodes as the options ask for."""
        kept = self.extractable(saturation.egraph, cost_model)
        extractor = Extractor(kept.egraph, cost_model, first.byte_price, self.sizes)
        differ, effort, end = self.options.differ, _EFFORT / 4, time.perf_counter() + seconds
        with self.clock.stage("propose"):
            careful = extractor.extract(caution=CAUTION, effort=effort, seconds=seconds)
            found = [careful] if distance(careful, first) >= differ else []
            left = end - time.perf_counter()
            if len(found) < count and left > 0:
                known = [first, *found]
                found += several(extractor, count - len(found), kept=known, differ=differ, effort=effort, seconds=left)
        return [self._settled(extraction, kept, cost_model) for extraction in found]

    def within_bounds(self, saturation: Saturation, cost_model: CostModel, extraction: Extraction) -> Found | None:
        """The model of what was chosen, if it has not grown too much. Weights are made only where that may be."""
        allowed = self.allowed_bytes
        if extraction.constant_bytes > allowed:
            return None
        found = self._made(saturation, extraction, cost_model)
        return found if self.fits(found.model, found.bytes) else None

    def extractable(self, egraph: EGraph, cost_model: CostModel) -> Kept:
        """The e-graph as a model is chosen from it: what the cost model's runtime fuses of the original can be chosen
        as it stands. It is made once for the e-graph that each cost model chooses from, and proposes from again."""
        known = self._kept.get(cost_model.hash)
        if known is None or known[0] is not egraph:
            known = self._kept[cost_model.hash] = egraph, with_groups_kept(egraph, self.graph, cost_model.fusions)
        return known[1]

    def _extract(self, kept: Kept, cost_model: CostModel, byte_price: float | None) -> Extraction:
        effort = _EFFORT if byte_price is None else _EFFORT / 4
        with self.clock.stage("extract"):
            extraction = extract(
                kept.egraph,
                cost_model,
                byte_price=byte_price,
                sizes=self.sizes,
                effort=effort,
                seconds=self._time_to_extract(kept.egraph.size),
            )
        return self._settled(extraction, kept, cost_model)

    def _settled(self, extraction: Extraction, kept: Kept, cost_model: CostModel) -> Extraction:
        """A choice from what is extractable as one of the saturated e-graph, as the runtime had best read it."""
        plain = replace(extraction, classes=kept.classes(extraction.classes))
        return respelled(plain, kept.egraph, cost_model, self.sizes)

    def _made(self, saturation: Saturation, extraction: Extraction, cost_model: CostModel) -> Found:
        egraph = saturation.egraph
        own = frozenset(
            term
            for term, number in enumerate(extraction.classes)
            if any(node.original is not None for node in egraph.classes[number].nodes)
        )
        with self.clock.stage("materialize"):
            try:
                kept = bits_of_packing(extraction.graph) if self.options.numeric == "exact" else frozenset()
                graph = materialize(extraction.graph, extraction.runtime | kept, self.lowered.model.proto, own)
            except RangeError as error:
                classes = tuple(dict.fromkeys(extraction.classes[term] for term in error.terms))
                raise _UnfitError(str(error), classes) from error
        with self.clock.stage("emit"):
            same = same_values(
                self.lowered.graph, self.graph, egraph.class_of, extraction.graph, extraction.classes, graph
            )
            model = emit(self.lowered, graph, same)
        return Found(cost_model.name, model, graph, extraction, model_bytes(model))

    def _time_to_extract(self, size: int) -> float | None:
        """What is left for an extraction: about half of what was kept back is for what comes after it."""
        if self.deadline is None:
            return None
        return max(_LEAST_SECONDS, self._left(0.0) - (self._weights + self._reserve * size) / 2)

    @property
    def _reserve(self) -> float:
        """The seconds that are kept for each e-node."""
        return _AFTERWARDS * min(_A_NODE, self.clock.seconds.get("lower", 0.0) / max(1, len(self.graph.nodes)))

    @property
    def _weights(self) -> float:
        """The seconds that are kept for weights."""
        return max(0.0, _AFTERWARDS * self.clock.seconds.get("lower", 0.0) - self._reserve * len(self.graph.nodes))

    def _left(self, least: float) -> float:
        return max(least, (self.deadline or 0.0) - time.perf_counter())


def limits_of(given: Mapping[str, int | float]) -> Limits:
    """Limits of saturation, with their defaults where none is given."""
    usual = Limits()
    nodes = given.get("nodes", usual.nodes)
    return Limits(
        nodes=None if nodes is None else int(nodes),
        iterations=int(given.get("iterations", usual.iterations)),
        seconds=given.get("seconds", usual.seconds),
    )


def _first(found_at: Callable[[int], Found | None], steps: int) -> Found | None:
    """What is found at the first step, from 0, where anything is; it is found at every later step too."""
    best = found_at(steps)
    low, high = 0, steps
    while best is not None and low < high:
        middle = (low + high) // 2
        found = found_at(middle)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best
