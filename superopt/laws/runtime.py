"""Term graphs as small ONNX models, run as the numeric classes are judged: nothing optimized, one thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from superopt.errors import InferenceError
from superopt.forms import OnnxForm, onnx_form
from superopt.laws.error_bounds import ROUNDOFF
from superopt.laws.instances_dice import DTYPES
from superopt.models.divisions import trapped
from superopt.operators import NEWEST_OPSET, dtype_number
from superopt.sessions import CPU, judging_options
from superopt.terms import ABSENT, CONST, INPUT, PROJECT, TensorType, TermGraph

Array = NDArray[np.generic]

RUNTIME_OPSET = 24
"""The newest opset that the runtimes of superopt's range implement."""


def model_of(graphs: Mapping[str, TermGraph], *, typed: bool = False) -> onnx.ModelProto:
    """One model that computes several graphs, each for itself, from shared inputs.

    Outputs are named ``left_0`` and so on by the names of the graphs; dots in names become underscores. With ``typed``
    inputs and outputs have their shapes. The model is at ``RUNTIME_OPSET``, or at the newest where that does not have
    what an operator is to do.
    """
    return _model(graphs, opset_of(graphs.values()), typed=typed)


def _model(graphs: Mapping[str, TermGraph], opset: int, *, typed: bool) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    inputs: dict[str, TensorType] = {}
    initializers: dict[str, onnx.TensorProto] = {}
    outputs: list[onnx.ValueInfoProto] = []
    for side, graph in graphs.items():
        names = _names(side, graph, inputs, initializers)
        for index, node in enumerate(graph.nodes):
            if node.op in (INPUT, CONST, PROJECT):
                continue
            form = onnx_form(node.op, node.attrs, tuple(arg != ABSENT for arg in node.args), opset)
            entries = []
            for place, item in enumerate(form.inputs):
                if isinstance(item, int):
                    entries.append(names[node.args[item]][0])
                elif item is None:
                    entries.append("")
                else:
                    name = f"{side}_{index}_{place}"
                    initializers[name] = numpy_helper.from_array(np.asarray(item), name)
                    entries.append(name)
            attributes: dict[str, Any] = _attributes(form)
            nodes.append(helper.make_node(form.op_type, entries, names[index], **attributes))
        for place, root in enumerate(graph.roots):
            kind = graph.types[root]
            output = f"{side}_{place}"
            dtype = kind.dtype if isinstance(kind, TensorType) else ""
            if dtype in DTYPES:
                nodes.append(helper.make_node("Identity", [names[root][0]], [output]))
            else:
                # Of the types that numpy does not have, float32 has every number.
                dtype = "float32"
                nodes.append(helper.make_node("Cast", [names[root][0]], [output], to=dtype_number(dtype)))
            element = dtype_number(dtype)
            shape = kind.shape if typed and isinstance(kind, TensorType) else None
            outputs.append(helper.make_tensor_value_info(output, element, shape))
    declared = [
        helper.make_tensor_value_info(name, dtype_number(kind.dtype), kind.shape if typed else None)
        for name, kind in inputs.items()
    ]
    graph_proto = helper.make_graph(nodes, "instance", declared, outputs, list(initializers.values()))
    return helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def opset_of(graphs: Iterable[TermGraph]) -> int:
    """The oldest of the two opsets that models of laws are written in which has all that these graphs do."""
    try:
        for graph in graphs:
            for node in graph.nodes:
                if node.op not in (INPUT, CONST, PROJECT):
                    onnx_form(node.op, node.attrs, tuple(arg != ABSENT for arg in node.args), RUNTIME_OPSET)
    except InferenceError:
        return NEWEST_OPSET
    return RUNTIME_OPSET


def _attributes(form: OnnxForm) -> dict[str, Any]:
    """An empty ``perm`` is no list of anything, and is what a scalar is transposed by anyway."""
    return {name: value for name, value in form.attributes.items() if value != ()}


def written(name: str) -> str:
    """A variable's name as the model has it: elements of a star have a dot, which ONNX text does not take."""
    return name.replace(".", "_")


