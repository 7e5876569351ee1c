"""Frozen records of what a model computes: types, attributes, constants, and graphs of operators in normal form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

Dim: TypeAlias = int | str | None
"""A dimension: an integer, a symbol (equal only to itself), or unknown."""

AttrValue: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

ABSENT = -1
"""The argument index of an optional input that is not given."""

INPUT, CONST, OPAQUE, PROJECT = "Input", "Const", "Opaque", "Project"
"""The four operators that are not ONNX's.

``Input(name=...)``: a graph input, or an initializer that a caller may override. ``Const(key=...)``: a constant by the
hash of its content. ``Opaque(key=...)``: an operator that is left alone, always a bundle of outputs.
``Project(bundle, index=...)``: one output of an operator with several.
"""


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor: ONNX's element type in lower case (``float32``, ``int64``, ``bool``, ``string``, ...) and
    its dimensions, or None where the rank is not known."""

    dtype: str
    shape: tuple[Dim, ...] | None

    @property
    def text(self) -> str:
        """The canonical text: ``float32[1,$batch,?]``, ``int64[]`` for a scalar, ``float32[*]`` where the rank is
        unknown."""
        if self.shape is None:
            return f"{self.dtype}[*]"
        return f"{self.dtype}[{','.join(_dim_text(dim) for dim in self.shape)}]"

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is an integer."""
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)

    @property
    def size(self) -> int | None:
        """The number of elements, or None where it is not known."""
        if self.shape is None:
            return None
        count = 1
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            count *= dim
        return count

    def __str__(self) -> str:
        return self.text


ValueType: TypeAlias = TensorType | tuple["TensorType | None", ...] | None
"""The type of a term: a tensor, a bundle (the outputs of an operator with several), or not known (also: not a
tensor)."""


def _dim_text(dim: Dim) -> str:
    if dim is None:
        return "?"
    return str(dim) if isinstance(dim, int) else "$" + quote(dim, safe="")


def type_text(value_type: ValueType) -> str:
    """The canonical text of any type: ``?`` where it is not known, ``(a;b)`` for a bundle."""
    if value_type is None:
        return "?"
    if isinstance(value_type, tuple):
        return f"({';'.join(type_text(part) for part in value_type)})"
    return value_type.text


@lru_cache(maxsize=1 << 16)
def parse_type(text: str) -> ValueType:
    """The type whose canonical text this is."""
    if text == "?":
        return None
    if text.startswith("("):
        inner = text[1:-1]
        return tuple(_parse_tensor(part) for part in inner.split(";")) if inner else ()
    return _parse_tensor(text)


def _parse_tensor(text: str) -> TensorType | None:
    if text == "?":
        return None
    dtype, _, rest = text.partition("[")
    body = rest[:-1]
    if body == "*":
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(_parse_dim(part) for part in body.split(",")) if body else ())


def _parse_dim(text: str) -> Dim:
    if text == "?":
        return None
    return unquote(text[1:]) if text.startswith("$") else int(text)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass(frozen=True, slots=True)
class Attrs:
    """An immutable mapping of attribute names to values, kept as its canonical text (JSON with sorted keys).

    Equal when the texts are: 0.0 and -0.0, and 1 and 1.0, differ.
    """

    text: str = "{}"

    @staticmethod
    def of(values: Mapping[str, AttrValue] | None = None, /, **named: AttrValue) -> Attrs:
        merged = {**(values or {}), **named}
        return Attrs(_CANONICAL.encode(merged))

    @property
    def items(self) -> tuple[tuple[str, AttrValue], ...]:
        """Pairs of name and value, in order of name."""
        return tuple(_parse_attrs(self.text).items())

    def get(self, name: str, default: AttrValue | None = None) -> AttrValue | None:
        return _parse_attrs(self.text).get(name, default)

    def __getitem__(self, name: str) -> AttrValue:
        return _parse_attrs(self.text)[name]

    def __contains__(self, name: object) -> bool:
        return name in _parse_attrs(self.text)

    def __iter__(self) -> Iterator[str]:
        return iter(_parse_attrs(self.text))

    def replaced(self, **named: AttrValue) -> Attrs:
        """These attributes with some set to other values."""
        return Attrs.of({**_parse_attrs(self.text), **named})

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=1 << 16)
def _parse_attrs(text: str) -> Mapping[str, AttrValue]:
    loaded = json.loads(text)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in sorted(loaded.items())}


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor whose value is known; ``load`` reads it (external data is mapped, not copied)."""

    key: str
    type: TensorType
    load: Callable[[], NDArray[np.generic]] = field(repr=False)

    def array(self) -> NDArray[np.generic]:
        """The value, with numpy's or ml_dtypes' dtype of the element type; strings as an object array."""
        return self.load()

    @property
    def nbytes(self) -> int:
        """The size of the value in bytes, as it is stored in a model (strings: a rough count)."""
        size = self.type.size or 0
        return (size * DTYPE_BITS.get(self.type.dtype, 128) + 7) // 8


