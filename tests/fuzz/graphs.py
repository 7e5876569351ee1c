"""The strategy: random ONNX models with what it takes to run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.fuzz.draft import DTYPES, Draft, Dropped, Value, number
from tests.fuzz.operators import WEIGHTED

OPSETS = (17, 13, 9, 10, 11, 12, 14, 15, 16, 18, 19, 20, 21)

Feed = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Fuzzed:
    """A model, the shapes of its inputs, and the seed of its feeds."""

    model: onnx.ModelProto
    inputs: tuple[Value, ...]
    seed: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {value.name: value.shape for value in self.inputs}

    def feed(self, kind: str) -> Feed:
        """Inputs: ``plain`` numbers, or ``special`` ones among them (zeros of both signs, infinities, NaN)."""
        dice = np.random.default_rng([self.seed, len(kind)])
        return {value.name: _array(value, dice, kind) for value in self.inputs}

    def __repr__(self) -> str:
        return f"Fuzzed(seed={self.seed})\n{onnx.printer.to_text(self.model)}"


def _array(value: Value, dice: np.random.Generator, kind: str) -> np.ndarray[Any, Any]:
    dtype = np.dtype(DTYPES[value.dtype])
    if dtype.kind == "b":
        return np.asarray(dice.random(value.shape) < 0.5)
    if dtype.kind == "i":
        return np.asarray(dice.integers(-5, 6, value.shape), dtype)
    made = np.asarray(dice.standard_normal(value.shape))
    if kind == "special":
        special = np.asarray([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e4])
        made = np.where(dice.random(value.shape) < 0.3, dice.choice(special, value.shape), made)
    return np.asarray(made, dtype)


@st.composite
def fuzzed(draw: Any, most: int = 16) -> Fuzzed:
    """A model of up to ``most`` steps, eight or so mostly; each draws an operator, or a few that belong together."""
    d = Draft(draw, 17)
    d.opset = d.one_of(OPSETS)
    main = "float32" if d.chance(75) else d.one_of(("float16", "float64", "int64"))
    d.input(main, d.shape(d.one_of((4, 2, 3, 4, 1, 5))))
    if d.chance(40):
        d.input(main, d.inputs[0].shape if d.chance(60) else d.shape(d.integer(0, 4)))
    made = []
    for step in range(most):
        if step and not d.chance(90):
            break
        try:
            made += d.one_of(WEIGHTED)(d)
        except Dropped:
            continue
    return _finished(d, made)


def _finished(d: Draft, made: list[Value]) -> Fuzzed:
    used = {name for node in d.nodes for name in node.input}
    running = [value for value in d.values if not value.constant] or d.values
    ends = [value for value in made if value.name not in used and not value.constant]
    outputs = ends[-3:] or running[-1:]
    if d.chance(30):
        outputs.append(d.one_of(running[::-1]))
    if d.chance(5):
        outputs.append(d.one_of(d.values))
    outputs = list({value.name: value for value in outputs}.values())
    symbol = d.chance(40)
    overridable = [tensor for tensor in d.initializers if d.integer(0, 99) >= 98]
    inputs = [
        helper.make_tensor_value_info(
            value.name,
            number(value.dtype),
            _declared(value.shape, "n" if symbol and value.shape[:1] == d.inputs[0].shape[:1] else None),
        )
        for value in d.inputs
    ]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in overridable]
    nodes = d.nodes if d.nodes else [helper.make_node("Identity", [outputs[0].name], ["same"])]
    graph = helper.make_graph(
        nodes,
        "fuzzed",
        inputs,
        [onnx.ValueInfoProto(name=value.name) for value in outputs],
        d.initializers,
    )
    for item, value in zip(graph.output, outputs, strict=True):
        item.type.CopyFrom(
            helper.make_tensor_type_proto(number(value.dtype), [None] * value.rank if symbol else value.shape)
        )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", d.opset)], ir_version=8)
    return Fuzzed(model, tuple(d.inputs), d.integer(0, 99))


def _declared(shape: tuple[int, ...], symbol: str | None) -> list[int | str]:
    return [symbol, *shape[1:]] if symbol and shape else list(shape)
