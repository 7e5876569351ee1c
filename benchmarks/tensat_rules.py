"""TASO's substitutions (Jia et al., SOSP 2019) as Tensat applies them, for ``tensat_graphs``: in one direction each,
those that need a class of operator that none of its networks has left out.

An operand is a variable or a pattern; attributes stand before them: for ``conv`` stride, padding and activation, for
``concat`` axis and rank.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, TypeAlias

Pattern: TypeAlias = Any
"""A variable, or an operator's name with its attributes and operands, which are variables, numbers and patterns."""


def _conv(x: Pattern, kernel: Pattern, act: Any = 0) -> Pattern:
    return ("conv", 1, 0, act, x, kernel)


def _elementwise(op: str) -> list[tuple[Pattern, Pattern]]:
    """What is true of sums and of products alike."""
    x, y, z, w = "xyzw"
    twice = (op, z, (op, z, (op, x, y)))
    rules: list[tuple[Pattern, Pattern]] = [
        ((op, z, (op, x, y)), (op, y, (op, x, z))),
        ((op, z, (op, x, y)), (op, x, (op, y, z))),
        ((op, (op, x, y), (op, y, z)), (op, y, (op, y, (op, x, z)))),
        ((op, (op, x, y), (op, x, z)), (op, x, (op, x, (op, y, z)))),
        (twice, (op, (op, x, z), (op, y, z))),
        (twice, (op, (op, y, z), (op, x, z))),
        (twice, (op, y, (op, z, (op, x, z)))),
        (twice, (op, x, (op, z, (op, y, z)))),
        ((op, ("concat", 1, 4, x, w), ("concat", 1, 4, y, z)), (op, ("concat", 1, 4, y, w), ("concat", 1, 4, x, z))),
        ((op, ("concat", 0, 4, x, y), ("concat", 0, 4, z, w)), (op, ("concat", 0, 4, x, w), ("concat", 0, 4, z, y))),
        ((op, ("concat", 0, 4, x, y), ("concat", 0, 4, z, w)), (op, ("concat", 0, 4, z, y), ("concat", 0, 4, x, w))),
    ]
    for axis, rank in ((1, 2), (1, 4), (0, 4)):
        left, right = ("concat", axis, rank, x, y), ("concat", axis, rank, y, z)
        joined = ("concat", axis, rank, (op, x, y), (op, y, z))
        rules += [(joined, (op, left, right)), (joined, (op, right, left))]
    for (a, b), (c, d) in (((x, z), (y, w)), ((x, w), (y, z)), ((y, z), (x, w)), ((y, w), (x, z))):
        rules.append((("concat", 0, 2, (op, x, y), (op, z, w)), (op, ("concat", 0, 2, a, b), ("concat", 0, 2, c, d))))
    return rules


def _products() -> list[tuple[Pattern, Pattern]]:
    """Products of matrices in other brackets."""

    def m(*parts: Pattern) -> Pattern:
        return ("matmul", *parts)

    a, b, c, x = "abcx"
    return [
        (m(m(x, a), b), m(x, m(a, b))),
        (m(m(x, a), m(b, c)), m(m(x, m(a, b)), c)),
        (m(m(x, a), m(b, c)), m(x, m(m(a, b), c))),
        (m(m(m(x, a), b), b), m(x, m(m(a, b), b))),
        (m(("concat", 0, 2, a, m(x, a)), b), ("concat", 0, 2, m(a, b), m(x, m(a, b)))),
        (("concat", 1, 2, m(x, a), m(m(x, a), b)), m(x, ("concat", 1, 2, a, m(a, b)))),
        (("ewadd", m(x, a), m(m(x, a), b)), m(x, ("ewadd", a, m(a, b)))),
        (m(("ewadd", x, m(x, a)), b), m(x, ("ewadd", b, m(a, b)))),
        (m(("ewadd", b, m(a, b)), c), ("ewadd", m(b, c), m(a, m(b, c)))),
        *((m(m(x, m(a, b)), last), m(x, m(a, m(b, last)))) for last in (a, x)),
        *((m(m(x, m(a, b)), last), m(m(x, a), m(b, last))) for last in (a, x)),
        *((m(m(one, m(a, b)), c), m(one, m(a, m(b, c)))) for one in (a, b)),
        (m(m(b, m(a, b)), c), m(m(b, a), m(b, c))),
        *((m(x, m(one, m(a, b))), m(m(m(x, one), a), b)) for one in (a, b)),
        *((m(m(one, x), m(a, b)), m(one, m(m(x, a), b))) for one in (a, b)),
        (("ewadd", m(x, a), m(c, a)), m(("ewadd", x, c), a)),
        (("ewadd", m(x, a), m(x, b)), m(x, ("ewadd", a, b))),
        (("ewadd", m(x, a), m(c, b)), m(("concat", 1, 2, x, c), ("concat", 0, 2, a, b))),
        (("concat", 1, 2, m(x, a), m(x, b)), m(x, ("concat", 1, 2, a, b))),
        (("concat", 0, 2, m(x, a), m(c, a)), m(("concat", 0, 2, x, c), a)),
    ]


