"""Rules broken on purpose: records that differ from a rule in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from superopt.operators import operator
from superopt.rules import Absent, Apply, Each, Expr, Made, Number, Output, Pattern, Rule, Star, Var

FLIPPED = {
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Div": "Mul",
    "Max": "Min",
    "Min": "Max",
    "Relu": "Neg",
    "Sqrt": "Exp",
}
CARRIED = {
    "pads": "tuple(i + 1 for i in {}.pads)",
    "strides": "tuple(i + 1 for i in {}.strides)",
    "dilations": "tuple(i + 1 for i in {}.dilations)",
    "group": "{}.group + 1",
    "axis": "{}.axis + 1",
    "epsilon": "{}.epsilon + 0.5",
    "alpha": "{}.alpha + 1",
}
"""Attributes that ``**a`` carries over, and what they are changed to."""
PLURAL = frozenset(
    "pads strides dilations perm axes shape split starts ends steps repeats kernel_shape output_padding sizes "
    "scales".split()
)


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Broken variants and what was done to them, the most telling first; some are equivalent all the same."""
    for place, root in enumerate(rule.right):
        for what, broken in _broken(root, rule):
            yield what, replace(rule, right=(*rule.right[:place], broken, *rule.right[place + 1 :]))
    for place, root in enumerate(rule.left):
        for what, broken in _numbers(root):
            yield what, replace(rule, left=(*rule.left[:place], broken, *rule.left[place + 1 :]))
    for place, condition in enumerate(rule.when):
        yield f"drop {condition.text}", replace(rule, when=rule.when[:place] + rule.when[place + 1 :])
    for place, root in enumerate(rule.right):
        yield "negate", replace(rule, right=(*rule.right[:place], Apply("Neg", (root,)), *rule.right[place + 1 :]))
        yield "not", replace(rule, right=(*rule.right[:place], Apply("Not", (root,)), *rule.right[place + 1 :]))


def _broken(pattern: Pattern | Star | Each, rule: Rule) -> Iterator[tuple[str, Pattern]]:
    match pattern:
        case Made(expr):
            yield f"change {expr.text}", Made(_expr(f"({expr.text}) * 2 + 1"))
        case Output(of, index):
            for what, broken in _broken(of, rule):
                yield what, Output(broken, index)
        case Apply(op, args, attrs, rest):
            yield from _here(pattern, op, args, attrs, rest)
            for place, arg in enumerate(args):
                for what, broken in _broken(arg, rule):
                    yield what, replace(pattern, args=(*args[:place], broken, *args[place + 1 :]))
        case _:
            return


def _here(
    pattern: Apply,
    op: str,
    args: tuple[Pattern | Star | Each, ...],
    attrs: tuple[tuple[str, Expr], ...],
    rest: str | None,
) -> Iterator[tuple[str, Pattern]]:
    spec = operator(op)
    present = [arg for arg in args if not isinstance(arg, Absent)]
    if spec is not None and not spec.commutative and len(present) >= 2 and args[0] != args[1]:
        yield f"swap the operands of {op}", replace(pattern, args=(args[1], args[0], *args[2:]))
    if op in FLIPPED:
        yield f"{FLIPPED[op]} for {op}", replace(pattern, op=FLIPPED[op])
    for place, (name, expr) in enumerate(attrs):
        yield (
            f"change {name} of {op}",
            replace(pattern, attrs=(*attrs[:place], (name, _changed(name, expr)), *attrs[place + 1 :])),
        )
    named = {name for name, _ in attrs}
    if rest is not None and spec is not None:
        for name, changed in CARRIED.items():
            if name in spec.attributes and name not in named:
                grown = _expr(changed.format(rest))
                yield f"grow {name} of {op}", replace(pattern, attrs=(*attrs, (name, grown)))
    if args and not isinstance(args[0], (Star, Each)) and spec is not None and not spec.form.bundle:
        yield f"leave out {op}", args[0]


def _changed(name: str, expr: Expr) -> Expr:
    if name == "perm":
        return _expr(f"({expr.text})[1:] + ({expr.text})[:1]")
    if name == "mode":
        return _expr(f"'edge' if {expr.text} == 'constant' else 'constant'")
    if name == "equation":
        # The last two letters of the result change places.
        return _expr(f"({expr.text})[:-2] + ({expr.text})[-1] + ({expr.text})[-2]")
    if name in PLURAL:
        return _expr(f"tuple(i + 1 for i in {expr.text})")
    if isinstance(expr.tree, ast.Constant) and isinstance(expr.tree.value, str):
        return _expr(repr(expr.tree.value + "x"))
    return _expr(f"({expr.text}) + 1")


def _numbers(pattern: Pattern | Star | Each) -> Iterator[tuple[str, Pattern]]:
    match pattern:
        case Number(value):
            yield f"{value + 1} for {value}", replace(pattern, value=value + 1)
        case Output(of, index):
            for what, broken in _numbers(of):
                yield what, Output(broken, index)
        case Apply(_, args):
            for place, arg in enumerate(args):
                for what, broken in _numbers(arg):
                    yield what, replace(pattern, args=(*args[:place], broken, *args[place + 1 :]))
        case Var():
            return


def _expr(text: str) -> Expr:
    return Expr(text, ast.parse(text, mode="eval").body)
