"""Sums of branches: in any order and any brackets, what may be one layer becomes one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt import rule_text
from superopt.engine.eclasses import EGraph
from superopt.engine.saturate import Limits, saturate
from superopt.lowering.lower import lower
from superopt.models.model import load
from superopt.numeric import settle
from superopt.rules import RuleSet

RULES = sum(map(rule_text.load, ("batchnorm", "affine", "reparameterize", "compose")), RuleSet())
CHANNELS, SIZE = 4, 7


class Branches:
    """A model of branches over the input ``x``; every method adds nodes and gives the name of what they compute."""

    def __init__(self, group: int = 1) -> None:
        self.group = group
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(5)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def weight(self, *shape: int, positive: bool = False) -> str:
        array = self.random.standard_normal(shape).astype(np.float32)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.abs(array) + 0.5 if positive else array, name))
        return name

    def conv(self, kernel: tuple[int, int], x: str = "x", dilation: int = 1, padded: bool = True) -> str:
        pads = [dilation * (taps // 2) * padded for taps in kernel] * 2
        weight = self.weight(CHANNELS, CHANNELS // self.group, *kernel)
        return self.node("Conv", x, weight, pads=pads, dilations=[dilation, dilation], group=self.group)

    def norm(self, x: str = "x") -> str:
        parameters = [self.weight(CHANNELS, positive=True), self.weight(CHANNELS), self.weight(CHANNELS)]
        return self.node("BatchNormalization", x, *parameters, self.weight(CHANNELS, positive=True))

    def pool(self, x: str = "x", pad: int = 1, counted: int = 1) -> str:
        return self.node("AveragePool", x, kernel_shape=[3, 3], pads=[pad] * 4, count_include_pad=counted)

    def pointwise(self, pad: int = 0) -> str:
        """A 1x1 Conv, normalized; what it pads becomes its bias."""
        weight = self.weight(CHANNELS, CHANNELS // self.group, 1, 1)
        return self.norm(self.node("Conv", "x", weight, pads=[pad] * 4, group=self.group))

    def summed(self, terms: Sequence[str], order: random.Random) -> str:
        """The terms in any order and any brackets, now and then as a Sum."""
        terms = order.sample(list(terms), len(terms))
        while len(terms) > 1:
            if order.random() < 0.2:
                return self.node("Sum", *terms)
            at = order.randrange(len(terms) - 1)
            terms[at : at + 2] = [self.node("Add", *order.sample(terms[at : at + 2], 2))]
        return terms[0]

    def model(self, *outputs: str) -> onnx.ModelProto:
        shape = ["batch", CHANNELS, SIZE, SIZE]
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", *outputs)]
        graph = helper.make_graph(self.nodes, "branches", values[:1], values[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


KINDS: dict[str, Callable[[Branches], str]] = {
    "3x3": lambda made: made.norm(made.conv((3, 3))),
    "1x1": lambda made: made.norm(made.conv((1, 1))),
    "1x3": lambda made: made.norm(made.conv((1, 3))),
    "5x5": lambda made: made.conv((5, 5)),
    "identity": lambda made: "x",
    "norm": lambda made: made.norm(),
    "scale": lambda made: made.node("Mul", "x", made.weight(CHANNELS, 1, 1)),
    "pool": lambda made: made.pool(),
    "normed pool": lambda made: made.norm(made.pool()),
    "1x1, pool": lambda made: made.norm(made.pool(made.pointwise(1), 0)),
    "1x1, 3x3": lambda made: made.norm(made.conv((3, 3), made.pointwise(1), padded=False)),
}  # fmt: skip


def saturated(model: onnx.ModelProto) -> EGraph:
    loaded = load(model)
    graph = settle(lower(loaded).graph, context=loaded.proto)
    result = saturate(graph, RULES, Limits(), loaded.opset)
    assert result.stopped_by == "saturated"
    assert result.clashes == ()
    return result.egraph


def inputs_of(egraph: EGraph, number: int, op: str) -> list[int]:
    """Classes that the nodes of an operator in a class take first."""
    return [node.children[0] for node in egraph.classes[number].nodes if node.op == op]


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("seed", range(3))
def test_branches_become_one_conv_in_any_order(seed: int) -> None:
    order = random.Random(seed)
    made, sums = Branches(), []
    for _ in range(12):
        made.group = order.choice((1, 1, 2, 4))
        kinds = [order.choice(("3x3", "5x5")), *(order.choice(sorted(KINDS)) for _ in range(order.randint(1, 5)))]
        sums.append((kinds, made.summed([KINDS[kind](made) for kind in kinds], order)))
    egraph = saturated(made.model(*(total for _, total in sums)))
    source = next(n for n, eclass in enumerate(egraph.classes) if eclass.nodes[0].op == "Input")
    for (kinds, _), root in zip(sums, egraph.roots, strict=True):
        assert source in inputs_of(egraph, root, "Conv"), kinds


def test_what_cannot_be_merged_stays_beside_what_can() -> None:
    made = Branches()
    dilated, three, one = made.conv((3, 3), dilation=2), made.conv((3, 3)), made.conv((1, 1))
    total = made.node("Add", made.node("Add", made.node("Add", dilated, three), one), made.norm())
    other = made.node("Relu", "x")
    result = superopt.optimize(made.model(made.node("Add", other, total)), select="modelled")
    assert operators(result.model) == {"Conv": 2, "Add": 2, "Relu": 1}
    assert result.report["verified"] is True


def test_a_sum_that_is_used_elsewhere_too_stays_what_it_is() -> None:
    made = Branches()
    inner = made.node("Add", made.conv((3, 3)), made.node("Relu", "x"))
    outer = made.node("Add", made.node("Add", inner, made.conv((1, 1))), made.conv((3, 3)))
    result = superopt.optimize(made.model(inner, outer), select="modelled")
    assert [value.name for value in result.model.graph.output] == [inner, outer]
    assert operators(result.model) == {"Conv": 2, "Relu": 1, "Add": 2}
    assert result.report["verified"] is True


@pytest.mark.parametrize("group", [1, 2, 4])
def test_a_diverse_branch_block_becomes_one_conv(group: int) -> None:
    made = Branches(group)
    branches = [KINDS[kind](made) for kind in ("3x3", "1x1", "1x1, pool", "1x1, 3x3")]
    result = superopt.optimize(made.model(made.summed(branches, random.Random(group))), select="modelled")
    assert operators(result.model) == {"Conv": 1}
    assert result.report["verified"] is True


@pytest.mark.parametrize(
    ("what", "branch"),
    [
        ("a pool that counts padding of zeros", lambda made: made.pool(made.pointwise())),
        ("a pool that leaves padding out", lambda made: made.pool(made.pointwise(), counted=0)),
        ("a convolution that pads with zeros", lambda made: made.conv((3, 3), made.pointwise())),
        ("a padded pool of the input that leaves padding out", lambda made: made.pool(counted=0)),
    ],
)
def test_what_is_another_thing_at_the_borders_stays(what: str, branch: Callable[[Branches], str]) -> None:
    made = Branches()
    result = superopt.optimize(
        made.model(made.summed([made.conv((3, 3)), branch(made)], random.Random(0))), select="modelled"
    )
    assert result.report["verified"] is True
    assert sum(operators(result.model).values()) >= 3, what


def test_products_of_one_input_are_merged_in_a_sum() -> None:
    made = Branches()
    first, second = (made.node("MatMul", "x", made.weight(SIZE, SIZE)) for _ in range(2))
    shifted = [made.node("Add", term, made.weight(SIZE)) for term in (first, second)]
    total = made.node("Add", made.node("Add", shifted[0], made.node("Relu", "x")), shifted[1])
    result = superopt.optimize(made.model(total), select="modelled")
    assert operators(result.model)["MatMul"] == 1
    assert result.report["verified"] is True
