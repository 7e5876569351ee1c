"""The law that a rule's text implies, checked on instances that are drawn from the text.

A rule keeps its law when (1) it fires: the right side joins the class of the left; (2) it is typed: wherever ONNX
accepts the left side and the conditions hold, the right side has the same type; (3) it agrees, over exact arithmetic
and in floating point as its numeric class promises, where symbols stand for zero too; (4) it is not vacuous: enough
instances were found; (5) each ``when`` is needed: without it some instance fails. A ``when`` that is not needed is
reported as idle and fails nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.laws import firing as laws_firing
from superopt.laws.exclusion import excluding
from superopt.laws.instances import Instance, instances, summary
from superopt.laws.instances_content import described
from superopt.laws.instances_fixed import unvaried
from superopt.laws.judge import judge, judge_large, judge_variant
from superopt.laws.nothing import judge_of_nothing
from superopt.laws.runtime import model_of, written
from superopt.laws.sides import Finding, Part
from superopt.laws.vacancy import reason
from superopt.laws.variants import Variant, in_short_type, of_nothing, with_symbol
from superopt.notebook import html_text
from superopt.rules import Rule

LARGE_POINTS = 3
SHRINKING_POINTS = 96
FIRING_POINTS = 8
IDLE_POINTS = 96
FEW = 5
"""Of how many instances that are asked for one at least has to be found, lest a rule pass that was hardly tried."""
IDLE_LEAST = 8
"""On how many instances without a condition nothing must fail before it is said to be idle."""


@dataclass(frozen=True, repr=False)
class Counterexample:
    """The smallest instance found that breaks a law: both sides as one ONNX model in text, inputs, and both values; and
    a simple condition that excludes it and all like it, if one was found."""

    part: Part
    evidence: str
    bindings: str
    model: str
    inputs: str
    left: str
    right: str
    excluded_by: str | None = None

    def text(self) -> str:
        """All of it, for a terminal."""
        lines = [f"{self.part}: {self.evidence}", f"with {self.bindings}", self.model.rstrip(), self.inputs]
        lines += [f"left  = {self.left}", f"right = {self.right}"] if self.left or self.right else []
        lines += [f"no instance fails that meets: when {self.excluded_by}"] if self.excluded_by else []
        return "\n".join(line for line in lines if line)

    def __repr__(self) -> str:
        return self.text()


@dataclass(frozen=True, repr=False)
class LawResult:
    """What checking a rule came to.

    ``instances`` were tried, of ``signatures`` different types and attributes; ``telling`` of them would have shown a
    wrong rule. ``failed`` are the parts of the law that do not hold; ``idle`` the texts of ``when`` conditions that no
    instance needs. ``error`` says why a rule could not be checked: a function that it calls, or the checker, failed;
    ``vacuous`` why too few instances were found, or say too little.
    """

    rule: str
    passed: bool
    instances: int
    signatures: int
    telling: int
    failed: tuple[Part, ...] = ()
    counterexample: Counterexample | None = None
    idle: tuple[str, ...] = ()
    error: str | None = None
    vacuous: str | None = None

    def __repr__(self) -> str:
        told = "passes" if self.passed else f"fails at: {', '.join(self.failed)}"
        why = self.error or self.vacuous or (self.counterexample.evidence if self.counterexample is not None else "")
        idle = "".join(f", idle: when {condition}" for condition in self.idle)
        line = f"<{self.rule}: {told}, {self.instances} instances of {self.signatures} kinds{idle}>"
        return f"{line}\n{why.splitlines()[0]}" if why else line

    def _repr_html_(self) -> str:
        return html_text(repr(self), self.counterexample.text() if self.counterexample is not None else "")


def check(
    rule: Rule, *, points: int = 24, seed: int = 0, fires: bool = True, idle: bool = True,
    smallest: bool = True,
) -> LawResult:  # fmt: skip
    """Checks all five parts on up to ``points`` instances; the same seed tries the same instances.

    Without ``fires`` or ``idle`` the first or the fifth part is left out, and nobody asks for the condition that a rule
    lacks. Without ``smallest`` the first counterexample is shown that was found.
    """
    untold = unvaried(rule)
    if untold is not None:
        return LawResult(rule.name, False, 0, 0, 0, ("can be checked",), error=untold)
    tried = telling = 0
    signatures: set[str] = set()
    finding: Finding | None = None
    kept: list[Instance] = []
    seen: list[Instance] = []
    for instance in instances(rule, points=points, seed=seed):
        tried += 1
        signatures.add(instance.signature)
        seen += [instance] if tried <= FIRING_POINTS else []
        verdict = judge(instance)
        telling += verdict.telling
        new = len(kept) < FIRING_POINTS or _dtypes(instance) not in map(_dtypes, kept)
        kept += [instance] if verdict.telling and new else []
        finding = verdict.finding or _of_variants(instance, tried)
        if finding is not None:
            break
    if finding is None:
        finding = _at_large_sizes(rule, seed)
    if finding is not None:
        finding = _smaller(rule, finding, seed) if smallest else finding
        counterexample = shown(finding)
        if idle and rule.rejected is None:
            condition = excluding(rule, finding.instance, points=points, seed=seed)
            counterexample = replace(counterexample, excluded_by=condition)
        return LawResult(rule.name, False, tried, len(signatures), telling, (finding.part,), counterexample)
    failed: list[Part] = []
    vacuous = None
    few = tried < max(3, -(-points // FEW))
    if few or telling < 2:
        failed.append("not vacuous")
        vacuous = reason(rule, seen, seed, few=few)
    elif fires and rule.rejected is None and not any(laws_firing.fires(rule, instance) for instance in kept):
        failed.append("fires")
    needless = (
        tuple(expr.text for index, expr in enumerate(rule.when) if not _needed(rule, index, seed)) if idle else ()
    )
    return LawResult(
        rule.name, not failed, tried, len(signatures), telling, tuple(failed), None, needless, None, vacuous
    )


def _dtypes(instance: Instance) -> frozenset[str]:
    """The element types of an instance: an operator that was given more types lately fires for the older ones alone."""
    return frozenset(array.dtype.name for array in instance.arrays.values())


def refuted(rule: Rule, *, points: int = 24, seed: int = 0) -> Finding | None:
    """The first finding against a rule's second and third part, as it is found, or None."""
    for number, instance in enumerate(instances(rule, points=points, seed=seed)):
        finding = judge(instance).finding or _of_variants(instance, number)
        if finding is not None:
            return finding
    return _at_large_sizes(rule, seed)


