"""The types of an operator's outputs, and whether it may be applied at all: the one place, for all stages.

onnx's own inference does the work. What it lets pass and no runtime does (channel counts, bias lengths, operands of
different element types) is refused here, since a rule must not be believed on operands that no model can have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from math import prod

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

from superopt.errors import InferenceError
from superopt.forms import onnx_form
from superopt.operators import NEWEST_OPSET, dtype_name, dtype_number, operator
from superopt.terms import (
    ABSENT,
    CONST,
    INPUT,
    OPAQUE,
    PROJECT,
    Attrs,
    AttrValue,
    Dim,
    Node,
    TensorType,
    ValueType,
    parse_type,
    type_text,
)

_OPSETS = [helper.make_opsetid("", NEWEST_OPSET)]


def infer(op: str, attrs: Attrs, args: Sequence[ValueType], given: Sequence[bool] | None = None) -> ValueType:
    """The type of an operator applied to values of these types.

    ``given`` tells which arguments are there (default: all; a type of None among them is a value of unknown type). The
    result is a bundle for an operator with several outputs, None where nothing is known. Raises InferenceError
    where ONNX
    or a runtime would not accept the operator.
    """
    if op == PROJECT:
        return _projected(args[0], attrs)
    if op in (INPUT, CONST, OPAQUE):
        return None
    present = tuple(given) if given is not None else (True,) * len(args)
    texts = tuple(type_text(arg) for arg in args)
    outcome = _inferred(op, attrs.text, texts, present)
    if isinstance(outcome, str):
        raise InferenceError(outcome)
    return outcome[0]


def infer_node(node: Node, types: Sequence[ValueType]) -> ValueType:
    """The type of a node of a graph whose earlier nodes have these types."""
    args = [None if arg == ABSENT else types[arg] for arg in node.args]
    return infer(node.op, node.attrs, args, [arg != ABSENT for arg in node.args])


def _projected(bundle: ValueType, attrs: Attrs) -> ValueType:
    index = attrs["index"]
    if not isinstance(bundle, tuple) or not isinstance(index, int):
        return None
    if not 0 <= index < len(bundle):
        raise InferenceError(f"output {index} of {len(bundle)}")
    return bundle[index]


@lru_cache(maxsize=1 << 17)
def _inferred(op: str, attrs_text: str, texts: tuple[str, ...], present: tuple[bool, ...]) -> tuple[ValueType] | str:
    """The type in a tuple of one, or why there is none (exceptions are not cached, strings are)."""
    attrs = Attrs(attrs_text)
    args = [parse_type(text) for text in texts]
    tensors = [arg if isinstance(arg, TensorType) else None for arg in args]
    try:
        _check_dtypes(op, tensors, present)
        check = _CHECKS.get(op)
        if check is not None:
            check(attrs, tensors)
        special = _SPECIAL.get(op)
        outcome = special(attrs, tensors) if special is not None else _by_onnx(op, attrs, tensors, present)
    except InferenceError as error:
        return f"{op}: {error}"
    for part in outcome if isinstance(outcome, tuple) else (outcome,):
        if part is not None and part.shape is not None and any(isinstance(dim, int) and dim < 0 for dim in part.shape):
            return f"{op}: a dimension below zero in {part}"
    return (outcome,)


def _by_onnx(op: str, attrs: Attrs, args: list[TensorType | None], present: tuple[bool, ...]) -> ValueType:
    form = onnx_form(op, attrs, present, NEWEST_OPSET)
    names, types, data = [], {}, {}
    for position, item in enumerate(form.inputs):
        name = f"i{position}" if item is not None else ""
        names.append(name)
        if isinstance(item, int):
            types[name] = _type_proto(args[item])
        elif item is not None:
            array = np.asarray(item)
            types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            data[name] = numpy_helper.from_array(array, name)
    spec = operator(op)
    sizes = attrs.get("split")
    count = len(sizes) if spec is not None and spec.form.bundle and isinstance(sizes, tuple) else 1
    outputs = [f"o{index}" for index in range(count)]
    node = helper.make_node(form.op_type, names, outputs)
    for key, value in form.attributes.items():
        node.attribute.append(helper.make_attribute(key, value, attr_type=_attribute_kind(form.op_type, key)))
    schema = defs.get_schema(form.op_type, NEWEST_OPSET)
    try:
        found = shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=_OPSETS)
    except (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError) as error:
        raise InferenceError(str(error).strip().splitlines()[-1]) from error
    parts = tuple(_tensor_type(found.get(name)) for name in outputs)
    return parts if spec is not None and spec.form.bundle else parts[0]


@cache
def _attribute_kind(op: str, name: str) -> int:
    kind: int = onnx.AttributeProto.AttributeType.Value(defs.get_schema(op, NEWEST_OPSET).attributes[name].type.name)
    return kind


def _type_proto(tensor: TensorType | None) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    if tensor is not None:
        proto.tensor_type.elem_type = dtype_number(tensor.dtype)
        if tensor.shape is not None:
            proto.tensor_type.shape.SetInParent()
            for dim in tensor.shape:
                entry = proto.tensor_type.shape.dim.add()
                if isinstance(dim, int):
                    entry.dim_value = dim
                elif dim is not None:
                    entry.dim_param = dim
    return proto


def _tensor_type(proto: onnx.TypeProto | None) -> TensorType | None:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.elem_type:
        return None
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return TensorType(dtype_name(tensor.elem_type), None)
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        dims.append(int(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or None)
    return TensorType(dtype_name(tensor.elem_type), tuple(dims))


def _check_dtypes(op: str, args: list[TensorType | None], present: tuple[bool, ...]) -> None:
    """Operands that the schema gives one type variable have one element type, and one that it takes."""
    spec = operator(op)
    if spec is None:
        raise InferenceError("no such operator in normal form")
    schema = defs.get_schema(op)
    taken = spec.form.attribute_inputs or {}
    formal = [item for position, item in enumerate(schema.inputs) if position not in taken]
    if len(args) < spec.required or not all(present[: spec.required]):
        raise InferenceError(f"{spec.required} arguments expected")
    seen: dict[str, str] = {}
    for position, arg in enumerate(args):
        item = formal[min(position, len(formal) - 1)]
        if arg is None:
            continue
        written = {"float32": "float", "float64": "double"}.get(arg.dtype, arg.dtype)
        if f"tensor({written})" not in item.types:
            raise InferenceError(f"{arg.dtype} is not taken as {item.name}")
        if seen.setdefault(item.type_str, arg.dtype) != arg.dtype and item.is_homogeneous:
            raise InferenceError(f"{arg.dtype} beside {seen[item.type_str]}")


def _same(what: str, left: Dim, right: Dim) -> None:
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise InferenceError(f"{what}: {left} and {right}")


def _shape(arg: TensorType | None) -> tuple[Dim, ...] | None:
    return None if arg is None else arg.shape


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    value = attrs.get(name)
    return tuple(int(item) for item in value) if isinstance(value, tuple) else ()


def _int(attrs: Attrs, name: str, default: int = 0) -> int:
    value = attrs.get(name, default)
    return int(value) if isinstance(value, (int, float)) else default


def _check_conv(attrs: Attrs, args: list[TensorType | None]) -> None:
    x, w, b = (_shape(arg) for arg in args)
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
    x, w, b = (_shape(arg) for arg in args)
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
    x = _shape(args[0])
    for arg in args[1:]:
        shape = _shape(arg)
        if shape is None:
            continue
        if len(shape) != 1:
            raise InferenceError(f"a parameter of rank {len(shape)}")
        if x is not None:
            if len(x) < 2:
                raise InferenceError(f"input of rank {len(x)}")
            _same("channels", x[1], shape[0])


def _check_gemm(attrs: Attrs, args: list[TensorType | None]) -> None:
    a, b, c = (_shape(arg) for arg in args)
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
    shape, perm = _shape(args[0]), _ints(attrs, "perm")
    if shape is not None and sorted(perm) != list(range(len(shape))):
        raise InferenceError(f"perm {perm} of rank {len(shape)}")


def _check_split(attrs: Attrs, args: list[TensorType | None]) -> None:
    shape, axis, sizes = _shape(args[0]), _int(attrs, "axis"), _ints(attrs, "split")
    if shape is None:
        return
    if not -len(shape) <= axis < len(shape):
        raise InferenceError(f"axis {axis} of rank {len(shape)}")
    _same("sum of sizes", shape[axis], sum(sizes))


def _check_pads(attrs: Attrs, args: list[TensorType | None]) -> None:
    x, kernel = _shape(args[0]), _ints(attrs, "kernel_shape")
    spatial = len(kernel)
    if x is not None and len(x) != spatial + 2:
        raise InferenceError(f"a kernel of {spatial} axes on input of rank {len(x)}")
    dilations = _ints(attrs, "dilations") or (1,) * spatial
    pads = _ints(attrs, "pads")
    for axis, size in enumerate(kernel):
        # Every runtime refuses a window that may lie wholly in the padding.
        if pads and max(pads[axis], pads[axis + spatial]) >= (size - 1) * dilations[axis] + 1:
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
    x, slope = (_shape(arg) for arg in args)
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


_CHECKS: Mapping[str, Callable[[Attrs, list[TensorType | None]], None]] = {
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
    "Squeeze": _check_unique_axes,
    "Slice": _check_unique_axes,
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), _check_unique_axes),
}


def broadcast(shapes: Sequence[tuple[Dim, ...] | None]) -> tuple[Dim, ...] | None:
    """The shape that these shapes broadcast to; None where a rank is not known.

    A symbol beside a number above 1 is that number, beside 1 it stays; two different symbols give an unknown dimension.
    """
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max((len(shape) for shape in known), default=0)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        dims = [shape[axis] for shape in known if len(shape) >= -axis]
        numbers = {dim for dim in dims if isinstance(dim, int) and dim != 1}
        others = list(dict.fromkeys(dim for dim in dims if not isinstance(dim, int)))
        if len(numbers) > 1:
            raise InferenceError(f"{' and '.join(map(str, sorted(numbers)))} do not broadcast")
        if numbers:
            result.append(next(iter(numbers)))
        elif others:
            result.append(others[0] if len(others) == 1 else None)
        else:
            result.append(1)
    return tuple(result)


_POINTWISE_LIKE_FIRST = """Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Elu Erf Exp Floor
Gelu
    HardSigmoid HardSwish Identity LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh
    Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Dropout BatchNormalization InstanceNormalization LRN PRelu
    LpNormalization""".split()
_BROADCASTING = "Add Mul Sub Div Pow Mod And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift Sum Mean Max Min".split()
_COMPARING = "Equal Less LessOrEqual Greater GreaterOrEqual".split()


def _like_first(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    return args[0]


def _truth_like_first(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    return None if args[0] is None else TensorType("bool", args[0].shape)


def _broadcasting(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    dtype = next((arg.dtype for arg in args if arg is not None), None)
    return None if dtype is None else TensorType(dtype, broadcast([_shape(arg) for arg in args]))


def _comparing(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    return TensorType("bool", broadcast([_shape(arg) for arg in args]))


def _where(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    dtype = next((arg.dtype for arg in args[1:] if arg is not None), None)
    return None if dtype is None else TensorType(dtype, broadcast([_shape(arg) for arg in args]))


def _cast(attrs: Attrs, args: list[TensorType | None]) -> ValueType:
    to: AttrValue | None = attrs.get("to")
    return TensorType(str(to), _shape(args[0]))


# Written out for speed, and because onnx forgets symbols when several operands broadcast.
_SPECIAL: Mapping[str, Callable[[Attrs, list[TensorType | None]], ValueType]] = {
    **dict.fromkeys(_POINTWISE_LIKE_FIRST, _like_first),
    **dict.fromkeys(("IsInf", "IsNaN"), _truth_like_first),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    **dict.fromkeys(_COMPARING, _comparing),
    "Where": _where,
    "Cast": _cast,
}


def join(left: ValueType, right: ValueType) -> ValueType:
    """What is known of a value when both types are known of it.

    A number says more than a symbol, a symbol more than nothing; two different symbols do not contradict each other.
    Raises InferenceError where the types contradict each other: other element types, ranks, or numbers.
    """
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, tuple) or isinstance(right, tuple):
        if not (isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right)):
            raise InferenceError(f"{type_text(left)} is not {type_text(right)}")
        parts = (join(mine, theirs) for mine, theirs in zip(left, right, strict=True))
        return tuple(part if isinstance(part, TensorType) else None for part in parts)
    if left.dtype != right.dtype:
        raise InferenceError(f"{left} is not {right}")
    if left.shape is None or right.shape is None:
        return right if left.shape is None else left
    if len(left.shape) != len(right.shape):
        raise InferenceError(f"{left} is not {right}")
    return TensorType(
        left.dtype, tuple(_join_dim(mine, theirs) for mine, theirs in zip(left.shape, right.shape, strict=True))
    )


def _join_dim(left: Dim, right: Dim) -> Dim:
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, int) and isinstance(right, int):
        raise InferenceError(f"a dimension of {left} is not one of {right}")
    if isinstance(left, int) or isinstance(right, int):
        return left if isinstance(left, int) else right
    return min(left, right)
