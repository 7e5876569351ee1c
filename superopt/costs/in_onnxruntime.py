"""Operator instances timed in onnxruntime, by any of its execution providers.

The CPU's provider optimizes an instance's model once, as it would the operators in a whole model, and writes what it
made of it. Of that, conversions into the blocked layout and out of it are taken off the ends: between operators that
both work on it there are none, and where there are some they have a price of their own.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from superopt.costs.executor import OPENVINO, Call, Ends, Prepared, TimeSource, added_by
from superopt.costs.instances import BLOCKED, OperatorInstance, inputs_of, instance_model
from superopt.errors import OptionError
from superopt.evaluate import Feed
from superopt.sessions import CPU, session_options
from superopt.workload import VIEWS

_BLOCKS = (4, 8, 16, 32)
"""Channels that a block may have: a pool of so many is done in blocks where they fill them."""

_LAYOUT = frozenset({"ReorderInput", "ReorderOutput"})


@dataclass(frozen=True)
class OnnxRuntime:
    """An execution provider of onnxruntime with a number of threads (0 is the runtime's own choice)."""

    provider: str = CPU
    threads: int = 0

    @property
    def version(self) -> str:
        import onnxruntime

        return f"onnxruntime {onnxruntime.__version__}"

    @property
    def clock(self) -> TimeSource:
        # On one thread the processor's time counts, which other processes do not add to.
        return time.thread_time if self.threads == 1 and self.provider == CPU else time.perf_counter

    def check(self) -> None:
        if self.provider not in providers():
            raise OptionError(
                f"provider: onnxruntime has no {self.provider!r} here, expected one of {', '.join(providers())}, or "
                f"{OPENVINO} (superopt[openvino])"
            )

    def channels_of_a_block(self) -> int:
        """0 also where the processor's vectors are too short for the layout."""
        return _channels_of_a_block(self) if self.provider == CPU else 0

    def prepared(self, instance: OperatorInstance) -> Prepared:
        """For the CPU, what the runtime made of the instance; other providers cannot always write that."""
        proto, feed = instance_model(instance, blocked=self.provider == CPU), inputs_of(instance)
        if self.provider != CPU:
            return Prepared(proto, feed, True)
        return Prepared(*self._without_layout(self._optimized(proto), feed), False)

    def load(self, prepared: Prepared) -> Call:
        session = self._session(prepared.proto, optimized=prepared.to_optimize)
        binding = session.io_binding()
        for value in session.get_inputs():
            binding.bind_cpu_input(value.name, prepared.feed[value.name])
        for value in session.get_outputs():
            binding.bind_output(value.name)

        def run() -> None:
            session.run_with_iobinding(binding)

        run()
        return run

    def ends(self, prepared: Prepared) -> Ends:
        # ``prepared`` has taken conversions off; the result of a view is copied where it is one of the graph's.
        views = self.provider == CPU and all(node.op_type in VIEWS for node in prepared.proto.graph.node)
        return Ends(most=_view(self)) if views else Ends()

    def _optimized(self, proto: onnx.ModelProto) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory(prefix="superopt-") as folder:
            path = Path(folder) / "optimized.onnx"
            self._session(proto, optimized=True, written=path)
            return onnx.load(path)

    def _session(self, proto: onnx.ModelProto, *, optimized: bool, written: Path | None = None) -> Any:
        import onnxruntime

        options = session_options(optimized=optimized, threads=self.threads)
        if written is not None:
            options.optimized_model_filepath = str(written)
        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=[self.provider])

    def _without_layout(self, proto: onnx.ModelProto, feed: Feed) -> tuple[onnx.ModelProto, Feed]:
        """The model without conversions of layout at its ends; an input is then what the conversion made of it."""
        graph = proto.graph
        entries = _entries(graph)
        kept = [node for node in graph.node if node not in entries]
        exits = _exits(kept)
        kept = [node for node in kept if node not in exits]
        if not kept or not (entries or exits):
            return proto, feed
        wanted = [node.output[0] for node in entries if any(node.output[0] in other.input for other in kept)]
        fed = dict(feed)
        if wanted:
            probe = _part(proto, entries, wanted)
            session = self._session(probe, optimized=False)
            made_of_them = session.run(None, {value.name: feed[value.name] for value in probe.graph.input})
            fed.update(zip(wanted, made_of_them, strict=True))
        results = {node.output[0]: node.input[0] for node in exits}
        names = [value.name for value in graph.output]
        while any(name in results for name in names):
            names = [results.get(name, name) for name in names]
        made = _part(proto, kept, names)
        for name in wanted:
            element = onnx.helper.np_dtype_to_tensor_dtype(fed[name].dtype)
            made.graph.input.append(onnx.helper.make_tensor_value_info(name, element, fed[name].shape))
        return made, {value.name: fed[value.name] for value in made.graph.input}


def providers() -> list[str]:
    """The execution providers of the onnxruntime that is installed."""
    import onnxruntime

    return list(onnxruntime.get_available_providers())


@lru_cache(maxsize=16)
def _channels_of_a_block(executor: OnnxRuntime) -> int:
    pools = [onnx.helper.make_node("GlobalMaxPool", [f"x{count}"], [f"y{count}"]) for count in _BLOCKS]
    values = {
        name: [onnx.helper.make_tensor_value_info(f"{name}{count}", onnx.TensorProto.FLOAT, [1, count, size, size])
               for count in _BLOCKS]
        for name, size in (("x", 2), ("y", 1))
    }  # fmt: skip
    graph = onnx.helper.make_graph(pools, "blocks", values["x"], values["y"])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    made = executor._optimized(model).graph
    counts = [each.i for node in made.node for each in node.attribute if each.name == "channels"]
    return int(min(counts, default=0))  # of the ReorderOutput behind each pool that is done in blocks


@lru_cache(maxsize=16)
def _view(executor: OnnxRuntime) -> float:
    """The seconds of a view, whatever its size: those of one that has nothing to copy."""
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Flatten", ["x"], ["y"])], "view",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])], [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return added_by(executor, Prepared(model, {"x": np.ones(1, np.float32)}, to_optimize=False))


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
