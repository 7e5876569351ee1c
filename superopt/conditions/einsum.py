"""Rule functions about Einsum: which axes of its operands are kept, shared and summed, and what they are as matrices.

An ellipsis stands for letters that the equation does not use. What is not known to be one product raises ``Unknown``:
diagonals, operands whose shared axes are not known to be of one size, sizes of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from string import ascii_letters

from superopt.conditions.types import same_dim
from superopt.terms import Dim
from superopt.values import Unknown, Value, attribute

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Equation:
    """The letters of each operand and of the result, one an axis, and the size that each letter stands for."""

    terms: tuple[str, ...]
    out: str
    sizes: dict[str, Dim]

    @property
    def text(self) -> str:
        return f"{','.join(self.terms)}->{self.out}"


@dataclass(frozen=True)
class Product:
    """A product of two operands: letters of both that are kept, of the left one alone, of the right one alone, and of
    both that are summed over."""

    equation: Equation

    @cached_property
    def batch(self) -> str:
        left, right = self.equation.terms
        return "".join(letter for letter in self.equation.out if letter in left and letter in right)

    @cached_property
    def rows(self) -> str:
        return "".join(letter for letter in self.equation.out if letter not in self.equation.terms[1])

    @cached_property
    def columns(self) -> str:
        return "".join(letter for letter in self.equation.out if letter not in self.equation.terms[0])

    @cached_property
    def inner(self) -> str:
        return "".join(letter for letter in self.equation.terms[0] if letter not in self.equation.out)

    @cached_property
    def plain(self) -> bool:
        """Whether MatMul takes the operands without a Reshape: matrices in batches, or one of several axes and one
        matrix."""
        few = min(len(self.rows), len(self.columns)) == 1 == len(self.inner)
        return few and (not self.batch or len(self.rows) == len(self.columns))

    @cached_property
    def right(self) -> str:
        """The letters of MatMul's right operand, in order."""
        if self.plain:
            return self.batch + self.columns[:-1] + self.inner + self.columns[-1]
        return self.batch + self.inner + self.columns

    @cached_property
    def result(self) -> str:
        """The letters of MatMul's result, in order."""
        if self.plain and len(self.columns) > 1:
            return self.columns[:-1] + self.rows + self.columns[-1]
        return self.batch + self.rows + self.columns


def equation_of(text: str, *operands: Value) -> Equation:
    """An equation with its ellipses spelled out, for operands of these shapes."""
    text = text.replace(" ", "")
    inputs, arrow, out = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise Unknown("not so many operands")
    spare = [letter for letter in ascii_letters if letter not in text]
    spelled: list[str] = []
    longest = 0
    for term, operand in zip(terms, operands, strict=True):
        count = operand.rank - len(term.replace("...", ""))
        if not 0 <= count <= len(spare) or (count and "..." not in term):
            raise Unknown("not of this rank")
        spelled.append(term.replace("...", "".join(reversed(spare[:count]))))
        longest = max(longest, count)
    dots = "".join(reversed(spare[:longest]))
    if not arrow:
        # Which of A and a comes first is said nowhere.
        if inputs != inputs.lower():
            raise Unknown("no order of the result")
        out = "..." + "".join(sorted(letter for letter in set(inputs) - set(",.") if inputs.count(letter) == 1))
    if dots and "..." not in out:
        raise Unknown("a sum over an ellipsis")
    out = out.replace("...", dots)
    sizes: dict[str, Dim] = {}
    for term, operand in zip(spelled, operands, strict=True):
        for letter, size in zip(term, operand.shape, strict=True):
            if letter in sizes and not same_dim(sizes[letter], size):
                raise Unknown("an axis is stretched, or not known to be as long as another")
            sizes[letter] = size
    if any(len(set(part)) < len(part) for part in (*spelled, out)) or not set(out) <= set(sizes):
        raise Unknown("a diagonal")
    return Equation(tuple(spelled), out, sizes)


def _product(text: str, x: Value, y: Value) -> Product:
    """The product that an equation of two operands is; what one operand has alone must be in the result."""
    found = Product(equation_of(text, x, y))
    left, right = found.equation.terms
    if any((letter in left) != (letter in right) and letter not in found.equation.out for letter in left + right):
        raise Unknown("a sum over an axis of one operand")
    return found


def _matrices(text: str, x: Value, y: Value) -> Product:
    found = _product(text, x, y)
    if not found.inner:
        raise Unknown("nothing is summed over")
    return found


