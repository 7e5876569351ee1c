"""Blocks as training leaves them come out as what they are at inference: the rules work together to the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt


class Block:
    """A small ONNX model in the making; every method adds a node and gives the name of its output."""

    def __init__(self, channels: int = 4) -> None:
        self.channels = channels
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(7)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int, positive: bool = False) -> str:
        array = self.random.standard_normal(shape).astype(np.float32)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.abs(array) + 0.5 if positive else array, name))
        return name

    def conv(self, x: str, kernel: tuple[int, int], *, group: int = 1, padded: bool = True, stride: int = 1) -> str:
        """A Conv without bias."""
        pads = [size // 2 if padded else 0 for size in kernel] * 2
        weight = self.weight(self.channels, self.channels // group, *kernel)
        return self.node("Conv", x, weight, pads=pads, group=group, strides=[stride, stride])

    def norm(self, x: str) -> str:
        parameters = [self.weight(self.channels, positive=True), self.weight(self.channels), self.weight(self.channels)]
        return self.node("BatchNormalization", x, *parameters, self.weight(self.channels, positive=True))

    def model(self, output: str) -> onnx.ModelProto:
        shapes = [("x", ["batch", self.channels, 9, 9]), (output, None)]
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
        graph = helper.make_graph(self.nodes, "block", values[:1], values[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def repvgg(block: Block) -> str:
    three, one = (block.norm(block.conv("x", size)) for size in ((3, 3), (1, 1)))
    return block.node("Relu", block.node("Add", block.node("Add", three, one), block.norm("x")))


def mobileone_depthwise(block: Block) -> str:
    total = block.node("Add", block.norm(block.conv("x", (1, 1), group=4)), block.norm("x"))
    for _ in range(3):
        total = block.node("Add", total, block.norm(block.conv("x", (3, 3), group=4)))
    return block.node("Relu", total)


def acnet(block: Block) -> str:
    branches = [block.norm(block.conv("x", size, stride=2)) for size in ((3, 3), (1, 3), (3, 1))]
    return block.node("Relu", block.node("Sum", *branches))


def diverse_branch(block: Block) -> str:
    pooled = block.conv("x", (1, 1), padded=False)
    pooled = block.node("AveragePool", block.norm(pooled), kernel_shape=[3, 3])
    chained = block.conv(block.norm(block.conv("x", (1, 1))), (3, 3), padded=False)
    direct = block.norm(block.conv("x", (3, 3), padded=False))
    total = block.node("Add", block.node("Add", direct, block.norm(chained)), block.norm(pooled))
    return block.node("Relu", total)


def repmixer(block: Block) -> str:
    mixer = block.node("Add", block.norm(block.conv("x", (3, 3), group=4)), block.norm("x"))
    mixed = block.node("Mul", block.weight(4, 1, 1), block.node("Sub", mixer, block.norm("x")))
    return block.node("Relu", block.node("Add", "x", mixed))


def residual_affine(block: Block) -> str:
    scaled = block.node("Div", block.conv("x", (3, 3)), block.weight(1, 4, 1, 1, positive=True))
    return block.node(
        "Relu", block.node("Sub", block.weight(4, 1, 1), block.node("Sub", scaled, block.weight(4, 1, 1)))
    )


BLOCKS: Sequence[Callable[[Block], str]] = (
    repvgg, mobileone_depthwise, acnet, diverse_branch, repmixer, residual_affine,
)  # fmt: skip


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("build", BLOCKS, ids=lambda build: build.__name__)
def test_a_block_becomes_one_conv(build: Callable[[Block], str]) -> None:
    block = Block()
    result = superopt.optimize(block.model(build(block)), select="modelled")
    assert operators(result.model) == {"Conv": 1, "Relu": 1}


def test_a_batchnorm_behind_an_activation_goes_forward_into_an_unpadded_conv() -> None:
    block = Block()
    active = block.norm(block.node("Relu", block.conv("x", (3, 3))))
    result = superopt.optimize(block.model(block.conv(active, (3, 3), padded=False)), select="modelled")
    assert operators(result.model) == {"Conv": 2, "Relu": 1}


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "HardSwish"])
def test_a_batchnorm_passes_neither_an_activation_nor_padding(activation: str) -> None:
    block = Block()
    active = block.norm(block.node(activation, block.conv("x", (3, 3))))
    result = superopt.optimize(block.model(block.conv(active, (3, 3))), select="modelled")
    found = operators(result.model)
    assert found["Conv"] == 2
    assert found["BatchNormalization"] + found["Add"] == 1
