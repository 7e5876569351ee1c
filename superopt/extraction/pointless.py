"""Drops items that no cheapest solution needs, with the bit masks of ``tightening``: what only a cycle could use, and
what something else can stand in for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from superopt.extraction.masks import Masks
from superopt.extraction.reduction import ROUNDING, Item, Items, Late, Part

_STEPS = 1_000
"""Classes that a way up to the roots is looked for through."""

_COMPARED = 64
"""Items of a class, the cheapest first, that are tried in the place of others."""

_UNMET = 3
"""Classes that what stands in may need and that have to be derived too."""

_DEEP = 2
"""How many items one above the other they may be derived with."""


def worthwhile(part: Part, found: Masks, late: Late) -> Items:
    """The items of each class that are in no cycle and that nothing else can stand in for; all, for classes that it is
    late for."""
    looked = _Looked.through(part, found)
    return {owner: ways if late() else looked.worthwhile(owner, ways) for owner, ways in part.items.items()}


@dataclass(frozen=True)
class _Looked:
    """What is looked up often: the classes in the order of their bits, the classes that need each class (those nearest
    to the roots last), the bits of the roots, the bits of what each item needs itself, and the cheapest items of each
    class (cost, place, these bits)."""

    found: Masks
    owners: list[int]
    users: dict[int, list[int]]
    roots: int
    bits: dict[int, list[int]]
    cheapest: dict[int, list[tuple[float, int, int]]]

    @classmethod
    def through(cls, part: Part, found: Masks) -> _Looked:
        users: dict[int, dict[int, None]] = {owner: {} for owner in part.items}
        bit = {owner: 1 << place for owner, place in found.position.items()}
        bits: dict[int, list[int]] = {}
        cheapest: dict[int, list[tuple[float, int, int]]] = {}
        for owner, ways in part.items.items():
            mine = bits[owner] = []
            for item in ways:
                needed = 0
                for child in item.children:
                    users[child][owner] = None
                    needed |= bit[child]
                mine.append(needed)
            ranked = sorted((item.cost, place) for place, item in enumerate(ways))
            cheapest[owner] = [(cost, place, mine[place]) for cost, place in ranked[:_COMPARED]]
        above = {owner: sorted(names, key=found.position.__getitem__) for owner, names in users.items()}
        roots = sum(1 << found.position[root] for root in set(part.roots))
        return cls(found, list(found.position), above, roots, bits, cheapest)

    def worthwhile(self, owner: int, ways: list[Item]) -> list[Item]:
        found = self.found
        above, knot = found.dominators[owner], found.knot[owner]
        anyway = found.certain[owner] & ~knot
        kept = []
        ways_up: list[int] = [] if self.roots >> found.position[owner] & 1 == 0 else [0]
        for place, item in enumerate(ways):
            need = found.need(item)
            if need & above or (need & knot and not self._reached(owner, need & knot, ways_up)):
                continue
            if len(ways) < 2 or not self._replaced(owner, place, item.cost, need | anyway):
                kept.append((item, need, self.bits[owner][place]))
        if len(kept) < 2:
            return [item for item, _, _ in kept]
        order = sorted(range(len(kept)), key=lambda index: (kept[index][0].cost, kept[index][0].rank, index))
        chosen: list[int] = []
        before: list[int] = []
        for index in order:
            _, need, bits = kept[index]
            unmet = ~(need | anyway)
            if all(map(unmet.__and__, before)):
                chosen.append(index)
                before.append(bits)
        return [kept[index][0] for index in sorted(chosen)]

    def _reached(self, owner: int, need: int, ways_up: list[int]) -> bool:
        """Whether a root can need a class other than through ``need``, the classes of its knot in every derivation of
        one of its items: whatever is in between would have to be computed before and after the class.

        ``ways_up`` are the classes on ways that were found before, and get those of this one. Above the knot nothing is
        in between.
        """
        if any(not need & way for way in ways_up):
            return True
        position, knot = self.found.position, self.found.knot
        here = knot[owner]
        came = {owner: owner}
        stack = [owner]
        while stack:
            at = stack.pop()
            for user in self.users[at]:
                if user in came or need >> position[user] & 1:
                    continue
                came[user] = at
                if len(came) > _STEPS:
                    return True
                if self.roots >> position[user] & 1 or knot[user] != here:
                    way = 0
                    while user != owner:
                        way |= 1 << position[user]
                        user = came[user]
                    ways_up.append(way)
                    return True
                stack.append(user)
        return False

    def _replaced(self, owner: int, place: int, cost: float, given: int) -> bool:
        """Whether another item of a class is cheaper than one of so much cost, together with all that has to be derived
        for it from what is there with that one.

        Strictly cheaper: then no cheapest solution has the one, whatever else is dropped at the same time. What has to
        be derived and is there already, computed from the class, can be derived anew; that ends no other's derivation.
        """
        budget = cost * (1 - ROUNDING)
        for price, other, children in self.cheapest[owner]:
            if price >= budget:
                return False
            unmet = children & ~given
            if other == place or unmet.bit_count() > _UNMET:
                continue
            if price + self._derived(unmet, given, budget - price, _DEEP) < budget:
                return True
        return False

    def _derived(self, unmet: int, given: int, budget: float, depth: int) -> float:
        """The least cost to derive classes from what is given, infinite if it is not below the budget."""
        total = 0.0
        while unmet:
            lowest = unmet & -unmet
            unmet ^= lowest
            best = budget - total
            for price, _, children in self.cheapest[self.owners[lowest.bit_length() - 1]]:
                if price >= best:
                    break
                rest = children & ~given
                if rest and (depth < 2 or rest.bit_count() > _UNMET):
                    continue
                best = min(best, price + self._derived(rest, given, best - price, depth - 1))
            total += best
            if total >= budget:
                return math.inf
        return total
