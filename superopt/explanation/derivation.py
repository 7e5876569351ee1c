"""The steps from a term graph to another one of the same e-graph: rules used one at a time, on whole graphs.

From the roots down, every cell of the current graph is turned into the node that its class has in the wanted graph, by
the rules that connect the two within their class; what such a rule asks of the cell's arguments is brought about first,
by the same means. Rules about whole sums, chains and sets of siblings are such single steps too.

Where no single rules lead on, one step takes several at once, and says so. That is left where what a rule made is not
in the e-graph any more (it was set aside for a node that differs in weights alone), and where what a rule asks for is
only reached by going round in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from superopt.engine.eclasses import EGraph, Key
from superopt.explanation.application import Application, Side
from superopt.explanation.applications import Applications
from superopt.explanation.cells import Cells
from superopt.explanation.numbering import same_graph
from superopt.explanation.routes import Turn, route, turns_at
from superopt.rules import Number, Var
from superopt.terms import ABSENT, CONST, INPUT, Attrs, Constant, Node, TermGraph, ValueType

MOST_STEPS = 100_000
_PASSES = 4
_DEEPEST = 60
"""How many requirements of requirements are followed."""
_ALIKE = 3
"""How many of these may be for the same e-node, each on another cell of its class."""

_Pending: TypeAlias = tuple[tuple[int, int, Key], ...]
"""Cells, with their classes, that are being turned into e-nodes."""


@dataclass(frozen=True, eq=False)
class Step:
    """One rewriting: ``before`` became ``after``, in a graph where all else stayed.

    ``rules`` is one rule, or those that several steps in one are by. Both graphs are over the same ``Input`` terms;
    ``classes`` tells the class of each of those, and ``roots`` the classes of what was rewritten; ``places`` and
    ``operands`` tell, as far as there are such, the terms of the start in whose places these stand. ``application`` is
    None where several rules were used at once.
    """

    rules: tuple[str, ...]
    backward: bool
    before: TermGraph
    after: TermGraph
    roots: tuple[int, ...]
    classes: Mapping[str, int]
    application: Application | None = None
    places: tuple[int | None, ...] = ()
    operands: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Derivation:
    """Steps from ``start`` to ``end``, which is the wanted graph, term for term. ``sizes`` counts the operators that
    run after each step."""

    start: TermGraph
    end: TermGraph
    steps: tuple[Step, ...]
    sizes: tuple[int, ...]


Observer = Callable[[Step, Cells], None]
"""Told each step, with the graph after it; steps that are taken back too, since they led nowhere."""


def derive(
    start: TermGraph,
    wanted: TermGraph,
    classes: tuple[int, ...],
    applications: Applications,
    observer: Observer | None = None,
) -> Derivation:
    """The steps from one graph to another; ``classes`` tells the e-class of each wanted term."""
    replay = _Replay(start, wanted, classes, applications, observer)
    for _ in range(_PASSES):
        if not replay.passed():
            break
    if not replay.arrived:
        replay.leap_to_the_end()
    return Derivation(start, replay.cells.graph(), tuple(replay.steps), tuple(replay.sizes))


@dataclass
class _Replay:
    start: TermGraph
    wanted: TermGraph
    classes: tuple[int, ...]
    applications: Applications
    observer: Observer | None
    steps: list[Step] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.egraph: EGraph = self.applications.egraph
        self.cells = Cells(self.start, self.egraph)
        self._turns: dict[int, list[Turn]] = {}

    @property
    def arrived(self) -> bool:
        """Whether the graph is the wanted one."""
        return same_graph(self.cells.graph(), self.wanted)

    def passed(self) -> bool:
        """Turns every cell into what is wanted, users before what they use; whether anything changed."""
        before = self.cells.changes
        here: dict[int, dict[int, None]] = {}
        for cell, term in zip(self.cells.roots, self.wanted.roots, strict=True):
            here.setdefault(term, {})[cell] = None
        for term in range(len(self.wanted.nodes) - 1, -1, -1):
            for cell in {self.cells.now(cell): None for cell in here.get(term, ())}:
                self._reach(cell, term)
                args = self.cells.args(cell)
                for arg, child in zip(self.wanted.nodes[term].args, args, strict=False):
                    if arg != ABSENT and child != ABSENT:
                        here.setdefault(arg, {})[child] = None
        return self.cells.changes > before

    def _reach(self, cell: int, term: int) -> None:
        """Turns a cell into the node of a wanted term, in one leap where single rules do not lead there."""
        goal = self._goal(term)
        if self.cells.key(cell) == goal:
            return
        saved, steps = self.cells.mark(), len(self.steps)
        if not self._become(cell, goal, ()):
            self._restore(saved, steps)
            self._leap(cell, term)

    def _restore(self, saved: int, steps: int) -> None:
        self.cells.undo(saved)
        del self.steps[steps:], self.sizes[steps:]

    def _goal(self, term: int) -> Key:
        node = self.wanted.nodes[term]
        return node.op, tuple(arg if arg == ABSENT else self.classes[arg] for arg in node.args), node.attrs

    def _become(self, cell: int, goal: Key, pending: _Pending) -> bool:
        """Turns a cell into an e-node of its class; whether that was possible."""
        number = self.cells.class_of(cell)
        if self.cells.key(cell) == goal:
            return True
        alike = [other for other, at, wanted in pending if at == number and wanted == goal]
        if self.cells.now(cell) in alike or len(alike) >= _ALIKE or len(pending) > _DEEPEST:
            return False
        if len(self.steps) > MOST_STEPS:
            return False
        pending = (*pending, (self.cells.now(cell), number, goal))
        banned: set[Turn] = set()
        if number not in self._turns:
            self._turns[number] = turns_at(self.applications, number)
        while self.cells.key(cell) != goal:
            way = route(self._turns[number], self.cells.key(cell), goal, banned)
            if not way:
                return False
            saved, steps = self.cells.mark(), len(self.steps)
            if not self._take(cell, way[0], pending):
                self._restore(saved, steps)
            banned.add(way[0])
        return True

    def _take(self, cell: int, turn: Turn, pending: _Pending) -> bool:
        """Uses a rule on a cell; whether its arguments could be made what the rule asks for."""
        source = turn.source
        heads = {source.shape.roots[turn.root]: cell}
        found = self._fitted(source, heads, pending)
        if found is None:
            return False
        for place, root in enumerate(source.shape.roots):
            if place != turn.root and root not in heads:
                other = self._other_root(source, root, found, pending)
                heads |= {} if other is None else {root: other}
        found = self._fitted(source, heads, pending)
        names = None if found is None else self._variables(turn, found, cell)
        if found is None or names is None:
            return False
        self._rewrite(turn, {place: found.get(root) for place, root in enumerate(source.shape.roots)}, names)
        return True

    def _other_root(self, source: Side, root: int, found: dict[int, int], pending: _Pending) -> int | None:
        """A cell that is the term of another root of the rule, over what the first one was found to be over."""
        for other in self.cells.of_class(source.classes[root]):
            mark, steps = self.cells.mark(), len(self.steps)
            more = self._fitted(source, {root: other}, pending)
            if more is not None and all(self.cells.now(found.get(slot, at)) == at for slot, at in more.items()):
                return other
            self._restore(mark, steps)
        return None

    def _fitted(self, side: Side, heads: Mapping[int, int], pending: _Pending) -> dict[int, int] | None:
        """The cells that stand in a side's slots, made to be what it asks for."""
        for _ in range(3):
            before = self.cells.changes
            found: dict[int, int] = {}
            stack = [(slot, self.cells.now(cell)) for slot, cell in heads.items()]
            while stack:
                slot, cell = stack.pop()
                cell = self.cells.now(cell)
                if slot in found:
                    if self.cells.now(found[slot]) != cell and not self._unify(found[slot], cell, pending):
                        return None
                    continue
                key = side.keys[slot]
                if key is not None:
                    if not self._become(cell, key, pending):
                        return None
                    cell = self.cells.now(cell)
                    pairs = zip(side.shape.slots[slot].args, self.cells.args(cell), strict=True)
                    stack.extend((arg, child) for arg, child in reversed(list(pairs)) if arg != ABSENT)
                found[slot] = cell
            if self.cells.changes == before:
                return found
        return None

    def _unify(self, cell: int, other: int, pending: _Pending, depth: int = 0) -> bool:
        """Makes two cells of one class one, where a rule asks for the same term twice: both become the wanted term."""
        if depth > _DEEPEST:
            return False
        if self.cells.now(cell) == self.cells.now(other):
            return True
        key = self.cells.key(cell)
        if not self._become(other, key, pending):
            return False
        for one, two in zip(self.cells.args(cell), self.cells.args(other), strict=True):
            if ABSENT not in (one, two) and not self._unify(one, two, pending, depth + 1):
                return False
        return self.cells.now(cell) == self.cells.now(other)

    def _variables(self, turn: Turn, found: Mapping[int, int], cell: int) -> dict[str, int] | None:
        """A cell for each variable of the target: what was matched, else any of its class that is not made of this."""
        names: dict[str, int] = {}
        for index, slot in enumerate(turn.source.shape.slots):
            if isinstance(slot.pattern, (Var, Number)) and index in found:
                names[slot.pattern.name] = self.cells.now(found[index])
        for index, slot in enumerate(turn.target.shape.slots):
            if isinstance(slot.pattern, (Var, Number)) and slot.pattern.name not in names:
                number = turn.target.classes[index]
                free = [c for c in self.cells.of_class(number) if self.cells.now(cell) not in self.cells.below([c])]
                if not free:
                    return None
                names[slot.pattern.name] = free[0]
        return names

    def _rewrite(self, turn: Turn, heads: Mapping[int, int | None], names: dict[str, int]) -> None:
        cells, target = self.cells, turn.target
        places = tuple(None if head is None else cells.origin_of(head) for head in heads.values())
        operands = {name: cells.origin_of(cell) for name, cell in names.items()}
        roots = dict(zip(target.shape.roots, places, strict=True))
        for place, head in heads.items():
            if head is None:
                continue
            if isinstance(turn.source.shape.slots[turn.source.shape.roots[place]].pattern, (Var, Number)):
                copied = cells.copy(head)
                names = {name: copied if cells.now(one) == cells.now(head) else one for name, one in names.items()}
            else:
                cells.forget(head)
        made: list[int] = []
        for index, (slot, key) in enumerate(zip(target.shape.slots, target.keys, strict=True)):
            if isinstance(slot.pattern, (Var, Number)):
                made.append(names[slot.pattern.name])
            elif key is not None:
                args = tuple(arg if arg == ABSENT else made[arg] for arg in slot.args)
                made.append(cells.add(key[0], key[2], args, target.classes[index], roots.get(index)))
        for place, head in heads.items():
            if head is not None:
                cells.replace(head, made[target.shape.roots[place]])
        step = step_of(turn.application, self.egraph, backward=turn.backward)
        self._record(replace(step, places=places, operands=operands))

    def _record(self, step: Step) -> None:
        self.steps.append(step)
        self.sizes.append(self.cells.running())
        if self.observer is not None:
            self.observer(step, self.cells)

    def leap_to_the_end(self) -> None:
        """Makes the roots the wanted ones, by whatever rules."""
        for cell, term in zip(self.cells.roots, self.wanted.roots, strict=True):
            self._leap(cell, term, everything=True)

    def _leap(self, cell: int, term: int, *, everything: bool = False) -> None:
        """Puts the wanted term in the place of a cell, down to where cells of the same classes stand below it."""
        cells = self.cells
        cell = cells.now(cell)
        below = {} if everything else {cells.class_of(c): c for c in cells.below([cell]) if c != cell}
        number = self.classes[term]
        below.pop(number, None)
        piece: list[int] = []
        cuts: dict[int, int] = {}
        stack = [term]
        while stack:
            at = stack.pop()
            if at in piece or at in cuts:
                continue
            leaf = self.wanted.nodes[at].op in (INPUT, CONST)
            if at != term and (self.classes[at] in below) and not leaf:
                cuts[at] = below[self.classes[at]]
                continue
            piece.append(at)
            stack.extend(arg for arg in self.wanted.nodes[at].args if arg != ABSENT)
        before = self._cut_graph(cell, set(cuts.values()))
        cells.forget(cell)
        origin, operands = cells.origin_of(cell), {f"x{one}": cells.origin_of(one) for one in cuts.values()}
        made: dict[int, int] = dict(cuts)
        for at in sorted(piece):
            node = self.wanted.nodes[at]
            args = tuple(arg if arg == ABSENT else made[arg] for arg in node.args)
            made[at] = cells.add(node.op, node.attrs, args, self.classes[at], origin if at == term else None)
        after = self._cut_graph(made[term], set(cuts.values()))
        if cells.now(made[term]) == cell:
            return
        cells.replace(cell, made[term])
        rules = self._makers([self._goal(at) for at in piece])
        names = {f"x{one}": cells.class_of(one) for one in cuts.values()}
        self._record(Step(rules, False, before, after, (number,), names, None, (origin,), operands))

    def _makers(self, keys: Iterable[Key]) -> tuple[str, ...]:
        """The rules that made these e-nodes."""
        wanted = set(keys)
        found: dict[str, None] = {}
        for eclass in self.egraph.classes:
            for node in eclass.nodes:
                if node.rule is not None and (node.op, node.children, node.attrs) in wanted:
                    found[node.rule] = None
        return tuple(found)

    def _cut_graph(self, cell: int, cuts: set[int]) -> TermGraph:
        """What a cell computes from others, as a graph with those as inputs."""
        whole = self.cells.graph([cell])
        order = list(self.cells.below([cell]))
        cut = {self.cells.now(one): one for one in cuts}
        nodes: list[Node] = []
        types: list[ValueType] = []
        place: dict[int, int] = {}
        needed = self._reached(cell, set(cut))
        for index, at in enumerate(order):
            if at not in needed:
                continue
            node = whole.nodes[index]
            if at in cut and at != self.cells.now(cell):
                node = Node(INPUT, (), Attrs.of(name=f"x{cut[at]}"))
            else:
                args = self.cells.args(at)
                node = Node(node.op, tuple(a if a == ABSENT else place[a] for a in args), node.attrs)
            place[at] = len(nodes)
            nodes.append(node)
            types.append(whole.types[index])
        return TermGraph(tuple(nodes), tuple(types), (place[self.cells.now(cell)],), whole.constants, whole.opaque)

    def _reached(self, cell: int, cuts: set[int]) -> set[int]:
        seen, stack = set(), [self.cells.now(cell)]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            if at not in cuts or at == self.cells.now(cell):
                stack.extend(arg for arg in self.cells.args(at) if arg != ABSENT)
        return seen


