"""Hostile and broken files through the command line: one line and exit code 2, or left alone; never a crash, a read
outside of the model's folder, or a partial output. And models of odd but legal kinds, which go in and come out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.errors import EvaluationError, InputError, ModelError
from superopt.evaluate import Runner
from superopt.models.extent import extent_of
from superopt.models.functions import written_out
from superopt.models.inference import may_propagate
from superopt.models.model import load
from superopt.probe import is_risky
from superopt.rule_text import load as load_rules
from tests.rounds import CASES, same_bits, session
from tests.test_cli import files, run
from tests.test_lower import model

SMALL = CASES / "bn01_nobias" / "model.onnx"
FAST = ("--rules", "identity", "--select", "modelled")

RULES = load_rules("identity") + load_rules("movement")


def relu(x: str = "x", y: str = "y") -> onnx.NodeProto:
    return helper.make_node("Relu", [x], [y])


def add(proto: onnx.ModelProto, tensor: onnx.TensorProto) -> onnx.ModelProto:
    proto.graph.initializer.append(tensor)
    return proto


def broken(**fields: Any) -> onnx.ModelProto:
    """A model whose initializer ``w`` has fields that contradict each other."""
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(tensor, name)[:]
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return add(model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,)}), tensor)


def external(location: str, length: int = 8) -> onnx.ModelProto:
    proto = broken()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return proto


def nested(depth: int) -> onnx.ModelProto:
    """An If within an If, and so on."""
    known = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])
    graph = helper.make_graph([relu("x", "r")], "g", [], [known])
    for level in range(depth):
        known = helper.make_tensor_value_info(f"r{level}", TensorProto.FLOAT, [2])
        inner = helper.make_node("If", ["c"], [f"r{level}"], then_branch=graph)
        value = helper.make_tensor_value_info(f"n{level}", TensorProto.FLOAT, [2])
        other = helper.make_graph([helper.make_node("Neg", ["x"], [f"n{level}"])], "g", [], [value])
        inner.attribute.append(helper.make_attribute("else_branch", other))
        graph = helper.make_graph([inner], "g", [], [known])
    proto = model([relu("x", "q"), *graph.node], {"x": (2,)}, outputs=["q", f"r{depth - 1}"])
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return proto


def deep_bytes(depth: int) -> bytes:
    """A model as bytes with If in If, deeper than protobuf itself would write: field 6 of a node's attribute."""

    def field(number: int, data: bytes) -> bytes:
        size, head = len(data), bytes([number << 3 | 2])
        while size > 127:
            head += bytes([size & 127 | 128])
            size >>= 7
        return head + bytes([size]) + data

    graph = field(1, relu("x", "r").SerializeToString())
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + bytes([20 << 3 & 127 | 128, 1, 5])
        graph = field(1, field(1, b"c") + field(2, b"r") + field(4, b"If") + field(5, attribute))
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11")


def cyclic() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), relu("a", "b"), relu("b", "y")]
    return model(nodes, {"x": (2,)})


def of(*nodes: onnx.NodeProto, **more: Any) -> onnx.ModelProto:
    return model(list(nodes), {"x": (2,)}, **more)


def wrong_type() -> onnx.ModelProto:
    return of(helper.make_node("Add", ["x", "w"], ["y"]), constants={"w": np.ones(2, np.int64)})


def graph_twice() -> onnx.ModelProto:
    return of(relu("x", "y"), relu("x", "y"))


