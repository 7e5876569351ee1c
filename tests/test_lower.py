"""Lowering: what each operator's versions mean in the normal form, and what stays opaque and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from superopt.errors import ModelError
from superopt.lowering.lower import Lowered, lower
from superopt.models.model import load
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, Node
from tests.rounds import CASES, LIGHT

Shape = Sequence[int | str | None]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    dtype: int = TensorProto.FLOAT,
    **fields: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    proto = helper.make_model(graph, **{"ir_version": 8, "opset_imports": [helper.make_opsetid("", opset)], **fields})
    unknown = helper.make_tensor_type_proto(dtype, None)
    for item, known in zip(proto.graph.output, list(_inferred(proto).graph.output), strict=True):
        item.type.CopyFrom(known.type if known.type.tensor_type.HasField("shape") else unknown)
    return proto


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(proto)
    except Exception:  # models that are broken on purpose
        return proto


def root(lowered: Lowered) -> Node:
    return lowered.graph.nodes[lowered.graph.roots[0]]


def attrs(lowered: Lowered) -> dict[str, Any]:
    return dict(root(lowered).attrs.items)


def reason(lowered: Lowered) -> str:
    (only,) = lowered.graph.opaque.values()
    return only.reason


def one(
    op: str, shape: Shape, opset: int = 17, constants: Mapping[str, Any] | None = None, **attributes: Any
) -> Lowered:
    """The normal form of one node: its first input is the model's, constants are the others, in order."""
    node = helper.make_node(op, ["x", *(constants or {})], ["y"], **attributes)
    return lower(load(model([node], {"x": shape}, constants, opset=opset)))


