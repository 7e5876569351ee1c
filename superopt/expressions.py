"""The value of a rule's expression under a binding: the one evaluator, for the e-graph and for the laws."""

from __future__ import annotations

import ast
import operator as arithmetic
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from superopt.rules import Expr
from superopt.terms import Attrs, AttrValue
from superopt.values import FUNCTIONS, Unknown, Value

Bound: TypeAlias = "Value | AttrValue | Attrs | tuple[Value, ...]"
Binding: TypeAlias = Mapping[str, Bound]
"""What the names of a left side stand for: terms, attribute values, attribute bundles; elements of a star ``xs`` under
``xs.0``, ``xs.1`` and so on."""

_MOST_BITS = 1 << 12
"""Bits of whole numbers that powers may have."""

_MOST_ITEMS = 1 << 16
"""Elements that tuples and ranges may have: those of rules are about axes."""


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > _MOST_BITS:
        raise OverflowError("a power of too many digits")
    return base**exponent


def _product(left: Any, right: Any) -> Any:
    for items, count in ((left, right), (right, left)):
        if isinstance(items, (tuple, str)) and isinstance(count, int) and len(items) * count > _MOST_ITEMS:
            raise OverflowError("a tuple of too many elements")
    return left * right


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if made and (made[-1] - made[0]) // made.step >= _MOST_ITEMS:
        raise OverflowError("a range of too many numbers")
    return made


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: arithmetic.add, ast.Sub: arithmetic.sub, ast.Mult: _product, ast.FloorDiv: arithmetic.floordiv,
    ast.Mod: arithmetic.mod, ast.Div: arithmetic.truediv, ast.Pow: _power,
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: arithmetic.eq, ast.NotEq: arithmetic.ne, ast.Lt: arithmetic.lt, ast.LtE: arithmetic.le,
    ast.Gt: arithmetic.gt, ast.GtE: arithmetic.ge, ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: lambda left, right: left is right, ast.IsNot: lambda left, right: left is not right,
}  # fmt: skip
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    "len": len, "min": min, "max": max, "sum": sum, "all": all, "any": any, "tuple": tuple, "range": _range,
    "sorted": lambda items: tuple(sorted(items)), "abs": abs, "int": int, "float": float, "zip": zip,
}  # fmt: skip


def constant(*terms: Value | tuple[Value, ...]) -> bool:
    """Whether all these terms are constant."""
    return all(constant(*term) if isinstance(term, tuple) else term.constant for term in terms)


def evaluate(expr: Expr, binding: Binding) -> Any:
    """The value of an expression.

    Raises Unknown where it asks for what is not known, or has no value (an index out of range, a division by zero, a
    function that is given what it is not about): a rule whose condition has no value does not apply.
    """
    try:
        return _value(expr.tree, binding)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unknown(f"{expr.text}: {error}") from error


def tuple_of(binding: Binding, name: str) -> tuple[Value, ...]:
    """The elements of a star, in order."""
    found: list[Value] = []
    while isinstance(value := binding.get(f"{name}.{len(found)}"), Value):
        found.append(value)
    return tuple(found)


def _value(tree: ast.expr, binding: Binding) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return binding[name] if name in binding else tuple_of(binding, name)
        case ast.Tuple(elts=items):
            return tuple(_spliced(items, binding))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, binding)
        case ast.UnaryOp(operand=operand):
            return not _value(operand, binding)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, binding), _value(right, binding))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _compared(_value(left, binding), ops, comparators, binding)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, binding) for value in values)
        case ast.BoolOp(values=values):
            return any(_value(value, binding) for value in values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, binding) else orelse, binding)
        case ast.Subscript(value=of, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            parts = [None if part is None else _value(part, binding) for part in (lower, upper, step)]
            return _value(of, binding)[slice(*parts)]
        case ast.Subscript(value=of, slice=index):
            return _value(of, binding)[_value(index, binding)]
        case ast.Attribute(value=of, attr=name):
            return _value(of, binding)[name]
        case ast.GeneratorExp(elt=element, generators=[generator]):
            return tuple(_generated(element, generator, binding))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            named = {item.arg: _value(item.value, binding) for item in keywords if item.arg is not None}
            return _function(name)(*_spliced(args, binding), **named)
        case _:
            raise TypeError(f"{type(tree).__name__} is not part of rule expressions")


def _function(name: str) -> Callable[..., Any]:
    if name == "constant":
        return constant
    return FUNCTIONS[name].call if name in FUNCTIONS else _BUILTINS[name]


def _spliced(items: list[ast.expr], binding: Binding) -> list[Any]:
    values: list[Any] = []
    for item in items:
        if isinstance(item, ast.Starred):
            values += _value(item.value, binding)
        else:
            values.append(_value(item, binding))
    return values


def _compared(left: Any, ops: list[ast.cmpop], comparators: list[ast.expr], binding: Binding) -> bool:
    for op, comparator in zip(ops, comparators, strict=True):
        right = _value(comparator, binding)
        if not _COMPARE[type(op)](left, right):
            return False
        left = right
    return True


def _generated(element: ast.expr, generator: ast.comprehension, binding: Binding) -> list[Any]:
    result = []
    for item in _value(generator.iter, binding):
        names = generator.target.elts if isinstance(generator.target, ast.Tuple) else [generator.target]
        parts = item if isinstance(generator.target, ast.Tuple) else (item,)
        local = {name.id: part for name, part in zip(names, parts, strict=True) if isinstance(name, ast.Name)}
        inner: Binding = {**binding, **local}
        if all(_value(test, inner) for test in generator.ifs):
            result.append(_value(element, inner))
    return result
