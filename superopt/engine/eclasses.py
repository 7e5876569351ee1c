"""Frozen records of a saturated e-graph: classes of equal terms, and the nodes that each can be computed by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from superopt.terms import ABSENT, Attrs, Constant, OpaqueOperator, TermGraph, ValueType, type_text

NO_ATTRS = Attrs()

Key: TypeAlias = tuple[str, tuple[int, ...], Attrs]
"""An e-node by what it is, whoever made it: operator, classes of its children, attributes."""


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

    @property
    def key(self) -> Key:
        return self.op, self.children, self.attrs


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

    def text(self) -> str:
        """A class on each line: ``%3: float32[1,8] = Relu(%2) | Max(%2, %4) by relu-as-max``; the roots last."""
        lines = [
            f"%{index}: {type_text(eclass.type)} = {' | '.join(_node_text(node) for node in eclass.nodes)}"
            for index, eclass in enumerate(self.classes)
        ]
        return "\n".join([*lines, "roots " + " ".join(f"%{root}" for root in self.roots)]) + "\n"


def with_joined_types(graph: TermGraph, egraph: EGraph) -> TermGraph:
    """The lowered graph with all that its e-graph knows of types: a term may be equal to one of which more is known."""
    return replace(graph, types=tuple(egraph.classes[number].type for number in egraph.class_of))


def without_classes(egraph: EGraph, numbers: Iterable[int]) -> EGraph:
    """The e-graph in which these classes cannot be computed."""
    gone = frozenset(numbers)
    classes = tuple(
        replace(eclass, nodes=()) if number in gone else eclass for number, eclass in enumerate(egraph.classes)
    )
    return replace(egraph, classes=classes)


def only_original(egraph: EGraph, numbers: Iterable[int]) -> EGraph:
    """The e-graph in which these classes can only be computed as they are in the original, where they are in it."""
    kept = {
        number: tuple(node for node in egraph.classes[number].nodes if node.original is not None) for number in numbers
    }
    classes = tuple(
        replace(eclass, nodes=kept.get(number) or eclass.nodes) for number, eclass in enumerate(egraph.classes)
    )
    return replace(egraph, classes=classes)


def _node_text(node: ENode) -> str:
    args = ["_" if child == ABSENT else f"%{child}" for child in node.children]
    args += [f"{name}={json.dumps(value)}" for name, value in node.attrs.items]
    return f"{node.op}({', '.join(args)})" + (f" by {node.rule}" if node.rule else "")
