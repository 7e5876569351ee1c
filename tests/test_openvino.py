"""Operators timed in another runtime than onnxruntime: by a made-up one, whose times are known, and by OpenVINO where
it is installed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import onnx
import platformdirs
import pytest
from onnx import TensorProto, helper

from superopt.cli.main import main
from superopt.cost import cost, load
from superopt.costs import database as databases
from superopt.costs import sampling, timing
from superopt.costs.database import Database, Place
from superopt.costs.executor import Call, Ends, Prepared
from superopt.costs.in_openvino import OpenVino, ends_of
from superopt.costs.instances import OperatorInstance, inputs_of, instance_model, single
from superopt.costs.operands import Operand
from superopt.costs.timing import Runtime
from superopt.errors import EvaluationError
from superopt.measure import measure_calls
from superopt.search import selection
from superopt.terms import Attrs, TensorType
from superopt.workload import NOMINAL

CALL, HANDED = 40e-6, 2e-6
SECONDS = {"Relu": 10e-6, "Softmax": 900e-6, "MatMul": 100e-6, "Neg": 0.0}


@dataclass
class Time:
    """A clock that goes on only when something runs."""

    now: float = 0.0
    graphs: list[onnx.GraphProto] = field(default_factory=list)


TIME = Time()


@dataclass(frozen=True)
class MadeUp:
    """A runtime in which operators take ``SECONDS``, an output ``HANDED`` and a call ``CALL``; a fifth of an operator's
    time is conversions at the ends. It knows no other operators."""

    threads: int = 0

    @property
    def version(self) -> str:
        return "made-up 1.0"

    @property
    def clock(self) -> Callable[[], float]:
        return lambda: TIME.now

    def check(self) -> None: ...

    def channels_of_a_block(self) -> int:
        return 0

    def prepared(self, instance: OperatorInstance) -> Prepared:
        return Prepared(instance_model(instance), inputs_of(instance), to_optimize=True, apart=True)

    def load(self, prepared: Prepared) -> Call:
        graph = prepared.proto.graph
        assert {value.name for value in graph.input} == set(prepared.feed)
        TIME.graphs.append(graph)
        for node in graph.node:
            if node.op_type not in SECONDS:
                raise RuntimeError(f"no kernel\nof {node.op_type}")
        taken = CALL + sum(SECONDS[node.op_type] / 0.8 for node in graph.node) + HANDED * (len(graph.output) - 1)

        def run() -> None:
            TIME.now += taken

        run()
        return run

    def ends(self, prepared: Prepared) -> Ends:
        return Ends(HANDED, 0.2)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made-up runtime in OpenVINO's place, and a cache of this test's own."""
    monkeypatch.setattr(timing, "OpenVino", MadeUp)
    monkeypatch.setattr(TIME, "graphs", [])
    return own_cache(tmp_path, monkeypatch)


