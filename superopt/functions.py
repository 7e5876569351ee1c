"""A model's own functions, written out where they are called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import onnx
from google.protobuf.message import EncodeError
from onnx import inliner

from superopt.model import Model, standard_domain
from superopt.scopes import subgraphs


def without_calls(model: Model) -> Model:
    """The model with its functions written out at every call, under unique names; the same object where there is no
    call that can be.

    A function that is of other opsets than the model stays, and so does its definition as long as it is called.
    """
    opsets = model.opsets
    called = {(standard_domain(node.domain), node.op_type) for node in _nodes(model.proto)}
    names = [
        (function.domain, function.name)
        for function in model.proto.functions
        if (standard_domain(function.domain), function.name) in called
        and all(opsets.get(standard_domain(entry.domain)) == entry.version for entry in function.opset_import)
    ]
    if not names:
        return model
    try:
        proto = inliner.inline_selected_functions(model.proto, names)
    except (EncodeError, RuntimeError, ValueError):
        return model  # What the inliner does not take stays as it is.
    return replace(model, proto=proto, source=None)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model, of its functions and of the graphs in both."""
    waiting = [node for nodes in (proto.graph.node, *(item.node for item in proto.functions)) for node in nodes]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(inner for graph in subgraphs(node) for inner in graph.node)
