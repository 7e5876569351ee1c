"""``superopt optimize``: a progress line per stage, the files, the table."""

from __future__ import annotations

import os
from pathlib import Path

from superopt.cli.complaints import complain_unwritten
from superopt.cli.exit_codes import FAILED, OK
from superopt.cli.interruption import ignore_interrupts, is_interruption
from superopt.cli.progress_lines import Lines
from superopt.errors import InputError, OptionError
from superopt.options import Options, check_choice
from superopt.progress import DUMPS
from superopt.report import to_json, write
from superopt.reporting import render
from superopt.reporting.report_text import report_text


def run_optimize(
    source: str, options: Options, *, output: str | None, report: str | None, dump: tuple[str, ...] = ()
) -> int:
    """Optimizes a file into a file; the exit code. Raises ``InputError`` before anything is written."""
    from superopt.models import model as models
    from superopt.pipeline import run

    for stage in dump:
        check_choice("dump", stage, DUMPS)
    loaded = models.load(source)
    target = Path(output) if output is not None else default_output(source)
    check_target("output", target, source)
    models.check_layout(loaded, target, options.external_data)
    if report is not None:
        check_target("report", Path(report), source, str(target))
    try:
        result = run(loaded, options, Lines(render.console(stderr=True), dump))
    except InputError:
        raise
    except Exception as error:
        if is_interruption(error):
            raise
        # A fault of ours must not leave the user without a model: the original is right.
        ignore_interrupts()
        models.save(loaded, target)
        complain_unwritten(error, f"the original was written to {target}")
        return FAILED
    ignore_interrupts()
    result.save(target)
    if report is not None:
        write(to_json(result.report), report)
    console = render.console(stderr=bool(dump))
    render.show(report_text(result.report, str(target)), console)
    if options.explain is not None and (Path(options.explain) / "index.md").is_file():
        render.show([f"explained in {Path(options.explain) / 'index.md'}"], console)
    return OK if result.report["verified"] else FAILED


def default_output(source: str) -> Path:
    """``IN.opt.onnx`` beside ``IN.onnx``."""
    path = Path(source)
    return path.with_name(f"{path.name.removesuffix('.onnx')}.opt.onnx")


def check_target(what: str, target: Path, *others: str) -> None:
    """Finds out before the work begins that a file could not be written."""
    for other in others:
        if os.path.realpath(target) == os.path.realpath(other):
            raise OptionError(f"{target}: is also the file {other} of this run, expected another for the {what}")
    if target.is_dir():
        raise OptionError(f"{target}: is a directory, expected a file for the {what}")
    if target.exists() and not target.is_file():
        if what == "report":
            return  # It is written into.
        raise OptionError(f"{target}: is no regular file, expected one, or a name that is free, for the {what}")
    if not target.parent.is_dir():
        raise OptionError(f"{target}: {target.parent} is not a directory, expected the {what} in one that exists")
    if not os.access(target.parent, os.W_OK):
        raise OptionError(f"{target}: {target.parent} cannot be written to, expected the {what} in one that can be")
