"""Whether a step is right: its two sides as small models, run on the same inputs and compared.

Constants are the model's own; everything else is drawn, for what a rule says holds for any value. Where a side is
costly, dimensions that no constant has are divided by a power of two, if both sides take that.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from superopt.errors import EvaluationError, InferenceError
from superopt.explanation.constants import ConstantValues
from superopt.explanation.derivation import Step
from superopt.explanation.retyped import both, input_types, with_numbers
from superopt.expressions import Bound
from superopt.kernels import Array
from superopt.laws.instances import Instance
from superopt.laws.instances_content import described
from superopt.laws.judge import judge_pair
from superopt.laws.sides import Finding
from superopt.operators import numpy_dtype
from superopt.rules import NUMERIC_CLASSES, Excuse, NumericClass, Rule, RuleSet
from superopt.terms import OPAQUE, TensorType, TermGraph, ValueType
from superopt.values import Value
from superopt.verification.evidence import multiplications

COSTLY = 2e6
"""Multiplications, or elements, above which a step is tried at smaller sizes first."""

_DIVISORS = (32, 16, 8, 4, 2)


@dataclass(frozen=True)
class StepVerdict:
    """What comparing the sides of a step came to: right, wrong, or None where it could not be told; and how.

    ``sizes`` says at which sizes; ``finding`` is what speaks against it.
    """

    right: bool | None
    how: str
    sizes: str = "as in the model"
    finding: Finding | None = None

    @property
    def values(self) -> tuple[str, str] | None:
        """Both values, where they differ."""
        if self.finding is None or self.finding.left_value is None or self.finding.right_value is None:
            return None
        left, right = (described({"": one}) for one in (self.finding.left_value, self.finding.right_value))
        return left.removeprefix(" = "), right.removeprefix(" = ")


@dataclass(frozen=True)
class Examiner:
    """Judges the steps of one e-graph. ``sizes`` are what symbolic dimensions are taken for."""

    constants: ConstantValues
    rules: RuleSet
    sizes: Mapping[str, int]

    def judge(self, step: Step) -> StepVerdict:
        """Whether the sides of a step agree, as its rule promises."""
        instance, after, sizes = self.instance(step)
        if instance is None:
            return StepVerdict(None, sizes)
        return judged(instance, after, sizes)

    def instance(self, step: Step) -> tuple[Instance | None, TermGraph, str]:
        """A step with values for its inputs; the other side; and at which sizes, or why there is none."""
        before, after = (step.after, step.before) if step.backward else (step.before, step.after)
        if any(node.op == OPAQUE for node in (*before.nodes, *after.nodes)):
            return None, after, "not told: an operator that is left alone is part of it"
        known = {name: self.constants.value(number) for name, number in step.classes.items()}
        given = {name: array for name, array in known.items() if array is not None}
        types = {**input_types(after), **input_types(before)}
        full = {name: _type(given.get(name), kind, self.sizes) for name, kind in types.items()}
        if not all(isinstance(kind, TensorType) and kind.is_static for kind in full.values()):
            return None, after, "not told: the types of its inputs are not known"
        sides = both(before, after, full)
        if sides is None:
            return None, after, "not told: its sides are not well typed at the sizes that were tried"
        chosen: Mapping[str, ValueType] = full
        text = "as in the model"
        if _work(sides[0]) > COSTLY:
            chosen, sides, text = _smaller(before, after, full, frozenset(given), sides)
        arrays = {name: given[name] if name in given else drawn(name, kind) for name, kind in chosen.items()}
        return instance_of(step, self.rule_of(step), sides[0], arrays, frozenset(given)), sides[1], text

    def rule_of(self, step: Step) -> Rule:
        """The step's rule; where it is several at once, one that promises no more than any of them."""
        if step.application is not None:
            return step.application.variant.rule
        used = [self.rules[name] for name in step.rules]
        numeric: NumericClass = max((rule.numeric for rule in used), key=NUMERIC_CLASSES.index, default="reassociates")
        excuses: tuple[Excuse, ...] = tuple(dict.fromkeys(excuse for rule in used for excuse in rule.ignoring))
        within = sum(rule.within or 0.0 for rule in used) or None
        return Rule(" + ".join(step.rules), numeric, (), (), ignoring=excuses, within=within)


