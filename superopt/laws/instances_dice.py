"""Seeded choices of sizes, element types and attributes, with a memory, so that terms which must meet often do."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from superopt.terms import AttrValue, TensorType

T = TypeVar("T")

FLOATS = ("float32", "float64", "float16")
INTS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTS, "bool")
_WEIGHTS = (40, 8, 8, 8, 8, 2, 2, 1, 1, 1, 1, 6)

_SMALL = (1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 9)
_LARGE = (1, 1, 2, 3, 17, 65, 130, 515, 577, 1031)
_LIMIT = {False: 2048, True: 700_000}


@dataclass
class Dice:
    """The source of all choices of one draft of an instance; arrays are of the ``generator``'s numbers.

    ``large`` asks for sizes at which kernels change their blocking. ``wanted`` are values that the rule's text compares
    attributes and sizes with. A ``plain`` draft has windows without strides, dilations, pads and groups. A bundle
    has ``outputs`` that are asked for. A ``grouped`` draft has several groups where it can, and several channels in
    each. A draft with a ``contrast`` has windows of two kinds, by turns, that differ in this attribute. In a ``tiny``
    draft many numbers are of a magnitude whose reciprocal their type does not have. In an ``undefined`` one many
    constants are NaN, in a ``near`` one many are near numbers that the rule's text names. What was chosen before is
    likely chosen again.
    """

    random: random.Random
    generator: np.random.Generator
    dtype: str = "float32"
    large: bool = False
    wanted: tuple[AttrValue, ...] = ()
    plain: bool = False
    outputs: int = 1
    grouped: bool = False
    contrast: str | None = None
    contrast_kernel: int = 2
    contrast_places: int = 2
    contrast_turn: bool = False
    tiny: bool = False
    turn: int = 0
    undefined: bool = False
    near: bool = False
    _memory: dict[str, list[AttrValue]] = field(default_factory=dict)
    _sizes: list[int] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[self.random.randrange(len(options))]

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, max(low, high))

    def size(self) -> int:
        """The size of an axis."""
        if self._sizes and self.chance(0.35):
            return self.pick(self._sizes)
        chosen = self.pick(_LARGE if self.large else _SMALL)
        self._sizes.append(chosen)
        return chosen

    def few(self) -> int:
        """The size of a spatial axis, or of a group."""
        return self.pick((1, 2, 3, 4, 5, 6, 7, 9)) if not self.large else self.pick((1, 3, 7, 8, 14, 33))

    def channels(self) -> int:
        if self.grouped and not self.large:
            return self.pick((2, 2, 3))
        return self.pick((1, 2, 2, 3, 4)) if not self.large else self.pick((1, 3, 16, 65, 130, 515))

    def shape(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        """A shape whose rank lies in a range."""
        rank = self.pick([rank for rank in (0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5) if least <= rank <= most] or [least])
        for _ in range(20):
            dims = tuple(self.size() for _ in range(rank))
            if product(dims) <= _LIMIT[self.large]:
                return dims
        return (2,) * rank

    def fits(self, tensor: TensorType) -> bool:
        """Whether a tensor is small enough to be evaluated many times."""
        return tensor.size is not None and tensor.size <= 2 * _LIMIT[self.large]

    def any_dtype(self, options: Sequence[str] = DTYPES, *, even: bool = False) -> str:
        """One of the element types, the usual ones more often unless ``even``."""
        weights = [1 if even else _WEIGHTS[DTYPES.index(option)] for option in options]
        return self.random.choices(list(options), weights)[0]

    def again(self, key: str, fresh: AttrValue, probability: float = 0.6) -> AttrValue:
        """A value that was chosen under this key before, or the fresh one, which is remembered."""
        known = self._memory.setdefault(key, [])
        if known and self.chance(probability):
            return self.pick(known)
        known.append(fresh)
        return fresh

    def recalled(self, key: str) -> list[AttrValue]:
        """All that was chosen under this key."""
        return self._memory.get(key, [])

    def remember(self, key: str, value: AttrValue) -> None:
        self._memory.setdefault(key, []).append(value)

    def integer(self, options: Sequence[int]) -> int:
        """One of the options, or, where the rule's text names one of them, likely that one."""
        named = [value for value in self.wanted if isinstance(value, int) and value in options]
        return self.pick(named) if named and self.chance(0.4) else self.pick(options)

    def number(self) -> float:
        """A number with few bits, so that exact arithmetic can hold it."""
        named = [float(value) for value in self.wanted if isinstance(value, (int, float)) and abs(value) < 1e9]
        if named and self.chance(0.5):
            # Attributes hold what float32 can.
            return float(np.float32(self.pick(named)))
        return self.pick((0.0, 0.5, 1.0, 2.0, -1.0, 0.25, 3.0, -0.75, 1.5))


