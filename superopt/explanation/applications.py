"""Where rules apply on a frozen e-graph: every match at an e-class, with both sides as e-nodes.

A saturated e-graph does not say which match made an e-node or joined two classes; matching its rules again does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from superopt.engine.eclasses import EGraph, ENode, Key
from superopt.engine.matching import Clash, Match, answer, attribute_text
from superopt.engine.variants import Variant, variant_of, variants
from superopt.explanation.application import NOWHERE, Application, Side, placings
from superopt.explanation.whole_applications import whole_applications
from superopt.instantiate import Filled, Skeleton, skeleton
from superopt.operators import operator
from superopt.rules import Apply, Number, Output, Rule, Var
from superopt.terms import ABSENT, CONST, PROJECT
from superopt.values import Value

MOST_AT_A_CLASS = 4096
"""Matches of one rule at one class after which no more are looked for."""

MOST_PLACINGS = 64
"""Ways in which a right side is in the e-graph of which the first that is equal to the left is taken."""


@dataclass
class _Partial:
    """A match in the making: the class and the node of each slot so far."""

    classes: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, ENode] = field(default_factory=dict)

    def extended(self, slot: int, number: int, node: ENode | None = None) -> _Partial:
        nodes = self.nodes if node is None else {**self.nodes, slot: node}
        return _Partial({**self.classes, slot: number}, nodes)


class Applications:
    """Finds where rules apply on a frozen e-graph; what was found at a class is kept.

    Where ``unused`` is true, so do matches count whose right side is not in the e-graph: the engine has set it aside
    for a node that differs in weights alone, or was stopped before.
    """

    def __init__(self, egraph: EGraph, rules: Iterable[Rule], opset: int, *, unused: bool = False) -> None:
        self.egraph, self.opset, self.unused = egraph, opset, unused
        self.rules = tuple(rules)
        self.clashes: dict[str, tuple[Clash, Match, Variant]] = {}
        """The first match of each rule whose sides have different types."""
        self._known: dict[int, list[Application]] = {}
        self._plain: dict[str, list[tuple[Rule, Variant]]] = {}
        self._wide: list[tuple[Rule, Variant]] = []
        arities = self._arities()
        for rule in self.rules:
            if rule.whole:
                continue  # no pattern of theirs says in which order they put what
            if rule.siblings:
                counts = sorted({count for found in arities.values() for count in found if count >= 2})
                self._wide += [(rule, _all_constant(rule.expanded(count))) for count in counts]
                continue
            for variant in variants(rule, arities):
                if len(variant.rule.left) > 1:
                    self._wide.append((rule, variant))
                else:
                    self._plain.setdefault(_root_operator(variant), []).append((rule, variant))

    def _arities(self) -> dict[str, frozenset[int]]:
        found: dict[str, set[int]] = {}
        for eclass in self.egraph.classes:
            for node in eclass.nodes:
                spec = operator(node.op)
                if spec is not None and spec.arity is None:
                    found.setdefault(node.op, {2}).add(len(node.children))
        return {op: frozenset(counts) for op, counts in sorted(found.items())}

    @cached_property
    def _classes_by_key(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for number, eclass in enumerate(self.egraph.classes):
            for node in eclass.nodes:
                found.setdefault(node.key, []).append(number)
        return found

    @cached_property
    def _classes_by_operator(self) -> dict[str, list[int]]:
        found: dict[str, dict[int, None]] = {}
        for number, eclass in enumerate(self.egraph.classes):
            for node in eclass.nodes:
                found.setdefault(node.op, {})[number] = None
        return {op: list(numbers) for op, numbers in found.items()}

    def at(self, number: int) -> list[Application]:
        """All applications one of whose roots is this class, in the order of the rules."""
        if number not in self._known:
            self._known[number] = [*self._found_at(number), *self._wide_at(number), *self._whole_at(number)]
        return self._known[number]

    def everywhere(self) -> Iterator[Application]:
        """All applications of rules with one root, class by class."""
        for number in range(len(self.egraph.classes)):
            yield from self.at(number)

    def _found_at(self, number: int) -> Iterator[Application]:
        for op in dict.fromkeys(node.op for node in self.egraph.classes[number].nodes):
            for rule, variant in self._plain.get(op, ()):
                shape = skeleton(variant.rule.left)
                yield from self._completed(rule, variant, self._matches(shape, [(shape.roots[0], number)], _Partial()))

    def _completed(self, rule: Rule, variant: Variant, found: Iterator[_Partial]) -> Iterator[Application]:
        for count, partial in enumerate(found):
            if count >= MOST_AT_A_CLASS:
                return
            made = self._application(rule, variant, partial)
            if made is not None:
                yield made

    def _matches(
        self, shape: Skeleton, todo: Sequence[tuple[int, int]], partial: _Partial, *, exact: bool = True
    ) -> Iterator[_Partial]:
        """All ways to put e-nodes into slots; without ``exact`` attributes are not looked at."""
        if not todo:
            yield partial
            return
        (slot, number), rest = todo[0], todo[1:]
        if number == ABSENT:
            return
        if slot in partial.classes:
            if partial.classes[slot] == number:
                yield from self._matches(shape, rest, partial, exact=exact)
            return
        pattern, args = shape.slots[slot].pattern, shape.slots[slot].args
        if isinstance(pattern, Var):
            yield from self._matches(shape, rest, partial.extended(slot, number), exact=exact)
            return
        wanted = attribute_text(pattern) if exact and isinstance(pattern, Apply) else None
        for node in self.egraph.classes[number].nodes:
            if isinstance(pattern, Apply):
                if node.op != pattern.op or len(node.children) != len(args):
                    continue
                if wanted is not None and node.attrs.text != wanted:
                    continue
                pairs = list(zip(args, node.children, strict=True))
                if any((arg == ABSENT) != (child == ABSENT) for arg, child in pairs):
                    continue
            elif isinstance(pattern, Output):
                if node.op != PROJECT or node.attrs.get("index") != pattern.index:
                    continue
                pairs = [(args[0], node.children[0])]
            else:
                if node.op != CONST:
                    continue
                pairs = []
            inner = [pair for pair in pairs if pair[0] != ABSENT]
            yield from self._matches(shape, [*inner, *rest], partial.extended(slot, number, node), exact=exact)

    def _wide_at(self, number: int) -> Iterator[Application]:
        """Applications of rules with several roots: from the right side, which names all that the left sides share."""
        for rule, variant in self._wide:
            shape = variant.right
            for place, root in enumerate(shape.roots):
                for partial in self._matches(shape, [(root, number)], _Partial(), exact=False):
                    names = {
                        slot.pattern.name: partial.classes[index]
                        for index, slot in enumerate(shape.slots)
                        if isinstance(slot.pattern, Var) and index in partial.classes
                    }
                    left = skeleton(variant.rule.left)
                    start = _Partial(
                        {
                            index: names[slot.pattern.name]
                            for index, slot in enumerate(left.slots)
                            if isinstance(slot.pattern, Var) and slot.pattern.name in names
                        }
                    )
                    others = [root for index, root in enumerate(left.roots) if index != place]
                    found = self._matches(left, [(left.roots[place], number)], start)
                    chosen = rule.siblings and self._constant_variant(variant, names)
                    yield from self._completed(rule, chosen or variant, self._rooted(left, others, found))

    def _whole_at(self, number: int) -> Iterator[Application]:
        """Applications of rules about whole sums and chains."""
        return whole_applications(self.egraph, self._classes_by_key, self.rules, number)

    def _rooted(self, shape: Skeleton, roots: Sequence[int], found: Iterator[_Partial]) -> Iterator[_Partial]:
        """Matches extended by the other roots, wherever they are."""
        for partial in found:
            if not roots:
                yield partial
                continue
            pattern = shape.slots[roots[0]].pattern
            op = pattern.op if isinstance(pattern, Apply) else PROJECT
            for number in self._classes_by_operator.get(op, ()):
                one = self._matches(shape, [(roots[0], number)], partial)
                yield from self._rooted(shape, roots[1:], one)

    def _constant_variant(self, variant: Variant, names: Mapping[str, int]) -> Variant:
        constant = tuple(name for name, number in names.items() if self.egraph.classes[number].constant)
        return variant_of(variant.rule, constant)

    def _application(self, rule: Rule, variant: Variant, partial: _Partial) -> Application | None:
        match = self._match(variant, partial)
        if match is None:
            return None
        filled = answer(variant, match, self.opset)
        if isinstance(filled, Clash):
            self.clashes.setdefault(rule.name, (filled, match, variant))
            return None
        if filled is None:
            return None
        left = skeleton(variant.rule.left)
        right = self._made(variant, filled, left, partial)
        heads = [right.classes[root] for root in right.shape.roots]
        if not self.unused and (NOWHERE in right.classes or heads != [partial.classes[root] for root in left.roots]):
            return None
        classes = tuple(partial.classes[index] for index in range(len(left.slots)))
        keys = tuple(partial.nodes[index].key if index in partial.nodes else None for index in range(len(left.slots)))
        types = tuple(self.egraph.classes[number].type for number in classes)
        return Application(rule.name, variant, Side(left, classes, keys, types), right, match, filled)

    def _match(self, variant: Variant, partial: _Partial) -> Match | None:
        """What the conditions are asked of; None where something has to be constant, or known, and is not."""
        shape = skeleton(variant.rule.left)
        classes = self.egraph.classes
        types, content, attrs = {}, {}, {}
        for index, slot in enumerate(shape.slots):
            eclass = classes[partial.classes[index]]
            if isinstance(slot.pattern, (Var, Number)):
                name = slot.pattern.name
                types[name] = eclass.type
                if name in variant.constant and not eclass.constant:
                    return None
                if name in variant.read or isinstance(slot.pattern, Number):
                    known = self.content(partial.classes[index])
                    if known is None:
                        return None
                    content[name] = known
            elif isinstance(slot.pattern, Apply):
                attrs[index] = partial.nodes[index].attrs
        roots = tuple(classes[partial.classes[root]].type for root in shape.roots)
        return Match(types, roots, attrs, content)

    def content(self, number: int) -> Value | None:
        """The value of a class that has a constant among its nodes."""
        for node in self.egraph.classes[number].nodes:
            if node.op == CONST and (constant := self.egraph.constants.get(str(node.attrs["key"]))) is not None:
                return Value(constant.type, True, constant.load)
        return None

    def _made(self, variant: Variant, filled: Filled, left: Skeleton, partial: _Partial) -> Side:
        """The right side's nodes in the e-graph; where one is not there, the rule had not been used here."""
        names = {
            slot.pattern.name: partial.classes[index]
            for index, slot in enumerate(left.slots)
            if isinstance(slot.pattern, (Var, Number))
        }
        terms = [
            names[slot.pattern.name] if isinstance(slot.pattern, (Var, Number)) else node
            for slot, node in zip(variant.right.slots, filled.nodes, strict=True)
        ]
        wanted = [partial.classes[root] for root in left.roots]
        sides = [
            Side(variant.right, classes, keys, filled.types)
            for classes, keys in islice(placings(terms, self._classes_by_key), MOST_PLACINGS)
        ]
        return next((side for side in sides if [side.classes[root] for root in side.shape.roots] == wanted), sides[0])


def _root_operator(variant: Variant) -> str:
    pattern = variant.rule.left[0]
    return pattern.op if isinstance(pattern, Apply) else PROJECT


def _all_constant(rule: Rule) -> Variant:
    return variant_of(rule, ())
