"""Makes an extraction problem smaller without losing an optimal solution: what is forced is paid, and the rest falls
apart.

A class that every solution needs becomes a root, and edges to it are dropped where they cannot be part of a cycle. What
is left falls into independent components; ``tightening`` works on each of these with bit masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import networkx as nx

from superopt.errors import EGraphError
from superopt.extraction.problem import Problem, derivable, hopeless_root

Picks: TypeAlias = "int | tuple[Picks, ...]"
"""Nodes of the problem, nested: what choosing an item means."""


class Item(NamedTuple):
    """A way to compute a class: its cost, the classes it needs (sorted), 0 if preferred, the nodes that it stands for;
    and the classes that it needs too, but that are settled, or will be."""

    cost: float
    children: tuple[int, ...]
    rank: int
    picks: Picks
    settled: frozenset[int] = frozenset()


Items: TypeAlias = dict[int, list[Item]]

_Place: TypeAlias = tuple[int, ...]
"""Where an item stands among those of its class: what takes the place of one stands where that stood."""

Late: TypeAlias = Callable[[], bool]
"""Whether the time is over: what asks leaves off where it is and stays sound."""


def never() -> bool:
    """The time is not over."""
    return False


@dataclass
class Part:
    """A problem under reduction: the items of each class, the roots in order, and what is settled already."""

    items: Items
    roots: list[int]
    cost: float = 0.0
    picks: list[Picks] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(map(len, self.items.values()))

    def rest(self, upper: float) -> float:
        """What a solution that costs at most ``upper`` may pay for what is left.

        Where nearly all is settled, this is a small difference of large numbers: what rounding has taken away is given
        back, for what is dropped above the rest must not be the last derivation, nor be missed.
        """
        return upper - self.cost + ROUNDING * upper


ROUNDING = 1e-9
"""By what share of its cost a solution may seem cheaper or dearer than it is where costs come and go one by one."""

_ALIAS_GROWTH = 16
"""An alias is dissolved into its children if that adds no more edges than this."""

_COMPARED = 64
"""Items of a class that are compared with each other for domination; in larger classes only equal children are."""


def flatten(picks: Iterable[Picks]) -> Iterator[int]:
    """The nodes in nested picks."""
    stack = list(picks)
    while stack:
        top = stack.pop()
        if isinstance(top, int):
            yield top
        else:
            stack.extend(top)


def opened(problem: Problem) -> Part:
    """The problem as a part: without infinite costs and what cannot be derived.

    Raises ``EGraphError`` if a root has no derivation of finite cost.
    """
    alive = [cost < math.inf for cost in problem.costs]
    found = derivable(problem.classes, problem.node_class, problem.children, alive)
    hopeless = hopeless_root(problem, found)
    if hopeless is not None:
        root, why = hopeless
        raise EGraphError(f"root {root} has {why}")
    roots = list(dict.fromkeys(problem.roots))
    preferred = problem.preferred or [False] * len(problem.costs)
    by_class = problem.by_class
    items: Items = {}
    stack = list(reversed(roots))
    while stack:
        owner = stack.pop()
        if owner in items:
            continue
        kept = items[owner] = []
        for node in by_class[owner]:
            kids = tuple(sorted(set(problem.children[node])))
            if alive[node] and owner not in kids and all(found[child] for child in kids):
                kept.append(Item(problem.costs[node], kids, 0 if preferred[node] else 1, node))
                stack.extend(child for child in kids if child not in items)
    return Part(items, roots)


def simplify(part: Part, late: Late = never) -> None:
    """Settles what is forced and dissolves classes without a choice, until nothing changes or it is late. Changes
    ``part`` in place."""
    steps = (_drop_dominated, _settle_forced, _dissolve_aliases, _inline)
    while True:
        before = (len(part.items), part.size, sum(len(item.children) for kept in part.items.values() for item in kept))
        prune(part)
        for step in steps:
            if late():
                prune(part)
                return
            step(part)
        after = (len(part.items), part.size, sum(len(item.children) for kept in part.items.values() for item in kept))
        if before == after:
            return


def prune(part: Part) -> None:
    """Drops what earlier steps have made hopeless or needless, so that nobody meets it. Changes ``part`` in place."""
    _drop_hopeless(part)
    _drop_unreachable(part)


def _drop_hopeless(part: Part) -> None:
    """Drops items that no finite derivation can use."""
    items = part.items
    waiting: dict[tuple[int, int], int] = {}
    users: dict[int, list[tuple[int, int]]] = {}
    ready: list[tuple[int, int]] = []
    for owner, kept in items.items():
        for index, item in enumerate(kept):
            if not item.children:
                ready.append((owner, index))
                continue
            waiting[owner, index] = len(item.children)
            for child in item.children:
                users.setdefault(child, []).append((owner, index))
    found: set[int] = set()
    while ready:
        owner = ready.pop()[0]
        if owner in found:
            continue
        found.add(owner)
        for user in users.get(owner, ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(found) < len(items):
        for owner, kept in items.items():
            items[owner] = [item for item in kept if found.issuperset(item.children)]
    if any(not items[root] for root in part.roots):
        raise EGraphError("a root has lost its last derivation")


def _drop_unreachable(part: Part) -> None:
    seen: dict[int, None] = dict.fromkeys(part.roots)
    stack = list(part.roots)
    while stack:
        for item in part.items[stack.pop()]:
            for child in item.children:
                if child not in seen:
                    seen[child] = None
                    stack.append(child)
    if len(seen) < len(part.items):
        part.items = {owner: kept for owner, kept in part.items.items() if owner in seen}


def _drop_dominated(part: Part) -> None:
    for owner, kept in part.items.items():
        part.items[owner] = undominated(owner, kept)


def undominated(owner: int, kept: list[Item]) -> list[Item]:
    """The items of a class that no other makes pointless: one that costs no more and needs no other classes."""
    if len(kept) < 2:
        return kept
    order = sorted(range(len(kept)), key=lambda index: (kept[index].cost, kept[index].rank, index))
    chosen: list[int] = []
    seen: set[tuple[int, ...]] = set()
    for index in order:
        children = kept[index].children
        if children in seen or owner in children:
            continue
        seen.add(children)
        if len(kept) <= _COMPARED:
            needed = set(children)
            if any(needed.issuperset(kept[other].children) for other in chosen):
                continue
        chosen.append(index)
    return [kept[index] for index in sorted(chosen)]


def class_graph(items: Items) -> nx.DiGraph:
    """An edge from each class to each class that one of its items needs."""
    graph = nx.DiGraph()
    graph.add_nodes_from(items)
    graph.add_edges_from((owner, child) for owner, kept in items.items() for item in kept for child in item.children)
    return graph


def knots(items: Items) -> dict[int, int]:
    """The strongly connected component of each class, by number; Tarjan's algorithm."""
    below = {owner: list({child for item in kept for child in item.children}) for owner, kept in items.items()}
    knot: dict[int, int] = {}
    least: dict[int, int] = {}
    order: dict[int, int] = {}
    open_classes: list[int] = []
    for start in items:
        stack = [] if start in order else [start]
        while stack:
            owner = stack[-1]
            if owner not in order:
                order[owner] = least[owner] = len(order)
                open_classes.append(owner)
            waiting = below[owner]
            while waiting and waiting[-1] in order:
                child = waiting.pop()
                if child not in knot:
                    least[owner] = min(least[owner], least[child])
            if waiting:
                stack.append(waiting[-1])
                continue
            stack.pop()
            if least[owner] == order[owner]:
                number = len(knot)
                while owner not in knot:
                    knot[open_classes.pop()] = number
    return knot


