"""Numpy kernels of every understood operator in normal form, over float64 or modulo a prime."""

from __future__ import annotations

from superopt.kernels.algebra import (
    FLOAT64,
    PRIME,
    Algebra,
    Array,
    DivisionFault,
    Modular,
    NotInRing,
    ZeroDivisor,
    is_float,
    modular,
)
from superopt.kernels.apply import apply
from superopt.kernels.graph import OpaqueEvaluator, evaluate_graph
from superopt.kernels.pointwise import dtype_of

__all__ = [
    "FLOAT64",
    "PRIME",
    "Algebra",
    "Array",
    "DivisionFault",
    "Modular",
    "NotInRing",
    "OpaqueEvaluator",
    "ZeroDivisor",
    "apply",
    "dtype_of",
    "evaluate_graph",
    "is_float",
    "modular",
]
