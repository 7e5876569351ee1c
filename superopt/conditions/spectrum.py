"""Rule functions about spectra."""

from __future__ import annotations

from math import lcm

import numpy as np
from numpy.typing import NDArray

from superopt.conditions.types import numpy_dtype
from superopt.values import Value, attribute, tensor


@attribute()
def bins(length: int, onesided: int) -> int:
    """The number of frequencies in the spectrum of a frame."""
    return length // 2 + 1 if onesided else length


@attribute()
def turn(length: int) -> int:
    """How many steps a turn is divided into, so that both a quarter of it and one part in ``length`` are whole."""
    return lcm(length, 4)


@tensor()
def negative_cosines(steps: int, like: Value) -> NDArray[np.generic]:
    """The negative of the cosine at every step of half a turn, both ends included."""
    return -np.cos(2 * np.pi * np.arange(steps // 2 + 1) / steps).astype(numpy_dtype(like.dtype))
