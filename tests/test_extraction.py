"""Extraction against an independent brute force, against proven optima of published e-graphs, and on e-graphs of
terms."""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superopt.cli import extract as command
from superopt.cli.main import main
from superopt.cost import CostModel, load
from superopt.engine.eclasses import EClass, EGraph, ENode
from superopt.errors import EGraphError, ModelError
from superopt.extraction import Choice, Extractor, Problem, extract, greedy, interchange, several, solve, tightening
from superopt.extraction.formulation import Formulation, cycle_cuts, excess, flow_cuts, formulate
from superopt.extraction.heuristics import Chosen, heuristic, value
from superopt.extraction.masks import masks
from superopt.extraction.pointless import worthwhile
from superopt.extraction.reduction import Part, never, opened, simplify
from superopt.extraction.solve import TOLERANCE
from superopt.extraction.solvers import Effort, Relaxation, Relaxed, branch, propagate
from superopt.extraction.sums import Sums
from superopt.extraction.tightening import tighten
from superopt.terms import ABSENT, Attrs, Constant, TensorType, TermGraph

DATA = Path(__file__).parent / "data"


def brute_force(problem: Problem) -> float:
    """The least cost over every assignment of a node, or of nothing, to each class; infinite where there is no
    solution."""
    options: list[list[int | None]] = [[None] for _ in range(problem.classes)]
    for node, owner in enumerate(problem.node_class):
        options[owner].append(node)
    best = math.inf
    for assignment in itertools.product(*options):
        if any(assignment[root] is None for root in problem.roots):
            continue
        total = sum(problem.costs[node] for node in assignment if node is not None)
        if total >= best:
            continue
        done: set[int] = set()
        growing = True
        while growing:
            growing = False
            for owner, taken in enumerate(assignment):
                if taken is not None and owner not in done and all(kid in done for kid in problem.children[taken]):
                    done.add(owner)
                    growing = True
        if all(owner in done for owner, taken in enumerate(assignment) if taken is not None):
            best = total
    return best


def random_problem(rng: random.Random) -> Problem:
    """A small cyclic problem with several roots, with zero, equal and infinite costs, self loops, and repeated
    children."""
    classes = rng.randint(2, 7)
    costs_from: list[float] = rng.choice([[0.0, 1.0], [0.0, 1.0, 2.0, 3.5], [1.0], [0.0, 1e-7, 0.25, 7.0]])
    node_class, children, costs = [], [], []
    for owner in range(classes):
        for _ in range(rng.choice([1, 1, 2, 2, 3]) if classes < 7 else rng.choice([1, 2])):
            node_class.append(owner)
            later = rng.random() < 0.6 and owner + 1 < classes
            pool = range(owner + 1, classes) if later else range(classes)
            children.append(tuple(rng.choice(pool) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))))
            costs.append(math.inf if rng.random() < 0.03 else rng.choice(costs_from))
    roots = [rng.randrange(classes) for _ in range(rng.choice([1, 1, 2, 3]))]
    preferred = [rng.random() < 0.3 for _ in costs]
    return Problem(classes, node_class, children, costs, roots, preferred)


def check_solution(problem: Problem) -> None:
    expected = brute_force(problem)
    if expected == math.inf:
        with pytest.raises(EGraphError, match="root"):
            solve(problem)
        return
    solution = solve(problem)
    assert solution.status == "optimal"
    assert solution.cost == pytest.approx(expected, abs=1e-12)
    assert solution.bound <= expected + 1e-12
    chosen = solution.choice.node
    placed: set[int] = set()
    for owner, node in chosen.items():
        assert problem.node_class[node] == owner
        assert placed.issuperset(problem.children[node])
        placed.add(owner)
    assert placed.issuperset(problem.roots)
    assert greedy(problem).cost >= expected - 1e-12


@pytest.mark.parametrize("block", range(10))
def test_agrees_with_brute_force_on_small_cyclic_problems(block: int) -> None:
    solved = 0
    for seed in range(block * 50, block * 50 + 50):
        problem = random_problem(random.Random(seed))
        check_solution(problem)
        solved += brute_force(problem) < math.inf
    assert solved > 10


def far_apart(rng: random.Random) -> Problem:
    """A small problem with costs that vanish beside each other in floating point."""
    problem = ladder(rng, 4) if rng.random() < 0.7 else random_problem(rng)
    least = rng.choice([1e-300, 1e-12, 1e-3])
    prices = rng.choice([[0.0, 0.0, 1e-3, 1e12], [0.0, least, 1.5 * least, 2 * least, 1.0, 1e9, 1e12, 1e16]])
    return replace(problem, costs=[rng.choice(prices) for _ in problem.costs])


