"""One cell, measured: the stages run one after the other, and what each of them came to."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, TypedDict

from superopt.costs.timing import Runtime
from superopt.costs.whole import ready
from superopt.errors import EvaluationError
from superopt.experiment.grid import Cell
from superopt.inputs.feeds import Feeds
from superopt.measure import measure_calls
from superopt.models.byte_counts import model_bytes
from superopt.models.model import Model
from superopt.models.model import load as load_model
from superopt.options import Options
from superopt.progress import Clock, Watcher
from superopt.report import BeforeAfter, Latency
from superopt.reporting.outcome import latency_document
from superopt.settings import feeds_of
from superopt.stages import Chosen, Saturated, extract, saturated
from superopt.verification.verifier import Verifier, bound_of

FORMAT = "superopt experiment cell 1"
SECONDS = 4.0
"""How long the original and what was chosen are timed, in turn."""


class VerifiedFigures(TypedDict):
    """Whether the result may stand for the original; the largest absolute error of any output against float64, of the
    original and of the result, and the largest difference between the two (None where there is no such truth)."""

    agree: bool
    reason: str
    original_error: float | None
    new_error: float | None
    difference: float | None


class Figures(TypedDict):
    """The figures of a cell. ``e_nodes`` and ``e_classes`` are before the first iteration and after each; ``cost`` is
    what running the model costs in ``unit``, ``objective`` what was minimized (with constants' bytes), ``bound`` its
    proven lower bound, ``gap`` the part of it between the two. ``seconds`` are by stage."""

    stopped_by: str
    iterations: int
    e_nodes: list[int]
    e_classes: list[int]
    rules: int
    matches: dict[str, int]
    rule_seconds: dict[str, float]
    cost: dict[str, float]
    unit: str
    objective: float
    bound: float
    gap: float
    status: str
    nodes: BeforeAfter
    bytes: BeforeAfter
    rules_used: dict[str, int]
    verified: VerifiedFigures | None
    latency: Latency | None
    seconds: dict[str, float]


class CellDocument(TypedDict):
    """A cell: what it is about, and its figures, or why it failed."""

    format: str
    key: str
    model: str
    rules: str
    left_out: str | None
    cost_model: str
    limit: dict[str, int | float]
    failure: str | None
    wall_seconds: float
    figures: Figures | None


def run_cell(cell: Cell) -> CellDocument:
    """The figures of a cell; a cell that fails says so in its document and is no reason to stop."""
    start = time.perf_counter()
    figures: Figures | None = None
    failure: str | None = None
    try:
        figures = _measured(cell)
    except Exception as error:  # recorded: other cells are to have their turn
        failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return {
        "format": FORMAT,
        "key": cell.key,
        "model": cell.model,
        "rules": cell.rules_name,
        "left_out": cell.left_out,
        "cost_model": cell.cost.name,
        "limit": dict(cell.options.limit),
        "failure": failure,
        "wall_seconds": round(time.perf_counter() - start, 6),
        "figures": figures,
    }


def _measured(cell: Cell) -> Figures:
    options = replace(cell.options, rules=(cell.rules,), cost=cell.cost)
    clock = Clock(Watcher())
    with clock.stage("load"):
        original = load_model(cell.model)
    found = saturated(original, options)
    # What the limits say of seconds holds for each of the two searches.
    chosen = extract(found, cell.cost, max_growth=options.max_growth, seconds=options.limit.get("seconds"))
    with clock.stage("sample"):
        feeds = feeds_of(original, options) if cell.verify or cell.latency else None
    verified = _verified(original, feeds, found, chosen, clock) if feeds and cell.verify else None
    latency = _latency(original, feeds, chosen, clock, options) if feeds and cell.latency else None
    saturation, extraction = found.saturation, chosen.found.extraction
    spent = [clock.seconds, found.seconds, chosen.seconds]
    stages = dict.fromkeys(name for one in spent for name in one)
    return {
        "stopped_by": saturation.stopped_by,
        "iterations": saturation.iterations,
        "e_nodes": list(found.nodes),
        "e_classes": list(found.classes),
        "rules": len(found.rules),
        "matches": dict(found.matches),
        "rule_seconds": {name: round(seconds, 6) for name, seconds in saturation.seconds.items()},
        "cost": {"before": chosen.before, "after": chosen.after},
        "unit": chosen.unit,
        "objective": chosen.cost,
        "bound": chosen.bound,
        "gap": chosen.gap,
        "status": extraction.status,
        "nodes": {"before": _nodes(original), "after": _nodes(chosen.found.model)},
        "bytes": {"before": model_bytes(original), "after": chosen.found.bytes},
        "rules_used": dict(chosen.rules_used),
        "verified": verified,
        "latency": latency,
        "seconds": {name: round(sum(one.get(name, 0.0) for one in spent), 6) for name in stages},
    }


def _nodes(model: Model) -> int:
    return len(model.proto.graph.node)


def _verified(original: Model, feeds: Feeds, found: Saturated, chosen: Chosen, clock: Clock) -> VerifiedFigures:
    verifier = Verifier(original, feeds, found.search.options, clock, bound_of(found.rules))
    verification = verifier(chosen.found.model)
    return {
        "agree": verification.agree,
        "reason": verification.reason,
        "original_error": _largest(verification.outputs, "original_error"),
        "new_error": _largest(verification.outputs, "new_error"),
        "difference": _largest(verification.outputs, "difference"),
    }


def _largest(lines: Any, of: str) -> float | None:
    found = [line[of]["max_abs"] for line in lines if line[of] is not None]
    return max(found) if found else None


def _latency(original: Model, feeds: Feeds, chosen: Chosen, clock: Clock, options: Options) -> Latency:
    if not feeds.values:
        raise EvaluationError("it cannot be timed: no inputs that it runs on were found")
    runtime = Runtime(options.provider, options.threads)
    calls = [ready(model, feeds.values[0], runtime) for model in (original, chosen.found.model)]
    with clock.stage("measure"):
        latencies = measure_calls(calls, threads=options.threads, seconds=SECONDS)
    return latency_document(latencies, 1)
