"""``superopt rules``: the signatures."""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.cli.app import rules_app

RuleNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME|FILE",
        help="Rules, families or rule sets that ship, or files. [default: all that ship]",
        show_default=False,
    ),
]


@rules_app.command("list", short_help="List rules and rule sets.")
def rules_list(
    rules: RuleNames = None,
) -> None:
    """List rules, with the numeric class of each: how results may change; a family stands on one line."""
    from superopt.cli.rules import run_list

    raise typer.Exit(run_list(tuple(rules or ())))


@rules_app.command("show", short_help="Print the text of rules.")
def rules_show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A rule, a family (all that one rule's text stands for) or a rule set.",
            show_default=False,
        ),
    ],
    rules: Annotated[list[str] | None, typer.Option(metavar="NAME|FILE", help="Where to look; repeatable.")] = None,
) -> None:
    """Print the text of a rule."""
    from superopt.cli.rules import run_show

    raise typer.Exit(run_show(name, tuple(rules or ())))


@rules_app.command("functions", short_help="List what rules may call.")
def rules_functions(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="Only those with these words in name or text.", show_default=False),
    ] = None,
) -> None:
    """List the functions that rules may call in conditions, for attributes and for constants."""
    from superopt.cli.rules import run_functions

    raise typer.Exit(run_functions(tuple(words or ())))


@rules_app.command("check", short_help="Test rules by their laws.")
def rules_check(
    files: RuleNames = None,
    only: Annotated[list[str] | None, typer.Option(metavar="RULE", help="Check this rule alone; repeatable.")] = None,
    points: Annotated[
        int | None, typer.Option(metavar="N", help="Instances of each rule, at most. [default: 24]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the instances.")] = 0,
    jobs: Annotated[int, typer.Option(metavar="N", help="Rules at a time; -1 for one per processor.")] = -1,
) -> None:
    """Test rules by the law that each one's text implies: both sides are computed on made instances and compared.

    Exit code 0: all pass. 1: some fail. 2: bad input.
    """
    from superopt.cli.rules import run_check

    raise typer.Exit(run_check(tuple(files or ()), tuple(only or ()), points=points, seed=seed, jobs=jobs))


@rules_app.command("import", short_help="Write TASO's substitutions as rules.")
def rules_import(
    source: Annotated[str, typer.Argument(metavar="FILE.pb", help="TASO's substitutions.", show_default=False)],
    output: Annotated[str, typer.Option("-o", "--output", metavar="OUT.rules", help="Where to write.")],
) -> None:
    """Write TASO's file of substitutions as rules, as TASO applies them: `rules check` tells which are true.

    Exit code 0: written. 2: bad input.
    """
    from superopt.cli.rules import run_import

    raise typer.Exit(run_import(source, output))
