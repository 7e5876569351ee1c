"""Drafts of instances: types for the variables of a left side and values for its attributes, by its operators."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from superopt.errors import InferenceError
from superopt.laws.instances_dice import DTYPES, Dice, Proposal, Request, static
from superopt.laws.instances_kinds import kind_at, numbers_of
from superopt.laws.instances_operators import propose
from superopt.operators import has_number, named, operator
from superopt.rules import Absent, Apply, Expr, Number, Output, Pattern, Var
from superopt.shapes import infer
from superopt.terms import Attrs, AttrValue, TensorType, ValueType
from superopt.values import Unknown

Evaluate = Callable[[Expr, "Draft"], AttrValue]
Admits = Callable[["Draft", frozenset[str]], bool]


class Rejected(Exception):
    """A draft that came out ill typed. Never leaves the generator."""


@dataclass
class Draft:
    """What has been chosen so far: types by variable, attributes and bundles by name, bounds of what is an index,
    the variables (stars by their names) that are constant. The operator ``site`` is to be of this ``kind``;
    ``numbers_of_kind`` are those that variables hold by turns to make it so.

    ``admits`` tells whether the conditions hold that can be told since more than these names were bound.
    """

    dice: Dice
    evaluate: Evaluate
    admits: Admits = lambda draft, before: True
    types: dict[str, TensorType] = field(default_factory=dict)
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    bundles: dict[str, Attrs] = field(default_factory=dict)
    numbers: dict[str, int | float] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()
    site: Apply | None = None
    kind: str | None = None
    numbers_of_kind: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def bound(self) -> frozenset[str]:
        """The names that stand for something."""
        return frozenset((*self.types, *self.attrs, *self.bundles))

    def has(self, name: str) -> bool:
        """Whether this name stands for something."""
        return name in self.types or name in self.attrs or name in self.bundles

    def forget(self, known: frozenset[str]) -> None:
        """Gives up what these names are not among."""
        for bindings in (self.types, self.attrs, self.bundles, self.numbers):
            for name in [name for name in bindings if name not in known]:
                del bindings[name]


_INDEXED = frozenset(named(lambda form: form.indexed))
_TRIES = 3
_AGAIN = 6
"""How often an operator is drawn, with all below it, until what conditions say of it alone holds: deep patterns would
hardly ever meet all conditions at once."""


def grow(pattern: Pattern, draft: Draft, hint: TensorType | None, output: int = 0) -> ValueType:
    """The type of a pattern after all its variables got types; ``hint`` is a type that would be welcome.

    Raises Rejected.
    """
    match pattern:
        case Var(name):
            return _variable(name, draft, hint or TensorType(draft.dice.dtype, draft.dice.shape()))
        case Number(value):
            draft.numbers[pattern.name] = value
            return _variable(pattern.name, draft, hint or TensorType(draft.dice.dtype, ()))
        case Output(of, index):
            bundle = grow(of, draft, hint, index)
            if not isinstance(bundle, tuple) or index >= len(bundle):
                raise Rejected(f"no output {index}")
            return bundle[index]
        case Apply():
            return _admitted(pattern, draft, hint, output)
        case _:
            raise Rejected("not a term of a left side")


def _admitted(pattern: Apply, draft: Draft, hint: TensorType | None, output: int) -> ValueType:
    before = draft.bound
    inner, kept = _Inner(()), before
    for number in range(_AGAIN):
        # What is below costs most: every second time it stays, and only what is beside it is drawn again, attributes
        # among that.
        if number % 2 == 0:
            draft.forget(before)
            inner = _below(pattern, draft, hint, output)
            kept = draft.bound
        else:
            draft.forget(kept)
            inner = _Inner(inner.types)
        found = _applied(pattern, draft, hint, output, inner, before)
        if not isinstance(found, _NotAdmitted):
            return found
    raise Rejected("its conditions do not hold")


class _NotAdmitted:
    """Comes out in the place of a type where conditions do not hold: these are asked first, types cost more."""


@dataclass(frozen=True)
class _Inner:
    """The types of those arguments of an operator that are made of operators, and attributes that go with these."""

    types: tuple[TensorType | None, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


def _variable(name: str, draft: Draft, wanted: TensorType) -> TensorType:
    if name not in draft.types:
        if wanted.dtype not in DTYPES:
            # No array has it: only operators make it.
            wanted = TensorType(draft.dice.dtype, wanted.shape)
        if not draft.dice.fits(wanted):
            raise Rejected(f"{wanted} is too large")
        if name in draft.numbers and not has_number(wanted.dtype, draft.numbers[name]):
            raise Rejected(f"{wanted.dtype} has no {draft.numbers[name]}")
        draft.types[name] = wanted
    return draft.types[name]


def _below(pattern: Apply, draft: Draft, hint: TensorType | None, output: int) -> _Inner:
    """Draws the arguments that are made of operators, before the variables beside them: what they come out as decides
    what these can be."""
    known: list[TensorType | None] = [_known(arg, draft) for arg in pattern.args]
    inner = [
        place for place, arg in enumerate(pattern.args) if isinstance(arg, (Apply, Output)) and known[place] is None
    ]
    if not inner:
        return _Inner(tuple(known))
    fixed, free, everywhere, _ = _attributes(pattern, draft)
    absent = frozenset(place for place, arg in enumerate(pattern.args) if isinstance(arg, Absent))
    soft: dict[str, AttrValue] = {}
    kind = kind_at(draft.site, draft.kind, pattern)
    if len(inner) == 2 and draft.dice.chance(0.3):
        inner.reverse()
    for place in inner:
        request = Request(pattern.op, tuple(known), absent, {**fixed, **soft}, hint, output, everywhere, kind)
        proposal = propose(request, draft.dice)
        soft = {name: proposal.attrs[name] for name in free if name in proposal.attrs}
        dtype = proposal.dtypes.get(place) or _dtype(request, proposal.dtypes, draft.dice)
        welcome = _proposed(proposal.shapes, place, dtype)
        argument = pattern.args[place]
        # No star stands at this place.
        found = grow(argument, draft, welcome if draft.dice.chance(0.9) else None)  # type: ignore[arg-type]
        if not isinstance(found, TensorType):
            raise Rejected("a bundle or unknown as an argument")
        known[place] = found
        fixed, free, everywhere, _ = _attributes(pattern, draft)
        soft = {name: value for name, value in soft.items() if name in free}
    return _Inner(tuple(known), soft)


def _applied(
    pattern: Apply, draft: Draft, hint: TensorType | None, output: int, inner: _Inner, before: frozenset[str]
) -> ValueType | _NotAdmitted:
    """Draws the variables among an operator's arguments, and its attributes, such that what can be told of conditions
    since ``before`` holds. Raises Rejected where none are found that go together."""
    fixed, _, everywhere, later = _attributes(pattern, draft)
    absent = frozenset(place for place, arg in enumerate(pattern.args) if isinstance(arg, Absent))
    known: list[TensorType | None] = [
        _known(arg, draft) or inner.types[place] for place, arg in enumerate(pattern.args)
    ]
    outer = [place for place, arg in enumerate(pattern.args) if isinstance(arg, (Var, Number)) and known[place] is None]
    kind = kind_at(draft.site, draft.kind, pattern)
    for attempt in range(_TRIES):
        kept = inner.attrs if attempt == 0 else {}
        request = Request(pattern.op, tuple(known), absent, {**fixed, **kept}, hint, output, everywhere, kind)
        proposal = _telling(pattern, request, draft)
        if attempt == 0:
            common = _dtype(request, proposal.dtypes, draft.dice)
            for place in sorted(outer, key=lambda place: isinstance(pattern.args[place], Number)):
                dtype = proposal.dtypes.get(place) or common
                _bind(pattern, place, _proposed(proposal.shapes, place, dtype), draft, known)
            known = [_known(arg, draft) or known[place] for place, arg in enumerate(pattern.args)]
        values = _complete(pattern, proposal.attrs, {**fixed, **kept}, later, draft)
        unsettled = draft.bound
        _name(pattern, values, draft)
        if not draft.admits(draft, before):
            return _NotAdmitted()
        try:
            result = infer(pattern.op, Attrs.of(values), known, [place not in absent for place in range(len(known))])
        except InferenceError:
            draft.forget(unsettled)
            continue
        _settle(pattern, values, known, draft)
        return result
    raise Rejected(f"{pattern.op} on {known}")


def _telling(pattern: Apply, request: Request, draft: Draft) -> Proposal:
    """A proposal in which attributes that a rule gives a name are often not what they are by default: whether a rule
    heeds them shows there alone."""
    proposal = propose(request, draft.dice)
    spec = operator(pattern.op)
    named = [name for name, expr in pattern.attrs if isinstance(expr.tree, ast.Name) and name not in request.attrs]
    if spec is None or not named or draft.dice.contrast is not None or draft.dice.chance(0.4):
        return proposal
    for _ in range(_TRIES):
        if not all(_usual(proposal.attrs.get(name), spec.default(name)) for name in named):
            return proposal
        proposal = propose(request, draft.dice)
    return proposal


def _usual(value: AttrValue | None, default: AttrValue | None) -> bool:
    """Whether it is the default, at every place where that is one for all."""
    if isinstance(value, tuple) and isinstance(default, tuple) and len(default) == 1:
        return all(item == default[0] for item in value)
    return value is None or value == default


def _proposed(shapes: list[tuple[int, ...] | None], place: int, dtype: str) -> TensorType | None:
    shape = shapes[place] if place < len(shapes) else None
    return None if shape is None else TensorType(dtype, shape)


def _dtype(request: Request, others: Mapping[int, str], dice: Dice) -> str:
    """The element type of the arguments that share one."""
    for place, arg in enumerate(request.args):
        if arg is not None and place not in others:
            return arg.dtype
    known = operator(request.op)
    retypes = known is not None and known.retypes
    if retypes and dice.chance(0.45):
        # What it makes of them is of its own type: so may be what stands beside that.
        return dice.any_dtype(DTYPES)
    return request.hint.dtype if request.hint is not None and not retypes else dice.dtype


def _known(arg: object, draft: Draft) -> TensorType | None:
    if isinstance(arg, (Var, Number)):
        return draft.types.get(arg.name)
    return None


def _bind(pattern: Apply, place: int, wanted: TensorType | None, draft: Draft, known: list[TensorType | None]) -> None:
    arg = pattern.args[place]
    if not isinstance(arg, (Var, Number)):
        return
    wanted = wanted or TensorType(draft.dice.dtype, draft.dice.shape())
    if isinstance(arg, Number):
        beside = [_known(other, draft) or known[at] for at, other in enumerate(pattern.args) if at != place]
        most = max((other.rank or 0 for other in beside if other is not None), default=0)
        rank = draft.dice.between(0, min(most, 2)) if draft.dice.chance(0.5) else 0
        wanted = TensorType(wanted.dtype, (1,) * rank)
        draft.numbers[arg.name] = arg.value
    _variable(arg.name, draft, wanted)


def _attributes(
    pattern: Apply, draft: Draft
) -> tuple[dict[str, AttrValue], tuple[str, ...], dict[str, int], tuple[tuple[str, Expr], ...]]:
    """Attributes whose values are fixed, those that are free, windows' trivial ones, and those to be computed later."""
    spec = operator(pattern.op)
    names = () if spec is None else spec.attributes
    fixed: dict[str, AttrValue] = {}
    everywhere: dict[str, int] = {}
    free: list[str] = []
    later: list[tuple[str, Expr]] = []
    named = dict(pattern.attrs)
    for name, expr in pattern.attrs:
        if isinstance(expr.tree, ast.Name) and expr.tree.id not in draft.attrs:
            free.append(name)
            continue
        try:
            fixed[name] = draft.evaluate(expr, draft)
        except Unknown:
            later.append((name, expr))
    for name in names:
        if name in named:
            continue
        if pattern.rest is not None and pattern.rest in draft.bundles:
            value = draft.bundles[pattern.rest].get(name)
        elif pattern.rest is not None:
            free.append(name)
            continue
        else:
            value = None if spec is None else spec.default(name)
            trivial = None if spec is None else (spec.form.trivial or {}).get(name)
            if isinstance(trivial, tuple) and value == trivial:
                everywhere[name] = int(trivial[0])
                continue
        if value is not None:
            fixed[name] = value
    return fixed, tuple(free), everywhere, tuple(later)


