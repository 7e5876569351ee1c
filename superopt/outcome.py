"""From the records of a run to its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from superopt.cost import CostModel, graph_cost
from superopt.inspection import model_bytes, opaque_operators
from superopt.model import Model, standard_domain
from superopt.report import FORMAT, BeforeAfter, Choice, Latency, Report, RuleRun
from superopt.saturate import Saturation
from superopt.search import Found, Search, limits_of
from superopt.selection import Selection
from superopt.soundness import Sound
from superopt.verdict import outputs
from superopt.version import versions


@dataclass(frozen=True)
class Outcome:
    """All that a run leaves behind."""

    search: Search
    cost_model: CostModel
    sound: Sound
    selection: Selection
    seconds: Mapping[str, float]

    @property
    def model(self) -> Model:
        """What is handed back: what was selected, or the original."""
        winner = self.selection.winner
        return self.search.lowered.model if winner is None else winner.found.model


def document(outcome: Outcome) -> Report:
    """The report of a run."""
    search, sound, selection = outcome.search, outcome.sound, outcome.selection
    lowered, options, cost_model = search.lowered, search.options, outcome.cost_model
    winner = selection.winner
    found = winner.found if winner else None
    verification = winner.verification if winner else sound.attempt.verification if sound.problems else None
    saturation = sound.attempt.saturation
    stopped_by = saturation.stopped_by if saturation else "error"
    before, after = operator_counts(lowered.model), operator_counts(outcome.model)
    return {
        "format": FORMAT,
        "versions": versions(),
        "source": lowered.model.label,
        "opset": lowered.model.opset,
        "settings": {**options.settings, "limit": _limits(options.limit)},
        "seed": options.seed,
        "rules": {
            "sets": [str(name) for name in options.settings["rules"]],
            "hash": sound.rules.hash,
            "count": len(sound.rules),
        },
        "stopped_by": stopped_by,
        "reproducible": search.deadline is None and options.select == "modelled",
        "iterations": saturation.iterations if saturation else 0,
        "rule_runs": _rule_runs(saturation),
        "egraph": None
        if saturation is None
        else {"classes": len(saturation.egraph.classes), "nodes": saturation.egraph.size},
        "choice": _choice(found),
        "changed": found is not None,
        "verified": not sound.problems,
        "verified_by": verification.reason if verification else "it is the original",
        "regions": verification.regions if verification else None,
        "truth": verification.truth if verification else "",
        "feeds": list(verification.feeds) if verification else [],
        "problems": [*sound.problems, *([selection.problem] if selection.problem else [])],
        "left_out": list(sound.left_out),
        "rules_used": list(found.extraction.rules_used) if found else [],
        "opaque": opaque_operators(lowered),
        "nodes": {"before": before.total(), "after": after.total()},
        "operators": _operators(before, after),
        "bytes": {"before": search.original_bytes, "after": model_bytes(outcome.model)},
        "cost": {
            "before": graph_cost(search.graph, cost_model, search.sizes).total,
            "after": graph_cost(found.graph if found else search.graph, cost_model, search.sizes).total,
            "unit": cost_model.unit,
            "model": cost_model.name,
            "hash": cost_model.hash,
        },
        "latency": _latency(selection),
        "candidates": list(selection.candidates),
        "outputs": outputs(verification),
        "seconds": {name: round(spent, 6) for name, spent in outcome.seconds.items()},
    }


def operator_counts(model: Model) -> Counter[str]:
    """How often each operator stands in the main graph; those of other domains with their domain in front."""
    return Counter(
        f"{domain}.{node.op_type}" if (domain := standard_domain(node.domain)) else node.op_type
        for node in model.proto.graph.node
    )


def _operators(before: Counter[str], after: Counter[str]) -> dict[str, BeforeAfter]:
    """By operator, the ones that were most frequent first."""
    names = sorted({*before, *after}, key=lambda name: (-before[name], -after[name], name))
    return {name: {"before": before[name], "after": after[name]} for name in names}


def _limits(given: Mapping[str, int | float]) -> dict[str, int | float | None]:
    limits = limits_of(given)
    return {"nodes": limits.nodes, "iterations": limits.iterations, "seconds": limits.seconds}


def _rule_runs(saturation: Saturation | None) -> dict[str, RuleRun]:
    if saturation is None:
        return {}
    return {
        name: {"matches": count, "seconds": round(saturation.seconds.get(name, 0.0), 6)}
        for name, count in saturation.matches.items()
    }


def _choice(found: Found | None) -> Choice | None:
    if found is None:
        return None
    chosen = found.extraction
    return {
        "status": chosen.status,
        "cost": chosen.cost,
        "bound": chosen.bound,
        "gap": chosen.gap,
        "byte_price": chosen.byte_price,
    }


def _latency(selection: Selection) -> Latency | None:
    if selection.latencies is None:
        return None
    medians = selection.latencies.medians
    compared = selection.latencies.compare(selection.place, 0)
    return {
        "before": 1e3 * medians[0],
        "after": 1e3 * medians[selection.place],
        "unit": "ms",
        "ratio": compared.ratio,
        "low": compared.low,
        "high": compared.high,
        "runs": selection.latencies.rounds * selection.latencies.runs_a_sample,
    }
