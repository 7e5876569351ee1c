"""Do two models agree, and how far is each from the truth."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from superopt.errors import EvaluationError
from superopt.evaluate import Feed, Runner, RuntimeValue, arrays_of, equal_bits, is_empty, same_bits
from superopt.inputs.feeds import Feeds, as_feeds
from superopt.kernels import Array, is_float
from superopt.models.model import Model
from superopt.reference import TermRunner
from superopt.report import OutputCheck
from superopt.rules import NumericClass
from superopt.verification.distance import Spread, class_agreement, difference, error, spread, unit_roundoff
from superopt.verification.evidence import Evidence, changed, flips_of, gather, noise_of
from superopt.verification.perturb import with_seeds

TRUTH_FACTOR = 2.0
"""How many times the original's error against the truth the new model's may be, beside its sensitivity."""

NOISE_FACTOR = 8.0
"""How many times the original's own movement counts: the most of the few times that it is measured is not the most."""

ROUNDINGS = 8.0
"""How many roundings of the largest value any rewriting may add, where the original seems to make none."""

MEAN_FACTOR = 2.0
"""What stands for both in the root mean square of very many elements, which hardly varies: in n elements the factor is
2 + 6 / sqrt(n), since the mean of n squares is known to about 1 / sqrt(n)."""


@dataclass(frozen=True)
class Verification:
    """Whether a new model may stand for the original.

    ``agree`` is the verdict and ``reason`` what it rests on, or what speaks against it. ``conclusive`` is false where
    the original cannot be run, so that nothing is known of the new model. ``truth`` says what stood for the truth,
    ``feeds`` what the models ran on, ``perturbations`` how often the original's sensitivity was measured. ``regions``
    counts the parts that were compared one by one; None where the whole models were. ``on_empty`` is true where all
    that speaks against the new model is what it does on inputs without elements.
    """

    agree: bool
    conclusive: bool
    reason: str
    numeric: NumericClass
    outputs: tuple[OutputCheck, ...] = ()
    truth: str = ""
    feeds: tuple[str, ...] = ()
    perturbations: int = 0
    regions: int | None = None
    on_empty: bool = False


def verify(
    original: Model,
    new: Model,
    feeds: Feeds | Sequence[Feed],
    numeric: NumericClass = "reassociates",
    *,
    ignoring: Collection[str] = (),
    within: float = 0.0,
    seed: int = 0,
    evidence: Evidence | None = None,
) -> Verification:
    """Compares two models on inputs, both in onnxruntime without optimizations, then the new one also with them.

    ``exact`` asks for the same bits (any NaN is equal to any NaN). Otherwise shapes and types must be equal, and floats
    may be off by as much as the original itself is, in the largest element and in the root mean square:

        error_new <= 2 * error_original + 8 * noise + 8 roundings of the largest value + within * largest value

    (in the root mean square of n elements 2 + 6 / sqrt(n) stands for 8).
    Errors are against the model in float64; where there is no such truth, the difference from the original is held
    against the same bound. Noise is how far the original's outputs move when its inputs and weights move by one unit in
    the last place, or when onnxruntime optimizes it. Integers, booleans and strings must be equal, but for as many as
    eight times those that the noise changes (near ties of an ArgMax or a Round). Outputs that are random for all that
    seeds are held equal are compared in shape and type alone. ``evidence`` is ``gather``'s, to judge several new models
    by. A verdict against the new model is given only after the noise was measured again more widely.
    """
    feeds, exact = as_feeds(feeds), numeric == "exact"
    try:
        evidence = evidence or gather(original, feeds, exact=exact, seed=seed)
    except EvaluationError as problem:
        return Verification(False, False, f"cannot run: the original: {problem}", numeric)
    texts = tuple(feeds.feeds[place].text for place in evidence.places)
    subject = (with_seeds(new) or new) if evidence.seeded else new
    empty = [place for place, feed in enumerate(evidence.feeds) if is_empty(feed)]
    if len(empty) == len(evidence.feeds):
        empty = []
    try:
        runner = TermRunner(subject) if evidence.by_terms else Runner(subject)
        plain = {place: runner.run(feed) for place, feed in enumerate(evidence.feeds) if place not in empty}
        optimized = None if evidence.by_terms else _optimized(subject, evidence)
    except EvaluationError as problem:
        return Verification(False, True, f"the new model does not run: {problem}", numeric, feeds=texts)
    judge = _Judge(evidence, exact, frozenset(ignoring), within)
    problems = judge.problems(plain, optimized)
    if problems and optimized is not None and evidence.optimized_outputs is None:
        # What optimizations make of a model that they leave unfit to run is not the new model's fault.
        optimized = None
        problems = judge.problems(plain, optimized)
    if exact and not problems and not evidence.by_terms:
        problems = judge.prepacked(subject)
    if problems and not exact and not evidence.wider:
        evidence.widen(seed)
        problems = judge.problems(plain, optimized)
    on_empty = {} if problems else judge.on_empty(runner, empty)
    problems = problems or on_empty
    checks = tuple(_check(evidence, plain, name, problems.get(name)) for name in evidence.outputs[0])
    worst = next(iter(problems.items()), None)
    reason = f"{worst[0]}: {worst[1]}" if worst else _why(evidence, exact, optimized is not None)
    return Verification(
        worst is None, True, reason, numeric, checks, _truth_text(evidence), texts, evidence.perturbations,
        on_empty=bool(on_empty),
    )  # fmt: skip


