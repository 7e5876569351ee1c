"""Where two arrays differ: bit by bit, and in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superopt.rules import Rule

Array = NDArray[np.generic]


def first_of(wrong: NDArray[np.bool_], left: Array, right: Array, allowed: Array | None = None) -> str:
    """Where the first of the wrong elements is and what both sides have there, or how far apart they are."""
    place = tuple(int(index) for index in np.argwhere(wrong)[0])
    at = f" at {list(place)}" if left.size > 1 else ""
    if allowed is None or left.dtype.kind != "f" or not np.isfinite(left[place]) or not np.isfinite(right[place]):
        return f"{at}: {left[place]} on the left, {right[place]} on the right"
    gap, most = abs(float(left[place]) - float(right[place])), float(np.broadcast_to(allowed, wrong.shape)[place])
    return f"{at}: by {gap:.3g}, of which the rule's class allows {most:.2g}"


def equal_bits(left: Array, right: Array, rule: Rule) -> NDArray[np.bool_]:
    """Which elements are the same as an exact rule promises, but for what it ignores; any NaN is any other."""
    if left.dtype.kind != "f":
        return np.asarray(left == right)
    bits = np.dtype(f"u{left.dtype.itemsize}")
    same = np.ascontiguousarray(left).view(bits) == np.ascontiguousarray(right).view(bits)
    same |= np.isnan(left) & np.isnan(right)
    if "signed-zero" in rule.ignoring:
        same |= left == right
    if "nan" in rule.ignoring:
        same |= np.isnan(left) | np.isnan(right)
    if "infinity" in rule.ignoring:
        same |= ~np.isfinite(left) | ~np.isfinite(right)
    # An array without axes has got one on the way.
    return np.asarray(same).reshape(left.shape)