@dataclass(frozen=True)
class Request:
    """An operator to be completed: what is known of its arguments, attributes and output.

    ``args`` holds None where an argument is still to be chosen; ``absent`` are the positions that are not given.
    ``hint`` is a type that would be welcome as the output (as output ``output`` of a bundle). ``everywhere`` are
    attributes of windows that have one value at every place, however many axes there are. ``kind`` is one of the
    operator's ``KINDS``, where that is wanted.
    """

    op: str
    args: tuple[TensorType | None, ...]
    absent: frozenset[int]
    attrs: Mapping[str, AttrValue]
    hint: TensorType | None
    output: int = 0
    everywhere: Mapping[str, int] = field(default_factory=dict)
    kind: str | None = None

    def shape(self, position: int, least: int = 0) -> tuple[int, ...] | None:
        """The shape of an argument, if it is known and of this rank or a higher one."""
        arg = self.args[position] if position < len(self.args) else None
        shape = None if arg is None else static(arg)
        return None if shape is None or len(shape) < least else shape

    @property
    def hinted(self) -> tuple[int, ...] | None:
        return None if self.hint is None else static(self.hint)

    def ints(self, name: str) -> tuple[int, ...] | None:
        value = self.attrs.get(name)
        return tuple(int(item) for item in value) if isinstance(value, tuple) else None

    def window(self, name: str, count: int) -> tuple[int, ...] | None:
        """An attribute of a window with so many values, where it is known."""
        return (self.everywhere[name],) * count if name in self.everywhere else self.ints(name)

    def int(self, name: str) -> int | None:
        value = self.attrs.get(name)
        return value if isinstance(value, int) else None

    def dtype(self, dice: Dice) -> str:
        """The element type that known arguments have, or the hint, or the instance."""
        for arg in self.args:
            if arg is not None:
                return arg.dtype
        return self.hint.dtype if self.hint is not None else dice.dtype


@dataclass
class Proposal:
    """Shapes for the arguments (element types by position where not the common one) and values of attributes."""

    shapes: list[tuple[int, ...] | None]
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    dtypes: dict[int, str] = field(default_factory=dict)


def static(tensor: TensorType) -> tuple[int, ...] | None:
    """The shape, if every dimension is an integer."""
    shape = tensor.shape
    if shape is None:
        return None
    dims = [dim for dim in shape if isinstance(dim, int)]
    return tuple(dims) if len(dims) == len(shape) else None


def product(dims: Sequence[int]) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count


def factors(dice: Dice, count: int, rank: int) -> tuple[int, ...]:
    """A shape of a rank with so many elements."""
    dims = [1] * rank
    rest = count
    divisor = 2
    while rest > 1 and rank:
        while rest % divisor:
            divisor += 1
        dims[dice.random.randrange(rank)] *= divisor
        rest //= divisor
    return tuple(dims)


def under(dice: Dice, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another without changing it."""
    kind = dice.random.random()
    if kind < 0.35:
        return shape
    if kind < 0.45:
        return ()
    if kind < 0.55:
        return (1,) * dice.between(0, len(shape))
    if kind < 0.75 and len(shape) >= 2:
        # Per channel: the second axis alone, with the first or without.
        return (1,) * dice.between(0, 1) + (shape[1],) + (1,) * (len(shape) - 2)
    if kind < 0.85 and shape:
        return (shape[-1],)
    kept = shape[dice.between(0, len(shape)) :] if dice.chance(0.5) else shape
    return tuple(1 if dice.chance(0.4) else dim for dim in kept)


def axis_of(request: Request, dice: Dice, rank: int, name: str = "axis") -> int:
    """The given axis, or one of a tensor of this rank."""
    known = request.int(name)
    if known is not None:
        return known
    again = dice.again("axis", dice.between(0, rank - 1), 0.4)
    return again if isinstance(again, int) and 0 <= again < rank else dice.between(0, max(rank - 1, 0))


def axes_of(request: Request, dice: Dice, rank: int) -> tuple[int, ...]:
    """The given axes, or some of a tensor of this rank: often those of an image, the last, or all."""
    known = request.ints("axes")
    if known is not None:
        return known
    kind = dice.random.random()
    if kind < 0.2 and rank >= 3:
        return tuple(range(2, rank))
    if kind < 0.35:
        return (rank - 1,) if rank else ()
    if kind < 0.5:
        return tuple(range(rank))
    axes = tuple(axis for axis in range(rank) if dice.chance(0.4))
    again = dice.again(f"axes{rank}", axes or ((dice.between(0, rank - 1),) if rank else ()), 0.3)
    return tuple(int(axis) for axis in again) if isinstance(again, tuple) else axes
