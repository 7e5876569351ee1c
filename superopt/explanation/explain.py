"""From a search and what was found in it to its explanation: steps, verdicts, the smallest set of rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.cost import CostModel
from superopt.emitting.correspondence import replaced_places
from superopt.engine.eclasses import EGraph
from superopt.engine.saturate import Saturation
from superopt.explanation.applications import Applications
from superopt.explanation.cells import LEAVES
from superopt.explanation.constants import ConstantValues
from superopt.explanation.derivation import Derivation, Observer, derive
from superopt.explanation.document import (
    FORMAT,
    Explanation,
    GraphDocument,
    StepDocument,
    ValueNames,
    counts_of,
    folding_document,
    smallest_document,
    step_document,
)
from superopt.explanation.numbering import numbered, same_graph
from superopt.explanation.smallest import Reached, smallest
from superopt.explanation.verdicts import Examiner
from superopt.lowering.lower import Lowered
from superopt.numeric import constant_terms, materialize
from superopt.rules import RuleSet
from superopt.search.candidates import Found, Search
from superopt.terms import CONST, TermGraph
from superopt.version import versions

REMOVING_SECONDS = 45.0
"""How long rules are left out one after another, to find the smallest set of them."""


@dataclass(frozen=True)
class Rewriting:
    """What is to be explained of one graph: the e-graph, and what was chosen in it. ``result`` is the chosen graph with
    its constants computed."""

    search: Search
    saturation: Saturation
    chosen: TermGraph
    classes: tuple[int, ...]
    runtime: frozenset[int]
    result: TermGraph
    goal: Reached


def ways(search: Search, saturation: Saturation, found: Found) -> Iterator[Rewriting]:
    """The ways of a whole model: of its main graph and of the bodies in it that were changed."""
    yield _way(search, saturation, found)
    for run in found.bodies:
        if run.found is not None and run.better is not None:
            yield _way(run.search, run.saturation, run.found)


def _way(search: Search, saturation: Saturation, found: Found) -> Rewriting:
    chosen = found.extraction
    goal = Reached(search, chosen.cost, chosen.byte_price)
    return Rewriting(search, saturation, chosen.graph, chosen.classes, chosen.runtime, found.graph, goal)


def explained(
    found: Sequence[Rewriting], rules: RuleSet, cost_model: CostModel, *, source: str, result: str,
    cost: Mapping[str, float | str] | None, seconds: float = REMOVING_SECONDS,
) -> Explanation:  # fmt: skip
    """The explanation of the ways of a whole model."""
    clock = found[0].search.clock
    with clock.stage("steps"):
        graphs = [graph_document(way, rules) for way in found]
    known = {rule.name for rule in rules}
    named = [name for graph in graphs for step in graph["steps"] for name in step["rules"]]
    likely = list(dict.fromkeys(name for name in named if name in known))
    changed = any(graph["steps"] for graph in graphs)
    least = None
    if likely:
        with clock.stage("smallest set"):
            # What no step changed costs the same under any rules.
            goals = [way.goal for way, graph in zip(found, graphs, strict=True) if graph["steps"]]
            least = smallest(goals, _matched(found, rules), likely, cost_model, seconds, clock.watcher)
    return {
        "format": FORMAT,
        "versions": versions(),
        "source": source,
        "result": result,
        "rules": [rule.name for rule in rules],
        "changed": changed,
        "reason": "" if changed else "nothing was changed: there is nothing to explain",
        "cost": None if cost is None else dict(cost),
        "graphs": graphs,
        "counts": counts_of(graphs),
        "missing": [],
        "smallest": None if least is None else smallest_document(least),
        "seconds": {name: round(spent, 3) for name, spent in clock.seconds.items()},
    }


def _matched(found: Sequence[Rewriting], rules: RuleSet) -> RuleSet:
    """The rules that matched anything: the others can be left out together."""
    return RuleSet(tuple(rule for rule in rules if any(way.saturation.matches.get(rule.name) for way in found)))


def graph_document(way: Rewriting, rules: RuleSet) -> GraphDocument:
    """The steps of one graph, each verified on its own."""
    egraph = way.saturation.egraph
    known = way.search.lowered
    names = ValueNames(term_names(known, way.search.graph), class_names(known, way.search.graph, egraph))
    derivation = derivation_of(way, rules)
    examiner = Examiner(ConstantValues(egraph), rules, way.search.sizes)
    steps: list[StepDocument] = []
    for number, (step, count) in enumerate(zip(derivation.steps, derivation.sizes, strict=True), 1):
        way.search.clock.watcher.advanced(f"steps: {number} of {len(derivation.steps)} verified")
        steps.append(step_document(number, step, examiner.judge(step), rules, names, count))
    end = numbered(derivation.end)
    if not same_graph(end, way.result):
        folding, end = _folding(way, len(steps) + 1, names.of_class)
        steps.append(folding)
    return {
        "place": way.search.place,
        "nodes": {"before": running(way.search.graph), "after": running(way.result)},
        "arrived": same_graph(derivation.end, way.chosen) and same_graph(end, way.result),
        "steps": steps,
    }


def derivation_of(way: Rewriting, rules: RuleSet, observer: Observer | None = None) -> Derivation:
    """The steps from the original's graph to the chosen one, constants not computed yet."""
    used = [rule for rule in rules if way.saturation.matches.get(rule.name)]
    applications = Applications(way.saturation.egraph, used, way.search.lowered.model.opset)
    return derive(way.search.graph, way.chosen, way.classes, applications, observer)


