"""From the main graph into the bodies: each is searched like the graph around it, under the same rules."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import onnx

from superopt.bodies.bodies import has_bodies, placed_bodies, put_back, with_bodies
from superopt.bodies.resolve import resolved
from superopt.cost import CostModel
from superopt.engine.saturate import Saturation
from superopt.errors import EvaluationError, VerificationError
from superopt.extraction import Extraction
from superopt.inputs.feeds import Feeds
from superopt.inputs.sample import sample
from superopt.lowering.lower import lower
from superopt.models.byte_counts import model_bytes
from superopt.models.model import Model
from superopt.progress import Clock, Watcher
from superopt.rules import RuleSet
from superopt.search.candidates import BodyRun, Found, Search
from superopt.search.opening import constants_settled
from superopt.terms import CONST, INPUT, OPAQUE, PROJECT
from superopt.verification.verifier import Check, Verifier, bound_of


@dataclass(frozen=True)
class _Known:
    """What is known of a body under some rules. ``check`` tells whether another may stand for it."""

    search: Search
    saturation: Saturation
    check: Check


@dataclass(frozen=True)
class Descent:
    """Finds whole models: a main graph, and the bodies in it.

    What a body becomes is verified by itself: no run of the whole model need come by there. What was once found out
    about a body is kept.
    """

    search: Search
    _known: dict[str, _Known | None] = field(default_factory=dict, init=False, repr=False)

    def choose(self, saturation: Saturation, rules: RuleSet, cost_model: CostModel) -> Found | None:
        """The cheapest model that has grown no more than allowed; None where that is the original."""
        return self._whole(self.search.choose(saturation, cost_model), rules, cost_model)

    def of_extraction(
        self, saturation: Saturation, rules: RuleSet, cost_model: CostModel, extraction: Extraction
    ) -> Found | None:
        """The model of a choice of the main graph's; None where it is the original, or has grown too much."""
        return self._whole(self.search.within_bounds(saturation, cost_model, extraction), rules, cost_model)

    def _whole(self, found: Found | None, rules: RuleSet, cost_model: CostModel) -> Found | None:
        if found is None:
            return None
        if has_bodies(found.model):
            with self.search.clock.stage("bodies"):
                found = self._with_bodies(found, rules, cost_model)
        unchanged = found.model is self.search.lowered.model
        return None if unchanged and not self.search.ahead else found

    def _with_bodies(self, found: Found, rules: RuleSet, cost_model: CostModel) -> Found:
        for may_grow in (True, False):
            runs: list[BodyRun] = []

            def improve(
                body: Model, place: onnx.GraphProto, way: str, runs: list[BodyRun] = runs, may_grow: bool = may_grow
            ) -> Model:
                run = self._run(body, way, rules, cost_model)
                if run is None:
                    return body
                better = run.better
                if better is not None and not may_grow and put_back(place, better).ByteSize() > place.ByteSize():
                    run, better = replace(run, found=None), None
                runs.append(run)
                return better or body

            model = with_bodies(found.model, improve)
            if model is found.model:
                return replace(found, bodies=tuple(runs))
            size = model_bytes(model)
            if self.search.fits(model, size):
                return replace(found, model=model, bytes=size, bodies=tuple(runs))
        return found

    def _run(self, body: Model, way: str, rules: RuleSet, cost_model: CostModel) -> BodyRun | None:
        key = f"{rules.hash} {_content(body)}"
        if key not in self._known:
            self._known[key] = self._saturated(body, rules)
        known = self._known[key]
        if known is None:
            return None
        # The same body may stand in several places.
        search = replace(known.search, place=way)
        run = BodyRun(search, known.saturation, search.choose(known.saturation, cost_model))
        if run.better is None:
            return run
        verdict = known.check(run.better)
        if not verdict.conclusive:
            return replace(run, found=None)
        if not verdict.agree:
            raise VerificationError(f"the body {body.proto.graph.name!r}: {verdict.reason}")
        return run

    def searches(self, feeds: Feeds) -> Iterator[tuple[Search, Feeds]]:
        """The search of the main graph, with inputs of it, and that of each body in which a rule may find something,
        with its own."""
        yield self.search, feeds
        for way, body in placed_bodies(self.search.lowered.model):
            found = self._searched(body)
            if found is not None:
                yield replace(found[0], place=way), found[1]

    def _saturated(self, body: Model, rules: RuleSet) -> _Known | None:
        """What comes of a body; None as in ``_searched``."""
        found = self._searched(body)
        if found is None:
            return None
        search, feeds = found
        check = Verifier(body, feeds, search.options, search.clock, bound_of(rules))
        return _Known(search, search.saturate(rules), check)

    def _searched(self, body: Model) -> tuple[Search, Feeds] | None:
        """A body's own search and inputs of it; None where there is nothing in it that a rule could be about, or it
        cannot be run."""
        start = resolved(body)
        lowered = lower(start)
        if start is body and all(node.op in (INPUT, CONST, PROJECT, OPAQUE) for node in lowered.graph.nodes):
            return None
        whole, quiet = self.search, Clock(Watcher())
        try:
            feeds = sample(body, seed=whole.options.seed, special=whole.options.numeric == "exact")
        except EvaluationError:
            return None  # What cannot be verified is left alone.
        graph = constants_settled(lowered, whole.options)
        options, sizes, deadline = whole.options, whole.sizes, whole.deadline
        return Search(body, lowered, graph, options, quiet, sizes, deadline, start is not body), feeds


def _content(body: Model) -> str:
    """A hash of all that a body computes with: large constants that it captures are beside its message."""
    digest = hashlib.sha256(body.proto.SerializeToString(deterministic=True))
    for name, constant in sorted(body.held.items()):
        digest.update(f"{name} {constant.key};".encode())
    return digest.hexdigest()


def saturations(saturation: Saturation, found: Found | None) -> Iterator[Saturation]:
    """Those of a whole model: of its main graph and, where one was found, of the bodies in it."""
    yield saturation
    if found is not None:
        yield from (run.saturation for run in found.bodies)
