"""Good choices fast: greedy by the cost of trees, greedy by what is not paid yet, repricing, and exchange of single
items.

A choice of a part is an item number for each class that has one; a solution needs only those that its roots reach.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping

from superopt.extraction.reduction import ROUNDING, Items, Late, Part, never
from superopt.extraction.sums import Sums

Chosen = dict[int, int]
"""The number of the chosen item by class."""

_REPRICINGS = 12
_GREEDY_SETS_AT_MOST = 12_000_000
"""Items times classes beyond which greedy by cost sets takes too long."""

_EXCHANGE_WORK = 500_000
"""Classes visited by exchange before it stops."""


def needed(items: Items, roots: list[int], chosen: Mapping[int, int]) -> list[int] | None:
    """The classes that a choice needs, children first; None if it is not complete or has a cycle."""
    state: dict[int, bool] = {}
    order = []
    for root in roots:
        stack = [root]
        while stack:
            top = stack[-1]
            if state.get(top):
                stack.pop()
                continue
            if top not in chosen:
                return None
            waiting = [child for child in items[top][chosen[top]].children if not state.get(child)]
            if not waiting:
                state[top] = True
                order.append(top)
                stack.pop()
                continue
            if top in state:
                return None
            state[top] = False
            if any(child in state for child in waiting):
                return None
            stack.extend(reversed(waiting))
    return order


def value(items: Items, roots: list[int], chosen: Mapping[int, int]) -> float:
    """What a choice costs; infinite if it is not a solution."""
    order = needed(items, roots, chosen)
    if order is None:
        return math.inf
    return math.fsum(items[owner][chosen[owner]].cost for owner in order)


def by_trees(items: Items, price: Callable[[int, int], float], share: Mapping[int, float] | None = None) -> Chosen:
    """For each class the item of the least tree cost, children's costs multiplied by ``share``; never cyclic.

    ``price`` of a class and an item number is not negative. Knuth's generalization of Dijkstra's algorithm.
    """
    waiting: dict[tuple[int, int], int] = {}
    total: dict[tuple[int, int], float] = {}
    users: dict[int, list[tuple[int, int]]] = {}
    heap: list[tuple[float, int, int, int]] = []
    for owner, ways in items.items():
        for index, item in enumerate(ways):
            key = (owner, index)
            total[key] = price(owner, index)
            waiting[key] = len(item.children)
            if not item.children:
                heap.append((total[key], item.rank, owner, index))
            for child in item.children:
                users.setdefault(child, []).append(key)
    heapq.heapify(heap)
    chosen: Chosen = {}
    while heap:
        cost, _, owner, index = heapq.heappop(heap)
        if owner in chosen:
            continue
        chosen[owner] = index
        passed = cost * share.get(owner, 1.0) if share is not None else cost
        for key in users.get(owner, ()):
            total[key] += passed
            waiting[key] -= 1
            if not waiting[key]:
                heapq.heappush(heap, (total[key], items[key[0]][key[1]].rank, *key))
    return chosen


def by_sets(items: Items, late: Late = never) -> Chosen:
    """For each class the item of the least cost where a class below it is paid once; never cyclic, and not complete
    where it gets late."""
    position = {owner: bit for bit, owner in enumerate(items)}
    paid = Sums([0.0] * len(items))
    below: dict[int, int] = {}
    waiting: dict[tuple[int, int], int] = {}
    users: dict[int, list[tuple[int, int]]] = {}
    heap: list[tuple[float, int, int, int]] = []
    for owner, ways in items.items():
        for index, item in enumerate(ways):
            waiting[owner, index] = len(item.children)
            if not item.children:
                heap.append((item.cost, item.rank, owner, index))
            for child in item.children:
                users.setdefault(child, []).append((owner, index))
    heapq.heapify(heap)
    chosen: Chosen = {}
    while heap and not late():
        _, _, owner, index = heapq.heappop(heap)
        if owner in chosen:
            continue
        chosen[owner] = index
        paid.put(position[owner], items[owner][index].cost)
        mask = 1 << position[owner]
        for child in items[owner][index].children:
            mask |= below[child]
        below[owner] = mask
        for key in users.get(owner, ()):
            waiting[key] -= 1
            if waiting[key] or key[0] in chosen:
                continue
            item = items[key[0]][key[1]]
            union = 0
            for child in item.children:
                union |= below[child]
            heapq.heappush(heap, (item.cost + paid.of(union), item.rank, *key))
    return chosen


def repriced(part: Part, start: Chosen, late: Late = never, rounds: int = _REPRICINGS) -> tuple[Chosen, float]:
    """Improves a choice by choosing again by trees, each class's cost divided by how often the last choice used it."""
    best, best_cost = start, value(part.items, part.roots, start)
    current = start
    uses: dict[int, float] = {}
    for _ in range(rounds):
        order = None if late() else needed(part.items, part.roots, current)
        if order is None:
            break
        count: dict[int, int] = dict.fromkeys(part.roots, 1)
        for owner in order:
            for child in part.items[owner][current[owner]].children:
                count[child] = count.get(child, 0) + 1
        for owner in part.items:
            uses[owner] = (uses.get(owner, 1.0) + count.get(owner, 1)) / 2
        share = {owner: 1.0 / max(number, 1.0) for owner, number in uses.items()}
        chosen = by_trees(part.items, lambda owner, index: part.items[owner][index].cost, share)
        cost = value(part.items, part.roots, chosen)
        if cost < best_cost:
            best, best_cost = chosen, cost
        if chosen == current:
            break
        current = chosen
    return best, best_cost


