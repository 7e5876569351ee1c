"""Where rules apply on a frozen e-graph: every match at an e-class, with both sides as e-nodes.

A saturated e-graph does not say which match made an e-node or joined two classes; matching its rules again does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from superopt.engine.eclasses import EGraph, ENode
from superopt.engine.matching import Clash, Match, answer, attribute_text, bind
from superopt.engine.variants import Variant, variant_of, variants
from superopt.expressions import Binding
from superopt.instantiate import Filled, Skeleton, skeleton
from superopt.operators import operator
from superopt.rules import Apply, Number, Output, Rule, Var
from superopt.terms import ABSENT, CONST, PROJECT, Attrs, ValueType
from superopt.values import Unknown, Value

Key: TypeAlias = tuple[str, tuple[int, ...], Attrs]
"""An e-node by what it is: operator, classes of its children, attributes."""

MOST_AT_A_CLASS = 4096
"""Matches of one rule at one class after which no more are looked for."""


NOWHERE = -2
"""The class of a node of a right side that is not in the e-graph."""


def key_of(node: ENode) -> Key:
    """What an e-node is, whoever made it."""
    return node.op, node.children, node.attrs


@dataclass(frozen=True)
class Side:
    """One side of a rule where it applies: the class and the type of each slot, and the e-node that stands there (None
    for a variable, which any member of the class serves)."""

    shape: Skeleton
    classes: tuple[int, ...]
    keys: tuple[Key | None, ...]
    types: tuple[ValueType, ...]


@dataclass(frozen=True, eq=False)
class Application:
    """A rule where it applies. ``rule`` is its name; ``variant`` has its stars expanded and its operands in the order
    that matched. Root ``i`` of the left side is equal to root ``i`` of the right."""

    rule: str
    variant: Variant
    left: Side
    right: Side
    match: Match
    filled: Filled

    @property
    def binding(self) -> Binding:
        """What the names of the left side stand for."""
        bound = bind(self.variant, self.match)
        if bound is None:
            raise Unknown(f"{self.rule} does not match where it did")
        return bound

    @property
    def classes(self) -> Mapping[str, int]:
        """The class of each variable."""
        pairs = zip(self.left.shape.slots, self.left.classes, strict=True)
        return {slot.pattern.name: number for slot, number in pairs if isinstance(slot.pattern, (Var, Number))}


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
            if rule.siblings and not rule.stars:
                # Rules about whole sums and chains put them in another order: no pattern of theirs says which.
                continue
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
    def _class_by_key(self) -> dict[Key, int]:
        return {key_of(node): number for number, eclass in enumerate(self.egraph.classes) for node in eclass.nodes}

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
            self._known[number] = [*self._found_at(number), *self._wide_at(number)]
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
        keys = tuple(
            key_of(partial.nodes[index]) if index in partial.nodes else None for index in range(len(left.slots))
        )
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
        classes: list[int] = []
        keys: list[Key | None] = []
        for slot, node in zip(variant.right.slots, filled.nodes, strict=True):
            if isinstance(slot.pattern, (Var, Number)):
                classes.append(names[slot.pattern.name])
                keys.append(None)
                continue
            children = tuple(ABSENT if arg == ABSENT else classes[arg] for arg in node.args)
            key = (node.op, children, node.attrs)
            classes.append(self._class_by_key.get(key, NOWHERE))
            keys.append(key)
        return Side(variant.right, tuple(classes), tuple(keys), filled.types)


def _root_operator(variant: Variant) -> str:
    pattern = variant.rule.left[0]
    return pattern.op if isinstance(pattern, Apply) else PROJECT


def _all_constant(rule: Rule) -> Variant:
    return variant_of(rule, ())
