"""An explanation as a folder: ``index.json`` with everything, ``index.md`` to read, and a file for each step."""

from __future__ import annotations

import json
import re
from pathlib import Path

from superopt.errors import OptionError
from superopt.explanation.document import FORMAT, Explanation
from superopt.explanation.text import index_text, step_text
from superopt.report import to_json, write

INDEX, READABLE, STEPS = "index.json", "index.md", "steps"


def check_folder(folder: str) -> None:
    """Finds out before the work begins that a folder can take an explanation: it is new, empty, or holds one.

    Raises OptionError.
    """
    target = Path(folder)
    if not target.exists():
        if not target.absolute().parent.is_dir():
            raise OptionError(f"{target}: {target.parent} is not a directory, expected a folder in one that exists")
        return
    if not target.is_dir():
        raise OptionError(f"{target}: is a file, expected a folder to write an explanation into")
    if any(target.iterdir()) and not _is_ours(target):
        raise OptionError(f"{target}: holds other files, expected a folder that is new, empty, or an explanation")


def _is_ours(target: Path) -> bool:
    try:
        return bool(json.loads((target / INDEX).read_text(encoding="utf-8"))["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_folder(document: Explanation, folder: str) -> None:
    """Writes an explanation; one that was there before is gone. Raises OptionError where that cannot be."""
    check_folder(folder)
    target = Path(folder)
    try:
        (target / STEPS).mkdir(parents=True, exist_ok=True)
        for old in (target / STEPS).glob("*.md"):
            old.unlink()
    except OSError as error:
        raise OptionError(f"{target}: {error.strerror or error}, expected a folder that can be written") from error
    for place, graph in enumerate(document["graphs"]):
        for step in graph["steps"]:
            write(step_text(step), target / STEPS / step_file(place, step["number"], step["rules"]))
    write(index_text(document, step_file), target / READABLE)
    write(to_json(document), target / INDEX)


def step_file(place: int, number: int, rules: list[str]) -> str:
    """The name of a step's file: ``0-0012-fold-batchnorm-into-conv.md``, the graph's number first."""
    name = re.sub(r"[^A-Za-z0-9-]+", "-", rules[0] if len(rules) == 1 else "several rules").strip("-")
    return f"{place}-{number:04d}-{name}.md"
