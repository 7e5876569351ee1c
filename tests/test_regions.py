"""Verification by regions: what was rewritten, cut out of both models, decides where the whole cannot."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime_extensions
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.cli import main as cli
from superopt.errors import OptionError
from superopt.inputs.feeds import Feeds
from superopt.inputs.sample import sample
from superopt.lowering.lower import lower
from superopt.models.model import Model, load
from superopt.options import Options
from superopt.progress import Clock, Watcher
from superopt.verification.evidence import chaotic_outputs, gather
from superopt.verification.regions import Difference
from superopt.verification.verifier import Verifier
from superopt.verification.verify import verify
from superopt.verification.verify_regions import verify_regions

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Numbers = dict[str, np.ndarray]


def made(
    nodes: list[onnx.NodeProto], weights: Numbers, x: list[int | str], outputs: str, *infos: onnx.ValueInfoProto
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, x)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs.split()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
        value_info=infos,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def written(nodes: str) -> Model:
    """A model of these nodes, from x to y."""
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[2,3] x) => (float[2,3] y)'
    return load(onnx.parser.parse_model(f"{header} {{ {nodes} }}"))


def conv_bn(place: str, source: str, channels: int, seed: int) -> tuple[list[onnx.NodeProto], Numbers]:
    """Conv, BatchNormalization and Relu, from ``source`` to ``place``."""
    rng = np.random.default_rng(seed)
    weights = {
        f"w{place}": 0.2 * rng.standard_normal((channels, channels, 3, 3)),
        f"s{place}": rng.random(channels) + 0.5,
        f"b{place}": rng.standard_normal(channels),
        f"m{place}": rng.standard_normal(channels),
        f"v{place}": rng.random(channels) + 0.5,
    }
    statistics = [f"{letter}{place}" for letter in "sbmv"]
    nodes = [
        helper.make_node("Conv", [source, f"w{place}"], [f"conv{place}"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", [f"conv{place}", *statistics], [f"norm{place}"]),
        helper.make_node("Relu", [f"norm{place}"], [place]),
    ]
    return nodes, {name: value.astype(np.float32) for name, value in weights.items()}


def with_custom_operator() -> onnx.ModelProto:
    """Conv and BatchNormalization on both sides of an operator that nothing here can run."""
    first, weights = conv_bn("a", "x", 4, 0)
    second, more = conv_bn("y", "z", 4, 1)
    magic = helper.make_node("Magic", ["a"], ["z"], domain="my.ops")
    known = helper.make_tensor_value_info("z", FLOAT, ["n", 4, 8, 8])
    return made([*first, magic, *second], {**weights, **more}, ["n", 4, 8, 8], "y", known)


def chaotic(steps: int = 8) -> onnx.ModelProto:
    """A Conv and BatchNormalization, then a map that makes any difference 15 times as large in each step."""
    nodes, weights = conv_bn("u0", "x", 4, 2)
    for step in range(steps):
        nodes.append(helper.make_node("Mul", [f"u{step}", "rate"], [f"t{step}"]))
        nodes.append(helper.make_node("Sin", [f"t{step}"], [f"u{step + 1}"]))
    return made(nodes, {**weights, "rate": np.float32([25.0])}, [1, 4, 8, 8], f"u{steps}")


def spoiled(model: Model, share: float = 1e-3) -> Model:
    """The model with one weight of its first convolution off by a share of it."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    name = next(node.input[1] for node in proto.graph.node if node.op_type == "Conv")
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
    value = numpy_helper.to_array(tensor).copy()
    value.reshape(-1)[np.argmax(np.abs(value))] *= 1 + share
    tensor.CopyFrom(numpy_helper.from_array(value, name))
    return load(proto)


def found_in(proto: onnx.ModelProto) -> Model:
    """What optimizing a model gives, checked to have been verified."""
    return _found_in(proto.SerializeToString())


@cache
def _found_in(data: bytes) -> Model:
    result = superopt.optimize(onnx.load_from_string(data), rules="batchnorm", select="modelled")
    assert result.report["verified"]
    assert result.report["changed"]
    return load(result.model)


