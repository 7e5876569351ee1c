"""Contents for all variables of a draft, such that what conditions read of them is as these want it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from superopt.laws.instances_clues import Clues
from superopt.laws.instances_content import PLAIN_STYLES, READ_STYLES, content, special, tiny, undefined
from superopt.laws.instances_dice import static
from superopt.laws.instances_draft import Draft
from superopt.terms import TensorType

Array = NDArray[np.generic]

Liked: TypeAlias = dict[str, dict[str, None]]
"""By variable the styles in which it was drawn where all conditions held: they ask for some of many."""

TRIES = 12
"""How often contents are drawn for the same types."""


def filled(
    draft: Draft, clues: Clues, liked: Liked, accepted: Callable[[Mapping[str, Array]], bool], *, read: bool
) -> dict[str, Array] | None:
    """Contents whose part that conditions look at (``read``: whether any does) is ``accepted``; None where none of
    several is."""
    looked_at = [name for name in draft.types if _base(name) in clues.read or name in draft.numbers]
    for _ in range(TRIES if read else 1):
        styles: dict[str, str] = {}
        arrays = {name: _content(name, draft.types[name], draft, clues, liked, styles) for name in looked_at}
        if not accepted(arrays):
            continue
        for name, style in styles.items():
            liked.setdefault(_base(name), {})[style] = None
        return {
            name: arrays[name] if name in arrays else _content(name, tensor, draft, clues, liked, {})
            for name, tensor in draft.types.items()
        }
    return None


def _style(draft: Draft, clues: Clues, known: tuple[str, ...]) -> str:
    """A style for a variable of which these are known to be accepted."""
    dice = draft.dice
    if dice.near or (clues.numbers and dice.chance(0.1)):
        return "near"
    # A content that is one number throughout hides what a rule gets wrong: of a kind there are few instances.
    varied = [style for style in (PLAIN_STYLES if draft.kind is not None else known) if style in PLAIN_STYLES]
    if varied and dice.chance(0.4 if draft.kind is None else 0.6):
        return dice.pick(varied)
    return dice.pick(known if known and dice.chance(0.6) else READ_STYLES)


def _base(name: str) -> str:
    """The name of a variable or of the star that it is an element of."""
    return name.partition(".")[0]


def _content(name: str, tensor: TensorType, draft: Draft, clues: Clues, liked: Liked, styles: dict[str, str]) -> Array:
    """The content of one variable; of one that conditions read the style is put down in ``styles``."""
    if name in draft.numbers:
        return np.full(static(tensor) or (), draft.numbers[name], np.dtype(tensor.dtype))
    read = _base(name) in clues.read
    dice = draft.dice
    if name in draft.numbers_of_kind and not (read and dice.chance(0.5)):
        made = np.resize(draft.numbers_of_kind[name], static(tensor) or ())
        return np.asarray(np.abs(made) if tensor.dtype.startswith("u") else made, tensor.dtype)
    if read:
        style = styles[name] = _style(draft, clues, tuple(liked.get(_base(name), ())))
    elif dice.chance(0.06):
        style = dice.pick(("zeros", "ones", "equal", "sparse"))
    else:
        style = dice.pick(PLAIN_STYLES)
    made = content(tensor, style, dice, clues.numbers, draft.bounds.get(name))
    if clues.sorting and dice.chance(0.7):
        return special(made, dice.generator, ())
    if dice.undefined and _base(name) in draft.constant and _has_its_turn(name, draft, clues, 0.5):
        return undefined(made)
    return tiny(made) if dice.tiny and _has_its_turn(name, draft, clues, 0.9) else made


def _has_its_turn(name: str, draft: Draft, clues: Clues, chance: float) -> bool:
    """Whether a variable is to be as special as its draft: by turns every other one of those that no condition looks
    at, as what is wrong may show where the one is and its neighbour is not; and sometimes as it comes."""
    if _base(name) in clues.read:
        return draft.dice.chance(chance)
    if draft.dice.turn > 1:
        return draft.dice.chance(0.5)
    others = [other for other in draft.types if _base(other) not in clues.read]
    return others.index(name) % 2 == draft.dice.turn
