"""Runs models in onnxruntime: with all its optimizations off (the judge), or on (as a user would)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from superopt.errors import EvaluationError, OptionError, one_line
from superopt.kernels import is_float
from superopt.models.divisions import divisions, trapped
from superopt.models.extent import Extent, extent_of, most_bytes
from superopt.models.functions import is_endless
from superopt.models.model import Model, serialized
from superopt.models.tensors import constant_of_tensor, is_external, is_linked
from superopt.probe import LONGEST, is_risky, outlives, signal_of_loading
from superopt.sessions import CPU, judging_options, session_options

RuntimeValue: TypeAlias = Any
"""What a model takes or gives: an array, a list of values (a sequence), a dict (a map), or None (an empty optional)."""

Feed: TypeAlias = Mapping[str, RuntimeValue]

_NATIVE = frozenset("?bBhHiIlLqQefdOUS")
"""Kinds of numpy dtypes that onnxruntime takes and gives as they are; ml_dtypes' go by their bytes."""


TOO_LONG = "too long to be waited for"
TOO_LARGE = "too large to be run here"
"""What the error says where a value would be."""


class Runner:
    """A model loaded into onnxruntime, ready to run."""

    def __init__(
        self,
        model: Model | onnx.ModelProto,
        *,
        optimized: bool = False,
        prepacked: bool = False,
        threads: int = 1,
        libraries: Sequence[str] = (),
        profile: Path | None = None,
    ) -> None:
        """Raises EvaluationError where onnxruntime does not load the model.

        Without optimization nothing is fused or folded, nor prepacked where that is not asked for, and sums are taken
        in one order by one thread.
        ``threads`` counts for an optimized model; 0 is onnxruntime's own choice. ``libraries`` of custom operators are
        the model's own where it is a ``Model``. ``profile`` begins the name of the file that
        ``session.end_profiling()`` writes.
        """
        proto = model.proto if isinstance(model, Model) else model
        if is_endless(proto):
            raise EvaluationError("its functions call each other without end, or are far too many when written out")
        self._model = model if isinstance(model, Model) else Model(proto, libraries=tuple(libraries))
        self.most = None if optimized else most_bytes()
        """The bytes that a value may have where a model is run that was not run on the same inputs before."""
        self.seconds: float | None = None
        """The seconds after which a run is ended: None where it may take as long as it does."""
        self._extents: dict[tuple[tuple[str, tuple[int, ...]], ...], Extent] = {}
        options = (
            session_options(optimized=True, threads=threads) if optimized else judging_options(prepacked=prepacked)
        )
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        if self._model.folder is not None:
            folder = "session.model_external_initializers_file_folder_path"
            options.add_session_config_entry(folder, _folder(self._model))
        try:
            self._held = _add_held(self._model, options)
            for library in self._model.libraries:
                options.register_custom_ops_library(library)
            data = _data(model, optimized)
            if optimized and is_risky(proto):
                signal = signal_of_loading(data, _folder(self._model), self._model.libraries)
                if signal:
                    raise EvaluationError(f"onnxruntime's optimizations of it end the process (signal {signal})")
            # Its Python part would print what it does not understand, and try the same again.
            self.session = ort.InferenceSession(data, options, [CPU], enable_fallback=0)
        except EvaluationError:
            raise
        except Exception as error:  # onnxruntime's exceptions have no common base of their own
            raise EvaluationError(f"onnxruntime does not load it: {one_line(error)}") from error
        self.outputs = tuple(item.name for item in self.session.get_outputs())
        self.output_types = {item.name: str(item.type) for item in self.session.get_outputs()}
        self.inputs = {item.name: str(item.type) for item in self.session.get_inputs()}
        self._plain_outputs = not any(_is_small_float(kind) for kind in self.output_types.values())

    def run(self, feed: Feed) -> dict[str, RuntimeValue]:
        """The outputs by name. Raises EvaluationError where onnxruntime fails, where it would take far too much memory
        for a single value (the system ends who asks for that), where it takes longer than ``seconds``, and where it
        would end the process over an empty input."""
        self._check_size(feed)
        if is_empty(feed):
            _check_empty(self._model, feed)
        how = ort.RunOptions()
        # Whoever is asked for no end runs for ever: only another thread can tell onnxruntime to leave off.
        timer = None if self.seconds is None else threading.Timer(self.seconds, setattr, (how, "terminate", True))
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            if self._plain_outputs and all(_is_native(value) for value in feed.values()):
                results = self.session.run(None, dict(feed), how)
            else:
                values = {name: _ort_value(value, self.inputs.get(name, "")) for name, value in feed.items()}
                results = [_from_ort(value) for value in self.session.run_with_ort_values(None, values, how)]
        except Exception as error:  # as above
            if how.terminate:
                raise EvaluationError(f"it runs for more than {self.seconds:.0f} seconds, {TOO_LONG}") from error
            raise EvaluationError(f"onnxruntime does not run it: {one_line(error)}") from error
        finally:
            if timer is not None:
                timer.cancel()
        return {name: _plain(result) for name, result in zip(self.outputs, results, strict=True)}

    def dares(self, feed: Feed) -> bool:
        """Whether the feed can be run at all: one without elements must be tried in a process of its own first, to
        which not every model can be sent."""
        return not is_empty(feed) or _cannot_be_sent(self._model, feed) is None

    def check_unseen(self, feed: Feed) -> None:
        """Raises EvaluationError where it takes far too much memory, or very long, to run a feed of sizes that nobody
        asked for: tried in a process of its own where ONNX does not infer the sizes of all values, and the inputs are
        so large that a product of one with itself would be too much."""
        largest = max((value.size for value in feed.values() if isinstance(value, np.ndarray)), default=0)
        if self.most is None or 4 * largest * largest <= self.most or self._extent(feed).complete:
            return
        became = _cannot_be_sent(self._model, feed)
        if became is None:
            became = _apart(self._model, feed, _OF_ITS_OWN + 4 * (_bytes(self._model) + self.most), _A_TRY)
        elif self.most == most_bytes():
            return  # Nothing smaller was found.
        if became is not None:
            raise EvaluationError(f"{became}, {TOO_LARGE}")

    def _check_size(self, feed: Feed) -> None:
        """Raises EvaluationError where a value would be too large."""
        if self.most is not None and (size := self._extent(feed).largest) > self.most:
            raise EvaluationError(f"a value of {size:,} bytes, {TOO_LARGE}")

    def _extent(self, feed: Feed) -> Extent:
        """How large the values are; ONNX is asked once for inputs of the same shapes."""
        known = _shapes(feed)
        if known not in self._extents:
            self._extents[known] = extent_of(self._model.proto, dict(known))
        return self._extents[known]


