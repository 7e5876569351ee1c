"""TASO's substitutions as rules in our text, as TASO applies them: what it implies is spelled out.

A convolution has no bias (a constant of zeros here), as many groups as the channels of its input and weight imply,
pads that follow from a mode, and often an activation. A matrix product is of matrices, or of batches of equally many.
A split divides where the concatenation below it joined. Names are the two sides in prefix notation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from superopt.errors import InputError, RuleError
from superopt.rule_text import parse
from superopt.taso.file import Applied, Key, Kind, Substitution, Tensor, read

SOURCE = "jia2019taso"

_WORDS = {
    Kind.CONV: "conv", Kind.MAXPOOL: "maxpool", Kind.AVGPOOL: "avgpool", Kind.RELU: "relu", Kind.SIGMOID: "sigmoid",
    Kind.TANH: "tanh", Kind.CONCAT: "concat", Kind.SPLIT: "split", Kind.ADD: "add", Kind.MUL: "mul",
    Kind.MATMUL: "matmul", Kind.SCALE: "scale", Kind.ENLARGE: "enlarge",
}  # fmt: skip
_OPERATORS = {
    Kind.MAXPOOL: "MaxPool", Kind.AVGPOOL: "AveragePool", Kind.RELU: "Relu", Kind.SIGMOID: "Sigmoid",
    Kind.TANH: "Tanh", Kind.ADD: "Add", Kind.MUL: "Mul", Kind.SCALE: "Mul",
}  # fmt: skip
_ARITY = {Kind.RELU: 1, Kind.SIGMOID: 1, Kind.TANH: 1, Kind.MAXPOOL: 1, Kind.AVGPOOL: 1, Kind.SPLIT: 1}
_ACTIVATIONS = {1: Kind.SIGMOID, 2: Kind.RELU, 3: Kind.TANH}
_SAME, _VALID = 0, 1
_VARIABLES = tuple("xyzuvw")
_REORDERS = frozenset({Kind.ADD, Kind.MUL, Kind.SCALE})
_MOVES = frozenset({Kind.RELU, Kind.CONCAT, Kind.SPLIT, Kind.ENLARGE})


@dataclass(frozen=True)
class Term:
    """An output of an operator applied to terms, or a variable (``kind`` is None)."""

    kind: Kind | None
    args: tuple[Term, ...] = ()
    parameters: tuple[tuple[Key, int], ...] = ()
    output: int = 0
    name: str = ""

    def get(self, key: Key, default: int | None = None) -> int | None:
        """A parameter."""
        return dict(self.parameters).get(key, default)

    def leaves(self) -> tuple[Term, ...]:
        """The variables, in order of appearance."""
        if self.kind is None:
            return (self,)
        return tuple(dict.fromkeys(leaf for arg in self.args for leaf in arg.leaves()))


def import_rules(path: str | Path) -> str:
    """The text of a rule file that says what a file of TASO's says, each with its place (counted from 0).

    Raises InputError, in one line, where it is not such a file or has an operator that our terms do not have.
    """
    names: Counter[str] = Counter()
    blocks = [_checked(_rule_text(one, str(path), names), f"{path}: substitution {one.place}") for one in read(path)]
    return "\n".join([f"# Imported from {Path(path).name}: {len(blocks)} rules, as TASO applies them.\n", *blocks])


def _checked(text: str, where: str) -> str:
    """The text, which is that of rules. Raises InputError where it is not: what it says then is no equation."""
    try:
        parse(text)
    except RuleError as error:
        raise InputError(f"{where}: {error.message}, expected two sides that rules can have") from error
    return text


def roots(substitution: Substitution, file: str) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """Both sides as terms: the outputs that are mapped, in order, with activations as operators of their own."""
    where = f"{file}: substitution {substitution.place}"
    names: dict[int, str] = {}
    left = tuple(_term(tensor, substitution.left, names, where) for tensor, _ in substitution.outputs)
    known = dict(names)
    right = tuple(_term(tensor, substitution.right, names, where) for _, tensor in substitution.outputs)
    if len(names) > len(known):
        raise InputError(f"{where}: the right side has a variable that the left has not, expected none")
    return left, right


def _term(tensor: Tensor, side: Sequence[Applied], names: dict[int, str], where: str) -> Term:
    if tensor.op < 0:
        if tensor.op not in names and len(names) == len(_VARIABLES):
            raise InputError(f"{where}: more variables than {len(_VARIABLES)}, expected fewer")
        return Term(None, name=names.setdefault(tensor.op, _VARIABLES[len(names)]))
    applied = side[tensor.op]
    if applied.kind not in _WORDS:
        known = ", ".join(_WORDS.values())
        raise InputError(f"{where}: {applied.kind.name.lower()} cannot be imported, expected one of {known}")
    word = _WORDS[applied.kind]
    expected = _ARITY.get(applied.kind, None if applied.kind in (Kind.CONCAT, Kind.ENLARGE) else 2)
    if not applied.inputs or (expected is not None and len(applied.inputs) != expected):
        raise InputError(f"{where}: {word} of {len(applied.inputs)} inputs, expected {expected or 'some'}")
    args = tuple(_term(arg, side, names, where) for arg in applied.inputs)
    activation = applied.parameters.get(Key.ACTIVATION, 0)
    ignored = _LEFT_OUT[applied.kind]
    kept = tuple(sorted((key, value) for key, value in applied.parameters.items() if key not in ignored))
    made = Term(applied.kind, args, kept, tensor.output)
    if activation == 0:
        return made
    if activation not in _ACTIVATIONS:
        raise InputError(f"{where}: activation {activation} is unknown, expected 0 to 3")
    return Term(_ACTIVATIONS[activation], (made,))


_NO_MATTER = frozenset({Key.OP_TYPE, Key.NUM_INPUTS, Key.NUM_OUTPUTS, Key.ACTIVATION, Key.GROUP})
_LEFT_OUT: Mapping[Kind, frozenset[Key]] = {
    kind: _NO_MATTER | ({Key.KERNEL_H, Key.KERNEL_W} if kind is Kind.CONV else set()) for kind in Kind
}
"""Parameters that say nothing: TASO's loader ignores the kernel of a convolution, which is its weight's."""


def name_of(left: Sequence[Term], right: Sequence[Term]) -> str:
    """Both sides in prefix notation: ``matmul-matmul-x-y-z-as-matmul-x-matmul-y-z``."""
    return "-as-".join("-and-".join(_prefix(term) for term in side) for side in (left, right))


def _prefix(term: Term) -> str:
    if term.kind is None:
        return term.name
    word = _WORDS[term.kind]
    if term.kind in (Kind.CONCAT, Kind.SPLIT):
        word += str(term.get(Key.AXIS))
    if term.kind is Kind.SPLIT:
        word += f".{term.output}"
    return "-".join([word, *(_prefix(arg) for arg in term.args)])


def _rule_text(substitution: Substitution, file: str, names: Counter[str]) -> str:
    left, right = roots(substitution, file)
    name = name_of(left, right)
    names[name] += 1
    again = f".{names[name]}" if names[name] > 1 else ""
    writer = _Writer(f"{file}: substitution {substitution.place}")
    before = _side(writer, left)
    conditions = [*writer.batches(), *writer.conditions]
    writer.on_left = False
    after = _side(writer, right)
    lines = [f"rule {name}{again}: {numeric_class((*left, *right))}", f"  {before}", f"    => {after}"]
    lines += [f"  when {', '.join(conditions)}"] if conditions else []
    return "\n".join([*lines, f"  from {SOURCE}[{substitution.place}]", ""])


def _side(writer: _Writer, terms: Sequence[Term]) -> str:
    texts = [writer.text(term) for term in terms]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def numeric_class(terms: Sequence[Term]) -> str:
    """``exact`` where both sides only move values and apply the same elementwise operators to them."""
    return "exact" if all(_is_exact(term, False) for term in terms) else "reassociates"


def _is_exact(term: Term, inside: bool) -> bool:
    if term.kind is None or term.kind in _MOVES:
        return all(_is_exact(arg, inside) for arg in term.args)
    return term.kind in _REORDERS and not inside and all(_is_exact(arg, True) for arg in term.args)


@dataclass
class _Writer:
    """Writes terms; what it implies of the left side it gathers as conditions."""

    where: str
    on_left: bool = True
    conditions: dict[str, None] = field(default_factory=dict)
    groups: dict[tuple[str, str], str] = field(default_factory=dict)
    biases: dict[Term, str] = field(default_factory=dict)
    products: list[tuple[str, ...]] = field(default_factory=list)

    def batches(self) -> list[str]:
        """What products need of their operands; one that holds another one's operands says what that one says."""
        largest = [one for one in dict.fromkeys(self.products) if not any(set(one) < set(o) for o in self.products)]
        return [f"batched({', '.join(names)})" for names in largest]

    def text(self, term: Term) -> str:
        match term.kind:
            case None:
                return term.name
            case Kind.CONV:
                return self._conv(term)
            case Kind.MAXPOOL | Kind.AVGPOOL:
                return self._pool(term)
            case Kind.CONCAT:
                return self._concat(term)
            case Kind.SPLIT:
                return self._split(term)
            case Kind.ENLARGE:
                pads = f"centered({self._window(term.args[0])}, {self._window(term)})"
                return f"Pad({self.text(term.args[0])}, None, pads={pads})"
            case Kind.MATMUL:
                if self.on_left:
                    self.products.append(tuple(leaf.name for leaf in term.leaves()))
                return f"MatMul({self._list(term)})"
            case Kind.SCALE if self.on_left:
                number = term.args[1]
                self._needs(f"single({number.name})" if number.kind is None else self._fail("a computed number"))
                self._needs(f"rank({number.name}) == 0")
                return f"Mul({self._list(term)})"
            case kind:
                return f"{_OPERATORS[kind]}({self._list(term)})"

    def _list(self, term: Term) -> str:
        return ", ".join(self.text(arg) for arg in term.args)

    def _needs(self, condition: str) -> None:
        self.conditions[condition] = None

    def _fail(self, what: str) -> NoReturn:
        raise InputError(f"{self.where}: {what} cannot be imported, expected something simpler")

    def _conv(self, term: Term) -> str:
        x, w = term.args
        inner, weight = self.text(x), self.text(w)
        key = (self._size(x, 1), self._size(w, 1))
        group = f"group={known}" if (known := self.groups.get(key)) else ""
        bias = self.biases.get(w)
        if self.on_left:
            # What convolves itself has one group: as many channels as its weight.
            group = group or ("" if x == w else f"group={self.groups.setdefault(key, _numbered('g', self.groups))}")
            bias = bias or self.biases.setdefault(w, _numbered("b", self.biases))
            self._needs(f"zero({bias})")
        else:
            group = group or ("" if x == w else f"group={_grouped(key[0])} // {_grouped(key[1])}")
            bias = bias or f"zeros({self._size(w, 0)}, like={x.leaves()[0].name})"
        strides, pads = self._strides_and_pads(term, x, self._window(w))
        return f"Conv({inner}, {weight}, {bias}, {strides}{pads}{group}".removesuffix(", ") + ")"

    def _pool(self, term: Term) -> str:
        window = f"({term.get(Key.KERNEL_H)}, {term.get(Key.KERNEL_W)})"
        strides, pads = self._strides_and_pads(term, term.args[0], window)
        attrs = f"kernel_shape={window}, {strides}{pads}".removesuffix(", ")
        return f"{_OPERATORS[term.kind or Kind.ANY]}({self.text(term.args[0])}, {attrs})"

    def _strides_and_pads(self, term: Term, x: Term, window: str) -> tuple[str, str]:
        strides = (term.get(Key.STRIDE_H, 1), term.get(Key.STRIDE_W, 1))
        mode = term.get(Key.PAD)
        if mode not in (_SAME, _VALID):
            self._fail(f"padding mode {mode}")
        plain = strides == (1, 1)
        written = "" if plain else f"strides={strides}, "
        if mode == _VALID:
            return written, ""
        return written, f"pads=same_pads({window}" + ("" if plain else f", {strides}, {self._space(x)}") + "), "

    def _concat(self, term: Term) -> str:
        dims = term.get(Key.NUM_DIMS)
        if self.on_left and dims is not None:
            for leaf in term.leaves():
                self._needs(f"rank({leaf.name}) == {dims}")
        return f"Concat({self._list(term)}, axis={term.get(Key.AXIS)})"

    def _split(self, term: Term) -> str:
        axis = term.get(Key.AXIS) or 0
        if self.on_left:
            return f"Split({self.text(term.args[0])}, axis={axis}, split=s{axis})[{term.output}]"
        sizes = self._joined(term.args[0], axis)
        return f"Split({self.text(term.args[0])}, axis={axis}, split=({', '.join(sizes)}))[{term.output}]"

    def _joined(self, term: Term, axis: int) -> list[str]:
        """The sizes that a concatenation along this axis has joined."""
        match term.kind:
            case Kind.CONCAT if term.get(Key.AXIS) == axis:
                return [self._size(arg, axis) for arg in term.args]
            case Kind.CONV | Kind.MATMUL if axis in (0, 1):
                weights = axis == 1
                return self._joined(term.args[weights], 0 if term.kind is Kind.CONV else axis)
            case None:
                raise InputError(f"{self.where}: a split of what nothing joined, expected a concatenation below it")
            case _:
                return self._joined(term.args[0], axis)

    def _size(self, term: Term, axis: int) -> str:
        """The size of an axis of a term, in the sizes of its variables."""
        match term.kind:
            case None:
                return f"dim({term.name}, {axis})"
            case Kind.CONCAT if term.get(Key.AXIS) == axis:
                return " + ".join(self._size(arg, axis) for arg in term.args)
            case Kind.ADD | Kind.MUL:
                sizes = dict.fromkeys(self._size(arg, axis) for arg in term.args)
                return next(iter(sizes)) if len(sizes) == 1 else f"max({', '.join(sizes)})"
            case Kind.CONV if axis == 1:
                return self._size(term.args[1], 0)
            case Kind.MATMUL if axis == 1:
                return self._size(term.args[1], axis)
            case _:
                return self._size(term.args[0], axis)

    def _window(self, term: Term) -> str:
        """The spatial sizes of a weight, in those of its variables."""
        match term.kind:
            case None:
                return f"kernel({term.name})"
            case Kind.ADD | Kind.MUL:
                windows = dict.fromkeys(self._window(arg) for arg in term.args)
                return next(iter(windows)) if len(windows) == 1 else f"wider({', '.join(windows)})"
            case Kind.ENLARGE if len(term.args) == 2:
                return self._window(term.args[1])
            case Kind.ENLARGE:
                return f"({term.get(Key.KERNEL_H)}, {term.get(Key.KERNEL_W)})"
            case _:
                return self._window(term.args[0])

    def _space(self, term: Term) -> str:
        """The spatial sizes of an input."""
        if term.kind is None:
            return f"kernel({term.name})"
        same = term.get(Key.PAD) == _SAME and term.get(Key.STRIDE_H) == term.get(Key.STRIDE_W) == 1
        if term.kind in (Kind.CONV, Kind.MAXPOOL, Kind.AVGPOOL) and not same:
            self._fail("a strided window of a window")
        return self._space(term.args[0])


def _grouped(sum_of_sizes: str) -> str:
    return f"({sum_of_sizes})" if " + " in sum_of_sizes else sum_of_sizes


def _numbered(letter: str, taken: Sized) -> str:
    return f"{letter}{len(taken) or ''}"
