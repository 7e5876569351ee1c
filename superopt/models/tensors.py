"""Stored tensors <-> constants: TensorProto, inline or in a data file, without copying what is not read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from superopt.errors import ModelError
from superopt.operators import dtype_name, dtype_number
from superopt.terms import DTYPE_BITS, Constant, TensorType, constant_key, streamed_key

_WHOLE_BYTES = frozenset(name for name, bits in DTYPE_BITS.items() if bits >= 8)
"""Element types whose stored bytes are the bytes of the array."""


_EXTERNAL = onnx.TensorProto.EXTERNAL
_HELD = "superopt:held"
"""The location of a placeholder; none that a model may have, since a colon leads out of its folder."""

_BLOCK = 1 << 22


def constant_of_tensor(tensor: onnx.TensorProto, folder: Path | None) -> Constant:
    """The constant that a stored tensor holds; its bytes are read once for the key and again whenever it is loaded.

    Raises ModelError where the tensor is not what its header says.
    """
    dtype, shape = check_header(tensor)
    if dtype == "string":
        return _string_constant(tensor, shape)
    load = partial(_array, tensor, folder)
    if dtype in _WHOLE_BYTES and tensor.HasField("raw_data") and not is_external(tensor):
        _check_length(tensor, len(tensor.raw_data))
        key = constant_key(dtype, shape, tensor.raw_data)
    elif dtype in _WHOLE_BYTES and is_external(tensor):
        key = streamed_key(dtype, shape, blocks(*external_range(tensor, folder)))
    else:
        key = constant_key(dtype, shape, _bytes(load()))
    return Constant(key, TensorType(dtype, shape), load)


def constant_of_sparse(tensor: onnx.SparseTensorProto, folder: Path | None) -> Constant:
    """The constant that a sparse tensor stands for; it has a key of its own and is never one with a dense constant."""
    values, indices = constant_of_tensor(tensor.values, folder), constant_of_tensor(tensor.indices, folder)
    shape = tuple(tensor.dims)
    _check_places(tensor.values.name, values, indices, shape)
    key = constant_key(f"sparse {values.type}", shape, f"{values.key}{indices.key}".encode())
    return Constant(key, TensorType(values.type.dtype, shape), partial(_dense, values, indices, shape))


def constant_of_array(array: NDArray[np.generic], dtype: str | None = None) -> Constant:
    """The constant with this value; ``dtype`` names the element type where numpy's does not."""
    value = np.ascontiguousarray(array).reshape(array.shape)
    value.flags.writeable = False
    name = dtype or dtype_name(helper.np_dtype_to_tensor_dtype(value.dtype))
    key = constant_key(name, value.shape, _bytes(value))
    return Constant(key, TensorType(name, value.shape), lambda: value)


def placeholder(constant: Constant, name: str) -> onnx.TensorProto:
    """A tensor that says of a constant all but its value, which is held beside the message."""
    number = dtype_number(constant.type.dtype)
    tensor = onnx.TensorProto(name=name, data_type=number, data_location=_EXTERNAL)
    tensor.dims.extend(dim for dim in constant.type.shape or () if isinstance(dim, int))
    tensor.external_data.add(key="location", value=_HELD)
    return tensor


def is_placeholder(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor's value is held beside the message, in no file."""
    return is_external(tensor) and any(
        entry.key == "location" and entry.value == _HELD for entry in tensor.external_data
    )


def is_plain(dtype: str) -> bool:
    """Whether the stored bytes of an element type are the bytes of an array."""
    return dtype in _WHOLE_BYTES


def blocks(path: Path, offset: int, length: int) -> Iterator[bytes]:
    """A range of a file, some of it at a time."""
    with path.open("rb") as file:
        file.seek(offset)
        while length > 0:
            block = file.read(min(length, _BLOCK))
            if not block:
                raise ModelError(f"{path}: cut short while it was read")
            length -= len(block)
            yield block


def tensor_of_constant(constant: Constant, name: str) -> onnx.TensorProto:
    """The tensor, all inline, that holds this constant under a name."""
    array = constant.array()
    if constant.type.dtype == "string":
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.STRING, dims=array.shape)
        tensor.string_data.extend(_encoded(item) for item in array.reshape(-1).tolist())
        return tensor
    wanted = helper.tensor_dtype_to_np_dtype(dtype_number(constant.type.dtype))
    return numpy_helper.from_array(np.asarray(array, dtype=wanted), name)


def check_header(tensor: onnx.TensorProto) -> tuple[str, tuple[int, ...]]:
    """Element type and dimensions of a tensor. Raises ModelError where no tensor has such."""
    dtype, shape = _dtype(tensor), tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ModelError(f"tensor {tensor.name!r}: dimensions {list(shape)}, expected none below zero")
    return dtype, shape


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether the data lies in a file beside the model."""
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """How many bytes the data of a tensor takes by its header (strings: none)."""
    bits: int = math.prod(tensor.dims) * DTYPE_BITS.get(_dtype(tensor), 0)
    return (bits + 7) // 8


def external_range(tensor: onnx.TensorProto, folder: Path | None) -> tuple[Path, int, int]:
    """File, offset and length in bytes of external data, checked to be there, in the model's folder.

    Raises ModelError otherwise: a model must not reach outside its folder, neither by path nor through a symbolic link.
    """
    where = f"external data of tensor {tensor.name!r}"
    if folder is None:
        raise ModelError(f"{where}: the model was given without its folder, expected its path")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    pieces = location.replace("\\", "/").split("/")
    if not location or "\0" in location or Path(location).is_absolute() or ".." in pieces or ":" in pieces[0]:
        raise ModelError(f"{where}: location {location!r}, expected a path below the model's folder")
    path = folder / location
    try:
        inside, there = _inside(path, folder), path.is_file()
    except OSError as error:  # a name that no file system takes
        raise ModelError(f"{where}: {error.strerror}: {location[:60]!r}...") from error
    if not inside:
        raise ModelError(f"{where}: {path} leads out of the model's folder, expected a file in it")
    if not there:
        raise ModelError(f"{where}: no file {path}")
    size = path.stat().st_size
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries["length"]) if "length" in entries else _rest(tensor, size - offset)
    except ValueError as error:
        raise ModelError(f"{where}: offset or length is not a number") from error
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(f"{where}: {path} has {size} bytes, expected bytes {offset} to {offset + length}")
    _check_length(tensor, length)
    return path, offset, length


def _rest(tensor: onnx.TensorProto, left: int) -> int:
    """How many bytes are a tensor's where its length is not said: all that it takes, of those that are left."""
    return min(left, tensor_bytes(tensor)) if _dtype(tensor) in DTYPE_BITS else left


