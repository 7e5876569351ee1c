"""README's table of what is supported is what the code does: every line is asked of it, most by optimizing a model.

``SUPEROPT_BLESS=1 pytest tests/test_supported.py`` writes the table anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
import superopt.kernels.apply  # fills the registry
from superopt.bodies.bodies import HOLDERS
from superopt.kernels.registry import KERNELS
from superopt.lowering.lower import OLDEST_OPSET
from superopt.models.scopes import RANDOM
from superopt.operators import FORMS, NEWEST_OPSET, STAYS, dtype_name
from superopt.options import OLDEST_TARGET
from superopt.rule_text import load as load_rules
from superopt.rules import RuleSet
from superopt.terms import DTYPE_BITS
from tests.test_bodies import operators, read
from tests.test_lower import model

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- supported: begin -->", "<!-- supported: end -->"

GROUPS = {
    "pointwise": "one element at a time", "convolution": "linear", "pooling": "pooling",
    "normalization": "normalization", "reduction": "reductions", "movement": "data movement",
    "quantization": "quantization", "spectral": "spectra", "resizing": "resizing",
}  # fmt: skip
"""Modules of kernels, and what the table calls their operators."""

OPTIMIZED, KEPT = "optimized", "kept as it is"


@cache
def rules() -> RuleSet:
    return load_rules("identity")


def outcome(proto: onnx.ModelProto, gone: str = "Identity") -> str:
    """What becomes of a model in which an operator has nothing to do. It is verified, whatever becomes of it."""
    result = superopt.optimize(proto, rules=rules(), select="modelled")
    onnx.checker.check_model(result.model)
    assert result.report["verified"], result.report["problems"]
    before, after = (operators(one).count(gone) for one in (proto, result.model))
    return OPTIMIZED if after < before else KEPT


def names(found: Iterator[str]) -> str:
    return ", ".join(sorted(found))


def of_type(number: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Identity", ["a"], ["y"])]
    return model(nodes, {"x": (2, 2)}, opset=23, dtype=number, ir_version=11)


def types() -> Iterator[tuple[str, str]]:
    for number in TensorProto.DataType.values():
        if number != TensorProto.UNDEFINED:
            name = dtype_name(number)
            assert outcome(of_type(number)) == (OPTIMIZED if name in DTYPE_BITS else KEPT), name
    yield f"element types {OPTIMIZED}", names(iter(DTYPE_BITS))
    yield f"element types {KEPT}", "string, and those that ONNX may add"
    sequence = read("agraph (seq(float[2]) x) => (seq(float[2]) y) { a = Identity (x) y = Identity (a) }")
    optional = read("agraph (optional(float[2]) x) => (optional(float[2]) y) { a = Identity (x) y = Identity (a) }")
    assert outcome(sequence) == outcome(optional) == KEPT
    yield "sequences, optionals", f"{KEPT}; tensors around them are optimized"


def subgraphs() -> str:
    inner = "{ h = Identity (x) r = Relu (h) }"
    written = {
        "If": f"agraph (float[4] x, bool c) => (float[4] y) {{ y = If (c) <then_branch = a () => (float[4] r) {inner}, "
        f"else_branch = b () => (float[4] r) {inner}> }}",
        "Loop": "agraph (float[4] s, int64 n) => (float[4] y) { y = Loop (n, , s) <body = b (int64 i, bool g, "
        "float[4] x) => (bool o, float[4] r) { o = Identity (g) h = Identity (x) r = Relu (h) }> }",
        "Scan": "agraph (float[4] s, float[3, 4] t) => (float[4] y, float[3, 4] z) { y, z = Scan <num_scan_inputs = 1, "
        "body = b (float[4] x, float[4] u) => (float[4] r, float[4] w) "
        "{ h = Identity (x) r = Relu (h) w = Neg (u) }> (s, t) }",
    }  # fmt: skip
    assert set(written) == set(HOLDERS)
    assert {outcome(read(text)) for text in written.values()} == {OPTIMIZED}
    known = "agraph (float[4] x) => (float[4] y) { c = Constant <value = bool {1}> () " + (
        f"y = If (c) <then_branch = a () => (float[4] r) {inner}, else_branch = b () => (float[4] r) {inner}> }}"
    )
    assert outcome(read(known), "If") == OPTIMIZED
    once = (
        written["Loop"]
        .replace("float[4] s, int64 n", "float[4] s")
        .replace("{ y =", "{ n = Constant <value = int64 {1}> () y =")
    )
    assert outcome(read(once), "Loop") == OPTIMIZED
    return f"bodies of {names(iter(HOLDERS))} {OPTIMIZED}, at any depth; one way to go, or one round: written out"


def functions() -> str:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    body = [helper.make_node("Identity", ["a"], ["b"]), helper.make_node("Relu", ["b"], ["c"])]
    proto = model([helper.make_node("F", ["x"], ["y"], domain="my.domain")], {"x": (4,)}, opset_imports=opsets)
    proto.functions.append(helper.make_function("my.domain", "F", ["a"], ["c"], body, opsets))
    proto.graph.output[0].type.CopyFrom(proto.graph.input[0].type)
    result = superopt.optimize(proto, rules=rules(), select="modelled")
    assert operators(result.model) == ["Relu"]
    return "written out where they are called, if anything in the model is optimized; kept else"


def opset_of_conversion(opset: int, target: int) -> bool:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (4,)}, opset=opset)
    result = superopt.optimize(proto, rules=rules(), select="modelled", target_opset=target)
    return bool(result.report["verified"]) and result.model.opset_import[0].version == target


def opsets() -> Iterator[tuple[str, str]]:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    for opset, expected in ((OLDEST_OPSET - 1, KEPT), (OLDEST_OPSET, OPTIMIZED), (NEWEST_OPSET, OPTIMIZED)):
        proto = model(nodes, {"x": (4,)}, opset=opset, ir_version=13 if opset > 24 else 8)
        result = superopt.optimize(proto, rules=rules(), select="modelled")
        assert (len(result.model.graph.node) == 1) == (expected == OPTIMIZED), opset
    yield (
        "opsets",
        f"{OLDEST_OPSET} to the newest that onnx knows {OPTIMIZED}, each by its own meaning; older ones {KEPT}",
    )
    assert opset_of_conversion(13, 21)
    yield "`--target-opset`", f"{OLDEST_TARGET} and newer, by ONNX's converter; verified against the model as it was"


def quantized() -> str:
    constants = {
        "w": np.arange(12, dtype=np.int8).reshape(4, 3), "k": np.float32(0.5), "z": np.int8(0), "s": np.float32(0.1),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "k", "z"], ["v"]),
        helper.make_node("Identity", ["v"], ["u"]),
        helper.make_node("MatMul", ["d", "u"], ["y"]),
    ]
    result = superopt.optimize(model(nodes, {"x": (2, 4)}, constants), select="modelled")
    kinds = [node.op_type for node in result.model.graph.node]
    assert sorted(kinds) == ["DequantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear"]
    assert {tensor.name: tensor.data_type for tensor in result.model.graph.initializer}["w"] == TensorProto.INT8
    return f"pairs stay, weights stay in their type: what {names(iter(STAYS))} reads is not folded"


def dynamic() -> str:
    text = "agraph (float[n, 3] x) => (float[n, 3] y) { a = Identity (x) y = Relu (a) }"
    result = superopt.optimize(read(text), rules=rules(), select="modelled")
    assert result.report["changed"]
    assert result.model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert len({feed for feed in result.report["feeds"] if "n=" in feed}) > 1
    return "stay as open as they were; rules must hold for every size; verified on several"


def external(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    weight = np.ones((64, 64), np.float32)
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    onnx.save(model(nodes, {"x": (2, 64)}, {"w": weight}), folder / "m.onnx", save_as_external_data=True, location="w")
    for layout, inside in (("same", False), ("none", True), ("other.data", False)):
        result = superopt.optimize(folder / "m.onnx", rules=rules(), select="modelled", external_data=layout)
        result.save(folder / "out.onnx")
        bare = onnx.load(folder / "out.onnx", load_external_data=False)
        (tensor,) = bare.graph.initializer
        assert (tensor.data_location != TensorProto.EXTERNAL) == inside
        whole = onnx.load(folder / "out.onnx").graph.initializer[0]
        np.testing.assert_array_equal(numpy_helper.to_array(whole), weight)
    return "stays where it is, or `--external-data none`, or into one file; read from the model's folder alone"


def custom() -> str:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Mystery", ["a"], ["b"], domain="my.domain"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, {"x": (2,)}, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)])
    result = superopt.optimize(proto, rules=rules(), select="modelled")
    assert operators(result.model) == ["Mystery", "Relu"]
    assert result.report["verified_by"].startswith("by regions")
    return "kept, and optimized around; run with `--custom-op-library`, verified by regions without"


def random() -> str:
    for name in RANDOM:
        assert name not in FORMS
        form, given = ("", ["x"]) if name in ("Bernoulli", "Multinomial") or name.endswith("Like") else ("shape", [])
        attributes = {"shape": [2, 4]} if form else {"dtype": TensorProto.INT64} if name == "Multinomial" else {}
        drawn = [helper.make_node(name, given, [out], **attributes) for out in ("a", "b")]
        cast = [helper.make_node("Cast", [out], [f"{out}f"], to=TensorProto.FLOAT) for out in ("a", "b")]
        nodes = [
            *drawn,
            *cast,
            helper.make_node("Identity", ["af"], ["ai"]),
            helper.make_node("Sub", ["ai", "bf"], ["y"]),
        ]
        result = superopt.optimize(model(nodes, {"x": (2, 4)}), rules=rules(), select="modelled")
        left = operators(result.model)
        assert left.count(name) == 2, left
        assert "Identity" not in left
    return f"never folded, merged or doubled: Dropout (in training), {names(iter(RANDOM))}"


def lines(folder: Path) -> list[tuple[str, str]]:
    assert set(FORMS) == set(KERNELS), "an operator that rules may name has no kernel, or the other way round"
    groups: dict[str, list[str]] = {}
    for name in FORMS:
        module = KERNELS[name].__module__.rpartition(".")[2]
        groups.setdefault(GROUPS[module], []).append(name)
    return [
        *((f"operators: {group}", names(iter(members))) for group, members in sorted(groups.items())),
        ("other operators", f"{KEPT}, of whatever domain, and optimized around"),
        *types(), *opsets(),
        ("subgraphs", subgraphs()), ("functions of the model", functions()), ("quantization", quantized()),
        ("symbolic dimensions", dynamic()), ("external data", external(folder)), ("custom operators", custom()),
        ("random operators", random()),
    ]  # fmt: skip


def test_the_table_of_what_is_supported(tmp_path: Path) -> None:
    table = "\n".join(["| what | how |", "|---|---|", *(f"| {what} | {how} |" for what, how in lines(tmp_path / "m"))])
    text = README.read_text(encoding="utf-8")
    before, found, after = text.partition(BEGIN)[0], text.partition(BEGIN)[2].partition(END)[0], text.partition(END)[2]
    if os.environ.get("SUPEROPT_BLESS") and found.strip() != table:
        README.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
        pytest.fail("the table was written anew")
    assert found.strip() == table, "SUPEROPT_BLESS=1 writes the table anew"
