"""Layers that share their input: merged into one, with groups and without, and what comes out is what each gave."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt import rule_text
from superopt.engine.saturate import Limits, Saturation, saturate
from superopt.lowering.lower import lower
from superopt.models.model import load
from superopt.numeric import settle

CHANNELS, SIZE = 8, 6
SIBLINGS = rule_text.load("siblings")


class Layers:
    """A model whose layers all take the input ``x``."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(11)

    def weight(self, *shape: int) -> str:
        array = self.random.standard_normal(shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return f"w{len(self.weights) - 1}"

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def conv(self, rows: int, group: int, taps: int = 3) -> str:
        """A padded Conv with a bias."""
        weight, bias = self.weight(rows, CHANNELS // group, taps, taps), self.weight(rows)
        return self.node("Conv", "x", weight, bias, pads=[taps // 2] * 4, group=group)

    def model(self) -> onnx.ModelProto:
        """Every layer is an output, behind an activation."""
        outputs = [helper.make_tensor_value_info(self.node("Relu", name), TensorProto.FLOAT, None)
                   for node in list(self.nodes) for name in node.output]  # fmt: skip
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *self.shape])
        graph = helper.make_graph(self.nodes, "layers", [x], outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convs(group: int, *rows_and_taps: tuple[int, int]) -> Layers:
    layers = Layers(CHANNELS, SIZE, SIZE)
    for rows, taps in rows_and_taps:
        layers.conv(rows, group, taps)
    return layers


def products() -> Layers:
    layers = Layers(5, CHANNELS)
    for width in (3, 4, 2):
        layers.node("MatMul", "x", layers.weight(CHANNELS, width))
    return layers


def gemms() -> Layers:
    layers = Layers(CHANNELS)
    for width in (3, 4):
        layers.node("Gemm", "x", layers.weight(width, CHANNELS), layers.weight(width), transB=1)
    return layers


CASES: dict[str, tuple[Callable[[], Layers], str]] = {
    "without groups": (lambda: convs(1, (4, 3), (3, 3), (5, 3)), "sibling-convs"),
    "two groups": (lambda: convs(2, (4, 3), (2, 3), (6, 3)), "sibling-grouped-convs"),
    "depthwise": (lambda: convs(8, (8, 3), (16, 3)), "sibling-grouped-convs"),
    "different kernels": (lambda: convs(1, (4, 3), (3, 1)), "sibling-convs-of-different-kernels"),
    "different kernels in groups": (lambda: convs(4, (4, 5), (8, 3)), "sibling-grouped-convs-of-different-kernels"),
    "different kernels by channel": (lambda: convs(8, (8, 1), (8, 3)), "sibling-grouped-convs-of-different-kernels"),
    "products": (products, "sibling-matmuls"),
    "affine layers": (gemms, "sibling-gemms"),
}


def saturated(model: onnx.ModelProto) -> Saturation:
    loaded = load(model)
    return saturate(settle(lower(loaded).graph, context=loaded.proto), SIBLINGS, Limits(), loaded.opset)


@pytest.mark.parametrize("what", CASES)
def test_siblings_are_merged_and_each_gets_its_own(what: str) -> None:
    build, rule = CASES[what]
    model = build().model()
    result = saturated(model)
    assert result.stopped_by == "saturated"
    assert result.matches[rule] >= 1
    merged = [result.egraph.classes[root] for root in result.egraph.class_of]
    assert any(node.op == "Project" and node.rule == rule for eclass in merged for node in eclass.nodes)
    checked = superopt.optimize(model, rules=["batchnorm", "affine", "siblings"], check_classes=True, select="modelled")
    assert checked.report["verified"] is True
    assert checked.report["left_out"] == []


def test_siblings_in_other_groups_are_no_siblings() -> None:
    layers = convs(2, (4, 3))
    layers.conv(4, 4)
    assert not any(saturated(layers.model()).matches[name] for name in ("sibling-convs", "sibling-grouped-convs"))
