"""What the commands share: the application they register with, and options that several of them take.

A command's signature stands in one of the ``*_commands`` modules, which import nothing heavy, so that
``superopt --help`` answers at once; what it runs stands in a module of its own.
"""

from __future__ import annotations

from typing import Annotated

import typer

from superopt.options import Options
from superopt.version import __version__

DEFAULTS = Options()
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
