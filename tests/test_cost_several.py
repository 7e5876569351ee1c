"""Several cost models in one run: the clock decides among candidates of each."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import superopt
from superopt.cli.main import main
from superopt.cost import CostModel, Family
from superopt.errors import OptionError
from superopt.options import options
from superopt.rule_text import parse as parse_rules

RULES = parse_rules(
    "rule double: exact\n  Add(x, x) => Mul(x, scalar(2, like=x))\n  when floating(x)\n"
    "rule minus-minus: exact\n  Add(x, y) => Sub(x, Neg(y))\n  when floating(x, y)\n"
)


def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4,64] x) => (float[4,64] y) { s = Add(x, x) y = Tanh(s) }'
    )
    onnx.checker.check_model(made)
    return made


def liking(name: str, *operators: str) -> CostModel:
    """A cost model to which these operators cost little."""
    return CostModel(name, "u", node=10.0, families={"liked": Family(operators, node=0.1)})


def test_each_cost_model_has_its_candidates() -> None:
    given = {"rules": RULES, "trust_rules": True, "tune": 0.5, "candidates": 1}
    one = superopt.optimize(model(), cost=liking("products", "Mul"), **given).report
    assert [each["name"] for each in one["candidates"]] == ["products"]
    both = superopt.optimize(model(), cost=[liking("products", "Mul"), liking("differences", "Sub", "Neg")], **given)
    assert [each["name"] for each in both.report["candidates"]] == ["products", "differences"]
    # The prices are by the first: a tanh with a product, or with a negation and a difference.
    assert [each["cost"] for each in both.report["candidates"]] == [11.0, 30.0]


def test_a_cost_model_that_finds_nothing_leaves_it_to_the_next() -> None:
    both = [liking("sums", "Add"), liking("products", "Mul")]
    report = superopt.optimize(model(), cost=both, rules=RULES, trust_rules=True, tune=0.5, candidates=1).report
    assert [each["name"] for each in report["candidates"]] == ["products"]
    assert report["cost"]["model"] == "products"


def test_several_are_one_when_they_are_the_same_and_need_the_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert options(cost=["nodes", "nodes"]).cost == "nodes"
    assert options(cost=["nodes", Path("a.toml")]).costs == ("nodes", "a.toml")
    for wrong, what in (({"cost": []}, "none are named"), ({"cost": ["nodes", 3]}, "3 is not a cost model")):
        with pytest.raises(OptionError, match=what):
            options(**wrong)
    onnx.save(model(), tmp_path / "m.onnx")
    with pytest.raises(SystemExit) as ended:
        main(["optimize", str(tmp_path / "m.onnx"), "--cost", "nodes", "--cost", "flops", "--select", "modelled"])
    assert ended.value.code == 2
    assert "cost: 2 cost models are named, expected one with select=modelled" in capsys.readouterr().err
    assert not (tmp_path / "m.opt.onnx").exists()
