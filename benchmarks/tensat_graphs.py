"""E-graphs of the kind that Tensat (Yang et al., MLSys 2021) extracts from, in the form of egraph-serialize.

    python -m benchmarks.tensat_graphs nasrnn --rounds 2 --nodes 50000 -o nasrnn.json

TASO's networks, saturated in Tensat's way with TASO's substitutions: in the first rounds pairs of operators are merged
with each other, each pair that shares an input or a shape; single rules follow until nothing changes or there are too
many nodes. Costs are those of a plain roofline, in milliseconds, apart for each shape as if they were measured. Of VGG
and ResNet-50 this makes as many nodes of each operator as Tensat did; costs differ.
"""

from __future__ import annotations

import argparse
import json
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks import tensat_networks, tensat_rules
from benchmarks.tensat_rules import Pair, Pattern

Cut: TypeAlias = "tuple[int, Cut, Cut] | None"
"""Where the last concatenation along an axis is, and those of its two halves."""

Binding: TypeAlias = dict[str, int]


class Tensor(NamedTuple):
    """What a class is: a tensor's shape, whether only weights are in it, its cuts by axis; or the two halves of one."""

    shape: tuple[int, ...]
    weight: bool = False
    cuts: tuple[Cut, ...] = ()
    halves: tuple[Tensor, Tensor] | None = None


class ENode(NamedTuple):
    """An operator with its attributes, and the classes of its operands."""

    op: str
    attrs: tuple[int, ...]
    children: tuple[int, ...]


ARITY = dict.fromkeys(("conv", "matmul", "ewadd", "ewmul", "concat", "enlarge", "noop"), 2) | {"input": 0, "weight": 0}
"""Operands that are tensors; one where nothing is said. What follows the name before them are attributes."""

_MATCHES, _REST = 1000, 5
"""Matches of a rule beyond which it rests, and for how many iterations."""

FREE = {"input", "weight", "split", "split0", "split1", "enlarge", "merge", "reshape", "transpose", "noop"}


