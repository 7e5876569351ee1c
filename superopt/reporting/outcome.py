"""From the records of a run to its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from superopt.bodies.bodies import bodies
from superopt.cost import CostModel, graph_cost
from superopt.engine.saturate import Saturation
from superopt.lowering.lower import lower
from superopt.measure import Latencies
from superopt.models.byte_counts import model_bytes
from superopt.models.model import Model, standard_domain
from superopt.models.scopes import graphs_in
from superopt.numeric import settle
from superopt.report import FORMAT, BeforeAfter, ChoiceSummary, Latency, Report, RuleRun, TimedLatency
from superopt.reporting.inspection import opaque_operators
from superopt.search.candidates import Found, Search, limits_of
from superopt.search.decision import TEST
from superopt.search.descent import saturations
from superopt.search.selection import Selection
from superopt.search.soundness import Sound
from superopt.verification.verify import Verification
from superopt.version import versions


@dataclass(frozen=True)
class Outcome:
    """All that a run leaves behind; ``original`` is what was given, and ``converted`` how its conversion to another
    opset was verified, if there was one."""

    original: Model
    converted: Verification | None
    search: Search
    cost_model: CostModel
    sound: Sound
    selection: Selection
    seconds: Mapping[str, float]

    @property
    def model(self) -> Model:
        """What is handed back: what was selected, or the original."""
        if self.sound.problems:
            return self.original
        winner = self.selection.winner
        return self.search.original if winner is None else winner.found.model


def report_document(outcome: Outcome) -> Report:
    """The report of a run."""
    search, sound, selection = outcome.search, outcome.sound, outcome.selection
    lowered, options, cost_model = search.lowered, search.options, outcome.cost_model
    winner = selection.winner
    found = winner.found if winner else None
    fallback = sound.attempt.verification if sound.problems else outcome.converted
    verification = winner.verification if winner else fallback
    saturation = sound.attempt.saturation
    runs = list(saturations(saturation, sound.attempt.found)) if saturation else []
    before, after = operator_counts(outcome.original), operator_counts(outcome.model)
    price = original_cost(search, saturation, cost_model)
    return {
        "format": FORMAT,
        "versions": versions(),
        "source": outcome.original.label,
        "opset": outcome.model.opset,
        "settings": {**options.settings, "limit": _limits(options.limit)},
        "seed": options.seed,
        "rules": {
            "sets": [str(name) for name in options.settings["rules"]],
            "hash": sound.rules.hash,
            "count": len(sound.rules),
        },
        "stopped_by": _stopped_by(runs, sound),
        "reproducible": search.deadline is None and options.select == "modelled",
        "iterations": max((run.iterations for run in runs), default=0),
        "rule_runs": _rule_runs(runs),
        "egraph": {
            "classes": sum(len(run.egraph.classes) for run in runs),
            "nodes": sum(run.egraph.size for run in runs),
        }
        if runs
        else None,
        "choice": _choice(found, outcome.seconds),
        "changed": outcome.model is not outcome.original,
        "verified": not sound.problems,
        "verified_by": verification.reason if verification else "it is the original",
        "regions": verification.regions if verification else None,
        "truth": verification.truth if verification else "",
        "feeds": list(verification.feeds) if verification else [],
        "problems": [*sound.problems, *sound.notes, *([selection.problem] if selection.problem else [])],
        "left_out": list(sound.left_out),
        "rules_used": list(found.rules_used) if found else [],
        "opaque": opaque_operators(lowered),
        "nodes": {"before": before.total(), "after": after.total()},
        "operators": _operators(before, after),
        "bytes": {"before": model_bytes(outcome.original), "after": model_bytes(outcome.model)},
        "cost": {
            "before": price,
            "after": found_cost(search, found, outcome.model, cost_model) if found else price,
            "unit": cost_model.unit,
            "model": cost_model.name,
            "hash": cost_model.hash,
        },
        "latency": _latency(selection),
        "candidates": list(selection.candidates),
        "outputs": list(verification.outputs) if verification else [],
        "seconds": {name: round(spent, 6) for name, spent in outcome.seconds.items()},
    }


def _stopped_by(runs: Sequence[Saturation], sound: Sound) -> str:
    if runs:
        return next((run.stopped_by for run in runs if run.stopped_by != "saturated"), "saturated")
    # Without a saturation and without a problem, the time was over before the first rule.
    return "error" if sound.problems else "seconds"


def operator_counts(model: Model) -> Counter[str]:
    """How often each operator stands in a model, in its bodies too; those of other domains with their domain in
    front."""
    return Counter(
        f"{domain}.{node.op_type}" if (domain := standard_domain(node.domain)) else node.op_type
        for graph in graphs_in(model.proto.graph)
        for node in graph.node
    )


def original_cost(search: Search, saturation: Saturation | None, cost_model: CostModel) -> float:
    """What running the original costs, every body in it once, knowing as much of its types as is known of the result's.

    Where it was prepared for the search, it costs no less than what it became: what stands in the way of knowing its
    types (a function that is called, sizes that it computes) would make it cheaper than it is.
    """
    lowered = search.lowered
    price = search.before(saturation, cost_model) + _bodies_cost(lowered.model, cost_model, search)
    if search.original is lowered.model:
        return price
    graph = lower(search.original, search.options.initializers_are_constant).graph
    graph = settle(graph, context=search.original.proto)
    own = graph_cost(graph, cost_model, search.sizes).total + _bodies_cost(search.original, cost_model, search)
    return max(price, own)


def found_cost(search: Search, found: Found, model: Model, cost_model: CostModel) -> float:
    """What running a model that was found costs, every body in it once."""
    return graph_cost(found.graph, cost_model, search.sizes).total + _bodies_cost(model, cost_model, search)


def _bodies_cost(model: Model, cost_model: CostModel, search: Search) -> float:
    graphs = (settle(lower(body).graph, context=body.proto) for body in bodies(model))
    return sum(graph_cost(graph, cost_model, search.sizes).total for graph in graphs)


def _operators(before: Counter[str], after: Counter[str]) -> dict[str, BeforeAfter]:
    """By operator, the ones that were most frequent first."""
    names = sorted({*before, *after}, key=lambda name: (-before[name], -after[name], name))
    return {name: {"before": before[name], "after": after[name]} for name in names}


def _limits(given: Mapping[str, int | float]) -> dict[str, int | float | None]:
    limits = limits_of(given)
    return {"nodes": limits.nodes, "iterations": limits.iterations, "seconds": limits.seconds}


def _rule_runs(runs: Sequence[Saturation]) -> dict[str, RuleRun]:
    found: dict[str, RuleRun] = {}
    for run in runs:
        for name, count in run.matches.items():
            line = found.setdefault(name, {"matches": 0, "seconds": 0.0})
            line["matches"] += count
            line["seconds"] = round(line["seconds"] + run.seconds.get(name, 0.0), 6)
    return found


def _choice(found: Found | None, seconds: Mapping[str, float]) -> ChoiceSummary | None:
    if found is None:
        return None
    chosen = found.extraction
    spent = sum(taken for stage, taken in seconds.items() if stage not in ("propose", "measure"))
    return {
        "status": chosen.status,
        "cost": chosen.cost,
        "bound": chosen.bound,
        "gap": chosen.gap,
        "byte_price": chosen.byte_price,
        "share": round(seconds.get("extract", 0.0) / spent, 6) if spent > 0 else 0.0,
    }


def _latency(selection: Selection) -> TimedLatency | None:
    latencies = selection.latencies
    if latencies is None:
        return None
    return {
        **latency_document(latencies, selection.place, selection.sessions),
        "rounds": latencies.rounds,
        "sessions": selection.sessions,
        "noise": latencies.noise,
        "session_noise": latencies.session_noise,
        "tolerance": latencies.tolerance,
        "test": TEST,
    }


def latency_document(latencies: Latencies, place: int, sessions: int = 1) -> Latency:
    """How the latency of the model at a place compares with the original's, which is at the first one."""
    before, compared = latencies.medians[0], latencies.compare(place, 0)
    return {
        "before": 1e3 * before,
        "after": 1e3 * before * compared.ratio,
        "unit": "ms",
        "ratio": compared.ratio,
        "low": compared.low,
        "high": compared.high,
        "runs": latencies.rounds * latencies.runs_a_sample * sessions,
    }
