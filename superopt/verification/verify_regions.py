"""Verifies a new model by its rewritten regions alone: where the whole cannot be run, or running it says nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from superopt.errors import EvaluationError, InputError
from superopt.evaluate import Feed, Runner, RuntimeValue
from superopt.inputs.feeds import Feeds, as_feeds
from superopt.inputs.sample import sample
from superopt.models.byte_counts import stored_bytes
from superopt.models.inference import tensor_type, value_types
from superopt.models.model import Model
from superopt.models.tensors import constant_of_tensor
from superopt.operators import dtype_name
from superopt.rules import NumericClass
from superopt.terms import TensorType
from superopt.verification.perturb import has_random, with_seeds
from superopt.verification.regions import Difference, Region, ValueTypes
from superopt.verification.verify import Verification, verify

LARGEST_RUN = 1 << 30
"""Bytes of weights above which a model is not run as a whole to see what values its regions get."""

_MOST_WIDENED = 3
"""How often a region that is spoken against begins a node earlier, before it begins as early as it can."""

_MOST_OBSERVED = 2
"""The runs of the original whose values its regions are given."""


@dataclass(frozen=True)
class _Policy:
    """How regions are judged: as whole models are."""

    numeric: NumericClass
    ignoring: Collection[str]
    within: float
    seed: int


def verify_regions(
    original: Model,
    new: Model,
    feeds: Feeds | Sequence[Feed] = (),
    numeric: NumericClass = "reassociates",
    *,
    ignoring: Collection[str] = (),
    within: float = 0.0,
    seed: int = 0,
) -> Verification:
    """Compares what differs between two models, region by region, each as ``verify`` compares whole ones.

    A region gets the values that it gets in the original when that runs on the feeds; without feeds, or where running
    the whole would take too much memory, seeded random values of the types and shapes that are known, in several sizes
    where these are open. A region that cannot be run speaks against the new model.
    """
    feeds = as_feeds(feeds)
    difference = Difference(original, new)
    regions = difference.regions()
    if not regions:
        return Verification(True, True, "by regions: nothing was rewritten", numeric, regions=0)
    types: dict[str, TensorType | onnx.TypeProto | None] = {**_types(new), **_types(original)}
    names = tuple(dict.fromkeys(name for region in regions for name in region.inputs))
    policy = _Policy(numeric, ignoring, within, seed)
    observed = _observed(original, names, feeds)
    if observed:
        types.update({name: _seen_type(types.get(name), [run[name] for run in observed]) for name in names})
        results = [_with_observed(difference, region, types, observed, policy) for region in regions]
        runs = "one run" if len(observed) == 1 else f"{len(observed)} runs"
        how = f"the values of {runs} of the original"
    else:
        stops = frozenset(name for name in difference.common if _can_be_chosen(difference, name, types))
        regions = difference.regions(stops)
        results = [_with_made_up(difference, region, types, stops, policy) for region in regions]
        how = "random values"
    verdict = _together(results, how, numeric)
    if observed:
        verdict = replace(verdict, feeds=tuple(feed.text for feed in feeds.feeds[: len(observed)]))
    return verdict


def _together(results: Sequence[Verification], how: str, numeric: NumericClass) -> Verification:
    wrong = next((result for result in results if not result.agree), None)
    count = f"each of {len(results)} rewritten regions" if len(results) > 1 else "the one rewritten region"
    near = "is within the rounding error of the original itself"
    what = wrong.reason if wrong else f"{count} {'gives the same bits' if numeric == 'exact' else near}, on {how}"
    lacking = [result.truth for result in results if not result.truth.startswith("float64")]
    truth = results[0].truth if not lacking else lacking[0]
    if lacking and len(lacking) < len(results):
        truth = f"float64 for {len(results) - len(lacking)} of {len(results)} regions; {lacking[0]} for the others"
    return Verification(
        wrong is None,
        True,
        f"by regions: {what}",
        numeric,
        tuple(check for result in results for check in result.outputs),
        truth,
        tuple(dict.fromkeys(text for result in results for text in result.feeds)),
        max(result.perturbations for result in results),
        len(results),
    )


def _with_observed(
    difference: Difference, region: Region, types: ValueTypes, observed: Sequence[Feed], policy: _Policy
) -> Verification:
    original, new = difference.models(region, types)
    feeds = [{name: run[name] for name in region.inputs} for run in observed]
    return _verify(original, new, feeds, policy, region)


def _with_made_up(
    difference: Difference, region: Region, types: ValueTypes, stops: frozenset[str], policy: _Policy
) -> Verification:
    """A verdict on random values. Not every value is one that the model can come to (what comes out of a Relu is not
    negative), and inputs that depend on each other cannot be chosen freely: where a verdict speaks against a region,
    those are computed from the others, or else all from what they are made of, and it is given once more."""
    widened = 0
    while True:
        original, new = difference.models(region, types)
        try:
            feeds = sample(original, seed=policy.seed, small=True, special=policy.numeric == "exact")
            verdict = _verify(original, new, feeds, policy, region)
        except (EvaluationError, InputError) as error:
            reason = f"{region.outputs[0]}: its region cannot be run: {error}"
            verdict = Verification(False, True, reason, policy.numeric)
        if verdict.agree:
            return verdict
        free = {*difference.dependent(region)} & stops
        if not free:
            widened += 1
            free = {name for name in region.inputs if name in stops and difference.is_made(name)}
            if free and widened > _MOST_WIDENED:
                free = {name for name in stops if difference.is_made(name)}
        if not free:
            return verdict
        stops = stops - free
        region = difference.region(region.outputs, stops)


def _verify(
    original: Model, new: Model, feeds: Feeds | Sequence[Feed], policy: _Policy, region: Region
) -> Verification:
    verdict = verify(
        original, new, feeds, policy.numeric, ignoring=policy.ignoring, within=policy.within, seed=policy.seed
    )
    if verdict.conclusive:
        return verdict
    return replace(verdict, conclusive=True, reason=f"{region.outputs[0]}: its region: {verdict.reason}")


def _can_be_chosen(difference: Difference, name: str, types: ValueTypes) -> bool:
    """Whether random values do for a value: floats do; what cannot be computed leaves no choice.

    Integers are sizes and indices: what comes of them decides whether a model runs at all.
    """
    if name not in difference.old.makers or not difference.old.is_computable(name):
        return True
    kind = types.get(name)
    return isinstance(kind, TensorType) and "float" in kind.dtype


def _types(model: Model) -> dict[str, TensorType | onnx.TypeProto | None]:
    found: dict[str, TensorType | onnx.TypeProto | None] = {}
    for value in (*model.proto.graph.value_info, *model.proto.graph.output, *model.proto.graph.input):
        if value.HasField("type"):
            found[value.name] = tensor_type(value.type) or value.type
    found.update({name: kind for name, kind in value_types(model, frozenset()).items() if kind is not None})
    return found


def _observed(model: Model, names: Sequence[str], feeds: Feeds) -> list[dict[str, RuntimeValue]]:
    """What these values are when the model runs on some feeds; nothing where it does not run, or is too large to."""
    if not feeds.feeds or feeds.by_terms or stored_bytes(model) > LARGEST_RUN:
        return []
    subject = (with_seeds(model) if has_random(model.proto) else None) or model
    proto = onnx.ModelProto()
    proto.CopyFrom(subject.proto)
    inputs = {value.name for value in proto.graph.input}
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in inputs)
    # What callers may override has its own value where they do not.
    defaults = {
        tensor.name: constant_of_tensor(tensor, subject.folder).array()
        for tensor in proto.graph.initializer
        if tensor.name in inputs and tensor.name in names
    }
    found: list[dict[str, RuntimeValue]] = []
    try:
        runner = Runner(replace(subject, proto=proto, source=None)) if proto.graph.output else None
        for feed in feeds.values[:_MOST_OBSERVED]:
            run = {**defaults, **feed, **(runner.run(feed) if runner else {})}
            found.append({name: run[name] for name in names if run.get(name) is not None})
    except EvaluationError:
        return []
    return found if all(len(run) == len(names) for run in found) else []


def _seen_type(known: Any, seen: Sequence[RuntimeValue]) -> TensorType | onnx.TypeProto | None:
    """The type of values that were seen: what is known of it, where that is true of all of them."""
    if not all(isinstance(value, np.ndarray) for value in seen):
        return known if isinstance(known, onnx.TypeProto) else None
    dtype = seen[0].dtype
    name = "string" if dtype.kind in "OUS" else dtype_name(helper.np_dtype_to_tensor_dtype(dtype))
    if isinstance(known, TensorType) and known.dtype == name and known.shape is not None:
        fits = all(
            len(known.shape) == value.ndim
            and all(not isinstance(dim, int) or dim == size for dim, size in zip(known.shape, value.shape, strict=True))
            for value in seen
        )
        if fits:
            return known
    ranks: Mapping[int, None] = dict.fromkeys(value.ndim for value in seen)
    return TensorType(name, (None,) * seen[0].ndim if len(ranks) == 1 else None)
