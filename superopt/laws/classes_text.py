"""Members of an e-class as ONNX text: small models over the values of their children's classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.engine.eclasses import EGraph, ENode
from superopt.engine.matching import Clash
from superopt.errors import InferenceError
from superopt.instantiate import instantiate
from superopt.laws.instances_content import described
from superopt.laws.runtime import model_of
from superopt.rules import Apply, Each, Output, Pattern, Rule, Star
from superopt.shapes import infer
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, Attrs, Node, TensorType, TermGraph, ValueType
from superopt.values import Unknown

Array = NDArray[Any]

_SHOWN = 64
"""Values of more elements than this are not written out."""


def sides_text(clash: Clash) -> str:
    """Both sides of a rule as one model in ONNX text, as the match has them whose sides have different types; nothing
    where no match is known or a side is not well typed by itself."""
    if clash.variant is None or clash.binding is None:
        return ""
    rule = clash.variant.rule
    try:
        sides = {"left": instantiate(rule.left, clash.binding), "right": instantiate(rule.right, clash.binding)}
    except (InferenceError, Unknown):
        return ""
    return _model_text(sides)


def members_text(
    egraph: EGraph, members: Sequence[ENode], values: Mapping[int, Array], made: Mapping[int, ENode], rule: Rule | None
) -> str:
    """Both members as one model in ONNX text, with the values of its inputs where they are known and small.

    What a member is computed from is shown by the node that each class's value is from (``made``), as deep as the side
    of the ``rule`` is that the member is of. What has no node of its own (an input, a constant, an opaque operator) is
    told in a line.
    """
    graphs: dict[str, TermGraph | None] = {}
    for name, member in zip(("first", "second"), members, strict=True):
        graphs[name] = _Expanded(egraph, values, made).graph(member, _depth_of(member, rule))
    shown = {name: graph for name, graph in graphs.items() if graph is not None}
    lines = [f"{name}: {_line(member)}" for name, member in zip(graphs, members, strict=True) if graphs[name] is None]
    if shown:
        lines.append(_model_text(shown))
    read = {str(node.attrs["name"]) for graph in shown.values() for node in graph.nodes if node.op == INPUT}
    read |= {_name(child) for member in members if member.op != PROJECT for child in member.children if not shown}
    small = {
        _name(child): np.asarray(values[child])
        for child in sorted(values)
        if _name(child) in read and values[child].size <= _SHOWN
    }
    return "\n".join([*lines, described(small)] if small else lines)


def _model_text(graphs: Mapping[str, TermGraph]) -> str:
    return str(onnx.printer.to_text(model_of(graphs, typed=True))).rstrip()


def _depth_of(member: ENode, rule: Rule | None) -> int:
    """How many operators stand above one another in the side of a rule that a member is of."""
    if rule is None:
        return 1
    return max(_depth(pattern) for pattern in (rule.right if member.rule == rule.name else rule.left))


def _depth(pattern: Pattern | Star | Each) -> int:
    match pattern:
        case Apply(_, args):
            return 1 + max((_depth(arg) for arg in args), default=0)
        case Output(of):
            return _depth(of)
        case Each(template):
            return _depth(template)
        case _:
            return 0


def _name(child: int) -> str:
    return f"class{child}"


def _line(member: ENode) -> str:
    children = ["_" if child == ABSENT else _name(child) for child in member.children]
    return f"{member.op}({', '.join([*children, member.attrs.text])})"


class _Expanded:
    """A member as a graph over the classes that it is computed from."""

    def __init__(self, egraph: EGraph, values: Mapping[int, Array], made: Mapping[int, ENode]) -> None:
        self.egraph, self.values, self.made = egraph, values, made
        self.nodes: list[Node] = []
        self.types: list[ValueType] = []
        self.places: dict[int, int] = {}

    def graph(self, member: ENode, depth: int) -> TermGraph | None:
        """So many operators deep; None where the member has no node in ONNX, or is not well typed."""
        if member.op in (INPUT, CONST, OPAQUE):
            return None
        try:
            within = self._reached(member, depth)
            root = self._added(member, within)
        except InferenceError:
            return None
        kind = self.types[root]
        if isinstance(kind, tuple):
            root = self._put(Node(PROJECT, (root,), Attrs.of(index=0)), kind[0])
        return TermGraph(tuple(self.nodes), tuple(self.types), (root,))

    def _reached(self, member: ENode, depth: int) -> set[int]:
        """The classes that are shown by their nodes. A bundle always is: it is no tensor that could be an input."""
        found: set[int] = set()
        level, front = depth, [member]
        while front:
            inner: list[ENode] = []
            for node in front:
                for child in node.children:
                    node_of = self.made.get(child)
                    bundle = child != ABSENT and isinstance(self.egraph.classes[child].type, tuple)
                    # An output stands for its operator, and is no level.
                    if child in found or node_of is None or not (bundle or level > 1):
                        continue
                    if node_of.op not in (INPUT, CONST, OPAQUE):
                        found.add(child)
                        inner.append(node_of)
            if not all(node.op == PROJECT for node in front):
                level -= 1
            front = inner
        return found

    def _added(self, member: ENode, within: set[int]) -> int:
        args = [ABSENT if child == ABSENT else self._class(child, within) for child in member.children]
        kinds = [None if arg == ABSENT else self.types[arg] for arg in args]
        kind = infer(member.op, member.attrs, kinds, [arg != ABSENT for arg in args])
        return self._put(Node(member.op, tuple(args), member.attrs), kind)

    def _class(self, child: int, within: set[int]) -> int:
        if child not in self.places:
            if child in within:
                self.places[child] = self._added(self.made[child], within)
            else:
                kind = self._type(child)
                if not isinstance(kind, TensorType):
                    raise InferenceError(f"{_name(child)} is no tensor")
                self.places[child] = self._put(Node(INPUT, (), Attrs.of(name=_name(child))), kind)
        return self.places[child]

    def _put(self, node: Node, kind: ValueType) -> int:
        self.nodes.append(node)
        self.types.append(kind)
        return len(self.nodes) - 1

    def _type(self, child: int) -> ValueType:
        kind = self.egraph.classes[child].type
        if isinstance(kind, TensorType) and child in self.values:
            return TensorType(kind.dtype, self.values[child].shape)
        return kind
