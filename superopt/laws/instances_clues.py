"""What a rule's text tells about its instances."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from superopt.laws.instances_dice import DTYPES
from superopt.operators import NEWEST_OPSET, available, named, operator
from superopt.rules import Apply, Each, Expr, Made, Output, Pattern, Rule
from superopt.terms import AttrValue
from superopt.values import FUNCTIONS

WINDOWED = frozenset(named(lambda form: form.windowed))
_INDEXED = frozenset(named(lambda form: form.indexed))


@dataclass(frozen=True)
class Clues:
    """What a rule's text tells about its instances; ``windows`` is how many bundles of attributes of windows it has. A
    ``sorting`` rule tells numbers from what is none."""

    wanted: tuple[AttrValue, ...]
    numbers: tuple[int | float, ...]
    constant: frozenset[str]
    either: tuple[str, ...]
    read: frozenset[str]
    dtypes: tuple[str, ...]
    outputs: int
    windows: int
    sorting: bool


@lru_cache(maxsize=4096)
def clues_of(rule: Rule) -> Clues:
    """The numbers a rule compares with, the variables it wants constant or reads, the element types it may meet."""
    applied = [part for pattern in rule.left for part in applications(pattern)]
    inner = [expr for part in applied for _, expr in part.attrs]
    made = [expr for pattern in rule.right for part in applications(pattern) for _, expr in part.attrs]
    wanted: dict[AttrValue, None] = {}
    constant: set[str] = set()
    either: dict[str, None] = {}
    read: set[str] = set()
    for expr in (*rule.when, *rule.only_if, *inner, *made, *_made(rule)):
        negated = [item.operand for item in ast.walk(expr.tree) if isinstance(item, ast.UnaryOp)]
        optional = isinstance(expr.tree, ast.BoolOp) and isinstance(expr.tree.op, ast.Or)
        for node in ast.walk(expr.tree):
            named = _number(node)
            if named is not None:
                wanted[named] = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [item.id for arg in node.args for item in ast.walk(arg) if isinstance(item, ast.Name)]
                if node.func.id == "constant" and node not in negated and optional:
                    either |= dict.fromkeys(names)
                elif node.func.id == "constant" and node not in negated:
                    constant.update(names)
                elif node.func.id in FUNCTIONS:
                    read.update(_read_names(node, FUNCTIONS[node.func.id].parameters, FUNCTIONS[node.func.id].reads))
    for whole in [value for value in wanted if isinstance(value, int) and value > 1]:
        wanted[1 / whole] = None
    outputs = max(
        (part.index + 1 for root in rule.left for part in parts_of(root) if isinstance(part, Output)), default=1
    )
    windows = len({part.rest for part in applied if part.op in WINDOWED and part.rest is not None})
    numbers = tuple(number for number in wanted if isinstance(number, (int, float)))
    return Clues(
        tuple(wanted), numbers, frozenset(constant | read), tuple(either), frozenset(read),
        _dtypes([part for pattern in rule.left for part in _of_one_type(pattern)]), outputs, windows,
        any(part.op in ("IsInf", "IsNaN") for part in applied),
    )  # fmt: skip


def _number(node: ast.AST) -> int | float | str | None:
    """The value of an expression without names: ``1``, ``-0.5``, ``1 / 6``, ``"edge"``."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _number(operand)
            return None if inner is None or isinstance(inner, str) else -inner
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            above, below = _number(left), _number(right)
            usable = isinstance(above, (int, float)) and isinstance(below, (int, float)) and below != 0
            return above / below if usable else None  # type: ignore[operator]  # both are numbers, as tested
        case _:
            return None


def _read_names(call: ast.Call, parameters: tuple[str, ...], reads: tuple[str, ...]) -> Iterator[str]:
    for position, arg in enumerate(call.args):
        parameter = parameters[min(position, len(parameters) - 1)] if parameters else ""
        if parameter in reads:
            yield from (node.id for node in ast.walk(arg) if isinstance(node, ast.Name))
    for keyword in call.keywords:
        if keyword.arg in reads:
            yield from (node.id for node in ast.walk(keyword.value) if isinstance(node, ast.Name))


def _made(rule: Rule) -> Iterator[Expr]:
    for pattern in rule.right:
        for part in parts_of(pattern):
            if isinstance(part, Made):
                yield part.expr


def applications(pattern: Pattern) -> Iterator[Apply]:
    """Every operator applied in a pattern, the outermost first."""
    return (part for part in parts_of(pattern) if isinstance(part, Apply))


def parts_of(pattern: object) -> Iterator[object]:
    """A pattern and all that it is made of, the outermost first."""
    yield pattern
    if isinstance(pattern, Apply):
        for arg in pattern.args:
            yield from parts_of(arg)
    elif isinstance(pattern, Output):
        yield from parts_of(pattern.of)
    elif isinstance(pattern, Each):
        yield from parts_of(pattern.template)


def _of_one_type(pattern: object) -> Iterator[Apply]:
    """The operators applied in a pattern whose element type goes with the outermost one's: the condition of a Where,
    and what is an index, have their own."""
    if isinstance(pattern, Output):
        yield from _of_one_type(pattern.of)
    elif isinstance(pattern, Each):
        yield from _of_one_type(pattern.template)
    elif isinstance(pattern, Apply):
        yield pattern
        apart = 0 if pattern.op == "Where" else 1 if pattern.op in _INDEXED else None
        for place, arg in enumerate(pattern.args):
            if place != apart:
                yield from _of_one_type(arg)


def _dtypes(applied: list[Apply]) -> tuple[str, ...]:
    """The element types that all operators of the left side take, or, where there is none, that any takes."""
    taken = []
    for part in applied:
        spec = operator(part.op)
        arity = 1 if spec is None or spec.arity is None else spec.arity
        place = 1 if part.op == "Where" else 0
        types = [tuple(dtype if at == place else None for at in range(arity)) for dtype in DTYPES]
        taken.append([kind[place] for kind in types if available(part.op, kind, NEWEST_OPSET)])
    common = [dtype for dtype in DTYPES if taken and all(dtype in one for one in taken)]
    return tuple(common or [dtype for dtype in DTYPES if any(dtype in one for one in taken)] or DTYPES)
