"""Drops what no optimal solution needs from one component, round by round."""

from __future__ import annotations

import networkx as nx

from superopt.extraction.masks import MASKS_AT_MOST, Masks, masks
from superopt.extraction.pointless import worthwhile
from superopt.extraction.reduction import Items, Late, Part, never, prune, simplify
from superopt.extraction.sums import Sums

_ROOT = -1


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
        part.items = worthwhile(part, found, late)
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
