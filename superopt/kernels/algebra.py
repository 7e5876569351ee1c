"""What kernels compute over: float64, or the integers modulo a prime with uninterpreted functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from superopt.errors import EvaluationError

Array: TypeAlias = NDArray[Any]

PRIME = 2147483629
"""The largest prime below 2^31 - 18: two residues multiply without leaving int64."""


class NotInRing(EvaluationError):
    """The operator is not made of ring operations and pointwise functions: it compares, rounds or truncates."""


class ZeroDivisor(NotInRing):
    """A division by zero modulo the prime: the instance says nothing, another one may."""


class DivisionFault(EvaluationError):
    """An integer divided by zero, or the least one by -1: what processors do not do."""


class Algebra:
    """The operations that kernels are written in.

    A float tensor's carrier is an array that ``enter`` makes; integers and booleans are themselves. ``exact`` tells
    whether results that are equal over the rationals are equal here.
    """

    name: str
    exact: bool

    def enter(self, array: Array) -> Array:
        """The carrier of a tensor."""
        raise NotImplementedError

    def number(self, value: float) -> Array:
        """The carrier of an attribute, rank 0."""
        raise NotImplementedError

    def add(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def sub(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def mul(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def div(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def matmul(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def sum(self, a: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        raise NotImplementedError

    def prod(self, a: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        raise NotImplementedError

    def cumsum(self, a: Array, axis: int) -> Array:
        raise NotImplementedError

    def einsum(self, equation: str, operands: list[Array]) -> Array:
        raise NotImplementedError

    def power(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def function(self, name: str, a: Array) -> Array:
        """A pointwise function of one argument by its name in ``FUNCTIONS``."""
        raise NotImplementedError

    def compares(self, op: str) -> None:
        """Called by kernels that need an order, or digits: raises NotInRing where there is none."""
        raise NotImplementedError


class Float64(Algebra):
    """Floats of every width are computed in float64; integers and booleans in their own type, wrapping."""

    name = "float64"
    exact = False

    def enter(self, array: Array) -> Array:
        return array.astype(np.float64) if is_float(array.dtype) and array.dtype != np.float64 else array

    def number(self, value: float) -> Array:
        return np.asarray(value, dtype=np.float64)

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(a + b)

    def sub(self, a: Array, b: Array) -> Array:
        return np.asarray(a - b)

    def mul(self, a: Array, b: Array) -> Array:
        return np.asarray(a * b)

    def div(self, a: Array, b: Array) -> Array:
        if a.dtype == np.float64:
            return np.asarray(a / b)
        check_divisor(a, b)
        quotient = np.asarray(a // b)
        rest = a - quotient * b
        return np.asarray(quotient + ((rest != 0) & ((rest < 0) != (a < 0))).astype(a.dtype))

    def matmul(self, a: Array, b: Array) -> Array:
        return np.asarray(np.matmul(a, b))

    def sum(self, a: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.asarray(np.sum(a, axis=axes, keepdims=keepdims, dtype=a.dtype))

    def prod(self, a: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.asarray(np.prod(a, axis=axes, keepdims=keepdims, dtype=a.dtype))

    def cumsum(self, a: Array, axis: int) -> Array:
        return np.asarray(np.cumsum(a, axis=axis, dtype=a.dtype))

    def einsum(self, equation: str, operands: list[Array]) -> Array:
        return np.asarray(np.einsum(equation, *operands, optimize=True))

    def power(self, a: Array, b: Array) -> Array:
        if a.dtype == np.float64:
            return np.asarray(np.power(a, b.astype(np.float64)))
        reals = np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
        if not np.issubdtype(b.dtype, np.integer):
            return np.asarray(reals)
        # Number by number: what others are raised to makes no difference. Modulo 2^64, so modulo what the type has.
        wrapped = np.power(a.astype(np.uint64), np.maximum(b, 0).astype(np.uint64)).astype(a.dtype)
        return np.asarray(np.where(b >= 0, wrapped, reals))

    def function(self, name: str, a: Array) -> Array:
        return np.asarray(FUNCTIONS[name](a))

    def compares(self, op: str) -> None:
        return


def check_divisor(a: Array, b: Array) -> None:
    """Raises DivisionFault where integers are divided that no processor divides."""
    if not np.all(b):
        raise DivisionFault("integer division by zero")
    if b.dtype.kind == "i" and a.dtype.kind == "i" and np.any((a == np.iinfo(a.dtype).min) & (b == -1)):
        raise DivisionFault("division of the least integer by -1")


FLOAT64 = Float64()


@dataclass(frozen=True)
class Modular(Algebra):
    """Integers modulo a prime in int64 arrays of residues; functions are seeded hashes of the residue.

    An integer tensor that is data is a residue too; where an operator's argument is an index (Gather) it is taken as it
    stands. Results that are equal over the rationals are equal here, and unequal ones differ but for one chance in
    about 2^31 per element.
    """

    prime: int = PRIME
    seed: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]  # a computed name in place of a field
        return f"modulo {self.prime}"

    exact = True

    def enter(self, array: Array) -> Array:
        if array.dtype == np.bool_:
            return array
        if is_float(array.dtype):
            values, inverse = np.unique(array.astype(np.float64), return_inverse=True)
            residues = [self._residue(float(value)) for value in values.tolist()]
            return np.asarray(residues, dtype=np.int64)[inverse].reshape(array.shape)
        return np.asarray(array.astype(np.int64) % self.prime)

    def number(self, value: float) -> Array:
        return np.asarray(self._residue(float(value)), dtype=np.int64)

    def _residue(self, value: float) -> int:
        if not math.isfinite(value):
            raise NotInRing(f"{value} has no residue")
        exact = rational(value)
        return exact.numerator * pow(exact.denominator, -1, self.prime) % self.prime

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray((a + b) % self.prime)

    def sub(self, a: Array, b: Array) -> Array:
        return np.asarray((a - b) % self.prime)

    def mul(self, a: Array, b: Array) -> Array:
        return np.asarray(a * b % self.prime)

    def div(self, a: Array, b: Array) -> Array:
        return self.mul(a, self.inverse(b))

    def inverse(self, a: Array) -> Array:
        """The multiplicative inverse, by Fermat: a^(p - 2)."""
        if not np.all(a % self.prime):
            raise ZeroDivisor("division by zero")
        return self._raised(a, self.prime - 2)

    def _raised(self, a: Array, exponent: int) -> Array:
        result, base = np.ones_like(a), a % self.prime
        while exponent:
            if exponent & 1:
                result = result * base % self.prime
            base = base * base % self.prime
            exponent >>= 1
        return np.asarray(result)

    def matmul(self, a: Array, b: Array) -> Array:
        return self._by_halves(np.matmul, a, b, a.shape[-1])

    def _by_halves(self, product: Callable[[Array, Array], Array], a: Array, b: Array, terms: int) -> Array:
        """A bilinear map, exactly: 16-bit halves multiply to less than 2^32, and float64 adds 2^21 such exactly."""
        if terms >= 1 << 21:
            raise EvaluationError(f"a sum of {terms} products is too long to be exact")
        a, b = a % self.prime, b % self.prime
        high_a, low_a = (a >> 16).astype(np.float64), (a & 0xFFFF).astype(np.float64)
        high_b, low_b = (b >> 16).astype(np.float64), (b & 0xFFFF).astype(np.float64)

        def part(left: Array, right: Array) -> Array:
            return np.asarray(product(left, right)).astype(np.int64) % self.prime

        middle = (part(high_a, low_b) + part(low_a, high_b)) % self.prime
        high = part(high_a, high_b) * ((1 << 32) % self.prime) % self.prime
        return np.asarray((high + middle * (1 << 16) + part(low_a, low_b)) % self.prime)

    def sum(self, a: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.asarray(np.sum(a, axis=axes, keepdims=keepdims, dtype=np.int64) % self.prime)

    def prod(self, a: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        result = a
        for axis in axes:
            factors = [np.take(result, [index], axis=axis) for index in range(result.shape[axis])]
            shape = tuple(1 if position == axis else size for position, size in enumerate(result.shape))
            total = np.ones(shape, dtype=np.int64)
            for factor in factors:
                total = self.mul(total, factor)
            result = total
        return result if keepdims else np.squeeze(result, axis=axes)

    def cumsum(self, a: Array, axis: int) -> Array:
        return np.asarray(np.cumsum(a, axis=axis, dtype=np.int64) % self.prime)

    def einsum(self, equation: str, operands: list[Array]) -> Array:
        if len(operands) == 1:
            return np.asarray(np.einsum(equation, operands[0]) % self.prime)
        if len(operands) > 2:
            raise NotInRing("Einsum of more than two operands")
        first, second = operands
        terms = _einsum_terms(equation, operands)
        return self._by_halves(lambda a, b: np.asarray(np.einsum(equation, a, b)), first, second, terms)

    def power(self, a: Array, b: Array) -> Array:
        """Small whole exponents are products; any other is an uninterpreted function of both arguments."""
        a, b = np.broadcast_arrays(a % self.prime, b % self.prime)
        result = self._hash("pow", a * 31 % self.prime + (self._hash("exponent", b) << 31))
        for exponent in np.unique(b).tolist():
            if exponent <= 64:
                result = np.where(b == exponent, self._raised(a, exponent), result)
        return result

    def function(self, name: str, a: Array) -> Array:
        return self._hash(name, a % self.prime)

    def _hash(self, name: str, a: Array) -> Array:
        """A residue other than zero that nothing but equal arguments share, by splitmix64."""
        salt = sum(byte * pow(257, place, 1 << 61) for place, byte in enumerate(name.encode()))
        x = a.astype(np.uint64) + np.uint64((salt + self.seed * 0x9E3779B97F4A7C15) % (1 << 64))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        return np.asarray((x % np.uint64(self.prime - 1) + np.uint64(1)).astype(np.int64))

    def compares(self, op: str) -> None:
        raise NotInRing(f"{op} is not made of ring operations")


def _einsum_terms(equation: str, operands: list[Array]) -> int:
    """How many products an element of the result adds: the sizes of the labels that it does not have."""
    inputs, arrow, output = equation.partition("->")
    sizes: dict[str, int] = {}
    for labels, operand in zip(inputs.split(","), operands, strict=True):
        head, _, tail = labels.partition("...")
        sizes.update(zip(head, operand.shape, strict=False))
        sizes.update(zip(reversed(tail), reversed(operand.shape), strict=False))
    kept = output if arrow else [label for label in sizes if inputs.count(label) == 1]
    return math.prod(size for label, size in sizes.items() if label not in kept)


def modular(prime: int = PRIME, seed: int = 0) -> Modular:
    """Arithmetic modulo a prime of less than 31 bits."""
    if not 1 << 16 < prime < 1 << 31:
        raise EvaluationError(f"the modulus {prime} is not between 2^16 and 2^31")
    return Modular(prime, seed)


@lru_cache(maxsize=1 << 14)
def rational(value: float) -> Fraction:
    """The rational number that a float stands for, so that 0.5 is the inverse of 2, and 1/9 that of 9.

    It is the one with a denominator up to 1024, if the float is its rounding (to float32, where that holds the float);
    else the float itself.
    """
    exact = Fraction(value)
    if exact.denominator <= 1 << 12:
        return exact
    simple = exact.limit_denominator(1024)
    as_float = float(simple)
    with np.errstate(over="ignore"):
        single = float(np.float32(value)) == value
        near = float(np.float32(as_float)) == value if single else as_float == value
    return simple if near else exact


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a numpy dtype is a real float type of any width, ml_dtypes' included."""
    if dtype.kind == "f":
        return True
    return dtype.kind == "V" and dtype in _ML_FLOATS