def test_a_model_with_an_unknown_operator_is_optimized_and_verified_by_regions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, report = tmp_path / "m.onnx", tmp_path / "out.onnx", tmp_path / "r.json"
    onnx.save(with_custom_operator(), source)
    with pytest.raises(SystemExit) as left:
        cli.main(["optimize", str(source), "-o", str(target), "--report", str(report)])
    assert left.value.code == 0
    document = json.loads(report.read_text())
    assert [node.op_type for node in onnx.load(target).graph.node] == ["Conv", "Relu", "Magic", "Conv", "Relu"]
    assert document["regions"] == 2
    assert "by regions: each of 2 rewritten regions" in document["verified_by"]
    assert "on random values" in capsys.readouterr().out
    assert document["feeds"] == [
        f"seeded {place} ({axis}={size})" for axis in ("n", "z[0]") for place, size in enumerate((1, 2, 1))
    ]


@pytest.mark.parametrize("runs", [True, False])
def test_a_wrong_weight_in_a_region_is_found(runs: bool) -> None:
    proto = made(*conv_bn("y", "x", 4, 3), ["n", 4, 8, 8], "y") if runs else with_custom_operator()
    original = load(proto)
    right = found_in(proto)
    feeds = sample(original) if runs else Feeds((), 0)
    assert verify_regions(original, right, feeds).agree
    wrong = verify_regions(original, spoiled(right), feeds)
    assert not wrong.agree
    assert "off from the truth" in wrong.reason


def test_regions_get_the_values_of_the_original_where_it_runs() -> None:
    nodes, weights = conv_bn("a", "x", 4, 4)
    nodes += [helper.make_node("Softplus", ["a"], ["z"])]
    more, others = conv_bn("y", "z", 4, 5)
    proto = made([*nodes, *more], {**weights, **others}, [1, 4, 8, 8], "y")
    result = superopt.optimize(proto, select="modelled", verify="regions")
    assert result.report["regions"] == 2
    assert "on the values of 2 runs of the original" in result.report["verified_by"]
    assert [output["name"] for output in result.report["outputs"]] == ["norma", "normy"]
    assert result.report["truth"] == "float64"
    assert result.report["feeds"] == ["seeded 0", "seeded 1"]


def test_parts_lie_between_values_that_both_have() -> None:
    original = load(with_custom_operator())
    difference = Difference(original, found_in(original.proto))
    regions = difference.regions()
    assert [(region.inputs, region.outputs) for region in regions] == [(("x",), ("norma",)), (("z",), ("normy",))]
    pairs = [difference.models(region, {}) for region in regions]
    assert [[node.op_type for node in old.proto.graph.node] for old, _ in pairs] == [["Conv", "BatchNormalization"]] * 2
    assert [[node.op_type for node in new.proto.graph.node] for _, new in pairs] == [["Conv"]] * 2
    same = Difference(original, original)
    assert same.regions() == []


def test_whoever_is_given_nothing_different_has_nothing_to_compare() -> None:
    model = load(with_custom_operator())
    verdict = verify_regions(model, model)
    assert (verdict.agree, verdict.regions, verdict.reason) == (True, 0, "by regions: nothing was rewritten")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("y = LeakyRelu<alpha = 0.1>(x)", "y = LeakyRelu<alpha = 0.5>(x)"),
        ("y = Relu(x)", "y = Abs(x)"),
        ("a = Abs(x) y = Sub(a, x)", "a = Abs(x) y = Sub(x, a)"),
        ("c = Constant<value_float = 1.0>() y = Clip(x, , c)", "c = Constant<value_float = 1.0>() y = Clip(x, c)"),
        ("c = Constant<value_float = 1.0>() y = Mul(x, c)", "c = Constant<value_float = 2.0>() y = Mul(x, c)"),
    ],
    ids=["attribute", "operator", "order", "absent input", "constant"],
)
def test_a_node_is_the_same_only_where_all_of_it_is(one: str, other: str) -> None:
    before, after = written(one), written(other)
    assert verify_regions(before, before).regions == 0
    verdict = verify_regions(before, after)
    assert (verdict.agree, verdict.regions) == (False, 1)


