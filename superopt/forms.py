"""The way back from the normal form: an operator as the ONNX node that a given opset writes it as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import defs

from superopt.errors import InferenceError
from superopt.operators import DTYPE_ATTRIBUTES, dtype_number, operator
from superopt.terms import Attrs, AttrValue

FormInput: TypeAlias = "int | NDArray[np.int64] | NDArray[np.float32] | None"
"""An input of the ONNX node: the argument at this index, a constant to make, or nothing."""


@dataclass(frozen=True)
class OnnxForm:
    """An ONNX node to be: operator type, attributes as ONNX has them, inputs in order."""

    op_type: str
    attributes: Mapping[str, AttrValue]
    inputs: tuple[FormInput, ...]


def onnx_form(op: str, attrs: Attrs, present: tuple[bool, ...], opset: int) -> OnnxForm:
    """The node that means this operator at an opset; ``present`` tells which arguments of the normal form are given.

    Raises InferenceError where the opset does not have it.
    """
    spec = operator(op)
    if spec is None:
        raise InferenceError(f"{op} has no normal form")
    try:
        schema = defs.get_schema(op, max_inclusive_version=opset)
    except defs.SchemaError as error:
        raise InferenceError(f"opset {opset} has no {op}") from error
    taken = dict(spec.form.attribute_inputs or {})
    attributes: dict[str, AttrValue] = {}
    made: dict[str, NDArray[np.int64] | NDArray[np.float32]] = {}
    for name, value in attrs.items:
        if name in schema.attributes:
            if (op, name) not in DTYPE_ATTRIBUTES:
                attributes[name] = value
            elif value:
                attributes[name] = dtype_number(str(value))
        elif name in taken.values():
            made[name] = np.asarray(value, dtype=np.float32 if isinstance(value, float) else np.int64)
    inputs: list[FormInput] = []
    argument = 0
    for position in range(len(present) + len(taken)):
        if position in taken:
            inputs.append(made.get(taken[position]))
        elif argument < len(present):
            inputs.append(argument if present[argument] else None)
            argument += 1
    while inputs and inputs[-1] is None:
        inputs.pop()
    return OnnxForm(op, attributes, tuple(inputs))
