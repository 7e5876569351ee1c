"""Saturation: rules run in turn, within limits, until nothing changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from superopt.engine.constructors import NO_TERM, Constructor, term_text
from superopt.engine.eclasses import EGraph, ENode
from superopt.engine.egraph import Engine
from superopt.engine.engine_text import makes_weighted
from superopt.engine.matching import Clash
from superopt.engine.siblings import Siblings, find_siblings
from superopt.engine.snapshot import Snapshot
from superopt.operators import operator
from superopt.rules import Apply, Each, Output, Pattern, Rule, RuleSet, Star, Var
from superopt.terms import ABSENT, Node, TermGraph, ValueType

MOST_GROWTH, LEAST_NODES = 8, 20_000
"""E-nodes for each node of the graph, and for the smallest graph, up to which rules are applied."""


@dataclass(frozen=True)
class Limits:
    """When saturation stops. Counts make runs repeat; ``seconds`` (None: no limit) does not, and is reported as
    such. ``nodes`` of None stands for ``MOST_GROWTH`` times as many as the graph has, and at least ``LEAST_NODES``. Of
    the seconds, ``reserve`` for each e-node are kept for what is done with the e-graph afterwards.
    """

    nodes: int | None = None
    iterations: int = 40
    seconds: float | None = None
    reserve: float = 0.0


@dataclass(frozen=True)
class Saturation:
    """A saturated e-graph and how it came about.

    ``stopped_by`` is ``saturated``, ``iterations``, ``nodes``, ``seconds`` or ``clash``. ``matches`` and ``seconds``
    are by rule, of those that ran. ``sizes`` are e-nodes before the first iteration and after each, and
    ``class_counts`` e-classes, where they were asked for. ``clashes`` name rules that would have merged terms of
    different types.
    """

    egraph: EGraph
    stopped_by: str
    iterations: int
    sizes: tuple[int, ...]
    matches: Mapping[str, int]
    seconds: Mapping[str, float]
    clashes: tuple[Clash, ...] = field(default=())
    class_counts: tuple[int, ...] = ()


Progress = Callable[[int, int], None]
"""Told the iteration (from 1) and the number of e-nodes after each."""


def saturate(
    graph: TermGraph, rules: RuleSet, limits: Limits, opset: int, progress: Progress | None = None,
    *, count_classes: bool = False, whole: bool = False,
) -> Saturation:  # fmt: skip
    """The e-graph of a graph under rules, as they may be used at an opset version.

    ``count_classes`` asks for e-classes by iteration, which takes time; ``whole`` for the nodes too that differ from
    another in constant weights alone, which rules and extraction do without.
    """
    usable = applicable(graph, rules)
    arities = _arities(graph)
    with Engine(graph, opset, whole=whole) as engine:
        turns = tuple(_Turn(rule, engine.add_rule(rule, arities), _patience(graph)) for rule in usable)
        run = _Run(engine, limits, _most_nodes(graph, limits), time.perf_counter())
        sizes = [engine.size()]
        class_counts = [engine.class_count()] if count_classes else []
        phase = "ordinary"
        while turns:
            if len(sizes) > limits.iterations:
                run.stopped_by = "iterations"
                break
            for turn in turns:
                turn.resting = max(0, turn.resting - 1)
            changed = run.iterate([turn for turn in turns if turn.rule.siblings == (phase == "siblings")])
            sizes.append(engine.size())
            if count_classes:
                class_counts.append(engine.class_count())
            if progress is not None:
                progress(len(sizes) - 1, sizes[-1])
            if run.stopped_by is not None:
                break
            # Sets are merged when the other rules have come to rest: earlier, a set would be merged member by member.
            # Rules that rest because they found too much have their turn again when all others have had theirs.
            if changed:
                phase = "ordinary"
            elif phase == "ordinary":
                phase = "siblings"
            elif any(turn.resting for turn in turns):
                phase = "ordinary"
                for turn in turns:
                    turn.resting = 0
            else:
                break
        if run.stopped_by is None and any(turn.given_up for turn in turns):
            run.stopped_by = "nodes"
        return Saturation(
            engine.freeze(), run.stopped_by or "saturated", len(sizes) - 1, tuple(sizes),
            {turn.rule.name: turn.matches for turn in turns}, {turn.rule.name: turn.seconds for turn in turns},
            engine.clashes, tuple(class_counts),
        )  # fmt: skip


@dataclass
class _Turn:
    """A rule in the schedule. One that finds more than its patience in one step rests for a while, and longer each
    time: what explodes does not keep the others from their turn (the back-off scheduler of egg, with rests after the
    fact)."""

    rule: Rule
    number: int
    patience: int
    rest: int = 4
    resting: int = 0
    given_up: bool = False
    matches: int = 0
    seconds: float = 0.0

    def took(self, count: int, seconds: float) -> None:
        self.matches += count
        self.seconds += seconds
        if count > self.patience:
            self.resting, self.rest, self.patience = self.rest, 2 * self.rest, 2 * self.patience


@dataclass
class _Run:
    """One saturation: runs iterations until a limit is met."""

    engine: Engine
    limits: Limits
    most_nodes: int
    started: float
    stopped_by: str | None = None
    merged: dict[tuple[str, tuple[str, ...]], None] = field(default_factory=dict)

    def iterate(self, turns: Sequence[_Turn]) -> bool:
        """Gives each rule that does not rest one step; whether anything changed."""
        changed = weighted = False
        for turn in turns:
            if turn.resting or turn.given_up:
                continue
            begun = time.perf_counter()
            if turn.rule.siblings:
                count, updated = _merge_siblings(self.engine, turn.rule, turn.number, self.merged)
            else:
                count, updated = self.engine.step(turn.number, self.most_nodes)
                turn.given_up = count > self.most_nodes
            if updated:
                self.engine.settle()
                weighted |= makes_weighted(turn.rule)
            now = time.perf_counter()
            turn.took(count, now - begun)
            changed |= updated
            size = self.engine.size() if updated else 0
            spent = now - self.started + self.limits.reserve * size
            if self.limits.seconds is not None and spent > self.limits.seconds:
                self.stopped_by = "seconds"
                break
            if size > self.most_nodes:
                self.stopped_by = "nodes"
                break
        # One pass over all such nodes takes as long as a rule does, so it is not made after every rule.
        if weighted:
            self.engine.set_aside()
        return changed


def _most_nodes(graph: TermGraph, limits: Limits) -> int:
    return max(LEAST_NODES, MOST_GROWTH * len(graph.nodes)) if limits.nodes is None else limits.nodes


def _patience(graph: TermGraph) -> int:
    """A rule that finds one match for every node of the graph is still within reason."""
    return max(1000, len(graph.nodes))


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
    groups = list(find_siblings(rule, snapshot.egraph))
    if not groups:
        return 0, False
    expressions = _Expressions(snapshot)
    pairs: list[tuple[str, str]] = []
    found = 0
    for group in groups:
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
