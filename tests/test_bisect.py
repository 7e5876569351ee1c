"""Bisection: a planted wrong rule is named, and a small region that shows it is cut out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from superopt.cli.main import main
from superopt.errors import VerificationError
from superopt.explanation.bisection import Bisected, bisect, bisection_text
from superopt.explanation.suspects import smallest_failing
from superopt.models.model import load
from superopt.options import options
from superopt.progress import Clock, Watcher
from superopt.rule_text import load as load_rules
from superopt.rule_text import parse
from superopt.rules import RuleSet

BLOCK = """agraph (float[1,2,5,5] x) => (float[1,5,5,3] y) {
  c = Conv<pads = [1,1,1,1]>(x, w)
  b = BatchNormalization(c, s, t, m, v)
  r = Relu(b)
  k = Clip(r, low, high)
  z = Softmax<axis = 1>(k)
  y = Transpose<perm = [0,2,3,1]>(z)
}"""

FEW = load_rules("batchnorm") + load_rules("activations")
"""Right rules beside the wrong one; all that ship take seconds to load."""

WRONG_CONSTANT = """rule half-of-normalization: reassociates
  BatchNormalization(Conv(x, w, b, **a), s, t, m, v, epsilon=e)
    => Conv(x, Mul(w, Unsqueeze(k, axes=trailing_axes(w))), Add(Mul(Sub(b, m), k), t), **a)
  let k = Div(s, Sqrt(Add(v, scalar(0.5, like=v))))
  when precise(w, s, v)
  only if constant(w, b, s, t, m, v)
"""

WRONG_AXIS = """rule softmax-of-another-axis: reassociates
  Transpose(Softmax(x, axis=k), perm=p) => Softmax(Transpose(x, perm=p), axis=k)
"""

DROPPED_CONDITION = """rule clip-of-anything: exact
  Clip(Relu(x), l, h) => Clip(x, l, h)
