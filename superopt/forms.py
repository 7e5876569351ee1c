"""The way back from the normal form: an operator as the ONNX node that a given opset writes it as."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import defs

from superopt.errors import InferenceError
from superopt.operators import DTYPE_ATTRIBUTES, Operator, dtype_number, named, operator
from superopt.terms import Attrs, AttrValue, Constant, TensorType, ValueType

FormInput: TypeAlias = "int | NDArray[np.int64] | NDArray[np.float32] | None"
"""An input of the ONNX node: the argument at this index, a constant to make, or nothing."""


@dataclass(frozen=True)
class OnnxForm:
    """An ONNX node to be: operator type, attributes as ONNX has them, inputs in order."""

    op_type: str
    attributes: Mapping[str, AttrValue]
    inputs: tuple[FormInput, ...]


@dataclass
class _Draft:
    """A form in the making, and what is known of the arguments."""

    op: str
    opset: int
    attrs: Attrs
    present: tuple[bool, ...]
    types: Sequence[ValueType]
    constants: Sequence[Constant | None]
    attributes: dict[str, AttrValue] = field(default_factory=dict)
    inputs: list[FormInput] = field(default_factory=list)

    def type(self, argument: int) -> TensorType | None:
        known = self.types[argument] if argument < len(self.types) else None
        return known if isinstance(known, TensorType) else None

    def scalar(self, argument: int, name: str) -> float:
        """The value of an argument that this opset has as a float attribute."""
        constant = self.constants[argument] if argument < len(self.constants) else None
        if constant is None or constant.type.size != 1:
            raise InferenceError(f"{self.op}: {name} has to be a constant number at opset {self.opset}")
        value = float(constant.array().reshape(-1)[0])
        if float(np.float32(value)) != value and value == value:
            raise InferenceError(f"{self.op}: {name} has to be a float32 at opset {self.opset}")
        return value


def onnx_form(
    op: str,
    attrs: Attrs,
    present: tuple[bool, ...],
    opset: int,
    types: Sequence[ValueType] = (),
    constants: Sequence[Constant | None] = (),
) -> OnnxForm:
    """The node that means this operator at an opset.

    ``present`` tells which arguments of the normal form are given, ``types`` what their types are and ``constants`` the
    values of constant ones, both as far as known: older opsets write some arguments as attributes, and mean the same
    only for some types. Raises InferenceError where the opset does not have it.
    """
    spec = operator(op)
    if spec is None:
        raise InferenceError(f"{op} has no normal form")
    known = _schema_attributes(op, opset)
    if known is None:
        raise InferenceError(f"opset {opset} has no {op}")
    if op in _IDENTITY_WITHOUT_AXES and attrs.get("axes") == ():
        return OnnxForm("Identity", {}, (0,))
    draft = _Draft(op, opset, attrs, present, types, constants)
    taken = dict(spec.form.attribute_inputs or {})
    made: dict[str, NDArray[np.int64] | NDArray[np.float32]] = {}
    for name, value in attrs.items:
        if name in known:
            if (op, name) not in DTYPE_ATTRIBUTES:
                draft.attributes[name] = value
            elif value:
                draft.attributes[name] = dtype_number(str(value))
        elif name in taken.values():
            made[name] = np.asarray(value, np.float32) if isinstance(value, float) else np.asarray(value, np.int64)
        elif not _is_default(spec, name, value) and (op, name) not in _HARMLESS:
            raise InferenceError(f"{op} has no {name} at opset {opset}")
    argument = 0
    for position in range(len(present) + len(taken)):
        if position in taken:
            draft.inputs.append(made.get(taken[position]))
        elif argument < len(present):
            draft.inputs.append(argument if present[argument] else None)
            argument += 1
    special = _SPECIAL.get(op)
    if special is not None:
        special(draft)
    _drop_zero_bias(draft, spec)
    while draft.inputs and draft.inputs[-1] is None:
        draft.inputs.pop()
    return OnnxForm(op, draft.attributes, tuple(draft.inputs))


@lru_cache(maxsize=1 << 12)
def expressible(op: str, attrs: Attrs, present: tuple[bool, ...], types: tuple[ValueType, ...], opset: int) -> bool:
    """Whether an opset has this operator for arguments of these types, whatever constants among them hold."""
    try:
        onnx_form(op, attrs, present, opset, types, (_ZERO,) * len(present))
    except InferenceError:
        return False
    return True


_ZERO = Constant("", TensorType("float32", ()), lambda: np.zeros((), np.float32))


@cache
def _schema_attributes(op: str, opset: int) -> frozenset[str] | None:
    """The attributes of an operator at an opset, None where the opset does not have it: a schema makes all of them anew
    each time that it is asked."""
    try:
        schema = defs.get_schema(op, max_inclusive_version=opset)
    except defs.SchemaError:
        return None
    return None if schema.deprecated else frozenset(schema.attributes)


def _is_default(spec: Operator, name: str, value: AttrValue) -> bool:
    default = spec.default(name)
    if isinstance(default, tuple) and len(default) == 1 and isinstance(value, tuple):
        return value == default * len(value)
    return value == default


def _drop_zero_bias(draft: _Draft, spec: Operator) -> None:
    """Leaves out a bias of zeros, except where the opset demands one."""
    place = spec.form.zero_bias
    if place is None or place >= len(draft.constants) or (draft.op == "Gemm" and draft.opset < 11):
        return
    scale = draft.attrs.get("alpha", 1.0)
    if isinstance(scale, (int, float)) and scale <= 0:
        return  # zeros are negative without it, and positive with it
    bias = draft.constants[place]
    if bias is not None and not bias.array().tobytes().strip(b"\0"):
        draft.inputs[place] = None
        draft.attributes.pop("beta", None)


def _kernel_shape(draft: _Draft) -> None:
    """Writes the kernel's size where it is known: runtimes can do without, but tools read it."""
    weight = draft.type(1)
    if weight is not None and weight.shape is not None:
        kernel = tuple(dim for dim in weight.shape[2:] if isinstance(dim, int))
        if len(kernel) == len(weight.shape) - 2:
            draft.attributes["kernel_shape"] = kernel


