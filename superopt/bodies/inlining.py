"""Bodies written into the graph around them, under names that are free there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from superopt.bodies.bodies import sweep
from superopt.emitting.naming import FreshNames, all_names
from superopt.kernels import Array
from superopt.models.model import Model
from superopt.models.scopes import graphs_in, names_defined, rename_captured

_AXES_ARE_INPUTS = 13
"""The opset since which Unsqueeze has its axes as an input."""

_INITIALIZERS_ARE_NO_INPUTS = 4
"""The IR version since which an initializer need not be a graph input."""


@dataclass(frozen=True)
class Way:
    """The body that a node runs, once: what its inputs are called outside, and its outputs, those that are stacked
    along a new first axis apart. ``values`` are inputs that nothing outside is."""

    body: onnx.GraphProto
    inputs: Mapping[str, str]
    values: Mapping[str, Array]
    outputs: tuple[tuple[str, str], ...]
    stacked: tuple[tuple[str, str], ...] = ()


def inlined(model: Model, ways: Mapping[int, Way]) -> Model:
    """The model with nodes, by their place, replaced by the bodies that they run."""
    result = onnx.ModelProto()
    result.CopyFrom(model.proto)
    writer = _Writer(model, result)
    nodes: list[onnx.NodeProto] = []
    for place, node in enumerate(model.proto.graph.node):
        nodes.extend(writer.body(ways[place]) if place in ways else [node])
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    sweep(result)
    return replace(model, proto=result, source=None)


class _Writer:
    """Writes bodies into the graph around them, under names that are free there."""

    def __init__(self, model: Model, result: onnx.ModelProto) -> None:
        self._graph = result.graph
        self._opset = model.opset
        self._as_nodes = result.ir_version < _INITIALIZERS_ARE_NO_INPUTS
        self._names = FreshNames(all_names(result) | model.reserved)
        self._defined = Counter(name for graph in graphs_in(model.proto.graph) for name in names_defined(graph))

    def body(self, way: Way) -> list[onnx.NodeProto]:
        """The nodes of a body, in its order, and those that give its outputs their names."""
        before: list[onnx.NodeProto] = []
        after: list[onnx.NodeProto] = []
        inside = Counter(name for graph in graphs_in(way.body) for name in names_defined(graph))
        names: dict[str, str] = {}
        for name, value in way.values.items():
            names[name] = self._names.make(name)
            before += self._constant(numpy_helper.from_array(value, names[name]))
        for name, outer in way.inputs.items():
            names[name] = self._free(outer, inside, before)
        made = {name for node in way.body.node for name in node.output if name}
        taken: set[str] = set()
        for inner, outer in way.outputs:
            # Its own name is as good as any for a value that has no other, and that no body further in hides.
            if inner in made and inner not in taken and not inside[outer]:
                names[inner] = outer
                taken.add(inner)
        for name in names_defined(way.body):
            if name not in names and self._defined[name] > 1:
                names[name] = self._names.make(name)
        for inner, outer in way.outputs:
            source = names.get(inner, inner)
            if source != outer:
                after.append(helper.make_node("Identity", [source], [outer], self._names.make(f"Identity_{outer}")))
        for inner, outer in way.stacked:
            after += self._stacked(names.get(inner, inner), outer)
        body = onnx.GraphProto()
        body.CopyFrom(way.body)
        _rename(body, names)
        for tensor in body.initializer:
            before += self._constant(tensor)
        self._graph.sparse_initializer.extend(body.sparse_initializer)
        graph = self._graph
        declared = {value.name for value in (*graph.value_info, *graph.output, *graph.input)}
        graph.value_info.extend(value for value in body.value_info if value.name not in declared)
        return [*before, *body.node, *after]

    def _free(self, outer: str, inside: Mapping[str, int], before: list[onnx.NodeProto]) -> str:
        """A name for an outer value that no body further in has for one of its own."""
        if not inside.get(outer):
            return outer
        alias = self._names.make(outer)
        before.append(helper.make_node("Identity", [outer], [alias], self._names.make(f"Identity_{alias}")))
        return alias

    def _constant(self, tensor: onnx.TensorProto) -> list[onnx.NodeProto]:
        if self._as_nodes:
            return [helper.make_node("Constant", [], [tensor.name], value=tensor)]
        self._graph.initializer.append(tensor)
        return []

    def _stacked(self, source: str, target: str) -> list[onnx.NodeProto]:
        name = self._names.make(f"Unsqueeze_{target}")
        if self._opset < _AXES_ARE_INPUTS:
            return [helper.make_node("Unsqueeze", [source], [target], name, axes=[0])]
        axes = self._names.make(f"{name}_axes")
        made = self._constant(numpy_helper.from_array(np.zeros(1, np.int64), axes))
        return [*made, helper.make_node("Unsqueeze", [source, axes], [target], name)]


def _rename(body: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Gives values of a body other names, in place, wherever they are made or used."""
    for node in body.node:
        for names_of_node in (node.input, node.output):
            for place, name in enumerate(names_of_node):
                names_of_node[place] = names.get(name, name)
        rename_captured(node, names)
    for tensor in body.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for sparse in body.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for value in body.value_info:
        value.name = names.get(value.name, value.name)