def test_a_region_that_cannot_be_run_speaks_against_the_new_model() -> None:
    verdict = verify_regions(written("a = com.microsoft.NoSuch(x) y = Neg(a)"), written("y = Abs(x)"))
    assert not verdict.agree
    assert "its region cannot be run" in verdict.reason


def test_values_that_depend_on_each_other_are_not_chosen_freely() -> None:
    """abs(relu(x)) is relu(x), but abs(r) is not relu(x) for any r: random values must keep to r = relu(x)."""
    common = [
        helper.make_node("Magic", ["x"], ["m"], domain="my.ops"),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("Sigmoid", ["r"], ["s"]),
    ]
    known = helper.make_tensor_value_info("m", FLOAT, [4, 8])
    one = load(made([*common, helper.make_node("Abs", ["r"], ["y"])], {}, [4, 8], "s y", known))
    same = load(made([*common, helper.make_node("Relu", ["m"], ["y"])], {}, [4, 8], "s y", known))
    other = load(made([*common, helper.make_node("Softplus", ["m"], ["y"])], {}, [4, 8], "s y", known))
    assert [(region.inputs, region.outputs) for region in Difference(one, same).regions()] == [(("m", "r"), ("y",))]
    assert verify_regions(one, same).agree
    assert not verify_regions(one, other).agree


@pytest.mark.parametrize("length", [0, 1, 6])
def test_values_that_a_node_cannot_give_are_not_chosen(length: int) -> None:
    """relu(r) is r for what comes out of a Relu, also where that is far before; but it is not r for any number."""
    first = [helper.make_node("Magic", ["x"], ["m"], domain="my.ops"), helper.make_node("Relu", ["m"], ["r0"])]
    first += [helper.make_node("Mul", [f"r{step}", "two"], [f"r{step + 1}"]) for step in range(length)]
    last, two = f"r{length}", {"two": np.float32([2])}
    known = helper.make_tensor_value_info("m", FLOAT, [4, 8])

    def ends(*nodes: onnx.NodeProto) -> Model:
        return load(made([*first, *nodes], two, [4, 8], "y", known))

    one = ends(helper.make_node("Relu", [last], ["q"]), helper.make_node("Add", ["q", "two"], ["y"]))
    same, other = (ends(helper.make_node(op, [last, "two"], ["y"])) for op in ("Add", "Sub"))
    assert [region.inputs for region in Difference(one, same).regions()] == [(last,)]
    assert verify_regions(one, same).agree
    assert not verify_regions(one, other).agree


def test_sizes_are_computed_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Reshape by what a Shape says runs with no random shape."""
    monkeypatch.setattr(Difference, "dependent", lambda *_: [])  # which would find out at the second try
    magic = helper.make_node("Magic", ["x"], ["m"], domain="my.ops")
    known = helper.make_tensor_value_info("m", FLOAT, [7, 11, 13])
    nodes = [
        magic,
        helper.make_node("Shape", ["m"], ["size"]),
        helper.make_node("Reshape", ["m", "size"], ["y"], allowzero=1),
    ]
    twice = [
        *nodes[:2],
        helper.make_node("Identity", ["m"], ["i"]),
        helper.make_node("Reshape", ["i", "size"], ["y"], allowzero=1),
    ]
    assert verify_regions(
        load(made(nodes, {}, [7, 11, 13], "y", known)), load(made(twice, {}, [7, 11, 13], "y", known))
    ).agree


def test_a_value_computed_in_another_order_is_not_taken_for_granted() -> None:
    """y = f(z) in one model and z = f(y) in the other: neither may be the other's witness."""
    one = made([helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Relu", ["z"], ["y"])], {}, [2, 8], "y z")
    other = made(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])], {}, [2, 8], "y z"
    )
    swapped = made(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], {}, [2, 8], "y z"
    )
    assert verify_regions(load(one), load(other)).agree
    wrong = verify_regions(load(one), load(swapped))
    assert not wrong.agree
    assert "y" in wrong.reason