DTYPE_BITS: Mapping[str, int] = {
    "bool": 8, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4e2m1": 4, "int8": 8, "uint8": 8,
    "float8e4m3fn": 8, "float8e4m3fnuz": 8, "float8e5m2": 8, "float8e5m2fnuz": 8, "float8e8m0": 8,
    "int16": 16, "uint16": 16, "float16": 16, "bfloat16": 16, "int32": 32, "uint32": 32, "float32": 32,
    "int64": 64, "uint64": 64, "float64": 64, "complex64": 64, "complex128": 128,
}  # fmt: skip
"""Bits an element takes in a model file, by element type."""


def constant_key(dtype: str, shape: Iterable[int], *data: bytes | memoryview) -> str:
    """The name of a constant: a hash of element type, shape and bytes, so that -0.0 and 0.0, or two NaNs, differ."""
    return streamed_key(dtype, shape, data)


def streamed_key(dtype: str, shape: Iterable[int], blocks: Iterable[bytes | memoryview]) -> str:
    """``constant_key`` of bytes that come in blocks."""
    digest = hashlib.sha256(f"{dtype}[{','.join(map(str, shape))}]".encode())
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Node:
    """An operator applied to earlier nodes of its graph (by index; ABSENT for an optional input that is not given)."""

    op: str
    args: tuple[int, ...] = ()
    attrs: Attrs = Attrs()


@dataclass(frozen=True)
class TermGraph:
    """What a model computes, in normal form.

    ``nodes`` are in topological order and no two are equal. ``types`` stands beside them. ``roots`` are the nodes that
    must be computed, in order. ``constants`` holds the value of every ``Const`` by key; ``opaque`` what every
    ``Opaque`` key stands for (a serialized NodeProto without the names of its values, and the opset version that it is
    meant in).
    """

    nodes: tuple[Node, ...]
    types: tuple[ValueType, ...]
    roots: tuple[int, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    opaque: Mapping[str, OpaqueOperator] = field(default_factory=dict)

    def text(self) -> str:
        """One line a node: ``%3: float32[1,8] = Relu(%2)``; the roots last."""
        lines = []
        for index, (node, value_type) in enumerate(zip(self.nodes, self.types, strict=True)):
            args = ["_" if arg == ABSENT else f"%{arg}" for arg in node.args]
            args += [f"{name}={json.dumps(value)}" for name, value in node.attrs.items]
            lines.append(f"%{index}: {type_text(value_type)} = {node.op}({', '.join(args)})")
        lines.append("roots " + " ".join(f"%{root}" for root in self.roots))
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class OpaqueOperator:
    """An operator that is left alone, and why.

    ``node`` is a serialized NodeProto without name, inputs and outputs. ``deterministic`` is false for what may give
    another result for the same inputs; such an operator is never merged with another, folded or duplicated.
    """

    domain: str
    op_type: str
    version: int
    node: bytes
    outputs: int
    deterministic: bool
    reason: str


def needed(nodes: Sequence[Node], roots: Iterable[int], known: Container[int] = ()) -> list[int]:
    """The nodes that these depend on, themselves included, in topological order; nothing beyond those in ``known``."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        index = stack.pop()
        if index in known:
            continue
        for arg in nodes[index].args:
            if arg != ABSENT and arg not in seen:
                seen.add(arg)
                stack.append(arg)
    return sorted(seen)


def constant_nodes(graph: TermGraph, running: Container[str] = ()) -> tuple[bool, ...]:
    """Which nodes of a graph need no input of the model and give the same each time; none of an operator that is
    ``running`` whatever it is applied to."""
    constant: list[bool] = []
    for node in graph.nodes:
        varies = node.op == INPUT or node.op in running
        if node.op == OPAQUE:
            varies = not graph.opaque[str(node.attrs["key"])].deterministic
        constant.append(not varies and all(constant[arg] for arg in node.args if arg != ABSENT))
    return tuple(constant)
