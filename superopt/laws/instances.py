"""Instances of a rule, drawn from its text: bindings under which its left side is well typed and conditions hold."""

from __future__ import annotations

import ast
import random
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superopt.errors import InferenceError
from superopt.expressions import Binding, Bound, evaluate
from superopt.instantiate import holds, instantiate, numbers_match
from superopt.laws.instances_clues import Clues, applications, clues_of, parts_of
from superopt.laws.instances_contrast import CONTRASTS
from superopt.laws.instances_dice import INTS, Dice
from superopt.laws.instances_draft import Draft, Rejected, grow
from superopt.laws.instances_filling import Liked, filled
from superopt.laws.instances_kinds import Turn, Turns
from superopt.rules import Apply, Each, Expr, Number, Rule, Var
from superopt.terms import CONST, INPUT, AttrValue, TensorType, TermGraph, type_text
from superopt.values import FUNCTIONS, Unknown, Value

Array = NDArray[np.generic]

EMPTY_TOO = frozenset((INPUT, CONST, "Concat", "Slice"))
"""Operators some of whose operands may be empty, where what comes out is not."""

TRIES_PER_POINT = 30
HOPELESS = 240
"""After how many tries, all in vain, instances that break one condition and keep the others are given up."""
MOST_ELEMENTS = 1 << 22
"""How many elements a term of either side may have: what is larger is not evaluated, which is done often."""
REPEATS = 2
"""How many instances of one signature (types and attributes) are taken; they differ in content."""


@dataclass(frozen=True)
class Instance:
    """A rule without stars, a binding of all its names with contents, and its left side under it.

    ``unread`` are the variables whose contents no condition or attribute looks at: others would do as well.
    ``bounds`` are the sizes of what variables are indices into.
    """

    rule: Rule
    binding: Binding
    arrays: Mapping[str, Array]
    left: TermGraph
    signature: str
    unread: frozenset[str] = frozenset()
    bounds: Mapping[str, int] = field(default_factory=dict)

    def right(self) -> TermGraph:
        """The right side under the binding. Raises InferenceError or Unknown where it is not well typed."""
        return instantiate(self.rule.right, self.binding)


@lru_cache(maxsize=4096)
def expanded(rule: Rule, counts: tuple[int, ...]) -> Rule:
    """A rule with its stars standing for so many terms each."""
    if not counts:
        return rule
    return rule.expanded(dict(zip(rule.stars, counts, strict=True)))


def _counts(rule: Rule, maker: random.Random) -> tuple[int, ...]:
    """For how many terms each star stands: the same for all of ``siblings(...)``, and for stars that are zipped."""
    if not rule.stars:
        return ()
    if rule.siblings:
        return (maker.choice((2, 2, 3)),) * len(rule.stars)
    tied = [{name for _, name in part.over} for root in rule.left for part in parts_of(root) if isinstance(part, Each)]
    chosen: dict[str, int] = {}
    for name in rule.stars:
        known = [chosen[other] for group in tied if name in group for other in sorted(group) if other in chosen]
        options = (1, 2, 2, 3) if len(rule.stars) == 1 else (0, 1, 1, 2, 2, 3)
        chosen[name] = known[0] if known else maker.choice(options)
    return tuple(chosen[name] for name in rule.stars)


def instances(
    rule: Rule, *, points: int, seed: int, dropped: int | None = None, large: bool = False,
    tries: int = TRIES_PER_POINT,
) -> Iterator[Instance]:  # fmt: skip
    """Up to so many instances, varied, the same for the same seed, of so many ``tries`` for each.

    With ``dropped``, the condition ``rule.when[dropped]`` is false in all of them and the others hold.
    """
    clues = clues_of(rule)
    seen: Counter[str] = Counter()
    found = 0
    meant: dict[tuple[int, ...], _Meant] = {}
    liked: Liked = {}
    generator = np.random.default_rng(zlib.crc32(f"{seed}/{rule.name}/{dropped}/{large}".encode()))
    turns = Turns.of([part for root in rule.left for part in applications(root)], forever=dropped is not None)
    for number in range(points * tries):
        maker = random.Random(f"{seed}/{rule.name}/{dropped}/{large}/{number}")
        turn = None if large else turns.next(number)
        counts = _counts(rule, maker)
        if counts not in meant:
            meant[counts] = _meant(expanded(rule, counts), clues, dropped)
        made = _attempt(meant[counts], Dice(maker, generator, large=large), dropped, number, turn, liked)
        turns.taken(turn, made is not None)
        if dropped is not None and not found and number >= HOPELESS:
            return
        if made is None or seen[made.signature] >= REPEATS:
            continue
        seen[made.signature] += 1
        yield made
        found += 1
        if found == points:
            return


@dataclass(frozen=True)
class _Asked:
    """A condition, and the names of a left side, elements of stars among them, that it speaks of."""

    expr: Expr
    names: frozenset[str]


