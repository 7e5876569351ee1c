"""Reads and writes e-graphs in the interchange form of egraph-serialize (JSON)."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superopt.errors import ModelError
from superopt.extraction.problem import Problem, derivable


@dataclass(frozen=True)
class NamedProblem:
    """An extraction problem, and what its nodes and classes are called in the file."""

    problem: Problem
    node_names: tuple[str, ...]
    class_names: tuple[str, ...]


def read(path: str | Path) -> NamedProblem:
    """The problem in a JSON file (also gzipped): ``nodes`` by name with ``cost``, ``eclass``, ``children`` (nodes; what
    counts is their class), and ``root_eclasses``.

    Raises ``ModelError`` (``file: what, expected``).
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}), expected a JSON file") from error
    except ValueError as error:
        raise ModelError(f"{path}: {error}, expected a JSON file") from error
    return parse(document, str(path))


def parse(document: Any, file: str) -> NamedProblem:
    """The problem in a JSON document; nodes and classes are numbered in the order of their names, whatever the
    file's."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), dict):
        raise ModelError(f"{file}: no 'nodes', expected an e-graph in the form of egraph-serialize")
    nodes: Mapping[str, Any] = document["nodes"]
    names = sorted(nodes)
    owner = {}
    for name in names:
        node = nodes[name]
        if not isinstance(node, dict) or not isinstance(node.get("eclass"), str):
            raise ModelError(f"{file}: node {name!r} has no 'eclass', expected the name of its class")
        owner[name] = node["eclass"]
    class_names = sorted(set(owner.values()))
    number = {name: index for index, name in enumerate(class_names)}
    children, costs = [], []
    for name in names:
        kids = nodes[name].get("children", [])
        unknown = [k for k in kids if not isinstance(k, str) or k not in owner] if isinstance(kids, list) else [kids]
        if unknown:
            raise ModelError(f"{file}: node {name!r} has child {unknown[0]!r}, expected the name of a node")
        children.append(tuple(number[owner[kid]] for kid in kids))
        cost = nodes[name].get("cost", 1.0)
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or math.isnan(cost) or cost < 0:
            raise ModelError(f"{file}: node {name!r} has cost {cost!r}, expected a number that is not negative")
        costs.append(float(cost))
    roots = document.get("root_eclasses", [])
    wrong = (
        [root for root in roots if not isinstance(root, str) or root not in number]
        if isinstance(roots, list)
        else [roots]
    )
    if wrong:
        raise ModelError(f"{file}: root {wrong[0]!r}, expected a list of names of classes in 'root_eclasses'")
    if not roots:
        raise ModelError(f"{file}: no roots, expected names of classes in 'root_eclasses'")
    problem = Problem(
        len(class_names), [number[owner[name]] for name in names], children, costs, [number[root] for root in roots]
    )
    found = derivable(problem.classes, problem.node_class, children, [cost < math.inf for cost in costs])
    for root in roots:
        if not found[number[root]]:
            raise ModelError(f"{file}: root {root!r} has no finite derivation, expected one without a cycle")
    return NamedProblem(problem, tuple(names), tuple(class_names))


def document(named: NamedProblem, operators: Mapping[int, str] | None = None) -> dict[str, Any]:
    """The JSON document of a problem; ``operators`` are what its nodes are to be called in ``op``, by number."""
    problem = named.problem
    first = {owner: nodes[0] for owner, nodes in enumerate(problem.by_class) if nodes}
    return {
        "nodes": {
            name: {
                "op": (operators or {}).get(index, name),
                "cost": problem.costs[index],
                "eclass": named.class_names[problem.node_class[index]],
                "children": [named.node_names[first[child]] for child in problem.children[index]],
            }
            for index, name in enumerate(named.node_names)
        },
        "root_eclasses": [named.class_names[root] for root in problem.roots],
    }
