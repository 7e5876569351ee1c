"""The command line: reads options, calls one function, prints what is rendered from its JSON document.

Nothing heavy is imported before a command runs, so that ``superopt --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn, cast

import typer

from superopt.cli.complaints import complain, complain_internal
from superopt.errors import InputError, SuperoptError
from superopt.options import SELECTS, VERIFIES, Options
from superopt.rules import EXCUSES, NUMERIC_CLASSES
from superopt.version import __version__

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_DEFAULTS = Options()
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
"""Typer exports the leaf of its usage errors and not the root."""

app = typer.Typer(
    name="superopt",
    help="Find, by equality saturation, the cheapest ONNX model that computes the same outputs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its tables cut long option names off, and take defaults in brackets for markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
rules_app = typer.Typer(help="List, show and check rewrite rules.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(rules_app, name="rules")

Source = Annotated[str, typer.Argument(metavar="IN.onnx", help="The model to read.", show_default=False)]
ReportFile = Annotated[str | None, typer.Option("--report", metavar="R.json", help="Write the report here, as JSON.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"superopt {__version__}")
        raise typer.Exit()


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before a command."""


@app.command()
def optimize(
    source: Source,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="OUT.onnx", help="Where to write. [default: IN.opt.onnx]")
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help=f"Rule set; repeatable. [default: {_DEFAULTS.rules[0]}]"),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave out a rule or a family of rules; repeatable.")
    ] = None,
    numeric: Annotated[
        str | None,
        typer.Option(metavar="|".join(NUMERIC_CLASSES), help=f"What may change. [default: {_DEFAULTS.numeric}]"),
    ] = None,
    ignoring: Annotated[
        list[str] | None,
        typer.Option(metavar=",".join(EXCUSES), help="Values that the model is promised not to hold."),
    ] = None,
    cost: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help=f"Cost model. [default: {_DEFAULTS.cost}]")
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
        typer.Option(metavar="|".join(SELECTS), help=f"Who has the last word. [default: {_DEFAULTS.select}]"),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="|".join(VERIFIES), help=f"What is compared. [default: {_DEFAULTS.verify}]"),
    ] = None,
    external_data: Annotated[
        str | None,
        typer.Option(metavar="same|none|FILE", help=f"Where weights go. [default: {_DEFAULTS.external_data}]"),
    ] = None,
    custom_op_library: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Library of custom operators; repeatable.")
    ] = None,
    check_classes: Annotated[
        bool, typer.Option("--check-classes", help="First compare all that the rules have found equal.")
    ] = False,
    trust_rules: Annotated[
        bool, typer.Option("--trust-rules", help="Do not try rules that do not ship by their laws first.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help=f"Seed of sample inputs. [default: {_DEFAULTS.seed}]")] = None,
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
        verify=verify,
        external_data=external_data,
        custom_op_library=custom_op_library or None,
        check_classes=check_classes,
        trust_rules=trust_rules,
        seed=seed,
        threads=threads,
        **keywords,
    )
    raise typer.Exit(run_optimize(source, chosen, output=output, report=report, dump=tuple(dump or ())))


@app.command()
def verify(
    original: Annotated[str, typer.Argument(metavar="A.onnx", help="The model that is right.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="B.onnx", help="The model to compare with it.", show_default=False)],
    numeric: Annotated[
        str | None,
        typer.Option(metavar="|".join(NUMERIC_CLASSES), help=f"What may differ. [default: {_DEFAULTS.numeric}]"),
    ] = None,
    inputs: Annotated[str | None, typer.Option(metavar="FEED.npz", help="Real inputs. [default: made]")] = None,
    input_shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME:1,3,224,224", help="Sample shape of an open input; repeatable.")
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="|".join(VERIFIES), help=f"What is compared. [default: {_DEFAULTS.verify}]"),
    ] = None,
    custom_op_library: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Library of custom operators; repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help=f"Seed of sample inputs. [default: {_DEFAULTS.seed}]")] = None,
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


@app.command()
def inspect(
    source: Source,
    cost: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help=f"Cost model. [default: {_DEFAULTS.cost}]")
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
        str | None, typer.Option(metavar="NAME|FILE", help=f"Cost model. [default: {_DEFAULTS.cost}]")
    ] = None,
    report: ReportFile = None,
) -> None:
    """Price a model by a cost model, operator by operator."""
    from superopt.cli.inspect import run_cost
    from superopt.options import options

    raise typer.Exit(run_cost(source, options(cost=cost), report=report))


@rules_app.command("list")
def rules_list(
    rules: Annotated[list[str] | None, typer.Argument(metavar="[NAME|FILE]...", show_default=False)] = None,
) -> None:
    """List rules, all that ship or those of some rule sets."""
    from superopt.cli.rules import run_list

    raise typer.Exit(run_list(tuple(rules or ())))


@rules_app.command("show")
def rules_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A rule, a family or a rule set.", show_default=False)],
    rules: Annotated[list[str] | None, typer.Option(metavar="NAME|FILE", help="Where to look; repeatable.")] = None,
) -> None:
    """Print the text of a rule."""
    from superopt.cli.rules import run_show

    raise typer.Exit(run_show(name, tuple(rules or ())))


@rules_app.command("check")
def rules_check(
    files: Annotated[list[str] | None, typer.Argument(metavar="[NAME|FILE]...", show_default=False)] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="RULE", help="Check this rule alone; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the instances.")] = 0,
) -> None:
    """Test rules by the law that each one's text implies; all that ship, or those of some files.

    Exit code 0: all pass. 1: some fail. 2: bad input.
    """
    from superopt.cli.rules import run_check

    raise typer.Exit(run_check(tuple(files or ()), tuple(only or ()), seed))


@rules_app.command("import")
def rules_import(
    source: Annotated[str, typer.Argument(metavar="FILE.pb", help="TASO's substitutions.", show_default=False)],
    output: Annotated[str, typer.Option("-o", "--output", metavar="OUT.rules", help="Where to write.")],
) -> None:
    """Write TASO's file of substitutions as rules, as TASO applies them: `rules check` tells which are true.

    Exit code 0: written. 2: bad input.
    """
    from superopt.cli.rules import run_import

    raise typer.Exit(run_import(source, output))


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits with its code; a fault of the user's, or of ours, is one line on stderr."""
    sys.exit(_run(args))


def _run(args: Sequence[str] | None) -> int:
    try:
        code = app(args=None if args is None else list(args), prog_name="superopt", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except _UsageError as error:
        return _usage(error)
    except InputError as error:
        complain(str(error))
        return BAD_INPUT
    except SuperoptError as error:
        complain(str(error))
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted, nothing was written")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has closed the pipe: no more can be said, and the interpreter must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        complain_internal(error, "nothing was written")
        return FAILED


def _usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "superopt"
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(str(error))
        return BAD_INPUT
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    complain(f"{message.rstrip('.')} (see {command} --help)")
    return BAD_INPUT
