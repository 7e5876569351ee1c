"""Zeros keep their sign in exact mode where the runtime keeps it, and lose it where the runtime loses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import superopt
from superopt.emitting.emit import emit
from superopt.lowering.lower import lower
from superopt.models.model import load, serialized
from tests.rounds import same_bits, session
from tests.test_lower import model

ZEROS = np.array([-0.0, 0.0, -0.0, 1.0], np.float32)
CHOICE = np.array([True, True, False, True])


def both(proto: onnx.ModelProto, feed: dict[str, Any]) -> tuple[Any, Any]:
    new = superopt.optimize(proto, rules="identity", numeric="exact", select="modelled").model
    old, found = (session(one.SerializeToString()).run(None, feed)[0] for one in (proto, new))
    return old, found


@pytest.mark.parametrize("constant", [True, False], ids=["constant condition", "condition"])
def test_a_where_of_one_value_twice(constant: bool) -> None:
    """onnxruntime makes 0.0 of a -0.0 that the condition chooses."""
    proto = model([helper.make_node("Where", ["c", "x", "x"], ["y"])], {"x": (4,)}, {"c": CHOICE})
    if not constant:
        del proto.graph.initializer[:]
        proto.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [4]))
    old, found = both(proto, {"x": ZEROS} if constant else {"x": ZEROS, "c": CHOICE})
    assert not np.signbit(old[0])
    assert np.signbit(old[2])
    assert same_bits(old, found)


def test_a_where_of_constants_is_what_the_runtime_makes_of_it() -> None:
    nodes = [helper.make_node("Where", ["c", "z", "z"], ["w"]), helper.make_node("Mul", ["x", "w"], ["y"])]
    proto = model(nodes, {"x": (4,)}, {"c": CHOICE, "z": ZEROS})
    assert same_bits(*both(proto, {"x": np.ones(4, np.float32)}))


def test_a_where_of_one_whole_number_twice_goes() -> None:
    proto = model(
        [helper.make_node("Where", ["c", "x", "x"], ["y"])], {"x": (4,)}, {"c": CHOICE}, dtype=onnx.TensorProto.INT64
    )
    new = superopt.optimize(proto, rules="identity", numeric="exact", select="modelled").model
    assert [node.op_type for node in new.graph.node] == ["Identity"]


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1.0])
@pytest.mark.parametrize("biased", [True, False], ids=["with zeros", "without bias"])
def test_a_gemm_of_zeros(alpha: float, biased: bool) -> None:
    """A scale that is not positive makes zeros negative, and a bias of zeros makes them positive again."""
    constants = {"w": np.ones((4, 2), np.float32)} | ({"c": np.zeros(2, np.float32)} if biased else {})
    node = helper.make_node("Gemm", ["x", "w", "c"] if biased else ["x", "w"], ["y"], alpha=alpha)
    proto = model([helper.make_node("Identity", ["x0"], ["x"]), node], {"x0": (1, 4)}, constants)
    old, found = both(proto, {"x0": np.zeros((1, 4), np.float32)})
    assert same_bits(old, found)
    lowered = lower(load(proto))
    anew = session(serialized(emit(lowered, lowered.graph, reuse_nodes=False)))
    assert same_bits(old, anew.run(None, {"x0": np.zeros((1, 4), np.float32)})[0])
