"""The models of ``tests/data/peer_passes.toml``: on each of them a pass of another optimizer acts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

TABLE: Mapping[str, Any] = tomllib.loads((Path(__file__).parent / "data" / "peer_passes.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Case:
    """A model in ONNX text, the pass that acts on it, how many nodes that leaves and how many we may leave."""

    peer: str
    name: str
    left: int
    text: str
    opset: int = 20
    ours: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.peer}-{self.name}"

    @property
    def passed(self) -> str:
        """The peer's own name of the pass: what follows a dash tells several models for it apart."""
        return self.name.partition("-")[0]

    def model(self) -> onnx.ModelProto:
        """The model, its weights drawn where the text gives them no values."""
        model: onnx.ModelProto = parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : {self.opset}]>\nacts_on {self.text}'
        )
        made = {name for node in model.graph.node for name in node.output}
        generator = np.random.default_rng(0)
        for info in [info for info in model.graph.value_info if info.name not in made]:
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            drawn = generator.standard_normal(shape)
            values = np.abs(drawn) + 0.5 if info.name.startswith("v") else drawn
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            model.graph.initializer.append(numpy_helper.from_array(values.astype(dtype), info.name))
            model.graph.value_info.remove(info)
        onnx.checker.check_model(model)
        return model


def _case(entry: Mapping[str, Any]) -> Case:
    return Case(
        entry["peer"], entry["pass"], entry["left"], entry["model"], entry.get("opset", 20), entry.get("ours"),
        entry.get("with", {}),
    )  # fmt: skip


CASES = tuple(_case(entry) for entry in TABLE["case"])
FAMILIES = tuple(_case(entry) for entry in TABLE.get("family", ()))
"""Families of equations, where the peer is the family: what is left is what we leave."""

NOT_TRIED: Mapping[str, Mapping[str, str]] = TABLE["not"]
"""By peer, the passes that no case has, and why."""


def remaining(model: onnx.ModelProto) -> int:
    """How many nodes compute something of the inputs; Identity does nothing."""
    live = {value.name for value in model.graph.input}
    count = 0
    for node in model.graph.node:
        if live.intersection(node.input):
            live.update(node.output)
            count += node.op_type != "Identity"
    return count
