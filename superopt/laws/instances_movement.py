"""Proposals for data movement: types of unbound arguments, and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from superopt.laws.instances_dice import Dice, Proposal, Request, axis_of, factors, product, under
from superopt.laws.instances_kinds import BEYOND, COPIED, CROP, LEADING, LOWER, OTHERS, SHORT, SINGLE, STRIDED

Shape = tuple[int, ...]


def _concat(request: Request, dice: Dice) -> Proposal:
    count = len(request.args)
    known = [request.shape(position) for position in range(count)]
    have = [shape for shape in known if shape]
    base = have[0] if have else request.hinted or dice.shape(1, 4)
    if not base:
        return Proposal([()] * count, {"axis": 0})
    axis = axis_of(request, dice, len(base))
    axis = axis if 0 <= axis < len(base) else len(base) - 1
    total = request.hinted[axis] if request.hinted is not None and len(request.hinted) == len(base) else None
    shapes: list[Shape | None] = []
    rest = None if total is None else total - sum(shape[axis] for shape in have if len(shape) == len(base))
    missing = known.count(None)
    for shape in known:
        if shape is None:
            size = dice.pick((1, 2, 3)) if not dice.large else dice.size()
            if rest is not None:
                size = max(rest if missing == 1 else dice.between(1, rest - missing + 1), 1)
                rest, missing = rest - size, missing - 1
            elif dice.chance(0.3):
                size = base[axis]
            shape = (*base[:axis], size, *base[axis + 1 :])
        shapes.append(shape)
    if all(shape is not None and axis < len(shape) for shape in shapes):
        # Where it is split again, often into what it is made of.
        dice.remember("parts", tuple(shape[axis] for shape in shapes if shape is not None))
    return Proposal(shapes, {"axis": axis})


def _split(request: Request, dice: Dice) -> Proposal:
    x, sizes = request.shape(0), request.ints("split")
    count = dice.outputs if dice.chance(0.6) else max(dice.outputs, request.output) + dice.between(0, 2)
    if x is None:
        part = request.hinted or dice.shape(1, 4)
        axis = axis_of(request, dice, len(part))
        if not part or not 0 <= axis < len(part):
            return Proposal([part], {"axis": 0, "split": (1,)})
        if sizes is None:
            sizes = tuple(dice.pick((1, 2, 3)) for _ in range(count))
            if request.hinted is not None or dice.chance(0.4):
                kept = part[axis]
                sizes = tuple(kept if i == request.output or dice.chance(0.3) else size for i, size in enumerate(sizes))
        return Proposal([(*part[:axis], sum(sizes), *part[axis + 1 :])], {"axis": axis, "split": sizes})
    axis = axis_of(request, dice, len(x))
    if not 0 <= axis < len(x):
        return Proposal([x], {"axis": 0, "split": (1,)})
    total = x[axis]
    cuts = sorted(dice.between(0, total) for _ in range(count - 1))
    bounds = [0, *cuts, total]
    fresh = tuple(after - before for before, after in pairwise(bounds))
    if total % count == 0 and dice.chance(0.5):
        fresh = (total // count,) * count
    parts = [part for part in dice.recalled("parts") if isinstance(part, tuple) and len(part) > request.output]
    parts = [part for part in parts if sum(int(size) for size in part) == total]
    if parts and dice.chance(0.5):
        fresh = tuple(int(size) for size in dice.pick(parts))
    return Proposal([x], {"axis": axis, "split": fresh if min(fresh) > 0 else (total,)})


def _slice(request: Request, dice: Dice) -> Proposal:
    x, out = request.shape(0), request.hinted
    if x is None:
        x = tuple(dim + dice.between(0, 3) for dim in out) if out else dice.shape(1, 4)
    if request.shape(0) is None and request.ints("steps") == (2, 2) and dice.chance(0.7):
        # Every second place of two axes, as often as not of all there are: as many for each phase.
        x = (*dice.shape(1, 2), 2 * dice.between(1, 3), 2 * dice.between(1, 3))
        axes = request.ints("axes") or (len(x) - 2, len(x) - 1)
        return Proposal([x], {"axes": axes, "starts": (0, 0), "ends": tuple(x[-2:]), "steps": (2, 2)})
    if request.shape(0) is None and request.ints("starts") == (0,) and dice.chance(0.3):
        # The first of a few parts of one size.
        parts, size = dice.between(2, 4), dice.between(1, 3)
        axis = (request.ints("axes") or (dice.between(0, len(x) - 1),))[0]
        x = tuple(parts * size if place == axis else dim for place, dim in enumerate(x))
        return Proposal([x], {"axes": (axis,), "starts": (0,), "ends": (size,), "steps": (1,)})
    axes = (
        request.ints("axes")
        or tuple(axis for axis in range(len(x)) if dice.chance(0.5))
        or (dice.between(0, len(x) - 1),)
    )
    if request.kind == STRIDED and request.shape(0) is None:
        x, out = tuple(max(dim, 4) if axis in axes else dim for axis, dim in enumerate(x)), None
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x[axis] if axis < len(x) else 1
        step = dice.pick((1, 1, 1, 2, -1)) if out is None else 1
        start = dice.between(0, size - 1)
        end = dice.between(start + 1, size)
        if out is not None and axis < len(out):
            start = dice.between(0, size - out[axis])
            end = start + out[axis]
        elif step < 0:
            start, end = size - 1, dice.between(0, max(size - 2, 0))
        elif dice.chance(0.15):
            start, end = 0, size
        if dice.chance(0.06):
            # Counted from the end, as where a size was not known when a model was lowered; or of nothing.
            start, end = (start - size, end) if dice.chance(0.6) else (start, min(start, dice.between(0, size)))
        if request.kind == SHORT and step > 0 and size > 1:
            end = dice.between(1, size - 1)
            start = dice.between(0, end - 1)
        if request.kind == BEYOND and step > 0:
            end = size + dice.between(1, size)
        if request.kind == STRIDED:
            start, end, step = dice.pick((0, 0, 1)), size, 2
        starts.append(start)
        ends.append(end)
        steps.append(step)
    attrs = {"axes": axes, "starts": tuple(starts), "ends": tuple(ends), "steps": tuple(steps)}
    return Proposal([x], dict(attrs))


def _pad(request: Request, dice: Dice) -> Proposal:
    out = request.hinted
    x = request.shape(0) or dice.shape(1, 5)
    rank = len(x)
    pads = request.ints("pads")
    if pads is None:
        spatial = dice.chance(0.6)
        one = [dice.between(0, 2) if not (spatial and axis < 2) else 0 for axis in range(rank)]
        two = [dice.between(0, 2) if not (spatial and axis < 2) else 0 for axis in range(rank)]
        pads = tuple(one + two) if dice.chance(0.7) else tuple(one + one)
        if spatial and dice.chance(0.3):
            pads = (*(int(axis >= 2) for axis in range(rank)),) * 2
        if dice.chance(0.1):
            pads = (0,) * (2 * rank)
        elif dice.chance(0.1):
            pads = tuple(-1 if dice.chance(0.2) else pad for pad in pads)
    if request.shape(0) is None and out is not None and len(pads) == 2 * len(out):
        x = tuple(max(dim - pads[axis] - pads[axis + len(out)], 1) for axis, dim in enumerate(out))
    elif request.shape(0) is None and out is not None:
        pads = tuple(dice.between(0, min(1, out[i % len(out)] - 1)) for i in range(2 * len(out)))
        x = tuple(max(dim - pads[axis] - pads[axis + len(out)], 1) for axis, dim in enumerate(out))
    if request.kind is not None and "pads" not in request.attrs:
        # What one takes away another adds, which does not bring it back.
        kept = dice.between(0, len(pads) - 1)
        changed = [-1 if place == kept or dice.chance(0.5) else pad for place, pad in enumerate(pads)]
        pads = tuple(changed) if request.kind == CROP else tuple(max(pad, 1) for pad in pads)
        x = request.shape(0) or tuple(dim + 2 for dim in x)
    return Proposal([x, ()], {"pads": pads, "mode": dice.pick(("constant", "constant", "reflect", "edge"))})


def _reshape(request: Request, dice: Dice) -> Proposal:
    x, shape, out = request.shape(0), request.ints("shape"), request.hinted
    if request.kind == COPIED and shape is None and (x is None or len(x) > 1):
        # A size is copied from where it was, and the other is what comes of it.
        return Proposal([x or dice.shape(2, 4)], {"shape": dice.pick(((0, -1), (-1, 0), (-1, 0))), "allowzero": 0})
    if x is None and not {"shape", "allowzero"} & {*request.attrs} and dice.chance(0.2):
        return _reshape_of_nothing(request, dice)
    if x is None:
        count = product(shape) if shape is not None and min(shape, default=1) > 0 else None
        if count is None and out is not None:
            count = product(out)
        x = factors(dice, count, dice.between(1, 4)) if count is not None else dice.shape(0, 4)
        if out is not None and shape is None and dice.chance(0.35):
            # The same sizes in another order: some stay where they are, and may be copied.
            x = tuple(dice.random.sample(out, len(out)))
    if out is None or product(out) != product(x):
        kind = dice.random.random()
        if kind < 0.35 and len(x) >= 2:
            axis = dice.between(0, len(x) - 2)
            out = (*x[:axis], x[axis] * x[axis + 1], *x[axis + 2 :])
        elif kind < 0.5:
            out = (*x, 1) if dice.chance(0.5) else (1, *x)
        else:
            out = factors(dice, product(x), dice.between(1, 4))
    if dice.chance(0.25):
        # What is not known when a model is lowered stays written as 0 (copied) or -1 (inferred).
        kept = [axis for axis, (before, after) in enumerate(zip(x, out, strict=False)) if before == after]
        copied = bool(kept) and dice.chance(0.6)
        place = dice.pick(kept) if copied else dice.between(0, max(len(out) - 1, 0))
        out = tuple((0 if copied else -1) if axis == place else dim for axis, dim in enumerate(out))
    return Proposal([x], {"shape": out, "allowzero": 0})


def _reshape_of_nothing(request: Request, dice: Dice) -> Proposal:
    """Zeros in a shape that are meant: only what is empty has it."""
    x = list(dice.shape(1, 3))
    x[dice.between(0, len(x) - 1)] = 0
    shape = [*dice.shape(1, 3)]
    shape[dice.between(0, len(shape) - 1)] = 0
    return Proposal([tuple(x)], {"shape": tuple(shape), "allowzero": 1})


def _flatten(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0)
    if x is None:
        x = dice.shape(1, 4)
        if request.hinted is not None and len(request.hinted) == 2:
            rows, columns = request.hinted
            x = (rows, *factors(dice, columns, dice.between(1, 3)))
    return Proposal([x], {"axis": 1 if request.hinted is not None and dice.chance(0.7) else dice.between(0, len(x))})


def _squeeze(request: Request, dice: Dice) -> Proposal:
    x, axes, out = request.shape(0), request.ints("axes"), request.hinted
    if x is None:
        base = list(out if out is not None else dice.shape(0, 3))
        axes = axes or tuple(sorted({dice.between(0, len(base)) for _ in range(dice.between(1, 2))}))
        if out is None and dice.chance(0.5):
            base.insert(dice.between(0, len(base)), 1)
        if request.kind == OTHERS and 1 not in base:
            base.insert(dice.between(0, len(base)), 1)
        for axis in axes:
            base.insert(axis, 1)
        return Proposal([tuple(base)], {"axes": axes})
    ones = [axis for axis, dim in enumerate(x) if dim == 1]
    chosen = tuple(axis for axis in ones if dice.chance(0.6)) or tuple(ones)
    if request.kind == OTHERS and len(ones) > 1:
        # Others than were put there, where that is known.
        others = [axis for axis in ones if (axis,) not in dice.recalled("axes1")] or ones
        chosen = (dice.pick(others),) if dice.chance(0.7) else tuple(ones[1:])
    return Proposal([x], {"axes": chosen})


def _unsqueeze(request: Request, dice: Dice) -> Proposal:
    x, axes, out = request.shape(0), request.ints("axes"), request.hinted
    if request.kind == SINGLE and x is None and axes is None:
        # Not beside the new one: of two neighbours either may be taken away.
        met = list(dice.shape(1, 2))
        there = dice.between(0, len(met))
        met.insert(there, 1)
        places = [place for place in range(len(met) + 1) if place not in (there, there + 1)]
        return Proposal([tuple(met)], {"axes": (dice.pick(places),)})
    if x is None and out is not None:
        ones = axes or tuple(axis for axis, dim in enumerate(out) if dim == 1)
        if axes is None and len(ones) > 1 and dice.chance(0.5):
            # The others were there.
            ones = tuple(sorted(dice.random.sample(ones, dice.between(1, len(ones) - 1))))
        return Proposal([tuple(dim for axis, dim in enumerate(out) if axis not in ones)], {"axes": ones})
    x = x if x is not None else dice.shape(0, 3)
    kind = dice.random.random()
    fresh: Shape
    if kind < 0.4:
        fresh = tuple(range(len(x), len(x) + dice.between(1, 2)))
    else:
        total = len(x) + dice.between(1, 2)
        fresh = tuple(sorted(dice.random.sample(range(total), total - len(x))))
    return Proposal([x], {"axes": fresh})


def _transpose(request: Request, dice: Dice) -> Proposal:
    x, perm, out = request.shape(0), request.ints("perm"), request.hinted
    rank = len(x) if x is not None else len(perm) if perm is not None else len(out) if out is not None else None
    if rank is None:
        x = dice.shape(3 if request.kind == LEADING else 1, 5)
        rank = len(x)
    if perm is None:
        order = list(range(rank))
        if request.kind == LEADING and rank >= 3:
            order[0], order[1] = 1, 0
        elif rank >= 2 and dice.chance(0.4):
            order[-1], order[-2] = order[-2], order[-1]
        elif rank == 4 and dice.chance(0.4):
            order = dice.pick(([0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]))
        else:
            dice.random.shuffle(order)
        again = dice.again(f"perm{rank}", tuple(order), 0.0 if request.kind == LEADING else 0.2)
        perm = tuple(int(axis) for axis in again) if isinstance(again, tuple) else tuple(order)
        if x is not None and out is not None and len(out) == rank and dice.chance(0.7):
            perm = _matching(dice, x, out) or perm
    if x is None:
        x = dice.shape(rank, rank)
        if out is not None and len(out) == rank:
            dims = [1] * rank
            for target, source in enumerate(perm):
                dims[source] = out[target]
            x = tuple(dims)
    return Proposal([x], {"perm": perm})


def _matching(dice: Dice, x: Shape, out: Shape) -> Shape | None:
    free = list(range(len(x)))
    dice.random.shuffle(free)
    perm = []
    for dim in out:
        axis = next((axis for axis in free if x[axis] == dim), None)
        if axis is None:
            return None
        free.remove(axis)
        perm.append(axis)
    return tuple(perm)


def _expand(request: Request, dice: Dice) -> Proposal:
    shape = request.ints("shape") or request.hinted
    x = request.shape(0)
    if (request.kind == LOWER or dice.chance(0.1)) and "shape" not in request.attrs:
        # The last axes alone are named, some of which are stretched.
        kept = () if x is None else x[dice.between(1, len(x)) :]
        shape = dice.shape(1, 3) if x is None else tuple(dice.size() if dim == 1 else dim for dim in kept)
        x = x if x is not None else (dice.size(), *(1 if dice.chance(0.6) else dim for dim in shape))
        return Proposal([x], {"shape": tuple(1 if dice.chance(0.2) else dim for dim in shape)})
    if x is None:
        shape = shape or dice.shape(0, 4)
        x = under(dice, shape)
    if shape is None:
        shape = tuple(dice.size() if dim == 1 else dice.pick((1, dim)) for dim in x)
        shape = (*dice.shape(0, 1), *shape) if dice.chance(0.4) else shape
    return Proposal([x], {"shape": shape})


def _tile(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0) or dice.shape(1, 4)
    return Proposal([x], {"repeats": tuple(dice.pick((1, 1, 2, 3)) for _ in x)})


def _gather(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0) or dice.shape(1, 4)
    axis = axis_of(request, dice, len(x))
    indices: Shape = request.shape(1) or dice.pick(((), (1,), (3,), (2, 2)))
    if request.op == "GatherElements":
        indices = tuple(dice.between(1, dim) for dim in x)
    return Proposal([x, indices], {"axis": axis, "batch_dims": 0}, {1: dice.pick(("int64", "int32"))})


def _gather_nd(request: Request, dice: Dice) -> Proposal:
    x, indices, batch = request.shape(0) or dice.shape(1, 3), request.shape(1), request.int("batch_dims")
    if batch is None:
        batch = dice.pick((0, 0, 1, 1, 2))
    batch = min(batch, len(x) - 1, len(x) if indices is None else len(indices) - 1)
    lead = () if batch and dice.chance(0.3) else (dice.between(1, 3),)
    fresh = (*x[:batch], *lead, dice.between(1, len(x) - batch))
    return Proposal([x, indices or fresh], {"batch_dims": batch}, {1: "int64"})


def _scatter_nd(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0) or dice.shape(1, 3)
    count = x[0] if dice.chance(0.5) else 1
    # Truth values are not added.
    known = [dtype for dtype in (request.dtype(dice), dice.dtype) if dtype == "bool"]
    reduction = "none" if known else dice.pick(("none", "none", "add", "mul", "max", "min"))
    return Proposal([x, (count, 1), (count, *x[1:])], {"reduction": reduction}, {1: "int64"})


def _blocks(request: Request, dice: Dice) -> Proposal:
    block = request.int("blocksize") or dice.pick((1, 2, 3))
    x = request.shape(0)
    if x is None:
        batch, channels = dice.pick((1, 2)), dice.channels()
        height, width = dice.pick((1, 2, 3)), dice.pick((1, 2, 3))
        if request.op == "DepthToSpace":
            x = (batch, channels * block * block, height, width)
        else:
            x = (batch, channels, height * block, width * block)
    return Proposal([x], {"blocksize": block, "mode": dice.pick(("DCR", "CRD"))})


def _trilu(request: Request, dice: Dice) -> Proposal:
    return Proposal([request.shape(0) or dice.shape(2)], {"k": dice.between(-1, 2), "upper": dice.pick((0, 1))})


MOVEMENT: Mapping[str, Callable[[Request, Dice], Proposal]] = {
    **dict.fromkeys(("Gather", "GatherElements"), _gather),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _blocks),
    "Concat": _concat, "Split": _split, "Slice": _slice, "Pad": _pad, "Reshape": _reshape, "Flatten": _flatten,
    "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Transpose": _transpose, "Expand": _expand, "Tile": _tile,
    "GatherND": _gather_nd, "ScatterND": _scatter_nd, "Trilu": _trilu,
}  # fmt: skip
"""What proposes the arguments and attributes of an operator, by its name."""