def _places(letters: str, among: str) -> Ints:
    return tuple(among.index(letter) for letter in letters)


def _target(before: Sequence[Sequence[Dim]], after: Sequence[Sequence[Dim]]) -> Ints:
    """Reshape's target from axes that are products of sizes to other products of the same ones: a size that is not
    known stays where it is, or is the one that is inferred."""
    target: list[int] = []
    for place, group in enumerate(after):
        known = [size for size in group if isinstance(size, int)]
        if len(known) == len(group):
            target.append(prod(known))
        elif place < len(before) and list(before[place]) == list(group) and None not in group:
            target.append(0)
        else:
            target.append(-1)
    sizes = [size for group in after for size in group]
    # Beside a size that is copied, and may be none, Reshape infers nothing.
    if 0 in sizes or target.count(-1) + (0 in target) > 1:
        raise Unknown("several sizes are not known, or one is zero")
    return tuple(target)


def _dims(found: Product, letters: str) -> list[Dim]:
    return [found.equation.sizes[letter] for letter in letters]


def _grouped(found: Product, *groups: str) -> list[list[Dim]]:
    return [*([size] for size in _dims(found, found.batch)), *(_dims(found, group) for group in groups)]


@attribute()
def left_order(equation: str, x: Value, y: Value) -> Ints:
    """The permutation that brings the left operand's axes in order: batches, rows, what is summed over."""
    found = _matrices(equation, x, y)
    return _places(found.batch + found.rows + found.inner, found.equation.terms[0])


@attribute()
def right_order(equation: str, x: Value, y: Value) -> Ints:
    """The permutation that brings the right operand's axes in order: batches, what is summed over, columns."""
    found = _matrices(equation, x, y)
    return _places(found.right, found.equation.terms[1])


@attribute()
def left_matrix(equation: str, x: Value, y: Value) -> Ints:
    """Reshape's target that makes matrices of the left operand in order; its own shape where they are matrices."""
    found = _matrices(equation, x, y)
    if found.plain:
        return (0,) * x.rank
    axes = [[size] for size in _dims(found, found.batch + found.rows + found.inner)]
    return _target(axes, _grouped(found, found.rows, found.inner))


@attribute()
def right_matrix(equation: str, x: Value, y: Value) -> Ints:
    """Reshape's target that makes matrices of the right operand in order; its own shape where they are matrices."""
    found = _matrices(equation, x, y)
    if found.plain:
        return (0,) * y.rank
    axes = [[size] for size in _dims(found, found.right)]
    return _target(axes, _grouped(found, found.inner, found.columns))


@attribute()
def product_shape(equation: str, x: Value, y: Value) -> Ints:
    """Reshape's target that takes the matrices of the result apart into axes."""
    found = _matrices(equation, x, y)
    if found.plain:
        return (0,) * len(found.result)
    return _target(_grouped(found, found.rows, found.columns), [[size] for size in _dims(found, found.result)])


@attribute()
def product_order(equation: str, x: Value, y: Value) -> Ints:
    """The permutation that brings the axes of the result in the equation's order."""
    found = _matrices(equation, x, y)
    return _places(found.equation.out, found.result)


@attribute()
def factor_order(equation: str, place: int, x: Value, y: Value) -> Ints:
    """Where nothing is summed over: the permutation that brings an operand's axes in the order of the result."""
    found = _product(equation, x, y)
    if found.inner:
        raise Unknown("a sum")
    term = found.equation.terms[place]
    return _places("".join(letter for letter in found.equation.out if letter in term), term)


@attribute()
def factor_gaps(equation: str, place: int, x: Value, y: Value) -> Ints:
    """Where nothing is summed over: the axes of the result that an operand does not have."""
    found = _product(equation, x, y)
    term = found.equation.terms[place]
    return tuple(axis for axis, letter in enumerate(found.equation.out) if letter not in term)


@attribute()
def lone_axes(equation: str, place: int, *operands: Value) -> Ints:
    """The axes of an operand that neither the result nor another operand has: they are summed over first."""
    found = equation_of(equation, *operands)
    elsewhere = "".join((*found.terms[:place], *found.terms[place + 1 :], found.out))
    axes = tuple(axis for axis, letter in enumerate(found.terms[place]) if letter not in elsewhere)
    if not axes:
        raise Unknown("no such axis")
    return axes


