"""What is known of the sizes in a model's main graph: shapes and what is computed from them, node by node."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from superopt.models.inference import value_types
from superopt.models.model import Model, standard_domain
from superopt.sizes.contents import CONTENTS
from superopt.sizes.shapes import SHAPES
from superopt.sizes.size import LONGEST, Content, Site, Size, Sized, content_of, size_of
from superopt.terms import TensorType


@dataclass(frozen=True)
class Known:
    """By name of a value: its dimensions, None where its rank is not known, and what is in it."""

    shapes: dict[str, tuple[Sized, ...] | None] = field(default_factory=dict)
    contents: dict[str, Content] = field(default_factory=dict)


def known_sizes(model: Model) -> Known:
    """The shapes of values, and the contents of short lists of integers.

    Nodes are looked at in their order: where a model has them in another one, less is known. What onnx infers is known
    too, and goes before where it is a number.
    """
    types = value_types(model, frozenset())
    known = Known({name: _dims(kind) for name, kind in types.items()})
    inputs = {value.name for value in model.proto.graph.input}
    for tensor in model.proto.graph.initializer:
        if tensor.name not in inputs:
            _add(known, tensor.name, content_of(tensor))
    for node in model.proto.graph.node:
        if standard_domain(node.domain) or not node.output:
            continue
        name = node.output[0]
        if node.op_type == "Constant":
            _add(known, name, _held(node))
            continue
        site = Site(node, known.contents, known.shapes)
        shape = SHAPES.get(node.op_type)
        if shape is not None:
            known.shapes[name] = _refined(_dims(types.get(name)), shape(site))
        content = CONTENTS.get(node.op_type)
        made = content(site) if content is not None and len(node.output) == 1 else None
        if made is not None and _agrees(made, types.get(name)):
            _add(known, name, made)
    return known


def _held(node: onnx.NodeProto) -> Content | None:
    """The content of a Constant node."""
    for item in node.attribute:
        if item.name == "value":
            return content_of(item.t)
        if item.name == "value_int":
            return Content("int64", (Size(item.i),), 0)
        if item.name == "value_ints":
            return Content("int64", tuple(map(Size, item.ints)))
    return None


def _dims(kind: TensorType | None) -> tuple[Sized, ...] | None:
    return None if kind is None or kind.shape is None else tuple(map(size_of, kind.shape))


def _refined(inferred: tuple[Sized, ...] | None, found: tuple[Sized, ...] | None) -> tuple[Sized, ...] | None:
    """Numbers that were inferred, else what was found, else symbols that were inferred."""
    if inferred is None or found is None:
        return inferred or found
    if len(inferred) != len(found):
        return inferred
    pairs = zip(inferred, found, strict=True)
    return tuple(one if other is None or (isinstance(one, Size) and one.known) else other for one, other in pairs)


def _add(known: Known, name: str, content: Content | None) -> None:
    if content is not None and len(content.entries) <= LONGEST:
        known.contents[name] = content


def _agrees(content: Content, kind: TensorType | None) -> bool:
    """Whether a content is of the type that its value has: what is of none that was understood is left alone."""
    if kind is None or kind.dtype != content.dtype or kind.shape is None or len(kind.shape) != content.rank:
        return False
    return content.rank == 0 or not isinstance(kind.shape[0], int) or kind.shape[0] == len(content.entries)