@pytest.mark.parametrize("block", range(10))
def test_agrees_with_brute_force_where_costs_are_far_apart(block: int) -> None:
    solved = 0
    for seed in range(block * 60, block * 60 + 60):
        problem = far_apart(random.Random(seed))
        expected = brute_force(problem)
        if expected == math.inf:
            continue
        solution = solve(problem)
        assert solution.status == "optimal"
        assert solution.bound <= expected * (1 + 1e-12)
        assert expected * (1 - 1e-12) <= solution.cost <= expected * (1 + TOLERANCE)
        assert solution.gap <= TOLERANCE
        solved += expected > 0
    assert solved > 10


def test_what_is_left_may_vanish_beside_what_is_settled() -> None:
    # What the root needs in any case is so dear that the rest of the cheapest choice, 0.001, is lost in rounding.
    named = {
        "one": (1, (3,), 0.0), "dear": (0, (), 1e12), "round": (3, (5,), 0.001), "step": (2, (0,), 0.0),
        "other": (3, (2,), 0.001), "leaf": (1, (), 0.001), "top": (4, (3,), 0.0), "top too": (4, (5,), 0.0),
        "both": (5, (0, 1), 0.0),
    }  # fmt: skip
    node_class, children, costs = (list(column) for column in zip(*named.values(), strict=True))
    solution = solve(Problem(6, node_class, children, costs, [4]))
    assert (solution.cost, solution.status) == (1e12 + 0.001, "optimal")


def ladder(rng: random.Random, rungs: int) -> Problem:
    """Denser problems, in which sharing pays: every class can be computed from shared, dear ones or from cheap, own
    ones."""
    node_class, children, costs = [], [], []
    for owner in range(rungs):
        for _ in range(2):
            node_class.append(owner)
            children.append(tuple(rng.sample(range(rungs, rungs + 3), 2)))
            costs.append(rng.choice([0.0, 1.0, 2.0]))
        node_class.append(owner)
        children.append((rng.randrange(rungs),))
        costs.append(rng.choice([0.0, 0.5]))
    for owner in range(rungs, rungs + 3):
        node_class.append(owner)
        children.append(())
        costs.append(rng.choice([1.0, 2.0, 3.0]))
    return Problem(rungs + 3, node_class, children, costs, list(range(0, rungs, 2)))


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_brute_force_where_sharing_pays(seed: int) -> None:
    check_solution(ladder(random.Random(seed), 4))


