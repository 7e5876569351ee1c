"""The optimizer's own time: a network of ResNet-50's size, made-up networks of growing size, and a limit of seconds.

    python -m benchmarks.speed [--nodes 1000 2000 5000 10000] [--json OUT.json]

Wanted on two cores, with the cost model deciding and verification included: ResNet-50 in 10 s, ten thousand nodes in
60 s, time growing no faster than about n^1.3, and a run of at most S seconds ending within S + 2 s plus verification.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

import superopt
from benchmarks import models

RESNET_SECONDS = 10.0
DEEP_SECONDS = 60.0
EXPONENT = 1.3
LIMIT_SLACK_SECONDS = 2.0


@dataclass(frozen=True)
class Run:
    """One optimization: how large the model was, how long it took, and where the time went."""

    name: str
    nodes_before: int
    nodes_after: int
    seconds: float
    stages: dict[str, float]
    verified: bool
    stopped_by: str


def timed(name: str, model: onnx.ModelProto, **options: Any) -> Run:
    """Optimize a model with the cost model deciding, on the wall clock."""
    started = time.perf_counter()
    report = superopt.optimize(model, select="modelled", **options).report
    seconds = time.perf_counter() - started
    nodes = report["nodes"]
    return Run(
        name, nodes["before"], nodes["after"], seconds, report["seconds"], report["verified"], report["stopped_by"]
    )


def exponent(runs: Sequence[Run]) -> float:
    """The slope of log seconds over log nodes, by least squares."""
    xs = [math.log(run.nodes_before) for run in runs]
    ys = [math.log(run.seconds) for run in runs]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - x_mean) ** 2 for x in xs)


def table(runs: Sequence[Run]) -> Table:
    """One line for each run, one column for each stage."""
    made = Table(title="Seconds of optimization")
    stages = list(dict.fromkeys(stage for run in runs for stage in run.stages))
    made.add_column("model")
    for heading in ("nodes", "total", *stages):
        made.add_column(heading, justify="right")
    made.add_column("stopped by")
    for run in runs:
        times = [f"{run.stages[stage]:.1f}" if stage in run.stages else "" for stage in stages]
        nodes = f"{run.nodes_before} -> {run.nodes_after}"
        made.add_row(run.name, nodes, f"{run.seconds:.1f}", *times, run.stopped_by)
    return made


def main() -> None:
    """Time the optimizer and say which of the wanted times it keeps."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=main.__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 2000, 5000, 10000])
    parser.add_argument("--limit", type=float, default=5.0, metavar="SECONDS", help="the limit to try on the largest")
    parser.add_argument("--json", type=Path, metavar="OUT.json")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)

    resnet = timed("resnet50", models.build("resnet50"))
    console.print(f"resnet50: {resnet.seconds:.1f} s, wanted {RESNET_SECONDS:.0f} s")
    deep = []
    for nodes in sorted(given.nodes):
        deep.append(timed(f"deep-{nodes}", models.deep(nodes)))
        console.print(f"{deep[-1].name}: {deep[-1].seconds:.1f} s")
    limited = timed(
        f"{deep[-1].name}, at most {given.limit:g} s", models.deep(max(given.nodes)), limit={"seconds": given.limit}
    )
    runs = [resnet, *deep, limited]
    console.print(table(runs))
    if given.json:
        given.json.write_text(json.dumps([asdict(run) for run in runs], indent=1), encoding="utf-8")

    beside = limited.seconds - limited.stages.get("verify", 0.0)
    checks = [
        (f"resnet50 in {resnet.seconds:.1f} s", resnet.seconds <= RESNET_SECONDS),
        (
            f"limit of {given.limit:g} s ended in {beside:.1f} s + verification",
            beside <= given.limit + LIMIT_SLACK_SECONDS,
        ),
        ("all verified", all(run.verified for run in runs)),
    ]
    if max(given.nodes) >= 10000:
        checks.append((f"{deep[-1].name} in {deep[-1].seconds:.1f} s", deep[-1].seconds <= DEEP_SECONDS))
    if len(deep) > 1:
        checks.append((f"time grows as n^{exponent(deep):.2f}", exponent(deep) <= EXPONENT))
    for text, held in checks:
        console.print(f"{'kept  ' if held else 'MISSED'} {text}")


if __name__ == "__main__":
    main()
