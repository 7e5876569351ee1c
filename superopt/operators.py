"""The operators that rules may name: what each one is, and how its normal form departs from its schema.

What an operator is stands here and nowhere else: other modules derive their tables from ``FORMS`` (``named``), and ask
``onnx.defs`` for all else (attributes, their defaults and kinds, how many inputs there are, the types it takes at an
opset). A new operator needs:

- a line in ``FORMS``; tests/test_operators.py holds what the line says against what the kernel does,
- a kernel, in a module of ``superopt/kernels/``, and a case in tests/test_kernels.py,
- where an attribute or a version needs more than to be taken over, a conversion: into normal form in
  ``superopt/lowering/normalize*.py``, and back in ``superopt/forms.py``,
- where operands of random shapes will not do, a drawing for instances of laws: ``superopt/laws/instances_*.py``.

It may have more: a check of what onnx's inference lets pass (``shape_checks.py``), its work where that is not an
operation an element (``workload.py``), what it does to errors where its line does not say so (``rounding.py``,
``laws/error_steps.py``), its sizes by symbols (``sizes/``). Without these it is safe, and less is known of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, TypeAlias

import numpy as np
import onnx
from onnx import defs, helper

from superopt.terms import Attrs, AttrValue

NEWEST_OPSET = defs.onnx_opset_version()
"""Terms mean the operators of this opset."""

Made: TypeAlias = Literal["pointwise", "chosen", "moved", "summed", "bilinear", "mixed", "told"]
"""How an element of the result comes about; every operator is of one kind.

