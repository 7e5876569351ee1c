"""Constants that rules make stay in the range of their types: finite, and with the digits that the type has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import superopt
from superopt.errors import RangeError
from superopt.evaluate import Runner
from superopt.numeric import materialize
from tests.terms_builder import TermsBuilder


def chain(dtype: str, steps: Sequence[tuple[str, float]], *, batchnorm: bool = False) -> onnx.ModelProto:
    """x through constant scales and shifts; beside it, if asked for, a Conv with a BatchNormalization."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    stored = {f"c{index}": np.array(value, dtype) for index, (_, value) in enumerate(steps)}
    nodes = [
        helper.make_node(op, [f"v{index}" if index else "x", f"c{index}"], [f"v{index + 1}"])
        for index, (op, _) in enumerate(steps)
    ]
    nodes.append(helper.make_node("Identity", [f"v{len(steps)}"], ["y"]))
    outputs = [helper.make_tensor_value_info("y", number, [4, 4, 1, 1])]
    if batchnorm:
        stored |= {"w": np.ones((4, 4, 1, 1), dtype), "one": np.ones(4, dtype), "two": np.full(4, 2, dtype)}
        nodes.append(helper.make_node("Conv", ["x", "w"], ["conv"]))
        nodes.append(helper.make_node("BatchNormalization", ["conv", "two", "one", "one", "two"], ["z"]))
        outputs.append(helper.make_tensor_value_info("z", number, [4, 4, 1, 1]))
    inputs = [helper.make_tensor_value_info("x", number, [4, 4, 1, 1])]
    initializers = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CHAINS = [
    ("float32", [("Mul", 1e30), ("Mul", 1e30)], 0.0),
    ("float32", [("Mul", 1e-30), ("Mul", 1e-30)], 1e30),
    ("float32", [("Add", 0.5), ("Mul", 1e30), ("Mul", 1e30)], -0.5),
    ("float16", [("Add", 60000.0), ("Add", 60000.0)], -60000.0),
    ("float16", [("Div", 1000.0), ("Div", 1000.0)], 10000.0),
]


@pytest.mark.parametrize(("dtype", "steps", "at"), CHAINS)
def test_a_chain_whose_constants_leave_the_range_together_keeps_them_apart(
    dtype: str, steps: Sequence[tuple[str, float]], at: float
) -> None:
    model = chain(dtype, steps, batchnorm=True)
    result = superopt.optimize(model, select="modelled")
    feed = {"x": np.full((4, 4, 1, 1), at, dtype)}
    before, after = Runner(model).run(feed)["y"], Runner(result.model).run(feed)["y"]
    np.testing.assert_allclose(after, before, rtol=4 * np.finfo(dtype).eps)
    assert "BatchNormalization" not in {node.op_type for node in result.model.graph.node}, "the rest is still folded"


def test_a_constant_beyond_its_type_is_named_and_one_that_was_so_before_is_not() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[2]")
    large = build.constant(1e30)
    product = build.node("Mul", large, large)
    graph = build.graph(build.node("Mul", x, product))
    with pytest.raises(RangeError, match="leaves the range of float32") as caught:
        materialize(graph)
    assert caught.value.terms == (product,)
    (made,) = materialize(graph, own=frozenset({product})).constants.values()
    assert np.isinf(made.array())


@pytest.mark.parametrize(("values", "fits"), [([1.0, 1e-41], True), ([1e-41, 0.0], False), ([0.0, 0.0], True)])
def test_small_elements_are_lost_only_where_there_are_no_larger_ones(values: list[float], fits: bool) -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[2]")
    product = build.node("Mul", build.constant(values), build.constant(0.3))
    graph = build.graph(build.node("Add", x, product))
    if fits:
        assert len(materialize(graph).constants) == 1
    else:
        with pytest.raises(RangeError):
            materialize(graph)


def test_a_mean_is_not_moved_behind_a_product_of_half_precision() -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((16, 4)).astype(np.float16)
    for dtype, operators in (("float16", ["Sub", "MatMul"]), ("float32", ["Gemm"])):
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        nodes = [helper.make_node("Sub", ["x", "m"], ["d"]), helper.make_node("MatMul", ["d", "w"], ["y"])]
        stored = {"m": np.array(1000, dtype), "w": weights.astype(dtype)}
        infos = [helper.make_tensor_value_info(name, number, shape) for name, shape in (("x", [8, 16]), ("y", [8, 4]))]
        initializers = [numpy_helper.from_array(array, name) for name, array in stored.items()]
        graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        result = superopt.optimize(model, select="modelled", max_growth=None)
        assert [node.op_type for node in result.model.graph.node] == operators


def test_what_is_lost_in_one_place_leaves_the_others_their_good() -> None:
    # The product of two of the factors is below what float32 can hold: the model is right by no order but its own.
    model = chain("float32", [("Mul", 1e-25), ("Mul", 1e-20), ("Mul", 1e30)], batchnorm=True)
    result = superopt.optimize(model, select="modelled")
    assert sorted(node.op_type for node in result.model.graph.node) == ["Conv", "Mul", "Mul", "Mul"]
    assert result.report["verified"]
    assert result.report["left_out"] == []
    assert "were left as they are" in result.report["problems"][0]
