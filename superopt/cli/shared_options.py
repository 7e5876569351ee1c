"""Options that several commands take, each with its one help text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from superopt.cli.app import DEFAULTS
from superopt.options import FIELDS, VERIFIES
from superopt.rules import EXCUSES, NUMERIC_CLASSES

USUAL_LIMITS = "8 times the model's nodes and at least 20000, 40 iterations"
"""Those of ``engine.saturate.Limits``, in words: that module is too heavy for ``--help``."""

RuleSets = Annotated[
    list[str] | None, typer.Option(metavar="NAME|FILE", help=f"Rule set; repeatable. [default: {DEFAULTS.rules[0]}]")
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE", help="Leave out a rule, or a family: all that one rule's text stands for; repeatable."
    ),
]
Numeric = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(NUMERIC_CLASSES),
        help="How values may change: not at all, by rounding alone, or within the bounds that rules state. "
        f"[default: {DEFAULTS.numeric}]",
    ),
]
Ignoring = Annotated[
    list[str] | None, typer.Option(metavar=",".join(EXCUSES), help="Values that rules may take not to occur.")
]
CostModelName = Annotated[str | None, typer.Option(metavar="NAME|FILE", help=f"Cost model. [default: {DEFAULTS.cost}]")]
SearchLimit = Annotated[
    str | None,
    typer.Option(
        metavar="nodes=N,iterations=N,seconds=S",
        help=f"Limits of saturation, any of them. [default: {USUAL_LIMITS}]",
    ),
]
InitializersAreConstant = Annotated[
    bool,
    typer.Option(
        "--initializers-are-constant",
        help="Take initializers that are graph inputs for constants: these inputs are gone then.",
    ),
]
MaxGrowth = Annotated[
    str | None,
    typer.Option(
        metavar="5%|0.05|none",
        help="How many more bytes the result may have; 0: its tensors no more than the original's; none: any number. "
        "[default: 5%]",
    ),
]
VerifyBy = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(VERIFIES),
        help=f"Compare the outputs of whole models, or each rewritten region by itself. [default: {DEFAULTS.verify}]",
    ),
]
CustomOpLibrary = Annotated[
    list[str] | None, typer.Option(metavar="PATH", help="Library of custom operators; repeatable.")
]
TrustRules = Annotated[
    bool,
    typer.Option(
        "--trust-rules",
        help="Do not test rules that do not ship by their laws first (both sides computed on made inputs).",
    ),
]
OptionalSeed = Annotated[int | None, typer.Option(help=f"Seed of sample inputs. [default: {DEFAULTS.seed}]")]
RealInputs = Annotated[
    str | None, typer.Option(metavar="FEED.npz", help="Inputs to run on. [default: made, by --seed]")
]
InputShape = Annotated[
    list[str] | None, typer.Option(metavar="NAME:1,3,224,224", help="Sample shape of an open input; repeatable.")
]
Seed = Annotated[int, typer.Option(help="Seed of sample inputs.")]


def given(context: typer.Context) -> dict[str, Any]:
    """The options of a run that the command line names; of a command whose parameters are called as the fields of
    ``Options`` are."""
    return {name: value for name, value in context.params.items() if name in FIELDS and value not in (None, [], ())}
