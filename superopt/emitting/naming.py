"""The names of values in an emitted model: those of the original where a value is still the same, new ones else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from superopt.lowering.lower import Lowered
from superopt.models.scopes import inner_names
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, TermGraph


class FreshNames:
    """Makes names that nothing in the model has, the same ones each time."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def make(self, base: str) -> str:
        """``base`` itself if it is free, else ``base_1``, ``base_2``, ..."""
        name, count = base, self._next.get(base, 0)
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._next[base] = count
        self._taken.add(name)
        return name


def all_names(proto: onnx.ModelProto) -> set[str]:
    """Every name of a value or a node in a model, in its subgraphs too."""
    graph = proto.graph
    names = {value.name for value in (*graph.input, *graph.output, *graph.value_info)}
    names.update(tensor.name for tensor in graph.initializer)
    names.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        names.add(node.name)
        names.update(node.input)
        names.update(node.output)
        names.update(inner_names(node))
    return names


@dataclass(frozen=True)
class Names:
    """``of_term``: the name of each value that has one so far; ``aliases``: outputs whose value has another name."""

    of_term: Mapping[int, str]
    aliases: tuple[tuple[str, int], ...]


def name_values(
    lowered: Lowered,
    graph: TermGraph,
    live: Sequence[int],
    same: Mapping[int, int],
    captured: Mapping[int, tuple[str, ...]],
) -> Names:
    """Names for the values of a graph whose term i has the same value as term ``same[i]`` of the original.

    The outputs come first: their names are promised. Then what subgraphs capture (``captured``: opaque term -> names of
    its last arguments), where it can have the name that the subgraph uses. Then every value that is the same as in the
    original. The rest has no name yet.
    """
    holders: dict[str, list[str]] = {}
    for name, key in lowered.constant_keys.items():
        holders.setdefault(key, []).append(name)
    old_names: dict[int, list[str]] = {}
    for name, old in lowered.value_terms.items():
        old_names.setdefault(old, []).append(name)
    names: dict[int, str] = {}
    used: set[str] = set()

    def claim(term: int, name: str) -> bool:
        if term in names or name in used:
            return names.get(term) == name
        names[term] = name
        used.add(name)
        return True

    def candidates(term: int) -> list[str]:
        node = graph.nodes[term]
        if node.op == CONST:
            return holders.get(str(node.attrs["key"]), [])
        return old_names.get(same.get(term, ABSENT), [])

    for term in live:
        if graph.nodes[term].op == INPUT:
            claim(term, str(graph.nodes[term].attrs["name"]))
    aliases = []
    for name, term in zip(lowered.root_names, graph.roots, strict=True):
        if not claim(term, name):
            aliases.append((name, term))
            used.add(name)
    for term, wanted in captured.items():
        args = graph.nodes[term].args
        for name, arg in zip(wanted, args[len(args) - len(wanted) :], strict=True):
            if graph.nodes[arg].op != CONST or name in candidates(arg):
                claim(arg, name)
    for term in live:
        if graph.nodes[term].op not in (INPUT, OPAQUE):
            any(claim(term, name) for name in candidates(term))
    return Names(names, tuple(aliases))


def projections(graph: TermGraph, live: Sequence[int]) -> dict[int, dict[int, int]]:
    """The terms that read each bundle, by bundle and index of the output."""
    found: dict[int, dict[int, int]] = {}
    for term in live:
        node = graph.nodes[term]
        if node.op == PROJECT:
            found.setdefault(node.args[0], {})[int(str(node.attrs["index"]))] = term
    return found
