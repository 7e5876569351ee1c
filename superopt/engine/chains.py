"""Chains of scales and shifts by constants: taken together from end to end, as one scale and one shift.

A chain of n has n * (n - 1) / 2 parts, and rules that join two neighbours make all of them. So a chain is looked at as
a whole, between steps, and only the whole is written anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from superopt.engine.addends import uses_of
from superopt.engine.eclasses import EGraph, ENode
from superopt.errors import InferenceError
from superopt.shapes import infer, join
from superopt.terms import Attrs, Node, TensorType, ValueType

LINKS = frozenset({"Add", "Mul"})
LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that take scales and shifts up themselves: a chain ends there."""


@dataclass(frozen=True)
class Link:
    """A scale or a shift: the operator, the class of what it is of, and that of its constant."""

    op: str
    of: int
    constant: int


@dataclass(frozen=True)
class Chain:
    """A class, the class at the far end, and a scale and a shift of it that make the class; either may be missing.

    ``nodes`` are those of the constants, whose arguments are classes, or (from ``len(classes)`` on) earlier nodes.
    """

    root: int
    end: int
    nodes: tuple[Node, ...]
    types: tuple[ValueType, ...]
    scale: int | None
    shift: int | None


def joined_chains(egraph: EGraph) -> list[Chain]:
    """Every chain of the model that is longer than a scale and a shift, once: from where something else uses it, to
    where it begins or is used by something else as well."""
    links = [_link(egraph, number) for number in range(len(egraph.classes))]
    if not any(link is not None and links[link.of] is not None for link in links):
        return []
    uses = uses_of(egraph)
    found: list[Chain] = []
    for number, link in enumerate(links):
        own = any(node.original is not None for node in egraph.classes[number].nodes)
        if link is None or not own or _goes_on(links, uses, number):
            continue
        chain, seen = [link], {number, link.of}
        while (below := links[chain[-1].of]) is not None and len(uses[chain[-1].of]) <= 1 and below.of not in seen:
            chain.append(below)
            seen.add(below.of)
        joined = _joined(egraph, number, chain[::-1])
        if joined is not None and not _is_there(egraph, joined):
            found.append(joined)
    return found


def _link(egraph: EGraph, number: int) -> Link | None:
    """The last link of the chain that a class is, by the model's own node if there is one."""
    eclass = egraph.classes[number]
    if not any(node.op in LINKS for node in eclass.nodes):
        return None
    if eclass.constant or not isinstance(eclass.type, TensorType) or any(node.op in LAYERS for node in eclass.nodes):
        return None
    links = [(node, link) for node in eclass.nodes if (link := link_of(egraph, number, node)) is not None]
    own = [link for node, link in links if node.original is not None]
    return own[0] if own else links[0][1] if links else None


def link_of(egraph: EGraph, number: int, node: ENode) -> Link | None:
    """A node of a class as a link of a chain; None where it is none."""
    if node.op not in LINKS:
        return None
    left, right = node.children
    if egraph.classes[left].constant == egraph.classes[right].constant or number in node.children:
        return None
    return Link(node.op, right, left) if egraph.classes[left].constant else Link(node.op, left, right)


def _goes_on(links: list[Link | None], uses: list[set[int]], number: int) -> bool:
    """Whether the only user of a class is the next link of its chain."""
    if len(uses[number]) != 1:
        return False
    (user,) = uses[number]
    above = links[user] if user >= 0 else None
    return above is not None and above.of == number


def _joined(egraph: EGraph, root: int, chain: list[Link]) -> Chain | None:
    """As much of a chain, from its last link back, as constants that broadcast can take up without growing; None where
    that is no less than what there is."""
    for start in range(len(chain) - 1):
        made = composed(egraph, root, chain[start:])
        if made is not None:
            return made
        # The constants of this link stand for more than the others': the chain begins after it.
    return None


def composed(egraph: EGraph, root: int, chain: list[Link]) -> Chain | None:
    """A chain, from its first link to its last, as one scale and one shift; None where it is no longer than that, or
    its constants would grow."""
    ops = [link.op for link in chain]
    if ops in (["Mul"], ["Add"], ["Mul", "Add"]):
        return None
    nodes: list[Node] = []
    types: list[ValueType] = []
    first = len(egraph.classes)

    def kind(term: int) -> ValueType:
        return egraph.classes[term].type if term < first else types[term - first]

    def applied(op: str, one: int, other: int) -> int:
        nodes.append(Node(op, (one, other)))
        types.append(infer(op, Attrs(), [kind(one), kind(other)]))
        if not _no_larger(types[-1], kind(one), kind(other)):
            raise InferenceError("a constant would grow")
        return first + len(nodes) - 1

    scale: int | None = None
    shift: int | None = None
    try:
        for link in chain:
            if link.op == "Add":
                shift = link.constant if shift is None else applied("Add", shift, link.constant)
            else:
                scale = link.constant if scale is None else applied("Mul", scale, link.constant)
                shift = None if shift is None else applied("Mul", shift, link.constant)
        total = kind(chain[0].of)
        for op, term in (("Mul", scale), ("Add", shift)):
            total = total if term is None else infer(op, Attrs(), [total, kind(term)])
        join(egraph.classes[root].type, total)
    except InferenceError:
        return None
    return Chain(root, chain[0].of, tuple(nodes), tuple(types), scale, shift)


def _is_there(egraph: EGraph, chain: Chain) -> bool:
    """Whether the class has a node of the form already, whatever its constants."""
    scaled = {chain.end}
    if chain.scale is not None:
        scaled = {n for n in range(len(egraph.classes)) if _has(egraph, n, "Mul", chain.end)}
    return chain.root in scaled if chain.shift is None else any(_has(egraph, chain.root, "Add", n) for n in scaled)


def _has(egraph: EGraph, number: int, op: str, term: int) -> bool:
    """Whether a class is a scale (or a shift) of a term by a constant."""
    return any(
        node.op == op and term in node.children and any(egraph.classes[child].constant for child in node.children)
        for node in egraph.classes[number].nodes
    )


def _no_larger(made: ValueType, one: ValueType, other: ValueType) -> bool:
    sizes = [kind.size if isinstance(kind, TensorType) else None for kind in (made, one, other)]
    return None not in sizes and sizes[0] == max(size for size in sizes[1:] if size is not None)
