"""Members of e-classes: sound rules pass on small models, and a planted wrong rule of each family is named."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from superopt import rule_text
from superopt.engine.saturate import Limits
from superopt.laws.classes import Checked, check_classes
from superopt.rules import RuleSet
from superopt.terms import TensorType, TermGraph
from tests.terms_builder import TermsBuilder

SHIPPED = rule_text.load("all").of_class("approximates", ("nan", "infinity", "signed-zero"))
LIMITS = Limits(nodes=800, iterations=4)


def random(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(shape)


def convolutional() -> TermGraph:
    """Two convolutions of one input, one normalized; their activations joined, pooled and summed."""
    terms = TermsBuilder()
    x = terms.input("x", "float32[2,4,6,6]")
    left = terms.conv(x, terms.constant(random(4, 2, 3, 3)), terms.constant(random(4)), group=2, pads=(1, 1, 1, 1))
    scale, bias, mean = (terms.constant(random(4, seed=seed)) for seed in (1, 2, 3))
    variance = terms.constant(np.abs(random(4, seed=4)) + 0.5)
    normal = terms.node("BatchNormalization", left, scale, bias, mean, variance, epsilon=9.999999747378752e-06)
    right = terms.conv(x, terms.constant(random(4, 4, 1, 1, seed=5)), terms.constant(random(4, seed=6)))
    summed = terms.node("Relu", terms.node("Add", normal, right))
    joined = terms.node("Concat", summed, terms.node("Relu", right), axis=1)
    return terms.graph(terms.node("Transpose", joined, perm=(0, 2, 3, 1)))


def attentive() -> TermGraph:
    """Products of an input with three weights, scaled, transposed, normalized to one, split and joined."""
    terms = TermsBuilder()
    x = terms.input("x", "float32[2,5,8]")
    query, key, value = (terms.node("MatMul", x, terms.constant(random(8, 8, seed=seed))) for seed in (1, 2, 3))
    turned = terms.node("Transpose", terms.node("Transpose", key, perm=(0, 2, 1)), perm=(0, 1, 2))
    scores = terms.node("Mul", terms.node("MatMul", query, turned), terms.constant(0.125))
    mixed = terms.node("MatMul", terms.node("Softmax", scores, axis=2), value)
    shifted = terms.node("Sub", terms.node("Add", mixed, terms.constant(random(8, seed=4))), x)
    erf = terms.node("Erf", terms.node("Div", shifted, terms.constant(1.4142135381698608)))
    gelu = terms.node("Mul", terms.node("Mul", shifted, terms.constant(0.5)), terms.node("Add", erf, terms.constant(1)))
    return terms.graph(terms.node("Exp", terms.node("Neg", gelu)))


def moving() -> TermGraph:
    """Slices, pads, reshapes and joins, with a branch that is split apart."""
    terms = TermsBuilder()
    x, y = terms.input("x", "float32[4,6]"), terms.input("y", "float32[4,6]")
    joined = terms.node("Concat", terms.node("Tanh", x), terms.node("Tanh", y), axis=1)
    front = terms.node("Slice", joined, axes=(1,), starts=(1,), ends=(9,), steps=(1,))
    shaped = terms.node("Reshape", terms.node("Reshape", front, shape=(2, 16), allowzero=0), shape=(8, 4), allowzero=0)
    padded = terms.node("Pad", shaped, None, mode="constant", pads=(0, 1, 0, 1))
    product = terms.node(
        "MatMul", terms.node("MatMul", padded, terms.constant(random(6, 3))), terms.constant(random(3, 2))
    )
    return terms.graph(terms.node("Sum", product, terms.node("ReduceSum", padded, axes=(1,), keepdims=1)))


GRAPHS = {"convolutional": convolutional, "attentive": attentive, "moving": moving}


def feed(graph: TermGraph) -> Mapping[str, NDArray[np.float32]]:
    found = {}
    for number, (node, kind) in enumerate(zip(graph.nodes, graph.types, strict=True)):
        if node.op == "Input" and isinstance(kind, TensorType) and kind.shape is not None:
            shape = [dim for dim in kind.shape if isinstance(dim, int)]
            found[str(node.attrs["name"])] = random(*shape, seed=number).astype(np.float32)
    return found


def checked(name: str, rules: RuleSet) -> Checked:
    graph = GRAPHS[name]()
    return check_classes(graph, rules, LIMITS, 21, [feed(graph)])


@pytest.mark.parametrize("name", GRAPHS)
def test_all_shipped_rules_keep_classes_whole(name: str) -> None:
    outcome = checked(name, SHIPPED)
    assert outcome.problem is None
    assert outcome.compared > 5 * outcome.skipped
    assert outcome.compared > len(GRAPHS[name]().nodes)


WRONG = {
    "batchnorm": ("convolutional", """rule wrong: reassociates
      BatchNormalization(Conv(x, w, b, **a), s, t, m, v, epsilon=e)
        => Conv(x, Mul(w, Unsqueeze(s, axes=trailing_axes(w))), Add(Mul(Sub(b, m), s), t), **a)"""),
    "groups": ("convolutional", """rule wrong: reassociates
      Conv(x, w, b, **a) => Conv(x, Tile(w, repeats=repeat_second(a.group, rank(w))), b, **a, group=1)
      only if a.group > 1"""),
    "affine": ("attentive", """rule wrong: reassociates
      Sub(x, y) => Sub(y, x)"""),
    "movement": ("attentive", """rule wrong: exact
      Transpose(x, perm=p) => x
      when dim(x, 0) == 2"""),
    "types": ("moving", """rule wrong: exact
      Pad(x, None, pads=p) => x"""),
    "identity": ("attentive", """rule wrong: exact
      Mul(x, 0.5) => x"""),
    "activations": ("attentive", """rule wrong: exact
      Exp(Neg(x)) => Neg(Exp(x))"""),
    "associativity": ("moving", """rule wrong: reassociates
      MatMul(MatMul(x, y), z) => MatMul(x, MatMul(y, Mul(z, scalar(1.001, like=z))))"""),
    "siblings": ("attentive", """rule wrong: reassociates
      siblings(MatMul(x, *w)) => Split(MatMul(x, Add(Concat(*w, axis=1), scalar(1, like=x))), axis=2, split=dims(w, 1))
      when each_rank(w, 2)"""),
    "taso": ("convolutional", """rule wrong: reassociates
      Relu(Add(x, y)) => Add(Relu(x), Relu(y))"""),
    # These differ from what they are made of in constant weights alone.
    "weights": ("convolutional", """rule wrong: exact
      Conv(x, w, b, **a) => Conv(x, Neg(w), b, **a)"""),
    "statistics": ("convolutional", """rule wrong: exact
      BatchNormalization(x, s, t, m, v, epsilon=e) => BatchNormalization(x, t, s, m, v, epsilon=e)"""),
}  # fmt: skip


@pytest.mark.parametrize("family", WRONG)
def test_a_wrong_rule_is_named(family: str) -> None:
    name, text = WRONG[family]
    neighbours = RuleSet(SHIPPED.rules[:10])
    outcome = checked(name, neighbours + rule_text.parse(text))
    assert outcome.rule == "wrong"
    assert outcome.problem is not None
    assert "rule wrong is unsound" in outcome.problem


def test_the_first_of_two_wrong_rules_is_named_and_both_members_shown() -> None:
    rules = rule_text.parse("""
