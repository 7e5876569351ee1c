"""How far rounding can take what a graph computes from its value over the reals: running error analysis, node by node.

Every node gets, beside its value in float64, a bound on the error that it has when all is computed with a unit
roundoff u: what it inherits from its arguments, by the operator's own derivative, and what it adds. A sum of n products
adds at most n * u * (the sum of the absolute products), in whatever order it is formed (Higham, Accuracy and Stability
of Numerical Algorithms, 2nd edition, section 3.1). So a bound follows from reduction lengths and magnitudes; no
tolerance is chosen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from superopt.kernels import FLOAT64, apply, evaluate_graph
from superopt.terms import ABSENT, CONST, INPUT, PROJECT, Attrs, Node, TensorType, TermGraph

Array: TypeAlias = NDArray[np.generic]
Float: TypeAlias = NDArray[np.float64]

ROUNDOFF: Mapping[str, float] = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Half the distance from 1 to the next number, by element type."""

FUNCTION_ULPS = 8
"""What is taken for the error of a runtime's pointwise functions, in units in the last place of the larger of the value
and 1 (their documented approximations of exp, erf and tanh stay below 4)."""

_MOVES = frozenset(
    "Identity Transpose Reshape Concat Split Slice Squeeze Unsqueeze Flatten Expand Tile Gather GatherElements "
    "GatherND ScatterND DepthToSpace SpaceToDepth Trilu Pad Dropout Where Relu Max Min MaxPool GlobalMaxPool "
    "ReduceMax ReduceMin Clip".split()
)
"""Operators whose result's error is at most what the operator makes of its arguments' errors."""
_BILINEAR = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
_LINEAR = frozenset({"ReduceSum", "ReduceMean", "AveragePool", "GlobalAveragePool", "CumSum", "Sum", "Mean"})
_DISCRETE = frozenset(
    "Equal Less LessOrEqual Greater GreaterOrEqual ArgMax ArgMin Floor Ceil Round Sign IsNaN IsInf Not And Or Xor "
    "QuantizeLinear Shape Size".split()
)


@dataclass(frozen=True)
class Bounded:
    """A root's value in float64, and how far from it a computation with rounding may be, element by element.

    ``peak`` is the largest finite magnitude on the way: what may have overflowed in a shorter type. ``strayed`` tells
    whether rounding or the range of float64 explains a NaN or an infinity on the way: an operator took finite arguments
    beyond the largest number, or to where its result is one within their bounds (the root of a difference that is zero
    but for rounding). The pole of an operator, and what is not in its domain, are explained by neither.
    """

    value: Array
    bound: Float
    peak: float
    strayed: bool = False


Traced: TypeAlias = tuple[Sequence[Array], Mapping[int, Array]]
"""The values of a graph's roots, and of all its nodes that are tensors, in float64."""


def trace(graph: TermGraph, inputs: Mapping[str, Array]) -> Traced:
    """What inputs come to. Raises EvaluationError where they come to nothing."""
    keep: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        return evaluate_graph(graph, inputs, FLOAT64, keep), keep


def bounded(
    graph: TermGraph, inputs: Mapping[str, Array], roundoff: float | None = None, rounded: frozenset[str] = frozenset(),
    traced: Traced | None = None,
) -> list[Bounded]:  # fmt: skip
    """The roots' values with bounds; ``roundoff`` stands for every float type's own (None: as each type has it).
    ``traced`` is what these inputs come to, where that is known already.

    Inputs named in ``rounded`` stand for any numbers that round to them in their type, as float attributes and the
    constants of the graph do, unless they have few bits.
    """
    values, keep = traced or trace(graph, inputs)
    with np.errstate(all="ignore"):
        errors: dict[int, tuple[Float, ...]] = {}
        for index, node in enumerate(graph.nodes):
            if node.op == PROJECT and index in keep:
                errors[index] = (errors[node.args[0]][int(str(node.attrs["index"]))],)
            elif index in keep or (all(arg in keep or arg == ABSENT for arg in node.args) and node.op != PROJECT):
                errors[index] = _error(graph, index, keep, errors, roundoff, rounded)
        finite = [array[np.isfinite(array)] for array in keep.values() if array.dtype.kind == "f"]
        peak = max((float(np.abs(array).max(initial=0.0)) for array in finite), default=0.0)
        strayed = any(_strays(graph.nodes[index], keep, index, errors[index][0]) for index in keep if index in errors)
    return [Bounded(value, errors[root][0], peak, strayed) for value, root in zip(values, graph.roots, strict=True)]


_POLES = frozenset({"Log", "Reciprocal", "Atanh", "ReduceLogSum", "Tan"})
"""Operators that have poles: an infinity that they make of finite numbers is no overflow (Div and Pow: by zero)."""


