"""A model several times over, side by side in one graph."""

from __future__ import annotations

import onnx


def replicated(proto: onnx.ModelProto, count: int, *, apart: bool = False) -> onnx.ModelProto:
    """The model's nodes so many times over, each time with weights of its own; on the same inputs, or ``apart``: on
    inputs of their own, called ``x@0``, ``x@1`` and so on."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph = made.graph
    inputs = list(proto.graph.input)
    given = set() if apart else {value.name for value in inputs}
    nodes, weights = list(proto.graph.node), list(proto.graph.initializer)
    outputs = [value.name for value in proto.graph.output]
    del graph.node[:], graph.initializer[:], graph.output[:], graph.value_info[:]
    if apart:
        del graph.input[:]
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
        for value in inputs if apart else ():
            entry = graph.input.add()
            entry.CopyFrom(value)
            entry.name = renamed(value.name)
        graph.output.extend(onnx.ValueInfoProto(name=renamed(name)) for name in outputs if name not in given)
    return made
