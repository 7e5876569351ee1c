"""The report is JSON; the table is rendered from it and from nothing else."""

from __future__ import annotations

import copy
import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from superopt import report
from superopt.errors import OptionError
from superopt.report import ErrorMetrics, Report
from superopt.reporting import render
from superopt.reporting.report_text import report_text


def error(size: float) -> ErrorMetrics:
    return {"max_abs": size, "mean_abs": size, "max_rel": size, "mean_rel": size, "max_ulp": size, "mean_ulp": size}


DOCUMENT: Report = {
    "format": report.FORMAT,
    "versions": {"superopt": "0"},
    "source": "net.onnx",
    "opset": 17,
    "settings": {"provider": "CPUExecutionProvider"},
    "seed": 0,
    "rules": {"sets": ["default"], "hash": "0", "count": 3},
    "stopped_by": "saturated",
    "reproducible": True,
    "iterations": 2,
    "rule_runs": {"fold[x]": {"matches": 1, "seconds": 0.1}},
    "egraph": {"classes": 3, "nodes": 4},
    "choice": {"status": "optimal", "cost": 1.0, "bound": 1.0, "gap": 0.0, "byte_price": 0.0, "share": 0.02},
    "changed": True,
    "verified": True,
    "verified_by": "on 2 feeds",
    "truth": "float64",
    "feeds": ["seeded 0"],
    "problems": [],
    "left_out": [],
    "rules_used": ["fold[x]", "double-relu"],
    "opaque": [],
    "nodes": {"before": 4, "after": 2},
    "operators": {"Conv": {"before": 2, "after": 2}, "BatchNormalization": {"before": 2, "after": 0}},
    "bytes": {"before": 8_430_000, "after": 8_000_000},
    "cost": {"before": 2.5e-4, "after": 1.25e-4, "unit": "s", "model": "roofline", "hash": "0"},
    "latency": {
        "before": 12.0,
        "after": 4.0,
        "unit": "ms",
        "ratio": 1 / 3,
        "low": 0.3,
        "high": 0.4,
        "runs": 10,
        "rounds": 5,
        "sessions": 2,
        "noise": 0.031,
        "session_noise": 0.004,
        "tolerance": 0.005,
        "test": "sign",
    },
    "candidates": [],
    "outputs": [
        {
            "name": "scores[0]",
            "type": "float32[1,10]",
            "difference": error(2e-7),
            "original_error": error(1e-7),
            "new_error": error(3e-7),
            "noise": 1e-7,
            "problem": None,
            "top1": 1.0,
            "top5": 0.995,
        }
    ],
    "seconds": {"load": 0.1},
}


def printed(document: Report, target: str | None = "net.opt.onnx") -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=120, markup=False, emoji=False, highlight=False)
    for part in report_text(document, target):
        console.print(part)
    return stream.getvalue()


def changed(**parts: object) -> Report:
    made = copy.deepcopy(DOCUMENT)
    made.update(parts)  # type: ignore[typeddict-item]
    return made


def test_the_table_has_all_that_was_asked_for() -> None:
    words = [line.split() for line in printed(DOCUMENT).splitlines()]
    assert ["nodes", "4", "2", "-50.0", "%"] in words
    assert ["Conv", "2", "2"] in words
    assert ["BatchNormalization", "2", "0", "-2"] in words
    assert ["bytes", "8.43", "MB", "8", "MB", "-5.1", "%"] in words
    assert ["cost", "(roofline,", "s)", "0.00025", "0.000125", "-50.0", "%"] in words
    assert ["latency", "12", "ms", "4", "ms", "3.00x", "faster"] in words
    assert ["scores[0]", "1e-07", "3e-07", "2e-07", "(top-1", "100", "%,", "top-5", "99.5", "%)"] in words
    assert ["rules:", "fold[x],", "double-relu"] in words
    assert words[-1] == "net.onnx -> net.opt.onnx: 3.00x faster, verified: on 2 feeds".split()


def test_the_noise_of_measuring_and_a_long_extraction_are_said() -> None:
    text = printed(DOCUMENT)
    assert "5 rounds of 2 sessions each; noise: 3.1 % from round to round, 0.4 % between sessions" in text
    assert "extraction took" not in text
    assert DOCUMENT["choice"] is not None
    long = changed(choice={**DOCUMENT["choice"], "share": 0.3, "status": "effort", "gap": 0.02})
    assert "extraction took 30 % of the time without measuring (effort, gap 2 %)" in printed(long)


def test_what_went_wrong_is_said() -> None:
    text = printed(changed(verified=False, changed=False, problems=["output y differs"], outputs=[], latency=None))
    assert "problem: output y differs" in text
    assert text.endswith("net.onnx -> net.opt.onnx: could not be verified, this is the original\n")
    assert "latency" not in text
    assert "nothing better was found" in printed(changed(changed=False))
    assert DOCUMENT["latency"] is not None
    unclear = {**DOCUMENT["latency"], "before": 4.0, "after": 4.1, "ratio": 1.01, "low": 0.99, "high": 1.03}
    assert "4.1 ms  as fast, as far as the clock can tell" in printed(changed(latency=unclear))
    assert "left out: bad[x]: wrong" in printed(changed(left_out=[{"rule": "bad[x]", "because": "wrong"}]))
    assert "not reproducible: stopped by seconds" in printed(changed(reproducible=False, stopped_by="seconds"))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (812, "812 B"), (8_430_000, "8.43 MB"), (999_600, "1 MB"), (12_345_678_901, "12.3 GB")],
)
def test_sizes_have_a_unit(count: int, text: str) -> None:
    assert render.bytes_text(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.012344, "0.01234"), (1234567.0, "1,235,000"), (math.inf, "inf"), (999.9, "999.9")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert render.number(value) == text


def test_json_is_strict_and_keeps_what_json_lacks() -> None:
    text = report.to_json({"a": math.nan, "b": [math.inf, -math.inf], "c": (1, 0.5)})
    assert json.loads(text) == {"a": "nan", "b": ["inf", "-inf"], "c": [1, 0.5]}
    assert json.loads(report.to_json(DOCUMENT)) == DOCUMENT


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    report.write("{}\n", tmp_path / "r.json")
    assert (tmp_path / "r.json").read_text() == "{}\n"
    with pytest.raises(OptionError, match=r"r\.json: .*, expected a report file that can be written"):
        report.write("{}", tmp_path / "no" / "r.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OptionError, match="expected a report file"):
        report.write("{}", tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "r.json"]


def test_a_report_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "r.json"
    report.write("old", target)
    with pytest.raises(UnicodeEncodeError):
        report.write("new, up to \ud800", target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
