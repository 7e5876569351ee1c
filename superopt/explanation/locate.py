"""Where the terms of a given graph are in a saturated e-graph: a choice of nodes that computes the same graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from superopt.engine.eclasses import EGraph, ENode
from superopt.explanation.constants import ConstantValues
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, Attrs, Node, OpaqueOperator, TensorType, TermGraph, ValueType
from superopt.verification.distance import ulp

ULPS = 4
"""A constant is a class's value where they differ by no more units in the last place of its largest element: it may
have been computed by another formula."""


@dataclass(frozen=True)
class Located:
    """A graph in an e-graph: ``chosen`` has the constants as the e-graph computes them, ``classes`` are those of its
    terms, ``rounded`` tells how many constants are not the same bits. Where ``missing`` are some, there is no graph:
    the wanted terms that are the first, on each way, to be in no class."""

    chosen: TermGraph | None
    classes: tuple[int, ...]
    missing: tuple[int, ...]
    found: int
    rounded: int = 0


def located(egraph: EGraph, wanted: TermGraph, values: ConstantValues) -> Located:
    """The wanted graph's terms in the e-graph, root by root."""
    return _Locator(egraph, wanted, values).result()


class _Locator:
    def __init__(self, egraph: EGraph, wanted: TermGraph, values: ConstantValues) -> None:
        self.egraph, self.wanted, self.values = egraph, wanted, values
        self.by_form: dict[_Form, list[tuple[int, ENode]]] = {}
        for number, eclass in enumerate(egraph.classes):
            for node in eclass.nodes:
                self.by_form.setdefault(_form(node, egraph.opaque), []).append((number, node))
        self.known: dict[tuple[int, int], bool] = {}
        self.rounded: set[int] = set()
        self.candidates: list[dict[int, ENode]] = []

    def result(self) -> Located:
        for node in self.wanted.nodes:
            self.candidates.append({} if node.op == CONST else self._candidates(node))
        missing = self._missing()
        found = sum(bool(classes) for classes in self.candidates)
        if missing:
            return Located(None, (), tuple(missing), found)
        chosen, classes = self._built()
        return Located(chosen, classes, (), found, len(self.rounded))

    def _candidates(self, node: Node) -> dict[int, ENode]:
        """The classes that a term may be in, and the node there that it is."""
        found: dict[int, ENode] = {}
        for number, member in self.by_form.get(_form(node, self.wanted.opaque), ()):
            if number in found or len(member.children) != len(node.args):
                continue
            pairs = zip(node.args, member.children, strict=True)
            if all(self._is(arg, child) for arg, child in pairs):
                found[number] = member
        return found

    def _is(self, term: int, number: int) -> bool:
        if ABSENT in (term, number):
            return term == number
        if self.wanted.nodes[term].op != CONST:
            return number in self.candidates[term]
        if (term, number) not in self.known:
            self.known[term, number] = self._is_constant(term, number)
        return self.known[term, number]

    def _is_constant(self, term: int, number: int) -> bool:
        eclass, kind = self.egraph.classes[number], self.wanted.types[term]
        if not eclass.constant or not _may_be(eclass.type, kind):
            return False
        constant = self.wanted.constants[str(self.wanted.nodes[term].attrs["key"])]
        if any(node.op == CONST and node.attrs["key"] == constant.key for node in eclass.nodes):
            return True
        value, other = self.values.value(number), constant.array()
        if value is None or value.shape != other.shape:
            return False
        if np.array_equal(value, other):
            return True
        if "float" not in constant.type.dtype:
            return False
        one, two = value.astype(np.float64), other.astype(np.float64)
        largest = np.max(np.abs(two[np.isfinite(two)]), initial=0.0)
        near = bool(np.all((one == two) | (np.abs(one - two) <= ULPS * ulp(largest, other.dtype))))
        if near:
            self.rounded.add(term)
        return near

    def _missing(self) -> list[int]:
        """The terms that are in no class though their arguments are, below a root that is not where it should be."""
        wrong = [
            root
            for root, number in zip(self.wanted.roots, self.egraph.roots, strict=True)
            if not self._is(root, number)
        ]
        found: dict[int, None] = {}
        seen, stack = set(wrong), list(wrong)
        while stack:
            term = stack.pop()
            node = self.wanted.nodes[term]
            inner = [
                arg
                for arg in node.args
                if arg != ABSENT and self.wanted.nodes[arg].op not in (CONST, INPUT) and not self.candidates[arg]
            ]
            if not inner:
                found[term] = None
            fresh = [arg for arg in inner if arg not in seen]
            seen.update(fresh)
            stack += fresh
        return sorted(found)

    def _built(self) -> tuple[TermGraph, tuple[int, ...]]:
        nodes: dict[Node, int] = {}
        types: list[ValueType] = []
        classes: list[int] = []
        place: dict[tuple[int | None, int], int] = {}
        # A wanted term at a class; what is below a constant is of the e-graph alone.
        for root, owner in zip(self.wanted.roots, self.egraph.roots, strict=True):
            stack: list[tuple[int | None, int]] = [(root, owner)]
            while stack:
                top = stack[-1]
                if top in place:
                    stack.pop()
                    continue
                member, pairs = self._member(*top)
                waiting = [pair for pair in pairs if pair[1] != ABSENT and pair not in place]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                stack.pop()
                args = tuple(ABSENT if pair[1] == ABSENT else place[pair] for pair in pairs)
                made = Node(member.op, args, member.attrs)
                if made not in nodes:
                    nodes[made] = len(nodes)
                    stored = self.egraph.constants.get(str(made.attrs.get("key"))) if made.op == CONST else None
                    types.append(self.egraph.classes[top[1]].type if stored is None else stored.type)
                    classes.append(top[1])
                place[top] = nodes[made]
        roots = tuple(place[pair] for pair in zip(self.wanted.roots, self.egraph.roots, strict=True))
        graph = TermGraph(tuple(nodes), tuple(types), roots, self.egraph.constants, self.egraph.opaque)
        return graph, tuple(classes)

    def _member(self, term: int | None, number: int) -> tuple[ENode, Sequence[tuple[int | None, int]]]:
        if term is not None and self.wanted.nodes[term].op != CONST:
            member = self.candidates[term][number]
            return member, list(zip(self.wanted.nodes[term].args, member.children, strict=True))
        key = None if term is None else str(self.wanted.nodes[term].attrs["key"])
        for node in self.egraph.classes[number].nodes:
            if node.op == CONST and node.attrs["key"] == key:
                return node, []
        computed = self.values.node(number)
        made = computed if computed is not None else self.egraph.classes[number].nodes[0]
        return made, [(None, child) for child in made.children]


_Form: TypeAlias = "tuple[str, Attrs | OpaqueOperator]"


def _form(node: ENode | Node, opaque: Mapping[str, OpaqueOperator]) -> _Form:
    """An operator and its attributes. One that is left alone is told by its content: its key, where it may give another
    result each time, is of one node of one model."""
    return node.op, opaque[str(node.attrs["key"])] if node.op == OPAQUE else node.attrs


def _may_be(kind: ValueType, wanted: ValueType) -> bool:
    if not isinstance(kind, TensorType) or not isinstance(wanted, TensorType):
        return False
    if kind.dtype != wanted.dtype or kind.rank not in (None, wanted.rank):
        return False
    if kind.shape is None or wanted.shape is None:
        return True
    return all(not isinstance(one, int) or one == two for one, two in zip(kind.shape, wanted.shape, strict=True))
