"""A piece of a term graph as an ONNX model of its own, for other evaluators to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from superopt.errors import EvaluationError, InferenceError
from superopt.forms import onnx_form
from superopt.models.scopes import captured_names
from superopt.operators import NEWEST_OPSET, dtype_number
from superopt.terms import ABSENT, OPAQUE, PROJECT, AttrValue, TensorType, TermGraph

_PREFIX = "superopt."
"""Begins the names of values, so that they are not those that a subgraph captures."""


Leaf: TypeAlias = "TensorType | onnx.TypeProto | None"
"""The type of an input of such a model; None where it is not known, which onnx.reference does not mind."""


def value_name(term: int) -> str:
    """What a term is called in these models."""
    return f"{_PREFIX}{term}"


def term_model(
    graph: TermGraph,
    order: Sequence[int],
    leaves: Mapping[int, Leaf],
    outputs: Sequence[int],
    *,
    double: bool = False,
    context: onnx.ModelProto | None = None,
) -> onnx.ModelProto:
    """The model that computes ``outputs`` from ``leaves``; ``order`` are the terms between them, in topological order.

    Inputs and outputs are named by ``value_name``. With ``double`` every float type is float64 instead. ``context`` is
    the model that opaque operators come from: its functions and opsets. Raises EvaluationError where a term has no node
    at the opset of the opaque operators among them.
    """
    versions = {graph.opaque[str(graph.nodes[t].attrs["key"])].version for t in order if _is_onnx_opaque(graph, t)}
    opset = min(versions) if versions else NEWEST_OPSET
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    captured: dict[str, int] = {}
    wanted = {
        (graph.nodes[t].args[0], int(str(graph.nodes[t].attrs["index"]))) for t in order if graph.nodes[t].op == PROJECT
    }
    for term in order:
        node = graph.nodes[term]
        if node.op == PROJECT:
            continue
        names = [_argument_name(graph, arg, leaves) for arg in node.args]
        kind = graph.types[term]
        count = len(kind) if isinstance(kind, tuple) else 0
        outs = [value_name(term)]
        if isinstance(kind, tuple):
            # An output that the model names stays named, used or not: Scan does not run without.
            named = [(term, i) in wanted or kind[i] is not None for i in range(count)]
            outs = [f"{value_name(term)}.{i}" if named[i] else "" for i in range(count)]
        if node.op == OPAQUE:
            made = _opaque_nodes(graph, term, names, outs, captured)
        else:
            made = _normal_nodes(graph, term, names, outs, opset, initializers, double)
        nodes.extend(made)
    inputs = [_value_info(value_name(leaf), kind, double) for leaf, kind in leaves.items()]
    results = [onnx.ValueInfoProto(name=_argument_name(graph, output, leaves)) for output in outputs]
    body = helper.make_graph(nodes, "terms", inputs, results, initializers)
    imports = {entry.domain: entry.version for entry in context.opset_import} if context is not None else {}
    imports.pop("ai.onnx", None)
    imports[""] = opset
    for term in order:
        operator = graph.opaque.get(str(graph.nodes[term].attrs.get("key"))) if graph.nodes[term].op == OPAQUE else None
        if operator is not None and operator.domain:
            imports.setdefault(operator.domain, operator.version or 1)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid(d, v) for d, v in sorted(imports.items())])
    # What onnx writes by default may be newer than what the runtime reads.
    model.ir_version = 10 if context is None else max(min(context.ir_version, 10), 8)
    if context is not None:
        model.functions.extend(context.functions)
    return model


def _is_onnx_opaque(graph: TermGraph, term: int) -> bool:
    node = graph.nodes[term]
    return node.op == OPAQUE and graph.opaque[str(node.attrs["key"])].domain == ""


def _argument_name(graph: TermGraph, arg: int, leaves: Mapping[int, Leaf]) -> str:
    if arg == ABSENT:
        return ""
    node = graph.nodes[arg]
    if node.op == PROJECT and arg not in leaves:
        return f"{value_name(node.args[0])}.{node.attrs['index']}"
    return value_name(arg)


def _normal_nodes(
    graph: TermGraph, term: int, names: list[str], outs: list[str], opset: int,
    initializers: list[onnx.TensorProto], double: bool,
) -> list[onnx.NodeProto]:  # fmt: skip
    node = graph.nodes[term]
    try:
        form = onnx_form(node.op, node.attrs, tuple(arg != ABSENT for arg in node.args), opset)
    except InferenceError as error:
        raise EvaluationError(f"{node.op} has no node at opset {opset}: {error}") from error
    inputs: list[str] = []
    for place, item in enumerate(form.inputs):
        if item is None:
            inputs.append("")
        elif isinstance(item, int):
            inputs.append(names[item])
        else:
            name = f"{value_name(term)}.input{place}"
            initializers.append(numpy_helper.from_array(np.asarray(item), name))
            inputs.append(name)
    attributes: dict[str, AttrValue] = dict(form.attributes)
    if double and node.op == "Cast" and "float" in str(node.attrs["to"]):
        attributes["to"] = int(onnx.TensorProto.DOUBLE)
    made = helper.make_node(form.op_type, inputs, _trimmed(outs))
    for key, value in attributes.items():
        made.attribute.append(helper.make_attribute(key, value))
    return [made]


def _opaque_nodes(
    graph: TermGraph, term: int, names: list[str], outs: list[str], captured: dict[str, int]
) -> list[onnx.NodeProto]:
    """The operator, and an Identity for every outer value that its subgraphs know by a name of the model."""
    node = graph.nodes[term]
    made = onnx.NodeProto.FromString(graph.opaque[str(node.attrs["key"])].node)
    outer = captured_names(made)
    count = len(names) - len(outer)
    result = []
    for name, source, arg in zip(outer, names[count:], node.args[count:], strict=True):
        if name not in captured:
            captured[name] = arg
            result.append(helper.make_node("Identity", [source], [name]))
        elif captured[name] != arg:
            raise EvaluationError(f"two values are captured as {name}")
    made.input.extend(names[:count])
    made.output.extend(_trimmed(outs))
    return [*result, made]


def _trimmed(outs: list[str]) -> list[str]:
    last = max((place for place, name in enumerate(outs) if name), default=0)
    return outs[: last + 1]


def _value_info(name: str, kind: Leaf, double: bool) -> onnx.ValueInfoProto:
    if kind is None:
        return onnx.ValueInfoProto(name=name)
    if isinstance(kind, onnx.TypeProto):
        return onnx.ValueInfoProto(name=name, type=kind)
    dtype = "float64" if double and "float" in kind.dtype else kind.dtype
    shape = None if kind.shape is None else [dim if isinstance(dim, int) else None for dim in kind.shape]
    return helper.make_tensor_value_info(name, dtype_number(dtype), shape)
