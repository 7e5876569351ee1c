"""Networks that TASO (Jia et al., SOSP 2019) and Tensat (Yang et al., MLSys 2021) are measured on, as TASO's examples
lay them out: no normalization, activations apart. ResNeXt-50, Inception-v3 and SqueezeNet are in other modules.
"""

from __future__ import annotations

import math

import onnx

from benchmarks.network import FULL, Network, Size, Value

HEAD = 64
"""Channels of an attention head."""


def nasnet_a(*, opset: int = 17, seed: int = 0, size: Size = FULL) -> onnx.ModelProto:
    """NasNet-A (arXiv 1707.07012): three stacks of five normal cells and a reduction cell, on [1, 128, 56, 56]."""
    network = Network("nasnet-a", opset=opset, seed=seed)
    image, out = size.image // 4, size.channels(128)
    x = network.pool("MaxPool", network.input("input", (1, out, image, image)), 1, 1)
    cells = _Cells(network)
    for _ in range(3):
        before = now = x
        for _ in range(size.repeats(5)):
            before, now = now, cells.normal(before, now, out)
        out *= 2
        x = cells.reduction(before, now, out)
    network.output(x, "features")
    return network.model()


class _Cells:
    """The two cells; each takes the outputs of the two cells before it."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def normal(self, before: Value, now: Value, out: int) -> Value:
        now, before = self._fitted(before, now, out)
        sums = [self._sum(self._separable(now, out, 3), now)]
        sums.append(self._sum(self._separable(before, out, 3), self._separable(now, out, 3)))
        sums.append(self._sum(self._pool("AveragePool", now), before))
        sums.append(self._sum(self._pool("AveragePool", before), self._pool("AveragePool", before)))
        sums.append(self._sum(self._separable(before, out, 3), self._separable(before, out, 3)))
        return self.network.concat(sums)

    def reduction(self, before: Value, now: Value, out: int) -> Value:
        now, before = self._fitted(before, now, out)
        first = self._sum(self._separable(before, out, 7, 2), self._separable(now, out, 5, 2))
        second = self._sum(self._pool("MaxPool", now, 2), self._separable(before, out, 7, 2))
        third = self._sum(self._pool("AveragePool", now, 2), self._separable(before, out, 5, 2))
        fourth = self._sum(self._pool("MaxPool", now, 2), self._separable(first, out, 3))
        fifth = self._sum(self._pool("AveragePool", first), second)
        return self.network.concat([first, second, third, fourth, fifth])

    def _fitted(self, before: Value, now: Value, out: int) -> tuple[Value, Value]:
        """Both with so many channels and of the size of the later one."""
        now = self._squeezed(now, out, 1, 1)
        same = before.dim(2) == now.dim(2)
        return now, self._squeezed(before, out, 1 if same else 3, 1 if same else 2)

    def _squeezed(self, x: Value, out: int, kernel: int, stride: int) -> Value:
        return self.network.activation(self.network.conv(x, out, kernel, stride=stride), "Relu")

    def _separable(self, x: Value, out: int, kernel: int, stride: int = 1) -> Value:
        deep = self.network.conv(x, out, kernel, stride=stride, groups=out)
        return self.network.conv(deep, out, 1)

    def _pool(self, op: str, x: Value, stride: int = 1) -> Value:
        return self.network.pool(op, x, 3, stride, (1, 1, 1, 1))

    def _sum(self, one: Value, other: Value) -> Value:
        return self.network.add(one, other)


def nasrnn(*, opset: int = 17, seed: int = 0, size: Size = FULL) -> onnx.ModelProto:
    """NasRNN (arXiv 1611.01578): five steps of a cell of eight sums of two products, each with weights of its own."""
    network = Network("nasrnn", opset=opset, seed=seed)
    hidden = size.channels(512)
    inputs = [network.input(f"x{step}", (1, hidden)) for step in range(5)]
    first = network.parameter(network.weight((1, hidden), 1), "state")
    state = Value(first, (1, hidden))
    for x in inputs:
        state = _nas_cell(network, x, state)
    network.output(state, "state_out")
    return network.model()


def _nas_cell(network: Network, x: Value, state: Value) -> Value:
    def product(of: Value) -> Value:
        wide = of.dim(1)
        return network.node("MatMul", [of, network.parameter(network.weight((wide, wide), wide), "w")], of.shape)

    def apply(op: str, of: Value) -> Value:
        return network.node(op, [of], of.shape)

    def both(op: str, one: Value, other: Value) -> Value:
        return network.node(op, [one, other], one.shape)

    t = [network.add(product(x), product(state)) for _ in range(8)]
    m = [
        both("Add", apply("Relu", t[0]), apply("Sigmoid", t[3])),
        both("Add", apply("Sigmoid", t[1]), apply("Tanh", t[2])),
        both("Mul", apply("Sigmoid", t[4]), apply("Tanh", t[5])),
        both("Mul", apply("Sigmoid", t[6]), apply("Relu", t[7])),
    ]
    left = both("Add", apply("Sigmoid", m[1]), apply("Tanh", m[2]))
    right = both("Mul", apply("Tanh", m[0]), apply("Tanh", m[3]))
    return apply("Tanh", both("Mul", apply("Tanh", left), apply("Tanh", right)))


def taso_bert(*, opset: int = 17, seed: int = 0, size: Size = FULL) -> onnx.ModelProto:
    """What TASO calls BERT: eight layers of attention without Softmax on [64, 1024], 16 heads.

    In its example the last product of a layer takes the layer's input, and what attention came to is used by nothing.
    Here it is an output of the model, so that it is not taken out as dead.
    """
    network = Network("taso-bert", opset=opset, seed=seed)
    tokens, wide = 64, max(HEAD, size.channels(1024))
    x = network.input("input", (tokens, wide))
    heads = wide // HEAD

    def product(of: Value, gain: float = 1.0) -> Value:
        weight = network.parameter(network.weight((wide, wide), wide, gain), "w")
        return network.node("MatMul", [of, weight], of.shape)

    for layer in range(size.repeats(8)):
        parts = []
        # Sums over the channels of a head, and then over tokens, that stay of order one.
        for gain in (HEAD**-0.5, HEAD**-0.5, 1 / tokens):
            split = network.reshape(product(x, gain), (tokens, heads, HEAD), (tokens, heads, HEAD))
            parts.append(network.transpose(split, (1, 0, 2)))
        query, key, value = parts
        logits = network.node("MatMul", [query, key], (heads, tokens, HEAD))
        mixed = network.node("MatMul", [logits, value], (heads, tokens, HEAD))
        joined = network.reshape(network.transpose(mixed, (1, 0, 2)), (tokens, wide), (tokens, wide))
        network.output(joined, f"attention_{layer}")
        x = product(x)
    network.output(x, "output")
    return network.model()


def vgg19(*, opset: int = 17, seed: int = 0, size: Size = FULL) -> onnx.ModelProto:
    """VGG-19 (arXiv 1409.1556): sixteen 3x3 convolutions with a bias, three fully connected layers."""
    network = Network("vgg19", opset=opset, seed=seed)
    x = network.input("input", (1, 3, size.image, size.image))
    for out, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            x = network.activation(network.conv(x, size.channels(out), 3, bias=True), "Relu")
        x = network.pool("MaxPool", x, 2, 2)
    flat = math.prod(x.dim(axis) for axis in (1, 2, 3))
    x = network.node("Flatten", [x], (1, flat), axis=1)
    for _ in range(2):
        x = network.activation(network.linear(x, size.channels(4096), gain=2.0), "Relu")
    network.output(network.linear(x, size.classes), "scores")
    return network.model()
