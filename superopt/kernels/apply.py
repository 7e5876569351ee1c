"""One operator applied to arrays."""

from __future__ import annotations

import numpy as np

from superopt.errors import EvaluationError
from superopt.kernels import (
    convolution,
    movement,
    normalization,
    pointwise,
    pooling,
    quantization,
    reduction,
    resizing,
    spectral,
)
from superopt.kernels.algebra import Algebra, Array
from superopt.kernels.registry import KERNELS, Args
from superopt.terms import Attrs

FAMILIES = (convolution, movement, normalization, pointwise, pooling, quantization, reduction, resizing, spectral)
"""The modules whose import fills the registry."""


def apply(op: str, attrs: Attrs, args: Args, algebra: Algebra) -> tuple[Array, ...]:
    """The outputs of an operator in normal form; ``None`` stands for an argument that is absent.

    Float arguments must be carriers of the algebra (``algebra.enter``). Raises EvaluationError where the operator
    cannot be applied, NotInRing where a modular algebra does not have it.
    """
    compute = KERNELS.get(op)
    if compute is None:
        raise EvaluationError(f"{op} has no kernel")
    try:
        with np.errstate(all="ignore"):
            result = compute(algebra, attrs, args)
    except EvaluationError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
        shapes = ", ".join("-" if arg is None else f"{arg.dtype}{list(arg.shape)}" for arg in args)
        raise EvaluationError(f"{op}({shapes}) {attrs}: {error}") from error
    return result if isinstance(result, tuple) else (result,)
