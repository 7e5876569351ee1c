"""Variants of an instance that are not drawn as instances: an element type that runtimes hardly know, dimensions that
are symbols, and dimensions of size zero.

A rule that applies where a dimension is a symbol has to be true whatever the symbol stands for: its attributes are
computed under the symbol, and both sides are compared at another size, and at zero.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from superopt.errors import EvaluationError, InferenceError
from superopt.expressions import Bound
from superopt.instantiate import holds, instantiate
from superopt.kernels import FLOAT64, evaluate_graph
from superopt.laws.instances import Instance
from superopt.laws.instances_content import content
from superopt.laws.instances_dice import Dice, static
from superopt.shapes import infer_node, join
from superopt.terms import INPUT, TensorType, TermGraph, ValueType
from superopt.values import Unknown, Value

SYMBOL = "s"
SHORT = "bfloat16"
"""An element type that most operators take and that few runtimes compute in: of it only the types are compared."""


@dataclass(frozen=True)
class Variant:
    """An instance with the right side that its rule made of it, or why that is not well typed.

    ``judged`` says whether the two can be computed and compared too.
    """

    instance: Instance
    right: TermGraph | None
    problem: str | None
    judged: bool = False

    @property
    def empty(self) -> bool:
        """Whether an operand has no elements."""
        return any(isinstance(kind, TensorType) and kind.size == 0 for kind in self.instance.left.types)


def in_short_type(instance: Instance) -> list[Variant]:
    """The instance in bfloat16 where it is in float32; none where the rule does not apply then."""

    def shorter(value: Value) -> Value:
        tensor = value.type
        if not isinstance(tensor, TensorType) or tensor.dtype != "float32":
            return value
        return replace(value, type=replace(tensor, dtype=SHORT))

    typed = _typed(instance, shorter)
    return [] if typed is None else [typed]


def with_symbol(instance: Instance, *, zero: bool) -> list[Variant]:
    """The instance with one size a symbol, which comes to stand for another size, and for ``zero``; none where the rule
    does not apply, or no other size will do."""
    maker = random.Random(f"symbol/{instance.signature}")
    sizes = _sizes(instance)
    if not sizes:
        return []
    size = maker.choice(sizes)
    other = maker.choice([count for count in (2, 3, 4, 5, 7) if count != size])
    typed = _typed(instance, lambda value: _resized(value, size, SYMBOL))
    made = [_at_size(instance, typed, size, count, maker) for count in ((other, 0) if zero else (other,))]
    return [variant for variant in made if variant is not None]


def of_nothing(instance: Instance) -> list[Variant]:
    """The instance with one size zero, known to be; none where the rule does not apply, or nothing has that size."""
    maker = random.Random(f"nothing/{instance.signature}")
    sizes = _sizes(instance)
    if not sizes:
        return []
    size = maker.choice(sizes)
    made = _at_size(instance, _typed(instance, lambda value: _resized(value, size, 0)), size, 0, maker)
    return [] if made is None else [made]


def _sizes(instance: Instance) -> list[int]:
    shapes = [tensor.shape or () for tensor in _variables(instance).values()]
    return sorted({dim for shape in shapes for dim in shape if isinstance(dim, int) and dim > 1})


def _at_size(instance: Instance, typed: Variant | None, size: int, other: int, maker: random.Random) -> Variant | None:
    """A typed variant where what had one size has another."""
    if typed is None or (other and typed.problem is not None):
        return typed
    binding = {name: _moved(bound, lambda value: _resized(value, size, other)) for name, bound in _items(instance)}
    try:
        left = instantiate(instance.rule.left, binding)
    except (InferenceError, Unknown):
        return None
    if other and any(isinstance(kind, TensorType) and not kind.size for kind in left.types):
        return None
    arrays = dict(instance.arrays)
    dice: Dice | None = None
    for name, tensor in _variables(instance).items():
        wanted = binding[name]
        if size not in (tensor.shape or ()) or not isinstance(wanted, Value) or not isinstance(wanted.type, TensorType):
            continue
        if not wanted.type.size:
            # Of what is empty there is but one.
            arrays[name] = np.zeros(static(wanted.type) or (), wanted.type.dtype)
            continue
        dice = dice or Dice(maker, np.random.default_rng(maker.getrandbits(48)))
        arrays[name] = content(wanted.type, "plain", dice, (), instance.bounds.get(name))
    sized = replace(instance, binding=binding, arrays=arrays, left=left, signature=f"{instance.signature}\n{other}")
    problem = typed.problem
    if problem is None and typed.right is not None:
        try:
            return Variant(sized, _sized(typed.right, binding), None, judged=True)
        except InferenceError as error:
            problem = f"for {SYMBOL} = {other} the right side is not well typed: {error}"
    return Variant(sized, None, problem) if _has_value(sized) else None


def _typed(instance: Instance, change: Callable[[Value], Value]) -> Variant | None:
    """Both sides under a changed binding, if the rule's conditions hold there."""
    binding = {name: _moved(bound, change) for name, bound in _items(instance)}
    changed = replace(instance, binding=binding)
    if binding == dict(instance.binding) or not holds((*instance.rule.when, *instance.rule.only_if), binding):
        return None
    try:
        changed = replace(changed, left=instantiate(instance.rule.left, binding))
        right = changed.right()
    except Unknown:
        return None
    except InferenceError as error:
        if changed.left is instance.left:
            return None  # It is the left side that has no such type.
        return Variant(changed, None, f"the right side is not well typed: {error}")
    for mine, theirs in zip(changed.left.roots, right.roots, strict=True):
        try:
            join(changed.left.types[mine], right.types[theirs])
        except InferenceError as error:
            return Variant(changed, right, f"types differ: {error}")
    return Variant(changed, right, None)


def _items(instance: Instance) -> list[tuple[str, Bound]]:
    return list(instance.binding.items())


def _moved(bound: Bound, change: Callable[[Value], Value]) -> Bound:
    return change(bound) if isinstance(bound, Value) else bound


def _variables(instance: Instance) -> Mapping[str, TensorType]:
    """The terms that are no constants: those whose sizes may be unknown when rules run."""
    return {
        name: bound.type
        for name, bound in _items(instance)
        if isinstance(bound, Value) and not bound.constant and isinstance(bound.type, TensorType)
    }


def _resized(value: Value, size: int, to: int | str) -> Value:
    tensor = value.type
    if value.constant or not isinstance(tensor, TensorType) or tensor.shape is None or size not in tensor.shape:
        return value
    return replace(value, type=replace(tensor, shape=tuple(to if dim == size else dim for dim in tensor.shape)))


def _has_value(instance: Instance) -> bool:
    """Whether the left side can be computed: of some operators types are known that their operands do not go with."""
    try:
        evaluate_graph(instance.left, instance.arrays, FLOAT64)
    except EvaluationError:
        return False
    return True


def _sized(right: TermGraph, binding: Mapping[str, Bound]) -> TermGraph:
    """A right side that was made under a symbol, with the types that it has for a number."""
    types: list[ValueType] = []
    for node, known in zip(right.nodes, right.types, strict=True):
        if node.op == INPUT:
            value = binding[str(node.attrs["name"])]
            types.append(value.type if isinstance(value, Value) else known)
        else:
            inferred = infer_node(node, types)
            types.append(known if inferred is None else inferred)
    return replace(right, types=tuple(types))
