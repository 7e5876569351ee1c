"""How far rounding can carry a float64 evaluation from the real value: a running bound, one number an array.

Standard error analysis (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, chapters 2 and 3): u = 2^-53,
a sum of n terms in any order is off by at most n u times the sum of magnitudes, up to second order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from superopt.kernels import Array
from superopt.operators import named
from superopt.terms import Attrs

UNIT = 2.0**-53

_EXACT = frozenset(named(lambda form: form.made in ("moved", "chosen") or form.exact))
"""Operators that round nothing, and carry a difference over no larger than it was."""

_GENTLE = frozenset("Tanh Sigmoid Erf Sin Cos Atan Softplus Softsign HardSigmoid Asinh".split())
"""Functions whose derivative is nowhere above 1.13 (that of erf at 0), computed within 4 u of their value."""

_DISCRETE = frozenset(named(lambda form: form.discrete))

_SUMS = frozenset(named(lambda form: form.made == "summed")) | {"ReduceL1"}

_PRODUCTS = frozenset(named(lambda form: form.made == "bilinear"))


def rounding_bound(
    op: str, attrs: Attrs, args: Sequence[Array | None], bounds: Sequence[float], outputs: Sequence[Array]
) -> float:
    """A bound on the error of an operator's outputs, given bounds on those of its arguments; infinite where not known.

    Integers and booleans are exact: where a float decides one (a comparison, a rounding), a tie can go either way, and
    no bound is known.
    """
    floats = [(np.asarray(a), e) for a, e in zip(args, bounds, strict=True) if a is not None and a.dtype.kind == "f"]
    if not floats:
        return 0.0 if all(out.dtype.kind != "f" for out in outputs) else UNIT * largest(outputs[0])
    out = largest(outputs[0]) if outputs else 0.0
    error = max(e for _, e in floats)
    if op in _DISCRETE:
        return math.inf if error else 0.0
    if op == "ScatterND" and attrs.get("reduction") in ("add", "mul"):
        return math.inf
    if op in _EXACT:
        return error
    if op == "LeakyRelu":
        return error * max(1.0, abs(float(str(attrs["alpha"])))) + UNIT * out
    if op == "PRelu" and len(floats) == 2:
        (x, e), (slope, f) = floats
        return e * max(1.0, largest(slope) + f) + f * largest(x) + UNIT * out
    if op in _GENTLE:
        return 1.13 * error + 4 * UNIT * out
    if op in ("Add", "Sub", "Sum", "Mean"):
        return sum(e for _, e in floats) + len(floats) * UNIT * sum(largest(a) for a, _ in floats)
    if op in _SUMS:
        n = max(1, floats[0][0].size // max(1, outputs[0].size)) if op != "CumSum" else max(floats[0][0].shape)
        n = max(n, math.prod(_integers(attrs, "kernel_shape"))) if op == "AveragePool" else n
        if op in ("ReduceMean", "GlobalAveragePool", "AveragePool"):
            return error + (n + 1) * UNIT * largest(floats[0][0])
        return n * error + n * (n + 1) * UNIT * largest(floats[0][0])
    if op in _PRODUCTS and len(floats) >= 2 and (op != "Einsum" or len(floats) == 2):
        return _product(op, attrs, floats)
    if len(floats) == 2 and op in ("Mul", "Div", "Pow"):
        return _pair(op, floats, outputs[0])
    if len(floats) == 1:
        return _single(op, floats[0][0], error, outputs[0])
    return math.inf


def _product(op: str, attrs: Attrs, floats: Sequence[tuple[Array, float]]) -> float:
    (a, e), (b, f) = floats[0], floats[1]
    match op:
        case "Conv":
            n = math.prod(b.shape[1:])
        case "ConvTranspose":
            n = math.prod(b.shape) // max(1, b.shape[1])
        case "Einsum":
            n = max(a.size, b.size)
        case _:
            n = a.shape[0] if op == "Gemm" and attrs.get("transA") else a.shape[-1]
    big_a, big_b = largest(a), largest(b)
    scale = abs(float(str(attrs.get("alpha", 1.0)))) if op == "Gemm" else 1.0
    error = scale * n * (e * big_b + f * big_a + e * f + (n + 3) * UNIT * big_a * big_b)
    for c, g in floats[2:]:
        beta = abs(float(str(attrs.get("beta", 1.0)))) if op == "Gemm" else 1.0
        error += beta * (g + 3 * UNIT * largest(c)) + UNIT * scale * n * big_a * big_b
    return error


def _pair(op: str, floats: Sequence[tuple[Array, float]], out: Array) -> float:
    (a, e), (b, f) = floats
    if op == "Mul":
        return e * largest(b) + f * largest(a) + e * f + UNIT * largest(out)
    with np.errstate(all="ignore"):
        if op == "Div":
            grown = (e + np.abs(out) * f) / (np.abs(b) - f)
            if np.any(np.isfinite(out) & (np.abs(b) <= f)):
                return math.inf
        else:
            if np.any(a <= e):
                return math.inf if e or f or np.any(a < 0) else 8 * UNIT * largest(out)
            # Twice the first-order term, which is more than the rest where the relative errors are small.
            grown = 2 * np.abs(out) * (np.abs(b) * e / (a - e) + np.abs(np.log(a)) * f)
    return largest(grown) + 8 * UNIT * largest(out)


def _single(op: str, x: Array, error: float, out: Array) -> float:
    """Operators of one float argument: the mean value theorem over the interval of the argument's error."""
    with np.errstate(all="ignore"):
        match op:
            case "Sqrt":
                # |sqrt(x + e) - sqrt(x)| is at most e / sqrt(x), and at most sqrt(e).
                grown = np.minimum(error / np.sqrt(np.maximum(x, 0)), math.sqrt(error)) if error else np.zeros(1)
            case "Reciprocal":
                if error and np.any(np.isfinite(out) & (np.abs(x) <= error)):
                    return math.inf
                grown = np.abs(out) * error / (np.abs(x) - error) if error else np.zeros(1)
            case "Exp":
                grown = np.abs(out) * math.expm1(min(error, 1.0)) if error < 1 else np.asarray([math.inf])
            case "Log":
                if error and np.any(x <= error):
                    return math.inf
                grown = error / (x - error) if error else np.zeros(1)
            case "ReduceSumSquare":
                n = max(1, x.size // max(1, out.size))
                return n * (2 * largest(x) * error + error * error + (n + 2) * UNIT * largest(x) ** 2)
            case "Mul" | "Div" | "Pow" | "ReduceProd" if not error:
                return max(1, x.size // max(1, out.size)) * 8 * UNIT * largest(out)
            case _:
                return math.inf
    worst = float(np.max(grown[~np.isnan(grown)], initial=0.0))
    return worst + 4 * UNIT * largest(out)


def largest(array: Array) -> float:
    """The largest finite magnitude in an array."""
    if array.dtype.kind != "f" or not array.size:
        return float(np.max(np.abs(array.astype(np.float64)), initial=0.0)) if array.dtype.kind in "iub" else 0.0
    top = max(float(np.max(array)), -float(np.min(array)))
    return top if math.isfinite(top) else float(np.max(np.abs(array[np.isfinite(array)]), initial=0.0))


def _integers(attrs: Attrs, name: str) -> tuple[int, ...]:
    value = attrs.get(name)
    return tuple(int(item) for item in value) if isinstance(value, tuple) else ()