def _convolutions() -> list[tuple[Pattern, Pattern]]:
    x, y, v, w = "xyvw"
    rules: list[tuple[Pattern, Pattern]] = [
        (("relu", _conv(x, v)), _conv(x, v, 2)),
        (_conv(("relu", _conv(x, v)), w, 2), ("relu", _conv(_conv(x, v, 2), w))),
        (("ewadd", _conv(x, v), _conv(y, w)), _conv(("concat", 1, 4, x, y), ("concat", 1, 4, v, w))),
        (_conv(x, ("ewadd", v, w)), ("ewadd", _conv(x, v), _conv(x, w))),
        (_conv(x, ("ewadd", v, w)), ("ewadd", _conv(x, w), _conv(x, v))),
        (_conv(("ewadd", x, y), v), ("ewadd", _conv(x, v), _conv(y, v))),
        (_conv(("ewadd", x, y), v), ("ewadd", _conv(y, v), _conv(x, v))),
    ]
    for act in (0, 2):
        apart = ("concat", 1, 4, _conv(x, v, act), _conv(y, w, act))
        rules += [
            (apart, _conv(("concat", 1, 4, x, y), ("concat", 0, 4, v, w), act)),
            (("concat", 0, 4, _conv(x, v, act), _conv(y, v, act)), _conv(("concat", 0, 4, x, y), v, act)),
            (("concat", 1, 4, _conv(x, v, act), _conv(x, w, act)), _conv(x, ("concat", 0, 4, v, w), act)),
        ]
    for stride, act in itertools.product((1, 2), (0, 2)):
        conv = ("conv", stride, 0, act, "x")
        rules.append(((*conv, "y"), (*conv, ("merge", 2, "y"))))
    return rules


def single() -> list[tuple[Pattern, Pattern]]:
    """TASO's rules of one output, in its directions; of those for numbers and for pools only what its networks meet."""
    x, y, z, w = "xyzw"
    rules = [*_products(), *_elementwise("ewadd"), *_elementwise("ewmul"), *_convolutions()]
    rules += [
        (("ewmul", x, ("ewadd", y, z)), ("ewadd", ("ewmul", x, y), ("ewmul", x, z))),
        (("ewmul", x, ("ewadd", y, z)), ("ewadd", ("ewmul", y, x), ("ewmul", x, z))),
        (("ewmul", x, ("ewadd", y, z)), ("ewadd", ("ewmul", y, x), ("ewmul", z, x))),
        (("ewmul", x, ("ewadd", y, z)), ("ewadd", ("ewmul", z, x), ("ewmul", y, x))),
        (("concat", 0, 2, ("concat", 1, 2, x, y), ("concat", 1, 2, z, w)),
         ("concat", 1, 2, ("concat", 0, 2, x, z), ("concat", 0, 2, y, w))),
        (("concat", 0, 4, ("concat", 1, 4, x, y), ("concat", 1, 4, y, z)),
         ("concat", 1, 4, ("concat", 0, 4, x, y), ("concat", 0, 4, y, z))),
    ]  # fmt: skip
    for axis in (0, 1):
        rules += [
            (("concat", axis, "r", ("relu", x), ("relu", y)), ("relu", ("concat", axis, "r", x, y))),
            (("relu", ("concat", axis, 4, x, _conv(y, w))), ("concat", axis, 4, ("relu", x), _conv(y, w, 2))),
        ]
    return rules


class Pair(NamedTuple):
    """Two operators, and one in the place of both, along which axis it is cut; ``ordered`` where it is another one for
    the two the other way round."""

    left: Pattern
    other: Pattern
    axis: int
    joined: Pattern
    ordered: bool = False


def pairs() -> list[Pair]:
    """TASO's rules of two outputs."""
    x, y, v, w = "xyvw"
    rules = [
        Pair(("matmul", x, v), ("matmul", x, w), 1, ("matmul", x, ("concat", 1, 2, v, w))),
        Pair(("matmul", x, v), ("matmul", y, v), 0, ("matmul", ("concat", 0, 2, x, y), v)),
    ]
    for axis, rank in itertools.product((0, 1), (2, 4)):
        rules.append(Pair(("relu", x), ("relu", y), axis, ("relu", ("concat", axis, rank, x, y))))
    for left, act in ((_conv(x, v), 0), (("relu", _conv(x, v)), 2)):
        of_weight, of_input = _conv(("concat", 0, 4, x, y), v, act), _conv(x, ("concat", 0, 4, v, w), act)
        rules.append(Pair(left, _conv(y, v, act), 0, of_weight, act == 2))
        rules.append(Pair(left, _conv(x, w, act), 1, of_input, act == 2))
    for act in (0, 2):
        enlarged = ("concat", 0, 4, ("enlarge", v, w), w)
        rules.append(Pair(_conv(x, v, act), _conv(x, w, act), 1, _conv(x, enlarged, act), True))
    return rules
