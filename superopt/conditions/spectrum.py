"""Rule functions about spectra."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superopt.values import attribute, tensor


@attribute()
def bins(length: int, onesided: int) -> int:
    """The number of frequencies in the spectrum of a frame."""
    return length // 2 + 1 if onesided else length


@tensor()
def fourier(length: int, onesided: int) -> NDArray[np.generic]:
    """The weight, in float64, of a Conv that takes a frame to the real parts of its spectrum, then to the imaginary
    ones."""
    # The angle of a product is the angle of its remainder, which keeps it small and exact.
    steps = np.outer(np.arange(bins(length, onesided)), np.arange(length)) % length
    angles = 2 * np.pi * steps / length
    return np.concatenate((np.cos(angles), -np.sin(angles)))[:, None, :]