def sums(terms: int, rng: random.Random | None = None) -> Problem:
    """A sum of terms that may be added in every order: a class for each part of it, an item for each way to halve that.

    ``rng`` leaves out some of the ways, makes prices differ, and asks for a part of the sum as well.
    """
    members = range(1, terms + 1)
    parts = [frozenset(part) for size in members for part in itertools.combinations(range(terms), size)]
    number = {part: index for index, part in enumerate(parts)}
    node_class, costs = [], []
    children: list[tuple[int, ...]] = []
    for part in parts:
        ways: list[tuple[int, ...]] = [
            (number[one], number[part - one]) for one in parts if one < part and number[one] < number[part - one]
        ]
        for way in (ways if rng is None else rng.sample(ways, min(len(ways), 2))) or [()]:
            node_class.append(number[part])
            children.append(way)
            prices = ([1.0], [0.0]) if rng is None else ([1.0, 1.0, 1.5], [0.0, 1.0])
            costs.append(rng.choice(prices[not way]) if rng is not None else prices[not way][0])
    roots = [number[parts[-1]]] + ([rng.randrange(len(parts))] if rng is not None and rng.random() < 0.5 else [])
    return Problem(len(parts), node_class, children, costs, roots)


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_brute_force_where_cores_are_solved_first(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sys.modules["superopt.extraction.solve"]
    monkeypatch.setattr(whole, "_CORE_ABOVE", 0)
    monkeypatch.setattr(whole, "_CORE_AT_MOST", 1.0)
    rng = random.Random(seed)
    for problem in (ladder(rng, 4), sums(3, rng), random_problem(rng)):
        check_solution(problem)


def test_a_core_holds_what_the_heuristics_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sys.modules["superopt.extraction.solve"]
    monkeypatch.setattr(whole, "_CORE_ABOVE", 0)
    monkeypatch.setattr(whole, "_CORE_AT_MOST", 1.0)
    better = []
    original = whole._offer_core

    def offer(part: Part, program: Formulation, relaxed: Relaxed, incumbent: Any, near: Chosen, effort: Effort) -> None:
        before = incumbent.cost
        original(part, program, relaxed, incumbent, near, effort)
        better.append(incumbent.cost < before)

    monkeypatch.setattr(whole, "_offer_core", offer)
    for seed in range(60):
        solve(ladder(random.Random(seed), 12))
    assert any(better)


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_brute_force_on_sums(seed: int) -> None:
    check_solution(sums(3, random.Random(seed)))


def test_a_sum_in_every_order_is_proven_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> object:
        raise AssertionError("the relaxation says it all")

    for name in ("branch", "propagate"):
        monkeypatch.setattr(sys.modules["superopt.extraction.solvers"], name, search)
    solution = solve(sums(7))
    assert (solution.cost, solution.status) == (6.0, "optimal")


def test_a_search_that_is_never_done_ends_with_its_effort() -> None:
    # Each root needs one of four shared terms: a covering problem, of which the relaxation says little.
    rng = random.Random(1)
    terms = 60
    node_class = [*range(terms), *(terms + asked for asked in range(240) for _ in range(4))]
    children: list[tuple[int, ...]] = [() for _ in range(terms)]
    children += [(term,) for _ in range(240) for term in rng.sample(range(terms), 4)]
    problem = Problem(terms + 240, node_class, children, [1.0] * terms + [0.0] * 960, list(range(terms, terms + 240)))
    program = formulate(opened(problem))
    effort = Effort(0.1)
    found = branch(program, 60.0, effort, 1_000_000)
    assert effort.units == 0
    assert 0 < found.bound < greedy(problem).cost


@pytest.mark.parametrize(("rungs", "seed"), [(5, 197), (6, 48)])
def test_what_reduced_costs_settle_to_the_last_class_is_solved(rungs: int, seed: int) -> None:
    check_solution(ladder(random.Random(seed), rungs))


def test_sums_over_bits_are_those_of_their_values() -> None:
    rng = random.Random(2)
    for count in (0, 1, 8, 9, 100):
        values = [float(rng.randrange(1000)) for _ in range(count)]
        sums, mask = Sums(values), rng.getrandbits(count) if count else 0
        assert sums.of(mask) == sum(value for place, value in enumerate(values) if mask >> place & 1)


@pytest.mark.parametrize("seed", range(40))
def test_each_solver_keeps_its_promise_without_any_reduction(seed: int) -> None:
    rng = random.Random(seed)
    problem = ladder(rng, 4) if seed % 2 else random_problem(rng)
    optimum = brute_force(problem)
    if not 0 < optimum < math.inf:
        return
    part = opened(problem)
    program = formulate(part)
    relaxed = Relaxation(program, optimum, Effort(1.0)).solve(Effort(1.0))
    assert relaxed is not None
    assert relaxed.bound <= optimum * (1 + 1e-9)
    assert relaxed.bound == pytest.approx(float(program.costs @ relaxed.solution), abs=1e-6 * optimum)
    propagated = propagate(program, optimum, Effort(1.0), 1.0, {})
    assert propagated.chosen is not None
    assert value(part.items, part.roots, propagated.chosen) == pytest.approx(optimum, abs=1e-9)
    assert optimum * (1 - 1e-7) <= propagated.bound <= optimum * (1 + 1e-9)
    # The branching solver knows nothing of cycles that no cut forbids: what it proves is a bound.
    for _ in range(30):
        branched = branch(program, optimum, Effort(1.0), 1000)
        assert branched.bound <= optimum * (1 + 1e-9)
        assert branched.chosen is not None
        solution = [float(branched.chosen.get(o) == i) for o, i in zip(program.owner, program.index, strict=True)]
        cuts = cycle_cuts(program, solution)
        if not cuts:
            assert value(part.items, part.roots, branched.chosen) == pytest.approx(optimum, abs=1e-9)
            return
        program.add(cuts)
    pytest.fail("30 rounds of cuts have not made the choice acyclic")


def solutions(problem: Problem) -> Iterator[dict[int, int]]:
    """Every choice that is complete and acyclic, of all classes that it needs and of any others, by brute force."""
    options: list[list[int | None]] = [[None] for _ in range(problem.classes)]
    for node, owner in enumerate(problem.node_class):
        options[owner].append(node)
    for assignment in itertools.product(*options):
        done: set[int] = set()
        taken = {owner: node for owner, node in enumerate(assignment) if node is not None}
        while any(owner not in done and done.issuperset(problem.children[node]) for owner, node in taken.items()):
            done.update(owner for owner, node in taken.items() if done.issuperset(problem.children[node]))
        if len(done) == len(taken) and all(root in taken for root in problem.roots):
            yield taken


def test_cuts_from_flows_hold_for_every_solution_and_are_taken_up() -> None:
    found = 0
    for seed in range(60):
        problem = ladder(random.Random(seed), 4)
        program = formulate(opened(problem))
        relaxation = Relaxation(program, 1.0, Effort(1.0))
        first = relaxation.solve(Effort(1.0))
        assert first is not None
        cuts = flow_cuts(program, first.solution.tolist())
        found += len(cuts)
        for taken in solutions(problem):
            nodes = set(taken.values())
            chosen = [
                float(program.items[o][i].picks in nodes) for o, i in zip(program.owner, program.index, strict=True)
            ]
            assert all(excess(cut.row, chosen) <= 0 for cut in cuts)
        program.add(cuts)
        again, anew = relaxation.solve(Effort(1.0)), Relaxation(program, 1.0, Effort(1.0)).solve(Effort(1.0))
        assert again is not None
        assert anew is not None
        assert again.bound == pytest.approx(anew.bound, abs=1e-9)
        assert all(excess(cut.row, again.solution.tolist()) < 1e-6 for cut in cuts)
        # What does not hold the solution back is taken out again, and nothing else.
        program.forget(again.solution.tolist())
        rest = Relaxation(program, 1.0, Effort(1.0)).solve(Effort(1.0))
        assert rest is not None
        assert rest.bound == pytest.approx(again.bound, abs=1e-9)
    assert found > 10


def kept(problem: Problem) -> set[int]:
    """The nodes that are not pointless."""
    part = opened(problem)
    found = masks(part.items, part.roots)
    assert found is not None
    return {int(str(item.picks)) for ways in worthwhile(part, found, never).values() for item in ways}


def test_what_would_need_all_that_need_it_is_pointless() -> None:
    # The shared class 3 is of use to 1 and 2 alone, and its node 5 needs 4, which needs both.
    node_class = [0, 1, 1, 2, 2, 3, 3, 4]
    children = [(1, 2), (), (3,), (), (3,), (4,), (), (1, 2)]
    costs = [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.5, 0.1]
    problem = Problem(5, node_class, children, costs, [0])
    assert 5 not in kept(problem)
    assert 5 in kept(replace(problem, roots=[0, 3]))
    assert 5 in kept(replace(problem, children=[*children[:-1], (1,)]))


@pytest.mark.parametrize(("cost", "pointless"), [(2.1, True), (2.0, False), (1.9, False)])
def test_what_something_cheaper_can_stand_in_for_is_pointless(cost: float, pointless: bool) -> None:
    # In the place of node 0: node 1, with node 2 for the class that it needs besides.
    problem = Problem(3, [0, 0, 1, 1, 2, 2], [(2,), (1,), (2,), (), (), (1,)], [cost, 1.0, 1.0, 9.0, 1.0, 0.5], [0])
    assert (0 not in kept(problem)) == pointless
    # The class that it needs besides cannot be derived from what is there.
    assert 0 in kept(replace(problem, children=[(2,), (1,), (0,), (), (), (1,)]))


def test_a_bound_that_was_proven_is_kept_where_the_time_is_over_later(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sys.modules["superopt.extraction.solve"]
    original = whole._relaxed
    proven: list[float] = []

    def relaxed(*given: Any) -> tuple[float, bool]:
        low, dropped = original(*given)
        given[3].timed_out = True
        proven.append(low if dropped else -1.0)
        return low, dropped

    monkeypatch.setattr(whole, "_relaxed", relaxed)
    seen = 0
    for seed in range(60):
        proven.clear()
        solution = solve(ladder(random.Random(seed), 30), seconds=1e6)
        if len(proven) == 1 and proven[0] >= 0:
            assert solution.bound >= min(solution.cost, proven[0]) - 1e-9
            seen += solution.status == "seconds"
    assert seen > 3


@pytest.mark.parametrize(("name", "optimum"), [("vgg", 4.85076), ("resnet50", 4.38579)])
def test_proves_the_optimum_of_published_egraphs(name: str, optimum: float) -> None:
    problem = interchange.read(DATA / f"tensat__{name}.json.gz").problem
    solution = solve(problem)
    assert solution.status == "optimal"
    assert round(solution.cost, 5) == optimum
    assert solution.gap < 1e-7
    assert solution.cost <= greedy(problem).cost


def test_an_effort_of_nothing_is_no_worse_than_greedy_and_says_so() -> None:
    problem = interchange.read(DATA / "tensat__resnet50.json.gz").problem
    solution = solve(problem, effort=0.0)
    assert solution.status == "effort"
    assert 0 < solution.bound < solution.cost <= greedy(problem).cost
    assert solve(problem, seconds=0.0).status == "seconds"


class Ticks:
    """A clock that goes on by a second each time that it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize("seconds", [0, 1, 2, 3, 5, 8, 20, 50, 200])
def test_time_may_be_over_at_any_moment(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks()
    for name in ("solve", "solvers"):
        monkeypatch.setattr(sys.modules[f"superopt.extraction.{name}"], "time", ticks)
    published = interchange.read(DATA / "tensat__vgg.json.gz").problem
    solution = solve(published, seconds=seconds)
    assert 4.85 < solution.cost <= greedy(published).cost
    assert 0 < solution.bound < 4.85077
    for seed in range(30):
        problem = random_problem(random.Random(seed))
        optimum = brute_force(problem)
        if optimum < math.inf:
            found = solve(problem, seconds=seconds)
            assert found.bound - 1e-9 <= optimum <= found.cost + 1e-9


@pytest.mark.parametrize("seconds", [0, 2, 8])
def test_what_is_found_late_is_no_worse_than_greedy(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes that share most of what is below them, each with two nodes."""
    ticks = Ticks()
    for name in ("solve", "solvers"):
        monkeypatch.setattr(sys.modules[f"superopt.extraction.{name}"], "time", ticks)
    for seed in (1, 26):
        rng = random.Random(seed)
        node_class = [owner for owner in range(30) for _ in range(2)]
        children: list[tuple[int, ...]] = []
        costs = []
        for owner in node_class:
            children.append(() if owner < 5 else tuple(rng.sample(range(max(0, owner - 20), owner), min(3, owner))))
            costs.append(round(rng.random() * 10, 2))
        problem = Problem(30, node_class, children, costs, [29])
        assert solve(problem, seconds=seconds).cost <= greedy(problem).cost


def test_reductions_ask_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = interchange.read(DATA / "tensat__resnet50.json.gz").problem
    asked = 0

    def late() -> bool:
        nonlocal asked
        asked += 1
        return True

    part = opened(problem)
    whole = part.size
    simplify(part, late)
    assert asked == 1
    assert part.size == whole
    simplify(part)
    tighten(part, math.inf, late)
    assert asked == 2
    # Where it gets late after the masks, there is no second round.
    made = []
    monkeypatch.setattr(tightening, "masks", lambda items, roots, _: made.append(masks(items, roots)) or made[-1])
    tighten(part, math.inf, late)
    assert len(made) == 1
    chosen, cost = heuristic(part, late)
    assert cost == value(part.items, part.roots, chosen) < math.inf


def test_refuses_costs_that_are_not_costs() -> None:
    for wrong in (-1.0, math.nan):
        with pytest.raises(EGraphError, match="cost"):
            Problem(1, [0], [()], [wrong], [0])


def test_a_deep_chain_and_deep_choices_take_no_recursion() -> None:
    depth = 10_000
    chain = Problem(depth, range(depth), [(i + 1,) if i + 1 < depth else () for i in range(depth)], [1.0] * depth, [0])
    assert solve(chain).cost == depth
    # Residual blocks, each with a dear and a cheap way: the tree cost of the root is beyond any float.
    node_class, children, costs = [], [], []
    for owner in range(depth):
        below = (min(owner + 1, depth - 1), min(owner + 2, depth - 1)) if owner + 1 < depth else ()
        for way in (2.0, 1.0):
            node_class.append(owner)
            children.append(below)
            costs.append(way)
    solution = solve(Problem(depth, node_class, children, costs, [0]))
    assert solution.cost == depth
    assert solution.status == "optimal"


def test_the_interchange_form_goes_round(tmp_path: Path) -> None:
    named = interchange.read(DATA / "tensat__vgg.json.gz")
    file = tmp_path / "again.json"
    file.write_text(json.dumps(interchange.document(named)))
    again = interchange.read(file)
    assert again.problem == named.problem


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "no 'nodes'"),
        ("{", "expected a JSON file"),
        ('{"nodes": {"a": {}}}', "'eclass'"),
        ('{"nodes": {"a": {"eclass": "x", "children": ["b"]}}, "root_eclasses": ["x"]}', "child 'b'"),
        ('{"nodes": {"a": {"eclass": "x", "cost": -1}}, "root_eclasses": ["x"]}', "cost -1"),
        ('{"nodes": {"a": {"eclass": "x"}}, "root_eclasses": ["y"]}', "root 'y': no node is of such a class"),
        ('{"nodes": {"a": {"eclass": "x"}}, "root_eclasses": [1]}', "root 1, expected a list of names"),
        ('{"nodes": {"a": {"eclass": "x", "cost": 1' + 400 * "0" + '}}, "root_eclasses": ["x"]}', "above 1.8e+308"),
        ('{"nodes": {"a": {"eclass": "x", "cost": true}}, "root_eclasses": ["x"]}', "cost True"),
        (
            '{"nodes": {"a": {"eclass": "x", "cost": 1e308, "children": ["b"]}, "b": {"eclass": "y", "cost": 1e308}},'
            ' "root_eclasses": ["x"]}',
            "the costs add up to infinity",
        ),
        (100_000 * "[", "too deep to be read"),
        ('{"nodes": {"a": {"eclass": "x"}}, "root_eclasses": []}', "no roots"),
        ('{"nodes": {"a": {"eclass": "x"}}, "root_eclasses": "x"}', "list"),
        (
            '{"nodes": {"a": {"eclass": "x", "children": ["a"]}}, "root_eclasses": ["x"]}',
            "root 'x' has no finite derivation, expected one without a cycle",
        ),
        (
            '{"nodes": {"a": {"eclass": "x", "cost": Infinity}}, "root_eclasses": ["x"]}',
            "root 'x' has no derivation of finite cost, expected one without a node of infinite cost",
        ),
        (
            '{"nodes": {"a": {"eclass": "x", "children": ["a"]}, "c": {"eclass": "x", "children": ["b"]},'
            ' "b": {"eclass": "y", "cost": 1e999}, "d": {"eclass": "z"}}, "root_eclasses": ["z", "x"]}',
            "root 'x' has no derivation of finite cost, expected one without a node of infinite cost",
        ),
    ],
)
def test_a_wrong_interchange_file_is_one_line(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    with pytest.raises(ModelError) as error:
        interchange.read(file)
    assert what in str(error.value)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)


