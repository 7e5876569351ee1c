"""What onnxruntime fuses of an untrained model stays whole, though a part of it changes nothing by itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import superopt
from superopt.cost import load
from superopt.costs.fusions import NONE
from superopt.engine.saturate import Limits, saturate
from superopt.lowering.lower import lower
from superopt.models.model import load as load_model
from superopt.numeric import settle
from superopt.options import options
from superopt.progress import Clock, Watcher
from superopt.rule_text import load as load_rules
from superopt.search.kept import with_groups_kept
from superopt.search.opening import opened
from tests.test_fusions import kernels

NORM = (
    "u = ReduceMean<axes=[-1]>(a) d = Sub(a, u) q = Pow(d, two) r = ReduceMean<axes=[-1]>(q) e = Add(r, eps) "
    "h = Sqrt(e) i = Div(d, h) j = Mul(i, ones) y = Add(j, zeros)"
)
GELU = "n = Add(a, zeros) d = Div(n, root) e = Erf(d) f = Add(e, one) g = Mul(n, f) y = Mul(g, half)"
NUMBERS = {"one": 1.0, "half": 0.5, "root": 2.0**0.5, "two": 2.0, "eps": 1e-5}


def model_of(nodes: str) -> onnx.ModelProto:
    graph = onnx.parser.parse_graph(f"g (float[1,8,32] x) => (float[1,8,32] y) {{ {nodes} }}")
    stored = {name: np.array(value, np.float32) for name, value in NUMBERS.items()}
    stored |= {"ones": np.ones(32, np.float32), "zeros": np.zeros(32, np.float32)}
    used = {name for node in graph.node for name in node.input}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items() if name in used)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_an_untrained_normalization_stays_one_kernel_and_what_is_before_it_is_optimized(tmp_path: Path) -> None:
    model = model_of(f"m = Neg(x) a = Neg(m) {NORM}")
    result = superopt.optimize(model, select="modelled")
    assert result.report["rules_used"] == []  # what was chosen stood in the original
    assert [node.op_type for node in result.model.graph.node] == [
        "ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add",
    ]  # fmt: skip
    assert kernels(result.model, tmp_path / "m.onnx") == ["LayerNormalization"]


def test_what_is_the_better_form_without_its_trivial_part_loses_that() -> None:
    result = superopt.optimize(model_of(f"m = Neg(x) a = Neg(m) {GELU}"), select="modelled")
    assert [node.op_type for node in result.model.graph.node] == ["Div", "Erf", "Add", "Mul", "Mul"]


def test_a_runtime_that_fuses_nothing_keeps_no_trivial_part() -> None:
    result = superopt.optimize(model_of(f"a = Neg(x) {NORM}"), cost="nodes", select="modelled")
    assert result.report["nodes"] == {"before": 10, "after": 8}


def test_further_choices_are_of_the_classes_of_the_saturated_egraph() -> None:
    model = load_model(model_of(f"m = Div(x, two) a = Neg(m) {NORM}"))
    search = opened(model, options(), Clock(Watcher()))
    cost_model = load("onnxruntime")
    saturation = search.saturate(load_rules("default"))
    best = search.choose(saturation, cost_model)
    assert best is not None
    others = search.alternatives(saturation, cost_model, best.extraction, 2, 10.0)
    assert best.rules_used
    assert {} in [other.rules_used for other in others]
    for extraction in (best.extraction, *others):
        assert len(extraction.classes) == len(extraction.graph.nodes)
        assert set(extraction.classes) <= set(range(len(saturation.egraph.classes)))


def test_the_explanation_arrives_at_what_is_kept(tmp_path: Path) -> None:
    model = model_of(f"a = Add(x, zeros) {NORM}")
    superopt.optimize(model, select="modelled", explain=tmp_path / "why")
    document = json.loads((tmp_path / "why" / "index.json").read_text(encoding="utf-8"))
    (graph,) = document["graphs"]
    assert graph["arrived"]
    assert [step["rules"] for step in graph["steps"]] == [["add-of-zero"]]
    assert document["smallest"]["rules"] == ["add-of-zero"]


@pytest.mark.parametrize(("nodes", "added"), [(NORM, 2), (GELU, 5)])
def test_only_nodes_that_share_a_class_and_what_needs_them_are_added(nodes: str, added: int) -> None:
    model = load_model(model_of(f"a = Neg(x) {nodes}"))
    lowered = lower(model)
    graph = settle(lowered.graph, context=model.proto)
    egraph = saturate(graph, load_rules("identity"), Limits(), 13).egraph
    kept = with_groups_kept(egraph, graph, load("onnxruntime").fusions)
    assert len(kept.egraph.classes) == len(egraph.classes) + added
    assert kept.egraph.size == egraph.size + added + 1
    assert kept.classes(range(len(kept.egraph.classes)))[: len(egraph.classes)] == tuple(range(len(egraph.classes)))
    assert sorted(kept.equal) == list(range(len(egraph.classes), len(kept.egraph.classes)))
    assert with_groups_kept(egraph, graph, NONE).egraph is egraph
    apart = saturate(graph, load_rules("spectrum"), Limits(), 13).egraph
    assert with_groups_kept(apart, graph, load("onnxruntime").fusions).egraph is apart
