"""``superopt extract``: the signatures of commands for research on e-graphs."""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.cli.app import ReportFile, app


@app.command()
def extract(
    source: Annotated[
        str,
        typer.Argument(metavar="GRAPH.json", help="An e-graph in the form of egraph-serialize.", show_default=False),
    ],
    seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="End after so many seconds. [default: a counted effort, about 30 s]"),
    ] = None,
    report: ReportFile = None,
) -> None:
    """Choose the cheapest node of every e-class that is needed, with a proven lower bound.

    Shared nodes are paid once. Exit code 0: chosen, whether proven or not. 2: bad input.
    """
    from superopt.cli.extract import run_extract

    raise typer.Exit(run_extract(source, seconds=seconds, report=report))
