"""How two models compare: the JSON document, and its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from superopt.options import Options
from superopt.printable import printable
from superopt.report import COMPARISON_FORMAT, ComparisonDocument, ErrorMetrics, OutputCheck
from superopt.reporting.render import rows, table
from superopt.verification.verify import Verification
from superopt.version import versions


def comparison_document(
    original: str, new: str, verification: Verification, options: Options, seconds: Mapping[str, float]
) -> ComparisonDocument:
    """The document about the models of two files; ``seconds`` by stage."""
    return {
        "format": COMPARISON_FORMAT,
        "versions": versions(),
        "original": original,
        "new": new,
        "numeric": options.numeric,
        "seed": options.seed,
        "agree": verification.agree,
        "reason": verification.reason,
        "truth": verification.truth,
        "feeds": list(verification.feeds),
        "outputs": list(verification.outputs),
        "seconds": dict(seconds),
    }


def comparison_text(document: ComparisonDocument) -> list[Table | str]:
    """What ``superopt verify`` prints."""
    made = table("largest error against float64", "original", "new", "difference")
    verdict = "agree" if document["agree"] else "do not agree"
    sentence = f"{document['original']} and {document['new']} {verdict}: {document['reason']}"
    truth = [f"truth: {document['truth']}"] if document["truth"].startswith("none") else []
    return [rows(made, error_rows(document["outputs"])), *truth, sentence]


def error_rows(outputs: Sequence[OutputCheck]) -> Iterable[tuple[str, str, str, str]]:
    """A line for each output: its name, the largest error of the original and of the new model, and the difference."""
    for output in outputs:
        yield (
            f"  {printable(output['name'])}",
            _error(output["original_error"]),
            _error(output["new_error"]),
            _error(output["difference"]) + _agreement(output["top1"], output["top5"]),
        )


def _error(error: ErrorMetrics | None) -> str:
    return "-" if error is None else f"{error['max_abs']:.2g}"


def _agreement(top1: float | None, top5: float | None) -> str:
    parts = [f"{name} {100 * share:.4g} %" for name, share in (("top-1", top1), ("top-5", top5)) if share is not None]
    return f" ({', '.join(parts)})" if parts else ""