def _names(
    side: str, graph: TermGraph, inputs: dict[str, TensorType], initializers: dict[str, onnx.TensorProto]
) -> list[list[str]]:
    """The names of every node's outputs."""
    names: list[list[str]] = []
    for index, node in enumerate(graph.nodes):
        kind = graph.types[index]
        if node.op == INPUT:
            name = written(str(node.attrs["name"]))
            if isinstance(kind, TensorType):
                inputs[name] = kind
            names.append([name])
        elif node.op == CONST:
            name = f"constant_{node.attrs['key']}"
            initializers[name] = numpy_helper.from_array(graph.constants[str(node.attrs["key"])].array(), name)
            names.append([name])
        elif node.op == PROJECT:
            names.append([names[node.args[0]][int(str(node.attrs["index"]))]])
        else:
            count = len(kind) if isinstance(kind, tuple) else 1
            names.append([f"{side}_v{index}" + (f"_{place}" if count > 1 else "") for place in range(count)])
    return names


_STATE = onnxruntime.capi.onnxruntime_pybind11_state
_REFUSALS = (_STATE.NotImplemented, _STATE.InvalidGraph, _STATE.InvalidArgument, _STATE.Fail, _STATE.RuntimeException)


@dataclass(frozen=True)
class Program:
    """Graphs as one model that the runtime has loaded; or the message with which it refuses to."""

    graphs: Mapping[str, TermGraph]
    session: onnxruntime.InferenceSession | str

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Sequence[Array]] | str:
        """The roots' values by graph name, or the message with which the runtime refuses: an element type that it has
        no implementation for, operands that it does not take, or an integer division that has no result."""
        if isinstance(self.session, str):
            return self.session
        wanted = {item.name for item in self.session.get_inputs()}
        feeds = {written(name): array for name, array in inputs.items() if written(name) in wanted}
        try:
            values = self.session.run(None, feeds)
        except _REFUSALS as error:
            return str(error)
        named = {item.name: value for item, value in zip(self.session.get_outputs(), values, strict=True)}
        return {
            side: [named[f"{side}_{place}"] for place in range(len(graph.roots))] for side, graph in self.graphs.items()
        }


@dataclass(frozen=True)
class _Written:
    """Graphs by what of them is in a model that leaves shapes open: nodes, roots, and element types."""

    told: tuple[object, ...]
    graphs: Mapping[str, TermGraph] = field(compare=False)


def program(graphs: Mapping[str, TermGraph]) -> Program:
    """The graphs, loaded."""
    told = tuple((side, graph.nodes, graph.roots, _dtypes(graph)) for side, graph in graphs.items())
    return Program(graphs, _session(_Written(told, graphs)))


def _dtypes(graph: TermGraph) -> tuple[object, ...]:
    return tuple(
        kind.dtype if isinstance(kind, TensorType) else None if kind is None else len(kind) for kind in graph.types
    )


def run(graphs: Mapping[str, TermGraph], inputs: Mapping[str, Array]) -> Mapping[str, Sequence[Array]] | str:
    """What a program of these graphs makes of one set of inputs."""
    return program(graphs).run(inputs)


def _may_fault(graph: TermGraph) -> bool:
    """Whether integers are divided: some divisions end the process of the runtime, unless they are trapped."""
    kinds = (kind for node, kind in zip(graph.nodes, graph.types, strict=True) if node.op in ("Div", "Mod"))
    return any(isinstance(kind, TensorType) and kind.dtype not in ROUNDOFF for kind in kinds)


@lru_cache(maxsize=128)
def _session(model: _Written) -> onnxruntime.InferenceSession | str:
    graphs = model.graphs
    opset = opset_of(graphs.values())
    if opset > RUNTIME_OPSET:
        return f"NOT_IMPLEMENTED: opset {RUNTIME_OPSET} does not have what an operator is to do"
    made = _model(graphs, opset, typed=False)
    if any(_may_fault(graph) for graph in graphs.values()):
        made = trapped(made)
    try:
        return onnxruntime.InferenceSession(made.SerializeToString(), judging_options(), providers=[CPU])
    except _REFUSALS as error:
        return str(error)
