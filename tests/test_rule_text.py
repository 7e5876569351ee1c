"""Rule text: what it becomes, and that a mistake is named by file, line and column."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from superopt import rule_text
from superopt.errors import OptionError, RuleError
from superopt.expressions import evaluate
from superopt.operators import operator
from superopt.rule_text import load, parse
from superopt.rule_values import CHOICES
from superopt.rules import Absent, Apply, Made, Number, Output, RuleSet, Var
from superopt.values import Unknown

FOLD = """
rule fold: reassociates
  BatchNormalization(Conv(x, w, b, **a), s, t, m, v, epsilon=e)
    => Conv(x, Mul(w, Unsqueeze(k, axes=trailing_axes(w))), Add(Mul(Sub(b, m), k), t), **a)
  let k = Div(s, Sqrt(Add(v, scalar(e, like=v))))
  when same_dtype(w, s, v)
  only if constant(w, b, s, t, m, v)
  from ioffe2015batchnorm
"""


def test_a_rule_becomes_patterns_and_conditions() -> None:
    (rule,) = parse(FOLD)
    (left,), (right,) = rule.left, rule.right
    assert isinstance(left, Apply)
    assert left.op == "BatchNormalization"
    assert left.args[1:] == (Var("s"), Var("t"), Var("m"), Var("v"))
    assert [(name, expr.text) for name, expr in left.attrs] == [("epsilon", "e")]
    assert isinstance(right, Apply)
    assert right.rest == "a"
    scale = right.args[1].args[1].args[0]  # type: ignore[union-attr]
    shift = right.args[2].args[0].args[1]  # type: ignore[union-attr]
    assert scale == shift, "a let stands for one term wherever it is used"
    assert isinstance(scale.args[1].args[0].args[1], Made)
    assert [expr.text for expr in rule.when] == ["same_dtype(w, s, v)"]
    assert [expr.text for expr in rule.only_if] == ["constant(w, b, s, t, m, v)"]
    assert rule.sources == ("ioffe2015batchnorm",)


def test_numbers_and_absent_arguments() -> None:
    (rule,) = parse("rule r: exact\n  Mul(Clip(Add(x, 3), 0, None), -0.5) => Clip(x)\n")
    (left,) = rule.left
    assert isinstance(left, Apply)
    clip = left.args[0]
    assert isinstance(clip, Apply)
    assert clip.args[1:] == (Number(0, 1), Absent())
    assert left.args[1] == Number(-0.5, 2)
    assert rule.right == (Apply("Clip", (Var("x"), Absent(), Absent())),)


def test_both_directions_families_and_roots() -> None:
    rules = parse(
        "group pointwise = Relu, Tanh\n"
        "rule sink: exact\n  Transpose(F(x), perm=p) <=> F(Transpose(x, perm=p))\n  for F in pointwise, Neg\n"
        "rule both: exact\n  (Relu(x), Neg(x)) => (Split(Identity(x), axis=0, split=(1, 1))[0], Relu(x))\n"
    )
    names = [rule.name for rule in rules]
    assert names == [
        "sink[Relu]", "sink-back[Relu]", "sink[Tanh]", "sink-back[Tanh]", "sink[Neg]", "sink-back[Neg]", "both",
    ]  # fmt: skip
    assert rules["sink[Tanh]"].left == rules["sink-back[Tanh]"].right
    assert isinstance(rules["both"].right[0], Output)


def test_stars_expand_to_so_many_terms() -> None:
    (rule,) = parse("rule r: exact\n  Concat(*(Relu(x) for x in xs), axis=k) => Relu(Concat(*xs, axis=k))\n")
    assert rule.stars == ("xs",)
    three = rule.expanded(3)
    (left,) = three.left
    assert isinstance(left, Apply)
    assert left.args == tuple(Apply("Relu", (Var(f"xs.{index}"),)) for index in range(3))
    assert three.stars == ()


def test_siblings_expand_to_roots() -> None:
    (rule,) = parse(
        "rule r: reassociates\n  siblings(MatMul(x, *w))\n"
        "    => Split(MatMul(x, Concat(*w, axis=1)), axis=1, split=dims(w, 1))\n"
    )
    assert rule.siblings
    pair = rule.expanded(2)
    assert pair.left == (Apply("MatMul", (Var("x"), Var("w.0"))), Apply("MatMul", (Var("x"), Var("w.1"))))
    assert [root.index for root in pair.right if isinstance(root, Output)] == [0, 1]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("rule x: exact\n  Relu(x) => y", "f:2:14", "not on the left side"),
        ("rule x: exact\n  Relu(x) =>\n    Neg(y)", "f:3:9", "not on the left side"),
        ("rule x: exact\n  Relu(x y) => x", "f:2:8", "Python expression"),
        ("rule x: exact\n  Relu(x => x", "f:2:7", "never closed"),
        ("rule x: wrong\n  Relu(x) => x", "f:1:9", "numeric class"),
        ("rule x: exact\n  Softmax(x) => x", "f:2:3", "counts from the end"),
        ("rule x: exact\n  Softmax(x, axis=-1) => x", "f:2:19", "k == rank(x) - 1"),
        ("rule x: exact\n  ReduceMax(x, axes=(0, -1), keepdims=1) => x", "f:2:21", "counts from the front"),
        ("rule x: exact\n  Transpose(x) => x", "f:2:3", "no default for perm"),
        ("rule x: exact\n  Frobnicate(x) => x", "f:2:3", "no operator"),
        ("rule x: exact\n  Relu(x, y) => x", "f:2:3", "1 were expected"),
        ("rule x: exact\n  Relu(x, speed=3) => x", "f:2:", "no attribute speed"),
        ("rule x: exact\n  Relu(x) => 0", "f:2:14", "scalar(0, like=x)"),
        ("rule x: exact\n  Relu(x) => x\n  when nosuch(x)", "f:3:8", "no function nosuch"),
        ("rule x: exact\n  Relu(x) => x\n  when rank(y) == 2", "f:3:", "y is not bound"),
        ("rule x: exact\n  Relu(x) == x", "f:2:3", "'=>' or '<=>'"),
        ("rule x: exact\n  (Relu(x), Neg(x)) => x", "f:2:24", "equally many"),
        ("rule x: exact\n  x => x", "f:2:3", "x alone is no left side"),
        ("rule x: exact\n  Relu(x) <=> x", "f:2:15", "x alone is no left side"),
        ("rule x: exact\n  (Relu(x), y[1]) => (x, x)", "f:2:13", "y[1] alone is no left side"),
        ("rule x: exact", "f:1:1", "an equation"),
        ("  rule x", "f:1:1", "indented line before any rule"),
        ("rule x: approximates\n  Relu(x) => x", "f:1:9", "within"),
        ("rule x: approximates within 1e400\n  Relu(x) => x", "f:1:29", "within 1e400 is no bound"),
        ("rule x: approximates within 1.2.3\n  Relu(x) => x", "f:1:29", "a number above zero was expected"),
        ("rule x: exact ignoring rain\n  Relu(x) => x", "f:1:24", "cannot be ignored"),
        ("rejected x: exact\n  Relu(x) => x", "f:1:1", "because"),
        ("rule x: exact\n  F(x) => x\n  for F in nogroup", "f:3:", "no group"),
        ("rule x: exact\n  Relu(x) => x\nrule x: exact\n  Neg(x) => x", "f:3:6", "stands at line 1"),
        ("rule x: exact\n  Relu(x) => x\n  when __import__('os')", "f:3:", "no function __import__"),
        ("rule x: exact\n  Relu(x) => x\n  when x.load", "f:3:", "bundle"),
    ],
)
def test_a_mistake_is_named_where_it_is(text: str, where: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text, "f")
    assert str(caught.value).startswith(where)
    assert what in str(caught.value)


def test_sets_of_rules() -> None:
    rules = parse(
        "rule a: exact\n  Identity(x) => x\nrule b: reassociates ignoring nan\n  F(F(x)) => x\n  for F in Neg, Not\n"
    )
    assert [rule.name for rule in rules.without("b")] == ["a"]
    assert [rule.name for rule in rules.only("b[Not]")] == ["b[Not]"]
    assert [rule.name for rule in rules.of_class("exact")] == ["a"]
    assert [rule.name for rule in rules.of_class("reassociates")] == ["a"]
    assert len(rules.of_class("reassociates", ["nan"])) == 3
    assert len(rules + rules) == 3
    assert rules.hash != rules.without("a").hash
    with pytest.raises(OptionError, match="no rule is named c"):
        rules.without("c")


def test_leaving_out_many_rules_of_many_looks_at_each_once() -> None:
    looked = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal looked
            looked += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    rule = parse("rule a: exact\n  Identity(x) => x\n")["a"]
    many = RuleSet(tuple(replace(rule, name=Name(f"rule-{index}")) for index in range(500)))
    looked = 0
    assert len(many.without(*(f"rule-{index}" for index in range(499)))) == 1
    assert looked < 10 * len(many)


def test_a_shipped_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_text, "rules_dir", lambda: tmp_path)
    (tmp_path / "sets.toml").write_text("")
    path = tmp_path / "mine.rules"
    path.write_text("rule first: exact\n  Relu(Relu(x)) => Relu(x)\n")
    assert load("mine") is load("mine")
    path.write_text("rule second: exact\n  Relu(Relu(x)) => Relu(x)\n")
    os.utime(path, ns=(1, 1))
    assert [rule.name for rule in load("mine")] == ["second"]


@pytest.mark.parametrize(
    ("equation", "place", "what"),
    [
        ("Relu(Relu(x) => Relu(x)", "2:7", "'(' is never closed"),
        ("Relu(Relu(x)) => Relu(x", "2:24", "'(' is never closed"),
        ("Relu(x)\n    => Relu(Relu(x)\n  when rank(x) == 2", "3:12", "'(' is never closed"),
        ("Relu(x)) => Relu(x)", "2:10", "')' closes nothing"),
        ("Relu(x] => Relu(x)", "2:9", "']' stands where ')' was expected"),
        ("Relu(x) => x\n  when (rank(x), 2", "3:8", "'(' is never closed"),
        ("Relu(x) => x\n  when rank(x) == 2) or (rank(x) == 3", "3:20", "')' closes nothing"),
    ],
)
def test_a_bracket_without_its_other_half_is_named_by_its_place(equation: str, place: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(f"rule r: exact\n  {equation}\n", "f.rules")
    assert str(caught.value).startswith(f"f.rules:{place}: {what}")


def test_brackets_in_texts_do_not_count() -> None:
    (rule,) = parse("rule r: exact\n  Einsum(x, equation='(') => Einsum(x, equation=\"(\")\n")
    assert rule.name == "r"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('rule a: exact\n  Cast(x, to="float33") => x', "2:14", "Cast's to is 'float33': one of float32, "),
        ('rule a: exact\n  Cast(x, to=a) => Cast(x, to="half")', "2:31", "Cast's to is 'half': one of"),
        ('rule a: exact\n  Cast(x, to=a) => Cast(x, to="half" if rank(x) == 1 else a)', "2:31", "Cast's to is 'half'"),
        ("rule a: exact\n  Transpose(x, perm=1) => x", "2:21", "Transpose's perm is 1: a tuple, each a whole number"),
        ('rule a: exact\n  Softmax(x, axis="1") => x', "2:19", "Softmax's axis is '1': a whole number"),
        ('rule a: exact\n  Reshape(x, shape="1") => x', "2:20", "Reshape's shape is '1': a number or a tuple of"),
        ("rule a: exact\n  Softmax(x, axis=1 // 0) => x", "2:19", "Softmax's axis has no value"),
    ],
)
def test_an_attribute_is_of_the_kind_that_its_operator_has(text: str, where: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text + "\n", "f.rules")
    assert str(caught.value).startswith(f"f.rules:{where}: {what}")


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("positive(x, 3)", "positive: too many positional arguments: positive(value) was expected"),
        ("positive()", "positive: missing a required argument: 'value': positive(value) was expected"),
        ("positive(x, of=x)", "positive: got an unexpected keyword argument 'of'"),
        ("not (rank(x) == 2 and positive(x, 3))", "positive: too many"),
        ("lossless('int8', 'float33')", "lossless: 'float33' is no element type: one of float32,"),
        ("len() == 2", "len has 0 arguments: 1 were expected"),
        ("sum(x, x, x) == 2", "sum has 3 arguments: 1 to 2 were expected"),
        ("constant()", "constant has 0 arguments: 1 or more were expected"),
    ],
)
def test_functions_are_given_as_many_arguments_as_they_take(condition: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(f"rule a: exact\n  Relu(Relu(x)) => Relu(x)\n  when {condition}\n", "f.rules")
    assert str(caught.value).startswith("f.rules:3:")
    assert what in str(caught.value)


def test_a_star_stands_for_any_number_of_arguments() -> None:
    assert parse("rule a: exact\n  Concat(*xs, axis=a) => Concat(*xs, axis=own_axis(a, *xs))\n  when same_shape(*xs)\n")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("rule a: exact\n  F(F(x)) => F(x)\n  for F in nope", "nope is no group: 'group nope = Operator, ...' above"),
        ("group g = Abs\nrule a: exact\n  F(x) => x\n  for F in nope", "nope is no group: one of g was expected"),
        ("rule a: exact\n  F(F(x)) => F(x)\n  for F in Relu,, Abs", "a name is missing between commas"),
        ("rule A_b: exact\n  Relu(Relu(x)) => Relu(x)", "'A_b' is no name of a rule: kebab-case was expected"),
        ("rule a_b: exact\n  Relu(Relu(x)) => Relu(x)", "'a_b' is no name of a rule: kebab-case was expected"),
        (
            "rule a: Exact\n  Relu(Relu(x)) => Relu(x)",
            "Exact is no numeric class: one of exact, reassociates, approximates was expected, such as exact",
        ),
        ("rule a exact\n  Relu(Relu(x)) => Relu(x)", "'rule NAME: CLASS'"),
    ],
)
def test_a_name_that_is_none_is_told_with_what_is(text: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text + "\n", "f.rules")
    assert what in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.rules"
    path.write_text("rule a: exact\n  Relu(Relu(x)) => Relu(x)\n", encoding="utf-8-sig")
    assert [rule.name for rule in load(path)] == ["a"]


def test_what_is_no_text_is_a_rule_error() -> None:
    with pytest.raises(RuleError, match="NoneType is no text"):
        parse(None)  # type: ignore[arg-type]


def test_a_whole_number_is_a_float_where_the_operator_has_floats() -> None:
    (rule,) = parse(
        "rule a: exact\n  Gemm(x, y, b, **a, alpha=1, beta=-2) => Gemm(x, y, b, **a, alpha=2, beta=a.beta)\n"
    )
    assert isinstance(rule.left[0], Apply)
    assert isinstance(rule.right[0], Apply)
    assert [expr.text for _, expr in rule.left[0].attrs] == ["1.0", "-2.0"]
    assert [expr.text for _, expr in rule.right[0].attrs] == ["2.0", "a.beta"]


R = "rule a: reassociates\n  Relu(x) => x\n"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (R + "  whem rank(x) == 2", "3:3", "begins no clause: one of when, only if, let, for, from was"),
        (R + "  whem rank(x) == 2", "3:3", "such as when"),
        (R + "  when rank(x) == 2\n  onlyif constant(x)", "4:3", "such as only if"),
        (R + "  whem (rank(x), 2)", "3:3", "such as when"),
        (R + "  lett k = Neg(x)", "3:3", "such as let"),
        (R + '  because "it is so"', "3:3", "'because' begins no clause"),
        (R + "  when rank(x) ==", "3:18", "the text ends here: more of a Python expression was expected"),
        (R + "  when rank(x) ==\n    3 +", "4:8", "the text ends here"),
        (R + "  when\n  only if constant(x)", "3:3", "nothing stands behind 'when'"),
        (R + "  when rank(x) == 2\n  from", "4:3", "nothing stands behind 'from'"),
        ("rule a: exact\n  Relu(x) =>\n  when rank(x) == 2", "2:11", "nothing stands behind '=>': a term was expected"),
        ("rule a: exact\n  <=> Relu(x)", "2:3", "nothing stands before '<=>'"),
        ("rule a: approximates within -1\n  Relu(x) => x", "1:29", "a number above zero was expected"),
        ("rule a: approximates within 0\n  Relu(x) => x", "1:29", "a number above zero"),
        ("rule a: approximates within\n  Relu(x) => x", "1:22", "a number above zero was expected"),
        ("rule a: approximates within ignoring nan\n  Relu(x) => x", "1:22", "a number above zero was expected"),
        ("rule a: exact wihtin 2\n  Relu(x) => x", "1:15", "'wihtin' is not understood here"),
        ("rule a: exact wihtin 2\n  Relu(x) => x", "1:15", "such as within"),
        ("rule a: exactly\n  Relu(x) => x", "1:9", "such as exact"),
        ("rule a: exact ignoring nam\n  Relu(x) => x", "1:24", "such as nan"),
        ("rule  A_b: exact\n  Relu(x) => x", "1:7", "'A_b' is no name of a rule"),
        ("rule a: exact\n  Rellu(x) => x", "2:3", "such as Relu"),
        ("rule a: exact\n  relu(x) => x", "2:3", "such as Relu"),
        ("rule a: exact\n  Neg(x) => matmul(x, x)", "2:13", "such as MatMul"),
        ("rule a: exact\n  F(x) => x\n  for F in Relu, Bbs", "2:3", "such as Abs"),
        (R + "  when samedtype(x, x)", "3:8", "such as same_dtype"),
        ("rule a: exact\n  CumSum(x, k) => x", "2:3", "2 arguments: 1 were expected, and axis=... by name"),
        ('rule a: exact\n  Gelu(x) => Gelu(x, approximate="tan")', "2:34", "one of none, tanh was expected"),
        ('rule a: exact\n  Pad(x, mode="edges", pads=p) => x', "2:15", "one of constant, edge, reflect, wrap was"),
        ("rule a: exact\n  Pad(x, mode=edge, pads=p) => x", "2:15", '"edge", in quotes, was expected'),
        ("rule a: exact\n  Cast(x, to=float32) => x", "2:14", '"float32", in quotes, was expected'),
        (R + "  when dtype(x) == float32", "3:20", '"float32", in quotes, was expected'),
    ],
)  # fmt: skip
def test_a_slip_is_told_with_what_was_meant(text: str, where: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text + "\n", "f")
    assert str(caught.value).startswith(f"f:{where}: ")
    assert what in str(caught.value)


def test_a_condition_may_go_on_in_lines_that_begin_with_words() -> None:
    (rule,) = parse(R + "  when rank (x) == 2\n    and rank(x) != 3\n    or not rank(x)\n    if rank(x) else rank(x)")
    assert len(rule.when) == 1
    (rule,) = parse("rule a: exact\n  Softmax(x, axis=k) => x\n  when rank(x) == 2,\n    k in (0, 1)")
    assert [condition.text for condition in rule.when] == ["rank(x) == 2", "k in (0, 1)"]


def test_what_an_attribute_is_by_default_is_one_of_its_choices() -> None:
    for (op, name), choices in CHOICES.items():
        spec = operator(op)
        assert spec is not None
        assert spec.defaults.get(name, choices[0]) in choices


FAMILY = """
group pointwise = Relu, Tanh
rule sink: exact
  Transpose(F(x), perm=p) <=> F(Transpose(x, perm=p))
  for F in pointwise,
    Neg
  only if rank(x) == 2
