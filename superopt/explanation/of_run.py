"""The explanation of a run of ``optimize``."""

from __future__ import annotations

from superopt.explanation.document import FORMAT, Explanation, counts_of
from superopt.explanation.explain import explained, ways
from superopt.report import Report
from superopt.reporting.outcome import Outcome
from superopt.version import versions


def explain_run(outcome: Outcome, report: Report) -> Explanation:
    """How the result of a run came about; that it is the original, where it is."""
    winner, sound = outcome.selection.winner, outcome.sound
    saturation = sound.attempt.saturation
    result = "the optimized model"
    if winner is None or saturation is None or sound.problems:
        reason = "nothing better was found, there is nothing to explain"
        if sound.problems:
            reason = f"could not be verified, there is nothing to explain: {sound.problems[0]}"
        return unexplained(outcome.original.label, result, reason)
    cost = report["cost"]
    return explained(
        list(ways(outcome.search, saturation, winner.found)), sound.rules, outcome.cost_model,
        source=outcome.original.label, result=result,
        cost={"before": cost["before"], "after": cost["after"], "unit": cost["unit"], "model": cost["model"]},
    )  # fmt: skip


def unexplained(source: str, result: str, reason: str, missing: tuple[str, ...] = ()) -> Explanation:
    """The document where there are no steps, and why."""
    return {
        "format": FORMAT, "versions": versions(), "source": source, "result": result, "rules": [], "changed": False,
        "reason": reason, "cost": None, "graphs": [], "counts": counts_of([]), "missing": list(missing),
        "smallest": None, "seconds": {},
    }  # fmt: skip