``pointwise``: it is computed from one element of each argument.
``chosen``: it is one of several elements or bounds, chosen by value or by a condition: no error grows on the way.
``moved``: it is an element of an argument, or what pads, chosen by places alone.
``summed``: it is the sum or the mean of elements.
``bilinear``: it is a sum of products of elements of two arguments (of all of them, in an Einsum), and of an addend.
``mixed``: it is computed from several elements of an argument in any other way.
``told``: it follows from the shape of the argument.
"""

Shaped: TypeAlias = Literal["first", "broadcast", "own"]
"""The shape of the result: that of the ``first`` argument, what all ``broadcast`` to, or one of its ``own``."""


@dataclass(frozen=True)
class Form:
    """What an operator is, and how its normal form departs from its schema.

    What it is, beside how elements are made and what shape they have:

    ``exact``: it is pointwise and rounds nothing, unless to another element type.
    ``discrete``: the result is decided, not rounded: truth values, bits, counts, places, or whole numbers.
    ``arithmetic``: it is made of sums, products and quotients alone, and neither moved, summed nor bilinear.
    ``reduces``: it makes one element of all along ``axes``, which stay as ones where ``keepdims`` says so.
    ``windowed``: it looks through a window, with ``strides``, ``dilations`` and ``pads``.
    ``indexed``: its second argument holds places in its first.
    ``commutative``: of two arguments, in either order.
    ``bundle``: it has several results, a tuple in the normal form, one for each number of ``split``.

    How the normal form departs:

    ``attribute_inputs``: ONNX input position -> the attribute that holds its constant value in the normal form.
    ``dropped``: attributes of the schema that the normal form resolves and does not have (``auto_pad``).
    ``zero_bias``: the argument position of a bias that is a constant zero where the model has none.
    ``trivial``: the value of an attribute without a schema default, for a pattern that does not name it; a tuple of one
    element stands for that element at every place.
    """

    made: Made
    shaped: Shaped
    exact: bool = False
    discrete: bool = False
    arithmetic: bool = False
    reduces: bool = False
    windowed: bool = False
    indexed: bool = False
    commutative: bool = False
    bundle: bool = False
    attribute_inputs: Mapping[int, str] | None = None
    dropped: tuple[str, ...] = ()
    zero_bias: int | None = None
    trivial: Mapping[str, AttrValue] | None = None


def _each(names: str, form: Form) -> dict[str, Form]:
    return dict.fromkeys(names.split(), form)


def _reduction(made: Made, *, arithmetic: bool = False) -> Form:
    return Form(
        made, "own", reduces=True, arithmetic=arithmetic, attribute_inputs={1: "axes"},
        dropped=("noop_with_empty_axes",),
    )  # fmt: skip


def _pool(made: Made) -> Form:
    return Form(made, "own", windowed=True, dropped=("auto_pad", "storage_order"), trivial=_WINDOW)


_WINDOW: Mapping[str, AttrValue] = {"dilations": (1,), "strides": (1,), "pads": (0,)}

FORMS: Mapping[str, Form] = {
    # One input, or one that the others do not stretch.
    **_each(
        """Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Mish
        PRelu Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu
        DequantizeLinear""",
        Form("pointwise", "first"),
    ),
    **_each("Abs Cast", Form("pointwise", "first", exact=True)),
    "Neg": Form("pointwise", "first", exact=True, arithmetic=True),
    "Reciprocal": Form("pointwise", "first", arithmetic=True),
    **_each(
        "BitwiseNot Ceil Floor IsInf IsNaN Not QuantizeLinear Round Sign", Form("pointwise", "first", discrete=True)
    ),
    **_each("Clip Relu", Form("chosen", "first")),
    "BatchNormalization": Form("pointwise", "first", dropped=("momentum", "training_mode")),
    # Several inputs, broadcasting.
    **_each("Add Mul", Form("pointwise", "broadcast", arithmetic=True, commutative=True)),
    **_each("Sub Div", Form("pointwise", "broadcast", arithmetic=True)),
    **_each("Pow Mod", Form("pointwise", "broadcast")),
    **_each(
        "And Or Xor Equal BitwiseAnd BitwiseOr BitwiseXor",
        Form("pointwise", "broadcast", discrete=True, commutative=True),
    ),
    **_each("Less LessOrEqual Greater GreaterOrEqual BitShift", Form("pointwise", "broadcast", discrete=True)),
    **_each("Sum Mean", Form("summed", "broadcast")),
    **_each("Where Max Min", Form("chosen", "broadcast")),
    # Linear.
    "Conv": Form(
        "bilinear", "own", windowed=True, dropped=("auto_pad", "kernel_shape"), zero_bias=2, trivial=_WINDOW
    ),
    "ConvTranspose": Form(
        "bilinear", "own", windowed=True, dropped=("auto_pad", "kernel_shape", "output_shape"), zero_bias=2,
        trivial={**_WINDOW, "output_padding": (0,)},
    ),
    "MatMul": Form("bilinear", "own"),
    "Gemm": Form("bilinear", "own", zero_bias=2),
    "Einsum": Form("bilinear", "own"),
    # Pooling and normalization.
    "AveragePool": _pool("summed"),
    "MaxPool": _pool("chosen"),
    "LpPool": _pool("mixed"),
    "GlobalAveragePool": Form("summed", "own"),
    "GlobalMaxPool": Form("chosen", "own"),
    **_each(
        """InstanceNormalization LayerNormalization RMSNormalization GroupNormalization LRN LpNormalization Softmax
        LogSoftmax""",
        Form("mixed", "first"),
    ),
    # Reductions.
    **_each("ReduceSum ReduceMean", _reduction("summed")),
    **_each("ReduceMax ReduceMin", _reduction("chosen")),
    **_each("ReduceProd ReduceSumSquare", _reduction("mixed", arithmetic=True)),
    **_each("ReduceL1 ReduceL2 ReduceLogSumExp ReduceLogSum", _reduction("mixed")),
    **_each("ArgMax ArgMin", Form("mixed", "own", discrete=True)),
    "CumSum": Form("summed", "first", attribute_inputs={1: "axis"}),
    # Data movement.
    "Identity": Form("moved", "first"),
    "Dropout": Form("moved", "first", attribute_inputs={1: "ratio"}, dropped=("seed", "training_mode")),
    "Concat": Form("moved", "own"),
    "Split": Form("moved", "own", bundle=True, attribute_inputs={1: "split"}, dropped=("num_outputs",)),
    "Slice": Form("moved", "own", attribute_inputs={1: "starts", 2: "ends", 3: "axes", 4: "steps"}),
    "Pad": Form("moved", "own", attribute_inputs={1: "pads", 3: "axes"}, dropped=("axes",)),
    **_each("Reshape Expand", Form("moved", "own", attribute_inputs={1: "shape"})),
    **_each("Squeeze Unsqueeze", Form("moved", "own", attribute_inputs={1: "axes"})),
    "Tile": Form("moved", "own", attribute_inputs={1: "repeats"}),
    **_each("Flatten Transpose DepthToSpace SpaceToDepth", Form("moved", "own")),
    **_each("Gather GatherElements GatherND", Form("moved", "own", indexed=True)),
    # With a reduction it adds or multiplies besides: who relies on its being moved looks.
    "ScatterND": Form("moved", "first", indexed=True),
    "Trilu": Form("moved", "first", attribute_inputs={1: "k"}),
    # What else there is.
    "Resize": Form(
        "mixed", "own", attribute_inputs={1: "roi", 2: "scales", 3: "sizes"},
        dropped=("antialias", "axes", "exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy", "roi"),
    ),
    "STFT": Form("mixed", "own", attribute_inputs={1: "frame_step", 3: "frame_length"}),
    **_each("Shape Size", Form("told", "own", discrete=True)),
}  # fmt: skip
"""Every operator that is understood; one that is not listed is opaque."""


def named(holds: Callable[[Form], bool]) -> tuple[str, ...]:
    """The operators whose form is so, in the order of ``FORMS``."""
    return tuple(name for name, form in FORMS.items() if holds(form))


STAYS = frozenset({"DequantizeLinear"})
"""Operators that are left to run even where all that they read is constant: weights behind them stay quantized, and
runtimes know the pairs that they make with QuantizeLinear."""

DTYPE_ATTRIBUTES = frozenset({("Cast", "to"), ("QuantizeLinear", "output_dtype"), ("DequantizeLinear", "output_dtype")})
"""Attributes that hold an element type: ONNX's number in a model, its name (``float16``) in the normal form."""


