"""The dimensions of values by the symbols of a model's inputs, operator by operator, further than onnx infers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from superopt.operators import named
from superopt.sizes.size import AtMost, Content, Site, Size, Sized, over, plus, product, times

Shape = tuple[Sized, ...]

_FAR = 1 << 31
"""A place that no axis has: to slice up to it is to slice to the end."""


def together(shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape that shapes broadcast to."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known), default=0)
    result: list[Sized] = []
    for axis in range(-rank, 0):
        dims = [shape[axis] for shape in known if len(shape) >= -axis]
        size = dims[0]
        for dim in dims[1:]:
            size = _both(size, dim)
        result.append(size)
    return tuple(result)


def _both(one: Sized, other: Sized) -> Sized:
    """The dimension that two broadcast to; where a model runs they are the same, or one of them is 1."""
    if one == other or other == Size(1):
        return one
    if one == Size(1):
        return other
    for size in (one, other):
        if isinstance(size, Size) and size.known:
            return size
    if AtMost(one) == other if isinstance(one, Size) else False:
        return one
    return other if isinstance(other, Size) and AtMost(other) == one else None


def _same(site: Site) -> Shape | None:
    return site.shape(0)


def _broadcast(site: Site) -> Shape | None:
    return together([site.shape(place) for place in range(len(site.node.input))])


def _matmul(site: Site) -> Shape | None:
    left, right = site.shape(0), site.shape(1)
    if left is None or right is None or min(len(left), len(right)) < 2:
        return None
    batch = together([left[:-2], right[:-2]])
    return None if batch is None else (*batch, left[-2], right[-1])


def _gemm(site: Site) -> Shape | None:
    left, right = site.shape(0), site.shape(1)
    if left is None or right is None or len(left) != 2 or len(right) != 2:
        return None
    return left[1 if site.attribute("transA", 0) else 0], right[0 if site.attribute("transB", 0) else 1]


def _transpose(site: Site) -> Shape | None:
    shape = site.shape(0)
    perm = site.listed("perm", 1)
    if shape is None or (perm is not None and sorted(perm) != list(range(len(shape)))):
        return None
    return tuple(shape[axis] for axis in perm) if perm is not None else shape[::-1]


def _axes(site: Site, rank: int, place: int = 1) -> set[int] | None:
    axes = site.listed("axes", place)
    if axes is None or any(not -rank <= axis < rank for axis in axes):
        return None
    return {axis % rank for axis in axes}


def _unsqueeze(site: Site) -> Shape | None:
    shape, given = site.shape(0), site.listed("axes", 1)
    axes = None if shape is None or given is None else _axes(site, len(shape) + len(given))
    if shape is None or axes is None or given is None or len(axes) < len(given):
        return None
    rest = iter(shape)
    return tuple(Size(1) if axis in axes else next(rest) for axis in range(len(shape) + len(axes)))


def _squeeze(site: Site) -> Shape | None:
    shape = site.shape(0)
    axes = None if shape is None else _axes(site, len(shape))
    if shape is None or axes is None:
        return None
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _reduce(site: Site) -> Shape | None:
    shape = site.shape(0)
    axes = None if shape is None else _axes(site, len(shape))
    if shape is None or not axes:
        return None
    if site.attribute("keepdims", 1):
        return tuple(Size(1) if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _reshape(site: Site) -> Shape | None:
    """Zeros of the target copy, -1 is what is left; a symbol in the target is what the model says of that axis."""
    shape, target = site.shape(0), site.content(1)
    if target is None or target.rank != 1 or (site.attribute("allowzero", 0) and Size(0) in target.entries):
        return None
    result: list[Sized] = []
    for place, entry in enumerate(target.entries):
        copied = shape[place] if shape is not None and place < len(shape) else None
        result.append(copied if entry == Size(0) else entry if isinstance(entry, Size) else None)
    if Size(-1) in result:
        place = result.index(Size(-1))
        total = None if shape is None else product(shape)
        rest = product(dim for at, dim in enumerate(result) if at != place)
        # The number of elements over the others: of symbols among those nothing follows where they are zero.
        result[place] = over(total, rest) if total is not None and rest is not None and rest.number > 0 else None
    return tuple(result)


def _expand(site: Site) -> Shape | None:
    target = site.content(1)
    if target is None or target.rank != 1:
        return None
    return together([site.shape(0), tuple(entry if isinstance(entry, Size) else None for entry in target.entries)])


def _filled(site: Site) -> Shape | None:
    target = site.content(0)
    if target is None or target.rank != 1:
        return None
    return tuple(entry if isinstance(entry, Size) else None for entry in target.entries)


def _range(site: Site) -> Shape | None:
    """Of numbers from zero, one by one."""
    first, limit, step = site.content(0), site.content(1), site.content(2)
    if first is None or limit is None or step is None or len(limit.entries) != 1:
        return None
    end = limit.entries[0]
    if first.entries != (Size(0),) or step.entries != (Size(1),) or not isinstance(end, Size) or end.number < 0:
        return None
    return (end,)


def _gather(site: Site) -> Shape | None:
    shape, indices, axis = site.shape(0), site.shape(1), site.attribute("axis", 0) or 0
    if shape is None or indices is None or not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    return (*shape[:axis], *indices, *shape[axis + 1 :])


def _concat(site: Site) -> Shape | None:
    shapes = [site.shape(place) for place in range(len(site.node.input))]
    known = [shape for shape in shapes if shape is not None]
    axis = site.attribute("axis")
    if len(known) < len(shapes) or len({len(shape) for shape in known}) != 1 or axis is None:
        return None
    rank = len(known[0])
    if not -rank <= axis < rank:
        return None
    result: list[Sized] = []
    for place in range(rank):
        dims = [shape[place] for shape in known]
        result.append(
            _sum(dims) if place == axis % rank else next((dim for dim in dims if isinstance(dim, Size)), None)
        )
    return tuple(result)


def _sum(dims: Sequence[Sized]) -> Size | None:
    total: Size | None = Size(0)
    for dim in dims:
        total = plus(total, dim) if total is not None and isinstance(dim, Size) else None
    return total


def _slice(site: Site) -> Shape | None:
    shape = site.shape(0)
    starts, ends = site.content(1), site.content(2)
    if shape is None or starts is None or ends is None:
        return None
    axes = list(range(len(starts.entries))) if not site.given(3) else site.numbers(3)
    steps = site.content(4) if site.given(4) else Content("int64", (Size(1),) * len(starts.entries))
    if axes is None or steps is None or any(not -len(shape) <= axis < len(shape) for axis in axes):
        return None
    result = list(shape)
    for axis, start, end, step in zip(axes, starts.entries, ends.entries, steps.entries, strict=False):
        if start == Size(0) and step == Size(1) and isinstance(end, Size) and end.number >= 0:
            result[axis] = _up_to(shape[axis], end)
        else:
            result[axis] = None
    return tuple(result)


def _up_to(dim: Sized, end: Size) -> Sized:
    if end == dim or (end.known and end.number >= _FAR):
        return dim
    if isinstance(dim, Size) and dim.known:
        return Size(min(dim.number, end.number)) if end.known else AtMost(end)
    return None


def _layer(site: Site) -> Shape | None:
    """A convolution or a pool: the batch stays; of a convolution, the channels are the weight's."""
    shape, weight, op = site.shape(0), site.shape(1), site.node.op_type
    if shape is None or len(shape) < 3:
        return None
    channels = shape[1]
    if op in ("Conv", "ConvTranspose"):
        channels = None if weight is None else weight[0 if op == "Conv" else 1]
    if op == "ConvTranspose" and isinstance(channels, Size):
        channels = times(channels, Size(site.attribute("group", 1) or 1))
    return (shape[0], channels, *[None] * (len(shape) - 2))


SHAPES: Mapping[str, Callable[[Site], Shape | None]] = {
    **dict.fromkeys(("CastLike", *named(lambda form: form.shaped == "first")), _same),
    **dict.fromkeys(named(lambda form: form.shaped == "broadcast"), _broadcast),
    **dict.fromkeys(named(lambda form: form.reduces), _reduce),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", *named(lambda form: form.windowed)), _layer),
    "MatMul": _matmul, "Gemm": _gemm, "Transpose": _transpose, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze,
    "Reshape": _reshape, "Expand": _expand, "ConstantOfShape": _filled, "Range": _range, "Gather": _gather,
    "Concat": _concat, "Slice": _slice,
}  # fmt: skip
"""The shape of an operator's first output, by its name."""
