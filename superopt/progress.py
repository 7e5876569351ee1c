"""Who is told what a run is doing: stages that start and end, and the text forms that stages leave behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

DUMPS = ("terms", "egraph", "chosen")
"""The stages that have a text form."""


class Watcher:
    """Is told what a run is doing, and does nothing about it."""

    def started(self, stage: str) -> None:
        """A stage begins."""

    def advanced(self, what: str) -> None:
        """A stage that may take minutes has come so far."""

    def finished(self, stage: str, seconds: float) -> None:
        """A stage has ended, or failed."""

    def dumped(self, stage: str, text: Callable[[], str]) -> None:
        """A stage of ``DUMPS`` has left a record; ``text`` writes it out."""


@dataclass
class Clock:
    """Times the stages of a run; a stage that is entered again adds to its time."""

    watcher: Watcher
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.watcher.started(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            self.watcher.finished(name, spent)
