"""Model files: what is not a model is one line; what is written is whole, with its external data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import helper, numpy_helper

from superopt.emitting.emit import emit
from superopt.errors import ModelError
from superopt.lowering.lower import lower
from superopt.models import external
from superopt.models.model import Model, load, message, save, serialized
from superopt.terms import TermGraph
from tests.rounds import CASES, LIGHT, session
from tests.test_lower import model

SMALL = CASES / "bn01_nobias" / "model.onnx"


def with_external_data(folder: Path, count: int = 3, size: int = 600, name: str = "model.onnx") -> Path:
    """A chain of additions whose constants lie in ``weights/data.bin`` beside the model."""
    dice = np.random.default_rng(2)
    constants = {f"w{index}": dice.standard_normal(size).astype(np.float32) for index in range(count)}
    nodes = [
        helper.make_node("Add", [f"v{index}" if index else "x", f"w{index}"], [f"v{index + 1}"])
        for index in range(count)
    ]
    proto = model(nodes, {"x": (size,)}, constants, outputs=[f"v{count}"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").mkdir()
    with (folder / "weights" / "data.bin").open("wb") as file:
        for tensor in proto.graph.initializer:
            point(tensor, "weights/data.bin", file.tell(), len(tensor.raw_data))
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def point(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def outputs(path: Path) -> Any:
    runner = session(str(path))
    shape = runner.get_inputs()[0].shape
    return runner.run(None, {"x": np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)})


def replaced(loaded: Model, constants: dict[str, np.ndarray[Any, Any]]) -> Model:
    """The model with initializers replaced by new ones, as rewriting does."""
    proto = onnx.ModelProto()
    proto.CopyFrom(loaded.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in constants:
            tensor.CopyFrom(numpy_helper.from_array(constants[tensor.name], tensor.name))
    return Model(proto, loaded.folder, loaded.path, None, frozenset(constants))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"this is not a model", "not an ONNX model|no graph"),
        (b"", "no graph"),
        (b"\x00\xff" * 40, "not an ONNX model"),
        (SMALL.read_bytes()[:-7], "cut short"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
        (onnx.ModelProto(graph=onnx.GraphProto(name="g")).SerializeToString(), "IR version 0"),
    ],
)
def test_what_is_no_model_is_one_line(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=expected) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_cut_of_a_model_is_refused_or_still_a_model(tmp_path: Path) -> None:
    data = SMALL.read_bytes()
    path = tmp_path / "cut.onnx"
    refused = 0
    for length in range(0, len(data), 11):
        path.write_bytes(data[:length])
        try:
            lower(load(path))
        except ModelError:
            refused += 1
    assert refused > len(data) // 22


@pytest.mark.parametrize("missing", ["nowhere.onnx", "."])
def test_a_path_that_cannot_be_read_is_one_line(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path / missing)


def test_a_file_over_two_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(2**31 + 5)
    with pytest.raises(ModelError, match="at most 2 GiB"):
        load(path)


@pytest.mark.parametrize("path", [SMALL, LIGHT[0]], ids=["case", "light"])
def test_the_three_ways_to_give_a_model(path: Path) -> None:
    loaded = load(str(path))
    assert serialized(loaded) == path.read_bytes()
    assert load(loaded.proto).proto is loaded.proto
    converted = load(onnx_ir.load(str(path)))
    assert [node.op_type for node in converted.proto.graph.node] == [node.op_type for node in loaded.proto.graph.node]


def test_bytes_that_another_writer_wrote_are_kept(tmp_path: Path) -> None:
    """Fields in another order: the same message, other bytes."""
    proto = onnx.load(SMALL)
    version, rest = onnx.ModelProto(ir_version=proto.ir_version), onnx.ModelProto()
    rest.CopyFrom(proto)
    rest.ClearField("ir_version")
    data = rest.SerializeToString() + version.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    loaded = load(path)
    lowered = lower(loaded)
    assert loaded.proto.SerializeToString() != data
    assert serialized(emit(lowered, lowered.graph)) == data
    save(loaded, tmp_path / "copy.onnx")
    assert (tmp_path / "copy.onnx").read_bytes() == data


def test_saving_leaves_nothing_else_behind(tmp_path: Path) -> None:
    save(load(SMALL), tmp_path / "out.onnx")
    assert listed(tmp_path) == ["out.onnx"]
    assert (tmp_path / "out.onnx").read_bytes() == SMALL.read_bytes()
    with pytest.raises(ModelError, match="no folder"):
        save(load(SMALL), tmp_path / "missing" / "out.onnx")
    (tmp_path / "taken").mkdir()
    with pytest.raises(ModelError, match="cannot be written"):
        save(load(SMALL), tmp_path / "taken")
    assert listed(tmp_path) == ["out.onnx", "taken"]


# External data.


def test_external_data_is_mapped_and_found_by_content(tmp_path: Path) -> None:
    path = with_external_data(tmp_path / "in")
    lowered = lower(load(path))
    assert len(lowered.graph.constants) == 3
    for constant in lowered.graph.constants.values():
        assert isinstance(constant.array().base, np.memmap | np.ndarray)
        assert not constant.array().flags.writeable
    inside = lower(load(message(lowered.model)))
    assert set(inside.graph.constants) == set(lowered.graph.constants)


def test_external_data_is_referred_to_in_its_own_folder(tmp_path: Path) -> None:
    path = with_external_data(tmp_path / "in")
    loaded = load(path)
    save(loaded, path.with_name("out.onnx"))
    assert listed(path.parent) == ["model.onnx", "out.onnx", "weights"]
    assert path.with_name("out.onnx").read_bytes() == path.read_bytes()


def test_external_data_is_copied_once_to_another_folder(tmp_path: Path) -> None:
    path = with_external_data(tmp_path / "in")
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    for _ in range(2):
        save(load(path), target)
        assert listed(target.parent) == ["out.onnx", "weights"]
        assert listed(target.parent / "weights") == ["data.bin"]
    assert np.array_equal(outputs(target), outputs(path))
    assert target.read_bytes() == path.read_bytes()


def test_another_models_data_file_is_not_overwritten(tmp_path: Path) -> None:
    path = with_external_data(tmp_path / "in")
    (tmp_path / "out" / "weights").mkdir(parents=True)
    taken = tmp_path / "out" / "weights" / "data.bin"
    taken.write_bytes(b"of another model")
    save(load(path), tmp_path / "out" / "out.onnx")
    assert taken.read_bytes() == b"of another model"
    assert listed(taken.parent) == ["data-1.bin", "data.bin"]
    assert np.array_equal(outputs(tmp_path / "out" / "out.onnx"), outputs(path))


def test_data_that_is_not_used_any_more_is_not_copied(tmp_path: Path) -> None:
    path = with_external_data(tmp_path / "in")
    loaded = load(path)
    new = {"w0": np.ones(600, np.float32)}
    changed = replaced(loaded, new)
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    save(changed, target)
    assert (target.parent / "weights" / "data.bin").stat().st_size < 2 * 2400 + external._ALIGNMENT
    assert (target.parent / "out.onnx.data").stat().st_size == 2400
    assert np.array_equal(outputs(target), session(serialized_inside(changed)).run(None, feed_of(600)))
    save(changed, path.with_name("out.onnx"))
    assert np.array_equal(outputs(path.with_name("out.onnx")), outputs(target))


def feed_of(size: int) -> dict[str, Any]:
    return {"x": np.linspace(-1, 1, size, dtype=np.float32)}


def serialized_inside(loaded: Model) -> bytes:
    return message(loaded).SerializeToString()


def test_a_model_too_large_for_one_message_is_saved_with_a_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as over 2 GiB, with a smaller limit."""
    monkeypatch.setattr("superopt.models.model.LARGEST_MESSAGE", 3000)
    constants = {f"w{index}": np.full(400, index, np.float32) for index in range(3)}
    nodes = [helper.make_node("Sum", ["x", *constants], ["y"])]
    loaded = replaced(load(model(nodes, {"x": (400,)}, constants)), constants)
    with pytest.raises(ModelError, match="2 GiB"):
        message(loaded)
    save(loaded, tmp_path / "out.onnx")
    assert listed(tmp_path) == ["out.onnx", "out.onnx.data"]
    assert np.allclose(outputs(tmp_path / "out.onnx"), feed_of(400)["x"] + 3)