_ML_FLOATS = frozenset(
    np.dtype(getattr(ml_dtypes, name))
    for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        "float4_e2m1fn",
    )
)  # fmt: skip


_ERF_STEP = 64
_ERF_LIMIT = 6


def _erf_table() -> Array:
    """Taylor coefficients of erf at multiples of 1/64: f' = g with g_{n+1} = -2 (x g_n + g_{n-1}) / (n + 1)."""
    rows = []
    for place in range(_ERF_LIMIT * _ERF_STEP + 1):
        x = place / _ERF_STEP
        g = [2 / math.sqrt(math.pi) * math.exp(-x * x)]
        for n in range(7):
            g.append(-2 * (x * g[n] + (g[n - 1] if n else 0.0)) / (n + 1))
        rows.append([math.erf(x)] + [value / (n + 1) for n, value in enumerate(g)])
    return np.asarray(rows).T.copy()


_ERF_TABLE = _erf_table()


def erf(x: Array) -> Array:
    """The error function in float64, within about 2 ulp: a table and a Taylor polynomial (numpy has none)."""
    magnitude = np.minimum(np.abs(x), _ERF_LIMIT)
    place = np.rint(np.nan_to_num(magnitude) * _ERF_STEP).astype(np.int64)
    rest = magnitude - place / _ERF_STEP
    result = _ERF_TABLE[-1][place]
    for row in _ERF_TABLE[-2::-1]:
        result = result * rest + row[place]
    return np.asarray(np.copysign(result, x))


def _sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay)))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cos": np.cos, "cosh": np.cosh, "erf": erf, "exp": np.exp, "log": np.log, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "sigmoid": _sigmoid,
    "softplus": lambda x: np.asarray(np.logaddexp(0.0, x)),
    "gelu": lambda x: np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2)))),
    "gelu_tanh": lambda x: np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
}  # fmt: skip
"""Pointwise functions: what they are in float64; uninterpreted in the ring."""