BROKEN: dict[str, tuple[Callable[[], onnx.ModelProto | bytes], str]] = {
    "cut": (lambda: SMALL.read_bytes()[:-9], "cut short"),
    "text": (lambda: b"hello, world\n", "not an ONNX model"),
    "zip": (lambda: b"PK\x03\x04" + bytes(200), "not an ONNX model"),
    "empty": (lambda: b"", "no graph"),
    "zeros": (lambda: bytes(100), "not an ONNX model"),
    "no-graph": (lambda: onnx.ModelProto(ir_version=8), "no graph"),
    "no-ir-version": (lambda: onnx.ModelProto(graph=of(relu()).graph), "IR version 0"),
    "cyclic": (cyclic, "cycle"),
    "selfish": (lambda: of(helper.make_node("Add", ["x", "y"], ["y"])), "cycle"),
    "dangling": (lambda: of(helper.make_node("Add", ["x", "nowhere"], ["y"])), "'nowhere', which nothing makes"),
    "dangling-output": (lambda: of(relu(), outputs=["y", "nowhere"]), "nothing makes output 'nowhere'"),
    "made-twice": (graph_twice, "made twice"),
    "short-data": (lambda: broken(raw_data=b"123"), "3 bytes of data, expected 8"),
    "long-data": (lambda: broken(raw_data=bytes(80)), "80 bytes of data, expected 8"),
    "huge-dims": (lambda: broken(dims=[2**40, 2**40]), "bytes of data"),
    "overflowing-dims": (lambda: broken(dims=[2**62, 2**62, 16]), "bytes of data"),
    "negative-dims": (lambda: broken(dims=[-2]), "none below zero"),
    "no-type": (lambda: broken(data_type=0), "element type 0"),
    "unknown-type": (lambda: broken(data_type=12345), "element type 12345"),
    "absolute": (lambda: external("/etc/passwd"), "below the model's folder"),
    "dots": (lambda: external("../secret.bin"), "below the model's folder"),
    "dots-within": (lambda: external("folder/../../secret.bin"), "below the model's folder"),
    "link": (lambda: external("link.bin"), "leads out of"),
    "link-to-folder": (lambda: external("linked/secret.bin"), "leads out of"),
    "no-data-file": (lambda: external("missing.bin"), "no file"),
    "data-is-folder": (lambda: external("folder"), "no file"),
    "data-too-short": (lambda: external("short.bin"), "bytes"),
    "wrong-length": (lambda: external("data.bin", 4), "4 bytes of data, expected 8"),
    "fifo": (lambda: external("pipe"), "no file"),
    "too-deep-to-read": (lambda: deep_bytes(2000), "not an ONNX model"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's folder, with a secret beside it and links to that within it."""
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "linked").symlink_to(tmp_path)
    (inside / "data.bin").write_bytes(bytes(8))
    (inside / "short.bin").write_bytes(bytes(5))
    os.mkfifo(inside / "pipe")
    monkeypatch.chdir(inside)
    monkeypatch.delenv("SUPEROPT_DEBUG", raising=False)
    return inside


def written(folder: Path, content: onnx.ModelProto | bytes) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


@pytest.mark.parametrize("command", ["optimize", "inspect"])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str], name: str, command: str) -> None:
    make, expected = BROKEN[name]
    written(folder, make())
    before = files(folder)
    code = run(command, "m.onnx", *(FAST if command == "optimize" else ()))
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("superopt: m.onnx: ")
    assert err.count("\n") == 1
    assert expected in err
    assert files(folder) == before


@pytest.mark.parametrize("text", [b"\x8c", b"\xff\xfe", b"a\x00b"])
def test_what_is_no_text_is_left_alone_without_a_word_of_the_runtime(
    folder: Path, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    """onnxruntime puts the attribute into its message, which Python then cannot read."""
    larger = helper.make_node("Upsample", ["x", "s"], ["y"], mode=text)
    path = written(folder, of(larger, constants={"s": np.float32([2])}, opset=9))
    assert run("optimize", "m.onnx", *FAST) in (0, 1)
    assert (folder / "m.opt.onnx").read_bytes() == path.read_bytes()
    out, err = capsys.readouterr()
    assert "EP Error" not in out + err
    assert "Traceback" not in err


def test_wrong_types_are_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(folder, wrong_type())
    assert run("optimize", "m.onnx", *FAST) in (0, 1)
    assert (folder / "m.opt.onnx").read_bytes() == path.read_bytes()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("ConstantOfShape", {"n": np.array([2**20, 2**20])}),
        ("ConstantOfShape", {"n": np.array([2**40, 2**40])}),
        ("ConstantOfShape", {"n": np.array([-5])}),
        ("Expand", {"one": np.ones((1, 1), np.float32), "n": np.array([2**20, 2**21])}),
        ("Tile", {"one": np.ones((1, 1), np.float32), "n": np.array([2**20, 2**21])}),
        ("Range", {"a": np.array(0.0), "b": np.array(1e13), "c": np.array(1.0)}),
        ("Pad", {"one": np.ones(1, np.float32), "n": np.array([2**41, 2**41])}),
        ("EyeLike", {"n": np.ones((2**11, 2**11), np.bool_)}),
    ],
)
def test_what_would_unfold_to_terabytes_is_not_unfolded(
    folder: Path, capsys: pytest.CaptureFixture[str], op: str, constants: dict[str, np.ndarray[Any, Any]]
) -> None:
    """The model cannot be run, or not soon, but it goes in and comes out."""
    nodes = [
        helper.make_node(op, list(constants), ["big"]),
        helper.make_node("Shape", ["big"], ["s"]),
        helper.make_node("Identity", ["s"], ["t"]),
        relu(),
    ]
    proto = of(*nodes, constants=constants, outputs=["y"])
    proto.graph.output.append(helper.make_tensor_value_info("t", TensorProto.INT64, [None]))
    path = written(folder, proto)
    assert run("optimize", "m.onnx", *FAST) in (0, 1)
    assert (folder / "m.opt.onnx").stat().st_size <= 1.05 * path.stat().st_size
    assert "Traceback" not in capsys.readouterr().err
    onnx.checker.check_model(folder / "m.opt.onnx")


