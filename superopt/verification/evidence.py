"""What is known of the original before anything is compared with it: outputs, truth, and its own sensitivity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from superopt.errors import EvaluationError, SuperoptError
from superopt.evaluate import Feed, Runner, RuntimeValue, arrays_of, is_empty, same_bits
from superopt.inputs.feeds import Feeds, as_feeds
from superopt.inputs.sample import runner_of
from superopt.kernels import is_float
from superopt.lowering.lower import Lowered, lower
from superopt.models.model import Model
from superopt.reference import TermRunner, float64_truth
from superopt.terms import TensorType, TermGraph
from superopt.verification.distance import Spread, difference, spread, unit_roundoff
from superopt.verification.perturb import has_random, perturbed_feed, perturbed_model, with_seeds

Outputs = Mapping[str, RuntimeValue]

_HEAVY, _HEAVIEST = 2e9, 1e10
"""Multiplications a run above which two feeds are enough, and above which one is."""

MORE_UNITS, MORE_TIMES = 4, 4
"""How the sensitivity is measured again where a first verdict is against the new model: units in the last place, and
how many times."""

_FAR_TIMES, _FAR_ROUNDINGS = 64, 2**10
"""How many times its noise, and how many roundings besides, the original may be from float64 for that to be its truth:
a sum of 2**20 terms, whose errors mostly cancel, is off by about the root of their number. Beyond, the two compute
something else; and within, the new model may be off by little more than twice as much (``verify.TRUTH_FACTOR``)."""

CHAOS, CHAOS_UNITS = 1e-3, 64
"""The share of its root mean square by which an output must move to be called chaotic, and no less than so many
roundings: a rule that is wrong in the fourth digit could hide there."""


@dataclass
class Evidence:
    """The original's outputs on some feeds, and how far it is to be trusted.

    ``noise`` are the outputs again, per feed: with inputs and weights moved by a unit in the last place; ``optimized``
    with onnxruntime's optimizations on. ``truth`` are outputs in float64 of the first feed, where operators of
    ``narrow`` computed in the model's own types; ``no_truth`` says why there are none. ``random`` names outputs that
    differ from run to run, though ``model`` has seeds at its random operators where it is ``seeded``. ``by_terms`` is
    true where onnxruntime does not run the model, and its terms are evaluated in float64 instead. ``places`` says which
    of the feeds that were given are used, ``types`` are onnxruntime's names of the outputs' types. ``perturbations``
    counts the runs with something moved; ``wider`` is true once ``widen`` was asked for.
    """

    model: Model
    feeds: tuple[Feed, ...]
    outputs: Sequence[Outputs]
    noise: list[list[Outputs]]
    optimized: list[list[Outputs]]
    truth: Outputs | None = None
    no_truth: str | None = None
    narrow: tuple[str, ...] = ()
    random: frozenset[str] = frozenset()
    by_terms: bool = False
    seeded: bool = False
    places: tuple[int, ...] = ()
    perturbations: int = 0
    wider: bool = False
    types: Mapping[str, str] = field(default_factory=dict)

    def widen(self, seed: int) -> None:
        """Measures the sensitivity again, with larger steps and more often, and with onnxruntime's optimizations on."""
        if self.wider:
            return
        self.wider = True
        if not self.by_terms:
            self.add_optimized()
        for time in range(MORE_TIMES):
            self.add_noise(seed + 100 + time, MORE_UNITS)

    def add_noise(self, seed: int, units: int) -> None:
        """Runs with weights and inputs moved; with inputs alone where the weights are too many to copy."""
        moved = perturbed_model(self.model, seed, units) or self.model
        try:
            self.add_noise_of_inputs(_runner(moved, self.by_terms), seed, units)
        except EvaluationError:
            return  # Moved weights may lead where the model cannot follow: that says nothing of rounding.

    def add_noise_of_inputs(self, runner: Runner | TermRunner, seed: int, units: int = 1) -> None:
        """Runs with inputs moved."""
        try:
            results = [runner.run(perturbed_feed(feed, seed, units)) for feed in self.feeds]
        except EvaluationError:
            return  # Moved inputs may be out of a model's range; that says nothing of rounding either.
        self.perturbations += 1
        for place, result in enumerate(results):
            self.noise[place].append(result)

    @cached_property
    def prepacked_outputs(self) -> Mapping[int, Outputs] | None:
        """The original's outputs with prepacked weights and no optimization; None where it does not run so."""
        return self._of_original(self.run_prepacked)

    @cached_property
    def optimized_outputs(self) -> Mapping[int, Outputs] | None:
        """The original's outputs with onnxruntime's optimizations on; None where they leave it unfit to run."""
        return self._of_original(self.run_optimized)

    def _of_original(self, run: Callable[[Model], Mapping[int, Outputs]]) -> Mapping[int, Outputs] | None:
        try:
            return run(self.model)
        except EvaluationError:
            return None

    def add_optimized(self) -> None:
        """Adds runs with onnxruntime's optimizations on; where they fail on the original, the new model is not at
        fault."""
        for place, result in (self.optimized_outputs or {}).items():
            self.optimized[place].append(result)

    def run_prepacked(self, model: Model) -> Mapping[int, Outputs]:
        """What a model gives with prepacked weights and no optimization, by the place of the feed, those without
        elements left out. Raises EvaluationError where it does not run so."""
        return self._run(Runner(model, prepacked=True))

    def run_optimized(self, model: Model) -> Mapping[int, Outputs]:
        """What a model gives with onnxruntime's optimizations on, by the place of the feed.

        Inputs without elements are left out: for those onnxruntime fuses what it then cannot run (sizes that it infers
        by -1), and its faults are no fault of the model. Raises EvaluationError where it fails on others.
        """
        return self._run(Runner(model, optimized=True))

    def _run(self, runner: Runner) -> Mapping[int, Outputs]:
        return {place: runner.run(feed) for place, feed in enumerate(self.feeds) if not is_empty(feed)}


