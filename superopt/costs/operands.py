"""What a node's price may depend on of one argument."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from superopt.terms import Constant, ValueType

LARGEST_CONTENT = 16
"""Elements up to which the values of a constant of integers are part of what it is (axes, indices, shapes)."""

_NUMBERS = frozenset("float16 float32 float64".split())
_INTEGERS = frozenset("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64".split())


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument: its type, whether it is constant, and the values of a small constant (``content_of``)."""

    type: ValueType
    constant: bool = False
    content: str = ""


def content_of(constant: Constant) -> str:
    """The values of a constant that decide how an operator runs: single numbers (an exponent, a bound), a few integers
    (indices); as a JSON list, flat. Empty for any other: what weights hold costs nothing."""
    size = constant.type.size
    integers = constant.type.dtype in _INTEGERS
    if size is None or size > (LARGEST_CONTENT if integers else 1) or not (integers or constant.type.dtype in _NUMBERS):
        return ""
    values = constant.array().reshape(-1)
    if not integers:
        return json.dumps([repr(float(value)) for value in values.astype(np.float64)])
    return json.dumps([int(value) for value in values])
