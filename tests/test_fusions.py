"""What a runtime fuses: the forms are found in graphs and e-graphs, cost what their right side says, and the runtime
that is installed confirms each of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from superopt.cost import CostModel, constant_nodes, cost, graph_cost, load, operands_of
from superopt.costs import fusions, grouping
from superopt.costs.grouping import egraph_groups, groups
from superopt.engine.saturate import Limits, saturate
from superopt.errors import RuleError
from superopt.extraction import extract
from superopt.lowering.lower import lower
from superopt.models.model import load as load_model
from superopt.numeric import settle
from superopt.rule_text import parse as parse_rules
from superopt.rules import RuleSet

SHAPES = {
    "w": (16, 16, 3, 3), "b": (16,), "s": (16,), "t": (16,), "m": (16,), "v": (16,), "col": (16, 1, 1), "mw": (16, 24),
    "mb": (24,), "ls": (16,), "lt": (16,), "place": (1, 5, 16),
}  # fmt: skip
NUMBERS = {
    "one": 1.0, "half": 0.5, "root": 2.0**0.5, "two": 2.0, "low": 0.0, "high": 6.0, "eps": 1e-5, "scale": 0.25,
    "three": 3.0, "cubic": 0.044715, "inner": (2 / np.pi) ** 0.5,
}  # fmt: skip
IMAGE, MATRIX, TEXT, HEADS = "[1,16,8,8]", "[5,16]", "[1,5,16]", "[1,2,5,8]"
CONV = "c = Conv<pads=[1,1,1,1]>(x, w, b)"
BEFORE = "z = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)"
AFTER = "y = MaxPool<kernel_shape=[3,3]>(h)"  # the result of a graph keeps its HardSwish apart
NORM = "BatchNormalization(c, s, t, m, v)"
ERF = "d = Div(x, root) e = Erf(d) f = Add(e, one)"


def root_of(x: str) -> str:
    return f"q = Pow({x}, two) r = ReduceMean<axes=[-1]>(q) e = Add(r, eps) h = Sqrt(e)"


def normed(x: str) -> str:
    return f"u = ReduceMean<axes=[-1]>({x}) d = Sub({x}, u) {root_of('d')} i = Div(d, h)"


# The form, the type of what varies, the nodes. What is called y is the result.
EXAMPLES = [
    ("conv-add-relu", IMAGE, f"{BEFORE} {CONV.replace('x', 'z')} a = Add(c, z) y = Relu(a)"),
    ("conv-add", IMAGE, f"{BEFORE} {CONV.replace('x', 'z')} y = Add(z, c)"),
    ("conv-batchnorm-add-relu", IMAGE, f"{BEFORE} {CONV.replace('x', 'z')} n = {NORM} a = Add(n, z) y = Relu(a)"),
    ("conv-batchnorm-add", IMAGE, f"{BEFORE} {CONV.replace('x', 'z')} n = {NORM} y = Add(z, n)"),
    ("conv-batchnorm-activation[Relu]", IMAGE, f"{CONV} n = {NORM} y = Relu(n)"),
    ("conv-batchnorm", IMAGE, f"{CONV} y = {NORM}"),
    ("conv-scale-shift-activation[Relu]", IMAGE, f"{CONV} n = Mul(c, col) a = Add(n, col) y = Relu(a)"),
    ("conv-scale-shift", IMAGE, f"{CONV} n = Mul(c, col) y = Add(n, col)"),
    ("conv-scale-activation[Tanh]", IMAGE, f"{CONV} n = Mul(c, col) y = Tanh(n)"),
    ("conv-shift-activation[Sigmoid]", IMAGE, f"{CONV} n = Add(c, col) y = Sigmoid(n)"),
    ("conv-shift-activation[HardSwish]", IMAGE, f"{CONV} n = Add(c, col) h = HardSwish(n) {AFTER}"),
    ("conv-batchnorm-activation[HardSwish]", IMAGE, f"{CONV} n = {NORM} h = HardSwish(n) {AFTER}"),
    ("conv-activation[HardSwish]", IMAGE, f"{CONV} h = HardSwish(c) {AFTER}"),
    (
        "conv-hardsigmoid-product", IMAGE,
        f"{CONV} n = HardSigmoid<alpha=0.166666667,beta=0.5>(c) h = Mul(n, c) {AFTER}",
    ),
    ("conv-scale", IMAGE, f"{CONV} y = Mul(c, col)"),
    ("conv-shift", IMAGE, f"{CONV} y = Add(c, col)"),
    ("conv-activation[Relu]", IMAGE, f"{CONV} y = Relu(c)"),
    ("conv-activation[Sigmoid]", IMAGE, f"{CONV} y = Sigmoid(c)"),
    ("conv-activation[Tanh]", IMAGE, f"{CONV} y = Tanh(c)"),
    ("conv-leakyrelu", IMAGE, f"{CONV} y = LeakyRelu<alpha=0.1>(c)"),
    ("conv-hardsigmoid", IMAGE, f"{CONV} y = HardSigmoid(c)"),
    ("conv-clip", IMAGE, f"{CONV} y = Clip(c, low, high)"),
    ("pad-conv", IMAGE, "c = Pad(x, pads) y = Conv(c, w, b)"),
    ("matmul-add-activation[Relu]", MATRIX, "c = MatMul(x, mw) a = Add(c, mb) y = Relu(a)"),
    ("matmul-add", MATRIX, "c = MatMul(x, mw) y = Add(mb, c)"),
    ("gemm-shaped-activation[LeakyRelu]", MATRIX, "c = Gemm(x, mw, mb) y = LeakyRelu<alpha=0.1>(c)"),
    ("gemm-activation[Tanh]", MATRIX, "c = Gemm(x, mw, mb) y = Tanh(c)"),
    ("bias-gelu-outer-half", TEXT, f"a = Add(x, ls) {ERF.replace('x', 'a')} g = Mul(a, f) y = Mul(g, half)"),
    ("bias-gelu-inner-half", TEXT, f"a = Add(x, ls) {ERF.replace('x', 'a')} g = Mul(a, half) y = Mul(g, f)"),
    ("gelu-outer-half", TEXT, f"{ERF} g = Mul(x, f) y = Mul(g, half)"),
    ("gelu-inner-half", TEXT, f"{ERF} g = Mul(x, half) y = Mul(g, f)"),
    ("quick-gelu", TEXT, "g = Mul(scale, x) h = Sigmoid(g) y = Mul(h, x)"),
    ("swish", TEXT, "h = Sigmoid(x) y = Mul(x, h)"),
    ("skip-layernorm", TEXT, "z = Sigmoid(x) a = Add(x, z) y = LayerNormalization(a, ls, lt)"),
    ("skip-layernorm", TEXT, "a = Add(x, place) y = LayerNormalization(a, ls)"),
    ("biased-skip-layernorm", TEXT, "z = Sigmoid(x) k = Add(z, lt) a = Add(x, k) y = LayerNormalization(a, ls, lt)"),
    ("layernorm-of-pow", TEXT, f"{normed('x')} j = Mul(i, ls) y = Add(j, lt)"),
    ("layernorm-of-pow", MATRIX, f"{normed('x')} j = Mul(i, ls) y = Add(lt, j)"),
    (
        "skip-layernorm-of-pow", TEXT,
        f"z = Sigmoid(x) a = Add(x, z) {normed('a')} j = Mul(i, ls) y = Add(j, lt)",
    ),
    (
        "biased-skip-layernorm-of-pow", TEXT,
        f"z = Sigmoid(x) k = Add(z, lt) a = Add(x, k) {normed('a')} "
        "j = Mul(i, ls) y = Add(j, lt)",
    ),
    ("rmsnorm-of-pow", TEXT, f"{root_of('x')} i = Div(x, h) y = Mul(i, ls)"),
    ("rmsnorm-of-pow", TEXT, f"{normed('x')} y = Mul(ls, i)"),
    (
        "transposed-matmul-scaled[Mul]", HEADS,
        "z = Sigmoid(x) k = Transpose<perm=[0,1,3,2]>(z) c = MatMul(x, k) y = Mul(c, scale)",
    ),
    ("matmul-scaled[Mul]", HEADS, "k = Reshape(x, other) c = MatMul(x, k) y = Mul(c, scale)"),
    ("transposed-matmul", HEADS, "z = Sigmoid(x) k = Transpose<perm=[0,1,3,2]>(z) y = MatMul(x, k)"),
    ("matmul-of-transposed", HEADS, "z = Sigmoid(x) k = Transpose<perm=[0,1,3,2]>(z) y = MatMul(k, x)"),
]  # fmt: skip


def model_of(kind: str, nodes: str) -> onnx.ModelProto:
    graph = onnx.parser.parse_graph(f"g (float{kind} x) => (float y) {{ {nodes} }}")
    random = np.random.default_rng(0)
    stored = {name: random.uniform(0.25, 1, shape).astype(np.float32) for name, shape in SHAPES.items()}
    stored |= {name: np.array(value, np.float32) for name, value in NUMBERS.items()}
    stored |= {"lifted": np.ones((1, 1, 1), np.float32), "lifted_root": np.full((1, 1), 2.0**0.5, np.float32)}
    stored |= {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "other": np.array([1, 2, 8, 5])}
    used = {name for node in graph.node for name in node.input}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items() if name in used)
    for value in (*graph.output, *(() if kind else graph.input)):
        value.type.tensor_type.ClearField("shape")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def forms_of(model: onnx.ModelProto, runtime: str = "onnxruntime") -> list[str]:
    lowered = lower(load_model(model))
    operands = operands_of(lowered.graph, constant_nodes(lowered.graph))
    found = groups(lowered.graph, fusions.load(runtime), operands)
    return [group.match.fusion.rule.name for group in found.values()]


def kernels(model: onnx.ModelProto, path: Path) -> list[str]:
    """What the runtime runs of a model, conversions of layout left out."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(path).graph.node if not node.op_type.startswith("Reorder")]


