"""The last word on what was found: the clock's, or the cost model's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from superopt.cost import CostModel
from superopt.costs.timing import Runtime
from superopt.costs.whole import ready
from superopt.errors import EvaluationError, SuperoptError
from superopt.evaluate import Feed, is_empty
from superopt.measure import LOOKS, Latencies, measure_calls
from superopt.models.model import Model
from superopt.report import Candidate
from superopt.search.candidates import Found
from superopt.search.decision import Decision, decide
from superopt.search.descent import Descent
from superopt.search.soundness import Sound
from superopt.sessions import CPU
from superopt.verification.verifier import Check
from superopt.verification.verify import Verification

SESSIONS = 2
"""In how many sessions each model is timed, where it is small and quick enough: they differ by where they lie in
memory."""

LARGEST_OF_SEVERAL = 200_000_000
"""Bytes of a model beyond which it is loaded once only."""

_LEAST_SECONDS = 1.0
"""How long is measured though the time that the user gave is over."""


@dataclass(frozen=True)
class Verified:
    """A model that was found, how it was verified, and what running it costs by the model that the user chose."""

    found: Found
    verification: Verification
    price: float


@dataclass(frozen=True)
class Proposed:
    """A model that was found and is verified only where it wins."""

    found: Found
    price: float


@dataclass(frozen=True)
class Selection:
    """Who won: a verified model, or None for the original. ``place`` is the winner's among the latencies (the
    original's is 0), which are there if the clock was asked and could tell; each model was timed in so many
    ``sessions``."""

    winner: Verified | None
    place: int = 0
    latencies: Latencies | None = None
    candidates: tuple[Candidate, ...] = ()
    problem: str | None = None
    sessions: int = 1


def selected(
    descent: Descent, sound: Sound, cost_models: Sequence[CostModel], check: Check, feeds: Sequence[Feed]
) -> Selection:
    """The winner among what was found, by the clock where the options ask for it and the model runs; what is sound was
    found by the first of the cost models."""
    search, options = descent.search, descent.search.options
    if sound.found is None or sound.attempt.verification is None:
        return Selection(None)
    first = Verified(sound.found, sound.attempt.verification, search.price(sound.found, cost_models[0]))
    if options.select == "modelled" or not feeds or is_empty(feeds[0]):
        lacking = "inputs without elements" if feeds else "no inputs that it runs with"
        problem = None if options.select == "modelled" else f"not timed: {lacking}"
        return Selection(first, candidates=(_line(first, None, 0, "chosen by the cost model"),), problem=problem)
    budget = options.tune
    if search.deadline is not None:
        budget = min(budget, max(_LEAST_SECONDS, search.deadline - time.perf_counter()))
    begun = time.perf_counter()
    others = list(_alternatives(descent, sound, cost_models, first.found, options.candidates - 1, budget / 4))
    # Whatever proposing took, half of the time is for measuring: few rounds tell nothing.
    seconds = max(budget / 2, budget - (time.perf_counter() - begun))
    with search.clock.stage("measure"):
        return by_the_clock(
            search.original, first, others, check, feeds[0],
            threads=options.threads, seconds=seconds, provider=options.provider,
        )  # fmt: skip


def _alternatives(
    descent: Descent, sound: Sound, cost_models: Sequence[CostModel], first: Found, count: int, seconds: float
) -> Iterator[Proposed]:
    """Other choices from the same e-graph where they are other models: what each further cost model chooses, and of
    each cost model at most so many more. Prices are by the first."""
    saturation, search = sound.attempt.saturation, descent.search
    if saturation is None:
        return
    seen = {first.text}
    for number, cost_model in enumerate(cost_models):
        end = time.perf_counter() + seconds / len(cost_models)
        try:
            best = descent.choose(saturation, sound.rules, cost_model) if number else first
            if best is None:
                continue
            if best.text not in seen:
                seen.add(best.text)
                yield Proposed(best, search.price(best, cost_models[0]))
            left = end - time.perf_counter()
            if count <= 0 or left <= 0:
                continue
            for other in search.alternatives(saturation, cost_model, best.extraction, count, left):
                if time.perf_counter() > end:
                    break
                found = descent.of_extraction(saturation, sound.rules, cost_model, other)
                if found is not None and found.text not in seen:
                    seen.add(found.text)
                    missing = [rule for rule in best.extraction.rules_used if rule not in other.rules_used]
                    name = f"without {', '.join(missing)}" if missing else "another choice"
                    named = replace(found, name=f"{cost_model.name}, {name}")
                    yield Proposed(named, search.price(found, cost_models[0]))
        except SuperoptError:
            continue  # A second opinion that cannot be had is none; the first one is verified.


def by_the_clock(
    original: Model,
    first: Verified,
    others: Sequence[Proposed],
    check: Check,
    feed: Feed,
    *,
    threads: int,
    seconds: float,
    provider: str = CPU,
) -> Selection:
    """Who wins by ``decide`` among models that run in turn, each in several sessions; another than the first is
    verified before it may win. What the runtime cannot run with its optimizations cannot be timed: the first is chosen
    then."""
    models = [original, first.found.model, *(one.found.model for one in others)]
    try:
        priced = [first.price, *(one.price for one in others)]
        latencies, sessions = _timed(models, priced, feed, threads, seconds, provider)
    except EvaluationError as error:
        return Selection(first, candidates=(_line(first, None, 0, "chosen"),), problem=f"not timed: {error}")
    others = others[: len(latencies.samples) - 2]
    prices = dict(enumerate([first.price, *(one.price for one in others)], 1))
    refused: dict[int, str] = {}
    while True:
        decision = decide(latencies, {place: price for place, price in prices.items() if place not in refused})
        winner = first if decision.best == 1 else None
        if decision.best > 1:
            other = others[decision.best - 2]
            verification = _checked(check, other.found.model)
            if isinstance(verification, str):
                refused[decision.best] = verification
                continue
            winner = Verified(other.found, verification, other.price)
        candidates: list[Verified | Proposed] = [first, *others]
        lines = tuple(
            _line(one, latencies, place, refused.get(place) or _verdict(decision, place))
            for place, one in enumerate(candidates, 1)
        )
        return Selection(winner, decision.best, latencies, lines, sessions=sessions)


def _timed(
    models: Sequence[Model], prices: Sequence[float], feed: Feed, threads: int, seconds: float, provider: str = CPU
) -> tuple[Latencies, int]:
    """The latencies of the original and as many candidates as there is time for (the first at least), and in how many
    sessions each was timed."""
    start, runtime = time.perf_counter(), Runtime(provider, threads)
    runs: list[list[Callable[[], object]]] = []
    once = 0.0
    for model in models:
        # The first look at the latencies must come well before the end.
        share = (len(runs) + 1) / max(1, len(runs))
        if len(runs) >= 2 and time.perf_counter() - start + LOOKS[0] * share * once > seconds / 2:
            break
        runs.append([ready(model, feed, runtime)])
        begun = time.perf_counter()
        runs[-1][0]()
        once += time.perf_counter() - begun
    spent, models = time.perf_counter() - start, models[: len(runs)]
    large = any(model.proto.ByteSize() > LARGEST_OF_SEVERAL for model in models)
    sessions = 1 if large or spent + SESSIONS * LOOKS[0] * once > seconds / 2 else SESSIONS
    for model, mine in zip(models, runs, strict=True):
        mine += [ready(model, feed, runtime) for _ in range(sessions - 1)]
    places = dict(enumerate(prices[: len(runs) - 1], 1))
    latencies = measure_calls(
        [run for mine in runs for run in mine],
        threads=threads,
        seconds=seconds - (time.perf_counter() - start),
        replicas=sessions,
        settled=lambda latencies: decide(latencies, places).settled,
    )
    return latencies, sessions


def _checked(check: Check, model: Model) -> Verification | str:
    """How a model was verified, or why it was not."""
    try:
        verification = check(model)
    except SuperoptError as error:
        return f"not verified: {error}"
    return verification if verification.agree else f"not verified: {verification.reason}"


def _verdict(decision: Decision, place: int) -> str:
    if place == decision.best:
        return "chosen"
    match decision.standing[place]:
        case "slower":
            return "slower than the original"
        case "doubtful":
            return "not shown to be as fast as the original"
        case _:
            return "not better than the chosen one"


def _line(one: Verified | Proposed, latencies: Latencies | None, place: int, verdict: str) -> Candidate:
    compared = None if latencies is None else latencies.compare(place, 0)
    return {
        "name": one.found.name,
        "cost": one.price,
        "bytes": one.found.bytes,
        "latency_ms": None if latencies is None or compared is None else 1e3 * latencies.medians[0] * compared.ratio,
        "ratio": None if compared is None else compared.ratio,
        "low": None if compared is None else compared.low,
        "high": None if compared is None else compared.high,
        "verdict": verdict,
    }