def test_a_packed_file_that_is_cut_off_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "cut.json.gz"
    file.write_bytes((DATA / "tensat__vgg.json.gz").read_bytes()[:-20])
    with pytest.raises(ModelError, match="cannot be unpacked"):
        interchange.read(file)


def test_the_command_prints_the_choice_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, report = tmp_path / "g.json", tmp_path / "r.json"
    nodes = {
        "sum": {"op": "Add", "eclass": "top", "children": ["left", "right"], "cost": 1.0},
        "left": {"op": "Neg", "eclass": "l", "children": ["leaf"], "cost": 0.5},
        "right": {"op": "Abs", "eclass": "r", "children": ["leaf", "leaf"], "cost": 0.25},
        "dear": {"op": "Sub", "eclass": "top", "children": ["leaf"], "cost": 9.0},
        "leaf": {"op": "X", "eclass": "x", "children": [], "cost": 2.0},
    }
    file.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["top"]}))
    with pytest.raises(SystemExit) as ended:
        main(["extract", str(file), "--report", str(report)])
    assert ended.value.code == 0
    printed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (printed["chosen"], printed["cost"], printed["gap"], printed["status"]) == (
        "4 nodes",
        "3.75",
        "0 %",
        "optimal",
    )
    written = json.loads(report.read_text())
    assert written["choice"] == {"x": "leaf", "l": "left", "r": "right", "top": "sum"}
    assert (written["cost"], written["bound"], written["greedy"]) == (3.75, 3.75, 3.75)


