"""Operator instances timed in OpenVINO, on the CPU, through its own Python package (the extra ``superopt[openvino]``).

A model is compiled for latency, on the threads asked for, and computes in the types that it is written in (without
being asked, OpenVINO takes bfloat16 for float32 where the processor has it). It cannot be asked for a graph that is
optimized already, so conversions of layout and type stay at the ends of an instance's graph: what share of the time
they take is what OpenVINO's own profiler says. Inputs and outputs that are handed over take about a microsecond each,
as much as a small operator: that is measured once, on a graph with nothing else in it.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
import onnx

from superopt.costs.executor import OPENVINO, Call, Ends, Prepared, TimeSource, added_by
from superopt.costs.instances import OperatorInstance, inputs_of, instance_model
from superopt.costs.sampling import WARM_UP
from superopt.errors import OptionError
from superopt.workload import VIEWS

_PROFILED_REPLICAS = 5
_PROFILED_RUNS = 10

_ROUNDED = 0.5e-6
"""The profiler's microseconds are whole ones, rounded down: what is lacking on average, in seconds."""

_IDLE = frozenset({"Parameter", "Result", "Constant", "Input", "Output", "Const"})
_LAYOUTS, _TYPES = frozenset({"Reorder"}), frozenset({"Convert"})
"""The profiler's names of conversions."""


@dataclass(frozen=True)
class OpenVino:
    """OpenVINO's CPU with a number of threads (0 is its own choice)."""

    threads: int = 0

    @property
    def version(self) -> str:
        return f"openvino {_openvino().__version__.partition('-')[0]}"

    @property
    def clock(self) -> TimeSource:
        # One thread is the one that calls; its own time counts, which other processes do not add to.
        return time.thread_time if self.threads == 1 else time.perf_counter

    def check(self) -> None:
        _openvino()

    def channels_of_a_block(self) -> int:
        return 0  # It chooses layouts by operator, not by the rules of ``costs.layout``.

    def prepared(self, instance: OperatorInstance) -> Prepared:
        return Prepared(instance_model(instance), inputs_of(instance), to_optimize=True, apart=True)

    def load(self, prepared: Prepared) -> Call:
        request = self._request(prepared, profiled=False)

        def run() -> None:
            request.infer(share_outputs=True)  # Otherwise they are copied.

        run()
        return run

    def ends(self, prepared: Prepared) -> Ends:
        request = self._request(prepared.times(_PROFILED_REPLICAS), profiled=True)
        for _ in range(WARM_UP + _PROFILED_RUNS):
            request.infer(share_outputs=True)
        profile = [(each.node_type, each.real_time.total_seconds()) for each in request.get_profiling_info()]
        graph = prepared.proto.graph
        kinds = {node.op_type for node in graph.node}
        conversions = _LAYOUTS if "Cast" in kinds else _LAYOUTS | _TYPES
        return ends_of(profile, conversions, _handed_over(self) * len(graph.output), views=kinds <= VIEWS)

    def _request(self, prepared: Prepared, *, profiled: bool) -> Any:
        openvino = _openvino()
        hints: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        if self.threads:
            hints["INFERENCE_NUM_THREADS"] = self.threads
        core = _core()
        compiled = core.compile_model(
            core.read_model(prepared.proto.SerializeToString()), "CPU", {**hints, "PERF_COUNT": profiled}
        )
        request = compiled.create_infer_request()
        for port in compiled.inputs:
            name = next(name for name in port.names if name in prepared.feed)  # one of several that it may have
            given = np.ascontiguousarray(prepared.feed[name])
            request.set_tensor(port, openvino.Tensor(given, shared_memory=True))
        return request


def ends_of(profile: Iterable[tuple[str, float]], conversions: Set[str], handed: float, *, views: bool = False) -> Ends:
    """What the ends of a graph of replicas take, from what each of its nodes took: its type, and seconds.

    Nodes of the types in ``conversions`` are there for the ends, and ``handed`` are the seconds for a replica's
    outputs. ``views`` says that the operators move no data: what they seem to take is the copy of their results.
    """
    taken: dict[str, list[float]] = {}
    for kind, seconds in profile:
        if kind not in _IDLE:
            taken.setdefault(kind, []).append(seconds)
    # Of replicas the median: something else may interrupt one of them.
    spent = {kind: len(found) * (median(found) + _ROUNDED) for kind, found in taken.items()}
    apart = sum(seconds for kind, seconds in spent.items() if kind in conversions)
    own = sum(spent.values()) - apart
    return Ends(handed, apart / (own + apart) if own else 1.0, own / _PROFILED_REPLICAS if views else math.inf)


def _openvino() -> Any:
    """The package. Raises OptionError where it is not installed."""
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        raise OptionError(
            f"provider: {OPENVINO} cannot be used ({error}), expected its package: pip install 'superopt[openvino]'"
        ) from error


@lru_cache(maxsize=1)
def _core() -> Any:
    return _openvino().Core()


@lru_cache(maxsize=16)
def _handed_over(executor: OpenVino) -> float:
    """The seconds that an output takes by itself: a shape that is known is a constant to be handed over."""
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Shape", ["x"], ["y"])], "handed",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1])], [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return added_by(executor, Prepared(model, {"x": np.ones((1, 1), np.float32)}, to_optimize=True, apart=True))
