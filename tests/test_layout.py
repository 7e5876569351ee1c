"""Where weights lie: in data files that are mapped and referred to, in the message, or held beside it, never twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from benchmarks import large
from superopt.cli import main as cli
from superopt.emitting import splice
from superopt.errors import ModelError, OptionError
from superopt.evaluate import Runner
from superopt.lowering.lower import lower
from superopt.models.model import Model, load, message, save
from superopt.models.tensors import constant_of_array, constant_of_tensor, is_external, is_placeholder
from superopt.terms import constant_key, streamed_key
from superopt.verification import verify_regions

WIDTH = 512
"""Of a square weight that is just large enough to stay out of the message: 1 MiB."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three products with weights in a data file, the first of them scaled."""
    path, size = large.make(tmp_path, 3 * 4 * WIDTH * WIDTH, 3, 1)
    assert size == 4 * WIDTH * WIDTH
    return path


def optimized(path: Path, **options: str) -> superopt.Result:
    result = superopt.optimize(path, select="modelled", **options)
    assert result.report["verified"]
    assert "scale-after-matmul" in result.report["rules_used"]
    return result


def run(model: Model | Path) -> np.ndarray:
    """The output for one input."""
    feed = {"x": np.random.default_rng(0).standard_normal((2, WIDTH)).astype(np.float32)}
    loaded = model if isinstance(model, Model) else load(model)
    return next(iter(Runner(loaded).run(feed).values()))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def locations(path: Path) -> list[str]:
    """The data files that a saved model refers to, sorted."""
    proto = onnx.load(path, load_external_data=False)
    stored = [tensor for tensor in proto.graph.initializer if is_external(tensor)]
    return sorted({entry.value for tensor in stored for entry in tensor.external_data if entry.key == "location"})


def test_new_weights_of_a_model_in_data_files_are_held_beside_its_message(model: Path) -> None:
    found = optimized(model).optimized
    assert [constant.nbytes for constant in found.held.values()] == [4 * WIDTH * WIDTH]
    assert found.proto.ByteSize() < WIDTH * WIDTH
    assert [is_placeholder(tensor) for tensor in found.proto.graph.initializer if tensor.name in found.held] == [True]
    (name,) = found.held
    lowered = lower(found)
    assert lowered.constants[lowered.constant_keys[name]] is found.held[name]
    assert np.allclose(run(found), run(model), rtol=1e-4, atol=1e-4)


def test_what_is_held_is_written_once_and_the_rest_is_referred_to(model: Path) -> None:
    before = (model.parent / "large.data").read_bytes()
    result = optimized(model)
    result.save(model.parent / "out.onnx")
    assert files(model.parent) == ["large.data", "large.onnx", "out.onnx", "out.onnx.data"]
    assert locations(model.parent / "out.onnx") == ["large.data", "out.onnx.data"]
    assert (model.parent / "out.onnx.data").stat().st_size == 4 * WIDTH * WIDTH
    assert (model.parent / "large.data").read_bytes() == before
    assert np.array_equal(run(model.parent / "out.onnx"), run(result.optimized))


def test_a_model_saved_elsewhere_takes_along_what_it_needs(model: Path) -> None:
    elsewhere = model.parent / "elsewhere"
    elsewhere.mkdir()
    result = optimized(model)
    result.save(elsewhere / "out.onnx")
    assert locations(elsewhere / "out.onnx") == ["large.data", "out.onnx.data"]
    # The folded weight's original is not needed any more.
    assert (elsewhere / "large.data").stat().st_size < (model.parent / "large.data").stat().st_size
    assert np.array_equal(run(elsewhere / "out.onnx"), run(result.optimized))


def test_one_file_for_all_weights(model: Path) -> None:
    result = optimized(model, external_data="weights.bin")
    result.save(model.parent / "out.onnx")
    assert locations(model.parent / "out.onnx") == ["weights.bin"]
    inside = [
        tensor
        for tensor in onnx.load(model.parent / "out.onnx", load_external_data=False).graph.initializer
        if not is_external(tensor)
    ]
    assert all(len(tensor.raw_data) < 1024 for tensor in inside)
    assert np.array_equal(run(model.parent / "out.onnx"), run(result.optimized))


def test_no_file_for_weights(model: Path) -> None:
    result = optimized(model, external_data="none")
    result.save(model.parent / "out.onnx")
    assert files(model.parent) == ["large.data", "large.onnx", "out.onnx"]
    assert locations(model.parent / "out.onnx") == []
    assert np.array_equal(run(model.parent / "out.onnx"), run(result.optimized))
    assert onnx.load(model.parent / "out.onnx") == message(result.optimized) == result.model


