"""A rule variant as rules of the e-graph engine.

Names are prefixed, as in superopt.engine.constructors: ``t-``, ``y-``, ``a-``, ``c-`` are a rule's terms, types,
attributes and constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from superopt.engine.constructors import NO_TERM, WEIGHTED, Constructor, quoted, term_text
from superopt.engine.matching import attribute_text
from superopt.engine.variants import MOVEMENT, Variant
from superopt.instantiate import skeleton
from superopt.operators import STAYS, operator
from superopt.rules import Absent, Apply, Each, Made, Number, Output, Pattern, Rule, Star, Var
from superopt.terms import ABSENT, CONST, PROJECT, Attrs

SEPARATOR = "\x1f"
"""Between the fields of a match and of an answer; no field holds it."""

STAGES = ("type", "ask", "make", "done")
"""The rulesets of a rule that has found something, in the order in which a step runs them after ``find``."""


@dataclass(frozen=True)
class Field:
    """A field of the text that a match is told by: ``type`` of a variable, ``root`` type, ``attrs`` of a left slot, or
    ``key`` of a constant."""

    kind: str
    name: str = ""
    index: int = 0


@dataclass(frozen=True)
class EngineRule:
    """The engine's commands that find the matches of a rule, and those that make right sides of them.

    ``matched`` and ``made`` are the constructors that the one and the other name, ``fields`` what tells of a match.
    """

    find: tuple[str, ...]
    make: tuple[str, ...]
    matched: tuple[Constructor, ...]
    made: tuple[Constructor, ...]
    fields: tuple[Field, ...]


def matched_by(variant: Variant) -> frozenset[Constructor]:
    """The constructors without nodes of which a variant has no match."""
    return frozenset(_left(variant)[3])


def needed(rule: Rule) -> frozenset[str]:
    """The operators without nodes of which no variant of a rule has a match; what repeats may stand for nothing."""
    return frozenset(made.op for root in rule.left for made in _operators(root, repeated=False))


def engine_rules(variant: Variant, rule: int, number: int, answer_function: str, part_function: str) -> EngineRule:
    """The engine's rules for a variant of the rule with this number; ``number`` counts variants.

    Rulesets ``find-N``, ``type-N``, ``ask-N``, ``make-N`` and ``done-N`` of rule N are run in turn. The first matches
    the left side; the second looks up types and joins all that tells of a match to one text; the third asks
    ``answer_function`` once for each distinct text (networks repeat themselves, and calling Python is expensive) and
    keeps the attributes and types of the right side's slots, taken apart by ``part_function``; the fourth makes the
    right sides; the fifth forgets the matches. Were the types part of the first query, each would be one more table to
    join for every rule in every step, and the engine's time is in the number of these.
    """
    body, fields, texts, matched = _left(variant)
    roots = _root_names(variant)
    terms = list(dict.fromkeys([*(f"t-{_word(name)}" for name in variant.variables), *roots]))
    found = f"(found-{number} {' '.join([*terms, *texts])})"
    sorts = " ".join(["T"] * len(terms) + ["String"] * len(texts))
    known: list[str] = []
    for kind, term, name, index in (
        *(("type", f"t-{_word(name)}", name, 0) for name in variant.variables),
        *(("root", root, "", index) for index, root in enumerate(roots)),
    ):
        fields.append(Field(kind, name, index))
        texts.append(f"y-{len(known)}")
        known.append(f"(= y-{len(known)} (type-of {term}))")
    joined = f"(+ {f' {quoted_separator()} '.join(texts)})" if len(texts) > 1 else texts[0]
    answer = f"(py-to-string (py-call {answer_function} (py-from-int {number}) (py-from-string q)))"
    parts = [f"p-{index}" for index in range(len(answered_parts(variant)))]
    taken = " ".join(
        f"(py-to-string (py-call {part_function} (py-from-string p) (py-from-int {index})))"
        for index in range(len(parts))
    )
    typed = f"(typed-{number} {' '.join([*terms, 'q'])})"
    answered = f"(answered-{number} {' '.join(['q', *parts])})"
    used: dict[Constructor, None] = {}
    made = " ".join(_right(variant, rule + 1, used))
    find = (
        f"(relation found-{number} ({sorts}))",
        f"(rule ({' '.join(body)}) ({found}) :ruleset find-{rule})",
    )
    make = (
        f"(relation typed-{number} ({' '.join(['T'] * len(terms))} String))",
        f"(relation asked-{number} (String))",
        f"(relation answered-{number} ({' '.join(['String'] * (1 + len(parts)))}))",
        f"(rule ({' '.join([found, *known])} (= q {joined})) ({typed} (asked-{number} q)) :ruleset type-{rule})",
        f'(rule ((asked-{number} q) (= p {answer}) (!= p "")) ((answered-{number} q {taken})) :ruleset ask-{rule})',
        f"(rule ({typed} {answered}) ({made}) :ruleset make-{rule})",
        f"(rule ({found}) ((delete {found})) :ruleset done-{rule})",
        f"(rule ({typed}) ((delete {typed})) :ruleset done-{rule})",
    )
    return EngineRule(find, make, tuple(matched), tuple(used), tuple(fields))


_CONST = Constructor(CONST, 0)


@lru_cache(maxsize=1 << 12)
def makes_weighted(rule: Rule) -> bool:
    """Whether a rule makes nodes of operators that have weights, or joins classes that may hold such: a right side that
    is a term of the left."""
    return any(isinstance(root, Var) or any(made.op in WEIGHTED for made in _operators(root)) for root in rule.right)


def _operators(pattern: Pattern | Star | Each, *, repeated: bool = True) -> list[Apply]:
    """Every operator of a pattern; those of templates too where what is ``repeated`` counts."""
    match pattern:
        case Apply(_, args):
            return [pattern, *(made for arg in args for made in _operators(arg, repeated=repeated))]
        case Output(of):
            return _operators(of, repeated=repeated)
        case Each(template) if repeated:
            return _operators(template)
        case _:
            return []


def quoted_separator() -> str:
    return f'"{SEPARATOR}"'


def _word(name: str) -> str:
    return name.replace(".", "-")


def _root_names(variant: Variant) -> list[str]:
    shape = skeleton(variant.rule.left)
    return [_slot_name(shape.slots[root].pattern, root) for root in shape.roots]


def _slot_name(pattern: Pattern, index: int) -> str:
    return f"t-{_word(pattern.name)}" if isinstance(pattern, (Var, Number)) else f"t-slot{index}"


def _left(variant: Variant) -> tuple[list[str], list[Field], list[str], dict[Constructor, None]]:
    """The query: an atom for each node of the left side, what must be constant, live or known, and the fields so
    far."""
    shape = skeleton(variant.rule.left)
    names = [_slot_name(slot.pattern, index) for index, slot in enumerate(shape.slots)]
    body: list[str] = []
    fields: list[Field] = []
    texts: list[str] = []
    used: dict[Constructor, None] = {}
    for index in reversed(range(len(shape.slots))):
        slot = shape.slots[index]
        args = [NO_TERM if arg == ABSENT else names[arg] for arg in slot.args]
        match slot.pattern:
            case Apply(op):
                attrs = attribute_text(slot.pattern)
                made = Constructor(op, len(args), variant.among_constants)
                used[made] = None
                if attrs is None:
                    fields.append(Field("attrs", index=index))
                    texts.append(f"a-{index}")
                written = f"a-{index}" if attrs is None else quoted(attrs)
                body.append(f"(= {names[index]} ({made.suffix} {' '.join([*args, written])}))")
            case Output(_, position):
                made = Constructor(PROJECT, 1)
                used[made] = None
                body.append(f"(= {names[index]} {term_text(made, Attrs.of(index=position), args)})")
            case Number(name=name):
                used[_CONST] = None
                body.append(f"(= {names[index]} ({_CONST.suffix} c-{_word(name)}))")
                fields.append(Field("key", name))
                texts.append(f"c-{_word(name)}")
            case _:
                continue
    for name in variant.read:
        used[_CONST] = None
        body.append(f"(= t-{_word(name)} ({_CONST.suffix} c-{_word(name)}))")
        fields.append(Field("key", name))
        texts.append(f"c-{_word(name)}")
    body += [f"(is-constant t-{_word(name)})" for name in variant.constant]
    body += [f"(is-varying t-{_word(name)})" for name in variant.varying]
    return body, fields, texts, used


def _right(variant: Variant, number: int, used: dict[Constructor, None]) -> list[str]:
    """The actions: the right side's nodes with types and provenance, then the union of each root."""
    shape = variant.right
    head: list[str] = []
    names: list[str] = []
    constant = constant_operators(variant)
    parts = {part: index for index, part in enumerate(answered_parts(variant))}
    for index, slot in enumerate(shape.slots):
        if isinstance(slot.pattern, Var):
            names.append(f"t-{_word(slot.pattern.name)}")
            continue
        names.append(f"n-{index}")
        args = [NO_TERM if arg == ABSENT else names[arg] for arg in slot.args]
        made = Constructor(*_operator_of(slot.pattern, len(args)))
        if constant[index] and made != _CONST:
            made = Constructor(made.op, made.arity, constant=True)
        used[made] = None
        fixed = _fixed_attributes(slot.pattern)
        attrs = f"p-{parts[Part(index, 'attrs')]}" if fixed is None else quoted(fixed)
        fields = " ".join([*args, attrs])
        head.append(f"(let n-{index} ({made.suffix} {fields}))")
        head.append(f"(set (from-{made.suffix} {fields}) {number})")
        if Part(index, "type") in parts:
            head.append(f"(set (type-of n-{index}) p-{parts[Part(index, 'type')]})")
        if constant[index]:
            head.append(f"(is-constant n-{index})")
    for left, root in zip(_root_names(variant), shape.roots, strict=True):
        head.append(f"(union {left} {names[root]})")
    return head


