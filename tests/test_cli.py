"""The command line as a new user meets it: files, tables, exit codes, and one line for what is wrong."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from superopt.cli import main as cli
from superopt.cli import progress_lines
from superopt.errors import EGraphError
from superopt.progress import Clock
from superopt.reporting import render
from superopt.search import candidates as search
from superopt.version import __version__

ROOT = Path(__file__).resolve().parent.parent
FAST = ["--rules", "batchnorm", "--select", "modelled"]

INTERRUPTED = "superopt: interrupted, nothing was written\n"

RULE = """
rule double-relu: exact
  Relu(Relu(x)) => Relu(x)
"""
WRONG_RULE = """
rule sigmoid-is-relu: reassociates
  Sigmoid(x) => Relu(x)
"""


def a_model() -> onnx.ModelProto:
    """Conv, BatchNormalization, Sigmoid."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(4).astype(np.float32) for name in "stm"}
    weights |= {"v": np.ones(4, np.float32), "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["b"]),
            helper.make_node("Sigmoid", ["b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 4, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, with a model in it."""
    monkeypatch.chdir(tmp_path)
    onnx.save(a_model(), "m.onnx")
    return tmp_path


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main([*args])
    assert isinstance(left.value.code, int)
    return left.value.code


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr, with nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("superopt: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err.removeprefix("superopt: ").rstrip("\n")


def test_optimize_writes_beside_the_model_and_prints_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("optimize", "m.onnx", *FAST, "--report", "r.json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert files(folder) == ["m.onnx", "m.opt.onnx", "r.json"]
    report = json.loads(Path("r.json").read_text())
    assert [node.op_type for node in onnx.load("m.opt.onnx").graph.node] == ["Conv", "Sigmoid"]
    assert report["source"] == "m.onnx"
    assert report["settings"]["rules"] == ["batchnorm"]
    words = [line.split() for line in out.splitlines()]
    assert ["nodes", "3", "2", "-33.3", "%"] in words
    assert ["BatchNormalization", "1", "0", "-1"] in words
    assert words[-1][:4] == ["m.onnx", "->", "m.opt.onnx:", "verified:"]
    assert "rules: fold-batchnorm-into-conv" in out
    assert not any(line.endswith(" ") for line in out.splitlines())


def test_the_output_can_be_elsewhere_and_options_arrive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "out").mkdir()
    np.savez("feed.npz", x=np.ones((2, 3, 6, 6), np.float32))
    given = [
        "--without", "batchnorm-as-mul-and-add", "--numeric", "approximates", "--ignoring", "nan,infinity",
        "--cost", "nodes", "--limit", "nodes=500,iterations=3", "--inputs", "feed.npz", "--max-growth", "none",
        "--initializers-are-constant", "--seed", "7", "--verify", "regions", "--external-data", "none",
        "--threads", "1", "--candidates", "2", "--differ", "3", "--tune", "5", "--explain", "why",
        "--provider", "CPUExecutionProvider",
    ]  # fmt: skip
    assert run("optimize", "m.onnx", "-o", "out/n.onnx", *FAST, *given, "--report", "out/r.json") == 0
    assert files(folder / "out") == ["n.onnx", "r.json"]
    settings = json.loads(Path("out/r.json").read_text())["settings"]
    assert settings == {
        "rules": ["batchnorm"], "without": ["batchnorm-as-mul-and-add"], "numeric": "approximates",
        "ignoring": ["nan", "infinity"], "cost": "nodes", "limit": {"nodes": 500, "iterations": 3, "seconds": None},
        "inputs": "feed.npz", "input_shape": {}, "initializers_are_constant": True, "max_growth": None,
        "select": "modelled", "verify": "regions", "external_data": "none", "custom_op_library": [],
        "target_opset": None, "check_classes": False, "trust_rules": False, "seed": 7, "threads": 1,
        "candidates": 2, "differ": 3, "tune": 5.0, "explain": "why", "provider": "CPUExecutionProvider",
    }  # fmt: skip
    capsys.readouterr()
    assert run("optimize", "m.onnx", *FAST, "--input-shape", "x:3,3,6,6", "--report", "r.json") == 0
    report = json.loads(Path("r.json").read_text())
    assert report["settings"]["input_shape"] == {"x": [3, 3, 6, 6]}
    assert report["settings"]["max_growth"] == 0.05
    assert onnx.load("m.opt.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_measured_is_the_default_and_prints_latencies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("optimize", "m.onnx", "--rules", "batchnorm", "--tune", "0.2", "--report", "r.json") == 0
    report = json.loads(Path("r.json").read_text())
    assert report["settings"]["select"] == "measured"
    assert report["latency"]["before"] > 0
    assert report["latency"]["unit"] == "ms"
    assert " ms " in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("latency"))


def test_what_cannot_be_verified_is_written_unchanged(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object, **keywords: object) -> None:
        raise EGraphError("out of order")

    monkeypatch.setattr(search, "saturate", fails)
    onnx.save(a_model(), "odd.onnx")
    assert run("optimize", "odd.onnx", *FAST, "--report", "r.json") == 1
    assert Path("odd.opt.onnx").read_bytes() == Path("odd.onnx").read_bytes()
    out = capsys.readouterr().out
    assert "problem: EGraphError: out of order" in out
    assert out.splitlines()[-1] == "odd.onnx -> odd.opt.onnx: could not be verified, this is the original"
    assert json.loads(Path("r.json").read_text())["verified"] is False


def test_a_fault_of_ours_leaves_the_original_and_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oh")

    monkeypatch.setattr("superopt.pipeline.run", broken)
    monkeypatch.delenv("SUPEROPT_DEBUG", raising=False)
    assert run("optimize", "m.onnx") == 1
    assert Path("m.opt.onnx").read_bytes() == Path("m.onnx").read_bytes()
    assert one_line(capsys) == (
        "internal error: KeyError: 'oh'; the original was written to m.opt.onnx "
        "(run again with SUPEROPT_DEBUG=1 to see where)"
    )
    monkeypatch.setenv("SUPEROPT_DEBUG", "1")
    assert run("optimize", "m.onnx") == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["optimize"], "Missing argument 'IN.onnx' (see superopt optimize --help)"),
        (["optimize", "no.onnx"], "no.onnx: cannot be read: No such file or directory"),
        (["optimize", "."], ".: cannot be read: Is a directory"),
        (["optimize", "cut.onnx"], "cut.onnx: not an ONNX model, or cut short (200 bytes)"),
        (["optimize", "text.onnx"], "text.onnx: not an ONNX model, or cut short (6 bytes)"),
        (["optimize", "empty.onnx"], "empty.onnx: no graph in it, expected an ONNX model"),
        (["optimize", "m.onnx", "-o", "no/out.onnx"], "no/out.onnx: no is not a directory, expected"),
        (["optimize", "m.onnx", "-o", "folder"], "folder: is a directory, expected a file for the output"),
        (["optimize", "m.onnx", "-o", "m.onnx"], "m.onnx: is also the file m.onnx of this run, expected another"),
        (["optimize", "m.onnx", "--report", "m.opt.onnx"], "m.opt.onnx: is also the file m.opt.onnx of this run"),
        (["optimize", "m.onnx", "--report", "no/r.json"], "no/r.json: no is not a directory, expected the report"),
        (["optimize", "m.onnx", "--xyzzy"], "No such option: --xyzzy (see superopt optimize --help)"),
        (["optimize", "m.onnx", "--numeric", "fast"], "numeric: 'fast' is not a choice, expected one of exact, "),
        (["optimize", "m.onnx", "--select", "x"], "select: 'x' is not a choice, expected one of measured, modelled"),
        (["optimize", "m.onnx", "--ignoring", "x"], "ignoring: 'x' is not a choice, expected one of nan, "),
        (["optimize", "m.onnx", "--limit", "x"], "limit: 'x' is not a limit, expected nodes=N,iterations=N,seconds=S"),
        (["optimize", "m.onnx", "--max-growth", "x"], "max-growth: 'x' is not a number, expected a fraction (0.05), "),
        (["optimize", "m.onnx", "--input-shape", "x"], "input-shape: 'x' has no input name, expected NAME:1,3,"),
        (["optimize", "m.onnx", "--input-shape", "z:1"], "input-shape: 'z' is not an input, expected x"),
        (["optimize", "m.onnx", "--inputs", "no.npz"], "no.npz: "),
        (["optimize", "m.onnx", "--seed", "x"], "Invalid value for '--seed': "),
        (["optimize", "m.onnx", "--seed", "-1"], "seed: -1 is out of range, expected a whole number of at least 0"),
        (["optimize", "m.onnx", "--cost", "x"], "x: no such cost model, expected a .toml file or one of "),
        (["optimize", "m.onnx", "--cost", "cost.py"], "cost.py: the file's name does not end in .toml, expected"),
        (["optimize", "m.onnx", "--rules", "x"], "x:1:1: no such rule file"),
        (["optimize", "m.onnx", "--rules", "bad.rules"], "bad.rules:3:7: '(' is never closed: ')' was expected"),
        (["optimize", "m.onnx", "--rules", "empty.rules"], "empty.rules:1:1: there is no rule in it; 'rule NAME"),
        (["optimize", "m.onnx", "--without", "x"], "no rule is named x"),
        (["optimize", "m.onnx", "--dump", "x"], "dump: 'x' is not a choice, expected one of terms, egraph, chosen"),
        (["verify", "m.onnx", "no.onnx"], "no.onnx: cannot be read: No such file or directory"),
        (["inspect", "text.onnx"], "text.onnx: not an ONNX model"),
        (["cost", "m.onnx", "--cost", "no.toml"], "no.toml: cannot be read"),
        (["rules", "show", "x"], "x: no such rule or rule set, expected one that `superopt rules list` names"),
        (["rules", "check", "bad.rules"], "bad.rules:3:7: '(' is never closed"),
        (["rules", "check", "empty.rules"], "empty.rules:1:1: there is no rule in it"),
        (["rules", "check", "groups.rules"], "groups.rules:1:1: there is no rule in it"),
        (["rules", "check", "--seed", "-1"], "seed: -1 is out of range, expected a whole number of at least 0"),
        (["rules", "check", "--points", "0"], "points: 0 is out of range, expected a whole number of at least 1"),
        (["rules", "check", "--jobs", "0"], "jobs: 0 is out of range, expected a whole number of at least 1, or -1"),
        (["experiment", "m.onnx", "-o", "d", "--jobs", "0"], "jobs: 0 is out of range"),
        (["rules", "lst"], "No such command 'lst'."),
        (["optimise", "m.onnx"], "No such command 'optimise'."),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    (folder / "folder").mkdir()
    (folder / "cut.onnx").write_bytes((folder / "m.onnx").read_bytes()[:200])
    (folder / "text.onnx").write_text("hello\n")
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "cost.py").write_text("price = 1\n")
    (folder / "empty.rules").write_text("")
    (folder / "groups.rules").write_text("# only a group\ngroup two = Relu, Abs\n")
    (folder / "bad.rules").write_text("\nrule a: exact\n  Relu(x => x\n")
    before = files(folder)
    assert run(*args) == 2
    assert one_line(capsys).startswith(message)
    assert files(folder) == before


def test_a_stage_can_be_dumped_apart_from_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("optimize", "m.onnx", *FAST, "--dump", "terms") == 0
    out, err = capsys.readouterr()
    assert "= Conv(%" in out
    assert out.splitlines()[-1].startswith("roots %")
    assert err.splitlines()[0].split() == ["before", "after"]
    assert run("optimize", "m.onnx", *FAST, "--dump", "egraph", "--dump", "chosen") == 0
    out = capsys.readouterr().out
    assert '"rule": "fold-batchnorm-into-conv"' in out
    assert out.count("roots %") == 1


def test_a_dumped_egraph_is_extracted_at_the_cost_that_was_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("optimize", "m.onnx", *FAST, "--dump", "egraph", "--report", "r.json") == 0
    Path("g.json").write_text(capsys.readouterr().out)
    assert run("extract", "g.json", "--report", "c.json") == 0
    found, again = (json.loads(Path(file).read_text()) for file in ("r.json", "c.json"))
    assert found["choice"]["status"] == again["status"] == "optimal"
    assert again["cost"] == pytest.approx(found["choice"]["cost"], rel=1e-12)
    assert again["nodes"] > again["chosen"] > 0


def test_progress_is_a_line_per_stage_on_a_terminal_alone() -> None:
    for terminal in (True, False):
        stream = io.StringIO()
        clock = Clock(progress_lines.Lines(Console(file=stream, force_terminal=terminal, width=80)))
        with clock.stage("saturate"):
            clock.watcher.advanced("steps: 3 of 7 verified")
        with pytest.raises(ValueError, match="no"), clock.stage("extract"):
            raise ValueError("no")
        assert ("steps: 3 of 7 verified" in stream.getvalue()) == terminal
        assert ("saturate" in stream.getvalue()) == terminal
        assert ("extract" in stream.getvalue()) == terminal
        assert list(clock.seconds) == ["saturate", "extract"]


def test_verify_tells_by_its_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("optimize", "m.onnx", *FAST) == 0
    capsys.readouterr()
    assert run("verify", "m.onnx", "m.opt.onnx", "--report", "r.json") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("m.onnx and m.opt.onnx agree: ")
    assert json.loads(Path("r.json").read_text())["agree"] is True
    assert run("verify", "m.onnx", "m.opt.onnx", "--numeric", "exact") == 1
    assert "do not agree: y: " in capsys.readouterr().out
    other = a_model()
    other.graph.node[2].op_type = "Relu"
    onnx.save(other, "other.onnx")
    assert run("verify", "m.onnx", "other.onnx", "--seed", "3", "--input-shape", "x:1,3,6,6") == 1
    out = capsys.readouterr().out
    assert "do not agree: y: off from the truth" in out
    assert next(line.split()[0] for line in out.splitlines() if line.startswith("  y")) == "y"


def test_inspect_says_what_a_model_is_made_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = a_model()
    model.graph.node.append(helper.make_node("NonZero", ["y"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.INT64, [4, None]))
    onnx.save(model, "n.onnx")
    assert run("inspect", "n.onnx", "--cost", "nodes", "--nodes", "--report", "r.json") == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["input", "x:", "float32[n,3,6,6]"] in words
    assert ["Conv", "1", "1", "25.0", "%"] in words
    assert ["NonZero", "1", "an", "operator", "that", "no", "rule", "knows"] in words
    assert ["b", "BatchNormalization", "float32[n,4,4,4]", "1"] in words
    document = json.loads(Path("r.json").read_text())
    assert document["opaque"] == [{"operator": "NonZero", "count": 1, "reason": "an operator that no rule knows"}]
    assert document["bytes"] == Path("n.onnx").stat().st_size


def test_cost_prices_a_model_by_operator(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cost", "m.onnx", "--cost", "nodes", "--not-timed") == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert words[0] == ["operator", "count", "cost", "(nodes,", "nodes)", "share"]
    assert words[-1] == ["all", "3", "3"]


def test_cost_models_of_one_name_have_columns_of_their_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for where in (".", "other"):
        Path(where).mkdir(exist_ok=True)
        for file in ("a.toml", "b.toml"):
            Path(where, file).write_text('name = "nodes"\nunit = "u"\n[price]\nnode = 2\n')
    for given, heads in (
        (("nodes", "a.toml", "b.toml"), ["nodes", "a.toml", "b.toml"]),
        (("nodes", "other/b.toml"), ["nodes", "b.toml"]),
        (("a.toml", "other/a.toml", "flops"), ["a.toml", "other/a.toml", "flops"]),
        (("a.toml", "a.toml"), ["nodes"]),
    ):
        asked = [word for one in given for word in ("--cost", one)]
        assert run("cost", "m.onnx", *asked, "--not-timed", "--report", "r.json") == 0
        assert [model["name"] for model in json.loads(Path("r.json").read_text())["models"]] == heads
        capsys.readouterr()


def test_rules_are_listed_shown_and_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "list") == 0
    out = capsys.readouterr().out
    assert "fold-batchnorm-into-conv" in out
    assert out.splitlines()[-1].startswith("rule sets: default, ")
    assert run("rules", "show", "fold-batchnorm-into-conv") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# batchnorm.rules:")
    assert "\nrule fold-batchnorm-into-conv: reassociates\n" in shown
    assert run("rules", "show", "batchnorm") == 0
    assert shown.splitlines()[1] in capsys.readouterr().out
    Path("right.rules").write_text(RULE)
    assert run("rules", "list", "right.rules") == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["right.rules", "double-relu", "exact"]
    assert run("rules", "check", "right.rules") == 0
    assert capsys.readouterr().out.startswith("pass  double-relu: ")
    Path("wrong.rules").write_text(WRONG_RULE)
    assert run("rules", "check", "wrong.rules", "right.rules", "--only", "sigmoid-is-relu") == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL  sigmoid-is-relu: ")
    assert out.splitlines()[-1] == "1 rules, 1 fail"


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"superopt {__version__}\n"
    assert run("optimize", "--help") == 0
    text = capsys.readouterr().out
    for option in ("--rules", "--without", "--numeric", "--ignoring", "--cost", "--limit", "--inputs", "--input-shape",
                   "--initializers-are-constant", "--max-growth", "--select", "--seed", "--threads", "--report",
                   "--dump", "--output"):  # fmt: skip
        assert option in text
    assert run() == 2
    assert "Commands" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("extract", "every e-class (a set of equal terms)"),
        ("extract", "End after so many seconds, the file's reading included"),
        ("optimize", "a family: all that one rule's text stands for"),
        ("optimize", "by their laws first (both sides computed on made inputs)"),
        ("inspect", "opaque (kept as it is: no rule looks into it)"),
        ("cost", "`measured@PROVIDER` with another execution provider"),
        ("rules list", "Rules, families or rule sets that ship, or files."),
        ("rules check", "both sides are computed on made instances"),
    ],
)
def test_help_explains_its_terms(command: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command.split(), "--help") == 0
    assert words in " ".join(capsys.readouterr().out.split())


def python(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_help_answers_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys, superopt.cli.main; "
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'egglog') if m in sys.modules])"
    )
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_same_command_writes_the_same_bytes(folder: Path) -> None:
    written = []
    for seed in ("0", "1"):
        done = python("-m", "superopt", "optimize", "m.onnx", *FAST, "--rules", "affine", PYTHONHASHSEED=seed)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        written.append(Path("m.opt.onnx").read_bytes())
        Path("m.opt.onnx").unlink()
    assert written[0] == written[1] != Path("m.onnx").read_bytes()


