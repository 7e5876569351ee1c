"""What an input seems to be for, from its name, its type and what the graph does with it: enough to make up values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.kernels import is_float
from superopt.models.scopes import subgraphs
from superopt.operators import named

_CARRYING = frozenset(
    ("Cast", *named(lambda form: form.made == "chosen" or (form.made == "moved" and not form.indexed)))
)
"""Operators through which an index stays an index, whichever argument it is."""

_KERNELS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Convolutions, and which input is the weight."""


@dataclass(frozen=True)
class Role:
    """What is known of an input: ``below`` bounds its indices (exclusive), ``channels`` is what a convolution wants on
    axis 1, ``features`` what a matrix product wants on the last axis, and ``rank`` follows from either."""

    below: int | None = None
    channels: int | None = None
    features: int | None = None
    rank: int | None = None


def roles(proto: onnx.ModelProto) -> dict[str, Role]:
    """The role of every graph input, by name."""
    nodes: list[onnx.NodeProto] = []
    tensors: dict[str, onnx.TensorProto] = {}
    stack = [proto.graph]
    while stack:
        graph = stack.pop()
        tensors.update((tensor.name, tensor) for tensor in graph.initializer)
        for node in graph.node:
            nodes.append(node)
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                tensors[node.output[0]] = node.attribute[0].t
            stack.extend(subgraphs(node))
    users: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in nodes:
        for place, name in enumerate(node.input):
            users.setdefault(name, []).append((node, place))
    return {value.name: _role(value.name, users, tensors) for value in proto.graph.input}


def _role(
    name: str, users: Mapping[str, list[tuple[onnx.NodeProto, int]]], tensors: Mapping[str, onnx.TensorProto]
) -> Role:
    below: list[int] = []
    channels = features = rank = None
    stack, seen = [(name, True)], {name}
    while stack:
        value, direct = stack.pop()
        for node, place in users.get(value, ()):
            op = node.op_type
            table = tensors.get(node.input[0])
            if op == "Gather" and place == 1 and table is not None:
                axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                below.append(table.dims[axis])
            elif op == "OneHot" and place == 0 and node.input[1] in tensors:
                below.append(int(onnx.numpy_helper.to_array(tensors[node.input[1]]).reshape(-1)[0]))
            elif direct and op in _KERNELS and place == 0:
                weight = tensors.get(node.input[_KERNELS[op]])
                if weight is not None:
                    group = next((a.i for a in node.attribute if a.name == "group"), 1)
                    channels = weight.dims[0] if op == "ConvTranspose" else weight.dims[1] * group
                    rank = len(weight.dims)
            elif direct and op in ("MatMul", "Gemm") and place == 0:
                weight = tensors.get(node.input[1])
                if weight is not None and len(weight.dims) == 2:
                    turned = op == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute)
                    features = weight.dims[1 if turned else 0]
                    rank = 2 if op == "Gemm" else None
            same_shape = op in ("Identity", "Cast", "Sub", "Mul", "Add", "Div", "BatchNormalization", "Clip", "Relu")
            if op in _CARRYING or (direct and same_shape):
                for out in node.output:
                    if out and out not in seen:
                        seen.add(out)
                        stack.append((out, direct and same_shape))
    return Role(min(below, default=None), channels, features, rank)


_MASK = re.compile(r"mask|valid|padding", re.IGNORECASE)
_LENGTH = re.compile(r"len|num_frames|n_frames|seq_?size", re.IGNORECASE)
_RATE = re.compile(r"^(sr|rate)$|sampl\w*_?rate", re.IGNORECASE)


@dataclass(frozen=True)
class Plan:
    """How the values of one try are made: ``integers`` is what integers without a known range are, ``positive`` whether
    floats are kept above zero, ``time`` the size of the axis that lengths count, ``totals`` the open dimensions taken
    for the sum of what is past and what is new."""

    integers: str = "guess"
    positive: bool = False
    time: int = 1
    totals: tuple[str, ...] = ()


def values(
    name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], role: Role, plan: Plan, rng: np.random.Generator
) -> NDArray[np.generic]:
    """Made-up values of an input: an array, of no dimension too, where numpy's functions would give a number."""
    return np.asarray(_drawn(name, dtype, shape, role, plan, rng), dtype)


def _drawn(
    name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], role: Role, plan: Plan, rng: np.random.Generator
) -> NDArray[np.generic] | np.generic:
    if dtype == np.dtype(object):
        words = np.asarray(["the", "quick", "brown", "fox", "", "jumps over", "1"], dtype=object)
        return np.asarray(words[rng.integers(0, len(words), shape)], dtype=object).reshape(shape)
    if dtype == np.bool_:
        return np.ones(shape, np.bool_) if _MASK.search(name) else rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        return np.asarray(_integers(name, dtype, shape, role, plan, rng)).astype(dtype)
    if dtype.kind == "V" and not is_float(dtype):
        small = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # of two or four bits
        return rng.integers(small.min, small.max + 1, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if _MASK.search(name) and len(shape) <= 4 and role.channels is None:
        return np.ones(shape).astype(dtype)
    if _RATE.search(name):
        return np.full(shape, 16000).astype(dtype)
    # Clipped, so that no single value decides what happens in a narrow type.
    draw = partial(rng.uniform, 0.05, 1.0) if plan.positive else rng.standard_normal
    return np.clip(draw(size=shape), -3, 3).astype(dtype)


def _integers(
    name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], role: Role, plan: Plan, rng: np.random.Generator
) -> NDArray[np.generic]:
    if role.below is not None and not _MASK.search(name):
        return rng.integers(0, max(1, role.below), shape)
    if plan.integers == "ones":
        return np.ones(shape, np.int64)
    if plan.integers == "zeros":
        return np.zeros(shape, np.int64)
    if plan.integers == "time":
        return np.full(shape, plan.time)
    if _RATE.search(name):
        return np.full(shape, 16000)
    if _MASK.search(name):
        return np.ones(shape, np.int64)
    if _LENGTH.search(name):
        return np.full(shape, plan.time)
    if dtype.itemsize == 1:
        return rng.integers(0, 256 if dtype.kind == "u" else 128, shape)
    return rng.integers(0, 2 if not shape else 4, shape)
