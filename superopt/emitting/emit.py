"""Chosen terms as nodes, spliced into the model they came from: names, order and all that is not a node are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from superopt.emitting.emit_nodes import NodeWriter
from superopt.emitting.naming import name_values
from superopt.emitting.splice import spliced
from superopt.errors import ModelError
from superopt.lowering.lower import Lowered
from superopt.models.model import Model, standard_domain
from superopt.models.scopes import captured_names
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, Node, TermGraph, needed


def emit(
    lowered: Lowered, graph: TermGraph, same: Mapping[int, int] | None = None, *, reuse_nodes: bool = True
) -> Model:
    """The model with its main graph replaced by ``graph``, whose roots are the values of ``lowered.root_names``.

    Nodes and values of the original keep their NodeProto and their names; if all of them are there, the model itself is
    the answer. ``same`` tells which further terms have the value of which term of the original, so that they can have
    its name. ``reuse_nodes=False`` writes every node anew from its normal form, to test that the form means the same.
    Raises InferenceError where the model's opset has no node for a term.
    """
    if len(graph.roots) != len(lowered.root_names):
        raise ModelError(f"{len(graph.roots)} roots, expected {len(lowered.root_names)}")
    live = needed(graph.nodes, graph.roots)
    twins = _twins(lowered.graph, graph, live)
    if reuse_nodes and lowered.in_order and _is_unchanged(lowered, graph, live, twins):
        return lowered.model
    known = {**dict(zip(graph.roots, lowered.graph.roots, strict=True)), **(same or {}), **twins}
    captured = _captured(lowered, graph, live)
    names = name_values(lowered, graph, live, known, captured)
    writer = NodeWriter(lowered, graph, live, known, twins if reuse_nodes else {}, captured, names)
    for term in live:
        writer.add(term)
    proto, new, held = spliced(lowered, graph, writer.finished())
    old = lowered.model
    kept = {tensor.name for tensor in proto.graph.initializer}
    held = {**{name: constant for name, constant in old.held.items() if name in kept}, **held}
    return replace(old, proto=proto, source=None, made=old.made | new, held=held)


def _twins(old: TermGraph, new: TermGraph, live: Sequence[int]) -> dict[int, int]:
    """The terms of a new graph that are, with all that they are made of, terms of the old one."""
    index = {node: term for term, node in enumerate(old.nodes)}
    twins: dict[int, int] = {}
    for term in live:
        node = new.nodes[term]
        if all(arg == ABSENT or arg in twins for arg in node.args):
            args = tuple(arg if arg == ABSENT else twins[arg] for arg in node.args)
            found = index.get(Node(node.op, args, node.attrs))
            if found is not None:
                twins[term] = found
    return twins


def _is_unchanged(lowered: Lowered, graph: TermGraph, live: Sequence[int], twins: Mapping[int, int]) -> bool:
    """Whether a graph asks for the original's nodes, each of them once."""
    if graph is lowered.graph:
        return True
    if len(twins) < len(live) or tuple(twins[root] for root in graph.roots) != lowered.graph.roots:
        return False
    kept = sum(graph.nodes[term].op not in (INPUT, CONST, PROJECT) for term in live)
    return kept == sum(not _is_constant_node(node) for node in lowered.model.proto.graph.node)


def _is_constant_node(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and not standard_domain(node.domain)


def _captured(lowered: Lowered, graph: TermGraph, live: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The names by which the subgraphs of opaque nodes use their last arguments."""
    originals = lowered.model.proto.graph.node
    found: dict[int, tuple[str, ...]] = {}
    for term in live:
        node = graph.nodes[term]
        if node.op == OPAQUE:
            found[term] = captured_names(originals[lowered.opaque_sources[str(node.attrs["key"])]])
    return found
