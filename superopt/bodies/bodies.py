"""The bodies of If, Loop and Scan as models of their own, and what came of these put back into their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx

from superopt.bodies.body_inputs import body_inputs, value_info
from superopt.emitting.naming import all_names
from superopt.errors import ModelError
from superopt.lowering.lower import lower
from superopt.models.model import Model, standard_domain
from superopt.models.scopes import captured_names, free_names, graphs_in, names_of_training
from superopt.models.tensors import is_plain, placeholder, tensor_of_constant
from superopt.numeric import settled
from superopt.terms import CONST, Constant, TensorType

HOLDERS = ("If", "Loop", "Scan")
"""Operators whose bodies are optimized."""

_SMALL = 1024
"""Elements up to which inference sees what a constant holds; larger captured ones stay out of a body's message."""

Improve = Callable[[Model, onnx.GraphProto, str], Model]


@dataclass(frozen=True)
class Scope:
    """What the bodies in a graph can capture: the types of its values, and those that are constant."""

    types: Mapping[str, TensorType | None]
    constants: Mapping[str, Constant]


def scope_of(model: Model) -> Scope:
    """What the bodies in a model's main graph can capture. Raises ModelError on a graph that is broken."""
    lowered = lower(model)
    graph = lowered.graph
    made = settled(graph, context=model.proto)
    types: dict[str, TensorType | None] = {}
    constants: dict[str, Constant] = {}
    for name, term in lowered.value_terms.items():
        kind, node = graph.types[term], graph.nodes[term]
        types[name] = kind if isinstance(kind, TensorType) else None
        if node.op == CONST:
            constants[name] = graph.constants[str(node.attrs["key"])]
        elif term in made:
            constants[name] = made[term]
    return Scope(types, constants)


def holds_bodies(node: onnx.NodeProto) -> bool:
    """Whether a node is one whose bodies are run as they stand."""
    return node.op_type in HOLDERS and standard_domain(node.domain) == ""


def has_bodies(model: Model) -> bool:
    """Whether there are any in a model's main graph."""
    return any(holds_bodies(node) for node in model.proto.graph.node)


def with_bodies(model: Model, improve: Improve) -> Model:
    """The model with every body, at any depth, as ``improve`` gives it back; the same object if all come back as is.

    ``improve`` takes a body as a model, whose inputs are the body's and what it captures (captured constants are
    initializers); as it stands in its node; and the way to it (``Loop(y).body / If(z).then_branch``). It returns a
    model of the same interface, or the same one. Outer bodies come before those inside them. A body that cannot be read
    is left alone.
    """
    if not has_bodies(model):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model.proto)
    reserved = frozenset(all_names(result))
    changed = False
    # A graph as a model, and where it stands in the result.
    waiting: list[tuple[Model, onnx.GraphProto, str]] = [(model, result.graph, "")]
    while waiting:
        outer, place, above = waiting.pop()
        for body, target, name in bodies_in(outer, place, reserved):
            way = f"{above} / {name}" if above else name
            better = improve(body, target, way)
            if better is not body:
                target.CopyFrom(put_back(target, better))
                body, changed = replace(better, reserved=reserved), True
            if any(holds_bodies(node) for node in target.node):
                waiting.append((body, target, way))
    if not changed:
        return model
    sweep(result)
    return replace(model, proto=result, source=None)


def bodies(model: Model) -> Iterator[Model]:
    """Every body of a model, at any depth, as a model."""
    return (body for _, body in placed_bodies(model))


def placed_bodies(model: Model) -> Iterator[tuple[str, Model]]:
    """The same, each with the way to it."""
    found: list[tuple[str, Model]] = []

    def seen(body: Model, _: onnx.GraphProto, way: str) -> Model:
        found.append((way, body))
        return body

    with_bodies(model, seen)
    yield from found


