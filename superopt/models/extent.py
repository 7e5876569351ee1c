"""How large the values of a model become when it is run: asked before, since a few nodes can stand for more than any
machine holds."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx
from onnx.shape_inference import infer_shapes

from superopt.models.inference import REFUSALS, may_propagate, skeleton_of
from superopt.models.scopes import graphs_in
from superopt.operators import dtype_name
from superopt.terms import DTYPE_BITS

_HIDES = ("Attention",)
"""Operators with values inside that may be larger than all that they are given and make."""


class Extent(NamedTuple):
    """The bytes of the largest value whose size is known, and whether the sizes of all values are."""

    largest: int
    complete: bool


def extent_of(proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> Extent:
    """How large the values of the main graph are on inputs of these shapes, as far as ONNX infers it. Where there are
    functions or bodies, not all sizes are known."""
    skeleton = skeleton_of(proto, frozenset())
    for value in skeleton.graph.input:
        shape = shapes.get(value.name)
        if shape is not None and value.type.HasField("tensor_type"):
            del value.type.tensor_type.shape.dim[:]
            for size in shape:
                value.type.tensor_type.shape.dim.add().dim_value = size
    try:
        inferred = infer_shapes(skeleton, strict_mode=False, data_prop=may_propagate(skeleton))
    except REFUSALS:
        return Extent(0, False)
    largest = 0
    known: set[str] = set()
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        kind = value.type.tensor_type
        dims = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value")]
        if kind.elem_type and kind.HasField("shape") and len(dims) == len(kind.shape.dim):
            known.add(value.name)
            # Sizes that left the range of their numbers come back negative.
            largest = max(largest, 1 << 62 if min(dims, default=0) < 0 else math.prod(dims) * _bytes(kind.elem_type))
    flat = not proto.functions and len(graphs_in(proto.graph)) == 1
    flat &= not any(node.op_type in _HIDES for node in proto.graph.node)
    made = (name for node in proto.graph.node for name in node.output if name)
    return Extent(largest, flat and known.issuperset(made))


def _bytes(number: int) -> int:
    bits = DTYPE_BITS.get(dtype_name(number), 64) if number != onnx.TensorProto.STRING else 64
    return max(1, bits // 8)


def most_bytes() -> int:
    """The bytes that a single value may have where a model is run: an eighth of this machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8
    except (ValueError, OSError, AttributeError):  # not a name that this system knows
        return 1 << 32
