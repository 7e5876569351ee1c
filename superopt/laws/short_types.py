"""What a graph comes to where every value is rounded to its type.

Runtimes that lack an operator in a short type compute it, and what follows, in a longer one: they do not show what is
lost between two of them, and other runtimes lose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from superopt.kernels import FLOAT64, apply
from superopt.operators import numpy_dtype
from superopt.terms import ABSENT, CONST, INPUT, PROJECT, TensorType, TermGraph, ValueType, needed

Array = NDArray[np.generic]

SHORT = ("float16", "bfloat16")


def is_short(graph: TermGraph) -> bool:
    """Whether some value is of a short type."""
    parts = (part for kind in graph.types for part in (kind if isinstance(kind, tuple) else (kind,)))
    return any(isinstance(part, TensorType) and part.dtype in SHORT for part in parts)


def rounded(graph: TermGraph, inputs: Mapping[str, Array]) -> Sequence[Array]:
    """The roots' values, those of short types in float32. Raises EvaluationError where there are none."""
    values: dict[int, tuple[Array, ...]] = {}
    for index in needed(graph.nodes, graph.roots):
        node, kind = graph.nodes[index], graph.types[index]
        made: tuple[Array, ...]
        if node.op == INPUT:
            made = (FLOAT64.enter(inputs[str(node.attrs["name"])]),)
        elif node.op == CONST:
            made = (FLOAT64.enter(graph.constants[str(node.attrs["key"])].array()),)
        elif node.op == PROJECT:
            made = (values[node.args[0]][int(str(node.attrs["index"]))],)
        else:
            args = [None if arg == ABSENT else values[arg][0] for arg in node.args]
            made = tuple(_to(part, place, kind) for place, part in enumerate(apply(node.op, node.attrs, args, FLOAT64)))
        values[index] = made
    return [_plain(values[root][0], graph.types[root]) for root in graph.roots]


def _to(value: Array, place: int, kind: ValueType) -> Array:
    part = kind[place] if isinstance(kind, tuple) else kind
    if value.dtype != np.float64 or not isinstance(part, TensorType) or part.dtype not in (*SHORT, "float32"):
        return value
    with np.errstate(all="ignore"):
        return np.asarray(value.astype(numpy_dtype(part.dtype)).astype(np.float64))


def _plain(value: Array, kind: ValueType) -> Array:
    dtype = kind.dtype if isinstance(kind, TensorType) else ""
    return np.asarray(value, np.float32) if dtype in (*SHORT, "float32") else value
