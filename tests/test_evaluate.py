"""Models run in onnxruntime as asked; the float64 truth, opaque operators included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.errors import EvaluationError
from superopt.evaluate import Runner, arrays_of, equal_bits, same_bits
from superopt.lowering.lower import lower
from superopt.models.model import Model, load
from superopt.reference import TermRunner, float64_truth

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(2)


def model_of(
    nodes: list[onnx.NodeProto],
    shape: list[Any] | None,
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    *,
    outputs: tuple[str, ...] = ("y",),
    dtype: int = FLOAT,
    out: int = FLOAT,
    opset: int = 17,
    functions: tuple[onnx.FunctionProto, ...] = (),
) -> Model:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, out, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in dict.fromkeys(f.domain for f in functions)]
    return load(helper.make_model(graph, opset_imports=imports, ir_version=9, functions=functions))


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def truth_of(model: Model, x: Any) -> list[Any]:
    truth = float64_truth(lower(model).graph, {"x": x}, model)
    return list(truth.values)


def test_unoptimized_runs_do_what_the_graph_says_and_optimized_ones_may_not() -> None:
    # onnxruntime folds the two products into one only when it may.
    w = f32(64, 64)
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])], [3, 64], {"w": w}
    )
    x = f32(3, 64)
    plain, fast = (Runner(model, optimized=optimized).run({"x": x}) for optimized in (False, True))
    assert same_bits(plain["y"], Runner(model).run({"x": x})["y"])
    np.testing.assert_allclose(plain["y"], fast["y"], rtol=1e-4, atol=1e-4)


def test_external_data_is_found_from_the_folder_of_the_model(tmp_path: Path) -> None:
    proto = model_of([helper.make_node("Mul", ["x", "w"], ["y"])], [4], {"w": np.arange(4, dtype=np.float32)}).proto
    onnx.save_model(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    model = load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(Runner(model).run({"x": np.ones(4, np.float32)})["y"], np.arange(4))


def test_narrow_floats_and_strings_go_in_and_come_out() -> None:
    for dtype, array in (
        (TensorProto.BFLOAT16, f32(2, 3).astype(ml_dtypes.bfloat16)),
        (TensorProto.FLOAT8E4M3FN, f32(2, 3).astype(ml_dtypes.float8_e4m3fn)),
        (TensorProto.STRING, np.asarray([["a", "b", "c"], ["", "d", "e"]], object)),
    ):
        model = model_of([helper.make_node("Identity", ["x"], ["y"])], [2, 3], dtype=dtype, out=dtype, opset=19)
        assert same_bits(Runner(model).run({"x": array})["y"], array)


def test_what_onnxruntime_refuses_is_an_evaluation_error_of_one_line() -> None:
    with pytest.raises(EvaluationError, match="does not load it") as caught:
        Runner(model_of([helper.make_node("Relu", ["x"], ["y"], nonsense=1)], [2]))
    assert "\n" not in str(caught.value)
    runner = Runner(model_of([helper.make_node("Relu", ["x"], ["y"])], [2]))
    with pytest.raises(EvaluationError, match="does not run it"):
        runner.run({"x": np.zeros(3, np.float32)})


def test_bits_are_compared_with_any_nan_equal_to_any_nan() -> None:
    nans = np.asarray([0x7FC00000, 0xFFC12345], np.uint32).view(np.float32)
    assert same_bits(nans[:1], nans[1:])
    assert not same_bits(np.zeros(1), -np.zeros(1))
    assert not same_bits(np.zeros(1), np.zeros(1, np.float32))
    assert not same_bits(np.zeros(1), np.zeros((1, 1)))
    assert same_bits([nans, None], [nans, None])
    assert not same_bits([nans], [nans, nans])
    assert same_bits({"a": np.ones(1)}, {"a": np.ones(1)})
    half = np.asarray([1, np.nan, -0.0], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(equal_bits(half, np.asarray([1, np.nan, 0], ml_dtypes.bfloat16)), [True, True, False])
    assert [array.shape for array in arrays_of([np.ones(1), None, [np.ones((2, 3))]])] == [(1,), (2, 3)]


def test_truth_is_in_float64_and_nearer_than_onnxruntime() -> None:
    w = f32(500, 8)
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])], [4, 500], {"w": w}
    )
    x = f32(4, 500)
    (truth,) = truth_of(model, x)
    assert truth.dtype == np.float64
    exact = np.exp(x.astype(np.float64) @ w.astype(np.float64))
    np.testing.assert_allclose(truth, exact / exact.sum(-1, keepdims=True), rtol=1e-12)
    assert np.max(np.abs(Runner(model).run({"x": x})["y"] - truth)) > 1e-9


def test_casts_to_narrow_floats_do_not_round_the_truth() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["y"], to=FLOAT),
    ]
    (truth,) = truth_of(model_of(nodes, [3]), np.asarray([1.0001, 2.3, -7.7], np.float32))
    np.testing.assert_array_equal(truth, np.asarray([1.0001, 2.3, -7.7], np.float32).astype(np.float64))


def recurrent() -> Model:
    w, r, b = f32(1, 12, 4), f32(1, 12, 3), f32(1, 24)
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "", "c"], hidden_size=3)
    return model_of([node], [5, 2, 4], {"w": w, "r": r, "b": b}, outputs=("y", "c"))


def test_opaque_operators_are_computed_in_float64_where_that_can_be_had() -> None:
    x = f32(5, 2, 4)
    model = recurrent()
    truth = float64_truth(lower(model).graph, {"x": x}, model)
    assert truth.narrow == ()
    single = Runner(model).run({"x": x})
    for name, value in zip(("y", "c"), truth.values, strict=True):
        assert value.dtype == np.float64
        off = np.max(np.abs(value - single[name]))
        assert 0 < off < 1e-5


def test_subgraphs_see_the_values_they_capture() -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["m", "k"], ["t"])], "then", [], [helper.make_tensor_value_info("t", FLOAT, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["m"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, None)]
    )
    nodes = [
        helper.make_node("Sin", ["x"], ["m"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=other),
    ]
    model = model_of(nodes, [3], {"k": f32(3), "zero": np.asarray(0, np.float32)})
    for x in (np.ones(3, np.float32), -np.ones(3, np.float32)):
        (truth,) = truth_of(model, x)
        np.testing.assert_allclose(truth, Runner(model).run({"x": x})["y"], rtol=1e-6)


def test_functions_of_the_model_are_known_to_its_opaque_operators() -> None:
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model = model_of([helper.make_node("Twice", ["x"], ["y"], domain="mine")], [3], functions=(function,))
    (truth,) = truth_of(model, np.ones(3, np.float32))
    np.testing.assert_array_equal(truth, 2)


def test_sequences_pass_through() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
        helper.make_node("SequenceAt", ["s", "one"], ["y"]),
    ]
    model = model_of(nodes, [3, 2], {"one": np.asarray(1)})
    x = f32(3, 2)
    (truth,) = truth_of(model, x)
    np.testing.assert_array_equal(truth, x[1])


def test_random_operators_have_no_truth() -> None:
    model = model_of([helper.make_node("RandomNormalLike", ["x"], ["y"])], [3])
    with pytest.raises(EvaluationError, match="RandomNormalLike is random"):
        truth_of(model, np.ones(3, np.float32))


def test_inputs_that_are_not_fed_have_their_defaults() -> None:
    model = model_of([helper.make_node("Mul", ["x", "k"], ["y"])], [2], {"k": np.asarray([2, 3], np.float32)})
    model.proto.graph.input.append(helper.make_tensor_value_info("k", FLOAT, [2]))
    (truth,) = truth_of(model, np.ones(2, np.float32))
    np.testing.assert_array_equal(truth, [2, 3])


def test_terms_stand_in_for_onnxruntime_where_it_has_no_kernel() -> None:
    w = RNG.standard_normal((2, 1, 3))
    model = model_of(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        [1, 1, 6],
        {"w": w},
        dtype=TensorProto.DOUBLE,
        out=TensorProto.DOUBLE,
    )
    with pytest.raises(EvaluationError, match="does not load it"):
        Runner(model)
    x = RNG.standard_normal((1, 1, 6))
    expected = [np.correlate(x[0, 0], kernel[0], "valid") for kernel in w]
    np.testing.assert_allclose(TermRunner(model).run({"x": x})["y"][0], expected, rtol=1e-12)
