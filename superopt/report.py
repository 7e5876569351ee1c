"""What a run did, as one JSON document; everything that is printed about a run is rendered from it.

Numbers carry their unit in the name of their key or beside them: seconds, milliseconds (``ms``), bytes, e-nodes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from superopt.errors import OptionError
from superopt.models.model import replacing

FORMAT = "superopt report 1"
COMPARISON_FORMAT = "superopt comparison 1"


class BeforeAfter(TypedDict):
    """A count in the original and in the result."""

    before: int
    after: int


class Cost(TypedDict):
    """What the cost model says of the original and of the result."""

    before: float
    after: float
    unit: str
    model: str
    hash: str


class Latency(TypedDict):
    """Latencies of the original and of the result, taken in turn, in milliseconds: the original's median, and as much
    more or less as the result took.

    ``ratio`` is after over before (the median over pairs of runs, one right after the other), in its interval of 95 %
    from ``low`` to ``high``.
    """

    before: float
    after: float
    unit: str
    ratio: float
    low: float
    high: float
    runs: int


class TimedLatency(Latency):
    """How these latencies were taken.

    ``test`` is how it was told which is slower. ``noise`` is the relative standard deviation of one sample,
    ``session_noise`` that of one session of a model against another of the same model, each model in so many
    ``sessions``; below ``tolerance`` a difference counts as none.
    """

    rounds: int
    sessions: int
    noise: float
    session_noise: float
    tolerance: float
    test: str


class RuleRun(TypedDict):
    """What one rule did while saturating."""

    matches: int
    seconds: float


class ErrorMetrics(TypedDict):
    """The largest and the mean absolute, relative and ulp error of an output.

    Only elements that are finite on both sides count. Relative errors are of the reference, where it is not zero; a ulp
    is the distance to the next number of the output's element type at the reference.
    """

    max_abs: float
    mean_abs: float
    max_rel: float
    mean_rel: float
    max_ulp: float
    mean_ulp: float


class OutputCheck(TypedDict):
    """One output over all feeds.

    ``difference`` is the new model against the original, ``original_error`` and ``new_error`` are each against float64
    (None where there is no truth), ``noise`` is the most that the original moved by itself. ``top1`` and ``top5`` are
    shares of rows and of the five best classes, for what looks like class scores. ``problem`` says what speaks against
    the new model.
    """

    name: str
    type: str
    difference: ErrorMetrics | None
    original_error: ErrorMetrics | None
    new_error: ErrorMetrics | None
    noise: float
    top1: float | None
    top5: float | None
    problem: str | None


class Candidate(TypedDict):
    """A model that was considered: what the cost model says, what the clock says (``ratio`` as in ``Latency``), and
    what became of it."""

    name: str
    cost: float
    bytes: int
    latency_ms: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str


class LeftOut(TypedDict):
    """A rule that its law refutes or that verification found guilty, and of what."""

    rule: str
    because: str


class Opaque(TypedDict):
    """Operators that were left alone, and why."""

    operator: str
    count: int
    reason: str


class EGraphSize(TypedDict):
    """The size of the saturated e-graph."""

    classes: int
    nodes: int


class ChoiceSummary(TypedDict):
    """How extraction ended: its status, its proven lower bound, the gap to it, and the price of a byte it went by.

    ``share`` is what extraction took of the run's time, proposing and measuring other candidates left out.
    """

    status: str
    cost: float
    bound: float
    gap: float
    byte_price: float
    share: float


class Rules(TypedDict):
    """The rules of a run: what they are called together, a hash of their content, and how many there are."""

    sets: list[str]
    hash: str
    count: int


class Report(TypedDict):
    """The document."""

    format: str
    versions: dict[str, str]
    source: str
    opset: int
    settings: dict[str, Any]
    seed: int
    rules: Rules
    stopped_by: str
    reproducible: bool
    iterations: int
    rule_runs: dict[str, RuleRun]
    egraph: EGraphSize | None
    choice: ChoiceSummary | None
    changed: bool
    verified: bool
    verified_by: str
    regions: int | None
    truth: str
    feeds: list[str]
    problems: list[str]
    left_out: list[LeftOut]
    rules_used: list[str]
    opaque: list[Opaque]
    nodes: BeforeAfter
    operators: dict[str, BeforeAfter]
    bytes: BeforeAfter
    cost: Cost
    latency: TimedLatency | None
    candidates: list[Candidate]
    outputs: list[OutputCheck]
    seconds: dict[str, float]


class ComparisonDocument(TypedDict):
    """The document about two models that were compared."""

    format: str
    versions: dict[str, str]
    original: str
    new: str
    numeric: str
    seed: int
    agree: bool
    reason: str
    truth: str
    feeds: list[str]
    outputs: list[OutputCheck]
    seconds: dict[str, float]


def to_json(document: Mapping[str, Any]) -> str:
    """The document as JSON text, with numbers that JSON lacks as text (``"nan"``, ``"inf"``, ``"-inf"``)."""
    text = json.dumps(_strict(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # A lone surrogate has no place in UTF-8: it is written as JSON escapes it, which is as Python does.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write(text: str, path: str | os.PathLike[str]) -> None:
    """Writes a report so that it is there whole or not at all; what is there and is no file (a pipe, a device) is
    written into. Raises ``OptionError`` where it cannot be written."""
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        with replacing(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{target}: {error.strerror or error}, expected a report file that can be written") from error


def _strict(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {str(key): _strict(one) for key, one in value.items()}
        case list() | tuple():
            return [_strict(one) for one in value]
        case _:
            return value
