"""One line on stderr about what is wrong."""

from __future__ import annotations

import os
import traceback

import typer

from superopt.printable import printable


def complain_internal(error: Exception, consequence: str) -> None:
    """Says in one line that superopt itself is at fault; with SUPEROPT_DEBUG=1 also where."""
    if os.environ.get("SUPEROPT_DEBUG"):
        traceback.print_exception(error)
    complain(
        f"internal error: {type(error).__name__}: {error}; {consequence} (run again with SUPEROPT_DEBUG=1 to see where)"
    )


def complain(message: str) -> None:
    """Says in one line what the user gave that is at fault."""
    typer.echo(f"superopt: {printable(' '.join(message.split()))}", err=True)
