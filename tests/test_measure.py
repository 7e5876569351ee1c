"""Measuring, on a clock of our own and on small models in onnxruntime."""

from __future__ import annotations

import gc
import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from superopt.costs.timing import Runtime
from superopt.costs.whole import ready
from superopt.measure import LOOKS, NEGLIGIBLE, Latencies, compare, measure_calls
from superopt.models.model import load


class Machine:
    """A clock that stands still except while a call runs; calls take their time with noise and in slow phases."""

    def __init__(self, seed: int, noise: float) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.noise = noise

    def clock(self) -> float:
        return self.now

    def call(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            slow_phase = 1.5 if int(self.now) % 3 == 2 else 1.0
            self.now += seconds * slow_phase * math.exp(self.random.gauss(0, self.noise))

        return run

    def latencies(self, *seconds: float, budget: float = 10.0) -> Latencies:
        return measure_calls([self.call(each) for each in seconds], seconds=budget, clock=self.clock)


def test_tells_three_percent_through_five_percent_of_noise() -> None:
    right = sum(Machine(seed, 0.05).latencies(20e-3, 20.6e-3).slower(1, 0) for seed in range(20))
    assert right >= 18


def test_equals_are_seldom_told_apart() -> None:
    # At 5 % a side, 40 trials give 2 on average; 8 or more have a probability of 0.0007.
    wrong = sum(Machine(seed, 0.05).latencies(20e-3, 20e-3, budget=5.0).slower(1, 0) for seed in range(40))
    assert wrong < 8


def test_the_interval_holds_the_true_ratio() -> None:
    # The interval misses in at most 5 % of the trials: 40 give 2 on average, 8 or more have a probability of 0.0007.
    found = [Machine(seed, 0.1).latencies(22e-3, 20e-3, budget=3.0).compare(0, 1) for seed in range(40)]
    assert sum(not each.low <= 1.1 <= each.high for each in found) < 8
    assert all(each.low <= each.ratio <= each.high for each in found)


def test_the_noise_is_that_of_the_samples() -> None:
    found = [Machine(seed, 0.05).latencies(20e-3, 20e-3).noise for seed in range(5)]
    assert all(0.03 < noise < 0.08 for noise in found)


def test_ends_in_time() -> None:
    machine = Machine(0, 0.02)
    assert machine.latencies(0.1, 0.1, budget=10.0).rounds >= 30
    assert machine.now < 10.5
    for seconds, rounds in ((1.0, 3), (10.0, 1)):
        slow = Machine(0, 0.02)
        assert slow.latencies(seconds, seconds, budget=10.0).rounds in (rounds, rounds + 1)
        assert slow.now < 10.0 + 3 * 1.5 * seconds
    exact = Machine(0, 0.0)
    assert exact.latencies(1e-3, 1e-3, budget=100.0).rounds in LOOKS


def test_nothing_is_collected_while_calls_are_timed_and_all_is_as_before_then() -> None:
    machine = Machine(0, 0.02)
    seen: list[bool] = []

    def run() -> None:
        seen.append(gc.isenabled())
        machine.call(0.1)()

    measure_calls([run, run], seconds=3.0, clock=machine.clock)
    assert not seen[-1]
    assert gc.isenabled()
    gc.disable()
    try:
        measure_calls([run], seconds=1.0, clock=machine.clock)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_ends_where_what_was_asked_is_known() -> None:
    machine = Machine(0, 0.3)
    asked: list[int] = []

    def settled(latencies: Latencies) -> bool:
        asked.append(latencies.rounds)
        return latencies.rounds >= 40

    runs = [machine.call(1e-3), machine.call(1e-3)]
    found = measure_calls(runs, seconds=100.0, settled=settled, clock=machine.clock)
    assert asked == [12, 24, 48]
    assert found.rounds == 48


def test_sessions_of_one_model_are_one_and_tell_their_noise() -> None:
    # The second session of the first model is slower by 4 %: of a model's two one deviates by 0.04 / 2 from their mean.
    machine = Machine(0, 0.002)
    runs = [machine.call(seconds) for seconds in (20e-3, 20.8e-3, 10e-3, 10e-3)]
    found = measure_calls(runs, seconds=10.0, replicas=2, clock=machine.clock)
    assert len(found.samples) == 2
    assert found.compare(0, 1).ratio == pytest.approx(math.sqrt(20 * 20.8) / 10, rel=5e-3)
    assert found.session_noise == pytest.approx(0.04 / 2, rel=0.2)
    assert found.tolerance == found.session_noise
    alone = machine.latencies(20e-3, 10e-3)
    assert (alone.session_noise, alone.tolerance) == (0.0, NEGLIGIBLE)


def test_noise_from_round_to_round_is_not_taken_for_sessions_that_differ() -> None:
    found = []
    for seed in range(10):
        machine = Machine(seed, 0.2)
        runs = [machine.call(20e-3) for _ in range(4)]
        found.append(measure_calls(runs, seconds=5.0, replicas=2, clock=machine.clock))
    assert sum(latencies.tolerance > NEGLIGIBLE for latencies in found) <= 2
    assert all(latencies.noise > 0.1 for latencies in found)


def test_a_run_that_is_interrupted_does_not_count() -> None:
    machine = Machine(0, 0.01)
    turn = itertools.count()

    def interrupted() -> None:
        machine.now += 50e-3 if next(turn) % 4 == 0 else 0.1e-3

    found = measure_calls([interrupted, machine.call(0.1e-3)], seconds=5.0, clock=machine.clock)
    assert found.compare(0, 1).ratio == pytest.approx(1.0, rel=0.5)
    assert found.medians[0] == pytest.approx(0.1e-3)


def test_every_model_runs_at_every_place() -> None:
    order: list[int] = []

    def call(index: int) -> Callable[[], None]:
        return lambda: order.append(index)

    clock = itertools.count()
    measure_calls([call(index) for index in range(3)], seconds=400.0, clock=lambda: next(clock) * 1.0)
    rounds = [tuple(order[start : start + 3]) for start in range(9, len(order), 3)]
    assert len(rounds) >= 6
    assert all(sorted(each) == [0, 1, 2] for each in rounds)
    assert len(set(rounds[:6])) == 6


def test_the_sign_test_is_exact() -> None:
    comparison = compare([2.0] * 9 + [1.0], [1.0] * 9 + [2.0])
    assert comparison.slower == pytest.approx(11 / 1024)
    assert comparison.faster == pytest.approx(1023 / 1024)
    assert comparison.ratio == 2.0
    # Of ten values the second lowest and second highest make an interval of the median at 1 - 2 * 11/1024.
    assert compare([float(value) for value in range(1, 11)], [1.0] * 10).low == 2.0
    assert compare([float(value) for value in range(1, 11)], [1.0] * 10).high == 9.0
    assert compare([1.0] * 4, [2.0] * 4).high == math.inf
    assert compare([1.0] * 9, [1.0] * 9).slower == 1.0


def chain(length: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Sin", [f"x{step}"], [f"x{step + 1}"]) for step in range(length)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info(f"x{length}", TensorProto.FLOAT, [64, 64])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_measures_models_in_onnxruntime() -> None:
    feed, runtime = {"x0": np.ones((64, 64), np.float32)}, Runtime(threads=1)
    calls = [ready(load(chain(length)), feed, runtime) for length in (2, 2, 24, 24)]
    found = measure_calls(calls, threads=1, seconds=1.0, replicas=2)
    assert len(found.samples) == 2
    assert found.rounds >= 1
    # Twelve times the work, whatever else the machine has to do.
    assert min(found.samples[1]) > min(found.samples[0])