@dataclass(frozen=True)
class _Meant:
    """A rule without stars, the operators that its left side applies, and what is asked of its instances: conditions
    that look at types and attributes alone, and those that look at contents; of those that make it worth while too."""

    rule: Rule
    clues: Clues
    applied: tuple[Apply, ...]
    quiet: tuple[_Asked, ...]
    reading: tuple[Expr, ...]
    quiet_wishes: tuple[_Asked, ...]
    reading_wishes: tuple[Expr, ...]
    broken: _Asked | None


def _meant(rule: Rule, clues: Clues, dropped: int | None) -> _Meant:
    left = _names_of(rule)
    kept = [expr for index, expr in enumerate(rule.when) if index != dropped]
    broken = None if dropped is None or _reads(rule.when[dropped]) else _asked(rule.when[dropped], left)
    return _Meant(
        rule, clues, tuple(part for root in rule.left for part in applications(root)),
        tuple(_asked(expr, left) for expr in kept if not _reads(expr)), tuple(expr for expr in kept if _reads(expr)),
        tuple(_asked(expr, left) for expr in rule.only_if if not _reads(expr)),
        tuple(expr for expr in rule.only_if if _reads(expr)), broken,
    )  # fmt: skip


def _attempt(
    meant: _Meant, dice: Dice, dropped: int | None, number: int, turn: Turn | None, liked: Liked
) -> Instance | None:
    """One instance, or None where what was drawn is none. Of any four attempts one is made with integers, and of any
    five one with groups: what only these show wrong must not be left to chance."""
    rule, clues = meant.rule, meant.clues
    dice.wanted = clues.wanted
    wanted = [dtype for dtype in clues.dtypes if (dtype in INTS) == (number % 4 == 3)] or clues.dtypes
    dice.dtype = dice.any_dtype(wanted, even=dropped is not None and dice.chance(0.3))
    unusual = [dtype for dtype in wanted if dtype in INTS[2:]]
    if number % 8 == 3 and unusual:
        # Short ones and those without a sign take turns.
        dice.dtype = unusual[number // 8 % len(unusual)]
    dice.grouped = number % 5 == 1
    dice.plain = not dice.grouped and dice.chance(0.4)
    if clues.windows > 1 and number % 3 == 2 and turn is None:
        dice.contrast = CONTRASTS[number // 3 % len(CONTRASTS)]
        dice.contrast_kernel, dice.contrast_places = dice.pick((2, 3)), dice.pick((1, 2))
    dice.tiny = bool(clues.read) and (number % 8 == 6 if dropped is None else number % 2 == 0)
    dice.turn = number // 8 % 3
    dice.undefined = number % 8 == 5 if dropped is None else number % 4 == 1
    dice.near = bool(clues.read and clues.numbers) and number % 12 == 0
    dice.outputs = clues.outputs
    draft = Draft(dice, _evaluated)
    draft.constant = clues.constant | {name for name in clues.either if dice.chance(0.5)}
    if turn is not None:
        draft.kind, draft.site = turn.kind, turn.site(meant.applied)
    # What makes a rule worth while does not make it sound: a `when` may be needed only without it.
    worthwhile = dropped is None or dice.chance(0.5)
    quiet = (*meant.quiet, *meant.quiet_wishes) if worthwhile else meant.quiet
    reading = (*meant.reading, *meant.reading_wishes) if worthwhile else meant.reading
    broken = meant.broken
    if quiet or broken is not None:
        draft.admits = partial(_admits, quiet, broken)
    hint: TensorType | None = None
    try:
        for root in rule.left:
            found = grow(root, draft, hint if dice.chance(0.5) else None)
            hint = found if isinstance(found, TensorType) else None
    except Rejected:
        return None
    blank = binding_of(draft, {})
    if all(value.constant for value in blank.values() if isinstance(value, Value)):
        # What is constant throughout is evaluated, not rewritten.
        return None
    if not holds((asked.expr for asked in quiet), blank):
        return None
    if broken is not None and holds((broken.expr,), blank):
        return None

    def accepted(arrays: Mapping[str, Array]) -> bool:
        binding = binding_of(draft, arrays)
        if not holds(reading, binding) or not numbers_match(rule, binding):
            return False
        return dropped is None or not holds((rule.when[dropped],), binding)

    arrays = filled(draft, clues, liked, accepted, read=bool(reading or clues.read))
    return None if arrays is None else _instance(rule, draft, arrays, clues)


def _admits(wanted: Sequence[_Asked], broken: _Asked | None, draft: Draft, before: frozenset[str]) -> bool:
    """Whether the wanted conditions hold, and the broken one does not, that can be told only since now."""
    bound = draft.bound
    due = [asked for asked in wanted if asked.names <= bound and not asked.names <= before]
    late = [broken] if broken is not None and broken.names <= bound and not broken.names <= before else []
    if not due and not late:
        return True
    names = frozenset[str]().union(*(asked.names for asked in (*due, *late)))
    blank = binding_of(draft, {}, names)
    return holds((asked.expr for asked in due), blank) and not any(holds((asked.expr,), blank) for asked in late)


def _names_of(rule: Rule) -> tuple[str, ...]:
    """The names of a left side, elements of stars among them."""
    left: dict[str, None] = {}
    for root in rule.left:
        for part in parts_of(root):
            if isinstance(part, (Var, Number)):
                left[part.name] = None
            elif isinstance(part, Apply):
                bare = (expr.tree.id for _, expr in part.attrs if isinstance(expr.tree, ast.Name))
                left.update(dict.fromkeys((*bare, *((part.rest,) if part.rest is not None else ()))))
    return tuple(left)


def _asked(expr: Expr, left: Sequence[str]) -> _Asked:
    used = {node.id for node in ast.walk(expr.tree) if isinstance(node, ast.Name)}
    return _Asked(expr, frozenset(name for name in left if name in used or name.partition(".")[0] in used))


def _instance(rule: Rule, draft: Draft, arrays: Mapping[str, Array], clues: Clues) -> Instance | None:
    """The instance of a rule that a draft stands for, or None where its left side is not well typed."""
    binding = binding_of(draft, arrays)
    try:
        left = instantiate(rule.left, binding)
    except (InferenceError, Unknown):
        return None
    if not all(isinstance(left.types[root], TensorType) for root in left.roots) or elements(left) > MOST_ELEMENTS:
        return None
    # Kernels disagree about what is empty, but for what only moves elements.
    moving = all(node.op in EMPTY_TOO for node in left.nodes)
    checked = [left.types[root] for root in left.roots] if moving else left.types
    if all(node.op in (INPUT, "Reshape") for node in left.nodes) and any(n.attrs.get("allowzero") for n in left.nodes):
        # Types alone can tell: a zero in a shape may be meant.
        checked = []
    if any(isinstance(kind, TensorType) and kind.size == 0 for kind in checked):
        return None
    kept = clues.read | {"number"}
    unread = frozenset(name for name in arrays if name.partition(".")[0] not in kept)
    return Instance(rule, binding, arrays, left, left.text(), unread, dict(draft.bounds))


def elements(graph: TermGraph) -> int:
    """How many elements the largest term of a graph has."""
    parts = (part for kind in graph.types for part in (kind if isinstance(kind, tuple) else (kind,)))
    return max((part.size or 0 for part in parts if isinstance(part, TensorType)), default=0)


def binding_of(draft: Draft, arrays: Mapping[str, Array], names: frozenset[str] | None = None) -> Binding:
    """The binding that a draft stands for, or that of some names; the contents of constants can be read where they are
    given."""
    bound: dict[str, Bound] = {}
    for part in (draft.attrs, draft.bundles):
        bound |= part if names is None else {name: part[name] for name in names if name in part}
    for name, tensor in draft.types.items():
        if names is None or name in names:
            constant = name.partition(".")[0] in draft.constant or name in draft.numbers
            bound[name] = _value(tensor, constant, arrays.get(name))
    return bound


def _value(tensor: TensorType, constant: bool, array: Array | None) -> Value:
    return Value(tensor, constant, None if array is None or not constant else lambda: array)


def _evaluated(expr: Expr, draft: Draft) -> AttrValue:
    names = _free_names(expr)
    if not names:
        return _written(expr)
    bound: dict[str, Bound] = {}
    for name in names:
        parts = [name] if draft.has(name) else [known for known in draft.bound if known.partition(".")[0] == name]
        if not parts:
            raise Unknown(f"{name} is not bound yet")
        for part in parts:
            if part in draft.types:
                bound[part] = Value(draft.types[part])
            else:
                bound[part] = draft.attrs[part] if part in draft.attrs else draft.bundles[part]
    return _plain(evaluate(expr, bound))


@lru_cache(maxsize=4096)
def _written(expr: Expr) -> AttrValue:
    """The value of an expression without names."""
    return _plain(evaluate(expr, {}))


def _plain(value: Any) -> AttrValue:
    if isinstance(value, bool):
        return int(value)
    result: AttrValue = tuple(value) if isinstance(value, (list, tuple)) else value
    return result


@lru_cache(maxsize=4096)
def _free_names(expr: Expr) -> tuple[str, ...]:
    """The names of an expression that a binding has to give."""
    names = (node.id for node in ast.walk(expr.tree) if isinstance(node, ast.Name))
    return tuple(dict.fromkeys(name for name in names if name not in FUNCTIONS and name not in _BUILTIN_NAMES))


_BUILTIN_NAMES = frozenset("constant len min max sum all any tuple range sorted abs int float zip".split())


@lru_cache(maxsize=4096)
def _reads(expr: Expr) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id in FUNCTIONS and FUNCTIONS[node.id].reads for node in ast.walk(expr.tree)
    )


def summary(found: Instance) -> str:
    """The types and attributes of an instance in a line."""
    parts = []
    for name, value in found.binding.items():
        parts.append(f"{name}={type_text(value.type) if isinstance(value, Value) else value}")
    return ", ".join(parts)