def gather(
    model: Model,
    feeds: Feeds | Sequence[Feed],
    *,
    exact: bool = False,
    seed: int = 0,
    lowered: Lowered | None = None,
) -> Evidence:
    """Runs the original in all the ways that judging needs; ``exact`` leaves out what bit-exactness has no use for.

    What ``sample`` has run already is not run again, and the model is not lowered where it was: ``lowered``. Raises
    EvaluationError where the model cannot be run.
    """
    feeds = as_feeds(feeds)
    values = feeds.values
    if not values:
        raise EvaluationError("no inputs to run it on")
    random_inside = has_random(model.proto)
    seeded = with_seeds(model) if random_inside else None
    subject = seeded or model
    if lowered is None or lowered.model is not subject:
        lowered = lower(subject)
    work = multiplications(lowered.graph)
    heavy = work > _HEAVY
    enough = (1 if work > _HEAVIEST else 2) if heavy else len(values)
    places = [place for place, feed in enumerate(values) if place < enough or is_empty(feed)]
    used = tuple(values[place] for place in places)
    known = [None if random_inside else feeds.feeds[place].outputs for place in places]
    runner = None if None not in known and heavy else runner_of(subject)
    outputs = [runner.run(feed) if runner else at or {} for feed, at in zip(used, known, strict=True)]
    by_terms = isinstance(runner, TermRunner) or (runner is None and feeds.by_terms)
    types = runner.output_types if isinstance(runner, Runner) else {}
    evidence = Evidence(
        subject, used, outputs, [[] for _ in used], [[] for _ in used], by_terms=by_terms, seeded=seeded is not None,
        places=tuple(places), types=types,
    )  # fmt: skip
    if random_inside:
        evidence.random = _random_outputs(subject, evidence)
        runner = _runner(subject, by_terms)
    if exact:
        evidence.no_truth = "not asked for: bits are compared"
        return evidence
    evidence.add_noise(seed + 1, 1)
    if runner is not None:
        evidence.add_noise_of_inputs(runner, seed)
        del runner
    _find_truth(evidence, lowered)
    return evidence


def multiplications(graph: TermGraph) -> float:
    """The multiplications of a graph's convolutions and matrix products, where their sizes are known."""
    total = 0.0
    for node, kind in zip(graph.nodes, graph.types, strict=True):
        if node.op not in ("Conv", "ConvTranspose", "MatMul", "Gemm") or not isinstance(kind, TensorType):
            continue
        data, weight = graph.types[node.args[0]], graph.types[node.args[1]]
        if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or not weight.size:
            continue
        # ConvTranspose uses every weight of a channel once per input element, the others once per output element.
        elements, kept = (data.size, 0) if node.op == "ConvTranspose" else (kind.size, 0 if node.op == "Conv" else -1)
        columns = weight.shape[0 if node.op == "Gemm" and node.attrs.get("transB") else kept] if weight.shape else 1
        total += (elements or 0) * weight.size / (columns if isinstance(columns, int) and columns else 1)
    return total


