"""README tells the truth: its commands and its Python run, one after the other, in a folder with a model."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import onnx

from tests.models import tiny

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\S+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

SUPEROPT = "import sys; from superopt.cli.main import main; sys.argv[0] = 'superopt'; sys.exit(main())"
"""The entry point, for a checkout that is not installed."""


SETS_UP = {"make", "python3", ".", "pip"}
"""Commands around superopt's own: those of the Makefile are looked up, `make package-test` tries an installation."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, and its text."""

    language: str
    file: str
    text: str


def blocks() -> list[Block]:
    """The fenced blocks of README, in order."""
    return [Block(*found) for found in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))]


def commands(block: Block) -> list[list[str]]:
    """The commands of a console block, as words."""
    return [shlex.split(line[2:]) for line in block.text.splitlines() if line.startswith("$ ")]


def python(code: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    # What is timed here is not to stay in the user's database.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_what_readme_says_to_run_runs(tmp_path: Path) -> None:
    onnx.save(tiny("mobileone-s0"), tmp_path / "model.onnx")
    ran = 0
    for block in blocks():
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            done = python(block.text, folder=tmp_path)
            assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"
            ran += 1
        elif block.language == "console":
            for program, *words in commands(block):
                if program in SETS_UP:
                    continue
                assert program == "superopt"
                if words[0] == "optimize" and "modelled" not in words:
                    words += ["--tune", "1"]  # the clock decides less surely, and everything else is the same
                done = python(SUPEROPT, *words, folder=tmp_path)
                assert done.returncode == 0, f"superopt {words}\n{done.stdout}{done.stderr}"
                ran += 1
    assert ran >= 10
    for written in (
        "model.opt.onnx",
        "exact.onnx",
        "modelled.onnx",
        "faster.onnx",
        "convs.onnx",
        "mine.onnx",
        "less.onnx",
        "explained.onnx",
    ):
        onnx.checker.check_model(onnx.load(tmp_path / written))


def test_the_targets_that_readme_names_are_in_the_makefile() -> None:
    named = {
        words[1] for block in blocks() if block.language == "console" for words in commands(block) if words[0] == "make"
    }
    named |= set(re.findall(r"`make (\S+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_rule_of_four_lines_has_four_lines() -> None:
    (rule,) = [block for block in blocks() if block.file == "mine.rules"]
    assert len(rule.text.splitlines()) == 4