def test_exact_regions_have_the_same_bits() -> None:
    proto = made(*conv_bn("y", "x", 4, 6), [1, 4, 8, 8], "y")
    folded = found_in(proto)
    feeds = sample(load(proto))
    assert not verify_regions(load(proto), folded, feeds, "exact").agree
    assert verify_regions(folded, folded, feeds, "exact").agree


def judged(original: Model, new: Model) -> tuple[bool, str]:
    verdict = Verifier(original, sample(original), Options(), Clock(Watcher()))(new)
    return verdict.agree, verdict.reason


def test_chaos_is_judged_by_regions() -> None:
    original = load(chaotic())
    feeds = sample(original)
    moved = {**feeds.values[0], "x": (feeds.values[0]["x"] * np.float32(1 + 1e-7)).astype(np.float32)}
    evidence = gather(original, [feeds.values[0], moved])
    first, second = (outputs["u8"] for outputs in evidence.outputs)
    assert np.mean(np.abs(first - second)) > 0.2 * np.mean(np.abs(first)), "not as chaotic as it should be"
    assert chaotic_outputs(evidence) == {"u8"}

    right = found_in(original.proto)
    agree, reason = judged(original, right)
    assert agree
    assert "by regions: the one rewritten region" in reason
    assert "(outputs are chaotic: u8)" in reason
    # The whole says nothing: it lets the wrong one pass.
    assert verify(original, spoiled(right), feeds).agree
    agree, reason = judged(original, spoiled(right))
    assert not agree
    assert "norm" in reason


def test_ordinary_models_are_not_chaotic() -> None:
    model = load(made(*conv_bn("y", "x", 4, 7), [1, 4, 8, 8], "y"))
    assert not chaotic_outputs(gather(model, sample(model)))
    assert lower(model).root_names == ("y",)


def test_what_is_random_is_compared_by_regions_too() -> None:
    nodes, weights = conv_bn("a", "x", 4, 8)
    nodes.append(helper.make_node("RandomNormalLike", ["a"], ["noise"]))
    nodes.append(helper.make_node("Add", ["a", "noise"], ["y"]))
    original = load(made(nodes, weights, [1, 4, 8, 8], "y"))
    right = found_in(original.proto)
    assert judged(original, right)[0]
    assert not judged(original, spoiled(right, 0.01))[0]


def test_a_library_of_custom_operators_lets_the_model_run(tmp_path: Path) -> None:
    first, weights = conv_bn("a", "x", 4, 9)
    second, more = conv_bn("y", "z", 4, 10)
    custom = helper.make_node("NegPos", ["a"], ["z", "rest"], domain="ai.onnx.contrib")
    known = helper.make_tensor_value_info("z", FLOAT, [1, 4, 8, 8])
    proto = made([*first, custom, *second], {**weights, **more}, [1, 4, 8, 8], "y", known)
    proto.opset_import.append(helper.make_opsetid("ai.onnx.contrib", 1))
    without = superopt.optimize(proto, rules="batchnorm", select="modelled")
    assert without.report["regions"] == 2
    library = onnxruntime_extensions.get_library_path()
    whole = superopt.optimize(proto, rules="batchnorm", select="modelled", custom_op_library=library)
    assert whole.report["verified"]
    assert whole.report["regions"] is None
    assert whole.report["feeds"] == ["seeded 0", "seeded 1", "seeded 2"]
    assert whole.model == without.model
    assert superopt.verify(proto, whole.model, custom_op_library=library).agree
    # Alone it would not run: the library is what makes the difference.
    missing = tmp_path / "missing.so"
    with pytest.raises(OptionError, match=r"custom-op-library: no file .*missing\.so"):
        superopt.optimize(proto, custom_op_library=missing)
    missing.write_bytes(b"\x7fELF")
    with pytest.raises(OptionError, match=r"missing\.so is none that onnxruntime loads"):
        superopt.optimize(proto, custom_op_library=[str(missing)])


