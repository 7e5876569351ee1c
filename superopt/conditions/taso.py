"""Rule functions that spell out what TASO implies: padding by mode, enlarged kernels, batches, what can be joined."""

from __future__ import annotations

from superopt.conditions.types import all_values, same_dim
from superopt.values import Unknown, Value, attribute, predicate

Ints = tuple[int, ...]


@attribute()
def same_pads(window: Ints, strides: Ints = (), sizes: Ints = ()) -> Ints:
    """The pads of a window, without dilations, that make the output as large as the input divided by the strides.

    An odd one goes to the end (ONNX's SAME_UPPER). ``sizes`` are those of the input; without strides none is needed.
    """
    if not window:
        raise Unknown("no window")
    totals = []
    for axis, taps in enumerate(window):
        stride = strides[axis] if strides else 1
        over = sizes[axis] % stride if stride > 1 else 0
        totals.append(max(taps - (over or stride), 0))
    return tuple(total // 2 for total in totals) + tuple(total - total // 2 for total in totals)


@attribute()
def wider(*windows: Ints) -> Ints:
    """The spatial sizes of what two weights broadcast to."""
    if len({len(window) for window in windows}) != 1:
        raise Unknown("not of one rank")
    return tuple(max(taps) for taps in zip(*windows, strict=True))


@attribute()
def centered(window: Ints, target: Ints) -> Ints:
    """The pads of all axes of a weight that put its kernel into the middle of a larger one."""
    before = tuple((large - small) // 2 for small, large in zip(window, target, strict=True))
    after = tuple(large - small - low for small, large, low in zip(window, target, before, strict=True))
    if min(before + after, default=0) < 0:
        raise Unknown("a larger kernel")
    return (0, 0, *before, 0, 0, *after)


@predicate()
def batched(*values: Value) -> bool:
    """All are matrices, or batches of equally many: of one rank, alike in all axes but the last two."""
    first = values[0]
    return first.rank >= 2 and all(
        value.rank == first.rank
        and all(same_dim(a, b) for a, b in zip(value.shape[:-2], first.shape[:-2], strict=True))
        for value in values
    )


@predicate()
def joinable(axis: int, *values: Value | tuple[Value, ...]) -> bool:
    """Concat along this axis takes them: of one rank, alike in all other axes."""
    first, *others = all_values(values)
    return axis < first.rank and all(
        value.rank == first.rank
        and all(same_dim(value.shape[place], first.shape[place]) for place in range(first.rank) if place != axis)
        for value in others
    )
