"""Explanations: the steps end in the result, each is judged on its own, and no rule of the smallest set can go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from benchmarks import models
from benchmarks.network import TINY
from superopt import pipeline
from superopt.cost import CostModel
from superopt.cost import load as load_cost_model
from superopt.errors import EvaluationError, ModelError, OptionError
from superopt.explanation.applications import Applications
from superopt.explanation.cells import Cells
from superopt.explanation.constants import ConstantValues
from superopt.explanation.derivation import Step, derive, step_of
from superopt.explanation.document import Explanation, GraphDocument
from superopt.explanation.explain import Rewriting, derivation_of, graph_document, ways
from superopt.explanation.numbering import numbered
from superopt.explanation.of_pair import explain_pair
from superopt.explanation.smallest import Reached, smallest
from superopt.explanation.text import summary
from superopt.explanation.verdicts import Examiner
from superopt.kernels import FLOAT64, evaluate_graph
from superopt.lowering.lower import lower
from superopt.models.model import load
from superopt.numeric import settle
from superopt.options import options
from superopt.pipeline import optimize
from superopt.progress import Clock, Watcher
from superopt.rule_text import load as load_rules
from superopt.rule_text import parse
from superopt.rules import RuleSet
from superopt.search.candidates import Search

COST = load_cost_model("onnxruntime")
SETS = ("batchnorm", "movement", "identity")
SOME = (load_rules("batchnorm") + load_rules("movement") + load_rules("identity")).of_class("reassociates", ())
"""Enough rules for these models; all that ship take seconds to load."""

CONV = """agraph (float[1,2,6,6] x) => (float[1,3,6,6] y)
<float[3,2,3,3] w, float[3] s, float[3] t, float[3] m, float[3] v> {
  c = Conv<pads = [1,1,1,1]>(x, w)
  b = BatchNormalization(c, s, t, m, v)
  z = Transpose<perm = [0,2,3,1]>(b)
  u = Transpose<perm = [0,3,1,2]>(z)
  y = Relu(u)
}"""


BEST = ("transpose-of-transpose", "transpose-of-nothing", "fold-batchnorm-into-conv")
"""The rules that lead from it to the best that there is."""


def model_of(text: str) -> onnx.ModelProto:
    """A model in which what is declared and not made is a drawn initializer."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    made = {name for node in proto.graph.node for name in node.output}
    made.update(tensor.name for tensor in proto.graph.initializer)
    generator = np.random.default_rng(0)
    for value in proto.graph.value_info:
        if value.name not in made:
            dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            values = generator.uniform(0.5, 1.5, dims).astype(np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(values, value.name))
    return proto


def search_of(proto: onnx.ModelProto, **given: object) -> Search:
    model = load(proto)
    lowered = lower(model)
    graph = settle(lowered.graph, context=model.proto)
    return Search(
        model, lowered, graph, options(select="modelled", max_growth="none", **given), Clock(Watcher()), {}, None
    )


def way_of(proto: onnx.ModelProto, rules: RuleSet, cost: CostModel = COST) -> Rewriting:
    """What the cost model chooses under some rules."""
    search = search_of(proto)
    saturation = search.saturate(rules)
    found = search.choose(saturation, cost)
    assert found is not None
    return next(iter(ways(search, saturation, found)))


def rules_in(document: GraphDocument) -> list[list[str]]:
    return [step["rules"] for step in document["steps"]]


@pytest.mark.parametrize("name", ["repvgg-a0", "bert", "bert-lora"])
def test_the_steps_end_in_the_result_term_for_term(name: str) -> None:
    rules = load_rules("default").of_class("reassociates", ())
    way = way_of(models.build(name, size=TINY), rules)
    derivation = derivation_of(way, rules)
    assert derivation.steps
    assert numbered(derivation.end).text() == numbered(way.chosen).text()


def test_every_graph_on_the_way_computes_the_same() -> None:
    rules = SOME
    way = way_of(model_of(CONV), rules)
    feed = {"x": np.random.default_rng(1).standard_normal((1, 2, 6, 6))}
    wanted = evaluate_graph(way.search.graph, feed, FLOAT64)[0]
    seen: list[int] = []

    def observed(step: Step, cells: Cells) -> None:
        graph = cells.graph()
        seen.append(len(graph.nodes))
        np.testing.assert_allclose(evaluate_graph(graph, feed, FLOAT64)[0], wanted, rtol=1e-12, atol=1e-12)

    steps = derivation_of(way, rules, observed).steps
    assert [step.rules for step in steps] == [(name,) for name in BEST]
    assert len(seen) == 3


