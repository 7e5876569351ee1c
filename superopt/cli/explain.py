"""``superopt explain``: which rules lead from a model to another, step by step."""

from __future__ import annotations

from pathlib import Path

from superopt.cli.exit_codes import FAILED, OK
from superopt.cli.interruption import ignore_interrupts
from superopt.cli.optimize import check_target
from superopt.cli.progress_lines import Lines
from superopt.explanation.files import check_folder, write_folder
from superopt.explanation.of_pair import explain_pair
from superopt.explanation.text import steps_table, summary
from superopt.models.model import load
from superopt.options import Options
from superopt.progress import Clock
from superopt.report import to_json, write
from superopt.reporting import render


def run_explain(original: str, new: str, options: Options, *, output: str | None, report: str | None) -> int:
    """Prints the steps from a model to another; whether there are some, and none of them is wrong."""
    if output is not None:
        check_folder(output)
    if report is not None:
        check_target("report", Path(report), original, new)
    clock = Clock(Lines(render.console(stderr=True)))
    document = explain_pair(load(original), load(new), options, clock)
    ignore_interrupts()
    if output is not None:
        write_folder(document, output)
    if report is not None:
        write(to_json(document), report)
    render.show([*steps_table(document), *summary(document)], render.console())
    return FAILED if document["missing"] or document["counts"]["wrong"] else OK
