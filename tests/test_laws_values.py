"""What is wrong at rare values alone is found: beyond the numbers that a rule names, and where two infinities meet."""

from __future__ import annotations

import pytest

from superopt import rule_text
from superopt.laws import laws

WRONG = {
    "a bound that nothing seems to pass": "reassociates\n Min(x, 1000) => x\n when floating(x)",
    "a bound far away": "reassociates\n Min(x, 1000000) => x\n when floating(x)",
    "bounds of half precision": "reassociates\n Clip(x, -3e4, 3e4) => x\n when floating(x)",
    "a bound below which exponentials are in range": "reassociates\n Exp(Min(x, 88)) => Exp(x)",
    "a bound, bit by bit": "exact\n Max(x, -4096) => x\n when floating(x)",
    "infinities that cancel": "exact\n Equal(Sub(x, y), 0) => Equal(x, y)",
    "a sum of infinities is NaN": "exact\n IsNaN(Add(x, y)) => Or(IsNaN(x), IsNaN(y))",
}
RIGHT = {
    "the tighter bound": "reassociates\n Min(Min(x, 1000), 2000) => Min(x, scalar(1000, like=x))",
    "bounds in another order": (
        "exact\n Max(Min(x, 1000), 100) => Min(Max(x, scalar(100, like=x)), scalar(1000, like=x))\n when floating(x)"
    ),
    "operands in another order": "exact\n IsNaN(Add(x, y)) => IsNaN(Add(y, x))",
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("what", WRONG)
def test_wrong_at_rare_values(what: str, seed: int) -> None:
    (rule,) = rule_text.parse(f"rule wrong: {WRONG[what]}\n")
    assert laws.check(rule, seed=seed, fires=False, idle=False).failed == ("agrees",)


@pytest.mark.parametrize("what", RIGHT)
def test_right_at_rare_values(what: str) -> None:
    (rule,) = rule_text.parse(f"rule right: {RIGHT[what]}\n")
    assert laws.check(rule, fires=False, idle=False).passed