def _shapes(feed: Feed) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, value.shape) for name, value in feed.items() if isinstance(value, np.ndarray))


_MOST_TRIED = 512 * 2**20
"""Bytes of a model up to which it is handed to another process for a try."""

_A_TRY = 20.0
"""Seconds that a run may take on inputs that could have been smaller."""

_OF_ITS_OWN = 1 << 28
"""Bytes that a process takes which runs a model, beside weights and values."""

_TRIED: dict[tuple[object, ...], str | None] = {}
"""What became of models on shapes, by all but the values of their weights, and by the memory that they had."""

_MOST_REMEMBERED = 1 << 12
"""Tries after which what became of them is forgotten."""


def _check_empty(model: Model, feed: Feed) -> None:
    """Raises EvaluationError where onnxruntime does not outlive an input without elements."""
    problem = _cannot_be_sent(model, feed)
    if problem is not None:
        raise EvaluationError(f"an input without elements: {problem}")
    became = _apart(model, feed)
    if became is not None:
        raise EvaluationError(f"onnxruntime does not run it: {became}")


def _cannot_be_sent(model: Model, feed: Feed) -> str | None:
    """Why a model and a feed cannot be tried in a process of its own; None where they can."""
    if _bytes(model) > _MOST_TRIED:
        return "too large to be tried in a process of its own"
    if not all(_is_native(value) for value in (*(held.array() for held in model.held.values()), *feed.values())):
        return "types that another process cannot be given"
    return None


def _apart(model: Model, feed: Feed, memory: int | None = None, seconds: float = LONGEST) -> str | None:
    """None where a process of its own runs the feed in so many seconds, with so many bytes of memory if that matters;
    else what became of it."""
    graph = model.proto.graph
    form = (*(_without_values(node) for node in graph.node), *((t.name, *t.dims) for t in graph.initializer))
    key = (hash(form), _shapes(feed), memory)
    if key not in _TRIED:
        if len(_TRIED) >= _MOST_REMEMBERED:
            _TRIED.clear()
        held = {name: value.array() for name, value in model.held.items()}
        _TRIED[key] = outlives(serialized(model), held, feed, _folder(model), model.libraries, memory, seconds)
    return _TRIED[key]


def _bytes(model: Model) -> int:
    return int(model.proto.ByteSize()) + sum(value.nbytes for value in model.held.values())


def _without_values(node: onnx.NodeProto) -> tuple[object, ...]:
    """All of a node but the numbers in a tensor that it holds."""
    held = [attribute for attribute in node.attribute if attribute.HasField("t")]
    rest = (attribute.SerializeToString() for attribute in node.attribute if not attribute.HasField("t"))
    dims = ((attribute.name, *attribute.t.dims) for attribute in held)
    return (node.op_type, node.domain, *node.input, "", *node.output, *rest, *dims)


def _folder(model: Model) -> str:
    """Where external data lies, as onnxruntime is to be told; empty where the model has none."""
    return str(model.folder.resolve()) if model.folder is not None else ""


