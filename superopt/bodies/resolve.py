"""Control flow that has only one way to go: an If whose condition is known, a Loop that runs once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from superopt.bodies.bodies import has_bodies, holds_bodies
from superopt.bodies.inlining import Way, inlined
from superopt.emitting.correspondence import replaced_places
from superopt.kernels import Array
from superopt.lowering.lower import lower
from superopt.models.model import Model
from superopt.models.scopes import names_defined
from superopt.models.tensors import constant_of_array, is_external
from superopt.numeric import replaced, settled
from superopt.terms import ABSENT, CONST, Constant, Dim, TensorType, TermGraph


def resolved(model: Model) -> Model:
    """The model with each If of known condition and each Loop of one iteration in its main graph replaced by what runs;
    the same object where there is none.

    Raises ModelError on a graph that is broken.
    """
    while has_bodies(model):
        known = _known(model)
        ways = {place: _way(node, known) for place, node in enumerate(model.proto.graph.node) if holds_bodies(node)}
        chosen = {place: way for place, way in ways.items() if way is not None}
        if not chosen:
            break
        model = inlined(model, chosen)
    return model


def _known(model: Model) -> dict[str, Array]:
    """The values of the main graph that are known, by name: constants, and what follows from shapes that are known."""
    lowered = lower(model)
    graph = replaced(lowered.graph, _sizes(lowered.graph))
    places = replaced_places(lowered.graph, graph)
    made = settled(graph, context=model.proto)
    found: dict[str, Array] = {}
    for name, term in lowered.value_terms.items():
        place = places.get(term, ABSENT)
        if place in made:
            found[name] = made[place].array()
        elif place != ABSENT and graph.nodes[place].op == CONST:
            found[name] = graph.constants[str(graph.nodes[place].attrs["key"])].array()
    return found


def _sizes(graph: TermGraph) -> dict[int, Constant]:
    """The terms that ask for sizes which are known: Shape, Size, and one dimension of a Shape."""
    found: dict[int, Constant] = {}
    for index, node in enumerate(graph.nodes):
        value: Array | None = None
        if node.op == "Size":
            dims = _array(_dims(graph, node.args[0]))
            value = None if dims is None else np.asarray(np.prod(dims, dtype=np.int64))
        elif node.op == "Shape":
            value = _array(_asked(graph, index))
        elif node.op == "Gather" and graph.nodes[node.args[0]].op == "Shape":
            place, asked = graph.nodes[node.args[1]], _asked(graph, node.args[0])
            if place.op == CONST and asked is not None:
                at = graph.constants[str(place.attrs["key"])].array()
                if at.size == 1 and -len(asked) <= at.item() < len(asked):
                    value = _array([asked[at.item()]])
                    value = None if value is None else value.reshape(at.shape)
        if value is not None:
            found[index] = constant_of_array(value)
    return found


def _dims(graph: TermGraph, term: int) -> Sequence[Dim] | None:
    kind = graph.types[term]
    return kind.shape if isinstance(kind, TensorType) else None


def _asked(graph: TermGraph, term: int) -> Sequence[Dim] | None:
    """The dimensions that a Shape gives."""
    node = graph.nodes[term]
    dims, end = _dims(graph, node.args[0]), node.attrs.get("end")
    return None if dims is None else dims[int(str(node.attrs["start"])) : None if end is None else int(str(end))]


def _array(dims: Sequence[Dim] | None) -> Array | None:
    if dims is None or not all(isinstance(dim, int) for dim in dims):
        return None
    return np.asarray(dims, np.int64)


def _way(node: onnx.NodeProto, known: Mapping[str, Array]) -> Way | None:
    """What a node runs whatever its inputs are; None where that is not known."""
    graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
    if node.op_type == "If" and len(node.input) == 1 and len(graphs) == 2:
        condition = _one(known.get(node.input[0]))
        body = None if condition is None else graphs.get("then_branch" if condition else "else_branch")
        if body is None or body.input or len(body.output) != len(node.output):
            return None
        return Way(body, {}, {}, _named(body.output, node.output))
    if node.op_type == "Loop" and len(node.input) >= 2 and "body" in graphs:
        return _single_iteration(node, graphs["body"], known)
    return None


def _single_iteration(node: onnx.NodeProto, body: onnx.GraphProto, known: Mapping[str, Array]) -> Way | None:
    """The body of a Loop that goes round once: it has one trip, or its body says so at its end."""
    carried = len(node.input) - 2
    if len(body.input) != carried + 2 or len(body.output) != len(node.output) + 1 or len(node.output) < carried:
        return None
    trips = _one(known.get(node.input[0])) if node.input[0] else None
    begins = _one(known.get(node.input[1])) if node.input[1] else True
    going_on = body.output[0].name
    # A value of the body may be called as one outside is: it hides that.
    last = _one((_stored(body) if going_on in names_defined(body) else known).get(going_on))
    many = not node.input[0] or (trips is not None and trips >= 1)
    if not begins or not (trips == 1 or (many and last is not None and not last)):
        return None
    inner = [value.name for value in body.input]
    return Way(
        body,
        dict(zip(inner[2:], node.input[2:], strict=True)),
        {
            inner[0]: np.zeros(_shape(body.input[0]), np.int64),
            inner[1]: np.ones(_shape(body.input[1]), np.bool_),
        },
        _named(body.output[1 : 1 + carried], node.output[:carried]),
        _named(body.output[1 + carried :], node.output[carried:]),
    )


def _one(value: Array | None) -> int | bool | None:
    """The one element of a number or truth value that is known."""
    return value.item() if value is not None and value.size == 1 and value.dtype.kind in "bi" else None


def _stored(body: onnx.GraphProto) -> dict[str, Array]:
    """The small values that a body holds itself, by name."""
    stored = {tensor.name: tensor for tensor in body.initializer}
    for node in body.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
            stored[node.output[0]] = node.attribute[0].t
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in stored.items()
        if tensor.data_type == onnx.TensorProto.BOOL and not is_external(tensor)
    }


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape of an iteration count or condition as a body declares it."""
    return (1,) * min(1, len(value.type.tensor_type.shape.dim))


def _named(inner: Sequence[onnx.ValueInfoProto], outer: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((value.name, name) for value, name in zip(inner, outer, strict=True) if name)
