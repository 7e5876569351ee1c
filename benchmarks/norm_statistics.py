"""The statistics that a network's BatchNormalizations would have after training, from one run on a random input."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Statistics = tuple[NDArray[Any], NDArray[Any]]
"""The mean and the variance of each channel."""


def measured(model: onnx.ModelProto) -> dict[str, Statistics]:
    """The statistics of a network of images, by the ``X`` in the names ``X.mean`` and ``X.var`` that it reads them by.

    The run normalizes by what it measures, so every layer sees what it will see with the statistics in place. They keep
    three digits: another processor's rounding shall not make another model.
    """
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    names = []
    del probe.graph.node[:], probe.graph.output[:]
    for node in model.graph.node:
        if node.op_type != "BatchNormalization":
            probe.graph.node.append(node)
            continue
        names.append(node.input[3].removesuffix(".mean"))
        probe.graph.node.extend(_self_normalizing(node, model.opset_import[0].version))
        for part in ("mean", "var"):
            probe.graph.output.append(
                helper.make_tensor_value_info(f"{names[-1]}.{part}.found", TensorProto.FLOAT, None)
            )
    if not names:
        return {}
    _keep_what_outputs_need(probe.graph)
    for given in probe.graph.input:
        given.type.tensor_type.shape.dim[0].dim_param = "batch"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3  # the statistics that are not used here would be reported one by one
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options)
    random = np.random.default_rng(0)
    feed = {}
    for given in session.get_inputs():
        _, channels, high, wide = given.shape
        images = min(32, max(8, 16384 // (high * wide))) if high * wide <= 16384 else 1
        feed[given.name] = random.standard_normal((images, channels, high, wide), np.float32)
    found = [_rounded(array.ravel()) for array in session.run(None, feed)]
    return dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))


def _self_normalizing(node: onnx.NodeProto, opset: int) -> list[onnx.NodeProto]:
    """Nodes in the place of a BatchNormalization that normalize by the statistics of the run itself.

    A tenth of the whole mean square is added to each variance: a channel of one position would have none.
    """
    x, scale, shift, mean, variance, *_ = node.input
    made: list[onnx.NodeProto] = []

    def step(op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{node.name}.{len(made)}"
        made.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(values: Any, dtype: Any) -> str:
        return step("Constant", value=numpy_helper.from_array(np.array(values, dtype)))

    def average(source: str, axes: list[int], output: str = "") -> str:
        if opset < 18:
            return step("ReduceMean", source, output=output, axes=axes)
        return step("ReduceMean", source, constant(axes, np.int64), output=output)

    wide = constant([1, -1, 1, 1], np.int64)
    centred = step("Sub", x, average(x, [0, 2, 3], f"{mean}.found"))
    spread = average(step("Mul", centred, centred), [0, 2, 3])
    least = step("Mul", average(step("Mul", x, x), [0, 1, 2, 3]), constant(0.1, np.float32))
    deviation = step("Sqrt", step("Add", spread, least, output=f"{variance}.found"))
    scaled = step("Mul", step("Div", centred, deviation), step("Reshape", scale, wide))
    step("Add", scaled, step("Reshape", shift, wide), output=node.output[0])
    return made


def _keep_what_outputs_need(graph: onnx.GraphProto) -> None:
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    kept.reverse()
    del graph.node[:]
    graph.node.extend(kept)


def _rounded(array: NDArray[Any]) -> NDArray[Any]:
    return np.array([float(f"{number:.3g}") for number in array], np.float32)
