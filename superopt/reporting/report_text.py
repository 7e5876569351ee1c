"""What ``superopt optimize`` prints of a run, rendered from its report and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.table import Table

from superopt.options import Options
from superopt.printable import printable
from superopt.report import BeforeAfter, Cost, Latency, Report, TimedLatency
from superopt.reporting.comparison import error_rows
from superopt.reporting.render import bytes_text, number, rows, table

_LARGE_SHARE = 0.1
"""The share of a run's time beyond which extraction says why it took so long."""


def report_text(report: Report, target: str | None = None) -> list[Table | str]:
    """The table at the end of ``superopt optimize``, what needs saying besides, and one sentence."""
    made = table("", "before", "after", "")
    made.add_row("nodes", str(report["nodes"]["before"]), str(report["nodes"]["after"]), _change(report["nodes"]))
    for operator, count in report["operators"].items():
        mark = "" if count["before"] == count["after"] else _step(count)
        made.add_row(f"  {printable(operator)}", str(count["before"]), str(count["after"]), mark)
    size, cost, latency = report["bytes"], report["cost"], report["latency"]
    made.add_row("bytes", bytes_text(size["before"]), bytes_text(size["after"]), _change(size))
    made.add_row(
        f"cost ({cost['model']}, {cost['unit']})", number(cost["before"]), number(cost["after"]), _change(cost)
    )
    if latency is not None:
        unit = latency["unit"]
        made.add_row("latency", f"{latency['before']:.3g} {unit}", f"{latency['after']:.3g} {unit}", speed(latency))
    if report["outputs"]:
        made.add_row("largest error against float64", "", "", "difference")
        rows(made, error_rows(report["outputs"]))
    return [made, *_notes(report), _sentence(report, target)]


def _notes(report: Report) -> Iterable[str]:
    if report["changed"]:
        # A rule that only found two terms to be equal leaves no node of its own.
        matched = [name for name, ran in report["rule_runs"].items() if ran["matches"]]
        yield "rules: " + ", ".join(report["rules_used"] or matched or ["none, constants were evaluated"])
    for guilty in report["left_out"]:
        yield f"left out: {guilty['rule']}: {guilty['because']}"
    for problem in report["problems"]:
        yield f"problem: {problem}"
    yield from _measuring(report["latency"], report["settings"]["provider"])
    choice = report["choice"]
    if choice is not None and choice["share"] > _LARGE_SHARE:
        because = f"{choice['status']}, gap {100 * choice['gap']:.2g} %"
        yield f"extraction took {100 * choice['share']:.0f} % of the time without measuring ({because})"
    if report["stopped_by"] == "seconds":
        yield "not reproducible: stopped by seconds"


def _measuring(latency: TimedLatency | None, provider: str) -> Iterable[str]:
    if latency is not None:
        where = "" if provider == Options.provider else f" with {provider}"
        samples, sessions = 100 * latency["noise"], 100 * latency["session_noise"]
        yield (
            f"measured in turn{where}, {latency['rounds']} rounds of {latency['sessions']} sessions each; noise: "
            f"{samples:.3g} % from round to round, {sessions:.2g} % between sessions"
        )


def _sentence(report: Report, target: str | None) -> str:
    where = f" -> {target}" if target else ""
    if not report["verified"]:
        return f"{report['source']}{where}: could not be verified, this is the original"
    if not report["changed"]:
        return f"{report['source']}{where}: nothing better was found, this is the original"
    latency = report["latency"]
    gain = f"{speed(latency)}, " if latency is not None else ""
    return f"{report['source']}{where}: {gain}verified: {report['verified_by']}"


def speed(latency: Latency) -> str:
    """How many times faster or slower, ``3.60x faster``, where the clock can tell."""
    ratio = latency["ratio"]
    if latency["low"] <= 1 <= latency["high"]:
        return "as fast, as far as the clock can tell"
    return f"{1 / ratio:.2f}x faster" if ratio < 1 else f"{ratio:.2f}x slower"


def _change(pair: BeforeAfter | Cost) -> str:
    before, after = pair["before"], pair["after"]
    if before == after or before == 0 or not math.isfinite(before) or not math.isfinite(after):
        return ""
    return f"{100 * (after - before) / before:+.1f} %"


def _step(pair: BeforeAfter) -> str:
    return f"{pair['after'] - pair['before']:+d}"
