"""What onnx's inference lets pass and no runtime does: channel counts, bias lengths, operands of different types.

A rule must not be believed on operands that no model can have, and must not make such operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

from onnx import defs

from superopt.errors import InferenceError
from superopt.operators import named, operator
from superopt.terms import Attrs, Dim, TensorType


def shape_of(arg: TensorType | None) -> tuple[Dim, ...] | None:
    """The dimensions, None where the rank or the type is not known."""
    return None if arg is None else arg.shape


def check_dtypes(op: str, args: list[TensorType | None], present: tuple[bool, ...]) -> None:
    """Operands that the schema gives one type variable have one element type, and one that it takes."""
    required, formal = _formal(op)
    if len(args) < required or not all(present[:required]):
        raise InferenceError(f"{required} arguments expected")
    seen: dict[str, str] = {}
    for position, arg in enumerate(args):
        if arg is None:
            continue
        item = formal[min(position, len(formal) - 1)]
        if arg.dtype not in item.dtypes:
            raise InferenceError(f"{arg.dtype} is not taken as {item.name}")
        if seen.setdefault(item.variable, arg.dtype) != arg.dtype and item.homogeneous:
            raise InferenceError(f"{arg.dtype} beside {seen[item.variable]}")


@dataclass(frozen=True)
class _Formal:
    """What a schema says of one input that is a term."""

    name: str
    variable: str
    homogeneous: bool
    dtypes: frozenset[str]


@cache
def _formal(op: str) -> tuple[int, tuple[_Formal, ...]]:
    """How many arguments are needed, and what each may be. Raises InferenceError for no operator of a normal form."""
    spec = operator(op)
    if spec is None:
        raise InferenceError("no such operator in normal form")
    taken = spec.form.attribute_inputs or {}
    formal = [item for position, item in enumerate(defs.get_schema(op).inputs) if position not in taken]
    return spec.required, tuple(
        _Formal(item.name, item.type_str, item.is_homogeneous, frozenset(map(_dtype, item.types))) for item in formal
    )


def _dtype(text: str) -> str:
    """``float32`` for a schema's ``tensor(float)``; what is no tensor is left as it is."""
    inner = text.removeprefix("tensor(").removesuffix(")") if text.startswith("tensor(") else text
    return {"float": "float32", "double": "float64"}.get(inner, inner)


def _same(what: str, left: Dim, right: Dim) -> None:
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise InferenceError(f"{what}: {left} and {right}")


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    value = attrs.get(name)
    return tuple(int(item) for item in value) if isinstance(value, tuple) else ()


def _int(attrs: Attrs, name: str, default: int = 0) -> int:
    value = attrs.get(name, default)
    return int(value) if isinstance(value, (int, float)) else default


def _check_conv(attrs: Attrs, args: list[TensorType | None]) -> None:
    x, w, b = (shape_of(arg) for arg in args)
    group = _int(attrs, "group", 1)
    if w is None or len(w) < 3:
        if w is not None:
            raise InferenceError(f"a weight of rank {len(w)}")
        return
    spatial = len(w) - 2
    for name, count in (("strides", spatial), ("dilations", spatial), ("pads", 2 * spatial)):
        if len(_ints(attrs, name)) != count:
            raise InferenceError(f"{name} of length {len(_ints(attrs, name))} for {spatial} spatial axes")
    if group < 1 or min(_ints(attrs, "strides") + _ints(attrs, "dilations")) < 1:
        raise InferenceError("group, strides and dilations are at least 1")
    if x is not None:
        if len(x) != len(w):
            raise InferenceError(f"input of rank {len(x)}, weight of rank {len(w)}")
        _same("input channels", x[1], w[1] * group if isinstance(w[1], int) else None)
    if isinstance(w[0], int) and w[0] % group:
        raise InferenceError(f"{w[0]} output channels in {group} groups")
    if b is not None:
        if len(b) != 1:
            raise InferenceError(f"a bias of rank {len(b)}")
        _same("bias length", b[0], w[0])


def _check_conv_transpose(attrs: Attrs, args: list[TensorType | None]) -> None:
    x, w, b = (shape_of(arg) for arg in args)
    group = _int(attrs, "group", 1)
    if w is None:
        return
    if len(w) < 3 or group < 1:
        raise InferenceError(f"a weight of rank {len(w)} in {group} groups")
    if isinstance(w[0], int) and w[0] % group:
        raise InferenceError(f"{w[0]} input channels in {group} groups")
    if x is not None:
        if len(x) != len(w):
            raise InferenceError(f"input of rank {len(x)}, weight of rank {len(w)}")
        _same("input channels", x[1], w[0])
    if b is not None:
        if len(b) != 1:
            raise InferenceError(f"a bias of rank {len(b)}")
        _same("bias length", b[0], w[1] * group if isinstance(w[1], int) else None)


