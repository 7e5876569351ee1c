"""The e-graph: terms and rules in, one step at a time, a frozen e-graph out. The only importer of egglog."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import cloudpickle
from egglog import bindings

from superopt.eclasses import EClass, EGraph, ENode
from superopt.engine_text import (
    NO_TERM,
    PROGRAM,
    SEPARATOR,
    EngineRule,
    answered_slots,
    constructor,
    declarations,
    engine_rule,
    load_commands,
    quoted,
    term_text,
)
from superopt.errors import EGraphError, InferenceError
from superopt.matching import Clash, Match, Variant, answer, variants
from superopt.rules import Rule
from superopt.shapes import join
from superopt.terms import (
    ABSENT,
    CONST,
    INPUT,
    OPAQUE,
    Attrs,
    Constant,
    Node,
    TermGraph,
    ValueType,
    parse_type,
    type_text,
)
from superopt.values import Value

CHUNK = 20
"""Commands a piece of program text has: the engine's memory grows with the square of a piece's length."""

CONTRADICTION = "!"
"""The type of a class that terms of different types have been merged into; no rule matches on it."""


@dataclass
class _Session:
    """What the functions that the engine calls need to know; they reach it by number."""

    opset: int
    constants: dict[str, Constant]
    variants: list[tuple[Variant, EngineRule]] = field(default_factory=list)
    clashes: dict[str, Clash] = field(default_factory=dict)


_SESSIONS: dict[int, _Session] = {}
_NUMBERS = count()


def _answered(session: int, index: int, text: str) -> str:
    """Called by the engine for a match: the right side's attributes and types, or nothing."""
    known = _SESSIONS[session]
    variant, rule = known.variants[index]
    parts = text.split(SEPARATOR)
    if CONTRADICTION in parts:
        return ""
    types: dict[str, ValueType] = {}
    roots: list[ValueType] = []
    attrs: dict[int, Attrs] = {}
    content: dict[str, Value] = {}
    for where, part in zip(rule.fields, parts, strict=True):
        if where.kind == "type":
            types[where.name] = parse_type(part)
        elif where.kind == "root":
            roots.append(parse_type(part))
        elif where.kind == "attrs":
            attrs[where.index] = Attrs(part)
        else:
            constant = known.constants[part]
            content[where.name] = Value(constant.type, True, constant.load)
    result = answer(variant, Match(types, tuple(roots), attrs, content), known.opset)
    if result is None:
        return ""
    if isinstance(result, Clash):
        known.clashes.setdefault(result.rule, result)
        return ""
    answers: list[str] = []
    for slot in answered_slots(variant):
        node, made = result.nodes[slot], result.constants[slot]
        if made is not None:
            known.constants.setdefault(made.key, made)
        answers += [made.key if made is not None else node.attrs.text, type_text(result.types[slot])]
    # A right side that is a bare variable has nothing to tell, but must not be the empty text.
    return SEPARATOR.join(answers) or SEPARATOR


@functools.lru_cache(maxsize=1 << 12)
def _parts(text: str) -> list[str]:
    return text.split(SEPARATOR)


def _part(text: str, index: int) -> str:
    """Called by the engine: one field of an answer."""
    return _parts(text)[index]


def _joined_type(session: int, old: str, new: str) -> str:
    """Called by the engine when classes of different types are merged."""
    if CONTRADICTION in (old, new):
        return CONTRADICTION
    try:
        return type_text(join(parse_type(old), parse_type(new)))
    except InferenceError:
        _SESSIONS[session].clashes.setdefault("", Clash("", parse_type(old), parse_type(new)))
        return CONTRADICTION


def _literal(function: Callable[..., Any]) -> str:
    """A Python function as a literal of the engine; functions of this module travel by reference."""
    return f'(py-object "{base64.standard_b64encode(cloudpickle.dumps(function)).decode()}")'


