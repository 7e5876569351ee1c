"""``superopt optimize`` and ``superopt verify``: the signatures."""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.cli.app import DEFAULTS, ReportFile, Source, app
from superopt.options import SELECTS, VERIFIES
from superopt.rules import EXCUSES, NUMERIC_CLASSES


@app.command(short_help="Write a model that computes the same outputs faster.")
def optimize(
    source: Source,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="OUT.onnx", help="Where to write. [default: IN.opt.onnx]")
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help=f"Rule set; repeatable. [default: {DEFAULTS.rules[0]}]"),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE", help="Leave out a rule, or a family: all that one rule's text stands for; repeatable."
        ),
    ] = None,
    numeric: Annotated[
        str | None,
        typer.Option(metavar="|".join(NUMERIC_CLASSES), help=f"What may change. [default: {DEFAULTS.numeric}]"),
    ] = None,
    ignoring: Annotated[
        list[str] | None,
        typer.Option(metavar=",".join(EXCUSES), help="Values that the model is promised not to hold."),
    ] = None,
    cost: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help=f"Cost model. [default: {DEFAULTS.cost}]")
    ] = None,
    limit: Annotated[
        str | None, typer.Option(metavar="nodes=N,iterations=N,seconds=S", help="Limits of the search, any of them.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="FEED.npz", help="Real inputs for verification and timing. [default: made]")
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:1,3,224,224", help="Sample shape of an open input; not baked in; repeatable."),
    ] = None,
    initializers_are_constant: Annotated[
        bool, typer.Option("--initializers-are-constant", help="Also those that are graph inputs.")
    ] = False,
    target_opset: Annotated[
        int | None, typer.Option(metavar="N", help="Convert to this opset first. [default: the model's own]")
    ] = None,
    max_growth: Annotated[
        str | None, typer.Option(metavar="5%|0.05|none", help="How much larger the result may be. [default: 5%]")
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(metavar="|".join(SELECTS), help=f"Who has the last word. [default: {DEFAULTS.select}]"),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(metavar="K", help=f"Measure so many at most. [default: {DEFAULTS.candidates}]")
    ] = None,
    differ: Annotated[
        int | None,
        typer.Option(metavar="D", help=f"Candidates differ in so many nodes at least. [default: {DEFAULTS.differ}]"),
    ] = None,
    tune: Annotated[
        float | None, typer.Option(metavar="SECONDS", help=f"Time for measuring them. [default: {DEFAULTS.tune:g}]")
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="|".join(VERIFIES), help=f"What is compared. [default: {DEFAULTS.verify}]"),
    ] = None,
    external_data: Annotated[
        str | None,
        typer.Option(metavar="same|none|FILE", help=f"Where weights go. [default: {DEFAULTS.external_data}]"),
    ] = None,
    custom_op_library: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Library of custom operators; repeatable.")
    ] = None,
    check_classes: Annotated[
        bool, typer.Option("--check-classes", help="First compare all that the rules have found equal.")
    ] = False,
    trust_rules: Annotated[
        bool,
        typer.Option(
            "--trust-rules",
            help="Do not try rules that do not ship by their laws first (both sides computed on made inputs).",
        ),
    ] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write here which rules led to the result, step by step.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help=f"Seed of sample inputs. [default: {DEFAULTS.seed}]")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of onnxruntime while timing. [default: onnxruntime's own choice]")
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
    from superopt.options import options, parse_growth

    keywords: dict[str, object] = {} if max_growth is None else {"max_growth": parse_growth(max_growth)}
    chosen = options(
        rules=rules or None,
        without=without or None,
        numeric=numeric,
        ignoring=ignoring or None,
        cost=cost,
        limit=limit,
        inputs=inputs,
        input_shape=input_shape or None,
        initializers_are_constant=initializers_are_constant,
        target_opset=target_opset,
        select=select,
        candidates=candidates,
        differ=differ,
        tune=tune,
        verify=verify,
        external_data=external_data,
        custom_op_library=custom_op_library or None,
        check_classes=check_classes,
        trust_rules=trust_rules,
        explain=explain,
        seed=seed,
        threads=threads,
        **keywords,
    )
    raise typer.Exit(run_optimize(source, chosen, output=output, report=report, dump=tuple(dump or ())))


@app.command(short_help="Tell whether two models agree, and how exactly.")
def verify(
    original: Annotated[str, typer.Argument(metavar="A.onnx", help="The model that is right.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="B.onnx", help="The model to compare with it.", show_default=False)],
    numeric: Annotated[
        str | None,
        typer.Option(metavar="|".join(NUMERIC_CLASSES), help=f"What may differ. [default: {DEFAULTS.numeric}]"),
    ] = None,
    inputs: Annotated[str | None, typer.Option(metavar="FEED.npz", help="Real inputs. [default: made]")] = None,
    input_shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME:1,3,224,224", help="Sample shape of an open input; repeatable.")
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="|".join(VERIFIES), help=f"What is compared. [default: {DEFAULTS.verify}]"),
    ] = None,
    custom_op_library: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Library of custom operators; repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help=f"Seed of sample inputs. [default: {DEFAULTS.seed}]")] = None,
    report: ReportFile = None,
) -> None:
    """Tell whether two models agree, and how far each is from the truth in float64.

    Exit code 0: they agree. 1: they do not, or it cannot be told. 2: bad input.
    """
    from superopt.cli.verify import run_verify
    from superopt.options import options

    chosen = options(
        numeric=numeric,
        inputs=inputs,
        input_shape=input_shape or None,
        verify=verify,
        custom_op_library=custom_op_library or None,
        seed=seed,
    )
    raise typer.Exit(run_verify(original, new, chosen, report=report))