def _strays(node: Node, keep: Mapping[int, Array], index: int, error: Float) -> bool:
    """Whether rounding or range explains what is not finite in a node's value where its arguments are."""
    value = keep[index]
    if value.dtype.kind != "f" or node.op in (INPUT, CONST, PROJECT) or np.all(np.isfinite(value)):
        return False
    args = [keep[arg] for arg in node.args if arg != ABSENT]
    finite = [np.isfinite(arg) for arg in args if arg.dtype.kind == "f"]
    try:
        sound = np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*finite)), value.shape) if finite else True
    except ValueError:
        sound = all(np.all(one) for one in finite)
    made = ~np.isfinite(value) & sound
    if np.any(made & np.isposinf(error)):
        return True
    overflown = made & np.isinf(value)
    if node.op in ("Div", "Pow"):
        overflown &= np.broadcast_to(args[1 if node.op == "Div" else 0] != 0, value.shape)
    return node.op not in _POLES and bool(np.any(overflown))


def _error(
    graph: TermGraph, index: int, keep: Mapping[int, Array], errors: Mapping[int, tuple[Float, ...]],
    roundoff: float | None, rounded: frozenset[str],
) -> tuple[Float, ...]:  # fmt: skip
    node = graph.nodes[index]
    kind = graph.types[index]
    first = kind[0] if isinstance(kind, tuple) else kind
    dtype = first.dtype if isinstance(first, TensorType) else ""
    unit = ROUNDOFF[dtype] if roundoff is None and dtype in ROUNDOFF else roundoff or 0.0
    if dtype not in ROUNDOFF:
        unit = 0.0
    if node.op == INPUT:
        return (_of_rounding(keep[index], dtype) if node.attrs["name"] in rounded else np.zeros(keep[index].shape),)
    if node.op == CONST:
        return (_of_rounding(keep[index], dtype),)
    args = [None if arg == ABSENT else keep[arg] for arg in node.args]
    errs = [None if arg == ABSENT else errors[arg][0] for arg in node.args]
    call = _Call(node, args, errs, unit, keep.get(index))
    if call.unmoved and node.op in _MOVES:
        if call.out is not None:
            return (np.zeros(call.out.shape),)
        results = apply(node.op, node.attrs, args, FLOAT64)
        return tuple(np.zeros(result.shape) for result in results)
    if node.op in _MOVES:
        return _moved(call)
    if dtype not in ROUNDOFF or node.op in _DISCRETE:
        return (np.where(_deviation(call) > 0, np.inf, 0.0),)
    return (_RULES.get(node.op, _pointwise if _is_pointwise(call) else _mixing)(call),)


@dataclass(frozen=True)
class _Call:
    node: Node
    args: Sequence[Array | None]
    errs: Sequence[Float | None]
    unit: float
    out: Array | None

    @cached_property
    def unmoved(self) -> bool:
        """Whether no argument has an error."""
        return all(err is None or not err.any() for err in self.errs)

    def base(self) -> Float:
        """The result in float64."""
        return self.of(self.args) if self.out is None else self.out.astype(np.float64)

    def arg(self, place: int) -> Float:
        array = self.args[place]
        return np.zeros(()) if array is None else np.abs(array.astype(np.float64))

    def err(self, place: int) -> Float:
        error = self.errs[place]
        return np.zeros(()) if error is None else error

    def result(self) -> Float:
        """The magnitude of the result, of which rounding is a part; zero where it is not finite."""
        if self.out is None:
            return np.zeros(())
        return np.nan_to_num(np.abs(self.out.astype(np.float64)), nan=0.0, posinf=0.0)

    def of(self, args: Sequence[Array | None], attrs: Attrs | None = None) -> Float:
        return apply(self.node.op, attrs or self.node.attrs, args, FLOAT64)[0].astype(np.float64)


def few_bits(value: Float) -> NDArray[np.bool_]:
    """Whether numbers stand for themselves alone: they are whole, or have a mantissa of at most 7 bits (and are not so
    small that a short type has no more)."""
    mantissa, exponent = np.frexp(value)
    return np.asarray((np.floor(value) == value) | (np.floor(mantissa * 128) == mantissa * 128) & (exponent > -12))


def _of_rounding(array: Array, dtype: str) -> Float:
    """What rounding to an element type may have changed."""
    if dtype not in ROUNDOFF:
        return np.zeros(array.shape)
    value = np.abs(array.astype(np.float64))
    return np.where(few_bits(value), 0.0, value * ROUNDOFF[dtype] + _SMALLEST.get(dtype, 0.0))


_SMALLEST: Mapping[str, float] = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float32": 2.0**-150}
"""Half the smallest number above zero, by element type: what rounding to it may lose, however small the value."""