@attribute()
def without_lone(equation: str, place: int, *operands: Value) -> str:
    """The equation once the axes that an operand has alone are summed over."""
    found = equation_of(equation, *operands)
    gone = {found.terms[place][axis] for axis in lone_axes(equation, place, *operands)}
    terms = tuple("".join(letter for letter in term if letter not in gone) for term in found.terms)
    return Equation(terms, found.out, found.sizes).text


@attribute()
def axis_order(equation: str, x: Value) -> Ints:
    """The permutation that an equation of one operand is."""
    found = equation_of(equation, x)
    if len(found.out) < x.rank:
        raise Unknown("a sum")
    return _places(found.out, found.terms[0])


@attribute()
def order_after_sum(equation: str, x: Value) -> Ints:
    """The permutation that an equation of one operand is after its sums."""
    found = equation_of(equation, x)
    return _places(found.out, "".join(letter for letter in found.terms[0] if letter in found.out))


@attribute()
def first_pair(equation: str, x: Value, y: Value, z: Value) -> str:
    """The equation of the first two of three operands, which keeps what the third or the result has."""
    found = equation_of(equation, x, y, z)
    first, second, third = found.terms
    kept = "".join(dict.fromkeys(letter for letter in first + second if letter in third + found.out))
    return f"{first},{second}->{kept}"


@attribute()
def pair_and_rest(equation: str, x: Value, y: Value, z: Value) -> str:
    """The equation of what the first two of three operands have made, and the third."""
    found = equation_of(equation, x, y, z)
    return f"{first_pair(equation, x, y, z).partition('->')[2]},{found.terms[2]}->{found.out}"


def _aligned(x: Value, y: Value) -> list[tuple[Dim, Dim]]:
    """The sizes of the axes of what two broadcast to, in one and in the other; one where an axis is not there."""
    rank = max(x.rank, y.rank)
    rows = [(1,) * (rank - value.rank) + value.shape for value in (x, y)]
    return list(zip(*rows, strict=True))


@attribute()
def stretched(x: Value, y: Value) -> Ints:
    """The axes of size one of ``x``, at least one, that ``y`` has in other sizes."""
    missing = max(x.rank, y.rank) - x.rank
    axes = tuple(place - missing for place, (mine, other) in enumerate(_aligned(x, y)) if mine == 1 != other)
    if not axes or axes[0] < 0:
        raise Unknown("no axis of size one, or one that is not there")
    return axes


@attribute()
def sum_equation(axes: Ints, x: Value, y: Value) -> str:
    """The equation of the sum over axes of a product, of operands whose stretched axes are squeezed."""
    pairs = _aligned(x, y)
    if any(mine != 1 and other != 1 and not same_dim(mine, other) for mine, other in pairs) or len(pairs) > len(
        ascii_letters
    ):
        raise Unknown("sizes that are not known to be equal")
    letters = ascii_letters[: len(pairs)]
    left = "".join(letter for letter, (mine, other) in zip(letters, pairs, strict=True) if not mine == 1 != other)
    right = "".join(letter for letter, (mine, other) in zip(letters, pairs, strict=True) if not other == 1 != mine)
    return f"{left},{right}->{''.join(letter for axis, letter in enumerate(letters) if axis not in axes)}"


@attribute()
def product_equation(x: Value, y: Value) -> str:
    """The equation of MatMul of two operands of rank 2 or more whose batches are not stretched."""
    if min(x.rank, y.rank) < 2:
        raise Unknown("a vector")
    longest = max(x.rank, y.rank) - 2
    batch = ascii_letters[3 : 3 + longest]
    terms = [batch[longest - (value.rank - 2) :] + pair for value, pair in ((x, "ab"), (y, "bc"))]
    text = f"{terms[0]},{terms[1]}->{batch}ac"
    equation_of(text, x, y)
    return text


@attribute()
def with_order(equation: str, place: int, perm: Ints) -> str:
    """The equation of operands of which one is not transposed by ``perm`` any more."""
    inputs, _, out = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "." in equation or "->" not in equation or len(terms[place]) != len(perm):
        raise Unknown("an equation that is not spelled out")
    letters = [""] * len(perm)
    for letter, axis in zip(terms[place], perm, strict=True):
        letters[axis] = letter
    return f"{','.join((*terms[:place], ''.join(letters), *terms[place + 1 :]))}->{out}"


@attribute()
def with_result_order(equation: str, perm: Ints) -> str:
    """The equation whose result is the one of this equation transposed."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    if "." in equation or not arrow or len(out) != len(perm):
        raise Unknown("an equation that is not spelled out")
    return f"{inputs}->{''.join(out[axis] for axis in perm)}"
