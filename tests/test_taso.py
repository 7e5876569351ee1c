"""TASO's file of substitutions: read, written as rules, and shipped each once, the false ones repaired or rejected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from superopt import rule_text
from superopt.cli.main import main
from superopt.conditions import taso as conditions_taso
from superopt.engine.saturate import Limits, saturate
from superopt.errors import InputError
from superopt.laws import laws
from superopt.rules import Rule, RuleSet
from superopt.taso import file as taso
from superopt.taso import text as taso_text
from superopt.taso.file import Key, Kind
from superopt.taso.text import Term
from superopt.terms import TensorType
from superopt.values import Unknown, Value
from tests.terms_builder import TermsBuilder

FILE = Path(__file__).parent / "data" / "taso_graph_subst.pb"
SUBSTITUTIONS = taso.read(FILE)
IMPORTED = rule_text.parse(taso_text.import_rules(FILE))
SHIPPED = rule_text.load("taso")

FUSIONS = {63, 64, 65, 66}
"""Both sides are one term once an activation is an operator of its own."""
FALSE = {59, 60, 61, 62, 98, 99, 100, 105, 125, 126, 127, 128, 129, 130, 131}
"""Other values though the right side is well formed: groups forgotten, equal numbers of outputs or equal shapes of
addends assumed."""


def places(rule: Rule) -> set[int]:
    return {int(number) for source in rule.sources for number in re.findall(r"^jia2019taso\[(\d+)\]$", source)}


def orders(term: Term) -> Iterator[Term]:
    """A term with the operands of commutative operators in every order."""
    if term.kind is None:
        yield term
        return
    for args in product(*(list(orders(arg)) for arg in term.args)):
        yield replace(term, args=args)
        if term.kind in (Kind.ADD, Kind.MUL) and args[0] != args[1]:
            yield replace(term, args=args[::-1])


def written(term: Term, names: dict[str, str], *, sort: bool) -> str:
    if term.kind is None:
        return names.setdefault(term.name, f"v{len(names)}")
    inner = [written(arg, names, sort=sort) for arg in term.args]
    if sort and term.kind in (Kind.ADD, Kind.MUL):
        inner.sort()
    # Ranks follow from where an equation is true: shipped rules ask for them where they must.
    parameters = [f"{key}={value}" for key, value in term.parameters if key is not Key.NUM_DIMS]
    return f"{term.kind.name}[{term.output}]({', '.join(inner + parameters)})"


def equation(left: Sequence[Term], right: Sequence[Term]) -> str:
    """A text that is the same for equations that differ in names and commutation alone, or in a Relu around both."""
    while len(left) == 1 and left[0].kind is Kind.RELU and right[0].kind is Kind.RELU:
        left, right = left[0].args, right[0].args
    found = []
    for roots in product(*(list(orders(root)) for root in left)):
        names: dict[str, str] = {}
        before = [written(root, names, sort=False) for root in roots]
        found.append(repr((before, [written(root, names, sort=True) for root in right])))
    return min(found)


def test_every_substitution_becomes_a_rule_that_says_where_it_stood() -> None:
    assert len(SUBSTITUTIONS) == len(IMPORTED) == 133
    assert [places(rule) for rule in IMPORTED] == [{place} for place in range(133)]
    assert sum(len(rule.left) == 2 for rule in IMPORTED) == 13
    assert IMPORTED.rules[0].name == "matmul-matmul-x-y-z-as-matmul-x-matmul-y-z"


def test_what_is_implied_is_spelled_out() -> None:
    text = IMPORTED.rules[98].text
    assert "pads=same_pads(kernel(y)), group=g)" in text
    assert "group=(dim(x, 1) + dim(z, 1)) // (dim(y, 1) + dim(u, 1))" in text
    assert "when zero(b), zero(b1)" in text
    assert "split=(dim(y, 0), dim(z, 0))" in IMPORTED.rules[127].text
    assert IMPORTED.rules[128].text.count("Relu(") == 3


def test_fusions_are_the_rules_with_equal_sides() -> None:
    equal = [place for place, rule in enumerate(IMPORTED) if rule.left == rule.right]
    assert set(equal) == FUSIONS


def test_every_equation_is_shipped_once_with_all_its_places() -> None:
    rules = [rule for rule in SHIPPED if rule.rejected is None]
    shipped = Counter(place for rule in rules for place in places(rule))
    assert set(shipped) == set(range(133)) - FUSIONS
    together: dict[str, set[int]] = {}
    for substitution in SUBSTITUTIONS:
        if substitution.place not in FUSIONS:
            together.setdefault(equation(*taso_text.roots(substitution, "")), set()).add(substitution.place)
    assert len(together) == 77
    for group in together.values():
        standing = [rule.name for rule in rules if group & places(rule)]
        assert all(group <= places(SHIPPED[name]) for name in standing)
        # One equation, but for the one whose two outputs are two equations.
        assert len(standing) == 1 or group == {9}


def test_every_false_one_is_shipped_as_rejected_too() -> None:
    assert set().union(*(places(rule) for rule in SHIPPED if rule.rejected is not None)) == FALSE


@pytest.mark.parametrize("place", sorted(FALSE))
def test_the_law_finds_the_false_ones(place: int) -> None:
    assert laws.refuted(IMPORTED.rules[place], points=40) is not None


@pytest.mark.parametrize("place", [0, 9, 22, 24, 38, 67, 69, 76, 92])
def test_the_law_passes_true_ones(place: int) -> None:
    assert laws.refuted(IMPORTED.rules[place], points=10) is None


@pytest.mark.parametrize("apart", [False, True])
def test_siblings_that_need_each_other_are_not_merged(apart: bool) -> None:
    terms = TermsBuilder()
    x = terms.input("x", "float32[2,4]")
    first = terms.node("Relu", x)
    later = terms.node("Relu", x if apart else terms.node("Sub", first, terms.node("Exp", first)))
    roots = [later, terms.node("Relu", terms.node("Exp", x))] if apart else [later]
    rules = SHIPPED.only("sibling-relus-along-1")
    text = saturate(terms.graph(*roots), rules, Limits(iterations=4), 21).egraph.text()
    assert text.count(" Split(") == apart


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    made = bytearray()
    while number >= 128:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    made = b""
    for number, value in fields:
        if isinstance(value, int):
            made += varint(number << 3) + varint(value)
        else:
            made += varint(number << 3 | 2) + varint(len(value)) + value
    return made


def operator(kind: Kind, inputs: Sequence[int], **parameters: int) -> bytes:
    tensors = [(2, message((1, op), (2, 0))) for op in inputs]
    return message((1, kind), *tensors, *((3, message((1, Key[k.upper()]), (2, v))) for k, v in parameters.items()))


def substitution(left: Sequence[bytes], right: Sequence[bytes]) -> bytes:
    outputs = message((1, len(left) - 1), (2, len(right) - 1), (3, 0), (4, 0))
    return message((1, message(*((1, one) for one in left), *((2, one) for one in right), (3, outputs))))


STRIDED = {"stride_h": 2, "stride_w": 2, "activation": 1}
OTHERS = {
    "scale": substitution(
        [operator(Kind.SCALE, [-1, -3]), operator(Kind.SCALE, [-2, -3]), operator(Kind.ADD, [0, 1])],
        [operator(Kind.ADD, [-1, -2]), operator(Kind.SCALE, [0, -3])],
    ),
    "enlarge": substitution(
        [operator(Kind.ENLARGE, [-1], kernel_h=5, kernel_w=5), operator(Kind.RELU, [0])],
        [operator(Kind.RELU, [-1]), operator(Kind.ENLARGE, [0], kernel_h=5, kernel_w=5)],
    ),
    "strides": substitution(
        [operator(Kind.CONV, [-1, -2], pad=0, **STRIDED)],
        [operator(Kind.CONV, [-1, -2], pad=0, **{**STRIDED, "activation": 0}), operator(Kind.SIGMOID, [0])],
    ),
    "pools": substitution(
        [operator(Kind.RELU, [-1]), operator(Kind.MAXPOOL, [0], kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, pad=1)],
        [operator(Kind.MAXPOOL, [-1], kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, pad=1), operator(Kind.RELU, [0])],
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_operators_that_the_file_does_not_have(what: str, tmp_path: Path) -> None:
    (tmp_path / "rules.pb").write_bytes(OTHERS[what])
    rules: RuleSet = rule_text.parse(taso_text.import_rules(tmp_path / "rules.pb"))
    result = laws.check(rules.rules[0], points=12, fires=False, idle=False)
    assert result.passed, result


FOREIGN = {
    "empty": (b"", "holds no substitution"),
    "text": (b"rule x: exact\n", "expected a file of TASO's substitutions"),
    "unknown operator": (substitution([message((1, 99))], [operator(Kind.RELU, [-1])]), "unknown kind 99"),
    "later operator": (substitution([operator(Kind.RELU, [3])], [operator(Kind.RELU, [-1])]), "names operator 3"),
    "new variable": (substitution([operator(Kind.RELU, [-1])], [operator(Kind.RELU, [-2])]), "has a variable"),
    "reshape": (substitution([operator(Kind.RESHAPE, [-1])], [operator(Kind.RELU, [-1])]), "reshape cannot be"),
    "one operand": (substitution([operator(Kind.ADD, [-1])], [operator(Kind.RELU, [-1])]), "add of 1 inputs"),
    "padding": (
        substitution([operator(Kind.CONV, [-1, -2], pad=7)], [operator(Kind.MATMUL, [-1, -2])]), "padding mode 7"
    ),
    "split alone": (
        substitution([operator(Kind.RELU, [-1])], [operator(Kind.SPLIT, [-1], axis=1)]), "a split of what nothing"
    ),
    "operand without effect": (
        substitution(
            [operator(Kind.ENLARGE, [-1, -2], kernel_h=3, kernel_w=3)], [operator(Kind.ADD, [-1, -2])]
        ), "substitution 0: y is not bound"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_file_is_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, message_text = FOREIGN[what]
    (tmp_path / "rules.pb").write_bytes(data)
    with pytest.raises(SystemExit) as left:
        main(["rules", "import", str(tmp_path / "rules.pb"), "-o", str(tmp_path / "out.rules")])
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert message_text in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out.rules").exists()


def test_a_file_that_was_cut_is_refused_or_ends_between_substitutions() -> None:
    data = FILE.read_bytes()
    counts = []
    for size in range(1, 2000):
        with suppress(InputError):
            counts.append(len(taso.parse(data[:size])))
    # What ends between two substitutions is a whole file of fewer.
    assert counts == list(range(1, 10))


def test_the_command_writes_what_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["rules", "import", str(FILE), "-o", str(tmp_path / "out.rules")])
    assert left.value.code == 0
    assert "133 rules" in capsys.readouterr().out
    assert len(rule_text.load(tmp_path / "out.rules")) == 133


def value(*shape: int | str) -> Value:
    return Value(TensorType("float32", shape))


def test_what_taso_implies_of_shapes() -> None:
    assert conditions_taso.same_pads((3, 2)) == (1, 0, 1, 1)
    assert conditions_taso.same_pads((3, 3), (2, 2), (6, 7)) == (0, 1, 1, 1)
    assert conditions_taso.wider((1, 3), (3, 1)) == (3, 3)
    assert conditions_taso.centered((1, 2), (3, 3)) == (0, 0, 1, 0, 0, 0, 1, 1)
    with pytest.raises(Unknown):
        conditions_taso.centered((5, 5), (3, 3))
    assert conditions_taso.batched(value("n", 2, 3), value("n", 3, 4))
    assert not conditions_taso.batched(value("n", 2, 3), value("m", 3, 4))
    assert not conditions_taso.batched(value(3), value(3))
    assert conditions_taso.joinable(1, value("n", 2), (value("n", 3),))
    assert not conditions_taso.joinable(1, value("n", 2), value("m", 3))
    assert not conditions_taso.joinable(2, value("n", 2), value("n", 2))
