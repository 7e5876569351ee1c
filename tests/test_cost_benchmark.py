"""The benchmark of cost models: its figures, and the models that it draws from an e-graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import cost_models, draws, truth
from superopt.evaluate import Runner
from superopt.inputs.sample import sample


def test_ranks_are_those_of_the_definition() -> None:
    assert truth.ranks([10.0, 30.0, 20.0]).tolist() == [0, 2, 1]
    assert truth.ranks([1.0, 2.0, 2.0, 3.0]).tolist() == [0, 1.5, 1.5, 3]


def test_correlation_is_spearmans() -> None:
    assert truth.correlation([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1)
    assert truth.correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # Without ties it is 1 - 6 sum(d^2) / (n (n^2 - 1)).
    assert truth.correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert truth.correlation([1, 1, 1], [1, 2, 3]) == 0


def test_regret_is_what_the_predicted_best_loses() -> None:
    steady = truth.Truth(((10, 12, 11),) * 2, (1, 1))
    assert steady.regret([3, 1, 2]) == pytest.approx(0.2)
    assert steady.regret([1, 2, 3]) == 0
    assert steady.regret([1, 1, 3]) == pytest.approx(0.1)
    assert cost_models.mean_error([2, 3], [1, 4]) == pytest.approx((1 + 0.25) / 2)


def test_noise_makes_no_regret() -> None:
    # Each heat has another fastest one by chance; judged where it was found, it would look 10 % faster than it is.
    noisy = truth.Truth(((90, 100, 100), (100, 90, 100)), (1, 1))
    assert noisy.regret([2, 2, 1]) == 0
    assert noisy.reliability < 0
    assert noisy.noise == pytest.approx(np.log(100 / 90))


def test_a_latency_is_what_a_model_takes_of_its_rounds() -> None:
    # The second round was slow as a whole, and something else hit one sample of the third.
    rounds = [[1.0, 2.0, 4.0], [3.0, 6.0, 12.0], [1.0, 9.0, 4.0], [1.0, 2.0, 4.0], [1.0, 2.0, 4.0]]
    assert truth.figures(rounds) == pytest.approx((1.0, 2.0, 4.0))


def test_heats_have_sessions_of_their_own_and_rounds_of_all_models() -> None:
    now, ran, loads = [0.0], [], []

    def load() -> list[truth.Run]:
        loads.append(len(ran))

        def model(index: int) -> truth.Run:
            def run() -> None:
                ran.append(index)
                now[0] += 0.03 * (index + 1)

            return run

        return [model(index) for index in range(3)]

    found = truth.latencies(load, seconds=0.0, seed=0, clock=lambda: now[0])
    assert len(loads) == truth.HEATS
    assert found.rounds == (truth.LEAST_ROUNDS,) * 2
    assert found.seconds == pytest.approx((0.03, 0.06, 0.09))
    warm = 2 * 3
    rounds = [tuple(ran[start : start + 3]) for start in range(warm, loads[1], 3)]
    assert all(sorted(order) == [0, 1, 2] for order in rounds)
    assert len(set(rounds)) > 1


def test_variants_differ_and_compute_the_same() -> None:
    original, variants, _ = draws.drawn("squeezenet", 3, 0, tiny=True, nodes=300)
    again = draws.drawn("squeezenet", 3, 0, tiny=True, nodes=300)[1]
    assert [variant.graph.text() for variant in variants] == [variant.graph.text() for variant in again]
    assert len({variant.graph.text() for variant in variants}) == len(variants) == 4
    assert variants[0].model is original
    feed = sample(original).values[0]
    wanted = Runner(original).run(feed)
    for variant in variants[1:]:
        found = Runner(variant.model).run(feed)
        for name, value in wanted.items():
            scale = float(np.abs(value).max())
            assert float(np.abs(found[name] - value).max()) <= 1e-4 * scale


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def outcome(network: str, costs: list[str], given: object) -> cost_models.Outcome:
        if asked:
            raise KeyboardInterrupt
        asked.append(network)
        score = cost_models.Score(network, "nodes", 0.5, None, 0.01, 0.0)
        heats = ((1.0, 2.0), (1.0, 2.0))
        return cost_models.Outcome(network, (score,), heats, (1.0, 2.0), {"nodes": (1.0, 2.0)}, (5, 5), 1, 0, 0, 1, 1)

    monkeypatch.setattr(cost_models, "run", outcome)
    out = tmp_path / "out.json"
    command = ["--models", "squeezenet", "bert", "--cost", "nodes", "--json", str(out)]
    with pytest.raises(KeyboardInterrupt):
        cost_models.main(command)
    first, asked[:] = asked[0], []
    assert cost_models.main(command) == 0
    assert (first, asked) == ("squeezenet", ["bert"])
    asked[:] = []
    with pytest.raises(KeyboardInterrupt):
        cost_models.main([*command, "--seed", "1"])  # other settings begin anew
    assert asked == ["squeezenet"]
