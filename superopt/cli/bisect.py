"""``superopt bisect``: the guilty rule, and the smallest region of the model that shows it."""

from __future__ import annotations

from pathlib import Path

from superopt.cli.exit_codes import FAILED, OK
from superopt.cli.interruption import ignore_interrupts
from superopt.cli.optimize import check_target
from superopt.cli.progress_lines import Lines
from superopt.explanation.bisection import bisect, bisection_text
from superopt.models.model import load, save
from superopt.options import Options
from superopt.progress import Clock
from superopt.report import to_json, write
from superopt.reporting import render


def run_bisect(source: str, options: Options, *, output: str | None, report: str | None) -> int:
    """Prints the guilty rule and what shows it; whether there is none."""
    for what, target in (("output", output), ("report", report)):
        if target is not None:
            check_target(what, Path(target), source)
    found = bisect(load(source), options, Clock(Lines(render.console(stderr=True))))
    ignore_interrupts()
    written = None
    if output is not None and found.region is not None:
        save(load(found.region), output)
        written = output
    if report is not None:
        write(to_json(found.document), report)
    render.show(bisection_text(found.document, written), render.console())
    return OK if found.document["guilty"] is None else FAILED
