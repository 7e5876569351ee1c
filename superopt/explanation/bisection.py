"""Which rule is to blame for a model that goes wrong, as one JSON document and the text rendered from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.explanation.explain import class_names
from superopt.explanation.guilty_region import GuiltyRegion, fails_verification, region_of
from superopt.explanation.suspects import Suspects, suspects
from superopt.laws.instances_content import described
from superopt.models.model import Model
from superopt.options import Options
from superopt.progress import Clock
from superopt.rules import RuleSet
from superopt.search.descent import Descent
from superopt.search.opening import opened
from superopt.settings import cost_model_of, feeds_of, rules_of, sizes_of, with_libraries
from superopt.verification.verifier import Verifier, bound_of
from superopt.version import versions

FORMAT = "superopt bisection 1"


class RegionDocument(TypedDict):
    """The smallest region that shows the rule: both sides as one model in ONNX text, ``left`` and ``right``; the inputs
    and both values. ``place`` is the way to the body that it is in, empty for the main graph; ``where`` names the value
    of the original. ``fails`` tells whether optimizing it under the rule alone is refused by verification; where not,
    the two sides differ and the cost model does not choose the wrong one. ``elements`` are those of its inputs, before
    they were made smaller and after."""

    place: str
    where: list[str | None]
    text: str
    evidence: str
    inputs: str
    left: str
    right: str
    fails: bool
    elements: dict[str, int]


class Bisection(TypedDict):
    """The document. ``guilty`` is None where nothing wrong was found; ``needs`` are further rules without which it does
    no harm. ``found_by`` is verification, types or classes; ``trials`` counts searches."""

    format: str
    versions: dict[str, str]
    source: str
    rules: int
    guilty: str | None
    needs: list[str]
    text: str
    because: str
    found_by: str
    trials: int
    region: RegionDocument | None
    seconds: dict[str, float]


@dataclass(frozen=True)
class Bisected:
    """The document, and the region's left side as a model, where one was found."""

    document: Bisection
    region: onnx.ModelProto | None


def bisect(original: Model, options: Options, clock: Clock) -> Bisected:
    """The guilty rule under which a model goes wrong, all rules of the options trusted.

    Raises ``InputError`` where the model or an option is at fault, ``VerificationError`` where it cannot be told.
    """
    original = with_libraries(original, options)
    rules, cost_model = rules_of(options), cost_model_of(options)
    search = opened(original, options, clock)
    with clock.stage("sample"):
        feeds = feeds_of(original, options)
    search = replace(search, sizes=sizes_of(feeds))
    check = Verifier(original, feeds, options, clock, bound_of(rules))
    descent = Descent(search)
    with clock.stage("bisect"):
        found = suspects(descent, rules, cost_model, check, feeds)
    if found is None:
        return Bisected(_document(original, rules, None, None, None, clock), None)
    suspected = rules.only(*found.rules)
    for inner, _ in descent.searches(feeds):
        saturation = inner.saturate(suspected)
        region = region_of(inner, saturation, suspected)
        if region is not None:
            fails = fails_verification(region, search, rules, cost_model)
            names = class_names(inner.lowered, inner.graph, saturation.egraph)
            shown = _region_document(region, names, inner.place, fails)
            return Bisected(_document(original, rules, found, region, shown, clock), region.model)
    return Bisected(_document(original, rules, found, None, None, clock), None)


def _document(
    original: Model, rules: RuleSet, found: Suspects | None, region: GuiltyRegion | None, shown: RegionDocument | None,
    clock: Clock,
) -> Bisection:  # fmt: skip
    guilty = None if found is None else region.rule if region is not None else found.rules[-1]
    return {
        "format": FORMAT,
        "versions": versions(),
        "source": original.label,
        "rules": len(rules),
        "guilty": guilty,
        "needs": [] if found is None else [name for name in found.rules if name != guilty],
        "text": "" if guilty is None else rules[guilty].text.rstrip(),
        "because": "" if found is None else found.because,
        "found_by": "" if found is None else found.found_by,
        "trials": 1 if found is None else found.trials,
        "region": shown,
        "seconds": {name: round(spent, 3) for name, spent in clock.seconds.items()},
    }


def _region_document(region: GuiltyRegion, names: Mapping[int, str], place: str, fails: bool) -> RegionDocument:
    return {
        "place": place,
        "where": [names.get(number) for number in region.where],
        "text": str(onnx.printer.to_text(region.both)).rstrip(),
        "evidence": region.evidence,
        "inputs": described(region.arrays),
        "left": _value(region.left),
        "right": _value(region.right),
        "fails": fails,
        "elements": {"before": region.elements_before, "after": region.elements},
    }


def _value(array: NDArray[np.generic] | None) -> str:
    return "" if array is None else described({"": array}).removeprefix(" = ")


def bisection_text(document: Bisection, written: str | None) -> list[str]:
    """What ``superopt bisect`` prints."""
    if document["guilty"] is None:
        return [f"{document['source']}: nothing wrong was found under {document['rules']} rules"]
    lines = [f"{document['source']}: rule {document['guilty']} is wrong: {document['because']}"]
    if document["needs"]:
        lines.append(f"It does harm together with: {', '.join(document['needs'])}")
    lines += ["", document["text"], ""]
    region = document["region"]
    if region is None:
        return [*lines, "No single use of it differs from the original by itself: no smaller region shows it."]
    known = [name for name in region["where"] if name is not None]
    of = f" of {known[0]}" if known else ""
    inside = f" in {region['place']}" if region["place"] else ""
    lines.append(f"The smallest region{of}{inside} that shows it, {region['evidence']}:")
    lines += [region["text"], *([region["inputs"]] if region["inputs"] else [])]
    if region["left"] or region["right"]:
        lines += [f"left  = {region['left']}", f"right = {region['right']}"]
    if written is not None:
        how = "verification refuses it" if region["fails"] else "the two sides differ"
        lines.append(f"{written}: the left side as a model; under this rule alone {how}")
    return lines
