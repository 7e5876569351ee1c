"""Data files beside a model: what a message refers to, brought inside, or carried over to where the model is saved."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import itertools
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import numpy as np
import onnx

from superopt.errors import ModelError
from superopt.models.tensors import blocks, external_range, is_external, is_placeholder, tensor_bytes
from superopt.terms import Constant

Buffer: TypeAlias = "bytes | memoryview"

LARGEST_MESSAGE = 2**31 - 1
"""Bytes that one protobuf message can have."""

_WORTH_MOVING = 1024
"""Bytes from which on a new initializer goes to the data file of a model that has one; what exporters use, too."""

_ALIGNMENT = 4096
"""Bytes to which new tensors in a data file are aligned, so that they can be mapped."""


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every stored tensor of a model: initializers and attributes, of its graph, subgraphs, functions and training."""
    graphs = [proto.graph]
    for info in proto.training_info:
        graphs += [info.initialization, info.algorithm]
    nodes = [node for function in proto.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes.extend(graph.node)
        while nodes:
            for attribute in nodes.pop().attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                if attribute.HasField("sparse_tensor"):
                    yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
                if attribute.HasField("g"):
                    graphs.append(attribute.g)
                yield from attribute.tensors
                for sparse in attribute.sparse_tensors:
                    yield from (sparse.values, sparse.indices)
                graphs.extend(attribute.graphs)


def with_data_inside(
    proto: onnx.ModelProto, folder: Path | None, limit: int, held: Mapping[str, Constant] | None = None
) -> onnx.ModelProto:
    """The message with the content of its data files, and what is held for it, in it; the same object where it is.

    Raises ModelError where that would be more than ``limit`` bytes.
    """
    total = proto.ByteSize() + sum(tensor_bytes(tensor) for tensor in tensors(proto) if is_external(tensor))
    if not any(is_external(tensor) for tensor in tensors(proto)):
        return proto
    if total > limit:
        raise ModelError(f"{total} bytes with external data, more than the {limit} that one message holds")
    inside = onnx.ModelProto()
    inside.CopyFrom(proto)
    for tensor in tensors(inside):
        if is_external(tensor):
            tensor.raw_data = b"".join(_content(tensor, folder, held or {}))
            del tensor.external_data[:]
            tensor.ClearField("data_location")
    return inside


def gathered(
    proto: onnx.ModelProto, folder: Path | None, target: Path, location: str, held: Mapping[str, Constant]
) -> onnx.ModelProto:
    """The message with all weights worth it in one new data file, ``location``, below the folder of ``target``."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    moves = [tensor for tensor in tensors(result) if is_external(tensor)]
    moves += [
        tensor
        for tensor in result.graph.initializer
        if not is_external(tensor) and not tensor.string_data and tensor_bytes(tensor) >= _WORTH_MOVING
    ]
    if not moves:
        return proto
    _move_out(moves, target.parent / location, location, folder, held)
    return result


def carried_over(
    proto: onnx.ModelProto,
    folder: Path | None,
    made: frozenset[str],
    target: Path,
    limit: int = LARGEST_MESSAGE,
    held: Mapping[str, Constant] | None = None,
) -> onnx.ModelProto:
    """The message as it is to be written at ``target``, its data files in place; the same object if unchanged.

    Initializers named in ``made`` go to a data file if the model has one already, or would be over ``limit`` bytes.
    ``held`` are the values of those that are placeholders.
    """
    held = held or {}
    external = [tensor for tensor in tensors(proto) if is_external(tensor) and not is_placeholder(tensor)]
    size = proto.ByteSize() + sum(constant.nbytes for constant in held.values())
    if not external and size <= limit:
        return with_data_inside(proto, folder, limit, held)
    here = folder is not None and os.path.realpath(folder) == os.path.realpath(target.parent)
    moves = [
        index
        for index, tensor in enumerate(proto.graph.initializer)
        if tensor.name in made and (is_placeholder(tensor) or len(tensor.raw_data) >= _WORTH_MOVING)
    ]
    if (not external or here) and not moves:
        return proto
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    if external and not here:
        files = [tensor for tensor in tensors(result) if is_external(tensor) and not is_placeholder(tensor)]
        _copy_files(files, folder, target)
    if moves:
        stem, taken = f"{target.name}.data", _locations(external)
        others = (f"{stem}-{count}" for count in itertools.count(1))
        location = next(name for name in itertools.chain([stem], others) if name not in taken)
        stored = [result.graph.initializer[index] for index in moves]
        _move_out(stored, target.parent / location, location, folder, held)
    return result


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path beside ``target`` to write to; it becomes ``target`` when the block ends well, and is gone otherwise.

    Where ``target`` is a symbolic link, the file that it leads to is the one that is written. Raises OSError where it
    is a device, a pipe or a directory: a file in its place would be none any more.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "is no regular file", str(target))
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _locations(stored: Sequence[onnx.TensorProto]) -> dict[str, list[onnx.TensorProto]]:
    found: dict[str, list[onnx.TensorProto]] = {}
    for tensor in stored:
        found.setdefault(next(entry.value for entry in tensor.external_data if entry.key == "location"), []).append(
            tensor
        )
    return found


def _copy_files(stored: Sequence[onnx.TensorProto], folder: Path | None, target: Path) -> None:
    """Writes each data file below the target's folder: whole if most of it is still used, else what is used of it."""
    for location, users in _locations(stored).items():
        ranges = [external_range(tensor, folder) for tensor in users]
        source = ranges[0][0]
        used = {(offset, length) for _, offset, length in ranges}
        if 10 * sum(length for _, length in used) >= 9 * source.stat().st_size:
            places = {piece: piece[0] for piece in used}
        else:
            places = _packed(sorted(used))
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            copy = Path(scratch) / "data"
            _write(source, copy, places)
            placed = _place(copy, target.parent, location)
        for tensor, (_, offset, length) in zip(users, ranges, strict=True):
            _point(tensor, placed, places[offset, length], length)


def _packed(pieces: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    alignment = min(_ALIGNMENT, math.gcd(*(offset for offset, _ in pieces)) or _ALIGNMENT)
    places: dict[tuple[int, int], int] = {}
    end = 0
    for piece in pieces:
        places[piece] = -(-end // alignment) * alignment
        end = places[piece] + piece[1]
    return places


def _write(source: Path, copy: Path, places: dict[tuple[int, int], int]) -> None:
    if all(offset == place for (offset, _), place in places.items()):
        shutil.copyfile(source, copy)
        return
    with source.open("rb") as reader, copy.open("wb") as writer:
        for (offset, length), place in places.items():
            reader.seek(offset)
            writer.seek(place)
            while length:
                block = reader.read(min(length, 1 << 24))
                writer.write(block)
                length -= len(block)


def _place(copy: Path, folder: Path, location: str) -> str:
    """Puts a data file under its name, or under the next free one where another file has that; tells the name."""
    wanted = PurePosixPath(location)
    others = (str(wanted.with_name(f"{wanted.stem}-{count}{wanted.suffix}")) for count in itertools.count(1))
    for name in itertools.chain([location], others):
        place = folder / name
        if place.exists():
            if place.is_file() and filecmp.cmp(copy, place, shallow=False):
                return name
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary:
            copy.replace(temporary)
        return name
    raise AssertionError("unreachable: count() has no end")


def _move_out(
    stored: Sequence[onnx.TensorProto], file: Path, location: str, folder: Path | None, held: Mapping[str, Constant]
) -> None:
    """Writes tensors into a new data file, one after the other, and makes them refer to it."""
    with replacing(file) as temporary, temporary.open("wb") as writer:
        for tensor in stored:
            place = -(-writer.tell() // _ALIGNMENT) * _ALIGNMENT
            writer.seek(place)
            for block in _content(tensor, folder, held):
                writer.write(block)
            for values in ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data"):
                tensor.ClearField(values)
            _point(tensor, location, place, writer.tell() - place)


def _content(tensor: onnx.TensorProto, folder: Path | None, held: Mapping[str, Constant]) -> Iterator[Buffer]:
    """The bytes of a tensor, wherever they lie, some at a time."""
    if is_placeholder(tensor):
        yield np.ascontiguousarray(held[tensor.name].array()).reshape(-1).view(np.uint8).data
    elif is_external(tensor):
        yield from blocks(*external_range(tensor, folder))
    elif tensor.HasField("raw_data"):
        yield tensor.raw_data
    else:
        inline = onnx.TensorProto()
        inline.CopyFrom(tensor)
        yield onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(inline)).raw_data


def _point(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Makes a tensor refer to a range of a data file; entries that say so already stay as they are."""
    tensor.data_location = onnx.TensorProto.EXTERNAL
    known = {entry.key: entry for entry in tensor.external_data}
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        if key in known:
            known[key].value = value
        elif key == "location" or key == "length" or offset:
            tensor.external_data.add(key=key, value=value)