def _settle_forced(part: Part) -> None:
    """What every solution needs becomes a root; edges to it from outside its knot go; roots without a choice are
    paid."""
    items = part.items
    forced: dict[int, None] = dict.fromkeys(part.roots)
    stack = list(part.roots)
    while stack:
        kept = items[stack.pop()]
        common = set(kept[0].children).intersection(*(item.children for item in kept[1:]))
        for child in sorted(common):
            if child not in forced:
                forced[child] = None
                stack.append(child)
    knot = knots(items)
    for owner, kept in items.items():
        here = knot[owner]
        for index, item in enumerate(kept):
            needed = tuple(child for child in item.children if child not in forced or knot[child] == here)
            if len(needed) < len(item.children):
                settled = item.settled.union(child for child in item.children if child not in needed)
                kept[index] = item._replace(children=needed, settled=settled)
    roots = []
    for root in forced:
        kept = items[root]
        if len(kept) == 1 and not kept[0].children:
            part.cost += kept[0].cost
            part.picks.append(kept[0].picks)
            del items[root]
        else:
            roots.append(root)
    part.roots = roots


def _dissolve_aliases(part: Part) -> None:
    """A class with one item that costs nothing is its children, for all that need it."""
    uses: dict[int, int] = {}
    for kept in part.items.values():
        for item in kept:
            for child in item.children:
                uses[child] = uses.get(child, 0) + 1
    alias: dict[int, tuple[int, ...]] = {}
    for owner, kept in part.items.items():
        if len(kept) == 1 and kept[0].cost == 0:
            children = kept[0].children
            if (uses.get(owner, 0) - 1) * (len(children) - 1) <= _ALIAS_GROWTH:
                alias[owner] = children
    if not alias:
        return
    resolved: dict[int, tuple[int, ...]] = {}
    settled: dict[int, frozenset[int]] = {}
    for start in alias:
        stack = [start]
        while stack:
            top = stack[-1]
            waiting = [child for child in alias[top] if child in alias and child not in resolved]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            resolved[top] = _substituted(alias[top], resolved)
            inner = (settled[child] for child in alias[top] if child in settled)
            settled[top] = part.items[top][0].settled.union((top,), *inner)
    for owner in alias:
        part.picks.append(part.items.pop(owner)[0].picks)
    for kept in part.items.values():
        for index, item in enumerate(kept):
            if any(child in resolved for child in item.children):
                below = item.settled.union(*(settled[child] for child in item.children if child in resolved))
                kept[index] = item._replace(children=_substituted(item.children, resolved), settled=below)
    part.roots = list(dict.fromkeys(new for root in part.roots for new in resolved.get(root, (root,))))


