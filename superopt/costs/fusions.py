"""What a runtime fuses, as forms in the rules' pattern language: read from a file, and found in a graph or an e-graph.

    fused conv-activation: keeps 0.05
      F(Conv(x, w, b, **a)) => Conv(x, w, b, **a)
      for F in Relu, Sigmoid
      when constant(w)

The left side costs what the operator on the right costs, and the kept part of what its other operators cost by
themselves. An operator that stands on both sides is priced as it stands on the left, with its own operands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

from superopt import rule_text
from superopt.errors import InferenceError, RuleError
from superopt.expressions import Bound, evaluate
from superopt.instantiate import default_attribute, fill, holds, number_matches, skeleton
from superopt.operators import operator
from superopt.rules import Absent, Apply, Each, Number, Output, Pattern, Rule, Star, Var
from superopt.shipped import FUSIONS, rules_dir
from superopt.terms import ABSENT, PROJECT, Attrs, ValueType
from superopt.values import Unknown, Value

_HEADER = re.compile(r"^fused\s+([a-z0-9][a-z0-9.-]*)\s*:\s*keeps\s+([0-9.]+)\s*$", re.MULTILINE)

MOST = 16
"""Matches of one form at one place that are looked at: in an e-graph there can be very many that cost alike."""


@dataclass(frozen=True)
class Fusion:
    """A form that a runtime fuses; ``kept`` is the part of what the operators that are gone would cost alone."""

    rule: Rule
    kept: float

    @property
    def root(self) -> str:
        """The operator at the top of the left side."""
        (left,) = self.rule.left
        return left.op if isinstance(left, Apply) else ""

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators of the left side."""
        slots = skeleton(self.rule.left).slots
        return frozenset(slot.pattern.op for slot in slots if isinstance(slot.pattern, Apply))

    @cached_property
    def asked(self) -> frozenset[str]:
        """The names that its conditions ask about."""
        conditions = (*self.rule.when, *self.rule.only_if)
        return frozenset(
            part.id for condition in conditions for part in ast.walk(condition.tree) if isinstance(part, ast.Name)
        )

    @property
    def priced_as(self) -> str:
        """The operator that the whole is priced as."""
        (right,) = self.rule.right
        return right.op if isinstance(right, Apply) else ""


@dataclass(frozen=True)
class Fusions:
    """Forms in order: where several fit, the first is taken. ``hash`` is one of their text."""

    forms: tuple[Fusion, ...]
    hash: str

    @cached_property
    def by_root(self) -> Mapping[str, tuple[Fusion, ...]]:
        found: dict[str, tuple[Fusion, ...]] = {}
        for form in self.forms:
            found[form.root] = (*found.get(form.root, ()), form)
        return found


