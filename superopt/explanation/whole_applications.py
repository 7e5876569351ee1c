"""Where rules about whole sums and whole chains apply: a sum in two orders, a chain of scales and shifts and what it
was joined to.

The engine writes these anew as a whole, between steps, and no pattern says what came of which: both sides are looked
for in the class, from a node that such a rule made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from superopt.engine.addends import SUMS
from superopt.engine.chains import LINKS, Link, composed, link_of
from superopt.engine.eclasses import EGraph, ENode, Key
from superopt.engine.matching import Match
from superopt.engine.variants import variant_of
from superopt.explanation.application import NOWHERE, Application, Side, placings
from superopt.instantiate import Filled, skeleton
from superopt.rules import Apply, Pattern, Rule, Var
from superopt.terms import INPUT, Node

MOST_STATES = 2000
"""How many ways to take two sums apart are tried, for each pair of nodes."""

MOST_CHAINS = 64
"""How many chains that end at a class are looked at."""

LONGEST_CHAIN = 64
"""Links of a chain, at most."""


@dataclass(frozen=True)
class _Part:
    """A piece of a side: its pattern, and what each of the pattern's parts stands for."""

    pattern: Pattern
    known: Mapping[Pattern, tuple[int, Key | None]]


def whole_applications(
    egraph: EGraph, classes_by_key: Mapping[Key, Sequence[int]], rules: Sequence[Rule], number: int
) -> Iterator[Application]:
    """What the rules about sums and chains among these, which all matched something, do at a class."""
    eclass = egraph.classes[number]
    if eclass.constant:
        return
    for rule in rules:
        if rule.whole == "addends":
            for left, right in _sums(egraph, rule.name, number):
                yield _application(rule, egraph, left, right)
    # One of these rules finds all chains. Where none made the node, as another had, the first stands for it.
    chain_rules = {rule.name: rule for rule in rules if rule.whole == "chain"}
    if chain_rules:
        makers = [chain_rules[node.rule] for node in eclass.nodes if node.rule in chain_rules]
        for left, right in _chains(egraph, classes_by_key, number):
            yield _application([*makers, *chain_rules.values()][0], egraph, left, right)


def _sums(egraph: EGraph, name: str, number: int) -> Iterator[tuple[_Part, _Part]]:
    """The sums of a class that a rule put in another order, each with the order that it stood in before."""
    sums = [node for node in egraph.classes[number].nodes if node.op in SUMS and number not in node.children]
    # What the model itself says comes first.
    before = sorted((node for node in sums if node.rule != name), key=lambda node: node.original is None)
    for made in sums:
        if made.rule == name:
            for old in before:
                found = _taken_apart(egraph, number, old, made)
                if found is not None:
                    yield _sum_of(number, found[0]), _sum_of(number, found[1])


_Opened: TypeAlias = Mapping[int, ENode]
"""Sums by class, each as the node by which it is taken apart."""


def _taken_apart(egraph: EGraph, number: int, old: ENode, new: ENode) -> tuple[_Opened, _Opened] | None:
    """Two sums of one class taken apart as far as it takes for both to have the same addends; None where that does not
    come about."""
    stack: list[tuple[_Opened, _Opened]] = [({number: old}, {number: new})]
    for _ in range(MOST_STATES):
        if not stack:
            return None
        opened = stack.pop()
        left, right = (_addends(number, side) for side in opened)
        if left == right:
            return opened
        for side, more in enumerate((left - right, right - left)):
            for addend in sorted(more):
                # The last is tried first: of the old sum what the model says, of the new one what a rule made.
                for node in sorted(
                    egraph.classes[addend].nodes, key=lambda node: (node.original is not None) == (side == 0)
                ):
                    if node.op in SUMS and not {addend, *opened[side]} & set(node.children):
                        wider = {**opened[side], addend: node}
                        stack.append((wider, opened[1]) if side == 0 else (opened[0], wider))
    return None


def _addends(number: int, opened: _Opened) -> Counter[int]:
    """What a sum adds up, and how often each."""
    found: Counter[int] = Counter()
    stack = [number]
    while stack:
        at = stack.pop()
        if at in opened:
            stack += opened[at].children
        else:
            found[at] += 1
    return found


def _sum_of(number: int, opened: _Opened) -> _Part:
    """A sum, down to what is not taken apart."""
    known: dict[Pattern, tuple[int, Key | None]] = {}

    def part(at: int) -> Pattern:
        node = opened.get(at)
        made = Var(f"addend.{at}") if node is None else Apply(node.op, tuple(part(child) for child in node.children))
        known[made] = at, None if node is None else node.key
        return made

    return _Part(part(number), known)


