"""Where a command's text goes: pipes and devices stay what they are, and an output that takes nothing is told of."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import onnx
import pytest

import superopt
from superopt.errors import OptionError
from superopt.models.external import replacing
from superopt.report import write

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x) => (float[n, 4] y) { s = Identity(x) y = Relu(s) }"""


def command(*args: str | Path, out: str) -> subprocess.CompletedProcess[str]:
    """A run of the command whose standard output is redirected as a shell does it."""
    line = f'exec "$0" -m superopt "$@" {out}'
    return subprocess.run(
        ["sh", "-c", line, sys.executable, *map(str, args)], stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_report_goes_through_a_pipe(pipe: Path) -> None:
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write("{}", pipe)
    reader.join()
    assert found == ["{}"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_no_file_takes_the_place_of_what_is_none(pipe: Path) -> None:
    with pytest.raises(OSError, match="no regular file"), replacing(pipe):
        pass
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [item.name for item in pipe.parent.iterdir()] == ["pipe"]


def test_standard_output_that_is_full_is_told() -> None:
    ran = command("rules", "list", out="> /dev/full")
    assert (ran.returncode, ran.stderr) == (
        2, "superopt: standard output: No space left on device; the command's files are written\n"
    )  # fmt: skip


def test_what_cannot_be_dumped_leaves_the_original(tmp_path: Path) -> None:
    model, target = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), model)
    ran = command("optimize", model, "-o", target, "--dump", "terms", out="> /dev/full")
    assert ran.returncode == 1
    assert f"standard output: No space left on device; the original was written to {target}\n" in ran.stderr
    assert target.read_bytes() == model.read_bytes()


def test_standard_output_may_be_closed() -> None:
    ran = command("rules", "show", "fold-batchnorm-into-conv", out=">&-")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_library_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib.so").write_text("no library")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"lib\.so is none that onnxruntime loads") as caught:
        superopt.optimize(onnx.parser.parse_model(MODEL), custom_op_library="lib.so")
    assert "No such file" not in str(caught.value)
