"""The operators that rules may name, in their normal form: which inputs became attributes, and what the defaults are.

Everything else about an operator (its attributes, their defaults and kinds, how many inputs it has, the types it
takes at
an opset) is asked of ``onnx.defs``. A new operator is a line in ``FORMS``, a kernel in ``kernels.py``, and where its
meaning changed between opsets, a conversion in ``lower.py`` and ``emit.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import onnx
from onnx import defs, helper

from superopt.terms import Attrs, AttrValue

NEWEST_OPSET = defs.onnx_opset_version()
"""Terms mean the operators of this opset."""


@dataclass(frozen=True)
class Form:
    """How the normal form of an operator departs from its schema.

    ``attribute_inputs``: ONNX input position -> the attribute that holds its constant value in the normal form.
    ``dropped``: attributes of the schema that the normal form resolves and does not have (``auto_pad``).
    ``zero_bias``: the argument position of a bias that is a constant zero where the model has none.
    ``trivial``: the value of an attribute without a schema default, for a pattern that does not name it; a tuple of one
    element stands for that element at every place.
    """

    attribute_inputs: Mapping[int, str] | None = None
    dropped: tuple[str, ...] = ()
    zero_bias: int | None = None
    commutative: bool = False
    bundle: bool = False
    trivial: Mapping[str, AttrValue] | None = None


_PLAIN = Form()
_COMMUTATIVE = Form(commutative=True)
_CONV_TRIVIAL: Mapping[str, AttrValue] = {"dilations": (1,), "strides": (1,), "pads": (0,)}
_CONV = Form(dropped=("auto_pad", "kernel_shape"), zero_bias=2, trivial=_CONV_TRIVIAL)
_CONV_TRANSPOSE = Form(
    dropped=("auto_pad", "kernel_shape", "output_shape"), zero_bias=2,
    trivial={**_CONV_TRIVIAL, "output_padding": (0,)},
)  # fmt: skip
_POOL = Form(dropped=("auto_pad", "storage_order"), trivial=_CONV_TRIVIAL)
_REDUCE = Form(attribute_inputs={1: "axes"}, dropped=("noop_with_empty_axes",))

FORMS: Mapping[str, Form] = {
    # Pointwise, one input.
    **dict.fromkeys(
        """Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
        HardSwish
        Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus
        Softsign Sqrt Swish Tan Tanh ThresholdedRelu""".split(),
        _PLAIN,
    ),
    "Cast": _PLAIN,
    "Clip": _PLAIN,
    "Dropout": Form(attribute_inputs={1: "ratio"}, dropped=("seed", "training_mode")),
    # Pointwise, several inputs, broadcasting.
    **dict.fromkeys("Add Mul And Or Xor Equal BitwiseAnd BitwiseOr BitwiseXor".split(), _COMMUTATIVE),
    **dict.fromkeys(
        "Sub Div Pow Mod PRelu Less LessOrEqual Greater GreaterOrEqual BitShift Where Sum Mean Max Min".split(), _PLAIN
    ),
    # Linear.
    "Conv": _CONV,
    "ConvTranspose": _CONV_TRANSPOSE,
    "MatMul": _PLAIN,
    "Gemm": Form(zero_bias=2),
    "Einsum": _PLAIN,
    # Pooling and normalization.
    "AveragePool": _POOL,
    "MaxPool": _POOL,
    "LpPool": _POOL,
    "GlobalAveragePool": _PLAIN,
    "GlobalMaxPool": _PLAIN,
    "BatchNormalization": Form(dropped=("momentum", "training_mode")),
    "InstanceNormalization": _PLAIN,
    "LayerNormalization": _PLAIN,
    "RMSNormalization": _PLAIN,
    "GroupNormalization": _PLAIN,
    "LRN": _PLAIN,
    "LpNormalization": _PLAIN,
    "Softmax": _PLAIN,
    "LogSoftmax": _PLAIN,
    # Reductions.
    **dict.fromkeys(
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp "
        "ReduceLogSum".split(),
        _REDUCE,
    ),
    "ArgMax": _PLAIN,
    "ArgMin": _PLAIN,
    "CumSum": Form(attribute_inputs={1: "axis"}),
    # Data movement.
    "Concat": _PLAIN,
    "Split": Form(attribute_inputs={1: "split"}, dropped=("num_outputs",), bundle=True),
    "Slice": Form(attribute_inputs={1: "starts", 2: "ends", 3: "axes", 4: "steps"}),
    "Pad": Form(attribute_inputs={1: "pads", 3: "axes"}, dropped=("axes",)),
    "Reshape": Form(attribute_inputs={1: "shape"}),
    "Flatten": _PLAIN,
    "Squeeze": Form(attribute_inputs={1: "axes"}),
    "Unsqueeze": Form(attribute_inputs={1: "axes"}),
    "Transpose": _PLAIN,
    "Expand": Form(attribute_inputs={1: "shape"}),
    "Tile": Form(attribute_inputs={1: "repeats"}),
    "Gather": _PLAIN,
    "GatherElements": _PLAIN,
    "GatherND": _PLAIN,
    "ScatterND": _PLAIN,
    "Resize": Form(
        attribute_inputs={1: "roi", 2: "scales", 3: "sizes"},
        dropped=("antialias", "axes", "exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy", "roi"),
    ),
    "DepthToSpace": _PLAIN,
    "SpaceToDepth": _PLAIN,
    "Trilu": Form(attribute_inputs={1: "k"}),
    "Shape": _PLAIN,
    "Size": _PLAIN,
    "STFT": Form(attribute_inputs={1: "frame_step", 3: "frame_length"}),
    # Quantization.
    "QuantizeLinear": _PLAIN,
    "DequantizeLinear": _PLAIN,
}
"""Every operator that is understood; one that is not listed is opaque."""

STAYS = frozenset({"DequantizeLinear"})
"""Operators that are left to run even where all that they read is constant: weights behind them stay quantized, and
runtimes know the pairs that they make with QuantizeLinear."""

DTYPE_ATTRIBUTES = frozenset({("Cast", "to"), ("QuantizeLinear", "output_dtype"), ("DequantizeLinear", "output_dtype")})
"""Attributes that hold an element type: ONNX's number in a model, its name (``float16``) in the normal form."""


