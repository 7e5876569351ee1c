"""Values that a rule text gives to attributes: whether an operator can have them, and how its models hold them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

import onnx

from superopt.expressions import evaluate
from superopt.operators import DTYPE_ATTRIBUTES, Operator, attribute_kind, dtype_name
from superopt.rule_span import ErrorAt
from superopt.rules import Expr
from superopt.values import Unknown

CHOICES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("Pad", "mode"): ("constant", "edge", "reflect", "wrap"),
    ("Resize", "coordinate_transformation_mode"): ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("ScatterND", "reduction"): ("none", "add", "mul", "max", "min"),
}
"""The texts that attributes may have in the normal form, where an operator takes no others: those that its kernel tells
apart."""

_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "INT": (int, "a whole number"), "FLOAT": ((int, float), "a number"), "STRING": (str, "a text"),
}  # fmt: skip
"""What an attribute of a schema's type is in a rule, in Python and in words."""

DTYPES = tuple(dtype_name(number) for number in onnx.TensorProto.DataType.values() if number)
"""The names of element types."""


def check_unquoted(spec: Operator, name: str, tree: ast.expr, error: ErrorAt) -> None:
    """Raises RuleError where a name stands for an attribute's value that is the value itself without its quotes."""
    known = DTYPES if (spec.name, name) in DTYPE_ATTRIBUTES else CHOICES.get((spec.name, name), ())
    if isinstance(tree, ast.Name) and tree.id in known:
        raise error(f'{tree.id} is a name here: the value "{tree.id}", in quotes, was expected', tree)


def check_value(spec: Operator, name: str, value: Expr, tree: ast.expr, error: ErrorAt) -> None:
    """Raises RuleError where an attribute is given a value, by a text without names, that the operator cannot have."""
    if isinstance(value.tree, ast.IfExp):
        for way in (value.tree.body, value.tree.orelse):
            check_value(spec, name, Expr(ast.unparse(way), way), tree, error)
        return
    if any(isinstance(node, (ast.Name, ast.Attribute)) for node in ast.walk(value.tree)):
        return
    try:
        given = evaluate(value, {})
    except Unknown as wrong:
        raise error(f"{spec.name}'s {name} has no value: {wrong}", tree) from wrong
    wanted = _wanted(spec, name, given)
    if wanted:
        raise error(f"{spec.name}'s {name} is {given!r}: {wanted} was expected", tree)


def as_float(spec: Operator, name: str, value: Expr) -> Expr:
    """A whole number as a float where the operator has one: it has to be equal to what models hold, text for text."""
    if not attribute_kind(spec.name, name).startswith("FLOAT"):
        return value

    class Float(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.copy_location(ast.Constant(float(node.value)) if type(node.value) is int else node, node)

    whole = value.tree.elts if isinstance(value.tree, ast.Tuple) else [value.tree]
    if not all(isinstance(item.operand if isinstance(item, ast.UnaryOp) else item, ast.Constant) for item in whole):
        return value
    tree = Float().visit(copy.deepcopy(value.tree))
    return Expr(ast.unparse(tree), tree)


def _wanted(spec: Operator, name: str, given: object) -> str:
    """What an attribute holds by the operator's schema, where this value is not of that kind; else nothing."""
    if (spec.name, name) in DTYPE_ATTRIBUTES:
        return "" if given == spec.defaults.get(name) or given in DTYPES else f"one of {', '.join(DTYPES)}"
    declared_type = attribute_kind(spec.name, name)
    choices = CHOICES.get((spec.name, name), ())
    if choices and isinstance(given, str) and given not in choices:
        return f"one of {', '.join(choices)}"
    items = given if isinstance(given, tuple) else (given,)
    if name in ("axis", "axes") and any(isinstance(item, int) and item < 0 for item in items):
        # Models that are lowered have none that is negative: the left side would never match.
        return "what counts from the front (for the last: axis=k, and 'when k == rank(x) - 1')"
    if not declared_type:
        # An input in ONNX: a number or numbers.
        return "" if all(isinstance(item, (int, float)) for item in items) else "a number or a tuple of numbers"
    kind, text = _KINDS.get(declared_type.removesuffix("S"), (object, ""))
    if not declared_type.endswith("S"):
        return "" if isinstance(given, kind) else text
    return "" if isinstance(given, tuple) and all(isinstance(item, kind) for item in given) else f"a tuple, each {text}"
