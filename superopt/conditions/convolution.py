"""Rule functions about convolutions and pooling: frames that hold two kernels, identity and averaging kernels, groups.

A *frame* is what two kernels over the same input need so that one kernel covers both: margins of zeros around each, and
the pads and dilations of the whole. Tap ``t`` of a kernel with dilation ``d`` and pad ``p`` at the begin reads the
input at an offset of ``t * d - p`` from the stride's place, which is what two kernels must agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from superopt.conditions.types import numpy_dtype, shape
from superopt.terms import Attrs, Dim, TensorType
from superopt.values import Unknown, Value, attribute, predicate, tensor

Ints = tuple[int, ...]


def _ints(attrs: Attrs, name: str) -> Ints:
    value = attrs.get(name)
    if not isinstance(value, tuple):
        raise Unknown(f"no attribute {name}")
    return tuple(int(item) for item in value)


@dataclass(frozen=True)
class _Frame:
    """Zeros before and after each of two kernels, and the attributes of the kernel that holds both, axis by axis."""

    before: tuple[Ints, Ints]
    after: tuple[Ints, Ints]
    dilations: Ints
    pads: Ints


def _frame(kernel: Ints, attrs: Attrs, kernel2: Ints, attrs2: Attrs) -> _Frame | None:
    """The smallest frame of two kernels over one input with equal strides, or None where there is none, or where the
    outputs need not have the same spatial size."""
    count = len(kernel)
    pads, pads2 = _ints(attrs, "pads"), _ints(attrs2, "pads")
    dilations, dilations2 = _ints(attrs, "dilations"), _ints(attrs2, "dilations")
    if len(kernel2) != count or len(pads) != 2 * count or len(pads2) != 2 * count or min(pads + pads2) < 0:
        return None
    rows: list[tuple[int, ...]] = []
    for axis in range(count):
        taps, taps2 = kernel[axis], kernel2[axis]
        dilation = dilations2[axis] if taps == 1 else dilations[axis]
        if taps > 1 and taps2 > 1 and dilations[axis] != dilations2[axis]:
            return None
        if taps == taps2 == 1:
            dilation = 1
        begin, begin2, end, end2 = pads[axis], pads2[axis], pads[count + axis], pads2[count + axis]
        if begin + end - dilation * (taps - 1) != begin2 + end2 - dilation * (taps2 - 1):
            return None
        if (begin - begin2) % dilation:
            return None
        whole_begin = max(begin, begin2)
        low, low2 = (whole_begin - begin) // dilation, (whole_begin - begin2) // dilation
        whole = max(low + taps, low2 + taps2)
        high, high2 = whole - low - taps, whole - low2 - taps2
        rows.append((low, low2, high, high2, dilation, whole_begin, end + dilation * high))
    low_, low2_, high_, high2_, dilation_, begin_, end_ = (tuple(column) for column in zip(*rows, strict=True))
    return _Frame((low_, low2_), (high_, high2_), dilation_, begin_ + end_)


def _known_frame(kernel: Ints, attrs: Attrs, kernel2: Ints, attrs2: Attrs) -> _Frame:
    found = _frame(kernel, attrs, kernel2, attrs2)
    if found is None:
        raise Unknown("the kernels do not align")
    return found


@attribute()
def kernel(weight: Value) -> Ints:
    """The spatial sizes of a convolution's weight."""
    return shape(weight)[2:]


@attribute()
def margins(kernel: Ints, attrs: Attrs, kernel2: Ints, attrs2: Attrs) -> Ints:
    """The pads that enlarge the first of two weights so that the frame of both is filled.

    Unknown where two kernels that slide over one input with equal strides have no frame, or where their outputs need
    not have the same spatial size: a rule that asks for margins needs no condition about that.
    """
    found = _known_frame(kernel, attrs, kernel2, attrs2)
    return (0, 0) + found.before[0] + (0, 0) + found.after[0]


@attribute()
def frame_pads(kernel: Ints, attrs: Attrs, kernel2: Ints, attrs2: Attrs) -> Ints:
    """The pads of a convolution whose kernel fills the frame of two."""
    return _known_frame(kernel, attrs, kernel2, attrs2).pads


@attribute()
def frame_dilations(kernel: Ints, attrs: Attrs, kernel2: Ints, attrs2: Attrs) -> Ints:
    """The dilations of a convolution whose kernel fills the frame of two."""
    return _known_frame(kernel, attrs, kernel2, attrs2).dilations