def _substituted(children: tuple[int, ...], resolved: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({new for child in children for new in resolved.get(child, (child,))}))


def _inline(part: Part) -> None:
    """A class that only one class needs moves into the items of that class where this adds no items.

    Items have places, so that only those that need the class are touched: a class may have thousands of others.
    """
    roots = set(part.roots)
    ways: dict[int, dict[_Place, Item]] = {}
    needing: dict[int, dict[int, dict[_Place, None]]] = {owner: {} for owner in part.items}

    def put(owner: int, place: _Place, item: Item) -> None:
        ways[owner][place] = item
        for child in item.children:
            needing[child].setdefault(owner, {})[place] = None

    def take(owner: int, place: _Place) -> Item:
        item = ways[owner].pop(place)
        for child in item.children:
            places = needing[child][owner]
            del places[place]
            if not places:
                del needing[child][owner]
        return item

    for owner, kept in part.items.items():
        ways[owner] = {}
        for index, item in enumerate(kept):
            put(owner, (index,), item)
    for owner in list(part.items):
        if owner in roots or len(needing[owner]) != 1:
            continue
        (parent, places), *_ = needing[owner].items()
        own = sorted(ways[owner])
        if parent == owner or len(places) * len(own) > len(places) + len(own):
            continue
        for place in list(places):
            item = take(parent, place)
            rest = [child for child in item.children if child != owner]
            for number, mine in enumerate(own):
                way = ways[owner][mine]
                children = tuple(sorted({*rest, *way.children}))
                if parent not in children:
                    rank, settled = max(item.rank, way.rank), item.settled | way.settled
                    joined = Item(item.cost + way.cost, children, rank, (item.picks, way.picks), settled)
                    put(parent, place if len(own) == 1 else (*place, number), joined)
        for mine in own:
            take(owner, mine)
        del ways[owner], needing[owner]
    part.items = {owner: [kept[place] for place in sorted(kept)] for owner, kept in ways.items()}


def components(part: Part) -> list[Part]:
    """The independent components of what is left, in order of their first root."""
    groups = nx.weakly_connected_components(class_graph(part.items))
    number = {owner: index for index, group in enumerate(groups) for owner in group}
    found: dict[int, Part] = {}
    for root in part.roots:
        found.setdefault(number[root], Part({}, [])).roots.append(root)
    for owner, kept in part.items.items():
        found[number[owner]].items[owner] = kept
    return list(found.values())
