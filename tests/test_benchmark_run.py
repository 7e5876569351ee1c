"""The benchmark of the product: outputs are compared, models are timed in turn, what fails is a line of the table."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console

from benchmarks import models, peers, run, zoo
from benchmarks import race as races
from benchmarks.network import TINY
from benchmarks.peers import ORIGINAL, OURS, Ran
from benchmarks.race import Outputs, Race, race
from benchmarks.run import Row
from benchmarks.suite import SUITE, Case
from tests.models import feed, from_text, tiny


def test_every_model_of_the_suite_can_be_had() -> None:
    shipped = {listed.name for listed in zoo.listed()}
    for case in SUITE.values():
        assert case.file in shipped if case.file else case.name in models.BUILDERS
    wanted = {"mobileone-s0": 3.0, "repvgg-a0": 1.08, "densenet121": 1.04, "bert": 1.1, "whisper80": 5.0}
    assert {name: SUITE[name].wanted for name in wanted} == wanted


def test_shapes_of_the_suite_are_those_of_inputs() -> None:
    for case in SUITE.values():
        if case.shapes and not case.file:
            assert set(case.shapes) == {given.name for given in models.build(case.name, size=TINY).graph.input}


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ({"y": np.array([1, -4], np.float32)}, 0.0),
        ({"y": np.array([1, -3], np.float32)}, 0.25),
        ({"y": np.array([1, -4], np.float64)}, math.inf),
        ({"y": np.array([[1, -4]], np.float32)}, math.inf),
        ({"y": np.array([1, np.nan], np.float32)}, math.inf),
        ({"z": np.array([1, -4], np.float32)}, math.inf),
        ({}, math.inf),
    ],
)
def test_outputs_are_compared_at_their_scale(found: dict[str, np.ndarray], error: float) -> None:
    assert run.compared({"y": np.array([1, -4], np.float32)}, found) == error


def test_what_is_not_finite_or_no_float_has_to_be_the_same() -> None:
    odd = np.array([np.nan, np.inf, 1], np.float32)
    assert run.compared({"y": odd}, {"y": odd.copy()}) == 0.0
    assert run.compared({"y": odd}, {"y": -odd}) == math.inf
    labels = np.array([1, 2])
    assert run.compared({"y": labels}, {"y": labels.copy()}) == 0.0
    assert run.compared({"y": labels}, {"y": labels + 1}) == math.inf
    assert run.compared({"y": np.zeros(2, np.float32)}, {"y": np.ones(2, np.float32)}) == math.inf


def test_models_are_timed_in_turn_and_one_that_does_not_run_is_named(tmp_path: Path) -> None:
    model = tiny("squeezenet")
    onnx.save(model, tmp_path / "right.onnx")
    (tmp_path / "wrong.onnx").write_bytes(b"no model")
    inputs = feed(model)
    right, wrong = tmp_path / "right.onnx", tmp_path / "wrong.onnx"
    timed = race([right, wrong, right], [inputs, inputs], rounds=3)
    assert timed.samples[1] is None
    assert timed.errors[0] == "" != timed.errors[1]
    for index in (0, 2):
        seconds = timed.samples[index]
        assert seconds is not None
        assert len(seconds) == 3
        assert min(seconds) > 0
        low, middle, high = timed.faster(index)
        assert 0 < low <= middle <= high
        assert len(timed.outputs[index]) == 2
        least, most = timed.interval(index)
        assert least <= middle <= most
    assert timed.faster(0) == (1.0, 1.0, 1.0)
    assert run.compared(timed.outputs[0][0], timed.outputs[2][0]) == 0.0


def test_a_tool_that_is_not_there_or_fails_is_a_line_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(peers.TOOLS, "gone", peers.Tool("no-such-package", "no_such_module", lambda *_: None))
    assert peers.run("gone", tmp_path / "in", tmp_path / "out", tmp_path / "feed", timeout=9) == Ran(error=peers.ABSENT)
    failed = peers.run(ORIGINAL, tmp_path / "in", tmp_path / "out", tmp_path / "feed", timeout=60)
    assert "FileNotFoundError" in failed.error

    rows = run.measured(Case("squeezenet"), ["gone"], tmp_path, rounds=1, size=TINY)
    assert [(row.tool, row.problem) for row in rows] == [(ORIGINAL, ""), ("gone", peers.ABSENT)]
    assert rows[0].error < 1e-5
    console = Console(width=200, record=True)
    console.print(run.table(rows), run.long_table(rows))
    assert peers.ABSENT in console.export_text()


def test_a_wrong_result_is_called_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ruined(tool: str, source: Path, target: Path, feed: Path, *, timeout: float) -> Ran:
        model = onnx.load(source)
        if tool == OURS:
            model.graph.node[0].op_type = "Neg"
        onnx.save(model, target)
        return Ran(1.0, "1")

    monkeypatch.setattr(peers, "run", ruined)
    monkeypatch.setattr(Case, "write", lambda self, path, size: onnx.save(RELU, path))
    rows = run.measured(Case("bert"), [OURS], tmp_path, rounds=1)
    assert [row.error <= run.WRONG for row in rows] == [True, False]
    assert rows[1].text.startswith("wrong")
    assert [held for _, held in run.claims(rows)] == [False]


RELU = from_text("g (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }")


def test_claims_are_of_the_median() -> None:
    def row(tool: str, faster: float, error: float = 1e-6, problem: str = "") -> Row:
        return Row("bert", tool, "1", 1, 1, 1.0, 1.0, (faster - 0.1, faster, faster + 0.1), error, problem)

    original = row(ORIGINAL, 1.0)
    (held,) = run.claims([original, row(OURS, 1.11), row("onnxsim", 1.05), row("onnxslim", 1.07)])
    assert held[1]
    assert "onnxslim with 1.07" in held[0]
    assert not run.claims([original, row(OURS, 1.09)])[0][1]
    assert not run.claims([original, row(OURS, 1.2, problem="no")])[0][1]
    assert "onnxsim" not in run.claims([original, row(OURS, 1.2), row("onnxsim", 9.0, error=1.0)])[0][0]


def test_an_interval_holds_the_medians_of_the_legs() -> None:
    mine = (1.0,) * 8 + (0.8,) * 2
    found = Race(((1.0,) * 10, mine), ((), ()), ("", ""), leg=8)
    assert found.faster(1)[1] == 1.0
    assert found.interval(1) == (1.0, 1.25)
    assert found.interval(0) == (1.0, 1.0)
    few = Race(((1.0,) * 3, mine[:3]), ((), ()), ("", ""), leg=8)
    assert few.interval(1) == (0.0, math.inf)


def test_more_legs_are_run_while_the_interval_of_the_watched_is_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    orders: list[list[Path]] = [[]]
    spread = [0.0]

    class Runner:
        def __init__(self, model: Path, *_: object) -> None:
            self.model = model
            started.append(model)

        def ready(self) -> tuple[float, tuple[Outputs, ...]]:
            return 1.0, ()

        def sample(self, repeats: int) -> float:
            if len(orders[-1]) == 2:
                orders.append([])
            orders[-1].append(self.model)
            # The second model takes another time in every leg.
            return 1.0 if self.model.name == "a" else 1 + spread[0] * (len(started) // 2)

        def stop(self) -> None:
            pass

    monkeypatch.setattr(races, "_Runner", Runner)
    for differing, legs in ((0.0, 3), (0.1, 6)):
        spread[0] = differing
        started.clear()
        timed = race([Path("a"), Path("b")], [], rounds=24, watched=1)
        assert len(started) == 2 * legs
        assert len(timed.samples[0] or ()) == 8 * legs
    # Each order is followed by the same one backwards.
    assert all(first == second[::-1] for first, second in zip(orders[::2], orders[1::2], strict=True))


def test_only_an_interval_that_is_below_says_slower() -> None:
    def claim(model: str, median: float, high: float) -> bool:
        ours = Row(model, OURS, faster=(median, median, median), error=0.0, interval=(median - 0.01, high))
        ((_, held),) = run.claims([ours])
        return held

    assert claim("resnet50", 0.977, 0.985)
    assert not claim("resnet50", 0.95, 0.97)
    assert not claim("bert", 1.09, 1.2)  # what is claimed to be faster is so by its median


def test_a_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def quick(case: Case, tools: list[str], folder: Path, **settings: object) -> list[Row]:
        asked.append(case.name)
        problem = "broken" if case.name == "bert" and len(asked) == 2 else ""
        return [
            Row(case.name, ORIGINAL, error=0.0),
            Row(case.name, OURS, faster=(1, 5.5, 6), error=0.0, problem=problem),
        ]

    monkeypatch.setattr(run, "measured", quick)
    kept = tmp_path / "results.json"
    words = ["run", "--json", str(kept), "--rounds", "3", "--models"]
    monkeypatch.setattr(sys, "argv", [*words, "resnet50", "bert"])
    assert run.main() == 1
    monkeypatch.setattr(sys, "argv", [*words, "resnet50", "bert", "squeezenet"])
    assert run.main() == 0
    assert asked == ["resnet50", "bert", "bert", "squeezenet"]  # what failed is tried again
    assert "5.50" in capsys.readouterr().out
    assert set(json.loads(kept.read_text())["models"]) == {"resnet50", "bert", "squeezenet"}
    monkeypatch.setattr(sys, "argv", [*words, "resnet50", "--seed", "1"])
    run.main()
    assert asked[-1] == "resnet50"  # of other settings nothing is kept


@pytest.mark.parametrize("words", [["--models", "none-such"], ["--tools", "none-such"], ["--rounds", "0"]])
def test_names_that_are_not_known_are_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run", *words])
    with pytest.raises(SystemExit) as stopped:
        run.main()
    assert stopped.value.code == 2
