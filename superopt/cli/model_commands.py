"""``superopt optimize`` and ``superopt verify``: the signatures, whose options ``given`` passes on by name."""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.cli.app import DEFAULTS, ReportFile, Source, app
from superopt.cli.shared_options import (
    CustomOpLibrary,
    Ignoring,
    InitializersAreConstant,
    InputShape,
    MaxGrowth,
    Numeric,
    OptionalSeed,
    RealInputs,
    RuleSets,
    SearchLimit,
    TrustRules,
    VerifyBy,
    Without,
    given,
)
from superopt.options import SELECTS
from superopt.rules import NUMERIC_CLASSES


@app.command(short_help="Write a model that computes the same outputs faster.")
def optimize(
    context: typer.Context,
    source: Source,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="OUT.onnx", help="Where to write. [default: IN.opt.onnx]")
    ] = None,
    rules: RuleSets = None,
    without: Without = None,
    numeric: Numeric = None,
    ignoring: Ignoring = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help=f"Cost model; repeatable: the clock decides among candidates of each. [default: {DEFAULTS.cost}]",
        ),
    ] = None,
    limit: SearchLimit = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="FEED.npz", help="Inputs for verification and timing. [default: made, by --seed]"),
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:1,3,224,224", help="Sample shape of an open input; not baked in; repeatable."),
    ] = None,
    initializers_are_constant: InitializersAreConstant = False,
    target_opset: Annotated[
        int | None, typer.Option(metavar="N", help="Convert to this opset first. [default: the model's own]")
    ] = None,
    max_growth: MaxGrowth = None,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(SELECTS),
            help="Choose among the candidates by their latency, or the one that is cheapest by the cost model. "
            f"[default: {DEFAULTS.select}]",
        ),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            metavar="K", help=f"Candidates of each cost model to measure, at most. [default: {DEFAULTS.candidates}]"
        ),
    ] = None,
    differ: Annotated[
        int | None,
        typer.Option(
            metavar="D", help=f"Nodes in which any two candidates differ, at least. [default: {DEFAULTS.differ}]"
        ),
    ] = None,
    tune: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help=f"Time for measuring the candidates, at most. [default: {DEFAULTS.tune:g}]"
        ),
    ] = None,
    verify: VerifyBy = None,
    external_data: Annotated[
        str | None,
        typer.Option(
            metavar="same|none|FILE",
            help="Put weights where the original has them, into the model, or into this file. "
            f"[default: {DEFAULTS.external_data}]",
        ),
    ] = None,
    custom_op_library: CustomOpLibrary = None,
    check_classes: Annotated[
        bool,
        typer.Option("--check-classes", help="First compute and compare all terms that the rules have found equal."),
    ] = False,
    trust_rules: TrustRules = False,
    explain: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write here which rules led to the result, step by step.")
    ] = None,
    seed: OptionalSeed = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the runtime while timing. [default: the runtime's own choice]")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where candidates are timed: an execution provider of onnxruntime, or OpenVINO (superopt[openvino]); "
            f"the cost model `measured` is then of it. [default: {DEFAULTS.provider}]",
        ),
    ] = None,
    report: ReportFile = None,
    dump: Annotated[
        list[str] | None,
        typer.Option(
            metavar="terms|egraph|chosen", help="Print a stage's text on stdout (the table goes to stderr); repeatable."
        ),
    ] = None,
) -> None:
    """Write a model that computes the same outputs faster.

    Exit code 0: written and verified. 1: could not be verified, the original was written. 2: bad input.
    """
    from superopt.cli.optimize import run_optimize
    from superopt.options import options

    chosen = options(**given(context))
    raise typer.Exit(run_optimize(source, chosen, output=output, report=report, dump=tuple(dump or ())))


@app.command(short_help="Tell whether two models agree, and how exactly.")
def verify(
    context: typer.Context,
    original: Annotated[str, typer.Argument(metavar="A.onnx", help="The model to go by.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="B.onnx", help="The model to compare with it.", show_default=False)],
    numeric: Annotated[
        str | None,
        typer.Option(metavar="|".join(NUMERIC_CLASSES), help=f"How values may differ. [default: {DEFAULTS.numeric}]"),
    ] = None,
    inputs: RealInputs = None,
    input_shape: InputShape = None,
    verify: VerifyBy = None,
    custom_op_library: CustomOpLibrary = None,
    seed: OptionalSeed = None,
    report: ReportFile = None,
) -> None:
    """Tell whether two models agree, and how far each is from the truth in float64.

    Exit code 0: they agree. 1: they do not, or it cannot be told. 2: bad input.
    """
    from superopt.cli.verify import run_verify
    from superopt.options import options

    chosen = options(**given(context))
    raise typer.Exit(run_verify(original, new, chosen, report=report))
