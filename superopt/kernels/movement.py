"""Kernels of operators that move data and compute nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from superopt.errors import EvaluationError
from superopt.kernels.algebra import Algebra, Array
from superopt.kernels.registry import Args, all_given, given, integer, integers, kernel, string
from superopt.terms import Attrs


@kernel("Concat")
def _concat(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return np.concatenate(all_given("Concat", args), axis=integer(attrs, "axis"))


@kernel("Split")
def _split(algebra: Algebra, attrs: Attrs, args: Args) -> tuple[Array, ...]:
    x, axis, sizes = given("Split", args, 0), integer(attrs, "axis"), integers(attrs, "split")
    if sum(sizes) != x.shape[axis]:
        raise EvaluationError(f"Split: sizes {list(sizes)} do not add up to {x.shape[axis]}")
    ends = np.cumsum(sizes).tolist()
    return tuple(np.split(x, ends[:-1], axis=axis)) if sizes else ()


@kernel("Slice")
def _slice(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Slice", args, 0)
    places = [slice(None)] * x.ndim
    starts, ends = integers(attrs, "starts"), integers(attrs, "ends")
    axes = integers(attrs, "axes") if "axes" in attrs else tuple(range(len(starts)))
    steps = integers(attrs, "steps") if "steps" in attrs else (1,) * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        start, end = (start + size if start < 0 else start), (end + size if end < 0 else end)
        if step > 0:
            places[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        else:
            end = min(max(end, -1), size - 1)
            places[axis] = slice(min(max(start, 0), size - 1), None if end < 0 else end, step)
    return x[tuple(places)]


@kernel("Pad")
def _pad(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, pads, mode = given("Pad", args, 0), integers(attrs, "pads"), string(attrs, "mode")
    begins, ends = pads[: x.ndim], pads[x.ndim :]
    crop = tuple(slice(max(-b, 0), size - max(-e, 0)) for b, e, size in zip(begins, ends, x.shape, strict=True))
    grow = [(max(b, 0), max(e, 0)) for b, e in zip(begins, ends, strict=True)]
    if mode == "constant":
        value = args[1] if len(args) > 1 else None
        fill = np.zeros((), dtype=x.dtype) if value is None else value.reshape(())
        return np.pad(x[crop], grow, constant_values=fill)
    return np.asarray(np.pad(x[crop], grow, mode={"edge": "edge", "reflect": "reflect", "wrap": "wrap"}[mode]))  # type: ignore[call-overload]


@kernel("Reshape")
def _reshape(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, shape = given("Reshape", args, 0), list(integers(attrs, "shape"))
    if not attrs.get("allowzero", 0):
        shape = [x.shape[place] if size == 0 else size for place, size in enumerate(shape)]
    if -1 in shape:
        rest = math.prod(size for size in shape if size != -1)
        if rest == 0 or x.size % rest:
            raise EvaluationError(f"Reshape: {list(x.shape)} does not fit {shape}")
        shape[shape.index(-1)] = x.size // rest
    if math.prod(shape) != x.size:
        raise EvaluationError(f"Reshape: {list(x.shape)} does not fit {shape}")
    return x.reshape(shape)


@kernel("Flatten")
def _flatten(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, axis = given("Flatten", args, 0), integer(attrs, "axis")
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@kernel("Squeeze")
def _squeeze(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Squeeze", args, 0)
    return np.squeeze(x, axis=integers(attrs, "axes") if "axes" in attrs else None)


@kernel("Unsqueeze")
def _unsqueeze(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return np.expand_dims(given("Unsqueeze", args, 0), integers(attrs, "axes"))


@kernel("Transpose")
def _transpose(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Transpose", args, 0)
    return x.transpose(integers(attrs, "perm") if "perm" in attrs else None)


@kernel("Expand")
def _expand(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Expand", args, 0)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, integers(attrs, "shape")))


@kernel("Tile")
def _tile(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return np.tile(given("Tile", args, 0), integers(attrs, "repeats"))


@kernel("Gather")
def _gather(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, indices = given("Gather", args, 0), given("Gather", args, 1)
    return np.take(x, checked(indices, x.shape[integer(attrs, "axis")], "Gather"), axis=integer(attrs, "axis"))


def checked(indices: Array, size: int, op: str) -> Array:
    """Indices made non-negative; raises EvaluationError where one is out of range."""
    indices = indices.astype(np.int64)
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise EvaluationError(f"{op}: an index is outside of -{size} ... {size - 1}")
    return np.asarray(np.where(indices < 0, indices + size, indices))


@kernel("GatherElements")
def _gather_elements(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, indices, axis = given("GatherElements", args, 0), given("GatherElements", args, 1), integer(attrs, "axis")
    indices = checked(indices, x.shape[axis], "GatherElements")
    # Other axes of the indices may be shorter than those of the data.
    grid = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    grid[axis] = indices
    return np.asarray(x[tuple(grid)])


@kernel("GatherND")
def _gather_nd(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, indices, batch = given("GatherND", args, 0), given("GatherND", args, 1), integer(attrs, "batch_dims")
    depth = indices.shape[-1]
    places = [checked(indices[..., i], x.shape[batch + i], "GatherND") for i in range(depth)]
    grid = np.ogrid[tuple(slice(size) for size in x.shape[:batch])] if batch else ()
    extra = indices.ndim - 1 - batch
    lead = [axis.reshape(axis.shape + (1,) * extra) for axis in grid]
    return np.asarray(x[(*lead, *places)])


@kernel("ScatterND")
def _scatter_nd(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, indices, updates = all_given("ScatterND", args)
    reduction = string(attrs, "reduction")
    result = x.copy()
    places = tuple(checked(indices[..., i], x.shape[i], "ScatterND") for i in range(indices.shape[-1]))
    if reduction == "none":
        result[places] = updates
        return result
    if reduction in ("max", "min"):
        algebra.compares(f"ScatterND with {reduction}")
    combine: dict[str, Callable[[Array, Array], Array]] = {
        "add": algebra.add, "mul": algebra.mul, "max": np.maximum, "min": np.minimum,
    }  # fmt: skip
    # One by one: the same place may be named twice.
    for at in np.ndindex(*indices.shape[:-1]):
        place = tuple(int(axis[at]) for axis in places)
        result[place] = combine[reduction](result[place], updates[at])
    return result


@kernel("DepthToSpace")
def _depth_to_space(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, size = given("DepthToSpace", args, 0), integer(attrs, "blocksize")
    n, c, h, w = x.shape
    if string(attrs, "mode") == "DCR":
        split = x.reshape(n, size, size, c // size**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = x.reshape(n, c // size**2, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(n, c // size**2, h * size, w * size)


@kernel("SpaceToDepth")
def _space_to_depth(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, size = given("SpaceToDepth", args, 0), integer(attrs, "blocksize")
    n, c, h, w = x.shape
    split = x.reshape(n, c, h // size, size, w // size, size)
    order = (0, 3, 5, 1, 2, 4) if attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return split.transpose(order).reshape(n, c * size**2, h // size, w // size)


@kernel("Trilu")
def _trilu(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x, k = given("Trilu", args, 0), integers(attrs, "k")[0] if "k" in attrs else 0
    return np.asarray(np.triu(x, k) if integer(attrs, "upper") else np.tril(x, k))


@kernel("Shape")
def _shape(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    x = given("Shape", args, 0)
    end = integer(attrs, "end") if "end" in attrs else x.ndim
    return np.asarray(x.shape[integer(attrs, "start") : end], dtype=np.int64)


@kernel("Size")
def _size(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    return np.asarray(given("Size", args, 0).size, dtype=np.int64)