rule two: exact
  F(G(x)) => G(F(x))
  for F in pointwise
  for G in Neg, Relu
rule plain: exact
  Neg(Neg(x)) => x  # whatever it is
"""


def test_a_rule_as_text_is_read_as_this_rule() -> None:
    rules = parse(FAMILY)
    assert len(rules) == 6 + 4 + 1
    for rule in rules:
        again = parse(str(rule))
        assert again[rule.name] == rule
        assert len(again) == (2 if rule.name.startswith("sink") else 1)


def test_a_rule_without_text_is_told_by_its_name() -> None:
    assert str(replace(parse(FAMILY)["plain"], text="")) == "plain"


def test_a_set_is_chosen_from_by_the_names_of_files_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.rules"
    path.write_text("rule a: exact\n  Neg(Neg(x)) => x\nrule b: exact\n  Relu(Relu(x)) => Relu(x)\n")
    other = parse("rule c: exact\n  Abs(Abs(x)) => Abs(x)\n", "other/kept.rules")
    rules = load(path) + other
    assert [rule.name for rule in rules.only("mine")] == ["a", "b"]
    assert [rule.name for rule in rules.without("mine")] == ["c"]
    assert [rule.name for rule in rules.only("kept", "b")] == ["b", "c"]
    like = rules + parse("rule mine: exact\n  Tanh(Abs(x)) => Tanh(x)\n")
    assert [rule.name for rule in like.only("mine")] == ["mine"], "a rule's own name goes before a file's"
    with pytest.raises(OptionError, match="no rule is named kepp"):
        rules.only("kepp")


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("Transpose(x, perm=x) => x", "2:21", "x is a term: an attribute's value"),
        ("Transpose(x, perm=p) => p", "2:27", "p is an attribute on the left side"),
        ("Concat(*xs, axis=k) => Concat(xs, axis=k)", "2:33", "*xs was expected"),
        ("siblings(MatMul(x, *w)) => MatMul(x, w)", "2:40", "*w was expected"),
        ("Relu(x)[0] => x", "2:3", "Relu has one output"),
        ("Neg(Split(x, axis=k, split=s)) => x", "2:7", "Split has several outputs"),
        ("Split(x, axis=k, split=s) => x", "2:3", "Split has several outputs"),
        ("Add(x, None) => x", "2:10", "Add cannot do without operand 1"),
        ("Conv(x, w, b, **a) => x\n  when a.stride == 1", "3:8", "no attribute stride: dilations, group"),
        ("Transpose(x, perm=p) => x\n  when rank(p) == 2", "3:13", "rank is about a term, and p is an attribute"),
        ("Relu(x) => x\n  when unmoved(x)", "3:16", "unmoved is about an attribute, and x is a term"),
        ("Concat(*xs, axis=k) => xs[0]\n  when rank(xs) == 1", "3:13", "xs is a tuple of terms"),
        ("Relu(x) => x\n  when scalar(1, like=x)", "3:8", "scalar makes a constant"),
        ("Relu(x) => x\n  when 3", "3:8", "3 is neither true nor false"),
        ("Relu(x) => k\n  let k = x\n  let k = Neg(x)", "4:7", "k stands for something already"),
        ("Relu(x) => x\n  let x = Neg(x)", "3:7", "x stands for something already"),
        ("Relu(x) => x\n  let k = Neg(x)", "3:7", "k is not used"),
        ("Relu(x) => x\n  for F in Relu, Abs", "3:7", "F is not used"),
    ],
)  # fmt: skip
def test_what_a_name_stands_for_fits_where_it_stands(text: str, where: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(f"rule r: exact\n  {text}\n", "r.rules")
    assert str(caught.value).startswith(f"r.rules:{where}:")
    assert what in str(caught.value)


def test_a_group_has_one_meaning() -> None:
    with pytest.raises(RuleError, match=r"2:1: group g stands above too"):
        parse("group g = Relu\ngroup g = Abs\nrule r: exact\n  F(x) => x\n  for F in g\n")


def test_a_reason_without_quotes_is_told_so() -> None:
    with pytest.raises(RuleError, match=r'1:19: the reason in quotes was expected behind it: because "\.\.\."'):
        parse("rejected r: exact because it is wrong\n  Relu(x) => x\n")


@pytest.mark.parametrize("text", ["9 ** 9 ** 9", "sum(range(10 ** 9)) < 0", "len((1, 2) * 10 ** 9)", "2 ** 9999"])
def test_a_condition_that_would_take_for_ever_has_no_value(text: str) -> None:
    (rule,) = parse(f"rule r: exact\n  Relu(x) => x\n  when 0 < {text}\n")
    with pytest.raises(Unknown, match="too many"):
        evaluate(rule.when[0], {})


def test_powers_and_ranges_of_ordinary_size_have_values() -> None:
    (rule,) = parse(
        "rule r: exact\n  Relu(x) => x\n  when 2 ** 40 + sum(range(3, 0, -1)) + 0.5 ** 2 == 2 ** 40 + 6.25\n"
    )
    assert evaluate(rule.when[0], {}) is True
