"""Runs CP-SAT and HiGHS on a formulation, on one thread and within an effort that is counted, not timed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superopt.extraction.formulation import Formulation, Row, chosen
from superopt.extraction.heuristics import Chosen
from superopt.extraction.reduction import knots

_SCALE = 1e4
"""What the incumbent's cost is scaled to for HiGHS, whose tolerances are absolute."""

_UNITS = 10**9
"""What the incumbent's cost is scaled to for CP-SAT, whose costs are whole numbers."""

_ITERATIONS_A_UNIT = 20_000
_LIGHT_ENTRIES = 30_000
_LIGHT_POWER = 0.45
"""Simplex iterations of a relaxation in a unit (about a second), as long as it has so many entries; above, they take
longer by this power of the number."""

_RUN_ENTRIES_A_UNIT = 600_000
"""Entries of a relaxation that takes a unit to be solved again without any iteration."""

_ROUND_ENTRIES_A_UNIT = 600_000
_ROUND_POWER = 0.62
_NODE_ROUNDS = 10
"""A round of cuts at HiGHS' first node takes about a unit for so many entries of the matrix, for fewer the power of
their share; anything at a later node the tenth of it. HiGHS takes no limit of iterations for an integer program, and
asks after each of these whether to go on."""

_TICKS_A_UNIT = 0.25
"""CP-SAT's deterministic time in a unit: of what extraction asks it takes several seconds each."""


@dataclass
class Effort:
    """What a search may still spend, in units of about a second that do not depend on the clock; and the clock's time
    (monotonic) at which it must end, or None."""

    units: float
    deadline: float | None = None
    timed_out: bool = False

    def seconds_left(self) -> float:
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    @property
    def late(self) -> bool:
        if self.seconds_left() <= 0:
            self.timed_out = True
        return self.timed_out

    def is_late(self) -> bool:
        """``late``, for what is given a function to ask."""
        return self.late

    @property
    def spent(self) -> bool:
        return self.late or self.units <= 0

    @contextmanager
    def share(self, fraction: float) -> Iterator[Effort]:
        """A part of what is left, for one of several pieces of the work; what it does not use stays here."""
        units, deadline = fraction * self.units, self.deadline
        if deadline is not None:
            deadline = time.monotonic() + fraction * max(self.seconds_left(), 0.0)
        part = Effort(units, deadline)
        yield part
        self.units -= units - part.units
        self.timed_out = self.timed_out or part.timed_out


@dataclass(frozen=True)
class Relaxed:
    """The relaxation's solution, a proven lower bound, and each variable's reduced cost under the same duals."""

    solution: NDArray[np.float64]
    bound: float
    reduced: NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The best choice found (None if none was; from HiGHS it may have cycles), and a proven lower bound."""

    chosen: Chosen | None
    bound: float


@dataclass(frozen=True)
class _Matrix:
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def _matrix(program: Formulation) -> _Matrix:
    """Rows: one use at most (exactly one for a root) of each class, then the program's rows."""
    rows: list[Row] = [dict.fromkeys(mine, 1.0) for mine in program.of.values()]
    lower = [1.0 if owner in program.roots else -math.inf for owner in program.of]
    upper = [1.0] * len(rows) + [0.0] * len(program.rows)
    lower += [-math.inf] * len(program.rows)
    starts, columns, values = _sparse(rows + program.rows)
    return _Matrix(starts, columns, values, np.array(lower), np.array(upper))


def _sparse(rows: list[Row]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """Where each row starts, and the columns and factors of all."""
    starts = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int32)
    columns = np.fromiter((column for row in rows for column in row), dtype=np.int32, count=int(starts[-1]))
    values = np.fromiter((factor for row in rows for factor in row.values()), dtype=np.float64, count=int(starts[-1]))
    return starts, columns, values


class Relaxation:
    """The relaxation of a program, solved again and again with the cuts that the program gets meanwhile."""

    def __init__(self, program: Formulation, upper: float, effort: Effort) -> None:
        self.program = program
        self.scale = _SCALE / upper if upper > 0 else 1.0
        self.costs, self.matrix = program.costs * self.scale, _matrix(program)
        self.solver = _highs(self.matrix, self.costs, effort, whole=False)
        self.rows = len(program.rows)

    def solve(self, effort: Effort) -> Relaxed | None:
        """Solves it; None if the effort ran out before.

        The bound and the reduced costs come from the duals by weak duality, whatever the solver's tolerances.
        """
        import highspy

        if len(self.program.rows) > self.rows:
            self._take(self.program.rows[self.rows :])
        solver = self.solver
        a_unit = _ITERATIONS_A_UNIT / max(1.0, self.program.entries / _LIGHT_ENTRIES) ** _LIGHT_POWER
        solver.setOptionValue("simplex_iteration_limit", max(int(effort.units * a_unit), 1))
        if effort.deadline is not None:
            solver.setOptionValue("time_limit", max(effort.seconds_left(), 0.01))
        solver.run()
        effort.units -= max(int(solver.getInfo().simplex_iteration_count), 1) / a_unit
        effort.units -= self.program.entries / _RUN_ENTRIES_A_UNIT
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            effort.timed_out = effort.timed_out or solver.getModelStatus() == highspy.HighsModelStatus.kTimeLimit
            return None
        found = solver.getSolution()
        matrix, costs = self.matrix, self.costs
        duals = np.array(found.row_dual)
        # A dual that points to where its row has no bound proves nothing: it is left out.
        duals = np.where(np.isinf(matrix.lower), np.minimum(duals, 0.0), duals)
        rows = np.repeat(np.arange(len(duals)), np.diff(matrix.starts))
        reduced = costs - np.bincount(matrix.columns, weights=duals[rows] * matrix.values, minlength=len(costs))
        sides = np.where(duals > 0, np.where(np.isinf(matrix.lower), 0.0, matrix.lower), matrix.upper)
        bound = float(duals @ sides + np.minimum(reduced, 0.0).sum())
        return Relaxed(np.array(found.col_value), bound / self.scale, reduced / self.scale)

    def _take(self, fresh: list[Row]) -> None:
        count, known = len(fresh), self.matrix
        starts, columns, values = _sparse(fresh)
        lower, upper = np.full(count, -math.inf), np.zeros(count)
        self.solver.addRows(count, lower, upper, len(columns), starts[:-1], columns, values)
        self.rows += count
        self.matrix = _Matrix(
            np.concatenate((known.starts, known.starts[-1] + starts[1:])),
            np.concatenate((known.columns, columns)),
            np.concatenate((known.values, values)),
            np.concatenate((known.lower, lower)),
            np.concatenate((known.upper, upper)),
        )


