"""Model files: read without their external data, written whole, beside and then renamed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard
from weakref import WeakKeyDictionary

import onnx
from google.protobuf.message import DecodeError, EncodeError

from superopt.errors import ModelError
from superopt.models.external import LARGEST_MESSAGE, carried_over, gathered, replacing, tensors, with_data_inside
from superopt.models.tensors import check_header, external_range, is_external, is_placeholder, tensor_bytes
from superopt.terms import Constant

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["Model", "load", "message", "replacing", "save", "serialized", "standard_domain", "tensors"]

DEEPEST = 32
"""How many bodies deep a graph can lie: protobuf reads messages in one another up to a hundred deep."""


@dataclass(frozen=True, eq=False)
class Model:
    """An ONNX model as it was read: the message without its external data, and where that lies. Never changed.

    ``source`` are the bytes of the file where writing the message again would give others. ``made`` names the
    initializers that superopt added: they may move to a data file when the model is saved. ``held`` are the values of
    those that are placeholders in the message. ``libraries`` of custom operators are needed to run it.
    ``reserved`` are names that values made anew must not have: those of the model that this is a body of.
    """

    proto: onnx.ModelProto
    folder: Path | None = None
    path: Path | None = None
    source: bytes | None = field(default=None, repr=False)
    made: frozenset[str] = frozenset()
    held: Mapping[str, Constant] = field(default_factory=dict, repr=False)
    libraries: tuple[str, ...] = ()
    reserved: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators; 0 where the model does not import them."""
        return self.opsets.get("", 0)

    @property
    def opsets(self) -> dict[str, int]:
        """Version by domain; ONNX's own domain is the empty string."""
        return {standard_domain(entry.domain): entry.version for entry in self.proto.opset_import}

    @property
    def label(self) -> str:
        """What messages call this model."""
        return str(self.path) if self.path else "model"


def standard_domain(domain: str) -> str:
    """The domain with ONNX's own under its short name, the empty string."""
    return "" if domain == "ai.onnx" else domain


def load(source: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model, folder: str | None = None) -> Model:
    """The model at a path, or in a message (``folder``: where its external data lies), or of onnx_ir.

    Raises ModelError on what is not a model: one line that says what is wrong where.
    """
    if isinstance(source, onnx.ModelProto):
        model = Model(source, Path(folder) if folder else None)
    elif isinstance(source, (str, os.PathLike)):
        model = _from_file(Path(source))
    elif _is_ir(source):
        model = _from_ir(source)
    else:
        raise ModelError(f"a {type(source).__name__} is no model, expected a path, a ModelProto or an onnx_ir.Model")
    _check(model)
    return model


def _is_ir(source: object) -> TypeGuard[onnx_ir.Model]:
    """Whether this is a model of onnx_ir; who has one has imported it, and it takes half a second to import."""
    library = sys.modules.get("onnx_ir")
    return library is not None and isinstance(source, library.Model)


def serialized(model: Model) -> bytes:
    """The bytes of the model file (without external data). Raises ModelError over 2 GiB."""
    if model.source is not None:
        return model.source
    if model not in _WRITTEN:
        data = _serialize(model.proto, model.label)
        if len(data) > MOST_KEPT:
            return data
        _WRITTEN[model] = data
    return _WRITTEN[model]


MOST_KEPT = 256 * 2**20
"""Bytes up to which a model that was written is kept so: it is measured, run and saved, and writing takes time."""

_WRITTEN: WeakKeyDictionary[Model, bytes] = WeakKeyDictionary()


def message(model: Model) -> onnx.ModelProto:
    """The model as one message with all its data inside. Raises ModelError where it is too large for one."""
    proto = with_data_inside(model.proto, model.folder, LARGEST_MESSAGE, model.held)
    if proto.ByteSize() > LARGEST_MESSAGE:
        raise ModelError(f"{model.label}: over 2 GiB, more than one message holds; expected to be saved to a file")
    return proto


def message_copy(model: Model) -> onnx.ModelProto:
    """The same as a message of the caller's own, whatever becomes of it. Raises ModelError as ``message`` does."""
    copy = onnx.ModelProto()
    copy.CopyFrom(message(model))
    return copy


def save(model: Model, path: str | os.PathLike[str], layout: str = "same") -> None:
    """Writes the model and its data files; each appears whole under its name or not at all.

    ``layout`` tells where weights go: ``same`` leaves them in data files or in the model as they were (data files that
    lie in the folder already are referred to; others are written beside the model once), ``none`` brings all into the
    model, anything else names the one file for them, relative to the model's folder.
    """
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise ModelError(f"{target}: no folder {folder}, expected one to write into")
    check_layout(model, target, layout)
    proto = laid_out(model, target, layout)
    data = serialized(model) if proto is model.proto else _serialize(proto, str(target))
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise ModelError(f"{target}: cannot be written: {error.strerror}") from error


