"""Solves an extraction problem: reduces it, solves what is left piece by piece, and re-costs the result on the
whole."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from superopt.errors import EGraphError
from superopt.extraction import solvers
from superopt.extraction.formulation import Cut, Formulation, cycle_cuts, flow_cuts, formulate
from superopt.extraction.heuristics import Chosen, by_trees, exchanged, heuristic, needed, value
from superopt.extraction.problem import Choice, Problem, settle
from superopt.extraction.reduction import Items, Part, Picks, components, flatten, opened, simplify
from superopt.extraction.solvers import Effort
from superopt.extraction.tightening import promote_spine, tighten

Status = Literal["optimal", "effort", "seconds"]
"""Proven optimal within ``TOLERANCE``, or why the proof is missing: the counted effort or the time ran out."""

DEFAULT_EFFORT = 30.0
"""Units of about a second that one extraction may spend on proofs; counted, so that the same input gives the same
choice."""

TOLERANCE = 1e-8
"""The relative gap below which a choice counts as proven: what the solvers' whole numbers and duals can tell apart."""

_SPINE_ABOVE = 200
"""Classes above which it is worth while to look for forced classes without masks first."""

_SHARES = 3.0
"""The multiple of its share of what is left that one of several independent pieces may use: most need less."""

_CUT_ROUNDS = 40
_PATIENCE = 3
_LEAST_GAIN = 0.02
"""The share of the gap that so many rounds of cuts must close for another to follow."""

_CORE_ABOVE = 1_000
"""Items of a part above which its core is solved first: smaller parts are solved as a whole."""

_CORE_AT_MOST = 0.5
_CORE_EFFORT = 0.25
"""The shares of the part's items that a core may have, and of the effort that goes into it."""

_FIRST_BRANCH_NODES = 10
_BRANCH_NODES = 2_000
_BRANCH_ROUNDS = 12
_FIRST_PROPAGATION = 0.1
"""The share of the effort that clause learning gets before many branches: what it is good at takes it little."""

_PROPAGATE_AT_MOST = 5_000
"""Items beyond which clause learning is of no use."""


@dataclass(frozen=True)
class Solution:
    """A choice with its cost, a lower bound on every choice's cost, and how the search ended; and what the greedy
    choice costs, where that was asked for because nothing is proven."""

    choice: Choice
    bound: float
    status: Status
    seconds: float
    greedy: float | None = None

    @property
    def cost(self) -> float:
        return self.choice.cost

    @property
    def gap(self) -> float:
        """How much cheaper than this choice another could be at most, relative to its cost; at most
        ``TOLERANCE`` when proven optimal."""
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.bound) / self.cost)


@dataclass
class _Incumbent:
    """The best solution of a part so far."""

    cost: float = math.inf
    picks: list[Picks] = field(default_factory=list)

    def offer(self, part: Part, chosen: Chosen) -> bool:
        """Takes a choice of what is left of the part if it is cheaper; says whether it did."""
        order = needed(part.items, part.roots, chosen)
        if order is None:
            return False
        cost = part.cost + sum(part.items[owner][chosen[owner]].cost for owner in order)
        if cost >= self.cost:
            return False
        self.cost = cost
        self.picks = [*part.picks, *(part.items[owner][chosen[owner]].picks for owner in order)]
        return True


@dataclass
class _Piece:
    """A part in work: its best solution and a lower bound, both with what the part has settled; the independent pieces
    that it fell into; or, of one that is still open, its integer program and a choice to start from."""

    part: Part
    incumbent: _Incumbent
    low: float = 0.0
    inner: list[_Piece] | None = None
    program: Formulation | None = None
    hint: Chosen = field(default_factory=dict)

    @property
    def proven(self) -> bool:
        return self.low >= self.incumbent.cost * (1 - TOLERANCE)

    def open_pieces(self) -> Iterator[_Piece]:
        """The pieces, at any depth, whose integer program is to be solved."""
        if self.program is not None:
            yield self
        for piece in self.inner or ():
            yield from piece.open_pieces()

    def gathered(self) -> tuple[float, list[Picks], float]:
        """The best solution's cost and picks, and the lower bound, from the pieces within."""
        if self.inner is None:
            return self.incumbent.cost, self.incumbent.picks, self.low
        cost, picks, low = self.part.cost, list(self.part.picks), self.part.cost
        for piece in self.inner:
            inner_cost, inner_picks, inner_low = piece.gathered()
            cost, low = cost + inner_cost, low + inner_low
            picks += inner_picks
        low = max(low, self.low)
        if self.incumbent.cost <= cost:
            return self.incumbent.cost, self.incumbent.picks, low
        return cost, picks, low


