"""Text for people, rendered from the JSON documents of ``report.py`` and from nothing else."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from superopt.options import Options
from superopt.printable import printable

if TYPE_CHECKING:
    from superopt.report import BeforeAfter, Comparison, Cost, Error, Latency, Output, Report, Timing
    from superopt.reporting.choice import ChoiceDocument
    from superopt.reporting.inspection import Inspection

_PIPED_WIDTH = 120

_LARGE_SHARE = 0.1
"""The share of a run's time beyond which extraction says why it took so long."""

_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def console(*, stderr: bool = False) -> Console:
    """Where text goes: plain and as wide as needed when piped; brackets in names are never taken for markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def show(parts: Iterable[Table | str], where: Console) -> None:
    """Prints parts one below the other, without the spaces that fill a table's lines up when it is piped."""
    if where.is_terminal:
        for part in parts:
            where.print(printable(part) if isinstance(part, str) else part)
        return
    with where.capture() as captured:
        for part in parts:
            if isinstance(part, str):
                where.print(printable(part), soft_wrap=True)
            else:
                where.print(part)
    where.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    where.file.flush()


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
        rows(made, _errors(report["outputs"]))
    return [made, *_notes(report), _sentence(report, target)]


def compared(document: Comparison) -> list[Table | str]:
    """What ``superopt verify`` prints."""
    made = table("largest error against float64", "original", "new", "difference")
    verdict = "agree" if document["agree"] else "do not agree"
    sentence = f"{document['original']} and {document['new']} {verdict}: {document['reason']}"
    truth = [f"truth: {document['truth']}"] if document["truth"].startswith("none") else []
    return [rows(made, _errors(document["outputs"])), *truth, sentence]


def _errors(outputs: Sequence[Output]) -> Iterable[tuple[str, str, str, str]]:
    for output in outputs:
        yield (
            f"  {printable(output['name'])}",
            _error(output["original_error"]),
            _error(output["new_error"]),
            _error(output["difference"]) + _agreement(output["top1"], output["top5"]),
        )


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
        yield f"not reproducible: stopped by {report['stopped_by']}"


def _measuring(latency: Timing | None, provider: str) -> Iterable[str]:
    if latency is not None:
        where = "" if provider == Options.provider else f" with {provider}"
        samples, sessions = 100 * latency["noise"], 100 * latency["session_noise"]
        yield (
            f"measured in turn{where}, {latency['rounds']} rounds of {latency['sessions']} sessions each; noise: "
            f"{samples:.2g} % from round to round, {sessions:.2g} % between sessions"
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


def bytes_text(count: int) -> str:
    """A size in bytes, for reading: ``812 B``, ``8.43 MB``."""
    if count < 1000:
        return f"{count} B"
    unit, size = next(((unit, count / scale) for unit, scale in _UNITS if count < 999.5 * scale), ("GB", count / 1e9))
    return f"{size:.3g} {unit}"


def number(value: float) -> str:
    """A number of four digits at most, with thousands apart where it is not too long: ``1,234,000``, ``0.01234``,
    ``1e+20``."""
    if not math.isfinite(value):
        return str(value)
    if 1000 <= abs(value) < 1e15:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


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


def inspected(document: Inspection, *, nodes: bool = False) -> list[Table | str]:
    """What ``superopt inspect`` prints."""
    facts = table("", "", left=2)
    facts.show_header = False
    facts.add_row("model", document["source"])
    facts.add_row("opset", f"{document['opset']} (IR version {document['ir_version']})")
    if document["producer"]:
        facts.add_row("producer", document["producer"])
    facts.add_row(
        "bytes", f"{bytes_text(document['bytes'])}, {bytes_text(document['constant_bytes'])} of them constants"
    )
    for kind in ("inputs", "outputs"):
        for value in document["inputs"] if kind == "inputs" else document["outputs"]:
            facts.add_row(kind.removesuffix("s"), f"{printable(value['name'])}: {_type(value['type'])}")
    parts: list[Table | str] = [facts, "", *costs(document)]
    if document["opaque"]:
        left = table("left alone", "count", "because", left=1)
        left.columns[2].justify = "left"
        parts += ["", rows(left, ((one["operator"], str(one["count"]), one["reason"]) for one in document["opaque"]))]
    if nodes:
        every = table("value", "operator", "type", f"cost, {document['unit']}", left=3)
        lines = (
            (printable(one["name"]), printable(one["operator"]), _type(one["type"]), number(one["cost"]))
            for one in document["nodes"]
        )
        parts += ["", rows(every, lines)]
    return parts


def costs(document: Inspection) -> list[Table | str]:
    """What ``superopt cost`` prints: the cost of a model by operator, the dearest first."""
    total = document["cost"]
    made = table("operator", "count", f"cost ({document['cost_model']}, {document['unit']})", "share")
    for line in document["operators"]:
        share = f"{100 * line['cost'] / total:.1f} %" if total > 0 else ""
        made.add_row(line["operator"], str(line["count"]), number(line["cost"]), share)
    made.add_row("all", str(sum(line["count"] for line in document["operators"])), number(total), "")
    return [made]


def extracted(document: ChoiceDocument) -> list[Table | str]:
    """What ``superopt extract`` prints."""
    facts = table("", "", left=2)
    facts.show_header = False
    facts.add_row("e-graph", f"{document['nodes']} nodes in {document['classes']} classes")
    facts.add_row("chosen", f"{document['chosen']} nodes")
    facts.add_row("cost", _exactly(document["cost"]))
    facts.add_row("lower bound", _exactly(document["bound"]))
    facts.add_row("gap", f"{100 * document['gap']:.3g} %")
    facts.add_row("greedy", _exactly(document["greedy"]))
    facts.add_row("status", document["status"])
    facts.add_row("seconds", f"{document['seconds']:.2f}")
    return [facts]


def _exactly(value: float) -> str:
    """A cost with as many digits as proofs are about."""
    return f"{value:.9g}"


def _type(text: str) -> str:
    """A type as people write it: symbols without their mark."""
    return text.replace("$", "")
