"""The kernel of Resize: every axis by itself, each place of the result a weighted sum of places of the input."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from superopt.errors import EvaluationError
from superopt.kernels.algebra import Algebra, Array, NotInRing
from superopt.kernels.registry import Args, given, integers, kernel, number, string
from superopt.terms import Attrs

Float = NDArray[np.float64]


@kernel("Resize")
def _resize(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    if algebra.exact:
        raise NotInRing("Resize")
    x = given("Resize", args, 0)
    sizes, scales = integers(attrs, "sizes"), attrs["scales"]
    if not isinstance(scales, tuple) or len(sizes or scales) != x.ndim:
        raise EvaluationError("Resize: neither sizes nor scales for every axis")
    for axis, length in enumerate(x.shape):
        if sizes:
            target, scale = sizes[axis], sizes[axis] / length
        else:
            scale = float(scales[axis])
            target = math.floor(length * scale)
        if target == length and scale == 1.0:
            continue
        if string(attrs, "mode") == "nearest":
            # Taken, not weighed: a place that counts nothing does not show, though it be infinite.
            x = np.take(x, _nearest(attrs, length, target, scale), axis=axis)
        else:
            x = np.moveaxis(np.tensordot(_weights(attrs, length, target, scale), x, axes=(1, axis)), 0, axis)
    return x


def _weights(attrs: Attrs, length: int, target: int, scale: float) -> Float:
    """What each of ``length`` places counts for each of ``target`` places; beyond the ends the last place goes on."""
    places = _places(string(attrs, "coordinate_transformation_mode"), length, target, scale)
    weights = np.zeros((target, length))
    rows = np.arange(target)
    first = np.floor(places)
    ahead = places - first
    if string(attrs, "mode") == "linear":
        taps = {0: 1 - ahead, 1: ahead}
    else:
        a = number(attrs, "cubic_coeff_a")
        taps = {tap: _cubic(np.abs(ahead - tap), a) for tap in (-1, 0, 1, 2)}
    for tap, weight in taps.items():
        np.add.at(weights, (rows, np.clip(first.astype(np.int64) + tap, 0, length - 1)), weight)
    return weights


def _nearest(attrs: Attrs, length: int, target: int, scale: float) -> NDArray[np.int64]:
    """Which of ``length`` places each of ``target`` places is."""
    places = _places(string(attrs, "coordinate_transformation_mode"), length, target, scale)
    return np.clip(_rounded(string(attrs, "nearest_mode"), places), 0, length - 1)


def _places(transformation: str, length: int, target: int, scale: float) -> Float:
    """Where on the input each place of the result lies."""
    result = np.arange(target, dtype=np.float64)
    match transformation:
        case "half_pixel":
            return np.asarray((result + 0.5) / scale - 0.5)
        case "pytorch_half_pixel":
            return np.asarray((result + 0.5) / scale - 0.5) if target > 1 else np.zeros(target)
        case "align_corners":
            return result * ((length - 1) / (target - 1)) if target > 1 else np.zeros(target)
        case "asymmetric":
            return np.asarray(result / scale)
        case _:
            raise EvaluationError(f"Resize: {transformation}")


def _rounded(mode: str, places: Float) -> NDArray[np.int64]:
    # Runtimes work in float32, in which a place that lies between two is where it should be.
    narrow = places.astype(np.float32)
    match mode:
        case "round_prefer_floor":
            rounded = np.ceil(narrow - np.float32(0.5))
        case "round_prefer_ceil":
            rounded = np.floor(narrow + np.float32(0.5))
        case "floor":
            rounded = np.floor(narrow)
        case _:
            rounded = np.ceil(narrow)
    return np.asarray(rounded, np.int64)


def _cubic(distance: Float, a: float) -> Float:
    """Keys' convolution kernel (IEEE Transactions on Acoustics, Speech, and Signal Processing 29, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
