"""Bounds on rounding: a runtime stays within them, and they are no wider than the reductions they come from."""

from __future__ import annotations

import numpy as np
import pytest

from superopt import rule_text
from superopt.laws.error_bounds import ROUNDOFF, bounded, few_bits
from superopt.laws.instances import instances
from superopt.laws.runtime import run
from superopt.terms import Attrs, Node, TensorType, TermGraph


def product(length: int, dtype: str = "float32") -> TermGraph:
    nodes = (Node("Input", (), Attrs.of(name="x")), Node("Input", (), Attrs.of(name="y")), Node("MatMul", (0, 1)))
    types = (TensorType(dtype, (1, length)), TensorType(dtype, (length, 1)), TensorType(dtype, (1, 1)))
    return TermGraph(nodes, types, (2,))


@pytest.mark.parametrize("length", [1, 10, 1000])
def test_the_bound_of_a_product_grows_with_its_length(length: int) -> None:
    ones = {"x": np.ones((1, length), np.float32), "y": np.ones((length, 1), np.float32)}
    (found,) = bounded(product(length), ones)
    assert found.value.item() == length
    assert length * length * ROUNDOFF["float32"] <= found.bound.item() <= (length + 4) * length * ROUNDOFF["float32"]


@pytest.mark.parametrize("name", ["fold-batchnorm-into-conv", "matmul-of-matmul", "gelu-from-parts", "sum-of-convs"])
def test_a_runtime_stays_within_the_bound(name: str) -> None:
    rule = rule_text.load("default")[name]
    compared = 0
    for instance in instances(rule, points=12, seed=7):
        ran = run({"left": instance.left}, instance.arrays)
        if isinstance(ran, str):
            continue
        for value, found in zip(ran["left"], bounded(instance.left, instance.arrays), strict=True):
            sound = np.isfinite(found.value) & np.isfinite(found.bound)
            error = np.abs(value.astype(np.float64) - found.value)
            assert np.all(error[sound] <= found.bound[sound])
            compared += int(sound.sum())
    assert compared > 50


def test_what_rounds_and_what_stands_for_itself() -> None:
    values = np.asarray([0.0, 0.5, 3.0, 1000003.0, -0.75, 1 / 3, float(np.float16(1 / 9)), 1.001e-5])
    assert few_bits(values).tolist() == [True, True, True, True, True, False, False, False]
