"""What is left of a component as an integer program: a variable for each item, rows for what it needs, cuts against
cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from superopt.extraction.heuristics import Chosen
from superopt.extraction.masks import MASKS_AT_MOST, masks
from superopt.extraction.reduction import Item, Items, Part, knots

Row = Mapping[int, float]
"""Coefficients by variable; the row says that their sum is at most 0."""


class Cut(NamedTuple):
    """A row against cycles: some class of ``ring`` is computed by an item that needs none of it, as far as ``member``
    is used. It holds for every set of classes, and so for what is left of one."""

    row: Row
    ring: frozenset[int]
    member: int


_VIOLATED = 1e-3
"""By how much a fractional solution must break a cut for it to be added."""

_OUTSIDE = -1
_FLOWING = 1e-6
"""What of a fractional solution is taken for something, and for a unit of flow."""

_FLOWS = 20
"""Classes of a cycle, the most used first, to which flows are looked for."""

_TOUCHED = 1e-6
"""By how much a solution may stay below a cut that holds it back."""

_MUST_ROWS_AT_MOST = 60_000
"""Nonzeros that rows for what is needed indirectly may add."""


@dataclass
class Formulation:
    """``owner`` and ``index`` name the item of each variable; ``of`` lists the variables of each class. A class is used
    as much as its variables sum to, at most 1, and exactly 1 for a root."""

    items: Items
    roots: frozenset[int]
    owner: list[int]
    index: list[int]
    of: dict[int, list[int]]
    costs: NDArray[np.float64]
    rows: list[Row] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)

    def add(self, cuts: Iterable[Cut]) -> None:
        """Adds cuts, whose rows come after all others."""
        for cut in cuts:
            self.cuts.append(cut)
            self.rows.append(cut.row)

    def forget(self, solution: Sequence[float]) -> None:
        """Takes out the cuts that a solution of the relaxation does not touch."""
        cuts = [cut for cut in self.cuts if excess(cut.row, solution) > -_TOUCHED]
        del self.rows[len(self.rows) - len(self.cuts) :]
        self.cuts = []
        self.add(cuts)

    def children(self, variable: int) -> tuple[int, ...]:
        return self.items[self.owner[variable]][self.index[variable]].children

    @property
    def entries(self) -> int:
        """The number of its coefficients."""
        return len(self.owner) + sum(map(len, self.rows))

    def used(self, solution: Sequence[float]) -> dict[int, float]:
        """How much each class is used in a (fractional) solution."""
        return {owner: sum(solution[variable] for variable in mine) for owner, mine in self.of.items()}


def excess(row: Row, solution: Sequence[float]) -> float:
    """By how much a solution breaks a row."""
    return sum(factor * solution[variable] for variable, factor in row.items())


def formulate(part: Part, cuts: Iterable[Cut] = ()) -> Formulation:
    """The integer program of a part, with what is left of cuts that are known.

    For each pair of classes: what needs the other is at most how much the other is used. Where masks allow it, the same
    for what is needed indirectly. Cycles of two classes are cut from the start.
    """
    owner: list[int] = []
    index: list[int] = []
    of: dict[int, list[int]] = {}
    for name, ways in part.items.items():
        of[name] = list(range(len(owner), len(owner) + len(ways)))
        owner += [name] * len(ways)
        index += range(len(ways))
    costs = np.array([part.items[name][number].cost for name, number in zip(owner, index, strict=True)])
    program = Formulation(part.items, frozenset(part.roots), owner, index, of, costs)
    for mine in of.values():
        needing: dict[int, list[int]] = {}
        for variable in mine:
            for child in program.children(variable):
                needing.setdefault(child, []).append(variable)
        program.rows += [_need_row(program, using, child) for child, using in needing.items()]
    program.rows += _must_rows(program, part)
    program.rows += _use_rows(program, part)
    knot = knots(part.items)
    for name in of:
        for child in sorted({child for variable in of[name] for child in program.children(variable)}):
            if knot[child] == knot[name] and any(name in program.children(variable) for variable in of[child]):
                program.rows.append(founded(program, {name, child}, name).row)
    for cut in cuts:
        ring = cut.ring & of.keys()
        if cut.member in ring and len(ring) > 1:
            program.add([founded(program, ring, cut.member)])
    return program


def _need_row(program: Formulation, using: Iterable[int], child: int) -> Row:
    row = dict.fromkeys(using, 1.0)
    for variable in program.of[child]:
        row[variable] = row.get(variable, 0.0) - 1.0
    return row


def _must_rows(program: Formulation, part: Part) -> list[Row]:
    """For what items of a class need only indirectly, through whatever is chosen below them."""
    if len(part.items) > MASKS_AT_MOST // 10:
        return []
    found = masks(part.items, part.roots)
    if found is None:
        return []
    owners = list(found.position)
    rows: list[Row] = []
    budget = _MUST_ROWS_AT_MOST
    for name, mine in program.of.items():
        needing: dict[int, list[int]] = {}
        direct: dict[int, int] = {}
        for variable in mine:
            need = found.need(program.items[name][program.index[variable]])
            for child in program.children(variable):
                direct[child] = direct.get(child, 0) + 1
            while need:
                low = need & -need
                needing.setdefault(owners[low.bit_length() - 1], []).append(variable)
                need ^= low
        for child, using in needing.items():
            if len(using) > direct.get(child, 0) and child not in program.roots:
                row = _need_row(program, using, child)
                budget -= len(row)
                if budget < 0:
                    return rows
                rows.append(row)
    return rows


def _use_rows(program: Formulation, part: Part) -> list[Row]:
    """What is computed is needed by something that is chosen; and what is settled already, by something that is chosen
    here, if every solution of the part needs it. Of a sum that may be added up in any order this says how many
    additions it takes: without it, each addition is as good as the last one."""
    users: dict[int, list[int]] = {}
    names: set[int] = set()
    for variable, (owner, index) in enumerate(zip(program.owner, program.index, strict=True)):
        item = part.items[owner][index]
        names |= item.settled
        for name in sorted(item.settled.union(item.children)):
            users.setdefault(name, []).append(variable)
    always = _always_needed(part, names)
    rows: list[Row] = []
    for name, using in users.items():
        if name in program.of and name not in program.roots:
            computed = program.of[name]
        elif name in always:
            computed = program.of[part.roots[0]]  # These add up to 1.
        else:
            continue
        row = dict.fromkeys(computed, 1.0)
        for variable in using:
            row[variable] = row.get(variable, 0.0) - 1.0
        rows.append(row)
    return rows


def _always_needed(part: Part, names: Collection[int]) -> set[int]:
    """Which of these classes, settled or not, the items of every solution of a part need."""
    if not names or len(part.items) + len(names) > MASKS_AT_MOST:
        return set()
    leaf = {name: number for number, name in enumerate(sorted(names), max(part.items) + 1)}
    items: Items = {
        owner: [
            item._replace(children=(*item.children, *(leaf[n] for n in item.settled.union(item.children) if n in leaf)))
            for item in ways
        ]
        for owner, ways in part.items.items()
    }
    items |= {number: [Item(0.0, (), 0, ())] for number in leaf.values()}
    found = masks(items, part.roots)
    if found is None:
        return set()
    needed = 0
    for root in part.roots:
        needed |= found.must[root]
    return {name for name, number in leaf.items() if needed >> found.position[number] & 1}


def founded(program: Formulation, ring: Collection[int], member: int) -> Cut:
    """The cut that some class of ``ring`` is computed by an item that needs no class of it, as far as ``member`` is
    used."""
    row: dict[int, float] = {}
    inside = frozenset(ring)
    for variable in program.of[member]:
        row[variable] = 1.0
    for name in sorted(inside):
        for variable in program.of[name]:
            if inside.isdisjoint(program.children(variable)):
                row[variable] = row.get(variable, 0.0) - 1.0
    return Cut({variable: factor for variable, factor in row.items() if factor}, inside, member)


def cycle_cuts(program: Formulation, solution: Sequence[float]) -> list[Cut]:
    """Cuts that this (fractional or whole) solution breaks, from the cycles of what it uses."""
    cuts: dict[tuple[tuple[int, float], ...], Cut] = {}
    used = program.used(solution)
    for least in (0.999, 0.5, 0.25, 0.1, 0.02):
        graph = nx.DiGraph()
        weight: dict[tuple[int, int], float] = {}
        for variable, amount in enumerate(solution):
            if amount > 1e-6:
                for child in program.children(variable):
                    key = (program.owner[variable], child)
                    weight[key] = weight.get(key, 0.0) + amount
        graph.add_edges_from(
            edge
            for edge, amount in weight.items()
            if amount >= least * max(used[edge[0]], 1e-6) and used[edge[0]] > 1e-6
        )
        rings = [set(group) for group in nx.strongly_connected_components(graph) if len(group) > 1]
        for ring in rings:
            smaller = {edge[0] for edge in nx.find_cycle(graph.subgraph(sorted(ring)))}
            for candidate in (ring, smaller):
                for member in sorted(candidate, key=lambda name: (-used[name], name))[:3]:
                    cut = founded(program, candidate, member)
                    if excess(cut.row, solution) > _VIOLATED:
                        cuts[tuple(sorted(cut.row.items()))] = cut
        if cuts:
            break
    return list(cuts.values())


def flow_cuts(program: Formulation, solution: Sequence[float]) -> list[Cut]:
    """Cuts that a fractional solution breaks, from the least cuts between the classes of its cycles and what needs none
    of them: as much as a class is used must flow to it from there.

    Of an item that needs several classes only the least used one is looked at, so that not every such cut is found.
    """
    graph = nx.DiGraph()
    flowing = [variable for variable, amount in enumerate(solution) if amount > _FLOWING]
    graph.add_edges_from(
        (program.owner[variable], child) for variable in flowing for child in program.children(variable)
    )
    used = program.used(solution)
    cuts: dict[tuple[tuple[int, float], ...], Cut] = {}
    for ring in nx.strongly_connected_components(graph):
        if len(ring) < 2:
            continue
        flow = nx.DiGraph()
        flow.add_node(_OUTSIDE)
        for variable in flowing:
            owner = program.owner[variable]
            if owner in ring:
                inside = [child for child in program.children(variable) if child in ring]
                edge = owner, min(inside, key=lambda child: (used[child], child), default=_OUTSIDE)
                known = flow.get_edge_data(*edge, {"capacity": 0})["capacity"]
                flow.add_edge(*edge, capacity=known + round(solution[variable] / _FLOWING))
        for member in sorted(ring, key=lambda name: (-used[name], name))[:_FLOWS]:
            through, (near, _) = nx.minimum_cut(flow, member, _OUTSIDE)
            if through * _FLOWING < used[member] - _VIOLATED:
                cut = founded(program, near, member)
                if excess(cut.row, solution) > _VIOLATED:
                    cuts[tuple(sorted(cut.row.items()))] = cut
    return list(cuts.values())


def chosen(program: Formulation, solution: Sequence[float]) -> Chosen:
    """The choice that a whole solution stands for."""
    return {
        program.owner[variable]: program.index[variable] for variable, amount in enumerate(solution) if amount > 0.5
    }
