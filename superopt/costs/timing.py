"""Seconds that an operator instance takes in onnxruntime, without what a session's call costs by itself.

The runtime optimizes the instance's model once, as it would the operators in a whole model, and writes what it made of
it. Of that, conversions into a blocked layout and out of it are taken off the ends: between operators that both work on
it there are none, and where there are some they have a price of their own. What is left is repeated side by side in one
graph, which runs with optimizations off, so that nothing is folded or merged; the difference of a graph with many
replicas and one with a single one, over their number, is the time of an instance. Each replica has weights of its own:
of an instance that spends much of its time on reading them there are so many that they do not stay in a core's cache.
Another one that takes long by itself is timed alone, and the time of an empty call is taken off.

On one thread the processor's time counts, which other processes do not add to; else the clock's. The median of the
samples is kept.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.costs.instances import BLOCKED, Instance, inputs_of, instance_model
from superopt.errors import EvaluationError, OptionError

CPU = "CPUExecutionProvider"

LEAST_SAMPLES, MOST_SAMPLES = 7, 41
SECONDS = 0.06
"""How long an instance is sampled, once it is warm; at least ``LEAST_SAMPLES`` times."""

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

_BLOCKS = (4, 8, 16, 32)
"""Channels that a block may have: a pool of so many is done in blocks where they fill them."""

_LAYOUT = frozenset({"ReorderInput", "ReorderOutput"})
_WARM_UP = 3


@dataclass(frozen=True)
class Timing:
    """Seconds of one instance: the median, half the distance of the quartiles, and how many samples there were."""

    seconds: float
    spread: float
    samples: int


@dataclass(frozen=True)
class Runtime:
    """Where instances run: an execution provider of onnxruntime, and a number of threads (0 is the runtime's own
    choice)."""

    provider: str = CPU
    threads: int = 0

    def check(self) -> None:
        """Raises OptionError where this onnxruntime does not have the provider."""
        import onnxruntime

        available = onnxruntime.get_available_providers()
        if self.provider not in available:
            raise OptionError(
                f"provider: onnxruntime has no {self.provider!r} here, expected one of {', '.join(available)}"
            )


def time_instance(instance: Instance, runtime: Runtime) -> Timing:
    """The seconds of an instance. Raises EvaluationError where it cannot be run."""
    try:
        return _time(instance, runtime)
    except EvaluationError:
        raise
    except Exception as error:  # onnxruntime has no common base class for its own.
        raise EvaluationError(f"{instance.name}: cannot be timed: {' '.join(str(error).split())}") from error


def _time(instance: Instance, runtime: Runtime) -> Timing:
    proto, feeds, optimized = _prepared(instance, runtime)
    if not proto.graph.node:
        return Timing(0.0, 0.0, 1)  # The runtime leaves nothing to run: a shape that is known, an Identity.
    one = _call(_replicated(proto, 1), feeds, runtime, optimized)
    clock = clock_of(runtime)
    once = min(_seconds(one, clock) for _ in range(_WARM_UP)) - empty_call(runtime)
    weights = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    rotated = weights > _WEIGHTY * _WEIGHT_SPEED * max(once, 1e-6)
    if once > _LONG and not rotated:
        taken = [each - empty_call(runtime) for each in _samples(lambda: _seconds(one, clock))]
        return _timing(taken)
    replicas = math.ceil(_DIFFERENCE / max(once, 1e-6))
    if rotated:
        replicas = max(replicas, math.ceil(_ROTATED / weights))
    replicas = max(1, min(replicas, _MOST_REPLICAS, int(_MOST_BYTES / max(1, weights))))
    many = _call(_replicated(proto, 1 + replicas), feeds, runtime, optimized)
    for _ in range(_WARM_UP):
        many()

    def difference() -> float:
        return (_seconds(many, clock) - _seconds(one, clock)) / replicas

    return _timing(_samples(difference))


def clock_of(runtime: Runtime) -> Callable[[], float]:
    """The clock that tells this runtime's time best."""
    return time.thread_time if runtime.threads == 1 and runtime.provider == CPU else time.perf_counter


@lru_cache(maxsize=16)
def empty_call(runtime: Runtime) -> float:
    """The seconds that a call of a session takes by itself, with one input and one output that are tiny."""
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
        calls.append(_call(model, {"x": np.ones(1, np.float32)}, runtime, optimized=False))
    clock = clock_of(runtime)
    for call in calls * _WARM_UP:
        call()
    # A default binds what the lambda would look up late; mypy infers no type for it.
    one, many = (median(_samples(lambda call=call: _seconds(call, clock))) for call in calls)  # type: ignore[misc]
    return float(max(0.0, one - (many - one) / 32))


@lru_cache(maxsize=16)
def channels_of_a_block(runtime: Runtime) -> int:
    """How many channels a block of the layout has that convolutions of the CPU work in: 0 where there is no such
    layout (the processor's vectors are too short, or another provider runs)."""
    if runtime.provider != CPU:
        return 0
    pools = [onnx.helper.make_node("GlobalMaxPool", [f"x{count}"], [f"y{count}"]) for count in _BLOCKS]
    values = {
        name: [onnx.helper.make_tensor_value_info(f"{name}{count}", onnx.TensorProto.FLOAT, [1, count, size, size])
               for count in _BLOCKS]
        for name, size in (("x", 2), ("y", 1))
    }  # fmt: skip
    graph = onnx.helper.make_graph(pools, "blocks", values["x"], values["y"])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    made = _optimized(model, runtime).graph
    counts = [each.i for node in made.node for each in node.attribute if each.name == "channels"]
    return int(min(counts, default=0))  # of the ReorderOutput behind each pool that is done in blocks