def test_the_greedy_choice_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[float] = []

    def counted(problem: Problem) -> Choice:
        made = greedy(problem)
        calls.append(made.cost)
        return made

    monkeypatch.setattr(sys.modules["superopt.extraction.solve"], "greedy", counted)
    monkeypatch.setattr(command, "greedy", counted)
    for seconds, proven in (("50", True), ("0", False)):
        calls.clear()
        with pytest.raises(SystemExit):
            main(["extract", str(DATA / "tensat__resnet50.json.gz"), "--seconds", seconds, "--report", f"{tmp_path}/r"])
        written = json.loads((tmp_path / "r").read_text())
        assert (written["status"] == "optimal", [written["greedy"]]) == (proven, calls)


def test_a_name_with_a_lone_surrogate_is_written_as_it_was_read(tmp_path: Path) -> None:
    file, report = tmp_path / "g.json", tmp_path / "r.json"
    file.write_text(r'{"nodes": {"\ud800": {"eclass": "A\udfff\u00e9"}}, "root_eclasses": ["A\udfff\u00e9"]}')
    with pytest.raises(SystemExit) as ended:
        main(["extract", str(file), "--report", str(report)])
    assert ended.value.code == 0
    assert json.loads(report.read_text(encoding="utf-8"))["choice"] == {"A\udfff\u00e9": "\ud800"}


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_seconds_that_are_none_are_one_line(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["extract", str(DATA / "tensat__vgg.json.gz"), "--seconds", seconds])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"superopt: seconds: {float(seconds)} is out of range, expected")


