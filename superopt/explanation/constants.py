"""The values of constant classes: each computed in float64 by some derivation in the e-graph, and rounded once."""

from __future__ import annotations

import numpy as np

from superopt.engine.eclasses import EGraph, ENode
from superopt.errors import EvaluationError
from superopt.kernels import FLOAT64, Array, apply
from superopt.reference import round_to
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, TensorType


class ConstantValues:
    """Computes the values of constant classes when they are asked for; what was computed is kept."""

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph
        self._exact: dict[int, tuple[Array, ...] | None] = {}
        self._nodes: dict[int, ENode] = {}

    def value(self, number: int) -> Array | None:
        """The value of a class in its own element type; None where it is not constant, or cannot be computed."""
        outputs = self._computed(number)
        kind = self._egraph.classes[number].type
        if outputs is None or len(outputs) != 1 or not isinstance(kind, TensorType):
            return None
        value = outputs[0]
        return round_to(value, kind.dtype) if "float" in kind.dtype and value.dtype == np.float64 else value

    def node(self, number: int) -> ENode | None:
        """The node that a class is computed by."""
        self._computed(number)
        return self._nodes.get(number)

    def _computed(self, number: int) -> tuple[Array, ...] | None:
        stack = [number]
        pending: set[int] = set()
        while stack:
            top = stack[-1]
            if top in self._exact:
                stack.pop()
                continue
            eclass = self._egraph.classes[top]
            nodes = sorted(eclass.nodes, key=lambda node: node.op != CONST) if eclass.constant else []
            pending.add(top)
            waiting: list[int] = []
            for node in nodes:
                children = [child for child in node.children if child != ABSENT]
                open_ones = [child for child in children if child not in self._exact]
                if not open_ones and self._apply(top, node):
                    break
                if open_ones and not any(child in pending for child in open_ones):
                    waiting = open_ones
                    break
            else:
                self._exact[top] = None
            if top in self._exact:
                pending.discard(top)
                stack.pop()
            else:
                stack.extend(waiting)
        return self._exact[number]

    def _apply(self, number: int, node: ENode) -> bool:
        args = [None if child == ABSENT else self._exact[child] for child in node.children]
        if node.op in (INPUT, OPAQUE) or any(
            arg is None and child != ABSENT for arg, child in zip(args, node.children, strict=True)
        ):
            return False
        try:
            if node.op == CONST:
                found: tuple[Array, ...] = (FLOAT64.enter(self._egraph.constants[str(node.attrs["key"])].array()),)
            elif node.op == PROJECT:
                found = ((args[0] or ())[int(str(node.attrs["index"]))],)
            else:
                with np.errstate(all="ignore"):
                    found = tuple(apply(node.op, node.attrs, [None if a is None else a[0] for a in args], FLOAT64))
        except EvaluationError:
            return False
        self._exact[number], self._nodes[number] = found, node
        return True
