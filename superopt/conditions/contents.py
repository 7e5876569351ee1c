"""Rule functions that look at the content of constants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superopt.conditions.types import FLOATS
from superopt.values import Unknown, Value, attribute, predicate


def _numbers(value: Value) -> NDArray[np.float64] | None:
    """The content in float64, or None where it is not of numbers; integers beyond 2^53 are rounded."""
    if value.dtype == "string" or value.dtype.startswith(("complex", "float8", "float4")):
        return None
    return value.array().astype(np.float64)


@predicate(reads=("value",))
def zero(value: Value) -> bool:
    """Every element is zero, of either sign."""
    numbers = _numbers(value)
    return numbers is not None and not numbers.any()


@predicate(reads=("value",))
def positive_zero(value: Value) -> bool:
    """Every element is +0.0, or an integer zero: what can be subtracted without changing a bit."""
    numbers = _numbers(value)
    return numbers is not None and not numbers.any() and not np.signbit(numbers).any()


@predicate(reads=("value",))
def negative_zero(value: Value) -> bool:
    """Every element is -0.0, or an integer zero: what can be added without changing a bit."""
    numbers = _numbers(value)
    if numbers is None or numbers.any():
        return False
    return value.dtype not in FLOATS or bool(np.signbit(numbers).all())


@predicate(reads=("value",))
def one(value: Value) -> bool:
    """Every element is one."""
    numbers = _numbers(value)
    return numbers is not None and bool((numbers == 1).all())


@predicate(reads=("value",))
def positive(value: Value) -> bool:
    """Every element is finite and greater than zero."""
    numbers = _numbers(value)
    return numbers is not None and bool((np.isfinite(numbers) & (numbers > 0)).all())


@predicate(reads=("value",))
def invertible(value: Value) -> bool:
    """Of floating point type, and every element and its reciprocal are finite and normal numbers of that type."""
    numbers = _numbers(value)
    if numbers is None or value.dtype not in FLOATS:
        return False
    tiny, huge = _NORMAL_RANGE[value.dtype]
    sizes = np.abs(numbers)
    low = max(tiny, 1 / huge)
    return bool(((sizes >= low) & (sizes <= 1 / low)).all())


_NORMAL_RANGE = {
    "float64": (float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)),
    "float32": (float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)),
    "float16": (float(np.finfo(np.float16).tiny), float(np.finfo(np.float16).max)),
    "bfloat16": (2.0**-126, float(np.finfo(np.float32).max)),
}


@predicate(reads=("value",))
def minus_infinity(value: Value) -> bool:
    """Every element is minus infinity."""
    numbers = _numbers(value)
    return numbers is not None and value.dtype in FLOATS and bool(np.isneginf(numbers).all())


@predicate(reads=("value",))
def equals(value: Value, number: int | float) -> bool:
    """One element of floating point type, equal to the number once that is rounded to its type."""
    array = value.array()
    if array.size != 1 or value.dtype not in FLOATS:
        return False
    return bool(array.reshape(()) == np.asarray(number, np.float64).astype(array.dtype))


@predicate(reads=("low", "high"))
def ordered(low: Value, high: Value) -> bool:
    """Both have one element, and the first is not greater than the second (neither is NaN)."""
    one_, other = _numbers(low), _numbers(high)
    if one_ is None or other is None or one_.size != 1 or other.size != 1:
        return False
    return bool(one_.reshape(()) <= other.reshape(()))


@predicate(reads=("value",))
def at_least(value: Value, bound: int | float) -> bool:
    """Every element is at least the bound."""
    numbers = _numbers(value)
    return numbers is not None and bool((numbers >= bound).all())


@predicate(reads=("value",))
def finite(value: Value) -> bool:
    """No element is infinite or NaN."""
    numbers = _numbers(value)
    return numbers is not None and bool(np.isfinite(numbers).all())


@predicate(reads=("value",))
def without_nan(value: Value) -> bool:
    """No element is NaN."""
    numbers = _numbers(value)
    return numbers is not None and not np.isnan(numbers).any()


@predicate(reads=("value",))
def known(value: Value) -> bool:
    """The content is known: a constant of the model, not one that rules have made."""
    return value.load is not None


@attribute(reads=("value",))
def number(value: Value) -> float:
    """The content of a constant of one element that is not NaN, as an attribute."""
    array = value.array()
    if array.size != 1:
        raise Unknown("not one element")
    content = float(array.reshape(()).astype(np.float64))
    if np.isnan(content):
        raise Unknown("not a number")
    return content


@predicate(reads=("scale", "zero"))
def starts_at_zero(scale: Value, zero: Value) -> bool:
    """What is quantized so has no numbers below zero: they saturate at it."""
    numbers, offset = scale.array().astype(np.float64), zero.array()
    if offset.dtype.kind not in "iu" or not offset.size:
        return False
    return bool(((numbers > 0) & np.isfinite(numbers)).all() and (offset == np.iinfo(offset.dtype.name).min).all())


@predicate(reads=("low", "high", "scale", "zero"))
def saturates(low: Value, high: Value, scale: Value, zero: Value) -> bool:
    """What is quantized so has nothing below one number and nothing above another: it saturates there or before."""
    offset, step = zero.array(), scale.array().astype(np.float64)
    ends = _numbers(low), _numbers(high)
    if offset.dtype.kind not in "iu" or offset.size != 1 or step.size != 1 or None in ends:
        return False
    kind, place = np.iinfo(offset.dtype.name), int(offset.reshape(()))
    least, largest = ((end - place) * float(step.reshape(())) for end in (kind.min, kind.max))
    lower, upper = (float(np.asarray(end).reshape(())) for end in ends)
    return bool(np.isfinite(step).all() and (step > 0).all() and lower <= least and upper >= largest)


@predicate(reads=("shift", "scale"))
def finite_quotient(shift: Value, scale: Value) -> bool:
    """Of two that broadcast, every quotient is finite in their type."""
    if shift.dtype != scale.dtype or shift.dtype not in FLOATS:
        return False
    with np.errstate(all="ignore"):
        quotient = np.asarray(_numbers(shift)) / np.asarray(_numbers(scale))
    return bool((np.abs(quotient) <= _NORMAL_RANGE[shift.dtype][1]).all())
