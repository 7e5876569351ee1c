"""The search of a model before any rule: its graph as terms, with what is constant settled."""

from __future__ import annotations

from superopt.lowering.lower import Lowered, lower
from superopt.models.model import Model
from superopt.numeric import bits_of_packing, settle
from superopt.options import Options
from superopt.prepare import prepared
from superopt.progress import Clock
from superopt.search.candidates import Search
from superopt.terms import TermGraph


def opened(original: Model, options: Options, clock: Clock, deadline: float | None = None) -> Search:
    """The search of a model's main graph, in which no symbolic dimension has a size yet.

    Raises ModelError on a graph that is broken.
    """
    with clock.stage("lower"):
        model, ahead = prepared(original)
        return of_graph(model, options, clock, original=original, ahead=ahead, deadline=deadline)


def of_graph(
    start: Model, options: Options, clock: Clock, *, original: Model, ahead: bool, place: str = "",
    deadline: float | None = None,
) -> Search:  # fmt: skip
    """The search of the graph of a model as it stands: of a main graph, or of the body at a ``place``, whose
    initializers are none of the model's inputs."""
    lowered = lower(start, options.initializers_are_constant and not place)
    graph = constants_settled(lowered, options)
    return Search(original, lowered, graph, options, clock, {}, deadline, ahead, place)


def constants_settled(lowered: Lowered, options: Options) -> TermGraph:
    """A model's graph with what is constant as constants; but for what packing changes, where bits must stay."""
    kept = bits_of_packing(lowered.graph) if options.numeric == "exact" else frozenset()
    return settle(lowered.graph, context=lowered.model.proto, kept=kept)