def exchanged(part: Part, start: Chosen, late: Late = never) -> tuple[Chosen, float]:
    """Improves a choice by exchanging single items as long as that makes it cheaper, or as cheap with more preferred
    ones."""
    items, roots = part.items, part.roots
    chosen, cost = dict(start), value(items, roots, start)
    work = 0
    improved = True
    while improved and work < _EXCHANGE_WORK and not late():
        improved = False
        order = needed(items, roots, chosen) or []
        uses = _uses(part, chosen, order)
        for owner in reversed(order):
            for index, item in enumerate(items[owner]):
                if index == chosen[owner] or not uses[owner] or work >= _EXCHANGE_WORK or late():
                    continue
                before = chosen[owner]
                saved, visited = _saved(items, chosen, uses, owner, index)
                work += visited
                if saved < -ROUNDING * cost or (saved <= ROUNDING * cost and item.rank >= items[owner][before].rank):
                    continue
                chosen[owner] = index
                tried = value(items, roots, chosen)
                work += len(order)
                if tried < cost or (tried == cost and item.rank < items[owner][before].rank):
                    cost, improved = tried, True
                    uses = _uses(part, chosen, needed(items, roots, chosen) or [])
                else:
                    chosen[owner] = before
    return chosen, cost


def _uses(part: Part, chosen: Chosen, order: list[int]) -> Counter[int]:
    """How many of the classes that a choice needs need each class; roots are needed once more."""
    uses = Counter(part.roots)
    for owner in order:
        uses.update(part.items[owner][chosen[owner]].children)
    return uses


def _saved(items: Items, chosen: Chosen, uses: Counter[int], owner: int, index: int) -> tuple[float, int]:
    """What a choice would cost less with another item for a class, if that makes no cycle; and how many classes had to
    be looked at, which are those that come and go, not all."""
    old, new = items[owner][chosen[owner]], items[owner][index]
    saved = old.cost - new.cost
    left: dict[int, int] = {}
    stack = list(new.children)
    while stack:
        child = stack.pop()
        left[child] = left.get(child, uses[child]) + 1
        if left[child] == 1:
            if child not in chosen:
                return -math.inf, len(left)
            saved -= items[child][chosen[child]].cost
            stack += items[child][chosen[child]].children
    stack = list(old.children)
    while stack:
        child = stack.pop()
        left[child] = left.get(child, uses[child]) - 1
        if left[child] == 0:
            saved += items[child][chosen[child]].cost
            stack += items[child][chosen[child]].children
    return saved, len(left)


def heuristic(part: Part, late: Late = never) -> tuple[Chosen, float]:
    """The best choice that the heuristics find, and what it costs (without ``part.cost``); where it is late, the one of
    the least trees."""
    starts = [by_trees(part.items, lambda owner, index: part.items[owner][index].cost)]
    if part.size * len(part.items) <= _GREEDY_SETS_AT_MOST:
        starts.append(by_sets(part.items, late))
    found = [repriced(part, start, late) for start in starts]
    best, _ = min(found, key=lambda pair: pair[1])
    return exchanged(part, best, late)
