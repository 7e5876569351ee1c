"""``superopt inspect``, ``superopt cost`` and ``superopt measure``: the signatures; ``given`` passes options on."""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.cli.app import DEFAULTS, ReportFile, Source, app
from superopt.cli.shared_options import CostModelName, InitializersAreConstant, InputShape, given
from superopt.sessions import CPU

Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads of the runtime. [default: the runtime's own choice]")
]


@app.command(short_help="Show what a model is made of.")
def inspect(
    context: typer.Context,
    source: Source,
    cost: CostModelName = None,
    initializers_are_constant: InitializersAreConstant = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="List every node too, with its type and cost.")] = False,
    report: ReportFile = None,
) -> None:
    """Show a model's operators, shapes and costs; and what stays opaque (kept as it is: no rule looks into it), why."""
    from superopt.cli.inspect import run_inspect
    from superopt.options import options

    chosen = options(**given(context))
    raise typer.Exit(run_inspect(source, chosen, nodes=nodes, report=report))


@app.command("cost", short_help="Price a model by cost models.")
def cost_command(
    source: Source,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Cost model; repeatable. `measured` is what was timed here, `measured@PROVIDER` with another "
            f"execution provider of onnxruntime, or with OpenVINO. [default: {DEFAULTS.cost}]",
        ),
    ] = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="List every node, not only operators.")] = False,
    timed: Annotated[bool, typer.Option("--timed/--not-timed", help="Also take the latency in onnxruntime.")] = True,
    seconds: Annotated[float, typer.Option(help="How long the model is timed, in seconds.")] = 3.0,
    input_shape: InputShape = None,
    threads: Threads = None,
    report: ReportFile = None,
) -> None:
    """Price a model by cost models, beside what onnxruntime takes; by operator or by node."""
    from superopt.cli.inspect import run_cost
    from superopt.options import options

    chosen = options(input_shape=input_shape, threads=threads)
    names = tuple(cost or [str(DEFAULTS.cost)])
    raise typer.Exit(run_cost(source, names, chosen, nodes=nodes, seconds=seconds if timed else None, report=report))


@app.command(short_help="Time a model's operators, for the cost model `measured`.")
def measure(
    sources: Annotated[list[str], typer.Argument(metavar="IN.onnx", help="The models whose operators are timed.")],
    rules: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE|none",
            help=f"Time also what these rules make of the operators; repeatable. [default: {DEFAULTS.rules[0]}]",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(help="How long to find the operators and time them, in seconds; what matters most comes first."),
    ] = 60.0,
    threads: Threads = None,
    provider: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Execution provider of onnxruntime, or OpenVINO for OpenVINO's own package (superopt[openvino]); "
            "`--cost measured@NAME` goes by what was timed with it.",
        ),
    ] = CPU,
    input_shape: InputShape = None,
    again: Annotated[bool, typer.Option("--again", help="Time also what has been timed before.")] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="OUT.toml", help="Write what was timed here, as a cost model."),
    ] = None,
    report: ReportFile = None,
) -> None:
    """Time a model's operators in onnxruntime or OpenVINO, each alone, for the cost model `measured`."""
    from superopt.cli.measure import run_measure
    from superopt.options import options

    chosen = options(rules=None if rules == ["none"] else rules, threads=threads, input_shape=input_shape)
    raise typer.Exit(
        run_measure(
            tuple(sources),
            chosen,
            derived=rules != ["none"],
            provider=provider,
            seconds=seconds,
            again=again,
            output=output,
            report=report,
        )
    )