def test_a_place_is_that_of_the_terms_a_rule_met_whatever_they_are_equal_to_by_then() -> None:
    text = "agraph (float[2] x) => (float[2] y) { a = Identity(x) b = Neg(a) c = Neg(b) d = Relu(c) y = Relu(d) }"
    rules = SOME.only("identity", "involution-twice", "idempotent-twice")
    steps = graph_document(way_of(model_of(text), rules), rules)["steps"]
    places = {step["rules"][0]: (step["where"], step["inputs"]) for step in steps}
    assert places == {
        "idempotent-twice[Relu]": (["y"], {"x": "c"}),
        "involution-twice[Neg]": (["c"], {"x": "a"}),
        "identity": (["a"], {"x": "x"}),
    }


def test_a_step_shows_the_rule_the_place_and_both_sides() -> None:
    rules = SOME
    document = graph_document(way_of(model_of(CONV), rules), rules)
    assert rules_in(document) == [*([name] for name in BEST), ["fold constants"]]
    assert document["arrived"]
    assert document["nodes"] == {"before": 5, "after": 2}
    step = document["steps"][2]
    # By then the value of the transposes is that of the normalization.
    assert step["where"] == ["b"]
    assert step["inputs"]["w"] == "w"
    assert "BatchNormalization" in step["before"]
    assert "BatchNormalization" not in step["after"]
    assert all(one["verified"] for one in document["steps"])
    for one in document["steps"][:3]:
        onnx.checker.check_model(parser.parse_model(one["before"]))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("rule r: exact\n Relu(x) => Relu(Relu(x))\n", True),
        ("rule r: exact\n Relu(x) => Abs(x)\n", False),
        ("rule r: reassociates\n Conv(x, w, b, **a) => Neg(Conv(x, w, b, **a))\n", False),
    ],
)
def test_each_step_is_judged_on_its_own(text: str, right: bool) -> None:
    rules = parse(text)
    egraph = search_of(model_of(CONV)).saturate(rules).egraph
    examiner = Examiner(ConstantValues(egraph), rules, {})
    verdicts = [examiner.judge(step_of(one, egraph)).right for one in Applications(egraph, rules, 17).everywhere()]
    assert verdicts
    assert set(verdicts) == {right}


def test_a_wrong_step_is_flagged_with_both_values() -> None:
    rules = parse("rule wrong: exact\n Relu(x) => Identity(x)\n")
    document = graph_document(way_of(model_of(CONV), rules), rules)
    step = document["steps"][0]
    assert (step["rules"], step["verified"]) == (["wrong"], False)
    assert step["values"] is not None
    assert step["values"][0] != step["values"][1]
    assert "different bits" in step["how"]


def test_a_rule_is_read_from_right_to_left_where_that_is_the_way() -> None:
    rules = parse("rule twice: exact\n Mul(x, 2.0) => Add(x, x)\n")
    search = search_of(
        model_of("agraph (float[3] x) => (float[3] y, float[3] z) <float two = {2}> { y = Mul(x, two) z = Add(x, x) }")
    )
    egraph = search.saturate(rules).egraph
    product, total = search.graph.roots
    wanted = replace(search.graph, roots=(product, product))
    derivation = derive(search.graph, wanted, egraph.class_of, Applications(egraph, rules, 17))
    assert [(step.rules, step.backward) for step in derivation.steps] == [(("twice",), True)]
    assert numbered(derivation.end).text() == numbered(wanted).text()
    assert total != product


def test_where_single_rules_do_not_lead_several_are_used_at_once_and_verified() -> None:
    rules = SOME
    way = way_of(model_of(CONV), rules)
    blind = Applications(way.saturation.egraph, (), 17)
    derivation = derive(way.search.graph, way.chosen, way.classes, blind)
    assert numbered(derivation.end).text() == numbered(way.chosen).text()
    assert derivation.steps
    assert all(step.application is None for step in derivation.steps)
    examiner = Examiner(ConstantValues(way.saturation.egraph), rules, {})
    assert [examiner.judge(step).right for step in derivation.steps] == [True] * len(derivation.steps)
    wrong = replace(derivation.steps[0], after=derivation.steps[0].before, before=derivation.steps[0].after)
    assert examiner.judge(wrong).right


