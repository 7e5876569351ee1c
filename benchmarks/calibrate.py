"""Measures single operators in onnxruntime beside what a cost model predicts, and fits the factors of its families.

python benchmarks/calibrate.py [--cost onnxruntime] [--threads 1] [--seconds 0.5] [--only Conv]

Each operator instance is timed as the difference between a long and a short chain of it, so that what a session costs
by itself, and what converts layouts at its ends, cancels out. The least of the samples counts, and on one thread its
processor time, not the clock's, divided by the cores of the machine that is modelled: this one may be busy with other
things. The last lines are the factors that the families of ``cost_models/onnxruntime.toml`` would have by these
measurements (medians).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from superopt.cost import Operand, load
from superopt.costs.timing import Runtime
from superopt.costs.whole import ready
from superopt.measure import measure_calls
from superopt.models.model import load as load_model
from superopt.terms import Attrs, TensorType
from superopt.workload import NOMINAL, work

SHORT, LONG = 2, 6

Weights = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Case:
    """An operator instance that maps a shape to itself, as one or more nodes; the last one is what is priced.

    ``nodes`` makes the nodes of one step from the names of its input and output. ``fits`` names the family whose factor
    it fits, and the factor: ``flop``, ``byte`` or ``node``.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    weights: Weights
    attributes: Mapping[str, Any]
    fits: str
    extra: tuple[str, ...] = ()
    dtype: type = np.float32


