"""The types of an operator's outputs, and whether it may be applied at all: the one place, for all stages.

onnx's own inference does the work. What it lets pass and no runtime does (channel counts, bias lengths, operands of
different element types) is refused here, since a rule must not be believed on operands that no model can have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

from superopt.errors import InferenceError
from superopt.forms import onnx_form
from superopt.operators import NEWEST_OPSET, dtype_name, dtype_number, operator
from superopt.shape_checks import CHECKS, check_dtypes, shape_of
from superopt.terms import (
    ABSENT,
    CONST,
    INPUT,
    OPAQUE,
    PROJECT,
    Attrs,
    AttrValue,
    Dim,
    Node,
    TensorType,
    ValueType,
    parse_type,
    type_text,
)

_REFUSALS = (
    shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, IndexError, OverflowError,
)  # fmt: skip
"""How onnx says that an operator has no type here: by its own errors, or by those of C++ that its checks end in."""

_OPSETS = [helper.make_opsetid("", NEWEST_OPSET)]


def infer(op: str, attrs: Attrs, args: Sequence[ValueType], given: Sequence[bool] | None = None) -> ValueType:
    """The type of an operator applied to values of these types.

    ``given`` tells which arguments are there (default: all; a type of None among them is a value of unknown type). The
    result is a bundle for an operator with several outputs, None where nothing is known. Raises InferenceError where
    ONNX or a runtime would not accept the operator.
    """
    if op == PROJECT:
        return _projected(args[0], attrs)
    if op in (INPUT, CONST, OPAQUE):
        return None
    present = tuple(given) if given is not None else (True,) * len(args)
    texts = tuple(type_text(arg) for arg in args)
    outcome = _inferred(op, attrs.text, texts, present)
    if isinstance(outcome, str):
        raise InferenceError(outcome)
    return outcome[0]


def infer_node(node: Node, types: Sequence[ValueType]) -> ValueType:
    """The type of a node of a graph whose earlier nodes have these types."""
    args = [None if arg == ABSENT else types[arg] for arg in node.args]
    return infer(node.op, node.attrs, args, [arg != ABSENT for arg in node.args])


def _projected(bundle: ValueType, attrs: Attrs) -> ValueType:
    index = attrs["index"]
    if not isinstance(bundle, tuple) or not isinstance(index, int):
        return None
    if not 0 <= index < len(bundle):
        raise InferenceError(f"output {index} of {len(bundle)}")
    return bundle[index]


@lru_cache(maxsize=1 << 17)
def _inferred(op: str, attrs_text: str, texts: tuple[str, ...], present: tuple[bool, ...]) -> tuple[ValueType] | str:
    """The type in a tuple of one, or why there is none (exceptions are not cached, strings are)."""
    attrs = Attrs(attrs_text)
    args = [parse_type(text) for text in texts]
    tensors = [arg if isinstance(arg, TensorType) else None for arg in args]
    try:
        check_dtypes(op, tensors, present)
        check = CHECKS.get(op)
        if check is not None:
            check(attrs, tensors)
        special = _written_out(op)
        outcome = special(attrs, tensors) if special is not None else _by_onnx(op, attrs, tensors, present)
    except InferenceError as error:
        return f"{op}: {error}"
    for part in outcome if isinstance(outcome, tuple) else (outcome,):
        if part is not None and part.shape is not None and any(isinstance(dim, int) and dim < 0 for dim in part.shape):
            return f"{op}: a dimension below zero in {part}"
    return (outcome,)


@dataclass(frozen=True)
class _Prototype:
    """The ONNX node of an operator with attributes, which of its inputs are which arguments, and the types and values
    of the others.

    Shared by all operands that it is inferred for: to be read only.
    """

    node: onnx.NodeProto
    arguments: Mapping[str, int]
    types: Mapping[str, onnx.TypeProto]
    data: dict[str, onnx.TensorProto]


@lru_cache(maxsize=1 << 14)
def _prototype(op: str, attrs: Attrs, present: tuple[bool, ...], count: int) -> _Prototype:
    form = onnx_form(op, attrs, present, NEWEST_OPSET)
    names, arguments, types, data = [], {}, {}, {}
    for position, item in enumerate(form.inputs):
        name = f"i{position}" if item is not None else ""
        names.append(name)
        if isinstance(item, int):
            arguments[name] = item
        elif item is not None:
            array = np.asarray(item)
            types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            data[name] = numpy_helper.from_array(array, name)
    node = helper.make_node(form.op_type, names, [f"o{index}" for index in range(count)])
    for key, value in form.attributes.items():
        node.attribute.append(helper.make_attribute(key, value, attr_type=_attribute_kind(form.op_type, key)))
    return _Prototype(node, arguments, types, data)


def _by_onnx(op: str, attrs: Attrs, args: list[TensorType | None], present: tuple[bool, ...]) -> ValueType:
    spec = operator(op)
    sizes = attrs.get("split")
    count = len(sizes) if spec is not None and spec.form.bundle and isinstance(sizes, tuple) else 1
    try:
        made = _prototype(op, attrs, present, count)
        types = {**{name: _type_proto(args[place]) for name, place in made.arguments.items()}, **made.types}
        found = shape_inference.infer_node_outputs(
            _schema(made.node.op_type), made.node, types, made.data, opset_imports=_OPSETS
        )
    except _REFUSALS as error:
        said = str(error).strip() or type(error).__name__
        raise InferenceError(said.splitlines()[-1]) from error
    parts = tuple(_tensor_type(found.get(name)) for name in made.node.output)
    return parts if spec is not None and spec.form.bundle else parts[0]


@cache
def _schema(op: str) -> defs.OpSchema:
    return defs.get_schema(op, NEWEST_OPSET)


@cache
def _attribute_kind(op: str, name: str) -> int:
    # onnx's stub does not know that its attribute kinds are an enumeration.
    known: Any = _schema(op).attributes[name].type
    return int(onnx.AttributeProto.AttributeType.Value(known.name))


@lru_cache(maxsize=1 << 14)
def _type_proto(tensor: TensorType | None) -> onnx.TypeProto:
    """Shared by all who ask: to be read only."""
    proto = onnx.TypeProto()
    if tensor is not None:
        proto.tensor_type.elem_type = dtype_number(tensor.dtype)
        if tensor.shape is not None:
            proto.tensor_type.shape.SetInParent()
            for dim in tensor.shape:
                entry = proto.tensor_type.shape.dim.add()
                if isinstance(dim, int):
                    entry.dim_value = dim
                elif dim is not None:
                    entry.dim_param = dim
    return proto


def _tensor_type(proto: onnx.TypeProto | None) -> TensorType | None:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.elem_type:
        return None
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return TensorType(dtype_name(tensor.elem_type), None)
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        dims.append(int(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or None)
    return TensorType(dtype_name(tensor.elem_type), tuple(dims))


def broadcast(shapes: Sequence[tuple[Dim, ...] | None]) -> tuple[Dim, ...] | None:
    """The shape that these shapes broadcast to; None where a rank is not known.

    A symbol beside a number above 1 is that number, beside 1 it stays; two different symbols give an unknown dimension.
    """
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max((len(shape) for shape in known), default=0)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        dims = [shape[axis] for shape in known if len(shape) >= -axis]
        numbers = {dim for dim in dims if isinstance(dim, int) and dim != 1}
        others = list(dict.fromkeys(dim for dim in dims if not isinstance(dim, int)))
        if len(numbers) > 1:
            raise InferenceError(f"{' and '.join(map(str, sorted(numbers)))} do not broadcast")
        if numbers:
            result.append(next(iter(numbers)))
        elif others:
            result.append(others[0] if len(others) == 1 else None)
        else:
            result.append(1)
    return tuple(result)


def _like_first(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    return args[0]


def _truth_like_first(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    return None if args[0] is None else TensorType("bool", args[0].shape)


def _broadcasting(computed: tuple[bool, ...] | None) -> Callable[[Attrs, list[TensorType | None]], ValueType]:
    """What all arguments broadcast to, of the element type of those that it is computed from (None: of all of them)."""

    def of(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
        sources = (
            args if computed is None else [arg for arg, is_source in zip(args, computed, strict=False) if is_source]
        )
        dtype = next((arg.dtype for arg in sources if arg is not None), None)
        return None if dtype is None else TensorType(dtype, broadcast([shape_of(arg) for arg in args]))

    return of


def _truth_broadcasting(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    return TensorType("bool", broadcast([shape_of(arg) for arg in args]))


def _cast(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    to: AttrValue | None = attrs.get("to")
    return TensorType(str(to), shape_of(args[0]))


def _stft(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    """[batch, frames, bins, 2]; onnx takes a spectrum to be two-sided where the node does not say."""
    signal, window = args[0], args[1] if len(args) > 1 else None
    step, length = attrs["frame_step"], attrs["frame_length"]
    if not isinstance(step, int) or not isinstance(length, int) or step < 1 or length < 1:
        raise InferenceError("frames of no length")
    if window is not None and window.shape is not None and window.shape != (length,):
        raise InferenceError("the window is not of the frames' length")
    if signal is None or signal.shape is None:
        return None
    if signal.rank not in (2, 3) or signal.shape[2:] not in ((), (1,), (2,)):
        raise InferenceError("no signal, expected [batch, length] or [batch, length, 1 or 2]")
    if attrs.get("onesided") and signal.shape[2:] == (2,):
        raise InferenceError("a one-sided spectrum of a complex signal")
    size = signal.shape[1]
    if isinstance(size, int) and size < length:
        raise InferenceError("a signal shorter than a frame")
    frames = (size - length) // step + 1 if isinstance(size, int) else None
    return TensorType(signal.dtype, (signal.shape[0], frames, length // 2 + 1 if attrs.get("onesided") else length, 2))


@cache
def _written_out(op: str) -> Callable[[Attrs, list[TensorType | None]], ValueType] | None:
    """The type of an operator's result, of those operators whose shapes are plain; None for all others.

    Written out for speed, and because onnx forgets symbols when several operands broadcast.
    """
    spec = operator(op)
    if op in _OWN or spec is None:
        return _OWN.get(op)
    schema = _schema(op)
    result = schema.outputs[0]
    truth = result.types == {"tensor(bool)"}
    if spec.form.shaped == "broadcast":
        same = tuple(item.type_str == result.type_str for item in schema.inputs)
        return _truth_broadcasting if truth else _broadcasting(None if spec.arity is None else same)
    if spec.form.shaped == "first" and (truth or result.type_str == schema.inputs[0].type_str):
        return _truth_like_first if truth else _like_first
    return None


_OWN: Mapping[str, Callable[[Attrs, list[TensorType | None]], ValueType]] = {"Cast": _cast, "STFT": _stft}


def join(left: ValueType, right: ValueType) -> ValueType:
    """What is known of a value when both types are known of it.

    A number says more than a symbol, a symbol more than nothing; two different symbols do not contradict each other.
    Raises InferenceError where the types contradict each other: other element types, ranks, or numbers.
    """
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, tuple) or isinstance(right, tuple):
        if not (isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right)):
            raise InferenceError(f"{type_text(left)} is not {type_text(right)}")
        parts = (join(mine, theirs) for mine, theirs in zip(left, right, strict=True))
        return tuple(part if isinstance(part, TensorType) else None for part in parts)
    if left.dtype != right.dtype:
        raise InferenceError(f"{left} is not {right}")
    if left.shape is None or right.shape is None:
        return right if left.shape is None else left
    if len(left.shape) != len(right.shape):
        raise InferenceError(f"{left} is not {right}")
    return TensorType(
        left.dtype, tuple(_join_dim(mine, theirs) for mine, theirs in zip(left.shape, right.shape, strict=True))
    )


def _join_dim(left: Dim, right: Dim) -> Dim:
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, int) and isinstance(right, int):
        raise InferenceError(f"a dimension of {left} is not one of {right}")
    if isinstance(left, int) or isinstance(right, int):
        return left if isinstance(left, int) else right
    return min(left, right)