def is_linked(tensor: onnx.TensorProto, folder: Path) -> bool:
    """Whether the external data of a tensor is a link to a file that lies elsewhere."""
    home = os.path.realpath(folder)
    return os.path.commonpath([os.path.realpath(external_range(tensor, folder)[0]), home]) != home


def _inside(path: Path, folder: Path) -> bool:
    """Whether a file lies in a folder, or is a link from a snapshot of a Hugging Face cache to a blob of the same
    repository: ``snapshots/REVISION/...`` there holds links into ``blobs`` alone."""
    resolved, home = os.path.realpath(path), Path(os.path.realpath(folder))
    snapshots = next((parent for parent in home.parents if parent.name == "snapshots"), None)
    homes = [home] if snapshots is None else [home, snapshots.parent / "blobs"]
    return any(os.path.commonpath([resolved, allowed]) == str(allowed) for allowed in homes)


def _check_length(tensor: onnx.TensorProto, length: int) -> None:
    expected = tensor_bytes(tensor)
    if length != expected and _dtype(tensor) in DTYPE_BITS:
        raise ModelError(
            f"tensor {tensor.name!r}: {length} bytes of data, expected {expected} "
            f"for {_dtype(tensor)}{list(tensor.dims)}"
        )


_NAMES = {
    number: dtype_name(number) for number in onnx.TensorProto.DataType.values() if number != onnx.TensorProto.UNDEFINED
}


def _dtype(tensor: onnx.TensorProto) -> str:
    name = _NAMES.get(tensor.data_type)
    if name is None:
        raise ModelError(f"tensor {tensor.name!r}: element type {tensor.data_type}, expected one that ONNX has")
    return name


def _array(tensor: onnx.TensorProto, folder: Path | None) -> NDArray[np.generic]:
    if is_external(tensor):
        path, offset, length = external_range(tensor, folder)
        if _dtype(tensor) in _WHOLE_BYTES:
            return _mapped(path, offset, length, tensor)
        inline = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, name=tensor.name)
        inline.raw_data = _mapped_bytes(path, offset, length).tobytes()
        tensor = inline
    try:
        array: NDArray[np.generic] = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"tensor {tensor.name!r}: data does not fit {_dtype(tensor)}{list(tensor.dims)}") from error
    return array


def _mapped(path: Path, offset: int, length: int, tensor: onnx.TensorProto) -> NDArray[np.generic]:
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return _mapped_bytes(path, offset, length).view(dtype).reshape(tuple(tensor.dims))


def _mapped_bytes(path: Path, offset: int, length: int) -> NDArray[np.uint8]:
    if not length:
        return np.empty(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(length,))


def _bytes(array: NDArray[np.generic]) -> memoryview | bytes:
    if not array.size or array.dtype == object:
        return b"".join(_encoded(item) + b"\0" for item in array.reshape(-1).tolist())
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _string_constant(tensor: onnx.TensorProto, shape: tuple[int, ...]) -> Constant:
    if len(tensor.string_data) != math.prod(shape):
        raise ModelError(f"tensor {tensor.name!r}: {len(tensor.string_data)} strings, expected {math.prod(shape)}")
    data = b"".join(len(item).to_bytes(8, "little") + item for item in tensor.string_data)
    return Constant(
        constant_key("string", shape, data), TensorType("string", shape), partial(_strings, tensor.string_data, shape)
    )


def _strings(items: Iterable[bytes], shape: tuple[int, ...]) -> NDArray[np.generic]:
    decoded = [item.decode("utf-8", "surrogateescape") for item in items]
    array: NDArray[np.generic] = np.empty(len(decoded), dtype=object)
    array[:] = decoded
    return array.reshape(shape)


def _encoded(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")


def _check_places(name: str, values: Constant, indices: Constant, shape: tuple[int, ...]) -> None:
    """Raises ModelError where what is stored of a sparse tensor has no place in it."""
    places = indices.array().astype(np.int64)
    count = values.type.shape or (0,)
    rows = places.reshape(len(places), -1) if places.ndim in (1, 2) else places
    ends = np.asarray(shape if places.ndim == 2 else (math.prod(shape),))
    fits = (
        places.dtype == np.int64 and places.ndim in (1, 2) and rows.shape == (count[0], len(ends)) and len(count) == 1
    )
    if not fits or (rows < 0).any() or (rows >= ends).any():
        raise ModelError(f"sparse tensor {name!r}: indices {list(places.shape)} that do not fit {list(shape)}")


def _dense(values: Constant, indices: Constant, shape: tuple[int, ...]) -> NDArray[np.generic]:
    data, places = values.array(), indices.array().astype(np.int64)
    array: NDArray[np.generic] = np.zeros(shape, dtype=data.dtype)
    if places.ndim == 1:
        array.reshape(-1)[places] = data
    else:
        array[tuple(places.T)] = data
    return array