@pytest.mark.parametrize("depth", [1, 10, 22])
def test_nested_subgraphs_go_through(folder: Path, depth: int) -> None:
    proto = nested(depth)
    written(folder, proto)
    assert run("optimize", "m.onnx", *FAST) == 0
    new = (folder / "m.opt.onnx").read_bytes()
    for test in (True, False):
        feed = {"x": np.array([-1, 2], np.float32), "c": np.array(test)}
        for a, b in zip(*(session(data).run(None, feed) for data in (proto.SerializeToString(), new)), strict=True):
            assert same_bits(a, b)


@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[31mred", "a\x00b", "\u202eevil", "[bold]x[/bold]", "a b\t", "🤖", "..", "/"]
)
def test_names_of_any_characters_are_kept(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    nodes = [helper.make_node("Identity", ["x"], [name], name=name), relu(name, "r"), relu("r", "y")]
    written(folder, of(*nodes, outputs=["y", name]))
    assert run("optimize", "m.onnx", *FAST) == 0
    new = onnx.load(folder / "m.opt.onnx")
    assert [item.name for item in new.graph.output] == ["y", name]
    out, err = capsys.readouterr()
    assert not [char for char in out + err if char != "\n" and not char.isprintable()]


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "\u202eevil"])
def test_a_name_in_a_complaint_is_one_printable_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    written(folder, of(helper.make_node("Add", ["x", name], ["y"])))
    assert run("optimize", "m.onnx", *FAST) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err[:-1].isprintable()


# Odd, but legal.


def optimized(proto: onnx.ModelProto, **options: Any) -> superopt.Result:
    return superopt.optimize(proto, **{"rules": RULES, "select": "modelled", **options})


def test_a_model_without_outputs_needs_no_nodes() -> None:
    proto = of(relu(), outputs=[])
    result = optimized(proto)
    assert list(result.model.graph.input) == list(proto.graph.input)
    assert not result.model.graph.output


def test_a_model_without_inputs_is_optimized() -> None:
    nodes = [helper.make_node("Identity", ["c"], ["d"]), relu("d", "y")]
    proto = model(nodes, {}, {"c": np.array([-1, 2], np.float32)})
    result = optimized(proto)
    assert result.report["verified"]
    assert same_bits(*(session(m.SerializeToString()).run(None, {})[0] for m in (proto, result.model)))


def test_a_model_of_constants_alone() -> None:
    node = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(np.arange(3.0)))
    proto = model([node], {}, dtype=TensorProto.DOUBLE)
    assert optimized(proto).model.SerializeToString() == proto.SerializeToString()


def test_a_model_without_nodes_hands_its_input_through() -> None:
    proto = model([relu("x", "y")], {"x": (2,)})
    del proto.graph.node[:]
    proto.graph.output[0].name = "x"
    assert optimized(proto).model.SerializeToString() == proto.SerializeToString()