CHAIN = """agraph (float[2,3] x) => (float[2,3] y) <float[3] a, float[3] b, float[3] c, float[3] d, float[3] e> {
  p = Mul(x, a) q = Add(p, b) r = Mul(q, c) s = Add(r, d) t = Mul(e, s) y = Relu(t)
}"""

SUM = """agraph (float[2,4] x, float[2,3] z) => (float[2,3] y) <float[4,3] u, float[4,3] v, float[4,3] w> {
  p = MatMul(x, u) q = MatMul(x, v) r = MatMul(x, w) s = Add(p, z) t = Add(q, s) o = Add(t, r) y = Relu(o)
}"""

SIBLINGS = """agraph (float[2,4] x) => (float[2,3] a, float[2,5] b, float[2,6] c)
<float[4,3] u, float[4,5] v, float[4,6] w> {
  a = MatMul(x, u) b = MatMul(x, v) c = MatMul(x, w)
}"""

FOLDED = ["fold constants"]


@pytest.mark.parametrize(
    ("text", "named", "before", "after"),
    [
        (CHAIN, [["affine-of-affine"], FOLDED], ["Mul", "Add", "Mul", "Add", "Mul"], None),
        (
            SUM,
            [["matmuls-side-by-side"], ["sum-of-matmuls"], ["sum-of-matmuls"], FOLDED],
            ["Add", "Add", "Add"],
            ["Add", "Add", "Add"],
        ),
        (SIBLINGS, [["sibling-matmuls"], FOLDED], ["MatMul"] * 3, ["Concat", "MatMul", "Split"]),
    ],
)
def test_a_rule_about_many_terms_is_one_step_of_its_own(
    text: str, named: list[list[str]], before: list[str], after: list[str] | None
) -> None:
    rules = (load_rules("affine") + load_rules("reparameterize") + load_rules("siblings")).of_class("reassociates", ())
    rules = rules.without("matmul-and-add-as-gemm")
    document = graph_document(way_of(model_of(text), rules), rules)
    assert rules_in(document) == named
    assert not any(step["at_once"] for step in document["steps"])
    assert [step["verified"] for step in document["steps"]] == [True] * len(named)
    assert operators_of(document["steps"][0]["before"]) == before
    if after is not None:
        assert operators_of(document["steps"][0]["after"]) == after


def operators_of(text: str) -> list[str]:
    nodes = parser.parse_model(text).graph.node
    return [node.op_type for node in nodes if node.op_type != "Identity"]


TURNS = """agraph (float[2,3] x) => (float[2,3] y) {
  a = Transpose<perm = [1,0]>(x)
  b = Transpose<perm = [1,0]>(a)
  c = Relu(b)
  d = Relu(c)
  y = Identity(d)
}"""


def test_no_rule_of_the_smallest_set_can_be_left_out() -> None:
    rules = SOME.of_class("exact", ())
    way = way_of(model_of(TURNS), rules)
    led = list(dict.fromkeys(step.rules[0] for step in derivation_of(way, rules).steps))
    found = smallest([way.goal], rules, [*led, "concat-of-one"], COST, 60.0)
    assert found.complete
    assert found.reached
    assert found.rules
    assert set(found.rules) <= set(led)
    assert _cost(way, rules.only(*found.rules)) == pytest.approx(way.goal.cost)
    for name in found.rules:
        assert _cost(way, rules.only(*found.rules).without(name)) > way.goal.cost


def _cost(way: Rewriting, rules: RuleSet) -> float:
    found = way.search.choose(way.search.saturate(rules), COST)
    assert found is not None
    return found.extraction.cost


def test_a_smallest_set_says_where_it_was_cut_short_or_not_reached() -> None:
    rules = SOME.of_class("exact", ())
    way = way_of(model_of(TURNS), rules)
    cut = smallest([way.goal], rules, ["transpose-of-transpose"], COST, 0.0)
    assert not cut.complete
    never = smallest([Reached(way.search, -1.0)], rules.only("transpose-of-transpose"), [], COST, 60.0)
    assert not never.reached


def test_the_folder_holds_an_index_and_a_file_for_each_step(tmp_path: Path) -> None:
    folder = tmp_path / "why"
    result = optimize(model_of(CONV), rules=SETS, select="modelled", max_growth="none", explain=folder)
    index = json.loads((folder / "index.json").read_text())
    assert index["counts"]["wrong"] == 0
    assert index["smallest"]["rules"] == list(BEST)
    assert index["cost"]["after"] == result.report["cost"]["after"]
    files = sorted(path.name for path in (folder / "steps").iterdir())
    assert files == [f"0-000{place}-{name}.md" for place, name in enumerate([*BEST, "fold-constants"], 1)]
    text = (folder / "index.md").read_text()
    assert all(f"steps/{name}" in text for name in files)
    # Again, with nothing to say: what was there is gone.
    optimize(model_of(CONV), rules="batchnorm", select="modelled", explain=folder)
    assert "0-0001-transpose-of-transpose.md" not in [path.name for path in (folder / "steps").iterdir()]


