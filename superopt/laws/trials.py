"""Which contents an instance is run with, beside its own: those that wrong rules go wrong on alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from superopt.laws.instances_content import opposed, signed_zeros, special
from superopt.rules import Rule
from superopt.terms import TermGraph

Array = NDArray[np.generic]

GROWING = frozenset({"Exp", "Pow", "Sinh", "Cosh"})
"""Operators by which moderate numbers get out of range."""


def trials(
    rule: Rule, right: TermGraph, arrays: Mapping[str, Array], free: frozenset[str], generator: np.random.Generator
) -> Iterator[Mapping[str, Array]]:
    """The contents with what is ``free`` among them replaced."""
    exact = rule.numeric == "exact"
    if exact:
        yield {n: special(a, generator, rule.ignoring) if n in free else a for n, a in arrays.items()}
    floats = any(array.dtype.kind == "f" for array in arrays.values())
    if exact and floats and "signed-zero" not in rule.ignoring:
        yield {n: signed_zeros(a, generator) if n in free else a for n, a in arrays.items()}
    if exact and floats:
        yield {n: at_brinks(a, generator) if n in free else a for n, a in arrays.items()}
    if not exact and any(node.op in GROWING for node in right.nodes):
        yield {n: opposed(a, generator) if n in free else a for n, a in arrays.items()}


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
