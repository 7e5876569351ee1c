"""Whether onnxruntime outlives a model: asked in a process of its own, where it may not."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from superopt.errors import one_line
from superopt.models.narrow import computes_narrow
from superopt.models.scopes import graphs_in

_TRY = """
import pickle, sys, onnxruntime
optimized, data, held, feed, folder, libraries, memory = pickle.load(sys.stdin.buffer)
if memory:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
levels = onnxruntime.GraphOptimizationLevel
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
if folder:
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
try:
    for library in libraries:
        options.register_custom_ops_library(library)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in held.values()]
    if held:
        options.add_external_initializers(list(held), values)
    session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    if feed is not None:
        session.run(None, feed)
except Exception as error:
    sys.stdout.write(str(error))
    sys.exit(1)
"""
"""Loads a model, and runs it where there is a feed; what onnxruntime says against it goes to stdout, since it writes
warnings to stderr. Only onnxruntime is imported, which is quick."""

LIMITS_MEMORY = sys.platform == "linux"
"""Whether a process can be kept from taking more memory than it should: elsewhere the limit is not known, or not
heeded."""

LONGEST = 60.0
"""Seconds that a run on next to no numbers may take."""


def is_risky(proto: onnx.ModelProto) -> bool:
    """Whether onnxruntime's optimizations may end the process over a model.

    In 1.23, MatmulTransposeFusion does over a Transpose of float16 before a MatMul, between which a Cast to float32 was
    inserted for lack of a kernel.
    """
    used = {node.op_type for graph in graphs_in(proto.graph) for node in graph.node}
    used |= {node.op_type for function in proto.functions for node in function.node}
    return {"Transpose", "MatMul"} <= used and computes_narrow(proto)


@functools.lru_cache(maxsize=64)
def signal_of_loading(data: bytes, folder: str = "", libraries: tuple[str, ...] = ()) -> int:
    """The signal that ends a process which loads a model with all optimizations; 0 where it ends by itself, whether or
    not onnxruntime takes the model."""
    return max(0, -_tried((True, data, {}, None, folder, libraries, None)).returncode)


def outlives(
    data: bytes,
    held: Mapping[str, np.ndarray[Any, Any]],
    feed: Mapping[str, Any],
    folder: str = "",
    libraries: Sequence[str] = (),
    memory: int | None = None,
    seconds: float = LONGEST,
) -> str | None:
    """None where a process runs a model on a feed, without optimizations; else what became of it.

    ``held`` are values of initializers that are not in ``data``; ``memory`` the bytes that the process may have, where
    the system knows such a limit. In onnxruntime 1.32, GRU ends the process where the batch is empty.
    """
    limit = memory if LIMITS_MEMORY else None
    try:
        ended = _tried((False, data, dict(held), dict(feed), folder, libraries, limit), seconds)
    except subprocess.TimeoutExpired:
        return f"it runs for more than {seconds:.0f} seconds"
    if ended.returncode < 0:
        return f"it ends the process (signal {-ended.returncode})"
    if ended.returncode:
        said = ended.stdout.decode("utf-8", "replace").strip() or f"it ends the process (exit code {ended.returncode})"
        return one_line(said)
    return None


def _tried(given: tuple[object, ...], seconds: float | None = None) -> subprocess.CompletedProcess[bytes]:
    command, data = [sys.executable, "-c", _TRY], pickle.dumps(given)
    return subprocess.run(command, input=data, capture_output=True, check=False, timeout=seconds)
