"""A model while it is drawn: values with their types, nodes, constants of many kinds, inputs with symbolic sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

T = TypeVar("T")

LARGEST = 6000
"""The most elements that a value may have."""

DTYPES = {"float32": np.float32, "float16": np.float16, "float64": np.float64,
          "int64": np.int64, "int32": np.int32, "uint8": np.uint8, "int8": np.int8, "bool": np.bool_}  # fmt: skip
FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int64", "int32")

CONTENTS = (
    "normal",
    "normal",
    "normal",
    "positive",
    "zeros",
    "ones",
    "same",
    "small",
    "tiny",
    "negative zeros",
    "signs",
)


def number(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[dtype])))


@dataclass(frozen=True)
class Value:
    """A value by name, with the type and shape that it has in the first feed."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    constant: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


class Dropped(Exception):
    """A node that cannot be: the draft goes on without it."""


@dataclass
class Draft:
    """Draws from hypothesis; every name is new."""

    choose: Callable[[Any], Any]
    opset: int
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    count: int = 0
    prefix: str = ""

    def integer(self, low: int, high: int) -> int:
        return int(self.choose(st.integers(low, high)))

    def one_of(self, choices: Sequence[T]) -> T:
        picked: T = self.choose(st.sampled_from(choices))
        return picked

    def chance(self, percent: int) -> bool:
        """Shrinks to no."""
        return self.integer(0, 99) >= 100 - percent

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{self.prefix}{stem}{self.count}"

    def dim(self) -> int:
        return self.one_of((3, 1, 2, 4, 5, 6, 8, 17)) if self.chance(80) else self.one_of((1, 2))

    def shape(self, rank: int) -> tuple[int, ...]:
        shape = tuple(self.dim() for _ in range(rank))
        return shape if math.prod(shape) <= LARGEST else tuple(min(dim, 4) for dim in shape)

    def input(self, dtype: str, shape: tuple[int, ...]) -> Value:
        made = Value(self.name("x"), dtype, shape)
        self.inputs.append(made)
        self.values.append(made)
        return made

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """A value that was made before, mostly one of the last."""
        found = [value for value in self.values if fits(value)]
        if not found:
            raise Dropped
        if self.chance(70):
            return found[-1]
        return self.one_of(found[::-1])

    def constant(self, shape: Sequence[int], dtype: str, content: str | None = None) -> Value:
        """A constant, in an initializer or a Constant node; sometimes one that is there already."""
        old = [v for v in self.values if v.constant and v.shape == tuple(shape) and v.dtype == dtype]
        if old and content is None and self.chance(20):
            return self.one_of(old)
        return self.given(self.array(shape, dtype, content or self.one_of(CONTENTS)))

    def given(self, array: np.ndarray[Any, Any]) -> Value:
        made = Value(self.name("c"), array.dtype.name, array.shape, True)
        tensor = numpy_helper.from_array(array, made.name)
        if self.chance(25):
            self.nodes.append(helper.make_node("Constant", [], [made.name], value=tensor))
        else:
            self.initializers.append(tensor)
        self.values.append(made)
        return made

    def array(self, shape: Sequence[int], dtype: str, content: str) -> np.ndarray[Any, Any]:
        dice = np.random.default_rng(self.integer(0, 999))
        kind = np.dtype(DTYPES[dtype])
        if kind.kind == "b":
            return np.asarray(dice.random(tuple(shape)) < 0.5)
        if kind.kind in "iu":
            low, high = {"zeros": (0, 1), "ones": (1, 2), "positive": (1, 5)}.get(content, (-4, 5))
            low = max(low, 0) if kind.kind == "u" else low
            return np.asarray(dice.integers(low, high, tuple(shape)), kind)
        normal = dice.standard_normal(tuple(shape))
        made = {
            "normal": normal,
            "positive": np.abs(normal) + 0.25,
            "zeros": np.zeros_like(normal),
            "ones": np.ones_like(normal),
            "same": np.full_like(normal, float(dice.choice([0.5, 2.0, -1.0, 3.0, 6.0]))),
            "small": np.round(normal),
            "tiny": normal * (2.0**-20 if dtype == "float16" else 2.0**-130),
            "negative zeros": np.full_like(normal, -0.0),
            "signs": np.copysign(1.0, normal),
        }[content]
        return np.asarray(made, kind)

    def ints(self, values: Sequence[int]) -> str:
        """The name of a constant of whole numbers, for axes and sizes."""
        return self.given(np.asarray(values, np.int64)).name

    def add(self, op: str, inputs: Sequence[Value | str], outputs: int = 1, **attributes: Any) -> list[Value]:
        """A node, if ONNX's own inference accepts it and says what comes out. Raises Dropped."""
        names = [item if isinstance(item, str) else item.name for item in inputs]
        attributes = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(op, names, [self.name("v") for _ in range(outputs)], **attributes)
        known = {value.name: value for value in self.values}
        made = [
            Value(name, dtype, shape, all(not name or known[name].constant for name in names))
            for name, (dtype, shape) in zip(node.output, self.inferred(node, known), strict=True)
        ]
        self.nodes.append(node)
        self.values += made
        return made

    def inferred(self, node: onnx.NodeProto, known: Mapping[str, Value]) -> list[tuple[str, tuple[int, ...]]]:
        wanted = dict.fromkeys(name for name in node.input if name)
        stored = {tensor.name: tensor for tensor in self.initializers}
        stored |= {made.output[0]: made.attribute[0].t for made in self.nodes if made.op_type == "Constant"}
        graph = helper.make_graph(
            [node],
            "one",
            [
                helper.make_tensor_value_info(name, number(known[name].dtype), known[name].shape)
                for name in wanted
                if name not in stored
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output],
        )
        for name in wanted:
            if name in stored:
                graph.initializer.append(stored[name])
                graph.initializer[-1].name = name
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        try:
            result = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
        except Exception:  # onnx raises what its C++ raises
            raise Dropped from None
        found = []
        for item in result.graph.output:
            tensor = item.type.tensor_type
            if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
                raise Dropped
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
            shape = tuple(dim.dim_value for dim in tensor.shape.dim)
            if dtype not in DTYPES or math.prod(shape) > LARGEST or min(shape, default=1) < 1:
                raise Dropped
            found.append((dtype, shape))
        return found
