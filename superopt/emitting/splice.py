"""Nodes put in the place of a model's own: in an order that runs, with what they need, all else untouched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from superopt.emitting.emit_nodes import Written
from superopt.lowering.lower import Lowered
from superopt.models.inference import contradicts, tensor_type
from superopt.models.scopes import captured_names, running_order
from superopt.models.tensors import is_external, is_plain, placeholder, tensor_of_constant
from superopt.terms import Constant, TensorType, TermGraph

_WORTH_HOLDING = 1 << 20
"""Bytes from which on a new weight stays out of the message of a model whose weights lie in data files."""

_LARGEST_ADDED = 1 << 29
"""Bytes of new weights above which those of any model stay out of its message."""


def spliced(
    lowered: Lowered, graph: TermGraph, written: Written
) -> tuple[onnx.ModelProto, frozenset[str], dict[str, Constant]]:
    """The original's message with other nodes, the names of initializers that are new in it, and the values of those
    that are only placeholders in it."""
    proto = lowered.model.proto
    nodes, new = _with_constant_nodes(lowered, written.nodes, written.constants)
    used = {*written.constants, *_annotated(lowered, written)}
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    target = result.graph
    del target.node[:]
    target.node.extend(_ordered(nodes))
    listed = {value.name for value in proto.graph.input} - lowered.constant_inputs
    _keep(target.initializer, [tensor.name in used or tensor.name in listed for tensor in target.initializer])
    _keep(target.sparse_initializer, [sparse.values.name in used for sparse in target.sparse_initializer])
    held = _held(proto, new)
    target.initializer.extend(
        placeholder(constant, name) if name in held else tensor_of_constant(constant, name)
        for name, constant in new.items()
    )
    early = proto.ir_version < _FREE_INITIALIZERS
    _keep(
        target.input,
        [item.name not in lowered.constant_inputs or (early and item.name in used) for item in target.input],
    )
    present = {name for node in target.node for name in node.output}
    present.update(value.name for value in target.input)
    present.update(tensor.name for tensor in target.initializer)
    present.update(sparse.values.name for sparse in target.sparse_initializer)
    _keep(target.value_info, [_holds(value, present, written.terms, graph) for value in target.value_info])
    _keep(target.quantization_annotation, [item.tensor_name in present for item in target.quantization_annotation])
    return result, frozenset(new), held


def _held(proto: onnx.ModelProto, new: Mapping[str, Constant]) -> dict[str, Constant]:
    """The new constants that are not copied into the message: large ones of a model that is large already."""
    outside = any(is_external(tensor) for tensor in proto.graph.initializer)
    if not outside and sum(constant.nbytes for constant in new.values()) <= _LARGEST_ADDED:
        return {}
    return {name: item for name, item in new.items() if item.nbytes >= _WORTH_HOLDING and is_plain(item.type.dtype)}


def _annotated(lowered: Lowered, written: Written) -> list[str]:
    """The constants that quantization annotations of values that are still there refer to."""
    return [
        entry.value
        for annotation in lowered.model.proto.graph.quantization_annotation
        if annotation.tensor_name in written.terms or annotation.tensor_name in written.constants
        for entry in annotation.quant_parameter_tensor_names
    ]


_FREE_INITIALIZERS = 4
"""From this IR version on an initializer need not be an input."""


def _with_constant_nodes(
    lowered: Lowered, nodes: Sequence[tuple[int, onnx.NodeProto]], used: Mapping[str, Constant]
) -> tuple[list[tuple[int, onnx.NodeProto]], dict[str, Constant]]:
    """Adds the Constant nodes that are used; tells the constants that have to become initializers.

    Before IR version 4 every initializer is an input, which a caller may override. What was made here is no input that
    the original had, and so is a node there; but where a model does not list its own (no checker passes it, runtimes
    do), it is an initializer like those.
    """
    graph = lowered.model.proto.graph
    inputs = {value.name for value in graph.input}
    all_listed = all(tensor.name in inputs for tensor in graph.initializer)
    as_nodes = all_listed and lowered.model.proto.ir_version < _FREE_INITIALIZERS
    stored = {tensor.name for tensor in graph.initializer} | {item.values.name for item in graph.sparse_initializer}
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output}
    outputs = {value.name for value in graph.output}
    found, new = list(nodes), {}
    for name, constant in used.items():
        if lowered.constant_keys.get(name) == constant.key:
            if name not in stored:
                found.append((makers[name], graph.node[makers[name]]))
        elif name in outputs or as_nodes:
            value = tensor_of_constant(constant, "")
            found.append((-1, onnx.helper.make_node("Constant", [], [name], value=value)))
        else:
            new[name] = constant
    return found, new


def _ordered(nodes: Sequence[tuple[int, onnx.NodeProto]]) -> list[onnx.NodeProto]:
    makers = {name: index for index, (_, node) in enumerate(nodes) for name in node.output if name}
    needs = [[makers[name] for name in (*node.input, *captured_names(node)) if name in makers] for _, node in nodes]
    return [nodes[index][1] for index in running_order(needs, [rank for rank, _ in nodes])]


def _keep(field: object, wanted: Iterable[bool]) -> None:
    """Deletes the items of a repeated field that are not wanted; the others stay where they are, uncopied."""
    gone = [index for index, keep in enumerate(wanted) if not keep]
    for index in reversed(gone):
        del field[index]  # type: ignore[attr-defined]  # protobuf's stubs name no base of repeated fields


def _holds(value: onnx.ValueInfoProto, present: set[str], terms: Mapping[str, int], graph: TermGraph) -> bool:
    """Whether what the original declares of a value is still said of something, and true."""
    if value.name not in present:
        return False
    term = terms.get(value.name)
    known = graph.types[term] if term is not None else None
    return not (isinstance(known, TensorType) and contradicts(known, tensor_type(value.type), ()))