@pytest.mark.parametrize(
    ("op", "shape", "opset", "constants", "attributes", "expected"),
    [
        ("Softmax", (2, 3), 17, {}, {}, {"axis": 1}),
        ("Softmax", (2, 3), 11, {}, {}, {"axis": 1}),
        ("Softmax", (2, 3, 4), 13, {}, {"axis": -2}, {"axis": 1}),
        ("Transpose", (2, 3, 4), 17, {}, {}, {"perm": (2, 1, 0)}),
        ("Squeeze", (1, 3, 1), 11, {}, {"axes": [-1, 0]}, {"axes": (0, 2)}),
        ("Squeeze", (1, 3, 1), 13, {"a": np.array([2, 0])}, {}, {"axes": (0, 2)}),
        ("Squeeze", (1, 3, 1), 13, {}, {}, {"axes": (0, 2)}),
        ("Unsqueeze", (3,), 11, {}, {"axes": [-1, 0]}, {"axes": (0, 2)}),
        ("Unsqueeze", (3,), 13, {"a": np.array([2, 0])}, {}, {"axes": (0, 2)}),
        ("ReduceMean", (2, 3, 4), 11, {}, {"axes": [-1]}, {"axes": (2,), "keepdims": 1}),
        ("ReduceMean", (2, 3, 4), 18, {"a": np.array([-1, 0])}, {"keepdims": 0}, {"axes": (0, 2), "keepdims": 0}),
        ("ReduceMean", (2, 3, 4), 18, {}, {}, {"axes": (0, 1, 2), "keepdims": 1}),
        ("ReduceSum", (2, 3), 13, {"a": np.array([1])}, {}, {"axes": (1,), "keepdims": 1}),
        ("Reshape", (2, 3, 4), 14, {"s": np.array([0, -1])}, {}, {"shape": (2, 12), "allowzero": 0}),
        ("Reshape", ("n", 3, 4), 13, {"s": np.array([0, -1])}, {}, {"shape": (0, 12), "allowzero": 0}),
        ("Reshape", ("n", 3, 4), 14, {"s": np.array([-1, 6])}, {"allowzero": 1}, {"shape": (-1, 6), "allowzero": 0}),
        ("Reshape", (0, 3), 14, {"s": np.array([3, 0])}, {"allowzero": 1}, {"shape": (3, 0), "allowzero": 1}),
        ("Reshape", (0, 6), 14, {"s": np.array([3, 2, -1])}, {}, {"shape": (3, 2, -1), "allowzero": 0}),
        ("Flatten", (2, 3, 4), 13, {}, {"axis": -1}, {"axis": 2}),
        ("Concat", (2, 3), 13, {"b": np.zeros((2, 1), np.float32)}, {"axis": -1}, {"axis": 1}),
        ("Gather", (2, 3), 13, {"i": np.array([0])}, {"axis": -1}, {"axis": 1}),
        ("Slice", (2, 8), 9, {}, {"axes": [1], "starts": [-3], "ends": [99]},
         {"axes": (1,), "starts": (5,), "ends": (8,), "steps": (1,)}),
        ("Slice", (2, 8), 13,
         {"s": np.array([9, 0]), "e": np.array([-99, 1]), "a": np.array([-1, 0]), "t": np.array([-2, 1])},
         {}, {"axes": (0, 1), "starts": (0, 7), "ends": (1, -9), "steps": (1, -2)}),
        ("Slice", ("n", 8), 13, {"s": np.array([-2, 3]), "e": np.array([99, 3])}, {},
         {"axes": (0, 1), "starts": (-2, 0), "ends": (99, 0), "steps": (1, 1)}),
        ("Pad", (2, 3), 9, {}, {"pads": [0, 1, 0, 2]}, {"pads": (0, 1, 0, 2), "mode": "constant"}),
        ("Pad", (2, 3), 18, {"p": np.array([1, 2]), "v": np.float32(0), "a": np.array([-1])}, {},
         {"pads": (0, 1, 0, 2), "mode": "constant"}),
        ("Expand", (3, 1), 13, {"s": np.array([2, 3, 4])}, {}, {"shape": (2, 3, 4)}),
        ("Tile", (3, 1), 13, {"s": np.array([2, 3])}, {}, {"repeats": (2, 3)}),
        ("Trilu", (3, 3), 14, {}, {}, {"k": 0, "upper": 1}),
        ("Trilu", (3, 3), 14, {"k": np.array(-1)}, {"upper": 0}, {"k": -1, "upper": 0}),
        ("CumSum", (2, 3), 14, {"a": np.array(-1)}, {}, {"axis": 1, "exclusive": 0, "reverse": 0}),
        ("Resize", (1, 2, 4, 4), 11, {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)},
         {"mode": "linear"}, {"scales": (1.0, 1.0, 2.0, 2.0), "sizes": (), "mode": "linear", "cubic_coeff_a": -0.75,
                              "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}),
        ("STFT", (2, 30), 17, {"s": np.array(4), "w": np.ones(8, np.float32)}, {"onesided": 1},
         {"frame_step": 4, "frame_length": 8, "onesided": 1}),
        ("Shape", (2, 3, 4), 15, {}, {"start": -2, "end": 99}, {"start": 1}),
        ("Shape", (2, 3, 4), 15, {}, {"end": -1}, {"start": 0, "end": 2}),
        ("Shape", (2, 3, 4), 9, {}, {}, {"start": 0}),
        ("Dropout", (2, 3), 7, {}, {}, {"ratio": 0.5}),
        ("Dropout", (2, 3), 13, {"r": np.float32(0.25)}, {}, {"ratio": 0.25}),
        ("Cast", (2, 3), 13, {}, {"to": TensorProto.FLOAT16}, {"to": "float16", "saturate": 1, "round_mode": "up"}),
        ("MaxPool", (1, 2, 7, 7), 8, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
         {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1), "ceil_mode": 0}),
        ("MaxPool", (1, 2, 8, 8), 12, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
         {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 0, 0), "dilations": (1, 1), "ceil_mode": 0}),
        ("AveragePool", (1, 2, 7, 7), 7, {}, {"kernel_shape": [3, 3]},
         {"kernel_shape": (3, 3), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil_mode": 0,
          "count_include_pad": 0}),
    ],
)  # fmt: skip
def test_normal_form(
    op: str, shape: Shape, opset: int, constants: dict[str, Any], attributes: dict[str, Any], expected: dict[str, Any]
) -> None:
    lowered = one(op, shape, opset, constants, **attributes)
    assert root(lowered).op == op, reason(lowered)
    assert attrs(lowered) == expected


