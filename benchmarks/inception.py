"""Inception-v3: branches of asymmetric convolutions, concatenated."""

from __future__ import annotations

import onnx

from benchmarks.network import FULL, Network, Size, Value

LEAST_IMAGE = 75
"""The smallest image that every layer has something of."""


def inception_v3(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """Inception-v3 (arXiv 1512.00567) as torchvision lays it out, without the auxiliary classifier; images of 299."""
    network = Network("inception-v3", opset=opset, seed=seed)
    image = max(LEAST_IMAGE, round(size.image * 299 / 224))
    layer = _Layers(network, size)
    x = network.input("input", (batch, 3, image, image))
    for out, kernel, stride, pad in ((32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1)):
        x = layer.conv(x, out, kernel, stride=stride, pad=pad)
    x = network.pool("MaxPool", x, 3, 2)
    x = layer.conv(layer.conv(x, 80, 1), 192, 3, pad=0)
    x = network.pool("MaxPool", x, 3, 2)
    for pooled in (32, 64, 64):
        x = layer.square(x, pooled)
    x = layer.shrunk(x)
    for middle in (128, 160, 160, 192):
        x = layer.asymmetric(x, middle)
    x = layer.shrunk_again(x)
    for _ in range(2):
        x = layer.expanded(x)
    network.output(network.classifier(x, size.classes), "scores")
    return network.model()


class _Layers:
    """The network's five kinds of modules (figures 5 to 7 and 10 of the paper)."""

    def __init__(self, network: Network, size: Size) -> None:
        self.network = network
        self.size = size

    def conv(
        self, x: Value, out: int, kernel: int | tuple[int, int], *, stride: int = 1, pad: int | None = None
    ) -> Value:
        return self.network.conv_bn(x, self.size.channels(out), kernel, stride=stride, pad=pad)

    def chain(self, x: Value, *steps: tuple[int, int | tuple[int, int]]) -> Value:
        for out, kernel in steps:
            x = self.conv(x, out, kernel)
        return x

    def averaged(self, x: Value, out: int) -> Value:
        return self.conv(self.network.pool("AveragePool", x, 3, 1, (1, 1, 1, 1), count_include_pad=1), out, 1)

    def square(self, x: Value, pooled: int) -> Value:
        branches = [self.conv(x, 64, 1), self.chain(x, (48, 1), (64, 5)), self.chain(x, (64, 1), (96, 3), (96, 3))]
        return self.network.concat([*branches, self.averaged(x, pooled)])

    def shrunk(self, x: Value) -> Value:
        double = self.conv(self.chain(x, (64, 1), (96, 3)), 96, 3, stride=2, pad=0)
        return self.network.concat(
            [self.conv(x, 384, 3, stride=2, pad=0), double, self.network.pool("MaxPool", x, 3, 2)]
        )

    def asymmetric(self, x: Value, middle: int) -> Value:
        once = self.chain(x, (middle, 1), (middle, (1, 7)), (192, (7, 1)))
        twice = self.chain(x, (middle, 1), (middle, (7, 1)), (middle, (1, 7)), (middle, (7, 1)), (192, (1, 7)))
        return self.network.concat([self.conv(x, 192, 1), once, twice, self.averaged(x, 192)])

    def shrunk_again(self, x: Value) -> Value:
        square = self.conv(self.conv(x, 192, 1), 320, 3, stride=2, pad=0)
        crossed = self.conv(self.chain(x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 3, stride=2, pad=0)
        return self.network.concat([square, crossed, self.network.pool("MaxPool", x, 3, 2)])

    def expanded(self, x: Value) -> Value:
        once, twice = self.conv(x, 384, 1), self.chain(x, (448, 1), (384, 3))
        sides = [self.network.concat([self.conv(y, 384, (1, 3)), self.conv(y, 384, (3, 1))]) for y in (once, twice)]
        return self.network.concat([self.conv(x, 320, 1), *sides, self.averaged(x, 192)])
