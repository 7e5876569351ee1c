"""Proposals for convolutions and pools: types of unbound arguments, and attributes."""

from __future__ import annotations

from superopt.laws.instances_contrast import contrasted, padded_size
from superopt.laws.instances_dice import Dice, Proposal, Request
from superopt.laws.instances_kinds import ASKEW, GAPS, GROWN, OVERHANG, SEVERAL, SOLE, STEPS
from superopt.terms import AttrValue

Shape = tuple[int, ...]


def _window(
    request: Request, dice: Dice, spatial: int, given: Shape | None
) -> tuple[Shape, Shape, Shape, Shape | None]:
    """Kernel, strides, dilations, and pads where they are given."""
    twin = contrasted(request, dice, spatial)
    if twin is not None:
        return given or twin.kernel, twin.strides, twin.dilations, twin.pads
    if request.kind in (ASKEW, STEPS, GROWN, SOLE, SEVERAL):
        return _window_of_kind(request, dice, spatial, given)
    kernel = given
    if kernel is None:
        fresh = tuple(dice.pick((1, 1, 2, 3, 3)) for _ in range(spatial))
        if dice.plain and dice.chance(0.5):
            fresh = (1,) * spatial
        elif dice.chance(0.6):
            fresh = (fresh[0],) * spatial if spatial else ()
        again = dice.again(f"kernel{spatial}", fresh, 0.35)
        kernel = tuple(int(item) for item in again) if isinstance(again, tuple) else fresh
    strides = request.window("strides", spatial)
    if strides is None:
        strides = _again(dice, f"strides{spatial}", _each(dice, spatial, (1, 1, 1, 2, 3)))
    dilations = request.window("dilations", spatial)
    if dilations is None:
        dilations = _again(dice, f"dilations{spatial}", _each(dice, spatial, (1, 1, 1, 1, 2)))
        if request.kind == GAPS:
            dilations, kernel = (2,) * spatial, given or tuple(max(size, 2) for size in kernel)
    return kernel, strides, dilations, request.window("pads", 2 * spatial)


def _window_of_kind(
    request: Request, dice: Dice, spatial: int, given: Shape | None
) -> tuple[Shape, Shape, Shape, Shape | None]:
    """A window that is plain but for what its kind asks for, as far as it is not fixed: space between the taps along
    one axis, where alone there may be several; steps of several elements; one tap, and one place; or several taps."""
    one, two = (1,) * spatial, (2,) * spatial
    kernel, strides, dilations, pads = one, one, one, one + one
    if request.kind == ASKEW:
        axis = dice.between(0, spatial - 1)
        others = 1 if dice.chance(0.7) else 2
        kernel = tuple(dice.pick((2, 2, 3)) if place == axis else others for place in range(spatial))
        dilations = tuple(2 if place == axis else 1 for place in range(spatial))
    if request.kind in (STEPS, GROWN):
        kernel, strides = dice.pick((one, two)), two
    if request.kind == SEVERAL:
        kernel = (3,) * spatial
    if request.kind != SOLE:
        pads = (0,) * 2 * spatial
    known = (request.window(name, spatial) for name in ("strides", "dilations"))
    strides, dilations = (fixed or own for fixed, own in zip(known, (strides, dilations), strict=True))
    return given or kernel, strides, dilations, request.window("pads", 2 * spatial) or pads


def _each(dice: Dice, count: int, options: Shape) -> Shape:
    if dice.plain or dice.chance(0.5):
        return (1,) * count
    if dice.chance(0.5):
        return (dice.pick(options),) * count
    return tuple(dice.pick(options) for _ in range(count))


def _again(dice: Dice, key: str, fresh: Shape) -> Shape:
    again = dice.again(key, fresh)
    return tuple(int(item) for item in again) if isinstance(again, tuple) else fresh


