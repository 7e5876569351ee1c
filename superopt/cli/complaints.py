"""One line on stderr about what is wrong."""

from __future__ import annotations

import os
import sys
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


def is_about_output(error: Exception) -> bool:
    """Whether standard output did not take what was printed: errors about files name these."""
    return isinstance(error, OSError) and error.filename is None


def give_output_up() -> None:
    """No more can be said on standard output, and the interpreter must not try at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain_unwritten(error: Exception, consequence: str) -> None:
    """Says in one line what came between a run and its result, standard output or superopt itself, and what came of
    it."""
    if is_about_output(error):
        give_output_up()
        complain(f"standard output: {getattr(error, 'strerror', None) or error}; {consequence}")
    else:
        complain_internal(error, consequence)


def complain(message: str) -> None:
    """Says in one line what the user gave that is at fault."""
    typer.echo(f"superopt: {printable(' '.join(message.split()))}", err=True)