def branch(program: Formulation, upper: float, effort: Effort, nodes: int) -> Found:
    """Solves the integer program by branch and bound over relaxations, at most so many nodes; cycles are not forbidden
    beyond the cuts that the program has."""
    import highspy

    scale = _SCALE / upper if upper > 0 else 1.0
    solver = _highs(_matrix(program), program.costs * scale, effort, whole=True)
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", _SCALE * 1e-9), ("mip_feasibility_tolerance", 1e-9)):
        solver.setOptionValue(option, value)
    solver.setOptionValue("mip_max_nodes", nodes)
    a_round = (program.entries / _ROUND_ENTRIES_A_UNIT) ** _ROUND_POWER
    spent = 0.0

    def asked(event: Any) -> None:
        nonlocal spent
        spent += a_round if event.data_out.mip_node_count < 1 else a_round / _NODE_ROUNDS
        event.interrupt(spent > effort.units)

    solver.cbMipInterrupt += asked
    solver.run()
    info = solver.getInfo()
    effort.units -= max(spent, max(int(info.simplex_iteration_count), 1) / _ITERATIONS_A_UNIT)
    if solver.getModelStatus() == highspy.HighsModelStatus.kInterrupt:
        effort.units = 0.0
    effort.timed_out = effort.timed_out or solver.getModelStatus() == highspy.HighsModelStatus.kTimeLimit
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    best = chosen(program, solver.getSolution().col_value) if feasible else None
    bound = max(float(info.mip_dual_bound), 0.0) if math.isfinite(info.mip_dual_bound) else 0.0
    return Found(best, (bound - _SCALE * 1e-9 if bound else 0.0) / scale)


def _highs(matrix: _Matrix, costs: NDArray[np.float64], effort: Effort, whole: bool) -> Any:
    import highspy

    solver = highspy.Highs()
    for name, option in (("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", 0)):
        solver.setOptionValue(name, option)
    if effort.deadline is not None:
        solver.setOptionValue("time_limit", max(effort.seconds_left(), 0.01))
    count = len(costs)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, len(matrix.lower)
    model.col_cost_, model.col_lower_, model.col_upper_ = costs, np.zeros(count), np.ones(count)
    model.row_lower_, model.row_upper_ = matrix.lower, matrix.upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = (
        matrix.starts,
        matrix.columns,
        matrix.values,
    )
    if whole:
        model.integrality_ = [highspy.HighsVarType.kInteger] * count
    solver.passModel(model)
    return solver


def propagate(program: Formulation, upper: float, effort: Effort, units: float, hint: Mapping[int, int]) -> Found:
    """Solves the integer program by clause learning (CP-SAT), within so many units.

    Cycles are forbidden by levels inside strongly connected components. Costs are rounded down to whole numbers, so
    that the bound holds for the true ones.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    variables = [model.new_bool_var("") for _ in program.owner]
    knot = knots(program.items)
    members: dict[int, int] = {}
    for number in knot.values():
        members[number] = members.get(number, 0) + 1
    used, level = {}, {}
    for owner, mine in program.of.items():
        ways = [variables[variable] for variable in mine]
        if owner in program.roots:
            model.add_exactly_one(ways)
        else:
            used[owner] = model.new_bool_var("")
            model.add_exactly_one([*ways, used[owner].negated()])
        if members[knot[owner]] > 1:
            level[owner] = model.new_int_var(0, members[knot[owner]] - 1, "")
    for variable, owner in enumerate(program.owner):
        for child in program.children(variable):
            if child in used:
                model.add_implication(variables[variable], used[child])
            if knot[child] == knot[owner]:
                model.add(level[owner] >= level[child] + 1).only_enforce_if(variables[variable])
    scale = _UNITS / upper if upper > 0 else 1.0
    model.minimize(sum(math.floor(cost * scale) * way for cost, way in zip(program.costs, variables, strict=True)))
    for variable, owner in enumerate(program.owner):
        model.add_hint(variables[variable], hint.get(owner) == program.index[variable])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = units * _TICKS_A_UNIT
    if effort.deadline is not None:
        solver.parameters.max_time_in_seconds = max(effort.seconds_left(), 0.01)
    status = solver.solve(model)
    effort.units -= solver.response_proto.deterministic_time / _TICKS_A_UNIT
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        best: Chosen | None = chosen(program, [float(solver.boolean_value(way)) for way in variables])
    else:
        best = None
    if status != cp_model.OPTIMAL and effort.seconds_left() <= 0:
        effort.timed_out = True
    return Found(best, max(solver.best_objective_bound, 0.0) / scale)
