"""Control flow that has only one way to go, functions that are written out, and models converted to another opset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import superopt
from superopt.bodies.resolve import resolved
from superopt.cli.main import main
from superopt.errors import OptionError
from superopt.models.functions import without_calls
from superopt.models.model import Model, load

Array = np.ndarray[Any, Any]


def read(text: str, weights: dict[str, Array] | None = None, *, opset: int = 17, ir: int = 8) -> onnx.ModelProto:
    """The model whose graph is written in ONNX's text form; ``weights`` become initializers of the main graph."""
    proto = parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]> {text}')
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
        if ir < 4:
            proto.graph.input.append(
                helper.make_tensor_value_info(name, proto.graph.initializer[-1].data_type, array.shape)
            )
    return proto


def run(proto: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, feed))


def resolved_and_equal(proto: onnx.ModelProto, *feeds: dict[str, Array]) -> list[str]:
    """The operators that are left of a model, which is still right."""
    result = resolved(load(proto)).proto
    onnx.checker.check_model(result)
    for feed in feeds:
        for left, right in zip(run(result, feed), run(proto, feed), strict=True):
            assert left.shape == right.shape
            np.testing.assert_array_equal(left, right)
    return [node.op_type for node in result.graph.node]


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5

CHOICE = """
    agraph (float[2, 3] x) => (float[a, b] y, float[c, d] z) {
        y, z = If (c) <
            then_branch = then () => (float[2, 3] p, float[2, 3] q) { h = Neg (x) p = Relu (h) q = Abs (h) },
            else_branch = other () => (float[3, 2] p, float[2, 3] q) { h = Transpose (x) p = Exp (h) q = Sin (x) }
        >
    }
"""


@pytest.mark.parametrize(("value", "left"), [(True, ["Neg", "Relu", "Abs"]), (False, ["Transpose", "Exp", "Sin"])])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_an_if_of_known_condition_is_the_branch(value: bool, left: list[str], shape: tuple[int, ...]) -> None:
    assert resolved_and_equal(read(CHOICE, {"c": np.full(shape, value)}), {"x": X}) == left


def test_an_overridable_condition_is_not_known() -> None:
    proto = read(CHOICE, {"c": np.array(True)})
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    model = load(proto)
    assert resolved(model) is model


def test_a_condition_that_follows_from_shapes_is_known() -> None:
    text = """
        agraph (float[n, 3] x) => (float[a, b] y) {
            sizes = Shape (x)
            rank = Size (sizes)
            second = Gather (sizes, one)
            c1 = Equal (rank, two)
            c2 = Equal (second, three)
            c = And (c1, c2)
            y = If (c) <
                then_branch = then () => (float[n, 3] p) { p = Neg (x) },
                else_branch = other () => (float[n, 3] q) { q = Abs (x) }
            >
        }
    """
    known = {"one": np.array(1), "two": np.array(2), "three": np.array(3)}
    assert resolved_and_equal(read(text, known), {"x": X}) == ["Neg"]
    first = read(text, {**known, "one": np.array(0)})
    assert "If" in resolved_and_equal(first, {"x": X}), "the first dimension is open"


def test_branches_inside_a_branch_and_names_that_come_twice() -> None:
    text = """
        agraph (float[2, 3] x) => (float[a, b] y, float[a, b] z) {
            y = If (c) <
                then_branch = then () => (float[2, 3] p) {
                    h = Neg (x)
                    p = If (c) <
                        then_branch = inner () => (float[2, 3] r) { k = Relu (h) r = Exp (k) },
                        else_branch = outer () => (float[2, 3] r) { r = Abs (h) }
                    >
                },
                else_branch = other () => (float[2, 3] q) { q = Abs (x) }
            >
            z = If (c) <
                then_branch = again () => (float[2, 3] p) { h = Abs (x) k = Sin (h) p = Add (h, k) },
                else_branch = not () => (float[2, 3] p) { p = Identity (x) }
            >
        }
    """
    left = ["Neg", "Relu", "Exp", "Abs", "Sin", "Add"]
    assert resolved_and_equal(read(text, {"c": np.array(True)}), {"x": X}) == left


