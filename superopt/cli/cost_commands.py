"""``superopt inspect`` and ``superopt cost``: the signatures."""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.cli.app import DEFAULTS, ReportFile, Source, app


@app.command()
def inspect(
    source: Source,
    cost: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help=f"Cost model. [default: {DEFAULTS.cost}]")
    ] = None,
    initializers_are_constant: Annotated[
        bool, typer.Option("--initializers-are-constant", help="Also those that are graph inputs.")
    ] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="Also every node, with its type and cost.")] = False,
    report: ReportFile = None,
) -> None:
    """Show a model's operators, shapes and costs, and what stays opaque and why."""
    from superopt.cli.inspect import run_inspect
    from superopt.options import options

    chosen = options(cost=cost, initializers_are_constant=initializers_are_constant)
    raise typer.Exit(run_inspect(source, chosen, nodes=nodes, report=report))


@app.command("cost")
def cost_command(
    source: Source,
    cost: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help=f"Cost model. [default: {DEFAULTS.cost}]")
    ] = None,
    report: ReportFile = None,
) -> None:
    """Price a model by a cost model, operator by operator."""
    from superopt.cli.inspect import run_cost
    from superopt.options import options

    raise typer.Exit(run_cost(source, options(cost=cost), report=report))