@pytest.fixture
def openvino(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """OpenVINO itself, and a cache of this test's own."""
    pytest.importorskip("openvino")
    return own_cache(tmp_path, monkeypatch)


def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    timing.empty_call.cache_clear()
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(sampling, "MOST_SAMPLES", 7)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


THERE = Runtime("OpenVINO", 1)


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(dtype, shape)


def instance(op: str, result: TensorType, *operands: Operand, **attrs: object) -> OperatorInstance:
    found = single(op, Attrs.of(attrs), operands, result, NOMINAL)  # type: ignore[arg-type]
    assert found is not None
    return found


def relu(*shape: int) -> OperatorInstance:
    return instance("Relu", tensor(*shape), Operand(tensor(*shape)))


def conv(channels: int, size: int) -> OperatorInstance:
    image, weight = tensor(1, channels, size, size), tensor(channels, channels, 1, 1)
    attrs = {"dilations": (1, 1), "group": 1, "pads": (0,) * 4, "strides": (1, 1)}
    return instance("Conv", image, Operand(image), Operand(weight, True), Operand(tensor(channels), True), **attrs)


def product(rows: int, size: int) -> OperatorInstance:
    return instance("MatMul", tensor(rows, size), Operand(tensor(rows, size)), Operand(tensor(size, size), True))


def small_model(path: Path, *ops: str) -> Path:
    """Operators of one input, one after the other."""
    names = ["x", *(f"v{number}" for number in range(len(ops) - 1)), "y"]
    nodes = [helper.make_node(op, [names[place]], [names[place + 1]]) for place, op in enumerate(ops)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 6, 6]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_code:
        main(list(args))
    return int(exit_code.value.code or 0)


@pytest.mark.parametrize(
    ("one", "replicas"),
    [
        (relu(2), [1, 1 + 14]),  # 200 us / (12.5 us + 2 us); the first call is not empty
        (instance("Softmax", tensor(2), Operand(tensor(2)), axis=0), [1]),
        (product(1, 512), [1, 1 + 16]),  # a megabyte each, as many as a core's cache does not hold
        (product(1, 8), [1, 1 + 2]),
    ],
)
def test_what_a_runtime_takes_for_an_instance_is_found(
    made_up: Path, one: OperatorInstance, replicas: list[int]
) -> None:
    found = timing.time_instance(one, THERE)
    assert found.seconds == pytest.approx(SECONDS[one.nodes[0].op])
    assert found.spread == pytest.approx(0, abs=1e-12)
    op = one.nodes[0].op
    loaded = [graph for graph in TIME.graphs if graph.node[0].op_type == op]
    counts = [len(graph.node) for graph in loaded]
    assert len(counts) == len(replicas)
    assert counts == pytest.approx(replicas, abs=2)


def test_replicas_that_would_be_merged_have_inputs_of_their_own() -> None:
    one = product(2, 8)
    same = Prepared(instance_model(one), inputs_of(one), to_optimize=True)
    apart = Prepared(same.proto, same.feed, to_optimize=True, apart=True)
    assert [value.name for value in same.times(3).proto.graph.input] == ["leaf0"]
    assert same.times(3).feed == same.feed
    three = apart.times(3)
    assert [value.name for value in three.proto.graph.input] == ["leaf0@0", "leaf0@1", "leaf0@2"]
    assert [list(node.input) for node in three.proto.graph.node] == [[f"leaf0@{n}", f"leaf1@{n}"] for n in range(3)]
    assert all(three.feed[f"leaf0@{n}"] is same.feed["leaf0"] for n in range(3))


def test_a_profile_tells_the_ends_apart() -> None:
    us = 1e-6
    ordinary = [("Parameter", 0.0), ("Convolution", 8.5 * us), ("Reorder", 2.5 * us), ("Result", 0.0)]
    found = ends_of(ordinary * 5, {"Reorder"}, 3 * us)
    assert (found.seconds, found.most) == (3 * us, math.inf)
    assert found.share == pytest.approx(3 / 12)
    assert found.without(15 * us) == pytest.approx(9 * us)
    # One replica that something else interrupted says nothing.
    interrupted = [*ordinary * 4, ("Convolution", 1.0), ("Reorder", 2.5 * us)]
    assert ends_of(interrupted, {"Reorder"}, 0.0).share == pytest.approx(3 / 12)
    assert ends_of([("Convert", 3.0), ("Multiply", 1.0)], {"Reorder"}, 0.0).share == 0
    # A view takes nothing, however long its result is copied; of a constant nothing is left to run.
    view = [("Reshape", 0.0), ("Result", 0.0)] * 5
    assert ends_of(view, {"Reorder"}, us, views=True).without(100 * us) == pytest.approx(0.5 * us)
    # What the runtime need not copy here, between plain tensors, it may have to elsewhere.
    assert ends_of([("Split", 0.0), ("Result", 0.0)] * 5, {"Reorder"}, us).without(100 * us) == pytest.approx(99 * us)
    assert ends_of([("Parameter", 0.0), ("Result", 0.0)], {"Reorder"}, us).without(100 * us) == 0


def test_measure_times_in_the_runtime_that_is_named(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_model(Path("m.onnx"), "Relu", "Exp", "Softmax")
    command = ["measure", "m.onnx", "--provider", "OpenVINO", "--threads", "1", "--rules", "none"]
    assert run(*command, "-o", "there.toml", "--report", "r.json") == 0
    document = json.loads(Path("r.json").read_text())
    assert (document["timed"], document["left"], document["total"]) == (2, 0, 2)
    (failed,) = document["failed"]
    assert failed["instance"] == "Exp 1x16x6x6"
    assert failed["reason"] == "Exp 1x16x6x6: cannot be timed: no kernel of Exp"
    place = Place.here(THERE)
    assert (place.runtime, place.provider, place.threads) == ("made-up 1.0", "OpenVINO", 1)
    assert document["place"] == str(place)
    assert "made-up 1.0, OpenVINO, 1 thread" in capsys.readouterr().out
    assert set(Database(databases.default_path()).places()) == {place}

    there = {item.op: item for item in cost("m.onnx", load("measured@OpenVINO", Runtime(threads=1))).nodes}
    assert [there[op].timed for op in ("Relu", "Exp", "Softmax")] == [True, False, True]
    assert there["Relu"].cost == pytest.approx(SECONDS["Relu"])
    assert cost("m.onnx", load("there.toml")).nodes == cost("m.onnx", load("measured", THERE)).nodes
    # What was timed there says nothing about onnxruntime.
    assert not load("measured", Runtime(threads=1)).instances
    assert run("cost", "m.onnx", "--cost", "measured@OpenVINO", "--threads", "1", "--not-timed") == 0
    optimize = ["optimize", "m.onnx", "--cost", "measured@OpenVINO", "--threads", "1", "--select", "modelled"]
    assert run(*optimize) == 0


@pytest.mark.parametrize(
    "command",
    [
        ("measure", "m.onnx", "--provider"),
        ("cost", "m.onnx", "--cost", "measured@"),
        ("optimize", "m.onnx", "--cost", "measured@"),
        ("optimize", "m.onnx", "--provider"),
    ],
)
@pytest.mark.parametrize(
    ("provider", "error"),
    [
        ("OpenVINO", "provider: OpenVINO cannot be used (.*), expected its package: pip install 'superopt[openvino]'"),
        ("NoSuchExecutionProvider", "provider: onnxruntime has no 'NoSuchExecutionProvider' here, expected one of .*)"),
        (
            "openvino",
            "provider: onnxruntime has no 'openvino' here, expected one of .*, or OpenVINO (superopt[openvino])",
        ),
    ],
)
def test_a_provider_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...], provider: str, error: str,
) -> None:  # fmt: skip
    cache = own_cache(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, "openvino", None)  # as if it were not installed
    small_model(Path("m.onnx"), "Relu")
    *rest, last = command
    assert run(*rest, *([last + provider] if last.endswith("@") else [last, provider])) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    start, _, end = error.partition(".*")
    assert start in line
    assert line.endswith(end)
    assert not cache.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("make", [lambda: relu(1, 8), lambda: conv(32, 8), lambda: product(1, 256)])
