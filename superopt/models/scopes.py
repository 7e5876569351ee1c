"""Names in a graph: what subgraphs capture from outside, what is random, and an order in which nodes can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

import onnx
from onnx import defs

from superopt.errors import ModelError

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""ONNX's operators that draw numbers each time; Dropout does in training."""

_RANDOM_CONTRIB = ("Random", "Dropout", "Sampling", "Bernoulli")
"""Parts of the names of onnxruntime's own operators (domain com.microsoft) that may give another result each time."""

_KNOWN_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that a node holds, in order of its attributes."""
    found: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            found.append(attribute.g)
        found.extend(attribute.graphs)
    return found


def graphs_in(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """A graph and all those in it, at any depth, outer ones first."""
    found = [graph]
    for item in found:  # it grows while it is read
        found.extend(inner for node in item.node for inner in subgraphs(node))
    return found


def captured_names(node: onnx.NodeProto) -> tuple[str, ...]:
    """The outer values that a node's subgraphs use, in order of first use, each once."""
    return free_names(subgraphs(node))


def names_of_training(proto: onnx.ModelProto) -> tuple[str, ...]:
    """The values of the main graph that training information may refer to."""
    found: dict[str, None] = {}
    for info in proto.training_info:
        found.update(dict.fromkeys(free_names([info.initialization, info.algorithm])))
        for binding in (*info.initialization_binding, *info.update_binding):
            found.setdefault(binding.key)
    return tuple(found)


def free_names(graphs: Sequence[onnx.GraphProto]) -> tuple[str, ...]:
    """The values that graphs use but do not define, in order of first use, each once."""
    found: dict[str, None] = {}
    # Scopes are frozen sets of names that are defined inside; the stack holds bodies yet to be read, in order.
    stack: list[tuple[onnx.GraphProto, frozenset[str]]] = [(body, frozenset()) for body in reversed(graphs)]
    while stack:
        body, outer = stack.pop()
        inside = outer | names_defined(body)
        inner: list[tuple[onnx.GraphProto, frozenset[str]]] = []
        for item in body.node:
            for name in item.input:
                if name and name not in inside:
                    found.setdefault(name)
            inner.extend((graph, inside) for graph in subgraphs(item))
        for output in body.output:
            if output.name and output.name not in inside:
                found.setdefault(output.name)
        stack.extend(reversed(inner))
    return tuple(found)


def names_defined(graph: onnx.GraphProto) -> frozenset[str]:
    """The values that a graph itself defines: inputs, initializers and outputs of nodes."""
    names = {value.name for value in graph.input}
    names.update(tensor.name for tensor in graph.initializer)
    names.update(tensor.values.name for tensor in graph.sparse_initializer)
    names.update(name for node in graph.node for name in node.output)
    return frozenset(names - {""})


def inner_names(node: onnx.NodeProto) -> Iterator[str]:
    """Every name that a node's subgraphs use or define, at any depth."""
    stack = subgraphs(node)
    while stack:
        body = stack.pop()
        yield from names_defined(body)
        for item in body.node:
            yield from item.input
            stack.extend(subgraphs(item))
        yield from (value.name for value in body.output)


def is_deterministic(node: onnx.NodeProto, functions: Mapping[tuple[str, str], onnx.FunctionProto]) -> bool:
    """Whether a node is known to give the same outputs for the same inputs, its subgraphs and functions included.

    An operator of a domain that is not known here may be random or keep a state: it is not.
    """
    stack = [node]
    seen: set[tuple[str, str]] = set()
    while stack:
        item = stack.pop()
        domain = "" if item.domain == "ai.onnx" else item.domain
        name = (domain, item.op_type)
        bodies = subgraphs(item)
        stack.extend(inner for body in bodies for inner in body.node)
        if name in functions:
            if name not in seen:
                seen.add(name)
                stack.extend(functions[name].node)
        elif not bodies and not _deterministic_operator(domain, item):
            return False
    return True


def _deterministic_operator(domain: str, node: onnx.NodeProto) -> bool:
    if domain not in _KNOWN_DOMAINS:
        return False
    if domain == "com.microsoft":
        return not any(part in node.op_type for part in _RANDOM_CONTRIB)
    if node.op_type == "Dropout":
        return len(node.input) < 3 or not node.input[2]
    return defs.has(node.op_type, domain) and node.op_type not in RANDOM


def running_order(needs: Sequence[Sequence[int]], ranks: Sequence[int]) -> list[int]:
    """The order in which nodes can run, as near to their ranks as possible.

    ``needs[i]`` are the nodes whose outputs node i uses. Raises ModelError on a cycle.
    """
    waiting = [0] * len(needs)
    users: list[list[int]] = [[] for _ in needs]
    for index, sources in enumerate(needs):
        for source in dict.fromkeys(sources):
            waiting[index] += 1
            users[source].append(index)
    ready = [(ranks[index], index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (ranks[user], user))
    if len(order) < len(needs):
        raise ModelError(f"{len(needs) - len(order)} nodes use each other's outputs in a cycle, expected none")
    return order


def rename_captured(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Gives outer values other names wherever a node's subgraphs use them; the node is changed in place.

    A subgraph's own values shadow outer ones of the same name.
    """
    stack = [(body, dict(names)) for body in subgraphs(node)]
    while stack:
        body, outer = stack.pop()
        inside = names_defined(body)
        known = {old: new for old, new in outer.items() if old not in inside}
        for item in body.node:
            for index, name in enumerate(item.input):
                item.input[index] = known.get(name, name)
            stack.extend((graph, known) for graph in subgraphs(item))
        for output in body.output:
            output.name = known.get(output.name, output.name)
