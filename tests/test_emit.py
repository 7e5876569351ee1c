"""Emitting: nothing changed means the same bytes; a node written anew from its normal form computes the same bits."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as node_cases
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.emitting.emit import emit
from superopt.errors import InferenceError
from superopt.lowering.lower import Lowered, lower
from superopt.models.model import Model, load, serialized
from superopt.operators import FORMS
from superopt.terms import CONST, INPUT, Attrs, Node, TermGraph
from tests.rounds import CASES, LIGHT, NAMES, feeds, random_feed, run, same_bits, session
from tests.test_lower import model

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19, 21, 23)
"""Opsets at which something about the form of a node changed, up to what onnxruntime runs."""

SLOW = {"averagepool", "lppool", "maxpool"}
"""Modules of onnx's node tests that take seconds to compute what they expect; POOLS below stand in for them."""

QUICK = [path for path in LIGHT if path.stem in ("light_shufflenet", "light_squeezenet", "light_inception_v1")]
"""The classic networks that run in less than a second."""

UNDERSTOOD = {name.lower() for name in FORMS}
MODULES = sorted(
    module.name
    for module in pkgutil.iter_modules(node_cases.__path__)
    if module.name.replace("_", "") in UNDERSTOOD and module.name not in SLOW
)


def is_valid(proto: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError:
        return False
    return True


def interface(proto: onnx.ModelProto) -> list[bytes]:
    return [item.SerializeToString() for item in (*proto.graph.input, *proto.graph.output)]


@pytest.mark.parametrize("path", [*(CASES / name / "model.onnx" for name in NAMES), *LIGHT],
                         ids=lambda path: path.parent.name if path.name == "model.onnx" else path.stem)  # fmt: skip
def test_unchanged_is_the_same_bytes(path: Any) -> None:
    lowered = lower(load(path))
    if not lowered.in_order:
        assert is_valid(emit(lowered, lowered.graph).proto)
        return
    assert serialized(emit(lowered, lowered.graph)) == path.read_bytes()
    again = TermGraph(*(getattr(lowered.graph, name.name) for name in dataclasses.fields(TermGraph)))
    emitted = emit(lowered, again).proto
    assert [node.op_type for node in emitted.graph.node if node.op_type != "Constant"]
    assert interface(emitted) == interface(lowered.model.proto)


NOT_RUN = {
    "bn14_double": "NOT_IMPLEMENTED",
    "cu01_custom_domain_op": "FAIL",
    "cu02_unknown_op_default_domain": "INVALID_GRAPH",
}
"""Cases that onnxruntime does not load, and what it says: nothing can be compared there."""


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_cases_written_anew_give_the_same_bits(name: str, constant: bool) -> None:
    path = CASES / name / "model.onnx"
    lowered = lower(load(path), initializers_are_constant=constant)
    anew = emit(lowered, lowered.graph, reuse_nodes=False)
    if is_valid(lowered.model.proto):
        onnx.checker.check_model(anew.proto)
    if not constant:
        assert interface(anew.proto) == interface(lowered.model.proto)
    if name in NOT_RUN:
        with pytest.raises(Exception, match=NOT_RUN[name]):
            session(str(path))
        return
    before = session(str(path))
    after = session(serialized(anew))
    for feed in feeds(name):
        expected = run(before, feed)
        if expected is not None and not random(lowered):
            assert same_bits(expected, after.run(None, feed))


def random(lowered: Lowered) -> bool:
    return not all(entry.deterministic for entry in lowered.graph.opaque.values())


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("path", QUICK, ids=lambda path: path.stem)
def test_classic_networks_written_anew_give_the_same_bits(path: Any, constant: bool) -> None:
    lowered = lower(load(path), initializers_are_constant=constant)
    anew = emit(lowered, lowered.graph, reuse_nodes=False)
    onnx.checker.check_model(anew.proto)
    before, after = session(str(path)), session(serialized(anew))
    feed = random_feed(before.get_inputs())
    assert same_bits(before.run(None, feed), after.run(None, feed))


# One node, by onnx's own test cases.


def node_models(module: str) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """The models with one understood node of a module of onnx's node tests: as they are, and with all inputs but the
    first as initializers, so that parameters are constant."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        importlib.import_module(f"{node_cases.__name__}.{module}")
    wanted = module.replace("_", "")
    for case in list(node_cases._NodeTestCases):
        proto = case.model
        if len(proto.graph.node) != 1 or proto.graph.node[0].op_type.lower() != wanted:
            continue
        values = [numpy_helper.to_array(v) if isinstance(v, TensorProto) else v for v in case.data_sets[0][0]]
        if len(values) != len(proto.graph.input) or not all(isinstance(v, np.ndarray | np.generic) for v in values):
            continue
        feed = {item.name: np.asarray(v) for item, v in zip(proto.graph.input, values, strict=True)}
        yield case.name, proto, feed
        if len(values) > 1:
            fixed = onnx.ModelProto()
            fixed.CopyFrom(proto)
            del fixed.graph.input[1:]
            for item in list(proto.graph.input)[1:]:
                fixed.graph.initializer.append(numpy_helper.from_array(feed[item.name], item.name))
            yield f"{case.name} with constants", fixed, {proto.graph.input[0].name: feed[proto.graph.input[0].name]}


def written_for(lowered: Lowered, opset: int) -> Model | None:
    """A model with every node written anew for another opset; None where that opset cannot say it."""
    proto = onnx.ModelProto()
    proto.CopyFrom(lowered.model.proto)
    proto.ir_version = 8
    next(entry for entry in proto.opset_import if entry.domain in ("", "ai.onnx")).version = opset
    try:
        emitted = emit(dataclasses.replace(lowered, model=Model(proto)), lowered.graph, reuse_nodes=False)
    except InferenceError:
        return None
    return emitted if is_valid(emitted.proto) else None


def nearly(left: Any, right: Any) -> bool:
    """Kernels of older opsets sum in another order."""
    if same_bits(left, right):
        return True
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind != "f":
        return False
    return bool(np.allclose(a, b, rtol=64 * np.finfo(a.dtype).eps, atol=64 * np.finfo(a.dtype).tiny, equal_nan=True))


def check_node(
    name: str, proto: onnx.ModelProto, feed: Mapping[str, Any], opsets: Sequence[int] = OPSETS, run_opsets: bool = True
) -> int:
    """Tells in how many ways the node was written anew, run, and found to give the same.

    Where onnxruntime does not have the node's own opset, it is the others that are compared.
    """
    lowered = lower(load(proto))
    if lowered.graph.opaque:
        return 0
    assert emit(lowered, lowered.graph) is lowered.model
    anew = emit(lowered, lowered.graph, reuse_nodes=False)
    try:
        expected = run(session(proto.SerializeToString()), feed)
    except Exception:  # not implemented
        expected = None
    runs = 0
    if expected is not None:
        found = session(serialized(anew)).run(None, feed)
        assert all(map(nearly, expected, found)), name
        runs += 1
    for opset in opsets:
        other = written_for(lowered, opset)
        if other is None:
            continue
        back = lower(load(other.proto))
        # An older opset may infer another shape (pools in ceil mode): then its nodes are left alone.
        if not back.graph.opaque:
            assert back.graph.text().split("\n", 1)[0] == lowered.graph.text().split("\n", 1)[0]
            assert operators(back) == operators(lowered), f"{name} at opset {opset}"
        if run_opsets:
            try:
                older = run(session(serialized(other)), feed)
            except Exception:  # not implemented for this type at this opset
                continue
            if older is not None and expected is not None:
                assert all(map(nearly, expected, older)), f"{name} at opset {opset}"
                runs += 1
            expected = expected or older
    return runs


def operators(lowered: Lowered) -> list[tuple[str, Attrs]]:
    return [(node.op, node.attrs) for node in lowered.graph.nodes if node.op not in (INPUT, CONST)]


@pytest.mark.parametrize("module", MODULES)
def test_nodes_written_anew_at_every_opset(module: str) -> None:
    runs = 0
    for count, (name, proto, feed) in enumerate(node_models(module)):
        runs += check_node(name, proto, feed, OPSETS if count < 16 else (), run_opsets=count < 4)
    # onnx takes the spectrum of an STFT that does not say for two-sided, against its own default.
    assert runs or module in ("layernormalization", "not_", "stft"), "no model of this module was run"


POOLS = [
    ("MaxPool", 8, {"auto_pad": "SAME_UPPER"}),
    ("MaxPool", 10, {"dilations": [2, 1], "pads": [1, 0, 1, 0]}),
    ("MaxPool", 12, {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    ("MaxPool", 22, {"strides": [2, 2]}),
    ("AveragePool", 7, {"auto_pad": "SAME_LOWER"}),
    ("AveragePool", 10, {"pads": [1, 0, 0, 1], "count_include_pad": 1}),
    ("AveragePool", 11, {"auto_pad": "VALID", "strides": [2, 1]}),
    ("AveragePool", 19, {"dilations": [2, 2]}),
    ("LpPool", 11, {"p": 3, "auto_pad": "SAME_UPPER"}),
    ("LpPool", 18, {"dilations": [1, 2]}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "opset", "attributes"), POOLS)
def test_pools_written_anew(op: str, opset: int, attributes: dict[str, Any]) -> None:
    proto = model(
        [helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 2], **attributes)], {"x": (1, 2, 9, 8)}, opset=opset
    )
    data = np.random.default_rng(3).standard_normal((1, 2, 9, 8)).astype(np.float32)
    assert check_node(op, proto, {"x": data}) > 1


WINDOWS = [
    ("Conv", (4, 1, 3, 2), {"group": 2, "auto_pad": "SAME_UPPER"}),
    ("Conv", (4, 2, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("Conv", (4, 2, 3, 2), {"auto_pad": "VALID", "kernel_shape": [3, 2]}),
    ("ConvTranspose", (2, 3, 3, 3), {"group": 2, "strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]}),
    ("ConvTranspose", (2, 3, 4, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("ConvTranspose", (2, 3, 4, 4), {"output_shape": [18, 16], "strides": [2, 2]}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("opset", [7, 11, 22])
@pytest.mark.parametrize(("op", "weight", "attributes"), WINDOWS)
def test_convolutions_written_anew(
    op: str, weight: tuple[int, ...], attributes: dict[str, Any], opset: int, bias: bool
) -> None:
    dice = np.random.default_rng(5)
    constants = {"w": dice.standard_normal(weight).astype(np.float32)}
    channels = weight[0] if op == "Conv" else weight[1] * int(attributes.get("group", 1))
    if bias:
        constants["b"] = dice.standard_normal(channels).astype(np.float32)
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    data = dice.standard_normal((1, 2, 9, 8)).astype(np.float32)
    assert check_node(op, model([node], {"x": (1, 2, 9, 8)}, constants, opset=opset), {"x": data}) > 5


@pytest.mark.parametrize(
    ("op", "opset", "shape", "attributes"),
    [
        ("Clip", 7, (2, 3), {"min": -0.5}),
        ("Clip", 10, (2, 3), {"min": -0.5, "max": 0.25}),
        ("Clip", 10, (2, 3), {"min": float("-inf")}),
        ("Pad", 7, (2, 3), {"pads": [1, 0, 0, 2], "value": 1.5}),
        ("Pad", 9, (2, 3), {"pads": [0, 1, 0, 1], "mode": "edge"}),
        ("Dropout", 7, (2, 3), {"ratio": 0.25}),
        ("Dropout", 10, (2, 3), {}),
        ("Softmax", 7, (2, 3), {}),
        ("LogSoftmax", 11, (2, 2, 3), {"axis": -1}),
        ("Slice", 7, (4, 5), {"starts": [1, -2], "ends": [9, 5]}),
        ("ReduceMax", 7, (2, 3), {"axes": [1], "keepdims": 0}),
        ("ReduceLogSumExp", 7, (2, 3), {}),
        ("Squeeze", 7, (1, 3, 1), {"axes": [2]}),
        ("Unsqueeze", 7, (2, 3), {"axes": [0, 3]}),
        ("ArgMax", 7, (2, 3), {"axis": 1}),
        ("Flatten", 7, (2, 3, 4), {"axis": 2}),
        ("LRN", 7, (1, 5, 2, 2), {"size": 3}),
        ("DepthToSpace", 7, (1, 8, 2, 2), {"blocksize": 2}),
    ],
)
def test_old_forms_written_anew(op: str, opset: int, shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    proto = model([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": shape}, opset=opset)
    data = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    data.reshape(-1)[:2] = [np.inf, -0.0]
    assert check_node(op, proto, {"x": data}) > 3


# Splicing.


def changed(lowered: Lowered, op: str, to: str) -> TermGraph:
    """The graph with every operator of a name replaced by another of the same arity."""
    nodes = tuple(Node(to, node.args, Attrs()) if node.op == op else node for node in lowered.graph.nodes)
    return dataclasses.replace(lowered.graph, nodes=nodes)


def text(emitted: Model) -> list[str]:
    return [f"{','.join(node.output)} = {node.op_type}({','.join(node.input)})" for node in emitted.proto.graph.node]


def test_a_changed_node_leaves_the_others_as_they_are() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first", doc_string="kept"),
        helper.make_node("Tanh", ["a"], ["b"], "second"),
        helper.make_node("Abs", ["x"], ["c"], "third"),
        helper.make_node("Sum", ["b", "c"], ["y"], "fourth"),
    ]
    lowered = lower(load(model(nodes, {"x": (2,)})))
    emitted = emit(lowered, changed(lowered, "Tanh", "Sigmoid"))
    assert text(emitted) == [
        "a = Relu(x)", "Sigmoid_output = Sigmoid(a)", "c = Abs(x)", "y = Sum(Sigmoid_output,c)",
    ]  # fmt: skip
    assert emitted.proto.graph.node[0].SerializeToString() == nodes[0].SerializeToString()
    assert emitted.proto.graph.node[3].name == "fourth"
    told = emit(lowered, changed(lowered, "Tanh", "Sigmoid"), same={2: 2})
    assert text(told)[1] == "b = Sigmoid(a)"


def test_output_names_survive_whatever_they_become() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["z"]),
             helper.make_node("Identity", ["z"], ["again"]), helper.make_node("Neg", ["c"], ["n"])]  # fmt: skip
    proto = model(nodes, {"x": (2,)}, {"c": np.ones(2, np.float32)}, outputs=["y", "z", "again", "n"])
    lowered = lower(load(proto))
    graph = lowered.graph
    y, z, _, _ = graph.roots
    source = graph.nodes[y].args[0]
    constant = next(index for index, node in enumerate(graph.nodes) if node.op == CONST)
    emitted = emit(lowered, dataclasses.replace(graph, roots=(source, z, z, constant)))
    onnx.checker.check_model(emitted.proto, full_check=True)
    assert text(emitted) == ["y = Identity(x)", "n = Constant()", "z = Relu(x)", "again = Identity(z)"]
    assert interface(emitted.proto) == interface(proto)
    outputs = session(serialized(emitted)).run(None, {"x": np.array([-1, 2], np.float32)})
    assert [list(value) for value in outputs] == [[-1, 2], [0, 2], [0, 2], [1, 1]]


def test_initializers_that_are_not_used_any_more_go_and_equal_ones_are_one() -> None:
    ones = np.ones(2, np.float32)
    nodes = [helper.make_node("Add", ["x", "a"], ["s"]), helper.make_node("Mul", ["s", "b"], ["t"]),
             helper.make_node("Tanh", ["t"], ["u"]), helper.make_node("Sub", ["u", "c"], ["y"])]  # fmt: skip
    proto = model(nodes, {"x": (2,)}, {"a": ones, "b": ones, "c": ones * 2, "unused": ones})
    lowered = lower(load(proto))
    emitted = emit(lowered, changed(lowered, "Tanh", "Sigmoid"))
    assert [tensor.name for tensor in emitted.proto.graph.initializer] == ["a", "c"]
    assert text(emitted)[:2] == ["s = Add(x,a)", "t = Mul(s,a)"]


def test_parameters_of_new_nodes_are_initializers_made_once() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    lowered = lower(load(model([node], {"x": (2, 3)})))
    first = Node("Transpose", (0,), Attrs.of(perm=(1, 0)))
    second = Node("Reshape", (1,), Attrs.of(shape=(6,), allowzero=0))
    third = Node("Reshape", (2,), Attrs.of(shape=(2, 3), allowzero=0))
    fourth = Node("Expand", (3,), Attrs.of(shape=(2, 3)))
    types = lowered.graph.types
    graph = TermGraph(
        (lowered.graph.nodes[0], first, second, third, fourth), (types[0], None, None, None, types[1]), (4,)
    )
    emitted = emit(lowered, graph)
    onnx.checker.check_model(emitted.proto, full_check=True)
    stored = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in emitted.proto.graph.initializer}
    assert sorted(stored.values()) == [[2, 3], [6]]
    assert emitted.made == set(stored)


def test_early_versions_have_what_is_new_in_nodes_since_an_initializer_is_an_input() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, opset=9, ir_version=3)
    lowered = lower(load(proto))
    graph = lowered.graph
    nodes = (*graph.nodes[:1], Node("Reshape", (0,), Attrs.of(shape=(3, 2), allowzero=0)))
    emitted = emit(lowered, TermGraph(nodes, graph.types, (1,)))
    onnx.checker.check_model(emitted.proto)
    assert [item.name for item in emitted.proto.graph.input] == ["x"]
    assert [node.op_type for node in emitted.proto.graph.node] == ["Constant", "Reshape"]


def test_inputs_taken_for_their_initializers_are_no_inputs_any_more() -> None:
    constants = {"w": np.ones(2, np.float32), "v": np.zeros(2, np.float32)}
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    proto = model(nodes, {"x": (2,), "w": (2,), "v": (2,)}, constants)
    lowered = lower(load(proto), initializers_are_constant=True)
    emitted = emit(lowered, changed(lowered, "Tanh", "Abs")).proto
    assert [item.name for item in emitted.graph.input] == ["x"]
    assert [item.name for item in emitted.graph.initializer] == ["w"]
    lowered = lower(load(proto))
    emitted = emit(lowered, changed(lowered, "Tanh", "Abs")).proto
    assert [item.name for item in emitted.graph.input] == ["x", "w", "v"]
    assert [item.name for item in emitted.graph.initializer] == ["w", "v"]


def conditional(body: Sequence[onnx.NodeProto], captured: str) -> onnx.NodeProto:
    """An If whose branches end in ``out``."""
    other = helper.make_node("Neg", [captured], ["out"])
    branches = [
        helper.make_graph(list(part), "branch", [], [onnx.ValueInfoProto(name="out")]) for part in (body, [other])
    ]
    return helper.make_node("If", ["flag"], ["y"], then_branch=branches[0], else_branch=branches[1])


@pytest.mark.parametrize("shadow", [False, True])
def test_captured_values_are_renamed_in_the_subgraph(shadow: bool) -> None:
    """The captured value becomes the graph input: it cannot have the captured name, and a subgraph may have its."""
    inner = "x" if shadow else "inner"
    body = [helper.make_node("Exp", ["a"], [inner]), helper.make_node("Add", [inner, "a"], ["out"])]
    nodes = [helper.make_node("Relu", ["x"], ["a"]), conditional(body, "a")]
    proto = model(nodes, {"x": (2,)})
    proto.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, ()))
    lowered = lower(load(proto))
    graph = lowered.graph
    relu = next(index for index, node in enumerate(graph.nodes) if node.op == "Relu")
    source = graph.nodes[relu].args[0]
    nodes_without = tuple(
        Node(node.op, tuple(source if arg == relu else arg for arg in node.args), node.attrs) for node in graph.nodes
    )
    emitted = emit(lowered, dataclasses.replace(graph, nodes=nodes_without))
    assert is_valid(emitted.proto) == is_valid(proto)
    assert [node.op_type for node in emitted.proto.graph.node] == (["Identity", "If"] if shadow else ["If"])
    if shadow:  # onnxruntime takes no such model
        assert "a" not in {name for part in emitted.proto.graph.node[1].attribute for name in part.g.node[0].input}
        return
    feed = {"x": np.array([1, 2], np.float32), "flag": np.array(True)}
    assert same_bits(session(serialized(emitted)).run(None, feed), session(proto.SerializeToString()).run(None, feed))


def test_captured_values_keep_their_name_where_they_can() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), conditional([helper.make_node("Exp", ["a"], ["out"])], "a")]
    proto = model(nodes, {"x": (2,)})
    proto.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, ()))
    lowered = lower(load(proto))
    emitted = emit(lowered, changed(lowered, "Relu", "Abs"))
    assert text(emitted)[0] == "a = Abs(x)"
    assert emitted.proto.graph.node[1].SerializeToString() == nodes[1].SerializeToString()


def test_what_is_not_a_node_is_carried_over() -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    proto = model(nodes, {"x": ("batch", 2)}, {"w": np.ones(2, np.float32), "scale": np.ones((), np.float32)})
    proto.producer_name, proto.domain, proto.model_version, proto.doc_string = "p", "d", 3, "doc"
    proto.metadata_props.add(key="k", value="v")
    proto.graph.metadata_props.add(key="g", value="h")
    proto.graph.doc_string = "graph doc"
    annotation = proto.graph.quantization_annotation.add(tensor_name="s")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    proto.graph.quantization_annotation.add(tensor_name="gone")
    proto.graph.value_info.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, ("batch", 2)))
    proto.training_info.add().update_binding.add(key="w", value="w2")
    unknown = b"\xc2>\x03abc"  # field 1000, length 3
    proto.MergeFromString(unknown)
    lowered = lower(load(proto))
    emitted = emit(lowered, changed(lowered, "Tanh", "Abs")).proto
    for name in ("producer_name", "domain", "model_version", "doc_string", "metadata_props", "training_info"):
        assert getattr(emitted, name) == getattr(proto, name)
    assert emitted.graph.doc_string == "graph doc"
    assert emitted.graph.metadata_props == proto.graph.metadata_props
    assert [item.tensor_name for item in emitted.graph.quantization_annotation] == ["s"]
    assert [item.name for item in emitted.graph.initializer] == ["w", "scale"]
    assert [item.name for item in emitted.graph.value_info] == ["s"]
    assert unknown in emitted.SerializeToString()


@pytest.mark.parametrize("name", ["ty01_string_constant", "ty07_int4_dq", "ty02_string_gather_init"])
def test_constants_of_any_type_pass_untouched(name: str) -> None:
    lowered = lower(load(CASES / name / "model.onnx"))
    anew = emit(lowered, lowered.graph, reuse_nodes=False).proto
    before = lowered.model.proto.graph
    assert list(anew.graph.initializer) == list(before.initializer)
    assert [node for node in anew.graph.node if node.op_type == "Constant"] == [
        node for node in before.node if node.op_type == "Constant"
    ]


def test_sparse_initializers_pass_untouched() -> None:
    proto = model([helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])], {"x": (4,)})
    sparse = proto.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([2.5], np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([1], np.int64)))
    lowered = lower(load(proto))
    (constant,) = lowered.graph.constants.values()
    assert constant.array().tolist() == [0, 2.5, 0, 0]
    emitted = emit(lowered, changed(lowered, "Tanh", "Abs")).proto
    assert list(emitted.graph.sparse_initializer) == list(proto.graph.sparse_initializer)
    assert not emitted.graph.initializer


def test_emission_is_repeatable() -> None:
    for name in NAMES[::7]:
        lowered = lower(load(CASES / name / "model.onnx"))
        first, second = (serialized(emit(lowered, lowered.graph, reuse_nodes=False)) for _ in range(2))
        assert first == second


def test_nodes_that_stay_keep_name_doc_and_metadata() -> None:
    """Opaque ones that say the same, one before an output's Identity, and that Identity where an output needs it."""
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 17, "other": 1]>
    g (float[n, 4] x) => (float[n, 4] y, float[k] first, float[l] second, float[m] third, float[n, 4] z, float[n, 4] v)
    <float two = {2}, float[4] w = {1, 2, 3, 4}, float[2] a = {1, 2}, float[2] b = {3, 4}, float[2] c = {5, 6}> {
        s = Mul(x, two)
        t = Mul(s, w)
        r = Relu(t)
        first = other.Alike(a, r)
        second = other.Alike(b, r)
        third = other.Alike(c, r)
        y = Identity(r)
        z = Neg(x)
        v = Identity(z)
    }""")
    for node in proto.graph.node:
        node.name = node.doc_string = f"the {node.op_type} of {node.output[0]}"
        node.metadata_props.add(key="of", value=node.output[0])
    result = superopt.optimize(proto, select="modelled").model
    known = {node.name: node for node in proto.graph.node}
    assert len(result.graph.node) < len(proto.graph.node)
    for node in result.graph.node:
        assert node.name in known
        assert node.doc_string == node.name
        assert list(node.metadata_props) == list(known[node.name].metadata_props)
    assert {"the Relu of r", "the Alike of second", "the Alike of third", "the Identity of v"} <= {
        node.name for node in result.graph.node
    }


def test_what_is_not_understood_keeps_constants_that_are_equal_apart() -> None:
    """onnxruntime writes the running statistics into what a BatchNormalization in training reads."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 15]>
    g (float[2, 2, 3, 3] x) => (float[2, 2, 3, 3] y)
    <float[2] scale = {1, 1}, float[2] shift = {0, 1}, float[2] mean = {1, 2}, float[2] variance = {1, 1}> {
        t = Identity(x)
        normal, m, v = BatchNormalization <training_mode = 1> (t, scale, shift, mean, variance)
        y = Relu(normal)
    }""")
    result = superopt.optimize(proto, select="modelled").model
    normalization = next(node for node in result.graph.node if node.op_type == "BatchNormalization")
    assert list(normalization.input) == ["x", "scale", "shift", "mean", "variance"]
    assert [tensor.name for tensor in result.graph.initializer] == ["scale", "shift", "mean", "variance"]


def test_a_bias_of_zeros_stays_where_the_original_has_one() -> None:
    """What underflows to -0.0 is 0.0 with it."""
    text = "g (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y) <float[1] b = {0}> { y = Conv(x, w%s) }"
    weights = numpy_helper.from_array(np.full((1, 1, 1, 1), -1e-40, np.float32), "w")
    inputs = {"x": np.full((1, 1, 2, 2), 1e-20, np.float32)}
    for bias in (", b", ""):
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text % bias}')
        proto.graph.initializer.append(weights)
        lowered = lower(load(proto))
        anew = emit(lowered, lowered.graph, reuse_nodes=False).proto
        assert list(anew.graph.node[0].input) == list(proto.graph.node[0].input)
        (expected,) = session(proto.SerializeToString()).run(None, inputs)
        (found,) = session(anew.SerializeToString()).run(None, inputs)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "body",
    [
        "like = Relu(x) z = CastLike(c, like) r = Mul(z, z)",
        "like = Identity(x) z = CastLike(c, like) r = Mul(z, like)",
        "none = Slice(x, zero, zero, one) z = Concat <axis = 1> (none, x, x) r = Relu(z)",
    ],
)
def test_what_a_node_was_given_in_vain_need_not_be_there(body: str) -> None:
    proto = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 19]>
    g (float[2, 2] x, double[2, 2] c) => (float[2, m] r) <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{ {body} }}""")
    result = superopt.optimize(proto, select="modelled")
    assert result.report["verified"]
    assert len(result.model.graph.node) == 2
