"""Wrong rules of kinds that laws once let pass, and right ones of the same kinds: nothing in the place of something,
casts to narrow types, what short types lose, ties, and what attributes are replaced by."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

import pytest

from superopt import rule_text
from superopt.laws import laws
from superopt.laws.instances import instances
from superopt.rules import Rule

SEEDS = range(2)

WRONG = {
    "a size inferred beside one that is copied and may be zero": (
        "exact\n Flatten(x, axis=1) => Reshape(x, shape=(0, -1))\n when rank(x) == 3"
    ),
    "rows folded where there may be no columns": (
        "reassociates\n MatMul(Reshape(x, shape=s), w) => Reshape(MatMul(x, w), shape=(-1, dim(w, 1)))\n"
        " when rank(w) == 2, folds_rows(x, s)\n only if rank(x) > 2"
    ),
    "groups of what may be empty": (
        "reassociates\n GroupNormalization(x, s, b, num_groups=g, epsilon=e)\n"
        "  => Reshape(GroupNormalization(Reshape(x, shape=(0, 0, -1)), s, b, num_groups=g, epsilon=e),\n"
        "             shape=(0, 0, dim(x, 2), dim(x, 3)))\n when rank(x) == 4, precise(x, s, b)"
    ),
    "the largest of nothing": (
        "reassociates\n Relu(ReduceMax(x, axes=k, keepdims=1)) => ReduceMax(Relu(x), axes=k, keepdims=1)\n"
        " when dtype(x) == 'float32'"
    ),
    "a cast to an 8-bit float and back": (
        "reassociates\n Cast(Cast(x, to='float8e5m2'), to='float32') => x\n when dtype(x) == 'float32'"
    ),
    "an 8-bit float by way of another": (
        "exact\n Cast(Cast(x, to='float16'), to='float8e4m3fn') => Cast(x, to='float8e4m3fn')\n"
        " when dtype(x) == 'float32'"
    ),
    "what an 8-bit float does not hold": (
        "exact\n Cast(x, to='float8e4m3fn', saturate=0) => Cast(x, to='float8e4m3fn')\n when dtype(x) == 'float32'"
    ),
    "any chain of casts": "reassociates\n Cast(Cast(x, to=s), to=t) => Cast(x, to=t)\n when floating(x)",
    "four bits of eight": "exact\n Cast(Cast(x, to='int4'), to='int8') => x\n when dtype(x) == 'int8'",
    "half of the bits of a float": (
        "reassociates\n Cast(Cast(x, to='float16'), to='float32') => x\n when dtype(x) == 'float32'"
    ),
    "an operator that does not take an 8-bit float": (
        "exact\n Cast(Where(c, x, y), **a) => Where(c, Cast(x, **a), Cast(y, **a))"
    ),
    "sixteen bits through eleven": (
        "reassociates\n QuantizeLinear(DequantizeLinear(q, s, z, **a), s, z, precision=0, saturate=1, **c) => q\n"
        " when a.axis == c.axis, a.block_size == c.block_size, dtype(s) == 'float32', invertible(s)"
    ),
    "a sum in a short type": (
        "exact\n Cast(Add(x, y), to='float16') => Add(Cast(x, to='float16'), Cast(y, to='float16'))\n"
        " when dtype(x) == 'float32'"
    ),
    "an order of what a short type has as one": (
        "exact\n Less(Cast(x, to='float16'), Cast(y, to='float16')) => Less(x, y)\n"
        " when dtype(x) == 'float32', dtype(y) == 'float32'"
    ),
    "the first of what a short type has as one": (
        "exact\n ArgMax(Cast(x, to='float16'), **a) => ArgMax(x, **a)\n when dtype(x) == 'float32'"
    ),
    "halves rounded upwards": (
        "reassociates\n QuantizeLinear(x, s, None, output_dtype='int8')\n"
        "  => Cast(Clip(Floor(Add(Div(x, s), scalar(0.5, like=x))), scalar(-128, like=x), scalar(127, like=x)),"
        " to='int8')\n when dtype(x) == 'float32', dtype(s) == 'float32', rank(s) == 0"
    ),
    "the logarithm of what has become zero": (
        "reassociates\n LogSoftmax(x, axis=k) => Log(Softmax(x, axis=k))\n when precise(x)"
    ),
    "an attribute replaced by what is not its default": (
        "reassociates\n Resize(x, cubic_coeff_a=c, **a) => Resize(x, cubic_coeff_a=-0.5, **a)"
    ),
    "a reciprocal that is none, of a divisor that is a number": (
        "reassociates\n Div(x, y) => Mul(x, Reciprocal(y))\n when floating(x)"
    ),
    "the norm of nothing but zeros": (
        "reassociates\n LpNormalization(x, axis=k, p=2) => Div(x, ReduceL2(x, axes=(k,), keepdims=1))"
    ),
    "what NaN is compared as": "reassociates\n Not(Less(x, y)) => GreaterOrEqual(x, y)\n when floating(x)",
}


def rule_of(text: str) -> Rule:
    (rule,) = rule_text.parse("rule r: " + text)
    return rule


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_refuted_at_every_seed(what: str) -> None:
    rule = rule_of(WRONG[what])
    assert [seed for seed in SEEDS if laws.refuted(rule, seed=seed) is None] == []


RIGHT = {
    "a size inferred that may be zero": (
        "exact\n Flatten(x, axis=1) => Reshape(x, shape=flattened_to(x, 1))\n when rank(x) >= 1"
    ),
    "what is made of nothing on both sides": (
        "reassociates\n ReduceMax(ReduceMax(x, axes=(0,), keepdims=1), axes=(1,), keepdims=1)"
        " => ReduceMax(x, axes=(0, 1), keepdims=1)\n when floating(x)"
    ),
    "an 8-bit float by way of what loses nothing": (
        "exact\n Cast(Cast(x, to='float32'), to='float8e4m3fn') => Cast(x, to='float8e4m3fn')\n"
        " when dtype(x) == 'float16'"
    ),
    "the sign of an 8-bit float": (
        "exact\n Cast(Cast(Neg(x), to='float8e4m3fn'), to='float32')"
        " => Neg(Cast(Cast(x, to='float8e4m3fn'), to='float32'))\n when dtype(x) == 'float32'"
    ),
    "an 8-bit float moved": (
        "exact\n Transpose(Cast(x, to='float8e5m2'), perm=p) => Cast(Transpose(x, perm=p), to='float8e5m2')"
    ),
    "sums that are scattered, in another order": (
        "reassociates\n ScatterND(ScatterND(x, i, u, reduction='add'), j, v, reduction='add')"
        " => ScatterND(ScatterND(x, j, v, reduction='add'), i, u, reduction='add')\n when dtype(x) == 'float32'"
    ),
    "a product in a short type, in another order": "exact\n Mul(x, Neg(y)) => Neg(Mul(x, y))\n when floating(x)",
}


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_rule_of_the_same_kind_passes(what: str) -> None:
    result = laws.check(rule_of(RIGHT[what]))
    assert result.passed, result.counterexample.text() if result.counterexample else f"{result}"


def test_a_condition_that_only_nothing_needs_is_not_idle() -> None:
    rule = rule_text.load("all")["product-of-folded-rows"]
    assert "dim(w, 1) > 0" in [expr.text for expr in rule.when]
    assert laws.check(rule, points=8).idle == ()


def test_what_is_too_large_is_not_evaluated() -> None:
    rule = rule_of(
        "exact\n Exp(x) => Slice(Exp(Tile(x, repeats=(4096, 4096))), axes=(0, 1), starts=(0, 0),"
        " ends=(dim(x, 0), dim(x, 1)), steps=(1, 1))\n when rank(x) == 2"
    )
    result = laws.check(rule)
    assert result.failed == ("not vacuous",)
    assert result.vacuous is not None
    assert "too large to be tried" in result.vacuous


def _first(count: int, rule: Rule, *, points: int, seed: int, dropped: int | None = None, large: bool = False) -> Any:
    return islice(instances(rule, points=points, seed=seed, dropped=dropped, large=large), count)


def test_few_instances_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = rule_of("exact\n Relu(Relu(x)) => Relu(x)")
    for count, passes in ((4, False), (5, True)):
        drawn = partial(_first, count)
        monkeypatch.setattr("superopt.laws.laws.instances", drawn)
        result = laws.check(rule)
        assert (result.passed, result.instances) == (passes, count)
        assert result.vacuous == (None if passes else "only 4 were found")
