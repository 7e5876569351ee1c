"""How well cost models predict: random extractions of saturated e-graphs, predicted against measured latency.

    python -m benchmarks.cost_models [--models NAME ...] [--cost NAME ...] [--extractions 30] [--threads 1]
                                     [--seconds 24] [--fill 60] [--json OUT.json]

Of each network's e-graph models are drawn at random, without asking any cost model (``benchmarks/draws.py`` says how);
the same ones judge every cost model. They run in turn in onnxruntime with all optimizations, in two heats with sessions
of their own (``benchmarks/truth.py``). Of each cost model the table says: Spearman's rank correlation of prediction and
latency; the mean absolute error in percent, for models in seconds; and the regret: how much slower the model that it
takes for the best is than the best, found in one heat and judged in the other. ``reliability`` is the correlation of
the heats with each other: where it is low, the draws' latencies lie within the noise, and no correlation says anything
of a cost model. The operators that the database of `measured` does not have yet are timed first, for at most --fill
seconds a network; ``measured`` says which part of the predicted time was timed.

On one thread the processor's time counts, not the clock's, as in what `superopt measure` times on one thread.
With ``--json`` each network's figures are kept as soon as they are there, and the same command goes on where it
stopped. Wanted of the measured model: a correlation of 0.9 in the median, and a regret under 3 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import models
from benchmarks.draws import Variant, drawn
from benchmarks.truth import Run, correlation, latencies
from superopt import shipped
from superopt.cost import constant_nodes, graph_cost, load, operands_of
from superopt.costs.database import Database, Place, default_path
from superopt.costs.filling import fill
from superopt.costs.gather import graph_instances
from superopt.costs.timing import Runtime, channels_of_a_block, clock_of, empty_call
from superopt.errors import EvaluationError
from superopt.evaluate import Feed, Runner
from superopt.inputs.sample import sample
from superopt.report import to_json, write
from superopt.settings import sizes_of
from superopt.workload import Sizes

NETWORKS = (
    "squeezenet", "mobileone-s0", "repvgg-a0", "fastvit-like", "repghost-like", "densenet121", "mobilenet-v3-small",
    "tiny-yolo", "bert", "bert-lora", "vit-tiny", "nasrnn",
)  # fmt: skip
"""Twelve networks of whose variants 30 fit into memory at once, and differ in latency by a tenth or more.
ConvNeXt-atto, EfficientNet-Lite, ResNet-50 and the SSD are not among them: theirs lie within a few percent."""

SHOWN = ("measured", "onnxruntime", "roofline", "flops", "nodes")
"""The cost models of the table by network; the other table has all."""

CORRELATION, REGRET = 0.9, 0.03
"""What is wanted of the measured model, in the median."""

FORMAT = "superopt cost models 2"


@dataclass(frozen=True)
class Score:
    """How well one cost model predicts the latencies of one network's variants. ``error`` is None for a model that is
    not in seconds; ``timed`` is the fraction of what it predicts that was measured."""

    network: str
    cost: str
    correlation: float
    error: float | None
    regret: float
    timed: float


@dataclass(frozen=True)
class Outcome:
    """One network: its scores; the measured milliseconds of its variants by heat (the original's first), what was
    predicted; the rounds of each heat, their correlation, and how far a latency differs between them (the median, as a
    fraction); what was left out, and how many distinct operators ran."""

    network: str
    scores: tuple[Score, ...]
    heats_ms: tuple[tuple[float, ...], ...]
    latencies_ms: tuple[float, ...]
    predicted: dict[str, tuple[float, ...]]
    rounds: tuple[int, ...]
    reliability: float
    noise: float
    left_out: int
    instances: int
    seconds: float


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """The mean absolute error as a fraction."""
    return float(np.mean([abs(price / taken - 1) for price, taken in zip(predicted, measured, strict=True)]))


def run(network: str, costs: Sequence[str], given: argparse.Namespace) -> Outcome:
    """Draws, times and scores one network."""
    start = time.perf_counter()
    runtime = Runtime(threads=given.threads)
    original, variants, left_out = drawn(network, given.extractions, given.seed, tiny=given.tiny)
    feeds = sample(original, seed=given.seed)
    sizes = sizes_of(feeds)
    say(f"{network}: {len(variants)} variants in {time.perf_counter() - start:.0f} s, {left_out} draws left out")
    fusions, block = load("onnxruntime").fusions, channels_of_a_block(runtime)
    instances = {}
    for variant in variants:
        operands = operands_of(variant.graph, constant_nodes(variant.graph))
        instances.update(graph_instances(variant.graph, operands, Sizes(dict(sizes)), fusions, block))
    if "measured" in costs:
        filled = fill(Database(default_path()), instances.values(), runtime, seconds=given.fill)
        say(f"{network}: {filled.timed} instances timed, {filled.known} known, {filled.left} left, "
            f"{len(filled.failed)} failed")  # fmt: skip
        for name, reason in list(filled.failed.items())[:3]:
            say(f"  {name}: {reason}")
    kept = [variant for variant in variants if runs(variant, feeds.values[0], given.threads)]
    left_out += len(variants) - len(kept)

    def loaded() -> list[Run]:
        made = [Runner(variant.model, optimized=True, threads=given.threads) for variant in kept]
        return [partial(runner.run, feeds.values[0]) for runner in made]

    truth = latencies(loaded, seconds=given.seconds, seed=given.seed, clock=clock_of(runtime))
    scores, predictions = [], {}
    for name in costs:
        model = load(name, runtime)
        priced = [graph_cost(variant.graph, model, sizes) for variant in kept]
        predicted = [each.total + (empty_call(runtime) if name == "measured" else 0.0) for each in priced]
        predictions[name] = tuple(predicted)
        off = mean_error(predicted, truth.seconds) if model.unit == "s" else None
        timed = float(np.mean([each.timed for each in priced]))
        scores.append(Score(network, name, correlation(predicted, truth.seconds), off, truth.regret(predicted), timed))
    return Outcome(
        network, tuple(scores), tuple(tuple(1e3 * taken for taken in heat) for heat in truth.heats),
        tuple(1e3 * taken for taken in truth.seconds), predictions, truth.rounds, truth.reliability, truth.noise,
        left_out, len(instances), time.perf_counter() - start,
    )  # fmt: skip


def runs(variant: Variant, feed: Feed, threads: int) -> bool:
    """Whether onnxruntime runs a variant."""
    try:
        Runner(variant.model, optimized=True, threads=threads).run(feed)
    except EvaluationError as error:
        say(f"a variant does not run: {error}")
        return False
    return True


def table(outcomes: Sequence[Outcome], costs: Sequence[str]) -> Table:
    """One line for each cost model, over all networks."""
    made = Table(title=f"Cost models over {len(outcomes)} networks (median, worst)")
    made.add_column("cost model")
    for heading in ("Spearman", "worst", "error", "worst", "regret", "worst", "measured"):
        made.add_column(heading, justify="right")
    for name in costs:
        scores = [score for outcome in outcomes for score in outcome.scores if score.cost == name]
        right = [score.correlation for score in scores]
        errors = [score.error for score in scores if score.error is not None]
        lost = [score.regret for score in scores]
        made.add_row(
            name, f"{median(right):.3f}", f"{min(right):.3f}",
            *((percent(median(errors)), percent(max(errors))) if errors else ("", "")),
            percent(median(lost)), percent(max(lost)), percent(median(score.timed for score in scores)),
        )  # fmt: skip
    return made


def by_network(outcomes: Sequence[Outcome], costs: Sequence[str]) -> Table:
    """One line for each network: how far apart its variants are, how far that can be told, and correlation and regret
    of a few cost models."""
    shown = [name for name in costs if name in SHOWN] or list(costs[:3])
    made = Table(title="Spearman / regret by network")
    made.add_column("network")
    for heading in ("variants", "fastest", "slowest", "noise", "reliability", *shown):
        made.add_column(heading, justify="right")
    for outcome in outcomes:
        taken = outcome.latencies_ms
        cells = [
            f"{score.correlation:.2f} / {percent(score.regret)}" for score in outcome.scores if score.cost in shown
        ]
        made.add_row(
            outcome.network, str(len(taken)), f"{min(taken):.3g} ms", f"{max(taken):.3g} ms", percent(outcome.noise),
            f"{outcome.reliability:.2f}", *cells,
        )  # fmt: skip
    return made


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def outcome_of(data: dict[str, Any]) -> Outcome:
    """An outcome from JSON."""
    return Outcome(
        network=data["network"], scores=tuple(Score(**score) for score in data["scores"]),
        heats_ms=tuple(tuple(heat) for heat in data["heats_ms"]), latencies_ms=tuple(data["latencies_ms"]),
        predicted={name: tuple(prices) for name, prices in data["predicted"].items()}, rounds=tuple(data["rounds"]),
        **{name: data[name] for name in ("reliability", "noise", "left_out", "instances", "seconds")},
    )  # fmt: skip


def resumed(document: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """The document with the outcomes of an earlier one in a file, if that is of the same place and settings."""
    if path is None or not path.is_file():
        return document
    earlier = json.loads(path.read_text(encoding="utf-8"))
    same = all(earlier.get(key) == document[key] for key in ("format", "place", "settings"))
    return {**document, "outcomes": earlier["outcomes"]} if same else document


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, time, score and print the tables; exit code 1 where the measured model is not as good as is wanted."""
    known = [*sorted(file.stem for file in shipped.cost_models_dir().glob("*.toml")), "measured"]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_models", description=main.__doc__)
    parser.add_argument("--models", nargs="+", default=list(NETWORKS), choices=list(models.BUILDERS), metavar="NAME")
    parser.add_argument("--cost", nargs="+", default=known, metavar="NAME|FILE")
    parser.add_argument("--extractions", type=int, default=30, metavar="N")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=24.0, help="of running in turn, for each network")
    parser.add_argument("--fill", type=float, default=60.0, help="seconds for timing operators, for each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="the networks with few channels and a small image")
    parser.add_argument("--json", type=Path, metavar="OUT.json", help="keep the figures there, and go on from there")
    given = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    names = ("cost", "extractions", "threads", "seconds", "fill", "seed", "tiny")
    document: dict[str, Any] = {
        "format": FORMAT,
        "place": str(Place.here(Runtime(threads=given.threads))),
        "settings": {name: getattr(given, name) for name in names},
        "outcomes": {},
    }
    document = resumed(document, given.json)
    for network in given.models:
        if network in document["outcomes"]:
            continue
        last = run(network, given.cost, given)
        say(f"{network}: {' + '.join(map(str, last.rounds))} rounds, reliability {last.reliability:.2f}, noise "
            f"{percent(last.noise)}, {last.seconds:.0f} s")  # fmt: skip
        for score in last.scores:
            say(f"  {score.cost:22} Spearman {score.correlation:6.3f}  regret {percent(score.regret):>7}")
        document["outcomes"][network] = json.loads(json.dumps(asdict(last)))
        if given.json is not None:
            write(to_json(document), given.json)
    outcomes = [outcome_of(document["outcomes"][network]) for network in given.models]
    console.print(by_network(outcomes, given.cost))
    console.print(table(outcomes, given.cost))
    scores = [score for outcome in outcomes for score in outcome.scores if score.cost == "measured"]
    if not scores:
        return 0
    right, lost = median(score.correlation for score in scores), median(score.regret for score in scores)
    wanted = (
        (right >= CORRELATION, f"measured: Spearman {right:.3f} in the median, wanted {CORRELATION}"),
        (lost < REGRET, f"measured: regret {percent(lost)} in the median, wanted under {percent(REGRET)}"),
    )
    for held, text in wanted:
        console.print(f"{'kept  ' if held else 'MISSED'} {text}")
    return 0 if all(held for held, _ in wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
