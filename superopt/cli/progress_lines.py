"""Progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console
from rich.status import Status

from superopt.progress import Watcher


class Lines(Watcher):
    """A line per stage on a terminal, turning while it lasts; the text of the stages that are to be dumped on
    stdout."""

    def __init__(self, console: Console, dumps: tuple[str, ...] = ()) -> None:
        self._console = console
        self._dumps = dumps
        self._status: Status | None = None

    def started(self, stage: str) -> None:
        if self._console.is_terminal:
            self._status = self._console.status(stage)
            self._status.start()

    def advanced(self, what: str) -> None:
        if self._status is not None:
            self._status.update(what)

    def finished(self, stage: str, seconds: float) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
            self._console.print(f"{stage:<12}{seconds:8.2f} s")

    def dumped(self, stage: str, text: Callable[[], str]) -> None:
        if stage in self._dumps:
            sys.stdout.write(text())
            sys.stdout.flush()
