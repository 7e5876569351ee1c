"""What a model costs under several cost models, beside what it takes: the JSON document, and its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from rich.table import Table

from superopt.cost import CostBreakdown
from superopt.costs.profile import Profiled
from superopt.printable import printable
from superopt.reporting import render
from superopt.terms import type_text

FORMAT = "superopt costs 1"


class CostTotal(TypedDict):
    """A cost model, and what it says of the whole model; ``timed`` is the fraction of that which was measured."""

    name: str
    unit: str
    total: float
    timed: float


class CostLine(TypedDict):
    """Operators, or one of them: the costs by the models in order, and the measured milliseconds (None where the
    runtime runs no such node: it has been made part of another, or was left out). ``timed`` says by model whether the
    price was measured."""

    name: str
    operator: str
    type: str
    count: int
    body: bool
    costs: list[float]
    timed: list[bool]
    latency_ms: float | None


class Costs(TypedDict):
    """The document. ``latency_ms`` is that of the whole model, ``made`` are nodes that only the runtime has."""

    format: str
    source: str
    models: list[CostTotal]
    nodes: list[CostLine]
    made: list[CostLine]
    latency_ms: float | None
    profiled_ms: float | None
    untimed: str
    threads: int


def costs_document(
    source: str, breakdowns: Sequence[CostBreakdown], profiled: Sequence[Profiled] | None, latency: float | None,
    untimed: str, threads: int,
) -> Costs:  # fmt: skip
    """The document about breakdowns of the same model; ``latency`` in seconds, ``untimed`` says why there is none."""
    taken = {item.name: item for item in profiled or ()}
    lines: list[CostLine] = []
    for items in zip(*(breakdown.nodes for breakdown in breakdowns), strict=True):
        first = items[0]
        match = None if first.body else taken.pop(first.name, None)
        lines.append({
            "name": first.name,
            "operator": first.op,
            "type": type_text(first.type),
            "count": 1,
            "body": first.body,
            "costs": [item.cost for item in items],
            "timed": [item.timed for item in items],
            "latency_ms": None if match is None else 1e3 * match.seconds,
        })  # fmt: skip
    made = [_made(item, len(breakdowns)) for item in taken.values()]
    return {
        "format": FORMAT,
        "source": source,
        "models": [
            {"name": each.model, "unit": each.unit, "total": each.total, "timed": each.timed} for each in breakdowns
        ],
        "nodes": lines,
        "made": made,
        "latency_ms": None if latency is None else 1e3 * latency,
        "profiled_ms": None if profiled is None else 1e3 * sum(item.seconds for item in profiled),
        "untimed": untimed,
        "threads": threads,
    }


def _made(item: Profiled, models: int) -> CostLine:
    return {
        "name": item.name, "operator": item.op, "type": "", "count": 1, "body": False, "costs": [0.0] * models,
        "timed": [False] * models, "latency_ms": 1e3 * item.seconds,
    }  # fmt: skip


def by_operator(lines: Iterable[CostLine]) -> list[CostLine]:
    """Lines of one operator added up, the most expensive by the first model first."""
    found: dict[str, CostLine] = {}
    for line in lines:
        known = found.get(line["operator"])
        if known is None:
            found[line["operator"]] = {**line, "name": "", "type": "", "costs": list(line["costs"])}
            continue
        known["count"] += 1
        known["costs"] = [one + other for one, other in zip(known["costs"], line["costs"], strict=True)]
        if line["latency_ms"] is not None:
            known["latency_ms"] = (known["latency_ms"] or 0.0) + line["latency_ms"]
    return sorted(found.values(), key=lambda line: (-line["costs"][0], -(line["latency_ms"] or 0), line["operator"]))


def costs_text(document: Costs, *, nodes: bool) -> list[Table | str]:
    """What ``superopt cost`` prints: operators, or with ``nodes`` each node by itself."""
    models = document["models"]
    heads = [f"cost ({model['name']}, {model['unit']})" for model in models]
    timed = document["profiled_ms"] is not None
    lead = ["value", "operator", "type"] if nodes else ["operator"]
    tail = ["share"] if len(models) == 1 else []
    made = render.table(
        *lead, *([] if nodes else ["count"]), *heads, *tail, *(["measured (ms)"] if timed else []), left=len(lead)
    )
    lines = document["nodes"] if nodes else by_operator(document["nodes"])
    extra = document["made"] if nodes else by_operator(document["made"])
    for line in lines:
        made.add_row(*_lead(line, nodes), *_costs(line, document), *_share(line, models), *_measured(line, timed))
    for line in extra:
        lead_of = [printable(line["name"]), printable(line["operator"]), "by the runtime"] if nodes else []
        named = lead_of or [f"{printable(line['operator'])}, by the runtime", str(line["count"])]
        made.add_row(*named, *("" for _ in [*models, *tail]), *_measured(line, timed))
    totals = [render.number(model["total"]) for model in models]
    count = str(sum(line["count"] for line in document["nodes"]))
    profiled = [_milliseconds(document["profiled_ms"])] if timed else []
    made.add_row("all", *(["", ""] if nodes else [count]), *totals, *("" for _ in tail), *profiled)
    notes = [
        f"{model['name']}: {100 * model['timed']:.0f} % of the cost was measured here, the rest is by formula"
        + (" (marked ~)" if nodes else "")
        for model in models
        if any(line["timed"][models.index(model)] for line in document["nodes"]) or model["name"] == "measured"
    ]
    if document["latency_ms"] is not None:
        notes.append(f"whole model in onnxruntime: {_milliseconds(document['latency_ms'])} ms")
    elif document["untimed"]:
        notes.append(f"not timed: {document['untimed']}")
    return [made, *notes]


def _lead(line: CostLine, nodes: bool) -> list[str]:
    inside = " (in a body)" if line["body"] and nodes else ""
    if nodes:
        return [printable(line["name"]) + inside, printable(line["operator"]), line["type"].replace("$", "")]
    return [printable(line["operator"]), str(line["count"])]


def _costs(line: CostLine, document: Costs) -> list[str]:
    """The costs, marked where a model that measured others has a formula for this one."""
    shown = []
    for model, price, timed in zip(document["models"], line["costs"], line["timed"], strict=True):
        formula = model["timed"] > 0 and price > 0 and not timed and bool(line["name"])
        shown.append(f"{'~' if formula else ''}{render.number(price)}")
    return shown


def _share(line: CostLine, models: Sequence[CostTotal]) -> list[str]:
    if len(models) != 1:
        return []
    total = models[0]["total"]
    return [f"{100 * line['costs'][0] / total:.1f} %" if total > 0 else ""]


def _measured(line: CostLine, timed: bool) -> list[str]:
    return [_milliseconds(line["latency_ms"])] if timed else []


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