@pytest.mark.parametrize("threads", [0, 1])
def test_openvino_times_instances(openvino: Path, make: Callable[[], OperatorInstance], threads: int) -> None:
    found = timing.time_instance(make(), Runtime("OpenVINO", threads))
    assert found.samples == 7
    assert 0 <= found.seconds < 1


@pytest.mark.parametrize("make", [lambda: relu(1, 8), lambda: conv(32, 8), lambda: product(4, 16)])
def test_openvino_runs_every_replica(openvino: Path, make: Callable[[], OperatorInstance]) -> None:
    executor = OpenVino(1)
    request = executor._request(executor.prepared(make()).times(5), profiled=True)
    request.infer()
    kinds = [each.node_type for each in request.get_profiling_info()]
    own = {kind: kinds.count(kind) for kind in kinds} | {"Parameter": 0, "Result": 0, "Reorder": 0, "Constant": 0}
    assert [count for count in own.values() if count] == [5]


def test_openvino_computes_as_asked(openvino: Path) -> None:
    executor = OpenVino(1)
    request = executor._request(executor.prepared(conv(32, 8)), profiled=False)
    compiled = request.get_compiled_model()
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert str(compiled.get_property("PERFORMANCE_HINT")).endswith("LATENCY")
    assert "float32" in str(compiled.get_property("INFERENCE_PRECISION_HINT"))
    assert executor.version.startswith("openvino 20")


def test_openvino_says_what_it_does_not_run(openvino: Path) -> None:
    numbers = tensor(2, dtype="bfloat16")
    with pytest.raises(EvaluationError, match="cannot be timed"):
        timing.time_instance(instance("Abs", numbers, Operand(numbers)), THERE)
    wrong = instance("MatMul", tensor(2, 5), Operand(tensor(2, 3)), Operand(tensor(4, 5)))
    with pytest.raises(EvaluationError, match="MatMul 2x3 4x5: cannot be timed"):
        timing.time_instance(wrong, THERE)


def test_a_model_is_priced_by_what_openvino_takes(openvino: Path) -> None:
    small_model(Path("m.onnx"), "Relu", "Softmax")
    assert run("measure", "m.onnx", "--provider", "OpenVINO", "--threads", "1", "--rules", "none") == 0
    assert cost("m.onnx", load("measured", THERE)).timed == 1
    assert Place.here(THERE).runtime == OpenVino().version


def test_candidates_are_timed_in_the_runtime_that_is_named(
    made_up: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selection, "measure_calls", partial(measure_calls, clock=lambda: TIME.now))
    small_model(Path("m.onnx"), "Relu", "Relu", "Relu", "Neg")
    assert run("optimize", "m.onnx", "--provider", "OpenVINO", "--threads", "1", "--report", "r.json") == 0
    report = json.loads(Path("r.json").read_text())
    assert report["settings"]["provider"] == "OpenVINO"
    taken = CALL + SECONDS["Relu"] / 0.8
    assert report["latency"]["after"] == pytest.approx(1e3 * taken)
    assert report["latency"]["before"] == pytest.approx(1e3 * (taken + 2 * SECONDS["Relu"] / 0.8))
    assert "measured in turn with OpenVINO, " in capsys.readouterr().out


def test_what_the_runtime_does_not_run_is_chosen_by_the_cost_model(made_up: Path) -> None:
    small_model(Path("m.onnx"), "Exp", "Identity", "Relu")
    assert run("optimize", "m.onnx", "--provider", "OpenVINO", "--threads", "1", "--report", "r.json") == 0
    report = json.loads(Path("r.json").read_text())
    assert report["changed"]
    assert report["latency"] is None
    assert report["problems"] == ["not timed: OpenVINO does not run it: no kernel of Exp"]


def test_openvino_decides_among_candidates(openvino: Path) -> None:
    small_model(Path("m.onnx"), "Relu", "Relu", "Exp", "Identity")
    given = ("--provider", "OpenVINO", "--threads", "1", "--cost", "measured", "--tune", "2", "--report", "r.json")
    assert run("optimize", "m.onnx", *given) == 0
    report = json.loads(Path("r.json").read_text())
    assert report["verified"]
    assert report["latency"]["before"] > 0
    assert report["problems"] == []
