"""The e-graph engine's tables: a constructor for each operator with so many arguments, and how terms are loaded.

A node that is computed from constants alone has a constructor of its own, ``k-Mul-2`` beside ``op-Mul-2``: it is to be
evaluated, not rewritten, and so no rule ever looks at it.

Names are prefixed, since the engine keeps sorts, functions, rulesets and rule variables in one namespace:
``op-Conv-3`` is an operator with its number of arguments, ``from-Conv-3`` tells which rule made such a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from superopt.operators import STAYS
from superopt.terms import CONST, OPAQUE, Attrs, Node, ValueType, type_text

NO_TERM = "(no-term)"
"""An optional argument that is not given."""

NO_TYPE = "-"
"""What stands for the type of such."""

PROGRAM = (
    "(sort T)",
    "(constructor no-term () T)",
    "(constructor V (i64) T)",
    "(relation is-constant (T))",
    "(relation is-varying (T))",
    "(function W (i64) T :merge old)",
    "(relation same (T T))",
    "(ruleset rs-flow)",
    "(ruleset rs-load)",
    "(ruleset rs-loops)",
    "(ruleset rs-first)",
    "(ruleset rs-later)",
    "(sort Weights)",
    *(f"(constructor weights-{count} ({' '.join(['T'] * count)}) Weights)" for count in range(1, 5)),
    "(ruleset rs-same)",
    "(rule ((same a b)) ((union a b)) :ruleset rs-same)",
)


WEIGHTED: Mapping[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), ((1, 2),)),
    **dict.fromkeys(("MatMul", "Add", "Mul", "Sub", "Div"), ((0,), (1,))),
    "BatchNormalization": ((1, 2, 3, 4),),
}
"""Arguments that are weights where they are constant, by operator. Of the nodes of a class that differ in nothing but
constant weights of the same types, rules look at the first alone: rules reach the same convolution in many ways, each
with its own formula for the same weights, and what is made of them would multiply."""


def quoted(text: str) -> str:
    """A string literal of the engine."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


@dataclass(frozen=True, order=True)
class Constructor:
    """An operator with so many arguments; ``constant`` where all of them are constant (but not for ``Const``
    itself)."""

    op: str
    arity: int
    constant: bool = False

    @property
    def suffix(self) -> str:
        return f"{'k' if self.constant else 'op'}-{self.op}-{self.arity}"


_WIDEST_FLOW = 64
"""Through nodes of more arguments (a Sum, a Concat) being constant does not flow when rules make arguments constant: to
plan a join of that many conditions takes the engine the cube of their number, minutes for a thousand."""


def declarations(made: Constructor) -> Iterator[str]:
    """A constructor, its provenance, how being constant flows through it, and that what it makes varies.

    What turns out to be constant, after a rule has made it as if it were not, counts as both.
    """
    sorts = " ".join(["T"] * made.arity)
    yield f"(constructor {made.suffix} ({sorts} String) T)"
    yield f"(function from-{made.suffix} ({sorts} String) i64 :merge old)"
    if made.constant or made.op == CONST:
        return
    args = [f"x{index}" for index in range(made.arity)]
    node = f"({made.suffix} {' '.join([*args, 's'])})"
    yield f"(rule ((= e {node})) ((is-varying e)) :ruleset rs-flow)"
    if made.op == OPAQUE or made.op in STAYS or not 0 < made.arity <= _WIDEST_FLOW:
        return
    constants = " ".join(f"(is-constant {arg})" for arg in args)
    yield f"(rule ((= e {node}) {constants}) ((is-constant e)) :ruleset rs-flow)"


def loops(made: Constructor) -> Iterator[str]:
    """The rules that keep other rules from nodes which are computed from their own class.

    ``x + 0`` that has become ``x`` is never chosen. What rules make of it is more of the same, without end where they
    move the zero about: one that was reshaped or transposed is a formula, and not known to be zero any more.
    """
    if made.constant or made.arity > _WIDEST_FLOW:
        return
    for index in range(made.arity):
        args = ["e" if place == index else f"x{place}" for place in range(made.arity)]
        node = f"({made.suffix} {' '.join([*args, 's'])})"
        yield f"(rule ((= e {node})) ((subsume {node})) :ruleset rs-loops)"


def interchangeable(made: Constructor) -> Iterator[str]:
    """The rules that keep other rules from nodes which differ from an earlier one in constant weights alone."""
    if made.constant:
        return
    for number, weights in enumerate(WEIGHTED.get(made.op, ())):
        args = [f"x{index}" for index in range(made.arity)]
        others = [arg for index, arg in enumerate(args) if index not in weights]
        types = [f"y{index}" for index in weights]
        first = f"first-{made.suffix}-{number}"
        sorts = " ".join(["T"] * (1 + len(others)) + ["String"] * (len(types) + 1))
        yield f"(function {first} ({sorts}) Weights :merge old)"
        node = f"({made.suffix} {' '.join(args)} s)"
        held = f"(weights-{len(weights)} {' '.join(args[index] for index in weights)})"
        known = " ".join(f"(is-constant x{index}) (= y{index} (type-of x{index}))" for index in weights)
        key = f"({first} {' '.join(['e', *others, *types, 's'])})"
        yield f"(rule ((= e {node}) {known}) ((set {key} {held})) :ruleset rs-first)"
        yield f"(rule ((= e {node}) {known} (= r {key}) (= w {held}) (!= r w)) ((subsume {node})) :ruleset rs-later)"


def term_text(made: Constructor, attrs: Attrs, args: Sequence[str]) -> str:
    """A node as an expression of the engine, its arguments given as expressions."""
    return f"({made.suffix} {' '.join([*args, quoted(attribute_field(made.op, attrs))])})"


def attribute_field(op: str, attrs: Attrs) -> str:
    """What stands for the attributes in the engine: their canonical text, but for a constant its key alone."""
    return str(attrs["key"]) if op == CONST else attrs.text


def load_table(made: Constructor) -> Iterator[str]:
    """The commands that declare a table of nodes to load, and the rule that loads all of them at once.

    A row is the node's number, its arguments' numbers (-1 for one that is not given), attributes, type, and 1 where it
    is constant. One step loads a table whole; command by command, the engine would settle the whole e-graph for each.
    """
    columns = " ".join(["i64"] * (made.arity + 1))
    yield f"(relation load-{made.suffix} ({columns} String String i64))"
    args = [f"x{index}" for index in range(made.arity)]
    term = f"(let n ({made.suffix} {' '.join([*(f'(V {arg})' for arg in args), 's'])}))"
    row = f"(load-{made.suffix} {' '.join(['i', *args, 's', 't', '{}'])})"
    actions = f"{term} (union (V i) n) (set (type-of n) t)"
    yield f"(rule ({row.format(0)}) ({actions}) :ruleset rs-load)"
    yield f"(rule ({row.format(1)}) ({actions} (is-constant n)) :ruleset rs-load)"


def load_row(number: int, node: Node, value_type: ValueType, *, constant: bool) -> str:
    """The row of a node in the file that its table is read from."""
    fields = (*map(str, (number, *node.args)), attribute_field(node.op, node.attrs), type_text(value_type))
    return "\t".join([*fields, str(int(constant))]) + "\n"