def test_a_folder_of_other_files_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(OptionError, match="holds other files"):
        optimize(model_of(CONV), explain=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(OptionError, match="is a file"):
        optimize(model_of(CONV), explain=tmp_path / "mine.txt")
    with pytest.raises(OptionError, match="is not a directory"):
        optimize(model_of(CONV), explain=tmp_path / "no" / "such")


def test_nothing_changed_is_said_in_a_line(tmp_path: Path) -> None:
    optimize(
        model_of("agraph (float[3] x) => (float[3] y) { y = Relu(x) }"), rules="identity", explain=tmp_path / "why"
    )
    index: Explanation = json.loads((tmp_path / "why" / "index.json").read_text())
    assert summary(index) == ["model: nothing better was found, there is nothing to explain"]


def pair(before: onnx.ModelProto, after: onnx.ModelProto, **given: object) -> Explanation:
    return explain_pair(load(before), load(after), options(**{"rules": SETS, **given}), Clock(Watcher()))


def test_a_given_result_is_found_again() -> None:
    proto = model_of(CONV)
    result = optimize(proto, rules=SETS, select="modelled", max_growth="none").model
    document = pair(proto, result)
    assert document["graphs"][0]["arrived"]
    assert rules_in(document["graphs"][0]) == [*([name] for name in BEST), ["fold constants"]]
    missing = pair(proto, result, rules="batchnorm", without="fold-batchnorm-into-conv")
    assert missing["missing"]
    assert all(line.endswith(" = Conv(...)") for line in missing["missing"])
    assert "no way leads to" in missing["reason"]
    assert "they compute the same terms" in pair(proto, proto)["reason"]
    wrong = parse("rule not-so: exact\n  Relu(x) => x\n")
    assert "; left out: not-so: its law fails: agrees" in pair(proto, result, rules=wrong)["reason"]


def test_a_result_with_an_attribute_that_a_rule_computed_is_found_again() -> None:
    proto = model_of(
        "agraph (float[4] x) => (float[4] y) {\n"
        "  three = Constant<value = float {3}>()  low = Constant<value = float {0}>()\n"
        "  six = Constant<value = float {6}>()\n"
        "  a = Add(x, three)  c = Clip(a, low, six)  y = Div(c, six)\n}"
    )
    result = optimize(proto, rules=("activations",), select="modelled").model
    assert [node.op_type for node in result.graph.node] == ["HardSigmoid"]
    assert pair(proto, result, rules="activations")["graphs"][0]["arrived"]


BODIES = """agraph (float[2,4] x, bool c, int64 n) => (float[2,4] y, float[2,4] last) <float[4] s, float[4] t> {
  z = Identity(x)
  y = If (c) <
    then_branch = then () => (float[2,4] a) {
      p = Transpose<perm=[1,0]>(x) q = Transpose<perm=[1,0]>(p) a = Relu(q)
    },
    else_branch = other () => (float[2,4] b) { b = Abs(z) }
  >
  last = Loop (n, , x) <body = round (int64 i, bool going, float[2,4] v) => (bool on, float[2,4] w) {
    on = Identity(going)
    w = If (going) <
      then_branch = inner () => (float[2,4] d) { e = Mul(v, s) f = Relu(e) g = Identity(f) d = Neg(g) },
      else_branch = last () => (float[2,4] h) { h = Mul(x, t) }
    >
  }>
}"""


def test_bodies_of_a_given_result_are_explained_by_themselves() -> None:
    proto = model_of(BODIES)
    result = optimize(proto, rules=SETS, select="modelled", max_growth="none").model
    document = pair(proto, result)
    assert not document["missing"]
    assert all(graph["arrived"] for graph in document["graphs"])
    assert {graph["place"]: rules_in(graph) for graph in document["graphs"] if graph["steps"]} == {
        "If(y).then_branch": [["transpose-of-transpose"], ["transpose-of-nothing"]],
        "Loop(last).body / If(w).then_branch": [["identity"]],
    }
    assert document["counts"]["verified"] == 3
    assert document["smallest"] is not None
    assert sorted(document["smallest"]["rules"]) == ["identity", "transpose-of-nothing", "transpose-of-transpose"]
    wrong = onnx.ModelProto()
    wrong.CopyFrom(result)
    branch = next(node for node in wrong.graph.node if node.op_type == "If").attribute[0].g
    branch.node[-1].op_type = "Sigmoid"
    assert pair(proto, wrong)["missing"] == [f"If(y).then_branch: {branch.output[0].name} = Sigmoid(...)"]


def test_the_bodies_of_a_run_are_told_by_the_way_to_them(tmp_path: Path) -> None:
    optimize(model_of(BODIES), rules=SETS, select="modelled", max_growth="none", explain=tmp_path / "why")
    index: Explanation = json.loads((tmp_path / "why" / "index.json").read_text())
    assert [graph["place"] for graph in index["graphs"]][:2] == ["", "If(y).then_branch"]
    assert "## If(y).then_branch" in (tmp_path / "why" / "index.md").read_text()


def test_whoever_watches_is_told_how_far_an_explanation_is() -> None:
    told: list[str] = []

    class Told(Watcher):
        def advanced(self, what: str) -> None:
            told.append(what)

    proto = model_of(CONV)
    result = optimize(proto, rules=SETS, select="modelled", max_growth="none").model
    explain_pair(load(proto), load(result), options(rules=SETS), Clock(Told()))
    assert told[:3] == [f"steps: {count} of 3 verified" for count in (1, 2, 3)]
    assert told[3:] == [f"smallest set: search {count}, under {3 if count == 1 else 2} rules" for count in (1, 2, 3, 4)]


def test_a_result_with_other_weights_is_not_found() -> None:
    proto = model_of(CONV)
    result = optimize(proto, rules=SETS, select="modelled", max_growth="none").model
    weight = next(tensor for tensor in result.graph.initializer if len(tensor.dims) == 4)
    values = numpy_helper.to_array(weight).copy()
    values[0, 0, 0, 0] *= 1.001
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    assert pair(proto, result)["missing"]


def test_models_of_other_interfaces_are_bad_input() -> None:
    other = model_of("agraph (float[1,2,6,6] q) => (float[1,2,6,6] y) { y = Relu(q) }")
    with pytest.raises(ModelError, match="interfaces differ"):
        pair(model_of(CONV), other)


def test_operators_that_are_left_alone_are_found_again() -> None:
    proto = model_of(
        "agraph (float[2,3] x) => (float[2,3] y) { t = Transpose<perm=[1,0]>(x) u = Transpose<perm=[1,0]>(t) "
        "y = my.Op(u) }"
    )
    proto.opset_import.append(onnx.helper.make_opsetid("my", 1))
    result = optimize(proto, rules=SETS, select="modelled").model
    document = pair(proto, result)
    assert document["graphs"][0]["arrived"]
    assert rules_in(document["graphs"][0]) == [["transpose-of-transpose"], ["transpose-of-nothing"]]


def test_constants_that_were_rounded_otherwise_are_said_to_be() -> None:
    proto = model_of(CONV)
    result = optimize(proto, rules=SETS, select="modelled", max_growth="none").model
    weight = next(tensor for tensor in result.graph.initializer if len(tensor.dims) == 4)
    values = numpy_helper.to_array(weight).copy()
    values[0, 0, 0, 0] = np.nextafter(values[0, 0, 0, 0], np.float32(2))
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    document = pair(proto, result)
    assert document["graphs"][0]["arrived"]
    assert "1 constants of" in document["reason"]


def test_a_way_leads_through_terms_of_the_same_class() -> None:
    rules = (load_rules("movement") + load_rules("identity")).of_class("exact", ())
    way = way_of(
        model_of(
            "agraph (float[2,3] u) => (float[2,3] a) { p = Transpose<perm=[1,0]>(u) q = Relu(p) "
            "s = Transpose<perm=[1,0]>(q) a = Relu(s) }"
        ),
        rules,
    )
    derivation = derivation_of(way, rules)
    assert derivation.steps
    assert all(step.application is not None for step in derivation.steps)
    assert numbered(derivation.end).text() == numbered(way.chosen).text()


def test_a_result_that_cannot_be_explained_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise EvaluationError("no such thing")

    monkeypatch.setattr(pipeline, "explain_run", failing)
    report = optimize(model_of(TURNS), rules=SETS, select="modelled", explain=tmp_path / "why").report
    assert report["changed"]
    assert report["problems"] == ["not explained: no such thing"]