def _prepared(instance: Instance, runtime: Runtime) -> tuple[onnx.ModelProto, Mapping[str, NDArray[np.generic]], bool]:
    """The model to replicate, its inputs, and whether the runtime is to optimize it yet.

    For the CPU it is what the runtime made of the instance; other providers cannot always write that.
    """
    proto, feeds = instance_model(instance, blocked=runtime.provider == CPU), inputs_of(instance)
    if runtime.provider != CPU:
        return proto, feeds, True
    made = _optimized(proto, runtime)
    return (*_without_layout(made, feeds, runtime), False)


def _optimized(proto: onnx.ModelProto, runtime: Runtime) -> onnx.ModelProto:
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="superopt-") as folder:
        path = Path(folder) / "optimized.onnx"
        options = _options(runtime, optimized=True)
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=[runtime.provider])
        return onnx.load(path)


def _without_layout(
    proto: onnx.ModelProto, feeds: Mapping[str, NDArray[np.generic]], runtime: Runtime
) -> tuple[onnx.ModelProto, Mapping[str, NDArray[np.generic]]]:
    """The model without conversions of layout at its ends; an input is then what the conversion made of it."""
    graph = proto.graph
    entries = _entries(graph)
    kept = [node for node in graph.node if node not in entries]
    exits = _exits(kept)
    kept = [node for node in kept if node not in exits]
    if not kept or not (entries or exits):
        return proto, feeds
    wanted = [node.output[0] for node in entries if any(node.output[0] in other.input for other in kept)]
    fed = dict(feeds)
    if wanted:
        probe = _part(proto, entries, wanted)
        session = _session(probe, runtime, optimized=False)
        fed.update(
            zip(wanted, session.run(None, {value.name: feeds[value.name] for value in probe.graph.input}), strict=True)
        )
    results = {node.output[0]: node.input[0] for node in exits}
    names = [value.name for value in graph.output]
    while any(name in results for name in names):
        names = [results.get(name, name) for name in names]
    made = _part(proto, kept, names)
    for name in wanted:
        element = onnx.helper.np_dtype_to_tensor_dtype(fed[name].dtype)
        made.graph.input.append(onnx.helper.make_tensor_value_info(name, element, fed[name].shape))
    return made, {value.name: fed[value.name] for value in made.graph.input}


def _entries(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes at the inputs that are there for the layout alone."""
    given = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    found = []
    for node in graph.node:  # in an order in which they can run
        if (node.op_type in _LAYOUT or node.name.startswith(BLOCKED)) and given.issuperset(node.input):
            found.append(node)
            given.update(node.output)
    return found


def _exits(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes at the outputs that are there for the layout alone."""
    read: set[str] = set()
    found: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if (node.op_type in _LAYOUT or node.name.startswith(BLOCKED)) and read.isdisjoint(node.output):
            found.append(node)
        else:
            read.update(node.input)
    return found


def _part(proto: onnx.ModelProto, nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    """The model of some of a model's nodes."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.node[:], made.graph.output[:], made.graph.value_info[:]
    made.graph.node.extend(nodes)
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    used = {name for node in nodes for name in node.input}
    _keep(made.graph.input, used)
    _keep(made.graph.initializer, used)
    return made


def _keep(field: Any, names: set[str]) -> None:
    for index in reversed([place for place, item in enumerate(field) if item.name not in names]):
        del field[index]


def _replicated(proto: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """The model's nodes so many times over, on the same inputs, each time with weights of its own."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph = made.graph
    given = {value.name for value in graph.input}
    nodes, weights = list(proto.graph.node), list(proto.graph.initializer)
    outputs = [value.name for value in proto.graph.output]
    del graph.node[:], graph.initializer[:], graph.output[:], graph.value_info[:]
    for number in range(count):

        def renamed(name: str, number: int = number) -> str:
            return name if not name or name in given else f"{name}@{number}"

        for node in nodes:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{node.name or node.op_type}@{number}"
            copy.input[:] = [renamed(name) for name in node.input]
            copy.output[:] = [renamed(name) for name in node.output]
        for tensor in weights:
            stored = graph.initializer.add()
            stored.CopyFrom(tensor)
            stored.name = renamed(tensor.name)
        graph.output.extend(onnx.ValueInfoProto(name=renamed(name)) for name in outputs if name not in given)
    return made


def _options(runtime: Runtime, *, optimized: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = runtime.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _session(proto: onnx.ModelProto, runtime: Runtime, *, optimized: bool) -> Any:
    import onnxruntime

    options = _options(runtime, optimized=optimized)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=[runtime.provider])


def _call(
    proto: onnx.ModelProto, feeds: Mapping[str, NDArray[np.generic]], runtime: Runtime, optimized: bool
) -> Callable[[], None]:
    """One run of a model, whose outputs stay where the runtime made them."""
    session = _session(proto, runtime, optimized=optimized)
    binding = session.io_binding()
    for value in session.get_inputs():
        binding.bind_cpu_input(value.name, feeds[value.name])
    for value in session.get_outputs():
        binding.bind_output(value.name)

    def run() -> None:
        session.run_with_iobinding(binding)

    run()
    return run


def _seconds(call: Callable[[], None], clock: Callable[[], float]) -> float:
    begin = clock()
    call()
    return clock() - begin


def _samples(sample: Callable[[], float]) -> list[float]:
    taken: list[float] = []
    start = time.perf_counter()
    while len(taken) < MOST_SAMPLES:
        taken.append(sample())
        if len(taken) >= LEAST_SAMPLES and time.perf_counter() - start > SECONDS:
            break
    return taken


def _timing(taken: list[float]) -> Timing:
    ordered = sorted(taken)
    quarter = len(ordered) // 4
    spread = (ordered[-1 - quarter] - ordered[quarter]) / 2
    return Timing(max(0.0, median(ordered)), spread, len(ordered))