def aligned(weight: TensorType, attrs: Attrs, weight2: TensorType, attrs2: Attrs) -> bool:
    """Whether two Convs over one input, with weights of these types, can be one that adds them."""
    if not weight.is_static or not weight2.is_static or weight.shape is None or weight2.shape is None:
        return False
    (rows, width, *taps), (rows2, width2, *taps2) = weight.shape, weight2.shape
    if (weight.dtype, rows, width) != (weight2.dtype, rows2, width2):
        return False
    if any(attrs.get(name) != attrs2.get(name) for name in ("group", "strides")):
        return False
    return _frame(_numbers(taps), attrs, _numbers(taps2), attrs2) is not None


def _numbers(dims: Sequence[Dim]) -> Ints:
    return tuple(dim for dim in dims if isinstance(dim, int))


def _taps(kernel: Ints, attrs: Attrs) -> Ints | None:
    """The tap that reads the place it writes, on every axis, or None where the output is not of the input's size."""
    count = len(kernel)
    pads, dilations = _ints(attrs, "pads"), _ints(attrs, "dilations")
    if any(stride != 1 for stride in _ints(attrs, "strides")) or len(pads) != 2 * count or min(pads) < 0:
        return None
    found = []
    for axis in range(count):
        begin, end, dilation = pads[axis], pads[count + axis], dilations[axis]
        if begin + end != dilation * (kernel[axis] - 1) or begin % dilation:
            return None
        found.append(begin // dilation)
    return tuple(found)


@predicate()
def holds_identity(weight: Value, attrs: Attrs) -> bool:
    """Some weight of this shape makes Conv with these attributes the identity."""
    return shape(weight)[0] == shape(weight)[1] * _int(attrs, "group") and _taps(kernel(weight), attrs) is not None


def _int(attrs: Attrs, name: str) -> int:
    value = attrs.get(name)
    if not isinstance(value, int):
        raise Unknown(f"no attribute {name}")
    return value


@tensor()
def identity_kernel(weight: Value, attrs: Attrs) -> NDArray[np.generic]:
    """The weight of this shape with which Conv with these attributes is the identity: each output channel reads its own
    input channel, which within its group is the channel's number modulo the group's size."""
    taps = _taps(kernel(weight), attrs)
    if taps is None:
        raise Unknown("the kernel does not hold the identity")
    made = np.zeros(shape(weight), dtype=numpy_dtype(weight.dtype))
    for channel in range(weight.dim(0)):
        made[(channel, channel % weight.dim(1), *taps)] = 1
    return made


@predicate()
def plain_average(attrs: Attrs) -> bool:
    """An AveragePool with these attributes divides by the kernel's size everywhere."""
    counted = attrs.get("count_include_pad") == 1 or unpadded(_ints(attrs, "pads"))
    return counted and attrs.get("ceil_mode") == 0 and min(_ints(attrs, "pads")) >= 0


@predicate()
def whole_average(attrs: Attrs) -> bool:
    """An AveragePool with these attributes divides by the number of the elements it has summed, padding left out."""
    return attrs.get("count_include_pad") == 0 or (unpadded(_ints(attrs, "pads")) and attrs.get("ceil_mode") == 0)


@tensor()
def ones_in_space(value: Value, like: Value) -> NDArray[np.generic]:
    """Ones for every place of an image, for one batch and one channel, of the element type of ``like``."""
    return np.ones((1, 1, *shape(value)[2:]), dtype=numpy_dtype(like.dtype))


@tensor()
def summing_kernel(weight: Value, window: Ints) -> NDArray[np.generic]:
    """The weight, with as many channels as this one, with which Conv sums each channel over a window."""
    made = np.zeros(shape(weight)[:2] + window, dtype=numpy_dtype(weight.dtype))
    for channel in range(weight.dim(0)):
        made[channel, channel % weight.dim(1)] = 1
    return made


@attribute()
def count(sizes: Ints) -> int:
    """The number of elements of a shape."""
    return prod(sizes)


@predicate()
def unpadded(pads: Ints) -> bool:
    """All pads are zero."""
    return not any(pads)


@predicate()
def pointwise(weight: Value, attrs: Attrs) -> bool:
    """Conv with this weight and these attributes maps each place by itself: one tap, no padding, no stride."""
    return (
        all(taps == 1 for taps in kernel(weight))
        and all(stride == 1 for stride in _ints(attrs, "strides"))
        and unpadded(_ints(attrs, "pads"))
    )


@predicate()
def one_tap(weight: Value, attrs: Attrs) -> bool:
    """Conv with this weight and these attributes maps each place of its padded input by itself: one tap, no stride."""
    pads = _ints(attrs, "pads")
    return (
        all(taps == 1 for taps in kernel(weight))
        and all(stride == 1 for stride in _ints(attrs, "strides"))
        and min(pads, default=0) >= 0
    )


@attribute()
def added(pads: Ints, pads2: Ints) -> Ints:
    """Two pads of the same axes, one around the other."""
    return tuple(one + other for one, other in zip(pads, pads2, strict=True))


@attribute()
def transposed_pair(rank: int) -> Ints:
    """The permutation ``(1, 0, 2, ..., rank - 1)``."""
    return (1, 0, *range(2, rank))


@attribute()
def split_first(sizes: Ints, parts: int) -> Ints:
    """The shape whose first axis is divided into ``(parts, size // parts)``."""
    if sizes[0] % parts:
        raise Unknown("not divisible")
    return (parts, sizes[0] // parts, *sizes[1:])


@attribute()
def per_group(count: int, group: int, rank: int) -> Ints:
    """The shape in which something per channel (or one number for all) meets a weight of that rank whose first axis was
    divided into groups: ``(group, 1, count // group, 1, ...)``."""
    if count == 1:
        return (1,) * (rank + 1)
    return (group, 1, count // group) + (1,) * (rank - 2)


@attribute()
def repeat_second(count: int, rank: int) -> Ints:
    """Repeats of the second of ``rank`` axes alone."""
    return (1, count) + (1,) * (rank - 2)


@tensor()
def slot_mask(weight: Value, group: int, count: int) -> NDArray[np.generic]:
    """Ones where the weight of a Conv with ``group`` groups stands in that of the Conv with ``group // count`` groups,
    zeros elsewhere: row o of O has its own input channels in slot ``((o * group) // O) % count``."""
    rows, width = weight.dim(0), weight.dim(1)
    if rows % group or group % count:
        raise Unknown("not divisible")
    made = np.zeros((rows, count, width), dtype=numpy_dtype(weight.dtype))
    for row in range(rows):
        made[row, row * group // rows % count] = 1
    return made.reshape((rows, count * width) + (1,) * (weight.rank - 2))


@predicate(reads=("weight",))
def block_diagonal(weight: Value, group: int, count: int) -> bool:
    """The weight of a Conv with ``group`` groups is zero but for what a Conv with ``group * count`` groups has."""
    rows, width = weight.dim(0), weight.dim(1)
    if count < 2 or width % count or rows % (group * count):
        return False
    parts = weight.array().astype(np.float64).reshape((rows, count, width // count, -1))
    own = np.arange(rows) * (group * count) // rows % count
    others = np.arange(count)[None, :] != own[:, None]
    return not bool(parts[others].any())


@attribute()
def slots(sizes: Ints, count: int) -> Ints:
    """The shape whose second axis is divided into ``(count, size // count)``."""
    if sizes[1] % count:
        raise Unknown("not divisible")
    return (sizes[0], count, sizes[1] // count, *sizes[2:])


@tensor()
def by_group(rows: Ints, group: int) -> NDArray[np.generic]:
    """The rows of several grouped weights, one weight after the other, in the order of one weight that holds all of
    them: group by group, and within a group weight by weight. ``rows`` are the rows of each weight."""
    if any(count % group for count in rows):
        raise Unknown("not divisible")
    starts = [sum(rows[:index]) for index in range(len(rows))]
    order = [
        start + number * (count // group) + row
        for number in range(group)
        for start, count in zip(starts, rows, strict=True)
        for row in range(count // group)
    ]
    return np.array(order, dtype=np.int64)


@tensor()
def by_sibling(rows: Ints, group: int) -> NDArray[np.generic]:
    """The way back from ``by_group``: where each row of each weight stands among those of the whole."""
    return np.argsort(by_group(rows, group)).astype(np.int64)


@predicate()
def pads_space_only(pads: Ints, window: Sequence[int]) -> bool:
    """A Pad with these pads leaves the first two axes alone and crops nowhere; ``window`` is a kernel of the others."""
    count = len(pads) // 2
    return count == len(window) + 2 and min(pads) >= 0 and not any(pads[:2]) and not any(pads[count : count + 2])


@attribute()
def joined_pads(outer: Ints, pads: Ints) -> Ints:
    """A convolution's or pool's pads with a Pad's pads of all axes added."""
    count = len(pads) // 2
    return tuple(a + b for a, b in zip(outer, pads[2:count] + pads[count + 2 :], strict=True))


@predicate()
def pads_below(outer: Ints, pads: Ints, window: Ints) -> bool:
    """The joined pads of a pool are smaller than its kernel on every axis, as pooling demands."""
    return all(pad < taps for pad, taps in zip(joined_pads(outer, pads), window * 2, strict=True))


@attribute()
def halves(count: int, parts: int) -> Ints:
    """A number divided into equal parts."""
    if count % parts:
        raise Unknown("not divisible")
    return (count // parts,) * parts
