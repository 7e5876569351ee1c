"""What a model is made of: operators, types, costs, and what is left alone and why; the JSON document, and its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from rich.table import Table

from superopt.cost import CostBreakdown, CostModel, model_cost
from superopt.lowering.lower import Lowered
from superopt.models.byte_counts import model_bytes
from superopt.printable import printable
from superopt.report import Opaque
from superopt.reporting.render import bytes_text, number, rows, table
from superopt.terms import OPAQUE, ValueType, type_text

FORMAT = "superopt inspection 1"


class TypedName(TypedDict):
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
    inputs: list[TypedName]
    outputs: list[TypedName]
    cost: float
    unit: str
    cost_model: str
    operators: list[OperatorCost]
    opaque: list[Opaque]
    nodes: list[NodeLine]


def inspection_document(lowered: Lowered, cost_model: CostModel) -> Inspection:
    """The document about a lowered model; operators in order of cost."""
    model, graph = lowered.model, lowered.graph
    priced = model_cost(lowered, cost_model)
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
    """Count and cost by operator, the most expensive first."""
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


def _named(name: str, types: Mapping[str, ValueType]) -> TypedName:
    return {"name": name, "type": type_text(types.get(name))}


def inspection_text(document: Inspection, *, nodes: bool = False) -> list[Table | str]:
    """What ``superopt inspect`` prints."""
    facts = table("", "", left=2)
    facts.show_header = False
    facts.add_row("model", document["source"])
    facts.add_row("opset", f"{document['opset']} (IR version {document['ir_version']})")
    if document["producer"]:
        facts.add_row("producer", document["producer"])
    facts.add_row(
        "bytes", f"{bytes_text(document['bytes'])}, {bytes_text(document['constant_bytes'])} of them constants"
    )
    for kind in ("inputs", "outputs"):
        for value in document["inputs"] if kind == "inputs" else document["outputs"]:
            facts.add_row(kind.removesuffix("s"), f"{printable(value['name'])}: {_type(value['type'])}")
    parts: list[Table | str] = [facts, "", _costs(document)]
    if document["opaque"]:
        left = table("left alone", "count", "because", left=1)
        left.columns[2].justify = "left"
        parts += ["", rows(left, ((one["operator"], str(one["count"]), one["reason"]) for one in document["opaque"]))]
    if nodes:
        every = table("value", "operator", "type", f"cost, {document['unit']}", left=3)
        lines = (
            (printable(one["name"]), printable(one["operator"]), _type(one["type"]), number(one["cost"]))
            for one in document["nodes"]
        )
        parts += ["", rows(every, lines)]
    return parts


def _costs(document: Inspection) -> Table:
    """The cost of a model by operator, the most expensive first."""
    total = document["cost"]
    made = table("operator", "count", f"cost ({document['cost_model']}, {document['unit']})", "share")
    for line in document["operators"]:
        share = f"{100 * line['cost'] / total:.1f} %" if total > 0 else ""
        made.add_row(line["operator"], str(line["count"]), number(line["cost"]), share)
    made.add_row("all", str(sum(line["count"] for line in document["operators"])), number(total), "")
    return made


def _type(text: str) -> str:
    """A type as people write it: symbols without their mark."""
    return text.replace("$", "")
