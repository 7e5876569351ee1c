"""Graphs that compute the same by the same terms, however these are numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from superopt.terms import ABSENT, Node, TermGraph


def same_graph(one: TermGraph, other: TermGraph) -> bool:
    """Whether two graphs compute their roots by the same terms, however these are numbered."""
    return numbered(one).text() == numbered(other).text()


def numbered(graph: TermGraph) -> TermGraph:
    """The graph with its terms in the order in which the roots reach them, arguments from the left; none besides."""
    order = post_order(graph.roots, lambda index: graph.nodes[index].args)
    place = {index: number for number, index in enumerate(order)}
    nodes = [
        Node(node.op, tuple(a if a == ABSENT else place[a] for a in node.args), node.attrs)
        for node in (graph.nodes[index] for index in order)
    ]
    types = tuple(graph.types[index] for index in order)
    roots = tuple(place[root] for root in graph.roots)
    return TermGraph(tuple(nodes), types, roots, graph.constants, graph.opaque)


def post_order(starts: Iterable[int], args: Callable[[int], Sequence[int]]) -> list[int]:
    """All that some terms are made of, these included, each once: arguments from the left, before who uses them.

    ``args`` tells the arguments of a term; there are no cycles.
    """
    done: dict[int, None] = {}
    for start in starts:
        stack = [start]
        while stack:
            term = stack[-1]
            waiting = [] if term in done else [arg for arg in args(term) if arg != ABSENT and arg not in done]
            if waiting:
                stack.extend(reversed(waiting))
            else:
                done[stack.pop()] = None
    return list(done)
