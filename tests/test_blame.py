"""The guilty rule is found, in a number of trials that grows with the logarithm of the rules."""

from __future__ import annotations

import pytest

from superopt.search.blame import guilty
from superopt.search.untouched import stretch


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


@pytest.mark.parametrize("wanted", [{0}, {7}, {3, 4}, {2, 6}, set(range(8))])
def test_a_stretch_holds_what_must_stay_and_reaches_no_further(wanted: set[int]) -> None:
    asked: list[range] = []

    def right(numbers: range) -> bool:
        asked.append(numbers)
        return wanted <= set(numbers)

    assert stretch(8, right) == range(min(wanted), max(wanted) + 1)
    assert len(asked) <= 1 + 2 * 3


def test_there_is_no_stretch_where_nothing_is_right() -> None:
    assert stretch(0, lambda numbers: True) is None
    assert stretch(5, lambda numbers: False) is None
