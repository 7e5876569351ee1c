"""``optimize`` from end to end on small models: what it gives back, and what its report says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.errors import EGraphError, FeedError, InputError, ModelError
from superopt.laws import laws, trust
from superopt.measure import Latencies
from superopt.models.model import load
from superopt.report import to_json
from superopt.rule_text import load as load_rules
from superopt.rule_text import parse
from superopt.rules import RuleSet
from superopt.search import candidates as search
from superopt.search import selection
from tests.models import from_text

Optimize = Callable[..., superopt.Result]


def conv_and_batchnorm(seed: int = 0) -> onnx.ModelProto:
    """Conv, BatchNormalization, Sigmoid."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(np.float32)

    weights = {"w": normal(4, 3, 3, 3), "s": normal(4), "t": normal(4), "m": normal(4), "v": np.abs(normal(4)) + 1}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["b"], name="norm"),
        helper.make_node("Sigmoid", ["b"], ["y"], name="act"),
    ]
    return model_of(nodes, weights, ["batch", 3, 8, 8], ["batch", 4, 8, 8])


def model_of(
    nodes: Sequence[onnx.NodeProto], weights: dict[str, np.ndarray[Any, Any]], x: list[Any], y: list[Any]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def optimized(model: Any, **options: Any) -> superopt.Result:
    return superopt.optimize(model, **{"rules": "batchnorm", "select": "modelled", **options})


def operators(result: superopt.Result) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


def test_a_batchnorm_is_folded_and_the_report_says_how() -> None:
    result = optimized(conv_and_batchnorm())
    assert operators(result) == ["Conv", "Sigmoid"]
    report = result.report
    assert (report["changed"], report["verified"], report["problems"], report["left_out"]) == (True, True, [], [])
    assert report["rules_used"] == ["fold-batchnorm-into-conv"]
    assert report["rule_runs"]["fold-batchnorm-into-conv"]["matches"] >= 1
    assert report["nodes"] == {"before": 3, "after": 2}
    assert report["operators"]["BatchNormalization"] == {"before": 1, "after": 0}
    assert report["bytes"]["after"] < report["bytes"]["before"]
    assert report["cost"]["after"] < report["cost"]["before"]
    assert report["latency"] is None
    assert report["stopped_by"] == "saturated"
    assert report["reproducible"]
    (output,) = report["outputs"]
    assert output["name"] == "y"
    for error in (output["difference"], output["original_error"], output["new_error"]):
        assert error is not None
        assert error["max_abs"] < 1e-5
    assert {"superopt", "egglog", "onnxruntime"} <= set(report["versions"])
    assert set(report["seconds"]) == {
        "rules", "lower", "sample", "saturate", "extract", "materialize", "emit", "verify",
    }  # fmt: skip
    assert json.loads(to_json(report))["format"] == report["format"]


def test_open_dimensions_names_and_interface_are_kept() -> None:
    result = optimized(conv_and_batchnorm(), input_shape={"x": (2, 3, 8, 8)})
    graph = result.model.graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    # The folded Conv computes what the BatchNormalization did, so it has that name.
    assert list(graph.node[0].output) == ["b"]
    assert graph.node[1] == conv_and_batchnorm().graph.node[2]
    assert [output.name for output in graph.output] == ["y"]
    assert result.report["feeds"][0].startswith("seeded")


def test_a_message_an_ir_model_and_a_path_give_the_same(tmp_path: Path) -> None:
    message = conv_and_batchnorm()
    onnx.save(message, tmp_path / "m.onnx")
    results = [optimized(source) for source in (message, tmp_path / "m.onnx", onnx_ir.from_proto(message))]
    assert results[0].model == results[1].model
    assert [operators(result) for result in results] == [["Conv", "Sigmoid"]] * 3
    assert message == conv_and_batchnorm()
    results[0].save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == results[0].model


def test_what_is_not_changed_has_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    # A field that is given twice is read as the second one, and never written so.
    path.write_bytes(b"\x08\x07" + conv_and_batchnorm().SerializeToString())
    result = optimized(path, rules="movement")
    assert not result.report["changed"]
    assert result.report["verified"]
    assert result.report["verified_by"] == "it is the original"
    assert result.report["outputs"] == []
    result.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


WRONG = """
rule sigmoid-is-identity: reassociates
  Sigmoid(x) => x
"""


def test_a_wrong_rule_is_named_and_left_out_and_the_others_still_serve() -> None:
    result = optimized(conv_and_batchnorm(), rules=load_rules("batchnorm") + parse(WRONG), trust_rules=True)
    report = result.report
    assert [guilty["rule"] for guilty in report["left_out"]] == ["sigmoid-is-identity"]
    assert (report["verified"], report["rules_used"]) == (True, ["fold-batchnorm-into-conv"])
    assert operators(result) == ["Conv", "Sigmoid"]


RARELY_WRONG = """
rule clip-away: exact
  Clip(x, a, b) => x
"""


def clipped() -> onnx.ModelProto:
    """A Clip whose bounds no sample reaches."""
    weights = {"a": np.float32(-500), "b": np.float32(500)}
    nodes = [helper.make_node("Clip", ["x", "a", "b"], ["c"]), helper.make_node("Sigmoid", ["c"], ["y"])]
    return model_of(nodes, {name: np.asarray(value) for name, value in weights.items()}, [1, 64], [1, 64])


def test_a_rule_that_only_its_law_refutes_is_left_out_unless_it_is_trusted() -> None:
    wrong = parse(RARELY_WRONG)
    result = optimized(clipped(), rules=load_rules("batchnorm") + wrong)
    (left_out,) = result.report["left_out"]
    assert left_out["rule"] == "clip-away"
    assert left_out["because"].startswith("its law fails: agrees: different in")
    assert operators(result) == ["Clip", "Sigmoid"]
    assert (result.report["verified"], result.report["rules"]["count"]) == (True, len(load_rules("batchnorm")))
    trusted = optimized(clipped(), rules=wrong, trust_rules=True)
    assert (operators(trusted), trusted.report["left_out"]) == (["Sigmoid"], [])


def test_rules_that_ship_are_not_tried_again_and_a_changed_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(laws, "refuted", lambda rule, points: tried.append(rule.name))
    shipped = load_rules("batchnorm")
    assert trust.lawful(shipped) == (shipped, ())
    assert tried == []
    first = shipped.rules[0]
    changed = RuleSet((replace(first, when=()), *shipped.rules[1:]))
    trust.lawful(changed)
    assert tried == [first.name]


EQUAL_AND_WRONG = """
rule two-sigmoids-are-one: reassociates
  Sigmoid(Sigmoid(x)) => Sigmoid(x)
"""


def two_sigmoids() -> onnx.ModelProto:
    nodes = [helper.make_node("Sigmoid", ["x"], ["a"]), helper.make_node("Sigmoid", ["a"], ["y"])]
    return model_of(nodes, {}, [2, 3], [2, 3])


def test_a_guilty_rule_that_made_no_node_is_found_too() -> None:
    result = optimized(two_sigmoids(), rules=parse(EQUAL_AND_WRONG), trust_rules=True)
    report = result.report
    assert [guilty["rule"] for guilty in report["left_out"]] == ["two-sigmoids-are-one"]
    assert "off from the truth" in report["left_out"][0]["because"]
    assert (report["verified"], report["changed"]) == (True, False)
    assert result.model == two_sigmoids()


def test_without_a_guilty_rule_the_original_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **keywords: object) -> None:
        raise EGraphError("out of order")

    monkeypatch.setattr(search, "saturate", fails)
    result = optimized(conv_and_batchnorm())
    assert result.model == conv_and_batchnorm()
    assert not result.report["verified"]
    assert result.report["problems"] == ["EGraphError: out of order"]
    assert result.report["stopped_by"] == "error"


