"""Who wins by the clock, on made-up latencies; and that another than the first choice wins verified or not at all."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.costs import whole
from superopt.measure import LOOKS, Latencies, measure_calls
from superopt.rule_text import parse
from superopt.search import selection
from superopt.search.decision import Decision, decide
from superopt.search.selection import Proposed, Verified, by_the_clock
from superopt.verification.verify import Verification


def series(
    *ratios: float, rounds: int = 48, noise: float = 0.01, seed: int = 0, session_noise: float = 0.0
) -> Latencies:
    """Latencies of the original and of candidates that take so many times as long, on a machine whose load drifts and
    has two modes, beside the noise of each sample."""
    rng = random.Random(seed)
    load = [(1 + 0.5 * step / rounds) * rng.choice((1.0, 1.0, 1.7)) for step in range(rounds)]
    rows = [[ratio * now * math.exp(rng.gauss(0, noise)) for now in load] for ratio in (1.0, *ratios)]
    return Latencies(tuple(map(tuple, rows)), 1, 1, session_noise)


def decided(latencies: Latencies, *prices: float) -> Decision:
    return decide(latencies, dict(enumerate(prices, 1)))


def test_the_fastest_wins_and_what_is_slower_is_out() -> None:
    found = decided(series(0.9, 0.8, 1.1), 1.0, 2.0, 0.5)
    assert (found.best, found.settled) == (2, True)
    assert found.standing == {1: "fast enough", 2: "fast enough", 3: "slower"}
    assert decided(series(1.1, 1.2), 1.0, 2.0).best == 0
    assert decided(series(1.1, 1.2), 1.0, 2.0).settled
    assert decide(series(), {}) == Decision(0, {}, True)


def test_of_equals_the_cheapest_wins_and_of_equally_cheap_ones_the_faster() -> None:
    assert decided(series(1.0, 1.0), 5.0, 1.0).best == 2
    assert decided(series(1.0, 1.0), 1.0, 5.0).best == 1
    assert decided(series(1.0, 0.999, noise=1e-5), 1.0, 1.0).best == 2
    # One of them is faster with confidence, beyond what sessions differ by: prices do not count.
    assert decided(series(1.0, 0.97), 1.0, 5.0).best == 2
    assert decided(series(1.0, 0.97, session_noise=0.04), 1.0, 5.0).best == 1


def test_what_is_rather_slower_is_out_without_confidence_too() -> None:
    # 12 rounds of so much noise show nothing for sure: 8 of 12 above have a probability of 0.19, 7 one of 0.39.
    taken = 0
    for seed in range(200):
        latencies = series(1.05, rounds=12, noise=0.3, seed=seed)
        above = sum(a > 1.01 * b for a, b in zip(latencies.samples[1], latencies.samples[0], strict=True))
        found = decided(latencies, 1.0)
        assert (found.best == 1) == (above < 8)
        taken += found.best
    assert 100 < taken < 170


def test_a_round_or_two_tell_nothing() -> None:
    assert decided(series(1.3, rounds=1), 1.0).best == 1
    assert decided(series(1.3, 0.7, rounds=2), 1.0, 2.0).best == 1
    assert decided(series(1.3, 0.7, rounds=5), 1.0, 2.0).best == 2


def test_differences_that_sessions_make_are_none_and_large_ones_count_all_the_same() -> None:
    assert decided(series(1.03, noise=0.002), 1.0).best == 0
    assert decided(series(1.03, noise=0.002, session_noise=0.035), 1.0).best == 1
    assert decided(series(1.08, noise=0.002, session_noise=0.2), 1.0).best == 0


def tried(ratio: float, noise: float, seed: int, seconds: float) -> tuple[Decision, Latencies]:
    """A whole measurement of two models of 5 ms on a clock of our own, with slow phases and interruptions."""
    rng = random.Random(seed)
    now = 0.0

    def call(taken: float) -> Callable[[], None]:
        def run() -> None:
            nonlocal now
            phase = 1.8 if int(now / 0.7) % 3 == 1 else 1.0
            interrupted = 0.02 if rng.random() < 0.02 else 0.0
            now += taken * phase * math.exp(rng.gauss(0, noise)) + interrupted

        return run

    found = measure_calls(
        [call(5e-3), call(5e-3 * ratio)],
        seconds=seconds,
        settled=lambda latencies: decide(latencies, {1: 1.0}).settled,
        clock=lambda: now,
    )
    return decide(found, {1: 1.0}), found


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_a_slower_candidate_is_hardly_ever_taken_and_a_faster_one_hardly_ever_missed(noise: float) -> None:
    trials = 30
    assert sum(tried(1.04, noise, seed, 20.0)[0].best for seed in range(trials)) <= 1
    assert sum(tried(0.97, noise, seed, 20.0)[0].best for seed in range(trials)) >= trials - 1


def test_what_is_clear_takes_few_rounds() -> None:
    rounds = [tried(0.6, 0.02, seed, 20.0)[1].rounds for seed in range(10)]
    assert max(rounds) <= LOOKS[1]
    assert tried(1.0, 0.05, 0, 20.0)[1].rounds > LOOKS[1]


# Models.


def network() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    names = ("a", "b", "c")
    stored = [numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), name) for name in names]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["j"]),
        helper.make_node("MatMul", ["x", "c"], ["k"]),
        helper.make_node("Add", ["j", "k"], ["l"]),
        helper.make_node("Relu", ["l"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RULES = """
