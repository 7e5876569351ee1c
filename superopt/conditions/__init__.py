"""The named functions that rules may call: importing this module registers all of them in ``values.FUNCTIONS``.

Predicates answer conditions, attribute functions compute attributes, tensor functions make constants. Each is plain
Python with one implementation for the e-graph and for the laws, and is conservative: what cannot be shown for every
value of the symbols is false, or raises ``Unknown``, and the rule does not apply.
"""

from __future__ import annotations

from superopt.conditions import (
    blocks,
    broadcasting,
    contents,
    convolution,
    einsum,
    folding,
    indexing,
    movement,
    selection,
    spectrum,
    taso,
    types,
)
from superopt.values import FUNCTIONS, RuleFunction

THEMES = (
    types,
    broadcasting,
    contents,
    convolution,
    movement,
    taso,
    selection,
    indexing,
    spectrum,
    einsum,
    folding,
    blocks,
)
"""The modules that hold the functions, by theme."""


def function(name: str) -> RuleFunction | None:
    """The registered function of this name, or None."""
    return FUNCTIONS.get(name)
