"""Integers divided by zero: an error of the run, where the processor would end the process."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.errors import EvaluationError
from superopt.evaluate import Runner
from superopt.models.divisions import divisions, trapped


def quotient(op: str = "Div", data_type: int = TensorProto.INT32, **attributes: int) -> onnx.ModelProto:
    node = helper.make_node(op, ["a", "b"], ["y"], **attributes)
    infos = [helper.make_tensor_value_info(name, data_type, ["n"]) for name in "aby"]
    graph = helper.make_graph([node], "g", infos[:2], infos[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.int8, np.uint8])
def test_division_by_zero_is_an_error_of_the_run(op: str, dtype: type[np.generic]) -> None:
    model = quotient(op, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    runner = Runner(model)
    a, b = np.array([7, 100], dtype), np.array([2, 7], dtype)
    assert runner.run({"a": a, "b": b})["y"].tolist() == ([3, 14] if op == "Div" else [1, 2])
    with pytest.raises(EvaluationError, match="divided by zero"):
        runner.run({"a": a, "b": np.array([2, 0], dtype)})
    empty = np.zeros(0, dtype)
    assert runner.run({"a": empty, "b": empty})["y"].shape == (0,)


def test_the_least_integer_is_not_divided_by_minus_one() -> None:
    runner = Runner(quotient())
    least = np.array([np.iinfo(np.int32).min], np.int32)
    with pytest.raises(EvaluationError, match="least one by -1"):
        runner.run({"a": least, "b": np.array([-1], np.int32)})
    assert runner.run({"a": least + 1, "b": np.array([-1], np.int32)})["y"].tolist() == [np.iinfo(np.int32).max]


def test_what_cannot_fail_is_left_as_it_is() -> None:
    for model in (quotient(data_type=TensorProto.FLOAT), quotient("Mod", TensorProto.INT32, fmod=1)):
        assert trapped(model) is model
    constant = quotient()
    del constant.graph.input[1]
    constant.graph.initializer.append(numpy_helper.from_array(np.array([3], np.int32), "b"))
    assert trapped(constant) is constant
    constant.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([0], np.int32), "b"))
    assert len(divisions(constant)) == 1


BRANCH = """
    <ir_version: 8, opset_import: ["": 17]>
    g (bool p, int32[n] x) => (int32[n] y) <int32[1] zero = {0}, int32[1] seven = {7}> {
        y = If (p) <then_branch = a () => (int32[n] u) { q = Div (seven, zero)  u = Add (x, q) },
                    else_branch = b () => (int32[n] v) { same = Identity (x)  v = Identity (same) }>
    }
"""


def test_a_branch_that_divides_by_zero_does_not_end_the_process() -> None:
    model = onnx.parser.parse_model(BRANCH)
    assert [division.graph.name for division in divisions(model)] == ["a"]
    x = np.array([1, 2], np.int32)
    assert Runner(model).run({"p": np.array(False), "x": x})["y"].tolist() == [1, 2]
    with pytest.raises(EvaluationError, match="folded"):
        Runner(model, optimized=True)
    assert superopt.optimize(model, tune=0.1).model.graph.output == model.graph.output


def test_a_divisor_is_not_known_by_another_of_its_name() -> None:
    """In one branch it is a constant; in the other, and where a caller overrides it, it may be zero."""
    branches = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (bool p, int32[n] x) => (int32[n] y) {
            y = If (p) <then_branch = a () => (int32[n] u) { d = Constant<value = int32[1] {3}>() u = Div (x, d) },
                        else_branch = b () => (int32[n] v) { d = Sub (x, x) v = Div (x, d) }>
        }
    """)
    assert {division.graph.name for division in divisions(branches)} == {"a", "b"}
    with pytest.raises(EvaluationError, match="divided by zero"):
        Runner(branches).run({"p": np.array(False), "x": np.array([1], np.int32)})
    overridden = quotient()
    overridden.graph.initializer.append(numpy_helper.from_array(np.array([3], np.int32), "b"))
    runner = Runner(overridden)
    assert runner.run({"a": np.array([7], np.int32)})["y"].tolist() == [2]
    with pytest.raises(EvaluationError, match="divided by zero"):
        runner.run({"a": np.array([7], np.int32), "b": np.array([0], np.int32)})


def test_a_function_that_divides_by_zero_does_not_end_the_process() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (int32[n] a, int32[n] b) => (int32[n] y) { y = own.quotient (a, b) }
        <domain: "own", opset_import: ["": 17]> quotient (a, b) => (q) { q = Div (a, b) }
    """)
    runner = Runner(model)
    assert runner.run({"a": np.array([7], np.int32), "b": np.array([2], np.int32)})["y"].tolist() == [3]
    with pytest.raises(EvaluationError, match="divided by zero"):
        runner.run({"a": np.array([7], np.int32), "b": np.array([0], np.int32)})


@pytest.mark.parametrize("divisor", [[0], [0, 0, 0], None])
def test_models_that_divide_by_zero_come_out_as_they_were(divisor: list[int] | None) -> None:
    model = quotient()
    if divisor is not None:
        del model.graph.input[1]
        model.graph.initializer.append(numpy_helper.from_array(np.array(divisor, np.int32), "b"))
    for numeric in ("exact", "reassociates"):
        assert superopt.optimize(model, numeric=numeric, tune=0.1).model.graph.node == model.graph.node


def test_each_of_several_divisions_is_an_error_of_the_run() -> None:
    model = quotient()
    model.graph.node.append(helper.make_node("Div", ["y", "b"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.INT32, ["n"]))
    runner = Runner(model)
    assert runner.run({"a": np.array([17], np.int32), "b": np.array([2], np.int32)})["z"].tolist() == [4]
    with pytest.raises(EvaluationError, match="divided by zero"):
        runner.run({"a": np.array([17], np.int32), "b": np.array([0], np.int32)})
