"""Reads and writes e-graphs in the interchange form of egraph-serialize (JSON).

See https://github.com/egraphs-good/egraph-serialize for the form.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superopt.cost import CostModel
from superopt.engine.eclasses import EGraph
from superopt.errors import ModelError
from superopt.extraction.pricing import Priced, evaluable, price
from superopt.extraction.problem import Problem, derivable, hopeless_root
from superopt.terms import CONST, type_text
from superopt.workload import Sizes


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
    except (EOFError, zlib.error) as error:
        raise ModelError(f"{path}: cannot be unpacked ({error}), expected a JSON file in gzip's form") from error
    except RecursionError as error:
        raise ModelError(f"{path}: lists in lists too deep to be read, expected an e-graph") from error
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
        costs.append(_cost(nodes[name].get("cost", 1.0), f"{file}: node {name!r}"))
    if math.isinf(sum(cost for cost in costs if cost < math.inf)):
        raise ModelError(f"{file}: the costs add up to infinity, expected a sum below {sys.float_info.max:.2g}")
    roots = document.get("root_eclasses", [])
    wrong = (
        [root for root in roots if not isinstance(root, str) or root not in number]
        if isinstance(roots, list)
        else [roots]
    )
    if wrong and isinstance(roots, list) and isinstance(wrong[0], str):
        raise ModelError(f"{file}: root {wrong[0]!r}: no node is of such a class, expected the 'eclass' of a node")
    if wrong:
        raise ModelError(f"{file}: root {wrong[0]!r}, expected a list of names of classes in 'root_eclasses'")
    if not roots:
        raise ModelError(f"{file}: no roots, expected names of classes in 'root_eclasses'")
    problem = Problem(
        len(class_names), [number[owner[name]] for name in names], children, costs, [number[root] for root in roots]
    )
    found = derivable(problem.classes, problem.node_class, children, [cost < math.inf for cost in costs])
    hopeless = hopeless_root(problem, found)
    if hopeless is not None:
        root, why = hopeless
        raise ModelError(f"{file}: root {class_names[root]!r} has {why}")
    return NamedProblem(problem, tuple(names), tuple(class_names))


def _cost(given: object, where: str) -> float:
    """A node's cost, infinite where it cannot be chosen."""
    try:
        cost = math.nan if isinstance(given, bool) or not isinstance(given, (int, float)) else float(given)
    except OverflowError as error:
        largest = f"{sys.float_info.max:.2g}"
        raise ModelError(f"{where} has a whole number above {largest} as its cost, expected less") from error
    if not cost >= 0:
        raise ModelError(f"{where} has cost {given!r}, expected a number that is not negative")
    return cost


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


def egraph_text(
    egraph: EGraph, cost_model: CostModel, byte_price: float | None = None, sizes: Mapping[str, int] | None = None
) -> str:
    """An e-graph with the prices that ``extract`` goes by under the same arguments, as JSON text.

    What ``read`` makes of it is the problem that ``extract`` solves, but for nodes that cannot be chosen. A constant
    class has a node ``Const`` that stands for evaluating it; what the runtime fuses is one more node. Beside what the
    form asks for, nodes name the ``rule`` that made them.
    """
    paid = cost_model.constant_byte if byte_price is None else byte_price
    priced = price(egraph, cost_model, paid, Sizes(dict(sizes or {})), evaluable(egraph))
    kept = _choosable(priced.problem)
    numbers: dict[int, int] = {}
    names = []
    for index in kept:
        owner = priced.problem.node_class[index]
        numbers[owner] = numbers.get(owner, -1) + 1
        names.append(f"{owner}.{numbers[owner]}")
    problem = priced.problem
    shown = Problem(
        problem.classes,
        [problem.node_class[index] for index in kept],
        [problem.children[index] for index in kept],
        [problem.costs[index] for index in kept],
        problem.roots,
    )
    made = document(
        NamedProblem(shown, tuple(names), tuple(map(str, range(problem.classes)))),
        {number: _operator(priced, index) for number, index in enumerate(kept)},
    )
    for name, index in zip(names, kept, strict=True):
        node = priced.node[index]
        if node is not None and node.rule is not None:
            made["nodes"][name]["rule"] = node.rule
    made["class_data"] = {str(owner): {"type": type_text(egraph.classes[owner].type)} for owner in sorted(numbers)}
    return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _operator(priced: Priced, index: int) -> str:
    """A node's operator with its attributes, ``Softmax[axis=1]``; of what the runtime fuses, all: ``Conv+Relu``."""
    node = priced.node[index]
    if node is None:
        return CONST
    if index in priced.inside:
        return "+".join(inner.op for part in priced.inside[index] if (inner := priced.node[part]) is not None)
    attrs = ", ".join(f"{name}={json.dumps(value)}" for name, value in node.attrs.items)
    return f"{node.op}[{attrs}]" if attrs else node.op


def _choosable(problem: Problem) -> list[int]:
    """The nodes that cost something finite and whose children have such nodes, down to leaves."""
    finite = [cost < math.inf for cost in problem.costs]
    found = derivable(problem.classes, problem.node_class, problem.children, finite)
    return [
        node
        for node, children in enumerate(problem.children)
        if finite[node] and all(found[child] for child in children)
    ]
