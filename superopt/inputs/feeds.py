"""Inputs for a model: where they come from, which sizes they have; reading them from files and checking them."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from superopt.errors import FeedError
from superopt.evaluate import Feed, RuntimeValue, arrays_of
from superopt.models.inference import symbol_of
from superopt.models.interface import required_inputs
from superopt.operators import dtype_name


@dataclass(frozen=True, eq=False)
class SampleFeed:
    """One set of inputs.

    ``origin`` says how it was made; ``dims`` which size every open dimension has, by symbol (``input[axis]`` where the
    model names none). ``outputs`` are what the model gave when the feed was tried, without optimizations.
    """

    values: Feed
    origin: str
    dims: Mapping[str, int] = field(default_factory=dict)
    outputs: Feed | None = None

    @property
    def text(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.dims.items())
        return f"{self.origin} ({sizes})" if sizes else self.origin


@dataclass(frozen=True, eq=False)
class Feeds:
    """Inputs that a model runs on, the most ordinary first; ``failed`` are sizes that it did not run on, and why.

    ``by_terms`` is true where onnxruntime does not run the model, and its terms were evaluated in float64 instead.
    """

    feeds: tuple[SampleFeed, ...]
    seed: int
    failed: tuple[str, ...] = ()
    by_terms: bool = False

    @property
    def values(self) -> tuple[Feed, ...]:
        return tuple(feed.values for feed in self.feeds)


def as_feeds(given: Feeds | Sequence[Feed]) -> Feeds:
    """Inputs that were found, or that the caller has: these are called by their numbers."""
    if isinstance(given, Feeds):
        return given
    return Feeds(tuple(SampleFeed(values, f"feed {place}") for place, values in enumerate(given)), 0)


_ITEM = re.compile(r"^(.*)\[(\d+)\]$")


def load_feed(path: str | os.PathLike[str]) -> dict[str, RuntimeValue]:
    """The arrays of an .npz file by name; ``name[0]``, ``name[1]``, ... are the items of a sequence.

    Raises FeedError where it cannot be read.
    """
    expected = "expected an .npz file of arrays by input name"
    arrays: dict[str, RuntimeValue] = {}
    try:
        if not zipfile.is_zipfile(path):
            Path(path).open("rb").close()
            raise FeedError(f"{path}: not an .npz file, {expected}")
        with np.load(Path(path), allow_pickle=False) as archive:
            for name in archive.files:
                try:
                    arrays[name] = archive[name]
                except ValueError as error:
                    raise FeedError(f"{path}: {name} is no array of plain numbers or texts, {expected}") from error
    except OSError as error:
        raise FeedError(f"{path}: cannot be read: {error.strerror or error}, {expected}") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, AttributeError, EOFError, NotImplementedError) as error:
        raise FeedError(f"{path}: a damaged .npz file ({error}), {expected}") from error
    return arrays


def checked_feed(proto: onnx.ModelProto, given: Mapping[str, RuntimeValue], where: str) -> dict[str, RuntimeValue]:
    """The inputs that a model takes from what was given, in the model's types. Raises FeedError where they do not fit.

    A file of arrays has no sequences and no types of its own: items are gathered, and numbers are converted where that
    loses nothing.
    """
    known = {value.name: value for value in proto.graph.input}
    gathered: dict[str, RuntimeValue] = {}
    items: dict[str, dict[int, RuntimeValue]] = {}
    for name, value in given.items():
        match = _ITEM.match(name)
        if name in known:
            gathered[name] = value
        elif match and match[1] in known:
            items.setdefault(match[1], {})[int(match[2])] = value
        else:
            raise FeedError(f"{where}: {name!r} is not an input, expected {', '.join(known) or 'none'}")
    for name, parts in items.items():
        if sorted(parts) != list(range(len(parts))):
            raise FeedError(f"{where}: items {sorted(parts)} of {name}, expected 0 to {len(parts) - 1}")
        gathered[name] = [parts[index] for index in range(len(parts))]
    for value in required_inputs(proto):
        if value.name not in gathered and not value.type.HasField("optional_type"):
            raise FeedError(f"{where}: no array for input {value.name}")
    return {name: _fitting(value, known[name], where) for name, value in gathered.items()}


def _fitting(value: RuntimeValue, info: onnx.ValueInfoProto, where: str) -> RuntimeValue:
    kind = info.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("sequence_type"):
        inner = onnx.ValueInfoProto(name=info.name, type=kind.sequence_type.elem_type)
        if not isinstance(value, (list, tuple)):
            raise FeedError(
                f"{where}: {info.name} is one array, expected a sequence ({info.name}[0], {info.name}[1], ...)"
            )
        return [_fitting(item, inner, where) for item in value]
    if not kind.HasField("tensor_type"):
        return value
    try:
        plain = np.asarray(value)
    except ValueError as error:
        raise FeedError(f"{where}: {info.name} is no array ({error}), expected one") from error
    array = _converted(plain, kind.tensor_type.elem_type, f"{where}: {info.name}")
    if kind.tensor_type.HasField("shape"):
        dims = kind.tensor_type.shape.dim
        fits = len(dims) == array.ndim and all(
            not dim.HasField("dim_value") or dim.dim_value in (size, -1)
            for dim, size in zip(dims, array.shape, strict=False)
        )
        if not fits:
            wanted = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]
            raise FeedError(f"{where}: {info.name} has shape {list(array.shape)}, expected {wanted}".replace("'", ""))
    return array


def _converted(array: np.ndarray[Any, Any], number: int, where: str) -> np.ndarray[Any, Any]:
    if number == onnx.TensorProto.STRING:
        return array.astype(object)
    if not number:
        return array
    wanted = helper.tensor_dtype_to_np_dtype(number)
    if array.dtype == wanted:
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize and array.dtype.names is None:
        # numpy's files know ml_dtypes' types by their size only.
        return array.view(wanted)
    if wanted.kind not in "OUS" and array.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            converted = array.astype(wanted)
            same = np.array_equal(converted.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
        if same:
            return converted
        raise FeedError(
            f"{where} is {array.dtype} of values that its type does not hold, expected {dtype_name(number)}"
        )
    raise FeedError(f"{where} is {array.dtype}, expected {dtype_name(number)}")


def sizes_of(proto: onnx.ModelProto, feed: Feed) -> dict[str, int]:
    """The size of every open dimension of the inputs in a feed."""
    found: dict[str, int] = {}
    for info in proto.graph.input:
        if info.name in feed and info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
            shapes = arrays_of(feed[info.name])
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                if not dim.HasField("dim_value") and shapes and axis < shapes[0].ndim:
                    found.setdefault(symbol_of(dim) or f"{info.name}[{axis}]", shapes[0].shape[axis])
    return found