def test_a_model_that_cannot_be_run_is_verified_by_regions() -> None:
    model = conv_and_batchnorm()
    model.graph.node[2].domain = "not.there"
    model.opset_import.append(helper.make_opsetid("not.there", 1))
    result = optimized(model)
    assert [node.op_type for node in result.model.graph.node] == ["Conv", "Sigmoid"]
    assert result.report["verified"]
    assert result.report["regions"] == 1
    assert "by regions" in result.report["verified_by"]
    assert result.report["opaque"] == [
        {"operator": "not.there.Sigmoid", "count": 1, "reason": "an operator that no rule knows"}
    ]


PRODUCTS = """
rule products: reassociates
  MatMul(MatMul(x, a), b) => MatMul(x, MatMul(a, b))
"""


def bottleneck() -> onnx.ModelProto:
    """Two products with a narrow place between them: one product is less to run and more to store."""
    rng = np.random.default_rng(0)
    weights = {
        "a": rng.standard_normal((64, 2)).astype(np.float32),
        "b": rng.standard_normal((2, 64)).astype(np.float32),
    }
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    return model_of(nodes, weights, [1, 64], [1, 64])


def test_a_model_grows_as_far_as_it_may() -> None:
    grown = optimized(bottleneck(), rules=parse(PRODUCTS), trust_rules=True, cost="nodes", max_growth=None)
    assert operators(grown) == ["MatMul"]
    assert grown.report["bytes"]["after"] > 10 * grown.report["bytes"]["before"]
    kept = optimized(bottleneck(), rules=parse(PRODUCTS), trust_rules=True, cost="nodes")
    assert operators(kept) == ["MatMul", "MatMul"]
    assert kept.report["bytes"]["after"] <= 1.05 * kept.report["bytes"]["before"]


