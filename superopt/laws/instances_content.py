"""Contents for the variables of an instance: plain numbers, special ones, and what rules look for in constants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from superopt.laws.instances_dice import Dice, static
from superopt.terms import TensorType

Array = NDArray[np.generic]

PLAIN_STYLES = ("plain", "plain", "plain", "positive", "positive", "normal", "wide")
"""How the contents of variables are drawn that no condition looks at."""
READ_STYLES = (
    "plain", "positive", "zeros", "ones", "wanted", "equal", "zeros", "ones", "diagonal", "sparse", "blocks", "ramp",
    "lowest", "large", "near",
)  # fmt: skip
"""How the contents of variables are drawn that conditions look at."""


def content(
    tensor: TensorType, style: str, dice: Dice, wanted: tuple[int | float, ...] = (), bound: int | None = None
) -> Array:
    """An array of a type in a style; ``bound`` is the size of what it is an index into."""
    shape = static(tensor) or ()
    generator = dice.generator
    dtype = np.dtype(tensor.dtype)
    if bound is not None and len(shape) - shape[1:].count(1) == 1 and shape[0] <= bound and dice.chance(0.25):
        # As many in a row, counting up.
        step = dice.between(1, max((bound - 1) // max(shape[0] - 1, 1), 1))
        start = dice.between(0, max(bound - 1 - step * (shape[0] - 1), 0))
        return np.asarray(start + step * np.arange(shape[0]), dtype).reshape(shape)
    if bound is not None:
        low = -bound if dtype.kind == "i" and dice.chance(0.5) else 0
        return np.asarray(generator.integers(low, max(bound, 1), shape), dtype)
    if dtype.kind == "b":
        return _booleans(shape, style, generator)
    if dtype.kind in "iu":
        return _integers(shape, dtype, style, generator, dice, wanted)
    made = np.asarray(_floats(shape, style, generator, dice, wanted))
    if dtype.kind == "f" and (dtype.itemsize == 2 or style == "wanted"):
        # What counts up through a large tensor leaves the range of a short type; infinities that are meant stay.
        most = float(np.finfo(dtype).max)
        made = np.where(np.isfinite(made) & (np.abs(made) > most), np.copysign(most / 2, made), made)
    return np.asarray(made, dtype)


def _booleans(shape: tuple[int, ...], style: str, generator: np.random.Generator) -> Array:
    if style in ("zeros", "ones"):
        return np.full(shape, style == "ones")
    return np.asarray(generator.integers(0, 2, shape), dtype=bool)


def _integers(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], style: str, generator: np.random.Generator, dice: Dice,
    wanted: tuple[int | float, ...],
) -> Array:  # fmt: skip
    shaped = _shaped(shape, style, dice, [int(value) for value in wanted if value == int(value)])
    if style == "lowest":
        return np.full(shape, np.iinfo(dtype.name).min, dtype)
    if style == "large":
        return _large(shape, dtype, generator, 0)
    if shaped is not None:
        return np.asarray(np.asarray(shaped, np.int64), dtype)
    # No zeros: an integer divided by zero ends the process of a runtime.
    low = 1 if dtype.kind == "u" or style == "positive" else -9
    values = generator.integers(low, 10, shape)
    if style == "normal" and dtype.kind == "i":
        # Runtimes sum int64 in double: what passes 2^53 is not theirs to keep.
        most = min(np.iinfo(dtype.name).max // 2, 1000)
        values = generator.integers(-most, most, shape)
    return np.asarray(np.where(values == 0, 1, values), dtype)


def _floats(
    shape: tuple[int, ...], style: str, generator: np.random.Generator, dice: Dice, wanted: tuple[int | float, ...]
) -> NDArray[np.float64]:
    shaped = _shaped(shape, style, dice, list(wanted))
    if shaped is not None:
        return shaped
    if style == "normal":
        return np.asarray(generator.standard_normal(shape), np.float64)
    if style == "positive":
        return np.asarray(generator.integers(1, 33, shape) / 8.0)
    if style == "wide":
        # So far apart that exponentials underflow.
        return np.asarray(generator.integers(-24, 25, shape) * 16.0)
    if style == "near":
        return np.full(shape, near(dice, wanted))
    if style == "sparse":
        return np.asarray(generator.integers(-16, 17, shape) / 8.0 * (generator.random(shape) < 0.3))
    if style == "blocks" and len(shape) >= 2:
        return _blocks(shape, generator, dice)
    return np.asarray(generator.integers(-24, 25, shape) / 8.0)


def near(dice: Dice, wanted: tuple[int | float, ...]) -> float:
    """A number near one that the rule's text compares with, or as far from it as another one says, or less: on the
    border of what a condition allows, and just inside."""
    centre = float(dice.pick((0, *wanted)))
    steps = [abs(float(number)) for number in wanted if 0 < abs(number) < 1] or [2.0**-9 * (abs(centre) or 1.0)]
    return centre + dice.pick((-1.0, 1.0)) * dice.pick(steps) * dice.pick((1.0, 0.984375, 0.5))


def _shaped(
    shape: tuple[int, ...], style: str, dice: Dice, wanted: list[int] | list[int | float]
) -> NDArray[np.float64] | None:
    """Contents that are the same whatever the element type."""
    if style == "zeros":
        return np.zeros(shape)
    if style == "ones":
        return np.ones(shape)
    if style == "wanted":
        return np.full(shape, float(dice.pick(wanted) if wanted else 2))
    if style == "equal":
        return np.full(shape, float(dice.pick((-1, 2, 3, 5))))
    if style == "ramp":
        return np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    if style == "lowest":
        return np.full(shape, -np.inf)
    if style == "diagonal" and len(shape) >= 2:
        return _diagonal(shape)
    return None


def _diagonal(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The identity as a matrix, or as a convolution with the one in the middle of the kernel."""
    array = np.zeros(shape)
    middle = tuple(dim // 2 for dim in shape[2:])
    for index in range(shape[0]):
        array[(index, index % shape[1], *middle)] = 1.0
    return array


def _blocks(shape: tuple[int, ...], generator: np.random.Generator, dice: Dice) -> NDArray[np.float64]:
    """A weight that is not zero only in the blocks on its diagonal."""
    array = generator.integers(-16, 17, shape) / 8.0
    counts = [count for count in (2, 3, 4) if shape[0] % count == 0 and shape[1] % count == 0]
    if not counts:
        return array
    count = dice.pick(counts)
    rows, columns = np.arange(shape[0]) * count // shape[0], np.arange(shape[1]) * count // shape[1]
    mask = rows[:, None] == columns[None, :]
    return np.asarray(array * mask.reshape(shape[:2] + (1,) * (len(shape) - 2)))


def special(array: Array, generator: np.random.Generator, excused: tuple[str, ...]) -> Array:
    """The same content with zeros of both signs, infinities, NaN, and very large and small numbers strewn in."""
    if array.dtype.kind != "f" or not array.size:
        return array
    info = np.finfo(array.dtype.name)
    values: list[float] = [0.0, 1.0, -1.0, float(info.tiny), float(info.smallest_subnormal), float(info.max) / 2]
    # Beyond integers, which runtimes convert one way in vectors and another at their ends.
    values += [1e10, -1e10] if float(info.max) > 1e10 else []
    values += [] if "signed-zero" in excused else [-0.0, -0.0]
    values += [] if "infinity" in excused else [np.inf, -np.inf, float(info.max), float(info.min)]
    values += [] if "nan" in excused else [np.nan]
    flat = array.copy().reshape(-1)
    chosen = generator.random(flat.size) < max(0.25, 1.0 / flat.size)
    flat[chosen] = generator.choice(np.asarray(values), int(chosen.sum())).astype(array.dtype)
    return flat.reshape(array.shape)


def tiny(array: Array) -> Array:
    """Floats of the same type so small that it does not have their reciprocals among its normal numbers, nor them;
    anything else as it is."""
    if array.dtype.kind != "f":
        return array
    small = np.clip(array.astype(np.float64), -3.5, 3.5) / 4
    return np.asarray(small * float(np.finfo(array.dtype.name).tiny), array.dtype)


_OPPOSED = {"float16": 12.0}


def opposed(array: Array, generator: np.random.Generator) -> Array:
    """Floats of one moderate magnitude and of either sign: short types do not have the exponential of one of them, and
    have that of a sum of two that cancel. Anything else as it is."""
    if array.dtype.kind != "f":
        return array
    return np.asarray(generator.choice((-1.0, 1.0), array.shape) * _OPPOSED.get(array.dtype.name, 96.0), array.dtype)


def undefined(array: Array) -> Array:
    """NaN in the place of a float array's numbers."""
    return whole(array, np.nan) if array.dtype.kind == "f" else array


def signed_zeros(array: Array, generator: np.random.Generator) -> Array:
    """Zeros of either sign in the place of a float array's numbers."""
    if array.dtype.kind != "f":
        return array
    return np.asarray(np.where(generator.random(array.shape) < 0.5, 0.0, -0.0), array.dtype)


LARGE_ROUNDS = 3
"""In how many ways integers are replaced by large ones."""


def large_integers(array: Array, generator: np.random.Generator, number: int) -> Array:
    """Integers of the same type from all of its range, often its ends; anything else as it is.

    With number 1 there are 0 and -1 too, by which not everything can be divided; with 2 all are drawn evenly.
    """
    return _large(array.shape, array.dtype, generator, number) if array.dtype.kind in "iu" else array


def _large(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], generator: np.random.Generator, number: int
) -> Array:  # fmt: skip
    info = np.iinfo(dtype.name)
    spread = generator.integers(info.min, info.max, shape, dtype.type, endpoint=True)
    spread = np.where(spread == 0, np.asarray(1, dtype), spread)
    if number == 2:
        return np.asarray(spread, dtype)
    ends = [info.min, info.min, info.max, info.max, info.min + 1, info.max - 1]
    # Where a product leaves the type, and the first numbers that float16, float32 and float64 do not have.
    inner = [sign * value for value in _NOTABLE for sign in (1, -1) if info.min <= sign * value <= info.max]
    inner += [1 << place for place in range(2, info.bits - 1, 3)]
    inner += [value for value in (0, 0, -1, -1) if number == 1 and info.min <= value]
    kinds = generator.random(shape)
    chosen = generator.choice(np.asarray(inner, dtype), shape)
    at_ends = generator.choice(np.asarray([value or 1 for value in ends], dtype), shape)
    return np.asarray(np.where(kinds < 0.4, at_ends, np.where(kinds < 0.8, chosen, spread)), dtype)


_NOTABLE = (2, 3, 5, 7, 100, 2**11 + 1, 2**24 + 1, 2**53 + 1, 181, 46341, 3037000500)


def whole(array: Array, value: float) -> Array:
    """An array of the same type that holds one value everywhere."""
    return np.full(array.shape, value).astype(array.dtype)


def described(arrays: Mapping[str, Array]) -> str:
    """Arrays as text, for a message."""
    with np.printoptions(threshold=64, precision=6, linewidth=120):
        return "\n".join(f"{name} = {array.tolist() if array.size <= 64 else array}" for name, array in arrays.items())
