"""How far values are from a reference: absolute, relative and ulp error, agreement of classes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from superopt.kernels import Array, is_float
from superopt.report import ErrorMetrics


@dataclass(frozen=True)
class Spread:
    """A difference of two arrays in two norms: the largest element, and the root of the mean square."""

    largest: float = 0.0
    rms: float = 0.0

    def __or__(self, other: Spread) -> Spread:
        """The larger of two, norm by norm."""
        return Spread(max(self.largest, other.largest), max(self.rms, other.rms))

    def __add__(self, other: Spread) -> Spread:
        return Spread(self.largest + other.largest, self.rms + other.rms)

    def __mul__(self, factor: float) -> Spread:
        return Spread(self.largest * factor, self.rms * factor)

    def exceeds(self, other: Spread) -> bool:
        return self.largest > other.largest or self.rms > other.rms


def spread(values: Array) -> Spread:
    """The norms of an array's finite elements."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return Spread()
    magnitude = np.abs(finite)
    top = float(np.max(magnitude))
    if top == 0.0:
        return Spread()
    # Scaled, so that squares neither overflow nor vanish.
    return Spread(top, top * math.sqrt(float(np.mean(np.square(magnitude / top)))))


def difference(left: Array, right: Array) -> Spread:
    """How far two float arrays of one shape are apart, where both are finite."""
    with np.errstate(all="ignore"):
        return spread(left.astype(np.float64) - right.astype(np.float64))


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Half the distance from 1 to the next number of a float type."""
    return _eps(dtype) / 2


def ulp(reference: Array, dtype: np.dtype[Any]) -> Array:
    """The distance from numbers to the next one of a float type."""
    smallest = float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]  # as below
    _, exponent = np.frexp(np.maximum(np.abs(reference), smallest))
    return np.asarray(np.ldexp(_eps(dtype), exponent - 1))


def _eps(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it


def error(pairs: Iterable[tuple[Array, Array]], dtype: np.dtype[Any]) -> ErrorMetrics | None:
    """The error of the first of each pair against the second, over all of them; None where nothing can be compared.

    ``dtype`` is the output's element type, of which ulps are counted.
    """
    absolute, relative, units = [], [], []
    for value, reference in pairs:
        if value.shape != reference.shape or not is_float(value.dtype):
            continue
        x, r = value.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
        both = np.isfinite(x) & np.isfinite(r)
        x, r = x[both], r[both]
        off = np.abs(x - r)
        absolute.append(off)
        relative.append(off[r != 0] / np.abs(r[r != 0]))
        units.append(off / ulp(r, dtype))
    if not absolute or not sum(part.size for part in absolute):
        return None
    (max_abs, mean_abs), (max_rel, mean_rel), (max_ulp, mean_ulp) = map(_largest_and_mean, (absolute, relative, units))
    return {
        "max_abs": max_abs, "mean_abs": mean_abs, "max_rel": max_rel, "mean_rel": mean_rel, "max_ulp": max_ulp,
        "mean_ulp": mean_ulp,
    }  # fmt: skip


def _largest_and_mean(parts: list[Array]) -> tuple[float, float]:
    whole = np.concatenate(parts)
    return float(np.max(whole, initial=0.0)), float(np.mean(whole)) if whole.size else 0.0


def class_agreement(pairs: Iterable[tuple[Array, Array]]) -> tuple[float, float] | None:
    """How often the best class is the same, and how much of the best five; None where outputs are no class scores.

    Class scores are floats [N, C] with C of five or more.
    """
    same, shared, rows = 0, 0, 0
    for value, reference in pairs:
        if value.shape != reference.shape or value.ndim != 2 or value.shape[1] < 5 or not is_float(value.dtype):
            return None
        for mine, other in zip(value.astype(np.float64), reference.astype(np.float64), strict=True):
            best, top = np.argsort(-mine, kind="stable")[:5], np.argsort(-other, kind="stable")[:5]
            same += int(best[0] == top[0])
            shared += len(np.intersect1d(best, top))
            rows += 1
    return (same / rows, shared / (5 * rows)) if rows else None
