"""A term graph that is rewritten in place: cells, each of an e-class, where equal terms are one cell.

A cell that is replaced by another of its class is so for all who use it; whoever becomes equal by that becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from superopt.engine.eclasses import EGraph, Key
from superopt.explanation.numbering import post_order
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, Attrs, Node, TermGraph

_Term: TypeAlias = tuple[str, Attrs, tuple[int, ...]]


@dataclass
class _Cell:
    op: str
    attrs: Attrs
    args: tuple[int, ...]
    number: int
    origin: int | None
    users: set[int] = field(default_factory=set)


LEAVES = frozenset({INPUT, CONST, PROJECT})
"""What is no operator of a model."""


class Cells:
    """The graph as it is now. Cells are known by number; a number that was replaced stands for what replaced it."""

    def __init__(self, graph: TermGraph, egraph: EGraph) -> None:
        self._egraph = egraph
        self._cells: list[_Cell] = []
        self._stands_for: list[int] = []
        self._known: dict[_Term, int] = {}
        self._undo: list[Callable[[], object]] = []
        self.changes = 0
        for index, node in enumerate(graph.nodes):
            self.add(node.op, node.attrs, node.args, egraph.class_of[index], index)
        self._roots = graph.roots

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(self.now(root) for root in self._roots)

    def now(self, cell: int) -> int:
        """The cell that stands where this one stood."""
        while self._stands_for[cell] != cell:
            cell = self._stands_for[cell]
        return cell

    def args(self, cell: int) -> tuple[int, ...]:
        """The arguments of a cell."""
        return tuple(arg if arg == ABSENT else self.now(arg) for arg in self._cells[self.now(cell)].args)

    def class_of(self, cell: int) -> int:
        return self._cells[self.now(cell)].number

    def origin_of(self, cell: int) -> int | None:
        """The term of the first graph in whose place a cell stands; None where it stands below what a rule made."""
        return self._cells[self.now(cell)].origin

    def key(self, cell: int) -> Key:
        """The e-node that a cell is of."""
        made = self._cells[self.now(cell)]
        return made.op, tuple(arg if arg == ABSENT else self.class_of(arg) for arg in made.args), made.attrs

    def add(self, op: str, attrs: Attrs, args: Sequence[int], number: int, origin: int | None = None) -> int:
        """The cell of a term, which may be there already; else it stands where that term of the first graph did."""
        args = tuple(arg if arg == ABSENT else self.now(arg) for arg in args)
        known = self._known.get((op, attrs, args))
        if known is not None:
            return self.now(known)
        cell = len(self._cells)
        self._cells.append(_Cell(op, attrs, args, number, origin))
        self._stands_for.append(cell)
        self._undo += [self._cells.pop, self._stands_for.pop]
        self._know((op, attrs, args), cell)
        for arg in args:
            if arg != ABSENT and cell not in self._cells[arg].users:
                self._add_users(arg, {cell})
        return cell

    def _add_users(self, cell: int, users: set[int]) -> None:
        fresh = users - self._cells[cell].users
        self._cells[cell].users |= fresh
        self._undo.append(lambda: self._cells[cell].users.difference_update(fresh))

    def forget(self, cell: int) -> None:
        """Lets a term like this cell's be added anew: the cell itself is about to be replaced."""
        made = self._cells[self.now(cell)]
        self._know((made.op, made.attrs, self.args(cell)), None)

    def copy(self, cell: int) -> int:
        """Another cell of the same term, for which the first one can then be replaced."""
        made, args = self._cells[self.now(cell)], self.args(cell)
        self.forget(cell)
        return self.add(made.op, made.attrs, args, made.number, made.origin)

    def replace(self, cell: int, other: int) -> None:
        """Puts a cell in the place of another of its class, for all who use that."""
        waiting = [(cell, other)]
        self.changes += 1
        while waiting:
            old, new = (self.now(one) for one in waiting.pop())
            if old == new:
                continue
            self._forget_exactly(old)
            users = self._cells[old].users
            for user in users:
                self._forget_exactly(user)
            self._stand(old, new)
            self._add_users(new, users)
            for user in sorted(users):
                if self.now(user) != user:
                    continue
                made = self._cells[user]
                self._give(made, self.args(user))
                term = (made.op, made.attrs, made.args)
                twin = self._known.get(term)
                if twin is None:
                    self._know(term, user)
                elif self.now(twin) != user:
                    waiting.append((user, twin))

    def mark(self) -> int:
        """The graph as it is now, for ``undo``."""
        return len(self._undo)

    def undo(self, mark: int) -> None:
        """Takes back all that was done since a mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def _know(self, term: _Term, cell: int | None) -> None:
        """Notes which cell is of a term; None for no cell."""
        old = self._known.get(term)
        self._undo.append(lambda: self._set_known(term, old))
        self._set_known(term, cell)

    def _set_known(self, term: _Term, cell: int | None) -> None:
        if cell is None:
            self._known.pop(term, None)
        else:
            self._known[term] = cell

    def _forget_exactly(self, cell: int) -> None:
        made = self._cells[cell]
        term = (made.op, made.attrs, made.args)
        if self._known.get(term) == cell:
            self._know(term, None)

    def _stand(self, old: int, new: int) -> None:
        before = self._stands_for[old]
        self._undo.append(lambda: self._stands_for.__setitem__(old, before))
        self._stands_for[old] = new

    def _give(self, made: _Cell, args: tuple[int, ...]) -> None:
        before = made.args
        self._undo.append(lambda: setattr(made, "args", before))
        made.args = args

    def below(self, starts: Iterable[int]) -> list[int]:
        """The cells that these are made of, themselves included; arguments come before who uses them."""
        return post_order([self.now(start) for start in starts], self.args)

    def running(self) -> int:
        """How many operators run with the model: those that are not constant."""
        seen: set[int] = set()
        stack = list(self.roots)
        count = 0
        while stack:
            cell = stack.pop()
            if cell in seen or self._egraph.classes[self._cells[cell].number].constant:
                continue
            seen.add(cell)
            count += self._cells[cell].op not in LEAVES
            stack += [arg for arg in self.args(cell) if arg != ABSENT]
        return count

    def of_class(self, number: int) -> list[int]:
        """The cells of a class that the roots are made of."""
        return [cell for cell in self.below(self.roots) if self._cells[cell].number == number]

    def graph(self, roots: Sequence[int] | None = None) -> TermGraph:
        """What the cells compute, as a graph: terms in the order in which the roots reach them."""
        heads = self.roots if roots is None else [self.now(root) for root in roots]
        order = self.below(heads)
        place = {cell: index for index, cell in enumerate(order)}
        nodes, types = [], []
        for cell in order:
            made = self._cells[cell]
            args = tuple(arg if arg == ABSENT else place[arg] for arg in self.args(cell))
            nodes.append(Node(made.op, args, made.attrs))
            stored = self._egraph.constants.get(str(made.attrs.get("key"))) if made.op == CONST else None
            types.append(self._egraph.classes[made.number].type if stored is None else stored.type)
        keys = {str(node.attrs["key"]) for node in nodes if node.op in (CONST, OPAQUE)}
        return TermGraph(
            tuple(nodes), tuple(types), tuple(place[head] for head in heads),
            {key: constant for key, constant in self._egraph.constants.items() if key in keys},
            {key: opaque for key, opaque in self._egraph.opaque.items() if key in keys},
        )  # fmt: skip
