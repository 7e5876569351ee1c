"""Where onnxruntime converts tensors into its blocked layout (NCHWc) and out of it.

Convolutions and pools of the CPU work on channels in blocks of a vector's width. Between operators that all do so
nothing is converted; where a tensor comes from one that does not, or goes to one, the runtime puts a ReorderInput or a
ReorderOutput there, which reads and writes the whole tensor. The conditions are those of its NchwcTransformer;
tests/test_cost_layout.py has them confirmed by the runtime that is installed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onnx import helper

from superopt.costs.instances import InstanceInput, OperatorInstance
from superopt.costs.operands import Operand
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, Attrs, Node, OpaqueOperator, TensorType, TermGraph, ValueType
from superopt.workload import Sizes

Layout = Literal["blocked", "opens", "follows", "plain"]
"""How an operator takes tensors: ``blocked`` in and out; ``opens``: plain in, blocked out; ``follows``: blocked out
where all that it is given is; ``plain`` in and out."""

Way = Literal["ReorderInput", "ReorderOutput"]
"""Into the blocked layout, or out of it."""

WAYS: tuple[Way, ...] = ("ReorderInput", "ReorderOutput")

DOMAIN = "com.microsoft.nchwc"

_POOLS = frozenset("MaxPool AveragePool GlobalAveragePool GlobalMaxPool".split())
_FOLLOWING = frozenset("Relu Sigmoid Tanh HardSigmoid HardSwish Gelu Identity BatchNormalization".split())
_LINEAR = frozenset("asymmetric half_pixel align_corners".split())
_WORD = 4
"""The channels that a convolution reads are padded to blocks if they are a multiple of this."""

_TO_LAST, _FROM_LAST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Transpositions that a conversion does by the way."""


@dataclass(frozen=True)
class Conversion:
    """A tensor's way into the blocked layout or out of it, and the node that it is paid at."""

    way: Way
    value: ValueType
    at: int


def layout(
    op: str, attrs: Attrs, operands: Sequence[Operand | None], result: ValueType, sizes: Sizes, block: int
) -> Layout:
    """How an operator takes tensors where blocks have so many channels (0: there is no such layout)."""
    first = operands[0] if operands else None
    shape = () if first is None else sizes.shape(first.type)
    if not block or len(shape) != 4 or not isinstance(result, TensorType) or result.dtype != "float32":
        return "plain"
    if op == "Conv":
        return _convolution(attrs, operands, sizes, block)
    if op in _POOLS:
        return "blocked" if shape[1] % block == 0 else "plain"
    varying = [operand for operand in operands if operand is not None and not operand.constant]
    if op in ("Add", "Sum", "Mul"):
        alike = all(sizes.shape(operand.type) == shape for operand in varying)
        rest = [operand for operand in operands if operand is not None and operand.constant]
        scales = op == "Mul" and len(varying) == 1 and sizes.shape(rest[0].type)[-3:] == (shape[1], 1, 1)
        return "follows" if alike and (not rest or scales) else "plain"
    if op == "Concat":
        aligned = all(sizes.shape(operand.type)[1] % block == 0 for operand in varying)
        return "follows" if attrs.get("axis") == 1 and aligned and len(varying) == len(operands) else "plain"
    if op == "Resize":
        mode, places = attrs.get("mode"), attrs.get("coordinate_transformation_mode")
        nearest = mode == "nearest" and places == "asymmetric" and attrs.get("nearest_mode") == "floor"
        return "follows" if nearest or (mode == "linear" and places in _LINEAR) else "plain"
    return "follows" if op in _FOLLOWING else "plain"


def _convolution(attrs: Attrs, operands: Sequence[Operand | None], sizes: Sizes, block: int) -> Layout:
    weight = operands[1]
    if weight is None or not weight.constant:
        return "plain"
    outputs, channels = sizes.shape(weight.type)[:2]
    group = attrs.get("group", 1)
    if not isinstance(group, int) or group == 1:
        if channels < block:
            return "opens"
        return "blocked" if channels % _WORD == 0 else "plain"
    if channels == 1:
        return "blocked" if outputs == group else "plain"
    return "blocked" if channels % block == 0 and outputs // group % block == 0 else "plain"