def _moved(call: _Call) -> tuple[Float, ...]:
    """Errors move as the values do; the largest operand's error bounds that of a maximum."""
    errs: list[Array | None] = [
        err if arg is not None and arg.dtype.kind == "f" else arg for arg, err in zip(call.args, call.errs, strict=True)
    ]
    if call.node.op in ("Relu", "Clip"):
        whole = np.zeros(call.result().shape)
        for err in call.errs:
            whole = whole + (0.0 if err is None else err)
        return (whole,)
    if call.node.op in ("Max", "Min"):
        return (apply("Max", Attrs(), errs, FLOAT64)[0],)
    if call.node.op in ("ReduceMax", "ReduceMin"):
        return (apply("ReduceMax", call.node.attrs, errs, FLOAT64)[0],)
    results = apply(call.node.op, call.node.attrs, errs, FLOAT64)
    return tuple(np.maximum(result, 0.0) for result in results)


def _sum(call: _Call) -> Float:
    return call.err(0) + call.err(1) + call.unit * call.result()


def _product(call: _Call) -> Float:
    a, b, da, db = call.arg(0), call.arg(1), call.err(0), call.err(1)
    return a * db + b * da + da * db + call.unit * call.result() + _tiny(call)


def _quotient(call: _Call) -> Float:
    room = call.arg(1) - call.err(1)
    inherited = (call.err(0) + call.result() * call.err(1)) / np.where(room > 0, room, np.nan)
    # By what is zero and not for rounding, the quotient is infinite and not for rounding.
    inherited = np.where((call.arg(1) == 0) & (call.err(1) == 0), 0.0, inherited)
    return np.nan_to_num(inherited, nan=np.inf, posinf=np.inf) + call.unit * call.result() + _tiny(call)


def _same(call: _Call) -> Float:
    return call.err(0)


def _cast(call: _Call) -> Float:
    return call.err(0) + call.unit * call.result()


def _bilinear(call: _Call) -> Float:
    """|A||dB| + |dA||B| + |dA||dB| + n u |A||B|, and the same for an addend."""
    attrs = call.node.attrs
    if call.node.op == "Gemm":
        attrs = attrs.replaced(alpha=abs(float(str(attrs["alpha"]))), beta=abs(float(str(attrs["beta"]))))
    a, b, da, db = call.arg(0), call.arg(1), call.err(0), call.err(1)
    zero = None if len(call.args) < 3 or call.args[2] is None else np.zeros(call.arg(2).shape)
    rest = [] if len(call.args) < 3 else [zero]
    whole = call.of([a, b] + ([] if len(call.args) < 3 else [None if zero is None else call.arg(2)]), attrs)
    inherited = np.zeros(whole.shape)
    # An infinity that meets an error of zero leaves no bound.
    if da.any() or db.any() or not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        inherited = call.of([a, db + np.zeros_like(b), *rest], attrs) + call.of(
            [da + np.zeros_like(a), b + db, *rest], attrs
        )
    addend = np.zeros(())
    if zero is not None and call.err(2).any():
        addend = call.of([np.zeros_like(a), np.zeros_like(b), call.err(2) + zero], attrs)
    return inherited + addend + (_length(call) + 3) * call.unit * whole + _length(call) * _tiny(call)


def _length(call: _Call) -> int:
    """How many products an element of the result sums."""
    a, b = call.arg(0), call.arg(1)
    if call.node.op in ("Conv", "ConvTranspose"):
        channels = b.shape[1] if call.node.op == "Conv" else b.shape[0] // int(str(call.node.attrs["group"]))
        return int(channels * prod(b.shape[2:]))
    if call.node.op == "Gemm" and call.node.attrs["transA"]:
        return int(a.shape[0])
    return int(a.shape[-1])


def _linear(call: _Call) -> Float:
    magnitudes = [None if arg is None else np.abs(arg.astype(np.float64)) for arg in call.args]
    whole = call.of(magnitudes)
    count = sum(array.size for array in magnitudes if array is not None) / max(whole.size, 1)
    if call.node.op == "AveragePool":
        kernel = call.node.attrs["kernel_shape"]
        count = prod(int(size) for size in kernel) if isinstance(kernel, tuple) else count
    if call.node.op in ("Sum", "Mean"):
        count = len(call.args)
    if call.node.op == "CumSum":
        count = max(call.arg(0).shape, default=1)
    inherited = np.zeros(whole.shape)
    if not call.unmoved:
        inherited = call.of([None if arg is None else call.err(place) for place, arg in enumerate(call.args)])
    return inherited + (count + 2) * call.unit * whole