def step_of(application: Application, egraph: EGraph, *, backward: bool = False) -> Step:
    """The use of a rule where it applies, as a step."""
    constants = {**egraph.constants, **{one.key: one for one in application.filled.constants if one is not None}}
    left = _side_graph(application.left, constants)
    right = _side_graph(application.right, constants)
    before, after = (right, left) if backward else (left, right)
    roots = tuple(application.left.classes[root] for root in application.left.shape.roots)
    return Step((application.rule,), backward, before, after, roots, application.classes, application)


def _side_graph(side: Side, known_constants: Mapping[str, Constant]) -> TermGraph:
    """A side where it applies, as a graph: variables are inputs by their names, of their classes' types."""
    nodes: list[Node] = []
    types: list[ValueType] = []
    place: list[int] = []
    known: dict[Node, int] = {}
    constants: dict[str, Constant] = {}
    for slot, key, kind in zip(side.shape.slots, side.keys, side.types, strict=True):
        if isinstance(slot.pattern, (Var, Number)):
            node = Node(INPUT, (), Attrs.of(name=slot.pattern.name))
        else:
            op, _, attrs = key or (CONST, (), Attrs())
            node = Node(op, tuple(arg if arg == ABSENT else place[arg] for arg in slot.args), attrs)
            if op == CONST:
                constant = constants[str(attrs["key"])] = known_constants[str(attrs["key"])]
                kind = constant.type
        if node not in known:
            known[node] = len(nodes)
            nodes.append(node)
            types.append(kind)
        place.append(known[node])
    return TermGraph(tuple(nodes), tuple(types), tuple(place[root] for root in side.shape.roots), constants)
