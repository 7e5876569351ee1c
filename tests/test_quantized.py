"""Quantized models: pairs of QuantizeLinear and DequantizeLinear, and the integer weights behind them, stay."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.rule_text import load as load_rules
from superopt.rules import RuleSet

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)


@functools.cache
def rules() -> RuleSet:
    """The default rules, read once."""
    return load_rules("default")


def optimized(proto: onnx.ModelProto, **options: Any) -> superopt.Result:
    result = superopt.optimize(proto, **{"rules": rules(), "select": "modelled", **options})
    assert result.report["verified"], result.report["problems"]
    return result


def model(
    nodes: Sequence[onnx.NodeProto], weights: Mapping[str, Array], x: Sequence[Any], y: Sequence[Any], opset: int = 21
) -> onnx.ModelProto:
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items() if name in used],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def convolution(per_axis: bool, norm: bool, channels: int = 8) -> onnx.ModelProto:
    """A convolution between pairs, with integer weights and bias, and a batch normalization that could be folded."""
    scale = np.linspace(0.001, 0.004, channels, dtype=np.float32) if per_axis else np.float32(0.003)
    weights = {
        "xs": np.float32(0.05), "xz": np.int8(3), "ws": scale, "bs": np.float32(0.05) * scale,
        "wq": RNG.integers(-127, 127, (channels, 4, 3, 3)).astype(np.int8),
        "bq": RNG.integers(-1000, 1000, channels).astype(np.int32),
        "s": normal(channels), "t": normal(channels), "m": normal(channels), "v": np.abs(normal(channels)) + 1,
    }  # fmt: skip
    axis = {"axis": 0} if per_axis else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["wq", "ws"], ["wd"], **axis),
        helper.make_node("DequantizeLinear", ["bq", "bs"], ["bd"], **axis),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["c"], pads=[1, 1, 1, 1]),
        *([helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"])] if norm else []),
        helper.make_node("Relu", ["n" if norm else "c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "xs", "xz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "xs", "xz"], ["y"]),
    ]
    return model(nodes, weights, ["n", 4, 8, 8], ["n", channels, 8, 8])


def product(dtype: type[Any], block: int | None) -> onnx.ModelProto:
    """A product with integer weights, in blocks or per column; a scale behind it that could go into the weights."""
    low, high = (-8, 8) if dtype is ml_dtypes.int4 else (0, 16)
    scale = np.abs(normal(16 // block, 32)) if block else np.abs(normal(32))
    weights = {
        "wq": RNG.integers(low, high, (16, 32)).astype(dtype), "ws": scale / 8, "k": np.abs(normal(32)),
        "p": np.array([0, 2, 1]), "shape": np.array([2, -1, 32]),
    }  # fmt: skip
    attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", ["wq", "ws"], ["w"], **attributes),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Mul", ["h", "k"], ["i"]),
        helper.make_node("Reshape", ["i", "shape"], ["j"]),
        helper.make_node("Identity", ["j"], ["y"]),
    ]
    return model(nodes, weights, ["n", 16], [2, "m", 32])


MODELS = {
    "conv": convolution(per_axis=False, norm=False),
    "conv per axis": convolution(per_axis=True, norm=False),
    "conv and batchnorm": convolution(per_axis=False, norm=True),
    "conv per axis and batchnorm": convolution(per_axis=True, norm=True),
    "int4": product(ml_dtypes.int4, None),
    "uint4 in blocks": product(ml_dtypes.uint4, 8),
}


def integers(proto: onnx.ModelProto) -> Counter[tuple[int, tuple[int, ...], bytes]]:
    """The integer weights of a model."""
    kinds = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4, TensorProto.INT32)
    return Counter(
        (tensor.data_type, tuple(tensor.dims), tensor.raw_data)
        for tensor in proto.graph.initializer
        if tensor.data_type in kinds
    )


def pairs(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in proto.graph.node if node.op_type.endswith("Linear"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("numeric", ["reassociates", "exact"])
def test_pairs_and_integer_weights_stay(name: str, numeric: str) -> None:
    proto = MODELS[name]
    result = optimized(proto, numeric=numeric, max_growth=None)
    assert integers(result.model) == integers(proto)
    assert pairs(result.model) == pairs(proto)


def test_what_is_around_them_is_optimized() -> None:
    result = optimized(MODELS["int4"])
    assert [node.op_type for node in result.model.graph.node] == ["DequantizeLinear", "MatMul", "Mul", "Reshape"]


def test_float_weights_before_a_pair_are_quantized_once() -> None:
    """What QuantizeLinear makes of a constant is a constant; what DequantizeLinear makes of that is not."""
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    weights = {"w": normal(16, 32), "s": np.float32(0.05), "z": np.int8(0)}
    result = optimized(model(nodes, weights, ["n", 16], ["n", 32]))
    assert [node.op_type for node in result.model.graph.node] == ["DequantizeLinear", "MatMul"]
    kinds = {tensor.name: tensor.data_type for tensor in result.model.graph.initializer}
    assert sorted(kinds.values()) == [TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT8]


def test_integer_and_dynamic_operators_are_left_alone() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("DynamicQuantizeLinear", ["i"], ["xq", "xs", "xz"]),
        helper.make_node("MatMulInteger", ["xq", "wq", "xz", "wz"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["xs", "ws"], ["k"]),
        helper.make_node("Mul", ["f", "k"], ["y"]),
    ]
    weights = {
        "wq": RNG.integers(-127, 127, (16, 32)).astype(np.int8), "wz": np.int8(0), "ws": np.float32(0.02),
    }  # fmt: skip
    proto = model(nodes, weights, ["n", 16], ["n", 32], opset=17)
    result = optimized(proto)
    assert [line["operator"] for line in result.report["opaque"]] == ["DynamicQuantizeLinear", "MatMulInteger"]
    kinds = [node.op_type for node in result.model.graph.node]
    assert kinds[:3] == ["DynamicQuantizeLinear", "MatMulInteger", "Cast"]
    assert integers(result.model) == integers(proto)
