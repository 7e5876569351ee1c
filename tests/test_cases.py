"""The cases: what tests/cases/README.md asks of every one holds, in both modes, in Python and on the command line."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import superopt
from superopt.rule_text import load as load_rules
from superopt.rules import RuleSet
from tests.rounds import CASES, NAMES, feeds, session
from tests.test_lower import model

CHECKS = {
    entry["id"]: entry["checks"] for entry in json.loads((CASES / "cases.json").read_text(encoding="utf-8"))
}  # fmt: skip
RANDOM = ("nonzero", "varies", "stochastic")
"""Checks of models whose outputs are random: their values are not compared."""

KNOWN = {"lt", "maxbytes", "meta", "dims", "norun", "refeval", "unsorted", *RANDOM}

ON_COMMAND_LINE = NAMES[4::30]
"""A few: what comes out is the same as in Python, where all are tried."""

RELATIVE = {np.dtype(np.float16): 3e-2}
OTHERWISE = 2e-3
"""The tolerances that the README of the cases states, of the largest magnitude."""


@functools.cache
def rules() -> RuleSet:
    """The rules of the default mode, read once."""
    return load_rules("default")


def is_valid(proto: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError:
        return False
    return True


def interface(proto: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    """Inputs without an initializer and outputs, by name and type."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    inputs = [(item.name, item.type.SerializeToString()) for item in proto.graph.input if item.name not in stored]
    return inputs, [(item.name, kind_of(item.type)) for item in proto.graph.output]


def kind_of(known: onnx.TypeProto) -> Any:
    """A type without its shape: declared shapes may be mended."""
    return known.tensor_type.elem_type if known.HasField("tensor_type") else known.SerializeToString()


def runs_of(proto: onnx.ModelProto, feed: Mapping[str, Any], by_reference: bool) -> list[Any]:
    if by_reference:
        return list(ReferenceEvaluator(proto).run(None, dict(feed)))
    return list(session(proto.SerializeToString()).run(None, dict(feed)))


def check_alike(old: Any, new: Any, exact: bool) -> None:
    if old is None or new is None:
        assert old is new
        return
    if isinstance(old, list):
        assert isinstance(new, list)
        for a, b in zip(old, new, strict=True):
            check_alike(a, b, exact)
        return
    a, b = np.asarray(old), np.asarray(new)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if a.dtype.kind != "f":
        assert np.array_equal(a, b)
        return
    nan, infinite = np.isnan(a), np.isinf(a)
    assert np.array_equal(nan, np.isnan(b))
    if exact:
        width = f"u{a.dtype.itemsize}"
        assert np.array_equal(a[~nan].view(width), b[~nan].view(width))
        return
    assert np.array_equal(a[infinite], b[infinite])
    finite = np.isfinite(a)
    assert np.isfinite(b[finite]).all()
    off = np.abs(a[finite].astype(np.float64) - b[finite])
    scale = float(np.max(np.abs(a[finite]), initial=0.0))
    assert float(np.max(off, initial=0.0)) <= RELATIVE.get(a.dtype, OTHERWISE) * scale


def in_order(proto: onnx.ModelProto) -> bool:
    known = {"", *(item.name for item in proto.graph.input), *(tensor.name for tensor in proto.graph.initializer)}
    for node in proto.graph.node:
        if not known.issuperset(node.input):
            return False
        known.update(node.output)
    return True


def count(proto: onnx.ModelProto) -> int:
    return sum(node.op_type != "Constant" for node in proto.graph.node)


def check_case(original: onnx.ModelProto, new: onnx.ModelProto, checks: Mapping[str, Any], exact: bool) -> None:
    """Everything but the values."""
    assert set(checks) <= KNOWN
    if is_valid(original):
        onnx.checker.check_model(new)
    assert interface(new) == interface(original)
    if "lt" in checks and not exact:
        assert count(new) < checks["lt"]
    if "maxbytes" in checks:
        assert new.ByteSize() <= checks["maxbytes"]
    if "unsorted" in checks:
        assert not in_order(original)
        assert in_order(new)
    if "dims" in checks:
        assert new.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    if "meta" in checks:
        for name in ("metadata_props", "doc_string", "producer_name", "model_version", "domain"):
            assert getattr(new, name) == getattr(original, name)
        assert original.doc_string
        assert original.graph.input[0].doc_string
        assert [item.doc_string for item in new.graph.input] == [item.doc_string for item in original.graph.input]
        assert {node.name for node in new.graph.node} <= {node.name for node in original.graph.node}
        assert all(node.name for node in new.graph.node)
    operators = [node.op_type for node in new.graph.node]
    assert [op for op in checks.get("norun", ()) if op not in operators] == []