def _data(model: Model | onnx.ModelProto, optimized: bool) -> bytes:
    """The model as onnxruntime is to have it: unoptimized, with divisions of integers by zero as errors of the run.

    Optimized, a model is run as it is, on inputs that it has been run on before; but what stands in bodies may not have
    been run, and onnxruntime folds it all the same.
    """
    proto = model.proto if isinstance(model, Model) else model
    if optimized and any(division.graph is not proto.graph for division in divisions(proto)):
        raise EvaluationError("a body may divide an integer by zero, which ends the process where it is folded")
    asked = proto if optimized else trapped(proto)
    if asked is proto and isinstance(model, Model):
        return serialized(model)
    return bytes(asked.SerializeToString())


def found_libraries(paths: Sequence[str]) -> tuple[str, ...]:
    """The absolute paths of libraries of custom operators: one without a folder would be looked for among the system's.
    Raises OptionError where onnxruntime cannot load one."""
    found = []
    for path in paths:
        try:
            if not Path(path).is_file():
                raise OptionError(f"custom-op-library: no file {path}, expected a shared library of custom operators")
            found.append(str(Path(path).absolute()))
            ort.SessionOptions().register_custom_ops_library(found[-1])
        except OptionError:
            raise
        except Exception as error:  # as above
            raise OptionError(f"custom-op-library: {path} is none that onnxruntime loads: {one_line(error)}") from error
    return tuple(found)


def _add_held(model: Model, options: ort.SessionOptions) -> list[ort.OrtValue]:
    """Gives a session the weights that lie in no file, or where it would not follow a link, without a copy; they must
    live as long as it does."""
    given = {}
    for tensor in model.proto.graph.initializer:
        if tensor.name in model.held:
            given[tensor.name] = model.held[tensor.name]
        elif model.folder is not None and is_external(tensor) and is_linked(tensor, model.folder):
            given[tensor.name] = constant_of_tensor(tensor, model.folder)
    names, values = list(given), [_ort_value(value.array(), value.type.dtype) for value in given.values()]
    if names:
        options.add_external_initializers(names, values)
    return values


def _plain(value: RuntimeValue) -> RuntimeValue:
    """Scalars as arrays of rank 0, so that every tensor is an array."""
    return np.asarray(value) if isinstance(value, (np.generic, float, int, str, bytes)) else value


def _is_small_float(kind: str) -> bool:
    return "bfloat16" in kind or "float8" in kind or "float4" in kind


def _is_native(value: RuntimeValue) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.char in _NATIVE
    return not isinstance(value, list) or all(_is_native(item) for item in value)


def _ort_value(value: RuntimeValue, kind: str) -> ort.OrtValue:
    if not isinstance(value, np.ndarray):
        raise EvaluationError(f"an input of type {kind} beside one that numpy has no type for")
    if value.dtype.char in _NATIVE:
        return ort.OrtValue.ortvalue_from_numpy(value)
    number = helper.np_dtype_to_tensor_dtype(value.dtype)
    bytes_as = np.uint16 if value.dtype.itemsize == 2 else np.uint8
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(value).view(bytes_as), number)


def _from_ort(value: ort.OrtValue) -> RuntimeValue:
    kind = str(value.data_type())
    if not _is_small_float(kind):
        return value.numpy()
    dtype = helper.tensor_dtype_to_np_dtype(value.element_type())
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()


def arrays_of(value: RuntimeValue) -> list[np.ndarray[Any, Any]]:
    """The tensors in a value, in order: one, or the items of a sequence; a map's values by key."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [np.asarray(value[key]) for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in arrays_of(item)]
    return [np.asarray(value)]


def is_empty(feed: Feed) -> bool:
    """Whether some tensor has no elements."""
    return any(array.size == 0 for value in feed.values() for array in arrays_of(value))


def same_bits(left: RuntimeValue, right: RuntimeValue) -> bool:
    """Whether two values are the same bit by bit, any NaN equal to any NaN."""
    mine, other = arrays_of(left), arrays_of(right)
    return len(mine) == len(other) and all(_same_array(a, b) for a, b in zip(mine, other, strict=True))


def _same_array(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.all(equal_bits(a, b)))


def equal_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements of two arrays of one shape and type have the same bits; any NaN is equal to any NaN."""
    if a.dtype.kind in "OUSbiu":
        return np.asarray(a == b)
    if a.dtype.kind == "c":
        return np.asarray(equal_bits(a.real, b.real) & equal_bits(a.imag, b.imag))
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    equal = np.ascontiguousarray(a).view(unsigned) == np.ascontiguousarray(b).view(unsigned)
    if a.dtype.kind == "V" and not is_float(a.dtype):
        return np.asarray(equal.reshape(a.shape))
    return np.asarray(equal.reshape(a.shape) | (np.isnan(a) & np.isnan(b)))
