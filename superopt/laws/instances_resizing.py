"""Proposals for Resize: the type of its argument, and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from superopt.laws.instances_dice import Dice, Proposal, Request
from superopt.terms import AttrValue

_COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")


def _resize(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0)
    if x is None:
        hint = request.hinted
        x = (*hint[:2], *(dice.between(1, 5) for _ in hint[2:])) if hint is not None else dice.shape(4, 4)
    enlarged = [dice.pick((0.5, 1.0, 1.5, 2.0, 3.0)) for _ in x[2:]]
    channels = [1.0, 1.0] if dice.chance(0.8) else [1.0, dice.pick((1.0, 2.0))]
    scales = tuple(float(scale) for scale in (*channels, *enlarged))[: len(x)]
    sizes: tuple[int, ...] = ()
    if dice.chance(0.4):
        sizes = tuple(max(1, int(size * scale)) for size, scale in zip(x, scales, strict=True))
        scales = ()
    attrs: dict[str, AttrValue] = {
        "scales": scales,
        "sizes": sizes,
        "mode": dice.pick(("nearest", "linear", "cubic")),
        "coordinate_transformation_mode": dice.pick(_COORDINATES),
        "nearest_mode": dice.pick(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
        "cubic_coeff_a": dice.pick((-0.75, -0.5, -0.625)),
    }
    return Proposal([x], attrs)


RESIZING: Mapping[str, Callable[[Request, Dice], Proposal]] = {"Resize": _resize}
"""What proposes the arguments and attributes of an operator, by its name."""