def _check_per_channel(attrs: Attrs, args: list[TensorType | None]) -> None:
    x = shape_of(args[0])
    for arg in args[1:]:
        shape = shape_of(arg)
        if shape is None:
            continue
        if len(shape) != 1:
            raise InferenceError(f"a parameter of rank {len(shape)}")
        if x is not None:
            if len(x) < 2:
                raise InferenceError(f"input of rank {len(x)}")
            _same("channels", x[1], shape[0])


def _check_gemm(attrs: Attrs, args: list[TensorType | None]) -> None:
    a, b, c = (shape_of(arg) for arg in args)
    for shape in (a, b):
        if shape is not None and len(shape) != 2:
            raise InferenceError(f"a factor of rank {len(shape)}")
    if a is None or b is None:
        return
    rows, inner = (a[1], a[0]) if _int(attrs, "transA") else a
    other, columns = (b[1], b[0]) if _int(attrs, "transB") else b
    _same("inner dimension", inner, other)
    if c is not None:
        if len(c) > 2:
            raise InferenceError(f"an addend of rank {len(c)}")
        for have, want in zip(reversed(c), (columns, rows), strict=False):
            if have != 1:
                _same("addend", have, want)
                if isinstance(have, int) and have > 1 and want == 1:
                    raise InferenceError("an addend that would broadcast the product")


def _check_transpose(attrs: Attrs, args: list[TensorType | None]) -> None:
    shape, perm = shape_of(args[0]), _ints(attrs, "perm")
    if shape is not None and sorted(perm) != list(range(len(shape))):
        raise InferenceError(f"perm {perm} of rank {len(shape)}")


def _check_split(attrs: Attrs, args: list[TensorType | None]) -> None:
    shape, axis, sizes = shape_of(args[0]), _int(attrs, "axis"), _ints(attrs, "split")
    if shape is None:
        return
    if not -len(shape) <= axis < len(shape):
        raise InferenceError(f"axis {axis} of rank {len(shape)}")
    _same("sum of sizes", shape[axis], sum(sizes))


def _check_pads(attrs: Attrs, args: list[TensorType | None]) -> None:
    x, kernel = shape_of(args[0]), _ints(attrs, "kernel_shape")
    spatial = len(kernel)
    if x is not None and len(x) != spatial + 2:
        raise InferenceError(f"a kernel of {spatial} axes on input of rank {len(x)}")
    dilations = _ints(attrs, "dilations") or (1,) * spatial
    pads = _ints(attrs, "pads")
    if len(dilations) != spatial or len(pads) not in (0, 2 * spatial):
        raise InferenceError(f"a kernel of {spatial} axes, pads {pads} and dilations {dilations}")
    for axis, size in enumerate(kernel):
        extent = (size - 1) * dilations[axis] + 1
        found = x[2 + axis] if x is not None else None
        if isinstance(found, int) and pads and found + pads[axis] + pads[axis + spatial] < extent:
            raise InferenceError("a window larger than its input")
        # Every runtime refuses a window that may lie wholly in the padding.
        if pads and max(pads[axis], pads[axis + spatial]) >= extent:
            raise InferenceError("padding as wide as the kernel")


def _check_reshape(attrs: Attrs, args: list[TensorType | None]) -> None:
    x, shape = args[0], _ints(attrs, "shape")
    if x is None or x.size is None or x.shape is None:
        return
    dims = [
        x.shape[axis] if dim == 0 and not _int(attrs, "allowzero") and axis < len(x.shape) else dim
        for axis, dim in enumerate(shape)
    ]
    if -1 not in dims and prod(int(dim) for dim in dims if isinstance(dim, int)) != x.size:
        raise InferenceError(f"{x} has not the elements of {shape}")


def _check_prelu(attrs: Attrs, args: list[TensorType | None]) -> None:
    x, slope = (shape_of(arg) for arg in args)
    if x is None or slope is None:
        return
    if len(slope) > len(x):
        raise InferenceError("a slope of higher rank than the input")
    for have, want in zip(reversed(slope), reversed(x), strict=False):
        if have != 1:
            _same("slope", have, want)
            if isinstance(have, int) and have > 1 and want == 1:
                raise InferenceError("a slope that would broadcast the input")