# E-graphs of terms.

IMAGE = TensorType("float32", (1, 64, 28, 28))
WEIGHT = TensorType("float32", (64, 64, 3, 3))
VECTOR = TensorType("float32", (64,))
CONV = Attrs.of(dilations=(1, 1), group=1, pads=(1, 1, 1, 1), strides=(1, 1))


def constant(key: str, value_type: TensorType) -> Constant:
    shape = value_type.shape or ()
    return Constant(key, value_type, lambda: np.zeros([dim for dim in shape if isinstance(dim, int)], np.float32))


def leaf(key: str, value_type: TensorType) -> EClass:
    return EClass((ENode("Const", (), Attrs.of(key=key), None, 0),), value_type, True)


def two_branches() -> EGraph:
    """Conv(x, w1) + Conv(x, w2), which is also Conv(x, w1 + w2)."""
    classes = (
        EClass((ENode("Input", (), Attrs.of(name="x"), None, 0),), IMAGE),
        leaf("w1", WEIGHT),
        leaf("w2", WEIGHT),
        leaf("b", VECTOR),
        EClass((ENode("Conv", (0, 1, 3), CONV, None, 4),), IMAGE),
        EClass((ENode("Conv", (0, 2, 3), CONV, None, 5),), IMAGE),
        EClass((ENode("Add", (4, 5), Attrs(), None, 6), ENode("Conv", (0, 7, 3), CONV, "merge")), IMAGE),
        EClass((ENode("Add", (1, 2), Attrs(), "merge"),), WEIGHT, True),
    )
    constants = {key: constant(key, kind) for key, kind in (("w1", WEIGHT), ("w2", WEIGHT), ("b", VECTOR))}
    return EGraph(classes, (6,), tuple(range(7)), constants)


