"""The answer for one match of a rule: do the conditions hold, and which attributes and types has the right side."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from superopt.engine.variants import Variant
from superopt.errors import InferenceError
from superopt.expressions import Binding, Bound, evaluate
from superopt.forms import expressible
from superopt.instantiate import Filled, fill, holds, number_matches, skeleton, stored
from superopt.operators import available, operator
from superopt.rules import Apply, Expr, Number, Var
from superopt.shapes import join
from superopt.terms import Attrs, AttrValue, TensorType, ValueType
from superopt.values import Unknown, Value


@dataclass(frozen=True)
class Match:
    """What the engine tells of a match: types of the variables and roots, attributes by left-side slot, content, and
    which variables stand for an argument that is not given."""

    types: Mapping[str, ValueType]
    roots: tuple[ValueType, ...]
    attrs: Mapping[int, Attrs]
    content: Mapping[str, Value]
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Clash:
    """A rule that would have put terms of different types into one class: it is unsound. ``variant`` and ``binding``
    are what it matched with, where one match of a rule shows it."""

    rule: str
    left: ValueType
    right: ValueType
    variant: Variant | None = None
    binding: Binding | None = None


def answer(variant: Variant, match: Match, opset: int) -> Filled | Clash | None:
    """The right side for a match; None where the rule does not apply.

    The roots' types in the result are joined with the left's.
    """
    try:
        if not all(_passed_on(variant, name) for name in match.absent):
            return None
        binding = bind(variant, match)
        if binding is None or not holds(variant.python, binding):
            return None
        filled = fill(variant.right, binding, as_stored=True)
    except (Unknown, InferenceError):
        return None
    for slot, node in zip(variant.right.slots, filled.nodes, strict=True):
        if isinstance(slot.pattern, Apply):
            types = [filled.types[arg] if arg >= 0 else None for arg in slot.args]
            dtypes = tuple(value.dtype if isinstance(value, TensorType) else None for value in types)
            if not available(node.op, dtypes, opset):
                return None
            given = tuple(arg >= 0 for arg in slot.args)
            if not expressible(node.op, node.attrs, given, tuple(types), opset):
                return None
    types = list(filled.types)
    shaped = _shaped_numbers(variant, binding)
    for root, left in zip(variant.right.roots, match.roots, strict=True):
        # A number written as [[3.0]] may raise the rank of what it meets, which a right side without it does not.
        if shaped and (_rank(left) is None or _rank(left) != _rank(types[root])):
            return None
        try:
            types[root] = join(left, types[root])
        except InferenceError:
            return None if shaped else Clash(variant.rule.name, left, types[root], variant, binding)
    return replace(filled, types=tuple(types))


def _passed_on(variant: Variant, name: str) -> bool:
    """Whether a variable stands on the right side for nothing but what it does on the left: the same arguments of the
    same operators. An argument that is not given may be passed on so; it cannot be added or scaled."""
    left, right = (
        {
            (slot.pattern.op, place) if isinstance(slot.pattern, Apply) else None
            for slot in shape.slots
            for place, arg in enumerate(slot.args)
            if arg >= 0 and isinstance(used := shape.slots[arg].pattern, Var) and used.name == name
        }
        for shape in (skeleton(variant.rule.left), variant.right)
    )
    return right <= left


def _shaped_numbers(variant: Variant, binding: Binding) -> bool:
    """Whether a number of the left side stands for a constant that is no scalar."""
    for slot in skeleton(variant.rule.left).slots:
        if isinstance(slot.pattern, Number):
            value = binding[slot.pattern.name]
            if not isinstance(value, Value) or _rank(value.type) != 0:
                return True
    return False


def _rank(value_type: ValueType) -> int | None:
    return value_type.rank if isinstance(value_type, TensorType) else None


def bind(variant: Variant, match: Match) -> Binding | None:
    """What the names of the left side stand for in a match; None where an attribute is not the one that is asked
    for."""
    binding: dict[str, Bound] = {}
    for name in variant.variables:
        constant = name in variant.constant
        known = match.content.get(name)
        binding[name] = Value(match.types[name], constant, known.load if known is not None else None)
    later: list[tuple[Apply, str, AttrValue]] = []
    slots = skeleton(variant.rule.left).slots
    for index, slot in enumerate(slots):
        if isinstance(slot.pattern, Number):
            content = match.content[slot.pattern.name]
            if not number_matches(slot.pattern.value, content):
                return None
            binding[slot.pattern.name] = content
        elif (
            isinstance(slot.pattern, Apply)
            and index in match.attrs
            and not _bind_attributes(slot.pattern, match.attrs[index], binding, later)
        ):
            return None
    for pattern, name, value in later:
        if not _same(_as_stored(pattern, name, evaluate(dict(pattern.attrs)[name], binding)), value):
            return None
    return binding


def attribute_text(pattern: Apply) -> str | None:
    """The canonical text that the attributes of a left-side node must have, where the pattern alone decides it."""
    spec = operator(pattern.op)
    if spec is None or pattern.rest is not None:
        return None
    values: dict[str, AttrValue] = {}
    trivial = spec.form.trivial or {}
    for name in spec.attributes:
        expr = dict(pattern.attrs).get(name)
        value = spec.default(name) if expr is None else _literal(expr.tree)
        if value is None or (expr is None and name in trivial and name not in spec.defaults):
            return None
        values[name] = stored(spec, name, value)
    return Attrs.of(values).text


def _as_stored(pattern: Apply, name: str, value: object) -> object:
    """The value of an attribute as models hold it, where it is one."""
    spec = operator(pattern.op)
    if spec is None or not isinstance(value, (int, float, tuple)):
        return value
    return stored(spec, name, value)


def _literal(tree: ast.expr) -> AttrValue | None:
    if any(isinstance(node, (ast.Name, ast.Call, ast.Attribute)) for node in ast.walk(tree)):
        return None
    value = evaluate(Expr(ast.unparse(tree), tree), {})
    return value if isinstance(value, (int, float, str, tuple)) else None


def _bind_attributes(
    pattern: Apply, attrs: Attrs, binding: dict[str, Bound], later: list[tuple[Apply, str, AttrValue]]
) -> bool:
    spec = operator(pattern.op)
    if spec is None:
        return False
    named = dict(pattern.attrs)
    left_over: dict[str, AttrValue] = {}
    for name, value in attrs.items:
        expr = named.get(name)
        if expr is None:
            left_over[name] = value
        elif isinstance(expr.tree, ast.Name) and expr.tree.id not in binding:
            binding[expr.tree.id] = value
        else:
            later.append((pattern, name, value))
    # A variable that an expression binds to an attribute must be there: no default stands in for it.
    for name in named:
        if name not in attrs:
            return False
    if pattern.rest is not None:
        bundle = Attrs.of(left_over)
        bound = binding.setdefault(pattern.rest, bundle)
        return bound == bundle
    return all(
        _is_default(spec.default(name), value, trivial=name in (spec.form.trivial or {}))
        for name, value in left_over.items()
    )


def _is_default(default: AttrValue | None, value: AttrValue, *, trivial: bool) -> bool:
    if trivial and isinstance(default, tuple) and isinstance(value, tuple):
        return all(item == default[0] for item in value)
    return default is not None and _same(default, value)


def _same(left: object, right: object) -> bool:
    """Whether two attribute values are one, as the canonical text has it (a bool counts as its number)."""
    if isinstance(left, Attrs) or isinstance(right, Attrs):
        return left == right
    plain = int(left) if isinstance(left, bool) else left
    if isinstance(plain, int) and isinstance(right, float):
        plain = float(plain)
    # Attribute values both: what is none was answered above.
    return Attrs.of(v=plain).text == Attrs.of(v=right).text  # type: ignore[arg-type]