def _clip(draft: _Draft) -> None:
    if draft.opset >= 11:
        return
    for argument, name, without in ((1, "min", -np.inf), (2, "max", np.inf)):
        draft.attributes[name] = draft.scalar(argument, name) if draft.present[argument] else float(without)
    draft.inputs = draft.inputs[:1]


def _pad(draft: _Draft) -> None:
    if draft.opset >= 11:
        return
    if draft.present[1]:
        draft.attributes["value"] = draft.scalar(1, "value")
    draft.inputs = draft.inputs[:1]


def _softmax(draft: _Draft) -> None:
    known = draft.type(0)
    if draft.opset < 13 and (known is None or known.rank is None or draft.attrs["axis"] != known.rank - 1):
        raise InferenceError(f"{draft.op} at opset {draft.opset} is over the last axis")


def _same_shapes(draft: _Draft) -> None:
    """Before opset 8 these do not broadcast."""
    known = [draft.type(argument) for argument in range(len(draft.present))]
    if draft.opset < 8 and any(item is None or not item.is_static or item != known[0] for item in known[1:]):
        raise InferenceError(f"{draft.op} at opset {draft.opset} does not broadcast")


def _per_tensor(draft: _Draft) -> None:
    scale = draft.type(1)
    if draft.opset < 13 and draft.types and (scale is None or scale.shape != ()):
        raise InferenceError(f"{draft.op} at opset {draft.opset} has one scale")


def _scale_of_channels(draft: _Draft) -> None:
    if draft.opset < 21:
        raise InferenceError(f"{draft.op} at opset {draft.opset} has a scale for each group")


def _resize(draft: _Draft) -> None:
    """Either scales or sizes; before opset 13 what is not used is empty instead of absent."""
    if draft.opset < 11:
        raise InferenceError(f"{draft.op} at opset {draft.opset} has other coordinates")
    scales, sizes = draft.attrs["scales"], draft.attrs["sizes"]
    unused = np.zeros(0, np.float32) if draft.opset < 13 else None
    draft.inputs[1:] = [
        unused,
        np.asarray(scales, np.float32) if scales else unused,
        np.asarray(sizes, np.int64) if sizes else None,
    ]


def _reduce(draft: _Draft) -> None:
    if draft.attrs.get("axes") == ():
        draft.inputs = draft.inputs[:1]
        draft.attributes.pop("axes", None)


def _slice(draft: _Draft) -> None:
    steps = draft.attrs["steps"]
    if draft.opset >= 10:
        return
    if isinstance(steps, tuple) and any(step != 1 for step in steps):
        raise InferenceError(f"Slice has no steps at opset {draft.opset}")
    draft.inputs = draft.inputs[:1]


def _trilu(draft: _Draft) -> None:
    if draft.attrs.get("k") == 0:
        draft.inputs = draft.inputs[:1]


def _dropout(draft: _Draft) -> None:
    if draft.opset < 12:
        draft.inputs = draft.inputs[:1]


_SPECIAL: Mapping[str, Callable[[_Draft], None]] = {
    "Clip": _clip,
    "Conv": _kernel_shape,
    "ConvTranspose": _kernel_shape,
    "DequantizeLinear": _per_tensor,
    "Dropout": _dropout,
    "GroupNormalization": _scale_of_channels,
    "LogSoftmax": _softmax,
    "Pad": _pad,
    "QuantizeLinear": _per_tensor,
    "Resize": _resize,
    "Slice": _slice,
    "Softmax": _softmax,
    "Trilu": _trilu,
    **dict.fromkeys("Max Mean Min Sum".split(), _same_shapes),
    **dict.fromkeys(named(lambda form: form.reduces), _reduce),
}

_IDENTITY_WITHOUT_AXES = frozenset({"Squeeze", "Unsqueeze", "Slice"})
"""Operators that do nothing without axes; written as they are, an empty list would mean all axes."""

_HARMLESS = frozenset({("QuantizeLinear", "axis"), ("DequantizeLinear", "axis")})
"""Attributes that an older opset does not have and a check of its own takes care of."""