def test_limits_end_in_a_result_that_says_what_stopped_it() -> None:
    result = optimized(conv_and_batchnorm(), limit="iterations=1")
    assert result.report["stopped_by"] == "iterations"
    assert result.report["settings"]["limit"]["iterations"] == 1
    result = optimized(conv_and_batchnorm(), limit={"seconds": 0})
    assert result.report["stopped_by"] == "seconds"
    assert not result.report["reproducible"]


def test_numeric_classes_gate_the_rules() -> None:
    assert operators(optimized(conv_and_batchnorm(), numeric="exact")) == ["Conv", "BatchNormalization", "Sigmoid"]


@pytest.mark.parametrize(
    ("factor", "chosen", "verdict"),
    [(0.5, True, "chosen"), (1.0, True, "chosen"), (2.0, False, "slower than the original")],
)
def test_the_clock_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch, factor: float, chosen: bool, verdict: str
) -> None:
    def timed(runs: Sequence[Callable[[], object]], *, replicas: int, **_: object) -> Latencies:
        assert len(runs) == 2 * replicas
        assert all(run() for run in runs)
        noise = [1 + 0.01 * (index % 3) for index in range(20)]
        swing = [(1.005, 0.995)[index % 2] for index in range(20)]
        samples = [tuple(noise), tuple(factor * a * b for a, b in zip(noise, swing, strict=True))]
        return Latencies(tuple(samples), 1, 1)

    monkeypatch.setattr(selection, "measure_calls", timed)
    result = optimized(conv_and_batchnorm(), select="measured")
    report = result.report
    assert [candidate["verdict"] for candidate in report["candidates"]] == [verdict]
    assert report["changed"] is chosen
    assert report["verified"]
    latency = report["latency"]
    assert latency is not None
    assert latency["before"] == pytest.approx(1010, rel=0.01)
    assert latency["after"] == pytest.approx(1010 * (factor if chosen else 1), rel=0.01)
    assert not report["reproducible"]
    if not chosen:
        assert result.model == conv_and_batchnorm()
        assert report["nodes"] == {"before": 3, "after": 3}


