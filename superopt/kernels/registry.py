"""The registry of kernels: one function an operator, filled by the modules of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from superopt.errors import EvaluationError
from superopt.kernels.algebra import Algebra, Array
from superopt.terms import Attrs

Args: TypeAlias = Sequence["Array | None"]
Kernel: TypeAlias = Callable[[Algebra, Attrs, Args], "Array | tuple[Array, ...]"]

KERNELS: dict[str, Kernel] = {}
"""Kernels by operator of the normal form."""


def kernel(*ops: str) -> Callable[[Kernel], Kernel]:
    """Registers a function as the kernel of operators. Raises ValueError where one has a kernel already."""

    def decorate(function: Kernel) -> Kernel:
        for op in ops:
            if op in KERNELS:
                raise ValueError(f"{op} has a kernel already: {KERNELS[op].__name__} in {KERNELS[op].__module__}")
            KERNELS[op] = function
        return function

    return decorate


def given(op: str, args: Args, index: int) -> Array:
    """An argument that the operator requires."""
    array = args[index] if index < len(args) else None
    if array is None:
        raise EvaluationError(f"{op}: argument {index} is missing")
    return array


def all_given(op: str, args: Args) -> list[Array]:
    return [given(op, args, index) for index in range(len(args))]


def integer(attrs: Attrs, name: str) -> int:
    """An integer attribute of the normal form."""
    value = attrs[name]
    if not isinstance(value, int):
        raise EvaluationError(f"attribute {name} is {value!r}, expected an integer")
    return value


def number(attrs: Attrs, name: str) -> float:
    value = attrs[name]
    if not isinstance(value, (int, float)):
        raise EvaluationError(f"attribute {name} is {value!r}, expected a number")
    return float(value)


def integers(attrs: Attrs, name: str) -> tuple[int, ...]:
    """A tuple of integers; a single one (CumSum's axis) makes a tuple of one."""
    value = attrs[name]
    if isinstance(value, int):
        return (value,)
    if not isinstance(value, tuple):
        raise EvaluationError(f"attribute {name} is {value!r}, expected integers")
    return tuple(int(item) for item in value)


def string(attrs: Attrs, name: str) -> str:
    value = attrs[name]
    if not isinstance(value, str):
        raise EvaluationError(f"attribute {name} is {value!r}, expected a string")
    return value