def _chains(egraph: EGraph, classes_by_key: Mapping[Key, Sequence[int]], number: int) -> Iterator[tuple[_Part, _Part]]:
    """The chains that end in a class and were joined to a scale and a shift there, each with these two."""
    for links in islice(_links(egraph, number, ()), MOST_CHAINS):
        joined = _joined(egraph, classes_by_key, number, links)
        if joined is not None:
            yield _chain(number, links), joined


def _links(
    egraph: EGraph, number: int, above: tuple[tuple[ENode, Link], ...]
) -> Iterator[tuple[tuple[ENode, Link], ...]]:
    """The chains that end in a class, the first link first; by the model's own nodes before others."""
    if len(above) >= LONGEST_CHAIN:
        return
    nodes = [node for node in egraph.classes[number].nodes if node.op in LINKS]
    passed = {number, *(link.of for _, link in above)}
    for node in sorted(nodes, key=lambda node: node.original is None):
        link = link_of(egraph, number, node)
        if link is not None and link.of not in passed:
            chain = ((node, link), *above)
            if len(chain) > 1:
                yield chain
            yield from _links(egraph, link.of, chain)


def _chain(number: int, links: tuple[tuple[ENode, Link], ...]) -> _Part:
    first = links[0][1].of
    pattern: Pattern = Var(f"term.{first}")
    known: dict[Pattern, tuple[int, Key | None]] = {pattern: (first, None)}
    ends = [*(link.of for _, link in links[1:]), number]
    for (node, link), end in zip(links, ends, strict=True):
        constant = Var(f"term.{link.constant}")
        known[constant] = link.constant, None
        args = (pattern, constant) if node.children[0] == link.of else (constant, pattern)
        pattern = Apply(node.op, args)
        known[pattern] = end, node.key
    return _Part(pattern, known)


def _joined(
    egraph: EGraph,
    classes_by_key: Mapping[Key, Sequence[int]],
    number: int,
    links: tuple[tuple[ENode, Link], ...],
) -> _Part | None:
    """A chain as one scale and one shift, where the engine made that of it."""
    chain = composed(egraph, number, [link for _, link in links])
    if chain is None:
        return None
    first = len(egraph.classes)
    terms: list[Node | int] = []
    places: dict[int, int] = {}

    def placed(at: int) -> int:
        if at not in places:
            terms.append(at)
            places[at] = len(terms) - 1
        return places[at]

    def applied(op: str, *args: int) -> int:
        terms.append(Node(op, args))
        return len(terms) - 1

    for at, node in enumerate(chain.nodes, first):
        places[at] = applied(node.op, *map(placed, node.args))
    total = placed(chain.end)
    for op, constant in (("Mul", chain.scale), ("Add", chain.shift)):
        if constant is not None:
            total = applied(op, total, placed(constant))
    for classes, keys in placings(terms, classes_by_key):
        if classes[total] == number and NOWHERE not in classes:
            return _pieces(terms, classes, keys, total)
    return None


def _pieces(terms: Sequence[Node | int], classes: Sequence[int], keys: Sequence[Key | None], total: int) -> _Part:
    """Terms that were found in the e-graph, as a piece of a side."""
    known: dict[Pattern, tuple[int, Key | None]] = {}
    made: list[Pattern] = []
    for term, at, key in zip(terms, classes, keys, strict=True):
        pattern = (
            Var(f"term.{term}") if isinstance(term, int) else Apply(term.op, tuple(made[arg] for arg in term.args))
        )
        known[pattern] = at, key
        made.append(pattern)
    return _Part(made[total], known)


def _application(rule: Rule, egraph: EGraph, left: _Part, right: _Part) -> Application:
    """Both sides as the two of a rule that says just this."""
    written = replace(rule, left=(left.pattern,), right=(right.pattern,), when=(), only_if=(), siblings=False, whole="")
    before, after = _side(egraph, left), _side(egraph, right)
    types = {str(p.name): egraph.classes[at].type for p, (at, _) in left.known.items() if isinstance(p, Var)}
    constant = tuple(p.name for p, (at, _) in left.known.items() if isinstance(p, Var) and egraph.classes[at].constant)
    attrs = {index: key[2] for index, key in enumerate(before.keys) if key is not None}
    nodes = tuple(
        Node(INPUT, ()) if key is None else Node(key[0], slot.args, key[2])
        for slot, key in zip(after.shape.slots, after.keys, strict=True)
    )
    filled = Filled(nodes, after.types, (None,) * len(nodes))
    match = Match(types, (egraph.classes[before.classes[before.shape.roots[0]]].type,), attrs, {})
    return Application(rule.name, variant_of(written, constant), before, after, match, filled)


def _side(egraph: EGraph, part: _Part) -> Side:
    shape = skeleton((part.pattern,))
    found = [part.known[slot.pattern] for slot in shape.slots]
    types = tuple(egraph.classes[at].type for at, _ in found)
    return Side(shape, tuple(at for at, _ in found), tuple(key for _, key in found), types)
