"""Text for people, rendered from the JSON documents of ``report.py`` and from nothing else."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from superopt.report import BeforeAfter, Cost, Error, Latency, Report

_PIPED_WIDTH = 120


def console(*, stderr: bool = False) -> Console:
    """Where text goes: plain and as wide as needed when piped; brackets in names are never taken for markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def table(*columns: str, left: int = 1) -> Table:
    """An empty table whose first ``left`` columns are text and the others numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right", overflow="fold")
    return made


def optimized(report: Report, target: str | None = None) -> list[Table | str]:
    """The table at the end of ``superopt optimize``, what needs saying besides, and one sentence."""
    made = table("", "before", "after", "")
    made.add_row("nodes", str(report["nodes"]["before"]), str(report["nodes"]["after"]), _change(report["nodes"]))
    for operator, count in report["operators"].items():
        mark = "" if count["before"] == count["after"] else _step(count)
        made.add_row(f"  {operator}", str(count["before"]), str(count["after"]), mark)
    size, cost, latency = report["bytes"], report["cost"], report["latency"]
    made.add_row("bytes", bytes_text(size["before"]), bytes_text(size["after"]), _change(size))
    made.add_row(f"cost ({cost['model']}, {cost['unit']})", number(cost["before"]), number(cost["after"]), _change(cost))
    if latency is not None:
        unit = latency["unit"]
        made.add_row("latency", f"{latency['before']:.3g} {unit}", f"{latency['after']:.3g} {unit}", speed(latency))
    if report["outputs"]:
        made.add_row("largest error against float64", "", "", "difference")
    for output in report["outputs"]:
        made.add_row(
            f"  {output['name']}",
            _error(output["original_error"]),
            _error(output["new_error"]),
            _error(output["difference"]) + _agreement(output["top1"], output["top5"]),
        )
    return [made, *_notes(report), _sentence(report, target)]


def _notes(report: Report) -> Iterable[str]:
    if report["rules_used"]:
        yield "rules: " + ", ".join(report["rules_used"])
    for guilty in report["left_out"]:
        yield f"left out: {guilty['rule']}: {guilty['because']}"
    for problem in report["problems"]:
        yield f"problem: {problem}"
    if not report["reproducible"]:
        yield f"not reproducible: stopped by {report['stopped_by']}"


def _sentence(report: Report, target: str | None) -> str:
    where = f" -> {target}" if target else ""
    if not report["verified"]:
        return f"{report['source']}{where}: could not be verified, this is the original"
    if not report["changed"]:
        return f"{report['source']}{where}: nothing better was found, this is the original"
    latency = report["latency"]
    gain = f"{speed(latency)}, " if latency is not None else ""
    return f"{report['source']}{where}: {gain}verified {report['verified_by']}".rstrip()


def bytes_text(count: int) -> str:
    """A size in bytes, for reading: ``812 B``, ``8.43 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{count} B" if unit == "B" else f"{size:.3g} {unit}" if size < 999.5 or unit == "GB" else f"{size:.0f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def number(value: float) -> str:
    """A number of four digits at most, with thousands apart: ``1,234,000``, ``0.01234``."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


def speed(latency: Latency) -> str:
    """How many times faster or slower: ``3.60x faster``."""
    before, after = latency["before"], latency["after"]
    if before <= 0 or after <= 0:
        return ""
    ratio = before / after
    if f"{ratio:.2f}" == "1.00":
        return "as fast"
    return f"{ratio:.2f}x faster" if ratio > 1 else f"{1 / ratio:.2f}x slower"


def _change(pair: BeforeAfter | Cost) -> str:
    before, after = pair["before"], pair["after"]
    if before == after or before == 0 or not math.isfinite(before) or not math.isfinite(after):
        return ""
    return f"{100 * (after - before) / before:+.1f} %"


def _step(pair: BeforeAfter) -> str:
    return f"{pair['after'] - pair['before']:+d}"


def _error(error: Error | None) -> str:
    return "-" if error is None else f"{error['max_abs']:.2g}"


def _agreement(top1: float | None, top5: float | None) -> str:
    parts = [f"{name} {100 * share:.4g} %" for name, share in (("top-1", top1), ("top-5", top5)) if share is not None]
    return f" ({', '.join(parts)})" if parts else ""


def rows(made: Table, lines: Iterable[Sequence[str]]) -> Table:
    """The table with lines added."""
    for line in lines:
        made.add_row(*line)
    return made