def test_outputs_that_a_branch_has_from_elsewhere() -> None:
    text = """
        agraph (float[2, 3] x) => (float[a, b] y, float[a, b] z, float[a, b] u) {
            y, z, u = If (c) <
                then_branch = then () => (float[2, 3] p, float[2, 3] p2, float[2, 3] k) <float[2, 3] k = {1, 2, 3, 4, 5, 6}> {
                    p = Neg (x) p2 = Identity (p)
                },
                else_branch = other () => (float[2, 3] q, float[2, 3] r, float[2, 3] s) {
                    q = Abs (x) r = Abs (q) s = Abs (r)
                }
            >
        }
    """  # noqa: E501
    assert resolved_and_equal(read(text, {"c": np.array(True)}), {"x": X}) == ["Neg", "Identity", "Identity"]


def test_initializers_of_a_branch_are_no_inputs_in_old_files() -> None:
    text = """
        agraph (float[2, 3] x) => (float[a, b] y) {
            c = Constant <value = bool {1}> ()
            y = If (c) <
                then_branch = then () => (float[2, 3] p) <float[3] k = {1, 2, 3}> { p = Add (x, k) },
                else_branch = other () => (float[2, 3] p) { p = Abs (x) }
            >
        }
    """
    proto = read(text, opset=9, ir=3)
    result = resolved(load(proto)).proto
    assert [value.name for value in result.graph.input] == ["x"]
    np.testing.assert_array_equal(run(result, {"x": X})[0], X + np.array([1, 2, 3], np.float32))


ROUNDS = """
    agraph (float[2, 3] x, bool start) => (float[a, b] last, float[k, c, d] all) {
        last, all = Loop (TRIPS, START) <body = round (int64 i, bool going, float[2, 3] a) => (bool on, float[2, 3] b, float[2, 3] e) {
            on = ON (going)
            f = Cast <to = 1> (i)
            g = Cast <to = 1> (going)
            h = Add (a, f)
            b = Add (h, g)
            e = Neg (a)
        }> FIRST
    }
"""  # noqa: E501


def rounds(trips: str, start: str, on: str = "Identity", *, opset: int = 17) -> onnx.ModelProto:
    text = ROUNDS.replace("(TRIPS, START)", "").replace("FIRST", f"({trips}, {start}, x)").replace("ON", on)
    weights = {"one": np.array(1), "two": np.array([2]), "yes": np.array(True), "no": np.array(False)}
    return read(text, {name: weights[name] for name in (trips, start) if name in weights}, opset=opset)


FEEDS = tuple({"x": X, "start": np.array(value)} for value in (True, False))


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("start", ["", "yes"])
def test_a_loop_of_one_trip_is_its_body(opset: int, start: str) -> None:
    left = resolved_and_equal(rounds("one", start, opset=opset), *FEEDS)
    assert "Loop" not in left
    assert left[-1] == "Unsqueeze"


def test_a_loop_that_its_body_ends_is_its_body() -> None:
    proto = rounds("two", "yes")
    body = proto.graph.node[0].attribute[0].g
    del body.node[0]
    body.initializer.append(numpy_helper.from_array(np.array(False), "on"))
    assert "Loop" not in resolved_and_equal(proto, *FEEDS)


def test_a_loop_goes_on_by_its_bodys_value_and_not_by_one_outside_of_that_name() -> None:
    proto = read(
        """
        agraph (float[2] x) => (float[2] y, bool u) {
            u = Not (on)
            y = Loop (two, yes, x) <body = round (int64 i, bool on, float[2] h) => (bool on, float[2] g) { g = Add (h, h) }>
        }
        """,  # noqa: E501
        {"two": np.array(2), "yes": np.array(True), "on": np.array(False)},
    )
    result = resolved(load(proto)).proto
    feed = {"x": X[0, :2]}
    np.testing.assert_array_equal(run(proto, feed)[0], 4 * X[0, :2])
    np.testing.assert_array_equal(run(result, feed)[0], 4 * X[0, :2])


@pytest.mark.parametrize(("trips", "start"), [("two", "yes"), ("one", "start"), ("one", "no"), ("two", "")])
def test_other_loops_stay(trips: str, start: str) -> None:
    model = load(rounds(trips, start))
    assert resolved(model) is model


