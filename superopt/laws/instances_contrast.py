"""Windows of two layers that differ in one attribute and still come out alike: a rule that forgets to compare this
attribute is wrong there, and where sizes are drawn at will, their outputs hardly ever meet."""

from __future__ import annotations

from dataclasses import dataclass

from superopt.laws.instances_dice import Dice, Request

Shape = tuple[int, ...]

CONTRASTS = ("dilations", "strides", "pads")
"""The attributes of windows that one layer may have otherwise than another whose output has the same shape."""


@dataclass(frozen=True)
class Windows:
    """A window's kernel, strides, dilations, and pads."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: Shape


def contrasted(request: Request, dice: Dice, count: int) -> Windows | None:
    """By turns the one and the other of two kinds of windows, where the draft wants such and nothing of them is fixed;
    on an input of ``padded_size`` both have as many places."""
    fixed = {*request.attrs, *request.everywhere} & {*CONTRASTS, "kernel_shape"}
    if dice.contrast is None or fixed:
        return None
    kernel = dice.contrast_kernel
    dice.contrast_turn = not dice.contrast_turn
    other = dice.contrast_turn
    strides, dilations, begin, end = 1, 1, 0, 0
    match dice.contrast:
        case "dilations":
            # The longer window has as many places if it is longer by less than a stride.
            strides, dilations = kernel, 2 if other else 1
        case "strides":
            strides = 3 if other else 2
        case _ if kernel == 2:
            begin, end = (1, 0) if other else (0, 1)
        case _:
            # One has no pads at all: within a stride there is room for what the other has.
            strides, begin = 3, 1 if other else 0
    return Windows((kernel,) * count, (strides,) * count, (dilations,) * count, (begin,) * count + (end,) * count)


def padded_size(dice: Dice) -> int:
    """The size, with padding, of the spatial axes of an input on which both kinds of windows have as many places."""
    kernel, places = dice.contrast_kernel, dice.contrast_places
    match dice.contrast:
        case "dilations":
            return (places - 1) * kernel + 2 * (kernel - 1) + 1
        case "strides":
            return kernel + 3  # Two places, two elements apart or three.
        case _ if kernel == 2:
            return kernel + places
        case _:
            return (places - 1) * 3 + kernel + 1