rule products: reassociates
  MatMul(MatMul(x, a), b) => MatMul(x, MatMul(a, b))

rule sum-of-products: reassociates
  Add(MatMul(x, a), MatMul(x, b)) => MatMul(x, Add(a, b))

rule relu-of-relu: exact
  Relu(Relu(x)) => Relu(x)
"""


def timed(monkeypatch: pytest.MonkeyPatch, *ratios: float) -> list[int]:
    """Lets the models take so many times as long as the original; how many were timed is appended to the list."""
    asked: list[int] = []

    def measured(runs: Sequence[Callable[[], object]], *, replicas: int, **_: Any) -> Latencies:
        for run in runs:
            run()
        asked.append(len(runs) // replicas - 1)
        return series(*ratios[: asked[-1]], noise=0.001)

    monkeypatch.setattr(selection, "measure_calls", measured)
    return asked


def optimized(**options: Any) -> superopt.Result:
    return superopt.optimize(network(), rules=parse(RULES), trust_rules=True, cost="nodes", max_growth=None, **options)


def operators(result: superopt.Result) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


def test_as_many_candidates_are_measured_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = timed(monkeypatch, 1.0, 1.0, 1.0, 1.0)
    for count in (1, 2, 3):
        result = optimized(candidates=count)
        assert asked[-1] == len(result.report["candidates"]) == count
        costs = [candidate["cost"] for candidate in result.report["candidates"]]
        assert costs[0] == min(costs)
        assert len({candidate["name"] for candidate in result.report["candidates"]}) == count
    assert operators(result) == ["MatMul", "Relu"]
    assert operators(optimized(candidates=3, differ=100)) == ["MatMul", "Relu"]
    assert asked[-1] < 3


def test_another_candidate_wins_by_the_clock_and_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 1.2, 0.7)
    result = optimized(candidates=2)
    report = result.report
    assert [line["verdict"] for line in report["candidates"]] == ["slower than the original", "chosen"]
    assert report["changed"]
    assert report["verified"]
    assert operators(result) == ["MatMul", "MatMul", "Add", "Relu"]
    assert report["latency"] is not None
    assert report["latency"]["ratio"] == pytest.approx(0.7, rel=0.01)
    assert report["latency"]["sessions"] == 2
    assert "sign test" in report["latency"]["test"]


def test_the_original_wins_where_all_are_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 1.2, 1.3, 1.1)
    result = optimized()
    assert not result.report["changed"]
    assert result.model == network()


def test_a_candidate_that_is_not_verified_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 1.0, 0.7)
    first = optimized(candidates=1)
    model = superopt.models.model.load(network())
    found = cast(Any, lambda: None)
    found.model, found.name, found.bytes = superopt.models.model.load(first.model), "m", 1
    agreed = Verification(True, True, "", "reassociates")
    refusing = Verification(False, True, "y differs", "reassociates")
    feed = {"x": np.ones((4, 8), np.float32)}
    chosen = by_the_clock(
        model, Verified(found, agreed, 1.0), [Proposed(found, 2.0)], lambda _: refusing, feed, threads=1, seconds=5.0
    )
    assert chosen.place == 1
    assert [line["verdict"] for line in chosen.candidates] == ["chosen", "not verified: y differs"]


def test_slow_models_have_fewer_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = timed(monkeypatch, 0.9, 0.8, 0.7)
    now = 0.0

    class Slow:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self, feed: object) -> None:
            nonlocal now
            now += 0.5

    monkeypatch.setattr(whole, "Runner", Slow)
    monkeypatch.setattr("superopt.search.selection.time.perf_counter", lambda: now)
    for seconds, rivals, each in ((20.0, 1, 1), (40.0, 2, 1), (80.0, 3, 1), (200.0, 3, 2)):
        models = [superopt.models.model.load(network())] * 4
        latencies, sessions = selection._timed(models, [1.0, 1.0, 1.0], {}, 1, seconds)
        assert (asked[-1], len(latencies.samples), sessions) == (rivals, rivals + 1, each)


def test_time_for_tuning_is_kept() -> None:
    result = optimized(tune=0.5, candidates=2)
    assert result.report["seconds"]["measure"] < 5.0
    assert result.report["latency"] is not None


def test_what_was_one_kernel_does_not_become_many() -> None:
    """Without its scale of ones, it is no LayerNormalization to onnxruntime any more."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 14]>
    g (float[17, 17, 8] x) => (float[17, 17, 8] y) <float two = {2}, float e = {0.001}, float[8] s = {1,1,1,1,1,1,1,1},
    float[8] t = {0,0,0,0,0,0,0,0}> {
        m = ReduceMean<axes = [-1]>(x)
        d = Sub(x, m)
        q = Pow(d, two)
        v = ReduceMean<axes = [-1]>(q)
        w = Add(v, e)
        r = Sqrt(w)
        n = Div(d, r)
        a = Mul(n, s)
        y = Add(a, t)
    }""")
    cost = superopt.optimize(model, select="modelled").report["cost"]
    assert cost["after"] <= cost["before"]
