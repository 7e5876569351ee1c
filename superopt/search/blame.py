"""Which rule is guilty of a result that is not right."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def guilty(names: Sequence[str], wrong: Callable[[tuple[str, ...]], bool]) -> str | None:
    """The rule among ``names`` that makes results wrong, by bisection; None where it is wrong without any of them.

    ``wrong`` tells of a set of rules to leave out whether the result is still wrong. It is true of none left out.
    Whatever rules do to one another, the answer is a rule without which, some others left out besides, a wrong result
    became right.
    """
    if wrong(tuple(names)):
        return None
    # Invariant: wrong with the first ``bad`` rules, right with the first ``good`` ones, good < bad.
    good, bad = 0, len(names)
    while bad - good > 1:
        middle = (good + bad) // 2
        if wrong(tuple(names[middle:])):
            bad = middle
        else:
            good = middle
    return names[bad - 1]
