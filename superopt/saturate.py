"""Saturation: rules run in turn, within limits, until nothing changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from superopt.eclasses import EGraph, ENode
from superopt.egraph import Engine, Snapshot
from superopt.engine_text import NO_TERM, Constructor, term_text
from superopt.matching import Clash
from superopt.operators import operator
from superopt.rules import Apply, Each, Output, Pattern, Rule, RuleSet, Star, Var
from superopt.siblings import Siblings, find_siblings
from superopt.terms import ABSENT, Node, TermGraph, ValueType


@dataclass(frozen=True)
class Limits:
    """When saturation stops. Counts make runs repeat; ``seconds`` (None: no limit) does not, and is reported as
    such."""

    nodes: int = 100_000
    iterations: int = 24
    seconds: float | None = None


@dataclass(frozen=True)
class Saturation:
    """A saturated e-graph and how it came about.

    ``stopped_by`` is ``saturated``, ``iterations``, ``nodes``, ``seconds`` or ``clash``. ``matches`` and
    ``seconds`` are by rule,
    of those that ran. ``clashes`` name rules that would have merged terms of different types.
    """

    egraph: EGraph
    stopped_by: str
    iterations: int
    sizes: tuple[int, ...]
    matches: Mapping[str, int]
    seconds: Mapping[str, float]
    clashes: tuple[Clash, ...] = field(default=())


Progress = Callable[[int, int], None]
"""Told the iteration (from 1) and the number of e-nodes after each."""


def saturate(
    graph: TermGraph, rules: RuleSet, limits: Limits, opset: int, progress: Progress | None = None
) -> Saturation:
    """The e-graph of a graph under rules, as they may be used at an opset version."""
    started = time.perf_counter()
    usable = applicable(graph, rules)
    arities = _arities(graph)
    with Engine(graph, opset) as engine:
        numbers = {engine.add_rule(rule, arities): rule for rule in usable}
        matches = {rule.name: 0 for rule in usable}
        seconds = {rule.name: 0.0 for rule in usable}
        merged: dict[tuple[str, tuple[str, ...]], None] = {}
        sizes: list[int] = [engine.size()]
        stopped_by = "saturated"
        iteration = 0
        ordinary = {number: rule for number, rule in numbers.items() if not rule.siblings}
        setwise = {number: rule for number, rule in numbers.items() if rule.siblings}
        engine.flow()
        phase = ordinary
        while stopped_by == "saturated" and numbers:
            if iteration >= limits.iterations:
                stopped_by = "iterations"
                break
            iteration += 1
            changed = False
            for number, rule in phase.items():
                begun = time.perf_counter()
                if rule.siblings:
                    count, updated = _merge_siblings(engine, rule, number, merged)
                else:
                    count, updated = engine.step(number)
                seconds[rule.name] += time.perf_counter() - begun
                matches[rule.name] += count
                changed |= updated
                if limits.seconds is not None and time.perf_counter() - started > limits.seconds:
                    stopped_by = "seconds"
                    break
                if updated and engine.size() > limits.nodes:
                    stopped_by = "nodes"
                    break
            engine.flow()
            sizes.append(engine.size())
            if progress is not None:
                progress(iteration, sizes[-1])
            # Sets are merged when the other rules have come to rest: earlier, a set would be merged member by member.
            if not changed and phase is setwise:
                break
            phase = ordinary if changed else setwise
        return Saturation(
            engine.freeze(), stopped_by, iteration, tuple(sizes), matches, seconds, engine.clashes
        )  # fmt: skip


def applicable(graph: TermGraph, rules: RuleSet) -> tuple[Rule, ...]:
    """The rules whose left side can occur: all its operators are in the graph, or made by another such rule."""
    present = {node.op for node in graph.nodes}
    waiting = [rule for rule in rules if rule.rejected is None]
    chosen: dict[str, None] = {}
    grown = True
    while grown:
        grown = False
        for rule in waiting:
            if rule.name not in chosen and all(_operators(pattern) <= present for pattern in rule.left):
                chosen[rule.name] = None
                present |= set().union(*(_operators(pattern) for pattern in rule.right))
                grown = True
    return tuple(rule for rule in waiting if rule.name in chosen)


def _operators(pattern: Pattern | Star | Each) -> set[str]:
    match pattern:
        case Apply(op, args):
            return {op}.union(*(_operators(arg) for arg in args))
        case Each(template):
            return _operators(template)
        case Output(of):
            return _operators(of)
        case _:
            return set()


def _arities(graph: TermGraph) -> dict[str, frozenset[int]]:
    """How many arguments each variadic operator has in the graph, or may come to have by merging two."""
    found: dict[str, set[int]] = {}
    for node in graph.nodes:
        spec = operator(node.op)
        if spec is not None and spec.arity is None:
            found.setdefault(node.op, {2}).add(len(node.args))
    return {op: frozenset(counts) for op, counts in sorted(found.items())}


def _merge_siblings(
    engine: Engine, rule: Rule, number: int, merged: dict[tuple[str, tuple[str, ...]], None]
) -> tuple[int, bool]:
    """Merges every set that the rule finds and that was not merged before; how many, and whether there was one."""
    snapshot = engine.snapshot()
    expressions = _Expressions(snapshot)
    pairs: list[tuple[str, str]] = []
    found = 0
    for group in find_siblings(rule, snapshot.egraph):
        # Sets are known by the names of their members, which outlive a merge of classes; their numbers do not.
        names = tuple(sorted(expressions.of(member) or "" for member in group.members))
        if (rule.name, names) not in merged:
            merged[(rule.name, names)] = None
            pairs += _merge(engine, group, number, expressions)
            found += 1
    if pairs:
        engine.merge(pairs)
    return found, bool(pairs)


def _merge(engine: Engine, group: Siblings, number: int, expressions: _Expressions) -> list[tuple[str, str]]:
    """Adds the right side for a set; which expressions are to become one class."""
    engine.know(constant for constant in group.filled.constants if constant is not None)
    entries: list[tuple[Node, ValueType, str | None]] = []
    for slot, node, value_type in zip(group.shape.slots, group.filled.nodes, group.filled.types, strict=True):
        known: str | None = None
        if isinstance(slot.pattern, Var):
            known = expressions.of(group.variables[slot.pattern.name])
            if known is None:
                return []
        entries.append((node, value_type, known))
    made = engine.add_terms(entries, number)
    targets = [
        (expressions.of(member), made[root]) for root, member in zip(group.shape.roots, group.members, strict=True)
    ]
    return [(target, root) for target, root in targets if target is not None]


class _Expressions:
    """An expression of the engine for any class: its name, or a node of it over expressions for the children."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._known = dict(snapshot.names)
        self._grounded: dict[int, tuple[ENode, Constructor]] = {}
        classes = snapshot.egraph.classes
        waiting = [number for number in range(len(classes)) if number not in self._known]
        grown = True
        while waiting and grown:
            left = []
            for number in waiting:
                nodes = zip(classes[number].nodes, snapshot.constructors[number], strict=True)
                node = next((pair for pair in nodes if self._is_grounded(pair[0])), None)
                if node is None:
                    left.append(number)
                else:
                    self._grounded[number] = node
            grown = len(left) < len(waiting)
            waiting = left

    def _is_grounded(self, node: ENode) -> bool:
        return all(child == ABSENT or child in self._known or child in self._grounded for child in node.children)

    def of(self, number: int) -> str | None:
        """The expression, or None for a class that can only be computed from itself."""
        if number not in self._known:
            if number not in self._grounded:
                return None
            node, made = self._grounded[number]
            # What grounds a class was grounded before it: this ends.
            args = [NO_TERM if child == ABSENT else self.of(child) or NO_TERM for child in node.children]
            self._known[number] = term_text(made, node.attrs, args)
        return self._known[number]
