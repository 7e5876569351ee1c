"""The command line: reads options, calls one function, prints what is rendered from its JSON document."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, cast

import typer

from superopt.cli import cost_commands, model_commands, research_commands, rules_commands
from superopt.cli.app import app
from superopt.cli.complaints import complain, complain_unwritten, give_output_up, is_about_output
from superopt.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED, OK
from superopt.cli.interruption import forget_interruption, heed_interrupts, ignore_interrupts, is_interruption
from superopt.errors import InputError, SuperoptError

COMMANDS = (model_commands, cost_commands, research_commands, rules_commands)
"""The modules that register commands, in the order of ``superopt --help``."""

_ORDER = [module.__name__ for module in COMMANDS]
app.registered_commands.sort(key=lambda command: _ORDER.index(getattr(command.callback, "__module__", "")))

_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
"""Typer exports the leaf of its usage errors and not the root."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits with its code; a fault of the user's, or of ours, is one line on stderr."""
    before = signal.getsignal(signal.SIGINT)
    _open_what_is_closed()
    try:
        code = _run(args)
        # What libraries do at exit is not to be interrupted: the process would end by the signal, and not by its code.
        ignore_interrupts()
    except KeyboardInterrupt:
        ignore_interrupts()
        code = INTERRUPTED
    forget_interruption()
    if args is not None:  # called from Python, which goes on
        heed_interrupts(before)
    sys.exit(code)


def _open_what_is_closed() -> None:
    """Streams that whoever started the process has closed take what is printed, and keep nothing of it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # as long as the process


def _run(args: Sequence[str] | None) -> int:
    try:
        code = app(args=None if args is None else list(args), prog_name="superopt", standalone_mode=False)
        sys.stdout.flush()
        # Typer makes an exit code of an interruption, and says nothing; commands that say more of it raise Abort.
        return _interrupted("") if code == INTERRUPTED else code if isinstance(code, int) else OK
    except _UsageError as error:
        return _usage(error)
    except InputError as error:
        complain(str(error))
        return BAD_INPUT
    except SuperoptError as error:
        complain(str(error))
        return FAILED
    except (KeyboardInterrupt, typer.Abort) as error:
        return _interrupted(str(error))
    except BrokenPipeError:
        give_output_up()  # Whoever read us has closed the pipe.
        return FAILED
    except Exception as error:
        if is_interruption(error):
            return _interrupted("")
        of_output = is_about_output(error)
        complain_unwritten(error, "the command's files are written" if of_output else "nothing was written")
        return BAD_INPUT if of_output else FAILED


def _interrupted(message: str) -> int:
    complain(message or "interrupted, nothing was written")
    return INTERRUPTED


def _usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "superopt"
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(str(error))
        return BAD_INPUT
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    complain(f"{message.rstrip('.')} (see {command} --help)")
    return BAD_INPUT