def _free_pads(dice: Dice, extents: Shape, most: int) -> Shape:
    """Pads of a window with these extents: none, half of it, or anything, not the same at both ends."""
    kind = dice.random.random()
    if dice.plain or kind < 0.3:
        return (0,) * (2 * len(extents))
    if kind < 0.6:
        half = tuple(min((extent - 1) // 2, max(extent - 1, 0)) for extent in extents)
        return half + half
    fresh = tuple(dice.between(0, min(most, extent)) for extent in extents + extents)
    return _again(dice, f"pads{len(extents)}", fresh) if dice.chance(0.3) else fresh


def _pads_to_meet(dice: Dice, size: Shape, out: Shape, extents: Shape, strides: Shape) -> Shape | None:
    """Pads that take a window from one size to another, split at will between the two ends."""
    begin, end = [], []
    for have, want, extent, stride in zip(size, out, extents, strides, strict=True):
        total = (want - 1) * stride + extent - have
        slack = [total + extra for extra in range(stride) if total + extra >= 0]
        if not slack:
            return None
        total = dice.pick(slack)
        first = total // 2 if dice.chance(0.6) else dice.between(0, total)
        begin.append(first)
        end.append(total - first)
    return tuple(begin + end)


def _spatial_in(dice: Dice, out: Shape | None, extents: Shape, strides: Shape, pads: Shape) -> Shape:
    count = len(extents)
    sizes = []
    for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        total = pads[axis] + pads[axis + count]
        if out is not None:
            size = (out[axis] - 1) * stride + extent - total + dice.between(0, stride - 1)
            sizes.append(max(size, 1))
        elif dice.contrast is not None:
            sizes.append(max(padded_size(dice) - total, 1))
        else:
            sizes.append(max(dice.few(), extent - total, 1))
    return tuple(sizes)


def _spatial_rank(request: Request, dice: Dice) -> int:
    for position in (0, 1):
        shape = request.shape(position)
        if shape is not None:
            return max(len(shape) - 2, 1)
    for name in ("strides", "dilations", "kernel_shape"):
        known = request.ints(name)
        if known is not None:
            return len(known)
    pads = request.ints("pads")
    if pads is not None:
        return len(pads) // 2
    if request.hinted is not None and len(request.hinted) >= 3:
        return len(request.hinted) - 2
    if request.kind in (GROWN, SOLE):
        return dice.pick((1, 2))
    return 2 if request.kind == ASKEW and dice.chance(0.8) else dice.pick((1, 2, 2, 2, 2, 3))


def _group(request: Request, dice: Dice, channels: int | None, outputs: int | None) -> int:
    known = request.int("group")
    if known is not None:
        return known
    options = [1, 1, 1, 2, 2, 3, 4] + ([channels] if channels else [])
    options = [1] if dice.plain else [2, 2, 3] if dice.grouped else options
    fit = [g for g in options if (channels is None or channels % g == 0) and (outputs is None or outputs % g == 0)]
    fresh = dice.integer(fit or [1])
    again = dice.again("group", fresh)
    return again if isinstance(again, int) and again in (fit or [1]) else fresh


def conv(request: Request, dice: Dice) -> Proposal:
    x, w, hint = request.shape(0, 3), request.shape(1, 3), request.hinted
    bias = request.shape(2, 1)
    spatial = _spatial_rank(request, dice)
    hint = hint if hint is not None and len(hint) == spatial + 2 else None
    kernel, strides, dilations, pads = _window(request, dice, spatial, w[2:] if w is not None else None)
    outputs = w[0] if w is not None else hint[1] if hint is not None else bias[0] if bias else None
    group = _group(request, dice, x[1] if x is not None else None, outputs)
    inputs = x[1] if x is not None else w[1] * group if w is not None else group * dice.channels()
    if request.kind == STEPS and x is None and w is None and "group" not in request.attrs and dice.chance(0.5):
        group = inputs = outputs = dice.channels()
    outputs = outputs if outputs is not None else group * dice.channels()
    if any(
        len(values) != spatial
        for values in (kernel, strides, dilations, kernel if pads is None or len(pads) == 2 * spatial else ())
    ):
        return Proposal([x, w, bias])
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    if pads is None and x is not None and hint is not None and len(x) == spatial + 2:
        pads = _pads_to_meet(dice, x[2:], hint[2:], extents, strides)
    if pads is None:
        pads = _free_pads(dice, extents, 3)
    if x is None:
        batch = hint[0] if hint is not None else dice.pick((1, 2, 2, 3))
        x = (batch, inputs, *_spatial_in(dice, hint[2:] if hint is not None else None, extents, strides, pads))
    if w is None:
        w = (outputs, max(inputs // group, 1), *kernel)
    attrs: dict[str, AttrValue] = {"group": group, "strides": strides, "dilations": dilations, "pads": pads}
    return Proposal([x, w, (w[0],)], attrs)


def conv_transpose(request: Request, dice: Dice) -> Proposal:
    x, w, hint = request.shape(0, 3), request.shape(1, 3), request.hinted
    spatial = _spatial_rank(request, dice)
    hint = hint if hint is not None and len(hint) == spatial + 2 else None
    kernel, strides, dilations, pads = _window(request, dice, spatial, w[2:] if w is not None else None)
    inputs = x[1] if x is not None else w[0] if w is not None else None
    group = _group(request, dice, inputs, hint[1] if hint is not None and w is None else None)
    inputs = inputs if inputs is not None else group * dice.channels()
    per_group = w[1] if w is not None else hint[1] // group if hint is not None else dice.channels()
    if any(
        len(values) != spatial
        for values in (kernel, strides, dilations, kernel if pads is None or len(pads) == 2 * spatial else ())
    ):
        return Proposal([x, w, None])
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    pads = pads if pads is not None else _free_pads(dice, extents, 1)
    grown = request.window("output_padding", spatial)
    if grown is None and request.kind == GROWN:
        grown = tuple(s - 1 for s in strides)
    if grown is None:
        grown = tuple(dice.between(0, s - 1) if dice.chance(0.3) else 0 for s in strides)
    if x is None:
        batch = hint[0] if hint is not None else dice.pick((1, 2))
        sizes = []
        for axis in range(spatial):
            size = dice.few() if request.kind != SOLE else 3
            if hint is not None and request.kind != SOLE:
                total = pads[axis] + pads[axis + spatial]
                size = (hint[axis + 2] + total - extents[axis] - grown[axis]) // strides[axis] + 1
            sizes.append(max(size, 1))
        x = (batch, inputs, *sizes)
    if w is None:
        w = (inputs, max(per_group, 1), *kernel)
    attrs: dict[str, AttrValue] = {
        "group": group, "strides": strides, "dilations": dilations, "pads": pads, "output_padding": grown,
    }  # fmt: skip
    return Proposal([x, w, (w[1] * group,)], attrs)


def _of_kind(
    request: Request, dice: Dice, kernel: Shape, strides: Shape, dilations: Shape, pads: Shape | None
) -> tuple[Shape, Shape, Shape, Shape | None, int]:
    """A pool's window, and its ``ceil_mode``, of the kind that is wanted, as far as it is not fixed."""
    count, free = len(kernel), {"kernel_shape", "strides", "dilations", "pads"} - {*request.attrs, *request.everywhere}
    if "kernel_shape" in free:
        kernel = (dice.pick((2, 2, 3)),) * count
    if "strides" in free:
        strides = (1,) * count if request.kind == GAPS else tuple(max(size, 2) for size in kernel)
    if "dilations" in free:
        dilations = (2 if request.kind == GAPS else 1,) * count
    return kernel, strides, dilations, (0,) * 2 * count if "pads" in free else pads, int(request.kind == OVERHANG)


def pool(request: Request, dice: Dice) -> Proposal:
    x, hint = request.shape(0, 3), request.hinted
    spatial = _spatial_rank(request, dice)
    hint = hint if hint is not None and len(hint) == spatial + 2 else None
    kernel, strides, dilations, pads = _window(request, dice, spatial, request.ints("kernel_shape"))
    ceil = dice.integer((0, 0, 1))
    if request.kind == ASKEW:
        ceil = 0
    elif request.kind is not None:
        kernel, strides, dilations, pads, ceil = _of_kind(request, dice, kernel, strides, dilations, pads)
    if ceil and dice.contrast is None and max(strides, default=1) == 1 and not {"strides", "pads"} & {*request.attrs}:
        strides = tuple(max(2, size) for size in kernel)  # where a step is one, nothing is left over to round up
    if any(
        len(values) != spatial
        for values in (kernel, strides, dilations, kernel if pads is None or len(pads) == 2 * spatial else ())
    ):
        return Proposal([x])
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    if pads is None and x is not None and hint is not None and len(x) == spatial + 2:
        pads = _pads_to_meet(dice, x[2:], hint[2:], extents, strides)
    if pads is None:
        pads = tuple(min(pad, extents[axis % spatial] - 1) for axis, pad in enumerate(_free_pads(dice, extents, 2)))
    if x is None:
        lead = hint[:2] if hint is not None else (dice.pick((1, 2)), dice.channels())
        x = (*lead, *_spatial_in(dice, hint[2:] if hint is not None else None, extents, strides, pads))
        if request.kind not in (None, ASKEW):
            rest = (0 if request.kind == GAPS else min(1, stride - 1) for stride in strides)
            sizes = zip(extents, strides, rest, pads[:spatial], pads[spatial:], strict=True)
            x = (*lead, *(max(e + s * dice.between(0, 1) * (r > 0) + r - a - b, 1) for e, s, r, a, b in sizes))
        elif hint is None and dice.contrast is None and dice.chance(0.5):
            # A window that does not fit any more: left out, or with ceil_mode one place more.
            sizes = zip(x[2:], pads[:spatial], pads[spatial:], extents, strides, strict=True)
            x = (*lead, *(n + (1 - (n + a + b - e) % s if s > 1 else 0) % max(s, 1) for n, a, b, e, s in sizes))
    attrs: dict[str, AttrValue] = {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads,
        "ceil_mode": ceil, "count_include_pad": dice.pick((0, 1)), "p": dice.pick((1, 2)),
    }  # fmt: skip
    return Proposal([x], attrs)
