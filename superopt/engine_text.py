"""The e-graph engine's program text: constructors, loading of terms, and a rule variant as an engine rule.

Names are prefixed, since the engine keeps sorts, functions, rulesets and rule variables in one namespace:
``op-Conv-3`` is an
operator with its number of arguments, ``from-Conv-3`` tells which rule made such a node, ``t-``, ``y-``, ``a-``,
``c-`` are a
rule's terms, types, attributes and constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from superopt.instantiate import skeleton
from superopt.matching import Variant, attribute_text
from superopt.rules import Absent, Apply, Made, Number, Output, Pattern, Var
from superopt.terms import ABSENT, CONST, OPAQUE, PROJECT, Attrs, Node, ValueType, type_text

SEPARATOR = "\x1f"
"""Between the fields of a match and of an answer; no field holds it."""

NO_TERM = "(no-term)"
"""An optional argument that is not given."""

PROGRAM = (
    "(sort T)",
    "(constructor no-term () T)",
    "(constructor V (i64) T)",
    "(relation is-constant (T))",
    "(relation is-live (T))",
    "(ruleset rs-flow)",
)


@dataclass(frozen=True)
class Field:
    """A field of the text that a match is told by: ``type`` of a variable, ``root`` type, ``attrs`` of a left slot, or
    ``key`` of a constant."""

    kind: str
    name: str = ""
    index: int = 0


@dataclass(frozen=True)
class EngineRule:
    """A rule's text for the engine, and the fields that it passes on a match."""

    text: str
    fields: tuple[Field, ...]
    constructors: tuple[tuple[str, int], ...]


