"""What the names of one rule stand for."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from superopt.rules import Expr, Pattern


@dataclass
class Scope:
    """What the names of one rule stand for, gathered while its left side is read from left to right.

    ``bundles`` have the names of the attributes that each of them holds.
    """

    terms: dict[str, None] = field(default_factory=dict)
    stars: dict[str, None] = field(default_factory=dict)
    attributes: dict[str, None] = field(default_factory=dict)
    bundles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lets: dict[str, Pattern | Expr] = field(default_factory=dict)
    numbers: int = 0

    def knows(self, name: str) -> bool:
        return self.kind(name) is not None

    def kind(self, name: str) -> str | None:
        """What a name of the left side stands for, in words; None where the left side has no such name."""
        kinds: dict[str, Container[str]] = {
            "a term": self.terms, "a tuple of terms": self.stars, "an attribute": self.attributes,
            "a bundle of attributes": self.bundles,
        }  # fmt: skip
        return next((kind for kind, names in kinds.items() if name in names), None)