def solve(problem: Problem, effort: float = DEFAULT_EFFORT, seconds: float | None = None) -> Solution:
    """The cheapest choice that can be found, never worse than greedy, with a proven lower bound.

    ``effort`` is counted; ``seconds`` is by the clock, so that a run that it ends may not repeat. Raises
    ``EGraphError`` if a root has no derivation of finite cost.
    """
    start = time.monotonic()
    left = Effort(effort, None if seconds is None else start + seconds)
    part = opened(problem)
    simplify(part, left.is_late)
    whole = _Piece(part, _Incumbent(), inner=[_prepared(piece, left) for piece in components(part)])
    _search(list(whole.open_pieces()), left)
    _, picks, bound = whole.gathered()
    choice = settle(problem, flatten(picks))
    if choice is None:
        raise EGraphError("the extraction's choice is not complete or has a cycle")
    proven = bound >= choice.cost * (1 - TOLERANCE)
    plain = None if proven else greedy(problem)
    if plain is not None and plain.cost < choice.cost:
        # Where the time ran out early, little was tried.
        choice = plain
    status: Status = "optimal" if proven else "seconds" if left.timed_out else "effort"
    taken = time.monotonic() - start
    return Solution(choice, min(choice.cost, bound), status, taken, None if plain is None else plain.cost)


def greedy(problem: Problem) -> Choice:
    """The choice of the least tree cost for every class, shared nodes paid once: the plain way, to compare with."""
    part = opened(problem)
    chosen = by_trees(part.items, lambda owner, index: part.items[owner][index].cost)
    choice = settle(problem, flatten(part.items[owner][index].picks for owner, index in chosen.items()))
    if choice is None:
        raise EGraphError("the greedy choice is not complete or has a cycle")
    return choice


def _prepared(part: Part, effort: Effort, cored: bool = True) -> _Piece:
    """A component, reduced, with the best solution of the heuristics and the bound of the relaxation; ``cored`` where
    its core is to be solved for a better one. Uses up ``part``."""
    incumbent = _Incumbent()
    if len(part.items) > _SPINE_ABOVE and not effort.late:
        promote_spine(part, effort.is_late)
        pieces = components(part)
        if len(pieces) != 1:
            return _Piece(part, incumbent, inner=[_prepared(piece, effort, cored) for piece in pieces])
    chosen, _ = heuristic(part, effort.is_late)
    incumbent.offer(part, chosen)
    low = 0.0
    cuts: list[Cut] = []
    while True:
        if effort.late:
            return _Piece(part, incumbent, max(low, _floor(part)))
        tighten(part, incumbent.cost, effort.is_late)
        pieces = components(part)
        if len(pieces) != 1:
            return _Piece(part, incumbent, low, inner=[_prepared(piece, effort, cored) for piece in pieces])
        chosen, _ = heuristic(part, effort.is_late)
        if incumbent.offer(part, chosen):
            continue
        program = formulate(part, cuts)
        bound, dropped = _relaxed(part, program, incumbent, effort, cored)
        low = max(low, bound)
        cuts = program.cuts
        piece = _Piece(part, incumbent, low, program=program, hint=chosen)
        if piece.proven:
            return replace(piece, program=None)
        if not dropped:
            return piece
        simplify(part, effort.is_late)


def _search(pieces: list[_Piece], effort: Effort) -> None:
    """Solves the integer programs of independent pieces, small ones first; none may use up what the others need."""
    pieces = sorted(pieces, key=lambda piece: piece.part.size)
    left = sum(piece.part.size for piece in pieces)
    for piece in pieces:
        fraction = min(1.0, _SHARES * piece.part.size / left)
        left -= piece.part.size
        if piece.program is not None:
            with effort.share(fraction) as share:
                low = _exact(piece.part, piece.program, piece.incumbent, piece.hint, share)
            piece.low = max(piece.low, low)


def _floor(part: Part) -> float:
    """A lower bound that needs no search: every root is paid at least its cheapest item."""
    return part.cost + sum(min(item.cost for item in part.items[root]) for root in part.roots)


def _relaxed(
    part: Part, program: Formulation, incumbent: _Incumbent, effort: Effort, cored: bool
) -> tuple[float, bool]:
    """A lower bound from the relaxation with cuts; items that it shows to be too dear are dropped (whether any
    were)."""
    low = _floor(part)
    if effort.spent:
        return low, False
    rest = part.rest(incumbent.cost)
    relaxation = solvers.Relaxation(program, rest, effort)
    relaxed = None
    bounds: list[float] = []
    for _ in range(_CUT_ROUNDS):
        again = relaxation.solve(effort)
        if again is None:
            break
        relaxed = again
        bounds.append(relaxed.bound)
        low = max(low, part.cost + relaxed.bound)
        if low >= incumbent.cost * (1 - TOLERANCE):
            break
        solution = relaxed.solution.tolist()
        found = cycle_cuts(program, solution) + flow_cuts(program, solution)
        cuts = {(cut.ring, cut.member): cut for cut in found}
        if not cuts:
            if np.all(np.abs(relaxed.solution - np.round(relaxed.solution)) < 1e-6):
                _offer_near(part, program, incumbent, solution)
            break
        if len(bounds) > _PATIENCE and bounds[-1] - bounds[-1 - _PATIENCE] <= _LEAST_GAIN * (rest - bounds[-1]):
            break
        program.add(cuts.values())
    if relaxed is None:
        return low, False
    program.forget(relaxed.solution.tolist())
    if low < incumbent.cost * (1 - TOLERANCE):
        near = _offer_reduced(part, program, relaxed, incumbent, effort)
        if cored and part.size > _CORE_ABOVE:
            _offer_core(part, program, relaxed, incumbent, near, effort)
        rest = part.rest(incumbent.cost)
    slack = rest - relaxed.bound + rest * TOLERANCE
    count = 0
    for owner, mine in program.of.items():
        kept = [part.items[owner][program.index[v]] for v in mine if relaxed.reduced[v] <= slack]
        count += len(mine) - len(kept)
        part.items[owner] = kept
    return low, count > 0