@dataclass(frozen=True)
class Operator:
    """An understood operator in normal form.

    ``arity`` counts tensor arguments (None: any number from one up, all of one kind). Optional ones are ABSENT, never
    left out. ``defaults`` are the schema's, of the attributes that the normal form has. ``attributes`` are the names of
    all attributes of the normal form.
    """

    name: str
    arity: int | None
    required: int
    attributes: tuple[str, ...]
    defaults: Attrs
    form: Form
    retypes: bool

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


def has_number(dtype: str, number: float) -> bool:
    """Whether a number is in the range of an element type: what is beyond it is no constant of that type."""
    kind = numpy_dtype(dtype)
    if kind.kind == "f" and math.isfinite(number):
        with np.errstate(over="ignore"):
            return bool(np.isfinite(np.float64(number).astype(kind)))
    return kind.kind not in "iu" or bool(np.iinfo(kind.name).min <= number <= np.iinfo(kind.name).max)


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
    result = schema.outputs[0]
    alike = len(result.types) == 1 and result.types == kept[0].types
    retypes = not alike and result.type_str not in {item.type_str for item in kept[: max(required, 1)]}
    return Operator(
        name, None if variadic else len(kept), max(required, 1), tuple(sorted(attributes)), Attrs.of(defaults), form,
        retypes,
    )  # fmt: skip


@cache
def attribute_kind(op: str, name: str) -> str:
    """ONNX's kind of an attribute of the normal form (``INT``, ``FLOATS``): ``STRING`` for an element type, nothing for
    what ONNX has as an input."""
    if (op, name) in DTYPE_ATTRIBUTES:
        return "STRING"
    declared = defs.get_schema(op, NEWEST_OPSET).attributes.get(name)
    return "" if declared is None else str(declared.type).rpartition(".")[2]


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
