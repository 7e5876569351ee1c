"""The way from one e-node of a class to another: the rules that lead there, the fewest first."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from superopt.engine.eclasses import Key
from superopt.explanation.application import Application, Side
from superopt.explanation.applications import Applications

_FORWARD, _BACKWARD, _OPENED = 1.0, 4.0, 8.0
"""What a step of a way counts: a rule as it is written; one read from right to left, which mostly undoes what led here;
and one that puts operators around a term that had none of them, which can go on for ever."""

_STRIPPED = 1.0
"""What is reckoned for the rest of a way on which a term is left of its operators: that it is then is not known
before."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A rule used at one of its roots, from its left side to its right or ``backward``."""

    application: Application
    root: int
    backward: bool

    @property
    def source(self) -> Side:
        return self.application.right if self.backward else self.application.left

    @property
    def target(self) -> Side:
        return self.application.left if self.backward else self.application.right

    @property
    def start(self) -> Key | None:
        """The e-node that it is used on; None for a variable, which any will do for."""
        return self.source.keys[self.source.shape.roots[self.root]]

    @property
    def end(self) -> Key | None:
        """The e-node that comes of it; None for a variable: whatever that is at the time."""
        return self.target.keys[self.target.shape.roots[self.root]]


_Vertex: TypeAlias = "Key | None"


def turns_at(applications: Applications, number: int) -> list[Turn]:
    """All ways to use a rule at a class."""
    found = []
    for application in applications.at(number):
        for place, root in enumerate(application.left.shape.roots):
            if application.left.classes[root] == number:
                found += [Turn(application, place, False), Turn(application, place, True)]
    return found


def route(turns: list[Turn], start: Key, goal: Key, banned: Collection[Turn]) -> list[Turn] | None:
    """The cheapest sequence of turns from one e-node to another, or to a variable; None where there is none."""
    by_start: dict[_Vertex, list[Turn]] = {}
    for turn in turns:
        if turn not in banned:
            by_start.setdefault(turn.start, []).append(turn)
    order = count()
    heap: list[tuple[float, int, _Vertex, tuple[Turn, ...]]] = [(0.0, next(order), start, ())]
    done: set[_Vertex] = set()
    while heap:
        spent, _, vertex, way = heapq.heappop(heap)
        # What a variable stands for is seen when the turn is taken.
        if vertex == goal or vertex is None:
            return list(way)
        if vertex in done:
            continue
        done.add(vertex)
        for turn in [*by_start.get(vertex, ()), *by_start.get(None, ())]:
            if turn.end not in done:
                more = _OPENED if turn.start is None else _BACKWARD if turn.backward else _FORWARD
                more += _STRIPPED if turn.end is None else 0.0
                heapq.heappush(heap, (spent + more, next(order), turn.end, (*way, turn)))
    return None
