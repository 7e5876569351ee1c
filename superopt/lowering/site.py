"""A node of a model on its way to the normal form: attributes complete, inputs as terms, what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import defs

from superopt.operators import DTYPE_ATTRIBUTES, Operator, dtype_name, operator
from superopt.terms import ABSENT, DTYPE_BITS, AttrValue, Dim, TensorType, ValueType


class NotNormal(Exception):
    """This node has no normal form, for this reason: it is left alone. Never leaves lowering."""


@dataclass
class Site:
    """A node whose normal form is being made: functions per operator change ``attrs`` and ``args``.

    ``args`` are terms in ONNX's order, ABSENT where not given. ``constant`` reads a term's value (None: not constant);
    ``make`` turns a value into a term.
    """

    node: onnx.NodeProto
    operator: Operator
    version: int
    opset: int
    attrs: dict[str, AttrValue]
    args: list[int]
    output: TensorType | None
    type_of: Callable[[int], ValueType] = field(repr=False)
    constant: Callable[[int], NDArray[np.generic] | None] = field(repr=False)
    make: Callable[[NDArray[np.generic]], int] = field(repr=False)

    def given(self, position: int) -> bool:
        return position < len(self.args) and self.args[position] != ABSENT

    def type(self, position: int) -> TensorType:
        """The type of an argument."""
        if not self.given(position):
            raise NotNormal(f"input {position} is not given")
        known = self.type_of(self.args[position])
        if not isinstance(known, TensorType):
            raise NotNormal(f"type of input {position} not known")
        return known

    def shape(self, position: int = 0) -> tuple[Dim, ...]:
        shape = self.type(position).shape
        if shape is None:
            raise NotNormal(f"rank of input {position} not known")
        return shape

    def rank(self, position: int = 0) -> int:
        return len(self.shape(position))

    def dim(self, axis: int, position: int = 0) -> int:
        size = self.shape(position)[axis]
        if not isinstance(size, int):
            raise NotNormal(f"axis {axis} of input {position} not known")
        return size

    def axis(self, value: int, rank: int | None = None) -> int:
        """An axis counted from the front; ``rank`` is the first input's unless given."""
        if value >= 0 and rank is None and self.type(0).shape is None:
            return value
        size = self.rank() if rank is None else rank
        if not -size <= value < size:
            raise NotNormal(f"axis {value} in rank {size}")
        return value % size

    def value(self, position: int) -> NDArray[np.generic]:
        """The content of an argument that has to be constant."""
        if not self.given(position):
            raise NotNormal(f"input {position} is not given")
        array = self.constant(self.args[position])
        if array is None:
            raise NotNormal(f"input {position} is not constant")
        return array

    def number(self, name: str) -> int:
        value = self.attrs[name]
        if not isinstance(value, int):
            raise NotNormal(f"attribute {name} is not an integer")
        return value

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, or None where the attribute is not given."""
        value = self.attrs.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise NotNormal(f"{name} is not a list of integers")
        return tuple(int(item) for item in value)


def read_attributes(node: onnx.NodeProto, spec: Operator, opset: int) -> tuple[dict[str, AttrValue], int]:
    """A node's attributes, complete with the defaults of its opset, then of the newest; and the operator's version.

    Raises NotNormal where an attribute is not the operator's, or not of its kind.
    """
    known = _attributes(spec.name, opset)
    attrs = dict(known.defaults)
    for attribute in node.attribute:
        if attribute.ref_attr_name or known.kinds.get(attribute.name) != attribute.type:
            raise NotNormal(f"attribute {attribute.name} is not one that opset {opset} has")
        value = attribute_value(attribute)
        if (spec.name, attribute.name) in DTYPE_ATTRIBUTES:
            if attribute.i not in onnx.TensorProto.DataType.values():
                raise NotNormal(f"attribute {attribute.name} is no element type")
            value = dtype_name(int(attribute.i)) if attribute.i else ""
        attrs[attribute.name] = value
    return attrs, known.version


@dataclass(frozen=True)
class _Attributes:
    """What an operator's schema at an opset says: kinds of attributes, defaults with the newest opset's, version."""

    kinds: Mapping[str, int]
    defaults: Mapping[str, AttrValue]
    version: int


@cache
def _attributes(name: str, opset: int) -> _Attributes:
    try:
        schema = defs.get_schema(name, max_inclusive_version=opset)
    except defs.SchemaError:
        raise NotNormal(f"opset {opset} has no {name}") from None
    if schema.deprecated:
        raise NotNormal(f"{name} is deprecated at opset {opset}")
    spec = operator(name)
    defaults = dict(spec.defaults.items) if spec is not None else {}
    for key, known in schema.attributes.items():
        if known.default_value.type and (name, key) not in DTYPE_ATTRIBUTES:
            defaults[key] = attribute_value(known.default_value)
    kinds = {key: attribute_kind(known) for key, known in schema.attributes.items()}
    return _Attributes(kinds, defaults, int(schema.since_version))


def attribute_kind(known: defs.OpSchema.Attribute) -> int:
    """The number that a NodeProto has for the kind of a schema's attribute."""
    return int(onnx.AttributeProto.AttributeType.Value(str(known.type).rpartition(".")[2]))


def attribute_value(attribute: onnx.AttributeProto) -> AttrValue:
    """The Python value of an attribute of a plain kind; NotNormal for tensors, graphs and types."""
    kinds = onnx.AttributeProto
    if attribute.type == kinds.INT:
        return int(attribute.i)
    if attribute.type == kinds.FLOAT:
        return float(attribute.f)
    if attribute.type == kinds.STRING:
        return _text(attribute.s)
    if attribute.type == kinds.INTS:
        return tuple(attribute.ints)
    if attribute.type == kinds.FLOATS:
        return tuple(attribute.floats)
    if attribute.type == kinds.STRINGS:
        return tuple(_text(item) for item in attribute.strings)
    raise NotNormal(f"attribute {attribute.name} is not plain")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotNormal("an attribute is not text") from None


def modelled(known: ValueType) -> bool:
    """Whether values of this type can be arguments and results in the normal form."""
    return isinstance(known, TensorType) and known.dtype in DTYPE_BITS
