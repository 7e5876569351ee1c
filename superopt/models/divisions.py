"""Division of integers that processors do not do: by zero, and of the least integer by -1. onnxruntime leaves it to the
processor, which ends the process; here it is made an error of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from superopt.models.functions import nodes_within, without_calls
from superopt.models.inference import integer_values
from superopt.models.model import Model
from superopt.models.scopes import graphs_in
from superopt.models.tensors import is_external

_BROADCASTS = 7
"""From this opset on operators of two operands broadcast; older ones are not run by what follows."""


FAULT = "an integer is divided by zero, or the least one by -1"
"""How the name of the node that fails then begins: onnxruntime's message has it."""


@dataclass(frozen=True)
class Division:
    """A node that may divide an integer by zero: the graph it stands in, its place there, and its element type."""

    graph: onnx.GraphProto
    place: int
    data_type: int


def divisions(proto: onnx.ModelProto) -> tuple[Division, ...]:
    """The nodes of a model, in its bodies too, that divide integers by what is not known to divide any."""
    if any(opset.domain in ("", "ai.onnx") and opset.version < _BROADCASTS for opset in proto.opset_import):
        return ()
    graphs = graphs_in(proto.graph)
    asked = [(graph, place) for graph in graphs for place, node in enumerate(graph.node) if _divides(node)]
    if not asked:
        return ()
    safe = _safe_divisors(graphs)
    unsure = [(graph, place) for graph, place in asked if graph.node[place].input[1] not in safe]
    if not unsure:
        return ()
    integers = integer_values(proto)
    return tuple(
        Division(graph, place, integers[graph.node[place].input[1]])
        for graph, place in unsure
        if graph.node[place].input[1] in integers
    )


def trapped(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each such division behind a look-up that fails, as an error of the run, where the processor would;
    the same model where it has none. Functions that divide are written out: what types they get is known there."""
    plain = proto
    if any(_divides(node) for function in proto.functions for node in nodes_within(function.node)):
        plain = without_calls(Model(proto)).proto
    if not divisions(plain):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(plain)
    names = (f"superopt:divisor.{number}" for number in count())
    for division in reversed(divisions(copy)):
        node = division.graph.node[division.place]
        made = list(_trap(node, division.data_type, names))
        node.input[1] = made[-1].output[0]
        for offset, guard in enumerate(made):
            division.graph.node.insert(division.place + offset, guard)
    return copy


def _divides(node: onnx.NodeProto) -> bool:
    if node.domain not in ("", "ai.onnx") or len(node.input) != 2:
        return False
    # The C library's fmod, which Mod calls then, takes any divisor.
    return node.op_type == "Div" or (
        node.op_type == "Mod" and not any(item.name == "fmod" and item.i for item in node.attribute)
    )


def _safe_divisors(graphs: Sequence[onnx.GraphProto]) -> set[str]:
    """The values that divide any integer, by name: of two bodies each may have one of that name."""
    safe: set[str] = set()
    others: set[str] = set()
    for graph in graphs:
        others.update(value.name for value in graph.input)
        for tensor in graph.initializer:
            (safe if _is_safe(tensor) else others).add(tensor.name)
        for node in graph.node:
            constant = node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t")
            (safe if constant and _is_safe(node.attribute[0].t) else others).update(node.output)
    return safe - others


def _is_safe(divisor: onnx.TensorProto) -> bool:
    if is_external(divisor):
        return False
    values = numpy_helper.to_array(divisor)
    return values.dtype.kind not in "iu" or not bool(np.any((values == 0) | (values == -1)))


def _trap(node: onnx.NodeProto, data_type: int, names: Iterator[str]) -> Iterator[onnx.NodeProto]:
    """Nodes that compute the divisor again, times one that is looked up at the number of its faults in [1]."""
    dividend, divisor = node.input
    dtype = helper.tensor_dtype_to_np_dtype(data_type)

    def made(op: str, *inputs: str, name: str | None = None, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [next(names)], name, **attributes)

    def constant(value: object, kind: type[np.generic] | np.dtype[np.generic]) -> onnx.NodeProto:
        return made("Constant", value=numpy_helper.from_array(np.asarray(value, kind)))

    # As bool, since onnxruntime compares integers of few types.
    yield (nonzero := made("Cast", divisor, to=onnx.TensorProto.BOOL))
    yield (fault := made("Not", nonzero.output[0]))
    if np.issubdtype(dtype, np.signedinteger):
        yield (wide := made("Cast", divisor, to=onnx.TensorProto.INT64))
        yield (widest := made("Cast", dividend, to=onnx.TensorProto.INT64))
        yield (minus := constant(-1, np.int64))
        yield (least := constant(np.iinfo(dtype).min, np.int64))
        yield (by_minus := made("Equal", wide.output[0], minus.output[0]))
        yield (of_least := made("Equal", widest.output[0], least.output[0]))
        yield (overflow := made("And", by_minus.output[0], of_least.output[0]))
        yield (fault := made("Or", fault.output[0], overflow.output[0]))
    yield (number := made("Cast", fault.output[0], to=onnx.TensorProto.INT64))
    yield (faults := made("ReduceSum", number.output[0], keepdims=0))
    yield (ones := constant([1], np.int64))
    # The names of nodes are theirs alone.
    yield (one := made("Gather", ones.output[0], faults.output[0], name=f"{FAULT} ({next(names)})"))
    yield (typed := made("Cast", one.output[0], to=data_type))
    # Mul knows few types too: the same number by way of int64, whose product with one keeps every bit.
    if data_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
        yield made("Mul", divisor, typed.output[0])
        return
    yield (as_wide := made("Cast", divisor, to=onnx.TensorProto.INT64))
    yield (product := made("Mul", as_wide.output[0], one.output[0]))
    yield made("Cast", product.output[0], to=data_type)
