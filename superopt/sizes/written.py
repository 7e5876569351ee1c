"""Sizes that are known, or that a target can say with 0 and -1, written into a model as constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from superopt.bodies.bodies import sweep
from superopt.emitting.naming import FreshNames, all_names
from superopt.models.model import Model, standard_domain
from superopt.operators import named, operator
from superopt.sizes.known import known_sizes
from superopt.sizes.size import Content, Size, Sized

_ROUNDS = 4
"""How often what was written lets more be known of shapes, at most."""

_PARAMETERS_ARE_INPUTS = 10
"""The opset since which Slice has its starts and ends as inputs; of Reshape and Expand they were before."""

_BROADCASTS = 7
"""The opset since which operators of two operands broadcast as they do today."""

_LAST = (1 << 63) - 1
"""The end of a Slice that takes all that comes."""

_BROADCASTING = frozenset(named(lambda form: form.shaped == "broadcast"))


def with_known_sizes(model: Model) -> Model:
    """The model with what it computes of its sizes written as constants, where that is the same whatever the symbols
    are, zero among them; the same object where there is nothing of the kind.

    Integers that are known in full become constants. The target of a Reshape copies (0) what is copied and infers (-1)
    what can be inferred, that of an Expand leaves what is as long already, a Slice up to the end says so, and what
    broadcasting repeats anyway is not expanded before.
    """
    asking = any(_asks(node) for node in model.proto.graph.node) or _puts_together(model.proto.graph)
    own = any(standard_domain(function.domain) == "" for function in model.proto.functions)
    if not asking or own or model.opset < _BROADCASTS:
        return model
    for _ in range(_ROUNDS):
        writer = _Writer(model)
        changes = {place: change for place, node in enumerate(writer.graph.node) if (change := writer.change(node))}
        if not changes:
            break
        model = _written(model, changes)
    return model


def _asks(node: onnx.NodeProto) -> bool:
    return node.op_type in ("Shape", "Size") and standard_domain(node.domain) == ""


def _puts_together(graph: onnx.GraphProto) -> bool:
    """Whether a node's targets, axes or the like are what another node computes."""
    computed = {name for node in graph.node if node.op_type != "Constant" for name in node.output}
    return any(
        name in computed
        for node in graph.node
        if (spec := operator(node.op_type)) is not None and standard_domain(node.domain) == ""
        for place, name in enumerate(node.input)
        if place in (spec.form.attribute_inputs or {})
    )


@dataclass(frozen=True)
class _Change:
    """What is done to a node: it becomes a constant, or its inputs become constants or other values."""

    value: NDArray[np.generic] | None = None
    constants: tuple[tuple[int, NDArray[np.generic]], ...] = ()
    inputs: tuple[tuple[int, str], ...] = ()


class _Writer:
    """Says what can be done to each node of a model."""

    def __init__(self, model: Model) -> None:
        self.graph = model.proto.graph
        self._opset = model.opset
        known = known_sizes(model)
        self._shapes, self._contents = known.shapes, known.contents
        self._outputs = {value.name for value in self.graph.output}
        self._expands = {
            node.output[0]: node
            for node in self.graph.node
            if node.op_type == "Expand" and standard_domain(node.domain) == "" and len(node.input) == 2
        }

    def change(self, node: onnx.NodeProto) -> _Change | None:
        """What can be done to a node; None where nothing can."""
        if standard_domain(node.domain) or len(node.output) != 1 or node.op_type == "Constant":
            return None
        content = self._contents.get(node.output[0])
        value = None if content is None or node.output[0] in self._outputs else content.array()
        if value is not None:
            return _Change(value)
        if node.op_type in _BROADCASTING:
            spared = tuple(self._spared(node))
            return _Change(inputs=spared) if spared else None
        if node.op_type == "Slice" and self._opset >= _PARAMETERS_ARE_INPUTS:
            return self._slice(node)
        if node.op_type in ("Reshape", "Expand") and len(node.input) == 2:
            target, dims = self._contents.get(node.input[1]), self._shapes.get(node.input[0])
            if target is None or dims is None or target.rank != 1 or target.array() is not None:
                return None
            if Size(0) in target.entries and _allows_zero(node):
                return None
            numbers = _reshape_target(target, dims) if node.op_type == "Reshape" else _expand_target(target, dims)
            return None if numbers is None else _Change(constants=((1, np.asarray(numbers, np.int64)),))
        return None

    def _slice(self, node: onnx.NodeProto) -> _Change | None:
        """Its end as the last of all, where that is the size of the axis."""
        dims = self._shapes.get(node.input[0])
        if dims is None or len(node.input) < 4 or not node.input[3]:
            return None
        starts, ends, axes = (self._contents.get(name) for name in node.input[1:4])
        steps = self._contents.get(node.input[4]) if len(node.input) > 4 and node.input[4] else Content("int64", ())
        if starts is None or ends is None or axes is None or steps is None or ends.array() is not None:
            return None
        if starts.array() is None or any(not isinstance(step, Size) or step != Size(1) for step in steps.entries):
            return None
        numbers = []
        for axis, end in zip(axes.entries, ends.entries, strict=False):
            if not isinstance(axis, Size) or not axis.known or not -len(dims) <= axis.number < len(dims):
                return None
            if not isinstance(end, Size) or not (end.known or end == dims[axis.number]):
                return None
            numbers.append(end.number if end.known else _LAST)
        if ends.dtype != "int64" or len(numbers) != len(ends.entries):
            return None
        return _Change(constants=((2, np.asarray(numbers, np.int64)),))

    def _spared(self, node: onnx.NodeProto) -> Iterator[tuple[int, str]]:
        """Operands that need not be expanded: the others, or they themselves, have the sizes that they are given."""
        names = list(node.input)
        for place, name in enumerate(names):
            expand = self._expands.get(name)
            target = None if expand is None else self._contents.get(expand.input[1])
            if expand is None or target is None or target.rank != 1:
                continue
            shapes = [self._shapes.get(other) for at, other in enumerate([*names, expand.input[0]]) if at != place]
            known = [shape for shape in shapes if shape is not None]
            if len(known) == len(shapes) and _is_spread(target, known):
                names[place] = expand.input[0]
                yield place, expand.input[0]


