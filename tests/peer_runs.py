"""What the installed peers leave of the models that their passes act on: ``python -m tests.peer_runs``.

Needs the extra ``bench``. Prints the cases where a peer leaves another number of nodes than is written down.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from tests.peer_cases import CASES, Case, remaining


def _onnxoptimizer(case: Case, model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxoptimizer

    passes = [case.passed, "eliminate_deadend", "eliminate_unused_initializer"]
    optimized: onnx.ModelProto = onnxoptimizer.optimize(
        onnx.shape_inference.infer_shapes(model, data_prop=True), passes
    )
    return optimized


def _onnxslim(case: Case, model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxslim

    optimized: onnx.ModelProto = onnxslim.slim(model)
    return optimized


def _onnxscript(case: Case, model: onnx.ModelProto) -> onnx.ModelProto:
    from onnxscript import rewriter
    from onnxscript.rewriter.rules import common
    from onnxscript.rewriter.rules.fusion import _layer_norm, _rms_normalization

    fusions = {
        "layer_normalization_rules": _layer_norm.layer_normalization_rules,
        "rms_normalization_rules": _rms_normalization.rms_normalization_rules,
    }
    found: Any = fusions.get(case.passed) or getattr(common, case.passed)
    found = found() if case.passed.startswith(("fuse_hardswish", "expand_before")) and callable(found) else found
    rules = list(found) if hasattr(found, "__iter__") else [found]
    optimized: onnx.ModelProto = rewriter.rewrite(onnx.shape_inference.infer_shapes(model, data_prop=True), rules)
    return optimized


def _onnxruntime(case: Case, model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_EXTENDED if "QuantFusion" in case.passed else levels.ORT_ENABLE_BASIC
    )
    options.add_session_config_entry("session.enable_cast_chain_elimination", "1")
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


RUN: dict[str, Callable[[Case, onnx.ModelProto], onnx.ModelProto]] = {
    "onnxoptimizer": _onnxoptimizer,
    "onnxslim": _onnxslim,
    "onnxscript": _onnxscript,
    "onnxruntime": _onnxruntime,
}

if __name__ == "__main__":
    for case in CASES:
        left = remaining(RUN[case.peer](case, case.model()))
        if left != case.left:
            print(f"{case.id}: {left} nodes, expected {case.left}", flush=True)
    print(f"{len(CASES)} cases")
