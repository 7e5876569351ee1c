"""Conversions between layouts: found where the installed onnxruntime puts them, priced in graphs and in e-graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from superopt.cost import CostModel, constant_nodes, graph_cost, load, operands_of
from superopt.costs import timing
from superopt.costs.executor import Prepared
from superopt.costs.files import toml
from superopt.costs.fusions import load as load_fusions
from superopt.costs.gather import graph_instances
from superopt.costs.grouping import groups
from superopt.costs.instances import OperatorInstance
from superopt.costs.layout import conversion_instance, conversions
from superopt.costs.timing import Runtime
from superopt.engine.saturate import Limits, saturate
from superopt.extraction.pricing import price
from superopt.lowering.lower import lower
from superopt.models.model import load as load_model
from superopt.numeric import settle
from superopt.rule_text import parse as parse_rules
from superopt.terms import TensorType, TermGraph
from superopt.workload import NOMINAL, Sizes

ONE = Runtime(threads=1)
BLOCK = timing.channels_of_a_block(ONE)

pytestmark = pytest.mark.skipif(BLOCK != 8, reason="onnxruntime has no layout of 8 channels a block on this processor")

SHAPES = {
    "w": (16, 16, 3, 3), "w12": (12, 16, 3, 3), "of12": (16, 12, 3, 3), "w10": (10, 16, 3, 3), "of10": (16, 10, 3, 3),
    "w3": (3, 16, 3, 3), "of3": (16, 3, 3, 3), "g4": (16, 4, 3, 3), "g2": (16, 8, 3, 3), "dw": (16, 1, 3, 3),
    "half": (16, 8, 3, 3), "col": (16, 1, 1), "last": (16, 16),
}  # fmt: skip
A, B = "a = Conv<pads=[1,1,1,1]>(x, w)", "b = Conv<pads=[1,1,1,1]>(x, w)"

# Graphs with something between convolutions, or at the ends.
EXAMPLES = [
    f"{A} y = Conv(a, w)",
    f"{A} r = Relu(a) k = Conv<pads=[1,1,1,1]>(r, w) y = Add(k, a)",
    f"{A} r = Elu(a) y = Conv(r, w)",
    f"{A} r = Exp(a) s = Softplus(a) y = Sub(r, s)",
    f"{A} r = Exp(a) k = Conv(r, w) l = Conv(r, w) y = Add(k, l)",
    f"{A} p = Abs(x) s = Add(a, p) y = Conv(s, w)",
    f"{A} {B} s = Max(a, b) y = Conv(s, w)",
    f"{A} {B} p = MaxPool<kernel_shape=[2,2]>(b) q = MaxPool<kernel_shape=[2,2]>(a) s = Mul(p, q) y = Conv(s, w)",
    f"{A} p = GlobalAveragePool(a) q = Conv<pads=[1,1,1,1]>(p, w) s = Sigmoid(q) m = Mul(s, a) y = Conv(m, w)",
    f"{A} p = ReduceMean<axes=[2,3]>(a) y = Relu(p)",
    f"{A} m = Mul(a, col) k = Conv<pads=[1,1,1,1]>(m, w) y = Add(k, a)",
    "y = MaxPool<kernel_shape=[2,2]>(x)",
    "y = LpPool<kernel_shape=[2,2]>(x)",
    "c = Conv<pads=[1,1,1,1]>(x, w12) p = MaxPool<kernel_shape=[2,2]>(c) y = Conv(p, of12)",
    "c = Conv<pads=[1,1,1,1]>(x, w10) y = Conv(c, of10)",
    "c = Conv<pads=[1,1,1,1]>(x, w3) y = Conv(c, of3)",
    f"{A} p = MaxPool<kernel_shape=[2,2]>(a) q = Relu(x) r = MaxPool<kernel_shape=[2,2]>(q) y = Concat<axis=1>(p, r)",
    f"{A} p = Exp(x) y = Concat<axis=1>(a, p)",
    f"{A} p = Sigmoid(x) q = MaxPool<kernel_shape=[1,1]>(p) y = Concat<axis=2>(a, q)",
    f'{A} r = Resize<mode="nearest",nearest_mode="floor",coordinate_transformation_mode="asymmetric">(a, , twice) '
    "y = Conv(r, w)",
    f'{A} r = Resize<mode="nearest",nearest_mode="floor">(a, , twice) y = Conv(r, w)',
    f'{A} r = Resize<mode="linear">(a, , twice) y = Conv(r, w)',
    f"{A} t = Transpose<perm=[0,2,3,1]>(a) m = MatMul(t, last) u = Transpose<perm=[0,3,1,2]>(m) y = Conv(u, w)",
    f"{A} y = Conv<group=4>(a, g4)",
    f"{A} y = Conv<group=2>(a, g2)",
    f"{A} y = Conv<group=16>(a, dw)",
    f"{A} p, q = Split<axis=1>(a) k = Conv(p, half) l = Conv(q, half) y = Add(k, l)",
    f"{A} y = Conv(a, z)",
    f"{A} d = Div(a, root) e = Erf(d) f = Add(e, one) g = Mul(a, f) h = Mul(g, mid) y = Conv(h, w)",
    f"{A} s = Sigmoid(a) h = Mul(a, s) y = Conv(h, w)",
    f"{A} m = Mul(a, root) s = Sigmoid(m) h = Mul(a, s) y = Conv(h, w)",
]


def model_of(nodes: str) -> onnx.ModelProto:
    given = "float[1,16,8,8] x" + (", float[16,16,3,3] z" if ", z)" in nodes else "")
    graph = onnx.parser.parse_graph(f"g ({given}) => (float y) {{ {nodes} }}")
    random = np.random.default_rng(0)
    stored = {name: random.uniform(0.25, 1, shape).astype(np.float32) for name, shape in SHAPES.items()}
    stored |= {name: np.array(value, np.float32) for name, value in (("one", 1), ("mid", 0.5), ("root", 2**0.5))}
    stored["twice"] = np.array([1, 1, 2, 2], np.float32)
    used = {name for node in graph.node for name in node.input}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items() if name in used)
    graph.output[0].type.tensor_type.ClearField("shape")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def graph_of(nodes: str) -> TermGraph:
    model = load_model(model_of(nodes))
    return settle(lower(model).graph, context=model.proto)


@pytest.mark.parametrize("nodes", EXAMPLES)
def test_conversions_are_where_the_runtime_puts_them(nodes: str, tmp_path: Path) -> None:
    graph = graph_of(nodes)
    operands = operands_of(graph, constant_nodes(graph))
    fused = groups(graph, load_fusions("onnxruntime"), operands).values()
    following = {place for group in fused if group.follows for place in group.parts}
    found = conversions(graph, operands, following, NOMINAL, BLOCK)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model_of(nodes).SerializeToString(), options, providers=["CPUExecutionProvider"])
    made = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    expected = Counter(name for name in made if name.startswith("Reorder"))
    assert Counter(conversion.way for conversion in found.conversions) == expected
    # A transposition that a conversion does by the way is not there.
    assert made.count("Transpose") == sum(node.op == "Transpose" for node in graph.nodes) - len(found.free)


def test_a_split_costs_what_it_breaks() -> None:
    blocked = CostModel("m", "u", node=1.0, block=8, reorder_byte=1.0)
    image = 4 * 16 * 64
    split = graph_of(EXAMPLES[-3])
    priced = graph_cost(split, blocked)
    by_op = {node.op: node.cost for node in priced.nodes}
    assert by_op["Split"] == 1 + image
    # In and out again: the first convolution, the split, its two parts, the sum of 6 x 6.
    assert priced.total == graph_cost(split, replace(blocked, block=0)).total + 3 * image + 4 * 16 * 36


def test_extraction_pays_for_conversions() -> None:
    graph = graph_of(f"{A} r = Exp(a) y = Conv(r, w)")
    rule = "rule exp-as-relu: exact\n  Exp(x) => Relu(x)\n"  # not true: the price alone is looked at
    egraph = saturate(graph, parse_rules(rule), Limits(iterations=1), 17).egraph
    plain = CostModel("m", "u", node=1.0)
    blocked = replace(plain, block=8, reorder_byte=1.0)
    costs = [price(egraph, each, 0.0, Sizes({}), {}) for each in (plain, blocked)]
    extra = {
        node.op: after - before
        for node, before, after in zip(costs[0].node, costs[0].problem.costs, costs[1].problem.costs, strict=True)
        if node is not None and node.op in ("Exp", "Relu")
    }
    assert extra == {"Exp": 2 * 4 * 16 * 64, "Relu": 0}


def test_conversions_are_timed_and_go_into_a_file(tmp_path: Path) -> None:
    image = TensorType("float32", (1, 12, 8, 8))
    out, into = (conversion_instance(way, image, NOMINAL, 8) for way in ("ReorderOutput", "ReorderInput"))
    assert out is not None
    assert into is not None
    assert out.leaves[0].shape == (1, 16, 8, 8)
    assert out.key != into.key
    for each in (out, into):
        assert timing.time_instance(each, ONE).samples > 1
    model = CostModel("m", "s", block=8, reorder_byte=2.0, instances={out.key: 7.0})
    assert model.converted("ReorderOutput", image) == 7
    assert model.converted("ReorderInput", image) == 2 * 4 * 12 * 64
    path = tmp_path / "m.toml"
    path.write_text(toml(model, "a test"), encoding="utf-8")
    read = load(path)
    assert (read.block, read.reorder_byte, dict(read.instances)) == (8, 2.0, {out.key: 7.0})


def test_heavy_weights_are_read_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    times = Prepared.times

    def counted(prepared: Prepared, count: int) -> Prepared:
        counts.append(count)
        return times(prepared, count)

    monkeypatch.setattr(Prepared, "times", counted)
    monkeypatch.setattr(timing, "_DIFFERENCE", 0.0)
    timing.time_instance(product(1, 512), ONE)
    assert counts == [1, 1 + 16]  # a megabyte each
    counts.clear()
    timing.time_instance(product(512, 16), ONE)
    assert counts in ([1, 2], [1])  # 1 KB, which is read in no time


def product(rows: int, size: int) -> OperatorInstance:
    graph = onnx.parser.parse_graph(f"g (float[{rows},{size}] x) => (float y) {{ y = MatMul(x, w) }}")
    graph.initializer.append(numpy_helper.from_array(np.ones((size, size), np.float32), "w"))
    graph.output[0].type.tensor_type.ClearField("shape")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    lowered = lower(load_model(onnx.shape_inference.infer_shapes(model))).graph
    operands = operands_of(lowered, constant_nodes(lowered))
    (found,) = graph_instances(lowered, operands, NOMINAL, load_fusions("onnxruntime")).values()
    return found
