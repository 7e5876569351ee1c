"""Graphs over inputs of other types: the same operators, where they take those."""

from __future__ import annotations

from collections.abc import Mapping

from superopt.errors import InferenceError
from superopt.shapes import infer
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, Dim, TensorType, TermGraph, ValueType

UNKNOWN_SIZE = 3
"""What a dimension that nothing is known of is taken for."""


def retyped(graph: TermGraph, types: Mapping[str, ValueType]) -> TermGraph:
    """The graph with its inputs, by name, of these types. Raises InferenceError where an operator does not take
    them."""
    found: list[ValueType] = []
    for node, kind in zip(graph.nodes, graph.types, strict=True):
        if node.op == INPUT:
            found.append(types[str(node.attrs["name"])])
        elif node.op == CONST:
            found.append(graph.constants[str(node.attrs["key"])].type)
        elif node.op == OPAQUE:
            found.append(kind)
        else:
            args = [None if arg == ABSENT else found[arg] for arg in node.args]
            found.append(infer(node.op, node.attrs, args, [arg != ABSENT for arg in node.args]))
    return TermGraph(graph.nodes, tuple(found), graph.roots, graph.constants, graph.opaque)


def input_types(graph: TermGraph) -> dict[str, ValueType]:
    """The types of a graph's inputs by name."""
    pairs = zip(graph.nodes, graph.types, strict=True)
    return {str(node.attrs["name"]): kind for node, kind in pairs if node.op == INPUT}


def with_numbers(kind: ValueType, sizes: Mapping[str, int]) -> ValueType:
    """A type whose dimensions are all numbers; symbols have these sizes."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(_number(dim, sizes) for dim in kind.shape))


def _number(dim: Dim, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return sizes.get(dim, UNKNOWN_SIZE) if isinstance(dim, str) else UNKNOWN_SIZE


def alike(before: TermGraph, after: TermGraph) -> bool:
    """Whether the roots of two graphs have the same types."""
    return [before.types[root] for root in before.roots] == [after.types[root] for root in after.roots]


def both(before: TermGraph, after: TermGraph, types: Mapping[str, ValueType]) -> tuple[TermGraph, TermGraph] | None:
    """Both sides over inputs of these types; None where one does not take them, or they do not give the same type."""
    try:
        first, second = retyped(before, types), retyped(after, types)
    except InferenceError:
        return None
    return (first, second) if alike(first, second) else None
