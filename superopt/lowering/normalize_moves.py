"""The normal form of operators that move data: axes from the front and sorted, sizes as numbers where known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from superopt.lowering.site import NotNormal, Site
from superopt.terms import ABSENT, Dim


def sorted_axes(site: Site, axes: tuple[int, ...], rank: int | None = None) -> tuple[int, ...]:
    """Axes from the front, in order; NotNormal where one is there twice."""
    found = sorted(site.axis(axis, rank) for axis in axes)
    if len(set(found)) < len(found):
        raise NotNormal("an axis twice")
    return tuple(found)


def _integers(site: Site, position: int) -> tuple[int, ...]:
    array = site.value(position)
    if not np.issubdtype(array.dtype, np.integer) or array.ndim > 1:
        raise NotNormal(f"input {position} is not a list of integers")
    return tuple(int(item) for item in array.reshape(-1))


def _squeeze(site: Site) -> None:
    axes = site.numbers("axes")
    if site.given(1):
        axes = _integers(site, 1)
    if axes is None:
        shape = site.shape()
        if not all(isinstance(dim, int) for dim in shape):
            raise NotNormal("which sizes are 1 is not known")
        axes = tuple(axis for axis, dim in enumerate(shape) if dim == 1)
    site.attrs["axes"] = sorted_axes(site, axes)


def _unsqueeze(site: Site) -> None:
    axes = _integers(site, 1) if site.given(1) else site.numbers("axes")
    if axes is None:
        raise NotNormal("axes are not given")
    shape = site.type(0).shape
    if shape is not None:
        axes = sorted_axes(site, axes, len(shape) + len(axes))
    elif min(axes, default=0) < 0 or len(set(axes)) < len(axes):
        raise NotNormal("rank not known")
    site.attrs["axes"] = tuple(sorted(axes))


def _transpose(site: Site) -> None:
    perm = site.numbers("perm")
    if perm is None:
        perm = tuple(reversed(range(site.rank())))
    if sorted(perm) != list(range(len(perm))):
        raise NotNormal("perm is not a permutation")
    site.attrs["perm"] = perm


def _flatten(site: Site) -> None:
    axis = site.number("axis")
    if axis < 0:
        site.attrs["axis"] = site.axis(axis)


def _reshape(site: Site) -> None:
    shape = list(_integers(site, 1))
    if any(size < -1 for size in shape) or shape.count(-1) > 1:
        raise NotNormal(f"shape {shape}")
    source = site.type(0).shape
    zeros = bool(site.attrs.get("allowzero")) and 0 in shape
    if not zeros:
        for axis, size in enumerate(shape):
            if size == 0:
                if source is not None and axis >= len(source):
                    raise NotNormal("copies an axis that is not there")
                known = source[axis] if source is not None else None
                shape[axis] = known if isinstance(known, int) else 0
    target = site.output.shape if site.output is not None else None
    if -1 in shape and not zeros:
        place = shape.index(-1)
        shape[place] = _inferred(shape, place, source, target)
    site.attrs["shape"] = tuple(shape)
    site.attrs["allowzero"] = int(zeros)


def _inferred(shape: list[int], place: int, source: tuple[Dim, ...] | None, target: tuple[Dim, ...] | None) -> int:
    """The size that -1 stands for; -1 where it is not known."""
    others = math.prod(size for axis, size in enumerate(shape) if axis != place)
    if source is not None and all(isinstance(dim, int) for dim in source) and others:
        total = math.prod(dim for dim in source if isinstance(dim, int))
        known: Dim = total // others if total % others == 0 else -1
    else:
        known = target[place] if target is not None and len(target) == len(shape) else -1
    # A true zero cannot be said here: 0 would copy.
    return known if isinstance(known, int) and known > 0 else -1


def _concat(site: Site) -> None:
    if "axis" not in site.attrs:
        raise NotNormal("axis is not given")
    axis = site.attrs["axis"] = site.axis(site.number("axis"))
    # What is empty along the axis adds nothing; of another rank it is no operand that ONNX has a meaning for.
    shapes = [site.type(position).shape for position in range(len(site.args))]
    if all(shape is not None and len(shape) == site.rank() for shape in shapes):
        kept = [arg for arg, shape in zip(site.args, shapes, strict=True) if shape is not None and shape[axis] != 0]
        site.args = kept or site.args[:1]


def _split(site: Site) -> None:
    axis = site.axis(site.number("axis"))
    site.attrs["axis"] = axis
    count = len(site.node.output)
    sizes = _integers(site, 1) if site.given(1) else site.numbers("split")
    if not sizes:
        size = site.dim(axis)
        if site.attrs.get("num_outputs", count) != count:
            raise NotNormal("num_outputs is not the number of outputs")
        piece = -(-size // count)
        if site.version < 18 and size % count:
            raise NotNormal("does not divide evenly")
        sizes = (*[piece] * (count - 1), size - piece * (count - 1))
    if len(sizes) != count or min(sizes) < 0:
        raise NotNormal("sizes do not fit the outputs")
    site.attrs.pop("num_outputs", None)
    site.attrs["split"] = sizes


def _slice(site: Site) -> None:
    if site.version >= 10:
        starts, ends = _integers(site, 1), _integers(site, 2)
        axes = _integers(site, 3) if site.given(3) else None
        steps = _integers(site, 4) if site.given(4) else None
    else:
        starts, ends = site.numbers("starts") or (), site.numbers("ends") or ()
        axes, steps = site.numbers("axes"), None
    axes = axes if axes is not None else tuple(range(len(starts)))
    steps = steps if steps is not None else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise NotNormal("starts, ends, axes and steps do not fit")
    sorted_axes(site, axes)
    shape = site.type(0).shape
    rows = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = site.axis(axis)
        size = shape[place] if shape is not None else None
        rows.append((place, *(_clamped(start, end, step, size) if isinstance(size, int) else (start, end)), step))
    rows.sort()
    for index, name in enumerate(("axes", "starts", "ends", "steps")):
        site.attrs[name] = tuple(row[index] for row in rows)


def _clamped(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Start and end from the front; an end before the first element, going down, is ``-size - 1``."""
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
        return (start, end) if start < end else (0, 0)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    if start <= end or not size:
        return 0, 0
    return start, end if end >= 0 else -size - 1


