"""A model's own functions, written out where they are called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx
from google.protobuf.message import EncodeError
from onnx import defs, inliner

from superopt.models.model import Model, standard_domain
from superopt.models.scopes import subgraphs

MOST_NODES = 1 << 20
"""Nodes that functions may be written out to."""


def without_calls(model: Model) -> Model:
    """The model with its functions written out at every call, under unique names; the same object where there is no
    call, the inliner does not take the model, or it would become too large; and where a function is called like a
    standard operator, for which runtimes take it.

    A function that is of other opsets than the model stays, with its definition.
    """
    functions = {_name(function.domain, function.name): function for function in model.proto.functions}
    lists = (model.proto.graph.node, *(function.node for function in model.proto.functions))
    if not any(_called(nodes, functions) for nodes in lists) or is_endless(model.proto):
        return model
    if any(defs.has(item.name, domain=item.domain) for item in model.proto.functions):
        return model
    try:
        proto = inliner.inline_local_functions(model.proto)
    except (EncodeError, RuntimeError, ValueError, onnx.checker.ValidationError):
        return model
    return replace(model, proto=proto, source=None)


def is_endless(proto: onnx.ModelProto) -> bool:
    """Whether the functions of a model call each other without end, or become far too many nodes."""
    return bool(proto.functions) and written_out(proto) > MOST_NODES


def written_out(proto: onnx.ModelProto) -> float:
    """The nodes that a model has when all its functions are written out; infinity where one calls itself, or where two
    have one name."""
    functions = {_name(function.domain, function.name): function for function in proto.functions}
    if len(functions) < len(proto.functions):
        return math.inf
    sizes: dict[tuple[str, str], float] = {}
    entered: set[tuple[str, str]] = set()
    # Twice on the stack: to look at what it calls, and to add that up.
    stack = list(functions)
    while stack:
        name = stack[-1]
        if name in sizes:
            stack.pop()
            continue
        called = _called(functions[name].node, functions)
        waiting = [inner for inner in called if inner not in sizes]
        entered.add(name)
        if any(inner in entered for inner in waiting):
            return math.inf
        if waiting:
            stack.extend(dict.fromkeys(waiting))
            continue
        sizes[name] = _count(functions[name].node) + sum(sizes[inner] for inner in called)
        stack.pop()
    return _count(proto.graph.node) + sum(sizes[name] for name in _called(proto.graph.node, functions))


def _name(domain: str, name: str) -> tuple[str, str]:
    return standard_domain(domain), name


def nodes_within(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Nodes and those in their bodies, at any depth."""
    found = list(nodes)
    for node in found:  # it grows while it is read
        found.extend(inner for graph in subgraphs(node) for inner in graph.node)
    return found


def has_loop(proto: onnx.ModelProto) -> bool:
    """Whether something in a model is repeated as often as it says itself, which may be for ever."""
    functions = (node for function in proto.functions for node in function.node)
    return any(node.op_type == "Loop" for node in nodes_within([*proto.graph.node, *functions]))


def _count(nodes: Sequence[onnx.NodeProto]) -> float:
    return len(nodes_within(nodes))


def _called(
    nodes: Sequence[onnx.NodeProto], functions: Mapping[tuple[str, str], onnx.FunctionProto]
) -> list[tuple[str, str]]:
    """The functions that nodes call, once for each call."""
    names = (_name(node.domain, node.op_type) for node in nodes_within(nodes))
    return [name for name in names if name in functions]
