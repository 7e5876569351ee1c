"""Kinds of operands that a wrong rule may be wrong for alone, and that are hardly ever drawn at will: of each operator
of a left side that has such, every kind takes its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from superopt.operators import named
from superopt.rules import Apply, Var

VECTOR_BEFORE, VECTOR_BEHIND, VECTORS = "vector before", "vector behind", "vectors"
REMAINDER, OVERHANG, GAPS, ASKEW = "remainder", "overhang", "gaps", "askew"
STEPS, GROWN, SOLE, SEVERAL = "steps", "grown", "sole", "several"
EVEN, ROOT = "even", "root"
CROP, GROW = "crop", "grow"
ALONG, SMALLER, RAISED = "along", "smaller", "raised"
COPIED, BEYOND, SHORT, LEADING = "copied", "beyond", "short", "leading"
STRIDED, LOWER = "strided", "lower"
OTHERS, SINGLE = "others", "single"
ACROSS, VAST = "across", "vast"

KINDS: Mapping[str, tuple[str, ...]] = {
    "MatMul": (VECTORS, VECTOR_BEHIND, VECTOR_BEFORE),
    # Elements behind the last window, a last window that is not full, and windows between whose taps there is space,
    # along all axes or along one that alone has several taps.
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), (ASKEW, REMAINDER, OVERHANG, GAPS)),
    # Steps of windows that are in all else the plainest, sizes that are grown behind the last step, and one place alone
    # where other windows have more.
    "Conv": (ASKEW, STEPS, GAPS),
    "ConvTranspose": (SOLE, GROWN, ASKEW, GAPS),
    # Pads below zero take away.
    "Pad": (CROP,),
    # Single elements of a higher rank than what they meet, operands that vary along one axis alone, and axes along
    # which no operand varies but one that an operator makes.
    **dict.fromkeys(named(lambda form: form.shaped == "broadcast"), (RAISED, ALONG, SMALLER)),
    # Exponents that lose the sign of a number, or have no value for it.
    "Pow": (EVEN, ROOT),
    # Shapes that copy sizes, ends behind the last element, and elements that are left out between others.
    "Reshape": (COPIED,),
    "Slice": (BEYOND, STRIDED),
    # A shape of a lower rank than what it is to fit.
    "Expand": (LOWER,),
    # Axes that change places before others that do not.
    "Transpose": (LEADING,),
    # Axes of one element beside those that are taken away.
    "Squeeze": (OTHERS,),
    # Scales that vary along another axis than the last, which is as long.
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), (ACROSS,)),
    # So many numbers that vectors are converted, and what is left of these otherwise where the type has no such number.
    "Cast": (VAST,),
}
"""The kinds of each operator that has some."""

_OPPOSITE = {
    (CROP, "Pad"): GROW, (BEYOND, "Slice"): SHORT, (OTHERS, "Unsqueeze"): SINGLE, (SOLE, "ConvTranspose"): SEVERAL,
}  # fmt: skip

_EXPONENTS: Mapping[str, float] = {EVEN: 2.0, ROOT: 0.5}
_BASES = (-2.0, 3.0, -0.5, 0.25)

_TIMES = 3
"""Of how many instances a kind is wanted."""
_PATIENCE = 4
"""A kind is given up that was tried as often as makes so many instances of no kind: conditions exclude it."""


@dataclass(frozen=True)
class Turn:
    """The ``place``-th operator of those of a left side that have kinds (the outermost first), and a kind of it."""

    place: int
    kind: str
    missing: int = _TIMES
    tries: int = 0

    def site(self, applied: Sequence[Apply]) -> Apply | None:
        """This operator among those that a left side applies; None where its stars stand for so few."""
        special = _special(applied)
        return special[self.place] if self.place < len(special) else None


@dataclass
class Turns:
    """Whose turn it is; ``others`` is how many instances of no kind were tried, ``made`` how many of these came to
    something. Where ``forever``, what came to something gets a turn again."""

    forever: bool
    waiting: deque[Turn] = field(default_factory=deque)
    others: int = 0
    made: int = 0

    @staticmethod
    def of(applied: Sequence[Apply], *, forever: bool) -> Turns:
        """The turns of the operators that a left side applies."""
        turns = [Turn(place, kind) for place, part in enumerate(_special(applied)) for kind in KINDS[part.op]]
        return Turns(forever, deque(turns))

    def next(self, number: int) -> Turn | None:
        """Whose turn it is at an attempt: at two of three it is nobody's, and sometimes at the third, lest a kind
        always meets what else goes by the number of the attempt."""
        return self.waiting[0] if self.waiting and number % 3 == 1 and number % 7 != 1 else None

    def taken(self, turn: Turn | None, made: bool) -> None:
        """One has had its turn, or nobody had; it came to an instance or did not."""
        if turn is None:
            self.others += 1
            self.made += made
            return
        self.waiting.popleft()
        after = replace(turn, missing=turn.missing - made, tries=turn.tries + 1)
        hoped_for = after.tries * self.made < _PATIENCE * self.others
        if (hoped_for and after.missing > 0) or (self.forever and (hoped_for or after.missing < _TIMES)):
            self.waiting.append(after)


def kind_at(site: Apply | None, kind: str | None, pattern: Apply) -> str | None:
    """The kind that an operator is to be of where the one at ``site`` is of this kind: what one Pad takes away another
    adds, where one Slice ends behind the last element another leaves some, and of two windows one has several taps."""
    if kind is None or pattern is site:
        return kind
    return _OPPOSITE.get((kind, pattern.op))


def numbers_of(pattern: Apply, kind: str, *, here: bool) -> dict[str, tuple[float, ...]]:
    """The numbers that the variables of an operator hold by turns if it is ``here`` that this kind is wanted, or at
    another operator of its name: powers of numbers of both signs are even here and roots there, or the other way."""
    if pattern.op != "Pow" or kind not in _EXPONENTS:
        return {}
    exponent = _EXPONENTS[kind] if here else next(value for name, value in _EXPONENTS.items() if name != kind)
    return {
        part.name: numbers
        for part, numbers in zip(pattern.args, (_BASES, (exponent,)), strict=True)
        if isinstance(part, Var)
    }


def _special(applied: Sequence[Apply]) -> list[Apply]:
    return [part for part in applied if part.op in KINDS]
