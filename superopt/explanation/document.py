"""The explanation of a rewriting as one JSON document; the text of every file is rendered from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import onnx

from superopt.errors import InferenceError, OptionError
from superopt.explanation.derivation import Step
from superopt.explanation.smallest import Smallest
from superopt.explanation.verdicts import StepVerdict
from superopt.laws.runtime import model_of
from superopt.report import BeforeAfter
from superopt.rules import RuleSet
from superopt.terms import CONST, INPUT, Attrs, Node, TermGraph

FORMAT = "superopt explanation 1"

FOLDING = "fold constants"
"""What the last step of a graph is called, in which formulas over constants are computed."""

_SHOWN = 16
"""Constants of more elements than this are shown as inputs."""


class StepDocument(TypedDict):
    """One step: ``before`` became ``after``, both small models in ONNX text (at the newest opset; terms, where there is
    no such text).

    ``rules`` is one rule; where single ones did not lead on, ``at_once`` is true, and they are those that are known to
    have had a part in it. ``backward`` tells that it was read from right to left.
    ``where`` names the values that are computed anew, ``inputs`` those that the small models are over, by the rule's
    variables (null where the original has no such value). ``verified`` is null where it could not be told; ``how`` says
    how it was, or why not, ``values`` the two that differ. ``nodes`` counts the graph's operators that run after it.
    """

    number: int
    rules: list[str]
    at_once: bool
    numeric: str
    backward: bool
    where: list[str | None]
    inputs: dict[str, str | None]
    before: str
    after: str
    verified: bool | None
    how: str
    sizes: str
    values: list[str] | None
    nodes: int


class GraphDocument(TypedDict):
    """One graph: the model's main graph (``place`` is empty) or a body in it. ``arrived`` tells that the steps end in
    the result, term for term."""

    place: str
    nodes: BeforeAfter
    arrived: bool
    steps: list[StepDocument]


class SmallestDocument(TypedDict):
    """What is left of the rules when as many as possible were left out; see ``Smallest``."""

    rules: list[str]
    complete: bool
    reached: bool
    trials: int
    seconds: float


class Counts(TypedDict):
    """Steps in all; how they were verified; how many use several rules at once; and steps by rule."""

    steps: int
    verified: int
    wrong: int
    untold: int
    several_at_once: int
    by_rule: dict[str, int]


class Explanation(TypedDict):
    """The document. ``reason`` says why nothing was explained, or what is to be said besides. ``missing`` are values of
    the given result that are not equal to anything under the rules: then there is no way to it, and there are no
    steps."""

    format: str
    versions: dict[str, str]
    source: str
    result: str
    rules: list[str]
    changed: bool
    reason: str
    cost: dict[str, float | str] | None
    graphs: list[GraphDocument]
    counts: Counts
    missing: list[str]
    smallest: SmallestDocument | None
    seconds: dict[str, float]


@dataclass(frozen=True)
class ValueNames:
    """What values are called in the original: the first name of each of its terms, and of each e-class."""

    of_term: Mapping[int, str]
    of_class: Mapping[int, str]

    def at(self, term: int | None, number: int) -> str | None:
        """The name of the term in whose place a value stands, else of a value that is equal to it, if one has one."""
        found = None if term is None else self.of_term.get(term)
        return self.of_class.get(number) if found is None else found


def step_document(
    number: int, step: Step, verdict: StepVerdict, rules: RuleSet, names: ValueNames, nodes: int
) -> StepDocument:
    """A step and how it was judged; ``names`` are those of values in the original."""
    places = step.places or (None,) * len(step.roots)
    values = verdict.values
    classes = {rules[name].numeric for name in step.rules}
    return {
        "number": number,
        "rules": list(step.rules),
        "at_once": step.application is None,
        "numeric": next((one for one in ("approximates", "reassociates", "exact") if one in classes), ""),
        "backward": step.backward,
        "where": [names.at(place, root) for place, root in zip(places, step.roots, strict=True)],
        "inputs": {
            name.replace(".", "_"): names.at(step.operands.get(name), number) for name, number in step.classes.items()
        },
        "before": graph_text("before", step.before),
        "after": graph_text("after", step.after),
        "verified": verdict.right,
        "how": verdict.how,
        "sizes": verdict.sizes,
        "values": None if values is None else list(values),
        "nodes": nodes,
    }


def folding_document(
    number: int, where: Sequence[str | None], formula: TermGraph, folded: int, nodes: int
) -> StepDocument:
    """The step in which formulas over constants are computed; one of them is shown."""
    return {
        "number": number,
        "rules": [FOLDING],
        "at_once": False,
        "numeric": "",
        "backward": False,
        "where": list(where),
        "inputs": {},
        "before": graph_text("before", formula),
        "after": f"{folded} constants, each computed and rounded once",
        "verified": True,
        "how": "two evaluators agree on every one of them",
        "sizes": "as in the model",
        "values": None,
        "nodes": nodes,
    }


def counts_of(graphs: Sequence[GraphDocument]) -> Counts:
    """The steps of all graphs, counted."""
    steps = [step for graph in graphs for step in graph["steps"]]
    by_rule: dict[str, int] = {}
    for step in steps:
        for rule in step["rules"]:
            by_rule[rule] = by_rule.get(rule, 0) + 1
    return {
        "steps": len(steps),
        "verified": sum(step["verified"] is True for step in steps),
        "wrong": sum(step["verified"] is False for step in steps),
        "untold": sum(step["verified"] is None for step in steps),
        "several_at_once": sum(step["at_once"] for step in steps),
        "by_rule": dict(sorted(by_rule.items(), key=lambda pair: (-pair[1], pair[0]))),
    }


def smallest_document(found: Smallest) -> SmallestDocument:
    """The smallest set of rules."""
    return {
        "rules": list(found.rules), "complete": found.complete, "reached": found.reached, "trials": found.trials,
        "seconds": round(found.seconds, 3),
    }  # fmt: skip


def graph_text(name: str, graph: TermGraph) -> str:
    """A small graph as ONNX text; large constants are inputs in it. As terms, where an operator has no such text."""
    small = _without_large_constants(graph)
    try:
        return str(onnx.printer.to_text(model_of({name: small}, typed=True))).rstrip()
    except (InferenceError, OptionError):
        return small.text().rstrip()


def _without_large_constants(graph: TermGraph) -> TermGraph:
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        large = node.op == CONST and (graph.constants[str(node.attrs["key"])].type.size or 0) > _SHOWN
        nodes.append(Node(INPUT, (), Attrs.of(name=f"constant_{index}")) if large else node)
    return TermGraph(tuple(nodes), graph.types, graph.roots, graph.constants, graph.opaque)
