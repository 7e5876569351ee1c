"""Which contents an instance is run with, beside its own: those that wrong rules go wrong on alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from superopt.laws.instances_clues import applications, clues_of, parts_of
from superopt.laws.instances_content import opposed, signed_zeros, special, tiny, whole
from superopt.rules import Number, Rule
from superopt.terms import TermGraph

Array = NDArray[np.generic]

GROWING = frozenset({"Exp", "Pow", "Sinh", "Cosh", "Softmax", "Sigmoid"})
"""Operators by which moderate numbers get out of range, or to zero."""

NORMS = frozenset({"LpNormalization", "LayerNormalization", "RMSNormalization", "ReduceL1", "ReduceL2"})
"""Operators that have a norm, which is zero where all elements are."""

FAR = 8.0
"""From where on a number that a rule's text names may lie beyond what is drawn anyway."""


def trials(
    rule: Rule, right: TermGraph, arrays: Mapping[str, Array], free: frozenset[str],
    made: Callable[[], np.random.Generator],
) -> Iterator[Mapping[str, Array]]:  # fmt: skip
    """The contents with what is ``free`` among them replaced; one generator is ``made`` of all, where there is need of
    one."""
    exact = rule.numeric == "exact"
    if exact:
        yield {n: special(a, made(), rule.ignoring) if n in free else a for n, a in arrays.items()}
    floats = any(array.dtype.kind == "f" for array in arrays.values())
    if exact and floats and "signed-zero" not in rule.ignoring:
        yield {n: signed_zeros(a, made()) if n in free else a for n, a in arrays.items()}
    if exact and floats:
        yield {n: at_brinks(a, made()) if n in free else a for n, a in arrays.items()}
    cast = any(node.op == "Cast" for node in right.nodes)
    if exact and sum(arrays[n].dtype.kind == "f" for n in free) > (not cast):
        # Strewn in, two infinities hardly ever meet, nor are numbers that integers do not have left over by vectors.
        yield {n: extreme(a, made(), rule.ignoring, cast=cast) if n in free else a for n, a in arrays.items()}
    if not exact and any(node.op in GROWING for node in right.nodes):
        yield {n: opposed(a, made()) if n in free else a for n, a in arrays.items()}
    if not exact and floats and any(node.op == "Reciprocal" for node in right.nodes):
        # A quotient of two such is a number, and a product with a reciprocal that is none is not.
        yield {n: tiny(a) if n in free else a for n, a in arrays.items()}
    if not exact and any(part.op in NORMS for root in rule.left for part in applications(root)):
        rank = max((a.ndim for n, a in arrays.items() if n in free), default=0)
        yield {n: whole(a, 0) if n in free and a.ndim == rank and a.dtype.kind == "f" else a for n, a in arrays.items()}
    if exact:
        yield from far_numbers(rule, arrays, free.__contains__, made)


def far_numbers(
    rule: Rule, arrays: Mapping[str, Array], free: Callable[[str], bool], made: Callable[[], np.random.Generator]
) -> Iterator[Mapping[str, Array]]:
    """The contents with floats on both sides of the large numbers that the rule's text names; nothing where it names
    none."""
    numbers = _far(rule)
    if numbers and any(array.dtype.kind == "f" for array in arrays.values()):
        generator = made()
        yield {n: beyond(a, generator, numbers) if free(n) else a for n, a in arrays.items()}


@lru_cache(maxsize=4096)
def _far(rule: Rule) -> tuple[float, ...]:
    """The magnitudes of large numbers that a rule's text names."""
    named = [part.value for root in rule.left for part in parts_of(root) if isinstance(part, Number)]
    return tuple(sorted({abs(float(number)) for number in (*named, *clues_of(rule).numbers) if abs(number) >= FAR}))


def beyond(array: Array, generator: np.random.Generator, numbers: tuple[float, ...]) -> Array:
    """Floats of the same type on both sides of each of the numbers and of its negative. Anything else as it is."""
    if array.dtype.kind != "f":
        return array
    near = [number * factor for number in numbers for factor in (0.5, 1.0, 1.005, 1.125, 2.0, 16.0)]
    near = [number for number in near if number <= float(np.finfo(array.dtype.name).max)]
    signs = generator.choice((-1.0, 1.0), array.shape)
    return np.asarray(signs * generator.choice(np.asarray(near or [1.0]), array.shape), array.dtype)


def extreme(array: Array, generator: np.random.Generator, excused: tuple[str, ...], *, cast: bool = False) -> Array:
    """Zeros, ones and what is no number in the place of a float array's numbers, so many that any two of them meet in
    two arrays; for what is ``cast`` numbers beyond most integers too. Anything else as it is."""
    if array.dtype.kind != "f":
        return array
    values = [0.0, 1.0]
    values += [1e10, -1e10] if cast and array.dtype.itemsize > 2 else []
    values += [] if "signed-zero" in excused else [-0.0]
    values += [] if "infinity" in excused else [np.inf, -np.inf]
    values += [] if "nan" in excused else [np.nan]
    return np.asarray(generator.choice(np.asarray(values), array.shape), array.dtype)


def at_brinks(array: Array, generator: np.random.Generator) -> Array:
    """Floats of the same type at which rounding decides: beside whole numbers, closer to them than sums can tell, and
    as large as the first that have no fractions. Anything else as it is."""
    if array.dtype.kind != "f":
        return array
    info = np.finfo(array.dtype.name)
    eps = float(info.eps)
    beside = [1.0, 1 - eps / 2, 1 + eps, 0.5, 0.5 - eps / 4, 0.75, 1 / eps, 1 / eps / 2 + 0.5, eps / 4, 2.0, 3.0]
    signs = generator.choice((-1.0, 1.0), array.shape)
    return np.asarray(signs * generator.choice(np.asarray(beside), array.shape), array.dtype)
