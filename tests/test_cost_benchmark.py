"""The benchmark of cost models: its figures, and the models that it draws from an e-graph."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import cost_models
from superopt.evaluate import Runner
from superopt.inputs.sample import sample


def test_ranks_are_those_of_the_definition() -> None:
    assert cost_models.ranks([10.0, 30.0, 20.0]).tolist() == [0, 2, 1]
    assert cost_models.ranks([1.0, 2.0, 2.0, 3.0]).tolist() == [0, 1.5, 1.5, 3]


def test_correlation_is_spearmans() -> None:
    assert cost_models.correlation([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1)
    assert cost_models.correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # Without ties it is 1 - 6 sum(d^2) / (n (n^2 - 1)).
    assert cost_models.correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert cost_models.correlation([1, 1, 1], [1, 2, 3]) == 0


def test_regret_is_what_the_predicted_best_loses() -> None:
    assert cost_models.regret([3, 1, 2], [10, 12, 11]) == pytest.approx(0.2)
    assert cost_models.regret([1, 2, 3], [10, 12, 11]) == 0
    assert cost_models.regret([1, 1, 3], [10, 12, 11]) == pytest.approx(0.1)
    assert cost_models.mean_error([2, 3], [1, 4]) == pytest.approx((1 + 0.25) / 2)


def test_variants_differ_and_compute_the_same() -> None:
    original, variants, _ = cost_models.drawn("squeezenet", 3, 0, tiny=True, nodes=300)
    again = cost_models.drawn("squeezenet", 3, 0, tiny=True, nodes=300)[1]
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
