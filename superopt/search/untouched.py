"""What has to stay as it was for a result to be right, where no rule is guilty.

A model that is exact by luck, or wrong beyond what its numbers can hold, allows no other order in one place, and all
the good there is in the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from superopt.engine.eclasses import EGraph
from superopt.terms import ABSENT, TermGraph


def stretch(count: int, right: Callable[[range], bool]) -> range | None:
    """A short stretch of the numbers below ``count`` that is ``right``, by bisection; None where not even all are.

    ``right`` tells of numbers whether it is enough that these stay as they were; of none it is false. What is right
    with some is taken to be right with more. Asks about twice the logarithm of ``count``.
    """
    if not count or not right(range(count)):
        return None
    end = 1 + bisect_left(range(1, count), True, key=lambda end: right(range(end)))
    length = 1 + bisect_left(range(1, end), True, key=lambda length: right(range(end - length, end)))
    return range(end - length, end)


def rewritten(egraph: EGraph, graph: TermGraph) -> tuple[int, ...]:
    """The classes of the original's terms that may be computed in another way too, constants left out. What lies in a
    row in the original does so here."""
    terms: dict[int, None] = {}
    stack = list(graph.roots)
    while stack:
        term = stack.pop()
        if term not in terms:
            terms[term] = None
            stack.extend(arg for arg in graph.nodes[term].args if arg != ABSENT)
    classes = egraph.classes
    return tuple(
        number
        for number in dict.fromkeys(egraph.class_of[term] for term in reversed(terms))
        if not classes[number].constant and any(node.original is None for node in classes[number].nodes)
    )
