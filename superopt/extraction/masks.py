"""Bit masks over the classes of one component.

``must`` of a class are the classes in every finite derivation of it; its dominators are the classes on every way to it
from the roots. Both are Python integers used as bit sets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import networkx as nx

from superopt.extraction.reduction import Item, Items, Late, class_graph, knots, never

MASKS_AT_MOST = 20_000
"""Classes of a component beyond which masks take too much memory (a quadratic number of bits)."""

_ROOT = -1


@dataclass(frozen=True)
class Masks:
    """Bit sets of one component by class: ``must``, ``dominators`` (with the class itself), ``certain`` (what is in
    every solution that uses the class: what its dominators must have), ``knot`` (its strongly connected component); and
    ``position``, the bit of each class."""

    position: dict[int, int]
    must: dict[int, int]
    dominators: dict[int, int]
    certain: dict[int, int]
    knot: dict[int, int]

    def need(self, item: Item) -> int:
        """The classes in every derivation that uses this item, its own class left out."""
        needed = 0
        for child in item.children:
            needed |= self.must[child]
        return needed


def masks(items: Items, roots: list[int], late: Late = never) -> Masks | None:
    """The bit sets of a component; None where it is late before they are whole."""
    graph = class_graph(items)
    graph.add_edges_from((_ROOT, root) for root in roots)
    order = list(nx.dfs_postorder_nodes(graph, _ROOT))[:-1]
    position = {owner: bit for bit, owner in enumerate(order)}
    immediate = nx.immediate_dominators(graph, _ROOT)
    must = _must(items, position, late)
    if must is None:
        return None
    always = 0
    for root in roots:
        always |= must[root]
    dominators: dict[int, int] = {_ROOT: 0}
    certain: dict[int, int] = {_ROOT: always}
    for owner in reversed(order):
        chain = []
        at = owner
        while at not in dominators:
            chain.append(at)
            at = immediate[at]
        for at in reversed(chain):
            dominators[at] = dominators[immediate[at]] | 1 << position[at]
            certain[at] = certain[immediate[at]] | must[at]
    knot_bits: dict[int, int] = {}
    knot = knots(items)
    for owner in order:
        knot_bits[knot[owner]] = knot_bits.get(knot[owner], 0) | 1 << position[owner]
    return Masks(position, must, dominators, certain, {owner: knot_bits[knot[owner]] for owner in order})


def _must(items: Items, position: dict[int, int], late: Late) -> dict[int, int] | None:
    """The greatest fixpoint of: a class, and what all its items have in common of what their children must have; None
    where it is late before that."""
    everything = (1 << len(position)) - 1
    must = dict.fromkeys(position, everything)
    users: dict[int, list[int]] = {owner: [] for owner in position}
    for owner in position:
        for child in sorted({child for item in items[owner] for child in item.children}):
            users[child].append(owner)
    queue = deque(position)
    queued = set(position)
    while queue:
        if late():
            return None
        owner = queue.popleft()
        queued.discard(owner)
        common = everything
        for item in items[owner]:
            needed = 0
            for child in item.children:
                needed |= must[child]
            common &= needed
        common |= 1 << position[owner]
        if common != must[owner]:
            must[owner] = common
            for user in users[owner]:
                if user not in queued:
                    queued.add(user)
                    queue.append(user)
    return must
