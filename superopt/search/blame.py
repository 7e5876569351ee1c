"""Which rule is guilty of a result that is not right."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence


def guilty(names: Sequence[str], wrong: Callable[[tuple[str, ...]], bool]) -> str | None:
    """The rule among ``names`` that makes results wrong, by bisection; None where it is wrong without any of them.

    ``wrong`` tells of a set of rules to leave out whether the result is still wrong. It is true of none left out.
    Whatever rules do to one another, the answer is a rule without which, some others left out besides, a wrong result
    became right.
    """
    if wrong(tuple(names)):
        return None
    # It is right with none of the rules and wrong with all of them: the last of the fewest first ones that it takes.
    return names[bisect_left(range(1, len(names)), True, key=lambda count: wrong(tuple(names[count:])))]
