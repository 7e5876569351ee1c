"""Sums over bit sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_EIGHT = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float64)


class Sums:
    """The sums of values over sets of their places, which are bits of an integer.

    Looked up by byte. (A dot product with the bits goes to several threads above 10,000 of them, which then wait for
    each other.)
    """

    def __init__(self, values: Sequence[float]) -> None:
        self.size = (len(values) + 7) // 8
        self.table = np.zeros((self.size, 256))
        self.rows = np.arange(self.size)
        for place, value in enumerate(values):
            self.put(place, value)

    def put(self, place: int, value: float) -> None:
        """Changes a value from 0."""
        self.table[place // 8] += value * _EIGHT[:, place % 8]

    def of(self, mask: int) -> float:
        """The sum of the values whose bits are set."""
        data: NDArray[np.uint8] = np.frombuffer(mask.to_bytes(self.size, "little"), dtype=np.uint8)
        return float(self.table[self.rows, data].sum())