def conv(channels: int, size: int, kernel: int, group: int, fits: str) -> Case:
    weight = np.full((channels, channels // group, kernel, kernel), 1e-3, np.float32)
    pad = kernel // 2
    attributes: dict[str, Any] = {"group": group, "pads": [pad] * 4, "strides": [1, 1], "dilations": [1, 1]}
    name = f"Conv {kernel}x{kernel} {channels} channels in {group} groups, {size}x{size}"
    return Case(
        name, "Conv", (1, channels, size, size), {"w": weight, "b": np.zeros(channels, np.float32)}, attributes, fits
    )


def cases() -> Iterator[Case]:
    for channels, size in ((32, 112), (64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv(channels, size, 3, 1, "convolution flop")
    for channels, size in ((64, 56), (256, 28), (512, 14)):
        yield conv(channels, size, 1, 1, "convolution flop")
    for channels, size in ((20, 56), (50, 28)):
        yield conv(channels, size, 3, 1, "convolution flop")
    for channels, size, kernel in ((64, 112, 3), (128, 56, 3), (256, 28, 3), (512, 14, 3), (256, 28, 7)):
        yield conv(channels, size, kernel, channels, "depthwise flop")
    for group in (2, 4, 8, 16, 32, 64):
        yield conv(128, 28, 3, group, "grouped flop")
    vector = np.full((128, 128, 3), 1e-3, np.float32)
    line: dict[str, Any] = {"pads": [1, 1], "group": 1, "strides": [1], "dilations": [1]}
    bias = {"b": np.zeros(128, np.float32)}
    yield Case("Conv of rank 3", "Conv", (1, 128, 800), {"w": vector, **bias}, line, "convolution flop")
    square = np.full((64, 64, 3, 3), 1e-3, np.float32)
    plane: dict[str, Any] = {"pads": [1] * 4, "group": 1, "strides": [1, 1], "dilations": [1, 1]}
    yield Case(
        "ConvTranspose", "ConvTranspose", (1, 64, 28, 28), {"w": square, "b": np.zeros(64, np.float32)}, plane,
        "transposed flop",
    )  # fmt: skip
    for rows, width in ((1, 2048), (16, 768), (128, 384), (256, 768)):
        weight = {"w": np.full((width, width), 1e-3, np.float32)}
        yield Case(f"MatMul {rows}x{width}", "MatMul", (rows, width), weight, {}, "product flop")
        with_bias = {**weight, "b": np.zeros(width, np.float32)}
        yield Case(f"Gemm {rows}x{width}", "Gemm", (rows, width), with_bias, {}, "product flop")
    image = (1, 64, 56, 56)
    cheap = "Relu Abs Neg Floor Clip".split()
    dear = (
        "Sigmoid Tanh Erf Exp Log Sqrt HardSigmoid HardSwish Gelu Softplus Elu LeakyRelu Sin Round Reciprocal".split()
    )
    for op in (*cheap, *dear):
        yield Case(op, op, image, {}, {}, "pointwise flop")
    other = {"y": np.full(image, 0.9, np.float32)}
    for op in "Add Sub Mul Div Pow Max Min PRelu".split():
        yield Case(f"{op} full", op, image, other, {}, "pointwise byte")
        channel = {"y": np.full((64, 1, 1), 0.9, np.float32)}
        yield Case(f"{op} by channel", op, image, channel, {}, "pointwise byte")
        scalar = {"y": np.full((), 0.9, np.float32)}
        yield Case(f"{op} by scalar", op, image, scalar, {}, "pointwise byte")
    yield Case("Add tiny", "Add", (1, 8), {"y": np.ones((1, 8), np.float32)}, {}, "ordinary node")
    yield Case("Relu tiny", "Relu", (1, 8), {}, {}, "ordinary node")
    yield Case("Transpose 0231", "Transpose", (1, 56, 56, 56), {}, {"perm": [0, 2, 3, 1]}, "movement byte")
    yield Case("Transpose 0213", "Transpose", (1, 56, 56, 56), {}, {"perm": [0, 2, 1, 3]}, "movement byte")
    pools: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [1, 1]}
    for op in ("MaxPool", "AveragePool"):
        yield Case(op, op, image, {}, pools, "pool flop")
    norm = {name: np.ones(64, np.float32) for name in ("s", "t", "m", "v")}
    yield Case("BatchNormalization", "BatchNormalization", image, norm, {}, "normalization byte")
    last = {"s": np.ones(384, np.float32), "t": np.zeros(384, np.float32)}
    yield Case("LayerNormalization", "LayerNormalization", (1, 196, 384), last, {}, "normalization byte")
    groups = {"s": np.ones(64, np.float32), "t": np.zeros(64, np.float32)}
    yield Case("InstanceNormalization", "InstanceNormalization", image, groups, {}, "normalization byte")
    yield Case("Softmax", "Softmax", (1, 12, 128, 128), {}, {"axis": -1}, "softmax byte")
    yield Case("Split, Concat", "Split+Concat", image, {}, {}, "movement byte")
    yield Case("Slice, Concat", "Slice+Concat", image, {}, {}, "movement byte")
    yield Case("ReduceMean, Add", "ReduceMean+Add", image, {}, {}, "reduction byte")
    yield Case("GlobalAveragePool, Add", "GlobalAveragePool+Add", image, {}, {}, "reduction byte")
    yield Case("Reshape", "Reshape", image, {"y": np.array(image, np.int64)}, {}, "view node")
    relu = conv(64, 56, 3, 1, "fused")
    yield Case("Conv, Relu", "Conv+Relu", relu.shape, relu.weights, relu.attributes, "fused")
    yield Case("Conv, Sigmoid", "Conv+Sigmoid", relu.shape, relu.weights, relu.attributes, "fused")
    yield Case("Conv, Add of its input", "Conv+AddInput", relu.shape, relu.weights, relu.attributes, "fused")
    yield Case("Conv, Split, Concat", "Conv+Split+Concat", relu.shape, relu.weights, relu.attributes, "fused")
    product = {"w": np.full((384, 384), 1e-3, np.float32)}
    yield Case("MatMul, Add", "MatMul+Add", (128, 384), product, {}, "fused")
    yield Case("MatMul, Relu", "MatMul+Relu", (128, 384), product, {}, "fused")


def step(case: Case, source: str, result: str) -> list[onnx.NodeProto]:
    """The nodes of one step of a case's chain."""
    ops = case.op.split("+")
    names = [source, *(f"{result}_{number}" for number in range(len(ops) - 1)), result]
    nodes = []
    for number, op in enumerate(ops):
        begin, end = names[number], names[number + 1]
        weights = list(case.weights) if number == 0 else []
        if op == "Split":
            nodes.append(helper.make_node("Split", [begin], [f"{end}a", f"{end}b"], axis=1))
        elif op == "Slice":
            for part, (low, high) in (("a", ("zero", "half")), ("b", ("half", "whole"))):
                nodes.append(helper.make_node("Slice", [begin, low, high, "one"], [f"{end}{part}"]))
        elif op == "Concat":
            nodes.append(helper.make_node("Concat", [f"{begin}a", f"{begin}b"], [end], axis=1))
        elif op == "ReduceMean":
            nodes.append(helper.make_node("ReduceMean", [begin], [end], axes=[2, 3]))
        elif op in ("Add", "AddInput") and number:
            nodes.append(helper.make_node("Add", [begin, "bias" if ops[0] == "MatMul" else source], [end]))
        else:
            attributes = case.attributes if number == 0 else {}
            nodes.append(helper.make_node(op, [begin, *weights], [end], **attributes))
    return nodes


def chain(case: Case, length: int) -> onnx.ModelProto:
    """A model of so many steps of a case."""
    nodes = [node for number in range(length) for node in step(case, f"x{number}", f"x{number + 1}")]
    half, whole = case.shape[1] // 2, case.shape[1]
    fixed = {"zero": [0], "half": [half], "whole": [whole], "one": [1]}
    stored: dict[str, NDArray[np.generic]] = {name: np.array(value, np.int64) for name, value in fixed.items()}
    stored["bias"] = np.ones(case.shape[-1], np.float32)
    stored.update(case.weights)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, case.shape)],
        [helper.make_tensor_value_info(f"x{length}", TensorProto.FLOAT, case.shape)],
        [numpy_helper.from_array(value, name) for name, value in stored.items() if name in used],
    )
    opset = 20 if case.op in ("Gelu", "HardSwish") else 17
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def seconds_of(case: Case, threads: int, seconds: float) -> float:
    """The latency of one step."""
    feed = {"x0": np.full(case.shape, 0.5, np.float32)}
    # Chains of transposes cancel: one of them alone is timed.
    short, long = (0, 1) if case.op == "Transpose" else (SHORT, LONG)
    runtime = Runtime(threads=threads)
    calls = [ready(load_model(chain(case, length)), feed, runtime) for length in (short, long) if length]
    clock = time.thread_time if threads == 1 else time.perf_counter
    least = [min(each) for each in measure_calls(calls, threads=threads, seconds=seconds, clock=clock).samples]
    return (least[-1] - (least[0] if short else 0.0)) / (long - short)


