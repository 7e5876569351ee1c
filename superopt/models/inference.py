"""The types of all values of a model: inferred by ONNX, refined by declarations that can be believed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
from onnx import shape_inference
from onnx.shape_inference import InferenceError as OnnxInferenceError

from superopt.models.functions import is_endless
from superopt.models.model import Model
from superopt.models.scopes import graphs_in
from superopt.models.tensors import is_external
from superopt.operators import dtype_name, dtype_number
from superopt.terms import Dim, TensorType

_SMALL = 1024
"""Elements up to which inference sees the content of a constant: shapes, axes and sizes are in it, weights are not."""


REFUSALS = (OnnxInferenceError, onnx.checker.ValidationError, ValueError, RuntimeError)
"""What ONNX's inference raises at models that it does not take."""

_ELEMENT_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


_INTEGERS = frozenset(getattr(onnx.TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64))


def value_types(model: Model, constant_inputs: frozenset[str]) -> dict[str, TensorType | None]:
    """The type of every value of the main graph by name; None where not known or not a tensor.

    ``constant_inputs`` are graph inputs that stand for their initializers. What the model declares about values that
    are not its inputs is used where inference knows nothing, and not at all if inference contradicts any of it: shapes
    that were true of another version of a model are left over in groups.
    """
    skeleton = skeleton_of(model.proto, constant_inputs)
    inferred = _infer(skeleton)
    declared = {
        value.name: tensor_type(value.type)
        for value in [*model.proto.graph.value_info, *model.proto.graph.output]
        if value.HasField("type")
    }
    symbols = {
        dim
        for value in model.proto.graph.input
        if (known := tensor_type(value.type)) is not None
        for dim in known.shape or ()
        if isinstance(dim, str)
    }
    if any(contradicts(inferred.get(name), known, symbols) for name, known in declared.items()):
        return inferred
    hints = {
        name: _believed(known)
        for name, known in declared.items()
        if known is not None and _adds(known, inferred.get(name), symbols)
    }
    if not hints:
        return inferred
    skeleton.graph.value_info.extend(_value_info(name, known) for name, known in hints.items())
    refined = _infer(skeleton)
    if any(contradicts(refined.get(name), known, symbols) for name, known in inferred.items()):
        return inferred
    return {name: refined.get(name) or known for name, known in {**inferred, **refined, **hints}.items()}


def integer_values(proto: onnx.ModelProto) -> dict[str, int]:
    """The element types of the integer values of a model, those in its bodies too, by name, as far as ONNX infers them.

    Values of one name in several bodies are taken together: where any is an integer, its type is there.
    """
    skeleton = skeleton_of(proto, frozenset())
    try:
        skeleton = shape_inference.infer_shapes(skeleton, strict_mode=False)
    except REFUSALS:
        skeleton = proto  # what the model declares is all that there is
    found: dict[str, int] = {}
    for graph in graphs_in(skeleton.graph):
        for value in [*graph.input, *graph.value_info, *graph.output]:
            if value.type.tensor_type.elem_type in _INTEGERS:
                found[value.name] = value.type.tensor_type.elem_type
        for tensor in graph.initializer:
            if tensor.data_type in _INTEGERS:
                found[tensor.name] = tensor.data_type
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].t.data_type in _INTEGERS:
                found[node.output[0]] = node.attribute[0].t.data_type
    return found


def tensor_type(declared: onnx.TypeProto) -> TensorType | None:
    """The type of a dense tensor; None for everything else."""
    if not declared.HasField("tensor_type") or declared.tensor_type.elem_type not in _ELEMENT_TYPES:
        return None
    dtype = dtype_name(declared.tensor_type.elem_type)
    if not declared.tensor_type.HasField("shape"):
        return TensorType(dtype, None)
    dims: list[Dim] = []
    for dim in declared.tensor_type.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(dim.dim_value)
        else:
            dims.append(symbol_of(dim))
    return TensorType(dtype, tuple(dims))


def symbol_of(dim: onnx.TensorShapeProto.Dimension) -> str | None:
    """The name of an open dimension; None where it has none, or what some exporters call all of them: ``?``, ``-1`` or
    ``None``. Two that are called so need not be equal."""
    return dim.dim_param if dim.dim_param != "None" and any(letter.isalpha() for letter in dim.dim_param) else None


def contradicts(known: TensorType | None, other: TensorType | None, symbols: Iterable[str]) -> bool:
    """Whether no tensor has both types, or the other puts a number where the first knows a symbol of the inputs."""
    if known is None or other is None:
        return False
    if known.dtype != other.dtype:
        return True
    if known.shape is None or other.shape is None:
        return False
    if len(known.shape) != len(other.shape):
        return True
    return any(
        isinstance(theirs, int) and (ours in symbols if isinstance(ours, str) else ours not in (None, theirs))
        for ours, theirs in zip(known.shape, other.shape, strict=True)
    )


