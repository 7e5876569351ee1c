"""The folder of an experiment: a file for each finished cell, there whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from superopt.errors import OptionError
from superopt.experiment.cell import FORMAT, CellDocument
from superopt.reporting.report import to_json, write


@dataclass(frozen=True)
class Store:
    """Cells by key, below a folder; every process that runs a cell needs to reach it by the same path."""

    folder: Path

    def prepare(self) -> None:
        """Makes the folder. Raises ``OptionError`` where it cannot be made."""
        try:
            self._cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"output: {self.folder}: {error.strerror}, expected a folder that can be made") from error

    @property
    def _cells(self) -> Path:
        return self.folder / "cells"

    def path(self, key: str) -> Path:
        """Where the cell of a key lies when it is finished."""
        return self._cells / f"{key}.json"

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
