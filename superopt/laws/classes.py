"""Whether the members of every e-class agree: each e-node is computed from its children's values, in float64.

An unsound rule is caught here even where extraction would not have chosen what it made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from superopt.engine.eclasses import EClass, EGraph, ENode
from superopt.engine.saturate import Limits, Saturation, applicable, saturate
from superopt.errors import EvaluationError, InferenceError
from superopt.kernels import FLOAT64, apply, is_float
from superopt.kernels.graph import OpaqueEvaluator
from superopt.laws.classes_text import members_text, sides_text
from superopt.laws.error_bounds import ROUNDOFF, few_bits
from superopt.rounding import rounding_bound
from superopt.rules import Rule, RuleSet
from superopt.shapes import infer, join
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, TermGraph, type_text

Array: TypeAlias = NDArray[Any]
Feed: TypeAlias = Mapping[str, Any]

CHECKED_FEEDS = 2
"""On how many inputs the members of classes are compared, where there are more."""

NEGLIGIBLE = 2.0**-20
"""No rounding in float64 comes near this part of a tensor's largest value, whatever its derived bound says: bounds of
deep networks grow far beyond all errors."""


@dataclass(frozen=True)
class Disagreement:
    """Two members of a class that are not the same: in value or in type, and the class's number."""

    number: int
    first: ENode
    second: ENode
    what: str
    text: str


@dataclass(frozen=True)
class Checked:
    """How many e-nodes were compared and how many could not be, and what was found.

    ``rule`` is the first rule without which all before it agree.
    """

    compared: int
    skipped: int
    disagreement: Disagreement | None = None
    rule: str | None = None

    @property
    def problem(self) -> str | None:
        """What is wrong, for a report."""
        if self.disagreement is None:
            return None
        found = self.disagreement
        said = f"rule {self.rule} is unsound: members of a class have different {found.what}"
        return f"{said}\n{found.text}" if found.text else said


def check_classes(
    graph: TermGraph,
    rules: RuleSet,
    limits: Limits,
    opset: int,
    feeds: Sequence[Feed],
    opaque: OpaqueEvaluator | None = None,
) -> Checked:
    """Saturates a graph, compares the members of all classes on these inputs, and finds the rule that is guilty."""
    saturation = saturate(graph, rules, limits, opset, whole=True)
    suspects = applicable(graph, rules)
    found = _checked(graph, saturation, feeds, opaque, suspects[-1] if suspects else None)
    if found.disagreement is None:
        return found
    return _first_guilty(graph, suspects, limits, opset, feeds, opaque, found)


def _first_guilty(
    graph: TermGraph, suspects: Sequence[Rule], limits: Limits, opset: int, feeds: Sequence[Feed],
    opaque: OpaqueEvaluator | None, found: Checked,
) -> Checked:  # fmt: skip
    """The last rule of the shortest beginning of the rules under which a disagreement is found."""
    low, high = 0, len(suspects)
    while high - low > 1:
        middle = (low + high) // 2
        saturation = saturate(graph, RuleSet(tuple(suspects[:middle])), limits, opset, whole=True)
        outcome = _checked(graph, saturation, feeds, opaque, suspects[middle - 1])
        if outcome.disagreement is None:
            low = middle
        else:
            high, found = middle, outcome
    return Checked(found.compared, found.skipped, found.disagreement, suspects[high - 1].name)


def _checked(
    graph: TermGraph, saturation: Saturation, feeds: Sequence[Feed], opaque: OpaqueEvaluator | None, rule: Rule | None
) -> Checked:
    """Of several rules, ``rule`` is the one that members are shown as the sides of."""
    egraph = saturation.egraph
    for number, eclass in enumerate(egraph.classes):
        wrong = _wrong_type(egraph, number, eclass, rule)
        if wrong is not None:
            return Checked(0, 0, wrong)
    for clash in saturation.clashes:
        text = f"{type_text(clash.left)} on the left, {type_text(clash.right)} on the right"
        node = egraph.classes[egraph.roots[0]].nodes[0]
        return Checked(0, 0, Disagreement(egraph.roots[0], node, node, f"types: {text}", sides_text(clash)))
    compared = skipped = 0
    for feed in feeds:
        with np.errstate(all="ignore"):
            outcome = _Values(graph, egraph, feed, opaque).compared(rule)
        compared, skipped = compared + outcome.compared, skipped + outcome.skipped
        if outcome.disagreement is not None:
            return outcome
    return Checked(compared, skipped)


def _wrong_type(egraph: EGraph, number: int, eclass: EClass, rule: Rule | None) -> Disagreement | None:
    """A member that is not well typed on its children's classes, or not of its class's type."""
    for node in eclass.nodes:
        types = [None if child == ABSENT else egraph.classes[child].type for child in node.children]
        try:
            join(eclass.type, infer(node.op, node.attrs, types, [child != ABSENT for child in node.children]))
        except InferenceError as error:
            first = eclass.nodes[0]
            text = members_text(egraph, (first, node), {}, {}, rule)
            return Disagreement(number, first, node, f"types: {error}", text)
    return None


@dataclass(frozen=True)
class _Known:
    """A class's value (of each output, for a bundle), how far rounding may have taken it, and the node it is from."""

    outputs: tuple[Any, ...]
    error: float
    node: ENode


