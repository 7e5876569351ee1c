"""A refuted rule is told the condition that it lacks, where that is a simple one."""

from __future__ import annotations

import pytest

from superopt.laws.exclusion import excluding
from superopt.laws.laws import check, refuted
from superopt.rule_text import parse

SUM = "  Add(Conv(x, w, b, **a), Conv(x, u, d, **c)) => Conv(x, Add(w, u), Add(b, d), **a)\n"
ALIKE = "a.strides == c.strides, a.dilations == c.dilations, a.group == c.group"

LACKING = [
    (f"{SUM}  when same_shape(w, u), {ALIKE}", "", {"a.pads == c.pads", "c.pads == a.pads"}),
    (SUM.replace("c)", "a)") + "  when rank(x) == 4", "", {"same_shape(w, u)", "same_shape(u, w)"}),
    ("  Relu(Mul(x, c)) => Mul(Relu(x), c)\n  when floating(x)", "  only if constant(c)\n", {"positive(c)"}),
]


@pytest.mark.parametrize(("text", "rest", "wanted"), LACKING)
def test_the_condition_that_is_lacking_is_found_and_suffices(text: str, rest: str, wanted: set[str]) -> None:
    (rule,) = parse(f"rule lacking: reassociates\n{text}\n{rest}")
    finding = refuted(rule)
    assert finding is not None
    condition = excluding(rule, finding.instance, points=24, seed=0)
    assert condition in wanted
    counterexample = check(rule).counterexample
    assert counterexample is not None
    assert counterexample.excluded_by in wanted
    (mended,) = parse(f"rule mended: reassociates\n{text}, {condition}\n{rest}")
    assert check(mended, idle=False).passed


def test_what_no_simple_condition_mends_is_told_none() -> None:
    (rule,) = parse("rule wrong: reassociates\n  Mul(Div(x, y), z) => Mul(Div(y, x), z)\n")
    finding = refuted(rule)
    assert finding is not None
    assert excluding(rule, finding.instance, points=24, seed=0) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "equation",
    ["Where(c, Where(d, x, y), y) => Where(And(c, d), x, y)", "ReduceMax(Relu(x), **a) => Relu(ReduceMax(x, **a))"],
)
def test_a_condition_that_only_few_of_what_is_wrong_could_refute_is_not_told(equation: str, seed: int) -> None:
    (rule,) = parse(f"rule zeros: exact\n  {equation}\n")
    finding = refuted(rule, points=96, seed=seed)
    assert finding is not None
    assert excluding(rule, finding.instance, points=24, seed=seed) in {"not floating(x)", "not floating(y)"}
