"""Which terms of a chosen graph have the value of which term of the original, so that they can have its name."""

from __future__ import annotations

from collections.abc import Sequence

from superopt.terms import ABSENT, CONST, TermGraph


def replaced_places(old: TermGraph, new: TermGraph) -> dict[int, int]:
    """Where the terms of a graph are in the one that came of it by replacing some of them by constants."""
    places: dict[int, int] = {}
    stack = list(zip(old.roots, new.roots, strict=True))
    while stack:
        before, after = stack.pop()
        if before in places:
            continue
        places[before] = after
        if new.nodes[after].op != CONST:
            pairs = zip(old.nodes[before].args, new.nodes[after].args, strict=True)
            stack.extend(pair for pair in pairs if ABSENT not in pair)
    return places


def same_values(
    original: TermGraph,
    settled: TermGraph,
    class_of: Sequence[int],
    chosen: TermGraph,
    classes: Sequence[int],
    made: TermGraph,
) -> dict[int, int]:
    """The term of ``original`` that each term of ``made`` has the value of, where there is one: the first of the same
    operator, else the first.

    ``settled`` came of ``original``, and ``made`` of ``chosen``, by replacing terms by constants. ``class_of`` is the
    class of each settled term, ``classes`` that of each chosen one: terms of a class are equal. Constants are told by
    their content, not here.
    """
    equal: dict[int, list[int]] = {}
    for before, after in sorted(replaced_places(original, settled).items()):
        if settled.nodes[after].op != CONST:
            equal.setdefault(class_of[after], []).append(before)
    same: dict[int, int] = {}
    for before, after in sorted(replaced_places(chosen, made).items()):
        known = equal.get(classes[before])
        if made.nodes[after].op != CONST and known:
            alike = (term for term in known if original.nodes[term].op == made.nodes[after].op)
            same.setdefault(after, next(alike, known[0]))
    return same