def load(name: str) -> Fusions:
    """The forms of a runtime whose file ships, by its name. Raises RuleError for another name, or a wrong text."""
    if name not in FUSIONS:
        raise RuleError(f"no fusions of this runtime are known, one of {', '.join(FUSIONS)} was expected", file=name)
    path = rules_dir() / f"{name}.rules"
    return _shipped(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _shipped(path: Path, changed: int) -> Fusions:
    """The forms of a file as it was when it was last ``changed``."""
    return parse(path.read_text(encoding="utf-8"), path.name)


def parse(text: str, file: str = "<text>") -> Fusions:
    """The forms of a text, in order. Raises RuleError."""
    kept = {name: float(part) for name, part in _HEADER.findall(text)}
    # Beyond the header it is the language of the rules, line by line.
    rules = rule_text.parse(_HEADER.sub(lambda match: f"rule {match[1]}: exact", text), file)
    forms = []
    for rule in rules:
        name = rule.name.partition("[")[0]
        if name not in kept:
            raise RuleError("'fused NAME: keeps PART' was expected", file=file, line=rule.line)
        if rule.stars or len(rule.left) != 1 or not isinstance(rule.left[0], Apply):
            raise RuleError("one operator without stars was expected on the left", file=file, line=rule.line)
        if not isinstance(rule.right[0], Apply) or not all(
            isinstance(arg, (Var, Absent)) for arg in rule.right[0].args
        ):
            raise RuleError("one operator over variables was expected on the right", file=file, line=rule.line)
        forms.append(Fusion(rule, kept[name]))
    return Fusions(tuple(forms), rules.hash)


@dataclass(frozen=True, slots=True)
class ClassNode:
    """A node that may stand in a class: ``key`` tells it from all others."""

    key: tuple[int, int]
    op: str
    args: tuple[int, ...]
    attrs: Attrs


class Space(Protocol):
    """Where forms are looked for: classes of nodes, by number; a graph has one node in each."""

    def members(self, place: int) -> Sequence[ClassNode]:
        """The nodes of a class that run."""

    def value(self, place: int) -> Value:
        """What is known of a class."""


@dataclass(frozen=True)
class FusionMatch:
    """A form that fits: the class of each variable and the nodes inside, by class, the root's last."""

    fusion: Fusion
    binding: Mapping[str, Bound] = field(repr=False)
    places: Mapping[str, int]
    inside: Mapping[int, ClassNode]


def found_at(fusion: Fusion, place: int, space: Space) -> Iterator[FusionMatch]:
    """Where a form fits with its root in a class, at most ``MOST`` times."""
    seen: set[tuple[tuple[int, int], ...]] = set()
    for state in _match(fusion.rule.left[0], place, _State({}, {}, {}), space):
        if fusion.asked & {name for name, at in state.places.items() if at == ABSENT}:
            continue
        if not holds((*fusion.rule.when, *fusion.rule.only_if), state.binding):
            continue
        key = tuple(member.key for member in state.inside.values())
        if key not in seen:
            seen.add(key)
            yield FusionMatch(fusion, state.binding, state.places, state.inside)
        if len(seen) >= MOST:
            return


NONE = Fusions((), "")
"""Of a runtime that fuses nothing."""


def right_type(match: FusionMatch) -> tuple[Attrs, tuple[str | None, ...], ValueType] | None:
    """The attributes of the operator on the right of a match, the names of its arguments, and its type; None where
    there is none for these."""
    shape = skeleton(match.fusion.rule.right)
    try:
        filled = fill(shape, match.binding)
    except (InferenceError, Unknown):
        return None
    (right,) = match.fusion.rule.right
    if not isinstance(right, Apply):
        return None
    names = tuple(arg.name if isinstance(arg, Var) else None for arg in right.args)
    return filled.nodes[shape.roots[0]].attrs, names, filled.types[shape.roots[0]]


@dataclass(frozen=True)
class _State:
    """What the names of a form stand for, the classes of its terms, and the nodes inside."""

    binding: Mapping[str, Bound]
    places: Mapping[str, int]
    inside: Mapping[int, ClassNode]


def _match(pattern: Pattern | Star | Each, place: int, state: _State, space: Space) -> Iterator[_State]:
    match pattern:
        case Absent():
            if place == ABSENT:
                yield state
        case Var(name) | Number(name=name):
            if place == ABSENT:
                # An absent bias is a zero bias: a variable may stand for it where nothing is asked about it.
                if isinstance(pattern, Var) and state.places.get(name, ABSENT) == ABSENT:
                    yield _State(state.binding, {**state.places, name: ABSENT}, state.inside)
                return
            if name in state.places:
                if state.places[name] == place:
                    yield state
                return
            value = space.value(place)
            # Runtimes know a number by its having one axis at most.
            if isinstance(pattern, Number) and not (number_matches(pattern.value, value) and value.rank <= 1):
                return
            yield _State({**state.binding, name: value}, {**state.places, name: place}, state.inside)
        case Output(of, index):
            for member in space.members(place) if place != ABSENT else ():
                if member.op == PROJECT and member.attrs.get("index") == index:
                    for inner in _match(of, member.args[0], state, space):
                        yield _State(inner.binding, inner.places, {**inner.inside, place: member})
        case Apply(op):
            # The same node may stand for two equal parts of a form; another node of its class may not.
            known = [state.inside[place]] if place in state.inside else space.members(place) if place != ABSENT else ()
            for member in known:
                if member.op == op:
                    yield from _applied(pattern, member, place, state, space)
        case _:
            return


def _applied(pattern: Apply, member: ClassNode, place: int, state: _State, space: Space) -> Iterator[_State]:
    spec = operator(pattern.op)
    if spec is None or len(member.args) > len(pattern.args):
        return
    args = (*member.args, *(ABSENT,) * (len(pattern.args) - len(member.args)))
    orders = [args]
    if spec.form.commutative and len(args) == 2 and args[0] != args[1]:
        orders.append((args[1], args[0]))
    types = [None if arg == ABSENT else space.value(arg).type for arg in args]
    for order in orders:
        states = [state]
        for part, arg in zip(pattern.args, order, strict=True):
            states = [after for before in states for after in _match(part, arg, before, space)]
        for inner in states:
            bound = _attributes(pattern, member, types, inner.binding)
            if bound is not None:
                yield _State(bound, inner.places, {**inner.inside, place: member})


def _attributes(
    pattern: Apply, member: ClassNode, types: list[ValueType], binding: Mapping[str, Bound]
) -> Mapping[str, Bound] | None:
    """The binding with what the attributes of a pattern bind, None where they differ."""
    spec = operator(pattern.op)
    if spec is None:
        return None
    made = dict(binding)
    left = dict(member.attrs.items)
    for name, expr in pattern.attrs:
        value = left.pop(name, None)
        if value is None:
            return None
        if expr.text.isidentifier() and expr.text not in made:
            made[expr.text] = value
            continue
        try:
            if evaluate(expr, made) != value:
                return None
        except Unknown:
            return None
    if pattern.rest is not None:
        rest = Attrs.of(left)
        if made.setdefault(pattern.rest, rest) != rest:
            return None
        return made
    for name, value in left.items():
        try:
            if default_attribute(spec, name, types) != value:
                return None
        except Unknown:
            return None
    return made
