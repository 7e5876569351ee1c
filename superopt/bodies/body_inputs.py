"""The types of a body's own inputs: those that its node gives it in the first iteration and in every later one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from superopt.models.inference import tensor_type, value_types
from superopt.models.model import Model
from superopt.operators import dtype_number
from superopt.terms import Dim, TensorType

_ROUNDS = 4
"""How often the types that a Loop carries are inferred again before their shapes are given up."""

_FIRST_SCAN = 9
"""The opset since which Scan has no batch axis."""

Types = Sequence[TensorType | None]


def body_inputs(
    opset: int, node: onnx.NodeProto, body: onnx.GraphProto, outer: Mapping[str, TensorType | None], model: Model
) -> Types | None:
    """The types of the inputs of a body of If, Loop or Scan; None where they are not what its node gives it.

    ``outer`` are the types of the values around it. ``model`` is the body as a model but for its own inputs, which
    inference runs on: a dimension that is carried is known only if it comes out of the body as it went in.
    """
    given = [outer.get(name) if name else None for name in node.input]
    if node.op_type == "If":
        return [] if not body.input else None
    if node.op_type == "Loop":
        if len(body.input) != len(node.input) or len(body.output) < len(node.input) - 1:
            return None
        counter, going = (_one_element(value, kind) for value, kind in zip(body.input, ("int64", "bool"), strict=False))
        return _carried(model, body, given[2:], 1, [counter, going], [])
    scanned = next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 0)
    axes = next((tuple(attribute.ints) for attribute in node.attribute if attribute.name == "scan_input_axes"), ())
    states = len(given) - scanned
    if opset < _FIRST_SCAN or states < 0 or len(body.input) != len(given) or len(body.output) < states:
        return None
    slices = [_without_axis(kind, axes[place] if place < len(axes) else 0) for place, kind in enumerate(given[states:])]
    return _carried(model, body, given[:states], 0, [], slices)


def value_info(name: str, kind: TensorType | None) -> onnx.ValueInfoProto:
    """The declaration of a value, without its type where that is not known."""
    if kind is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, dtype_number(kind.dtype), kind.shape)


def _one_element(value: onnx.ValueInfoProto, dtype: str) -> TensorType:
    """The type of an iteration count or condition: runtimes give it the rank that the body declares."""
    declared = tensor_type(value.type) if value.HasField("type") else None
    if declared is None or declared.shape is None or len(declared.shape) > 1:
        return TensorType(dtype, None)
    return TensorType(dtype, (1,) * len(declared.shape))


def _without_axis(kind: TensorType | None, axis: int) -> TensorType | None:
    if kind is None or kind.shape is None:
        return kind
    place = axis + len(kind.shape) if axis < 0 else axis
    return TensorType(kind.dtype, (*kind.shape[:place], *kind.shape[place + 1 :]))


def _carried(model: Model, body: onnx.GraphProto, first: Types, skipped: int, before: Types, after: Types) -> Types:
    """The types of all inputs, where ``first`` go in at first and come out again behind ``skipped`` outputs."""
    types: list[TensorType | None] = list(first)
    names = [value.name for value in body.output[skipped : skipped + len(types)]]
    captured = list(model.proto.graph.input)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for _ in range(_ROUNDS):
        if all(kind is None or kind.shape is None for kind in types):
            break
        inputs = [
            value_info(value.name, kind) for value, kind in zip(body.input, [*before, *types, *after], strict=True)
        ]
        del proto.graph.input[:]
        proto.graph.input.extend([*inputs, *captured])
        later = value_types(Model(proto), frozenset())
        met = [_met(kind, later.get(name)) for kind, name in zip(types, names, strict=True)]
        if met == types:
            return [*before, *types, *after]
        types = met
    return [*before, *(None if kind is None else TensorType(kind.dtype, None) for kind in types), *after]


def _met(kind: TensorType | None, later: TensorType | None) -> TensorType | None:
    """What is true of both; nothing is where the element types differ."""
    if kind is None or later is None:
        return None if kind is None else TensorType(kind.dtype, None)
    if kind.dtype != later.dtype:
        return None
    if kind.shape is None or later.shape is None or len(kind.shape) != len(later.shape):
        return TensorType(kind.dtype, None)
    dims: list[Dim] = [a if a == b else None for a, b in zip(kind.shape, later.shape, strict=True)]
    return TensorType(kind.dtype, tuple(dims))