"""


def block(text: str = BLOCK) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    generator = np.random.default_rng(0)
    drawn = {name: generator.uniform(0.5, 1.5, (3,)) for name in "stmv"}
    drawn |= {"w": generator.uniform(-1, 1, (3, 2, 3, 3)), "low": np.asarray(-1.0), "high": np.asarray(6.0)}
    proto.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in drawn.items()
    )
    return proto


def bisected(rules: RuleSet, text: str = BLOCK) -> Bisected:
    chosen = options(rules=rules, select="modelled", trust_rules=True, max_growth="none")
    return bisect(load(block(text)), chosen, Clock(Watcher()))


@pytest.mark.parametrize(
    ("text", "name", "where"),
    [
        (WRONG_CONSTANT, "half-of-normalization", "b"),
        (WRONG_AXIS, "softmax-of-another-axis", "y"),
        (DROPPED_CONDITION, "clip-of-anything", "k"),
    ],
)
def test_a_planted_rule_is_found_with_a_region_that_shows_it(text: str, name: str, where: str) -> None:
    found = bisected(parse(text) + FEW)
    document = found.document
    assert (document["guilty"], document["needs"]) == (name, [])
    region = document["region"]
    assert region is not None
    assert region["where"] == [where]
    assert region["left"] != region["right"]
    assert region["elements"]["after"] < region["elements"]["before"]
    # The text is a model that computes both sides, and they do differ on the inputs that it gives.
    both = parser.parse_model(region["text"])
    session = onnxruntime.InferenceSession(both.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {}
    for line in region["inputs"].splitlines():
        key, _, value = line.partition(" = ")
        shape = next(item.shape for item in session.get_inputs() if item.name == key)
        feed[key] = np.asarray(json.loads(value.replace("nan", "NaN")), np.float32).reshape(shape)
    left, right = session.run(None, feed)
    assert not np.allclose(left, right, rtol=1e-3)
    assert found.region is not None
    onnx.checker.check_model(found.region)


BODY = """agraph (float[1,2,5,5] x, bool c) => (float[1,5,5,3] y) {
  y = If (c) <
    then_branch = then () => (float[1,5,5,3] a) {
      e = Conv<pads = [1,1,1,1]>(x, w) r = Relu(e) k = Clip(r, low, high) a = Transpose<perm = [0,2,3,1]>(k)
    },
    else_branch = other () => (float[1,5,5,3] b) {
      f = Conv<pads = [1,1,1,1]>(x, w) b = Transpose<perm = [0,2,3,1]>(f)
    }
  >
}"""


def test_a_rule_that_is_wrong_in_a_body_is_found_there() -> None:
    found = bisected(parse(DROPPED_CONDITION) + FEW, BODY)
    assert found.document["guilty"] == "clip-of-anything"
    region = found.document["region"]
    assert region is not None
    assert (region["place"], region["where"]) == ("If(y).then_branch", ["k"])
    assert "of k in If(y).then_branch that shows it" in "\n".join(bisection_text(found.document, None))


def test_a_rule_that_does_nothing_wrong_to_the_result_is_found_in_a_body() -> None:
    # What it makes costs more, and is not chosen.
    dear = parse("rule relu-as-sigmoid: exact\n  Relu(x) => Relu(Sigmoid(Sigmoid(x)))\n")
    found = bisected(dear, BODY)
    assert (found.document["guilty"], found.document["found_by"]) == ("relu-as-sigmoid", "classes")
    assert found.document["region"] is not None
    assert found.document["region"]["place"] == "If(y).then_branch"


def test_a_region_that_verification_refuses_is_said_to_be_so() -> None:
    region = bisected(parse(WRONG_CONSTANT)).document["region"]
    assert region is not None
    assert region["fails"]


def test_nothing_wrong_is_found_under_right_rules() -> None:
    found = bisected(FEW)
    assert found.document["guilty"] is None
    assert found.region is None
    assert bisection_text(found.document, None) == [
        f"{found.document['source']}: nothing wrong was found under {found.document['rules']} rules"
    ]


def test_a_rule_whose_sides_have_different_types_is_found() -> None:
    found = bisected(parse("rule turned: exact\n Transpose(x, perm=p) => Transpose(x, perm=p[::-1])\n") + FEW)
    assert found.document["guilty"] == "turned"
    region = found.document["region"]
    assert region is not None
    assert "types differ" in region["evidence"]


def test_a_rule_that_another_one_leaves_nothing_to_do_is_judged_all_the_same() -> None:
    # The wrong weights are set aside: the right ones, of the same operator on the same input, were there before.
    found = bisected(FEW + parse(WRONG_CONSTANT))
    assert found.document["guilty"] == "half-of-normalization"
    assert found.document["found_by"] == "classes"


def test_rules_that_do_harm_only_together_are_found_together() -> None:
    names = [f"rule-{index}" for index in range(9)]

    def wrong(kept: Sequence[str]) -> bool:
        return {"rule-2", "rule-5", "rule-7"} <= set(kept)

    assert smallest_failing(names, wrong) == ("rule-2", "rule-5", "rule-7")
    assert smallest_failing(names, lambda kept: "rule-4" in kept) == ("rule-4",)
    assert smallest_failing(names, lambda kept: True) is None


def test_of_two_rules_that_it_takes_the_wrong_one_is_named() -> None:
    # The wrong rule has nothing to match before the right one has made it.
    text = """rule transpose-under-relu: exact
  Relu(BatchNormalization(x, s, t, m, v, epsilon=e)) => Relu(Neg(Neg(BatchNormalization(x, s, t, m, v, epsilon=e))))

rule relu-of-neg: exact
  Relu(Neg(x)) => x
"""
    found = bisected(parse(text))
    assert found.document["guilty"] == "relu-of-neg"
    assert found.document["needs"] in ([], ["transpose-under-relu"])


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, rules, region = tmp_path / "m.onnx", tmp_path / "wrong.rules", tmp_path / "region.onnx"
    onnx.save(block(), model)
    rules.write_text(DROPPED_CONDITION)
    report = tmp_path / "why.json"
    assert code(["bisect", str(model), "--rules", str(rules), "-o", str(region), "--report", str(report)]) == 1
    printed = capsys.readouterr().out
    assert "rule clip-of-anything is wrong" in printed
    assert str(region) in printed
    onnx.checker.check_model(onnx.load(region))
    assert json.loads(report.read_text())["guilty"] == "clip-of-anything"
    assert code(["bisect", str(model), "--rules", "batchnorm"]) == 0
    rules.write_text("rule broken: exact\n Relu(x => x\n")
    assert code(["bisect", str(model), "--rules", str(rules)]) == 2
    assert code(["bisect", str(tmp_path / "none.onnx")]) == 2
    assert code(["bisect", str(model), "-o", str(model)]) == 2


def code(args: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(args)
    return int(caught.value.code or 0)


def test_a_model_that_is_wrong_without_any_rule_is_not_blamed_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from superopt.explanation import suspects as module
    from superopt.search.soundness import Attempt

    monkeypatch.setattr(module, "attempt", lambda *_: Attempt(problem="always"))
    with pytest.raises(VerificationError, match="wrong without any rule"):
        bisected(parse(WRONG_AXIS))
