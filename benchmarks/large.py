"""Peak memory on a model of many gigabytes, whose weights lie in a data file and are verified by regions.

    python -m benchmarks.large [--gigabytes 6] [--layers 40] [--fold 2] [--folder FOLDER] [--json OUT.json]

Makes a model of random weights and optimizes it twice, each time in a process of its own: as it is, where no weight has
to change, and with the scales of ``--fold`` layers to be folded into their weights. Wanted, apart from the memory that
onnxruntime takes to run a whole model: 1.5 times the largest tensor and 1 GB, and at most twice the folded weights
more. The model is deleted in the end.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import superopt

GIGABYTE = 1_000_000_000
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Run:
    """One optimization: sizes and memory in bytes, time in seconds."""

    folded_layers: int
    weights: int
    largest_tensor: int
    folded: int
    peak: int
    bound: int
    seconds: float
    verified: bool
    nodes_before: int
    nodes_after: int
    regions: int
    problems: list[str]


def make(folder: Path, weight_bytes: int, layers: int, fold: int) -> tuple[Path, int]:
    """Writes a model of ``layers`` products with square weights, and the size of one of these in bytes.

    Each layer is Relu(x @ w + b) + x between two Transposes that undo each other; the products of the first ``fold``
    layers are scaled, which can be folded into their weights.
    """
    width = max(8, math.isqrt(weight_bytes // layers // 4))
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    stored: list[onnx.TensorProto] = []
    size = 4 * width * width
    with (folder / "large.data").open("wb") as data:
        last = "x"
        for layer in range(layers):
            weight = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[width, width])
            weight.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", data.tell()), ("length", size)):
                weight.external_data.add(key=key, value=Path(str(value)).name)
            stored.append(weight)
            for start in range(0, width * width, _BLOCK):
                count = min(_BLOCK, width * width - start)
                data.write((rng.random(count, np.float32) - np.float32(0.5)) * np.float32(4 / math.sqrt(width)))
            stored.append(numpy_helper.from_array(rng.standard_normal(width).astype(np.float32), f"b{layer}"))
            nodes.append(helper.make_node("Transpose", [last], [f"t{layer}"], perm=[1, 0]))
            nodes.append(helper.make_node("Transpose", [f"t{layer}"], [f"u{layer}"], perm=[1, 0]))
            nodes.append(helper.make_node("MatMul", [f"u{layer}", f"w{layer}"], [f"p{layer}"]))
            product = f"p{layer}"
            if layer < fold:
                stored.append(numpy_helper.from_array((rng.random(width) + 0.5).astype(np.float32), f"s{layer}"))
                nodes.append(helper.make_node("Mul", [product, f"s{layer}"], [f"q{layer}"]))
                product = f"q{layer}"
            nodes.append(helper.make_node("Add", [product, f"b{layer}"], [f"a{layer}"]))
            nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"r{layer}"]))
            nodes.append(helper.make_node("Add", [f"r{layer}", last], [f"y{layer}"]))
            last = f"y{layer}"
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", width])],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "large.onnx"
    onnx.save(model, path)
    return path, size


def optimize(path: Path, target: Path) -> dict[str, object]:
    """Optimizes a file into a file; what the report says, and the peak memory of this process in bytes."""
    result = superopt.optimize(path, verify="regions", select="modelled", max_growth=None)
    result.save(target)
    return {"report": result.report, "peak": peak_memory()}


def peak_memory() -> int:
    """The most bytes that this process has held since it began to run its program.

    ``getrusage`` counts what its parent held when it was started, so that Linux's own account is asked where there is
    one.
    """
    account = Path("/proc/self/status")
    if account.is_file():
        for line in account.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(folder: Path, weight_bytes: int, layers: int, fold: int) -> Run:
    """Makes a model, and optimizes it in a process of its own."""
    path, size = make(folder, weight_bytes, layers, fold)
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.large", "--one", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    report = found["report"]
    return Run(
        fold,
        layers * size,
        size,
        fold * size,
        found["peak"],
        size * 3 // 2 + GIGABYTE + 2 * fold * size,
        seconds,
        report["verified"],
        report["nodes"]["before"],
        report["nodes"]["after"],
        report["regions"] or 0,
        report["problems"],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if a bound was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=6.0, help="size of all weights")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--fold", type=int, default=2, help="layers whose scales are folded in the second run")
    parser.add_argument("--folder", type=Path, help="where to put the model meanwhile")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        print(json.dumps(optimize(given.one, given.one.with_name("large.opt.onnx"))))
        return 0
    runs = []
    for fold in dict.fromkeys((0, given.fold)):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            runs.append(measure(Path(folder), int(given.gigabytes * GIGABYTE), given.layers, fold))
        run = runs[-1]
        print(
            f"{run.weights / GIGABYTE:.2f} GB of weights, {run.folded / GIGABYTE:.2f} GB folded: "
            f"peak {run.peak / GIGABYTE:.2f} GB of at most {run.bound / GIGABYTE:.2f} GB, {run.seconds:.0f} s, "
            f"{run.nodes_before} -> {run.nodes_after} nodes, {run.regions} regions, "
            f"{'verified' if run.verified else 'NOT VERIFIED: '}{'; '.join(run.problems)}",
            flush=True,
        )
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", encoding="utf-8")
    return int(any(run.peak > run.bound or not run.verified for run in runs))


if __name__ == "__main__":
    sys.exit(main())
