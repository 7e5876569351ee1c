"""What a rule's condition may know of a matched term, and the registry of the functions that rules may call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from superopt.terms import Dim, TensorType, ValueType


class Unknown(Exception):
    """A condition asked for something that is not known: the rule does not apply. Never leaves the rule machinery."""


@dataclass(frozen=True)
class Value:
    """A matched term: its type, whether it is constant, and its content where that is known.

    Asking for what is not known raises ``Unknown``, which makes a condition false: a condition holds only where it can
    be shown to hold, for every value of the symbols.
    """

    type: ValueType
    constant: bool = False
    load: Callable[[], NDArray[np.generic]] | None = field(default=None, repr=False)

    @property
    def tensor(self) -> TensorType:
        if not isinstance(self.type, TensorType):
            raise Unknown("not known to be a tensor")
        return self.type

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The dimensions; single ones may be symbols or None."""
        shape = self.tensor.shape
        if shape is None:
            raise Unknown("rank not known")
        return shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def dim(self, axis: int) -> int:
        """The integer size of an axis (negative counts from the end)."""
        shape = self.shape
        if not -len(shape) <= axis < len(shape):
            raise Unknown(f"no axis {axis} in rank {len(shape)}")
        size = shape[axis]
        if not isinstance(size, int):
            raise Unknown(f"axis {axis} is not a number")
        return size

    def array(self) -> NDArray[np.generic]:
        """The content, for functions that declare in ``reads`` that they look at it."""
        if self.load is None:
            raise Unknown("content not known")
        return self.load()


Kind = Literal["predicate", "attribute", "tensor"]


@dataclass(frozen=True)
class RuleFunction:
    """A function that rules may call.

    ``predicate`` answers a condition, ``attribute`` computes an attribute value, ``tensor`` makes a constant (a numpy
    array). ``reads`` names the parameters whose content it looks at: a rule that calls it on a variable matches only
    terms whose content is known.
    """

    name: str
    kind: Kind
    call: Callable[..., Any]
    reads: tuple[str, ...]

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.call)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.signature.parameters)


FUNCTIONS: dict[str, RuleFunction] = {}
"""Every registered function by the name that rules call it by; filled by the decorators below on import."""

F = TypeVar("F", bound=Callable[..., Any])


def _register(kind: Kind, reads: tuple[str, ...]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        name, known = function.__name__, FUNCTIONS.get(function.__name__)
        if known is not None:
            raise ValueError(f"{name} is a rule's function already, in {known.call.__module__}: another name is needed")
        FUNCTIONS[name] = RuleFunction(name, kind, function, reads)
        return function

    return decorate


def predicate(*, reads: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Registers a function that answers a condition: ``bool``."""
    return _register("predicate", reads)


def attribute(*, reads: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Registers a function that computes an attribute: int, float, str or a tuple of one of them."""
    return _register("attribute", reads)


def tensor(*, reads: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Registers a function that makes a constant: a numpy array of the element type that the constant is to have."""
    return _register("tensor", reads)
