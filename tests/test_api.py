"""The stages from Python, as those who research rules call them, and what a notebook shows of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt

TWO_SCALES = """
rule merge-two-scales: reassociates
  Add(Mul(x, c), Mul(x, d)) => Mul(x, Add(c, d))
  only if constant(c, d)
"""


@pytest.fixture
def model() -> onnx.ModelProto:
    """Relu(2 x + 3 x) for a float32 x of shape [batch, 8]."""
    weights = [numpy_helper.from_array(np.full(8, value, np.float32), name) for name, value in (("c", 2), ("d", 3))]
    nodes = [
        helper.make_node("Mul", ["x", "c"], ["xc"]),
        helper.make_node("Mul", ["x", "d"], ["xd"]),
        helper.make_node("Add", ["xc", "xd"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "scales", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_write_check_saturate_extract_verify(model: onnx.ModelProto, tmp_path: Path) -> None:
    rules = superopt.parse_rules(TWO_SCALES)
    assert superopt.check_rules(rules, points=8).passed

    saturated = superopt.saturate(model, rules)
    assert saturated.stopped_by == "saturated"
    assert dict(saturated.matches) == {"merge-two-scales": 1}
    # x, c, d and four operators; then Mul(x, c + d) and the sum of the weights.
    assert (saturated.nodes[0], saturated.nodes[-1]) == (7, 9)
    assert (saturated.classes[0], saturated.classes[-1]) == (7, 8)
    assert len(saturated.nodes) == len(saturated.classes) == saturated.saturation.iterations + 1

    chosen = superopt.extract(saturated, "nodes")
    assert (chosen.before, chosen.after) == (4, 2)
    assert chosen.bound <= chosen.cost
    assert chosen.gap == 0
    assert [node.op_type for node in chosen.model.graph.node] == ["Mul", "Relu"]
    assert superopt.verify(model, chosen.model).agree
    chosen.save(tmp_path / "less.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "less.onnx"))

    nothing = superopt.extract(superopt.saturate(model, rules.without("merge-two-scales")), "nodes")
    assert (nothing.after, dict(nothing.rules_used)) == (4, {})


def test_the_model_of_a_choice_is_the_callers_own(model: onnx.ModelProto) -> None:
    chosen = superopt.extract(superopt.saturate(model, superopt.parse_rules(TWO_SCALES)), "nodes")
    del chosen.model.graph.node[:]
    assert len(chosen.model.graph.node) == 2


def test_limits_are_text_a_mapping_or_a_record(model: onnx.ModelProto) -> None:
    rules = superopt.parse_rules(TWO_SCALES)
    for limits in ("iterations=1", {"iterations": 1}, superopt.Limits(iterations=1)):
        assert superopt.saturate(model, rules, limits).saturation.iterations == 1
    with pytest.raises(superopt.InputError, match="expected one of nodes, iterations, seconds"):
        superopt.saturate(model, rules, "rounds=1")


def test_a_choice_grows_no_more_than_allowed() -> None:
    rules = superopt.parse_rules("rule outer: reassociates\n  Mul(Mul(x, c), d) => Mul(x, Mul(c, d))\n")
    nodes = [helper.make_node("Mul", ["x", "c"], ["h"]), helper.make_node("Mul", ["h", "d"], ["y"])]
    drawn = np.random.default_rng(0)
    shapes = {"c": (256, 1), "d": (256,)}
    weights = [numpy_helper.from_array(drawn.random(shape, np.float32), name) for name, shape in shapes.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 256]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "outer", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    saturated = superopt.saturate(model, rules)
    assert superopt.extract(saturated, "nodes").after == 1
    bounded = superopt.extract(saturated, "nodes", max_growth=0.5).model
    assert bounded.ByteSize() <= 1.5 * model.ByteSize()
    assert superopt.verify(model, bounded).agree


def test_checking_tells_which_rule_fails_and_how() -> None:
    wrong = TWO_SCALES.replace("Add(c, d)", "Sub(c, d)").replace("merge", "take")
    checked = superopt.check_rules(superopt.parse_rules(TWO_SCALES) + superopt.parse_rules(wrong), points=8)
    assert not checked.passed
    assert [result.rule for result in checked.failures] == ["take-two-scales"]
    assert "take-two-scales: agrees" in repr(checked)
    assert len(checked) == 2
    assert checked[0].passed


def test_a_rejected_rule_that_could_not_be_checked_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the checker failed")

    monkeypatch.setattr("superopt.laws.laws.check", fails)
    text = 'rejected sign-of-a-sum: reassociates because "the sign is lost"\n  Neg(Add(x, y)) => Add(x, y)\n'
    checked = superopt.check_rules(superopt.parse_rules(text))
    assert not checked.passed
    assert [result.error for result in checked.failures] == ["RuntimeError: the checker failed"]


def test_rules_are_checked_by_name_too() -> None:
    checked = superopt.check_rules(["spectrum", superopt.parse_rules(TWO_SCALES)], points=1)
    assert [one.rule for one in checked] == [
        *(rule.name for rule in superopt.load_rules("spectrum")),
        "merge-two-scales",
    ]
    assert superopt.check_rules("spectrum", points=1).rules == superopt.load_rules("spectrum")


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: superopt.check_rules(None), "rules: None is no rule set, expected"),  # type: ignore[arg-type]
        (lambda: superopt.check_rules(["identity", 3]), "rules: 3 is no rule set, expected"),  # type: ignore[list-item]
        (lambda: superopt.check_rules("no-such"), "no such rule file"),
        (lambda: superopt.check_rules("identity", points=0), "points: 0 is out of range"),
        (lambda: superopt.check_rules("identity", seed=-1), "seed: -1 is out of range"),
        (lambda: superopt.check_rules("identity", jobs=0), "jobs: 0 is out of range"),
        (lambda: superopt.parse_rules(None), "NoneType is no text"),  # type: ignore[arg-type]
        (lambda: superopt.load_rules(None), "None is no rule set"),  # type: ignore[arg-type]
        (lambda: superopt.RuleSet() + None, "None is no rule set, expected a RuleSet"),  # type: ignore[operator]
        (lambda: superopt.RuleSet() + "default", "'default' is no rule set, expected a RuleSet"),  # type: ignore[operator]
        (lambda: superopt.load_rules("identity").without(superopt.Rule), "is no name, expected one of a rule"),  # type: ignore[arg-type]
        (lambda: superopt.extract(None), "saturated: None is no e-graph, expected"),  # type: ignore[arg-type]
        (lambda: superopt.cost(onnx.ModelProto(), 3), "cost: 3 is no cost model"),  # type: ignore[arg-type]
    ],
)
def test_what_is_of_a_wrong_kind_is_an_input_error(call: Callable[[], object], what: str) -> None:
    with pytest.raises(superopt.InputError) as caught:
        call()
    assert what in str(caught.value)


def test_rules_that_take_away_are_named_though_they_make_no_node() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Identity(x) b = Neg(a) c = Neg(b) y = Relu(c) }"
    given = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    rules = superopt.parse_rules("rule twice: exact\n  Neg(Neg(x)) => x\nrule same: exact\n  Identity(x) => x\n")
    chosen = superopt.extract(superopt.saturate(given, rules), "nodes")
    assert (sorted(chosen.rules_used), chosen.after) == (["same", "twice"], 1)
    assert "rules: none" not in repr(chosen)
    kept = superopt.extract(
        superopt.saturate(given, superopt.parse_rules("rule r: exact\n  Relu(x) => Relu(Neg(Neg(x)))"))
    )
    assert dict(kept.rules_used) == {}


def test_what_a_notebook_shows_is_short(model: onnx.ModelProto) -> None:
    rules = superopt.load_rules("default")
    assert repr(rules).startswith(f"<{len(rules)} rules, hash {rules.hash}: ")
    assert len(repr(rules)) < 400
    (rule,) = superopt.parse_rules(TWO_SCALES)
    assert "merge-two-scales: reassociates" in repr(rule)
    saturated = superopt.saturate(model, superopt.parse_rules(TWO_SCALES))
    assert "7 -> 9 e-nodes" in repr(saturated)
    assert "merge-two-scales 1" in repr(saturated)
    assert "4 -> 2" in repr(superopt.extract(saturated, "nodes"))
    result = superopt.optimize(model, rules=superopt.parse_rules(TWO_SCALES), select="modelled", cost="nodes")
    assert repr(result) == (
        f"<{result.report['source']}: 4 -> 2 nodes, cost (nodes) 4 -> 2 nodes; rules: merge-two-scales; "
        f"verified: {result.report['verified_by']}>"
    )


def test_a_notebook_gets_small_tables_in_which_all_is_escaped(model: onnx.ModelProto) -> None:
    rules = superopt.parse_rules(TWO_SCALES, "<b>.rules")
    wrong = superopt.parse_rules(TWO_SCALES.replace("Add(c, d)", "Sub(c, d)").replace("merge", "take"))
    saturated = superopt.saturate(model, rules)
    chosen = superopt.extract(saturated, "nodes")
    shown = [
        one._repr_html_() for one in (*rules, rules, saturated, chosen, superopt.check_rules(rules + wrong, points=8))
    ]
    for text in shown:
        ElementTree.fromstring(f"<root>{text}</root>")
        assert len(text) < 3000
    assert "=&gt;" in shown[0]
    assert "&lt;b&gt;.rules:" in shown[0]
    assert "<td>merge-two-scales</td><td>reassociates</td>" in shown[1]
    assert "<td>7 -&gt; 9</td>" in shown[2]
    assert "4 -&gt; 2" in shown[3]
    # What fails comes first, with what shows it.
    assert shown[4].index("take-two-scales") < shown[4].index("merge-two-scales")
    assert "agrees" in shown[4]
    everything = superopt.load_rules("default")
    assert len(everything._repr_html_()) < 3000
    assert f"and {len(everything) - 12} more" in everything._repr_html_()


def test_rule_sets_add_and_restrict() -> None:
    mine, identity = superopt.parse_rules(TWO_SCALES), superopt.load_rules("identity")
    both = mine + identity
    assert len(both) == len(mine) + len(identity)
    assert both.only("merge-two-scales") == mine
    assert both.without("merge-two-scales") == identity
    assert both + mine == both
    assert "merge-two-scales" in both
    assert mine.rules[0] in both
    assert "merge-two-scales" not in identity
    assert mine.rules[0] not in identity


def test_what_a_law_came_to_prints_as_a_line_or_two() -> None:
    wrong = "rule take-two-scales: reassociates\n  Add(Mul(x, c), Mul(x, d)) => Mul(x, c)\n"
    right, failing = superopt.check_rules(superopt.parse_rules(TWO_SCALES + wrong), points=8)
    assert re.fullmatch(r"<merge-two-scales: passes, 8 instances of \d+ kinds[^<\n]*>", repr(right))
    line, why = repr(failing).splitlines()
    assert line.startswith("<take-two-scales: fails at: agrees, ")
    assert failing.counterexample is not None
    assert why == failing.counterexample.evidence.splitlines()[0]
    assert repr(failing.counterexample) == failing.counterexample.text()
    shown = ElementTree.fromstring(failing._repr_html_())
    assert failing.counterexample.model.strip() in "".join(shown.itertext())