def _folding(way: Rewriting, number: int, names: Mapping[int, str]) -> tuple[StepDocument, TermGraph]:
    """The last step: formulas over constants are computed."""
    chosen = way.chosen
    made = materialize(chosen, way.runtime, way.search.lowered.model.proto)
    constant = constant_terms(chosen)
    heads: dict[int, None] = {}
    for index, node in enumerate(chosen.nodes):
        if not constant[index] or index in way.runtime:
            heads.update((arg, None) for arg in node.args if arg >= 0 and _is_formula(chosen, constant, arg))
    heads.update((root, None) for root in chosen.roots if _is_formula(chosen, constant, root))
    folded = [head for head in heads if head not in way.runtime]
    smallest_one = min((_cone(chosen, head) for head in folded), key=lambda graph: len(graph.nodes), default=chosen)
    where = [names.get(way.classes[head]) for head in folded]
    return folding_document(number, where, smallest_one, len(folded), running(made)), numbered(made)


def _is_formula(graph: TermGraph, constant: Sequence[bool], index: int) -> bool:
    return constant[index] and graph.nodes[index].op != CONST


def running(graph: TermGraph) -> int:
    """The operators of a graph that run with the model: those that are not constant."""
    constant = constant_terms(graph)
    return sum(node.op not in LEAVES and not constant[index] for index, node in enumerate(graph.nodes))


def _cone(graph: TermGraph, head: int) -> TermGraph:
    return numbered(TermGraph(graph.nodes, graph.types, (head,), graph.constants, graph.opaque))


def term_names(lowered: Lowered, settled: TermGraph) -> dict[int, str]:
    """The first name in the model of each term of the graph that is searched that has one."""
    places = replaced_places(lowered.graph, settled)
    found: dict[int, str] = {}
    for name, term in lowered.value_terms.items():
        if term in places:
            found.setdefault(places[term], name)
    return found


def class_names(lowered: Lowered, settled: TermGraph, egraph: EGraph) -> dict[int, str]:
    """The first name in the model of the value of each e-class that has one."""
    found: dict[int, str] = {}
    for term, name in term_names(lowered, settled).items():
        found.setdefault(egraph.class_of[term], name)
    keys: dict[str, int] = {}
    for number, eclass in enumerate(egraph.classes):
        for node in eclass.nodes:
            if node.op == CONST:
                keys.setdefault(str(node.attrs["key"]), number)
    for name, key in lowered.constant_keys.items():
        if key in keys:
            found.setdefault(keys[key], name)
    return found
