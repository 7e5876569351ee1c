"""What callers of a model see: the names and types of its inputs and outputs, and how those of two models differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from superopt.models.inference import tensor_type
from superopt.terms import TensorType


def required_inputs(proto: onnx.ModelProto) -> Sequence[onnx.ValueInfoProto]:
    """The inputs that a caller must give: those without an initializer."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    stored.update(sparse.values.name for sparse in proto.graph.sparse_initializer)
    return [value for value in proto.graph.input if value.name not in stored]


def interface_difference(original: onnx.ModelProto, new: onnx.ModelProto) -> str | None:
    """How the interfaces of two models differ, in one line; None where the new one takes and gives what the original
    does.

    An input that has an initializer may be missing on either side: no caller has to give it. Shapes are compared where
    both state them as numbers, those of outputs not at all: they are what comes out.
    """
    inputs, new_inputs = _all(original.graph.input), _all(new.graph.input)
    outputs, new_outputs = _all(original.graph.output), _all(new.graph.output)
    found = [
        *_names("input", _missing(_required(original), new_inputs), _missing(_required(new), inputs)),
        *_names("output", _missing(outputs, new_outputs), _missing(new_outputs, outputs)),
        *_types("input", inputs, new_inputs, shapes=True),
        *_types("output", outputs, new_outputs, shapes=False),
    ]
    return f"the interfaces differ: {'; '.join(found)}" if found else None


Values = Mapping[str, onnx.ValueInfoProto]


def _all(values: Iterable[onnx.ValueInfoProto]) -> Values:
    return {value.name: value for value in values}


def _required(proto: onnx.ModelProto) -> Values:
    return _all(required_inputs(proto))


def _missing(values: Values, others: Values) -> list[str]:
    return [name for name in values if name not in others]


def _names(kind: str, gone: list[str], added: list[str]) -> list[str]:
    sides = (("the original", gone), ("the new model", added))
    return [f"only {side} has the {kind}{'s' * (len(own) > 1)} {', '.join(own)}" for side, own in sides if own]


def _types(kind: str, original: Values, new: Values, *, shapes: bool) -> list[str]:
    found = []
    for name in original:
        if name not in new:
            continue
        mine, other = original[name].type, new[name].type
        kinds = [str(declared.WhichOneof("value")).removesuffix("_type") for declared in (mine, other)]
        if kinds[0] != kinds[1] and "None" not in kinds:
            found.append(f"{kind} {name} is a {kinds[0]} in the original and a {kinds[1]} in the new model")
            continue
        left, right = tensor_type(mine), tensor_type(other)
        if left is None or right is None:
            continue
        if left.dtype != right.dtype or (shapes and _clash(left, right)):
            found.append(f"{kind} {name} is {_text(left)} in the original and {_text(right)} in the new model")
    return found


def _clash(mine: TensorType, other: TensorType) -> bool:
    if mine.shape is None or other.shape is None:
        return False
    pairs = list(zip(mine.shape, other.shape, strict=False))
    numbers = ((a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int))
    return len(mine.shape) != len(other.shape) or any(a != b for a, b in numbers)


def _text(value: TensorType) -> str:
    return str(value).replace("$", "")
