"""Members of an e-class as ONNX text: small models over the values of their children's classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.engine.eclasses import EGraph, ENode
from superopt.errors import InferenceError
from superopt.laws.instances_content import described
from superopt.laws.runtime import model_of
from superopt.shapes import infer
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, Attrs, Node, TensorType, TermGraph, ValueType

Array = NDArray[Any]

_SHOWN = 64
"""Values of more elements than this are not written out."""


def members_text(egraph: EGraph, members: Sequence[ENode], values: Mapping[int, Array]) -> str:
    """Both members as one model in ONNX text, with the values of its inputs where they are known and small.

    What has no node of its own (an input, a constant, an opaque operator, an output of several) is told in a line.
    """
    graphs = {name: _graph(egraph, member, values) for name, member in zip(("first", "second"), members, strict=True)}
    shown = {name: graph for name, graph in graphs.items() if graph is not None}
    lines = [f"{name}: {_line(member)}" for name, member in zip(graphs, members, strict=True) if graphs[name] is None]
    if shown:
        lines.append(onnx.printer.to_text(model_of(shown, typed=True)).rstrip())
    children = sorted({child for member in members for child in member.children if child in values})
    small = {_name(child): np.asarray(values[child]) for child in children if values[child].size <= _SHOWN}
    return "\n".join([*lines, described(small)] if small else lines)


def _name(child: int) -> str:
    return f"class{child}"


def _line(member: ENode) -> str:
    children = ["_" if child == ABSENT else _name(child) for child in member.children]
    return f"{member.op}({', '.join([*children, member.attrs.text])})"


def _graph(egraph: EGraph, member: ENode, values: Mapping[int, Array]) -> TermGraph | None:
    if member.op in (INPUT, CONST, OPAQUE, PROJECT):
        return None
    children = list(dict.fromkeys(child for child in member.children if child != ABSENT))
    types: list[ValueType] = [_type(egraph, child, values) for child in children]
    nodes = [Node(INPUT, (), Attrs.of(name=_name(child))) for child in children]
    args = tuple(ABSENT if child == ABSENT else children.index(child) for child in member.children)
    if not all(isinstance(kind, TensorType) for kind in types):
        return None
    try:
        arg_types = [None if arg == ABSENT else types[arg] for arg in args]
        result = infer(member.op, member.attrs, arg_types, [arg != ABSENT for arg in args])
    except InferenceError:
        return None
    made = Node(member.op, args, member.attrs)
    if isinstance(result, tuple):
        project = Node(PROJECT, (len(nodes),), Attrs.of(index=0))
        return TermGraph((*nodes, made, project), (*types, result, result[0]), (len(nodes) + 1,))
    return TermGraph((*nodes, made), (*types, result), (len(nodes),))


def _type(egraph: EGraph, child: int, values: Mapping[int, Array]) -> ValueType:
    kind = egraph.classes[child].type
    if isinstance(kind, TensorType) and child in values:
        return TensorType(kind.dtype, values[child].shape)
    return kind
