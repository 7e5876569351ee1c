"""^C: it ends a run as long as nothing is written; from then on the run is brought to its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

Handler: TypeAlias = "Callable[[int, FrameType | None], Any] | int | None"
"""What is done about ^C; None for a handler that is not Python's."""


def ignore_interrupts() -> None:
    """From here on ^C does nothing: what was found is written whole, and told, whatever comes meanwhile."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_interruption(error: BaseException) -> bool:
    """Whether an error was made of ^C: libraries that are being loaded make an ImportError of it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def forget_interruption() -> None:
    """Lets an interruption that was caught be over.

    CPython remembers one that left an ``exec`` of text, as dataclasses and named tuples do, and ends the process by the
    signal in the end, whoever caught it. The next ``exec`` of text forgets it.
    """
    exec("")  # there is no other way


def heed_interrupts(as_before: Handler) -> None:
    """^C does again what it did before."""
    if as_before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, as_before)
