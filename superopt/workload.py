"""How much work a node is: floating-point operations and bytes of memory traffic, from its types and attributes
alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from superopt.operators import named
from superopt.terms import CONST, DTYPE_BITS, INPUT, PROJECT, Attrs, Dim, TensorType, ValueType

FIRST_DIM = 1
"""The size that a symbolic or unknown first dimension (a batch, as a rule) is priced at where the caller gives none."""

OTHER_DIM = 64
"""The size that any other symbolic or unknown dimension is priced at where the caller gives none."""

OTHER_RANK = 2
"""The rank that a tensor of unknown rank is priced at."""


@dataclass(frozen=True)
class Sizes:
    """The nominal sizes that symbols are priced at: those given, else ``FIRST_DIM`` in front and ``OTHER_DIM``
    elsewhere."""

    symbols: Mapping[str, int] = field(default_factory=dict)

    def shape(self, value: ValueType) -> tuple[int, ...]:
        """The shape that a tensor is priced at; () for what is not a tensor."""
        if not isinstance(value, TensorType):
            return ()
        dims: tuple[Dim, ...] = (None,) * OTHER_RANK if value.shape is None else value.shape
        return tuple(self._dim(dim, axis) for axis, dim in enumerate(dims))

    def nbytes(self, value: ValueType) -> int:
        """The bytes that a value takes in memory; those of all its parts where it is a bundle."""
        if isinstance(value, tuple):
            return sum(self.nbytes(part) for part in value)
        if not isinstance(value, TensorType):
            return 0
        return (prod(self.shape(value)) * DTYPE_BITS.get(value.dtype, 128) + 7) // 8

    def _dim(self, dim: Dim, axis: int) -> int:
        if isinstance(dim, int):
            return dim
        given = self.symbols.get(dim) if dim is not None else None
        if given is not None:
            return given
        return FIRST_DIM if axis == 0 else OTHER_DIM


NOMINAL = Sizes()
"""Nominal sizes where no symbol is given one."""


@dataclass(frozen=True, slots=True)
class Work:
    """``flops``: multiplications and additions, counted apart. ``traffic``: bytes read and written, each operand
    once."""

    flops: float
    traffic: float


Shape = tuple[int, ...]
Counter = Callable[[Attrs, Sequence[Shape], Shape, int], float]

VIEWS = frozenset("Identity Dropout Reshape Flatten Squeeze Unsqueeze Shape Size".split()) | {INPUT, CONST, PROJECT}
"""What moves no data: the runtime hands the same buffer on, or reads a shape."""

_SELECTIONS = frozenset("Slice Gather GatherElements GatherND".split())


def work(op: str, attrs: Attrs, operands: Sequence[ValueType], result: ValueType, sizes: Sizes, block: int = 1) -> Work:
    """The work of one node; ``operands`` hold None where an argument is absent or its type not known.

    ``block`` is a vector width in channels: the channels of a convolution, or of its groups, are padded up to it.
    """
    if op in VIEWS:
        return Work(0.0, 0.0)
    shapes = [sizes.shape(operand) for operand in operands]
    written = sizes.nbytes(result)
    read = written if op in _SELECTIONS else sum(sizes.nbytes(operand) for operand in operands)
    out = sizes.shape(result)
    flops = _COUNTERS.get(op, _per_element)(attrs, shapes, out, block)
    return Work(float(flops), float(read + written))


def _padded(channels: int, block: int) -> int:
    return -(-channels // block) * block


def _per_element(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    return prod(out)


def _nothing(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    return 0


def _convolution(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    """2 x outputs x (channels of a group) x kernel, of a weight [O, C/G, kernel ...]."""
    weight = shapes[1]
    if len(weight) < 3 or len(out) < 3:
        return prod(out)
    group = _group(attrs)
    if is_depthwise(attrs, weight):
        return 2 * prod(out) * prod(weight[1:])
    if group == 1:
        # Fewer input channels than a vector's width, as of an image, have kernels of their own.
        channels = weight[1] if weight[1] < block else _padded(weight[1], block)
        return 2 * out[0] * _padded(out[1], block) * prod(out[2:]) * channels * prod(weight[2:])
    outputs = _padded(max(weight[0] // group, 1), block) * group
    return 2 * out[0] * outputs * prod(out[2:]) * _padded(weight[1], block) * prod(weight[2:])


def _transposed_convolution(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    """2 x inputs x (outputs of a group) x kernel, of a weight [C, M/G, kernel ...]."""
    return 2 * prod(shapes[0]) * prod(shapes[1][1:]) if len(shapes[1]) >= 3 else prod(out)


def _matmul(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    return 2 * prod(out) * (shapes[0][-1] if shapes[0] else 1)


def _gemm(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    if len(shapes[0]) != 2:
        return prod(out)
    return 2 * prod(out) * shapes[0][0 if attrs.get("transA", 0) else 1]


def _einsum(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    terms = str(attrs.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    labels = {
        label: size
        for term, shape in zip(terms, shapes, strict=False)
        for label, size in zip(term, shape, strict=False)
    }
    return 2 * prod(labels.values())


def _pool(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    kernel = attrs.get("kernel_shape", ())
    return prod(out) * prod(int(size) for size in kernel) if isinstance(kernel, tuple) else prod(out)


def _per_input_element(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    return prod(shapes[0]) if shapes else 0


def _frames(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    """Every bin of every frame is a sum over the frame, as runtimes without a fast transform for any length have it."""
    length = attrs.get("frame_length", 1)
    return 2 * prod(out) * (length if isinstance(length, int) else 1)


def _resized(attrs: Attrs, shapes: Sequence[Shape], out: Shape, block: int) -> float:
    """In two dimensions: one place, the four or the sixteen around, with their weights."""
    return prod(out) * {"nearest": 1, "linear": 8}.get(str(attrs.get("mode")), 32)


_COUNTERS: Mapping[str, Counter] = {
    # An operation for each element: that comes out, or of those that are fewer than went in, that goes in.
    **dict.fromkeys(named(lambda form: form.shaped != "own"), _per_element),
    **dict.fromkeys(named(lambda form: form.shaped == "own"), _per_input_element),
    **dict.fromkeys(named(lambda form: form.made == "moved"), _nothing),
    **dict.fromkeys(named(lambda form: form.windowed), _pool),
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "STFT": _frames,
    "Resize": _resized,
}


def _group(attrs: Attrs) -> int:
    group = attrs.get("group", 1)
    return group if isinstance(group, int) and group > 0 else 1


def is_depthwise(attrs: Attrs, weight: Shape) -> bool:
    """Whether a convolution with this weight [O, C/G, kernel ...] has one input channel a group, and more than one
    group."""
    return _group(attrs) > 1 and len(weight) > 1 and weight[1] == 1


def is_grouped(attrs: Attrs, weight: Shape) -> bool:
    """Whether a convolution has several groups and is not depthwise."""
    return _group(attrs) > 1 and not is_depthwise(attrs, weight)
