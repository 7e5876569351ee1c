"""``superopt experiment``: a line for each cell that is finished, a table of all, two files."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import typer
from rich.table import Table

from superopt.cli.exit_codes import FAILED, OK
from superopt.experiment.cell import CellDocument
from superopt.experiment.grid import LEAVE_OUTS, Cell, Grid, LeaveOut
from superopt.experiment.run import Workers, experiment
from superopt.experiment.table import ExperimentDocument, contribution_rows, rows
from superopt.options import check_choice
from superopt.reporting import render


def run_experiment(grid: Grid, output: str, leave_one_out: str | None, workers: Workers) -> int:
    """Measures all cells and prints them; whether none failed. Raises ``InputError`` before anything is run."""
    leave_out = _leave_out(leave_one_out)
    try:
        made = experiment(grid, output, leave_one_out=leave_out, workers=workers, progress=show_progress)
    except KeyboardInterrupt as error:
        kept = f"interrupted, finished cells are kept in {output}: run the same command again to go on"
        raise typer.Abort(kept) from error
    _show(made, output)
    return FAILED if any(cell["failure"] is not None for cell in made["cells"]) else OK


def _leave_out(given: str | None) -> LeaveOut | None:
    if given is None:
        return None
    check_choice("leave-one-out", given, LEAVE_OUTS)
    return cast(LeaveOut, given)


def show_progress(finished: int, count: int, cell: Cell, document: CellDocument) -> None:
    """A line on stderr for a cell that is finished."""
    outcome = f"failed: {document['failure']}" if document["failure"] else f"{document['wall_seconds']:.2f} s"
    typer.echo(f"[{finished}/{count}] {cell.label}: {outcome}", err=True)


def _show(made: ExperimentDocument, output: str) -> None:
    cells = render.table(
        "model", "rules", "cost", "limit", "e-nodes", "e-classes", "s", "before", "after", "", "gap", "", left=4
    )
    for row in rows(made):
        cells.add_row(*row)
    parts: list[Table | str] = [cells]
    if made["contributions"]:
        less = render.table("model", "rules", "cost", "limit", "without it", "", "e-nodes", "s", "", left=5)
        for row in contribution_rows(made):
            less.add_row(*row)
        parts += ["", "what each brings, as a share of the original's cost, and takes", less]
    folder = Path(output)
    parts.append(f"{len(made['cells'])} cells -> {folder / 'experiment.json'}, {folder / 'experiment.csv'}")
    render.show(parts, render.console())
