"""The last word on what was found: the clock's, or the cost model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from superopt.bodies.descent import Descent
from superopt.cost import CostModel
from superopt.errors import EvaluationError, SuperoptError
from superopt.evaluate import Feed, Runner
from superopt.measure import Latencies, measure_calls
from superopt.models.model import Model
from superopt.reporting.report import Candidate
from superopt.search.candidates import Found
from superopt.search.soundness import Sound
from superopt.verification.verdict import Check
from superopt.verification.verify import Verification

SECONDS = 6.0
"""How long the original and the candidates are timed, in turn."""

CAUTIONS = (0.25,)
"""How much of a gain a second opinion asks for before it changes anything; its choice is timed too."""


@dataclass(frozen=True)
class Verified:
    """A model that was found, how it was verified, and what running it costs by the model that the user chose."""

    found: Found
    verification: Verification
    price: float


@dataclass(frozen=True)
class Selection:
    """Who won: a verified model, or None for the original. ``place`` is the winner's among the latencies (the
    original's is 0), which are there if the clock was asked and could tell."""

    winner: Verified | None
    place: int = 0
    latencies: Latencies | None = None
    candidates: tuple[Candidate, ...] = ()
    problem: str | None = None


def selected(descent: Descent, sound: Sound, cost_model: CostModel, check: Check, feeds: Sequence[Feed]) -> Selection:
    """The winner among what was found, by the clock where the options ask for it and the model runs."""
    search = descent.search
    if sound.found is None or sound.attempt.verification is None:
        return Selection(None)
    first = Verified(sound.found, sound.attempt.verification, search.price(sound.found, cost_model))
    if search.options.select == "modelled" or not feeds:
        return Selection(first, candidates=(_line(first, None, "chosen by the cost model"),))
    found = [first, *_alternatives(descent, sound, cost_model, check, first)]
    with search.clock.stage("measure"):
        return by_the_clock(search.original, found, feeds[0], threads=search.options.threads)


def _alternatives(
    descent: Descent, sound: Sound, cost_model: CostModel, check: Check, first: Verified
) -> list[Verified]:
    """What is chosen from the same e-graph with more caution, where that is something else and is verified."""
    saturation = sound.attempt.saturation
    seen = {first.found.text}
    others: list[Verified] = []
    if saturation is None:
        return others
    for caution in CAUTIONS:
        try:
            found = descent.choose(saturation, sound.rules, cost_model, caution)
            if found is None or found.text in seen:
                continue
            seen.add(found.text)
            verification = check(found.model)
        except SuperoptError:
            continue  # A second opinion that cannot be had is none; the first one is verified.
        if verification.agree:
            named = replace(found, name=f"{found.name}, caution {caution:g}")
            others.append(Verified(named, verification, descent.search.price(found, cost_model)))
    return others


def by_the_clock(original: Model, found: Sequence[Verified], feed: Feed, *, threads: int) -> Selection:
    """The fastest of the models found, the cheapest of those that the clock cannot tell apart; the original where all
    are slower. What cannot be run in onnxruntime with its optimizations cannot be timed: the first is chosen then."""
    try:
        runners = [
            Runner(model, optimized=True, threads=threads) for model in (original, *(one.found.model for one in found))
        ]
        latencies = measure_calls([partial(runner.run, feed) for runner in runners], threads=threads, seconds=SECONDS)
    except EvaluationError as error:
        return Selection(found[0], candidates=(_line(found[0], None, "chosen"),), problem=f"not timed: {error}")
    prices = {place: one.price for place, one in enumerate(found, 1)}
    best = latencies.best(0, range(1, len(runners)), prices)
    lines = tuple(
        _line(one, latencies.medians[place], _verdict(latencies, place, best)) for place, one in enumerate(found, 1)
    )
    return Selection(found[best - 1] if best else None, best, latencies, lines)


def _verdict(latencies: Latencies, place: int, best: int) -> str:
    if place == best:
        return "chosen"
    return "slower than the original" if latencies.slower(place, 0) else "not better than the chosen one"


def _line(one: Verified, seconds: float | None, verdict: str) -> Candidate:
    return {
        "name": one.found.name,
        "cost": one.price,
        "bytes": one.found.bytes,
        "latency_ms": None if seconds is None else 1e3 * seconds,
        "verdict": verdict,
    }
