"""Blocks as training leaves them come out as what they are at inference: the rules work together to the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from benchmarks import transformers
from benchmarks.network import TINY


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

    def constant(self, number: float) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(number, np.float32), name))
        return name

    def model(self, output: str, opset: int = 17) -> onnx.ModelProto:
        shapes = [("x", ["batch", self.channels, 9, 9]), (output, None)]
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
        graph = helper.make_graph(self.nodes, "block", values[:1], values[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


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


@pytest.mark.parametrize("grows", [False, True], ids=["as large", "larger"])
@pytest.mark.parametrize("used", ["output", "other layer"])
def test_a_weight_that_is_used_elsewhere_is_copied_where_the_model_may_grow(used: str, grows: bool) -> None:
    block = Block()
    normed = block.norm(block.conv("x", (3, 3)))
    if used == "other layer":
        normed = block.node("Add", normed, block.node("Conv", block.node("Relu", "x"), "w0", pads=[1, 1, 1, 1]))
    model = block.model(normed)
    if used == "output":
        model.graph.output.append(helper.make_tensor_value_info("w0", TensorProto.FLOAT, [4, 4, 3, 3]))
    result = superopt.optimize(model, select="modelled", max_growth=None if grows else 0.05)
    assert result.report["verified"] is True
    assert ("BatchNormalization" in operators(result.model)) is not grows
    assert grows or result.report["bytes"]["after"] <= 1.05 * result.report["bytes"]["before"]
    kept = {item.name: item for item in result.model.graph.initializer}
    assert kept["w0"].raw_data == model.graph.initializer[0].raw_data


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


def shapes(model: onnx.ModelProto, op: str) -> list[list[int]]:
    """The shapes of what all nodes of an operator make, in order."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    known = {item.name: item for item in (*inferred.graph.value_info, *inferred.graph.output)}
    made = [known[node.output[0]] for node in inferred.graph.node if node.op_type == op]
    return [[dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in made]


@pytest.mark.parametrize("opset", [13, 17])
def test_a_classifier_that_reads_one_token_computes_its_last_layer_for_it_alone(opset: int) -> None:
    model = transformers.bert(opset=opset, size=TINY, batch=2, words=5)
    result = superopt.optimize(model, select="modelled")
    before, after = ([shape[2] for shape in shapes(proto, "Softmax")] for proto in (model, result.model))
    assert set(before) == {5}
    assert after == [*before[:-1], 1]
    assert shapes(result.model, "Erf")[-1][:2] == [2, 1]


def test_a_transformer_of_any_batch_and_length() -> None:
    model = transformers.bert(opset=17, size=TINY)
    result = superopt.optimize(model, select="modelled")
    before, after = operators(model), operators(result.model)
    # The token is read before the last layer; the scale of attention is in a weight; GELU is what runtimes know it by.
    made = {node.output[0]: node.op_type for node in result.model.graph.node}
    reads = [node for node in result.model.graph.node if node.op_type == "Gather" and node.input[1] != "input_ids"]
    assert reads
    assert len(result.model.graph.node) - len(model.graph.node) < 4
    last = max(index for index, node in enumerate(result.model.graph.node) if node.op_type == "LayerNormalization")
    assert all(node.input[0] in made and node in list(result.model.graph.node)[:last] for node in reads)
    assert after["Div"] == before["Div"] - before["Softmax"] == after["Erf"]
    assert after["Mul"] == before["Mul"]


@pytest.mark.parametrize("last", ["Div", "Mul"])
def test_a_decomposed_hardswish_is_recomposed_where_the_opset_lacks_it(last: str) -> None:
    block = Block()
    x = block.conv("x", (3, 3))
    three, zero, six = (block.constant(number) for number in (3, 0, 6))
    clipped = block.node("Clip", block.node("Add", x, three), zero, six)
    total = block.node("Mul", x, clipped)
    total = block.node(last, total, six if last == "Div" else block.constant(1 / 6))
    result = superopt.optimize(block.model(block.conv(total, (1, 1)), opset=11), select="modelled")
    assert operators(result.model) == {"Conv": 2, "HardSigmoid": 1, "Mul": 1}


def layer_norm(block: Block, x: str, *, product: bool) -> str:
    """LayerNormalization over the last axis, as PyTorch exported it before opset 17."""
    centered = block.node("Sub", x, block.node("ReduceMean", x, axes=[-1]))
    square = (centered, centered) if product else (centered, block.constant(2))
    variance = block.node("ReduceMean", block.node("Mul" if product else "Pow", *square), axes=[-1])
    deviation = block.node("Sqrt", block.node("Add", variance, block.constant(1e-5)))
    scaled = block.node("Mul", block.node("Div", centered, deviation), block.weight(9))
    return block.node("Add", scaled, block.weight(9))


@pytest.mark.parametrize("product", [False, True])
def test_a_decomposed_layer_norm_is_recomposed_where_the_opset_has_it(product: bool) -> None:
    for opset, expected in ((17, {"LayerNormalization": 1}), (13, None)):
        block = Block()
        model = block.model(layer_norm(block, "x", product=product), opset=opset)
        found = operators(superopt.optimize(model, select="modelled").model)
        assert found == expected if expected else "LayerNormalization" not in found


def test_a_mean_of_tokens_is_taken_before_the_linear_layer() -> None:
    block = Block()
    x = block.node("MatMul", "x", block.weight(9, 32))
    x = block.node("ReduceMean", block.node("Add", x, block.weight(32)), axes=[2], keepdims=0)
    result = superopt.optimize(block.model(x), select="modelled", cost="flops", max_growth=1)
    assert [node.op_type for node in result.model.graph.node] == ["ReduceMean", "MatMul", "Add"]


def test_a_spectrum_of_constant_frames_is_a_conv() -> None:
    window = numpy_helper.from_array(np.hanning(16).astype(np.float32), "window")
    step = numpy_helper.from_array(np.array(8, np.int64), "step")
    nodes = [
        helper.make_node("STFT", ["x", "step", "window"], ["spectrum"]),
        helper.make_node("ReduceSumSquare", ["spectrum"], ["y"], axes=[-1], keepdims=0),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["batch", "length"]), ("y", ["batch", "frames", 9]))
    ]
    graph = helper.make_graph(nodes, "spectrum", values[:1], values[1:], [window, step])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = superopt.optimize(model, select="modelled", max_growth=10, input_shape={"x": [2, 4000]})
    found = operators(result.model)
    assert found["Conv"] == 1
    assert found["STFT"] == 0