@pytest.mark.parametrize(("form", "kind", "nodes"), EXAMPLES)
def test_the_runtime_fuses_what_the_form_says(form: str, kind: str, nodes: str, tmp_path: Path) -> None:
    model = model_of(kind, nodes)
    assert forms_of(model) == [form]
    lowered = lower(load_model(model))
    priced = graph_cost(lowered.graph, load("onnxruntime")).nodes
    left = [item for item in priced if not item.fused]
    # One kernel for the group, and one for each node outside of it.
    assert len(kernels(model, tmp_path / "m.onnx")) == 1 + len(left)


def test_every_form_has_an_example() -> None:
    shown = {name.partition("[")[0] for name, _, _ in EXAMPLES}
    assert {form.rule.name.partition("[")[0] for form in fusions.load("onnxruntime").forms} == shown


def test_a_value_that_is_used_elsewhere_is_not_fused(tmp_path: Path) -> None:
    model = model_of(IMAGE, f"{CONV} r = Relu(c) h = Tanh(c) y = Add(r, h)")
    assert forms_of(model) == []
    assert len(kernels(model, tmp_path / "m.onnx")) == 4
    output = model_of(IMAGE, f"{CONV} y = Relu(c)")
    output.graph.output.append(onnx.ValueInfoProto(name="c"))
    assert forms_of(output) == []


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        (IMAGE, f"{CONV} y = Exp(c)"),
        (IMAGE, f"{CONV} y = Mul(c, x)"),
        (TEXT, "d = Div(x, two) e = Erf(d) f = Add(e, one) g = Mul(x, f) y = Mul(g, half)"),
        (TEXT, f"{ERF.replace('one', 'lifted')} g = Mul(x, f) y = Mul(g, half)"),
        (TEXT, f"{ERF.replace('root', 'lifted_root')} g = Mul(x, f) y = Mul(g, half)"),
        (TEXT, "g = Mul(x, ls) h = Sigmoid(g) y = Mul(h, x)"),
        (TEXT, "g = Mul(x, lifted) h = Sigmoid(g) y = Mul(h, x)"),
        ("", "d = Div(x, root) e = Erf(d) f = Add(e, x) g = Mul(x, f) y = Mul(g, half)"),  # of any rank
        (TEXT, "u = Mul(x, x) r = ReduceMean<axes=[-1]>(u) e = Add(r, eps) h = Sqrt(e) i = Div(x, h) y = Mul(i, ls)"),
        (
            TEXT,
            "c = Pow(x, three) d = Mul(c, cubic) e = Add(x, d) f = Mul(e, inner) g = Tanh(f) h = Add(g, one) "
            "i = Mul(x, half) y = Mul(i, h)",
        ),
        (MATRIX, "z = Sigmoid(x) a = Add(x, z) y = LayerNormalization(a, ls, lt)"),
        (MATRIX, "c = MatMul(x, mw) y = Relu(c)"),
        ("[1,n,16]", "c = MatMul(x, mw) y = Add(c, mb)"),
    ],
)
def test_what_only_looks_alike_is_not_fused(kind: str, nodes: str, tmp_path: Path) -> None:
    model = model_of(kind, nodes)
    assert forms_of(model) == []
    assert len(kernels(model, tmp_path / "m.onnx")) == len(model.graph.node)