SENT = "os.kill(os.getpid(), signal.SIGINT)"
"""^C, as of a terminal."""


@pytest.mark.parametrize(
    ("when", "code", "said"),
    [
        ("import superopt.search.candidates as s; s.saturate = lambda *_, **__: {sent}", 130, INTERRUPTED),
        # As in a dataclass that is made while a module is loaded.
        (
            "import superopt.search.candidates as s; s.saturate = lambda *_, **__: exec('raise KeyboardInterrupt')",
            130,
            INTERRUPTED,
        ),
        # As in a library that is loaded.
        (
            "import superopt.search.candidates as s; s.saturate = lambda *_, **__: exec("
            "'try: raise KeyboardInterrupt\\nexcept BaseException as e: raise ImportError from e')",
            130,
            INTERRUPTED,
        ),
        ("import typer; typer.Typer.__call__ = lambda *_, **__: {sent}", 130, INTERRUPTED),
        # From here on there is a result, and it is written and told.
        ("import superopt.result as r; save = r.Result.save; r.Result.save = lambda *a: ({sent}, save(*a))", 0, ""),
        ("import superopt.result as r; save = r.Result.save; r.Result.save = lambda *a: (save(*a), {sent})", 0, ""),
        ("import atexit; atexit.register(lambda: ({sent}, time.sleep(0.01)))", 0, ""),
    ],
)
def test_an_interruption_leaves_all_or_nothing(when: str, code: int, said: str, folder: Path) -> None:
    words = ["superopt", "optimize", "m.onnx", *FAST]
    text = f"import os, signal, sys, time; {when.format(sent=SENT)}; from superopt.__main__ import main; "
    # Python itself ends a module by the signal that it was interrupted by, unless it has forgotten that.
    Path("late.py").write_text(f"{text}sys.argv[:] = {words}; main()")
    done = python("-m", "late")
    assert (done.returncode, done.stderr) == (code, said)
    assert ("verified" in done.stdout, Path("m.opt.onnx").exists()) == (code == 0, code == 0)


