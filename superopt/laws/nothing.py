"""Whether both sides come to the same where an operand has no elements.

Kernels decide. Where they compute the left side alone, onnxruntime is asked too, which may have a form for the right
side: in a process of its own, since it does not outlive every operator on nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superopt.errors import EvaluationError
from superopt.kernels import FLOAT64, evaluate_graph
from superopt.laws.differences import same_type
from superopt.laws.runtime import model_of, written
from superopt.laws.sides import Finding
from superopt.laws.variants import Variant
from superopt.operators import named
from superopt.probe import outlives
from superopt.rules import Rule
from superopt.terms import TensorType, TermGraph

Array = NDArray[np.generic]

_WINDOWED = frozenset(named(lambda form: form.windowed))


def judge_of_nothing(variant: Variant) -> Finding | None:
    """A finding where the two sides of a variant differ, or the right one alone cannot be computed."""
    instance, right = variant.instance, variant.right
    if variant.problem is not None or right is None:
        return None if variant.problem is None else Finding("typed", variant.problem, instance, right)
    for mine, other in zip(instance.left.roots, right.roots, strict=True):
        types = instance.left.types[mine], right.types[other]
        if not same_type(*types):
            return Finding("typed", f"types differ: {types[0]} on the left, {types[1]} on the right", instance, right)
    if _looks_at_nothing(instance.left) or not _promised(variant):
        return None
    try:
        values = evaluate_graph(instance.left, instance.arrays, FLOAT64)
    except EvaluationError:
        return None
    try:
        others = evaluate_graph(right, instance.arrays, FLOAT64)
    except EvaluationError as error:
        if _runs(variant, instance.left) and not _runs(variant, right):
            return Finding("agrees", f"on the right side alone: {error}", instance, right, values[0], np.zeros(0))
        return None
    for value, made in zip(values, others, strict=True):
        if value.shape != made.shape:
            return Finding("agrees", "different shapes of nothing", instance, right, value, made)
        if not np.all(_alike(value, made, instance.rule)):
            return Finding("agrees", "different where there is nothing", instance, right, value, made)
    return None


def _promised(variant: Variant) -> bool:
    """Whether the rule promises anything for these contents: NaN times nothing is nothing."""
    arrays = variant.instance.arrays.values()
    return variant.instance.rule.numeric == "exact" or all(
        array.dtype.kind != "f" or bool(np.all(np.isfinite(array))) for array in arrays
    )


def _looks_at_nothing(graph: TermGraph) -> bool:
    """Whether windows lie where there is but padding: runtimes refuse that, or make of it what they like."""
    for node in graph.nodes:
        kind = graph.types[node.args[0]] if node.op in _WINDOWED else None
        if isinstance(kind, TensorType) and 0 in (kind.shape or ())[2:]:
            return True
    return False


def _alike(value: Array, other: Array, rule: Rule) -> NDArray[np.bool_]:
    """What is left of a comparison where most is neutral elements, in float64."""
    if value.dtype.kind != "f":
        return np.asarray(value == other)
    close = np.isclose(value, other, rtol=1e-6, atol=max(1e-6, rule.within or 0.0), equal_nan=True)
    return close | (np.isnan(value) & ("nan" in rule.ignoring)) | (np.isinf(value) & ("infinity" in rule.ignoring))


def _runs(variant: Variant, graph: TermGraph) -> bool:
    """Whether onnxruntime computes a graph, and outlives it."""
    names = {str(node.attrs["name"]) for node in graph.nodes if node.op == "Input"}
    feed = {written(name): array for name, array in variant.instance.arrays.items() if name in names}
    return outlives(model_of({"side": graph}).SerializeToString(), {}, feed) is None