class Engine:
    """An egglog e-graph that holds the terms of one graph.

    ``add_rule`` adds a rule, ``step`` runs one rule once, ``flow`` lets types and constness settle, ``freeze`` reads
    everything out. After an EGraphError it must not be used again.
    """

    def __init__(self, graph: TermGraph, opset: int) -> None:
        self._graph = graph
        self._number = next(_NUMBERS)
        self._session = _Session(opset, dict(graph.constants))
        _SESSIONS[self._number] = self._session
        self._engine = bindings.EGraph()
        self._declared: dict[tuple[str, int], None] = {}
        self._rules: list[Rule] = []
        self._names = count(len(graph.nodes))
        merge = _literal(functools.partial(_joined_type, self._number))
        self._run(
            [
                *PROGRAM,
                "(function type-of (T) String :merge (py-to-string "
                f"(py-call {merge} (py-from-string old) (py-from-string new))))",
                f"(let $part {_literal(_part)})",
                f"(set (type-of {NO_TERM}) {quoted('?')})",
                f"(is-constant {NO_TERM})",
            ]
        )
        self._load()

    def close(self) -> None:
        """Gives up what the engine's functions reach."""
        _SESSIONS.pop(self._number, None)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def clashes(self) -> tuple[Clash, ...]:
        """Rules that would have merged terms of different types, and the types."""
        return tuple(self._session.clashes.values())

    @property
    def constants(self) -> Mapping[str, Constant]:
        return self._session.constants

    def add_rule(self, rule: Rule, arities: Mapping[str, frozenset[int]]) -> int:
        """Adds a rule and returns its number, by which ``step`` runs it."""
        number = len(self._rules)
        self._rules.append(rule)
        self._run([f"(ruleset rs-{number})"])
        for variant in [] if rule.siblings else variants(rule, arities):
            index = len(self._session.variants)
            self._run([f"(let $answer-{index} {_literal(functools.partial(_answered, self._number, index))})"])
            compiled = engine_rule(variant, f"rs-{number}", f"$answer-{index}", "$part", number + 1)
            self._session.variants.append((variant, compiled))
            for op, arity in compiled.constructors:
                self.declare(op, arity)
            self._run([compiled.text])
        return number

    def step(self, number: int) -> tuple[int, bool]:
        """Runs a rule once over all its new matches: how many there were, and whether anything changed."""
        report = self._run([f"(run rs-{number} 1)"])[-1].report
        return sum(report.num_matches_per_rule.values()), bool(report.updated)

    def flow(self) -> bool:
        """Lets being constant and being live settle; whether anything changed."""
        return bool(self._run(["(run-schedule (saturate (run rs-flow)))"])[-1].report.updated)

    def size(self) -> int:
        """The number of e-nodes."""
        sizes = dict(self._run(["(print-size)"])[-1].sizes)
        return sum(int(size) for name, size in sizes.items() if name.startswith("op-"))

    def declare(self, op: str, arity: int) -> None:
        """Makes an operator with so many arguments known."""
        if (op, arity) not in self._declared:
            self._declared[(op, arity)] = None
            for command in declarations(op, arity):
                self._run([command])

    def add_term(self, nodes: Sequence[tuple[Node, ValueType, str | None]], number: int) -> list[str]:
        """Adds nodes (arguments index earlier ones) as made by a rule, and returns an expression for each.

        An entry with an expression of its own stands for a class that is there already.
        """
        expressions: list[str] = []
        for node, value_type, known in nodes:
            if known is not None:
                expressions.append(known)
                continue
            args = [NO_TERM if arg == ABSENT else expressions[arg] for arg in node.args]
            self.declare(node.op, len(args))
            name = f"(V {next(self._names)})"
            key = str(node.attrs["key"]) if node.op == CONST else node.attrs.text
            self._run(
                [
                    f"(union {name} {term_text(node, args)})",
                    f"(set (type-of {name}) {quoted(type_text(value_type))})",
                    f"(set (from-{node.op}-{len(args)} {' '.join([*args, quoted(key)])}) {number + 1})",
                ]
            )
            if node.op == CONST:
                self._run([f"(is-constant {name})"])
            expressions.append(name)
        return expressions

    def union(self, left: str, right: str) -> None:
        """Merges the classes of two expressions."""
        self._run([f"(union {left} {right})"])

    def know(self, constants: Iterable[Constant]) -> None:
        """Makes constants known that ``add_term`` will name."""
        for constant in constants:
            self._session.constants.setdefault(constant.key, constant)

    def freeze(self) -> EGraph:
        """The e-graph as it is: classes in order of first appearance, nodes in the engine's order."""
        return self.freeze_named()[0]

    def freeze_named(self) -> tuple[EGraph, dict[int, str]]:
        """The e-graph, and for each class that has one an expression that names it."""
        return _read(self._engine.freeze(), self._engine, self)

    def expression(self, node: Node, args: Sequence[str]) -> str:
        """A node as an expression, given expressions for its arguments."""
        return term_text(node, [NO_TERM if arg == "" else arg for arg in args])

    def _load(self) -> None:
        constant: list[bool] = []
        commands: list[str] = []
        for index, node in enumerate(self._graph.nodes):
            self.declare(node.op, len(node.args))
            constant.append(_is_constant(node, constant, self._graph))
            commands += load_commands(index, node, self._graph.types[index], constant=constant[-1])
        self._run(commands)

    def _run(self, commands: Sequence[str]) -> list[Any]:
        outputs: list[Any] = []
        for chunk in _chunks(commands):
            try:
                if hasattr(self._engine, "parse_and_run_program"):
                    outputs += self._engine.parse_and_run_program(chunk)
                else:
                    outputs += self._engine.run_program(*self._engine.parse_program(chunk))
            except bindings.EggSmolError as error:
                raise EGraphError(f"the e-graph engine refused {chunk[:300]!r}: {error}") from error
            except BaseException as error:
                # A panic of the engine is no Exception; interrupts and exits are not the engine's.
                if type(error).__name__ != "PanicException":
                    raise
                raise EGraphError(f"the e-graph engine gave up on {chunk[:300]!r}: {error}") from error
        return outputs


