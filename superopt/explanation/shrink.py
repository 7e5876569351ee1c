"""The smallest instance of a wrong step: sizes, then values, are made smaller as long as the two sides differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from onnx import helper

from superopt.engine.matching import Clash, Match, answer, bind
from superopt.errors import EvaluationError, InferenceError
from superopt.explanation.application import Application
from superopt.explanation.retyped import retyped
from superopt.instantiate import instantiate
from superopt.kernels import Array
from superopt.laws.instances import Instance
from superopt.laws.judge import judge_pair
from superopt.laws.sides import Finding
from superopt.operators import dtype_name
from superopt.terms import TensorType, TermGraph, ValueType
from superopt.values import Unknown, Value

MOST_TRIALS = 400
"""How many smaller instances are tried."""

_SIZES = (1, 2, 3, 4)


@dataclass(frozen=True)
class Wrong:
    """An application on values on which its two sides differ; ``constant`` are the inputs that are constants."""

    application: Application
    finding: Finding
    after: TermGraph
    constant: frozenset[str]

    @property
    def arrays(self) -> Mapping[str, Array]:
        return self.finding.instance.arrays

    @property
    def size(self) -> int:
        """Elements and dimensions of all inputs."""
        return sum(array.size + array.ndim for array in self.arrays.values())


def shrunk(wrong: Wrong, opset: int) -> Wrong:
    """The smallest of the instances that come of a wrong one by cutting off and simplifying, and are wrong too."""
    best = wrong
    trials = 0
    improved = True
    while improved and trials < MOST_TRIALS:
        improved = False
        for arrays in _smaller(best.arrays):
            trials += 1
            found = tried(best, arrays, opset)
            if found is not None:
                best, improved = found, True
                break
            if trials >= MOST_TRIALS:
                break
    return best


def _smaller(arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Ways to make arrays smaller or simpler, the largest steps first."""
    dims = sorted({dim for array in arrays.values() for dim in array.shape}, reverse=True)
    for dim in dims:
        for size in [*(size for size in _SIZES if size < dim), *([dim // 2] if dim // 2 > _SIZES[-1] else [])]:
            yield {name: _cut(array, dim, size) for name, array in arrays.items()}
    for name, array in arrays.items():
        if "float" not in array.dtype.name:
            continue
        for simple in (np.zeros_like(array), np.ones_like(array), np.rint(array), np.round(array, 1)):
            if not np.array_equal(simple, array, equal_nan=True) and _simplicity(simple) < _simplicity(array):
                yield {**arrays, name: simple}


def _simplicity(array: Array) -> int:
    """Digits that it takes to write an array down."""
    return sum(len(f"{float(item):g}") for item in array.reshape(-1)[:64])


def _cut(array: Array, dim: int, size: int) -> Array:
    return np.ascontiguousarray(array[tuple(slice(size if at == dim else None) for at in array.shape)])


def tried(wrong: Wrong, arrays: Mapping[str, Array], opset: int) -> Wrong | None:
    """The same application on other values: wrong too, or None where it does not apply or nothing differs."""
    application = wrong.application
    variant = application.variant
    types: dict[str, ValueType] = {name: _type(array) for name, array in arrays.items()}
    try:
        left = retyped(wrong.finding.instance.left, types)
        content = {
            name: Value(types[name], True, lambda array=array: array)  # type: ignore[misc]  # bound at once
            for name, array in arrays.items()
            if name in application.match.content
        }
        match = Match(types, tuple(left.types[root] for root in left.roots), application.match.attrs, content)
        filled = answer(variant, match, opset)
        binding = bind(variant, match)
        if filled is None or isinstance(filled, Clash) or binding is None:
            return None
        after = instantiate(variant.rule.right, binding, as_stored=True)
        unread = frozenset(arrays) - frozenset(content) - wrong.constant
        if variant.rule.numeric == "exact":
            # Bits are compared on values that are drawn where none are given for good: here, these are.
            given = {
                # A default binds what the lambda would look up late; mypy infers no type for it.
                name: Value(types[name], name in wrong.constant, lambda array=array: array)  # type: ignore[misc]
                for name, array in arrays.items()
            }
            binding, unread = {**binding, **given}, frozenset()
        instance = Instance(variant.rule, binding, dict(arrays), left, left.text(), unread)
        finding = judge_pair(instance, after).finding
    except (EvaluationError, InferenceError, Unknown):
        return None
    if finding is None:
        return None
    return Wrong(replace(application, match=match), finding, after, wrong.constant)


def _type(array: Array) -> TensorType:
    name = "string" if array.dtype.kind in "OUS" else dtype_name(helper.np_dtype_to_tensor_dtype(array.dtype))
    return TensorType(name, array.shape)