def bodies_in(
    outer: Model, place: onnx.GraphProto, reserved: frozenset[str]
) -> Iterator[tuple[Model, onnx.GraphProto, str]]:
    """The bodies in a graph whose interface can be made out, not those inside them: as models, as they stand in it, and
    what each is called."""
    try:
        scope = scope_of(outer)
    except ModelError:
        return  # What lowering takes for broken is left alone; whether it runs is the runtime's to say.
    for node in place.node:
        if not holds_bodies(node):
            continue
        for attribute in node.attribute:
            if attribute.HasField("g"):
                model = _body_model(outer, scope, node, attribute.g, reserved)
                if model is not None:
                    yield model, attribute.g, f"{_called(node)}.{attribute.name}"


def _called(node: onnx.NodeProto) -> str:
    """A node by its name, or else by what it makes."""
    return node.name or f"{node.op_type}({next(filter(None, node.output), '')})"


def _body_model(
    outer: Model, scope: Scope, node: onnx.NodeProto, body: onnx.GraphProto, reserved: frozenset[str]
) -> Model | None:
    """A body as a model; None where its inputs are not what its node gives it."""
    proto = onnx.ModelProto(ir_version=max(outer.proto.ir_version, 4))
    proto.opset_import.extend(outer.proto.opset_import)
    proto.functions.extend(outer.proto.functions)
    graph = proto.graph
    graph.CopyFrom(body)
    del graph.input[:]
    held: dict[str, Constant] = {}
    for name in free_names([body]):
        constant = scope.constants.get(name)
        if constant is None:
            graph.input.append(value_info(name, scope.types.get(name)))
        elif is_plain(constant.type.dtype) and (constant.type.size or 0) > _SMALL:
            graph.initializer.append(placeholder(constant, name))
            held[name] = constant
        else:
            graph.initializer.append(tensor_of_constant(constant, name))
    if node.op_type != "If":
        # What is declared may be true of the first iteration alone.
        for value in (*graph.output, *graph.value_info):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
    model = replace(outer, proto=proto, source=None, made=frozenset(), held=held, reserved=reserved)
    types = body_inputs(outer.opset, node, body, scope.types, model)
    if types is None:
        return None
    given = [value_info(value.name, kind) for value, kind in zip(body.input, types, strict=True)]
    captured = list(graph.input)
    del graph.input[:]
    graph.input.extend([*given, *captured])
    return model


def put_back(body: onnx.GraphProto, better: Model) -> onnx.GraphProto:
    """What became of a body, as it stands in its node: with its own interface, what it captures outside."""
    captured = set(free_names([body]))
    graph = onnx.GraphProto()
    graph.CopyFrom(better.proto.graph)
    kept = [tensor for tensor in better.proto.graph.initializer if tensor.name not in captured]
    del graph.initializer[:]
    for tensor in kept:
        held = better.held.get(tensor.name)
        graph.initializer.append(tensor if held is None else tensor_of_constant(held, tensor.name))
    present = {value.name for value in graph.value_info}
    for field, values in (
        (graph.input, body.input),
        (graph.output, body.output),
        (graph.value_info, [value for value in body.value_info if value.name in present]),
    ):
        del field[:]
        field.extend(values)
    return graph


def sweep(proto: onnx.ModelProto) -> None:
    """Takes out of a message, in place, the nodes and initializers that nothing needs any more, in bodies too."""
    annotated = proto.graph.quantization_annotation
    pinned = {entry.value for item in annotated for entry in item.quant_parameter_tensor_names}
    pinned.update(names_of_training(proto))
    for graph in reversed(graphs_in(proto.graph)):
        wanted = {value.name for value in (*graph.input, *graph.output)} | pinned
        while True:
            used = {name for node in graph.node for name in (*node.input, *captured_names(node))} | wanted
            dead = [index for index, node in enumerate(graph.node) if not used.intersection(node.output)]
            for index in reversed(dead):
                del graph.node[index]
            if not dead:
                break
        for field, names in (
            (graph.initializer, [tensor.name for tensor in graph.initializer]),
            (graph.sparse_initializer, [tensor.values.name for tensor in graph.sparse_initializer]),
        ):
            for index in reversed([place for place, name in enumerate(names) if name not in used]):
                del field[index]
        made = {name for node in graph.node for name in node.output} | used
        for index in reversed([place for place, item in enumerate(graph.value_info) if item.name not in made]):
            del graph.value_info[index]
