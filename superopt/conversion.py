"""A model in another version of ONNX's operators, by ONNX's own converter."""

from __future__ import annotations

import math
from dataclasses import replace

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import helper, version_converter

from superopt.bodies.bodies import sweep
from superopt.errors import OptionError, one_line
from superopt.models.functions import without_calls
from superopt.models.model import Model, standard_domain
from superopt.models.tensors import is_external

_SMALL = 1024
"""Elements up to which the converter sees what an initializer holds: it may have to make an attribute of it."""


def converted(model: Model, opset: int) -> Model:
    """The model at an opset; the same object where it is at it already.

    Only nodes are converted; all else is the original's. Raises OptionError where the converter cannot.
    """
    if opset == model.opset:
        return model
    model = without_calls(model)  # the converter drops functions
    light = _without_weights(model.proto)
    legal = _fault(light) is None  # the converter may work on what it is given
    try:
        found = version_converter.convert_version(light, opset)
    except (DecodeError, EncodeError, RuntimeError, ValueError) as error:
        raise OptionError(
            f"target-opset: {model.label} cannot be converted from opset {model.opset} to {opset}: {_said(error)}"
        ) from error
    fault = _fault(found)
    if legal and fault is not None:
        raise OptionError(f"target-opset: {model.label} would be no legal model at opset {opset}: {fault}")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for entry in proto.opset_import:
        if standard_domain(entry.domain) == "":
            entry.version = opset
    _take_nodes(proto.graph, found.graph)
    stored = {tensor.name for tensor in proto.graph.initializer}
    proto.graph.initializer.extend(tensor for tensor in found.graph.initializer if tensor.name not in stored)
    sweep(proto)
    return replace(model, proto=proto, source=None)


def _fault(proto: onnx.ModelProto) -> str | None:
    """What is not legal in a model at its opset, in bodies too: a run comes by one branch alone."""
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:
        return one_line(error)
    return None


def _said(error: Exception) -> str:
    """What the converter says, without the place in its source."""
    return one_line(error).rpartition("failed: ")[2]


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The message with large initializers as inputs: the converter loses data files, and a message has its limit."""
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    graph = light.graph
    listed = {value.name for value in graph.input}
    large = [
        index
        for index, tensor in enumerate(graph.initializer)
        if is_external(tensor) or math.prod(tensor.dims) > _SMALL
    ]
    for index in large:
        tensor = graph.initializer[index]
        if tensor.name not in listed:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims)))
    for index in reversed(large):
        del graph.initializer[index]
    return light


def _take_nodes(graph: onnx.GraphProto, found: onnx.GraphProto) -> None:
    """Puts converted nodes in the place of a graph's own; what the converter does not know of them is kept."""
    originals = {node.output[0]: node for node in graph.node if node.output}
    nodes = list(found.node)
    for node in nodes:
        original = originals.get(node.output[0]) if node.output else None
        if original is not None and original.op_type == node.op_type:
            node.name = original.name
            node.ClearField("metadata_props")
            node.metadata_props.extend(original.metadata_props)
            if original.HasField("doc_string"):
                node.doc_string = original.doc_string
    del graph.node[:]
    graph.node.extend(nodes)
