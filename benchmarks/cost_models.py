"""How well cost models predict: random extractions of saturated e-graphs, predicted against measured latency.

    python -m benchmarks.cost_models [--models NAME ...] [--cost NAME ...] [--extractions 30] [--threads 1]
                                     [--seconds 60] [--json OUT.json]

For each network its e-graph is saturated by the shipped rules, so many models are drawn from it (for each e-class an
e-node at random, from a seed), and these run interleaved in onnxruntime with all optimizations. Of each cost model the
table says: Spearman's rank correlation of prediction and latency; the mean absolute error in percent, for models in
seconds; and the regret: how much slower the model that it takes for the best is than the best. The operators that the
database of `measured` does not have yet are timed first, for at most --fill seconds a network.

On one thread the processor's time counts, not the clock's, as in what `superopt measure` times on one thread.
Wanted of the measured model: a correlation of 0.9 in the median, and a regret under 3 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks import models
from benchmarks.network import FULL, TINY
from superopt import shipped
from superopt.cost import CostModel, constant_nodes, graph_cost, load, operands_of
from superopt.costs.database import Database, Place, default_path
from superopt.costs.filling import fill
from superopt.costs.gather import graph_instances
from superopt.costs.timing import Runtime, clock_of, empty_call
from superopt.emitting.correspondence import same_values
from superopt.emitting.emit import emit
from superopt.engine.saturate import Limits, saturate
from superopt.errors import EvaluationError, SuperoptError
from superopt.evaluate import Runner
from superopt.extraction import Extractor
from superopt.extraction.pricing import Priced
from superopt.inputs.sample import sample
from superopt.lowering.lower import lower
from superopt.measure import measure_calls
from superopt.models.model import Model
from superopt.models.model import load as load_model
from superopt.numeric import materialize, settle
from superopt.pipeline import sizes_of
from superopt.reporting.inspection import model_bytes
from superopt.rule_text import load as load_rules
from superopt.terms import TermGraph
from superopt.workload import Sizes

NETWORKS = (
    "squeezenet", "mobileone-s0", "repvgg-a0", "fastvit-like", "repghost-like", "densenet121", "mobilenet-v3-small",
    "convnext-atto", "efficientnet-lite", "ssd-unshared", "bert", "vit-tiny",
)  # fmt: skip
"""Twelve networks of which 30 variants each fit into memory at once."""

SHOWN = ("measured", "onnxruntime", "roofline", "flops", "nodes")
"""The cost models of the table by network; the other table has all."""

CORRELATION, REGRET = 0.9, 0.03
"""What is wanted of the measured model, in the median."""

MOST_NODES = 5_000
"""E-nodes at which saturation ends: enough to draw from."""

MOST_GROWTH = 3.0
"""Draws that take more bytes than this many times the original are not run."""

UNWANTED = 1e3
"""What an e-node that was not drawn costs, where one that was costs about 1: it is taken where a draw makes a cycle."""


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
    """One network: its scores, the measured milliseconds of its variants (the original's first), the noise of one
    sample, and what was left out."""

    network: str
    scores: tuple[Score, ...]
    latencies_ms: tuple[float, ...]
    predicted: dict[str, tuple[float, ...]]
    noise: float
    rounds: int
    left_out: int
    instances: int
    seconds: float


@dataclass(frozen=True)
class Draw(Extractor):
    """Extracts at random: of each class the e-node that was drawn, constants evaluated."""

    seed: int = 0

    @cached_property
    def priced(self) -> Priced:
        whole = super().priced.apart
        random = np.random.default_rng(self.seed)
        problem = whole.problem
        costs = [0.0] * len(problem.costs)
        for members in problem.by_class:
            drawn = members[int(random.integers(len(members)))] if members else -1
            for index in members:
                # A constant is a leaf, or a node that is left to run: only the leaf is wanted.
                runs = whole.node[index] is not None
                costs[index] = (1.0 if index == drawn else UNWANTED) * float(random.uniform(0.5, 1.0)) if runs else 0.0
        return replace(whole, problem=replace(problem, costs=costs, preferred=[False] * len(costs)))


@dataclass(frozen=True)
class Variant:
    """A model that computes what the original does, and its graph."""

    model: Model
    graph: TermGraph


def drawn(
    network: str, count: int, seed: int, *, tiny: bool, nodes: int = MOST_NODES
) -> tuple[Model, list[Variant], int]:
    """The original, and so many different variants of it, the original among them; and how many draws were left out
    since they could not be made or were too large."""
    original = load_model(models.build(network, size=TINY if tiny else FULL))
    lowered = lower(original)
    graph = settle(lowered.graph, context=original.proto)
    rules = load_rules("default").of_class("reassociates") + load_rules("merges").of_class("reassociates")
    egraph = saturate(graph, rules, Limits(nodes=nodes), original.opset).egraph
    found = {graph.text(): Variant(original, graph)}
    left_out = 0
    for number in range(4 * count):
        if len(found) > count:
            break
        try:
            draw = Draw(egraph, CostModel("random", "none"), seed=1000 * seed + number).extract(effort=0.02)
            made = materialize(draw.graph, draw.runtime, original.proto)
            if made.text() not in found:
                same = same_values(lowered.graph, graph, egraph.class_of, draw.graph, draw.classes, made)
                variant = Variant(emit(lowered, made, same), made)
                if model_bytes(variant.model) <= MOST_GROWTH * model_bytes(original):
                    found[made.text()] = variant
                    continue
        except SuperoptError:
            pass  # a draw that cannot be made is not one that a cost model is asked about
        left_out += 1
    return original, list(found.values()), left_out


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """The rank of each value, equal ones at their mean rank."""
    array = np.asarray(values, np.float64)
    below = (array[:, None] > array[None, :]).sum(axis=1)
    equal = (array[:, None] == array[None, :]).sum(axis=1)
    result: NDArray[np.float64] = below + (equal - 1) / 2
    return result


def correlation(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Spearman's rank correlation; 0 where all predictions are the same."""
    mine, other = ranks(predicted), ranks(measured)
    if np.ptp(mine) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(mine, other)[0, 1])


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """How much slower, as a fraction, the predicted best is than the best; of several that are predicted alike the
    median counts."""
    least = min(predicted)
    alike = [taken for price, taken in zip(predicted, measured, strict=True) if price <= least * (1 + 1e-12)]
    return median(alike) / min(measured) - 1


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
    fusions = load("onnxruntime").fusions
    instances = {}
    for variant in variants:
        operands = operands_of(variant.graph, constant_nodes(variant.graph))
        instances.update(graph_instances(variant.graph, operands, Sizes(dict(sizes)), fusions))
    if "measured" in costs:
        filled = fill(Database(default_path()), instances.values(), runtime, seconds=given.fill)
        say(f"{network}: {filled.timed} instances timed, {filled.known} known, {filled.left} left, "
            f"{len(filled.failed)} failed")  # fmt: skip
        for name, reason in list(filled.failed.items())[:3]:
            say(f"  {name}: {reason}")
    runners, kept = [], []
    for variant in variants:
        try:
            runner = Runner(variant.model, optimized=True, threads=given.threads)
            runner.run(feeds.values[0])
        except EvaluationError as error:
            say(f"{network}: a variant does not run: {error}")
            left_out += 1
            continue
        runners.append(runner)
        kept.append(variant)
    calls = [partial(runner.run, feeds.values[0]) for runner in runners]
    latencies = measure_calls(calls, threads=given.threads, seconds=given.seconds, clock=clock_of(runtime))
    measured = latencies.medians
    scores, predictions = [], {}
    for name in costs:
        model = load(name, runtime)
        priced = [graph_cost(variant.graph, model, sizes) for variant in kept]
        predicted = [each.total + (empty_call(runtime) if name == "measured" else 0.0) for each in priced]
        predictions[name] = tuple(predicted)
        off = mean_error(predicted, measured) if model.unit == "s" else None
        timed = float(np.mean([each.timed for each in priced]))
        scores.append(Score(network, name, correlation(predicted, measured), off, regret(predicted, measured), timed))
    return Outcome(
        network, tuple(scores), tuple(1e3 * taken for taken in measured), predictions, latencies.noise,
        latencies.rounds, left_out, len(instances), time.perf_counter() - start,
    )  # fmt: skip


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
    """One line for each network: how far apart its variants are, and correlation and regret of a few cost models."""
    shown = [name for name in costs if name in SHOWN] or list(costs[:3])
    made = Table(title="Spearman / regret by network")
    made.add_column("network")
    for heading in ("variants", "fastest", "slowest", "noise", *shown):
        made.add_column(heading, justify="right")
    for outcome in outcomes:
        taken = outcome.latencies_ms
        cells = [
            f"{score.correlation:.2f} / {percent(score.regret)}" for score in outcome.scores if score.cost in shown
        ]
        made.add_row(
            outcome.network, str(len(taken)), f"{min(taken):.3g} ms", f"{max(taken):.3g} ms", percent(outcome.noise),
            *cells,
        )  # fmt: skip
    return made


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, time, score, print the tables, and say whether the measured model is as good as is wanted."""
    known = [*sorted(file.stem for file in shipped.cost_models_dir().glob("*.toml")), "measured"]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_models", description=main.__doc__)
    parser.add_argument("--models", nargs="+", default=list(NETWORKS), choices=list(models.BUILDERS), metavar="NAME")
    parser.add_argument("--cost", nargs="+", default=known, metavar="NAME|FILE")
    parser.add_argument("--extractions", type=int, default=30, metavar="N")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of interleaved timing for each network")
    parser.add_argument("--fill", type=float, default=300.0, help="seconds for timing operators, for each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="the networks with few channels and a small image")
    parser.add_argument("--json", type=Path, metavar="OUT.json")
    given = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    outcomes = []
    for network in given.models:
        outcomes.append(run(network, given.cost, given))
        last = outcomes[-1]
        say(f"{network}: {last.rounds} rounds, noise {percent(last.noise)}, {last.seconds:.0f} s")
        for score in last.scores:
            say(f"  {score.cost:22} Spearman {score.correlation:6.3f}  regret {percent(score.regret):>7}")
        if given.json:
            document: dict[str, Any] = {
                "place": str(Place.here(Runtime(threads=given.threads))),
                "seed": given.seed,
                "outcomes": [asdict(outcome) for outcome in outcomes],
            }
            given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    console.print(by_network(outcomes, given.cost))
    console.print(table(outcomes, given.cost))
    scores = [score for outcome in outcomes for score in outcome.scores if score.cost == "measured"]
    if scores:
        right, lost = median(score.correlation for score in scores), median(score.regret for score in scores)
        for held, text in (
            (right >= CORRELATION, f"measured: Spearman {right:.3f} in the median, wanted {CORRELATION}"),
            (lost < REGRET, f"measured: regret {percent(lost)} in the median, wanted under {percent(REGRET)}"),
        ):
            console.print(f"{'kept  ' if held else 'MISSED'} {text}")


if __name__ == "__main__":
    main()
