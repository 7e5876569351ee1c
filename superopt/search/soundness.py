"""Finds a model that is verified, leaving out one guilty rule after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from superopt.cost import CostModel
from superopt.engine.eclasses import only_original
from superopt.engine.saturate import Saturation
from superopt.errors import SuperoptError
from superopt.report import LeftOut
from superopt.rules import RuleSet
from superopt.search.blame import guilty
from superopt.search.candidates import Found
from superopt.search.descent import Descent, saturations
from superopt.search.untouched import rewritten, stretch
from superopt.verification.verifier import Check
from superopt.verification.verify import Verification

MOST_LEFT_OUT = 4
"""How many guilty rules are left out, one after the other, before the original is given back."""


@dataclass(frozen=True)
class Attempt:
    """One try: how far it came, and what was wrong. ``found`` is None where the original is the best there is."""

    saturation: Saturation | None = None
    found: Found | None = None
    verification: Verification | None = None
    problem: str | None = None

    def matched(self, rules: RuleSet) -> tuple[str, ...]:
        """The rules that matched anything, in the main graph or in a body; all, where it did not come that far.

        Those that made a chosen node are not enough to blame: a rule may only have said that two terms are equal.
        """
        if self.saturation is None or self.found is None:
            return tuple(rule.name for rule in rules)
        runs = list(saturations(self.saturation, self.found))
        return tuple(rule.name for rule in rules if any(run.matches.get(rule.name) for run in runs))


@dataclass(frozen=True)
class Sound:
    """The last try, the rules that it ran under, those left out before it, what went wrong, and ``notes`` on what was
    left as it was to make it right."""

    attempt: Attempt
    rules: RuleSet
    left_out: tuple[LeftOut, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> Found | None:
        """What was found and verified."""
        return None if self.attempt.problem else self.attempt.found


def attempt(
    descent: Descent, rules: RuleSet, cost_model: CostModel, check: Check, saturation: Saturation | None = None
) -> Attempt:
    """One try under some rules: search, choose, verify; or choose from a given e-graph. What superopt itself raises is
    what was wrong."""
    if descent.search.out_of_time:
        return Attempt()
    found = verification = None
    try:
        saturation = saturation or descent.search.saturate(rules)
        found = descent.choose(saturation, rules, cost_model)
        if found is None:
            return Attempt(saturation)
        verification = check(found.model)
    except SuperoptError as error:
        return Attempt(saturation, found, verification, f"{type(error).__name__}: {error}")
    return Attempt(saturation, found, verification, None if verification.agree else verification.reason)


def first_of_several(
    descent: Descent, rules: RuleSet, cost_models: Sequence[CostModel], check: Check
) -> tuple[Sound, CostModel]:
    """The sound choice of the first of several cost models by which there is another model than the original, and that
    cost model; the first one where there is none."""
    sound = first_sound(descent, rules, cost_models[0], check)
    saturation = sound.attempt.saturation
    if sound.attempt.found is None and sound.attempt.problem is None and saturation is not None:
        for other in cost_models[1:]:
            tried = attempt(descent, sound.rules, other, check, saturation)
            if tried.found is not None and tried.problem is None:
                return replace(sound, attempt=tried), other
    return sound, cost_models[0]


def first_sound(descent: Descent, rules: RuleSet, cost_model: CostModel, check: Check) -> Sound:
    """The first try that is verified; guilty rules are left out of it. The original's, where nothing else is sound."""
    left_out: tuple[LeftOut, ...] = ()
    while True:
        tried = attempt(descent, rules, cost_model, check)
        if tried.problem is None:
            return Sound(tried, rules, left_out)
        blameless = tried.verification is not None and not tried.verification.conclusive
        give_up = blameless or len(left_out) >= MOST_LEFT_OUT
        culprit = None if give_up else _culprit(descent, rules, cost_model, check, tried)
        if culprit is None:
            partly = None if blameless else _partly(descent, rules, cost_model, check, tried, tried.problem)
            if partly is None and tried.verification is not None and tried.verification.on_empty:
                # Right on all that has elements: onnxruntime cannot infer a size of nothing, in many a model as it is.
                return Sound(replace(tried, problem=None), rules, left_out, notes=(tried.problem,))
            return (
                Sound(tried, rules, left_out, (tried.problem,))
                if partly is None
                else replace(partly, left_out=left_out)
            )
        left_out = (*left_out, {"rule": culprit, "because": tried.problem})
        rules = rules.without(culprit)


def _partly(
    descent: Descent, rules: RuleSet, cost_model: CostModel, check: Check, tried: Attempt, problem: str
) -> Sound | None:
    """What is verified when a stretch of the main graph stays as it was, where no rule is guilty; None where none is.

    There are models that are right by luck, or lose in one place what their numbers cannot hold: whoever computes that
    otherwise, by whatever rule, comes to another result.
    """
    saturation = tried.saturation
    if saturation is None or tried.verification is None:
        return None
    egraph = saturation.egraph
    classes = rewritten(egraph, descent.search.graph)
    sound: dict[range, Sound] = {}

    def right(numbers: range) -> bool:
        kept = replace(saturation, egraph=only_original(egraph, [classes[number] for number in numbers]))
        now = attempt(descent, rules, cost_model, check, kept)
        if now.problem is None and now.found is not None:
            note = f"{len(numbers)} of {len(classes)} terms that rules wrote anew were left as they are: {problem}"
            sound[numbers] = Sound(now, rules, notes=(note,))
        return now.problem is None

    least = stretch(len(classes), right)
    return None if least is None else sound.get(least)


def unsound(rules: RuleSet, verification: Verification) -> Sound:
    """What there is to say where a model was not right before any rule."""
    return Sound(Attempt(verification=verification, problem=verification.reason), rules, (), (verification.reason,))


def _culprit(descent: Descent, rules: RuleSet, cost_model: CostModel, check: Check, tried: Attempt) -> str | None:
    """The rule that a try failed by, among those that matched."""

    def wrong(names: tuple[str, ...]) -> bool:
        return attempt(descent, rules.without(*names), cost_model, check).problem is not None

    return guilty(tried.matched(rules), wrong)
