"""Einsum becomes products of matrices where it is one, with symbolic sizes too, and is left alone where it is not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt


def model(
    equations: list[tuple[str, list[str]]], inputs: dict[str, list[int | str]], out: list[int | str]
) -> onnx.ModelProto:
    """Einsums in a row; value names that are no inputs and no results are constants of shape 6, 2, 3."""
    known, nodes, weights = set(inputs), [], {}
    for place, (equation, names) in enumerate(equations):
        for name in names:
            if name not in known:
                array = np.random.default_rng(len(weights)).standard_normal((6, 2, 3)).astype(np.float32)
                weights[name] = numpy_helper.from_array(array, name)
        nodes.append(helper.make_node("Einsum", names, [f"e{place}"], equation=equation))
        known.add(f"e{place}")
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(f"e{len(nodes) - 1}", TensorProto.FLOAT, out)],
        list(weights.values()),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operators_of(proto: onnx.ModelProto) -> Counter[str]:
    """How often each operator is in what is chosen, however large shapes are beside such small weights."""
    result = superopt.optimize(proto, select="modelled", max_growth=None)
    assert result.report["verified"]
    return Counter(node.op_type for node in result.model.graph.node)


@pytest.mark.parametrize("batch", [2, "batch"])
def test_attention_in_einsums_is_products_of_matrices(batch: int | str) -> None:
    attention = [
        ("bsd,dhk->bshk", ["x", "wq"]),
        ("b s d, d h k -> b s h k", ["x", "wk"]),
        ("bqhd,bkhd->bhqk", ["e0", "e1"]),
        ("bhqk,bkhd->bqhd", ["e2", "e1"]),
    ]
    found = operators_of(model(attention, {"x": [batch, 6, 6]}, [batch, 6, 2, 3]))
    assert found["Einsum"] == 0
    assert found["MatMul"] == 4


@pytest.mark.parametrize(
    "equation", ["...ij,...jk->...ik", "bij,bjk", "bij,bjk->ik", "bij,bij->", "bij,bij->bij", "bij,bki->bjk"]
)
def test_forms_of_two_operands(equation: str) -> None:
    rank = {"": 0, "ik": 2}.get(equation.partition("->")[2] if "->" in equation else "ik", 3)
    proto = model([(equation, ["x", "y"])], {"x": [2, 6, 6], "y": [2, 6, 6]}, [f"d{axis}" for axis in range(rank)])
    assert operators_of(proto)["Einsum"] == 0


@pytest.mark.parametrize(
    ("equation", "second"),
    [("iij,jk->ik", [6, 6]), ("bij,bjk->bik", [1, 6, 6]), ("bij,bjk->bik", ["other", 6, 6])],
    ids=["a diagonal", "a stretched axis", "an axis of another symbol"],
)
def test_what_is_no_product_of_matrices_is_left_alone(equation: str, second: list[int | str]) -> None:
    out: list[int | str] = ["d0", "d1", "d2"][: len(equation.partition("->")[2])]
    first: list[int | str] = [6, 6, 6] if second[0] != "other" else ["batch", 6, 6]
    proto = model([(equation, ["x", "y"])], {"x": first, "y": second}, out)
    assert operators_of(proto)["Einsum"] == 1
