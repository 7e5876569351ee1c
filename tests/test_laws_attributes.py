"""A rule that drops an attribute, whatever it says, is refuted; or a law says that it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from superopt import rule_text
from superopt.laws import laws
from superopt.laws.all import check_all
from superopt.laws.instances_fixed import FIXED, unvaried
from superopt.operators import FORMS, operator
from superopt.rules import Rule

WITHOUT_EFFECT: Mapping[tuple[str, str, int], str] = {
    ("Gemm", "beta", 2): "there is nothing that it would be multiplied with",
    ("QuantizeLinear", "output_dtype", 3): "it is the zero point's, or not given",
}
"""Operators, attributes and how many operands there are, where the attribute says nothing."""

NAMES = ("x", "y", "z", "u", "v")


def rule_of(text: str) -> Rule:
    (rule,) = rule_text.parse("rule r: " + text)
    return rule


def dropping() -> Iterator[tuple[str, str, int, int]]:
    """Every operator with every attribute that it has a default of, with all operands and with the least."""
    for op in FORMS:
        spec = operator(op)
        assert spec is not None
        most = spec.arity or 2
        for attribute in spec.attributes:
            if spec.default(attribute) is not None and not spec.form.bundle:
                yield from ((op, attribute, count, most) for count in sorted({most, spec.required}))


def dropped(op: str, attribute: str, count: int, most: int, numeric: str) -> Rule:
    operands = ", ".join((*NAMES[:count], *("None",) * (most - count)))
    return rule_of(f"{numeric}\n {op}({operands}, {attribute}=q, **a) => {op}({operands}, **a)")


DROPPING = tuple(dropping())


def test_there_is_something_to_drop() -> None:
    assert len({(op, attribute) for op, attribute, _, _ in DROPPING}) > 90
    assert set(FIXED) <= {(op, attribute) for op, attribute, _, _ in DROPPING}
    assert set(WITHOUT_EFFECT) <= {case[:3] for case in DROPPING}


@pytest.mark.parametrize(("op", "attribute", "count", "most"), DROPPING)
def test_a_rule_that_drops_an_attribute_fails(op: str, attribute: str, count: int, most: int) -> None:
    for numeric in ("exact", "reassociates"):
        rule = dropped(op, attribute, count, most, numeric)
        told = unvaried(rule)
        if (op, attribute) in FIXED:
            assert attribute in (told or "")
        elif (op, attribute, count) in WITHOUT_EFFECT:
            assert (told, laws.refuted(rule)) == (None, None)
        else:
            assert told is None
            assert laws.refuted(rule, points=32) is not None


UNTOLD = {
    "by a bundle": "Cast(x, **a) => Cast(x, to=a.to)",
    "of one of two": "Concat(Cast(x, **a), Cast(y, **b), axis=0) => Cast(Concat(x, y, axis=0), **a)",
    "of the operator, not of another": "Neg(LayerNormalization(x, s, b, axis=j, stash_type=q)) => Neg(x)",
}
TOLD = {
    "it is taken over": "Cast(Neg(x), **a) => Neg(Cast(x, **a))",
    "it is taken over by another operator": (
        "RMSNormalization(Neg(x), s, axis=j, **a) => LayerNormalization(x, s, None, axis=j, **a)"
    ),
    "it is named": 'Cast(x, saturate=1, round_mode="up", **a) => Cast(x, to=a.to)',
    "it is left out": "Cast(x, to=t) => Cast(Cast(x, to=t), to=t)",
    "a condition says its value": "Cast(x, to=t, saturate=q) => Cast(x, to=t)\n when q == 1",
    "a condition says it of a bundle": (
        'Cast(x, **a) => Cast(x, to=a.to)\n when a.saturate == 1, a.round_mode == "up"'
    ),
}


@pytest.mark.parametrize("what", UNTOLD)
def test_what_is_never_varied_cannot_be_dropped(what: str) -> None:
    (checked,) = check_all([rule_of("exact\n " + UNTOLD[what])], points=4)
    assert not checked.passed
    assert "never vary" in (checked.result.error or "")


@pytest.mark.parametrize("what", TOLD)
def test_what_is_never_varied_may_stand_in_a_rule_where(what: str) -> None:
    assert unvaried(rule_of("exact\n " + TOLD[what])) is None


def test_a_rejected_rule_that_cannot_be_told_is_an_error_too() -> None:
    (rule,) = rule_text.parse('rejected r: exact because "it drops what it matches"\n Cast(x, **a) => Cast(x, to=a.to)')
    (checked,) = check_all([rule], points=4)
    assert not checked.passed
    assert "never vary" in (checked.result.error or "")
