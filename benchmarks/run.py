"""How much faster models become, by ours and by other tools: optimized by each, checked, and timed in turn.

    python -m benchmarks.run [--models NAME ...] [--tools NAME ...] [--rounds 31] [--json OUT.json] [--all]

Every tool runs in a process of its own; so does every model that is timed, under onnxruntime's defaults, in three legs
with new processes each, one after the other in an order that is shuffled. Where the interval of ours is wide, there are
up to three legs more (``benchmarks/race.py`` says why and how). That a model is slower than it may be is said only
where the whole interval is: two builds of the same model differ by a percent or two by chance. Outputs are compared
with those of the original without onnxruntime's optimizations. With ``--json`` each model's figures are kept as soon as
they are there, and the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import peers
from benchmarks.network import FULL, TINY, Size
from benchmarks.peers import ORIGINAL, OURS, TOOLS
from benchmarks.race import Failed, Outputs, outputs_of, race
from benchmarks.suite import SUITE, Case
from superopt.inputs.sample import sample
from superopt.models.model import load
from superopt.report import to_json, write

FORMAT = "superopt benchmark 2"
FEEDS = 2
"""On how many inputs outputs are compared."""

WRONG = 1e-3
"""The error, relative to the largest output, beyond which a result counts as wrong."""

TOOL_SECONDS = 1200.0


@dataclass(frozen=True)
class Row:
    """One model by one tool. ``error`` is the largest difference to the original, as a fraction of its largest output;
    ``faster`` are the quartiles, the median in the middle, of the original's latency over this one's in each round, and
    ``interval`` is where that median lies."""

    model: str
    tool: str
    version: str = ""
    nodes: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latency_ms: float = math.nan
    faster: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    error: float = math.nan
    problem: str = ""
    interval: tuple[float, float] = (math.nan, math.nan)

    @property
    def text(self) -> str:
        """How much faster, in a few characters."""
        if self.problem:
            return "-" if self.problem == peers.ABSENT else "failed"
        return ("wrong " if not self.error <= WRONG else "") + f"{self.faster[1]:.2f}"


def compared(expected: Outputs, found: Outputs) -> float:
    """The largest difference between outputs, as a fraction of the largest number of that output; infinite where they
    are not of one name, shape and type, or differ in anything but finite floats."""
    if list(expected) != list(found):
        return math.inf
    worst = 0.0
    for name, right in expected.items():
        left = found[name]
        if left.shape != right.shape or left.dtype != right.dtype:
            return math.inf
        if not np.issubdtype(right.dtype, np.floating):
            worst = max(worst, 0.0 if np.array_equal(left, right) else math.inf)
            continue
        finite = np.isfinite(right)
        if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(left[finite]).all():
            return math.inf
        difference = np.abs(left[finite].astype(np.float64) - right[finite]).max(initial=0.0)
        scale = float(np.abs(right[finite]).max(initial=0.0))
        if difference > 0:
            worst = max(worst, float(difference) / scale if scale else math.inf)
    return worst


def measured(
    case: Case, tools: Sequence[str], folder: Path, *, rounds: int, seed: int = 0, size: Size = FULL
) -> list[Row]:
    """Optimize one model by every tool, check what comes out, and time it; the original is always among them."""
    source = folder / "model.onnx"
    case.write(source, size)
    model = load(source)
    feeds = [sample(model, seed=seed + number, count=1, shapes=case.shapes).values[0] for number in range(FEEDS)]
    np.savez(folder / "feed.npz", **feeds[0])
    expected = outputs_of(source, feeds, optimized=False)
    names = [ORIGINAL, *(tool for tool in tools if tool != ORIGINAL)]
    ran = {}
    for name in names:
        ran[name] = peers.run(name, source, folder / f"{name}.onnx", folder / "feed.npz", timeout=TOOL_SECONDS)
    running = [name for name in names if not ran[name].error]
    times = race([folder / f"{name}.onnx" for name in running], feeds, rounds=rounds, seed=seed,
                 watched=running.index(OURS) if OURS in running else None)  # fmt: skip
    rows = []
    for name in names:
        if name not in running:
            rows.append(Row(case.name, name, ran[name].version, seconds=ran[name].seconds, problem=ran[name].error))
            continue
        place, path = running.index(name), folder / f"{name}.onnx"
        outputs = times.outputs[place]
        errors = [compared(*pair) for pair in zip(expected, outputs, strict=True)] if outputs else [math.inf]
        rows.append(
            Row(
                case.name,
                name,
                ran[name].version,
                len(onnx.load(path, load_external_data=False).graph.node),
                sum(file.stat().st_size for file in folder.glob(f"{name}.onnx*")),
                ran[name].seconds,
                1e3 * times.median(place),
                times.faster(place),
                max(errors),
                times.errors[place],
                times.interval(place),
            )
        )
    return rows


def machine() -> dict[str, Any]:
    """What the figures hold for: the processor, its cores, and the versions of what ran."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": named[0] if named else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
    }