def test_an_operator_that_cannot_be_run_may_get_another_name_of_its_input() -> None:
    """Two nodes that compute the same become one: what the second made is called as the first's."""
    twice = [helper.make_node("Relu", ["x"], [name]) for name in "ab"]
    magic = helper.make_node("Magic", ["b", "w"], ["y"], domain="my.ops")
    weights = {"w": np.float32([1, 2])}
    proto = made([*twice, magic, helper.make_node("Exp", ["a"], ["z"])], weights, [1, 8], "y z")
    result = superopt.optimize(proto, select="modelled")
    assert result.report["verified"]
    assert [node.op_type for node in result.model.graph.node] == ["Relu", "Magic", "Exp"]
    assert result.report["regions"] == 1
    other = onnx.ModelProto()
    other.CopyFrom(result.model)
    place = next(index for index, node in enumerate(other.graph.node) if node.op_type == "Magic")
    other.graph.node[place].input[0] = "x"
    wrong = verify_regions(load(proto), load(other))
    assert not wrong.agree
    assert wrong.reason.startswith("by regions: x for b: ")


def test_an_operator_that_cannot_be_run_is_not_evaluated_where_it_is_constant() -> None:
    nodes = [
        helper.make_node("Magic", ["w"], ["m"], domain="my.ops"),
        helper.make_node("Neg", ["m"], ["n"]),
        helper.make_node("Add", ["x", "n"], ["a"]),
        helper.make_node("Identity", ["a"], ["y"]),
    ]
    known = helper.make_tensor_value_info("m", FLOAT, [8])
    proto = made(nodes, {"w": np.ones(8, np.float32)}, [1, 8], "y", known)
    result = superopt.optimize(proto, select="modelled")
    assert result.report["verified"]
    assert "Magic" in [node.op_type for node in result.model.graph.node]
    assert result.report["nodes"]["after"] < 4


def test_a_default_that_is_needed_no_more_stays_one() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2, 3] x, float[1, 2, 1] c) => (int64[1] y)
    <float[1, 2, 1] c = {1, 2}, int64[1] k = {2}, bool[1] t = {1}> {
        a = Where(t, x, c)
        b = Shape(a)
        y = Gather<axis = 0>(b, k)
    }""")
    report = superopt.optimize(model, select="modelled", verify="regions").report
    assert report["changed"]
    assert report["verified"]


def test_regions_get_the_values_that_callers_may_override() -> None:
    def model(text: str) -> Model:
        head = """<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 4] x, float[4] w) => (float[m, 2, 5] y) <float[4] w = {1, 2, 3, 4}, int64[3] s = {2, 2, 5}>"""
        return load(onnx.parser.parse_model(f"{head} {{ {text} y = Reshape(b, s) }}"))

    original = model("a = Identity(x)  b = Add(a, w)")
    new = model("b = Add(x, w)")
    verdict = verify_regions(original, new, [{"x": np.ones((5, 4), np.float32)}])
    assert verdict.agree
    assert "on the values of one run of the original" in verdict.reason


@pytest.mark.parametrize(("op", "agree"), [("Abs", True), ("Neg", False)])
def test_what_a_node_makes_beside_what_is_compared_is_not_given_to_it(op: str, agree: bool) -> None:
    """One Split makes both values in the original; in the new model one of them is made of the other."""
    original = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2] x) => (float[n, 2] a, float[n, 2] c) <int64[2] sizes = {2, 2}> {
        p = Abs(x)
        t = Concat <axis = 1> (p, p)
        a, b = Split <axis = 1> (t, sizes)
        c = Relu(b)
    }""")
    new = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2] x) => (float[n, 2] a, float[n, 2] c) {{
        a = Abs(x)
        b = {op}(a)
        c = Relu(b)
    }}""")
    feeds = [{"x": np.arange(6, dtype=np.float32).reshape(3, 2) - 2}]
    assert verify_regions(load(original), load(new), feeds, "exact").agree is agree
