"""The e-graph: terms and rules in, one step at a time, a frozen e-graph out. The only importer of egglog."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from egglog import bindings

from superopt.engine.callbacks import answering, closed, joining, opened, parting
from superopt.engine.constructors import (
    NO_TERM,
    NO_TYPE,
    PROGRAM,
    Constructor,
    attribute_field,
    declarations,
    interchangeable,
    load_row,
    load_table,
    loops,
    quoted,
    term_text,
)
from superopt.engine.eclasses import EGraph
from superopt.engine.engine_text import (
    STAGES,
    EngineRule,
    engine_rules,
    matched_by,
    needed,
    quoted_separator,
)
from superopt.engine.matching import Clash
from superopt.engine.snapshot import Snapshot, read
from superopt.engine.variants import Variant, variants
from superopt.errors import EGraphError
from superopt.operators import STAYS
from superopt.rules import Rule
from superopt.terms import (
    ABSENT,
    CONST,
    Constant,
    Node,
    TermGraph,
    ValueType,
    constant_nodes,
    type_text,
)

CHUNK = 20
"""Commands a piece of program text has: the engine's memory grows with the square of a piece's length."""


@dataclass
class _Added:
    """A rule as far as the engine knows it: compiling one is expensive, and most of a set find nothing in a graph.

    ``waiting`` are variants with a constructor of which there is no node yet (None until all operators that are
    ``needed`` have nodes), ``looking`` those whose matches the engine looks for without knowing what to make of them.
    ``found`` tells whether it has ever found one.
    """

    needed: frozenset[str]
    arities: Mapping[str, frozenset[int]]
    waiting: list[tuple[Variant, frozenset[Constructor]]] | None = None
    looking: list[EngineRule] = field(default_factory=list)
    known: bool = False
    found: bool = False
    appeared: int = 0
    """How many constructors had nodes when ``waiting`` was looked through."""
    looked: int = -1
    """After how many changes of the e-graph matches were last looked for."""


class Engine:
    """An egglog e-graph that holds the terms of one graph.

    ``add_rule`` adds a rule, ``step`` runs one rule once, ``settle`` draws the consequences, ``freeze`` reads
    everything out (``whole``: with what was set aside). After an EGraphError it must not be used again.
    """

    def __init__(self, graph: TermGraph, opset: int, *, whole: bool = False) -> None:
        self._graph, self._whole = graph, whole
        self._session = opened(opset, dict(graph.constants))
        self._engine = bindings.EGraph()
        self._declared: dict[Constructor, None] = {}
        self._rules: list[Rule] = []
        self._added: list[_Added] = []
        self._names = count(len(graph.nodes))
        self._snapshot: Snapshot | None = None
        self._sizes: dict[Constructor, int] | None = None
        self._appeared: set[Constructor] = set()
        self._changes = 0
        merge = joining(self._session)
        self._run(
            [
                *PROGRAM,
                "(function type-of (T) String :merge (py-to-string "
                f"(py-call {merge} (py-from-string (+ old {quoted_separator()} new)))))",
                f"(let $answer {answering(self._session)})",
                f"(let $part {parting()})",
                f"(set (type-of {NO_TERM}) {quoted(NO_TYPE)})",
                f"(is-constant {NO_TERM})",
            ]
        )
        self._load()

    def close(self) -> None:
        """Gives up what the engine's functions reach."""
        closed(self._session)

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
        self._rules.append(rule)
        self._added.append(_Added(needed(rule), arities, waiting=[] if rule.siblings else None))
        return len(self._rules) - 1

    def step(self, number: int, most: int) -> tuple[int, bool]:
        """Runs a rule once over all its new matches: how many applied, and whether anything changed.

        More than ``most`` are forgotten, not applied: nobody knows how large the e-graph would become. Their number
        is returned.
        """
        added = self._added[number]
        self._look_for(added, number)
        if not added.known or added.looked == self._changes:
            return 0, False
        added.looked = self._changes
        found = self._run([f"(run find-{number} 1)"])[-1].report
        if not found.updated:
            return 0, False
        if not added.found:
            added.found = True
            self._each(f"(ruleset {stage}-{number})" for stage in STAGES)
        for compiled in added.looking:
            for made in compiled.made:
                self.declare(made)
            self._each(compiled.make)
        added.looking.clear()
        matches = sum(found.num_matches_per_rule.values())
        if matches > most:
            self._run([f"(run done-{number} 1)"])
            return matches, False
        report = self._run([f"(run {stage}-{number} 1)" for stage in STAGES])[STAGES.index("make")].report
        if report.updated:
            self._changed()
        return sum(report.num_matches_per_rule.values()), bool(report.updated)

    def _look_for(self, added: _Added, number: int) -> None:
        """Compiles what finds the variants of a rule whose operators have all appeared since it was last asked for."""
        if added.waiting == []:
            return
        self._counted()
        present = self._appeared
        if added.appeared == len(present):
            return
        added.appeared = len(present)
        if added.waiting is None:
            if not added.needed <= {made.op for made in present}:
                return
            added.waiting = [(found, matched_by(found)) for found in variants(self._rules[number], added.arities)]
        ready = [variant for variant, matched in added.waiting if matched <= present]
        added.waiting = [(variant, matched) for variant, matched in added.waiting if not matched <= present]
        if ready and not added.known:
            added.known = True
            self._run([f"(ruleset find-{number})"])
        for variant in ready:
            index = len(self._session.variants)
            compiled = engine_rules(variant, number, index, "$answer", "$part")
            self._session.variants.append((variant, compiled))
            self._each(compiled.find)
            added.looking.append(compiled)

    def settle(self) -> None:
        """Lets being constant flow through what a step has made, and keeps rules from nodes that are computed from
        themselves."""
        self._run(["(run-schedule (saturate (run rs-flow)) (run rs-loops))"])

    def set_aside(self) -> None:
        """Keeps rules from nodes that differ from an earlier one of their class in constant weights alone."""
        self._changed()
        self._run(["(run-schedule (run rs-first) (run rs-later))"])

    def size(self) -> int:
        """The number of e-nodes."""
        return sum(self._counted().values())

    def _counted(self) -> Mapping[Constructor, int]:
        """How many nodes there are of each constructor."""
        if self._sizes is None:
            sizes = dict(self._run(["(print-size)"])[-1].sizes)
            self._sizes = {made: int(sizes[made.suffix]) for made in self._declared}
            self._appeared |= {made for made, count in self._sizes.items() if count}
        return self._sizes

    def _changed(self) -> None:
        """Forgets what was read of the e-graph."""
        self._changes += 1
        self._snapshot = None
        self._sizes = None

    def class_count(self) -> int:
        """The number of e-classes; reads all of the e-graph out, which takes as long as many a step."""
        tables = self._engine.freeze().functions
        return len({row.output for made in self._declared for row in tables[made.suffix].rows})

    def declare(self, made: Constructor) -> None:
        """Makes a constructor known."""
        if made not in self._declared:
            self._declared[made] = None
            self._each((*declarations(made), *loops(made), *interchangeable(made)))

    def add_terms(self, nodes: Sequence[tuple[Node, ValueType, str | None]], number: int) -> list[str]:
        """Adds nodes (arguments index earlier ones) as made by a rule, and returns an expression for each.

        An entry with an expression of its own stands for a class that is there already.
        """
        self._changed()
        expressions: list[str] = []
        commands: list[str] = []
        for node, value_type, known in nodes:
            if known is not None:
                expressions.append(known)
                continue
            args = [NO_TERM if arg == ABSENT else expressions[arg] for arg in node.args]
            made = Constructor(node.op, len(args))
            self.declare(made)
            name = f"(W {next(self._names)})"
            fields = " ".join([*args, quoted(attribute_field(node.op, node.attrs))])
            commands += [
                f"(set {name} {term_text(made, node.attrs, args)})",
                f"(set (type-of {name}) {quoted(type_text(value_type))})",
                f"(set (from-{made.suffix} {fields}) {number + 1})",
            ]
            if node.op == CONST:
                commands.append(f"(is-constant {name})")
            expressions.append(name)
        self._run(commands)
        return expressions

    def merge(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Merges the classes of each pair of expressions, all in one step."""
        self._changed()
        self._run([*(f"(same {left} {right})" for left, right in pairs), "(run rs-same 1)"])

    def know(self, constants: Iterable[Constant]) -> None:
        """Makes constants known that ``add_terms`` will name."""
        self._session.constants.update({made.key: made for made in constants if made.key not in self.constants})

    def freeze(self) -> EGraph:
        """The e-graph as it is: classes in order of first appearance, nodes in the engine's order."""
        return self.snapshot().egraph

    def snapshot(self) -> Snapshot:
        """The e-graph as it is, and how the engine knows its classes and nodes; read anew only where it changed."""
        if self._snapshot is None:
            frozen, declared = self._engine.freeze(), tuple(self._declared)
            known = (self._graph, self._rules, declared, self.constants)
            self._snapshot = read(frozen, self._engine, *known, whole=self._whole)
        return self._snapshot

    def _load(self) -> None:
        constant = constant_nodes(self._graph, STAYS)
        tables: dict[Constructor, list[str]] = {}
        for number, node in enumerate(self._graph.nodes):
            row = load_row(number, node, self._graph.types[number], constant=constant[number])
            made = Constructor(node.op, len(node.args), constant[number] and node.op != CONST)
            tables.setdefault(made, []).append(row)
        with tempfile.TemporaryDirectory(prefix="superopt-") as folder:
            for made, rows in tables.items():
                self.declare(made)
                self._run(list(load_table(made)))
                path = Path(folder) / f"{made.suffix}.tsv"
                path.write_text("".join(rows), encoding="utf-8")
                self._run([f"(input load-{made.suffix} {quoted(str(path))})"])
        # The number -1 is what rows have for an argument that is not given.
        self._run([f"(union (V {ABSENT}) {NO_TERM})", "(run rs-load 1)", "(run-schedule (saturate (run rs-flow)))"])

    def _each(self, commands: Iterable[str]) -> None:
        """Runs commands one by one: the engine's memory grows with the square of a text's length, and rules are
        long."""
        for command in commands:
            self._run([command])

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
