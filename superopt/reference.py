"""What a model computes in float64, which stands for the truth: its term graph, opaque operators by onnxruntime or
onnx.reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from superopt.errors import EvaluationError, one_line
from superopt.evaluate import Feed, Runner, RuntimeValue, arrays_of
from superopt.kernels import FLOAT64, Algebra, Array, dtype_of, evaluate_graph, is_float
from superopt.lowering.lower import lower
from superopt.models.model import Model
from superopt.models.tensors import constant_of_tensor
from superopt.operators import dtype_name
from superopt.term_model import Leaf, term_model, value_name
from superopt.terms import ABSENT, INPUT, PROJECT, TensorType, TermGraph


@dataclass(frozen=True, eq=False)
class Truth:
    """The values of a graph's roots in float64; ``narrow`` names operators that could only be had in their own type."""

    values: tuple[RuntimeValue, ...]
    narrow: tuple[str, ...]


def float64_truth(graph: TermGraph, feed: Feed, model: Model | None = None) -> Truth:
    """The roots of a graph in float64. Raises EvaluationError where something in it cannot be computed.

    ``model`` is what the graph was lowered from: opaque operators may need its functions and opsets, and inputs that
    are not fed have its initializers for defaults.
    """
    opaque = OpaqueRunner(model.proto if model else None, model.libraries if model else ())
    feed = {**_defaults(graph, model), **feed} if model else feed
    values = evaluate_graph(graph, feed, FLOAT64, opaque=opaque)
    return Truth(tuple(values), tuple(dict.fromkeys(opaque.narrow)))


def _defaults(graph: TermGraph, model: Model) -> dict[str, Array]:
    wanted = {str(node.attrs["name"]) for node in graph.nodes if node.op == INPUT}
    return {
        tensor.name: constant_of_tensor(tensor, model.folder).array()
        for tensor in model.proto.graph.initializer
        if tensor.name in wanted
    }


class TermRunner:
    """Runs a model as onnxruntime would, but in float64: for models that onnxruntime has no operators for."""

    def __init__(self, model: Model) -> None:
        self.lowered = lower(model)
        self.outputs = tuple(output.name for output in model.proto.graph.output)

    def run(self, feed: Feed) -> dict[str, RuntimeValue]:
        """The outputs by name, floats in float64. Raises EvaluationError where something cannot be computed."""
        truth = float64_truth(self.lowered.graph, feed, self.lowered.model)
        values = dict(zip(self.lowered.root_names, truth.values, strict=True))
        return {name: values[name] for name in self.outputs}


class OpaqueRunner:
    """Computes opaque operators one by one, as models of one node.

    In onnxruntime they run in their own types. A float64 result, of onnxruntime or else of onnx.reference, is taken
    only where it is near to that one: either may lack the operator or have it wrong.
    """

    def __init__(self, context: onnx.ModelProto | None = None, libraries: Sequence[str] = ()) -> None:
        self.context = context
        self.libraries = libraries
        self.narrow: list[str] = []
        self._graph: TermGraph | None = None
        self._outputs: dict[int, dict[int, int]] = {}

    def _projects(self, graph: TermGraph) -> dict[int, dict[int, int]]:
        """The terms that read the outputs of a bundle, by bundle and index."""
        if self._graph is not graph:
            self._graph, self._outputs = graph, {}
            for place, node in enumerate(graph.nodes):
                if node.op == PROJECT:
                    self._outputs.setdefault(node.args[0], {})[int(str(node.attrs["index"]))] = place
        return self._outputs

    def __call__(
        self, graph: TermGraph, term: int, args: Sequence[Array | None], algebra: Algebra
    ) -> tuple[Array | None, ...]:
        node = graph.nodes[term]
        operator = graph.opaque[str(node.attrs["key"])]
        if algebra.exact:
            raise EvaluationError(f"{operator.op_type} is opaque ({operator.reason})")
        if not operator.deterministic:
            raise EvaluationError(f"{operator.op_type} is random, or keeps a state")
        given = {a: v for a, v in zip(node.args, args, strict=True) if a != ABSENT}
        projects = self._projects(graph).get(term, {})
        own = {place: _in_type(value, graph.types[place]) for place, value in given.items()}
        has_floats = any(is_float(array.dtype) for value in given.values() for array in arrays_of(value))
        narrow = self._run(graph, term, projects, own, reference=False)
        wide = self._float64(graph, term, projects, given, narrow) if has_floats else None
        if wide is None and has_floats:
            self.narrow.append(operator.op_type)
        kind = graph.types[term]
        results: list[RuntimeValue] = [None] * (len(kind) if isinstance(kind, tuple) else operator.outputs)
        for index, value in zip(projects, wide or narrow, strict=True):
            results[index] = _entered(value)
        return tuple(results)

    def _float64(
        self,
        graph: TermGraph,
        term: int,
        projects: dict[int, int],
        given: dict[int, RuntimeValue],
        near: Sequence[RuntimeValue],
    ) -> list[RuntimeValue] | None:
        for reference in (False, True):
            try:
                found = self._run(graph, term, projects, given, reference)
            except EvaluationError:
                continue
            if _is_near(found, near):
                return found
        return None

    def _run(
        self, graph: TermGraph, term: int, projects: dict[int, int], given: dict[int, RuntimeValue], reference: bool
    ) -> list[RuntimeValue]:
        leaves = {place: _type_of(value) for place, value in given.items()}
        outputs = list(projects.values())
        model = term_model(graph, sorted([term, *outputs]), leaves, outputs, context=self.context)
        feed = {value_name(place): value for place, value in given.items()}
        names = [item.name for item in model.graph.output]
        if not reference:
            results = Runner(model, libraries=self.libraries).run(feed)
            return [results[name] for name in names]
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(value) for value in ReferenceEvaluator(model).run(names, feed)]
        except Exception as error:  # onnx.reference raises whatever numpy and Python raise
            raise EvaluationError(f"onnx.reference does not run it: {one_line(error)}") from error


