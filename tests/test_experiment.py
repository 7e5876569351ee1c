"""Experiments: what a cell records, that failures and kills lose nothing, and what leaving rules out tells."""

from __future__ import annotations

import csv
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import onnx
import pytest
from joblib.parallel import BatchedCalls, ThreadingBackend
from onnx import TensorProto, helper, numpy_helper

from superopt.errors import ModelError, OptionError
from superopt.experiment.cell import CellDocument
from superopt.experiment.grid import Cell, Grid, named_rules
from superopt.experiment.run import Workers, experiment
from superopt.experiment.store import Store
from superopt.experiment.table import ExperimentDocument, contribution_rows

ROOT = Path(__file__).resolve().parent.parent
ALONE = Workers(jobs=1)

RULES = """
group same = Relu, Abs
rule two-scales: reassociates
  Add(Mul(x, c), Mul(x, d)) => Mul(x, Add(c, d))
  only if constant(c, d)
rule twice: exact
  F(F(x)) => F(x)
  for F in same
rule never: exact
  Neg(Neg(x)) => x
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with ``model.onnx``, Relu(Relu(2 x + 3 x)), and ``mine.rules``, two of whose rules match in it."""
    weights = [numpy_helper.from_array(np.full(8, value, np.float32), name) for name, value in (("c", 2), ("d", 3))]
    nodes = [
        helper.make_node("Mul", ["x", "c"], ["xc"]),
        helper.make_node("Mul", ["x", "d"], ["xd"]),
        helper.make_node("Add", ["xc", "xd"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "scales", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    (tmp_path / "mine.rules").write_text(RULES, encoding="utf-8")
    return tmp_path


def grid(folder: Path, **given: object) -> Grid:
    return replace(Grid((str(folder / "m.onnx"),), (str(folder / "mine.rules"),), ("nodes",)), **given)  # type: ignore[arg-type]


def cells(made: ExperimentDocument) -> list[CellDocument]:
    assert [cell["failure"] for cell in made["cells"]] == [None] * len(made["cells"])
    return made["cells"]


def test_a_cell_records_every_stage(folder: Path) -> None:
    (cell,) = cells(experiment(grid(folder), folder / "out", workers=ALONE))
    figures = cell["figures"]
    assert figures is not None
    assert (figures["cost"], figures["nodes"]) == ({"before": 5, "after": 2}, {"before": 5, "after": 2})
    assert figures["bound"] <= figures["objective"]
    assert (figures["e_nodes"][0], figures["e_classes"][0]) == (8, 8)
    assert len(figures["e_nodes"]) == len(figures["e_classes"]) == figures["iterations"] + 1
    assert set(figures["matches"]) == {"two-scales", "twice[Relu]"}
    assert figures["matches"]["two-scales"] == 1
    assert set(figures["rule_seconds"]) == {"two-scales", "twice[Relu]"}
    assert {"load", "lower", "saturate", "extract", "emit", "verify"} <= set(figures["seconds"])
    verified = figures["verified"]
    assert verified is not None
    assert verified["agree"]
    assert verified["new_error"] is not None
    assert figures["latency"] is None


def test_latency_is_measured_where_it_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.experiment.cell.SECONDS", 0.2)
    (cell,) = cells(experiment(grid(folder, latency=True, verify=False), folder / "out", workers=ALONE))
    assert cell["figures"] is not None
    assert cell["figures"]["latency"] is not None
    assert cell["figures"]["latency"]["before"] > 0
    assert cell["figures"]["verified"] is None


def test_every_combination_is_a_cell_and_a_line(folder: Path) -> None:
    wide = grid(folder, costs=("nodes", "flops"), limits=({"iterations": 1}, {"iterations": 2}), verify=False)
    made = experiment(wide, folder / "out", workers=ALONE)
    places = [(cell["cost_model"], cell["limit"]["iterations"]) for cell in cells(made)]
    assert places == [("nodes", 1), ("nodes", 2), ("flops", 1), ("flops", 2)]
    with (folder / "out" / "experiment.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["cost_model"], line["limit"]) for line in lines] == [(c, f"iterations={i}") for c, i in places]
    assert lines[1]["cost_after"] == "2.0"
    assert json.loads((folder / "out" / "experiment.json").read_text(encoding="utf-8")) == json.loads(json.dumps(made))


@pytest.mark.parametrize("by", ["rules", "families"])
def test_leaving_out_tells_what_each_brings(folder: Path, by: str) -> None:
    made = experiment(grid(folder), folder / "out", leave_one_out=by, workers=ALONE)  # type: ignore[arg-type]
    brought = {line["left_out"]: (line["cost"], line["share"]) for line in made["contributions"]}
    if by == "rules":
        # What never matched need not be left out; the members of a family go together.
        assert brought == {"two-scales": (2.0, 0.4), "twice": (1.0, 0.2)}
    else:
        assert brought == {"mine": (3.0, 0.6)}
    assert len(cells(made)) == 1 + len(brought)


def test_finished_cells_are_not_run_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = grid(folder, verify=False)
    first = experiment(narrow, folder / "out", workers=ALONE)
    ran: list[Cell] = []
    monkeypatch.setattr("superopt.experiment.run.run_cell", lambda cell: ran.append(cell))
    assert experiment(narrow, folder / "out", workers=ALONE) == first
    assert ran == []


def test_the_key_is_of_the_content(folder: Path) -> None:
    (cell,) = grid(folder).cells()
    (same,) = grid(folder).cells()
    assert same.key == cell.key
    text = (folder / "mine.rules").read_text(encoding="utf-8")
    (folder / "other.rules").write_text(text, encoding="utf-8")
    (renamed,) = grid(folder, rules=(str(folder / "other.rules"),)).cells()
    assert renamed.key == cell.key
    (folder / "other.rules").write_text(text.replace("Relu, Abs", "Relu"), encoding="utf-8")
    changed = [
        grid(folder, rules=(str(folder / "other.rules"),)),
        grid(folder, costs=("flops",)),
        grid(folder, limits=({"iterations": 1},)),
        grid(folder, verify=False),
        grid(folder, common=replace(grid(folder).common, seed=1)),
    ]
    model = onnx.load(folder / "m.onnx")
    model.graph.initializer[0].raw_data = np.full(8, 5, np.float32).tobytes()
    onnx.save(model, folder / "n.onnx")
    changed.append(grid(folder, models=(str(folder / "n.onnx"),)))
    keys = [next(iter(one.cells())).key for one in changed]
    assert len({*keys, cell.key}) == len(changed) + 1


def test_a_failing_cell_is_recorded_and_the_others_are_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = __import__("superopt.experiment.cell", fromlist=["extract"]).extract

    def extract(saturated: object, cost: object, **given: object) -> object:
        if getattr(cost, "name", "") == "flops":
            raise MemoryError("no room")
        return real(saturated, cost, **given)

    monkeypatch.setattr("superopt.experiment.cell.extract", extract)
    made = experiment(grid(folder, costs=("flops", "nodes")), folder / "out", leave_one_out="rules", workers=ALONE)
    assert [cell["failure"] for cell in made["cells"][:2]] == ["MemoryError: no room", None]
    assert {line["cost_model"] for line in made["contributions"]} == {"nodes"}
    assert "MemoryError: no room" in (folder / "out" / "experiment.csv").read_text(encoding="utf-8")


def test_rule_sets_are_joined_by_plus(folder: Path) -> None:
    both = named_rules(f"{folder / 'mine.rules'}+identity")
    assert len(both) == len(named_rules(str(folder / "mine.rules"))) + len(named_rules("identity"))


@pytest.mark.parametrize("left", ["", "{", "[]", "{}", '{"format": "superopt experiment cell 1"}', 100_000 * "["])
def test_a_cell_that_is_not_whole_is_measured_again(folder: Path, left: str) -> None:
    first = experiment(grid(folder, verify=False), folder / "out", workers=ALONE)
    (path,) = (folder / "out" / "cells").glob("*.json")
    whole = path.read_text(encoding="utf-8")
    path.write_text(left or whole[:-20], encoding="utf-8")
    again = experiment(grid(folder, verify=False), folder / "out", workers=ALONE)
    assert json.loads(path.read_text(encoding="utf-8"))["key"] == first["cells"][0]["key"]
    assert cells(again)[0]["figures"] is not None


def test_a_model_that_cannot_be_read_fails_by_itself(folder: Path) -> None:
    (folder / "cut.onnx").write_bytes((folder / "m.onnx").read_bytes()[:-30])
    models = tuple(str(folder / name) for name in ("cut.onnx", "m.onnx", "none.onnx"))
    made = experiment(grid(folder, models=models, verify=False), folder / "out", leave_one_out="rules", workers=ALONE)
    failures = [cell["failure"] for cell in made["cells"][:3]]
    assert failures[1] is None
    assert all(failure is not None and failure.startswith("ModelError: ") for failure in failures[::2])
    assert {line["model"] for line in made["contributions"]} == {models[1]}
    with pytest.raises(ModelError, match=r"cut\.onnx"):
        experiment(grid(folder, models=models[::2]), folder / "out", workers=ALONE)


def test_what_brings_a_result_that_is_not_verified_is_marked(folder: Path) -> None:
    (folder / "wrong.rules").write_text("rule gone: exact\n  Relu(x) => x\n", encoding="utf-8")
    wrong = grid(folder, rules=(str(folder / "mine.rules"), str(folder / "wrong.rules")))
    made = experiment(wrong, folder / "out", leave_one_out="rules", workers=ALONE)
    marks = {line[4]: line[-1] for line in contribution_rows(made)}
    assert marks == {"gone": "of a result that is not verified", "two-scales": "", "twice": ""}
    assert {line["left_out"]: line["verified"] for line in made["contributions"]}["gone"] is False


@pytest.mark.parametrize("jobs", [0, -2])
def test_jobs_that_are_none_are_one_line(jobs: int) -> None:
    with pytest.raises(OptionError, match=f"jobs: {jobs} is out of range, expected a whole number"):
        Workers(jobs)


def test_tables_are_written_as_cells_are_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.experiment.run._PAUSE", 0.0)
    monkeypatch.setattr("superopt.experiment.run._PAUSES", 0.0)
    seen: list[tuple[int, int]] = []

    def look(finished: int, count: int, cell: Cell, document: CellDocument) -> None:
        written = json.loads((folder / "out" / "experiment.json").read_text(encoding="utf-8"))
        seen.append((len(written["cells"]), written["unfinished"]))

    limits = tuple({"iterations": count} for count in (1, 2, 3))
    made = experiment(grid(folder, limits=limits, verify=False), folder / "out", workers=ALONE, progress=look)
    assert seen == [(1, 2), (2, 1), (3, 0)]
    assert made["unfinished"] == 0


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_experiment_goes_on_where_it_was(folder: Path, by: signal.Signals) -> None:
    limits = [word for count in range(1, 9) for word in ("--limit", f"iterations={count}")]
    code = "import sys; from superopt.cli.main import main; main(sys.argv[1:])"
    words = ["experiment", "m.onnx", "--rules", "mine.rules", "--cost", "nodes", *limits, "-o", "out"]
    command = [sys.executable, "-c", code, *words, "--jobs"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    process = subprocess.Popen([*command, "1"], cwd=folder, env=environment, stderr=subprocess.PIPE)
    kept = folder / "out" / "cells"
    while process.poll() is None and len(list(kept.glob("*.json"))) < 2:
        time.sleep(0.002)
    process.send_signal(by)
    _, complaint = process.communicate()
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in kept.glob("*.json")}
    assert 2 <= len(before) < 8
    left = json.loads((folder / "out" / "experiment.json").read_text(encoding="utf-8"))
    assert 1 <= len(left["cells"]) == 8 - left["unfinished"]
    if by == signal.SIGINT:
        assert len(left["cells"]) == len(before)
        assert process.returncode == 130
        assert b"superopt: interrupted, finished cells are kept in out: run the same command again" in complaint

    done = subprocess.run([*command, "2"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    after = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in kept.glob("*.json")}
    assert len(after) == 8
    assert {name: after[name] for name in before} == before
    assert f"[{len(before) + 1}/8]" in done.stderr
    assert "[1/8]" not in done.stderr
    document = json.loads((folder / "out" / "experiment.json").read_text(encoding="utf-8"))
    assert [cell["limit"]["iterations"] for cell in document["cells"]] == list(range(1, 9))
    assert "verified" in done.stdout


def test_a_cell_that_another_worker_is_at_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cells(experiment(grid(folder, verify=False), folder / "first", workers=ALONE))[0]
    monkeypatch.setattr("superopt.experiment.run.run_cell", lambda cell: pytest.fail("it was measured twice"))
    store = Store(folder / "second")
    store.prepare()
    (cell,) = grid(folder, verify=False).cells()
    # As a worker that outlived a killed experiment, which holds the cell.
    with ThreadPoolExecutor(1) as pool:
        with store.locked(cell.key):
            other = pool.submit(experiment, grid(folder, verify=False), folder / "second", workers=ALONE)
            time.sleep(0.2)
            store.put(done)
        assert other.result()["cells"] == [done]


class Elsewhere(ThreadingBackend):
    """A backend as of another machine: what it is given and gives back is pickled, results come all at once, and the
    folder is not there."""

    supports_return_generator = False
    folder = Path("/nowhere")
    sent = 0

    def submit(self, func, callback=None):  # type: ignore[no-untyped-def]  # as in joblib
        def away() -> object:
            return pickle.loads(pickle.dumps(arrived()))

        items = pickle.loads(pickle.dumps(func.items))
        there = [(do, (cell, replace(store, folder=self.folder)), more) for do, (cell, store), more in items]
        arrived = BatchedCalls(there, (self, 1))
        Elsewhere.sent += len(items)
        return super().submit(away, callback)


def test_cells_run_on_a_machine_that_does_not_have_the_folder(folder: Path) -> None:
    joblib.register_parallel_backend("elsewhere", Elsewhere)
    limits = tuple({"iterations": count} for count in (1, 2, 3))
    wide = grid(folder, limits=limits, verify=False)
    experiment(replace(wide, limits=limits[:1]), folder / "out", workers=ALONE)
    with joblib.parallel_config(backend="elsewhere", n_jobs=2):
        made = experiment(wide, folder / "out", workers=Workers(2))
    assert Elsewhere.sent == 2
    assert len(cells(made)) == 3
    assert len(list((folder / "out" / "cells").glob("*.json"))) == 3
    assert made["cells"] == experiment(wide, folder / "out", workers=Workers(2, "elsewhere"))["cells"]
    assert Elsewhere.sent == 2


def test_bad_input_is_one_line(folder: Path) -> None:
    with pytest.raises(OptionError, match="no models"):
        experiment(grid(folder, models=()), folder / "out", workers=ALONE)
    (folder / "file").write_text("", encoding="utf-8")
    with pytest.raises(OptionError, match="expected a folder"):
        experiment(grid(folder), folder / "file", workers=ALONE)
    with pytest.raises(OptionError, match="backend: none-such"):
        experiment(grid(folder), folder / "out", workers=Workers(2, "none-such"))
    with pytest.raises(OptionError, match="backend: multiprocessing cannot run the engines, expected loky"):
        experiment(grid(folder), folder / "out", workers=Workers(2, "multiprocessing"))
