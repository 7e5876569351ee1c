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

from superopt.models.narrow import computes_narrow
from superopt.models.scopes import graphs_in

_LOAD = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
folder, *libraries = sys.argv[1:]
if folder:
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
for library in libraries:
    options.register_custom_ops_library(library)
onnxruntime.InferenceSession(sys.stdin.buffer.read(), options, ["CPUExecutionProvider"])
"""

_RUN = """
import pickle, sys, onnxruntime
folder, *libraries = sys.argv[1:]
data, held, feed = pickle.load(sys.stdin.buffer)
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
if folder:
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
for library in libraries:
    options.register_custom_ops_library(library)
values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in held.values()]
if held:
    options.add_external_initializers(list(held), values)
onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feed)
"""

_LONGEST = 60.0
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
    command = [sys.executable, "-c", _LOAD, folder, *libraries]
    ended = subprocess.run(command, input=data, capture_output=True, check=False).returncode
    return -ended if ended < 0 else 0


def outlives(
    data: bytes,
    held: Mapping[str, np.ndarray[Any, Any]],
    feed: Mapping[str, Any],
    folder: str = "",
    libraries: Sequence[str] = (),
) -> str | None:
    """None where a process runs a model on a feed, without optimizations; else what became of it.

    ``held`` are values of initializers that are not in ``data``. In onnxruntime 1.32, GRU ends the process where the
    batch is empty.
    """
    command = [sys.executable, "-c", _RUN, folder, *libraries]
    try:
        given = pickle.dumps((data, dict(held), dict(feed)))
        ended = subprocess.run(command, input=given, capture_output=True, check=False, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return f"it runs for more than {_LONGEST:.0f} seconds"
    if ended.returncode < 0:
        return f"it ends the process (signal {-ended.returncode})"
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if ended.returncode and lines else None