def check_random(new: onnx.ModelProto, feed: Mapping[str, Any], checks: Mapping[str, Any]) -> None:
    """What is random stays random."""
    runner = session(new.SerializeToString())
    first, second = (np.asarray(runner.run(None, dict(feed))[0]) for _ in range(2))
    if "nonzero" in checks:
        assert np.any(first != 0)
    if "varies" in checks:
        assert np.any(first != second)
    if "stochastic" in checks:
        assert 0 < np.count_nonzero(first == 0) < first.size


def check_values(original: onnx.ModelProto, new: onnx.ModelProto, given: Sequence[Mapping[str, Any]],
                 checks: Mapping[str, Any], exact: bool) -> None:  # fmt: skip
    if checks.get("norun"):
        return
    assert given
    for feed in given:
        if any(name in checks for name in RANDOM):
            check_random(new, feed, checks)
            continue
        by_reference = "refeval" in checks
        expected = runs_of(original, feed, by_reference)
        for old, found in zip(expected, runs_of(new, feed, by_reference), strict=True):
            check_alike(old, found, exact)


@pytest.mark.parametrize("numeric", ["reassociates", "exact"])
@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, numeric: str) -> None:
    path = CASES / name / "model.onnx"
    original, exact = onnx.load(path), numeric == "exact"
    result = superopt.optimize(path, numeric=numeric, rules=rules(), select="modelled")
    assert result.report["left_out"] == []
    check_case(original, result.model, CHECKS[name], exact)
    check_values(original, result.model, feeds(name), CHECKS[name], exact)


def test_all_cases_are_here() -> None:
    assert len(NAMES) == len(set(NAMES)) == 117
    assert sorted(path.name for path in CASES.iterdir() if path.is_dir()) == sorted(NAMES)