def check_graph(graph: TermGraph) -> None:
    assert len(set(graph.nodes)) == len(graph.nodes)
    assert all(arg < index for index, node in enumerate(graph.nodes) for arg in node.args)
    reached = set(graph.roots)
    for index in reversed(range(len(graph.nodes))):
        if index in reached:
            reached.update(arg for arg in graph.nodes[index].args if arg != ABSENT)
    assert reached == set(range(len(graph.nodes)))


def test_merged_branches_are_chosen_and_say_which_rule_made_them() -> None:
    extraction = extract(two_branches(), load("roofline"))
    check_graph(extraction.graph)
    assert [node.op for node in extraction.graph.nodes] == ["Input", "Const", "Const", "Add", "Const", "Conv"]
    assert extraction.rules_used == {"merge": 2}
    assert extraction.runtime == frozenset()
    assert extraction.status == "optimal"
    assert extraction.constant_bytes == 4 * (64 * 64 * 9 + 64)
    assert extraction.graph.types[-1] == IMAGE


def test_nothing_to_gain_leaves_the_original() -> None:
    egraph = two_branches()
    # Under a cost of nothing all choices cost the same: the original's nodes win.
    free = CostModel("free", "nothing", kept_constant=1.0)
    extraction = extract(egraph, free)
    assert extraction.rules_used == {}
    assert [node.op for node in extraction.graph.nodes].count("Conv") == 2


def repeated_vector() -> EGraph:
    """Add(x, Expand(v)) with a constant v: stored, the expanded vector is large."""
    shape = TensorType("float32", (1024, 1024))
    classes = (
        EClass((ENode("Input", (), Attrs.of(name="x"), None, 0),), shape),
        leaf("v", TensorType("float32", (1, 1024))),
        EClass((ENode("Expand", (1,), Attrs.of(shape=(1024, 1024)), None, 2),), shape, True),
        EClass((ENode("Add", (0, 2), Attrs(), None, 3),), shape),
    )
    return EGraph(classes, (3,), (0, 1, 2, 3), {"v": constant("v", TensorType("float32", (1, 1024)))})