@pytest.mark.parametrize(
    "dtype",
    ["FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
     "BOOL", "STRING", "COMPLEX64", "COMPLEX128", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4", "FLOAT4E2M1"],
)  # fmt: skip
def test_outputs_of_every_type(dtype: str) -> None:
    """Two Identity nodes in a row: one is enough, of whatever type."""
    number = getattr(TensorProto, dtype)
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Identity", ["a"], ["y"])]
    proto = model(nodes, {"x": (2, 2)}, opset=23, dtype=number, ir_version=11)
    result = optimized(proto)
    assert list(result.model.graph.output) == list(proto.graph.output)
    assert list(result.model.graph.input) == list(proto.graph.input)
    onnx.checker.check_model(result.model)


def test_a_chain_of_ten_thousand_nodes() -> None:
    names = ["x", *(f"v{index}" for index in range(9999)), "y"]
    proto = of(
        *(helper.make_node("Neg" if i % 3 else "Tanh", [a], [b]) for i, (a, b) in enumerate(itertools.pairwise(names)))
    )
    assert len(proto.graph.node) == 10000
    result = optimized(proto, rules=load_rules("identity"))
    assert len(result.model.graph.node) == 3334
    assert result.report["verified"]


def test_a_wide_graph() -> None:
    count = 1500
    nodes = [helper.make_node("Identity", ["x"], [f"i{index}"]) for index in range(count)]
    nodes += [helper.make_node("Tanh", [f"i{index}"], [f"t{index}"]) for index in range(count)]
    nodes += [helper.make_node("Sum", [f"t{index}" for index in range(count)], ["y"])]
    result = optimized(of(*nodes), rules=load_rules("identity"))
    assert [node.op_type for node in result.model.graph.node] == ["Tanh", "Sum"]


def test_many_outputs() -> None:
    nodes: Sequence[onnx.NodeProto] = [helper.make_node("Identity", ["x"], [f"y{index}"]) for index in range(300)]
    proto = of(*nodes, outputs=[f"y{index}" for index in range(300)])
    result = optimized(proto)
    assert list(result.model.graph.output) == list(proto.graph.output)


# Feeds and options that do not fit.


@pytest.mark.parametrize(
    "feed",
    [
        {},
        {"z": np.ones(2, np.float32)},
        {"x": np.ones(3, np.float32)},
        {"x": np.ones((1, 2), np.float32)},
        {"x": np.full(2, 1e-300)},
        {"x": np.array(["a", "b"])},
        {"x": np.ones(2, np.float32), "more": np.ones(2, np.float32)},
        {"x": None},
        3,
    ],
    ids=str,
)
def test_a_feed_that_does_not_fit_is_one_line(feed: Any) -> None:
    with pytest.raises(InputError) as caught:
        optimized(of(relu()), inputs=feed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"numeric": 3}, {"numeric": ["exact"]}, {"select": 1.0}, {"seed": "1"}, {"seed": 0.5}, {"threads": "all"},
        {"max_growth": "a lot"}, {"max_growth": [1]}, {"max_growth": float("nan")}, {"limit": 5}, {"limit": ["nodes"]},
        {"limit": {"nodes": "many"}}, {"limit": {"seconds": None}}, {"limit": {1: 2}}, {"rules": 5}, {"rules": [None]},
        {"without": 5}, {"without": [None]}, {"ignoring": 5}, {"cost": 5}, {"input_shape": 5},
        {"input_shape": {"x": 5}},
        {"input_shape": {"x": "abc"}}, {"input_shape": {"x": (1.5,)}}, {"input_shape": {"x": None}},
        {"initializers_are_constant": "yes"}, {"rules": ""}, {"inputs": "no.npz"}, {"inputs": 5},
    ],
    ids=str,
)  # fmt: skip
def test_an_option_of_the_wrong_kind_is_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        optimized(of(relu()), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source", [None, 5, b"bytes", {}, onnx.GraphProto(), onnx.NodeProto()], ids=lambda s: type(s).__name__
)
def test_what_is_no_model_at_all_is_one_line(source: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        superopt.optimize(source)


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="no such device here")
def test_a_device_is_no_model() -> None:
    with pytest.raises(ModelError, match="a device or a pipe, expected a file"):
        load("/dev/zero")


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="a device or a pipe, expected a file"):
        load(tmp_path / "pipe")


def functions_of(count: int, calls: int, around: bool = False) -> onnx.ModelProto:
    """Functions each of which calls the next so many times; the last the first, if they go ``around``."""

    def body(index: int) -> onnx.FunctionProto:
        last = index + 1 == count and not around
        names = ["x", *(f"v{call}" for call in range(calls - 1)), "y"]
        nodes = [
            helper.make_node("Relu" if last else f"f{(index + 1) % count}", [a], [b], domain="" if last else "my")
            for a, b in itertools.pairwise(names)
        ]
        return helper.make_function("my", f"f{index}", ["x"], ["y"], nodes, opsets)

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="my")], "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[body(i) for i in range(count)])


@pytest.mark.parametrize(
    "model", [functions_of(1, 1, True), functions_of(3, 2, True), functions_of(600, 1), functions_of(50, 2)],
    ids=["itself", "around", "deep", "two to the fiftieth"],
)  # fmt: skip
def test_functions_without_end_are_left_alone(model: onnx.ModelProto) -> None:
    assert superopt.optimize(model).model.SerializeToString() == model.SerializeToString()


def test_two_functions_of_one_name_are_left_alone() -> None:
    model = functions_of(1, 1)
    model.functions.append(model.functions[0])
    assert superopt.optimize(model).model.SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("count", [5, 40, 70])
def test_functions_are_counted_as_they_are_written_out(count: int) -> None:
    assert written_out(functions_of(count, 2)) == 2 ** (count + 1) - 1
    assert written_out(functions_of(count, 2, True)) == float("inf")