@dataclass(frozen=True)
class LayoutConversions:
    """What the blocked layout makes of a graph: its conversions, and the nodes that they make free."""

    conversions: tuple[Conversion, ...]
    free: frozenset[int]


def conversions(
    graph: TermGraph, operands: Sequence[Operand], following: Collection[int], sizes: Sizes, block: int
) -> LayoutConversions:
    """The conversions that the runtime puts into a graph, each once a value: paid where the first node is that needs
    it, or that makes a result of the graph. ``following`` are the nodes of those groups that the runtime makes one
    operator of and that keep the layout they are given."""
    if not block:
        return LayoutConversions((), frozenset())
    blocked = [False] * len(graph.nodes)
    wanted: dict[tuple[int, Way], int] = {}
    hows: list[Layout] = []
    for index, node in enumerate(graph.nodes):
        how: Layout = "plain"
        if not (node.op in (INPUT, CONST) or operands[index].constant):
            given = [None if arg == ABSENT else operands[arg] for arg in node.args]
            how = layout(node.op, node.attrs, given, graph.types[index], sizes, block)
            if index in following and node.op != "Conv":
                how = "follows"  # It is done in another's kernel, whatever it is.
            args = [arg for arg in node.args if arg != ABSENT and not operands[arg].constant]
            if how == "follows" and not all(blocked[arg] for arg in args):
                how = "plain"
            blocked[index] = how != "plain"
            for arg in args:
                if (how in ("blocked", "follows")) != blocked[arg] and not isinstance(graph.types[arg], tuple):
                    wanted.setdefault((arg, "ReorderOutput" if blocked[arg] else "ReorderInput"), index)
        hows.append(how)
    for root in graph.roots:
        if blocked[root]:
            wanted.setdefault((root, "ReorderOutput"), root)
    free = _absorbed(graph, blocked, hows)
    found = [Conversion(way, graph.types[value], at) for (value, way), at in wanted.items()]
    return LayoutConversions(tuple(found), free)


def _absorbed(graph: TermGraph, blocked: Sequence[bool], hows: Sequence[Layout]) -> frozenset[int]:
    """Transpositions that conversions do by the way: to channels last behind what is blocked, and from there to it."""
    users: dict[int, set[int]] = {}
    for index, node in enumerate(graph.nodes):
        for arg in node.args:
            if arg != ABSENT:
                users.setdefault(arg, set()).add(index)
    found = set()
    for index, node in enumerate(graph.nodes):
        perm = node.attrs.get("perm") if node.op == "Transpose" else None
        into = index not in graph.roots and all(hows[user] == "blocked" for user in users.get(index, ()))
        if (perm == _TO_LAST and blocked[node.args[0]]) or (perm == _FROM_LAST and into):
            found.add(index)
    return frozenset(found)


def conversion_instance(way: Way, value: ValueType, sizes: Sizes, block: int) -> OperatorInstance | None:
    """The instance of a conversion; None for what the runtime never converts: what is not a float tensor of four
    dimensions, or on the way in, has channels that are no whole words."""
    shape = sizes.shape(value)
    if not isinstance(value, TensorType) or value.dtype != "float32" or len(shape) != 4:
        return None
    if way == "ReorderInput" and shape[1] % _WORD:
        return None
    attributes: dict[str, Any] = {} if way == "ReorderInput" else {"channels": shape[1]}
    if way == "ReorderOutput":
        shape = (shape[0], -(-shape[1] // block) * block, *shape[2:])
    node = helper.make_node(way, [], [], domain=DOMAIN, **attributes)
    opaque = OpaqueOperator(DOMAIN, way, 1, node.SerializeToString(), 1, True, "conversion of layout")
    key = " ".join([way, *(f"{name}={number}" for name, number in attributes.items())])
    leaf = InstanceInput("float32", shape, constant=False)
    return OperatorInstance((leaf,), (Node(OPAQUE, (0,), Attrs.of({"key": key})),), (1,), opaque)
