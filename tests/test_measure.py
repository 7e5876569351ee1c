"""Measuring, on a clock of our own and on small models in onnxruntime."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from superopt.errors import EvaluationError
from superopt.measure import LEAST_ROUNDS, MOST_ROUNDS, Latencies, compare, measure, measure_calls


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


def test_ends_in_time_and_after_enough_rounds() -> None:
    machine = Machine(0, 0.02)
    assert machine.latencies(0.1, 0.1, budget=10.0).rounds >= 40
    assert machine.now < 10.5
    slow = Machine(0, 0.02)
    assert slow.latencies(1.0, 1.0, budget=10.0).rounds == LEAST_ROUNDS
    slower = Machine(0, 0.02)
    assert slower.latencies(10.0, 10.0, budget=10.0).rounds == 1
    exact = Machine(0, 0.0)
    assert exact.latencies(1e-3, 1e-3, budget=100.0).rounds <= MOST_ROUNDS


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


def latencies(*rows: float) -> Latencies:
    return Latencies(tuple(tuple(row * (1 + 0.001 * (step % 3)) for step in range(12)) for row in rows), 1, 1)


def test_the_fastest_wins_and_what_is_slower_than_the_original_is_out() -> None:
    assert latencies(1.0, 0.9, 1.1).best(0, [1, 2], {1: 5.0, 2: 1.0}) == 1
    assert latencies(1.0, 1.1, 1.2).best(0, [1, 2], {1: 5.0, 2: 1.0}) == 0
    assert latencies(1.0, 1.0, 1.0).best(0, [1, 2], {1: 5.0, 2: 1.0}) == 2
    assert latencies(1.0).best(0, [], {}) == 0


def chain(length: int) -> bytes:
    nodes = [helper.make_node("Sin", [f"x{step}"], [f"x{step + 1}"]) for step in range(length)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info(f"x{length}", TensorProto.FLOAT, [64, 64])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_measures_models_in_onnxruntime(tmp_path: Path) -> None:
    file = tmp_path / "long.onnx"
    file.write_bytes(chain(24))
    feeds = {"x0": np.ones((64, 64), np.float32), "unused": np.ones(1, np.float32)}
    found = measure([chain(2), file], feeds, threads=1, seconds=1.0)
    assert len(found.samples) == 2
    assert found.rounds >= LEAST_ROUNDS
    assert found.slower(1, 0)
    assert found.best(1, [0], {0: 1.0}) == 0


def test_a_model_that_does_not_run_is_one_line() -> None:
    with pytest.raises(EvaluationError, match="cannot load") as error:
        measure([b"nonsense"], {})
    assert "\n" not in str(error.value)
    with pytest.raises(EvaluationError, match="cannot run"):
        measure([chain(1)], {"x0": np.ones((3, 3), np.float32)})
    with pytest.raises(EvaluationError, match="no model"):
        measure([], {})
