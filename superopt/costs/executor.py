"""What runs models, as timing sees it: one implementation a runtime.

``superopt.costs.timing`` has the list of them; another runtime is another module like ``in_openvino`` and an entry
there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol, TypeAlias

import onnx

from superopt.costs.instances import OperatorInstance
from superopt.costs.replicas import replicated
from superopt.costs.sampling import samples, seconds_of
from superopt.evaluate import Feed

OPENVINO = "OpenVINO"
"""OpenVINO through its own package; onnxruntime's provider of it is ``OpenVINOExecutionProvider``."""

Call: TypeAlias = Callable[[], None]
"""One run of a model that is loaded; its outputs stay where the runtime made them."""

TimeSource: TypeAlias = Callable[[], float]


@dataclass(frozen=True)
class Prepared:
    """A model to be timed, its inputs, and whether the runtime has yet to optimize it. ``apart`` says that the runtime
    makes one of operators that are alike and read the same, so that replicas need inputs of their own."""

    proto: onnx.ModelProto
    feed: Feed
    to_optimize: bool
    apart: bool = False

    def times(self, count: int) -> Prepared:
        """So many replicas of it side by side; they read the same memory, whatever it is called."""
        made = replicated(self.proto, count, apart=self.apart)
        if not self.apart:
            return replace(self, proto=made)
        feed = {f"{name}@{number}": array for name, array in self.feed.items() for number in range(count)}
        return replace(self, proto=made, feed=feed)


@dataclass(frozen=True)
class Ends:
    """What there is at a graph's ends for the ends alone, and between operators is not: ``seconds`` for handing inputs
    and outputs over, and of the rest the ``share`` that conversions of layout and type take. ``most`` is what the
    operators take by themselves where that is known to be less: a view whose result is copied, to be handed over."""

    seconds: float = 0.0
    share: float = 0.0
    most: float = math.inf

    def without(self, taken: float) -> float:
        """Of the seconds that a replica takes, those of its operators."""
        return min(self.most, (1 - self.share) * (taken - self.seconds))


class Executor(Protocol):
    """A runtime, with its provider and threads. What ``prepared`` and ``load`` raise where it cannot run something is
    the runtime's own."""

    @property
    def version(self) -> str:
        """The runtime's name and version: timings of others do not count."""

    @property
    def clock(self) -> TimeSource:
        """The clock that tells best what a run takes, in seconds."""

    def check(self) -> None:
        """Raises OptionError where it is not there."""

    def channels_of_a_block(self) -> int:
        """How many channels a block has of the layout whose conversions ``costs.layout`` finds: 0 where there is no
        such layout."""

    def prepared(self, instance: OperatorInstance) -> Prepared:
        """The model to time an instance in. Raises EvaluationError where it cannot be written."""

    def load(self, prepared: Prepared) -> Call:
        """A model, loaded and run once. A runtime that cannot leave it as it is optimizes it in any case."""

    def ends(self, prepared: Prepared) -> Ends:
        """What of the time of a replica of a model is for the graph's ends."""


_ADDED = 32


def added_by(executor: Executor, prepared: Prepared) -> float:
    """The seconds that a replica of a small model adds to a run."""
    one, many = (executor.load(prepared.times(count)) for count in (1, 1 + _ADDED))
    clock = executor.clock
    return max(0.0, median(samples(lambda: seconds_of(many, clock) - seconds_of(one, clock))) / _ADDED)