def refined(known: TensorType | None, other: TensorType | None) -> TensorType | None:
    """What two true statements about a value say together; None where they cannot both be true."""
    if known is None or other is None:
        return known or other
    if contradicts(known, other, ()):
        return None
    if known.shape is None or other.shape is None:
        return known if other.shape is None else other
    dims = []
    for ours, theirs in zip(known.shape, other.shape, strict=True):
        dims.append(theirs if ours is None or (isinstance(theirs, int) and not isinstance(ours, int)) else ours)
    return TensorType(known.dtype, tuple(dims))


def _adds(known: TensorType, inferred: TensorType | None, symbols: Iterable[str]) -> bool:
    if inferred is None or (inferred.shape is None and known.shape is not None):
        return True
    return any(
        isinstance(theirs, int) and (ours is None or (isinstance(ours, str) and ours not in symbols))
        for ours, theirs in zip(inferred.shape or (), known.shape or (), strict=False)
    )


def _believed(known: TensorType) -> TensorType:
    """A declared type without its symbols: users may name the dimensions of outputs, and names prove nothing."""
    if known.shape is None:
        return known
    return TensorType(known.dtype, tuple(dim if isinstance(dim, int) else None for dim in known.shape))


def _value_info(name: str, known: TensorType) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, dtype_number(known.dtype), known.shape)


def skeleton_of(proto: onnx.ModelProto, constant_inputs: frozenset[str]) -> onnx.ModelProto:
    """The model without what it declares, and with large constants as inputs of their types."""
    skeleton = onnx.ModelProto(ir_version=max(proto.ir_version, 4))
    skeleton.opset_import.extend(proto.opset_import)
    if not is_endless(proto):
        skeleton.functions.extend(proto.functions)
    graph = skeleton.graph
    graph.name = proto.graph.name or "graph"
    for value in proto.graph.input:
        if value.name not in constant_inputs:
            graph.input.append(value)
            for dim in graph.input[-1].type.tensor_type.shape.dim if _is_tensor(value.type) else ():
                if dim.HasField("dim_param") and symbol_of(dim) is None:
                    dim.ClearField("dim_param")
    listed = {value.name for value in graph.input}
    for tensor in proto.graph.initializer:
        if tensor.name in listed:
            continue
        if _is_small(tensor):
            graph.initializer.append(tensor)
        else:
            graph.input.append(_constant_info(tensor.name, tensor.data_type, tensor.dims))
    for sparse in proto.graph.sparse_initializer:
        if sparse.values.name not in listed:
            graph.input.append(_constant_info(sparse.values.name, sparse.values.data_type, sparse.dims))
    for node in proto.graph.node:
        held = node.attribute[0].t if node.op_type == "Constant" and len(node.attribute) == 1 else None
        if held is not None and held.data_type and not _is_small(held) and len(node.output) == 1:
            graph.input.append(_constant_info(node.output[0], held.data_type, held.dims))
        elif not _aborts_inference(node):
            graph.node.append(node)
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in proto.graph.output)
    return skeleton


def may_propagate(skeleton: onnx.ModelProto) -> bool:
    """Whether what ONNX's inference knows of the content of values stays small: it joins constants as often as there is
    a Concat, and fifty of these double one beyond all memory."""
    counts = {tensor.name: math.prod(tensor.dims) for tensor in skeleton.graph.initializer}
    for node in skeleton.graph.node:
        given = [counts.get(name, _SMALL) for name in node.input]
        count = sum(given) if node.op_type == "Concat" else max(given, default=_SMALL)
        if count > _MOST_PROPAGATED:
            return False
        counts.update(dict.fromkeys(node.output, count))
    return True


_MOST_PROPAGATED = 1 << 20


def _is_tensor(declared: onnx.TypeProto) -> bool:
    return bool(declared.HasField("tensor_type") and declared.tensor_type.HasField("shape"))


def _aborts_inference(node: onnx.NodeProto) -> bool:
    """Whether onnx's inference would end the process over this node, which no runtime takes either."""
    counts = [attribute.i for attribute in node.attribute if attribute.name == "num_outputs"]
    return node.op_type == "Split" and any(count != len(node.output) for count in counts)


def _is_small(tensor: onnx.TensorProto) -> bool:
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count <= _SMALL and not is_external(tensor)


def _constant_info(name: str, data_type: int, dims: Iterable[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, data_type, tuple(dims))


def _infer(skeleton: onnx.ModelProto) -> dict[str, TensorType | None]:
    try:
        inferred = shape_inference.infer_shapes(skeleton, strict_mode=False, data_prop=may_propagate(skeleton))
    except REFUSALS:
        # ONNX stops at one node that it cannot make sense of. That says nothing about the others: lowering infers their
        # types from those of inputs and constants, node by node.
        inferred = skeleton
    types: dict[str, TensorType | None] = {}
    for value in [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]:
        types[value.name] = tensor_type(value.type)
    for tensor in inferred.graph.initializer:
        types[tensor.name] = TensorType(dtype_name(tensor.data_type), tuple(tensor.dims))
    return types
