"""The networks of TASO and Tensat as terms, for ``tensat_graphs``: no normalization, batch 1, padding to the same
size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Graph(Protocol):
    """What terms are added to."""

    def add(self, op: str, attrs: tuple[int, ...], children: tuple[int, ...]) -> int | None:
        """The class of a term; None where the operator cannot be applied."""

    def shape(self, owner: int) -> tuple[int, ...]:
        """The shape of a class."""


class Terms:
    """Adds terms to a graph; inputs and weights are told apart by their number."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.leaves = 0

    def add(self, op: str, *children: int, attrs: tuple[int, ...] = ()) -> int:
        made = self.graph.add(op, attrs, children)
        if made is None:
            raise ValueError(f"{op} cannot be applied to {[self.graph.shape(child) for child in children]}")
        return made

    def leaf(self, op: str, *shape: int) -> int:
        self.leaves += 1
        return self.add(op, attrs=(self.leaves, *shape))

    def wide(self, x: int) -> int:
        return self.graph.shape(x)[1]

    def conv(self, x: int, out: int, kernel: tuple[int, int] | int, stride: int = 1, groups: int = 1) -> int:
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        weight = self.leaf("weight", out, self.wide(x) // groups, height, width)
        return self.add("conv", x, weight, attrs=(stride, 0, 0))

    def fused(
        self, x: int, out: int, kernel: tuple[int, int] | int, stride: int = 1, groups: int = 1, valid: int = 0
    ) -> int:
        """A convolution that applies Relu itself; ``valid`` where it does not pad."""
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        weight = self.leaf("weight", out, self.wide(x) // groups, height, width)
        return self.add("conv", x, weight, attrs=(stride, valid, 2))

    def active(self, x: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> int:
        """A convolution, and Relu."""
        return self.add("relu", self.conv(x, out, kernel, stride, groups))

    def pool(self, op: str, x: int, stride: int = 1, kernel: int = 3) -> int:
        return self.add(op, x, attrs=(kernel, stride))

    def matmul(self, x: int, out: int) -> int:
        return self.add("matmul", x, self.leaf("weight", self.wide(x), out))

    def concat(self, *parts: int) -> int:
        """More than two are joined by an operator of their own."""
        attrs = (1, len(self.graph.shape(parts[0])))
        return self.add("concat" if len(parts) == 2 else "concats", *parts, attrs=attrs)

    def flat(self, x: int) -> int:
        _, channels, height, width = self.graph.shape(x)
        return self.add("reshape", x, attrs=(1, channels * height * width))

    def scores(self, x: int) -> int:
        """The mean of every channel, and a fully connected layer."""
        return self.matmul(self.flat(self.pool("poolavg", x, self.graph.shape(x)[2], self.graph.shape(x)[2])), 1000)


def nasrnn(graph: Graph, hidden: int = 512) -> int:
    terms = Terms(graph)
    inputs = [terms.leaf("input", 1, hidden) for _ in range(5)]
    state = terms.leaf("weight", 1, hidden)
    for x in inputs:
        t = [terms.add("ewadd", terms.matmul(x, hidden), terms.matmul(state, hidden)) for _ in range(8)]
        m = [
            terms.add("ewadd", terms.add("relu", t[0]), terms.add("sigmoid", t[3])),
            terms.add("ewadd", terms.add("sigmoid", t[1]), terms.add("tanh", t[2])),
            terms.add("ewmul", terms.add("sigmoid", t[4]), terms.add("tanh", t[5])),
            terms.add("ewmul", terms.add("sigmoid", t[6]), terms.add("relu", t[7])),
        ]
        left = terms.add("ewadd", terms.add("sigmoid", m[1]), terms.add("tanh", m[2]))
        right = terms.add("ewmul", terms.add("tanh", m[0]), terms.add("tanh", m[3]))
        state = terms.add("tanh", terms.add("ewmul", terms.add("tanh", left), terms.add("tanh", right)))
    return state


def bert(graph: Graph, tokens: int = 64, wide: int = 1024, layers: int = 8) -> int:
    """As TASO has it: attention without Softmax, of which a layer passes on nothing to the next."""
    terms = Terms(graph)
    x = terms.add("relu", terms.leaf("input", tokens, wide))
    outputs = []
    for _ in range(layers):
        parts = [terms.add("reshape", terms.matmul(x, wide), attrs=(tokens, wide // 64, 64)) for _ in range(3)]
        query, key, value = (terms.add("transpose", part, attrs=(1, 0, 2)) for part in parts)
        mixed = terms.add("matmul", terms.add("matmul", query, key), value)
        back = terms.add("transpose", mixed, attrs=(1, 0, 2))
        outputs.append(terms.add("reshape", back, attrs=(tokens, wide)))
        x = terms.matmul(x, wide)
    last = outputs[0]
    for output in (*outputs[1:], x):
        last = terms.add("noop", last, output)
    return last


def nasneta(graph: Graph, cells: int = 5) -> int:
    terms = Terms(graph)
    x = terms.pool("poolmax", terms.fused(terms.leaf("input", 1, 3, 224, 224), 64, 7, 2), 2)

    def separable(of: int, out: int, kernel: int, stride: int = 1) -> int:
        return terms.conv(terms.conv(of, out, kernel, stride, terms.wide(of)), out, 1)

    def fitted(before: int, now: int, out: int) -> tuple[int, int]:
        now = terms.fused(now, out, 1)
        same = graph.shape(before)[2] == graph.shape(now)[2]
        return terms.fused(before, out, 1) if same else terms.fused(before, out, 3, 2), now

    out = 128
    for _ in range(3):
        before = now = x
        for _ in range(cells):
            b, n = fitted(before, now, out)
            pairs = [
                (separable(n, out, 3), n),
                (separable(b, out, 3), separable(n, out, 3)),
                (terms.pool("poolavg", n), b),
                (terms.pool("poolavg", b), terms.pool("poolavg", b)),
                (separable(b, out, 3), separable(b, out, 3)),
            ]
            before, now = now, terms.concat(*(terms.add("ewadd", *pair) for pair in pairs))
        out *= 2
        b, n = fitted(before, now, out)
        first = terms.add("ewadd", separable(b, out, 7, 2), separable(n, out, 5, 2))
        second = terms.add("ewadd", terms.pool("poolmax", n, 2), separable(b, out, 7, 2))
        third = terms.add("ewadd", terms.pool("poolavg", n, 2), separable(b, out, 5, 2))
        fourth = terms.add("ewadd", terms.pool("poolmax", n, 2), separable(first, out, 3))
        fifth = terms.add("ewadd", terms.pool("poolavg", first), second)
        x = terms.concat(first, second, third, fourth, fifth)
    return x


def vgg(graph: Graph) -> int:
    terms = Terms(graph)
    x = terms.leaf("input", 1, 3, 224, 224)
    for out, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            x = terms.active(x, out, 3)
        x = terms.pool("poolmax", x, 2, 2)
    x = terms.flat(x)
    for _ in range(2):
        x = terms.add("relu", terms.matmul(x, 4096))
    return terms.matmul(x, 1000)


def _residual(graph: Graph, x: int, terms: Terms, groups: int) -> int:
    """Blocks whose convolutions apply Relu themselves; of ResNet the 3x3 ones have the stride and a quarter of the
    channels, of ResNeXt they have groups and half of the channels."""
    wider = 2 if groups > 1 else 4
    for out, blocks, first in ((256, 3, 1), (512, 4, 2), (1024, 6, 2), (2048, 3, 2)):
        middle = out // wider
        for block in range(blocks):
            stride = 1 if block else first
            deep = terms.fused(terms.fused(x, middle, 1), middle, 3, stride, groups)
            deep = terms.conv(deep, out, 1)
            side = x if block else terms.fused(x, out, 1, stride)
            x = terms.add("relu", terms.add("ewadd", side, deep))
    return x


def resnet50(graph: Graph) -> int:
    terms = Terms(graph)
    return _residual(graph, terms.leaf("input", 1, 64, 56, 56), terms, 1)


def resnext50(graph: Graph) -> int:
    terms = Terms(graph)
    x = terms.pool("poolmax", terms.fused(terms.leaf("input", 1, 3, 224, 224), 64, 7, 2), 2)
    return _residual(graph, x, terms, 32)


def squeezenet(graph: Graph) -> int:
    terms = Terms(graph)
    x = terms.pool("poolmax", terms.active(terms.leaf("input", 1, 3, 224, 224), 64, 3, 2), 2)
    for squeezed, out, shrunk in (
        (16, 64, False), (16, 64, True), (32, 128, False), (32, 128, True),
        (48, 192, False), (48, 192, False), (64, 256, False), (64, 256, False),
    ):  # fmt: skip
        narrow = terms.active(x, squeezed, 1)
        x = terms.concat(terms.active(narrow, out, 1), terms.active(narrow, out, 3))
        x = terms.pool("poolmax", x, 2) if shrunk else x
    return terms.pool("poolavg", terms.active(x, 1000, 1), 14, 14)


def inceptionv3(graph: Graph) -> int:
    terms = Terms(graph)
    x = terms.leaf("input", 1, 3, 299, 299)
    x = terms.fused(terms.fused(x, 32, 3, 2, valid=1), 32, 3, valid=1)
    x = terms.pool("poolmax", terms.fused(x, 64, 3), 2)
    x = terms.pool("poolmax", terms.fused(terms.fused(x, 80, 1, valid=1), 192, 3, valid=1), 2)

    def chain(x: int, *steps: tuple[int, tuple[int, int] | int]) -> int:
        for out, kernel in steps:
            x = terms.fused(x, out, kernel)
        return x

    def averaged(x: int, out: int) -> int:
        return terms.fused(terms.pool("poolavg", x), out, 1)

    for pooled in (32, 64, 64):
        double = chain(x, (64, 1), (96, 3), (96, 3))
        single = terms.concat(chain(x, (64, 1)), chain(x, (48, 1), (64, 5)))
        x = terms.concat(single, terms.concat(double, averaged(x, pooled)))
    double = terms.fused(chain(x, (64, 1), (96, 3)), 96, 3, 2)
    x = terms.concat(terms.pool("poolmax", x, 2), terms.concat(terms.fused(x, 384, 3, 2), double))
    for middle in (128, 160, 160, 192):
        once = chain(x, (middle, 1), (middle, (1, 7)), (192, (7, 1)))
        twice = chain(x, (middle, 1), (middle, (7, 1)), (middle, (1, 7)), (middle, (7, 1)), (192, (1, 7)))
        x = terms.concat(terms.concat(chain(x, (192, 1)), once), terms.concat(twice, averaged(x, 192)))
    square = terms.fused(chain(x, (192, 1)), 320, 3, 2)
    crossed = terms.fused(chain(x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 3, 2)
    x = terms.concat(square, crossed, terms.pool("poolmax", x, 2))
    for _ in range(2):
        sides = [
            terms.concat(chain(y, (384, (1, 3))), chain(y, (384, (3, 1))))
            for y in (chain(x, (384, 1)), chain(x, (448, 1), (384, 3)))
        ]
        x = terms.concat(chain(x, (320, 1)), *sides, chain(terms.pool("poolmax", x), (192, 1)))
    return terms.pool("poolavg", x, 8, 8)


def mobilenetv2(graph: Graph) -> int:
    terms = Terms(graph)
    x = terms.active(terms.leaf("input", 1, 3, 224, 224), 32, 3, 2)
    for wider, out, blocks, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(blocks):
            stride, middle = first if block == 0 else 1, wider * terms.wide(x)
            deep = terms.active(x, middle, 1) if wider > 1 else x
            deep = terms.conv(terms.active(deep, middle, 3, stride, middle), out, 1)
            x = terms.add("ewadd", x, deep) if block else deep
    return terms.scores(terms.active(x, 1280, 1))


NETWORKS: dict[str, Callable[[Graph], int]] = {
    function.__name__: function
    for function in (bert, inceptionv3, mobilenetv2, nasneta, nasrnn, resnet50, resnext50, squeezenet, vgg)
}