FUNCTIONS = """
    <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    agraph (float[2, 3] x) => (float[2, 3] y) {
        tmp = own.double_negation (x)
        tmp__1 = own.double_negation (tmp)
        y = own.shifted <by = 3.0> (tmp__1)
    }
    <domain: "own", opset_import: ["" : 17, "own" : 1]>
    double_negation (x) => (r) { tmp = own.minus (x) r = own.minus (tmp) }
    <domain: "own", opset_import: ["" : 17]>
    minus (x) => (r) { tmp = Identity (x) r = Neg (tmp) }
    <domain: "own", opset_import: ["" : 17]>
    shifted <by> (x) => (r) { k = Constant <value_float: float = @by> () r = Add (x, k) }
"""


def test_functions_are_written_out_where_rules_apply() -> None:
    proto = parser.parse_model(FUNCTIONS)
    result = superopt.optimize(proto, rules="default", select="modelled")
    onnx.checker.check_model(result.model)
    assert result.report["verified"]
    assert [node.op_type for node in result.model.graph.node] == ["Constant", "Add"]
    assert not result.model.functions
    np.testing.assert_array_equal(run(result.model, {"x": X})[0], run(proto, {"x": X})[0])


def test_functions_stay_as_they_are_where_no_rule_applies() -> None:
    proto = parser.parse_model(FUNCTIONS)
    before = proto.SerializeToString()
    result = superopt.optimize(proto, rules="batchnorm", select="modelled")
    assert result.report["verified"]
    assert not result.report["changed"]
    assert result.model.SerializeToString() == before


def test_a_function_of_another_opset_stays_with_its_definition() -> None:
    proto = parser.parse_model(FUNCTIONS)
    proto.functions[1].opset_import[0].version = 16
    result = without_calls(load(proto)).proto
    assert [function.name for function in result.functions] == ["minus"]
    assert [node.op_type for node in result.graph.node] == ["minus"] * 4 + ["Constant", "Add"]


def test_a_function_called_like_a_standard_operator_stays_and_nothing_is_made_of_it() -> None:
    """onnxruntime runs its own Neg, whatever the function computes."""
    proto = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]>
        agraph (float[n, 3] x) => (float[n, 3] y) { a = Neg (x) b = Neg (a) y = Identity (b) }
        <domain: "", opset_import: ["" : 17]>
        Neg (x) => (r) { r = Abs (x) }
        """
    )
    model = load(proto)
    assert without_calls(model).proto == model.proto
    report = superopt.optimize(proto, rules="default", select="modelled").report
    assert report["verified"]
    assert not report["left_out"]


def test_a_name_that_a_call_would_give_twice() -> None:
    """A function's own names are those of the graph around it, and of a constant that both hold."""
    proto = parser.parse_model(FUNCTIONS)
    proto.graph.initializer.append(numpy_helper.from_array(np.full(3, 2, np.float32), "k"))
    proto.graph.node.append(helper.make_node("Mul", ["y", "k"], ["out"]))
    proto.graph.output[0].name = "out"
    result = superopt.optimize(proto, rules="default", select="modelled")
    assert result.report["verified"]
    np.testing.assert_allclose(run(result.model, {"x": X})[0], run(proto, {"x": X})[0], rtol=1e-6)


def old_model() -> onnx.ModelProto:
    """Opset 11: Squeeze has its axes as an attribute, Softmax means something else."""
    text = """
        agraph (float[n, 1, 3] x) => (float[n, 4] y) {
            flat = Squeeze <axes = [1]> (x)
            z = MatMul (flat, w)
            y = Softmax (z)
        }
    """
    proto = read(text, {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}, opset=11)
    proto.graph.node[1].doc_string = "product"
    proto.metadata_props.add(key="author", value="someone")
    return proto


