"""``optimize``: the stages in order, from a model to a model that computes the same, verified, with a report."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx

from superopt.conversion import converted
from superopt.cost import CostModel
from superopt.errors import SuperoptError
from superopt.explanation.files import check_folder, write_folder
from superopt.explanation.of_run import explain_run
from superopt.extraction.interchange import egraph_text
from superopt.inputs.feeds import Feeds
from superopt.laws import classes
from superopt.laws.trust import lawful
from superopt.lowering.lower import lower
from superopt.models.interface import interface_difference
from superopt.models.model import Model, load
from superopt.options import Feed, Options, options
from superopt.progress import Clock, Watcher
from superopt.reference import OpaqueRunner
from superopt.reporting.outcome import Outcome, report_document
from superopt.result import Result
from superopt.rules import RuleSet
from superopt.search.candidates import Search
from superopt.search.descent import Descent
from superopt.search.opening import opened
from superopt.search.selection import selected
from superopt.search.soundness import Sound, first_of_several, unsound
from superopt.settings import cost_models_of, feeds_of, rules_of, sizes_of, with_libraries
from superopt.verification.verifier import Verifier, bound_of
from superopt.verification.verify import Verification

if TYPE_CHECKING:
    import onnx_ir


def optimize(
    model: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    *,
    rules: str | RuleSet | Sequence[str | RuleSet] | None = None,
    without: str | Sequence[str] | None = None,
    numeric: str | None = None,
    ignoring: str | Sequence[str] | None = None,
    cost: str | CostModel | Sequence[str | CostModel] | None = None,
    limit: str | Mapping[str, int | float] | None = None,
    inputs: str | os.PathLike[str] | Feed | None = None,
    input_shape: Mapping[str, Sequence[int]] | None = None,
    initializers_are_constant: bool = False,
    target_opset: int | None = None,
    max_growth: str | float | None = 0.05,
    select: str | None = None,
    candidates: int | None = None,
    differ: int | None = None,
    tune: float | None = None,
    verify: str | None = None,
    external_data: str | None = None,
    custom_op_library: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    check_classes: bool = False,
    trust_rules: bool = False,
    explain: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    threads: int | None = None,
    provider: str | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """A model that computes the same outputs at the least cost that was found; see ``Options`` for the keywords.

    The result is the original where nothing better was found or nothing could be verified; its report says so.
    ``watcher`` is told of every stage. Raises ``InputError`` where the model or an option is at fault.
    """
    chosen = options(
        rules=rules, without=without, numeric=numeric, ignoring=ignoring, cost=cost, limit=limit, inputs=inputs,
        input_shape=input_shape, initializers_are_constant=initializers_are_constant,
        target_opset=target_opset, max_growth=max_growth, select=select, candidates=candidates,
        differ=differ, tune=tune, verify=verify, external_data=external_data,
        custom_op_library=custom_op_library, check_classes=check_classes, trust_rules=trust_rules,
        explain=explain, seed=seed, threads=threads, provider=provider,
    )  # fmt: skip
    return run(load(model), chosen, watcher)


def run(original: Model, chosen: Options, watcher: Watcher | None = None) -> Result:
    """Optimizes a loaded model; the stages in order. Raises ``InputError`` as ``optimize`` does."""
    original = with_libraries(original, chosen)
    if chosen.explain is not None:
        check_folder(chosen.explain)
    clock = Clock(watcher or Watcher())
    seconds = chosen.limit.get("seconds")
    deadline = None if seconds is None else time.perf_counter() + seconds

    with clock.stage("rules"):
        named, cost_models = rules_of(chosen), cost_models_of(chosen)
        rules, refuted = (named, ()) if chosen.trust_rules else lawful(named)
    start = original
    if chosen.target_opset is not None:
        with clock.stage("convert"):
            start = converted(original, chosen.target_opset)
    search = opened(start, chosen, clock, deadline)
    clock.watcher.dumped("terms", search.graph.text)
    with clock.stage("sample"):
        feeds = feeds_of(original, chosen)

    lowered = None if chosen.initializers_are_constant else search.lowered
    verifier = Verifier(original, feeds, chosen, clock, bound_of(rules), lowered)
    descent = Descent(replace(search, sizes=sizes_of(feeds)))
    verified = None if start is original else verifier(start)
    fault = verified if verified is not None and not verified.agree else None
    if fault is None and chosen.check_classes:
        fault = class_fault(descent, rules, feeds)
    sound, cost_model = (
        first_of_several(descent, rules, cost_models, verifier)
        if fault is None
        else (unsound(rules, fault), cost_models[0])
    )
    sound = replace(sound, left_out=refuted + sound.left_out)
    dump(sound, descent.search, cost_model)
    others = [each for each in cost_models if each is not cost_model]
    selection = selected(descent, sound, (cost_model, *others), verifier, feeds.values)
    outcome = Outcome(original, verified, descent.search, cost_model, sound, selection, clock.seconds)
    report = report_document(outcome)
    if chosen.explain is not None:
        try:
            write_folder(explain_run(outcome, report), chosen.explain)
        except SuperoptError as error:
            # The result is verified whether or not it can be told how it came about.
            report["problems"].append(f"not explained: {error}")
    return Result(outcome.model, report, chosen.external_data)


def class_fault(descent: Descent, rules: RuleSet, feeds: Feeds) -> Verification | None:
    """What is wrong with the rules as the members of some e-class show, in bodies too, or None where all agree."""
    with descent.search.clock.stage("check classes"):
        for search, values in descent.searches(feeds):
            model = search.lowered.model
            opaque = OpaqueRunner(model.proto, model.libraries)
            problem = classes.check_classes(
                search.graph, rules, search.limits, model.opset, values.values[: classes.CHECKED_FEEDS], opaque
            ).problem
            if problem is not None:
                where = "" if search is descent.search else f"the body {model.proto.graph.name!r}: "
                return Verification(False, True, f"{where}{problem}", search.options.numeric)
    return None


def dump(sound: Sound, search: Search, cost_model: CostModel) -> None:
    """Leaves the text forms of what was tried last with the watcher."""
    watcher, saturation, found = search.clock.watcher, sound.attempt.saturation, sound.attempt.found
    if saturation is not None:
        byte_price = None if found is None else found.extraction.byte_price
        watcher.dumped("egraph", lambda: egraph_text(saturation.egraph, cost_model, byte_price, search.sizes))
    if found is not None:
        watcher.dumped("chosen", found.extraction.graph.text)


def verify(
    original: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    new: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    *,
    numeric: str | None = None,
    inputs: str | os.PathLike[str] | Feed | None = None,
    input_shape: Mapping[str, Sequence[int]] | None = None,
    verify: str | None = None,
    custom_op_library: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    seed: int | None = None,
) -> Verification:
    """Whether two models agree, and how far each is from the truth in float64.

    Raises ``InputError`` where a model or an option is at fault.
    """
    chosen = options(
        numeric=numeric, inputs=inputs, input_shape=input_shape, verify=verify, custom_op_library=custom_op_library,
        seed=seed,
    )  # fmt: skip
    return compared(load(original), load(new), chosen, Clock(Watcher()))


def compared(original: Model, new: Model, chosen: Options, clock: Clock) -> Verification:
    """Whether two loaded models agree; not asked of the runtime where their interfaces differ."""
    right, other = with_libraries(original, chosen), with_libraries(new, chosen)
    lowered, _ = lower(right), lower(other)  # what is broken in them is no difference
    difference = interface_difference(right.proto, other.proto)
    if difference is not None:
        return Verification(False, True, difference, chosen.numeric)
    with clock.stage("sample"):
        feeds = feeds_of(right, chosen)
    return Verifier(right, feeds, chosen, clock, lowered=lowered)(other)