def _complete(
    pattern: Apply, proposed: Mapping[str, AttrValue], fixed: Mapping[str, AttrValue],
    later: tuple[tuple[str, Expr], ...], draft: Draft,
) -> dict[str, AttrValue]:  # fmt: skip
    """All attributes of the normal form, in one mapping."""
    spec = operator(pattern.op)
    values: dict[str, AttrValue] = {}
    for name in () if spec is None else spec.attributes:
        value = fixed.get(name, proposed.get(name))
        if value is not None:
            values[name] = value
    for name, expr in later:
        try:
            values[name] = draft.evaluate(expr, draft)
        except Unknown as error:
            raise Rejected(f"{name}={expr.text} has no value") from error
    return values


def _name(pattern: Apply, values: Mapping[str, AttrValue], draft: Draft) -> None:
    """Binds the names of attributes."""
    named = {name for name, _ in pattern.attrs}
    for name, expr in pattern.attrs:
        if isinstance(expr.tree, ast.Name) and expr.tree.id not in draft.attrs and name in values:
            draft.attrs[expr.tree.id] = values[name]
    if pattern.rest is not None and pattern.rest not in draft.bundles:
        draft.bundles[pattern.rest] = Attrs.of({name: value for name, value in values.items() if name not in named})


def _settle(pattern: Apply, values: Mapping[str, AttrValue], known: list[TensorType | None], draft: Draft) -> None:
    """Remembers what was chosen, and what is an index into how many."""
    for name, value in values.items():
        if isinstance(value, tuple):
            draft.dice.remember(f"{name}{len(value) // 2 if name == 'pads' else len(value)}", value)
    if draft.kind is not None:
        draft.numbers_of_kind |= numbers_of(pattern, draft.kind, here=pattern is draft.site)
    if pattern.op in _INDEXED and isinstance(pattern.args[1], Var) and known[0] is not None:
        shape = static(known[0]) or (1,)
        axis = values.get("axis", 0)
        if isinstance(axis, int) and not -len(shape) <= axis < len(shape):
            raise Rejected(f"no axis {axis} in {known[0]}")
        size = (
            shape[axis]
            if isinstance(axis, int) and pattern.op.startswith("Gather") and pattern.op != "GatherND"
            else min(shape)
        )
        name = pattern.args[1].name
        draft.bounds[name] = min(size, draft.bounds.get(name, size))
