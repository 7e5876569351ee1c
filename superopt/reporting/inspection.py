"""What a model is made of: operators, types, costs, and what is left alone and why; as a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from superopt.cost import CostBreakdown, CostModel, model_cost
from superopt.lowering.lower import Lowered
from superopt.models.byte_counts import model_bytes
from superopt.report import Opaque
from superopt.terms import OPAQUE, ValueType, type_text

FORMAT = "superopt inspection 1"


class Named(TypedDict):
    """An input or an output."""

    name: str
    type: str


class OperatorCost(TypedDict):
    """How often an operator stands in a model, and what all of these cost together."""

    operator: str
    count: int
    cost: float


class NodeLine(TypedDict):
    """One operator in normal form."""

    name: str
    operator: str
    type: str
    cost: float


class Inspection(TypedDict):
    """The document. ``nodes`` are operators in normal form, so without Constant nodes and what nothing needs; those of
    bodies come last."""

    format: str
    source: str
    opset: int
    ir_version: int
    producer: str
    bytes: int
    constant_bytes: int
    inputs: list[Named]
    outputs: list[Named]
    cost: float
    unit: str
    cost_model: str
    operators: list[OperatorCost]
    opaque: list[Opaque]
    nodes: list[NodeLine]


def inspection(lowered: Lowered, cost_model: CostModel, sizes: Mapping[str, int] | None = None) -> Inspection:
    """The document about a lowered model; operators in order of cost."""
    model, graph = lowered.model, lowered.graph
    priced = model_cost(lowered, cost_model, sizes)
    stored = {tensor.name for tensor in model.proto.graph.initializer}
    types = {name: graph.types[term] for name, term in lowered.value_terms.items()}
    return {
        "format": FORMAT,
        "source": model.label,
        "opset": model.opset,
        "ir_version": model.proto.ir_version,
        "producer": f"{model.proto.producer_name} {model.proto.producer_version}".strip(),
        "bytes": model_bytes(model),
        "constant_bytes": priced.constant_bytes,
        "inputs": [_named(item.name, types) for item in model.proto.graph.input if item.name not in stored],
        "outputs": [_named(item.name, types) for item in model.proto.graph.output],
        "cost": priced.total,
        "unit": priced.unit,
        "cost_model": priced.model,
        "operators": operator_costs(priced),
        "opaque": opaque_operators(lowered),
        "nodes": [
            {"name": item.name, "operator": item.op, "type": type_text(item.type), "cost": item.cost}
            for item in priced.nodes
        ],
    }


def operator_costs(priced: CostBreakdown) -> list[OperatorCost]:
    """Count and cost by operator, the dearest first."""
    found: dict[str, OperatorCost] = {}
    for item in priced.nodes:
        line = found.setdefault(item.op, {"operator": item.op, "count": 0, "cost": 0.0})
        line["count"] += 1
        line["cost"] += item.cost
    return sorted(found.values(), key=lambda line: (-line["cost"], line["operator"]))


def opaque_operators(lowered: Lowered) -> list[Opaque]:
    """What was left alone and why, by operator and reason, in order of first appearance."""
    found: dict[tuple[str, str], Opaque] = {}
    for node in lowered.graph.nodes:
        if node.op == OPAQUE:
            operator = lowered.graph.opaque[str(node.attrs["key"])]
            name = f"{operator.domain}.{operator.op_type}" if operator.domain else operator.op_type
            line = found.setdefault((name, operator.reason), {"operator": name, "count": 0, "reason": operator.reason})
            line["count"] += 1
    return list(found.values())


def _named(name: str, types: Mapping[str, ValueType]) -> Named:
    return {"name": name, "type": type_text(types.get(name))}
