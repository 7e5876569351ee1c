"""The smallest region of a model that shows a rule to be wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import numpy_helper

from superopt.cost import CostModel
from superopt.engine.matching import Clash, bind
from superopt.engine.saturate import Saturation
from superopt.errors import SuperoptError
from superopt.explanation.application import Application
from superopt.explanation.applications import Applications
from superopt.explanation.constants import ConstantValues
from superopt.explanation.derivation import step_of
from superopt.explanation.shrink import Wrong, shrunk
from superopt.explanation.verdicts import Examiner, judged
from superopt.inputs.sample import sample
from superopt.instantiate import instantiate
from superopt.kernels import Array
from superopt.laws.runtime import model_of, written
from superopt.models.model import load
from superopt.rules import RuleSet
from superopt.search.candidates import Search
from superopt.search.descent import Descent
from superopt.search.opening import opened
from superopt.search.soundness import attempt
from superopt.verification.verifier import Verifier, bound_of

ENOUGH = 4
"""So many steps that are found wrong, the smallest of them is taken."""

MOST_JUDGED = 400
"""How many steps of the suspects are judged."""


@dataclass(frozen=True)
class GuiltyRegion:
    """The part of the model that a rule is wrong on, as small as it could be made.

    ``model`` computes the left side from what varies, ``both`` both sides from all; ``where`` names the value of the
    original that the step computes. ``evidence`` says how the sides differ, ``left`` and ``right`` are their values.
    """

    rule: str
    where: tuple[int, ...]
    model: onnx.ModelProto
    both: onnx.ModelProto
    evidence: str
    arrays: dict[str, Array]
    left: Array | None
    right: Array | None
    elements_before: int
    elements: int


def region_of(search: Search, saturation: Saturation, suspected: RuleSet) -> GuiltyRegion | None:
    """Where a suspect is wrong, by itself, in one graph; None where no single use of one is."""
    opset = search.lowered.model.opset
    applications = Applications(saturation.egraph, suspected, opset, unused=True)
    examiner = Examiner(ConstantValues(saturation.egraph), suspected, search.sizes)
    wrong: list[Wrong] = []
    with search.clock.stage("judge steps"):
        for count, application in enumerate(applications.everywhere()):
            one = _judged(application, applications, examiner)
            wrong += [one] if one is not None else []
            if len(wrong) >= ENOUGH or count >= MOST_JUDGED:
                break
    if not wrong:
        return _of_clash(applications)
    with search.clock.stage("shrink"):
        first = min(wrong, key=lambda one: one.size)
        least = shrunk(first, opset)
    return _region(first, least)


def _judged(application: Application, applications: Applications, examiner: Examiner) -> Wrong | None:
    step = step_of(application, applications.egraph)
    instance, after, sizes = examiner.instance(step)
    if instance is None:
        return None
    finding = judged(instance, after, sizes).finding
    if finding is None:
        return None
    constant = frozenset(
        name for name, number in application.classes.items() if applications.egraph.classes[number].constant
    )
    return Wrong(application, finding, after, constant)


def _region(first: Wrong, least: Wrong) -> GuiltyRegion:
    finding, application = least.finding, least.application
    left = finding.instance.left
    arrays = dict(least.arrays)
    stored = {name: arrays[name] for name in arrays if name in least.constant}
    return GuiltyRegion(
        rule=application.rule,
        where=tuple(application.left.classes[root] for root in application.left.shape.roots),
        model=_with_constants(model_of({"left": left}, typed=True), stored),
        both=_with_constants(model_of({"left": left, "right": least.after}, typed=True), stored),
        evidence=finding.evidence,
        arrays={name: array for name, array in arrays.items() if name not in stored},
        left=None if finding.left_value is None else np.asarray(finding.left_value),
        right=None if finding.right_value is None else np.asarray(finding.right_value),
        elements_before=first.size,
        elements=least.size,
    )


def _with_constants(proto: onnx.ModelProto, arrays: dict[str, Array]) -> onnx.ModelProto:
    """The model with some of its inputs as initializers."""
    names = {written(name): array for name, array in arrays.items()}
    kept = [value for value in proto.graph.input if value.name not in names]
    wanted = {value.name for value in proto.graph.input} & set(names)
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in names.items() if name in wanted
    )
    return proto


def _of_clash(applications: Applications) -> GuiltyRegion | None:
    """The first match whose two sides have different types: the values show that in their shapes."""
    for name, (clash, match, variant) in applications.clashes.items():
        binding = bind(variant, match)
        if binding is None:
            continue
        left = instantiate(variant.rule.left, binding)
        right = instantiate(variant.rule.right, binding, as_stored=True)
        return GuiltyRegion(
            rule=name, where=(), model=model_of({"left": left}, typed=True),
            both=model_of({"left": left, "right": right}, typed=True), evidence=_types(clash), arrays={}, left=None,
            right=None, elements_before=0, elements=0,
        )  # fmt: skip
    return None


def _types(clash: Clash) -> str:
    return f"types differ: {clash.left} on the left, {clash.right} on the right"


def fails_verification(region: GuiltyRegion, search: Search, rules: RuleSet, cost_model: CostModel) -> bool:
    """Whether the region, optimized under its rule alone, is refused by verification."""
    model = load(region.model)
    options = replace(search.options, rules=("default",), input_shape={}, inputs=None, max_growth=None)
    try:
        feeds = sample(model, seed=options.seed)
        inner = opened(model, options, search.clock)
        check = Verifier(model, feeds, options, search.clock, bound_of(rules))
        tried = attempt(Descent(inner), rules.only(region.rule), cost_model, check)
    except SuperoptError:
        return False
    return tried.verification is not None and not tried.verification.agree
