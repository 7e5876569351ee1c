"""What the nodes of a whole model take in onnxruntime, by its own profiler."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import onnx

from superopt.errors import EvaluationError
from superopt.evaluate import Feed, Runner
from superopt.models.model import Model

LEAST_RUNS, MOST_RUNS = 5, 200
_WARM_UP = 2
_SUFFIX = "_kernel_time"
_BLOCKED = "_nchwc"
"""Ends the names of nodes that the runtime has moved to its blocked layout."""

_FUSED_DEPTH = 4
"""How many operators the runtime makes one of, at most, where the result has the name of the last one."""


@dataclass(frozen=True)
class Profiled:
    """Seconds that a node took in a run (the median). ``name`` is that of the first value that it makes; of several
    operators that have become one it is that of the operator which gave it its name; where the runtime put the node
    between others, it is the runtime's."""

    name: str
    op: str
    seconds: float


def profile(model: Model, feed: Feed, *, threads: int = 0, seconds: float = 1.0) -> list[Profiled]:
    """The nodes that onnxruntime runs, fully optimized, in the order in which it does; those of bodies count to their
    If, Loop or Scan. The profiler itself takes about a microsecond a node. Raises EvaluationError where the model does
    not run."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for node in proto.graph.node:
        node.name = next((name for name in node.output if name), node.name)
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    with tempfile.TemporaryDirectory(prefix="superopt-") as folder:
        runner = Runner(
            replace(model, proto=proto, source=None), optimized=True, threads=threads, profile=Path(folder) / "profile"
        )
        runs, start = 0, time.perf_counter()
        while runs < _WARM_UP + LEAST_RUNS or (time.perf_counter() - start < seconds and runs < MOST_RUNS):
            runner.run(feed)
            runs += 1
        written = Path(runner.session.end_profiling())
        events = json.loads(written.read_text(encoding="utf-8"))
    return _nodes(events, makers, runs)


def _nodes(events: list[dict[str, object]], makers: Mapping[str, onnx.NodeProto], runs: int) -> list[Profiled]:
    taken: dict[tuple[str, str], list[float]] = {}
    for event in sorted(events, key=lambda event: float(str(event.get("ts", 0)))):
        name = str(event.get("name", ""))
        details = event.get("args")
        if event.get("cat") != "Node" or not name.endswith(_SUFFIX) or not isinstance(details, dict):
            continue
        op = str(details.get("op_name", ""))
        key = (name.removesuffix(_SUFFIX), op)
        taken.setdefault(key, []).append(1e-6 * float(str(event["dur"])))
    if not taken:
        raise EvaluationError("onnxruntime's profile names no node")
    inner = _inside(events)
    return [
        Profiled(_origin(name, op, makers), op, median(_by_run(found, runs)[_WARM_UP:]))
        for (name, op), found in taken.items()
        if name not in inner
    ]


def _origin(name: str, op: str, makers: Mapping[str, onnx.NodeProto]) -> str:
    """The value of the operator that a node of the runtime has come from: the one of this type next before the value
    that it is named by."""
    named = makers.get(name.removesuffix(_BLOCKED))
    if named is None:
        return name
    waiting = [named]
    for _ in range(_FUSED_DEPTH):
        for node in waiting:
            if node.op_type == op.removeprefix("Fused"):
                return str(node.name)
        waiting = [makers[value] for node in waiting for value in node.input if value in makers]
    return str(named.name)


def _by_run(found: list[float], runs: int) -> list[float]:
    """The sum of each run, where a name stands for several nodes or a node runs several times."""
    share = len(found) / runs
    bounds = [round(index * share) for index in range(runs + 1)]
    return [sum(found[low:high]) for low, high in pairwise(bounds)]


def _inside(events: list[dict[str, object]]) -> set[str]:
    """The names of nodes that ran while another node ran: those of bodies."""
    found: set[str] = set()
    ending = 0.0
    nodes = [event for event in events if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_SUFFIX)]
    spans = [(float(str(e["ts"])), -float(str(e["dur"])), str(e["name"]).removesuffix(_SUFFIX)) for e in nodes]
    for begin, negative, name in sorted(spans):
        if begin - negative < ending:
            found.add(name)
        else:
            ending = max(ending, begin - negative)
    return found
