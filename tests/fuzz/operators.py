"""How each operator is drawn: inputs that fit, parameters of every kind, written as the draft's opset wants them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.draft import FLOATS, INTEGERS, Draft, Dropped, Value, number

Drawn = list[Value]


def is_float(value: Value) -> bool:
    return value.dtype in FLOATS


def is_number(value: Value) -> bool:
    return value.dtype in (*FLOATS, *INTEGERS)


def is_image(value: Value) -> bool:
    return value.dtype in ("float32", "float16") and value.rank in (3, 4) and not value.constant


UNARY = {"Relu": 9, "Sigmoid": 9, "Tanh": 9, "Neg": 9, "Abs": 9, "Identity": 9, "Erf": 9, "Exp": 9, "Sqrt": 9,
         "Reciprocal": 9, "Softplus": 9, "Softsign": 9, "Sign": 9, "Floor": 9, "Ceil": 9, "Round": 11, "HardSwish": 14,
         "Mish": 18, "Gelu": 20, "Log": 9, "Sin": 9, "Cos": 9, "Celu": 12, "Selu": 9}  # fmt: skip
POSITIVE = ("Sqrt", "Reciprocal", "Log", "ReduceLogSum")
"""Of these the argument is made one or more."""

LIKELY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Identity", "Erf")
PARAMETRIC = {
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "ThresholdedRelu": ("alpha",),
}
COMPARISONS = {"Equal": 11, "Less": 9, "Greater": 9, "LessOrEqual": 12, "GreaterOrEqual": 12}
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum")  # fmt: skip


def unary(d: Draft) -> Drawn:
    x = d.pick(is_float)
    op = d.one_of(LIKELY) if d.chance(60) else d.one_of([name for name, least in UNARY.items() if d.opset >= least])
    return d.add(op, [positive(d, x) if op in POSITIVE else x])


def positive(d: Draft, x: Value) -> Value:
    return d.add("Add", [d.add("Abs", [x])[0], d.constant((), x.dtype, "ones")])[0]


def oddities(d: Draft) -> Drawn:
    return d.add("IsNaN" if d.opset < 10 or d.chance(50) else "IsInf", [d.pick(lambda v: v.dtype == "float32")])


def bits(d: Draft) -> Drawn:
    if d.opset < 18:
        raise Dropped
    return d.add("BitwiseNot", [d.pick(lambda value: value.dtype in INTEGERS)])


def parametric(d: Draft) -> Drawn:
    op = d.one_of(list(PARAMETRIC))
    values = {name: d.one_of((0.5, 0.0, 1.0, 0.1, 0.25, 1 / 6)) for name in PARAMETRIC[op] if d.chance(70)}
    return d.add(op, [d.pick(is_float)], **values)


def broadcastable(d: Draft, x: Value) -> tuple[int, ...]:
    """A shape that broadcasts against x: mostly within it, sometimes beyond."""
    kind = d.integer(0, 5)
    if kind == 0:
        return ()
    if kind == 1:
        return x.shape
    if kind == 2 and x.rank > 1:
        return (x.shape[1], *[1] * (x.rank - 2))
    if kind == 3 and x.rank > 1:
        return (1, x.shape[1], *[1] * (x.rank - 2))
    if kind == 4:
        return x.shape[-1:]
    return tuple(dim if d.chance(50) else 1 for dim in x.shape)


def binary(d: Draft) -> Drawn:
    x = d.pick(is_number)
    op = d.one_of(("Add", "Mul", "Sub", "Div", "Add", "Mul") if is_float(x) else ("Add", "Mul", "Sub"))
    return ordered(d, op, x, other(d, x, "positive" if op == "Div" and d.chance(70) else None))


def other(d: Draft, x: Value, content: str | None = None) -> Value:
    if content is None and d.chance(40):
        return d.pick(lambda value: value.dtype == x.dtype and fits_with(value.shape, x.shape))
    return d.constant(broadcastable(d, x), x.dtype, content)


def fits_with(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def ordered(d: Draft, op: str, x: Value, y: Value) -> Drawn:
    return d.add(op, [y, x] if d.chance(30) and (op != "Div" or not is_float(x)) else [x, y])


def variadic(d: Draft) -> Drawn:
    x = d.pick(is_float)
    op = d.one_of(("Max", "Min", "Sum", "Mean"))
    return d.add(op, [x, *(other(d, x) for _ in range(d.integer(0, 2)))])


def power(d: Draft) -> Drawn:
    x = d.pick(is_float)
    exponent = d.one_of((2.0, 1.0, 0.5, 0.0, 3.0, -1.0))
    if exponent in (0.5, -1.0):
        x = positive(d, x)
    return d.add("Pow", [x, d.given(np.asarray(exponent, x.dtype))])


def compare(d: Draft) -> Drawn:
    x = d.pick(is_number)
    return d.add(d.one_of([name for name, least in COMPARISONS.items() if d.opset >= least]), [x, other(d, x)])


def logic(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.dtype == "bool")
    op = d.one_of(("Not", "And", "Or", "Xor"))
    return d.add(op, [x] if op == "Not" else [x, other(d, x)])


def where(d: Draft) -> Drawn:
    x = d.pick(is_number)
    fits = [v for v in d.values if v.dtype == "bool" and fits_with(v.shape, x.shape)]
    test = d.one_of(fits) if fits and d.chance(70) else d.constant(broadcastable(d, x), "bool")
    return d.add("Where", [test, x, x if d.chance(15) else other(d, x)])


def cast(d: Draft) -> Drawn:
    x = d.pick()
    target = d.one_of(("float32", "float16", "float64", "int64", "int32", "bool"))
    if is_float(x) and target in INTEGERS:
        target = "float32"
    return d.add("Cast", [x], to=number(target))


def clip(d: Draft) -> Drawn:
    x = d.pick(is_float)
    low, high = d.one_of(((0.0, 6.0), (-1.0, 1.0), (0.0, None), (None, 6.0), (0.0, 1.0), (2.0, -2.0), (None, None)))
    if d.opset < 11:
        return d.add("Clip", [x], min=low, max=high) if x.dtype != "float64" else []
    bounds = ["" if b is None else d.given(np.asarray(b, x.dtype)).name for b in (low, high)]
    return d.add("Clip", [x, *bounds])


def transpose(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.rank > 0)
    from hypothesis import strategies as st

    return d.add("Transpose", [x], perm=None if d.chance(15) else d.choose(st.permutations(range(x.rank))))


def reshape(d: Draft) -> Drawn:
    x = d.pick()
    dims = [dim for dim in x.shape if dim != 1] if d.chance(30) else list(x.shape)
    if len(dims) > 1 and d.chance(70):
        at = d.integer(0, len(dims) - 2)
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    for at, dim in enumerate(dims):
        if dim % 2 == 0 and len(dims) < 5 and d.chance(40):
            dims[at : at + 1] = [2, dim // 2]
            break
    if d.chance(25):
        dims.insert(d.integer(0, len(dims)), 1)
    target = list(dims)
    if dims and d.chance(40):
        target[d.integer(0, len(dims) - 1)] = -1
    for at in range(min(len(dims), x.rank)):
        if dims[at] == x.shape[at] and target[at] != -1 and d.chance(30):
            target[at] = 0
    return d.add("Reshape", [x, d.ints(target)])


def flatten(d: Draft) -> Drawn:
    x = d.pick(is_float)
    return d.add("Flatten", [x], axis=d.integer(0, x.rank))


def some_axes(d: Draft, count: int, fits: Callable[[int], bool] = lambda axis: True) -> list[int]:
    axes = [axis for axis in range(count) if fits(axis) and d.chance(45)]
    return [axis - count if d.chance(20) and d.opset >= 11 else axis for axis in axes]


def squeeze(d: Draft) -> Drawn:
    x = d.pick(lambda value: 1 in value.shape)
    axes = some_axes(d, x.rank, lambda axis: x.shape[axis] == 1) or [x.shape.index(1)]
    return with_axes(d, "Squeeze", x, axes, 13)


def unsqueeze(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.rank < 4)
    count = x.rank + d.integer(1, 2)
    axes = (some_axes(d, count) or [0])[: count - x.rank]
    if len(axes) < count - x.rank:
        axes = [d.integer(0, x.rank)]
    return with_axes(d, "Unsqueeze", x, axes, 13)


def with_axes(d: Draft, op: str, x: Value, axes: list[int], since: int, **attributes: Any) -> Drawn:
    if d.opset >= since:
        return d.add(op, [x, d.ints(axes)], **attributes)
    return d.add(op, [x], axes=axes, **attributes)


def reduce(d: Draft) -> Drawn:
    op = d.one_of(REDUCTIONS[:3]) if d.chance(60) else d.one_of(REDUCTIONS)
    x = d.pick(lambda value: is_float(value) or (value.dtype in INTEGERS and op in ("ReduceSum", "ReduceMax")))
    keep = d.one_of((1, 0))
    axes = some_axes(d, x.rank)
    if op in POSITIVE:
        x = positive(d, x)
    if not axes:
        return d.add(op, [x], keepdims=keep)
    return with_axes(d, op, x, axes, 13 if op == "ReduceSum" else 18, keepdims=keep)


def arg(d: Draft) -> Drawn:
    x = d.pick(lambda value: is_float(value) and value.rank > 0)
    return d.add(d.one_of(("ArgMax", "ArgMin")), [x], axis=d.integer(0, x.rank - 1), keepdims=d.one_of((1, 0)))


def softmax(d: Draft) -> Drawn:
    x = d.pick(lambda value: is_float(value) and value.rank > 0)
    axis = None if d.chance(20) else d.integer(0 if d.opset < 11 else -x.rank, x.rank - 1)
    return d.add(d.one_of(("Softmax", "LogSoftmax")), [x], axis=axis)


def layernorm(d: Draft) -> Drawn:
    if d.opset < 17:
        raise Dropped
    x = d.pick(lambda value: value.dtype == "float32" and value.rank > 0)
    axis = d.integer(0, x.rank - 1)
    parts = [x, d.constant(x.shape[axis:], x.dtype)]
    if d.chance(60):
        parts.append(d.constant(x.shape[axis:], x.dtype))
    return d.add("LayerNormalization", parts, axis=axis, epsilon=d.one_of((1e-5, 1e-3)))


def concat(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.rank > 0)
    axis = d.integer(0, x.rank - 1)

    def joins(value: Value) -> bool:
        same = value.dtype == x.dtype and value.rank == x.rank
        return same and all(a == b for i, (a, b) in enumerate(zip(value.shape, x.shape, strict=True)) if i != axis)

    parts = [x]
    for _ in range(d.integer(0, 3)):
        if d.chance(30):
            shape = list(x.shape)
            shape[axis] = d.integer(1, 3)
            parts.append(d.constant(shape, x.dtype))
        else:
            parts.append(d.pick(joins))
    return d.add("Concat", parts, axis=axis - x.rank if d.chance(30) and d.opset >= 11 else axis)


def split(d: Draft) -> Drawn:
    x = d.pick(lambda value: any(dim > 1 for dim in value.shape))
    axis = d.one_of([axis for axis, dim in enumerate(x.shape) if dim > 1])
    size, count = x.shape[axis], d.integer(2, 3)
    if size % count == 0 and d.chance(40):
        made = d.add("Split", [x], count, axis=axis, num_outputs=count if d.opset >= 18 else None)
    else:
        first = d.integer(1, size - 1)
        sizes = [first, size - first]
        made = (
            d.add("Split", [x, d.ints(sizes)], 2, axis=axis)
            if d.opset >= 13
            else d.add("Split", [x], 2, axis=axis, split=sizes)
        )
    if d.chance(30):
        parts = made if d.chance(70) else made[::-1]
        return d.add("Concat", parts, axis=axis)
    return made


def slices(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.rank > 0)
    axes = sorted({d.integer(0, x.rank - 1) for _ in range(d.integer(1, 2))})
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.shape[axis]
        start, end = sorted((d.integer(0, size), d.integer(0, size)))
        step = d.one_of((1, 1, 1, 2, -1)) if d.opset >= 10 else 1
        if step < 0:
            start, end = size - 1, -size - 1
        elif end == start:
            start, end = 0, size
        starts.append(start - size if d.chance(20) and start < size else start)
        ends.append(2**31 - 1 if end == size and d.chance(50) else end)
        steps.append(step)
    if d.opset < 10:
        return d.add("Slice", [x], starts=starts, ends=ends, axes=axes)
    parts = [x, d.ints(starts), d.ints(ends), d.ints(axes)]
    if any(step != 1 for step in steps) or d.chance(50):
        parts.append(d.ints(steps))
    return d.add("Slice", parts)


def pad(d: Draft) -> Drawn:
    x = d.pick(lambda value: is_float(value) and 0 < value.rank < 5)
    space = range(2, x.rank) if d.chance(60) and x.rank > 2 else range(x.rank)
    pads = [0] * (2 * x.rank)
    for axis in space:
        pads[axis], pads[axis + x.rank] = d.integer(0, 2), d.integer(0, 2)
        if d.chance(10) and x.shape[axis] > 2:
            pads[axis] = -1
    mode = d.one_of(("constant", "constant", "constant", "edge", "reflect"))
    if mode != "constant" and any(p >= n or p < 0 for p, n in zip(pads, x.shape * 2, strict=True)):
        mode = "constant"
    content = d.one_of(("none", "zeros", "negative zeros", "normal"))
    if d.opset < 11:
        return d.add("Pad", [x], pads=pads, mode=mode, value=0.5 if content == "normal" else None)
    return d.add(
        "Pad", [x, d.ints(pads), *([] if content == "none" else [d.constant((), x.dtype, content)])], mode=mode
    )


def expand(d: Draft) -> Drawn:
    x = d.pick()
    shape = [d.integer(2, 3) if dim == 1 and d.chance(60) else dim if d.chance(70) else 1 for dim in x.shape]
    if len(shape) < 4 and d.chance(30):
        shape.insert(0, d.integer(1, 2))
    return d.add("Expand", [x, d.ints(shape)])


def tile(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.rank > 0)
    return d.add("Tile", [x, d.ints([d.integer(1, 2) for _ in x.shape])])


def gather(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.rank > 0 and 0 not in value.shape)
    axis = d.integer(0, x.rank - 1)
    least = -x.shape[axis] if d.opset >= 11 else 0
    kind = d.one_of(("range", "scalar", "one", "any"))
    if kind == "range":
        indices: Any = np.arange(x.shape[axis])
    elif kind == "scalar":
        indices = np.asarray(d.integer(least, x.shape[axis] - 1))
    else:
        indices = np.asarray([d.integer(least, x.shape[axis] - 1) for _ in range(1 if kind == "one" else 3)])
    return d.add("Gather", [x, d.given(indices.astype(np.int64))], axis=axis)


def matmul(d: Draft) -> Drawn:
    x = d.pick(lambda value: is_float(value) and value.rank > 0)
    if d.chance(25):
        fits = [v for v in d.values if v.dtype == x.dtype and v.rank > 1 and v.shape[-2] == x.shape[-1]]
        if fits:
            return d.add("MatMul", [x, d.one_of(fits)])
    if d.chance(25) and x.rank > 1:
        return d.add("MatMul", [d.constant((d.dim(), x.shape[-2]), x.dtype), x])
    shape = (x.shape[-1], d.dim())
    if d.chance(10):
        shape = (x.shape[-1],)
    elif d.chance(10):
        shape = (*x.shape[:-2], *shape)
    made = d.add("MatMul", [x, d.constant(shape, x.dtype)])
    if d.chance(40) and made[0].rank > 0:
        made = d.add("Add", [made[0], d.constant(made[0].shape[-1:], x.dtype)])
    return made


def gemm(d: Draft) -> Drawn:
    x = d.pick(lambda value: is_float(value) and value.rank == 2)
    left, right = int(d.chance(30)), int(d.chance(30))
    rows, inner = x.shape[::-1] if left else x.shape
    outer = d.dim()
    parts = [x, d.constant((outer, inner) if right else (inner, outer), x.dtype)]
    if d.opset < 11 or d.chance(70):
        parts.append(d.constant(d.one_of(((outer,), (), (1, outer), (rows, 1), (rows, outer))), x.dtype))
    numbers = {name: d.one_of((1.0, 0.5, 2.0, 0.0)) for name in ("alpha", "beta") if d.chance(30)}
    return d.add("Gemm", parts, transA=left, transB=right, **numbers)


def window(d: Draft, x: Value, most: int = 3) -> dict[str, Any]:
    space = x.rank - 2
    kernel = [d.one_of((3, 1, 2)[: min(most, 3)]) for _ in range(space)]
    made: dict[str, Any] = {"kernel_shape": kernel}
    if d.chance(40):
        made["strides"] = [d.integer(1, 2) for _ in range(space)]
    kind = d.integer(0, 4)
    if kind == 0:
        made["auto_pad"] = d.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif kind < 3:
        made["pads"] = [size // 2 for size in kernel] * 2
    elif kind == 3:
        made["pads"] = [d.integer(0, max(0, size - 1)) for size in kernel * 2]
    return made


def conv(d: Draft, x: Value | None = None, same: bool = False) -> Drawn:
    x = x or d.pick(is_image)
    channels = x.shape[1]
    groups = d.one_of([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = channels if same else groups * d.integer(1, 3)
    attributes = window(d, x)
    if same:
        attributes = {"kernel_shape": [(s := d.one_of((3, 1)))] * (x.rank - 2), "pads": [s // 2] * 2 * (x.rank - 2)}
    elif d.chance(20) and "auto_pad" not in attributes:
        attributes["dilations"] = [d.integer(1, 2) for _ in range(x.rank - 2)]
    parts = [x, d.constant((out, channels // groups, *attributes["kernel_shape"]), x.dtype)]
    if d.chance(50):
        parts.append(d.constant((out,), x.dtype))
    if d.chance(50):
        del attributes["kernel_shape"]
    return d.add("Conv", parts, group=groups, **attributes)


def conv_transpose(d: Draft) -> Drawn:
    x = d.pick(is_image)
    channels = x.shape[1]
    groups = d.one_of([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = d.integer(1, 3)
    attributes = window(d, x)
    attributes.pop("auto_pad", None)
    parts = [x, d.constant((channels, out, *attributes["kernel_shape"]), x.dtype)]
    if d.chance(50):
        parts.append(d.constant((out * groups,), x.dtype))
    return d.add("ConvTranspose", parts, group=groups, **attributes)


def batchnorm(d: Draft, x: Value | None = None) -> Drawn:
    x = x or d.pick(lambda value: value.dtype in ("float32", "float16") and 2 <= value.rank <= 4)
    shape = (x.shape[1],)
    parts = [d.constant(shape, x.dtype, None if d.chance(30) else "normal") for _ in range(3)]
    return d.add("BatchNormalization", [x, *parts, d.constant(shape, x.dtype, "positive")])


def block(d: Draft) -> Drawn:
    """Convolutions of one input, each with or without its BatchNormalization, summed: a training-form block."""
    x = d.pick(is_image)
    parts = []
    for _ in range(d.integer(2, 3)):
        kind = d.integer(0, 3)
        part = x if kind == 0 else conv(d, x, same=True)[0]
        parts.append(batchnorm(d, part)[0] if d.chance(60) else part)
    total = parts[0]
    for part in parts[1:]:
        total = d.add("Add", [total, part])[0]
    return d.add("Relu", [total]) if d.chance(50) else [total]


def pool(d: Draft) -> Drawn:
    x = d.pick(lambda value: is_image(value) and min(value.shape[2:]) > 1)
    op = d.one_of(("AveragePool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        return d.add(op, [x])
    attributes = window(d, x)
    if d.opset >= 10 and d.chance(20):
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and d.chance(40):
        attributes["count_include_pad"] = 1
    return d.add(op, [x], **attributes)


def swish(d: Draft) -> Drawn:
    x = d.pick(is_float)
    gate = d.one_of(("Sigmoid", "HardSigmoid", "Erf"))
    return d.add("Mul", [x, d.add(gate, [x])[0]])


def dropout(d: Draft) -> Drawn:
    return d.add("Dropout", [d.pick(is_float)])


def shape_of(d: Draft) -> Drawn:
    x = d.pick(lambda value: value.rank > 0 and not value.constant)
    return d.add("Shape", [x])


def sized_by_shape(d: Draft) -> Drawn:
    """A Reshape to what is computed from the shape, as exporters write it."""
    x = d.pick(lambda value: value.rank > 1 and not value.constant)
    shape = d.add("Shape", [x])[0]
    axis = d.integer(0, x.rank - 1)
    kept = d.add("Gather", [shape, d.ints([axis])], axis=0)[0]
    if axis and d.chance(30):
        kept = d.add("Mul", [kept, d.add("Gather", [shape, d.ints([0])], axis=0)[0]])[0]
    parts = [kept, d.given(np.asarray([-1], np.int64))]
    target = d.add("Concat", parts if d.chance(50) else parts[::-1], axis=0)[0]
    return d.add("Reshape", [x, target])


def einsum(d: Draft) -> Drawn:
    if d.opset < 12:
        raise Dropped
    x = d.pick(lambda value: value.dtype == "float32" and 1 < value.rank < 5)
    letters = "abcd"[: x.rank]
    kind = d.integer(0, 4)
    if kind == 0:
        equation, shape = f"{letters},{letters[-1]}e->{letters[:-1]}e", (x.shape[-1], d.dim())
    elif kind == 1:
        equation, shape = f"{letters},e{letters[-1]}->e{letters[:-1]}", (d.dim(), x.shape[-1])
    elif kind == 2:
        equation, shape = f"{letters},{letters[0]}{letters[-1]}->{letters[:-1]}", (x.shape[0], x.shape[-1])
    elif kind == 3:
        equation = f"{letters},{letters[:-2]}e{letters[-1]}->{letters[:-1]}e"
        shape = (*x.shape[:-2], d.dim(), x.shape[-1])
    else:
        return d.add("Einsum", [x], equation=f"{letters}->{letters[::-1] if d.chance(50) else letters[:-1]}")
    return d.add("Einsum", [x, d.constant(shape, x.dtype)], equation=equation)


def resize(d: Draft) -> Drawn:
    if d.opset < 11:
        raise Dropped
    x = d.pick(lambda value: value.dtype == "float32" and value.rank == 4)
    mode = d.one_of(("nearest", "linear"))
    how = d.one_of(("asymmetric", "half_pixel", "align_corners"))
    scales = np.asarray([1, 1, *(d.one_of((2.0, 1.0, 0.5)) for _ in range(2))], np.float32)
    empty = d.given(np.zeros(0, np.float32)) if d.opset < 13 else ""
    try:
        return d.add(
            "Resize", [x, empty, d.given(scales)], mode=mode, coordinate_transformation_mode=how, nearest_mode="floor"
        )
    finally:
        d.values = [value for value in d.values if value != empty]  # nothing else can be made of it


def normalized(d: Draft) -> Drawn:
    """A normalization or an activation, written out as exporters write it."""
    x = d.pick(lambda value: value.dtype == "float32" and value.rank > 1 and not value.constant)
    kind = d.one_of(("layer", "rms", "gelu", "hardswish", "softmax", "silu", "mish"))
    if kind in ("layer", "rms"):

        def mean(value: Value) -> Value:
            return with_axes(d, "ReduceMean", value, [x.rank - 1 if d.opset < 11 else -1], 18)[0]

        if kind == "layer":
            x = d.add("Sub", [x, mean(x)])[0]
        square = d.add("Pow", [x, d.given(np.asarray(2.0, np.float32))])[0]
        spread = d.add("Sqrt", [d.add("Add", [mean(square), d.given(np.asarray(1e-3, np.float32))])[0]])[0]
        x = d.add("Div", [x, spread])[0]
        x = d.add("Mul", [x, d.constant(x.shape[-1:], x.dtype)])[0]
        return d.add("Add", [x, d.constant(x.shape[-1:], x.dtype)]) if kind == "layer" else [x]
    if kind == "gelu":
        bent = d.add("Erf", [d.add("Div", [x, d.given(np.asarray(2.0**0.5, np.float32))])[0]])[0]
        half = d.add("Mul", [x, d.add("Add", [bent, d.constant((), x.dtype, "ones")])[0]])[0]
        return d.add("Mul", [half, d.given(np.asarray(0.5, np.float32))])
    if kind == "hardswish":
        if d.opset < 11:
            raise Dropped
        moved = d.add("Add", [x, d.given(np.asarray(3.0, np.float32))])[0]
        cut = d.add("Clip", [moved, *(d.given(np.asarray(bound, np.float32)) for bound in (0.0, 6.0))])[0]
        return d.add("Div", [d.add("Mul", [x, cut])[0], d.given(np.asarray(6.0, np.float32))])
    if kind == "softmax":
        grown = d.add("Exp", [d.add("Tanh", [x])[0]])[0]
        return d.add("Div", [grown, with_axes(d, "ReduceSum", grown, [x.rank - 1], 13)[0]])
    if kind == "silu":
        return d.add("Mul", [x, d.add("Sigmoid", [x])[0]])
    return d.add("Mul", [x, d.add("Tanh", [d.add("Softplus", [x])[0]])[0]])


def attention(d: Draft) -> Drawn:
    """Self-attention of one or two heads over the last two axes."""
    x = d.pick(lambda value: value.dtype == "float32" and value.rank == 3 and not value.constant)
    heads, width = d.integer(1, 2), d.integer(1, 3)
    parts = []
    for place in range(3):
        made = d.add("MatMul", [x, d.constant((x.shape[-1], heads * width), x.dtype, "normal")])[0]
        if d.chance(50):
            made = d.add("Add", [made, d.constant((heads * width,), x.dtype)])[0]
        made = d.add("Reshape", [made, d.ints([0, x.shape[1], heads, width])])[0]
        parts.append(d.add("Transpose", [made], perm=[0, 2, 3, 1] if place == 1 else [0, 2, 1, 3])[0])
    scores = d.add("MatMul", parts[:2])[0]
    scores = d.add(d.one_of(("Mul", "Div")), [scores, d.constant((), x.dtype, d.one_of(("ones", "positive")))])[0]
    if d.chance(40):
        scores = d.add("Add", [scores, d.constant((1, 1, 1, x.shape[1]), x.dtype)])[0]
    mixed = d.add("MatMul", [d.add("Softmax", [scores], axis=3)[0], parts[2]])[0]
    mixed = d.add("Transpose", [mixed], perm=[0, 2, 1, 3])[0]
    mixed = d.add("Reshape", [mixed, d.ints([0, x.shape[1], heads * width])])[0]
    if d.chance(40):
        mixed = d.add("Gather", [mixed, d.given(np.asarray(0, np.int64))], axis=1)[0]
    return d.add("MatMul", [mixed, d.constant((heads * width, d.dim()), x.dtype)])


def quantized(d: Draft) -> Drawn:
    """Through whole numbers of eight bits and back."""
    x = d.pick(lambda value: value.dtype == "float32" and not value.constant)
    if d.opset < 10:
        raise Dropped
    scale = d.given(np.asarray(d.one_of((0.5, 0.1, 0.02)), np.float32))
    zero = d.given(np.asarray(d.one_of((0, 3)), d.one_of((np.uint8, np.int8))))
    made = d.add("QuantizeLinear", [x, scale, zero])[0]
    if d.chance(30) and made.rank > 1:
        made = d.add("Transpose", [made])[0]
    return d.add("DequantizeLinear", [made, scale, zero])


def loop(d: Draft) -> Drawn:
    """A Loop that carries a value through a few rounds and may collect it."""
    x = d.pick(lambda value: value.dtype == "float32" and not value.constant)
    rounds = d.given(np.asarray(d.integer(0, 3), np.int64))
    on = d.given(np.asarray(True))
    prefix = d.name("body") + "_"
    carried = Value(f"{prefix}carried", x.dtype, x.shape)
    inner = Draft(d.choose, d.opset, [x, carried], count=0, prefix=prefix)
    last = carried
    for _ in range(d.integer(1, 3)):
        if d.chance(50):
            last = inner.add(d.one_of(("Tanh", "Sigmoid", "Relu")), [last])[0]
        else:
            other = x if d.chance(30) else inner.constant(broadcast_within(d, x), x.dtype, "normal")
            last = inner.add(d.one_of(("Add", "Mul")), [last, other])[0]
    still = f"{prefix}still"
    nodes = [*inner.nodes, helper.make_node("Identity", [f"{prefix}on"], [still])]
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info(f"{prefix}round", number("int64"), []),
            helper.make_tensor_value_info(f"{prefix}on", number("bool"), []),
            helper.make_tensor_value_info(carried.name, number(x.dtype), x.shape),
        ],
        [
            helper.make_tensor_value_info(still, number("bool"), []),
            helper.make_tensor_value_info(last.name, number(x.dtype), x.shape),
        ],
        inner.initializers,
    )
    made = Value(d.name("v"), x.dtype, x.shape)
    d.nodes.append(helper.make_node("Loop", [rounds.name, on.name, x.name], [made.name], body=body))
    d.values.append(made)
    return [made]


def choice(d: Draft) -> Drawn:
    """An If whose branches use what lies outside of them."""
    x = d.pick(is_float)
    tests = [value for value in d.values if value.dtype == "bool" and value.shape == ()]
    test = (
        d.one_of(tests) if tests and d.chance(50) else d.input("bool", ()) if d.chance(70) else d.constant((), "bool")
    )
    branches = []
    for _ in range(2):
        inner = Draft(d.choose, d.opset, [x], count=0, prefix=d.name("branch") + "_")
        last = x
        for _ in range(d.integer(1, 3)):
            if d.chance(50):
                last = inner.add(d.one_of(LIKELY), [last])[0]
            else:
                last = inner.add(d.one_of(("Add", "Mul")), [last, inner.constant(broadcast_within(d, x), x.dtype)])[0]
        branches.append(
            helper.make_graph(
                inner.nodes,
                "branch",
                [],
                [helper.make_tensor_value_info(last.name, number(last.dtype), last.shape)],
                inner.initializers,
            )
        )
    made = Value(d.name("v"), x.dtype, x.shape)
    d.nodes.append(helper.make_node("If", [test.name], [made.name], then_branch=branches[0], else_branch=branches[1]))
    d.values.append(made)
    return [made]


def broadcast_within(d: Draft, x: Value) -> tuple[int, ...]:
    return tuple(dim if d.chance(50) else 1 for dim in x.shape)


OPERATORS: tuple[tuple[int, Callable[[Draft], Drawn]], ...] = (
    (9, unary), (4, parametric), (12, binary), (4, variadic), (2, power), (2, compare), (2, logic), (3, where),
    (4, cast), (4, clip), (6, transpose), (6, reshape), (2, flatten), (3, squeeze), (3, unsqueeze), (5, reduce),
    (1, arg), (3, softmax), (2, layernorm), (5, concat), (4, split), (5, slices), (4, pad), (3, expand), (1, tile),
    (4, gather), (6, matmul), (4, gemm), (8, conv), (4, conv_transpose), (5, batchnorm), (3, block), (5, pool),
    (3, swish), (1, dropout), (1, shape_of), (2, choice), (1, oddities), (1, bits), (2, sized_by_shape), (3, einsum),
    (2, resize), (4, normalized), (3, attention), (2, quantized), (1, loop),
)  # fmt: skip
"""With their weights."""

WEIGHTED = [draws for weight, draws in OPERATORS for _ in range(weight)]
