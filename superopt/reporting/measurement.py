"""What ``superopt measure`` has timed: the JSON document, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from superopt.costs.database import Place
from superopt.costs.filling import FillCounts

FORMAT = "superopt measurement 1"


class Untimed(TypedDict):
    """An instance that cannot be timed, and why."""

    instance: str
    reason: str


class Measurement(TypedDict):
    """The document: how many instances were timed now, were known before, and were left when the time was over."""

    format: str
    sources: list[str]
    place: str
    database: str
    timed: int
    known: int
    left: int
    failed: list[Untimed]
    total: int
    seconds: float
    output: str | None


def measurement_document(
    sources: Sequence[str], place: Place, database: Path, filled: FillCounts, total: int, seconds: float,
    output: str | None,
) -> Measurement:  # fmt: skip
    """The document about filling a database, which has ``total`` instances of the place now."""
    return {
        "format": FORMAT,
        "sources": list(sources),
        "place": str(place),
        "database": str(database),
        "timed": filled.timed,
        "known": filled.known,
        "left": filled.left,
        "failed": [{"instance": name, "reason": reason} for name, reason in filled.failed.items()],
        "total": total,
        "seconds": seconds,
        "output": output,
    }


def measurement_text(document: Measurement) -> list[str]:
    """What ``superopt measure`` prints."""
    lines = [f"{item['instance']}: not timed: {item['reason']}" for item in document["failed"]]
    left = f", {document['left']} left for another time (--seconds)" if document["left"] else ""
    lines.append(
        f"{document['timed']} operator instances timed in {document['seconds']:.0f} s, {document['known']} known"
        f" before{left}"
    )
    lines.append(f"{document['total']} in {document['database']} for {document['place']}")
    if document["output"] is not None:
        lines.append(f"{document['output']}: a cost model of them")
    return lines
