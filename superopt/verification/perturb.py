"""A model and its inputs moved by a unit in the last place, and with the seeds of its random operators held."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from superopt.evaluate import RuntimeValue
from superopt.kernels import is_float
from superopt.models.byte_counts import stored_bytes
from superopt.models.model import Model
from superopt.models.scopes import RANDOM, graphs_in
from superopt.models.tensors import is_external

_LARGEST_COPY = 1 << 29
"""Bytes above which a model's weights are not copied to be perturbed."""

_SHORTEST = 9
"""Elements below which a constant may be a size or a scale rather than a weight, and is left as it is."""

_SEEDED = RANDOM | {"Dropout"}
"""ONNX's operators that may draw numbers; all of them take a seed."""


def perturbed_value(value: RuntimeValue, rng: np.random.Generator, units: int) -> RuntimeValue:
    """A value with every float moved by some units in the last place, up or down; zeros stay."""
    if isinstance(value, list):
        return [perturbed_value(item, rng, units) for item in value]
    if isinstance(value, np.ndarray) and is_float(value.dtype) and value.dtype.itemsize <= 8:
        return _moved(value, rng, units)
    return value


def perturbed_feed(feed: Mapping[str, RuntimeValue], seed: int, units: int = 1) -> dict[str, RuntimeValue]:
    """The inputs with every float moved by units in the last place."""
    return {
        name: perturbed_value(value, np.random.default_rng([seed, units, zlib.crc32(name.encode())]), units)
        for name, value in feed.items()
    }


def perturbed_model(model: Model, seed: int, units: int = 1) -> Model | None:
    """The model with its weights moved by units in the last place; None where it has none, or too many to copy."""
    if stored_bytes(model) > _LARGEST_COPY:
        return None
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    tensors = list(proto.graph.initializer)
    for node in proto.graph.node:
        if node.op_type == "Constant":
            tensors += [attribute.t for attribute in node.attribute if attribute.HasField("t")]
    changed = False
    for index, tensor in enumerate(tensors):
        changed |= _perturb(tensor, np.random.default_rng([seed, units, index]), units)
    return replace(model, proto=proto, source=None) if changed else None


def _perturb(tensor: onnx.TensorProto, rng: np.random.Generator, units: int) -> bool:
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    if tensor.data_type not in floats or is_external(tensor) or int(np.prod(tensor.dims)) < _SHORTEST:
        return False
    array = onnx.numpy_helper.to_array(tensor)
    moved = _moved(array, rng, units)
    for field in ("float_data", "double_data", "int32_data"):
        tensor.ClearField(field)
    tensor.raw_data = np.ascontiguousarray(moved).astype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).tobytes()
    return True


def _moved(array: NDArray[Any], rng: np.random.Generator, units: int) -> NDArray[Any]:
    """The bits of a float are ordered as the floats are: one more or one less is the next number.

    Types of 16 bits and less move by one unit at most: four of theirs are no rounding error any more.
    """
    units = units if array.dtype.itemsize >= 4 else 1
    size = array.dtype.itemsize
    kind = np.dtype(f"i{size}")
    bits = np.ascontiguousarray(array).view(kind).reshape(array.shape)
    coins = np.unpackbits(np.frombuffer(rng.bytes((array.size + 7) // 8), np.uint8), count=array.size)
    step = (coins.astype(kind).reshape(array.shape) * kind.type(2) - kind.type(1)) * kind.type(units)
    magnitude = bits & np.iinfo(kind).max
    infinity = np.asarray(np.inf).astype(array.dtype).reshape(1).view(kind)[0] if size > 1 else np.iinfo(kind).max
    # A step past zero, to infinity, or from what is no number is none.
    fine = (magnitude > units) & (magnitude < infinity - kind.type(units))
    return np.asarray((bits + step * fine).view(array.dtype))


def with_seeds(model: Model) -> Model | None:
    """The model with a seed at every random operator, by the name of its output; None where it has no such operator."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    found = False
    for graph in graphs_in(proto.graph):
        for node in graph.node:
            if node.op_type in _SEEDED and node.domain in ("", "ai.onnx") and node.output:
                kept = [attribute for attribute in node.attribute if attribute.name != "seed"]
                number = zlib.crc32(node.output[0].encode()) % 100003 + 1
                seed = number if node.op_type == "Dropout" else float(number)
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute("seed", seed)])
                found = True
    return replace(model, proto=proto, source=None) if found else None


def has_random(proto: onnx.ModelProto) -> bool:
    """Whether a model holds an operator that draws random numbers, at any depth."""
    nodes = (node for graph in graphs_in(proto.graph) for node in graph.node)
    if any(node.op_type in _SEEDED and (node.op_type != "Dropout" or len(node.input) > 2) for node in nodes):
        return True
    return any(node.op_type in _SEEDED for function in proto.functions for node in function.node)
