"""The search of a model before any rule: its graph as terms, with what is constant settled."""

from __future__ import annotations

from superopt.lowering.lower import lower
from superopt.models.model import Model
from superopt.numeric import settle
from superopt.options import Options
from superopt.prepare import prepared
from superopt.progress import Clock
from superopt.search.candidates import Search


def opened(original: Model, options: Options, clock: Clock, deadline: float | None = None) -> Search:
    """The search of a model's main graph, in which no symbolic dimension has a size yet.

    Raises ModelError on a graph that is broken.
    """
    with clock.stage("lower"):
        model, ahead = prepared(original)
        lowered = lower(model, options.initializers_are_constant)
        graph = settle(lowered.graph, context=model.proto)
    return Search(original, lowered, graph, options, clock, {}, deadline, ahead)
