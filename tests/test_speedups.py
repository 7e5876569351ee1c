"""What makes models of a kind faster is found in a small model of that kind, by the rules that are on by default."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import superopt
from tests.models import from_text
from tests.test_fusions import kernels

Array = NDArray[Any]


def weight(*shape: int) -> Array:
    drawn = np.random.default_rng(shape).standard_normal(shape) / np.sqrt(shape[0])
    return drawn.astype(np.float32)


def number(value: float) -> Array:
    return np.array(value, np.float32)


AXIS = np.array([1])

MODELS: dict[str, tuple[str, dict[str, Array]]] = {
    "mean over tokens": (
        """g (float[1,128,64] x) => (float[1,64] y) {
            h = MatMul(x, w) r = Relu(h) o = MatMul(r, v) p = Add(b, o) s = Add(p, x)
            y = ReduceMean<axes=[1], keepdims=0>(s)
        }""",
        {"w": weight(64, 256), "v": weight(256, 64), "b": weight(64)},
    ),
    "mean over space": (
        """g (float[1,32,16,16] x) => (float[1,64] y) {
            r = Relu(x) c = Conv(r, w) n = BatchNormalization(c, s, b, m, v) y = ReduceMean<axes=[2,3], keepdims=0>(n)
        }""",
        {"w": weight(64, 32, 1, 1), "s": weight(64), "b": weight(64), "m": weight(64), "v": np.abs(weight(64)) + 1},
    ),
    "average of a pointwise convolution": (
        """g (float[1,64,32,32] x) => (float[1,32,16,16] y) {
            r = Relu(x) c = Conv(r, w) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(c)
        }""",
        {"w": weight(32, 64, 1, 1)},
    ),
    "pointwise convolution of an enlarged image": (
        """g (float[1,32,16,16] x) => (float[1,8,32,32] y) {
            r = Relu(x) u = Resize<mode="linear">(r, , scales) y = Conv(u, w, b)
        }""",
        {"scales": np.array([1, 1, 2, 2], np.float32), "w": weight(8, 32, 1, 1), "b": weight(8)},
    ),
    "shrunk result of a pointwise convolution": (
        """g (float[1,32,16,16] x) => (float[1,64,8,8] y) {
            r = Relu(x) c = Conv(r, w, b) y = Resize<mode="nearest">(c, , , sizes)
        }""",
        {"sizes": np.array([1, 64, 8, 8]), "w": weight(64, 32, 1, 1), "b": weight(64)},
    ),
    "first token": (
        """g (float[b,t,64] x) => (float[b,10] y) {
            n = LayerNormalization<axis=-1>(x, s, b) h = MatMul(n, w) g = Tanh(h) o = MatMul(g, v) r = Add(x, o)
            l = Gather<axis=1>(r, first) y = MatMul(l, u)
        }""",
        {
            "s": weight(64), "b": weight(64), "w": weight(64, 128), "v": weight(128, 64), "u": weight(64, 10),
            "first": np.array(0),
        },
    ),
    "last token": (
        """g (float[1,128,64] x) => (float[1,1,10] y) {
            q = Pow(x, two) m = ReduceMean<axes=[-1]>(q) e = Add(m, eps) s = Sqrt(e) d = Div(x, s) n = Mul(k, d)
            h = MatMul(n, w) g = Sigmoid(h) i = Mul(h, g) o = MatMul(i, v) r = Add(x, o)
            l = Slice(r, start, end, axis) y = MatMul(l, u)
        }""",
        {
            "two": number(2), "eps": number(1e-5), "k": weight(64), "w": weight(64, 128), "v": weight(128, 64),
            "u": weight(64, 10), "start": np.array([-1]), "end": np.array([128]), "axis": AXIS,
        },
    ),
    "channels last": (
        """g (float[1,16,16,3] x) => (float[1,8,8,16] y) {
            a = Transpose<perm=[0,3,1,2]>(x) c = Conv<pads=[1,1,1,1]>(a, w, b)
            t = Transpose<perm=[0,2,3,1]>(c) r = Relu(t)
            p = Transpose<perm=[0,3,1,2]>(r) q = MaxPool<kernel_shape=[2,2], strides=[2,2]>(p)
            u = Transpose<perm=[0,2,3,1]>(q) v = Add(u, k) s = Sigmoid(v) y = Mul(v, s)
        }""",
        {"w": weight(16, 3, 3, 3), "b": weight(16), "k": weight(16)},
    ),
    "scaled attention": (
        """g (float[1,64,32] x) => (float[1,4,64,64] y) {
            q = MatMul(x, w) qb = Add(q, b) qr = Reshape(qb, shape) qt = Transpose<perm=[0,2,1,3]>(qr)
            k = MatMul(x, v) kr = Reshape(k, shape) kt = Transpose<perm=[0,2,3,1]>(kr)
            s = MatMul(qt, kt) d = Div(s, root) y = Softmax<axis=-1>(d)
        }""",
        {"w": weight(32, 32), "v": weight(32, 31)[:, [*range(31), 0]], "b": weight(32), "shape": np.array([0, 0, 4, 8]),
         "root": number(3)},
    ),
    "adapter": (
        """g (float[1,32,64] x) => (float[1,32,64] y) {
            p = MatMul(x, w) q = Add(p, b) d = MatMul(x, u) v = MatMul(d, o) s = Mul(v, k) y = Add(q, s)
        }""",
        {"w": weight(64, 64), "b": weight(64), "u": weight(64, 4), "o": weight(4, 64), "k": number(2)},
    ),
    "adapter of matrices": (
        """g (float[32,64] x) => (float[32,64] y) {
            q = Gemm<transB=1>(x, w, b) d = Gemm<transB=1>(x, u) v = Gemm<transB=1>(d, o) s = Mul(v, k) y = Add(q, s)
        }""",
        {"w": weight(64, 64), "b": weight(64), "u": weight(4, 64), "o": weight(64, 4), "k": number(2)},
    ),
    "adapter of a convolution": (
        """g (float[1,16,8,8] x) => (float[1,16,8,8] y) {
            q = Conv<pads=[1,1,1,1]>(x, w, b) d = Conv<pads=[1,1,1,1]>(x, u) v = Conv(d, o) s = Mul(v, k) y = Add(q, s)
        }""",
        {
            "w": weight(16, 16, 3, 3), "b": weight(16), "u": weight(4, 16, 3, 3), "o": weight(16, 4, 1, 1),
            "k": number(2),
        },
    ),
    "responses normalized over an image": (
        """g (float[b,16,8,8] x) => (float[b,8,8,8] y) {
            n = ReduceL2<axes=[2,3]>(x) m = ReduceMean<axes=[1]>(n) e = Add(m, eps) d = Div(n, e)
            p = Mul(x, d) q = Mul(gamma, p) s = Add(q, beta) r = Add(x, s) y = Conv(r, w, b)
        }""",
        {"eps": number(1e-6), "gamma": weight(16, 1, 1), "beta": weight(1, 16, 1, 1), "w": weight(8, 16, 1, 1),
         "b": weight(8)},
    ),
    "what a gate refines": (
        """g (float[b,16,8,8] x) => (float[b,16,8,8] y) {
            a = GlobalAveragePool(x) c = Conv(a, w, b) s = Sigmoid(c) m = Mul(s, x) y = Add(m, x)
        }""",
        {"w": weight(16, 16, 1, 1), "b": weight(16)},
    ),
    "numbers with as many axes as the image": (
        """g (float[1,16,16,8] x) => (float[1,8,16,16] y) {
            d = Div(x, root) e = Erf(d) f = Add(e, one) h = Mul(x, half) g = Mul(h, f)
            y = Transpose<perm=[0,3,1,2]>(g)
        }""",
        {"root": number(2**0.5).reshape(1, 1, 1, 1), "one": number(1).reshape(1, 1, 1),
         "half": number(0.5).reshape(1, 1, 1, 1)},
    ),
    "hard swish in parts": (
        """g (float[1,8,8,8] x) => (float[1,8,8,8] y) {
            a = Add(x, three) r = Relu(a) m = Min(r, six) s = Mul(m, sixth) y = Mul(x, s)
        }""",
        {"three": number(3), "six": number(6), "sixth": number(1 / 6)},
    ),
    "powers": (
        "g (float[1,8,8,8] x) => (float[1,8,8,8] y) { s = Pow(x, two) h = Pow(s, half) y = Pow(h, minus) }",
        {"two": np.array(2), "half": number(0.5), "minus": number(-0.5)},
    ),
    "leaky relu as a maximum": (
        "g (float[1,8,8,8] x) => (float[1,8,8,8] y) { s = Mul(x, a) y = Max(x, s) }",
        {"a": number(0.1)},
    ),
    "sigmoid in parts": (
        "g (float[1,8,8,8] x) => (float[1,8,8,8] y) { n = Neg(x) e = Exp(n) p = Add(e, one) y = Div(one, p) }",
        {"one": number(1)},
    ),
}  # fmt: skip


@cache
def optimized(kind: str) -> onnx.ModelProto:
    text, weights = MODELS[kind]
    result = superopt.optimize(from_text(text, weights), select="modelled")
    assert result.report["verified"]
    assert result.report["changed"]
    return result.model


def operators(kind: str) -> list[str]:
    return [node.op_type for node in optimized(kind).graph.node]


def shapes(kind: str, op: str) -> list[list[int]]:
    """The shapes of what the nodes of this operator give, 0 for open dimensions."""
    model = optimized(kind)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = {value.name: value for value in (*inferred.value_info, *inferred.output)}
    return [
        [dim.dim_value for dim in known[node.output[0]].type.tensor_type.shape.dim]
        for node in model.graph.node
        if node.op_type == op
    ]


def test_a_mean_is_taken_before_the_layers_that_are_linear() -> None:
    assert operators("mean over tokens").count("MatMul") + operators("mean over tokens").count("Gemm") == 2
    assert [64] not in [shape[1:] for shape in shapes("mean over tokens", "MatMul")]
    assert shapes("mean over space", "Conv") == [[1, 64, 1, 1]]
    assert operators("average of a pointwise convolution") == ["Relu", "AveragePool", "Conv"]


def test_images_are_resized_where_they_have_fewer_channels_and_convolved_where_they_have_fewer_places() -> None:
    assert operators("pointwise convolution of an enlarged image") == ["Relu", "Conv", "Resize"]
    assert operators("shrunk result of a pointwise convolution") == ["Relu", "Resize", "Conv"]


@pytest.mark.parametrize("opset", [11, 13, 19])
def test_a_resize_is_written_as_its_opset_wants_it(opset: int) -> None:
    text, weights = MODELS["pointwise convolution of an enlarged image"]
    model = from_text(
        text.replace("(r, , scales)", "(r, roi, scales)"), {**weights, "roi": weights["b"][:0]}, opset=opset
    )
    result = superopt.optimize(model, select="modelled")
    assert result.report["verified"]
    assert [node.op_type for node in result.model.graph.node] == ["Relu", "Conv", "Resize"]
    onnx.checker.check_model(result.model, full_check=True)


def test_layers_before_a_selection_are_computed_for_what_is_selected() -> None:
    assert operators("first token")[0] == "Gather"
    assert operators("last token")[0] in ("Gather", "Slice")
    assert {shape[1] for shape in shapes("last token", "MatMul")} == {1}


def test_transposes_sink_and_cancel() -> None:
    assert Counter(operators("channels last"))["Transpose"] == 2


def test_scales_go_through_attention_into_weights() -> None:
    assert not {"Mul", "Div"} & set(operators("scaled attention"))


def test_gates_are_scaled_and_shifted_before_they_are_applied() -> None:
    kind = "responses normalized over an image"
    assert shapes(kind, "Mul") == [[0, 16, 1, 1], [0, 16, 8, 8]]
    assert shapes(kind, "Add") == [[0, 1, 1, 1], [0, 16, 1, 1]]
    assert operators("what a gate refines") == ["GlobalAveragePool", "Conv", "Sigmoid", "Add", "Mul"]


def test_a_number_is_one_that_the_runtime_fuses(tmp_path: Path) -> None:
    model = optimized("numbers with as many axes as the image")
    assert kernels(model, tmp_path / "model.onnx") == ["Gelu", "Transpose"]


def test_adapters_are_merged() -> None:
    assert operators("adapter") == ["MatMul", "Add"]
    assert operators("adapter of matrices") == ["Gemm"]
    assert operators("adapter of a convolution") == ["Conv"]


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("hard swish in parts", ["HardSigmoid", "Mul"]),
        ("powers", ["Abs", "Sqrt", "Reciprocal"]),
        ("leaky relu as a maximum", ["LeakyRelu"]),
        ("sigmoid in parts", ["Sigmoid"]),
    ],
)
def test_what_exporters_took_apart_is_recognized(kind: str, found: list[str]) -> None:
    assert operators(kind) == found