_COORDINATES = frozenset({"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"})


def _resize(site: Site) -> None:
    """Scales or sizes for every axis, the other one empty; weights of a sum of one, whatever lies beyond the ends."""
    attrs = site.attrs
    if site.version < 11:
        raise NotNormal("before opset 11, of other coordinates")
    if attrs.get("antialias") or attrs.get("exclude_outside") or attrs.get("axes"):
        raise NotNormal("with antialiasing, without what is outside, or of some axes")
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotNormal("keeps the aspect ratio")
    if attrs["coordinate_transformation_mode"] not in _COORDINATES:
        raise NotNormal(f"coordinates {attrs['coordinate_transformation_mode']}")
    if not site.type(0).dtype.startswith("float"):
        raise NotNormal("rounds to whole numbers")
    scales = tuple(float(item) for item in site.value(2).reshape(-1)) if site.given(2) else ()
    sizes = _integers(site, 3) if site.given(3) else ()
    if bool(scales) == bool(sizes) or len(scales or sizes) != site.rank():
        raise NotNormal("neither scales nor sizes for every axis")
    if min(scales or sizes) <= 0:
        raise NotNormal("to nothing")
    attrs.update(scales=scales, sizes=sizes)


def _pad(site: Site) -> None:
    if site.version < 11:
        pads, axes = site.numbers("pads") or (), None
        value = np.asarray(site.attrs.pop("value", 0.0))
        if value != 0 or np.signbit(value):
            dtype = site.type(0).dtype
            if dtype not in ("float16", "float32", "float64"):
                raise NotNormal(f"a value for {dtype}")
            site.args = [site.args[0], ABSENT, site.make(value.astype(dtype))]
    else:
        pads = _integers(site, 1)
        axes = _integers(site, 3) if site.given(3) else None
    if axes is not None:
        rank = site.rank()
        places = [site.axis(axis) for axis in axes]
        if len(pads) != 2 * len(axes) or len(set(places)) < len(places):
            raise NotNormal("pads do not fit the axes")
        full = [0] * (2 * rank)
        for index, place in enumerate(places):
            full[place], full[rank + place] = pads[index], pads[len(axes) + index]
        pads = tuple(full)
    elif site.type(0).shape is not None and len(pads) != 2 * site.rank():
        raise NotNormal("pads do not fit the input")
    site.attrs["pads"] = pads
    site.attrs.pop("axes", None)


def _trilu(site: Site) -> None:
    k = _integers(site, 1) if site.given(1) else (0,)
    if len(k) != 1:
        raise NotNormal("k is not one number")
    site.attrs["k"] = k[0]


def _shape(site: Site) -> None:
    start, end = site.number("start") if "start" in site.attrs else 0, site.attrs.get("end")
    if start or end is not None:
        rank = site.rank()
        start = min(max(start + rank if start < 0 else start, 0), rank)
        last = rank if end is None else int(str(end))
        last = min(max(last + rank if last < 0 else last, 0), rank)
        site.attrs.pop("end", None)
        if last < rank:
            site.attrs["end"] = last
    site.attrs["start"] = start


SPECIAL: Mapping[str, Callable[[Site], None]] = {
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Trilu": _trilu,
    "Shape": _shape,
}
"""How each of these operators comes into normal form."""