def table(rows: Sequence[Row]) -> Table:
    """One line for each model: ours in full, and how many times faster the others made it.

    Milliseconds are the original's, over all rounds; how much faster is of rounds in each of which every model runs."""
    others = [tool for tool in dict.fromkeys(row.tool for row in rows) if tool not in (ORIGINAL, OURS)]
    made = Table(box=box.MARKDOWN)  # as README shows it
    made.add_column("model")
    headings = ("nodes", "MB", "seconds", "ms", OURS, "quartiles", "error", *others)
    for heading in headings:
        made.add_column(heading, justify="right")
    for name in dict.fromkeys(row.model for row in rows):
        by_tool = {row.tool: row for row in rows if row.model == name}
        before, ours = by_tool[ORIGINAL], by_tool.get(OURS)
        if ours is None or ours.problem:
            cells = [str(before.nodes), f"{before.bytes / 1e6:.3g}", "", f"{before.latency_ms:.3g}", "failed", "", ""]
        else:
            cells = [
                f"{before.nodes} -> {ours.nodes}",
                f"{before.bytes / 1e6:.3g} -> {ours.bytes / 1e6:.3g}",
                f"{ours.seconds:.0f}",
                f"{before.latency_ms:.3g}",
                ours.text,
                f"{ours.faster[0]:.2f} to {ours.faster[2]:.2f}",
                f"{ours.error:.0e}",
            ]
        made.add_row(name, *cells, *(by_tool[tool].text if tool in by_tool else "" for tool in others))
    return made


def long_table(rows: Sequence[Row]) -> Table:
    """One line for each model and tool."""
    made = Table(box=box.MARKDOWN)
    made.add_column("model")
    made.add_column("tool")
    for heading in ("nodes", "bytes", "seconds", "ms", "faster", "quartiles", "interval", "error"):
        made.add_column(heading, justify="right")
    made.add_column("problem")
    for row in rows:
        low, middle, high = row.faster
        made.add_row(
            row.model, f"{row.tool} {row.version}", str(row.nodes), f"{row.bytes:,}", f"{row.seconds:.1f}",
            f"{row.latency_ms:.3g}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}",
            f"{row.interval[0]:.3f} to {row.interval[1]:.3f}", f"{row.error:.1e}", row.problem,
        )  # fmt: skip
    return made


