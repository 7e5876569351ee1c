"""``superopt verify``: do two models agree, and how far is each from the truth."""

from __future__ import annotations

from superopt.cli.exit_codes import FAILED, OK
from superopt.cli.interruption import ignore_interrupts
from superopt.cli.progress_lines import Lines
from superopt.models.model import load
from superopt.options import Options
from superopt.pipeline import compared
from superopt.progress import Clock
from superopt.report import to_json, write
from superopt.reporting import render
from superopt.reporting.comparison import comparison_document, comparison_text


def run_verify(original: str, new: str, options: Options, *, report: str | None) -> int:
    """Prints how two models compare; whether they agree."""
    clock = Clock(Lines(render.console(stderr=True)))
    verification = compared(load(original), load(new), options, clock)
    document = comparison_document(original, new, verification, options, clock.seconds)
    ignore_interrupts()
    if report is not None:
        write(to_json(document), report)
    render.show(comparison_text(document), render.console())
    return OK if verification.agree else FAILED