@pytest.mark.parametrize(
    ("op", "shape", "opset", "constants", "attributes", "why"),
    [
        ("Softmax", (2, 3, 4), 11, {}, {}, "before opset 13"),
        ("Softmax", None, 11, {}, {}, "rank"),
        ("Relu", (2, 3), 6, {}, {}, "opset 6"),
        ("Squeeze", ("n", 3), 13, {}, {}, "which sizes are 1"),
        ("Slice", (4,), 13, {"s": np.array([0, 0]), "e": np.array([1, 1]), "a": np.array([0, 0])}, {}, "an axis twice"),
        ("ReduceSum", (2, 3), 13, {}, {"noop_with_empty_axes": 1}, "no axes"),
        ("Dropout", (2, 3), 13, {"r": np.float32(0.5), "t": np.array(True)}, {}, "training"),
        ("Upsample", (1, 2, 3, 3), 9, {"s": np.array([1, 1, 2, 2], np.float32)}, {}, "no rule knows"),
        ("BatchNormalization", (1, 2, 3), 8, {n: np.ones(2, np.float32) for n in "abcd"}, {"spatial": 0}, "place"),
        ("BatchNormalization", (1, 2, 3), 15, {n: np.ones(2, np.float32) for n in "abcd"}, {"training_mode": 1}, "tr"),
        ("Conv", (1, 1, 5), 17, {"w": np.ones((1, 1, 1), np.float32)}, {"auto_pad": "SAME_UPPER", "strides": [3]},
         "leave out"),
        ("Conv", (1, 1, None), 17, {"w": np.ones((1, 1, 3), np.float32)}, {"auto_pad": "SAME_UPPER"}, "not known"),
        ("Relu", (2, 3), 17, {}, {"alpha": 1.0}, "alpha"),
        ("MyOperator", (2, 3), 17, {}, {}, "no rule knows"),
    ],
)  # fmt: skip
def test_opaque(
    op: str, shape: Shape, opset: int, constants: dict[str, Any], attributes: dict[str, Any], why: str
) -> None:
    lowered = one(op, shape, opset, constants, **attributes)
    assert why in reason(lowered)
    assert root(lowered).op == PROJECT


def test_bounds_of_an_old_clip_are_constants() -> None:
    lowered = one("Clip", (2, 3), 10, min=0.0)
    low, high = (lowered.graph.constants[str(lowered.graph.nodes[arg].attrs["key"])] for arg in root(lowered).args[1:])
    assert (float(low.array()), float(high.array())) == (0.0, float(np.finfo(np.float32).max))


def test_pad_value_of_an_old_opset_is_a_constant() -> None:
    assert len(one("Pad", (2,), 9, pads=[1, 1]).graph.constants) == 0
    assert len(one("Pad", (2,), 9, pads=[1, 1], value=2.5).graph.constants) == 1
    assert len(one("Pad", (2,), 9, pads=[1, 1], value=-0.0).graph.constants) == 1


@pytest.mark.parametrize(
    ("op", "weight", "bias"),
    [("Conv", (4, 1, 3), 4), ("ConvTranspose", (2, 3, 3), 6), ("Gemm", (5, 6), 6)],
)
def test_an_absent_bias_is_zeros(op: str, weight: tuple[int, ...], bias: int) -> None:
    shape: Shape = (1, 5) if op == "Gemm" else (1, 2, 8)
    extra = {} if op == "Gemm" else {"group": 2}
    lowered = one(op, shape, 13, {"w": np.ones(weight, np.float32)}, **extra)
    constant = lowered.graph.constants[str(lowered.graph.nodes[root(lowered).args[2]].attrs["key"])]
    assert constant.type.shape == (bias,)
    assert not constant.array().any()


def test_convolution_parameters_are_complete() -> None:
    lowered = one(
        "Conv", (1, 2, 8, 8), 7, {"w": np.ones((3, 2, 3, 3), np.float32)}, auto_pad="VALID", kernel_shape=[3, 3]
    )
    assert attrs(lowered) == {"dilations": (1, 1), "group": 1, "pads": (0, 0, 0, 0), "strides": (1, 1)}


