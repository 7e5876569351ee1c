"""Choices in full: the e-nodes behind a choice of nodes and groups, and the choices that the original is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from superopt.engine.eclasses import ENode
from superopt.extraction.pricing import Priced
from superopt.extraction.problem import Choice, settle
from superopt.terms import ABSENT


def spread(priced: Priced, choice: Choice) -> dict[int, ENode | None] | None:
    """The e-node of every class that a choice needs, those inside of groups too, None for a constant that is to be
    evaluated; None where these make a cycle."""
    nodes = {owner: priced.node[index] for owner, index in choice.node.items()}
    groups = [priced.inside[index] for index in choice.node.values() if index in priced.inside]
    if not groups:
        return nodes
    for part in itertools.chain.from_iterable(groups):
        nodes.setdefault(priced.problem.node_class[part], priced.node[part])
    waiting: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for owner, node in nodes.items():
        children = {child for child in (node.children if node is not None else ()) if child != ABSENT}
        waiting[owner] = len(children)
        for child in children:
            users.setdefault(child, []).append(owner)
    ready = [owner for owner, count in waiting.items() if not count]
    done = 0
    while ready:
        done += 1
        for user in users.get(ready.pop(), ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return nodes if done == len(nodes) else None


def originals(priced: Priced) -> Iterator[Choice]:
    """The choices of the original's own nodes, where they are complete: by groups where there are any, and apart."""
    for each in (priced, priced.apart) if priced.inside else (priced,):
        choice = _original(each)
        if choice is not None and spread(priced, choice) is not None:
            yield choice


def _original(priced: Priced) -> Choice | None:
    problem = priced.problem
    first: dict[int, int] = {}
    groups: dict[int, int] = {}
    for index in range(len(problem.costs)):
        owner = problem.node_class[index]
        if not problem.preferred[index]:
            continue
        if index in priced.inside:
            known = groups.get(owner)
            if known is None or len(priced.inside[index]) > len(priced.inside[known]):
                groups[owner] = index
            continue
        node = priced.node[index]
        rank = -1 if node is None or node.original is None else node.original
        best = first.get(owner)
        if best is None:
            first[owner] = index
            continue
        other = priced.node[best]
        if (problem.costs[index], rank) < (problem.costs[best], -1 if other is None else other.original or 0):
            first[owner] = index
    return settle(problem, (first | groups).values())
