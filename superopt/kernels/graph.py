"""Evaluation of whole term graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias, cast

from superopt.errors import EvaluationError
from superopt.kernels.algebra import Algebra, Array
from superopt.kernels.apply import apply
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, TermGraph, needed

OpaqueEvaluator: TypeAlias = Callable[[TermGraph, int, Sequence["Array | None"], Algebra], "tuple[Array | None, ...]"]
"""Computes the outputs of a term of a graph that is opaque, given the values of its arguments."""


def evaluate_graph(
    graph: TermGraph,
    inputs: Mapping[str, Array],
    algebra: Algebra,
    keep: MutableMapping[int, Array] | None = None,
    opaque: OpaqueEvaluator | None = None,
) -> list[Array]:
    """The values of the roots, in order; ``keep``, where given, receives the value of every node that is a tensor.

    ``inputs`` are plain arrays by input name. ``opaque`` computes operators that have no kernel; without it they raise
    EvaluationError. Nodes that no root needs are not computed. Values are dropped after their last use.
    """
    order = needed(graph.nodes, graph.roots)
    uses = [0] * len(graph.nodes)
    for index in order:
        for arg in graph.nodes[index].args:
            if arg != ABSENT:
                uses[arg] += 1
    for root in graph.roots:
        uses[root] += 1
    values: dict[int, tuple[Array | None, ...]] = {}
    for index in order:
        node = graph.nodes[index]
        args = [None if arg == ABSENT or node.op == PROJECT else values[arg][0] for arg in node.args]
        if node.op == INPUT:
            values[index] = (_input(graph, index, inputs, algebra),)
        elif node.op == CONST:
            values[index] = (algebra.enter(graph.constants[str(node.attrs["key"])].array()),)
        elif node.op == PROJECT:
            values[index] = (values[node.args[0]][int(str(node.attrs["index"]))],)
        elif node.op == OPAQUE:
            if opaque is None:
                operator = graph.opaque[str(node.attrs["key"])]
                raise EvaluationError(f"{operator.op_type} is opaque ({operator.reason})")
            values[index] = opaque(graph, index, args, algebra)
        else:
            values[index] = apply(node.op, node.attrs, args, algebra)
        if keep is not None and len(values[index]) == 1 and values[index][0] is not None:
            keep[index] = values[index][0]  # type: ignore[assignment]  # not None, as tested
        for arg in node.args:
            if arg != ABSENT:
                uses[arg] -= 1
                if not uses[arg]:
                    del values[arg]
    return [_tensor(graph, root, values[root][0]) for root in graph.roots]


def _input(graph: TermGraph, index: int, inputs: Mapping[str, Array], algebra: Algebra) -> Array:
    name = str(graph.nodes[index].attrs["name"])
    if name not in inputs:
        raise EvaluationError(f"input {name} is not given")
    value: Any = inputs[name]
    if isinstance(value, list):
        # A sequence is not a tensor: only opaque operators take it, and pass it on.
        return cast(Array, [algebra.enter(item) for item in value])
    return algebra.enter(value)


def _tensor(graph: TermGraph, root: int, value: Array | None) -> Array:
    if value is None:
        raise EvaluationError(f"root %{root} ({graph.nodes[root].op}) has no value")
    return value