def _chunks(commands: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(commands), CHUNK):
        yield "\n".join(commands[start : start + CHUNK])


def _is_constant(node: Node, constant: Sequence[bool], graph: TermGraph) -> bool:
    """Whether a node needs no input of the model, and gives the same each time."""
    if node.op == INPUT:
        return False
    if node.op == OPAQUE and not graph.opaque[str(node.attrs["key"])].deterministic:
        return False
    return all(constant[arg] for arg in node.args if arg != ABSENT)


def _read(frozen: Any, engine: Any, owner: Engine) -> tuple[EGraph, dict[int, str]]:
    """The engine's tables as classes; helper tables are left out."""
    tables = frozen.functions
    texts: dict[Any, str] = {}

    def text(value: Any) -> str:
        if value not in texts:
            texts[value] = engine.value_to_string(value)
        return texts[value]

    absent = {row.output for row in tables["no-term"].rows}
    index: dict[Any, int] = {}
    class_names: dict[int, str] = {}
    named: list[tuple[int, Any]] = sorted((engine.value_to_i64(row.inputs[0]), row.output) for row in tables["V"].rows)
    for number, value in named:
        class_names.setdefault(index.setdefault(value, len(index)), f"(V {number})")
    rows: list[tuple[int, str, tuple[Any, ...], str, int | None]] = []
    for op, arity in owner._declared:
        made_by = {tuple(row.inputs): engine.value_to_i64(row.output) for row in tables[f"from-{op}-{arity}"].rows}
        for row in tables[constructor(op, arity)].rows:
            inputs = tuple(row.inputs)
            where = index.setdefault(row.output, len(index))
            rows.append((where, op, inputs[:-1], text(inputs[-1]), made_by.get(inputs)))
    nodes: list[list[ENode]] = [[] for _ in range(len(index))]
    class_of = tuple(index[value] for number, value in named if number < len(owner._graph.nodes))
    originals = _originals(owner._graph, class_of)
    for where, op, args, attr_text, maker in rows:
        children = tuple(ABSENT if arg in absent else index[arg] for arg in args)
        attrs = Attrs.of(key=attr_text) if op == CONST else Attrs(attr_text)
        original = originals.get((op, children, attrs))
        rule = owner._rules[maker - 1].name if maker is not None and original is None else None
        nodes[where].append(ENode(op, children, attrs, rule, original))
    constant = {index[row.inputs[0]] for row in tables["is-constant"].rows if row.inputs[0] in index}
    types = {index[row.inputs[0]]: text(row.output) for row in tables["type-of"].rows if row.inputs[0] in index}
    classes = tuple(
        EClass(
            tuple(members), None if types.get(i, "?") == CONTRADICTION else parse_type(types.get(i, "?")), i in constant
        )
        for i, members in enumerate(nodes)
    )
    roots = tuple(class_of[root] for root in owner._graph.roots)
    return EGraph(classes, roots, class_of, dict(owner.constants), owner._graph.opaque), class_names


def _originals(graph: TermGraph, class_of: Sequence[int]) -> dict[tuple[str, tuple[int, ...], Attrs], int]:
    """Which lowered term each e-node was loaded from; the first, where several have become one."""
    found: dict[tuple[str, tuple[int, ...], Attrs], int] = {}
    for index, node in enumerate(graph.nodes):
        children = tuple(ABSENT if arg == ABSENT else class_of[arg] for arg in node.args)
        found.setdefault((node.op, children, node.attrs), index)
    return found