class _Values:
    """The values of all classes for one set of inputs: those of the original terms, then of what rules made."""

    def __init__(self, graph: TermGraph, egraph: EGraph, feed: Feed, opaque: OpaqueEvaluator | None) -> None:
        self.graph, self.egraph, self.feed, self.opaque = graph, egraph, feed, opaque
        self.known: dict[int, _Known] = {}
        self.skipped = 0

    def compared(self, rule: Rule | None) -> Checked:
        """Computes every e-node that can be, and compares it with its class."""
        self._originals()
        waiting = [number for number in range(len(self.egraph.classes)) if number not in self.known]
        grown = True
        while waiting and grown:
            left = [number for number in waiting if not self._settled(number)]
            grown, waiting = len(left) < len(waiting), left
        compared = 0
        for number, eclass in enumerate(self.egraph.classes):
            for node in eclass.nodes:
                mine, other = self.known.get(number), self._computed(node)
                if mine is None or other is None:
                    self.skipped += 1
                    continue
                compared += 1
                what = _different(mine, other)
                if what is not None:
                    values = {c: known.outputs[0] for c, known in self.known.items() if len(known.outputs) == 1}
                    made = {c: known.node for c, known in self.known.items()}
                    text = members_text(self.egraph, (mine.node, node), values, made, rule)
                    found = Disagreement(number, mine.node, node, what, text)
                    return Checked(compared, self.skipped, found)
        return Checked(compared, self.skipped)

    def _originals(self) -> None:
        """Values of classes as the original computes them, term by term, whatever was merged."""
        terms: list[_Known | None] = []
        for index, node in enumerate(self.graph.nodes):
            args = [None if arg == ABSENT else terms[arg] for arg in node.args]
            complete = all(arg == ABSENT or value is not None for arg, value in zip(node.args, args, strict=True))
            member = ENode(node.op, tuple(self._class_of(arg) for arg in node.args), node.attrs, None, index)
            terms.append(self._applied(member, args, index) if complete else None)
            value = terms[-1]
            if value is not None:
                self.known.setdefault(self.egraph.class_of[index], value)

    def _class_of(self, term: int) -> int:
        return ABSENT if term == ABSENT else self.egraph.class_of[term]

    def _settled(self, number: int) -> bool:
        for node in self.egraph.classes[number].nodes:
            value = self._computed(node)
            if value is not None:
                self.known[number] = value
                return True
        return False

    def _computed(self, node: ENode) -> _Known | None:
        args = [None if child == ABSENT else self.known.get(child) for child in node.children]
        if any(value is None and child != ABSENT for value, child in zip(args, node.children, strict=True)):
            return None
        # Opaque operators are only original ones, and slow to run: their value is that of the original.
        return None if node.op == OPAQUE else self._applied(node, args, node.original)

    def _applied(self, node: ENode, args: Sequence[_Known | None], index: int | None) -> _Known | None:
        arrays = [None if value is None else value.outputs[0] for value in args]
        errors = [0.0 if value is None else value.error for value in args]
        try:
            match node.op:
                case op if op == INPUT:
                    value = self.feed.get(str(node.attrs["name"]))
                    return _Known((FLOAT64.enter(value),), 0.0, node) if isinstance(value, np.ndarray) else None
                case op if op == CONST:
                    return self._constant(node)
                case op if op == PROJECT:
                    output = args[0].outputs[int(str(node.attrs["index"]))] if args[0] is not None else None
                    return None if output is None else _Known((output,), errors[0], node)
                case op if op == OPAQUE:
                    if self.opaque is None or index is None:
                        return None
                    outputs = self.opaque(self.graph, index, arrays, FLOAT64)
                    return _Known(tuple(outputs), 0.0, node)
                case op:
                    outputs = apply(op, node.attrs, arrays, FLOAT64)
                    bound = rounding_bound(op, node.attrs, arrays, errors, outputs)
                    return _Known(tuple(outputs), min(bound, NEGLIGIBLE * _scale(outputs)), node)
        except EvaluationError:
            return None

    def _constant(self, node: ENode) -> _Known:
        """A single number may stand for one that rounds to it, and so may all that a rule has made."""
        constant = self.egraph.constants[str(node.attrs["key"])]
        array = FLOAT64.enter(constant.array())
        rounded = constant.type.dtype in ROUNDOFF and (array.size == 1 or node.original is None)
        exact = not rounded or bool(np.all(few_bits(array)))
        return _Known((array,), 0.0 if exact else ROUNDOFF[constant.type.dtype] * _scale((array,)), node)


def _scale(outputs: Sequence[Any]) -> float:
    """The largest finite magnitude."""
    found = 0.0
    for output in outputs:
        if isinstance(output, np.ndarray) and output.dtype.kind == "f":
            finite = output[np.isfinite(output)]
            found = max(found, float(np.abs(finite).max(initial=0.0)))
    return found


def _different(mine: _Known, other: _Known) -> str | None:
    """What differs between two values of one class."""
    for one, two in zip(mine.outputs, other.outputs, strict=False):
        if not isinstance(one, np.ndarray) or not isinstance(two, np.ndarray):
            continue
        if one.shape != two.shape:
            return f"shapes: {list(one.shape)} and {list(two.shape)}"
        if is_float(one.dtype) != is_float(two.dtype) or (not is_float(one.dtype) and one.dtype != two.dtype):
            return f"element types: {one.dtype} and {two.dtype}"
        if one.dtype.kind != "f":
            # Where a float near a tie decides, either answer is right.
            if mine.error == other.error == 0.0 and not np.array_equal(one, two):
                return "values"
            continue
        finite = np.isfinite(one) & np.isfinite(two)
        gap = np.abs(np.subtract(one, two, where=finite, out=np.zeros(one.shape)))
        allowed = mine.error + other.error
        if math.isfinite(allowed) and np.any(gap > allowed):
            return f"values: they differ by up to {gap.max():.3g}, rounding explains {allowed:.3g}"
        if np.any(np.isfinite(one) != np.isfinite(two)):
            return "values: one is not finite where the other is"
    return None
