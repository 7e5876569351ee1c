"""Judges new models against one original."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from superopt.errors import EvaluationError
from superopt.inputs.feeds import Feeds
from superopt.lowering.lower import Lowered
from superopt.models.model import Model
from superopt.options import Options
from superopt.progress import Clock
from superopt.rules import RuleSet
from superopt.verification.evidence import Evidence, chaotic_outputs, gather
from superopt.verification.verify import Verification, verify
from superopt.verification.verify_regions import verify_regions

Check = Callable[[Model], Verification]
"""Tells whether a new model may stand for one that is known to whom is asked."""


@dataclass
class Verifier:
    """Verifies new models; what is to be known of the original is found out once, when it is first asked for.

    ``within`` is the relative error that the rules allow themselves; ``lowered`` is the original as terms, its
    overridable initializers no constants, where that is known.
    """

    original: Model
    feeds: Feeds
    options: Options
    clock: Clock
    within: float = 0.0
    lowered: Lowered | None = None
    _evidence: Evidence | None = field(default=None, init=False)

    def __call__(self, new: Model) -> Verification:
        """Whether a new model may stand for the original.

        Judged by regions where the options ask for it, where the original cannot be run, and where what comes of
        running it is random or chaotic.
        """
        numeric = self.options.numeric
        with self.clock.stage("verify"):
            if self.options.verify == "regions" or not self.feeds.feeds:
                return self._by_regions(new)
            if self._evidence is None:
                try:
                    exact, seed = numeric == "exact", self.options.seed
                    self._evidence = gather(self.original, self.feeds, exact=exact, seed=seed, lowered=self.lowered)
                except EvaluationError as error:
                    return Verification(False, False, f"the original cannot be run: {error}", numeric)
            evidence = self._evidence
            whole = verify(
                self.original,
                new,
                self.feeds,
                numeric,
                ignoring=self.options.ignoring,
                within=self.within,
                seed=self.options.seed,
                evidence=evidence,
            )
            chaotic = chaotic_outputs(evidence)
            unclear = chaotic | evidence.random
            if not unclear or not whole.outputs:
                return whole
            if any(check["problem"] and check["name"] not in chaotic for check in whole.outputs):
                return whole
            parts = self._by_regions(new)
            kind = "chaotic" if chaotic else "random"
            return replace(parts, reason=f"{parts.reason} (outputs are {kind}: {', '.join(sorted(unclear))})")

    def _by_regions(self, new: Model) -> Verification:
        return verify_regions(
            self.original,
            new,
            self.feeds,
            self.options.numeric,
            ignoring=self.options.ignoring,
            within=self.within,
            seed=self.options.seed,
        )


def bound_of(rules: RuleSet) -> float:
    """The relative error that the rules allow themselves: the largest that one of them states."""
    return max((rule.within for rule in rules if rule.within is not None), default=0.0)