@pytest.mark.parametrize(
    ("mode", "opset", "sizes"), [(None, 11, (2, 2)), (None, 18, (3, 2)), ("num_outputs", 18, (3, 2))]
)
def test_split_sizes_are_explicit(mode: str | None, opset: int, sizes: tuple[int, ...]) -> None:
    extra = {"num_outputs": 2} if mode else {}
    node = helper.make_node("Split", ["x"], ["y", "z"], **extra)
    lowered = lower(load(model([node], {"x": (sum(sizes),)}, outputs=["y", "z"], opset=opset)))
    split = lowered.graph.nodes[root(lowered).args[0]]
    assert (split.op, split.attrs["split"]) == ("Split", sizes)


def test_constants_of_equal_content_are_one_term() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(2, np.float32))),
        helper.make_node("Constant", [], ["d"], value_floats=[1.0, 1.0]),
        helper.make_node("Sum", ["x", "a", "b", "c", "d", "z", "n"], ["y"]),
    ]
    constants = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32), "z": np.zeros(2, np.float32)}
    lowered = lower(load(model(nodes, {"x": (2,)}, {**constants, "n": np.full(2, -0.0, np.float32)})))
    args = root(lowered).args
    assert args[1] == args[2] == args[3] == args[4]
    assert len({args[1], args[5], args[6]}) == 3


def test_equal_nodes_are_one_term_but_random_ones_are_not() -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], [name]) for name in ("a", "b")]
    nodes += [helper.make_node("Relu", [name], [f"r{name}"]) for name in ("x", "x2", "a", "b") if name != "x2"]
    nodes += [helper.make_node("Relu", ["x"], ["again"]), helper.make_node("Sum", ["rx", "again", "ra", "rb"], ["y"])]
    lowered = lower(load(model(nodes, {"x": (2,)})))
    first, second, third, fourth = root(lowered).args
    assert first == second
    assert third != fourth
    assert [entry.deterministic for entry in lowered.graph.opaque.values()] == [False, False]


def test_what_a_subgraph_captures_is_an_argument() -> None:
    lowered = lower(load(CASES / "cf07_value_only_used_in_subgraph" / "model.onnx"))
    opaque = next(node for node in lowered.graph.nodes if node.op == OPAQUE)
    proto = lowered.model.proto.graph.node
    inputs = next(len(node.input) for node in proto if node.op_type == "If")
    assert len(opaque.args) > inputs


def test_initializers_that_are_inputs_are_not_constant_unless_asked() -> None:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,), "w": (2,)}, {"w": np.ones(2, np.float32)})
    assert [node.op for node in lower(load(proto)).graph.nodes] == [INPUT, INPUT, "Add"]
    flagged = lower(load(proto), initializers_are_constant=True)
    assert sorted(node.op for node in flagged.graph.nodes) == ["Add", CONST, INPUT]
    assert flagged.constant_inputs == {"w"}


def test_dead_nodes_are_not_terms() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Tanh", ["x"], ["unused"])]
    lowered = lower(load(model(nodes, {"x": (2,)})))
    assert [node.op for node in lowered.graph.nodes] == [INPUT, "Relu"]
    assert lowered.node_terms == (1, None)


def test_declared_shapes_that_inference_contradicts_are_not_believed() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["m"]), helper.make_node("MyOperator", ["m"], ["u"]),
             helper.make_node("Relu", ["u"], ["y"])]  # fmt: skip
    proto = model(nodes, {"x": ("n", 3)})
    proto.graph.value_info.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, (5, 3)))
    trusted = lower(load(proto)).graph
    assert str(trusted.types[trusted.roots[0]]) == "float32[5,3]"
    proto.graph.value_info.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, (5, 3)))
    doubted = lower(load(proto)).graph
    assert doubted.types[doubted.roots[0]] is None


