"""Running models in onnxruntime as they are written, and comparing what they give."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

CASES = Path(__file__).parent / "cases"
NAMES = [entry["id"] for entry in json.loads((CASES / "cases.json").read_text(encoding="utf-8"))]
LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))


def session(model: bytes | str) -> onnxruntime.InferenceSession:
    """A session that runs a model as it is written: one thread, no optimizations, no prepacked weights."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_prepacking", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds(name: str) -> list[dict[str, Any]]:
    """The inputs of a case; sequences are lists."""
    found = []
    for path in sorted((CASES / name).glob("feed*.npz")):
        feed: dict[str, Any] = {}
        with np.load(path, allow_pickle=True) as stored:
            for key in stored.files:
                item = re.fullmatch(r"(.*)\[\d+\]", key)
                if item:
                    feed.setdefault(item[1], []).append(stored[key])
                else:
                    feed[key] = stored[key]
        found.append(feed)
    return found


def random_feed(inputs: Sequence[Any], seed: int = 0) -> dict[str, Any]:
    """Random float32 inputs for a session's inputs; a dimension that is not a number is 1."""
    dice = np.random.default_rng(seed)
    return {
        item.name: dice.standard_normal([dim if isinstance(dim, int) else 1 for dim in item.shape]).astype(np.float32)
        for item in inputs
    }


def run(model: onnxruntime.InferenceSession, feed: Mapping[str, Any]) -> list[Any] | None:
    """The outputs, or None where the runtime cannot run the model on this feed."""
    try:
        outputs: list[Any] = model.run(None, dict(feed))
    except Exception:  # onnxruntime's own exceptions have no common base but this
        return None
    return outputs


def same_bits(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_bits, left, right))
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool((a == b).all()) if a.dtype == object else a.tobytes() == b.tobytes()
