"""The made-up networks are what they say: valid at every opset, of sane numbers, and the same in both forms."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks import models
from tests.models import feed, run, tiny

ERF_SINCE = 9
NEEDS_ERF = {"bert", "bert-lora", "vit-tiny", "fastvit-like", "convnext-atto"}


OPSETS = (7, 9, 11, 13, 17, 21)
WRITABLE = [
    (name, opset) for name in models.BUILDERS for opset in OPSETS if name not in NEEDS_ERF or opset >= ERF_SINCE
]


@pytest.mark.parametrize(("name", "opset"), WRITABLE)
def test_every_network_runs_and_its_numbers_are_sane(name: str, opset: int) -> None:
    model = tiny(name, opset=opset)
    assert model.opset_import[0].version == opset
    outputs = run(model, feed(model))
    assert outputs
    for values in outputs.values():
        assert np.isfinite(values).all()
        assert 1e-3 < np.abs(values).max() < 100
        assert values.std() > 1e-4


@pytest.mark.parametrize("name", ["mobileone-s0", "repvgg-a0"])
def test_the_plain_form_computes_what_the_training_form_does(name: str) -> None:
    train, plain = tiny(name), tiny(f"{name}-plain")
    inputs = feed(train)
    (expected,), (found,) = run(train, inputs).values(), run(plain, inputs).values()
    assert np.abs(expected - found).max() < 1e-5 * np.abs(expected).max()
    assert not any(node.op_type == "BatchNormalization" for node in plain.graph.node)
    assert len(plain.graph.node) < len(train.graph.node) / 2


def test_a_seed_makes_one_model() -> None:
    first, again = (models.build("repvgg-a0", size=models.TINY).SerializeToString() for _ in range(2))
    assert first == again
    assert first != models.build("repvgg-a0", seed=1, size=models.TINY).SerializeToString()


def test_the_deep_network_has_the_nodes_asked_for_and_forgets_rounding() -> None:
    model = models.deep(1000)
    assert abs(len(model.graph.node) - 1000) < 20
    inputs = feed(model)
    (before,) = run(model, inputs).values()
    (after,) = run(model, {name: np.nextafter(array, np.float32(9)) for name, array in inputs.items()}).values()
    assert np.abs(before - after).max() < 1e-5 * np.abs(before).max()


def test_parameters_move_to_nodes_and_to_inputs() -> None:
    model = tiny("ssd")
    inputs = feed(model)
    expected = run(model, inputs)
    as_nodes, as_inputs = models.parameters_as_nodes(model), models.parameters_as_inputs(model)
    assert not as_nodes.graph.initializer
    assert len(as_inputs.graph.input) == len(model.graph.input) + len(model.graph.initializer)
    for moved in (as_nodes, as_inputs):
        onnx.checker.check_model(moved)
        for name, values in run(moved, inputs).items():
            assert np.array_equal(values, expected[name])