rule second-wrong: exact
  Exp(x) => Neg(x)
rule third-wrong: exact
  Neg(x) => Exp(x)
""")
    outcome = checked("attentive", rules)
    assert outcome.rule == "second-wrong"
    assert outcome.disagreement is not None
    text = outcome.disagreement.text
    assert "Exp (" in text
    assert "Neg (" in text
    assert text.startswith("<")


def problem(graph: TermGraph, text: str) -> str:
    found = check_classes(graph, rule_text.parse(text), LIMITS, 21, [feed(graph)]).problem
    assert found is not None
    return found


def called(text: str, side: str) -> list[str]:
    """The operators of one side of a model in ONNX text, in order, but for what names its outputs."""
    found = re.findall(rf"^ *{side}_v[^=]*= (\w+)", text, re.MULTILINE)
    assert found
    return found


@pytest.mark.parametrize(
    ("rule", "right"),
    [
        ('Neg(x) => Cast(Neg(x), to="float64")', ["Neg", "Cast"]),
        ("Neg(x) => Unsqueeze(Neg(x), axes=(0,))", ["Neg", "Unsqueeze"]),
    ],
)
def test_sides_of_different_types_are_shown(rule: str, right: list[str]) -> None:
    terms = TermsBuilder()
    text = problem(terms.graph(terms.node("Neg", terms.input("x", "float32[2,5]"))), f"rule wrong: exact\n  {rule}\n")
    assert "different types: float32[2,5] on the left" in text
    assert called(text, "left") == ["Neg"]
    assert called(text, "right") == right


SEVERAL = {
    "a pair": """(MatMul(x, w), MatMul(x, u)) => (
        Split(MatMul(x, Concat(u, w, axis=1)), axis=1, split=(dim(w, 1), dim(u, 1)))[0],
        Split(MatMul(x, Concat(u, w, axis=1)), axis=1, split=(dim(w, 1), dim(u, 1)))[1])""",
    "siblings": "siblings(MatMul(x, *w)) => Split(MatMul(x, Neg(Concat(*w, axis=1))), axis=1, split=dims(w, 1))",
}


@pytest.mark.parametrize("what", SEVERAL)
def test_an_output_is_shown_with_what_it_is_of(what: str) -> None:
    terms = TermsBuilder()
    x = terms.input("x", "float32[3,4]")
    products = [terms.node("MatMul", x, terms.constant(random(4, 5, seed=seed))) for seed in range(2)]
    text = problem(terms.graph(*products), f"rule wrong: reassociates\n  {SEVERAL[what]}\n")
    assert called(text, "first") == ["MatMul"]
    assert [name for name in called(text, "second") if name != "Neg"] == ["Concat", "MatMul", "Split"]
    assert "Project" not in text


def test_members_are_shown_as_deep_as_the_sides_of_the_rule() -> None:
    terms = TermsBuilder()
    x = terms.node("Abs", terms.input("x", "float32[2,5]"))
    text = problem(
        terms.graph(terms.node("Tanh", terms.node("Exp", x))),
        "rule wrong: exact\n  Tanh(Exp(x)) => Exp(Tanh(Neg(x)))\n",
    )
    assert called(text, "first") == ["Exp", "Tanh"]
    assert called(text, "second") == ["Neg", "Tanh", "Exp"]
    assert len(set(re.findall(r"class\d+(?= = )", text))) == 1


def test_an_output_alone_is_shown_with_what_it_is_of() -> None:
    terms = TermsBuilder()
    halves = terms.node("Split", terms.input("x", "float32[4,2]"), axis=0, split=(2, 2))
    text = problem(
        terms.graph(terms.node("Project", halves, index=0)),
        "rule wrong: exact\n  Split(x, axis=k, split=s)[0] => Split(x, axis=k, split=s)[1]\n",
    )
    assert called(text, "first") == called(text, "second") == ["Split"]