def test_a_constant_is_stored_where_bytes_are_cheap_and_stays_a_node_where_they_are_dear() -> None:
    model = load("roofline")
    stored = extract(repeated_vector(), model, byte_price=0.0)
    assert stored.runtime == frozenset()
    assert stored.constant_bytes == 4 * 1024 * 1024
    kept = extract(repeated_vector(), model, byte_price=1e-9)
    assert [kept.graph.nodes[index].op for index in sorted(kept.runtime)] == ["Expand"]
    assert kept.constant_bytes == 4 * 1024
    assert stored.graph.text() == kept.graph.text()


def test_a_constant_is_evaluated_by_its_smallest_derivation() -> None:
    classes = list(two_branches().classes)
    long = ENode("Identity", (8,), Attrs(), "detour")
    classes[7] = EClass((long, *classes[7].nodes), WEIGHT, True)
    classes.append(EClass((ENode("Add", (1, 2), Attrs.of(detour=1), "detour"),), WEIGHT, True))
    extraction = extract(EGraph(tuple(classes), (6,), (), two_branches().constants), load("roofline"))
    assert extraction.rules_used == {"merge": 2}


def test_caution_keeps_the_original_where_the_gain_is_smaller() -> None:
    extractor = Extractor(two_branches(), load("roofline"))
    bold, careful = (extractor.extract(caution=caution) for caution in (0.0, 5.0))
    assert (bold.rules_used, careful.rules_used) == ({"merge": 2}, {})
    assert careful.cost > bold.cost >= careful.bound
    assert extractor.extract(caution=0.1).cost == bold.cost


def chain_of_choices(steps: int) -> EGraph:
    """A chain of Conv steps, for each of which a rule of its own offers a narrower one; the later, the narrower."""
    classes = [EClass((ENode("Input", (), Attrs.of(name="x"), None, 0),), IMAGE), leaf("b", VECTOR)]
    constants = {"b": constant("b", VECTOR)}
    image = 0
    for step in range(steps):
        for key, side in ((f"w{step}", steps + 2), (f"n{step}", steps + 1 - step)):
            kind = TensorType("float32", (64, 64, side, 1))
            constants[key] = constant(key, kind)
            classes.append(leaf(key, kind))
        attrs = Attrs.of(dilations=(1, 1), group=1, pads=(0, 0, 0, 0), strides=(1, 1), step=step)
        wide, narrow = len(classes) - 2, len(classes) - 1
        nodes = (
            ENode("Conv", (image, wide, 1), attrs, None, step),
            ENode("Conv", (image, narrow, 1), attrs, f"r{step}"),
        )
        image = len(classes)
        classes.append(EClass(nodes, IMAGE))
    return EGraph(tuple(classes), (image,), (), constants)


def test_several_finds_every_choice_of_rules_in_order() -> None:
    steps = 4
    extractor = Extractor(chain_of_choices(steps), load("flops"))
    found = several(extractor, 2**steps)
    assert len({tuple(each.rules_used) for each in found}) == len(found) == 2**steps
    assert [each.cost for each in found] == sorted(each.cost for each in found)
    # Without one rule at a time the cheapest are those that gain the least.
    assert [sorted(set(found[0].rules_used) - set(each.rules_used)) for each in found[:3]] == [[], ["r0"], ["r1"]]
    apart = several(extractor, 4, differ=2)
    assert all(len(one.chosen - other.chosen) >= 2 for one, other in itertools.combinations(apart, 2))
    assert len(apart) == 4


def test_several_choices_come_in_the_order_of_their_costs_and_differ() -> None:
    extractor = Extractor(two_branches(), load("roofline"))
    found = several(extractor, 5)
    assert [extraction.rules_used for extraction in found] == [{"merge": 2}, {}]
    assert found[0].cost < found[1].cost
    assert [extraction.rules_used for extraction in several(extractor, 5, differ=4)] == [{"merge": 2}]
    assert len(several(extractor, 1)) == 1
    assert len(several(extractor, 2, seconds=0.0)) == 1


def test_the_same_choice_under_every_hash_seed() -> None:
    program = (
        "import sys; sys.path.insert(0, 'tests'); import random, test_extraction as t\n"
        "for seed in range(40): print(t.solve(t.ladder(random.Random(seed), 9)).choice.node)\n"
        "print(t.extract(t.two_branches(), t.load('nodes')).graph.text())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(seen) == 1
