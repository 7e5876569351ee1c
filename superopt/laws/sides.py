"""Both sides of a rule on one instance, what they come to, and what was found there."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from superopt.laws.error_bounds import (
    ROUNDOFF,
    Bounded,
    Traced,
    bounded,
    computed_in,
    few_bits,
    rounds_alike,
    rounds_each,
    trace,
)
from superopt.laws.instances import Instance
from superopt.laws.instances_content import LARGE_ROUNDS, large_integers
from superopt.laws.runtime import Program, program
from superopt.laws.short_types import SHORT, is_short
from superopt.operators import named
from superopt.rules import Rule
from superopt.terms import CONST, INPUT, PROJECT, TensorType, TermGraph
from superopt.values import Value

Array = NDArray[np.generic]
Part = Literal["fires", "typed", "agrees", "not vacuous", "each when is needed", "can be checked"]


@dataclass(frozen=True)
class Finding:
    """How an instance breaks the rule's promise: which part, by which evidence, and both values there."""

    part: Part
    evidence: str
    instance: Instance
    right: TermGraph | None = None
    left_value: Array | None = None
    right_value: Array | None = None


@dataclass(frozen=True)
class Verdict:
    """What an instance says: a finding, or none; ``telling`` where a wrong rule would have shown."""

    finding: Finding | None
    telling: bool


SILENT = Verdict(None, False)


@dataclass(frozen=True)
class Sides:
    """The left side of an instance and the right side that the rule has made of it, with what is asked of both more
    than once."""

    instance: Instance
    right: TermGraph

    @property
    def rule(self) -> Rule:
        return self.instance.rule

    @cached_property
    def in_ring(self) -> bool:
        """Whether both sides are what they are in any ring."""
        return _is_ring(self.instance.left) and _is_ring(self.right)

    @cached_property
    def alike(self) -> bool:
        """Whether both sides are computed alike by every runtime."""
        return rounds_alike(self.instance.left) and rounds_alike(self.right)

    @cached_property
    def short(self) -> bool:
        """Whether rounding value by value, which has one result, says more than the runtime."""
        sides = self.instance.left, self.right
        return any(is_short(graph) for graph in sides) and all(rounds_each(graph) for graph in sides)

    @cached_property
    def retyped(self) -> str | None:
        """An operator of the left side that is computed in a short type on one side alone, and the types: a runtime
        that lacks it there computes in a longer type anyway, and others do not."""
        left, right = computed_in(self.instance.left), computed_in(self.right)
        for op, dtype in sorted(right - left):
            others = sorted(other for name, other in left if name == op)
            if others and any(one in SHORT for one in (dtype, *others)):
                return f"{op} is computed in {' and '.join(others)} on the left, in {dtype} on the right"
        return None

    @cached_property
    def program(self) -> Program:
        """Both sides, for the runtime."""
        return program({"left": self.instance.left, "right": self.right})

    @cached_property
    def seed(self) -> int:
        return zlib.crc32(self.instance.signature.encode())

    @cached_property
    def generator(self) -> np.random.Generator:
        """The same for the same instance; one for all that is drawn, since to make one takes as long as to draw."""
        return np.random.default_rng(self.seed)

    def finding(self, evidence: str, arrays: Mapping[str, Array], left: Array, right: Array) -> Verdict:
        shown = replace(self.instance, arrays=arrays)
        return Verdict(Finding("agrees", evidence, shown, self.right, left, right), True)

    @cached_property
    def rounded(self) -> frozenset[str]:
        """Constants that conditions look at: they stand for whatever number rounds to them (1/6, the root of 2)."""
        return frozenset(name for name in self.instance.arrays if not self.free(name))

    def free(self, name: str) -> bool:
        """Whether this variable's content may be replaced: no condition or attribute looks at it."""
        value = self.instance.binding[name]
        return (isinstance(value, Value) and value.load is None) or name in self.instance.unread

    @cached_property
    def _traces(self) -> dict[tuple[str, int], tuple[Mapping[str, Array], Traced]]:
        return {}

    def bounded(self, side: str, arrays: Mapping[str, Array], roundoff: float | None) -> list[Bounded]:
        """The values of a side with bounds; these very arrays are evaluated once, whatever the roundoff."""
        graph = self.instance.left if side == "left" else self.right
        return bounded(graph, arrays, roundoff, self.rounded, self.traced(side, arrays))

    def traced(self, side: str, arrays: Mapping[str, Array]) -> Traced:
        """What these very arrays come to on a side in float64, computed once. Raises EvaluationError."""
        key = (side, id(arrays))
        if key not in self._traces:
            # The arrays are kept with what they came to, so that no others take their place in memory.
            graph = self.instance.left if side == "left" else self.right
            self._traces[key] = (arrays, trace(graph, arrays))
        return self._traces[key][1]

    @cached_property
    def with_large_integers(self) -> Sequence[Mapping[str, Array]]:
        """The contents with large integers for small ones, in several ways; nothing where no integers are free."""
        made: list[Mapping[str, Array]] = []
        names = [
            name for name, array in self.instance.arrays.items()
            if array.dtype.kind in "iu" and self.free(name) and name not in self.instance.bounds
        ]  # fmt: skip
        if not names:
            return made
        generator, arrays = self.generator, self.instance.arrays
        for number in range(LARGE_ROUNDS):
            made.append({**arrays, **{name: large_integers(arrays[name], generator, number) for name in names}})
        return made


RING = frozenset(named(lambda form: form.made in ("moved", "summed", "bilinear") or form.arithmetic))
"""Operators that are what they are in any ring: two sides made of these alone that differ there are not equal."""


def _is_ring(graph: TermGraph) -> bool:
    """Whether everything in a graph is exact in a ring, the constants that rules make included."""
    for node, kind in zip(graph.nodes, graph.types, strict=True):
        whole = isinstance(kind, TensorType) and kind.dtype not in ROUNDOFF
        if node.op == CONST:
            if not np.all(few_bits(graph.constants[str(node.attrs["key"])].array().astype(np.float64))):
                return False
            continue
        # A division of integers truncates, which no ring does.
        if node.op not in (*RING, INPUT, PROJECT) or (whole and node.op in ("Div", "Reciprocal")):
            return False
    return True
