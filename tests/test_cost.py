"""Cost models: the files that ship, what is wrong with a file, what a node costs, and the cost of whole models."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.cli.main import main
from superopt.cost import CostModel, Family, Operand, cost, load
from superopt.errors import CostModelError, EvaluationError, OptionError
from superopt.models.model import load as load_model
from superopt.options import Options
from superopt.settings import feeds_of, sizes_of
from superopt.shipped import cost_models_dir
from superopt.terms import Attrs, TensorType, ValueType
from superopt.workload import FIRST_DIM, OTHER_DIM, Sizes, work

SHIPPED = sorted(file.stem for file in cost_models_dir().glob("*.toml"))
NO_ATTRS = Attrs()


def tensor(*shape: int | str | None, dtype: str = "float32") -> TensorType:
    return TensorType(dtype, shape)


def conv_attrs(group: int = 1) -> Attrs:
    return Attrs.of(dilations=(1, 1), group=group, pads=(1, 1, 1, 1), strides=(1, 1))


def conv_price(model: CostModel, channels: int, group: int, size: int = 28) -> float:
    image = Operand(tensor(1, channels, size, size))
    weight = Operand(tensor(channels, channels // group, 3, 3), constant=True)
    bias = Operand(tensor(channels), constant=True)
    return model.price("Conv", conv_attrs(group), [image, weight, bias], image.type)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_model_prices_every_operator(name: str) -> None:
    from superopt.operators import FORMS

    model = load(name)
    assert model.name == name
    image = Operand(tensor(1, 8, 4, 4))
    for op in FORMS:
        price = model.price(op, NO_ATTRS, [image, image, image], image.type)
        assert 0 <= price < float("inf"), op
    assert model.price("Relu", NO_ATTRS, [image], image.type) > 0
    assert model.price("Input", NO_ATTRS, [], image.type) == 0


def test_the_default_models_are_there() -> None:
    assert {"nodes", "flops", "bytes", "roofline", "onnxruntime"} <= set(SHIPPED)
    assert len({load(name).hash for name in SHIPPED}) == len(SHIPPED)


def test_families_name_operators_that_exist() -> None:
    from superopt.operators import FORMS

    for name in SHIPPED:
        model = load(name)
        named = [op for family in model.families.values() for op in family.operators]
        assert set(named) <= set(FORMS), name


@pytest.mark.parametrize(
    ("op", "attrs", "operands", "result", "flops", "traffic"),
    [
        ("Relu", NO_ATTRS, [tensor(2, 3)], tensor(2, 3), 6, 2 * 24),
        ("Add", NO_ATTRS, [tensor(2, 3), tensor(3)], tensor(2, 3), 6, 24 + 12 + 24),
        (
            "Conv", conv_attrs(), [tensor(1, 8, 5, 5), tensor(4, 8, 3, 3), tensor(4)], tensor(1, 4, 5, 5),
            2 * 100 * 8 * 9, 4 * (200 + 288 + 4 + 100),
        ),
        (
            "Conv", conv_attrs(2), [tensor(1, 8, 5, 5), tensor(4, 4, 3, 3), None], tensor(1, 4, 5, 5),
            2 * 100 * 4 * 9, 4 * (200 + 144 + 100),
        ),
        (
            "ConvTranspose", conv_attrs(), [tensor(1, 8, 5, 5), tensor(8, 4, 3, 3), None], tensor(1, 4, 5, 5),
            2 * 200 * 4 * 9, 4 * (200 + 288 + 100),
        ),
        ("MatMul", NO_ATTRS, [tensor(7, 2, 3), tensor(3, 5)], tensor(7, 2, 5), 2 * 70 * 3, 4 * (42 + 15 + 70)),
        ("Gemm", Attrs.of(transA=1), [tensor(3, 2), tensor(3, 5), None], tensor(2, 5), 2 * 10 * 3, 4 * (6 + 15 + 10)),
        ("Einsum", Attrs.of(equation="ij,jk->ik"), [tensor(2, 3), tensor(3, 5)], tensor(2, 5), 2 * 30, 4 * 31),
        ("MaxPool", Attrs.of(kernel_shape=(3, 3)), [tensor(1, 2, 4, 4)], tensor(1, 2, 2, 2), 8 * 9, 4 * 40),
        ("ReduceMean", Attrs.of(axes=(1,)), [tensor(2, 3)], tensor(2, 1), 6, 4 * 8),
        ("Transpose", NO_ATTRS, [tensor(2, 3, dtype="int8")], tensor(3, 2, dtype="int8"), 0, 12),
        ("Slice", NO_ATTRS, [tensor(1000, 3)], tensor(1, 3), 0, 24),
        ("Reshape", NO_ATTRS, [tensor(2, 3)], tensor(6), 0, 0),
        ("Split", NO_ATTRS, [tensor(4, 3)], (tensor(1, 3), tensor(3, 3)), 0, 96),
        ("Opaque", NO_ATTRS, [tensor(2), None], (tensor(2), None), 1, 16),
    ],
)  # fmt: skip
def test_work_is_counted(
    op: str, attrs: Attrs, operands: list[ValueType], result: ValueType, flops: float, traffic: float
) -> None:
    counted = work(op, attrs, operands, result, Sizes())
    assert (counted.flops, counted.traffic) == (flops, traffic)


def test_symbols_are_priced_at_nominal_sizes() -> None:
    sizes = Sizes({"length": 10})
    assert sizes.shape(tensor("batch", 3, None)) == (FIRST_DIM, 3, OTHER_DIM)
    assert sizes.shape(tensor("batch", "length")) == (FIRST_DIM, 10)
    model = load("bytes")
    text = tensor("batch", "length")
    small = model.price("Relu", NO_ATTRS, [Operand(text)], text, sizes)
    large = model.price("Relu", NO_ATTRS, [Operand(text)], text, Sizes({"batch": 2, "length": 10}))
    assert large - model.node == 2 * (small - model.node) == 160


def test_groups_below_the_vector_width_do_not_pay() -> None:
    model = load("onnxruntime")
    dense, wide, narrow = (conv_price(model, 128, group) for group in (1, 8, 64))
    assert wide < dense / 3
    assert narrow > wide
    depthwise = conv_price(model, 128, 128)
    assert depthwise < wide / 3


def test_a_roofline_takes_the_larger_and_a_sum_both() -> None:
    image = tensor(1, 10)
    for combine, expected in (("max", 1 + 80.0), ("sum", 1 + 80.0 + 10)):
        model = CostModel("m", "u", combine=combine, node=1, flop=1, byte=1)  # type: ignore[arg-type]
        assert model.price("Relu", NO_ATTRS, [Operand(image)], image) == expected
    family = CostModel("m", "u", node=1, flop=1, families={"f": Family(("Relu",), node=3, flop=2)})
    assert family.price("Relu", NO_ATTRS, [Operand(image)], image) == 3 + 20


GOOD = '[price]\nnode = 1\n[family.f]\noperators = ["Relu"]\n'


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("node = 1", "node = -1", "node = -1"),
        ("node = 1", "node = true", "node = True"),
        ("node = 1", "node = inf", "node = inf"),
        ("node = 1", "nodes = 1", "'nodes'"),
        ("node = 1", 'combine = "mean"', "combine = 'mean', expected one of sum, max"),
        ("node = 1", "node 1", "expected a TOML file"),
        ('["Relu"]', '"Relu"', "operators = 'Relu', expected a list"),
        ('["Relu"]', '["Relu"]\nblock = 0', "block = 0"),
        ('["Relu"]', '["Relu"]\nkind = "wide"', "kind = 'wide'"),
        ("[price]", "[prices]", "'prices'"),
        ('unit = "u"', 'unit = "u"\nfuses = "tvm"', "fuses = 'tvm', expected one of onnxruntime"),
        ("node = 1", f"node = 1{400 * '0'}", "node = a whole number of more than 20 digits, expected a finite number"),
        ("node = 1", f"node = {10_000 * '['}", "too deep to be read, expected"),
        ('["Relu"]', '["Convv"]', "operators has 'Convv', expected operators of ONNX"),
        ('["Relu"]', '["Convv"]', "is Conv meant?"),
        ('["Relu"]', f'["Relu"]\nblock = 1{400 * "0"}', "in [family.f], expected a whole number"),
        ('name = "m"', "name = 3", "name = 3, expected a text"),
        ('name = "m"', 'name = "m\\nm"', "name = 'm\\nm', expected a text of one line"),
        ('unit = "u"\n', "", "unit = None, expected a text"),
        ("node = 1", "", "[price] is empty, expected at least one of node, flop, byte"),
        ("[price]\nnode = 1\n", "", "no price above 0 in [price], [plus] or [instance], expected at least one"),
        ("node = 1", "node = 0.0", "no price above 0 in [price], [plus] or [instance], expected at least one"),
        ("node = 1", 'combine = "max"', "no price above 0 in [price]"),
        ("node = 1", "[plus]\nroofline = 0", "[price] is empty"),
        ("[price]\nnode = 1\n", "[plus]\nroofline = 0\n", "no price above 0 in [price]"),
        (
            "[price]\nnode = 1\n",
            "[plus]\nroofline = -1\n",
            "roofline = -1, expected a finite number that is not negative",
        ),
        ("[price]\nnode = 1\n", '[instance]\n"Relu" = 0\n', "no price above 0 in [price]"),
        ("[price]\nnode = 1\n", '[instance]\n"Relu" = "1"\n', "Relu = '1', expected a finite number"),
        ("node = 1", "node = nan", "node = nan, expected a finite number"),
        ("node = 1", 'node = "1"', "node = '1', expected a finite number"),
        ("node = 1", "node = [1]", "node = [1], expected a finite number"),
        ("node = 1", "node = 1\nblock = 0", "block = 0 in [price], expected a whole number of channels from 1 to"),
        ("node = 1", "node = 1\nblock = 8.0", "block = 8.0 in [price], expected a whole number"),
        ("node = 1", "node = 1\nblock = true", "block = True in [price], expected a whole number"),
        ("node = 1", "node = 1\nreorder_byte = -1e-9", "reorder_byte = -1e-09, expected a finite number"),
        ("[price]\nnode = 1\n", "price = 1\n", "price = 1, expected a table [price]"),
        ("[family.f]\n", "[family]\nf = 1\n[plus]\n", "family.f = 1, expected a table [family.f]"),
        ('["Relu"]', "[]", "operators = [], expected a list of operator names"),
        ('["Relu"]', "[1]", "operators = [1], expected a list of operator names"),
        ('["Relu"]', '["Relu"]\nflop = -2', "flop = -2, expected a finite number"),
        ('["Relu"]', '["Relu"]\nflops = 2', "[family.f] has 'flops', expected only operators"),
        ('["Relu"]', '["Relu"]\n[plus]\nm = "much"', "m = 'much', expected a finite number"),
        ('["Relu"]', '["Conv", "Relu"]\nkind = "grouped"', "kind = 'grouped' of Relu, expected any"),
        ("[price]", '[instance]\n"Relu 1x3" = 1.0\n[price]', "[instance] has 'Relu 1x3', expected keys as superopt"),
        ("[price]", '[instance]\n"[[],[], []]" = 1.0\n[price]', "[instance] has '[[],[], []]', expected keys as"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(tmp_path: Path, old: str, new: str, what: str) -> None:
    file = tmp_path / "m.toml"
    text = f'name = "m"\nunit = "u"\n{GOOD}'
    file.write_text(text)
    assert load(file).node == 1
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(CostModelError) as error:
        load(file)
    assert str(error.value).startswith(f"{file}: ")
    assert what in str(error.value)
    assert "expected" in str(error.value)
    assert "\n" not in str(error.value)


KEY = '[[["float32",[2,3],false,""]],[["Relu","",[0]]],[1]]'
"""The key of a Relu's instance."""


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"node": -1}, "node = -1, expected a finite number that is not negative"),
        ({"node": math.nan}, "node = nan, expected a finite number"),
        ({"flop": math.inf}, "flop = inf, expected a finite number"),
        ({"node": "1"}, "node = '1', expected a finite number"),
        ({"node": True}, "node = True, expected a finite number"),
        ({"node": 10**400}, "node = a whole number of more than 20 digits, expected a finite number"),
        ({"node": 0}, "no price above 0 in [price], [plus] or [instance], expected at least one"),
        ({"combine": "min"}, "combine = 'min', expected one of sum, max"),
        ({"block": -3}, "block = -3 in [price], expected a whole number of channels from 1"),
        ({"block": 2.5}, "block = 2.5 in [price], expected a whole number of channels from 1"),
        ({"block": False}, "block = False in [price], expected a whole number of channels from 1"),
        ({"instances": {KEY: -1}}, f"{KEY} = -1, expected a finite number"),
        ({"instances": {"a": 1}}, "[instance] has 'a', expected keys as superopt measure --output writes them"),
        ({"instances": {3: 1}}, "instance has 3, expected a text"),
        ({"instances": 3}, "instance = 3, expected a table"),
        ({"name": 3}, "name = 3, expected a text of one line"),
        ({"unit": None}, "unit = None, expected a text of one line"),
        ({"families": {"a": 3}}, "family.a = 3, expected a table [family.a]"),
        ({"families": {"a": Family(())}}, "operators = (), expected a list of operator names"),
        ({"plus": ((1, "flops"),)}, "plus has (1, 'flops'), expected pairs of a weight and a CostModel"),
        ({"plus": 3}, "plus has 3, expected pairs of a weight and a CostModel"),
        ({"plus": ((-1, CostModel("n", "u", node=1)),)}, "plus: n = -1, expected a finite number"),
        ({"fuses": "nothere"}, "fuses = 'nothere', expected one of onnxruntime"),
        ({"fuses": ["onnxruntime"]}, "fuses = ['onnxruntime'], expected one of onnxruntime"),
    ],
)
def test_a_model_made_in_python_is_held_to_the_same(fields: dict[str, Any], what: str) -> None:
    good: dict[str, Any] = {"name": "m", "unit": "u", "node": 1}
    CostModel(**good, instances={KEY: 1e-6})
    with pytest.raises(CostModelError) as error:
        CostModel(**{**good, **fields})
    assert str(error.value).startswith(what)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"operators": ("Convv",)}, "operators has 'Convv', expected operators of ONNX"),
        ({"operators": "Conv"}, "operators = 'Conv', expected a list of operator names"),
        ({"flop": -2}, "flop = -2, expected a finite number"),
        ({"block": 0}, "block = 0 in a family, expected a whole number of channels from 1"),
        ({"kind": "wide"}, "kind = 'wide', expected one of any, depthwise, grouped"),
        ({"operators": ("Relu",), "kind": "grouped"}, "kind = 'grouped' of Relu, expected any"),
    ],
)
def test_a_family_made_in_python_is_held_to_the_same(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(CostModelError) as error:
        Family(**{"operators": ("Conv",), **fields})
    assert str(error.value).startswith(what)


def test_a_family_may_name_operators_of_other_domains(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text(
        'name = "m"\nunit = "u"\n[price]\nnode = 1\n[family.f]\noperators = ["com.microsoft.Gelu", "Loop", "Opaque"]\n'
    )
    assert load(file).families["f"].operators == ("com.microsoft.Gelu", "Loop", "Opaque")


def test_a_model_that_adds_itself_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, other in (("a", "b"), ("b", "a"), ("c", "roofline"), ("d", "c")):
        plus = f"{other}.toml" if len(other) == 1 else other
        Path(f"{name}.toml").write_text(f'name = "{name}"\nunit = "u"\n[plus]\n"{plus}" = 1\n')
    with pytest.raises(CostModelError, match=r"a\.toml: adds itself \(a\.toml adds b\.toml adds a\.toml\), expected"):
        load("a.toml")
    assert load("d.toml").plus[0][1].name == "c"


def test_prices_that_add_up_to_infinity_are_refused(tmp_path: Path) -> None:
    onnx.save(small_model(), tmp_path / "m.onnx")
    with pytest.raises(CostModelError, match="m: the prices of the model add up to infinity, expected smaller"):
        cost(tmp_path / "m.onnx", CostModel("m", "u", node=1e308))
    file = tmp_path / "dear.toml"
    file.write_text('name = "m"\nunit = "u"\n[price]\nnode = 1e308\n')
    with pytest.raises(CostModelError) as error:
        cost(tmp_path / "m.onnx", str(file))
    assert str(error.value).startswith(f"{file}: the prices of the model add up to infinity")


def test_a_byte_order_mark_is_no_part_of_a_cost_model(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text(f'name = "m"\nunit = "u"\n{GOOD}', encoding="utf-8-sig")
    assert load(file).name == "m"


def test_an_unknown_name_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(CostModelError, match=r"frobnitz: no such cost model, expected .*bytes, flops.*roofline"):
        load("frobnitz")
    with pytest.raises(CostModelError, match="cannot be read"):
        load(tmp_path / "none.toml")


def small_model(*shape: str | int) -> onnx.ModelProto:
    """Relu(Add(x, Mul(c, c))), with names for two of three nodes."""
    nodes = [
        helper.make_node("Mul", ["c", "c"], ["square"], name="squared"),
        helper.make_node("Add", ["x", "square"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or ("batch", 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape or ("batch", 4))],
        [numpy_helper.from_array(np.full(4, 2, np.float32), "c")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_is_priced_node_by_node(tmp_path: Path) -> None:
    found = cost(small_model(), "flops", {"batch": 3})
    assert [(node.name, node.op) for node in found.nodes] == [("square", "Mul"), ("sum", "Add"), ("y", "Relu")]
    # A constant node costs nothing to run.
    assert [node.cost for node in found.nodes] == [0.0, 12.001, 12.001]
    assert found.total == sum(node.cost for node in found.nodes)
    assert (found.unit, found.model, found.constant_bytes) == ("flops", "flops", 16)
    file = tmp_path / "m.onnx"
    onnx.save(small_model(), file)
    assert cost(file, load("flops"), {"batch": 3}) == found


def test_sizes_that_are_not_given_are_those_of_ordinary_inputs(tmp_path: Path) -> None:
    model = load_model(small_model("batch", "length", 4))
    ordinary = sizes_of(feeds_of(model, Options()))
    assert ordinary["length"] != OTHER_DIM
    assert cost(model, "flops") == cost(model, "flops", ordinary)
    file, report = tmp_path / "m.onnx", tmp_path / "r.json"
    onnx.save(model.proto, file)
    with pytest.raises(SystemExit):
        main(["cost", str(file), "--cost", "flops", "--seconds", "0", "--report", str(report)])
    assert json.loads(report.read_text())["models"][0]["total"] == cost(file, "flops").total


def test_no_input_is_looked_for_where_every_size_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise LookupError("sample")

    monkeypatch.setattr(sys.modules["superopt.cost"], "sample", asked)
    assert cost(small_model(), "flops", {"batch": np.int64(3)}).total == 24.002
    assert cost(model_with_bodies(), "nodes").total == 5
    with pytest.raises(LookupError):
        cost(small_model(), "flops")


def test_a_model_that_runs_on_no_inputs_is_priced_at_nominal_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise EvaluationError("runs on no inputs")

    monkeypatch.setattr(sys.modules["superopt.cost"], "sample", fails)
    assert cost(small_model(), "flops") == cost(small_model(), "flops", {"batch": FIRST_DIM})


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        ({"batch": -3}, "batch = -3, expected a whole number from 0 to"),
        ({"batch": 10**400}, "batch = a number out of range, expected a whole number from 0 to"),
        ({"batch": "a"}, "batch = 'a', expected a whole number"),
        ({"batch": 2.0}, "batch = 2.0, expected a whole number"),
        ({"batch": True}, "batch = True, expected a whole number"),
        ({"zzz": 3}, "'zzz' is no symbolic dimension of the model, expected batch"),
        ({0: 3}, "0 is no symbolic dimension of the model, expected batch"),
        (3, "3, expected sizes by the names of symbolic dimensions"),
    ],
)
def test_a_size_that_is_none_is_one_line(sizes: Any, what: str) -> None:
    with pytest.raises(OptionError) as error:
        cost(small_model(), "flops", sizes)
    assert str(error.value).startswith(f"sizes: {what}")
    assert len(str(error.value)) < 120


def test_taso_adds_up_the_four_figures_of_its_log() -> None:
    taso, device = load("taso"), load("roofline-v100")
    image = Operand(tensor(1, 64, 56, 56))
    weight = Operand(tensor(64, 64, 3, 3), constant=True)
    asked = ("Conv", conv_attrs(), [image, weight, None], image.type)
    time = 1e3 * device.price(*asked)
    elements = 64 * 56 * 56
    flops, accesses = elements * 64 * 9, 2 * elements + 64 * 64 * 9
    assert taso.price(*asked) == pytest.approx(time + flops / 2**30 + 4 * accesses / 2**20 + 1)
    assert taso.price("Reshape", NO_ATTRS, [image], tensor(64, 56 * 56)) == 0


@pytest.mark.parametrize("name", [name for name in SHIPPED if name.startswith("roofline")])
def test_a_device_is_a_file_that_names_its_sources(name: str) -> None:
    model, text = load(name), (cost_models_dir() / f"{name}.toml").read_text(encoding="utf-8")
    assert model.unit == "s"
    assert 0 < model.flop < model.byte < model.node
    assert text.startswith("# Seconds on ")
    for figure in ("flop/s", "GB/s", "aunch"):
        assert figure in text, figure


def model_with_bodies() -> onnx.ModelProto:
    """If with a Relu in one branch and two Sigmoids in the other, and an Exp behind it."""
    outputs = [helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 3])]
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "then", [], outputs)
    twice = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Sigmoid", ["s"], ["r"])]
    other = helper.make_graph(twice, "else", [], outputs)
    nodes = [
        helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        helper.make_node("Exp", ["i"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_every_body_is_priced_once() -> None:
    found = cost(model_with_bodies(), "nodes")
    assert [(item.op, item.body) for item in found.nodes] == [
        ("If", False), ("Exp", False), ("Sigmoid", True), ("Sigmoid", True), ("Relu", True),
    ]  # fmt: skip
    assert found.total == 5


def test_a_models_hash_tells_what_it_fuses_and_what_was_timed() -> None:
    model = CostModel("m", "u", node=1)
    others = [replace(model, fuses="onnxruntime"), replace(model, instances={KEY: 1.0}), replace(model, node=2)]
    assert len({each.hash for each in (model, *others)}) == 4
    assert replace(model).hash == replace(model, file="m.toml").hash == model.hash


def test_prices_of_another_model_are_added(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text('name = "m"\nunit = "u"\n[price]\nnode = 2\n[plus]\nnodes = 10\n')
    image = Operand(tensor(1, 8))
    assert load(file).price("Relu", NO_ATTRS, [image], image.type) == 12
    file.write_text('name = "m"\nunit = "u"\n[plus]\nnothing = 10\n')
    with pytest.raises(CostModelError, match="nothing: no such cost model"):
        load(file)
