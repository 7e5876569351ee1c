"""Instances of a rule, drawn from its text: bindings under which its left side is well typed and conditions hold."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superopt.errors import InferenceError
from superopt.expressions import Binding, Bound, evaluate
from superopt.instantiate import holds, instantiate, numbers_match
from superopt.laws.instances_clues import Clues, applications, clues_of, parts_of
from superopt.laws.instances_content import PLAIN_STYLES, READ_STYLES, content, special, tiny, undefined
from superopt.laws.instances_contrast import CONTRASTS
from superopt.laws.instances_dice import INTS, Dice, static
from superopt.laws.instances_draft import Draft, Rejected, grow
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
TRIES_OF_CONTENT = 12
"""How often contents are drawn for the same types: conditions that read constants ask for one style of many."""
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
    turns = Turns.of([part for root in rule.left for part in applications(root)], forever=dropped is not None)
    for number in range(points * tries):
        maker = random.Random(f"{seed}/{rule.name}/{dropped}/{large}/{number}")
        turn = None if large else turns.next(number)
        meant = expanded(rule, _counts(rule, maker))
        made = _attempt(meant, clues, Dice(maker, large=large), dropped, number, turn)
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


def _attempt(
    rule: Rule, clues: Clues, dice: Dice, dropped: int | None, number: int, turn: Turn | None
) -> Instance | None:
    """One instance, or None where what was drawn is none. Of any four attempts one is made with integers, and of any
    five one with groups: what only these show wrong must not be left to chance."""
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
    dice.undefined = number % 8 == 5 if dropped is None else number % 4 == 1
    dice.outputs = clues.outputs
    draft = Draft(dice, _evaluated)
    draft.constant = clues.constant | {name for name in clues.either if dice.chance(0.5)}
    if turn is not None:
        draft.kind, draft.site = turn.kind, turn.site([part for root in rule.left for part in applications(root)])
    # What makes a rule worth while does not make it sound: a `when` may be needed only without it.
    quiet, reading = _conditions(rule, dropped, worthwhile=dropped is None or dice.chance(0.5))
    broken = None if dropped is None or _reads(rule.when[dropped]) else rule.when[dropped]
    draft.admits = partial(_admits, _needs(rule), quiet, broken)
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
    if not holds(quiet, blank):
        return None
    if broken is not None and holds((broken,), blank):
        return None
    arrays: dict[str, Array] = {}
    for tried in range(TRIES_OF_CONTENT if reading or clues.read else 1):
        for name, tensor in draft.types.items():
            # What no condition looks at may mostly stay.
            if tried % 4 == 0 or name.partition(".")[0] in clues.read:
                arrays[name] = _content(name, tensor, draft, clues)
        binding = binding_of(draft, arrays)
        if not holds(reading, binding) or not numbers_match(rule, binding):
            continue
        if dropped is not None and holds((rule.when[dropped],), binding):
            continue
        made = _instance(rule, binding, arrays, clues)
        return None if made is None else replace(made, bounds=dict(draft.bounds))
    return None


def _admits(
    needs: Mapping[Expr, frozenset[str]], wanted: Sequence[Expr], broken: Expr | None, draft: Draft,
    before: frozenset[str],
) -> bool:  # fmt: skip
    """Whether the wanted conditions hold, and the broken one does not, that can be told only since now."""
    bound = draft.bound
    due = [expr for expr in wanted if needs[expr] <= bound and not needs[expr] <= before]
    late = broken if broken is not None and needs[broken] <= bound and not needs[broken] <= before else None
    if not due and late is None:
        return True
    blank = binding_of(draft, {})
    return holds(due, blank) and (late is None or not holds((late,), blank))


@lru_cache(maxsize=4096)
def _needs(rule: Rule) -> Mapping[Expr, frozenset[str]]:
    """The names of a left side, elements of stars among them, that each condition of a rule speaks of."""
    left: dict[str, None] = {}
    for root in rule.left:
        for part in parts_of(root):
            if isinstance(part, (Var, Number)):
                left[part.name] = None
            elif isinstance(part, Apply):
                bare = (expr.tree.id for _, expr in part.attrs if isinstance(expr.tree, ast.Name))
                left.update(dict.fromkeys((*bare, *((part.rest,) if part.rest is not None else ()))))
    found: dict[Expr, frozenset[str]] = {}
    for expr in (*rule.when, *rule.only_if):
        used = {node.id for node in ast.walk(expr.tree) if isinstance(node, ast.Name)}
        found[expr] = frozenset(name for name in left if name in used or name.partition(".")[0] in used)
    return found


def _instance(rule: Rule, binding: Binding, arrays: Mapping[str, Array], clues: Clues) -> Instance | None:
    """The instance of a rule under a binding, or None where its left side is not well typed."""
    try:
        left = instantiate(rule.left, binding)
    except (InferenceError, Unknown):
        return None
    if not all(isinstance(left.types[root], TensorType) for root in left.roots):
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
    return Instance(rule, binding, arrays, left, left.text(), unread)


def binding_of(draft: Draft, arrays: Mapping[str, Array]) -> Binding:
    """The binding that a draft stands for; the contents of constants can be read where they are given."""
    bound: dict[str, Bound] = {**draft.attrs, **draft.bundles}
    for name, tensor in draft.types.items():
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
    for name, value in (*draft.attrs.items(), *draft.bundles.items(), *draft.types.items()):
        if name in names or name.partition(".")[0] in names:
            bound[name] = Value(value) if isinstance(value, TensorType) else value
    stars = {name.partition(".")[0] for name in bound}
    for name in names:
        if name not in stars:
            raise Unknown(f"{name} is not bound yet")
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


def _content(name: str, tensor: TensorType, draft: Draft, clues: Clues) -> Array:
    if name in draft.numbers:
        return np.full(static(tensor) or (), draft.numbers[name], np.dtype(tensor.dtype))
    read = name.partition(".")[0] in clues.read
    dice = draft.dice
    if name in draft.numbers_of_kind and not (read and dice.chance(0.5)):
        made = np.resize(draft.numbers_of_kind[name], static(tensor) or ())
        return np.asarray(np.abs(made) if tensor.dtype.startswith("u") else made, tensor.dtype)
    if read:
        style = dice.pick(READ_STYLES)
    elif dice.chance(0.06):
        style = dice.pick(("zeros", "ones", "equal", "sparse"))
    else:
        style = dice.pick(PLAIN_STYLES)
    made = content(tensor, style, dice, clues.numbers, draft.bounds.get(name))
    if clues.sorting and dice.chance(0.7):
        return special(made, np.random.default_rng(dice.random.getrandbits(48)), ())
    if dice.undefined and name.partition(".")[0] in draft.constant and dice.chance(0.5):
        return undefined(made)
    return tiny(made) if dice.tiny and dice.chance(0.9 if read else 0.5) else made


def _conditions(rule: Rule, dropped: int | None, worthwhile: bool) -> tuple[list[Expr], list[Expr]]:
    """Conditions that look at types and attributes alone, and those that look at contents."""
    kept = [expr for index, expr in enumerate(rule.when) if index != dropped]
    kept += rule.only_if if worthwhile else ()
    return [expr for expr in kept if not _reads(expr)], [expr for expr in kept if _reads(expr)]


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