def test_given_inputs_are_those_that_are_used(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8)
    np.savez(tmp_path / "feed.npz", x=x)
    assert optimized(conv_and_batchnorm(), inputs={"x": x}).report["feeds"] == ["given (batch=2)"]
    (feed,) = optimized(conv_and_batchnorm(), inputs=tmp_path / "feed.npz").report["feeds"]
    assert "feed.npz" in feed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": {"z": np.zeros(1, np.float32)}}, "z"),
        ({"inputs": "no.npz"}, "no.npz"),
        ({"input_shape": {"x": (1, 4, 8, 8)}}, "input-shape: x:1,4,8,8 does not fit"),
        ({"rules": "no-such"}, "no-such:1:1: "),
        ({"without": "no-such"}, "no rule is named no-such"),
        ({"cost": "no-such"}, "no-such: no such cost model"),
    ],
)
def test_wrong_input_raises_one_kind_of_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        optimized(conv_and_batchnorm(), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_model_is_an_input_error() -> None:
    with pytest.raises(ModelError):
        optimized(onnx.ModelProto())


def test_cost_and_verify_are_functions_whatever_was_imported() -> None:
    breakdown = superopt.cost(conv_and_batchnorm(), "nodes")
    assert breakdown.total == 3
    assert [(item.name, item.op) for item in breakdown.nodes] == [
        ("c", "Conv"), ("b", "BatchNormalization"), ("y", "Sigmoid"),
    ]  # fmt: skip
    assert superopt.verify(conv_and_batchnorm(), optimized(conv_and_batchnorm()).model).agree
    assert not superopt.verify(conv_and_batchnorm(0), conv_and_batchnorm(1)).agree


def test_the_packages_names_are_sorted_lazy_and_all_there() -> None:
    assert superopt.__all__ == sorted(superopt.__all__)
    assert set(superopt._HOME) == set(superopt.__all__) - {"__version__"}
    assert all(getattr(superopt, name) is not None for name in superopt.__all__)
    assert set(superopt.__all__) <= set(dir(superopt))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        superopt.nothing  # noqa: B018


def test_the_price_of_a_byte_is_found_by_bisection() -> None:
    for threshold, steps in itertools.product(range(9), (8,)):
        asked: list[int] = []

        def found(step: int, threshold: int = threshold, asked: list[int] = asked) -> Any:
            asked.append(step)
            return step if step >= threshold else None

        assert search._first(found, steps) == threshold
        assert len(asked) <= 6
    assert search._first(lambda step: None, 8) is None
    assert load(conv_and_batchnorm()).opset == 13


def tiny(op: str, x: list[int], w: list[int], channels: int, **attributes: Any) -> onnx.ModelProto:
    """A layer without a bias, of hardly any work, and a BatchNormalization."""
    rng = np.random.default_rng(0)
    weights = {name: rng.random(channels).astype(np.float32) + np.float32(0.5) for name in "stmv"}
    weights["w"] = rng.standard_normal(w).astype(np.float32)
    nodes = [
        helper.make_node(op, ["x", "w"], ["c"], **attributes),
        helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["y"]),
    ]
    model = model_of(nodes, weights, x, [])
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize(
    ("op", "x", "w", "channels", "attributes"),
    [
        ("ConvTranspose", [1, 1, 2, 2], [1, 1, 1, 1], 1, {}),
        ("ConvTranspose", [1, 4, 5], [4, 3, 3], 3, {"pads": [1, 1]}),
        ("ConvTranspose", [1, 4, 5, 5], [4, 1, 3, 3], 4, {"group": 4}),
        ("ConvTranspose", [1, 2, 3, 3, 3], [2, 2, 1, 1, 1], 2, {}),
        ("Conv", [1, 1, 2, 2], [1, 1, 1, 1], 1, {}),
        ("Conv", [1, 2, 5], [2, 2, 3], 2, {}),
        ("Conv", [1, 3, 6, 6], [3, 1, 3, 3], 3, {"group": 3}),
        ("Conv", [1, 2, 3, 3, 3], [2, 2, 1, 1, 1], 2, {}),
        ("Gemm", [1, 1], [1, 1], 1, {}),
        ("Gemm", [2, 3], [3, 2], 2, {}),
    ],
)
def test_a_batchnorm_behind_a_tiny_layer_is_folded(
    op: str, x: list[int], w: list[int], channels: int, attributes: dict[str, Any]
) -> None:
    result = optimized(tiny(op, x, w, channels, **attributes), max_growth=0.05)
    assert operators(result) == [op]
    assert result.report["verified"]


