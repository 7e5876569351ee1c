"""Seconds that an operator instance takes in a runtime, without what a call of a model costs by itself.

The model of the instance, as the runtime's ``Executor`` prepares it, is repeated side by side in one graph; the
difference of a graph with many replicas and one with a single one, over their number, is the time of an instance, less
what is at the graph's ends for the ends alone. Each replica has weights of its own: of an instance that spends much of
its time on reading them there are so many that they do not stay in a core's cache. Another one that takes long by
itself is timed alone, and the time of an empty call is taken off.

On one thread the processor's time counts, which other processes do not add to; else the clock's. The median of the
samples is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np
import onnx

from superopt.costs.executor import OPENVINO, Executor, Prepared, TimeSource
from superopt.costs.in_onnxruntime import OnnxRuntime
from superopt.costs.in_openvino import OpenVino
from superopt.costs.instances import OperatorInstance
from superopt.costs.sampling import WARM_UP, Timing, samples, seconds_of, timing
from superopt.errors import EvaluationError
from superopt.sessions import CPU

_LONG = 400e-6
"""Seconds from which one instance is timed alone."""

_DIFFERENCE = 200e-6
"""Seconds that the replicas of a graph take together, about."""

_MOST_REPLICAS = 48
_MOST_BYTES = 64e6
"""Bytes of weights that a graph of replicas may have, for each replica has its own."""

_WEIGHT_SPEED = 2e10
"""Bytes of weights that are read in a second from beyond the cache of a core, about."""

_WEIGHTY = 0.05
"""The share of an instance's time that reading its weights takes, from which they have to be out of the core's cache
when it is timed, as they are in a model, where others have been read since."""

_ROTATED = 16e6
"""Bytes of weights that replicas read in turn, each its own: more than a core's cache, less than what cores share."""


@dataclass(frozen=True)
class Runtime:
    """Where instances run: an execution provider of onnxruntime, or ``OpenVINO``, and a number of threads (0 is the
    runtime's own choice)."""

    provider: str = CPU
    threads: int = 0

    @property
    def executor(self) -> Executor:
        """What runs models there."""
        return OpenVino(self.threads) if self.provider == OPENVINO else OnnxRuntime(self.provider, self.threads)

    def check(self) -> None:
        """Raises OptionError where there is no such provider here."""
        self.executor.check()


def time_instance(instance: OperatorInstance, runtime: Runtime) -> Timing:
    """The seconds of an instance. Raises EvaluationError where it cannot be run."""
    try:
        return _time(instance, runtime)
    except EvaluationError:
        raise
    except Exception as error:  # Runtimes have no common base class for their own.
        raise EvaluationError(f"{instance.name}: cannot be timed: {' '.join(str(error).split())}") from error


def _time(instance: OperatorInstance, runtime: Runtime) -> Timing:
    executor = runtime.executor
    prepared = executor.prepared(instance)
    if not prepared.proto.graph.node:
        return Timing(0.0, 0.0, 1)  # The runtime leaves nothing to run: a shape that is known, an Identity.
    one = executor.load(prepared.times(1))
    clock = executor.clock
    once = min(seconds_of(one, clock) for _ in range(WARM_UP)) - empty_call(runtime)
    ends = executor.ends(prepared)
    weights = sum(len(tensor.raw_data) for tensor in prepared.proto.graph.initializer)
    rotated = weights > _WEIGHTY * _WEIGHT_SPEED * max(once, 1e-6)
    if once > _LONG and not rotated:
        return timing(
            [(1 - ends.share) * each for each in samples(lambda: seconds_of(one, clock) - empty_call(runtime))]
        )
    replicas = math.ceil(_DIFFERENCE / max(once, 1e-6))
    if rotated:
        replicas = max(replicas, math.ceil(_ROTATED / weights))
    replicas = max(1, min(replicas, _MOST_REPLICAS, int(_MOST_BYTES / max(1, weights))))
    many = executor.load(prepared.times(1 + replicas))
    for _ in range(WARM_UP):
        many()

    def difference() -> float:
        return ends.without((seconds_of(many, clock) - seconds_of(one, clock)) / replicas)

    return timing(samples(difference))


def clock_of(runtime: Runtime) -> TimeSource:
    """The clock that tells this runtime's time best."""
    return runtime.executor.clock


@lru_cache(maxsize=16)
def empty_call(runtime: Runtime) -> float:
    """The seconds that a call of a model takes by itself, with one input and one output that are tiny."""
    nodes = [onnx.helper.make_node("Neg", ["x"], ["y0"])]
    nodes += [onnx.helper.make_node("Neg", [f"y{index}"], [f"y{index + 1}"]) for index in range(32)]
    calls = []
    for count in (1, 33):
        graph = onnx.helper.make_graph(
            nodes[:count], "empty",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
            [onnx.helper.make_tensor_value_info(f"y{count - 1}", onnx.TensorProto.FLOAT, [1])],
        )  # fmt: skip
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        calls.append(runtime.executor.load(Prepared(model, {"x": np.ones(1, np.float32)}, to_optimize=False)))
    clock = clock_of(runtime)
    for call in calls * WARM_UP:
        call()
    # A default binds what the lambda would look up late; mypy infers no type for it.
    one, many = (median(samples(lambda call=call: seconds_of(call, clock))) for call in calls)  # type: ignore[misc]
    return float(max(0.0, one - (many - one) / 32))


def channels_of_a_block(runtime: Runtime) -> int:
    """How many channels a block of the layout has that convolutions of onnxruntime's CPU work in: 0 where there is no
    such layout."""
    return runtime.executor.channels_of_a_block()