def _check_unique_axes(attrs: Attrs, args: list[TensorType | None]) -> None:
    axes = _ints(attrs, "axes")
    if len(set(axes)) != len(axes):
        raise InferenceError(f"an axis twice in {axes}")
    rank = None if args[0] is None else args[0].rank
    if rank is not None and any(not -rank <= axis < rank for axis in axes):
        raise InferenceError(f"axes {axes} of rank {rank}")


def _check_reduced_axes(attrs: Attrs, args: list[TensorType | None]) -> None:
    """In normal form all axes are named where all are reduced: none named would say either."""
    _check_unique_axes(attrs, args)
    if not _ints(attrs, "axes") and args and args[0] is not None and args[0].rank:
        raise InferenceError("reduces over no axes")


def _check_whole_blocks(attrs: Attrs, args: list[TensorType | None], axes: tuple[int, ...], power: int) -> None:
    shape, block = shape_of(args[0]), _int(attrs, "blocksize", 1)
    if block < 1:
        raise InferenceError(f"blocks of size {block}")
    if shape is None:
        return
    if len(shape) != 4:
        raise InferenceError(f"input of rank {len(shape)}")
    for axis in axes:
        dim = shape[axis]
        if isinstance(dim, int) and dim % block**power:
            raise InferenceError(f"axis {axis} of size {dim} in blocks of {block**power}")


def _check_depth_blocks(attrs: Attrs, args: list[TensorType | None]) -> None:
    """The channels are cut into whole blocks. Runtimes refuse a remainder."""
    _check_whole_blocks(attrs, args, (1,), 2)


def _check_space_blocks(attrs: Attrs, args: list[TensorType | None]) -> None:
    """Height and width are cut into whole blocks. Runtimes refuse a remainder."""
    _check_whole_blocks(attrs, args, (2, 3), 1)


def _check_axis(attrs: Attrs, args: list[TensorType | None]) -> None:
    shape, axis = shape_of(args[0]), _int(attrs, "axis", -1)
    if shape is not None and not -len(shape) <= axis < len(shape):
        raise InferenceError(f"axis {axis} of rank {len(shape)}")


def _check_quantized(attrs: Attrs, args: list[TensorType | None]) -> None:
    """A scale for each block has the data's shape but for one axis, where there is one for so many; what is no block
    has one scale, or one for each place on the axis."""
    x, scale = (shape_of(arg) for arg in args[:2])
    axis, block = _int(attrs, "axis", 1), _int(attrs, "block_size")
    if x is None or scale is None or (not block and len(scale) < 2):
        return
    if not block or len(scale) != len(x) or not -len(x) <= axis < len(x):
        raise InferenceError(f"scales {scale} of {x} in blocks of {block}")
    for place, (have, dim) in enumerate(zip(scale, x, strict=True)):
        blocks = -(-dim // block) if place == axis % len(x) and isinstance(dim, int) else dim
        if place != axis % len(x) or isinstance(dim, int):
            _same("scale", have, blocks)


def _check_matrices(attrs: Attrs, args: list[TensorType | None]) -> None:
    shape = shape_of(args[0])
    if shape is not None and len(shape) < 2:
        raise InferenceError(f"input of rank {len(shape)}")


CHECKS: Mapping[str, Callable[[Attrs, list[TensorType | None]], None]] = {
    "Conv": _check_conv,
    "ConvTranspose": _check_conv_transpose,
    "BatchNormalization": _check_per_channel,
    "InstanceNormalization": _check_per_channel,
    "GroupNormalization": _check_per_channel,
    "Gemm": _check_gemm,
    "Transpose": _check_transpose,
    "Split": _check_split,
    "AveragePool": _check_pads,
    "MaxPool": _check_pads,
    "LpPool": _check_pads,
    "Reshape": _check_reshape,
    "PRelu": _check_prelu,
    "DepthToSpace": _check_depth_blocks,
    "SpaceToDepth": _check_space_blocks,
    **dict.fromkeys(
        "LayerNormalization RMSNormalization Softmax LogSoftmax LpNormalization CumSum".split(), _check_axis
    ),
    "Trilu": _check_matrices,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _check_quantized),
    "Squeeze": _check_unique_axes,
    "Slice": _check_unique_axes,
    **dict.fromkeys(named(lambda form: form.reduces), _check_reduced_axes),
}
