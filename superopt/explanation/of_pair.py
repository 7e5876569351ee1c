"""The explanation of a given result: the original is saturated under the rules, and a way to the result is found."""

from __future__ import annotations

from dataclasses import replace

from superopt.cost import graph_cost, value_names
from superopt.emitting.correspondence import replaced_places
from superopt.errors import ModelError
from superopt.explanation.constants import ConstantValues
from superopt.explanation.document import Explanation
from superopt.explanation.explain import Way, explained
from superopt.explanation.locate import Located, located
from superopt.explanation.of_run import unexplained
from superopt.explanation.smallest import Reached
from superopt.laws.trust import lawful
from superopt.lowering.lower import Lowered, lower
from superopt.models.interface import interface_difference
from superopt.models.model import Model
from superopt.numeric import materialize, settle
from superopt.options import Options
from superopt.pipeline import cost_model_of, feeds_of, rules_of, sizes_of, with_libraries
from superopt.prepare import prepared
from superopt.progress import Clock
from superopt.search.candidates import Search
from superopt.terms import OPAQUE, TermGraph

_MOST_MISSING = 8
"""How many values that are not found are named."""


def explain_pair(original: Model, new: Model, options: Options, clock: Clock) -> Explanation:
    """How a model is rewritten into another one, if the rules of the options lead there.

    Raises ``ModelError`` where the two do not have the same inputs and outputs.
    """
    original = with_libraries(original, options)
    difference = interface_difference(original.proto, new.proto)
    if difference is not None:
        raise ModelError(f"{new.label}: {difference}, expected a result of {original.label}")
    with clock.stage("rules"):
        named, cost_model = rules_of(options), cost_model_of(options)
        rules, _ = (named, ()) if options.trust_rules else lawful(named)
    with clock.stage("lower"):
        start, ahead = prepared(original)
        lowered = lower(start, options.initializers_are_constant)
        graph = settle(lowered.graph, context=start.proto)
        end = lower(prepared(new)[0], options.initializers_are_constant)
        wanted = settle(end.graph, context=end.model.proto)
    if set(end.root_names) != set(lowered.root_names):
        raise ModelError(f"{new.label}: its outputs are not those of {original.label}")
    wanted = replace(wanted, roots=tuple(wanted.roots[end.root_names.index(name)] for name in lowered.root_names))
    with clock.stage("sample"):
        feeds = feeds_of(original, options)
    search = Search(original, lowered, graph, options, clock, sizes_of(feeds), None, ahead)
    if wanted.text() == graph.text():
        return unexplained(original.label, new.label, "they compute the same terms, there is nothing to explain")
    saturation = search.saturate(rules)
    with clock.stage("find the result"):
        found = located(saturation.egraph, wanted, ConstantValues(saturation.egraph))
    if found.chosen is None:
        return unexplained(original.label, new.label, _no_way(new, saturation.stopped_by), _named(end, wanted, found))
    before = graph_cost(graph, cost_model, search.sizes).total
    after = graph_cost(wanted, cost_model, search.sizes).total
    goal = Reached(search, after, running=True)
    # What is left alone is known by other keys in the other model, and a constant may differ in its last places.
    alike = not found.rounded and all(node.op != OPAQUE for node in wanted.nodes)
    result = wanted if alike else materialize(found.chosen, frozenset(), start.proto)
    way = Way("", search, saturation, found.chosen, found.classes, frozenset(), result, goal)
    document = explained(
        [way], rules, cost_model, source=original.label, result=new.label,
        cost={"before": before, "after": after, "unit": cost_model.unit, "model": cost_model.name},
    )  # fmt: skip
    if found.rounded:
        document["reason"] = (
            f"{found.rounded} constants of {new.label} differ in their last places from what the steps make"
        )
    return document


def _no_way(new: Model, stopped_by: str) -> str:
    """Why there is no way to a result."""
    limit = "" if stopped_by == "saturated" else f" (the search was stopped by {stopped_by})"
    return f"under these rules{limit}, no way leads to {new.label}; the first values that equal nothing in the original"


def _named(end: Lowered, wanted: TermGraph, found: Located) -> tuple[str, ...]:
    names = value_names(end)
    known = {after: names[before] for before, after in sorted(replaced_places(end.graph, wanted).items(), reverse=True)}
    shown = found.missing[:_MOST_MISSING]
    lines = [f"{known.get(term, f'%{term}')} = {_operator(wanted, term)}(...)" for term in shown]
    return (*lines, *([f"and {len(found.missing) - _MOST_MISSING} more"] if found.missing[_MOST_MISSING:] else []))


def _operator(graph: TermGraph, term: int) -> str:
    """What an operator is called."""
    node = graph.nodes[term]
    if node.op != OPAQUE:
        return node.op
    opaque = graph.opaque[str(node.attrs["key"])]
    return f"{opaque.domain}.{opaque.op_type}" if opaque.domain else opaque.op_type
