"""The strategy: random ONNX models with what it takes to run them.

Several that share few kinds of operators can be bundled into one model, side by side: its outputs are theirs, and what
optimizing costs once per model, most of it reading rules, is paid once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.fuzz.draft import DTYPES, Draft, Dropped, Value, number
from tests.fuzz.operators import OPERATORS, WEIGHTED, binary, unary

OPSETS = (17, 13, 9, 10, 11, 12, 14, 15, 16, 18, 19, 20, 21, 22, 23)

Feed = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Fuzzed:
    """A model, the shapes of its inputs, and the seed of its feeds; or a bundle of such, its ``parts``."""

    model: onnx.ModelProto
    inputs: tuple[Value, ...]
    seed: int
    parts: tuple[Fuzzed, ...] = ()

    @property
    def graphs(self) -> tuple[Fuzzed, ...]:
        """The single graphs in it."""
        return self.parts or (self,)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {value.name: value.shape for value in self.inputs}

    def feed(self, kind: str) -> Feed:
        """Inputs: ``plain`` numbers, or ``special`` ones among them (zeros of both signs, infinities, NaN)."""
        if self.parts:
            return {name: array for part in self.parts for name, array in part.feed(kind).items()}
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
    return _drawn(d, WEIGHTED, most)


@st.composite
def bundles(draw: Any, largest: int = 8, most: int = 12) -> tuple[Fuzzed, ...]:
    """One model of all kinds of operators, or up to ``largest`` of one opset and few kinds; names differ between them.

    Leaving kinds out lets the others meet more often (swarm testing: Groce et al., ISSTA 2012).
    """
    d = Draft(draw, 17)
    d.opset = d.one_of(OPSETS)
    count = d.one_of((1, 4, largest, largest))
    if count == 1:
        return (_drawn(d, WEIGHTED, most),)
    kinds = [unary, binary, *(d.one_of(WEIGHTED) for _ in range(d.integer(2, 6)))]
    weighted = [kind for weight, kind in OPERATORS for _ in range(weight) if kind in kinds]
    return tuple(_drawn(Draft(draw, d.opset, prefix=f"g{place}_"), weighted, most) for place in range(count))


def bundled(parts: Sequence[Fuzzed]) -> Fuzzed:
    """The parts side by side in one model; the part itself where there is one. Their names must differ."""
    if len(parts) == 1:
        return parts[0]
    model = onnx.ModelProto()
    model.CopyFrom(parts[0].model)
    for part in parts[1:]:
        for field in ("node", "initializer", "input", "output"):
            getattr(model.graph, field).extend(getattr(part.model.graph, field))
    return Fuzzed(model, tuple(value for part in parts for value in part.inputs), parts[0].seed, tuple(parts))


def _drawn(d: Draft, weighted: Sequence[Callable[[Draft], list[Value]]], most: int) -> Fuzzed:
    main = "float32" if d.chance(75) else d.one_of(("float16", "float64", "int64"))
    d.input(main, d.shape(d.one_of((4, 2, 3, 4, 1, 5))))
    if d.chance(40):
        d.input(main, d.inputs[0].shape if d.chance(60) else d.shape(d.integer(0, 4)))
    made = []
    for step in range(most):
        if step and not d.chance(90):
            break
        try:
            made += d.one_of(weighted)(d)
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
            _declared(value.shape, f"{d.prefix}n" if symbol and value.shape[:1] == d.inputs[0].shape[:1] else None),
        )
        for value in d.inputs
    ]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in overridable]
    nodes = d.nodes if d.nodes else [helper.make_node("Identity", [outputs[0].name], [f"{d.prefix}same"])]
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