def _entered(value: RuntimeValue) -> RuntimeValue:
    if isinstance(value, list):
        return [_entered(item) for item in value]
    return FLOAT64.enter(value) if isinstance(value, np.ndarray) else value


def _type_of(value: RuntimeValue) -> Leaf:
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        number = onnx.TensorProto.STRING
        if value[0].dtype.kind not in "OUS":
            number = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(number, None))
    if not isinstance(value, np.ndarray):
        return None
    if value.dtype.kind in "OUS":
        return TensorType("string", value.shape)
    return TensorType(dtype_name(helper.np_dtype_to_tensor_dtype(value.dtype)), value.shape)


def _in_type(value: RuntimeValue, kind: Any) -> RuntimeValue:
    """A carrier back in the type that the model has it in; float32 where that is not known (as in sequences)."""
    if isinstance(value, list):
        return [_in_type(item, kind) for item in value]
    if isinstance(value, np.ndarray) and is_float(value.dtype):
        return round_to(value, kind.dtype if isinstance(kind, TensorType) else "float32")
    return value


def _is_near(found: Sequence[RuntimeValue], near: Sequence[RuntimeValue]) -> bool:
    """Whether values agree in a few digits: what another evaluator says in float64 is not believed where it computes
    something else, as versions of onnx.reference do for some operators. It is no judgement of rounding: three digits of
    the seven that float32 has, four bits of the eight that bfloat16 has, of the largest value."""
    for mine, other in zip(found, near, strict=True):
        left, right = arrays_of(mine), arrays_of(other)
        if len(left) != len(right):
            return False
        for a, b in zip(left, right, strict=True):
            if a.shape != b.shape or is_float(a.dtype) != is_float(b.dtype):
                return False
            if not is_float(a.dtype):
                if a.dtype != b.dtype or not np.array_equal(a, b):
                    return False
                continue
            digits = 1e-3 if b.dtype.itemsize >= 4 else 5e-2
            a, b = a.astype(np.float64), b.astype(np.float64)
            scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
            if not np.allclose(a, b, rtol=digits, atol=digits * scale, equal_nan=True):
                return False
    return True


def round_to(array: Array, dtype: str) -> Array:
    """Float64 rounded once, to nearest even, to an element type.

    ml_dtypes rounds by way of float32, which rounds twice; an odd last bit in between makes that one rounding (Boldo
    and Melquiond, "When double rounding is odd", 2005).
    """
    target = dtype_of(dtype)
    if target == array.dtype:
        return array
    with np.errstate(all="ignore"):
        if target.kind == "f":
            return array.astype(target)
        return _to_odd(array).astype(target)


def _to_odd(array: Array) -> Array:
    """Float32 that is exact, or else has an odd last bit and lies on either side of the value."""
    near = array.astype(np.float32)
    inexact = np.isfinite(array) & (near.astype(np.float64) != array)
    toward = np.where(np.abs(near.astype(np.float64)) > np.abs(array), np.nextafter(near, np.float32(0)), near)
    odd = (toward.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.asarray(np.where(inexact, odd, near))