def test_a_group_costs_its_kernel_and_what_is_kept_of_the_rest() -> None:
    model = CostModel("m", "u", node=1.0, fuses="onnxruntime")
    apart = CostModel("m", "u", node=1.0)
    for form, kind, nodes in EXAMPLES:
        kept, priced_as = next(
            (each.kept, each.priced_as) for each in fusions.load("onnxruntime").forms if each.rule.name == form
        )
        proto = model_of(kind, nodes)
        every = cost(proto, apart)
        priced = cost(proto, model)
        inside = [item.op for item in priced.nodes if item.fused]
        gone = len(inside) - (priced_as in inside)
        assert priced.total == pytest.approx(every.total - len(inside) + 1 + kept * gone), form


def test_the_better_choice_is_the_one_that_fuses() -> None:
    """An Exp or a Relu after a convolution: each costs the same by itself, but only one is part of its kernel."""
    model = model_of(IMAGE, f"{CONV} y = Exp(c)")
    rules = parse_rules("rule other: exact\n  Exp(x) => Relu(x)\n")  # not true, which extraction does not ask
    original = load_model(model)
    graph = settle(lower(original).graph, context=original.proto)
    egraph = saturate(graph, rules, Limits(), 17).egraph
    alike = CostModel("m", "u", node=1.0)
    assert [node.op for node in extract(egraph, alike).graph.nodes][-1] == "Exp"
    chosen = extract(egraph, CostModel("m", "u", node=1.0, fuses="onnxruntime"))
    assert [node.op for node in chosen.graph.nodes][-2:] == ["Conv", "Relu"]
    assert chosen.cost == pytest.approx(1.05)
    assert graph_cost(chosen.graph, CostModel("m", "u", node=1.0, fuses="onnxruntime")).total == pytest.approx(1.05)
    assert chosen.status == "optimal"
    assert len(chosen.chosen) == 3