def infer(op: str, attrs: tuple[int, ...], given: list[Tensor]) -> Tensor | None:
    """The result of an operator; None where it cannot be applied."""
    if any(each.halves is not None for each in given) and op not in ("split0", "split1"):
        return None
    weight = all(each.weight for each in given)
    if op in ("input", "weight"):
        return Tensor(attrs[1:], op == "weight", (None,) * len(attrs[1:]))
    first = given[0]
    shape, cuts = first.shape, first.cuts
    if op in ("relu", "sigmoid", "tanh"):
        return Tensor(shape, weight, cuts)
    if op in ("ewadd", "ewmul", "noop"):
        kept = tuple(a if a == b else None for a, b in zip(cuts, given[1].cuts, strict=False))
        return Tensor(shape, weight, kept) if shape == given[1].shape or op == "noop" else None
    if op == "matmul":
        other = given[1]
        if len(shape) != len(other.shape) or shape[-1] != other.shape[-2] or shape[:-2] != other.shape[:-2]:
            return None
        return Tensor((*shape[:-1], other.shape[-1]), weight, (*cuts[:-1], other.cuts[-1]))
    if op == "conv":
        return _convolved(attrs, first, given[1])
    if op == "concat":
        return _joined(attrs[0], first, given[1]) if len(shape) == attrs[1] else None
    if op == "concats":
        wide = sum(each.shape[attrs[0]] for each in given)
        return Tensor((*shape[: attrs[0]], wide, *shape[attrs[0] + 1 :]), weight, (None,) * len(shape))
    if op == "split":
        cut = cuts[attrs[0]] if attrs[0] < len(cuts) else None
        if cut is None:
            return None
        halves = [
            Tensor((*shape[: attrs[0]], size, *shape[attrs[0] + 1 :]), weight, _with(cuts, attrs[0], inner))
            for size, inner in ((cut[0], cut[1]), (shape[attrs[0]] - cut[0], cut[2]))
        ]
        return Tensor(shape, weight, (), (halves[0], halves[1]))
    if op in ("split0", "split1"):
        return None if first.halves is None else first.halves[op == "split1"]
    if op == "enlarge":
        kernel = given[1].shape[2:]
        grows = len(shape) == 4 and all(a <= b and (b - a) % 2 == 0 for a, b in zip(shape[2:], kernel, strict=True))
        return Tensor((*shape[:2], *kernel), weight, cuts) if grows else None
    if op == "merge":
        return Tensor((shape[0], shape[1] * attrs[0], *shape[2:]), weight, cuts) if weight else None
    if op in ("poolmax", "poolavg"):
        stride = attrs[1]
        return Tensor((*shape[:2], *(-(-size // stride) for size in shape[2:])), weight, (*cuts[:2], None, None))
    if op == "transpose":
        return Tensor(tuple(shape[axis] for axis in attrs), weight, tuple(cuts[axis] for axis in attrs))
    return Tensor(attrs, weight, (None,) * len(attrs))  # reshape


def _with(cuts: tuple[Cut, ...], axis: int, cut: Cut) -> tuple[Cut, ...]:
    return (*cuts[:axis], cut, *cuts[axis + 1 :])


def _convolved(attrs: tuple[int, ...], x: Tensor, kernel: Tensor) -> Tensor | None:
    if len(x.shape) != 4 or len(kernel.shape) != 4 or x.shape[1] % kernel.shape[1]:
        return None
    if kernel.shape[0] % (x.shape[1] // kernel.shape[1]):
        return None
    cut = kernel.shape[2:] if attrs[1] else (1, 1)
    sizes = (-(-(size - taps + 1) // attrs[0]) for size, taps in zip(x.shape[2:], cut, strict=True))
    return Tensor((x.shape[0], kernel.shape[0], *sizes), x.weight, (x.cuts[0], kernel.cuts[0], None, None))


def _joined(axis: int, one: Tensor, other: Tensor) -> Tensor | None:
    if len(one.shape) != len(other.shape):
        return None
    if any(a != b for k, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if k != axis):
        return None
    shape = (*one.shape[:axis], one.shape[axis] + other.shape[axis], *one.shape[axis + 1 :])
    kept = tuple(a if a == b else None for a, b in zip(one.cuts, other.cuts, strict=True))
    cut = (one.shape[axis], one.cuts[axis], other.cuts[axis])
    return Tensor(shape, one.weight and other.weight, _with(kept, axis, cut))


def cost(node: ENode, given: list[Tensor], made: Tensor) -> float:
    """Milliseconds of a roofline of 10 TFLOP/s and 110 GB/s, up to 4 % more by the operator's shapes."""
    if node.op in FREE:
        return 0.0
    key = repr((node.op, node.attrs, [each.shape for each in given]))
    spread = 1 + zlib.crc32(key.encode()) % 1000 / 25_000
    if node.op in ("concat", "concats"):
        return round(3e-5 * spread**8, 6)  # What Tensat has measured, whatever the size.
    size = math.prod(made.shape)
    moved = 4 * (size + sum(math.prod(each.shape) for each in given)) / 1.1e8
    work = 0.0
    if node.op == "conv":
        work = 2 * size * math.prod(given[1].shape[1:]) / 1e10 * (1.0 if node.attrs[2] == 0 else 0.99)
    if node.op == "matmul":
        work = 2 * size * given[0].shape[-1] / 1e10
    return round((0.003 + max(moved, work)) * spread, 6)


@dataclass
class Saturation:
    """An e-graph of tensors: congruence by hashing, a tensor for each class."""

    parent: list[int] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    memo: dict[ENode, int] = field(default_factory=dict)
    by_op: dict[str, dict[int, list[ENode]]] = field(default_factory=dict)

    def find(self, owner: int) -> int:
        while self.parent[owner] != owner:
            self.parent[owner] = owner = self.parent[self.parent[owner]]
        return owner

    def add(self, op: str, attrs: tuple[int, ...], children: tuple[int, ...]) -> int | None:
        """The class of a node, which is made if it is new; None where the operator cannot be applied."""
        node = ENode(op, attrs, tuple(self.find(child) for child in children))
        if node in self.memo:
            return self.find(self.memo[node])
        tensor = infer(op, attrs, [self.tensors[child] for child in node.children])
        if tensor is None:
            return None
        owner = len(self.parent)
        self.parent.append(owner)
        self.tensors.append(tensor)
        self.memo[node] = owner
        return owner

    def shape(self, owner: int) -> tuple[int, ...]:
        return self.tensors[self.find(owner)].shape

    def merge(self, one: int, other: int) -> None:
        one, other = sorted((self.find(one), self.find(other)))
        self.parent[other] = one

    def rebuild(self) -> None:
        """Makes equal what has equal operands, and lists the nodes of each class by operator."""
        changed = True
        while changed:
            changed = False
            memo: dict[ENode, int] = {}
            for node, owner in self.memo.items():
                same = node._replace(children=tuple(self.find(child) for child in node.children))
                if same in memo and self.find(memo[same]) != self.find(owner):
                    self.merge(memo[same], owner)
                    changed = True
                memo.setdefault(same, owner)
            self.memo = memo
        self.by_op = {}
        for node, owner in self.memo.items():
            self.by_op.setdefault(node.op, {}).setdefault(self.find(owner), []).append(node)

    def matches(self, pattern: Pattern, owner: int, binding: Binding) -> Iterator[Binding]:
        """The ways in which a class matches a pattern, given what is bound."""
        if isinstance(pattern, str):
            if binding.setdefault(pattern, owner) == owner:
                yield binding
            return
        attrs, inner = _parts(pattern)
        for node in self.by_op.get(pattern[0], {}).get(owner, ()):
            bound, fits = dict(binding), True
            for name, value in zip(attrs, node.attrs, strict=True):
                # Attributes that are variables stand beside classes, in the dark below zero.
                known = bound.setdefault(name, ~value) if isinstance(name, str) else ~name
                fits = fits and known == ~value
            if fits:
                yield from self._all(inner, node.children, bound)

    def _all(self, parts: tuple[Pattern, ...], children: tuple[int, ...], binding: Binding) -> Iterator[Binding]:
        if not parts:
            yield binding
            return
        for bound in self.matches(parts[0], children[0], dict(binding)):
            yield from self._all(parts[1:], children[1:], bound)

    def everywhere(self, pattern: Pattern) -> list[tuple[int, Binding]]:
        owners = self.by_op.get(pattern[0], {})
        return [(owner, binding) for owner in owners for binding in self.matches(pattern, owner, {})]

    def kind(self, pattern: Pattern, binding: Binding) -> Tensor | None:
        """What a pattern would make; None where some operator of it cannot be applied."""
        if isinstance(pattern, str):
            return self.tensors[self.find(binding[pattern])]
        attrs, inner = _parts(pattern)
        given = [kind for kind in (self.kind(part, binding) for part in inner) if kind is not None]
        return infer(pattern[0], _values(attrs, binding), given) if len(given) == len(inner) else None

    def build(self, pattern: Pattern, binding: Binding) -> int | None:
        """The class of what a pattern makes; None, and nothing is made, where some operator cannot be applied."""
        return None if self.kind(pattern, binding) is None else self._built(pattern, binding)

    def _built(self, pattern: Pattern, binding: Binding) -> int:
        if isinstance(pattern, str):
            return self.find(binding[pattern])
        attrs, inner = _parts(pattern)
        made = self.add(pattern[0], _values(attrs, binding), tuple(self._built(part, binding) for part in inner))
        if made is None:
            raise ValueError(f"{pattern} cannot be built")
        return made

    def apply(self, matches: list[tuple[int, Binding]], right: Pattern) -> None:
        """Merges what has matched with what a pattern makes of it."""
        for owner, binding in matches:
            made = self.build(right, binding)
            if made is not None:
                self.merge(owner, made)

    def pairs(self, rule: Pair) -> None:
        """Merges each two matches that agree in what both name, and cuts the result along an axis."""
        shared = sorted(_names(rule.left) & _names(rule.other))
        groups: dict[tuple[int, ...], list[tuple[int, Binding]]] = {}
        for owner, binding in self.everywhere(rule.other):
            groups.setdefault(tuple(binding[name] for name in shared), []).append((owner, binding))
        for owner, binding in self.everywhere(rule.left):
            for partner, theirs in groups.get(tuple(binding[name] for name in shared), ()):
                if owner == partner or (owner > partner and not rule.ordered):
                    continue
                made = self.build(("split", rule.axis, rule.joined), binding | theirs)
                halves = [] if made is None else [self.add(half, (), (made,)) for half in ("split0", "split1")]
                for mine, half in zip((owner, partner), halves, strict=False):
                    if half is not None:
                        self.merge(mine, half)


def _parts(pattern: Pattern) -> tuple[tuple[Any, ...], tuple[Pattern, ...]]:
    first = len(pattern) - ARITY.get(pattern[0], 1)
    return pattern[1:first], pattern[first:]


def _values(attrs: tuple[Any, ...], binding: Binding) -> tuple[int, ...]:
    return tuple(~binding[name] if isinstance(name, str) else name for name in attrs)


def _names(pattern: Pattern) -> set[str]:
    if not isinstance(pattern, tuple):
        return {pattern} if isinstance(pattern, str) else set()
    return set[str]().union(*map(_names, pattern[1:]))


def saturated(network: Callable[[Any], int], rounds: int, nodes: int, iterations: int = 15) -> tuple[Saturation, int]:
    """A network's e-graph and its root, after so many rounds of pairs and iterations of single rules.

    As in egg, a rule that has too many matches rests for some iterations, and may have twice as many the next time;
    more nodes than the limit end it after the rule that made them, pairs are made in any number.
    """
    graph = Saturation()
    root = network(graph)
    graph.rebuild()
    rests: dict[int, int] = {}
    rested: dict[int, int] = {}
    rules = tensat_rules.single()
    for iteration in range(iterations):
        before = len(graph.memo)
        if iteration < rounds:
            for pair in tensat_rules.pairs():
                graph.pairs(pair)
            graph.rebuild()
        found = []
        for number, (left, right) in enumerate(rules):
            if iteration < rests.get(number, 0):
                continue
            matches = graph.everywhere(left)
            times = rested.get(number, 0)
            if len(matches) > _MATCHES << times:
                rests[number], rested[number] = iteration + (_REST << times), times + 1
                continue
            found.append((matches, right))
        for matches, right in found:
            if len(graph.memo) > nodes:
                break
            graph.apply(matches, right)
        graph.rebuild()
        if len(graph.memo) > nodes or (len(graph.memo) == before and iteration >= max(rests.values(), default=0)):
            break
    return graph, graph.find(root)


def document(graph: Saturation, root: int) -> dict[str, Any]:
    """The e-graph in the form of egraph-serialize; attributes are nodes, as in Tensat."""
    count: dict[int, int] = {}
    names: dict[int, str] = {}
    listed = []
    for node, owner in graph.memo.items():
        at = graph.find(owner)
        name = f"{at}__{count.get(at, 0)}"
        count[at] = count.get(at, 0) + 1
        names.setdefault(at, name)
        listed.append((name, at, node))
    nodes: dict[str, Any] = {}
    for name, at, node in listed:
        given = [graph.tensors[child] for child in node.children]
        attrs = [] if node.op in ("input", "weight", "reshape", "transpose") else node.attrs
        for value in attrs:
            nodes[f"n{value}__0"] = {"op": f"Num({value})", "cost": 0.0, "eclass": f"n{value}", "children": []}
        if node.op in ("input", "weight"):
            nodes[f"v{at}__0"] = {"op": f"Var({node.attrs[0]})", "cost": 0.0, "eclass": f"v{at}", "children": []}
        own = [f"v{at}__0"] if node.op in ("input", "weight") else []
        operands = [*own, *(f"n{value}__0" for value in attrs), *(names[child] for child in node.children)]
        price = cost(node, given, graph.tensors[at] if node.op != "split" else given[0])
        nodes[name] = {"op": node.op, "cost": price, "eclass": str(at), "children": operands}
    return {"nodes": nodes, "root_eclasses": [str(root)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("network", choices=sorted(tensat_networks.NETWORKS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    graph, root = saturated(tensat_networks.NETWORKS[options.network], options.rounds, options.nodes)
    written = document(graph, root)
    options.output.write_text(json.dumps(written))
    classes = len({node["eclass"] for node in written["nodes"].values()})
    print(f"{options.network}: {len(written['nodes'])} nodes, {classes} classes")


if __name__ == "__main__":
    main()
