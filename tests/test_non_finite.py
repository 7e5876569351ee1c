"""Folds that overflow: a finite output never becomes NaN or infinite, nor an infinite one NaN."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from tests.rounds import session


def conv_and_batchnorm(
    dtype: type[np.floating], weight: float, scale: object, var: object, epsilon: float
) -> onnx.ModelProto:
    """A 3x3 Conv of three channels and a BatchNormalization with these statistics."""
    kind = TensorProto.FLOAT16 if dtype is np.float16 else TensorProto.FLOAT
    rng = np.random.default_rng(3)
    values = {
        "w": rng.normal(0, weight, (3, 3, 3, 3)), "s": np.broadcast_to(scale, 3), "t": np.zeros(3),
        "m": np.zeros(3), "v": np.broadcast_to(var, 3),
    }  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["y"], epsilon=epsilon),
        ],
        "g",
        [helper.make_tensor_value_info("x", kind, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", kind, [1, 3, 4, 4])],
        [numpy_helper.from_array(np.asarray(value, dtype), name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize(
    ("dtype", "weight", "scale", "var", "epsilon", "size"),
    [
        (np.float16, 1000.0, 100.0, 1e-7, 1e-5, 1e-3),
        (np.float32, 1.0, 1.0, [0.0, 1.0, 1.0], 0.0, 1.0),
        (np.float32, 1.0, [np.inf, 1.0, 1.0], 1.0, 1e-5, 1.0),
    ],
    ids=["float16 overflows", "variance of zero", "infinite scale"],
)
def test_what_is_finite_stays_finite(
    dtype: type[np.floating], weight: float, scale: object, var: object, epsilon: float, size: float
) -> None:
    model = conv_and_batchnorm(dtype, weight, scale, var, epsilon)
    feed = {"x": (np.random.default_rng(5).normal(0, size, (1, 3, 6, 6))).astype(dtype)}
    result = superopt.optimize(model, select="modelled").model
    (before,), (after,) = (session(one.SerializeToString()).run(None, feed) for one in (model, result))
    assert np.array_equal(np.isnan(before), np.isnan(after))
    assert np.array_equal(np.isinf(before), np.isinf(after))
