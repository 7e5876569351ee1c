"""Open dimensions whose name says that they follow from others: ``past + 1``, ``2*n``, ``total_sequence_length``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Collection, Mapping

_OPERATIONS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip

_TOTAL = re.compile(r"total", re.IGNORECASE)
PAST = re.compile(r"past|cache", re.IGNORECASE)
_STEPS = re.compile(r"seq|len|token|step", re.IGNORECASE)


def with_derived(sizes: Mapping[str, int], symbols: Collection[str], totals: Collection[str] = ()) -> dict[str, int]:
    """The sizes, and those of symbols that follow from them. What would be negative is left at none."""
    found = dict(sizes)
    for symbol, expression in expressions(symbols, totals).items():
        size = _value(expression, sizes)
        if size is not None:
            found[symbol] = max(0, size)
    return found


def expressions(symbols: Collection[str], totals: Collection[str] = ()) -> dict[str, ast.expr]:
    """Symbols that follow from others, and how: arithmetic of them, or a total of what is past and what is new, as
    ``totals`` and those that are called so are."""
    found: dict[str, ast.expr] = {}
    plain = [symbol for symbol in symbols if symbol not in totals]
    for symbol in symbols:
        expression = _parsed(symbol)
        if expression is None and (symbol in totals or _TOTAL.search(symbol)):
            expression = _sum(symbol, plain)
        names = (
            set() if expression is None else {part.id for part in ast.walk(expression) if isinstance(part, ast.Name)}
        )
        if expression is not None and names <= {*symbols} - {symbol}:
            found[symbol] = expression
    # What others follow from is free to be chosen, so a chain of such has one size to begin with.
    return {symbol: expression for symbol, expression in found.items() if not _names(expression) & found.keys()}


def _names(expression: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(expression) if isinstance(part, ast.Name)}


def _parsed(symbol: str) -> ast.expr | None:
    """The arithmetic that a symbol is written as; None for a plain name."""
    try:
        body = ast.parse(symbol.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    allowed = (ast.BinOp, ast.Name, ast.Load, ast.Constant, *_OPERATIONS)
    plain = all(isinstance(part, allowed) for part in ast.walk(body))
    numbers = all(type(part.value) is int for part in ast.walk(body) if isinstance(part, ast.Constant))
    return body if plain and numbers and isinstance(body, ast.BinOp) else None


def _sum(total: str, symbols: Collection[str]) -> ast.expr | None:
    """Past and new steps, where there is one symbol for each."""
    steps = [symbol for symbol in symbols if symbol != total and symbol.isidentifier() and not _TOTAL.search(symbol)]
    past = [symbol for symbol in steps if PAST.search(symbol)]
    new = [symbol for symbol in steps if symbol not in past and _STEPS.search(symbol)]
    if len(past) != 1 or len(new) != 1:
        return None
    return ast.BinOp(ast.Name(past[0], ast.Load()), ast.Add(), ast.Name(new[0], ast.Load()))


def _value(expression: ast.expr, sizes: Mapping[str, int]) -> int | None:
    if isinstance(expression, ast.Constant) and isinstance(expression.value, int):
        return expression.value
    if isinstance(expression, ast.Name):
        return sizes.get(expression.id)
    if isinstance(expression, ast.BinOp):
        left, right = _value(expression.left, sizes), _value(expression.right, sizes)
        divides = isinstance(expression.op, (ast.Div, ast.FloorDiv))
        if left is None or right is None or (divides and right == 0):
            return None
        return int(_OPERATIONS[type(expression.op)](left, right))
    return None