def test_a_model_is_converted_and_verified() -> None:
    proto = old_model()
    result = superopt.optimize(proto, select="modelled", target_opset=18)
    report = result.report
    assert (report["verified"], report["changed"], report["opset"]) == (True, True, 18)
    assert result.model.opset_import[0].version == 18
    assert result.model.metadata_props[0].value == "someone"
    onnx.checker.check_model(result.model)
    x = np.ones((2, 1, 3), np.float32)
    np.testing.assert_allclose(run(result.model, {"x": x})[0], run(proto, {"x": x})[0], rtol=1e-6)
    (product,) = [node for node in result.model.graph.node if node.op_type == "MatMul"]
    assert product.doc_string == "product"


def test_a_conversion_that_is_wrong_is_not_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        proto.graph.node[-1].op_type = "LogSoftmax"
        return proto

    monkeypatch.setattr("superopt.conversion.version_converter.convert_version", wrong)
    proto = read("agraph (float[2, 3] x) => (float[2, 3] y) { y = Softmax (x) }", opset=13)
    result = superopt.optimize(proto, select="modelled", target_opset=18)
    assert not result.report["verified"]
    assert result.model == proto


IN_BODIES = """
    agraph (float[2, 4] x, bool c) => (float[1, 2, 4] y) {
        h = Identity (x)
        y = If (c) <
            then_branch = then () => (float[1, 2, 4] r) { u = Unsqueeze <axes = [0]> (h) r = Softmax <axis = 1> (u) },
            else_branch = other () => (float[1, 2, 4] s) {
                s = If (c) <
                    then_branch = deep () => (float[1, 2, 4] p) { p = Unsqueeze <axes = [0]> (x) },
                    else_branch = deeper () => (float[1, 2, 4] q) { q = Unsqueeze <axes = [0]> (h) }
                >
            }
        >
    }
"""


@pytest.mark.parametrize("opset", [12, 13, 18])
def test_bodies_are_converted_too(opset: int) -> None:
    """Softmax is over all that follows its axis before opset 13, and Unsqueeze has an attribute."""
    proto = read(IN_BODIES, opset=11)
    result = superopt.optimize(proto, select="modelled", target_opset=opset)
    assert result.report["verified"]
    assert result.model.opset_import[0].version == opset
    onnx.checker.check_model(result.model)
    for choice in (True, False):
        feed = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), "c": np.array(choice)}
        np.testing.assert_allclose(run(result.model, feed)[0], run(proto, feed)[0], rtol=1e-6)


def test_a_body_that_is_not_legal_at_the_new_opset_is_not_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """No feed comes by it: the condition is what it is."""

    def forgetful(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        proto.opset_import[0].version = opset
        return proto

    monkeypatch.setattr("superopt.conversion.version_converter.convert_version", forgetful)
    with pytest.raises(OptionError, match="no legal model at opset 18: ") as caught:
        superopt.optimize(read(IN_BODIES, opset=11), select="modelled", target_opset=18)
    assert "\n" not in str(caught.value)


def test_weights_in_files_are_converted_too(tmp_path: Path) -> None:
    onnx.save(old_model(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    result = superopt.optimize(tmp_path / "m.onnx", select="modelled", target_opset=13)
    assert result.report["verified"]
    result.save(tmp_path / "new.onnx")
    x = {"x": np.ones((2, 1, 3), np.float32)}
    session = onnxruntime.InferenceSession(tmp_path / "new.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, x)[0], run(old_model(), x)[0], rtol=1e-6)


def test_what_the_converter_cannot_do_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(old_model(), tmp_path / "m.onnx")
    with pytest.raises(OptionError, match=r"m\.onnx cannot be converted from opset 11 to 999: "):
        superopt.optimize(tmp_path / "m.onnx", target_opset=999)
    with pytest.raises(OptionError, match="at least 7"):
        superopt.optimize(tmp_path / "m.onnx", target_opset=3)
    with pytest.raises(SystemExit) as stopped:
        main(["optimize", str(tmp_path / "m.onnx"), "--target-opset", "999"])
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_the_same_opset_is_no_conversion() -> None:
    result = superopt.optimize(old_model(), rules="batchnorm", select="modelled", target_opset=11)
    assert not result.report["changed"]
    assert result.model == old_model()


def test_a_model_stays_itself_where_nothing_can_be_resolved() -> None:
    model = Model(old_model())
    assert resolved(model) is model
