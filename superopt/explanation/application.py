"""A rule where it applies on an e-graph: both sides, with the class and the e-node of each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.engine.eclasses import Key
from superopt.engine.matching import Match
from superopt.engine.variants import Variant
from superopt.instantiate import Filled, Skeleton
from superopt.rules import Number, Var
from superopt.terms import ABSENT, Node, ValueType

NOWHERE = -2
"""The class of a node of a right side that is not in the e-graph."""


@dataclass(frozen=True)
class Side:
    """One side of a rule where it applies: the class and the type of each slot, and the e-node that stands there (None
    for a variable, which any member of the class serves)."""

    shape: Skeleton
    classes: tuple[int, ...]
    keys: tuple[Key | None, ...]
    types: tuple[ValueType, ...]


@dataclass(frozen=True, eq=False)
class Application:
    """A rule where it applies. ``rule`` is its name; ``variant`` has its stars expanded and its operands in the order
    that matched. Root ``i`` of the left side is equal to root ``i`` of the right."""

    rule: str
    variant: Variant
    left: Side
    right: Side
    match: Match
    filled: Filled

    @property
    def classes(self) -> Mapping[str, int]:
        """The class of each variable."""
        pairs = zip(self.left.shape.slots, self.left.classes, strict=True)
        return {slot.pattern.name: number for slot, number in pairs if isinstance(slot.pattern, (Var, Number))}


def placings(
    terms: Sequence[Node | int], classes_by_key: Mapping[Key, Sequence[int]]
) -> Iterator[tuple[tuple[int, ...], tuple[Key | None, ...]]]:
    """The classes and e-nodes of terms, in each way in which they are in the e-graph, or NOWHERE.

    A term is a class that is known, or a node over earlier terms. The same e-node may be in two classes: the engine
    keeps those that are constant apart, and need not have found that two of them are one.
    """

    def placed(
        done: tuple[int, ...], keys: tuple[Key | None, ...]
    ) -> Iterator[tuple[tuple[int, ...], tuple[Key | None, ...]]]:
        if len(done) == len(terms):
            yield done, keys
            return
        term = terms[len(done)]
        if isinstance(term, int):
            yield from placed((*done, term), (*keys, None))
            return
        key = term.op, tuple(ABSENT if arg == ABSENT else done[arg] for arg in term.args), term.attrs
        for number in classes_by_key.get(key, (NOWHERE,)):
            yield from placed((*done, number), (*keys, key))

    return placed((), ())