def quoted(text: str) -> str:
    """A string literal of the engine."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def constructor(op: str, arity: int) -> str:
    return f"op-{op}-{arity}"


def declarations(op: str, arity: int) -> Iterator[str]:
    """The constructor of an operator with so many arguments, its provenance, and how being constant or live flows."""
    sorts = " ".join(["T"] * arity)
    name = constructor(op, arity)
    yield f"(constructor {name} ({sorts} String) T)"
    yield f"(function from-{op}-{arity} ({sorts} String) i64 :merge old)"
    if op == OPAQUE or arity == 0:
        return
    args = [f"x{index}" for index in range(arity)]
    node = f"(= e ({name} {' '.join(args)} s))"
    constants = " ".join(f"(is-constant {arg})" for arg in args)
    yield f"(rule ({node} {constants}) ((is-constant e)) :ruleset rs-flow)"
    for arg in args:
        yield f"(rule ({node} (is-live {arg})) ((is-live e)) :ruleset rs-flow)"


def term_text(node: Node, args: Sequence[str]) -> str:
    """A node as an expression of the engine, its arguments given as expressions."""
    attrs = str(node.attrs["key"]) if node.op == CONST else node.attrs.text
    return f"({constructor(node.op, len(args))} {' '.join([*args, quoted(attrs)])})"


def load_commands(index: int, node: Node, value_type: ValueType, *, constant: bool) -> Iterator[str]:
    """The commands that load a node of a term graph under the name ``(V index)``."""
    args = [NO_TERM if arg == ABSENT else f"(V {arg})" for arg in node.args]
    yield f"(union (V {index}) {term_text(node, args)})"
    yield f"(set (type-of (V {index})) {quoted(type_text(value_type))})"
    yield f"({'is-constant' if constant else 'is-live'} (V {index}))"


def engine_rule(variant: Variant, ruleset: str, answer_function: str, part_function: str, number: int) -> EngineRule:
    """The engine's rule for a variant; ``number`` is what its right side's nodes are marked with as made by.

    ``answer_function`` takes the joined fields of a match and returns the joined attributes and types of the right
    side's
    slots, or the empty text; ``part_function`` takes such a text and an index.
    """
    body, fields, texts, used = _left(variant)
    for name in variant.variables:
        body.append(f"(= y-{_word(name)} (type-of t-{_word(name)}))")
        fields.append(Field("type", name))
        texts.append(f"y-{_word(name)}")
    for index, root in enumerate(_root_names(variant)):
        body.append(f"(= y-root{index} (type-of {root}))")
        fields.append(Field("root", index=index))
        texts.append(f"y-root{index}")
    joined = f"(+ {f' {quoted_separator()} '.join(texts)})" if len(texts) > 1 else texts[0]
    body.append(f"(= p (py-to-string (py-call {answer_function} (py-from-string {joined}))))")
    body.append('(!= p "")')
    head = _right(variant, part_function, number, used)
    text = f"(rule ({' '.join(body)})\n      ({' '.join(head)})\n      :ruleset {ruleset})"
    return EngineRule(text, tuple(fields), tuple(used))


def quoted_separator() -> str:
    return f'"{SEPARATOR}"'


def _word(name: str) -> str:
    return name.replace(".", "-")


def _root_names(variant: Variant) -> list[str]:
    shape = skeleton(variant.rule.left)
    return [_slot_name(shape.slots[root].pattern, root) for root in shape.roots]


def _slot_name(pattern: Pattern, index: int) -> str:
    return f"t-{_word(pattern.name)}" if isinstance(pattern, (Var, Number)) else f"t-slot{index}"


def _left(variant: Variant) -> tuple[list[str], list[Field], list[str], dict[tuple[str, int], None]]:
    """The query: an atom for each node of the left side, what must be constant, live or known, and the fields so
    far."""
    shape = skeleton(variant.rule.left)
    names = [_slot_name(slot.pattern, index) for index, slot in enumerate(shape.slots)]
    body: list[str] = []
    fields: list[Field] = []
    texts: list[str] = []
    used: dict[tuple[str, int], None] = {}
    for index in reversed(range(len(shape.slots))):
        slot = shape.slots[index]
        args = [NO_TERM if arg == ABSENT else names[arg] for arg in slot.args]
        match slot.pattern:
            case Apply(op):
                attrs = attribute_text(slot.pattern)
                used[(op, len(args))] = None
                if attrs is None:
                    fields.append(Field("attrs", index=index))
                    texts.append(f"a-{index}")
                written = f"a-{index}" if attrs is None else quoted(attrs)
                body.append(f"(= {names[index]} ({constructor(op, len(args))} {' '.join([*args, written])}))")
            case Output(_, position):
                used[(PROJECT, 1)] = None
                body.append(f"(= {names[index]} {term_text(_projection(position), args)})")
            case Number(name=name):
                used[(CONST, 0)] = None
                body.append(f"(= {names[index]} ({constructor(CONST, 0)} c-{_word(name)}))")
                fields.append(Field("key", name))
                texts.append(f"c-{_word(name)}")
            case _:
                continue
    for name in variant.read:
        used[(CONST, 0)] = None
        body.append(f"(= t-{_word(name)} ({constructor(CONST, 0)} c-{_word(name)}))")
        fields.append(Field("key", name))
        texts.append(f"c-{_word(name)}")
    body += [f"(is-constant t-{_word(name)})" for name in variant.constant]
    # What is constant is evaluated, not rewritten.
    body += [f"(is-live {names[root]})" for root in dict.fromkeys(shape.roots)]
    return body, fields, texts, used


def _projection(index: int) -> Node:
    return Node(PROJECT, (0,), Attrs.of(index=index))


def _right(variant: Variant, part_function: str, number: int, used: dict[tuple[str, int], None]) -> list[str]:
    """The actions: the right side's nodes with types and provenance, then the union of each root."""
    shape = variant.right
    head: list[str] = []
    names: list[str] = []
    fields = 0
    for index, slot in enumerate(shape.slots):
        if isinstance(slot.pattern, Var):
            names.append(f"t-{_word(slot.pattern.name)}")
            continue
        names.append(f"n-{index}")
        args = [NO_TERM if arg == ABSENT else names[arg] for arg in slot.args]
        attrs = f"(py-to-string (py-call {part_function} (py-from-string p) (py-from-int {fields})))"
        value_type = f"(py-to-string (py-call {part_function} (py-from-string p) (py-from-int {fields + 1})))"
        op, arity = _operator_of(slot.pattern, len(args))
        used[(op, arity)] = None
        head.append(f"(let s-{index} {attrs})")
        head.append(f"(let n-{index} ({constructor(op, arity)} {' '.join([*args, f's-{index}'])}))")
        head.append(f"(set (from-{op}-{arity} {' '.join([*args, f's-{index}'])}) {number})")
        head.append(f"(set (type-of n-{index}) {value_type})")
        if op == CONST:
            head.append(f"(is-constant n-{index})")
        fields += 2
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


def answered_slots(variant: Variant) -> list[int]:
    """The slots of the right side that an answer tells attributes and type of, in order."""
    return [index for index, slot in enumerate(variant.right.slots) if not isinstance(slot.pattern, Var)]
