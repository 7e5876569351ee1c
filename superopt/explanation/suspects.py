"""From a rule set under which a model goes wrong to the few rules that it takes for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from superopt.cost import CostModel
from superopt.engine.saturate import Saturation
from superopt.errors import VerificationError
from superopt.explanation.applications import Applications
from superopt.explanation.constants import ConstantValues
from superopt.explanation.derivation import step_of
from superopt.explanation.verdicts import Examiner
from superopt.inputs.feeds import Feeds
from superopt.laws.classes import CHECKED_FEEDS, check_classes
from superopt.reference import OpaqueRunner
from superopt.rules import RuleSet
from superopt.search.blame import guilty
from superopt.search.candidates import Search
from superopt.search.descent import Descent, saturations
from superopt.search.soundness import attempt
from superopt.verification.verifier import Check

STEPS_A_RULE = 3
"""How many uses of each rule are judged where nothing else shows that one is wrong."""


@dataclass(frozen=True)
class Suspects:
    """Rules that it takes to go wrong: without any of them, nothing does. ``because`` says what went wrong and
    ``found_by`` how that was seen: by ``verification`` of a result, by the ``types`` of the two sides of a match, by
    the ``classes`` of the e-graph, though the result was right, or by single ``steps``, though the e-graph was too:
    it had the other nodes already. ``trials`` were searches."""

    rules: tuple[str, ...]
    because: str
    found_by: str
    trials: int


def suspects(descent: Descent, rules: RuleSet, cost_model: CostModel, check: Check, feeds: Feeds) -> Suspects | None:
    """The suspects among some rules; None where nothing goes wrong.

    Raises VerificationError where it cannot be told, or the model goes wrong without any rule.
    """
    first = attempt(descent, rules, cost_model, check)
    trials = 1
    if first.problem is not None:
        if first.verification is not None and not first.verification.conclusive:
            raise VerificationError(f"it cannot be told which rule is wrong: {first.problem}")

        def wrong(names: Sequence[str]) -> bool:
            nonlocal trials
            trials += 1
            return attempt(descent, rules.only(*names), cost_model, check).problem is not None

        found = smallest_failing(first.matched(rules), wrong)
        if found is None:
            raise VerificationError(f"it is wrong without any rule: {first.problem}")
        return Suspects(found, first.problem, "verification", trials)
    if first.saturation is not None:
        for saturation in saturations(first.saturation, first.found):
            if saturation.clashes:
                clash = saturation.clashes[0]
                names = (clash.rule,) if clash.rule else first.matched(rules)
                return Suspects(names, "the two sides of a match have different types", "types", trials)
    for search, values in descent.searches(feeds):
        by_classes = _by_classes(search, values, rules, trials)
        if by_classes is not None:
            return by_classes
        known = first.saturation if search is descent.search else None
        by_steps = _by_steps(search, known or search.saturate(rules), rules, trials)
        if by_steps is not None:
            return by_steps
    return None


def _by_classes(search: Search, feeds: Feeds, rules: RuleSet, trials: int) -> Suspects | None:
    """The rule that put different values into one e-class."""
    model = search.lowered.model
    with search.clock.stage("check classes"):
        outcome = check_classes(
            search.graph, rules, search.limits, model.opset, feeds.values[:CHECKED_FEEDS],
            OpaqueRunner(model.proto, model.libraries),
        )  # fmt: skip
    if outcome.disagreement is None or outcome.rule is None:
        return None
    because = f"members of an e-class have different {outcome.disagreement.what}"
    return Suspects((outcome.rule,), because, "classes", trials)


def _by_steps(search: Search, saturation: Saturation, rules: RuleSet, trials: int) -> Suspects | None:
    """The first rule that is wrong in one of its first uses, whatever became of them."""
    egraph = saturation.egraph
    with search.clock.stage("judge steps"):
        for rule in rules:
            if not saturation.matches.get(rule.name):
                continue
            one = RuleSet((rule,))
            applications = Applications(egraph, one, search.lowered.model.opset, unused=True)
            examiner = Examiner(ConstantValues(egraph), one, search.sizes)
            for application in islice(applications.everywhere(), STEPS_A_RULE):
                if examiner.judge(step_of(application, egraph)).right is False:
                    because = "what it makes is not equal (the result was right: it was not chosen)"
                    return Suspects((rule.name,), because, "steps", trials)
    return None


def smallest_failing(names: Sequence[str], wrong: Callable[[Sequence[str]], bool]) -> tuple[str, ...] | None:
    """A set of rules that goes wrong, and right without any one of them; None where it is wrong without any.

    One rule after another is found that it takes, by bisection of the others (the divide and conquer of Junker,
    "QuickXplain", 2004, in its simplest form). ``wrong`` is true of all names.
    """
    if wrong(()):
        return None
    needed: list[str] = []
    others = list(names)
    while not needed or not wrong(needed):

        def without(left_out: Sequence[str], others: Sequence[str] = tuple(others)) -> bool:
            return wrong([*needed, *(name for name in others if name not in left_out)])

        culprit = guilty(others, without)
        if culprit is None:
            break
        # What comes after the culprit is not needed: it was wrong with the rules before it.
        others = others[: others.index(culprit)]
        needed.insert(0, culprit)
    return tuple(needed)