def attrs_of(case: Case) -> Attrs:
    return Attrs.of(
        {name: tuple(value) if isinstance(value, list) else value for name, value in case.attributes.items()}
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", default="onnxruntime")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2, help="what the time of one thread is divided by")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", default="", help="only cases whose name has this in it")
    given = parser.parse_args(arguments)
    model = load(given.cost)
    fitted: dict[str, list[float]] = {}
    print(f"{'case':56} {'measured':>10} {'predicted':>10}  {'Gflop/s':>8} {'GB/s':>8}")
    for case in cases():
        if given.only not in case.name:
            continue
        took = seconds_of(case, given.threads, given.seconds) / (given.cores if given.threads == 1 else 1)
        kind = TensorType("float32", case.shape)
        others = [TensorType("float32", value.shape) for value in case.weights.values()]
        operands = [Operand(kind), *(Operand(other, constant=True) for other in others)]
        op = case.op.split("+")[0]
        predicted = model.price(op, attrs_of(case), operands, kind)
        amount = work(op, attrs_of(case), [kind, *others], kind, NOMINAL)
        rates = amount.flops / took / 1e9, amount.traffic / took / 1e9
        print(
            f"{case.name:56} {took * 1e6:8.1f}us {predicted * 1e6:8.1f}us  {rates[0]:8.2f} {rates[1]:8.2f}", flush=True
        )
        running = max(took - model.node, 1e-9)
        # Called in this round alone, and only the one that is asked for: another may divide by zero.
        factors: dict[str, Callable[[], float]] = {
            "flop": lambda: running / (model.flop * max(amount.flops, 1)),  # noqa: B023
            "byte": lambda: running / (model.byte * max(amount.traffic, 1)),  # noqa: B023
            "node": lambda: took / model.node,  # noqa: B023
        }
        family, _, factor = case.fits.partition(" ")
        if factor:
            fitted.setdefault(case.fits, []).append(factors[factor]())
        else:
            fitted.setdefault(f"{family} {case.name}", []).append(took / predicted)
    print("\nfitted factors (median, least, most)")
    for name, values in fitted.items():
        print(f"  {name:40} {median(values):8.3f} {min(values):8.3f} {max(values):8.3f}")


if __name__ == "__main__":
    main()