def _of_variants(instance: Instance, number: int) -> Finding | None:
    """A finding against a variant of an instance: of every second one with a symbol, of the others in bfloat16 or with
    nothing for something."""
    if number % 2:
        return _against(with_symbol(instance, zero=number % 4 == 1))
    return _against(in_short_type(instance) if number % 4 == 0 else of_nothing(instance))


def _against(variants: Iterable[Variant]) -> Finding | None:
    """The first finding against one of the variants."""
    for variant in variants:
        finding = judge_of_nothing(variant) if variant.empty else judge_variant(variant).finding
        if finding is not None:
            return finding
    return None


def _at_large_sizes(rule: Rule, seed: int, dropped: int | None = None) -> Finding | None:
    """A finding at sizes where kernels block and vectorize differently, for rules that promise the same bits there."""
    if rule.numeric != "exact":
        return None
    for instance in instances(rule, points=LARGE_POINTS, seed=seed, dropped=dropped, large=True):
        finding = judge_large(instance).finding
        if finding is not None:
            return finding
    return None


def _needed(rule: Rule, index: int, seed: int) -> bool:
    """Whether some instance fails where this one condition does not hold, or too few of these were found to tell."""
    telling = 0
    for instance in instances(rule, points=4 * IDLE_POINTS, seed=seed, dropped=index):
        verdict = judge(instance)
        if verdict.finding is not None:
            return True
        # Where a function of the right side refuses what was drawn, nothing was tried.
        telling += verdict.telling
        if telling == IDLE_POINTS:
            break
    if telling < IDLE_LEAST or _at_large_sizes(rule, seed, index) is not None:
        return True
    without = replace(rule, when=(*rule.when[:index], *rule.when[index + 1 :]))
    found = instances(without, points=IDLE_POINTS, seed=seed)
    return any(_against((*of_nothing(one), *with_symbol(one, zero=True))) is not None for one in found)


def _smaller(rule: Rule, finding: Finding, seed: int) -> Finding:
    """A finding of the same part on the smallest instance that breaks it, of many tried."""
    best, least = finding, _weight(finding.instance)
    for instance in instances(rule, points=SHRINKING_POINTS, seed=seed + 1):
        if _weight(instance) >= least:
            continue
        found = judge(instance).finding
        if found is not None and found.part == finding.part:
            best, least = found, _weight(instance)
    return best


def _weight(instance: Instance) -> int:
    return sum(array.size + array.ndim for array in instance.arrays.values()) + len(instance.rule.left) * 8


def shown(finding: Finding) -> Counterexample:
    """A finding as text."""
    graphs = {"left": finding.instance.left}
    if finding.right is not None:
        graphs["right"] = finding.right
    model = onnx.printer.to_text(model_of(graphs, typed=True))
    # What types come out as does not depend on contents that nothing looks at.
    hidden = finding.instance.unread if finding.part == "typed" else frozenset()
    arrays = {written(name): array for name, array in finding.instance.arrays.items() if name not in hidden}
    return Counterexample(
        finding.part, finding.evidence, summary(finding.instance), model,
        described(arrays), _text(finding.left_value), _text(finding.right_value),
    )  # fmt: skip


def _text(array: NDArray[np.generic] | None) -> str:
    return "" if array is None else described({"": array}).removeprefix(" = ")
