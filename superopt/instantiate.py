"""One side of a rule under a binding: its nodes with their attributes, types and constants; and whether conditions
hold.

The one implementation for the e-graph (which asks once for each match) and for the laws (which evaluate both sides).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import copysign, isinf
from typing import Any

import numpy as np

from superopt.errors import InferenceError
from superopt.expressions import Binding, evaluate
from superopt.models.tensors import constant_of_array
from superopt.operators import Operator, attribute_kind, has_number, numpy_dtype, operator
from superopt.rules import Absent, Apply, Each, Expr, Made, Number, Output, Pattern, Rule, Star, Var
from superopt.shapes import infer
from superopt.terms import (
    ABSENT,
    CONST,
    INPUT,
    PROJECT,
    Attrs,
    AttrValue,
    Constant,
    Node,
    TensorType,
    TermGraph,
    ValueType,
)
from superopt.values import Unknown, Value


@dataclass(frozen=True)
class Slot:
    """A distinct subpattern, and the slots of its arguments (ABSENT for an argument that is not given)."""

    pattern: Pattern
    args: tuple[int, ...]


@dataclass(frozen=True)
class Skeleton:
    """Patterns as a list of distinct subpatterns in topological order; the same for every binding."""

    slots: tuple[Slot, ...]
    roots: tuple[int, ...]


@dataclass(frozen=True)
class Filled:
    """A skeleton under a binding: for each slot its node, its type, and the constant if it is one."""

    nodes: tuple[Node, ...]
    types: tuple[ValueType, ...]
    constants: tuple[Constant | None, ...]


@lru_cache(maxsize=1 << 12)
def skeleton(patterns: tuple[Pattern, ...]) -> Skeleton:
    """The distinct subpatterns of patterns without stars."""
    slots: list[Slot] = []
    index: dict[Pattern, int] = {}

    def add(pattern: Pattern | Star | Each) -> int:
        if isinstance(pattern, (Star, Each)):
            raise InferenceError("a pattern with a star: it was to be expanded")
        if isinstance(pattern, Absent):
            return ABSENT
        if pattern not in index:
            args: tuple[int, ...] = ()
            if isinstance(pattern, Apply):
                # Numbers last: one takes its element type from what stands beside it.
                for arg in sorted(pattern.args, key=lambda arg: isinstance(arg, Number)):
                    add(arg)
                args = tuple(add(arg) for arg in pattern.args)
            elif isinstance(pattern, Output):
                args = (add(pattern.of),)
            slots.append(Slot(pattern, args))
            index[pattern] = len(slots) - 1
        return index[pattern]

    roots = tuple(add(pattern) for pattern in patterns)
    return Skeleton(tuple(slots), roots)


def holds(conditions: Iterable[Expr], binding: Binding) -> bool:
    """Whether all these conditions can be shown to hold."""
    try:
        return all(evaluate(condition, binding) for condition in conditions)
    except Unknown:
        return False


def fill(shape: Skeleton, binding: Binding, *, as_stored: bool = False) -> Filled:
    """Every slot's node, type and constant; attributes are as a model holds them, if that is asked for, or as the rule
    computes them. Raises InferenceError where ONNX would not accept a node, Unknown where an attribute cannot be
    computed."""
    nodes: list[Node] = []
    types: list[ValueType] = []
    constants: list[Constant | None] = []
    for slot in shape.slots:
        constant: Constant | None = None
        match slot.pattern:
            case Var(name) | Number(name=name):
                node, found = Node(INPUT, (), Attrs.of(name=name)), _term(slot.pattern, binding, shape, types)
                value_type = found.type
            case Made(expr):
                constant = constant_of_array(evaluate(expr, binding))
                node, value_type = Node(CONST, (), Attrs.of(key=constant.key)), constant.type
            case Output(_, index):
                node = Node(PROJECT, slot.args, Attrs.of(index=index))
                value_type = infer(PROJECT, node.attrs, [types[slot.args[0]]])
            case Apply(op):
                args = [None if arg == ABSENT else types[arg] for arg in slot.args]
                attrs = _attributes(slot.pattern, args, binding, as_stored)
                node = Node(op, slot.args, attrs)
                value_type = infer(op, attrs, args, [arg != ABSENT for arg in slot.args])
            case _:
                raise InferenceError(f"{slot.pattern} is no term")
        nodes.append(node)
        types.append(value_type)
        constants.append(constant)
    return Filled(tuple(nodes), tuple(types), tuple(constants))


def instantiate(patterns: Sequence[Pattern], binding: Binding, *, as_stored: bool = False) -> TermGraph:
    """The patterns under a binding as a graph; variables are ``Input`` nodes by their names. Attributes are as for
    ``fill``, and it raises as that does."""
    shape = skeleton(tuple(patterns))
    filled = fill(shape, binding, as_stored=as_stored)
    nodes: list[Node] = []
    types: list[ValueType] = []
    place: list[int] = []
    known: dict[Node, int] = {}
    for node, value_type in zip(filled.nodes, filled.types, strict=True):
        moved = Node(node.op, tuple(ABSENT if arg == ABSENT else place[arg] for arg in node.args), node.attrs)
        if moved not in known:
            known[moved] = len(nodes)
            nodes.append(moved)
            types.append(value_type)
        place.append(known[moved])
    constants = {constant.key: constant for constant in filled.constants if constant is not None}
    return TermGraph(tuple(nodes), tuple(types), tuple(place[root] for root in shape.roots), constants)


def numbers_match(rule: Rule, binding: Binding) -> bool:
    """Whether every number of the left side stands for a constant of one element that is equal to it."""
    for slot in skeleton(rule.left).slots:
        if isinstance(slot.pattern, Number) and slot.pattern.name in binding:
            value = binding[slot.pattern.name]
            if not isinstance(value, Value) or not number_matches(slot.pattern.value, value):
                return False
    return True


def number_matches(number: float, value: Value) -> bool:
    """Whether a constant has one element, equal to a number once that is rounded to the constant's type.

    A zero must have the sign that is written, so that rules about adding zero can be exact.
    """
    try:
        array = value.array()
    except Unknown:
        return False
    if array.size != 1 or array.dtype.kind in "OSU":
        return False
    if array.dtype.kind in "iub":
        return bool(array.reshape(()) == number)
    if array.dtype.kind == "c":
        return False
    item = float(array.reshape(()).astype(np.float64))
    with np.errstate(over="ignore"):
        wanted = float(np.asarray(number, dtype=np.float64).astype(array.dtype).astype(np.float64))
    # What is beyond the type's range is not its infinity.
    return isinf(wanted) == isinf(number) and item == wanted and copysign(1.0, item) == copysign(1.0, wanted)


def _term(pattern: Var | Number, binding: Binding, shape: Skeleton, types: list[ValueType]) -> Value:
    value = binding.get(pattern.name)
    if isinstance(value, Value):
        return value
    if isinstance(pattern, Number):
        return _default_number(pattern, shape, types)
    raise InferenceError(f"{pattern.name} is not bound to a term")


def _default_number(pattern: Number, shape: Skeleton, types: list[ValueType]) -> Value:
    """A scalar of the element type of what stands beside it."""
    for slot in shape.slots:
        if isinstance(slot.pattern, Apply) and pattern in slot.pattern.args:
            for arg in slot.args:
                beside = types[arg] if 0 <= arg < len(types) else None
                if isinstance(beside, TensorType):
                    if not has_number(beside.dtype, pattern.value):
                        raise InferenceError(f"{beside.dtype} has no {pattern.value}")
                    number = constant_of_array(np.asarray(pattern.value, dtype=numpy_dtype(beside.dtype)))
                    return Value(number.type, True, number.load)
    raise InferenceError("the type of a number is not known: it was to be bound")


def _attributes(pattern: Apply, args: list[ValueType], binding: Binding, as_stored: bool) -> Attrs:
    spec = operator(pattern.op)
    if spec is None:
        raise InferenceError(f"{pattern.op} has no normal form")
    values: dict[str, AttrValue] = {}
    if pattern.rest is not None:
        rest = binding[pattern.rest]
        if isinstance(rest, Attrs):
            values |= dict(rest.items)
    for name, expr in pattern.attrs:
        computed = fitted(spec, name, _plain(evaluate(expr, binding)))
        values[name] = stored(spec, name, computed) if as_stored else computed
    for name in spec.attributes:
        if name not in values and (value := default_attribute(spec, name, args)) is not None:
            values[name] = value
    if extra := [name for name in values if name not in spec.attributes]:
        raise InferenceError(f"{pattern.op} has no attribute {extra[0]}")
    return Attrs.of(values)


_KINDS: Mapping[str, type] = {"INT": int, "FLOAT": float, "STRING": str}


def fitted(spec: Operator, name: str, value: AttrValue) -> AttrValue:
    """The value as the operator has it: a whole number as a float where it has floats. Raises Unknown where it is of
    another kind."""
    declared = attribute_kind(spec.name, name)
    kind = _KINDS.get(declared.removesuffix("S"))
    if kind is None:
        return value
    items: tuple[int | float | str, ...] = value if isinstance(value, tuple) else (value,)
    if kind is float:
        try:
            items = tuple(float(item) if isinstance(item, int) else item for item in items)
        except OverflowError as error:
            raise Unknown(f"{spec.name}'s {name} is {value}: {error}") from error
    if isinstance(value, tuple) != declared.endswith("S") or not all(isinstance(item, kind) for item in items):
        raise Unknown(f"{spec.name}'s {name} is {value!r}, which is of another kind")
    # Of one kind, as was just asked.
    return items if isinstance(value, tuple) else items[0]  # type: ignore[return-value]


def stored(spec: Operator, name: str, value: AttrValue) -> AttrValue:
    """The value as a model holds it: ONNX's float attributes are float32. Raises Unknown where that has no such
    number."""
    if not attribute_kind(spec.name, name).startswith("FLOAT"):
        return value
    items = value if isinstance(value, tuple) else (value,)
    with np.errstate(over="ignore"):
        rounded = tuple(float(np.float32(item)) if isinstance(item, (int, float)) else item for item in items)
    for exact, item in zip(items, rounded, strict=True):
        if isinstance(item, float) and isinf(item) and exact != item:
            raise Unknown(f"{spec.name}'s {name} is {value}, which float32 does not have")
    # Of one kind, as ``value`` is.
    return rounded if isinstance(value, tuple) else rounded[0]  # type: ignore[return-value]


def default_attribute(spec: Operator, name: str, args: Sequence[ValueType]) -> AttrValue | None:
    """The value of an attribute that a pattern does not name: the schema's, or the trivial one for these arguments."""
    value = spec.default(name)
    if spec.form.trivial is None or name not in spec.form.trivial or name in spec.defaults:
        return value
    ranks = [arg.rank for arg in args if isinstance(arg, TensorType) and arg.rank is not None and arg.rank > 2]
    if not ranks or not isinstance(value, tuple):
        raise Unknown(f"{spec.name}: rank not known")
    spatial = ranks[0] - 2
    repeated: tuple[Any, ...] = value * (2 * spatial if name == "pads" else spatial)
    return repeated


def _plain(value: Any) -> AttrValue:
    """An attribute value in the form that ``Attrs`` keeps: Python numbers, tuples; numpy's converted."""
    if isinstance(value, (list, tuple, np.ndarray)):
        # Attributes hold no tuples of tuples.
        return tuple(_plain(item) for item in value)  # type: ignore[return-value]
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, np.generic):
        item: AttrValue = value.item()
        return item
    raise Unknown(f"{value!r} is no attribute value")
