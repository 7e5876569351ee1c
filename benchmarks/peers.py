"""The tools that are compared, each run in a process of its own.

    python -m benchmarks.peers TOOL IN.onnx OUT.onnx FEED.npz

writes the optimized model and prints one line of JSON: how long that took, without the import of the tool, and its
version.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx


@dataclass(frozen=True)
class Tool:
    """A tool by the package that it is in; ``optimize`` takes its imported module, the model's file, the file to write,
    and the file of the inputs that it may look at."""

    package: str
    module: str
    optimize: Callable[[Any, Path, Path, Path], None]


@dataclass(frozen=True)
class Ran:
    """What came of a tool: ``error`` is empty where it wrote a model."""

    seconds: float = 0.0
    version: str = ""
    error: str = ""


ABSENT = "not installed"


def _copied(module: Any, source: Path, target: Path, feed: Path) -> None:
    shutil.copyfile(source, target)


def _superopt(module: Any, source: Path, target: Path, feed: Path) -> None:
    module.optimize(source, inputs=feed).save(target)


def _onnxsim(module: Any, source: Path, target: Path, feed: Path) -> None:
    made, same = module.simplify(onnx.load(source))
    if not same:
        raise ValueError("its own check says that the outputs differ")
    onnx.save(made, target)


def _onnxslim(module: Any, source: Path, target: Path, feed: Path) -> None:
    onnx.save(module.slim(onnx.load(source)), target)


def _onnxoptimizer(module: Any, source: Path, target: Path, feed: Path) -> None:
    passes = module.get_fuse_and_elimination_passes()
    onnx.save(module.optimize(onnx.load(source), passes, fixed_point=True), target)


def _onnxscript(module: Any, source: Path, target: Path, feed: Path) -> None:
    onnx.save(module.optimize(onnx.load(source)), target)


ORIGINAL, OURS = "original", "superopt"

TOOLS = {
    ORIGINAL: Tool("onnx", "onnx", _copied),
    OURS: Tool("superopt", "superopt", _superopt),
    "onnxsim": Tool("onnxsim", "onnxsim", _onnxsim),
    "onnxslim": Tool("onnxslim", "onnxslim", _onnxslim),
    "onnxoptimizer": Tool("onnxoptimizer", "onnxoptimizer", _onnxoptimizer),
    "onnxscript": Tool("onnxscript", "onnxscript.optimizer", _onnxscript),
}


def version(tool: str) -> str:
    """The installed version; empty where it is not installed."""
    if tool == OURS:
        return str(importlib.import_module(OURS).__version__)
    try:
        return metadata.version(TOOLS[tool].package)
    except metadata.PackageNotFoundError:
        return ""


def run(tool: str, source: Path, target: Path, feed: Path, *, timeout: float) -> Ran:
    """Runs a tool in a process of its own, for at most so many seconds; whatever goes wrong there is its ``error``."""
    if not version(tool):
        return Ran(error=ABSENT)
    command = [sys.executable, "-m", "benchmarks.peers", tool, str(source), str(target), str(feed)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Ran(version=version(tool), error=f"not done after {timeout:g} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = said[-1] if said else f"exit code {done.returncode}"
        return Ran(version=version(tool), error=why[:200])
    return Ran(**json.loads(lines[-1]))


def main() -> None:
    """Run one tool on one model, here."""
    name, source, target, feed = sys.argv[1:]
    tool = TOOLS[name]
    module = importlib.import_module(tool.module)
    started = time.perf_counter()
    tool.optimize(module, Path(source), Path(target), Path(feed))
    seconds = time.perf_counter() - started
    print("\n" + json.dumps({"seconds": seconds, "version": version(name)}))


if __name__ == "__main__":
    main()