def test_a_message_with_data_outside_needs_its_folder(tmp_path: Path) -> None:
    path = with_external_data(tmp_path / "in")
    proto = onnx.load(path, load_external_data=False)
    with pytest.raises(ModelError, match="without its folder"):
        lower(load(proto))
    assert len(lower(load(proto, str(path.parent))).graph.constants) == 3
    assert len(lower(load(onnx_ir.load(str(path)))).graph.constants) == 3


@pytest.mark.parametrize(
    ("location", "offset", "length", "expected"),
    [
        ("/etc/passwd", 0, 2400, "below the model's folder"),
        ("../secret.bin", 0, 2400, "below the model's folder"),
        ("weights/../../secret.bin", 0, 2400, "below the model's folder"),
        ("weights\\..\\..\\secret.bin", 0, 2400, "below the model's folder"),
        ("C:\\secret.bin", 0, 2400, "below the model's folder"),
        ("", 0, 2400, "below the model's folder"),
        ("link.bin", 0, 2400, "leads out of"),
        ("linked/secret.bin", 0, 2400, "leads out of"),
        ("missing.bin", 0, 2400, "no file"),
        ("weights", 0, 2400, "no file"),
        ("weights/data.bin", 7000, 2400, "has 7200 bytes"),
        ("weights/data.bin", -1, 2400, "has 7200 bytes"),
        ("weights/data.bin", 0, 2396, "2396 bytes of data, expected 2400"),
    ],
)
def test_external_data_must_be_there_and_in_the_folder(
    tmp_path: Path, location: str, offset: int, length: int, expected: str
) -> None:
    path = with_external_data(tmp_path / "in")
    (tmp_path / "secret.bin").write_bytes(b"0" * 9600)
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    (path.parent / "linked").symlink_to(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    point(proto.graph.initializer[1], location, offset, length)
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=expected) as caught:
        load(path)
    assert "'w1'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("raw_data", b"123", "3 bytes of data, expected 8"),
        ("dims", [3], "8 bytes of data, expected 12"),
        ("dims", [-2], "none below zero"),
        ("data_type", 0, "element type 0"),
        ("data_type", 99, "element type 99"),
        ("float_data", [1.0, 2.0, 3.0], "data does not fit"),
    ],
)
def test_a_tensor_that_is_not_what_its_header_says(field: str, value: Any, expected: str) -> None:
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    if field == "float_data":
        tensor.ClearField("raw_data")
    if isinstance(value, list):
        del getattr(tensor, field)[:]
        getattr(tensor, field).extend(value)
    else:
        setattr(tensor, field, value)
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (2,)})
    proto.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))
    proto.graph.initializer.append(tensor)
    with pytest.raises(ModelError, match=expected) as caught:
        lower(load(proto))
    assert "'w'" in str(caught.value)


def test_the_graph_is_not_one_of_this_model() -> None:
    lowered = lower(load(SMALL))
    with pytest.raises(ModelError, match="roots"):
        emit(lowered, TermGraph((), (), ()))
