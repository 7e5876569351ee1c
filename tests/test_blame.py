"""The guilty rule is found, in a number of trials that grows with the logarithm of the rules."""

from __future__ import annotations

import pytest

from superopt.search.blame import guilty


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_every_single_culprit_is_named(count: int) -> None:
    names = [f"rule-{index}" for index in range(count)]
    for culprit in names:
        trials: list[tuple[str, ...]] = []

        def wrong(left_out: tuple[str, ...], culprit: str = culprit, trials: list[tuple[str, ...]] = trials) -> bool:
            trials.append(left_out)
            return culprit not in left_out

        assert guilty(names, wrong) == culprit
        assert len(trials) <= 1 + count.bit_length()


def test_one_of_two_that_are_wrong_together_is_named() -> None:
    assert guilty(["a", "b", "c", "d"], lambda out: "a" not in out and "c" not in out) == "c"


def test_no_rule_is_named_where_none_is_guilty() -> None:
    assert guilty(["a", "b"], lambda out: True) is None
    assert guilty([], lambda out: True) is None