def test_two_groups_that_share_a_convolution_stay_two_nodes() -> None:
    model = model_of(IMAGE, f"{CONV} r = Relu(c) h = Exp(c) y = Add(r, h)")
    original = load_model(model)
    graph = settle(lower(original).graph, context=original.proto)
    egraph = saturate(graph, parse_rules("rule a: exact\n  Neg(Neg(x)) => x\n"), Limits(), 17).egraph
    extraction = extract(egraph, CostModel("m", "u", node=1.0, fuses="onnxruntime"))
    assert sorted(node.op for node in extraction.graph.nodes if node.op not in ("Input", "Const")) == [
        "Add", "Conv", "Exp", "Relu",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("fused a: keeps 0.1\n  Relu(x) => Relu(*x)\n", "f.rules:"),
        ("fused a: keeps 0.1\n  Relu(y => Relu(y)\n", "f.rules:2:7: '(' is never closed"),
        ("rule a: exact\n  Relu(x) => Relu(x)\n", "f.rules:1:1: 'fused NAME: keeps PART' was expected"),
        ("fused a: keeps much\n  Relu(x) => Relu(x)\n", "f.rules:1:1: "),
        ("fused a: keeps 0.1\n  Max(*x) => Relu(x)\n", "f.rules:"),
        ("fused a: keeps 0.1\n  Relu(x) => Relu(Relu(x))\n", "f.rules:1:1: one operator over variables was expected"),
    ],
)
def test_a_wrong_form_is_one_line_that_names_its_place(text: str, what: str) -> None:
    with pytest.raises(RuleError) as error:
        fusions.parse(text, "f.rules")
    assert str(error.value).startswith(what)
    assert "\n" not in str(error.value)


def test_a_form_is_not_looked_for_without_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[fusions.Fusion] = []
    monkeypatch.setattr(grouping, "found_at", lambda fusion, place, space: looked_for.append(fusion) or [])
    forms = fusions.load("onnxruntime")
    with_erf = f"{ERF} g = Mul(x, f) y = Mul(g, half)"
    for nodes, found in (("g = Mul(x, x) y = Mul(g, x)", False), (with_erf, True)):
        looked_for.clear()
        egraph = saturate(lower(load_model(model_of(TEXT, nodes))).graph, RuleSet(), Limits(), 17).egraph
        assert list(egraph_groups(egraph, forms, [])) == []
        assert any("Erf" in form.operators for form in looked_for) == found
        assert all("Tanh" not in form.operators for form in looked_for)
