"""An Add is written as a Sum where onnxruntime loses by what it makes of it, and there alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import superopt
from tests.test_fusions import kernels, normed

WHOLE = "y = LayerNormalization(a, scale, shift)"
PARTS = f"{normed('a')} j = Mul(i, scale) y = Add(j, shift)"


def model_of(nodes: str, opset: int = 17) -> onnx.ModelProto:
    graph = onnx.parser.parse_graph(f"g (float[1,64,256] x) => (float[1,64,256] y) {{ {nodes} }}")
    stored = {"two": np.array(2.0), "eps": np.array(1e-5), "scale": np.linspace(1, 2, 256), "shift": np.ones(256)}
    used = {name for node in graph.node for name in node.input}
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in stored.items() if name in used
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(("norm", "opset"), [(WHOLE, 17), (PARTS, 13)])
def test_the_sum_before_a_normalization_is_not_part_of_it(norm: str, opset: int, tmp_path: Path) -> None:
    model = model_of(f"z = Sigmoid(x) a = Add(x, z) {norm}", opset)
    assert "SkipLayerNormalization" in kernels(model, tmp_path / "before.onnx")
    result = superopt.optimize(model, select="modelled", explain=tmp_path / "why")
    assert kernels(result.model, tmp_path / "after.onnx") == ["Sigmoid", "Sum", "LayerNormalization"]
    assert result.report["verified"]
    assert "add-as-sum" in result.report["rules_used"]
    assert result.report["cost"]["after"] < result.report["cost"]["before"]
    assert result.report["problems"] == []


@pytest.mark.parametrize(
    "nodes",
    [
        "z = Sigmoid(x) a = Add(x, z) n = LayerNormalization(a, scale, shift) y = Mul(n, a)",
        "z = Sigmoid(x) y = Add(x, z)",
    ],
)
def test_another_sum_stays_as_it_is(nodes: str) -> None:
    result = superopt.optimize(model_of(nodes), select="modelled")
    assert not result.report["changed"]


def test_without_the_rule_nothing_is_written_otherwise() -> None:
    model = model_of(f"z = Sigmoid(x) a = Add(x, z) {WHOLE}")
    assert not superopt.optimize(model, select="modelled", without="add-as-sum").report["changed"]


def test_a_runtime_that_fuses_nothing_is_given_the_sum_as_it_was() -> None:
    model = model_of(f"z = Sigmoid(x) a = Add(x, z) {WHOLE}")
    assert not superopt.optimize(model, select="modelled", cost="flops").report["changed"]
