"""How far rounding can take what a graph computes from its value over the reals: running error analysis, node by node.

Every node gets, beside its value in float64, a bound on the error that it has when all is computed with a unit
roundoff u: what it inherits from its arguments, by the operator's own derivative, and what it adds. A sum of n products
adds at most n * u * (the sum of the absolute products), in whatever order it is formed (Higham, Accuracy and Stability
of Numerical Algorithms, 2nd edition, section 3.1). So a bound follows from reduction lengths and magnitudes; no
tolerance is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from superopt.kernels import FLOAT64, evaluate_graph
from superopt.laws.error_steps import DISCRETE, ROUNDOFF, Array, Call, Float, added, few_bits, moves, of_rounding
from superopt.operators import named
from superopt.terms import ABSENT, CONST, INPUT, PROJECT, Node, TensorType, TermGraph

__all__ = [
    "ROUNDOFF", "Bounded", "Traced", "bounded", "computed_in", "few_bits", "rounds_alike", "rounds_each", "trace",
]  # fmt: skip

_ROUNDED_ALIKE = DISCRETE | {INPUT, CONST, PROJECT, "DequantizeLinear"} | frozenset(named(lambda form: form.exact))
_ROUNDED_ONCE = frozenset({"Add", "Sub", "Mul", "Div", "Reciprocal", "Sqrt"})


def rounds_alike(graph: TermGraph) -> bool:
    """Whether every runtime computes the same: floats come from rounding to a type alone, which has one result, and so
    has the product of a scale and an integer."""
    kinds = (kind if isinstance(kind, tuple) else (kind,) for kind in graph.types)
    floats = [any(isinstance(part, TensorType) and part.dtype in ROUNDOFF for part in parts) for parts in kinds]
    return all(
        node.op in _ROUNDED_ALIKE or moves(node)
        for node, float_valued in zip(graph.nodes, floats, strict=True)
        if float_valued
    )


def rounds_each(graph: TermGraph) -> bool:
    """Whether every operator has one result by the standard of arithmetic: what its real value is rounded to."""
    return all(node.op in _ROUNDED_ALIKE or node.op in _ROUNDED_ONCE or moves(node) for node in graph.nodes)


def computed_in(graph: TermGraph) -> frozenset[tuple[str, str]]:
    """The operators that have no such one result, and the float types of what they come to."""
    return frozenset(
        (node.op, kind.dtype)
        for node, kind in zip(graph.nodes, graph.types, strict=True)
        if isinstance(kind, TensorType)
        and kind.dtype in ROUNDOFF
        and not (node.op in _ROUNDED_ALIKE or node.op in _ROUNDED_ONCE or moves(node))
    )


@dataclass(frozen=True)
class Bounded:
    """A root's value in float64, and how far from it a computation with rounding may be, element by element.

    ``peak`` is the largest finite magnitude on the way: what may have overflowed in a shorter type. ``strayed`` tells
    whether rounding or the range of float64 explains a NaN or an infinity on the way: an operator took finite arguments
    beyond the largest number, or to where its result is one within their bounds (the root of a difference that is zero
    but for rounding). The pole of an operator, and what is not in its domain, are explained by neither.
    """

    value: Array
    bound: Float
    peak: float
    strayed: bool = False


Traced: TypeAlias = tuple[Sequence[Array], Mapping[int, Array]]
"""The values of a graph's roots, and of all its nodes that are tensors, in float64."""


def trace(graph: TermGraph, inputs: Mapping[str, Array]) -> Traced:
    """What inputs come to. Raises EvaluationError where they come to nothing."""
    keep: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        return evaluate_graph(graph, inputs, FLOAT64, keep), keep


def bounded(
    graph: TermGraph, inputs: Mapping[str, Array], roundoff: float | None = None, rounded: frozenset[str] = frozenset(),
    traced: Traced | None = None,
) -> list[Bounded]:  # fmt: skip
    """The roots' values with bounds; ``roundoff`` stands for every float type's own (None: as each type has it).
    ``traced`` is what these inputs come to, where that is known already.

    Inputs named in ``rounded`` stand for any numbers that round to them in their type, as float attributes and the
    constants of the graph do, unless they have few bits.
    """
    values, keep = traced or trace(graph, inputs)
    with np.errstate(all="ignore"):
        errors: dict[int, tuple[Float, ...]] = {}
        for index, node in enumerate(graph.nodes):
            if node.op == PROJECT and index in keep:
                errors[index] = (errors[node.args[0]][int(str(node.attrs["index"]))],)
            elif index in keep or (all(arg in keep or arg == ABSENT for arg in node.args) and node.op != PROJECT):
                errors[index] = _error(graph, index, keep, errors, roundoff, rounded)
        finite = [array[np.isfinite(array)] for array in keep.values() if array.dtype.kind == "f"]
        peak = max((float(np.abs(array).max(initial=0.0)) for array in finite), default=0.0)
        strayed = any(_strays(graph.nodes[index], keep, index, errors[index][0]) for index in keep if index in errors)
    return [Bounded(value, errors[root][0], peak, strayed) for value, root in zip(values, graph.roots, strict=True)]


_POLES = frozenset({"Log", "Reciprocal", "Atanh", "ReduceLogSum", "Tan"})
"""Operators that have poles: an infinity that they make of finite numbers is no overflow (Div and Pow: by zero)."""


def _strays(node: Node, keep: Mapping[int, Array], index: int, error: Float) -> bool:
    """Whether rounding or range explains what is not finite in a node's value where its arguments are."""
    value = keep[index]
    if value.dtype.kind != "f" or node.op in (INPUT, CONST, PROJECT) or np.all(np.isfinite(value)):
        return False
    args = [keep[arg] for arg in node.args if arg != ABSENT]
    finite = [np.isfinite(arg) for arg in args if arg.dtype.kind == "f"]
    try:
        sound = np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*finite)), value.shape) if finite else True
    except ValueError:
        sound = all(np.all(one) for one in finite)
    made = ~np.isfinite(value) & sound
    if np.any(made & np.isposinf(error)):
        return True
    overflown = made & np.isinf(value)
    if node.op in ("Div", "Pow"):
        overflown &= np.broadcast_to(args[1 if node.op == "Div" else 0] != 0, value.shape)
    return node.op not in _POLES and bool(np.any(overflown))


def _error(
    graph: TermGraph, index: int, keep: Mapping[int, Array], errors: Mapping[int, tuple[Float, ...]],
    roundoff: float | None, rounded: frozenset[str],
) -> tuple[Float, ...]:  # fmt: skip
    node = graph.nodes[index]
    kind = graph.types[index]
    first = kind[0] if isinstance(kind, tuple) else kind
    dtype = first.dtype if isinstance(first, TensorType) else ""
    unit = ROUNDOFF[dtype] if roundoff is None and dtype in ROUNDOFF else roundoff or 0.0
    if dtype not in ROUNDOFF:
        unit = 0.0
    if node.op == INPUT:
        return (of_rounding(keep[index], dtype) if node.attrs["name"] in rounded else np.zeros(keep[index].shape),)
    if node.op == CONST:
        return (of_rounding(keep[index], dtype),)
    args = [None if arg == ABSENT else keep[arg] for arg in node.args]
    errs = [None if arg == ABSENT else errors[arg][0] for arg in node.args]
    return added(Call(node, args, errs, unit, keep.get(index)), dtype)
