"""The explanation of a given result: the original is saturated under the rules, and a way to the result is found.

Each body of If, Loop and Scan is explained by itself, and the graph around it with the new body on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx

from superopt.bodies.bodies import bodies_in, holds_bodies
from superopt.bodies.resolve import resolved
from superopt.cost import CostModel, graph_cost, value_names
from superopt.emitting.correspondence import replaced_places
from superopt.errors import ModelError
from superopt.explanation.constants import ConstantValues
from superopt.explanation.document import Explanation
from superopt.explanation.explain import Rewriting, explained
from superopt.explanation.locate import Located, located
from superopt.explanation.of_run import unexplained
from superopt.explanation.smallest import Reached
from superopt.laws.trust import lawful
from superopt.lowering.lower import Lowered, lower
from superopt.models.interface import interface_difference
from superopt.models.model import Model
from superopt.models.scopes import captured_names, free_names, names_defined, rename_captured
from superopt.numeric import materialize, settle
from superopt.options import Options
from superopt.prepare import prepared
from superopt.progress import Clock
from superopt.rules import RuleSet
from superopt.search.candidates import Search
from superopt.search.opening import of_graph
from superopt.settings import cost_model_of, feeds_of, rules_of, sizes_of, with_libraries
from superopt.terms import OPAQUE, TermGraph

_MOST_MISSING = 8
"""How many values that are not found are named."""


@dataclass(frozen=True)
class _Pair:
    """A graph before and after, with the way to the body that it is; both have the same bodies."""

    place: str
    before: Model
    after: Model


@dataclass(frozen=True)
class _Led:
    """What came of a pair: a way, or the reason why there is none and the values that are not found. Of a way,
    ``rounded`` tells how many constants differ in their last places."""

    way: Rewriting | None
    reason: str = ""
    missing: tuple[str, ...] = ()
    rounded: int = 0


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
        rules, refuted = (named, ()) if options.trust_rules else lawful(named)
    with clock.stage("sample"):
        sizes = sizes_of(feeds_of(original, options))
    with clock.stage("lower"):
        start, ahead = prepared(original)
        pairs = list(_pairs("", start, prepared(new)[0]))
        searches = [_search(pair, original, options, clock, ahead and not pair.place) for pair in pairs]
        searches = [(replace(search, sizes=sizes), end, wanted) for search, end, wanted in searches]
    changed = [wanted.text() != search.graph.text() for search, _, wanted in searches]
    if not any(changed):
        return unexplained(original.label, new.label, "they compute the same terms, there is nothing to explain")
    # The main graph is shown even where only a body in it was changed.
    asked = [index for index in range(len(searches)) if changed[index] or index == 0]
    found = [_led(*searches[index], rules if changed[index] else RuleSet(), cost_model, new) for index in asked]
    astray = [led for led in found if led.way is None]
    if astray:
        missing = tuple(line for led in astray for line in led.missing)
        without = "".join(f"; left out: {one['rule']}: {one['because']}" for one in refuted)
        return unexplained(original.label, new.label, astray[0].reason + without, missing)
    ways = [led.way for led in found if led.way is not None]
    before = sum(graph_cost(way.search.graph, cost_model, sizes).total for way in ways)
    document = explained(
        ways, rules, cost_model, source=original.label, result=new.label,
        cost={"before": before, "after": sum(way.goal.cost for way in ways), "unit": cost_model.unit,
              "model": cost_model.name},
    )  # fmt: skip
    rounded = sum(led.rounded for led in found)
    if rounded:
        document["reason"] = f"{rounded} constants of {new.label} differ in their last places from what the steps make"
    return document


def _pairs(place: str, start: Model, end: Model) -> Iterator[_Pair]:
    """A graph and each body in it, at any depth, before and after; what stands outside comes first."""
    end = _captured_alike(start, end)
    middle = _with_bodies_of(start, end)
    yield _Pair(place, middle, end)
    if middle is start:
        return
    inner = {way: body for body, _, way in bodies_in(middle, middle.proto.graph, middle.reserved)}
    for body, _, way in bodies_in(start, start.proto.graph, start.reserved):
        if way in inner and inner[way].proto.graph != body.proto.graph:
            yield from _pairs(f"{place} / {way}" if place else way, resolved(body), resolved(inner[way]))


def _twins(start: onnx.GraphProto, end: onnx.GraphProto) -> dict[int, int]:
    """Where each If, Loop and Scan of a graph stands in another one: it makes the same values."""
    there = {(node.op_type, tuple(node.output)): index for index, node in enumerate(end.node) if holds_bodies(node)}
    found = {index: there.get((node.op_type, tuple(node.output))) for index, node in enumerate(start.node)}
    return {index: other for index, other in found.items() if other is not None}


def _captured_alike(start: Model, end: Model) -> Model:
    """The second model with what its bodies capture called as in the first one, where there is no such value there.

    Which is which is told by the order of the captures alone; where that is not so, no way is found.
    """
    before, after = start.proto.graph, end.proto.graph
    known, taken = names_defined(before), names_defined(after)
    names: dict[str, str] = {}
    for index, other in _twins(before, after).items():
        old, new = captured_names(before.node[index]), captured_names(after.node[other])
        gone = [name for name in old if name not in new and name not in taken]
        fresh = [name for name in new if name not in known]
        if len(gone) == len(fresh):
            names |= dict(zip(fresh, gone, strict=True))
    if not names or len(set(names.values())) < len(names):
        return end
    made = onnx.ModelProto()
    made.CopyFrom(end.proto)
    for node in made.graph.node:
        rename_captured(node, names)
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
    for value in (*made.graph.initializer, *made.graph.value_info):
        value.name = names.get(value.name, value.name)
    held = {names.get(name, name): constant for name, constant in end.held.items()}
    return replace(end, proto=made, source=None, held=held)


def _with_bodies_of(start: Model, end: Model) -> Model:
    """A model with the bodies that its If, Loop and Scan have in another one; those that are not found there, or
    capture there what this one does not have, stay."""
    values = names_defined(start.proto.graph)
    made = onnx.ModelProto()
    made.CopyFrom(start.proto)
    for index, other in _twins(start.proto.graph, end.proto.graph).items():
        given = {attribute.name: attribute.g for attribute in end.proto.graph.node[other].attribute}
        for attribute in made.graph.node[index].attribute:
            body = given.get(attribute.name)
            if attribute.HasField("g") and body is not None and values.issuperset(free_names([body])):
                attribute.g.CopyFrom(body)
    return start if made == start.proto else replace(start, proto=made, source=None)


def _search(
    pair: _Pair, original: Model, options: Options, clock: Clock, ahead: bool
) -> tuple[Search, Lowered, TermGraph]:
    """The search of a pair, and what is wanted of it. Raises ``ModelError`` where the outputs are not the same."""
    whole = pair.before if pair.place else original
    search = of_graph(pair.before, options, clock, original=whole, ahead=ahead, place=pair.place)
    end = lower(pair.after, options.initializers_are_constant and not pair.place)
    wanted, names = settle(end.graph, context=pair.after.proto), search.lowered.root_names
    if not pair.place:  # a body's outputs are known by their order, whatever they are called
        if set(end.root_names) != set(names):
            raise ModelError(f"{pair.after.label}: its outputs are not those of {original.label}")
        wanted = replace(wanted, roots=tuple(wanted.roots[end.root_names.index(name)] for name in names))
    elif len(wanted.roots) != len(search.graph.roots):
        raise ModelError(f"{pair.after.label}: {pair.place}: its outputs are not those of the original's")
    return search, end, wanted


def _led(search: Search, end: Lowered, wanted: TermGraph, rules: RuleSet, cost_model: CostModel, new: Model) -> _Led:
    """The way from a graph to the wanted one."""
    saturation = search.saturate(rules)
    with search.clock.stage("find the result"):
        found = located(saturation.egraph, wanted, ConstantValues(saturation.egraph))
    if found.chosen is None:
        return _Led(None, _no_way(new, saturation.stopped_by), _named(search.place, end, wanted, found))
    goal = Reached(search, graph_cost(wanted, cost_model, search.sizes).total, running=True)
    # What is left alone is known by other keys in the other model, and a constant may differ in its last places.
    alike = not found.rounded and all(node.op != OPAQUE for node in wanted.nodes)
    result = wanted if alike else materialize(found.chosen, frozenset(), search.lowered.model.proto)
    way = Rewriting(search, saturation, found.chosen, found.classes, frozenset(), result, goal)
    return _Led(way, rounded=found.rounded)


def _no_way(new: Model, stopped_by: str) -> str:
    """Why there is no way to a result."""
    limit = "" if stopped_by == "saturated" else f" (the search was stopped by {stopped_by})"
    return f"under these rules{limit}, no way leads to {new.label}; the first values that equal nothing in the original"


def _named(place: str, end: Lowered, wanted: TermGraph, found: Located) -> tuple[str, ...]:
    names = value_names(end)
    known = {after: names[before] for before, after in sorted(replaced_places(end.graph, wanted).items(), reverse=True)}
    shown = found.missing[:_MOST_MISSING]
    where = f"{place}: " if place else ""
    lines = [f"{where}{known.get(term, f'%{term}')} = {_operator(wanted, term)}(...)" for term in shown]
    return (*lines, *([f"and {len(found.missing) - _MOST_MISSING} more"] if found.missing[_MOST_MISSING:] else []))


def _operator(graph: TermGraph, term: int) -> str:
    """What an operator is called."""
    node = graph.nodes[term]
    if node.op != OPAQUE:
        return node.op
    opaque = graph.opaque[str(node.attrs["key"])]
    return f"{opaque.domain}.{opaque.op_type}" if opaque.domain else opaque.op_type
