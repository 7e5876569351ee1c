"""The extraction problem on plain arrays, apart from any e-graph: what is chosen, what it costs, whether it is
well-founded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from superopt.errors import EGraphError


@dataclass(frozen=True)
class Problem:
    """Choose one node for every class that is needed, acyclic, all roots covered, the sum of the chosen nodes' costs
    least.

    ``node_class``, ``children`` (classes, in any order, repeats allowed) and ``costs`` are by node; classes are
    numbered from 0. ``preferred`` nodes win over others at equal cost. A node with infinite cost cannot be chosen.
    """

    classes: int
    node_class: Sequence[int]
    children: Sequence[Sequence[int]]
    costs: Sequence[float]
    roots: Sequence[int]
    preferred: Sequence[bool] = ()

    def __post_init__(self) -> None:
        if not len(self.node_class) == len(self.children) == len(self.costs):
            raise EGraphError("node_class, children and costs differ in length")
        if any(math.isnan(cost) or cost < 0 for cost in self.costs):
            raise EGraphError("a node's cost is negative or not a number, expected 0 or more")

    @property
    def by_class(self) -> list[list[int]]:
        """The nodes of each class, in order."""
        nodes: list[list[int]] = [[] for _ in range(self.classes)]
        for node, owner in enumerate(self.node_class):
            nodes[owner].append(node)
        return nodes


@dataclass(frozen=True)
class Choice:
    """A choice of nodes: ``node`` by class, only for the classes that the roots need, in an order in which every class
    comes after its children; and what it costs."""

    node: dict[int, int]
    cost: float


def settle(problem: Problem, picked: Iterable[int]) -> Choice | None:
    """The part of a choice (nodes, any order) that the roots need, costed on the whole problem; None if it is not
    complete or has a cycle."""
    choice: dict[int, int] = {}
    for node in picked:
        choice[problem.node_class[node]] = node
    ordered: dict[int, int] = {}
    open_classes: set[int] = set()
    for root in problem.roots:
        stack = [root]
        while stack:
            top = stack[-1]
            if top in ordered:
                stack.pop()
                continue
            if top not in choice:
                return None
            node = choice[top]
            waiting = [child for child in problem.children[node] if child not in ordered]
            if not waiting:
                ordered[top] = node
                open_classes.discard(top)
                stack.pop()
                continue
            if top in open_classes:
                return None
            open_classes.add(top)
            if not open_classes.isdisjoint(waiting):
                return None
            stack.extend(reversed(waiting))
    return Choice(ordered, math.fsum(problem.costs[node] for node in ordered.values()))


def derivable(
    classes: int, node_class: Sequence[int], children: Sequence[Sequence[int]], alive: Sequence[bool]
) -> list[bool]:
    """Which classes have a finite derivation from the nodes that are alive."""
    waiting = [len(set(kids)) for kids in children]
    users: list[list[int]] = [[] for _ in range(classes)]
    for node, kids in enumerate(children):
        if alive[node]:
            for child in set(kids):
                users[child].append(node)
    found = [False] * classes
    ready = [node for node in range(len(children)) if alive[node] and not waiting[node]]
    while ready:
        owner = node_class[ready.pop()]
        if found[owner]:
            continue
        found[owner] = True
        for user in users[owner]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return found


def hopeless_root(problem: Problem, found: Sequence[bool]) -> tuple[int, str] | None:
    """A root without a derivation of finite cost, and what it has not; ``found`` says of which classes there are such.

    None where every root has one.
    """
    root = next((root for root in problem.roots if not found[root]), None)
    if root is None:
        return None
    whatever_the_cost = derivable(problem.classes, problem.node_class, problem.children, [True] * len(problem.costs))
    if whatever_the_cost[root]:
        return root, "no derivation of finite cost, expected one without a node of infinite cost"
    return root, "no finite derivation, expected one without a cycle"
