"""Models drawn at random from what the rules make of a network: all compute the same, in different ways.

The network's e-graph is saturated by the shipped rules, and each draw extracts the cheapest model by prices that are
drawn, not asked from any cost model: exp(s (u + v)) for an e-node, where u is a normal number of its operator (with the
number of groups, the one attribute that makes another operator of a convolution) and v one of its own, both new in
every draw. What a draw prefers by the operator it prefers all over the network, so that draws lie far apart; choices
that are independent of each other would add up to about the same time in all of them. The strength s takes the values
of ``STRENGTHS`` in turn: weak ones give nearly the fewest nodes, strong ones anything. A draw that has been made
before, that cannot be made, or that is larger than ``MOST_GROWTH`` allows is left out, whatever it would cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks import models
from benchmarks.network import FULL, TINY
from superopt.cost import CostModel
from superopt.emitting.correspondence import same_values
from superopt.emitting.emit import emit
from superopt.engine.saturate import Limits, saturate
from superopt.errors import SuperoptError
from superopt.extraction import Extractor
from superopt.extraction.pricing import Priced
from superopt.lowering.lower import lower
from superopt.models.byte_counts import model_bytes
from superopt.models.model import Model
from superopt.models.model import load as load_model
from superopt.numeric import materialize, settle
from superopt.rule_text import load as load_rules
from superopt.terms import TermGraph

MOST_NODES = 5_000
"""E-nodes at which saturation ends: enough to draw from."""

MOST_GROWTH = 3.0
"""Draws that take more bytes than this many times the original are not run."""

STRENGTHS = (0.25, 0.5, 1.0, 2.0)
"""By how much the logarithms of drawn prices deviate, in turn."""

_TRIES = 4
"""How many draws are made at most for each model that is wanted."""


@dataclass(frozen=True)
class Variant:
    """A model that computes what the original does, and its graph."""

    model: Model
    graph: TermGraph


@dataclass(frozen=True)
class Draw(Extractor):
    """Extracts by drawn prices: from a seed, of a strength; constants are evaluated."""

    seed: int = 0
    strength: float = 1.0

    @cached_property
    def priced(self) -> Priced:
        whole = super().priced.apart
        random = np.random.default_rng(self.seed)
        problem = whole.problem
        kinds = [None if node is None else (node.op, node.attrs.get("group", 1)) for node in whole.node]
        by_kind = dict.fromkeys(kind for kind in kinds if kind is not None)
        liking = dict(zip(by_kind, random.normal(size=len(by_kind)).tolist(), strict=True))
        own = random.normal(size=len(kinds)).tolist()
        # A constant is a leaf, or a node that is left to run: only the leaf is wanted.
        costs = [
            0.0 if kind is None else float(np.exp(self.strength * (liking[kind] + mine)))
            for kind, mine in zip(kinds, own, strict=True)
        ]
        return replace(whole, problem=replace(problem, costs=costs, preferred=[False] * len(costs)))


def drawn(
    network: str, count: int, seed: int, *, tiny: bool, nodes: int = MOST_NODES
) -> tuple[Model, list[Variant], int]:
    """The original, and so many different variants of it, the original among them; and how many draws were left out
    since they could not be made or were too large."""
    original = load_model(models.build(network, size=TINY if tiny else FULL))
    lowered = lower(original)
    graph = settle(lowered.graph, context=original.proto)
    rules = load_rules("default").of_class("reassociates") + load_rules("merges").of_class("reassociates")
    egraph = saturate(graph, rules, Limits(nodes=nodes), original.opset).egraph
    found = {graph.text(): Variant(original, graph)}
    left_out = 0
    for number in range(_TRIES * count):
        if len(found) > count:
            break
        strength = STRENGTHS[number % len(STRENGTHS)]
        unpriced = CostModel("random", "none", reorder_byte=1.0)  # of no effect without blocks: prices are drawn
        drawer = Draw(egraph, unpriced, seed=1000 * seed + number, strength=strength)
        try:
            draw = drawer.extract(effort=0.02)
            made = materialize(draw.graph, draw.runtime, original.proto)
            if made.text() not in found:
                same = same_values(lowered.graph, graph, egraph.class_of, draw.graph, draw.classes, made)
                variant = Variant(emit(lowered, made, same), made)
                if model_bytes(variant.model) <= MOST_GROWTH * model_bytes(original):
                    found[made.text()] = variant
                    continue
        except SuperoptError:
            pass  # a draw that cannot be made is not one that a cost model is asked about
        left_out += 1
    return original, list(found.values()), left_out