@pytest.mark.parametrize(
    ("version", "listed", "constant", "inputs"),
    [
        (3, "wstmv", True, ["x"]),
        (3, "wstmv", False, ["x", *"wstmv"]),
        (3, "", False, ["x"]),
        (3, "w", True, ["x"]),
        (4, "wstmv", True, ["x"]),
        (4, "wstmv", False, ["x", *"wstmv"]),
        (4, "", False, ["x"]),
    ],
)
def test_new_weights_are_no_inputs_and_the_models_own_stay_what_they_were(
    version: int, listed: str, constant: bool, inputs: list[str]
) -> None:
    model = tiny("Conv", [1, 2, 3, 3], [2, 2, 2, 2], 2)
    model.ir_version = version
    model.opset_import[0].version = 8
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 2, 2]))
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims)
        for name in listed
        for tensor in model.graph.initializer
        if tensor.name == name
    )
    result = optimized(model, initializers_are_constant=constant)
    assert [value.name for value in result.model.graph.input] == inputs
    runs = [operator for operator in operators(result) if operator != "Constant"]
    assert runs == (["Conv", "BatchNormalization"] if "w" in inputs else ["Conv"])
    if version >= 4 or listed == "wstmv":
        onnx.checker.check_model(model)
        onnx.checker.check_model(result.model)


def test_a_model_costs_no_more_for_what_became_known_of_its_types() -> None:
    """The rank of ``b`` is not known before a rule finds it to be the output."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n] x, int64[k] s) => (float[?,?,?,?] y) {
        a = Reshape(x, s)
        b = Tanh(a)
        d = Dropout(b)
        y = Identity(d)
    }""")
    feed = {"x": np.zeros(24, np.float32), "s": np.asarray([1, 2, 3, 4])}
    cost = superopt.optimize(model, select="modelled", inputs=feed).report["cost"]
    assert cost["after"] < cost["before"]


def test_a_function_that_is_called_costs_what_it_does() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18, "my": 1]>
    g (float[n, 4] x) => (float[n, 4] y) { y = my.f(x) }
    <domain: "my", opset_import: ["": 18]>
    f (X) => (Y) { S = Neg(X) T = Neg(S) U = Exp(T) V = Tanh(U) Y = Erf(V) }""")
    report = superopt.optimize(model, select="modelled").report
    assert report["changed"]
    assert report["cost"]["after"] <= report["cost"]["before"]


def test_a_shape_that_a_model_does_not_run_with_is_an_error() -> None:
    weights = {"w": np.ones((8, 4), np.float32)}
    model = from_text("g (float[n, 4] x) => (float[m, 4] y) { a = Add(x, w)  y = Identity(a) }", weights)
    assert superopt.optimize(model, select="modelled", input_shape={"x": (8, 4)}).report["verified"]
    with pytest.raises(FeedError, match=r"input-shape: the model does not run with it: .* one try was x\[9, 4\]"):
        superopt.optimize(model, select="modelled", input_shape={"x": (9, 4)})


def test_what_cannot_be_timed_says_so() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "other": 1]>
    g (float[2, 4] x) => (float[k] y) { a = Identity(x)  b = Relu(a)  y = other.Unknown(b) }""")
    report = superopt.optimize(model, tune=0.5).report
    assert report["changed"]
    assert report["latency"] is None
    assert report["problems"] == ["not timed: no inputs that it runs with"]