def instance_of(
    step: Step, rule: Rule, left: TermGraph, arrays: Mapping[str, Array], constant: frozenset[str]
) -> Instance:
    """A step as an instance of its rule, as the laws judge them."""
    read = frozenset(step.application.variant.read) if step.application is not None else frozenset(arrays)
    read |= {name for name in arrays if name.startswith("number.")}
    kinds = input_types(left)
    binding: dict[str, Bound] = {}
    for name, array in arrays.items():
        load = (lambda array=array: array) if name in constant else None
        binding[name] = Value(kinds.get(name), name in constant, load)
    unread = frozenset(arrays) - read - constant
    return Instance(rule, binding, arrays, left, left.text(), unread)


def judged(instance: Instance, after: TermGraph, sizes: str = "as in the model") -> StepVerdict:
    """Whether the two sides agree in onnxruntime as the rule promises, or else in float64."""
    try:
        verdict = judge_pair(instance, after)
    except (EvaluationError, InferenceError) as error:
        return StepVerdict(None, f"not told: {error}", sizes)
    if verdict.finding is not None:
        return StepVerdict(False, verdict.finding.evidence, sizes, verdict.finding)
    if not verdict.telling:
        return StepVerdict(None, "not told: no evaluator tells a wrong step from a right one here", sizes)
    bits = instance.rule.numeric == "exact"
    return StepVerdict(True, "the same bits" if bits else "as near as rounding explains", sizes)


def _type(value: Array | None, kind: ValueType, sizes: Mapping[str, int]) -> ValueType:
    made = with_numbers(kind, sizes)
    if value is not None and isinstance(made, TensorType):
        return TensorType(made.dtype, value.shape)
    return made


def _work(graph: TermGraph) -> float:
    elements = sum(kind.size or 0 for kind in graph.types if isinstance(kind, TensorType))
    return max(multiplications(graph), float(elements))


def _smaller(
    before: TermGraph, after: TermGraph, types: Mapping[str, ValueType], constant: frozenset[str],
    sides: tuple[TermGraph, TermGraph],
) -> tuple[Mapping[str, ValueType], tuple[TermGraph, TermGraph], str]:  # fmt: skip
    """The types with dimensions divided, where both sides take them; as they are, where none fits."""
    fixed = {dim for name, kind in types.items() if name in constant and isinstance(kind, TensorType)
             for dim in kind.shape or ()}  # fmt: skip
    for divisor in _DIVISORS:
        made: dict[str, ValueType] = {}
        for name, kind in types.items():
            if name in constant or not isinstance(kind, TensorType) or kind.shape is None:
                made[name] = kind
                continue
            shape = tuple(
                dim // divisor
                if isinstance(dim, int) and dim not in fixed and dim % divisor == 0 and dim > divisor
                else dim
                for dim in kind.shape
            )
            made[name] = TensorType(kind.dtype, shape)
        found = both(before, after, made) if made != types else None
        if found is not None:
            return made, found, f"dimensions that no constant has divided by {divisor}"
    return types, sides, "as in the model"


def drawn(name: str, kind: ValueType) -> Array:
    """Values for an input, the same ones each time."""
    if not isinstance(kind, TensorType):
        raise EvaluationError(f"{name} is no tensor")
    shape = tuple(dim for dim in kind.shape or () if isinstance(dim, int))
    generator = np.random.default_rng(zlib.crc32(f"{name} {kind}".encode()))
    dtype = numpy_dtype(kind.dtype)
    if "float" in kind.dtype:
        return np.asarray(generator.standard_normal(shape), dtype)
    if kind.dtype == "bool":
        return np.asarray(generator.integers(0, 2, shape), dtype)
    return np.asarray(generator.integers(0, 3, shape), dtype)
