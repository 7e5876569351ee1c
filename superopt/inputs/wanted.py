"""The tensors that a model wants to be given: types, dimensions, and what each is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from superopt.errors import EvaluationError, FeedError
from superopt.inputs.input_roles import Role, roles
from superopt.models.inference import symbol_of
from superopt.models.interface import required_inputs


@dataclass(frozen=True)
class WantedInput:
    """A tensor that the model wants: dimensions are sizes or symbols, None where the rank is not known."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str, ...] | None
    container: str
    role: Role


def wanted_inputs(proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> list[WantedInput]:
    """What a caller has to give a model, in order, with the sizes of ``shapes`` where these are given.

    Raises FeedError where a shape does not fit, EvaluationError for an input that no values can be made up for (a map).
    """
    known = roles(proto)
    found: list[WantedInput] = []
    for info in required_inputs(proto):
        kind, container = info.type, "tensor"
        if kind.HasField("optional_type"):
            kind, container = kind.optional_type.elem_type, "optional"
        if kind.HasField("sequence_type"):
            kind, container = kind.sequence_type.elem_type, "sequence"
        if not kind.HasField("tensor_type"):
            raise EvaluationError(f"input {info.name}: no inputs can be made up for its type")
        tensor = kind.tensor_type
        dims: tuple[int | str, ...] | None = None
        if tensor.HasField("shape"):
            dims = tuple(
                dim.dim_value
                if dim.HasField("dim_value") and dim.dim_value >= 0
                else symbol_of(dim) or f"{info.name}[{axis}]"
                for axis, dim in enumerate(tensor.shape.dim)
            )
        if info.name in shapes:
            dims = _fixed(info.name, dims, tuple(shapes[info.name]))
        role = known[info.name]
        if dims is None and role.rank is not None:
            dims = tuple(f"{info.name}[{axis}]" for axis in range(role.rank))
        number = tensor.elem_type
        dtype = np.dtype(object) if number == onnx.TensorProto.STRING else helper.tensor_dtype_to_np_dtype(number)
        found.append(WantedInput(info.name, dtype, dims, container, role))
    for name in shapes:
        if name not in {item.name for item in found}:
            wanted = ", ".join(item.name for item in found) or "none"
            raise FeedError(f"input-shape: {name!r} is not an input, expected {wanted}")
    return _with_symbols_fixed(found, proto, shapes)


def _fixed(name: str, dims: tuple[int | str, ...] | None, shape: tuple[int, ...]) -> tuple[int | str, ...]:
    fits = dims is None or (
        len(dims) == len(shape)
        and all(isinstance(dim, str) or dim == size for dim, size in zip(dims, shape, strict=True))
    )
    if not fits:
        raise FeedError(f"input-shape: {name}:{','.join(map(str, shape))} does not fit {list(dims or ())}")
    return shape


def _with_symbols_fixed(
    inputs: list[WantedInput], proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]
) -> list[WantedInput]:
    """A symbol that a given shape decides has that size in other inputs too."""
    decided: dict[str, int] = {}
    for info in required_inputs(proto):
        if info.name in shapes and info.type.HasField("tensor_type"):
            for dim, size in zip(info.type.tensor_type.shape.dim, shapes[info.name], strict=False):
                symbol = symbol_of(dim)
                if symbol is not None and decided.setdefault(symbol, size) != size:
                    raise FeedError(f"input-shape: {symbol} is {decided[symbol]} and {size}")
    return [
        item
        if item.dims is None
        else replace(item, dims=tuple(decided.get(dim, dim) if isinstance(dim, str) else dim for dim in item.dims))
        for item in inputs
    ]


def symbols_of(inputs: Sequence[WantedInput]) -> list[str]:
    """The open dimensions of inputs, each once."""
    return list(dict.fromkeys(dim for item in inputs for dim in item.dims or () if isinstance(dim, str)))


def open_ranks(inputs: Sequence[WantedInput]) -> Sequence[int | None]:
    """The ranks to try for inputs that may have any, the likeliest first: images, then lists; None where all are
    known."""
    return (4, 2, 3, 1, 0) if any(item.dims is None for item in inputs) else (None,)


def with_rank(item: WantedInput, rank: int | None) -> WantedInput:
    """The input with a symbol of its own for each of so many dimensions."""
    return replace(item, dims=tuple(f"{item.name}[{axis}]" for axis in range(rank or 0)))
