"""``superopt extract``, ``experiment``, ``explain``, ``bisect``: the signatures, whose options ``given`` passes on."""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.cli.app import DEFAULTS, ReportFile, Source, app
from superopt.cli.shared_options import (
    CostModelName,
    Ignoring,
    InitializersAreConstant,
    InputShape,
    MaxGrowth,
    Numeric,
    RealInputs,
    RuleSets,
    SearchLimit,
    Seed,
    TrustRules,
    Without,
    given,
)
from superopt.rules import EXCUSES


@app.command(short_help="Choose the cheapest graph from an e-graph in a file.")
def extract(
    source: Annotated[
        str,
        typer.Argument(metavar="GRAPH.json", help="An e-graph in the form of egraph-serialize.", show_default=False),
    ],
    seconds: Annotated[
        float, typer.Option(metavar="S", help="End after so many seconds, the file's reading included.")
    ] = 50.0,
    report: ReportFile = None,
) -> None:
    """Choose the cheapest node of every e-class (a set of equal terms) that is needed, with a proven lower bound.

    Shared nodes are paid once; optimal means within 1e-8 of the cost. Exit code 0: chosen, whether proven or not.
    2: bad input.
    """
    from superopt.cli.extract import run_extract

    raise typer.Exit(run_extract(source, seconds=seconds, report=report))


@app.command(short_help="Compare rule sets and cost models on models.")
def experiment(
    models: Annotated[list[str], typer.Argument(metavar="MODEL.onnx", help="The models to read.", show_default=False)],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Folder of results; resumed if it is there.")
    ],
    rules: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE", help=f"Rule set, or several joined by +; repeatable. [default: {DEFAULTS.rules[0]}]"
        ),
    ] = None,
    cost: Annotated[
        list[str] | None, typer.Option(metavar="NAME|FILE", help=f"Cost model; repeatable. [default: {DEFAULTS.cost}]")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="nodes=N,iterations=N,seconds=S", help="Limits of saturation, any of them; repeatable."),
    ] = None,
    numeric: Numeric = None,
    ignoring: Annotated[
        list[str] | None,
        typer.Option(metavar=",".join(EXCUSES), help="Values that rules may take not to occur."),
    ] = None,
    max_growth: Annotated[
        str | None, typer.Option(metavar="5%|0.05|none", help="How much larger results may be. [default: 5%]")
    ] = None,
    leave_one_out: Annotated[
        str | None,
        typer.Option(
            metavar="rules|families",
            help="Leave out each rule that matched, in turn, or all rules of one file (families).",
        ),
    ] = None,
    latency: Annotated[bool, typer.Option("--latency", help="Time each result too; use --jobs 1 then.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not run the results.")] = False,
    jobs: Annotated[int, typer.Option(metavar="N", help="Cells at a time; -1 for one per processor.")] = -1,
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="joblib backend: loky, threading, dask ... [default: loky]")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Measure models x rule sets x cost models x limits, in parallel; run it again to resume.

    Exit code 0: all cells measured. 1: some failed, and their lines say why. 2: bad input.
    """
    from superopt.cli.experiment import run_experiment
    from superopt.experiment.grid import Grid
    from superopt.experiment.run import Workers
    from superopt.options import options, parse_limit

    growth = {} if max_growth is None else {"max_growth": max_growth}
    common = options(numeric=numeric, ignoring=ignoring, seed=seed, **growth)
    grid = Grid(
        tuple(models),
        tuple(rules or DEFAULTS.rules),  # type: ignore[arg-type]  # the default is a name
        tuple(cost or (str(DEFAULTS.cost),)),
        tuple(parse_limit(text) for text in limit or ()) or ({},),
        common,
        verify=not no_verify,
        latency=latency,
    )
    raise typer.Exit(run_experiment(grid, output, leave_one_out, Workers(jobs, backend)))


@app.command(short_help="Tell which rules lead from a model to another.")
def explain(
    context: typer.Context,
    original: Annotated[str, typer.Argument(metavar="IN.onnx", help="The model before.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="OUT.onnx", help="The model after.", show_default=False)],
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="DIR", help="Write the explanation here, a file per step.")
    ] = None,
    rules: RuleSets = None,
    without: Without = None,
    numeric: Numeric = None,
    ignoring: Ignoring = None,
    cost: CostModelName = None,
    limit: SearchLimit = None,
    input_shape: InputShape = None,
    initializers_are_constant: InitializersAreConstant = False,
    trust_rules: TrustRules = False,
    report: ReportFile = None,
) -> None:
    """Tell which rules lead from a model to another, in which order and where, each step verified on its own.

    Exit code 0: a way was found. 1: there is none, or a step is wrong. 2: bad input.
    """
    from superopt.cli.explain import run_explain
    from superopt.options import options

    chosen = options(**given(context))
    raise typer.Exit(run_explain(original, new, chosen, output=output, report=report))


@app.command(short_help="Find the rule that makes a model wrong.")
def bisect(
    context: typer.Context,
    source: Source,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="REGION.onnx", help="Write the smallest region here, as a model."),
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help=f"Rule set, trusted; repeatable. [default: {DEFAULTS.rules[0]}]"),
    ] = None,
    without: Without = None,
    numeric: Numeric = None,
    ignoring: Ignoring = None,
    cost: CostModelName = None,
    limit: SearchLimit = None,
    inputs: RealInputs = None,
    input_shape: InputShape = None,
    max_growth: MaxGrowth = None,
    seed: Seed = 0,
    report: ReportFile = None,
) -> None:
    """Find the wrong rule of a rule set, and the smallest region of the model that shows it.

    Exit code 0: nothing wrong was found. 1: a guilty rule was found, or it cannot be told. 2: bad input.
    """
    from superopt.cli.bisect import run_bisect
    from superopt.options import options

    chosen = options(**given(context), select="modelled", trust_rules=True)
    raise typer.Exit(run_bisect(source, chosen, output=output, report=report))