def _is_spread(target: Content, shapes: Sequence[tuple[Sized, ...]]) -> bool:
    """Whether broadcasting these shapes gives every size of a target."""
    if len(target.entries) > max(map(len, shapes)):
        return False
    for axis in range(-len(target.entries), 0):
        size = target.entries[axis]
        dims = [shape[axis] for shape in shapes if len(shape) >= -axis]
        if not isinstance(size, Size) or not (size == Size(1) or size in dims):
            return False
    return True


def _reshape_target(target: Content, dims: Sequence[Sized]) -> list[int] | None:
    """The target of a Reshape of a value of these dimensions as numbers; None where 0 and -1 do not say it.

    A symbol that is zero is a zero in the target, which copies: what is copied anyway is the same then. What is
    inferred is so among numbers above zero alone.
    """
    result: list[int] = []
    inferred = False
    for place, entry in enumerate(target.entries):
        if isinstance(entry, Size) and entry.known:
            result.append(entry.number)
        elif isinstance(entry, Size) and place < len(dims) and entry == dims[place]:
            result.append(0)
        else:
            result.append(-1)
            inferred = True
    if result.count(-1) > 1 or min(result, default=0) < -1 or (inferred and 0 in result):
        return None
    return result


def _expand_target(target: Content, dims: Sequence[Sized]) -> list[int] | None:
    """The target of an Expand of a value of these dimensions as numbers; None where a symbol repeats something."""
    result: list[int] = []
    for axis in range(-len(target.entries), 0):
        entry = target.entries[axis]
        if not isinstance(entry, Size):
            return None
        if entry.known:
            result.append(entry.number)
        elif -axis <= len(dims) and entry == dims[axis]:
            result.append(1)
        else:
            return None
    return result


def _allows_zero(node: onnx.NodeProto) -> bool:
    """Whether a zero in a target is a zero, and copies nothing."""
    return any(item.name == "allowzero" and item.i for item in node.attribute)


def _written(model: Model, changes: Mapping[int, _Change]) -> Model:
    """The model with these nodes changed, and without what nothing needs any more."""
    result = onnx.ModelProto()
    result.CopyFrom(model.proto)
    names = FreshNames(all_names(result) | model.reserved)
    nodes: list[onnx.NodeProto] = []
    for place, node in enumerate(result.graph.node):
        change = changes.get(place)
        if change is not None and change.value is not None:
            nodes.append(_constant(node.output[0], change.value, node.name))
            continue
        if change is not None:
            for at, value in change.constants:
                made = _constant(names.make(f"{node.output[0]}_sizes"), value, "")
                nodes.append(made)
                node.input[at] = made.output[0]
                for item in [item for item in node.attribute if item.name == "allowzero"]:
                    node.attribute.remove(item)
            for at, name in change.inputs:
                node.input[at] = name
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del result.graph.node[:]
    result.graph.node.extend(kept)
    sweep(result)
    return replace(model, proto=result, source=None)


def _constant(output: str, value: NDArray[np.generic], name: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [output], name, value=numpy_helper.from_array(value))