def test_an_interruption_while_the_command_line_is_loaded_is_told(folder: Path) -> None:
    text = (
        f"import os, signal, sys; sys.meta_path.insert(0, type('F', (), {{'find_spec': staticmethod(lambda name, *_: "
        f"{SENT} if name == 'typer' else None)}})); from superopt.__main__ import main; main()"
    )
    done = python("-c", text)
    assert (done.returncode, done.stderr) == (130, INTERRUPTED)


def test_a_reader_that_goes_away_is_no_fault(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "superopt", "rules", "show", "all"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""


def test_brackets_in_names_are_not_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    made: Any = render.table("a")
    made.add_row("[red]x[/red]")
    render.show([made, "rule[Relu]"], render.console())
    assert capsys.readouterr().out.splitlines()[-2:] == ["[red]x[/red]", "rule[Relu]"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("input name", "only the original has the input x; only the new model has the input image"),
        ("output name", "only the original has the output y; only the new model has the output probabilities"),
        ("input type", "input x is float32[n,3,6,6] in the original and float16[n,3,6,6] in the new model"),
        ("input shape", "input x is float32[n,3,6,6] in the original and float32[n,3,7,6] in the new model"),
        ("output more", "only the new model has the output c"),
    ],
)
def test_verify_says_how_interfaces_differ(
    change: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = a_model()
    graph = model.graph
    if change == "input name":
        graph.input[0].name = graph.node[0].input[0] = "image"
    elif change == "output name":
        graph.output[0].name = graph.node[2].output[0] = "probabilities"
    elif change == "output more":
        graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, ["n", 4, 4, 4]))
    else:
        kind, height = (TensorProto.FLOAT, 7) if change == "input shape" else (TensorProto.FLOAT16, 6)
        graph.input[0].CopyFrom(helper.make_tensor_value_info("x", kind, ["n", 3, height, 6]))
    onnx.save(model, "other.onnx")
    assert run("verify", "m.onnx", "other.onnx") == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"m.onnx and other.onnx do not agree: the interfaces differ: {said}"


def test_verify_lets_an_input_go_that_has_an_initializer(folder: Path) -> None:
    model = a_model()
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [4]))
    onnx.save(model, "listed.onnx")
    assert run("verify", "listed.onnx", "m.onnx") == 0
    assert run("verify", "m.onnx", "listed.onnx") == 0