def _operator_of(pattern: Pattern, arity: int) -> tuple[str, int]:
    match pattern:
        case Apply(op):
            return op, arity
        case Output():
            return PROJECT, 1
        case Made():
            return CONST, 0
        case Absent() | Var() | Number():
            raise TypeError("no node of the right side")


@dataclass(frozen=True)
class Part:
    """A part of an answer: the attributes (the key, for a constant) or the type of a slot of the right side."""

    slot: int
    what: Literal["attrs", "type"]


def answered_parts(variant: Variant) -> list[Part]:
    """The parts of an answer, in order: what cannot be told from the rule alone, and is needed by the engine.

    Each part is a call from the engine, so that they are worth sparing. The types inside a formula for a weight are
    inferred when the e-graph is read.
    """
    shape, constant = variant.right, constant_operators(variant)
    seen = set(shape.roots)
    for index, slot in enumerate(shape.slots):
        # Rules look at transposes among constants too.
        if not constant[index] or (isinstance(slot.pattern, Apply) and slot.pattern.op in MOVEMENT):
            seen.update(slot.args)
    parts: list[Part] = []
    for index, slot in enumerate(shape.slots):
        if isinstance(slot.pattern, Var):
            continue
        if _fixed_attributes(slot.pattern) is None:
            parts.append(Part(index, "attrs"))
        if not constant[index] or index in seen or isinstance(slot.pattern, Made):
            parts.append(Part(index, "type"))
    return parts


def _fixed_attributes(pattern: Pattern) -> str | None:
    """The attribute field of a right-side node where it is the same in every match."""
    match pattern:
        case Apply(op) if (spec := operator(op)) is not None and not spec.attributes:
            return Attrs().text
        case Output(_, index):
            return Attrs.of(index=index).text
        case _:
            return None


def constant_operators(variant: Variant) -> list[bool]:
    """Which slots of the right side are computed from constants alone, as the rule's conditions tell."""
    constant: list[bool] = []
    for slot in variant.right.slots:
        if isinstance(slot.pattern, Var):
            constant.append(slot.pattern.name in variant.constant)
        else:
            stays = isinstance(slot.pattern, Apply) and slot.pattern.op in STAYS
            constant.append(not stays and all(constant[arg] for arg in slot.args if arg != ABSENT))
    return constant