@pytest.mark.parametrize("name", ON_COMMAND_LINE)
def test_case_on_the_command_line(name: str, tmp_path: Path) -> None:
    """A process of its own each, as users run it; every second one in exact mode."""
    exact = ON_COMMAND_LINE.index(name) % 2 == 1
    path, out = CASES / name / "model.onnx", tmp_path / "out.onnx"
    done = subprocess.run(
        [sys.executable, "-m", "superopt", "optimize", path, "-o", out, "--select", "modelled",
         "--numeric", "exact" if exact else "reassociates"],
        capture_output=True, text=True, check=False, cwd=CASES.parent.parent, env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    original, new = onnx.load(path), onnx.load(out)
    check_case(original, new, CHECKS[name], exact)
    check_values(original, new, feeds(name), CHECKS[name], exact)


# Neighbours: further ones of the kinds that were hard.


def optimized(proto: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    return superopt.optimize(proto, rules=rules(), select="modelled", **options).model


def foldable(y: str) -> list[onnx.NodeProto]:
    return [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("Relu", ["i"], [y])]


@pytest.mark.parametrize("domain", ["", "my.domain"])
def test_an_unknown_operator_is_kept_and_what_is_around_it_is_left_to_be_run_by_others(domain: str) -> None:
    unknown = helper.make_node("Mystery", ["r"], ["a", "", "b"], domain=domain, level=3, mode="x")
    nodes = [*foldable("r"), unknown, helper.make_node("Add", ["a", "b"], ["y"])]
    proto = model(nodes, {"x": (2, 3)})
    if domain:
        proto.opset_import.add(domain=domain, version=1)
    new = optimized(proto)
    kept = next(node for node in new.graph.node if node.op_type == "Mystery")
    assert (kept.domain, list(kept.attribute), list(kept.output)) == (domain, list(unknown.attribute), ["a", "", "b"])
    assert interface(new) == interface(proto)


def test_an_unknown_operator_in_a_branch_keeps_what_it_captures() -> None:
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["r"], [f"{op}_out"])],
            "branch", [], [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, [2, 3])],
        )
        for op in ("Mystery", "Neg")
    ]  # fmt: skip
    nodes = [*foldable("r"), helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    proto = model(nodes, {"x": (2, 3)})
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    new = optimized(proto)
    made = {name for node in new.graph.node for name in node.output} | {item.name for item in new.graph.input}
    captured = [node.input[0] for attribute in new.graph.node[-1].attribute for node in attribute.g.node]
    assert len(captured) == 2
    assert made.issuperset(captured)


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile"])
def test_a_large_constant_is_not_unfolded(op: str) -> None:
    constants: dict[str, Any] = {"n": np.array([512, 512])}
    if op != "ConstantOfShape":
        constants["one"] = np.ones((1, 1), np.float32)
    inputs = ["n"] if op == "ConstantOfShape" else ["one", "n"]
    nodes = [helper.make_node(op, inputs, ["big"]), helper.make_node("Add", ["x", "big"], ["y"])]
    proto = model(nodes, {"x": (512, 512)}, constants)
    assert optimized(proto).ByteSize() <= 1.05 * proto.ByteSize()


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform", "Bernoulli"])
def test_what_is_random_is_neither_folded_nor_merged(op: str) -> None:
    inputs = ["x"] if op == "Bernoulli" else []
    attributes: dict[str, Any] = {} if inputs else {"shape": [4, 5]}
    nodes = [helper.make_node(op, inputs, [name], **attributes) for name in "ab"]
    nodes += [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Add", ["d", "z"], ["y"])]
    proto = model(nodes, {"x": (4, 5)}, {"z": np.zeros((4, 5), np.float32)})
    runner = session(optimized(proto).SerializeToString())
    feed = {"x": np.full((4, 5), 0.5, np.float32)}
    first, second = (runner.run(None, feed)[0] for _ in range(2))
    assert np.any(first != 0)
    assert np.any(first != second)


def test_equal_shared_weights_of_two_norms_are_copied_not_changed() -> None:
    dice = np.random.default_rng(0)
    weight = dice.standard_normal((3, 3, 3, 3)).astype(np.float32)
    constants = {"w": weight} | {
        f"{part}{index}": np.abs(dice.standard_normal(3)).astype(np.float32) + 0.5
        for index in (0, 1)
        for part in "stmv"
    }
    nodes = []
    for index in (0, 1):
        nodes.append(helper.make_node("Conv", ["x", "w"], [f"c{index}"]))
        nodes.append(
            helper.make_node("BatchNormalization", [f"c{index}", *(f"{part}{index}" for part in "stmv")], [f"b{index}"])
        )
    nodes.append(helper.make_node("Concat", ["b0", "b1", "c0"], ["y"], axis=1))
    proto = model(nodes, {"x": (1, 3, 6, 6)}, constants)
    new = optimized(proto, max_growth=None)
    kept = [numpy_helper.to_array(tensor) for tensor in new.graph.initializer if tensor.name == "w"]
    assert len(kept) == 1
    assert np.array_equal(kept[0], weight)
    feed = {"x": dice.standard_normal((1, 3, 6, 6)).astype(np.float32)}
    check_alike(runs_of(proto, feed, False)[0], runs_of(new, feed, False)[0], False)


@pytest.mark.parametrize("numeric", ["reassociates", "exact"])
def test_nodes_that_share_a_name_keep_it_and_the_callers_model_is_left_alone(numeric: str) -> None:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"], "same"),
        helper.make_node("Identity", ["a"], ["b"], "same"),
        helper.make_node("Tanh", ["b"], ["c"], "same"),
        helper.make_node("Tanh", ["c"], ["y"], "same"),
    ]
    proto = model(nodes, {"x": (2, 3)})
    before = proto.SerializeToString()
    new = optimized(proto, numeric=numeric)
    assert [(node.op_type, node.name) for node in new.graph.node][-1] == ("Tanh", "same")
    assert "Identity" not in [node.op_type for node in new.graph.node]
    assert proto.SerializeToString() == before