def _why(evidence: Evidence, exact: bool, optimized: bool) -> str:
    runs = f"{len(evidence.feeds)} feeds" if len(evidence.feeds) != 1 else "one feed"
    text = f"the same bits on {runs}" if exact else f"within the rounding error of the original itself, on {runs}"
    if evidence.by_terms:
        text += "; evaluated as terms in float64, since onnxruntime does not run the original"
    elif not optimized:
        text += "; without onnxruntime's optimizations, with which the original does not run"
    if evidence.random:
        text += f"; random outputs compared in shape and type alone: {', '.join(sorted(evidence.random))}"
    return text


def _truth_text(evidence: Evidence) -> str:
    if evidence.truth is None:
        return f"none: {evidence.no_truth}"
    return "float64" + (f"; {', '.join(evidence.narrow)} in the model's own types" if evidence.narrow else "")


def _optimized(new: Model, evidence: Evidence) -> Mapping[int, Feed] | None:
    """The new model's outputs with optimizations on; None where they fail on the original too."""
    try:
        return evidence.run_optimized(new)
    except EvaluationError:
        if evidence.optimized_outputs is not None:
            raise
        return None


@dataclass(frozen=True)
class _Judge:
    """The verdict on outputs of the new model: what speaks against it, by name of the output."""

    evidence: Evidence
    exact: bool
    ignoring: frozenset[str]
    within: float

    def problems(self, plain: Mapping[int, Feed], optimized: Mapping[int, Feed] | None) -> dict[str, str]:
        """What speaks against outputs without optimizations, and with them (None where those tell nothing)."""
        return self._other_bits(plain, optimized) if self.exact else self._too_far(plain, optimized)

    def on_empty(self, runner: Runner | TermRunner, places: Sequence[int]) -> dict[str, str]:
        """What speaks against it on inputs without elements: that it does not run there, or other outputs. Where it is
        too large to be tried on such, which the original was not, nothing does."""
        feeds = {place: self.evidence.feeds[place] for place in places}
        try:
            found = {
                place: runner.run(feed)
                for place, feed in feeds.items()
                if isinstance(runner, TermRunner) or runner.dares(feed)
            }
        except EvaluationError as error:
            return {next(iter(self.evidence.outputs[0])): f"on inputs without elements: {error}"}
        return self.problems(found, None)

    def _other_bits(self, plain: Mapping[int, Feed], optimized: Mapping[int, Feed] | None) -> dict[str, str]:
        problems: dict[str, str] = {}
        for feed in plain:
            for name, value in self.evidence.outputs[feed].items():
                problem = self._form(name, value, plain[feed], "")
                if not problem and optimized is not None and feed in optimized:
                    problem = self._form(name, value, optimized[feed], " with optimizations on")
                if not problem and name not in self.evidence.random and not same_bits(value, plain[feed][name]):
                    problem = f"{_differing(value, plain[feed][name])} on feed {feed}, expected the same bits"
                if problem:
                    problems.setdefault(name, problem)
        return problems

    def prepacked(self, new: Model) -> dict[str, str]:
        """Where bits differ once kernels prepack weights: a weight that became constant may have another kernel."""
        before = self.evidence.prepacked_outputs
        if before is None:
            return {}
        try:
            after = self.evidence.run_prepacked(new)
        except EvaluationError as error:
            return {next(iter(self.evidence.outputs[0])): f"with weights prepacked: {error}"}
        problems: dict[str, str] = {}
        for feed, original in before.items():
            for name, value in original.items():
                if name not in self.evidence.random and not same_bits(value, after[feed][name]):
                    differing = _differing(value, after[feed][name])
                    problems.setdefault(
                        name, f"{differing} on feed {feed} with weights prepacked, expected the same bits"
                    )
        return problems

    def _too_far(self, plain: Mapping[int, Feed], optimized: Mapping[int, Feed] | None) -> dict[str, str]:
        problems: dict[str, str] = {}
        for results, how in ((plain, ""), (optimized or {}, " with optimizations on")):
            for feed in results:
                for name, value in self.evidence.outputs[feed].items():
                    problem = self._form(name, value, results[feed], how)
                    if not problem and name not in self.evidence.random:
                        problem = self._values(feed, name, results[feed][name], how)
                    if problem:
                        problems.setdefault(name, problem)
        return problems

    def _form(self, name: str, value: RuntimeValue, results: Feed, how: str) -> str | None:
        if name not in results:
            return f"missing{how}"
        mine, other = arrays_of(value), arrays_of(results[name])
        if len(mine) != len(other) or (value is None) != (results[name] is None):
            return f"{len(other)} tensors{how}, expected {len(mine)}"
        for a, b in zip(mine, other, strict=True):
            if a.dtype != b.dtype or (a.shape != b.shape and name not in self.evidence.random) or a.ndim != b.ndim:
                return f"{b.dtype}{list(b.shape)}{how}, expected {a.dtype}{list(a.shape)}"
        return None

    def _values(self, feed: int, name: str, result: RuntimeValue, how: str) -> str | None:
        truth = self.evidence.truth
        true = arrays_of(truth[name]) if truth is not None and feed == 0 else None
        original = arrays_of(self.evidence.outputs[feed][name])
        for place, (a, b) in enumerate(zip(original, arrays_of(result), strict=True)):
            a, b = self._excused(a, b)
            flips = changed(b, a)
            if flips > NOISE_FACTOR * flips_of(self.evidence, feed, name, place, optimized=bool(how)):
                what = "are NaN or infinite on one side alone" if is_float(a.dtype) else "differ"
                return f"{flips} of {a.size} elements {what}{how}, on feed {feed}"
            if not is_float(a.dtype):
                continue
            allowed = self._allowed(feed, name, place, a)
            if true is not None:
                base, against = true[place], "the truth"
                allowed = allowed + difference(a, base) * TRUTH_FACTOR
            else:
                base, against = a, "the original"
                allowed = allowed + self._known_error(name, place) * (spread(a).largest * (1 + TRUTH_FACTOR))
            off = difference(b, base)
            if off.exceeds(allowed):
                return (
                    f"off from {against} by {off.largest:.3g} (rms {off.rms:.3g}){how}, expected at most "
                    f"{allowed.largest:.3g} (rms {allowed.rms:.3g}), on feed {feed}"
                )
        return None

    def _excused(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Both without the elements that the user does not mind: where the original is NaN, or infinite."""
        if not is_float(a.dtype) or not self.ignoring & {"nan", "infinity"}:
            return a, b
        drop = np.zeros(a.shape, np.bool_)
        if "nan" in self.ignoring:
            drop |= np.isnan(a)
        if "infinity" in self.ignoring:
            drop |= np.isinf(a)
        return np.where(drop, a.dtype.type(0), a), np.where(drop, a.dtype.type(0), b)

    def _allowed(self, feed: int, name: str, place: int, a: Array) -> Spread:
        noise, scale = noise_of(self.evidence, feed, name, place), spread(a.astype(np.float64))
        unit, extra = unit_roundoff(a.dtype), self.within * scale.largest
        few = 1 / math.sqrt(max(1, a.size))
        mean_noise = MEAN_FACTOR + (NOISE_FACTOR - MEAN_FACTOR) * few
        mean_roundings = MEAN_FACTOR + (ROUNDINGS - MEAN_FACTOR) * few
        return Spread(
            NOISE_FACTOR * noise.largest + ROUNDINGS * unit * scale.largest + extra,
            mean_noise * noise.rms + mean_roundings * unit * scale.rms + extra,
        )

    def _known_error(self, name: str, place: int) -> Spread:
        """The original's error relative to its largest value, where the truth is known."""
        truth = self.evidence.truth
        if truth is None:
            return Spread()
        known, true = arrays_of(self.evidence.outputs[0][name]), arrays_of(truth[name])
        if place >= len(true):
            # A sequence that is longer on this feed than on the first: all its items are computed alike.
            place = len(true) - 1
        if place < 0:
            return Spread()
        a, t = known[place], true[place]
        scale = spread(a.astype(np.float64)).largest
        return difference(a, t) * (1 / scale) if scale else Spread()


def _differing(value: RuntimeValue, other: RuntimeValue) -> str:
    for a, b in zip(arrays_of(value), arrays_of(other), strict=True):
        count = int(np.count_nonzero(~equal_bits(a, b)))
        if count:
            return f"{count} of {a.size} elements differ"
    return "it differs"


def _check(evidence: Evidence, plain: Mapping[int, Feed], name: str, problem: str | None) -> OutputCheck:
    pairs: list[tuple[Array, Array]] = []
    for feed, result in plain.items():
        mine, other = arrays_of(evidence.outputs[feed].get(name)), arrays_of(result.get(name))
        pairs += [(b, a) for a, b in zip(mine, other, strict=False) if a.shape == b.shape and a.dtype == b.dtype]
    first = arrays_of(evidence.outputs[0][name])
    dtype: np.dtype[Any] = first[0].dtype if first else np.dtype(np.float32)
    original_error = new_error = None
    if evidence.truth is not None and is_float(dtype):
        true = arrays_of(evidence.truth[name])
        new = arrays_of(plain[0].get(name)) if 0 in plain else []
        original_error = error(list(zip(first, true, strict=False)), dtype)
        new_error = error(list(zip(new, true, strict=False)), dtype)
    noise = max(
        (
            noise_of(evidence, feed, name, place).largest
            for feed, outputs in enumerate(evidence.outputs)
            for place, array in enumerate(arrays_of(outputs[name]))
            if is_float(array.dtype)
        ),
        default=0.0,
    )
    classes = class_agreement(pairs) if pairs else None
    top1, top5 = classes or (None, None)
    return {
        "name": name,
        "type": evidence.types.get(name) or f"tensor({dtype.name})",
        "difference": error(pairs, dtype) if is_float(dtype) else None,
        "original_error": original_error,
        "new_error": new_error,
        "noise": noise,
        "top1": top1,
        "top5": top5,
        "problem": problem,
    }
