"""A frozen e-graph, read out of the engine's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from superopt.engine.constructors import Constructor
from superopt.engine.eclasses import EClass, EGraph, ENode, Key
from superopt.rules import Rule
from superopt.shapes import infer
from superopt.terms import ABSENT, CONST, Attrs, Constant, TermGraph, ValueType, parse_type

CONTRADICTION = "!"
"""The type of a class that terms of different types have been merged into; no rule matches on it."""


@dataclass(frozen=True)
class Snapshot:
    """A frozen e-graph, expressions of the engine for the classes that have a name, and each node's constructor."""

    egraph: EGraph
    names: Mapping[int, str]
    constructors: tuple[tuple[Constructor, ...], ...]


def read(
    frozen: Any,
    engine: Any,
    graph: TermGraph,
    rules: Sequence[Rule],
    made_constructors: Sequence[Constructor],
    constants: Mapping[str, Constant],
    *,
    whole: bool = False,
) -> Snapshot:
    """The engine's tables as classes; helper tables are left out.

    ``whole`` keeps the nodes too that were set aside because they differ from another in constant weights alone.

    ``frozen`` and ``engine`` are egglog's, whose types have no stubs; ``graph`` is what was loaded, ``rules`` are by
    number.
    """
    tables = frozen.functions
    texts: dict[Any, str] = {}

    def text(value: Any) -> str:
        if value not in texts:
            texts[value] = engine.value_to_string(value)
        return texts[value]

    absent = {row.output for row in tables["no-term"].rows}
    index: dict[Any, int] = {}
    names: dict[int, str] = {}
    loaded = [(number, value) for number, value in _numbered(tables["V"].rows, engine) if number != ABSENT]
    for table, numbered in (("V", loaded), ("W", _numbered(tables["W"].rows, engine))):
        for number, value in numbered:
            names.setdefault(index.setdefault(value, len(index)), f"({table} {number})")
    rows: list[tuple[int, Constructor, tuple[Any, ...], str, int | None, bool]] = []
    for made in made_constructors:
        made_by = {tuple(row.inputs): engine.value_to_i64(row.output) for row in tables[f"from-{made.suffix}"].rows}
        for row in tables[made.suffix].rows:
            inputs = tuple(row.inputs)
            where = index.setdefault(row.output, len(index))
            rows.append((where, made, inputs[:-1], text(inputs[-1]), made_by.get(inputs), row.subsumed))
    class_of = tuple(index[value] for _, value in loaded)
    originals = _originals(graph, class_of)
    constant = {index[row.inputs[0]] for row in tables["is-constant"].rows if row.inputs[0] in index}
    nodes: list[dict[Key, ENode]] = [{} for _ in range(len(index))]
    constructors: list[list[Constructor]] = [[] for _ in range(len(index))]
    shapes: set[tuple[int, Key]] = set()
    # What was set aside is kept if it is original, or if the one that it was set aside for has become one with it: two
    # weights that turn out to be the same make one node of two, and the engine has that set aside. So it comes last.
    for where, made, args, attr_text, maker, aside in sorted(rows, key=lambda row: row[5]):
        children = tuple(ABSENT if arg in absent else index[arg] for arg in args)
        key = (made.op, children, Attrs.of(key=attr_text) if made.op == CONST else Attrs(attr_text))
        shape = (where, (made.op, tuple(ABSENT if child in constant else child for child in children), key[2]))
        original = originals.get(key)
        rule = rules[maker - 1].name if maker is not None and original is None else None
        # A node may stand there twice, once as one of constants.
        if key not in nodes[where] and (whole or original is not None or not aside or shape not in shapes):
            shapes.add(shape)
            nodes[where][key] = ENode(*key, rule, original)
            constructors[where].append(made)
    types = {index[row.inputs[0]]: text(row.output) for row in tables["type-of"].rows if row.inputs[0] in index}
    known = {number: _known_type(types[number]) for number in types}
    _infer_types(nodes, known)
    classes = tuple(
        EClass(tuple(members.values()), known.get(number), number in constant) for number, members in enumerate(nodes)
    )
    roots = tuple(class_of[root] for root in graph.roots)
    egraph = EGraph(classes, roots, class_of, dict(constants), graph.opaque)
    return Snapshot(egraph, names, tuple(map(tuple, constructors)))


def _infer_types(nodes: Sequence[Mapping[Key, ENode]], known: dict[int, ValueType]) -> None:
    """Adds the types of classes that the engine was not told of: those inside the formulas of weights."""
    waiting = [number for number in range(len(nodes)) if number not in known and nodes[number]]
    left = len(waiting) + 1
    while waiting and len(waiting) < left:
        left = len(waiting)
        for number in waiting:
            for node in nodes[number].values():
                if all(child == ABSENT or child in known for child in node.children):
                    args = [None if child == ABSENT else known[child] for child in node.children]
                    known[number] = infer(node.op, node.attrs, args, [child != ABSENT for child in node.children])
                    break
        waiting = [number for number in waiting if number not in known]


def _known_type(text: str) -> ValueType:
    return None if text == CONTRADICTION else parse_type(text)


def _numbered(rows: Any, engine: Any) -> list[tuple[int, Any]]:
    """The classes that are known by number, in order of number."""
    return sorted((engine.value_to_i64(row.inputs[0]), row.output) for row in rows)


def _originals(graph: TermGraph, class_of: Sequence[int]) -> dict[Key, int]:
    """Which lowered term each e-node was loaded from; the first, where several have become one."""
    found: dict[Key, int] = {}
    for index, node in enumerate(graph.nodes):
        children = tuple(ABSENT if arg == ABSENT else class_of[arg] for arg in node.args)
        found.setdefault((node.op, children, node.attrs), index)
    return found
