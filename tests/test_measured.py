"""Timed operator instances: what one is, the small models that they are timed in, the database, and the cost model that
is made of it. No test looks at how long anything takes."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.cli.main import main
from superopt.cost import CostModel, constant_nodes, cost, load, operands_of
from superopt.costs import database as databases
from superopt.costs import filling, sampling, timing
from superopt.costs.database import Database, Place
from superopt.costs.executor import Ends
from superopt.costs.fitting import fitted
from superopt.costs.fusions import NONE
from superopt.costs.gather import egraph_instances, graph_instances
from superopt.costs.instances import (
    InstanceNode,
    OperatorInstance,
    inputs_of,
    instance_model,
    instance_of,
    instance_of_key,
    single,
)
from superopt.costs.layout import conversion_instance
from superopt.costs.operands import Operand, content_of
from superopt.costs.sampling import Timing
from superopt.costs.timing import Runtime
from superopt.engine.saturate import Limits, Saturation, saturate
from superopt.errors import CostModelError, EvaluationError, OptionError
from superopt.extraction import extract
from superopt.lowering.lower import lower
from superopt.models.model import load as load_model
from superopt.models.tensors import constant_of_array
from superopt.rule_text import parse as parse_rules
from superopt.rules import RuleSet
from superopt.terms import Attrs, TensorType, TermGraph, ValueType
from superopt.workload import NOMINAL

HERE = Place("a processor x 2", "onnxruntime 1.0", "CPUExecutionProvider", 1)
ONE = Runtime(threads=1)


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(dtype, shape)


def instance(op: str, operands: list[Operand | None], result: ValueType, **attrs: object) -> OperatorInstance:
    found = single(op, Attrs.of(attrs), operands, result, NOMINAL)  # type: ignore[arg-type]
    assert found is not None
    return found


def conv(channels: int = 16, size: int = 6, group: int = 1) -> OperatorInstance:
    image = tensor(1, channels, size, size)
    weight = Operand(tensor(channels, channels // group, 3, 3), True)
    bias = Operand(tensor(channels), True)
    return instance(
        "Conv", [Operand(image), weight, bias], image, dilations=(1, 1), group=group, pads=(1,) * 4, strides=(1, 1)
    )


def relu(*shape: int) -> OperatorInstance:
    return instance("Relu", [Operand(tensor(*shape))], tensor(*shape))


def test_what_a_running_time_depends_on_tells_instances_apart() -> None:
    seven, eight = Operand(tensor(2, 7)), Operand(tensor(2, 8))
    different = [
        instance("Add", [seven, seven], tensor(2, 7)),
        instance("Mul", [seven, seven], tensor(2, 7)),
        instance("Add", [eight, eight], tensor(2, 8)),
        instance("Add", [seven, replace(seven, constant=True)], tensor(2, 7)),
        instance("Add", [Operand(tensor(2, 7, dtype="float16"))] * 2, tensor(2, 7, dtype="float16")),
        instance("Pow", [seven, Operand(tensor(), True, content="[2]")], tensor(2, 7)),
        instance("Pow", [seven, Operand(tensor(), True, content="[3]")], tensor(2, 7)),
        instance("Softmax", [seven], tensor(2, 7), axis=0),
        instance("Softmax", [seven], tensor(2, 7), axis=1),
        conv(),
        conv(group=2),
    ]
    assert len({one.key for one in different}) == len(different)
    again = instance("Add", [Operand(tensor(2, 7)), seven], tensor(2, 7))
    assert again.key == different[0].key
    for one in different:
        assert instance_of_key(one.key) == one


def test_small_constants_count_and_weights_do_not() -> None:
    assert content_of(constant_of_array(np.float32(2.5))) == '["2.5"]'
    assert content_of(constant_of_array(np.array([3, -1]))) == "[3, -1]"
    assert content_of(constant_of_array(np.ones(2, np.float32))) == ""
    assert content_of(constant_of_array(np.arange(17))) == ""
    largest = np.iinfo(np.int64).max
    power = instance("Add", [Operand(tensor(2, dtype="int64"), True, content=f"[{largest}, 1]")] * 2, tensor(2))
    held = numpy_helper.to_array(instance_model(power).graph.initializer[0])
    assert held.tolist() == [largest, 1]


def optimized(model: onnx.ModelProto, path: Path) -> list[str]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize(
    ("make", "op"),
    [
        (conv, "Conv"),
        (lambda: relu(2, 3), "Relu"),
        (lambda: instance("Pow", [Operand(tensor(2)), Operand(tensor(), True, content='["3.0"]')], tensor(2)), "Pow"),
        (lambda: instance("MatMul", [Operand(tensor(2, 3)), Operand(tensor(3, 4), True)], tensor(2, 4)), "MatMul"),
        (lambda: instance("Split", [Operand(tensor(4, 2))], (tensor(2, 2),) * 2, axis=0, split=(2, 2)), "Split"),
        (lambda: instance("Transpose", [Operand(tensor(2, 3))], tensor(3, 2), perm=(1, 0)), "Transpose"),
        (lambda: instance("Gelu", [Operand(tensor(2, 3))], tensor(2, 3), approximate="none"), "Gelu"),
    ],
)
def test_an_instance_is_not_folded_away(make: Callable[[], OperatorInstance], op: str, tmp_path: Path) -> None:
    one = make()
    model = instance_model(one)
    left = [name for name in optimized(model, tmp_path / "m.onnx") if not name.startswith("Reorder")]
    assert left == [op]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert all(np.isfinite(result).all() for result in session.run(None, inputs_of(one)))


@pytest.mark.parametrize("make", [conv, lambda: relu(1, 8), lambda: relu(64, 4096)])
def test_an_instance_is_timed_whatever_its_size(
    make: Callable[[], OperatorInstance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "MOST_SAMPLES", 7)
    found = timing.time_instance(make(), ONE)
    assert found.samples == 7
    assert found.seconds >= 0


def test_conversions_of_layout_at_the_ends_are_not_timed() -> None:
    prepared = ONE.executor.prepared(conv(channels=32))
    assert [node.op_type for node in prepared.proto.graph.node] == ["Conv"]
    assert not prepared.to_optimize
    replicas = prepared.times(3).proto
    assert [node.op_type for node in replicas.graph.node] == ["Conv"] * 3
    assert len({node.input[1] for node in replicas.graph.node}) == 3
    ONE.executor.load(prepared.times(3))()


LARGE = 64 << 10


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("Reshape", {"shape": (LARGE, 8), "allowzero": 0}), ("Flatten", {"axis": 1}), ("Unsqueeze", {"axes": (0,)})],
)
def test_a_view_takes_the_same_whatever_its_size(op: str, attrs: dict[str, object]) -> None:
    large = instance(op, [Operand(tensor(8, LARGE))], tensor(8, LARGE), **attrs)
    ends = ONE.executor.ends(ONE.executor.prepared(large))
    assert ends.without(1.0) == ends.most < math.inf  # however long its result is copied
    assert timing.time_instance(large, ONE).seconds <= ends.most
    assert ONE.executor.ends(ONE.executor.prepared(relu(8, 64))) == Ends()


def test_what_is_added_to_a_convolution_is_in_its_layout() -> None:
    image = tensor(1, 32, 6, 6)
    alone = conv(channels=32)
    operands = {
        0: Operand(image),
        1: Operand(tensor(32, 32, 3, 3), True),
        2: Operand(tensor(32), True),
        3: Operand(image),
    }
    parts = {
        4: InstanceNode("Conv", alone.nodes[0].attrs, (0, 1, 2), image),
        5: InstanceNode("Add", Attrs(), (3, 4), image),
    }
    one = instance_of(parts, operands, NOMINAL)
    assert one is not None
    prepared = ONE.executor.prepared(one)
    assert [node.op_type for node in prepared.proto.graph.node] == ["Conv"]
    assert len(prepared.feed) == 2
    ONE.executor.load(prepared.times(2))()


def test_what_cannot_be_timed_says_so() -> None:
    text = instance("Identity", [Operand(tensor(2, dtype="string"))], tensor(2, dtype="string"))
    with pytest.raises(EvaluationError, match="string"):
        timing.time_instance(text, ONE)
    wrong = instance("MatMul", [Operand(tensor(2, 3)), Operand(tensor(4, 5))], tensor(2, 5))
    with pytest.raises(EvaluationError, match="MatMul 2x3 4x5: cannot be timed"):
        timing.time_instance(wrong, ONE)


def test_the_database_keeps_what_is_written(tmp_path: Path) -> None:
    database = Database(tmp_path / "folder" / "t.sqlite")
    assert database.timings(HERE) == {}
    assert database.places() == {}
    assert not database.path.exists()
    timings = {relu(2).key: Timing(1e-6, 1e-8, 9), conv().key: Timing(2e-4, 0.0, 7)}
    database.add(HERE, timings)
    assert database.timings(HERE) == timings
    database.add(HERE, {relu(2).key: Timing(3e-6, 0.0, 11)})
    assert database.timings(HERE)[relu(2).key].seconds == 3e-6
    assert database.places() == {HERE: 2}


@pytest.mark.parametrize(
    "change", [{"machine": "another"}, {"runtime": "onnxruntime 2.0"}, {"provider": "Other"}, {"threads": 2}]
)
def test_each_part_of_the_place_tells_timings_apart(tmp_path: Path, change: dict[str, object]) -> None:
    database = Database(tmp_path / "t.sqlite")
    there = replace(HERE, **change)  # type: ignore[arg-type]
    database.add(HERE, {"a": Timing(1.0, 0.0, 1)})
    assert database.timings(there) == {}
    database.add(there, {"a": Timing(2.0, 0.0, 1)})
    assert database.timings(HERE)["a"].seconds == 1.0
    assert database.timings(there)["a"].seconds == 2.0


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_text("not a database, whatever its name says" * 50)
    with pytest.raises(CostModelError, match=r"t\.sqlite: .*expected a database of timings"):
        Database(path).timings(HERE)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CostModelError, match="is of version 99, expected"):
        Database(path).timings(HERE)


def small_model(path: Path) -> Path:
    """Relu(Conv(x)) and a MatMul."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("MatMul", ["s", "m"], ["y"]),
    ]
    random = np.random.default_rng(0)
    stored = {"w": (16, 16, 3, 3), "b": (16,), "m": (6, 4)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 6, 4])],
        [numpy_helper.from_array(random.random(shape, np.float32), name) for name, shape in stored.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setattr(databases.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(sampling, "MOST_SAMPLES", 7)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_code:
        main(list(args))
    return int(exit_code.value.code or 0)


def test_a_price_is_what_was_timed_and_a_miss_is_by_formula(cache: Path) -> None:
    path = small_model(Path("m.onnx"))
    formula = cost(path, "onnxruntime")
    empty = cost(path, "measured")
    assert [item.cost for item in empty.nodes] == [item.cost for item in formula.nodes]
    assert not any(item.timed for item in empty.nodes)
    assert empty.timed == 0

    graph = lower(load_model(path)).graph
    operands = operands_of(graph, constant_nodes(graph))
    found = list(graph_instances(graph, operands, NOMINAL, NONE).values())
    assert [one.nodes[0].op for one in found] == ["Conv", "Sigmoid", "MatMul"]
    fused = list(graph_instances(graph, operands, NOMINAL, load("onnxruntime").fusions).values())
    assert [[node.op for node in one.nodes] for one in fused] == [["Conv", "Sigmoid"], ["MatMul"]]
    place, database = Place.here(Runtime()), Database(databases.default_path())
    database.add(place, {found[2].key: Timing(0.25, 0.0, 7)})
    alone = {item.op: item for item in cost(path, "measured").nodes}
    assert alone["Conv"].cost > 0
    assert alone["Conv"].fused == "conv-activation[Sigmoid]"
    assert not alone["Conv"].timed
    database.add(place, {fused[0].key: Timing(1.5, 0.0, 7)})
    some = {item.op: item for item in cost(path, "measured").nodes}
    assert (some["Conv"].cost, some["MatMul"].cost) == (1.5, 0.25)
    assert some["Conv"].timed
    assert some["MatMul"].timed
    assert some["Sigmoid"].timed
    assert some["Sigmoid"].cost == 0

    # An entry that is wrong makes a price that is wrong: it is the entry that is used.
    database.add(place, {fused[0].key: Timing(1000.0, 0.0, 7)})
    assert {item.op: item.cost for item in cost(path, "measured").nodes}["Conv"] == 1000.0
    # Other threads are another place.
    other = load("measured", Runtime(threads=3))
    assert not other.instances
    assert other.hash != load("measured").hash


def test_extraction_chooses_by_what_was_timed() -> None:
    """Of two operators that cost the same by formula the one that was timed to be faster, whichever that is."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rules = parse_rules("rule other: exact\n  Exp(x) => Abs(x)\n")  # not true, which extraction does not ask
    egraph = saturate(lower(load_model(proto)).graph, rules, Limits(), 17).egraph
    keys = {op: instance(op, [Operand(tensor(2, 3))], tensor(2, 3)).key for op in ("Exp", "Abs")}
    for op in keys:
        timed = {key: 1.0 if name == op else 5.0 for name, key in keys.items()}
        chosen = extract(egraph, CostModel("m", "u", node=3.0, instances=timed))
        assert (chosen.graph.nodes[-1].op, chosen.cost) == (op, 1.0)


def test_the_fallback_follows_what_was_timed() -> None:
    model = load("onnxruntime")

    def asked(which: CostModel, op: str, size: int = 20) -> float:
        image = tensor(1, 64, size, size)
        return which.formula(op, Attrs(), [Operand(image)], image)

    def timed(op: str, factor: float, sizes: range) -> dict[str, float]:
        images = {size: tensor(1, 64, size, size) for size in sizes}
        return {
            instance(op, [Operand(image)], image).key: factor * asked(model, op, size) for size, image in images.items()
        }

    assert fitted(model, {}) == model
    slower = fitted(model, timed("Relu", 3, range(16, 19)))
    assert asked(slower, "Relu") == pytest.approx(3 * asked(model, "Relu"))
    assert asked(slower, "Sigmoid") == pytest.approx(3 * asked(model, "Sigmoid"))
    # One operator that is slow is no reason to think so of all.
    both = fitted(model, {**timed("Relu", 3, range(16, 19)), **timed("Abs", 1, range(10, 20))})
    assert asked(both, "Relu") == pytest.approx(3 * asked(model, "Relu"))
    assert asked(both, "Sigmoid") == pytest.approx(asked(model, "Sigmoid"))


def test_filling_stops_in_time_and_does_not_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "t.sqlite")
    asked: list[str] = []

    def fake(one: OperatorInstance, runtime: Runtime) -> Timing:
        asked.append(one.name)
        if "9" in one.name:
            raise EvaluationError("nine is not timed")
        return Timing(1.0, 0.0, 1)

    monkeypatch.setattr(filling, "time_instance", fake)
    found = filling.fill(database, [relu(2), relu(3), relu(2), relu(9)], ONE)
    assert (found.timed, found.known, found.left, found.failed) == (2, 0, 0, {"Relu 9": "nine is not timed"})
    found = filling.fill(database, [relu(2), relu(4)], ONE)
    assert (found.timed, found.known) == (1, 1)
    assert asked == ["Relu 2", "Relu 3", "Relu 9", "Relu 4"]
    assert filling.fill(database, [relu(2)], ONE, again=True).timed == 1
    late = filling.fill(database, [relu(5), relu(6)], ONE, seconds=0)
    assert (late.timed, late.left) == (0, 2)
    with pytest.raises(OptionError, match=r"onnxruntime has no 'Nothing' here, expected one of .*CPUExecutionProvider"):
        filling.fill(database, [relu(2)], Runtime("Nothing"))


def test_only_conversions_that_the_runtime_makes_are_timed() -> None:
    image = TensorType("float32", (1, 6, 8, 8))
    assert conversion_instance("ReorderInput", image, NOMINAL, 8) is None
    assert conversion_instance("ReorderOutput", image, NOMINAL, 8) is not None
    for operator, expected in (("Conv(x, w)", True), ("MaxPool<kernel_shape=[2,2]>(x)", True), ("Exp(x)", False)):
        header = '<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,8,8] x) => (float[1,16,n,n] y)'
        model = onnx.parser.parse_model(f"{header} {{ y = {operator} }}")
        model.graph.initializer.append(numpy_helper.from_array(np.ones((16, 16, 1, 1), np.float32), "w"))
        egraph = saturate(lower(load_model(model)).graph, RuleSet(), Limits(iterations=1), 17).egraph
        names = [found.opaque.op_type for found in egraph_instances(egraph, {}, NONE, 8).values() if found.opaque]
        assert (names.count("ReorderInput") > 0) == expected
        assert len(egraph_instances(egraph, {}, NONE, 0)) == 1


def test_finding_instances_takes_half_of_the_seconds_at_most(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_model(Path("m.onnx"))
    small_model(Path("n.onnx"))
    asked: list[float | None] = []

    def watched(graph: TermGraph, rules: RuleSet, limits: Limits, opset: int) -> Saturation:
        asked.append(limits.seconds)
        return saturate(graph, rules, limits, opset)

    monkeypatch.setattr("superopt.cli.measure.saturate", watched)
    assert run("measure", "m.onnx", "n.onnx", "--threads", "1", "--rules", "identity", "--seconds", "8") == 0
    assert asked == [2.0, 2.0]


def test_measure_fills_the_database_and_writes_a_cost_model(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_model(Path("m.onnx"))
    assert run("measure", "m.onnx", "--threads", "1", "--rules", "none", "-o", "here.toml", "--report", "r.json") == 0
    document = json.loads(Path("r.json").read_text())
    # The convolution with its sigmoid, the product, and the conversions of what the one takes and makes.
    count = 2 + (2 if timing.channels_of_a_block(ONE) else 0)
    assert (document["timed"], document["known"], document["left"], document["failed"]) == (count, 0, 0, [])
    assert document["total"] == count
    printed = capsys.readouterr().out
    assert f"{count} operator instances timed" in printed
    assert "CPUExecutionProvider, 1 thread" in printed
    assert run("measure", "m.onnx", "--threads", "1", "--rules", "none") == 0
    printed = capsys.readouterr().out
    assert "0 operator instances timed" in printed
    assert f"{count} known before" in printed

    from_file, from_database = load("here.toml"), load("measured", ONE)
    assert from_file.instances == from_database.instances
    assert cost("m.onnx", from_file) == cost("m.onnx", from_database)
    assert cost("m.onnx", from_file).timed == 1
    assert run("cost", "m.onnx", "--cost", "here.toml", "--cost", "nodes", "--threads", "1", "--report", "c.json") == 0
    found = json.loads(Path("c.json").read_text())
    assert [model["name"] for model in found["models"]] == ["measured", "nodes"]
    assert [line["operator"] for line in found["nodes"]] == ["Conv", "Sigmoid", "MatMul"]
    assert [line["costs"][1] for line in found["nodes"]] == [1.0, 1.0, 1.0]
    assert found["latency_ms"] > 0
    assert found["profiled_ms"] > 0
    by_node = {line["operator"]: line["latency_ms"] for line in found["nodes"]}
    assert by_node["MatMul"] is not None
    assert by_node["Sigmoid"] is None  # the runtime has made it part of the convolution
    assert run("optimize", "m.onnx", "--cost", "measured", "--select", "modelled", "--threads", "1") == 0


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["measure", "m.onnx", "--provider", "NoSuch"], "provider: onnxruntime has no 'NoSuch' here, expected one of"),
        (["measure", "m.onnx", "--seconds", "-1"], "seconds: -1.0 is out of range"),
        (["measure", "m.onnx", "-o", "a.txt"], "a.txt: cannot be a cost model, expected a .toml file"),
        (["measure", "no.onnx"], "no.onnx"),
        (["measure", "m.onnx", "--rules", "nothing"], "nothing"),
        (["measure", "m.onnx", "--threads", "-1"], "threads: -1 is out of range"),
        (["cost", "m.onnx", "--cost", "nodes", "--cost", "nothing"], "nothing: no such cost model, expected"),
        (["cost", "m.onnx", "--seconds", "nan"], "seconds: nan is out of range"),
        (["cost", "m.onnx", "--cost", "measured@Nothing"], "provider: onnxruntime has no 'Nothing' here"),
    ],
)
def test_bad_input_is_one_line(cache: Path, capsys: pytest.CaptureFixture[str], args: list[str], what: str) -> None:
    small_model(Path("m.onnx"))
    assert run(*args) == 2
    error = capsys.readouterr().err
    assert what in error
    assert len(error.strip().splitlines()) == 1
    assert not cache.exists()