def test_what_doubles_without_end_is_not_run() -> None:
    nodes = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(50)]
    nodes.append(helper.make_node("Add", ["x", "v50"], ["y"]))
    info = [helper.make_tensor_value_info(name, TensorProto.INT64, None if name == "y" else [1]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [numpy_helper.from_array(np.ones(1, np.int64), "v0")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert not superopt.optimize(made).report["changed"]
    assert not may_propagate(made)
    graph.node[0].input[:] = ["x", "x"]
    made.graph.CopyFrom(graph)
    assert extent_of(made, {"x": (1,)}).largest == 8 << 50
    with pytest.raises(EvaluationError, match="too large to be run here"):
        Runner(made).run({"x": np.ones(1, np.int64)})


@pytest.mark.parametrize(
    ("places", "shape"),
    [([0, 8], [4, 2]), ([-1, 2], [4, 2]), ([[0, 0], [4, 1]], [4, 2]), ([0, 1], [0, 2]), ([0, 1, 2], [4, 2])],
)
def test_sparse_tensors_hold_what_is_in_them(places: list[Any], shape: list[int]) -> None:
    values = numpy_helper.from_array(np.ones(2, np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.asarray(places, np.int64), "i"), shape)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", info[:1], info[1:])
    graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelError, match="sparse tensor 'w': indices"):
        superopt.optimize(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def stored_beside(tmp_path: Path, location: str, **entries: str) -> Path:
    """A model that adds a stored tensor of four floats."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", info[:1], info[1:], [tensor])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    return tmp_path / "m.onnx"


def test_a_length_that_is_not_said_is_what_the_tensor_takes(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(np.arange(100, dtype=np.float32).tobytes())
    result = superopt.optimize(stored_beside(tmp_path, "data", offset="40"), select="modelled")
    assert result.report["verified"]
    assert numpy_helper.to_array(result.model.graph.initializer[0]).tolist() == [10, 11, 12, 13]


def test_a_location_that_no_system_takes_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="File name too long"):
        superopt.optimize(stored_beside(tmp_path, "a" * 5000))


def test_what_ends_onnxruntime_does_not_end_us() -> None:
    """In 1.23, a Transpose of float16 before a MatMul with a weight: the original cannot be deployed so either."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float16[2, 3, 2] x) => (float16[3, 2, 1] y) <float16[2, 1] w = {1, 2}> {
        a = Neg(x)
        b = Neg(a)
        t = Transpose<perm = [1, 0, 2]>(b)
        y = MatMul(t, w)
    }""")
    report = superopt.optimize(model).report
    assert report["verified"]
    assert is_risky(model)
    try:
        Runner(model, optimized=True)
    except EvaluationError as error:
        assert "end the process (signal 11)" in str(error)  # noqa: PT017 - newer versions do not raise


def test_a_model_in_a_hugging_face_cache_is_read_through_its_links(tmp_path: Path) -> None:
    """Links from a snapshot into the blobs of its own repository, and nowhere else."""
    repository, secret = tmp_path / "models--one", tmp_path / "secret.bin"
    snapshot, blobs = repository / "snapshots" / "abc" / "onnx", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1").write_bytes(external("data.bin").SerializeToString())
    (blobs / "2").write_bytes(np.asarray([1, 2], np.float32).tobytes())
    secret.write_bytes(bytes(8))
    (snapshot / "m.onnx").symlink_to("../../../blobs/1")
    (snapshot / "data.bin").symlink_to("../../../blobs/2")
    read = load(snapshot / "m.onnx")
    assert Runner(read).run({"x": np.ones(2, np.float32)})["y"].tolist() == [2, 3]
    assert superopt.optimize(snapshot / "m.onnx", select="modelled").report["verified"]
    (snapshot / "data.bin").unlink()
    (snapshot / "data.bin").symlink_to(secret)
    with pytest.raises(ModelError, match="leads out of"):
        load(snapshot / "m.onnx")


@pytest.mark.parametrize("broken_first", [True, False])
def test_a_broken_model_is_no_difference(folder: Path, capsys: pytest.CaptureFixture[str], broken_first: bool) -> None:
    bad = broken(data_type=TensorProto.FLOAT, dims=[1000], raw_data=bytes(4))
    (folder / "bad.onnx").write_bytes(bad.SerializeToString())
    (folder / "good.onnx").write_bytes(of(relu()).SerializeToString())
    names = ["bad.onnx", "good.onnx"] if broken_first else ["good.onnx", "bad.onnx"]
    assert run("verify", *names) == 2
    assert "bad.onnx: tensor" in capsys.readouterr().err