def _random_outputs(model: Model, evidence: Evidence) -> frozenset[str]:
    """The outputs that a second run changes; from the start again, since a random operator goes on from run to run."""
    repeated = _runner(model, evidence.by_terms)
    again = [repeated.run(feed) for feed in evidence.feeds]
    return frozenset(
        name
        for first, second in zip(evidence.outputs, again, strict=True)
        for name in first
        if not same_bits(first[name], second[name])
    )


def _runner(model: Model, by_terms: bool) -> Runner | TermRunner:
    return TermRunner(model) if by_terms else Runner(model)


def _find_truth(evidence: Evidence, lowered: Lowered) -> None:
    """The first feed's outputs in float64, where they are near to what onnxruntime makes of it."""
    if evidence.by_terms:
        evidence.no_truth = "onnxruntime does not run the model: its terms are evaluated in float64 on both sides"
        return
    try:
        truth = float64_truth(lowered.graph, evidence.feeds[0], evidence.model)
    except SuperoptError as error:
        evidence.no_truth = f"no float64 evaluation: {error}"
        return
    values = dict(zip(lowered.root_names, truth.values, strict=True))
    found = {name: values[name] for name in evidence.outputs[0]}
    for name, value in found.items():
        problem = _beyond_rounding(evidence, name, value)
        if problem:
            evidence.no_truth = f"float64 and onnxruntime differ beyond rounding on the original: {name}, {problem}"
            return
    evidence.truth, evidence.narrow = found, truth.narrow


def _beyond_rounding(evidence: Evidence, name: str, value: RuntimeValue) -> str | None:
    """What speaks against an output in float64 being what onnxruntime rounds."""
    mine, true = arrays_of(evidence.outputs[0][name]), arrays_of(value)
    if len(mine) != len(true):
        return f"{len(mine)} and {len(true)} tensors"
    for place, (a, t) in enumerate(zip(mine, true, strict=True)):
        if a.shape != t.shape:
            return f"shapes {list(a.shape)} and {list(t.shape)}"
        if not is_float(a.dtype):
            continue
        if not np.array_equal(np.isfinite(a), np.isfinite(t)):
            return "not finite in the same places"
        noise = noise_of(evidence, 0, name, place)
        allowed = noise * _FAR_TIMES + spread(a.astype(np.float64)) * (_FAR_ROUNDINGS * unit_roundoff(a.dtype))
        off = difference(a, t)
        if off.exceeds(allowed):
            return f"by {off.largest:.3g}, of which {allowed.largest:.3g} may be rounding"
    return None


def noise_of(evidence: Evidence, feed: int, name: str, place: int) -> Spread:
    """The most that a float output moved by itself: tensor ``place`` of an output, on one feed."""
    base = arrays_of(evidence.outputs[feed][name])[place]
    found = Spread()
    for other in _others([*evidence.noise[feed], *evidence.optimized[feed]], name, place, base):
        found = found | difference(other, base)
    return found


def chaotic_outputs(evidence: Evidence) -> frozenset[str]:
    """The outputs that a unit in the last place moves so far that comparing them says little."""
    found: set[str] = set()
    for feed, outputs in enumerate(evidence.outputs):
        for name in sorted(set(outputs) - evidence.random):
            for place, array in enumerate(arrays_of(outputs[name])):
                if is_float(array.dtype):
                    share = max(CHAOS, CHAOS_UNITS * unit_roundoff(array.dtype))
                    if noise_of(evidence, feed, name, place).rms > share * spread(array.astype(np.float64)).rms:
                        found.add(name)
    return frozenset(found)


def flips_of(evidence: Evidence, feed: int, name: str, place: int, *, optimized: bool) -> int:
    """The most elements of a tensor that changed by themselves: in value, or for floats in being finite.

    What onnxruntime's optimizations change in the original excuses the new model's optimized run alone: they fold, and
    a fold of theirs that overflows is no excuse for one of ours.
    """
    base = arrays_of(evidence.outputs[feed][name])[place]
    runs = [*evidence.noise[feed], *(evidence.optimized[feed] if optimized else ())]
    return max((changed(other, base) for other in _others(runs, name, place, base)), default=0)


def changed(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> int:
    """How many elements differ: in value, or for floats in being NaN, infinity or finite."""
    if is_float(left.dtype):
        finite = np.isfinite(left) & np.isfinite(right)
        same = finite | (left == right) | (np.isnan(left) & np.isnan(right))
        return int(np.count_nonzero(~same))
    return int(np.count_nonzero(left != right))


def _others(runs: Sequence[Outputs], name: str, place: int, base: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    found = []
    for outputs in runs:
        arrays = arrays_of(outputs.get(name))
        if place < len(arrays) and arrays[place].shape == base.shape:
            found.append(arrays[place])
    return found
