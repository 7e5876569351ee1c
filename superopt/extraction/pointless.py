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
    to the roots last), the bits of the roots, and the cheapest items of each class (cost, place, children's bits)."""

    found: Masks
    owners: list[int]
    users: dict[int, list[int]]
    roots: int
    cheapest: dict[int, list[tuple[float, int, int]]]

    @classmethod
    def through(cls, part: Part, found: Masks) -> _Looked:
        users: dict[int, dict[int, None]] = {owner: {} for owner in part.items}
        cheapest: dict[int, list[tuple[float, int, int]]] = {}
        for owner, ways in part.items.items():
            for item in ways:
                for child in item.children:
                    users[child][owner] = None
            ranked = sorted((item.cost, place, found.bits(item)) for place, item in enumerate(ways))
            cheapest[owner] = ranked[:_COMPARED]
        above = {owner: sorted(names, key=found.position.__getitem__) for owner, names in users.items()}
        roots = sum(1 << found.position[root] for root in set(part.roots))
        return cls(found, list(found.position), above, roots, cheapest)

    def worthwhile(self, owner: int, ways: list[Item]) -> list[Item]:
        found = self.found
        above, knot = found.dominators[owner], found.knot[owner]
        anyway = found.certain[owner] & ~knot
        kept = []
        for place, item in enumerate(ways):
            need = found.need(item)
            if need & above or (need & knot and not self._reached(owner, need)):
                continue
            if len(ways) < 2 or not self._replaced(owner, place, item.cost, need | anyway):
                kept.append((item, need))
        if len(kept) < 2:
            return [item for item, _ in kept]
        order = sorted(range(len(kept)), key=lambda index: (kept[index][0].cost, kept[index][0].rank, index))
        bits = [found.bits(item) for item, _ in kept]
        chosen: list[int] = []
        for index in order:
            covered = kept[index][1] | anyway
            if not any(bits[other] & ~covered == 0 for other in chosen):
                chosen.append(index)
        return [kept[index][0] for index in sorted(chosen)]

    def _reached(self, owner: int, need: int) -> bool:
        """Whether a root can need a class other than through ``need``, the classes in every derivation of one of its
        items: whatever is in between would have to be computed before and after the class."""
        position = self.found.position
        if self.roots >> position[owner] & 1:
            return True
        seen = {owner}
        stack = [owner]
        while stack:
            for user in self.users[stack.pop()]:
                if user in seen or need >> position[user] & 1:
                    continue
                if self.roots >> position[user] & 1 or len(seen) > _STEPS:
                    return True
                seen.add(user)
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