def test_inference_that_fails_as_a_whole_is_done_node_by_node() -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["bad"], axis=7),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    lowered = lower(load(model(nodes, {"x": (2, 3)}, outputs=["y", "bad"])))
    assert root(lowered).op == "Relu"


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_classic_networks_are_understood_with_constant_initializers(path: Any) -> None:
    opaque = lower(load(path), initializers_are_constant=True).graph.opaque.values()
    assert {entry.op_type for entry in opaque} <= {"ConstantOfShape", "Softmax"}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("Relu", ["nowhere"], ["y"])], "'nowhere', which nothing makes"),
        ([("Relu", ["x"], ["y"]), ("Relu", ["x"], ["y"])], "'y' is made twice"),
        ([("Relu", ["x"], ["x"])], "'x' is made twice"),
        ([("Relu", ["b"], ["a"]), ("Relu", ["a"], ["b"]), ("Relu", ["x"], ["y"])], "cycle"),
        ([("Relu", ["x"], ["z"])], "nothing makes output 'y'"),
    ],
)
def test_broken_graphs_are_one_line(nodes: list[tuple[str, list[str], list[str]]], expected: str) -> None:
    proto = model([helper.make_node(*node) for node in nodes], {"x": (2,)})
    with pytest.raises(ModelError, match=expected) as caught:
        lower(load(proto))
    assert "\n" not in str(caught.value)


def test_a_long_chain_is_no_recursion() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(5000)]
    lowered = lower(load(model(nodes, {"x": (2,)}, outputs=["v5000"])))
    assert len(lowered.graph.nodes) == 5001
    assert math.isfinite(len(lowered.graph.text()))


def test_opaque_nodes_that_differ_in_inputs_or_outputs_only_are_two() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["a"]),
        helper.make_node("Unsqueeze", ["x", "n"], ["y"]),
        helper.make_node("TopK", ["x", "n"], ["v", ""]),
        helper.make_node("TopK", ["x", "n"], ["w", "i"]),
    ]
    proto = model(nodes, {"x": (2,), "n": (1,)}, outputs=["a", "y", "v", "w"])
    assert len(lower(load(proto)).graph.opaque) == 4


def test_a_split_that_ends_onnx_inference_is_left_alone() -> None:
    node = helper.make_node("Split", ["x"], ["y", "z", "u"], num_outputs=2)
    value = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (6,))], [value])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert "num_outputs" in reason(lower(load(proto)))


def test_names_that_are_not_text_are_refused() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (2,)})
    data = proto.SerializeToString().replace(b"Relu", b"Re\xb9u")
    with pytest.raises(ModelError, match="UTF-8"):
        load(onnx.ModelProto.FromString(data))


def test_a_bound_beyond_float16_is_none() -> None:
    """Clip before opset 11 has float32's largest number for a bound that is not given."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 9]>
    g (float16[2] x) => (float16[2] y) { y = Clip<min = 0.0>(x) }""")
    graph = lower(load(proto)).graph
    (clip,) = [node for node in graph.nodes if node.op == "Clip"]
    assert clip.args[2] == ABSENT
    assert clip.args[1] != ABSENT


@pytest.mark.parametrize("named", [True, False])
def test_a_cast_like_what_is_known_is_a_cast(named: bool) -> None:
    like = helper.make_node("CastLike", ["c", "x"], ["y"], domain="" if named else "other.domain")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("other.domain", 1)]
    lowered = lower(load(model([like], {"x": (2,)}, {"c": np.float64(3)}, opset_imports=imports)))
    node = root(lowered)
    if named:
        assert node.op == "Cast"
        assert attrs(lowered)["to"] == "float32"
        assert lowered.graph.nodes[node.args[0]].op == CONST
    else:
        assert node.op == PROJECT


def test_what_is_empty_is_no_part_of_a_concat() -> None:
    empty = np.zeros((2, 0), np.float32)
    lowered = lower(
        load(model([helper.make_node("Concat", ["e", "x", "e"], ["y"], axis=-1)], {"x": (2, 3)}, {"e": empty}))
    )
    assert root(lowered).op == "Concat"
    assert [lowered.graph.nodes[arg].op for arg in root(lowered).args] == [INPUT]
