"""The documents of an experiment: all cells and the contributions of what was left out, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from superopt.experiment.cell import CellDocument, Figures
from superopt.version import versions

FORMAT = "superopt experiment 1"


class Contribution(TypedDict):
    """What a rule or a family brings: by how much the cost is higher without it (in the cost model's unit, and as a
    fraction of the original's cost), and how many e-nodes and seconds of saturation it takes. ``verified`` is whether
    what all rules together made may stand for the original, None where that was not asked: without it, what a rule
    brings is worth nothing."""

    model: str
    rules: str
    cost_model: str
    limit: dict[str, int | float]
    left_out: str
    cost: float
    share: float
    e_nodes: int
    seconds: float
    verified: bool | None


class ExperimentDocument(TypedDict):
    """The whole experiment; ``contributions`` are empty where nothing was left out. ``unfinished`` counts
    cells that have not been measured yet, of those that are known of: 0 in the end."""

    format: str
    versions: dict[str, str]
    grid: dict[str, Any]
    leave_one_out: str | None
    unfinished: int
    cells: list[CellDocument]
    contributions: list[Contribution]


def document(
    grid: dict[str, Any], leave_one_out: str | None, base: Sequence[CellDocument], less: Sequence[CellDocument],
    unfinished: int = 0,
) -> ExperimentDocument:  # fmt: skip
    """The cells of the grid and those with something left out, and what that comes to."""
    whole = {_place(cell): cell for cell in base}
    contributions = [made for cell in less if (made := _contribution(whole[_place(cell)], cell)) is not None]
    contributions.sort(key=lambda line: -line["share"])
    return {
        "format": FORMAT,
        "versions": versions(),
        "grid": grid,
        "leave_one_out": leave_one_out,
        "unfinished": unfinished,
        "cells": [*base, *less],
        "contributions": contributions,
    }


def _place(cell: CellDocument) -> tuple[str, str, str, str]:
    return cell["model"], cell["rules"], cell["cost_model"], str(sorted(cell["limit"].items()))


def _contribution(whole: CellDocument, cell: CellDocument) -> Contribution | None:
    with_it, without = whole["figures"], cell["figures"]
    if with_it is None or without is None or cell["left_out"] is None:
        return None
    more = without["cost"]["after"] - with_it["cost"]["after"]
    before = with_it["cost"]["before"]
    return {
        "model": cell["model"],
        "rules": cell["rules"],
        "cost_model": cell["cost_model"],
        "limit": cell["limit"],
        "left_out": cell["left_out"],
        "cost": more,
        "share": more / before if before else 0.0,
        "e_nodes": with_it["e_nodes"][-1] - without["e_nodes"][-1],
        "seconds": round(with_it["seconds"]["saturate"] - without["seconds"]["saturate"], 6),
        "verified": None if with_it["verified"] is None else with_it["verified"]["agree"],
    }


STAGES = ("load", "rules", "lower", "sample", "saturate", "extract", "materialize", "emit", "verify", "measure")


def to_csv(made: ExperimentDocument) -> str:
    """A line for each cell; lists are joined by spaces, what a cell does not have is empty."""
    text = io.StringIO()
    rows = [_row(cell) for cell in made["cells"]]
    writer = csv.DictWriter(text, list(_row(_EMPTY)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_EMPTY: CellDocument = {
    "format": "", "key": "", "model": "", "rules": "", "left_out": None, "cost_model": "", "limit": {},
    "failure": None, "wall_seconds": 0.0, "figures": None,
}  # fmt: skip


def _row(cell: CellDocument) -> dict[str, object]:
    figures: Mapping[str, Any] = cell["figures"] or {}
    verified, latency = figures.get("verified") or {}, figures.get("latency") or {}
    cost, nodes, size = figures.get("cost", {}), figures.get("nodes", {}), figures.get("bytes", {})
    seconds = figures.get("seconds", {})
    return {
        "model": cell["model"],
        "rules": cell["rules"],
        "left_out": cell["left_out"],
        "cost_model": cell["cost_model"],
        "limit": " ".join(f"{name}={value}" for name, value in cell["limit"].items()),
        "failure": cell["failure"],
        "stopped_by": figures.get("stopped_by"),
        "iterations": figures.get("iterations"),
        "e_nodes": " ".join(map(str, figures.get("e_nodes", ()))),
        "e_classes": " ".join(map(str, figures.get("e_classes", ()))),
        "rules_matched": len(figures["matches"]) if figures else None,
        "matches": sum(figures["matches"].values()) if figures else None,
        "cost_before": cost.get("before"),
        "cost_after": cost.get("after"),
        "unit": figures.get("unit"),
        "objective": figures.get("objective"),
        "bound": figures.get("bound"),
        "gap": figures.get("gap"),
        "status": figures.get("status"),
        "nodes_before": nodes.get("before"),
        "nodes_after": nodes.get("after"),
        "bytes_before": size.get("before"),
        "bytes_after": size.get("after"),
        "verified": verified.get("agree"),
        "original_error": verified.get("original_error"),
        "new_error": verified.get("new_error"),
        "difference": verified.get("difference"),
        "latency_before_ms": latency.get("before"),
        "latency_after_ms": latency.get("after"),
        "latency_ratio": latency.get("ratio"),
        **{f"seconds_{stage}": seconds.get(stage) for stage in STAGES},
        "wall_seconds": cell["wall_seconds"],
        "key": cell["key"],
    }


def rows(made: ExperimentDocument) -> Iterator[tuple[str, ...]]:
    """The cells as lines of a table for people; with what was left out they stand in the contributions."""
    for cell in made["cells"]:
        if cell["left_out"] is None:
            unit = f", {cell['figures']['unit']}" if cell["figures"] is not None else ""
            name = (Path(cell["model"]).name, cell["rules"], cell["cost_model"] + unit, _limit(cell["limit"]))
            yield (*name, *_figures(cell["figures"], cell["failure"]))


def contribution_rows(made: ExperimentDocument) -> Iterator[tuple[str, ...]]:
    """The contributions as lines of a table for people, the largest first."""
    for line in made["contributions"]:
        name = (Path(line["model"]).name, line["rules"], line["cost_model"], _limit(line["limit"]), line["left_out"])
        yield (
            *name,
            f"{100 * line['share']:+.2f} %",
            f"{line['e_nodes']:+d}",
            f"{line['seconds']:+.2f}",
            _doubt(line["verified"]),
        )


def _doubt(verified: bool | None) -> str:
    return "of a result that is not verified" if verified is False else ""


def _limit(limit: Mapping[str, int | float]) -> str:
    return ",".join(f"{name}={value}" for name, value in limit.items()) or "default"


def _figures(figures: Figures | None, failure: str | None) -> tuple[str, ...]:
    if figures is None:
        return ("", "", "", "", "", "", "", f"failed: {failure}")
    before, after = figures["cost"]["before"], figures["cost"]["after"]
    change = f"{100 * (after / before - 1):+.1f} %" if before else ""
    verified, latency = figures["verified"], figures["latency"]
    notes = [] if verified is None else ["verified" if verified["agree"] else f"not verified: {verified['reason']}"]
    notes += [] if latency is None else [f"{1 / latency['ratio']:.2f}x faster"]
    return (
        f"{figures['e_nodes'][-1]}", f"{figures['e_classes'][-1]}", f"{figures['seconds']['saturate']:.2f}",
        f"{before:.4g}", f"{after:.4g}", change, f"{100 * figures['gap']:.2g} %",
        ", ".join([figures["stopped_by"], *notes]),
    )  # fmt: skip