def _batch_normalization(call: _Call) -> Float:
    """s (x - m) / sqrt(v + e) + t, however it is arranged."""
    x, s, t, m, v = (_per_channel(call, place) for place in range(5))
    dx, ds, dt, dm, dv = (_per_channel(call, place, of_error=True) for place in range(5))
    variance = call.args[4]
    signed = np.zeros(()) if variance is None else variance.astype(np.float64)
    total = signed.reshape(v.shape) + float(str(call.node.attrs["epsilon"]))
    room = np.where(total - dv > 0, total - dv, np.nan)
    r = 1 / np.sqrt(room)
    dr = r * dv / (2 * room) + 4 * call.unit * r * (1 + v / room)
    spread = x + m + dx + dm
    error = (
        s * r * (dx + dm)
        + spread * (ds * r + s * dr + ds * dr)
        + dt
        + 8 * call.unit * (spread * (s + ds) * (r + dr) + t)
    )
    return np.asarray(np.nan_to_num(error, nan=np.inf, posinf=np.inf))


def _per_channel(call: _Call, place: int, of_error: bool = False) -> Float:
    array = call.err(place) if of_error else call.arg(place)
    rank = call.arg(0).ndim
    return np.asarray(array.reshape((1, -1) + (1,) * (rank - 2)) if place and array.ndim else array)


def _tiny(call: _Call) -> float:
    """What underflow may lose in one operation."""
    return {ROUNDOFF[dtype]: small for dtype, small in _SMALLEST.items()}.get(call.unit, 0.0)


def _is_pointwise(call: _Call) -> bool:
    shapes = [arg.shape for arg in call.args if arg is not None]
    if call.out is None or call.node.op in _MIXES:
        return False
    try:
        return np.broadcast_shapes(*shapes) == call.out.shape
    except ValueError:
        return False


_MIXES = frozenset(
    "Softmax LogSoftmax LayerNormalization RMSNormalization InstanceNormalization GroupNormalization LRN "
    "LpNormalization Einsum LpPool STFT Resize".split()
)


def _deviation(call: _Call) -> Float:
    """How far the result moves when every argument moves by its error, either way."""
    if call.unmoved and call.out is not None:
        return np.zeros(call.out.shape)
    base = call.base()
    most = np.zeros(base.shape)
    moving = [place for place, err in enumerate(call.errs) if err is not None and err.any()]
    for signs in itertools.product((-1.0, 1.0), repeat=len(moving)):
        moved = list(call.args)
        for place, sign in zip(moving, signs, strict=True):
            array = call.args[place]
            if array is not None:
                moved[place] = array.astype(np.float64) + sign * call.err(place)
        there = call.of(moved)
        most = np.fmax(most, np.abs(there - base))
        most = np.where(np.isfinite(base) != np.isfinite(there), np.inf, most)
    return most


def _of_attributes(call: _Call) -> Float:
    """How far the result moves when float attributes move by what rounding them to float32 may have changed."""
    rounded = [
        (name, value)
        for name, value in call.node.attrs.items
        if isinstance(value, float) and not few_bits(np.asarray(value))
    ]
    if not rounded:
        return np.zeros(())
    base = call.base()
    most = np.zeros(base.shape)
    for name, value in rounded:
        for sign in (-1.0, 1.0):
            moved = call.of(call.args, call.node.attrs.replaced(**{name: value * (1 + sign * ROUNDOFF["float32"])}))
            most = np.fmax(most, np.abs(moved - base))
    return most


def _pointwise(call: _Call) -> Float:
    return _deviation(call) + _of_attributes(call) + FUNCTION_ULPS * call.unit * np.maximum(call.result(), 1.0)


def _mixing(call: _Call) -> Float:
    """Softmax, the normalizations and the like: what moving all arguments does in seeded directions, eightfold, and
    one rounding of the largest value for every element that a result is made of."""
    base = call.base()
    most = np.zeros(base.shape)
    if not call.unmoved:
        generator = np.random.default_rng(0)
        for _ in range(12):
            moved: list[Array | None] = []
            for place, array in enumerate(call.args):
                if array is not None and array.dtype.kind == "f":
                    array = array.astype(np.float64) + generator.choice((-1.0, 1.0), array.shape) * call.err(place)
                moved.append(array)
            there = call.of(moved)
            most = np.fmax(most, np.abs(there - base))
            most = np.where(np.isfinite(there) & ~np.isfinite(base), np.inf, most)
    length = max((arg.size for arg in call.args if arg is not None), default=1)
    largest = np.max(call.result(), initial=1.0, where=np.isfinite(call.result()))
    return 8 * most + (length + FUNCTION_ULPS) * call.unit * largest


_RULES: Mapping[str, Callable[[_Call], Float]] = {
    **dict.fromkeys(_BILINEAR, _bilinear),
    **dict.fromkeys(_LINEAR, _linear),
    "Add": _sum, "Sub": _sum, "Mul": _product, "Div": _quotient, "Neg": _same, "Abs": _same, "Cast": _cast,
    "BatchNormalization": _batch_normalization,
}  # fmt: skip
