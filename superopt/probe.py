"""Whether onnxruntime outlives loading a model: asked in a process of its own, where it may not."""

from __future__ import annotations

import functools
import subprocess
import sys

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
