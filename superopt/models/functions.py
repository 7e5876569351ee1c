"""A model's own functions, written out where they are called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import onnx
from google.protobuf.message import EncodeError
from onnx import inliner

from superopt.models.model import Model, standard_domain
from superopt.models.scopes import subgraphs


def without_calls(model: Model) -> Model:
    """The model with its functions written out at every call, under unique names; the same object where there is no
    call, or the inliner does not take the model.

    A function that is of other opsets than the model stays, with its definition.
    """
    called = {(standard_domain(node.domain), node.op_type) for node in _nodes(model.proto)}
    if not any((standard_domain(function.domain), function.name) in called for function in model.proto.functions):
        return model
    try:
        proto = inliner.inline_local_functions(model.proto)
    except (EncodeError, RuntimeError, ValueError):
        return model
    return replace(model, proto=proto, source=None)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model, of its functions and of the graphs in both."""
    waiting = [node for nodes in (proto.graph.node, *(item.node for item in proto.functions)) for node in nodes]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(inner for graph in subgraphs(node) for inner in graph.node)