def laid_out(model: Model, target: Path, layout: str) -> onnx.ModelProto:
    """The message as it is to be written at ``target``, its data files in place; the same object if unchanged."""
    proto, folder, held = model.proto, model.folder, model.held
    if layout == "none":
        return with_data_inside(proto, folder, LARGEST_MESSAGE, held)
    if layout == "same":
        return carried_over(proto, folder, model.made, target, LARGEST_MESSAGE, held)
    return gathered(proto, folder, target, layout, held)


def check_layout(model: Model, target: Path, layout: str) -> None:
    """Raises ModelError where weights cannot be put there: in a file that the original needs, or in one message."""
    if layout == "same":
        return
    if layout == "none":
        total = sum(tensor_bytes(tensor) for tensor in tensors(model.proto) if is_external(tensor))
        if total > LARGEST_MESSAGE:
            raise ModelError(f"{target}: {total} bytes of external data, expected at most 2 GiB to go into one message")
        return
    place = os.path.realpath(target.parent / layout)
    needed = {os.path.realpath(path) for path in (model.path, target) if path is not None}
    for tensor in tensors(model.proto):
        if is_external(tensor) and not is_placeholder(tensor):
            needed.add(os.path.realpath(external_range(tensor, model.folder)[0]))
    if place in needed:
        raise ModelError(f"{target.parent / layout}: is a file of the model itself, expected another for its weights")
    if not Path(place).parent.is_dir():
        raise ModelError(f"{target.parent / layout}: no folder {Path(place).parent}, expected one to write into")


def _serialize(proto: onnx.ModelProto, label: str) -> bytes:
    try:
        data: bytes = proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise ModelError(f"{label}: over 2 GiB, more than one protobuf message holds") from error
    return data


def _from_file(path: Path) -> Model:
    try:
        status = path.stat()
        # A device never ends, and a pipe may never begin.
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise ModelError(f"{path}: a device or a pipe, expected a file")
        size = status.st_size
        if size > LARGEST_MESSAGE:
            raise ModelError(f"{path}: {size} bytes, expected at most 2 GiB with larger data in files beside it")
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{path}: not an ONNX model, or cut short ({size} bytes)") from error
    if not proto.HasField("graph"):
        raise ModelError(f"{path}: no graph in it, expected an ONNX model")
    same = proto.SerializeToString() == data
    return Model(proto, path.parent, path, None if same else data)


def _from_ir(model: onnx_ir.Model) -> Model:
    import onnx_ir

    folders = {
        Path(value.const_value.base_dir)
        for graph in model.graphs()
        for value in graph.initializers.values()
        if isinstance(value.const_value, onnx_ir.ExternalTensor)
    }
    if len(folders) > 1:
        raise ModelError(f"external data in {len(folders)} folders, expected one")
    return Model(onnx_ir.to_proto(model), folders.pop() if folders else None)


def _check(model: Model) -> None:
    proto = model.proto
    if not proto.HasField("graph"):
        raise ModelError(f"{model.label}: no graph in it, expected an ONNX model")
    if proto.ir_version < 1:
        raise ModelError(f"{model.label}: IR version {proto.ir_version}, expected 1 or more")
    if _is_deeper(proto.graph, DEEPEST):
        raise ModelError(f"{model.label}: bodies more than {DEEPEST} deep, which no model file can hold")
    if not all(isinstance(text, str) for text in _texts(proto)):
        raise ModelError(f"{model.label}: a name is not UTF-8 text")
    try:
        for tensor in tensors(proto):
            check_header(tensor)
            if is_external(tensor) and model.folder is not None:
                external_range(tensor, model.folder)
    except ModelError as error:
        raise ModelError(f"{model.label}: {error}") from error


def _is_deeper(graph: onnx.GraphProto, most: int) -> bool:
    """Whether graphs in graphs go further down than that."""
    level = [graph]
    for _ in range(most + 1):
        attributes = [attribute for item in level for node in item.node for attribute in node.attribute]
        level = [inner for attribute in attributes if attribute.HasField("g") for inner in [attribute.g]]
        level += [inner for attribute in attributes for inner in attribute.graphs]
    return bool(level)


def _texts(proto: onnx.ModelProto) -> Iterator[str | bytes]:
    """Every name that has a meaning in a model; protobuf gives one that is not UTF-8 as bytes."""
    for entry in proto.opset_import:
        yield entry.domain
    nodes = [node for function in proto.functions for node in function.node]
    graphs = [proto.graph]
    for function in proto.functions:
        yield from (function.domain, function.name, *function.input, *function.output, *function.attribute)
    while graphs or nodes:
        while nodes:
            node = nodes.pop()
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            for attribute in node.attribute:
                yield from (attribute.name, attribute.ref_attr_name)
                if attribute.HasField("g"):
                    graphs.append(attribute.g)
                graphs.extend(attribute.graphs)
        if graphs:
            graph = graphs.pop()
            nodes.extend(graph.node)
            yield graph.name
            yield from (tensor.name for tensor in graph.initializer)
            yield from (sparse.values.name for sparse in graph.sparse_initializer)
            for value in (*graph.input, *graph.output, *graph.value_info):
                yield value.name
                if value.type.HasField("tensor_type"):
                    yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
