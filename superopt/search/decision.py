"""Who wins by the clock: from latencies and prices to a verdict for each candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from superopt.measure import LOOK_ALPHA, Latencies

MARGIN = 0.02
"""How much slower than the original a candidate must be shown not to be, for measuring to end before its time."""

DOUBT = 0.2
"""The p-value of being hardly slower (by half of ``MARGIN``) below which a candidate that the clock cannot place is in
doubt: it is easier to leave out than with confidence."""

Standing = Literal["slower", "fast enough", "within the noise", "doubtful"]
"""How a candidate stands against the original: slower with confidence; with confidence not slower by ``MARGIN``; or, in
the noise, neither, or rather slower."""

TEST = (
    f"one-sided sign test on paired rounds; out: slower beyond the tolerance, p < {LOOK_ALPHA:.4f} a look, or neither "
    f"that nor shown not to be slower by {MARGIN:.0%}, and slower by {MARGIN / 2:.0%} with p < {DOUBT}"
)
"""The rule in words, for the report."""


@dataclass(frozen=True)
class Decision:
    """The winner's place among the latencies, 0 for the original; how each candidate stands, by place; and whether
    more rounds could change it."""

    best: int
    standing: Mapping[int, Standing]
    settled: bool


def decide(latencies: Latencies, prices: Mapping[int, float]) -> Decision:
    """Who wins among the candidates; place 0 is the original, ``prices`` are by the places of the others.

    Out is a candidate that is slower than the original with confidence (the sign test of ``measure``, beyond the
    latencies' tolerance), and one in doubt: neither that, nor shown not to be slower by ``MARGIN``, and rather slower
    by more than half of that. Of the rest the fastest wins; those that it does not beat with confidence are its equals,
    of which the cheapest wins. The original wins when all are out.
    """
    standing = {place: _standing(latencies, place) for place in prices}
    left = [place for place, how in standing.items() if how in ("fast enough", "within the noise")]
    settled = all(how in ("slower", "fast enough") for how in standing.values())
    if not left:
        return Decision(0, standing, settled)
    ratio = {place: latencies.compare(place, 0).ratio for place in left}
    fastest = min(left, key=lambda place: (ratio[place], prices[place], place))
    margin = max(MARGIN, latencies.tolerance)
    equals = [fastest]
    for place in left:
        if place == fastest or latencies.slower(place, fastest):
            continue
        settled = settled and latencies.below(place, fastest, 1 + margin) < LOOK_ALPHA
        equals.append(place)
    best = min(equals, key=lambda place: (prices[place], ratio[place], place))
    return Decision(best, standing, settled)


def _standing(latencies: Latencies, place: int) -> Standing:
    if latencies.slower(place, 0):
        return "slower"
    margin = max(MARGIN, latencies.tolerance)
    if latencies.below(place, 0, 1 + margin) < LOOK_ALPHA:
        return "fast enough"
    hardly = max(MARGIN / 2, latencies.tolerance)
    return "doubtful" if latencies.above(place, 0, 1 + hardly) < DOUBT else "within the noise"
