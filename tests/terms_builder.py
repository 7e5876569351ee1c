"""Term graphs written down in tests: nodes by name of operator, types inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from superopt.models.tensors import constant_of_array
from superopt.shapes import infer_node
from superopt.terms import ABSENT, CONST, INPUT, Attrs, AttrValue, Constant, Node, TermGraph, ValueType, parse_type


class TermsBuilder:
    """Adds nodes and returns their numbers."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.types: list[ValueType] = []
        self.constants: dict[str, Constant] = {}

    def input(self, name: str, type_text: str) -> int:
        return self._add(Node(INPUT, (), Attrs.of(name=name)), parse_type(type_text))

    def constant(self, array: NDArray[np.generic] | float | Sequence[float], dtype: str = "float32") -> int:
        constant = constant_of_array(np.asarray(array, dtype=dtype))
        self.constants[constant.key] = constant
        return self._add(Node(CONST, (), Attrs.of(key=constant.key)), constant.type)

    def node(self, op: str, *args: int | None, **attrs: AttrValue) -> int:
        node = Node(op, tuple(ABSENT if arg is None else arg for arg in args), Attrs.of(attrs))
        return self._add(node, infer_node(node, self.types))

    def conv(self, x: int, w: int, b: int, **attrs: AttrValue) -> int:
        defaults: Mapping[str, AttrValue] = {
            "group": 1, "dilations": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0),
        }  # fmt: skip
        return self.node("Conv", x, w, b, **{**defaults, **attrs})

    def graph(self, *roots: int) -> TermGraph:
        return TermGraph(tuple(self.nodes), tuple(self.types), roots, self.constants)

    def _add(self, node: Node, value_type: ValueType) -> int:
        if node in self.nodes:
            return self.nodes.index(node)
        self.nodes.append(node)
        self.types.append(value_type)
        return len(self.nodes) - 1
