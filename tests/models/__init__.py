"""Small models for the tests: networks of ``benchmarks.models`` at their tiniest, and graphs written as text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from benchmarks import models
from benchmarks.network import TINY

Array = NDArray[Any]


def tiny(name: str, *, opset: int = 17, seed: int = 0) -> onnx.ModelProto:
    """A fresh copy of the network ``name`` of ``benchmarks.models`` at its smallest size."""
    return onnx.load_model_from_string(_tiny(name, opset, seed))


@cache
def _tiny(name: str, opset: int, seed: int) -> bytes:
    return models.build(name, opset=opset, seed=seed, size=TINY).SerializeToString()


def from_text(graph: str, weights: Mapping[str, Array] | None = None, *, opset: int = 17) -> onnx.ModelProto:
    """A checked model from a graph in ONNX's text form, with ``weights`` as its initializers.

    ``from_text("g (float[1,3,8,8] x) => (float[1,4,6,6] y) { y = Conv(x, w) }", {"w": ...})``
    """
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {graph}')
    for name, array in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    return model


def feed(model: onnx.ModelProto, *, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Seeded inputs: normal floats, small integers from 0; open dimensions are 2 unless ``sizes`` names them."""
    random = np.random.default_rng(seed)
    known = {tensor.name for tensor in model.graph.initializer}
    made: dict[str, Array] = {}
    for given in model.graph.input:
        if given.name in known:
            continue
        kind = given.type.tensor_type
        shape = [
            (sizes or {}).get(dim.dim_param, 2) if dim.HasField("dim_param") else dim.dim_value
            for dim in kind.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        floats = np.issubdtype(dtype, np.floating)
        made[given.name] = (random.standard_normal(shape) if floats else random.integers(0, 2, shape)).astype(dtype)
    return made


def run(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name, in onnxruntime with optimizations off and one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))
