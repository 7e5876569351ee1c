"""Whether a model computes in few bits."""

from __future__ import annotations

import onnx

from superopt.models.scopes import graphs_in

_NARROW = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}


def computes_narrow(proto: onnx.ModelProto) -> bool:
    """Whether a model gets, holds or makes float16 or bfloat16, in bodies and functions too."""
    graphs = graphs_in(proto.graph)
    declared = (info.type.tensor_type.elem_type for graph in graphs for info in (*graph.input, *graph.output))
    held = (tensor.data_type for graph in graphs for tensor in graph.initializer)
    lists = [graph.node for graph in graphs] + [function.node for function in proto.functions]
    attributes = [(node, attribute) for nodes in lists for node in nodes for attribute in node.attribute]
    made = (attribute.t.data_type for _, attribute in attributes)
    cast = (attribute.i for node, attribute in attributes if node.op_type == "Cast")
    return any(number in _NARROW for number in (*declared, *held, *made, *cast))