def _offer_near(part: Part, program: Formulation, incumbent: _Incumbent, solution: list[float]) -> None:
    """Offers the choice nearest to a solution that may be fractional or cyclic: greedy where what it uses is free."""
    free = {(program.owner[v], program.index[v]) for v, amount in enumerate(solution) if amount > 0.5}
    near = by_trees(part.items, lambda owner, index: 0.0 if (owner, index) in free else part.items[owner][index].cost)
    incumbent.offer(part, near)


def _offer_reduced(
    part: Part, program: Formulation, relaxed: solvers.Relaxed, incumbent: _Incumbent, effort: Effort
) -> Chosen:
    """Offers, and gives, the choice of the least reduced costs."""
    reduced = np.maximum(relaxed.reduced, 0.0)
    place = {(o, i): v for v, (o, i) in enumerate(zip(program.owner, program.index, strict=True))}
    near, _ = exchanged(part, by_trees(part.items, lambda o, i: float(reduced[place[o, i]])), effort.is_late)
    incumbent.offer(part, near)
    return near


def _offer_core(
    part: Part, program: Formulation, relaxed: solvers.Relaxed, incumbent: _Incumbent, near: Chosen, effort: Effort
) -> None:
    """Offers the best choice of the items of one that is near and of those that have no reduced cost at all: few enough
    to be solved, and nearly always cheaper than what knows nothing of the relaxation."""
    reduced = np.maximum(relaxed.reduced, 0.0)
    used = {owner: near[owner] for owner in needed(part.items, part.roots, near) or ()}
    core: Items = {
        owner: [
            part.items[owner][program.index[v]]._replace(picks=v, settled=frozenset())
            for v in mine
            if reduced[v] <= TOLERANCE * relaxed.bound or used.get(owner) == program.index[v]
        ]
        for owner, mine in program.of.items()
    }
    small = Part(core, list(part.roots))
    simplify(small, effort.is_late)
    if small.size > _CORE_AT_MOST * part.size or effort.spent:
        return
    with effort.share(_CORE_EFFORT) as share:
        pieces = [_prepared(piece, share, cored=False) for piece in components(small)]
        _search([inner for piece in pieces for inner in piece.open_pieces()], share)
    _, picks, _ = _Piece(small, _Incumbent(), inner=pieces).gathered()
    incumbent.offer(part, {program.owner[v]: program.index[v] for v in flatten(picks)})


def _exact(part: Part, program: Formulation, incumbent: _Incumbent, hint: Chosen, effort: Effort) -> float:
    """Improves the incumbent and proves a lower bound: by few branches, which suffice where the relaxation says much,
    by a little clause learning, by many branches with cuts, and by clause learning with what is left."""
    rest = part.rest(incumbent.cost)
    low, more = 0.0, True

    def proven() -> bool:
        return part.cost + low >= incumbent.cost * (1 - TOLERANCE)

    if not effort.spent:
        low, more = _branched(part, program, incumbent, effort, _FIRST_BRANCH_NODES)

    def propagated(share: float) -> bool:
        nonlocal low
        if part.size > _PROPAGATE_AT_MOST or proven() or effort.spent:
            return False
        found = solvers.propagate(program, rest, effort, max(effort.units * share, 0.1), hint)
        low = max(low, found.bound)
        if found.chosen is not None:
            incumbent.offer(part, found.chosen)
        return True

    more = propagated(_FIRST_PROPAGATION) or more
    for _ in range(_BRANCH_ROUNDS):
        if not more or proven() or effort.spent:
            break
        bound, more = _branched(part, program, incumbent, effort, _BRANCH_NODES)
        low = max(low, bound)
    propagated(1.0)
    return part.cost + low


def _branched(
    part: Part, program: Formulation, incumbent: _Incumbent, effort: Effort, nodes: int
) -> tuple[float, bool]:
    """A lower bound of what is left from so many nodes of branch and bound; whether cuts against the cycles of what it
    found promise more."""
    found = solvers.branch(program, part.rest(incumbent.cost), effort, nodes)
    if found.chosen is None:
        return found.bound, False
    solution = [float(found.chosen.get(o) == i) for o, i in zip(program.owner, program.index, strict=True)]
    _offer_near(part, program, incumbent, solution)
    if value(part.items, part.roots, found.chosen) < math.inf:
        incumbent.offer(part, found.chosen)
        return found.bound, False
    cuts = cycle_cuts(program, solution)
    program.add(cuts)
    return found.bound, bool(cuts)
