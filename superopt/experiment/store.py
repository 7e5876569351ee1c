"""The folder of an experiment: a file for each finished cell, there whole or not at all."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from superopt.errors import OptionError
from superopt.experiment.cell import FORMAT, CellDocument
from superopt.report import to_json, write


@dataclass(frozen=True)
class Store:
    """Cells by key, below a folder. No two processes write the same file at a time, and none appends to one: a cell is
    locked while it is measured."""

    folder: Path

    def prepare(self) -> None:
        """Makes the folder. Raises ``OptionError`` where it cannot be made."""
        try:
            self._cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"output: {self.folder}: {error.strerror}, expected a folder that can be made") from error

    @property
    def reached(self) -> bool:
        """Whether this machine has the folder at this path."""
        return self._cells.is_dir()

    @property
    def _cells(self) -> Path:
        return self.folder / "cells"

    def path(self, key: str) -> Path:
        """Where the cell of a key lies when it is finished."""
        return self._cells / f"{key}.json"

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Holds a cell, after whoever holds it now: workers outlive a killed experiment, and go on with what they were
        given. The system lets the lock of a process go that dies."""
        path = self._cells / f"{key}.lock"
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def put(self, document: CellDocument) -> None:
        """Keeps a finished cell."""
        write(to_json(document), self.path(document["key"]))

    def get(self, key: str) -> CellDocument | None:
        """A finished cell; None where there is none: no file, or one that is cut off or of another format."""
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return None
        whole = isinstance(found, dict) and found.keys() >= CellDocument.__annotations__.keys()
        if not whole or (found["format"], found["key"]) != (FORMAT, key):
            return None
        return cast(CellDocument, found)