def claims(rows: Sequence[Row]) -> list[tuple[str, bool]]:
    """What was to hold of ours, and whether it did, beside the best of the others. Where all that was to hold is that
    it is not slower, it is missed where its whole interval is below that."""
    found = []
    for row in rows:
        if row.tool != OURS or row.model not in SUITE:
            continue
        wanted = SUITE[row.model].wanted
        others = [other for other in rows if other.model == row.model and other.tool not in (OURS, ORIGINAL)]
        others = [other for other in others if not other.problem and other.error <= WRONG]
        best = max(others, key=lambda other: other.faster[1], default=None)
        beside = f"; the best other is {best.tool} with {best.faster[1]:.2f}" if best else ""
        least = row.interval[1] if wanted < 1 and row.interval[1] > row.faster[1] else row.faster[1]
        held = not row.problem and row.error <= WRONG and least >= wanted
        noise = f" ({row.interval[0]:.3f} to {row.interval[1]:.3f})" if row.interval[0] > 0 else ""
        found.append((f"{row.model}: {row.text}{noise} of the speed, wanted {wanted:g}{beside}", held))
    return found


def main() -> int:
    """Measure the suite and print the table; exit code 1 where ours is not what is claimed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=main.__doc__)
    parser.add_argument("--models", nargs="+", metavar="NAME", default=list(SUITE), help=f"of {', '.join(SUITE)}")
    parser.add_argument("--tools", nargs="+", metavar="NAME", default=list(TOOLS), help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--rounds", type=int, default=31, help="how often each model is timed at least, in turn")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and of the order in each round")
    parser.add_argument("--json", type=Path, metavar="OUT.json", help="keep the figures there, and go on from there")
    parser.add_argument("--all", action="store_true", help="print a line for every tool too")
    parser.add_argument("--tiny", action="store_true", help="built networks at their smallest, to try the benchmark")
    given = parser.parse_args()
    for word, known in ((given.models, SUITE), (given.tools, TOOLS)):
        for name in word:
            if name not in known:
                parser.error(f"{name} is not one of {', '.join(known)}")
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    console = Console(width=None if sys.stdout.isatty() else 170)
    settings = {"tools": given.tools, "rounds": given.rounds, "seed": given.seed, "tiny": given.tiny}
    document = {"format": FORMAT, "machine": machine(), "settings": settings, "models": {}}
    if given.json is not None and given.json.is_file():
        document = resumed(document, json.loads(given.json.read_text(encoding="utf-8")))
    for number, name in enumerate(given.models, 1):
        if name in document["models"]:
            continue
        console.print(f"{number}/{len(given.models)} {name}", end=" ")
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows = measured(
                    SUITE[name], given.tools, Path(folder), rounds=given.rounds, seed=given.seed,
                    size=TINY if given.tiny else FULL,
                )  # fmt: skip
            except Failed as error:
                rows = [Row(name, ORIGINAL, problem=str(error))]
        console.print(*(f"{row.tool} {row.text}" for row in rows if row.tool != ORIGINAL), sep=", ")
        document["models"][name] = [asdict(row) for row in rows]
        if given.json is not None:
            write(to_json(document), given.json)
    rows = [row_of(row) for name in given.models for row in document["models"][name]]
    console.print(table(rows))
    if given.all:
        console.print(long_table(rows))
    held = claims(rows)
    for text, kept in held:
        console.print(f"{'kept  ' if kept else 'MISSED'} {text}", soft_wrap=True)
    return 0 if all(kept for _, kept in held) else 1


def resumed(document: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """The document with the models of an earlier one, if that is of the same machine and settings; not those where ours
    failed."""
    if any(earlier.get(key) != json.loads(to_json(document))[key] for key in ("format", "machine", "settings")):
        return document
    done = {
        name: rows
        for name, rows in earlier["models"].items()
        if not any(row["problem"] for row in rows if row["tool"] in (ORIGINAL, OURS))
    }
    return {**document, "models": done}


def row_of(data: dict[str, Any]) -> Row:
    """A row from JSON, where numbers that JSON lacks are text."""
    numbers = {key: float(data[key]) for key in ("latency_ms", "error", "seconds")}
    low, middle, high = (float(number) for number in data["faster"])
    least, most = (float(number) for number in data["interval"])
    return Row(**{**data, **numbers, "faster": (low, middle, high), "interval": (least, most)})


if __name__ == "__main__":
    sys.exit(main())
