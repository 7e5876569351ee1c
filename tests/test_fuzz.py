"""300 random models: lowered and written anew each means the same, and optimized each agrees as its class promises."""

from __future__ import annotations

import functools
import types
from collections import Counter

import hypothesis
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import superopt
from superopt.rule_text import load as load_rules
from superopt.rule_text import parse
from superopt.rules import RuleSet
from tests.fuzz.draft import Value
from tests.fuzz.graphs import Fuzzed, fuzzed
from tests.fuzz.properties import Skipped, check_optimized, check_round_trip

MODELS = 50
CLASSES = ("exact", "reassociates", "approximates")


@functools.cache
def rules() -> RuleSet:
    return load_rules("default")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("numeric", CLASSES)
def test_random_models(numeric: str, seed: int) -> None:
    counts: Counter[str] = Counter()

    @hypothesis.seed(100 * CLASSES.index(numeric) + seed)
    @settings(max_examples=MODELS, phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))
    @given(fuzzed())
    def examine(case: Fuzzed) -> None:
        counts["drawn"] += 1
        try:
            check_round_trip(case)
            result = check_optimized(case, numeric, rules())
        except Skipped:
            counts["skipped"] += 1
            return
        counts["changed"] += result.report["changed"]

    examine()
    # What the strategy draws must be worth drawing.
    assert counts["drawn"] >= MODELS
    assert counts["skipped"] <= counts["drawn"] // 4
    assert counts["changed"] >= counts["drawn"] // 5


def drawn() -> Fuzzed:
    """One model in which a rule has something to do."""
    nodes = [
        onnx.helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        onnx.helper.make_node("Sigmoid", ["a"], ["b"]),
        onnx.helper.make_node("Transpose", ["b"], ["y"], perm=[1, 0]),
    ]
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3, 4]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return Fuzzed(model, (Value("x", "float32", (3, 4)),), 0)


@pytest.mark.parametrize("numeric", ["exact", "reassociates"])
def test_a_wrong_rule_is_a_find(numeric: str) -> None:
    wrong = parse("rule wrong: exact\n  Sigmoid(x) => Relu(x)\n", "wrong.rules")
    with pytest.raises(AssertionError, match="rules left out"):
        check_optimized(drawn(), numeric, wrong)


@pytest.mark.parametrize("numeric", ["exact", "reassociates"])
def test_a_wrong_model_is_a_find(numeric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What superopt itself believes of its result does not count."""
    case = drawn()
    wrong = onnx.ModelProto()
    wrong.CopyFrom(case.model)
    wrong.graph.node[1].op_type = "Tanh"
    good = superopt.optimize(case.model, rules=rules(), select="modelled")

    claimed = types.SimpleNamespace(report={**good.report, "changed": True}, model=wrong)
    monkeypatch.setattr(superopt, "optimize", lambda *_, **__: claimed)
    with pytest.raises(AssertionError, match=r"became|off"):
        check_optimized(case, numeric, rules())


def test_feeds_are_the_same_every_time_and_hold_special_values() -> None:
    case = drawn()
    first, second = case.feed("special")["x"], case.feed("special")["x"]
    assert first.tobytes() == second.tobytes()
    assert not all(np.isfinite(Fuzzed(case.model, case.inputs, seed).feed("special")["x"]).all() for seed in range(4))
    assert np.isfinite(case.feed("plain")["x"]).all()
