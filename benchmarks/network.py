"""A builder of ONNX networks with seeded weights whose activations stay of order one at any depth.

Weights are drawn for the fan-in; the statistics of every BatchNormalization are those of what it normalizes in a run on
a random input, as training would have left them (``norm_statistics.py``). So float32 results are meaningful to the last
bits, and a rewrite that is wrong shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.norm_statistics import Statistics, measured

Array = NDArray[Any]
Dim = int | str
Extent = int | tuple[int, int]
"""Of a window in two dimensions: one number for both, or height and width."""

EPSILON = float(np.float32(1e-5))


@dataclass(frozen=True)
class Size:
    """How large a network is made: 1.0 is the size it was published with."""

    width: float = 1.0
    depth: float = 1.0
    image: int = 224
    classes: int = 1000

    def channels(self, published: int) -> int:
        """A channel count: the published one at full width, else a multiple of 8."""
        return published if self.width == 1.0 else max(8, round(published * self.width / 8) * 8)

    def repeats(self, published: int) -> int:
        """How often a block is repeated: at least once."""
        return max(1, math.ceil(published * self.depth))


FULL = Size()
TINY = Size(width=1 / 8, depth=1 / 5, image=32, classes=10)


@dataclass(frozen=True)
class Value:
    """A tensor of the network: its name and shape."""

    name: str
    shape: tuple[Dim, ...]

    def dim(self, axis: int) -> int:
        """The number in a dimension that has one."""
        found = self.shape[axis]
        if isinstance(found, str):
            raise TypeError(f"{self.name}: dimension {axis} is {found}, not a number")
        return found

    @property
    def channels(self) -> int:
        return self.dim(1)


@dataclass(frozen=True)
class Norm:
    """The parameters of the BatchNormalization that is called ``name``."""

    name: str
    scale: Array
    shift: Array
    mean: Array
    variance: Array

    def affine(self) -> tuple[Array, Array]:
        """The scale and the shift of each channel that it amounts to, in float64."""
        scale = self.scale.astype(np.float64) / np.sqrt(self.variance.astype(np.float64) + EPSILON)
        return scale, self.shift - self.mean * scale


@dataclass(frozen=True)
class ConvNorm:
    """A convolution without bias followed by a BatchNormalization."""

    weight: Array
    norm: Norm
    stride: int
    groups: int


class Network:
    """One ONNX graph under construction; methods add nodes and return values."""

    def __init__(
        self, name: str, *, opset: int = 17, seed: int = 0, statistics: dict[str, Statistics] | None = None
    ) -> None:
        """``statistics`` are another network's, for one whose parameters are drawn in the same order."""
        self.name = name
        self.opset = opset
        self.random = np.random.default_rng(seed)
        self.statistics = statistics
        self._norms = 0
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._counts: dict[str, int] = {}

    # the graph

    def model(self) -> onnx.ModelProto:
        """The finished and checked model; measures its statistics first, unless the network was given them."""
        if self.statistics is None:
            self.statistics = measured(self._assembled())
            for name, (mean, variance) in self.statistics.items():
                for part, array in (("mean", mean), ("var", variance)):
                    self._initializers[f"{name}.{part}"] = numpy_helper.from_array(array, f"{name}.{part}")
        made = self._assembled()
        onnx.checker.check_model(made, full_check=True)
        return made

    def _assembled(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, list(self._initializers.values())
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8 if self.opset <= 18 else 10,
            producer_name="superopt-benchmarks",
        )

    @property
    def size(self) -> int:
        """How many nodes the graph has so far."""
        return len(self._nodes)

    def input(self, name: str, shape: Sequence[Dim], dtype: int = TensorProto.FLOAT) -> Value:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return Value(name, tuple(shape))

    def output(self, value: Value, name: str, dtype: int = TensorProto.FLOAT) -> None:
        """Make the value, which a node of this graph computes, an output called ``name``."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for index, old in enumerate(names):
                    if old == value.name:
                        names[index] = name
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(value.shape)))

    def parameter(self, array: Array, hint: str) -> str:
        """An initializer; returns its name."""
        name = self._fresh(hint)
        self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def node(self, op: str, inputs: Sequence[Value | str], shape: Sequence[Dim], **attributes: Any) -> Value:
        """One node with one output of the stated shape."""
        return self.nodes(op, inputs, [shape], **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[Value | str], shapes: Sequence[Sequence[Dim]], **attributes: Any
    ) -> list[Value]:
        """One node with an output for each of the stated shapes."""
        name = self._fresh(op)
        outputs = [f"{name}_output_{index}" for index in range(len(shapes))]
        names = [item if isinstance(item, str) else item.name for item in inputs]
        self._nodes.append(helper.make_node(op, names, outputs, name, **attributes))
        return [Value(output, tuple(shape)) for output, shape in zip(outputs, shapes, strict=True)]

    def _fresh(self, hint: str) -> str:
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}_{count}"

    # numbers

    def weight(self, shape: Sequence[int], fan_in: int, gain: float = 1.0) -> Array:
        """Weights for which a sum over ``fan_in`` products keeps the mean square, times ``gain``."""
        drawn = self.random.standard_normal(shape, np.float32)
        return drawn * np.float32(math.sqrt(gain / fan_in))

    def norm_parameters(self, channels: int) -> Norm:
        """The next BatchNormalization's parameters; without statistics yet, the mean is 0 and the variance 1."""
        name = f"bn_{self._norms}"
        self._norms += 1
        scale = self.random.normal(1.0, 0.2, channels).astype(np.float32)
        shift = self.random.normal(0.0, 0.2, channels).astype(np.float32)
        if self.statistics is None:
            return Norm(name, scale, shift, np.zeros(channels, np.float32), np.ones(channels, np.float32))
        return Norm(name, scale, shift, *self.statistics[name])

    def conv_norm_parameters(self, x: Value, out: int, kernel: Extent, *, stride: int = 1, groups: int = 1) -> ConvNorm:
        weight = self._conv_weight(x, out, kernel, groups)
        return ConvNorm(weight, self.norm_parameters(out), stride, groups)

    def _conv_weight(self, x: Value, out: int, kernel: Extent, groups: int) -> Array:
        high, wide = _pair(kernel)
        per_group = x.channels // groups
        return self.weight((out, per_group, high, wide), per_group * high * wide)

    # layers

    def conv(
        self,
        x: Value,
        out: int,
        kernel: Extent,
        *,
        stride: int = 1,
        groups: int = 1,
        pad: int | None = None,
        bias: bool = False,
        weight: Array | str | None = None,
        bias_values: Array | None = None,
    ) -> Value:
        """A two-dimensional convolution, padded to keep the size unless ``pad`` says otherwise."""
        if weight is None:
            weight = self._conv_weight(x, out, kernel, groups)
        inputs: list[Value | str] = [x, weight if isinstance(weight, str) else self.parameter(weight, "conv.weight")]
        if bias and bias_values is None:
            bias_values = self.random.normal(0.0, 0.1, out).astype(np.float32)
        if bias_values is not None:
            inputs.append(self.parameter(bias_values, "conv.bias"))
        extents = _pair(kernel)
        pads = [extent // 2 if pad is None else pad for extent in extents]
        sizes = [(x.dim(2 + axis) + 2 * pads[axis] - extents[axis]) // stride + 1 for axis in (0, 1)]
        return self.node(
            "Conv",
            inputs,
            (x.shape[0], out, *sizes),
            dilations=[1, 1],
            group=groups,
            kernel_shape=list(extents),
            pads=pads * 2,
            strides=[stride] * 2,
        )

    def batch_norm(self, x: Value, norm: Norm | None = None) -> Value:
        norm = norm or self.norm_parameters(x.channels)
        parts = {"weight": norm.scale, "bias": norm.shift, "mean": norm.mean, "var": norm.variance}
        names = [f"{norm.name}.{part}" for part in parts]
        for name, array in zip(names, parts.values(), strict=True):
            self._initializers[name] = numpy_helper.from_array(array, name)
        return self.node("BatchNormalization", [x, *names], x.shape, epsilon=EPSILON, momentum=0.9)

    def conv_norm(self, x: Value, parameters: ConvNorm, *, pad: int | None = None) -> Value:
        out, _, high, wide = parameters.weight.shape
        stride, groups = parameters.stride, parameters.groups
        made = self.conv(x, out, (high, wide), stride=stride, groups=groups, pad=pad, weight=parameters.weight)
        return self.batch_norm(made, parameters.norm)

    def conv_bn(
        self,
        x: Value,
        out: int,
        kernel: Extent,
        *,
        stride: int = 1,
        groups: int = 1,
        pad: int | None = None,
        act: str = "Relu",
    ) -> Value:
        """Convolution, BatchNormalization and, unless ``act`` is empty, an activation."""
        made = self.conv_norm(x, self.conv_norm_parameters(x, out, kernel, stride=stride, groups=groups), pad=pad)
        return self.activation(made, act) if act else made

    def activation(self, x: Value, name: str) -> Value:
        """Relu, Relu6, LeakyRelu, HardSwish, Gelu or Sigmoid, as an exporter of this opset would write it."""
        if name == "Relu6":
            return self.clip(x, 0.0, 6.0)
        if name == "HardSwish" and self.opset < 14:
            return self.node("Mul", [x, self.hard_sigmoid(x)], x.shape)
        if name == "Gelu":
            return self.gelu(x)
        if name == "LeakyRelu":
            return self.node("LeakyRelu", [x], x.shape, alpha=0.1)
        return self.node(name, [x], x.shape)

    def hard_sigmoid(self, x: Value) -> Value:
        return self.node("HardSigmoid", [x], x.shape, alpha=1 / 6, beta=0.5)

    def clip(self, x: Value, low: float, high: float) -> Value:
        if self.opset < 11:
            return self.node("Clip", [x], x.shape, min=low, max=high)
        return self.node("Clip", [x, self.scalar(low), self.scalar(high)], x.shape)

    def gelu(self, x: Value) -> Value:
        """The five nodes in which PyTorch exports GELU before opset 20."""
        if self.opset >= 20:
            return self.node("Gelu", [x], x.shape)
        scaled = self.node("Div", [x, self.scalar(math.sqrt(2.0))], x.shape)
        plus = self.node("Add", [self.node("Erf", [scaled], x.shape), self.scalar(1.0)], x.shape)
        return self.node("Mul", [self.node("Mul", [x, plus], x.shape), self.scalar(0.5)], x.shape)

    def scalar(self, number: float) -> str:
        return self.parameter(np.array(number, np.float32), "scalar")

    def add(self, *values: Value) -> Value:
        """The sum, by a chain of Add."""
        total = values[0]
        for value in values[1:]:
            total = self.node("Add", [total, value], total.shape)
        return total

    def concat(self, values: Sequence[Value], axis: int = 1) -> Value:
        shape = list(values[0].shape)
        shape[axis] = sum(value.dim(axis) for value in values)
        return self.node("Concat", list(values), shape, axis=axis)

    def pool(
        self, op: str, x: Value, kernel: int, stride: int, pads: Sequence[int] = (0, 0, 0, 0), **attributes: Any
    ) -> Value:
        sizes = [(x.dim(axis) + pads[axis - 2] + pads[axis] - kernel) // stride + 1 for axis in (2, 3)]
        window = {"kernel_shape": [kernel] * 2, "pads": list(pads), "strides": [stride] * 2}
        return self.node(op, [x], (*x.shape[:2], *sizes), **window, **attributes)

    def global_pool(self, x: Value) -> Value:
        return self.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))

    def reshape(self, x: Value, to: Iterable[int], shape: Sequence[Dim]) -> Value:
        return self.node("Reshape", [x, self.parameter(np.array(list(to), np.int64), "shape")], shape)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        return self.node("Transpose", [x], [x.shape[axis] for axis in perm], perm=list(perm))

    def linear(self, x: Value, out: int, *, gain: float = 1.0) -> Value:
        """A fully connected layer on the last axis: Gemm where x is a matrix, else MatMul and Add."""
        wide = x.dim(-1)
        bias = self.random.normal(0.0, 0.1, out).astype(np.float32)
        if len(x.shape) == 2:
            weight = self.parameter(self.weight((out, wide), wide, gain), "fc.weight")
            return self.node("Gemm", [x, weight, self.parameter(bias, "fc.bias")], (x.shape[0], out), transB=1)
        weight = self.parameter(self.weight((wide, out), wide, gain), "fc.weight")
        product = self.node("MatMul", [x, weight], (*x.shape[:-1], out))
        return self.node("Add", [self.parameter(bias, "fc.bias"), product], product.shape)

    def classifier(self, x: Value, classes: int) -> Value:
        """Global pooling, Flatten, and a fully connected layer whose scores are far enough apart to rank."""
        flat = self.node("Flatten", [self.global_pool(x)], x.shape[:2], axis=1)
        return self.linear(flat, classes, gain=4.0)

    def layer_norm(self, x: Value) -> Value:
        wide = x.dim(-1)
        scale = self.parameter(self.random.normal(1.0, 0.1, wide).astype(np.float32), "ln.weight")
        shift = self.parameter(self.random.normal(0.0, 0.1, wide).astype(np.float32), "ln.bias")
        if self.opset >= 17:
            return self.node("LayerNormalization", [x, scale, shift], x.shape, axis=-1, epsilon=EPSILON)
        narrow = (*x.shape[:-1], 1)
        centred = self.node("Sub", [x, self.node("ReduceMean", [x], narrow, axes=[-1])], x.shape)
        square = self.node("Pow", [centred, self.scalar(2.0)], x.shape)
        variance = self.node("ReduceMean", [square], narrow, axes=[-1])
        variance = self.node("Add", [variance, self.scalar(EPSILON)], narrow)
        unit = self.node("Div", [centred, self.node("Sqrt", [variance], narrow)], x.shape)
        return self.node("Add", [self.node("Mul", [unit, scale], x.shape), shift], x.shape)


def _pair(extent: Extent) -> tuple[int, int]:
    return (extent, extent) if isinstance(extent, int) else extent