def test_weights_inside_move_out_when_asked(tmp_path: Path) -> None:
    """Whatever field of the message they lie in."""
    rng = np.random.default_rng(0)
    first = numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32), "a")
    second = helper.make_tensor("b", TensorProto.FLOAT, [64, 64], rng.standard_normal(64 * 64).astype(np.float32))
    small = numpy_helper.from_array(np.ones(64, np.float32), "c")
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["u"]),
        helper.make_node("MatMul", ["u", "b"], ["v"]),
        helper.make_node("Add", ["v", "c"], ["y"]),
    ]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], [first, second, small])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    assert len(second.float_data) == 64 * 64
    save(load(proto), tmp_path / "out.onnx", "w.data")
    stored = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    assert [is_external(tensor) for tensor in stored.graph.initializer] == [True, True, False]
    for mine, other in zip(onnx.load(tmp_path / "out.onnx").graph.initializer, graph.initializer, strict=True):
        assert np.array_equal(numpy_helper.to_array(mine), numpy_helper.to_array(other))
    save(load(tmp_path / "out.onnx"), tmp_path / "back.onnx", "none")
    assert locations(tmp_path / "back.onnx") == []


@pytest.mark.parametrize("layout", ["large.data", "large.onnx", "out.onnx", "./large.data"])
def test_a_file_of_the_model_itself_is_not_overwritten(model: Path, layout: str) -> None:
    before = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    with pytest.raises(ModelError, match="is a file of the model itself, expected another for its weights"):
        save(load(model), model.parent / "out.onnx", layout)
    with pytest.raises(SystemExit) as left:
        cli.main(["optimize", str(model), "-o", str(model.parent / "out.onnx"), "--external-data", layout])
    assert left.value.code == 2
    assert {path.name: path.read_bytes() for path in model.parent.iterdir()} == before


def test_what_does_not_fit_into_one_message_is_said_before_the_work(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superopt.models.model.LARGEST_MESSAGE", 2 << 20)
    with pytest.raises(SystemExit) as left:
        cli.main(["optimize", str(model), "--external-data", "none"])
    assert left.value.code == 2
    assert "3145728 bytes of external data, expected at most 2 GiB" in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["", "/tmp/w", "../w", "a/../../w", "a/", "C:/w", "a\0b"])
def test_weights_stay_below_the_models_folder(model: Path, layout: str) -> None:
    with pytest.raises(OptionError, match="is out of place"):
        superopt.optimize(model, external_data=layout)


def test_a_folder_that_is_not_there_is_said_before_the_work(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["optimize", str(model), "--external-data", "nowhere/w.data"])
    assert left.value.code == 2
    assert "expected one to write into" in capsys.readouterr().err


def test_many_new_weights_of_a_model_without_data_files_are_held_too(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = message(load(model))
    assert not optimized(inside).optimized.held
    monkeypatch.setattr(splice, "_LARGEST_ADDED", 1 << 18)
    result = optimized(inside)
    assert len(result.optimized.held) == 1
    result.save(model.parent / "out.onnx")
    assert locations(model.parent / "out.onnx") == [], "it fits into one message, as the original did"
    assert np.array_equal(run(model.parent / "out.onnx"), run(result.optimized))


def test_a_key_is_the_same_wherever_the_bytes_lie(model: Path) -> None:
    proto = onnx.load(model, load_external_data=False)
    for tensor in proto.graph.initializer:
        constant = constant_of_tensor(tensor, model.parent)
        assert constant.key == constant_of_array(constant.array()).key
    assert constant_key("int8", (4,), b"abcd") == streamed_key("int8", (4,), iter([b"ab", b"", b"cd"]))


def test_a_large_model_is_optimized_in_little_memory(tmp_path: Path) -> None:
    """The benchmark, so small that the interpreter takes most of the memory."""
    run = large.measure(tmp_path, 12 << 20, 4, 1)
    assert (run.verified, run.problems, run.regions) == (True, [], 4)
    assert run.nodes_before == run.nodes_after + 9
    assert run.folded == run.largest_tensor == 4 * 886**2
    assert run.peak < run.bound == run.folded * 7 // 2 + large.GIGABYTE


def test_a_model_too_large_to_run_is_verified_on_random_values(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.settings.LARGEST_RUN", 1 << 20)
    monkeypatch.setattr(verify_regions, "LARGEST_RUN", 1 << 20)
    report = optimized(model, verify="regions").report
    assert report["regions"] == 3
    assert "on random values" in report["verified_by"]
    assert report["latency"] is None
    assert json.loads(json.dumps(report["settings"]))["verify"] == "regions"
