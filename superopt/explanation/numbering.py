"""Graphs that compute the same by the same terms, however these are numbered."""

from __future__ import annotations

from superopt.terms import ABSENT, Node, TermGraph


def same_graph(one: TermGraph, other: TermGraph) -> bool:
    """Whether two graphs compute their roots by the same terms, however these are numbered."""
    return numbered(one).text() == numbered(other).text()


def numbered(graph: TermGraph) -> TermGraph:
    """The graph with its terms in the order in which the roots reach them, arguments from the left; none besides."""
    place: dict[int, int] = {}
    for root in graph.roots:
        stack = [root]
        while stack:
            index = stack[-1]
            if index in place:
                stack.pop()
                continue
            waiting = [arg for arg in graph.nodes[index].args if arg != ABSENT and arg not in place]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            place[index] = len(place)
    nodes = [
        Node(node.op, tuple(a if a == ABSENT else place[a] for a in node.args), node.attrs)
        for node in (graph.nodes[index] for index in place)
    ]
    types = tuple(graph.types[index] for index in place)
    roots = tuple(place[root] for root in graph.roots)
    return TermGraph(tuple(nodes), types, roots, graph.constants, graph.opaque)
