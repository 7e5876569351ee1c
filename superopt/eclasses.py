"""Frozen records of a saturated e-graph: classes of equal terms, and the nodes that each can be computed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from superopt.terms import Attrs, Constant, OpaqueOperator, ValueType

NO_ATTRS = Attrs()


@dataclass(frozen=True, slots=True)
class ENode:
    """An operator applied to classes (by index in ``EGraph.classes``; ABSENT for an optional input that is not given).

    ``rule`` names the rule that made it, None where it stood in the original; ``original`` is then the index of the
    lowered term that it was loaded from, or None.
    """

    op: str
    children: tuple[int, ...] = ()
    attrs: Attrs = NO_ATTRS
    rule: str | None = None
    original: int | None = None


@dataclass(frozen=True, slots=True)
class EClass:
    """Nodes that compute the same value, its type, and whether it is constant (computable without any input)."""

    nodes: tuple[ENode, ...]
    type: ValueType = None
    constant: bool = False


@dataclass(frozen=True)
class EGraph:
    """A saturated e-graph.

    ``roots`` are the classes that must be computed, in the order of the lowered graph's roots. ``class_of`` is the
    class of each lowered term. ``constants`` and ``opaque`` are as in ``TermGraph``, with what rules have added.
    """

    classes: tuple[EClass, ...]
    roots: tuple[int, ...]
    class_of: tuple[int, ...] = ()
    constants: Mapping[str, Constant] = field(default_factory=dict)
    opaque: Mapping[str, OpaqueOperator] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of e-nodes."""
        return sum(len(eclass.nodes) for eclass in self.classes)