@dataclass(frozen=True)
class Operator:
    """An understood operator in normal form.

    ``arity`` counts tensor arguments (None: any number from one up, all of one kind). Optional ones are ABSENT, never
    left out. ``defaults`` are the schema's, of the attributes that the normal form has. ``attributes`` are the
    names of all
    attributes of the normal form.
    """

    name: str
    arity: int | None
    required: int
    attributes: tuple[str, ...]
    defaults: Attrs
    form: Form

    @property
    def commutative(self) -> bool:
        return self.form.commutative

    def default(self, attribute: str) -> AttrValue | None:
        """What a pattern that does not name this attribute asks for; None if it must be named."""
        value = self.defaults.get(attribute)
        if value is None and self.form.trivial is not None:
            value = self.form.trivial.get(attribute)
        return value


def dtype_name(number: int) -> str:
    """The normal form's name of an ONNX element type number: ``float32`` for 1."""
    names = {"float": "float32", "double": "float64"}
    name = str(onnx.TensorProto.DataType.Name(number)).lower()
    return names.get(name, name)


def dtype_number(name: str) -> int:
    """The ONNX element type number of a normal form's name."""
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    return int(onnx.TensorProto.DataType.Value(names.get(name, name.upper())))


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype (ml_dtypes' for the small floats, object for strings) that holds an element type."""
    dtype: np.dtype[np.generic] = helper.tensor_dtype_to_np_dtype(dtype_number(name))
    return dtype


@cache
def operator(name: str) -> Operator | None:
    """The understood operator of this name, or None."""
    form = FORMS.get(name)
    if form is None:
        return None
    schema = defs.get_schema(name)
    taken = dict(form.attribute_inputs or {})
    variadic = any(item.option == defs.OpSchema.FormalParameterOption.Variadic for item in schema.inputs)
    kept = [item for position, item in enumerate(schema.inputs) if position not in taken]
    if name == "Dropout":
        kept = kept[:1]
    required = sum(item.option == defs.OpSchema.FormalParameterOption.Single for item in kept)
    attributes = (set(schema.attributes) | set(taken.values())) - set(form.dropped)
    defaults: dict[str, AttrValue] = {}
    for key, attribute in schema.attributes.items():
        if key in attributes and attribute.default_value.type:
            defaults[key] = _attribute_value(attribute.default_value)
            if (name, key) in DTYPE_ATTRIBUTES:
                defaults[key] = dtype_name(int(attribute.default_value.i)).replace("undefined", "")
    return Operator(
        name, None if variadic else len(kept), max(required, 1), tuple(sorted(attributes)), Attrs.of(defaults), form
    )


def _attribute_value(attribute: onnx.AttributeProto) -> AttrValue:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return tuple(item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item for item in value)
    result: AttrValue = value
    return result


@lru_cache(maxsize=1 << 14)
def available(name: str, dtypes: tuple[str | None, ...], opset: int) -> bool:
    """Whether this operator exists at an opset version and takes its tensor arguments in these element types there.

    ``dtypes`` stand for the arguments of the normal form, in order; None where one is absent or not known.
    """
    form = FORMS.get(name)
    if form is None:
        return False
    try:
        schema = defs.get_schema(name, max_inclusive_version=opset)
    except defs.SchemaError:
        return False
    if schema.deprecated:
        return False
    taken = set(form.attribute_inputs or {})
    kept = [item for position, item in enumerate(schema.inputs) if position not in taken]
    if not kept:
        return not dtypes
    while len(kept) < len(dtypes):
        kept.append(kept[-1])
    for item, dtype in zip(kept, dtypes, strict=False):
        if dtype is not None and f"tensor({_SCHEMA_DTYPES.get(dtype, dtype)})" not in item.types:
            return False
    return True


_SCHEMA_DTYPES = {"float32": "float", "float64": "double"}
