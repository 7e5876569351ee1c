"""Drops what no optimal solution needs from one component, with bit masks over its classes.

``must`` of a class are the classes in every finite derivation of it; its dominators are the classes on every way to it
from the roots. Both are Python integers used as bit sets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import networkx as nx

from superopt.extraction.reduction import Item, Items, Late, Part, class_graph, knots, never, prune, simplify
from superopt.extraction.sums import Sums

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


def promote_spine(part: Part, late: Late = never) -> None:
    """Makes roots of classes that every solution needs, as far as that is seen without masks; and simplifies.

    Of each item only the child that takes the longest to derive is looked at: what lies on every path from a root down
    to what needs nothing is needed. Takes about linear time, where masks are quadratic. Changes ``part`` in place.
    """
    level = _levels(part.items)
    graph = nx.DiGraph()
    for owner, ways in part.items.items():
        for item in ways:
            below = max(item.children, key=lambda child: (level[child], child), default=_ROOT)
            graph.add_edge(below, owner)
    above = nx.immediate_dominators(graph, _ROOT)
    needed = dict.fromkeys(part.roots)
    for root in part.roots:
        owner = above.get(root, _ROOT)
        while owner != _ROOT and owner not in needed:
            needed[owner] = None
            owner = above[owner]
    part.roots = list(needed)
    simplify(part, late)


def _levels(items: Items) -> dict[int, int]:
    """How many steps it takes at least to derive each class, all children of an item in one step."""
    waiting: dict[tuple[int, int], int] = {}
    users: dict[int, list[tuple[int, int]]] = {}
    ready: list[int] = []
    for owner, ways in items.items():
        for index, item in enumerate(ways):
            waiting[owner, index] = len(item.children)
            for child in item.children:
                users.setdefault(child, []).append((owner, index))
            if not item.children:
                ready.append(owner)
    level: dict[int, int] = {}
    step = 0
    while ready:
        fresh = [owner for owner in dict.fromkeys(ready) if owner not in level]
        level.update(dict.fromkeys(fresh, step))
        step += 1
        ready = []
        for owner in fresh:
            for user in users.get(owner, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user[0])
    return level


def tighten(part: Part, upper: float, late: Late = never) -> None:
    """Drops items that only cycles could use, that another makes pointless, or that lead above ``upper``; and
    simplifies.

    Changes ``part`` in place, until nothing changes or it is late. ``upper`` is the cost of a known solution of this
    part.
    """
    while part.items and len(part.items) <= MASKS_AT_MOST:
        before = part.size
        found = masks(part.items, part.roots, late)
        if found is None:
            return
        _promote_roots(part, found)
        kept = {owner: _worthwhile(owner, ways, found) for owner, ways in part.items.items()}
        part.items = kept
        _drop_expensive(part, found, upper, late)
        if late():
            prune(part)
            return
        simplify(part, late)
        if part.size == before or late():
            return


def _promote_roots(part: Part, found: Masks) -> None:
    needed = 0
    for root in part.roots:
        needed |= found.must[root]
    part.roots = list(
        dict.fromkeys([*part.roots, *(owner for owner, bit in found.position.items() if needed >> bit & 1)])
    )


def _worthwhile(owner: int, ways: list[Item], found: Masks) -> list[Item]:
    """The items of a class that are in no cycle and not dominated.

    An item is dominated by one that costs no more if all that this one needs is chosen anyway: below the item, or in
    every solution that uses the class and outside the class's knot (so that no cycle can close).
    """
    above = found.dominators[owner]
    ways = [item for item in ways if not found.need(item) & above]
    if len(ways) < 2:
        return ways
    anyway = found.certain[owner] & ~found.knot[owner]
    bits = [sum(1 << found.position[child] for child in item.children) for item in ways]
    order = sorted(range(len(ways)), key=lambda index: (ways[index].cost, ways[index].rank, index))
    chosen: list[int] = []
    for index in order:
        covered = found.need(ways[index]) | anyway
        if not any(bits[other] & ~covered == 0 for other in chosen):
            chosen.append(index)
    return [ways[index] for index in sorted(chosen)]


def _drop_expensive(part: Part, found: Masks, upper: float, late: Late) -> None:
    """Drops items that cost more than ``upper`` together with all that they force."""
    least = [0.0] * len(found.position)
    for owner, bit in found.position.items():
        least[bit] = min((item.cost for item in part.items[owner]), default=0.0)
    total = Sums(least)
    limit = part.rest(upper)
    for owner, ways in part.items.items():
        if len(ways) < 2:
            continue
        if late():
            return
        base = found.certain[owner]
        floor = total.of(base)
        here = least[found.position[owner]]
        part.items[owner] = [
            item for item in ways if floor - here + item.cost + total.of(found.need(item) & ~base) <= limit
        ]
