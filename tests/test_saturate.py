"""Saturation: what rules join, what they must not, and that it ends."""

import time
from dataclasses import replace

import numpy as np
import onnx
import pytest

import superopt
from superopt import rule_text
from superopt.engine.eclasses import EGraph
from superopt.engine.saturate import Limits, Saturation, saturate
from superopt.errors import RuleError
from superopt.progress import Clock, Watcher
from superopt.rule_text import parse
from superopt.terms import ABSENT, TensorType, TermGraph, parse_type
from tests.terms_builder import TermsBuilder

LIMITS = Limits(nodes=2000, iterations=12)


def run(graph: TermGraph, text: str, limits: Limits = LIMITS, opset: int = 21) -> Saturation:
    return saturate(graph, parse(text), limits, opset)


def ops(egraph: EGraph, number: int) -> set[str]:
    return {node.op for node in egraph.classes[number].nodes}


def root_ops(result: Saturation) -> set[str]:
    return ops(result.egraph, result.egraph.roots[0])


def test_without_rules_every_term_is_a_class_of_its_own() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[$batch,4]")
    graph = build.graph(build.node("Relu", build.node("Neg", x)), x)
    result = run(graph, "")
    assert result.stopped_by == "saturated"
    assert [[node.op for node in eclass.nodes] for eclass in result.egraph.classes] == [["Input"], ["Neg"], ["Relu"]]
    assert [node.original for eclass in result.egraph.classes for node in eclass.nodes] == [0, 1, 2]
    assert result.egraph.roots == (2, 0)
    assert result.egraph.classes[2].type == parse_type("float32[$batch,4]")


def test_a_match_joins_classes_and_says_which_rule_it_was() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[4]")
    result = run(build.graph(build.node("Neg", build.node("Neg", x))), "rule r: exact\n  Neg(Neg(x)) => x\n")
    assert root_ops(result) == {"Input", "Neg"}
    assert result.matches["r"] >= 1, "the class that is joined matches again"
    made = run(build.graph(build.node("Neg", x)), "rule r: exact\n  Neg(x) => Mul(x, scalar(-1.0, like=x))\n")
    assert {node.op: node.rule for node in made.egraph.classes[made.egraph.roots[0]].nodes} == {"Neg": None, "Mul": "r"}


@pytest.mark.parametrize("swapped", [False, True])
def test_commutative_operands_match_in_either_order(swapped: bool) -> None:
    build = TermsBuilder()
    x, c = build.input("x", "float32[4]"), build.constant(3.0)
    added = build.node("Add", c, x) if swapped else build.node("Add", x, c)
    assert root_ops(run(build.graph(added), "rule r: exact\n  Add(x, 3) => Relu(x)\n")) == {"Add", "Relu"}


@pytest.mark.parametrize(
    ("value", "matches"), [(3.0, True), ([3.0], True), (3.5, False), ([3.0, 3.0, 3.0, 3.0], False)]
)
def test_a_number_is_a_constant_of_one_element(value: float, matches: bool) -> None:
    build = TermsBuilder()
    x, c = build.input("x", "float32[4]"), build.constant(value)
    result = run(build.graph(build.node("Sub", x, c)), "rule r: exact\n  Sub(x, 3) => Relu(x)\n")
    assert (root_ops(result) == {"Sub", "Relu"}) is matches


def test_an_infinity_is_no_number_that_its_type_cannot_hold() -> None:
    build = TermsBuilder()
    x = build.input("x", "float16[4]")
    infinite = build.constant(float("inf"), "float16")
    rule = "rule r: exact\n  Min(x, 1000000) => Relu(x)\n"
    assert root_ops(run(build.graph(build.node("Min", x, infinite)), rule)) == {"Min"}


def test_zero_has_the_sign_that_is_written() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[4]")
    plus, minus = build.node("Add", x, build.constant(0.0)), build.node("Add", x, build.constant(-0.0))
    # The same rule about the other zero comes first: what is remembered of one is not to be taken for the other.
    run(build.graph(plus, minus), "rule r: exact\n  Add(x, 0.0) => x\n")
    result = run(build.graph(plus, minus), "rule r: exact\n  Add(x, -0.0) => x\n")
    assert ops(result.egraph, result.egraph.roots[0]) == {"Add"}
    assert ops(result.egraph, result.egraph.roots[1]) == {"Add", "Input"}


def test_attributes_bind_are_equal_or_have_their_default() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[2,3,4]")
    turned = build.node("Transpose", build.node("Transpose", x, perm=(1, 0, 2)), perm=(1, 0, 2))
    other = build.node("Transpose", build.node("Transpose", x, perm=(1, 0, 2)), perm=(0, 2, 1))
    result = run(build.graph(turned, other), "rule r: exact\n  Transpose(Transpose(x, perm=p), perm=p) => Relu(x)\n")
    assert "Relu" in ops(result.egraph, result.egraph.roots[0])
    assert "Relu" not in ops(result.egraph, result.egraph.roots[1])
    leaky = TermsBuilder()
    y = leaky.input("y", "float32[4]")
    graph = leaky.graph(leaky.node("LeakyRelu", y, alpha=0.009999999776482582), leaky.node("LeakyRelu", y, alpha=0.5))
    result = run(graph, "rule r: exact\n  LeakyRelu(x) => Relu(x)\n")
    assert [("Relu" in ops(result.egraph, root)) for root in result.egraph.roots] == [True, False]


def test_a_float_attribute_that_a_rule_computes_or_names_is_the_one_that_models_hold() -> None:
    build = TermsBuilder()
    third, tenth = float(np.float32(1 / 3)), float(np.float32(0.1))
    made = build.node("Relu", build.input("x", "float32[4]"))
    held = build.node("LeakyRelu", build.input("y", "float32[4]"), alpha=tenth)
    rules = (
        "rule computed: exact\n  Relu(x) => LeakyRelu(x, alpha=1 / 3)\n"
        "rule named: exact\n  LeakyRelu(x, alpha=0.1) => Neg(x)\n"
        "rule beyond: exact\n  Relu(x) => LeakyRelu(x, alpha=10.0 ** 300)\n"
    )
    result = run(build.graph(made, held), rules)
    alphas = {n.attrs["alpha"] for n in result.egraph.classes[result.egraph.roots[0]].nodes if n.op == "LeakyRelu"}
    assert alphas == {third}
    assert ops(result.egraph, result.egraph.roots[1]) == {"LeakyRelu", "Neg"}


def test_a_bundle_of_attributes_is_carried_and_overridden() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[1,2,5,5]")
    w, b = build.constant(np.ones((2, 2, 3, 3))), build.constant(np.ones(2))
    graph = build.graph(build.conv(x, w, b, pads=(1, 1, 1, 1), strides=(2, 2)))
    result = run(graph, "rule r: exact\n  Conv(x, w, b, **a) => Conv(Relu(x), w, b, **a)\n")
    strides = {node.attrs["strides"] for node in result.egraph.classes[result.egraph.roots[0]].nodes}
    assert strides == {(2, 2)}
    assert result.stopped_by == "iterations"


def test_a_right_side_of_another_type_is_refused_and_named() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[2,3]")
    graph = build.graph(build.node("Relu", x))
    result = run(graph, "rule bad: exact\n  Relu(x) => Transpose(x, perm=(1, 0))\n")
    assert root_ops(result) == {"Relu"}
    assert [clash.rule for clash in result.clashes] == ["bad"]


def test_a_rule_waits_for_an_opset_that_has_its_operators() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[2,3]")
    graph = build.graph(build.node("Relu", x))
    text = "rule r: exact\n  Relu(x) => Mish(x)\n"
    assert root_ops(run(graph, text, opset=17)) == {"Relu"}
    assert root_ops(run(graph, text, opset=18)) == {"Relu", "Mish"}


def test_symbols_stay_and_unknown_sizes_do_not_meet_a_condition() -> None:
    text = "rule r: exact\n  Add(x, y) => Mul(x, y)\n  when same_shape(x, y)\n"
    build = TermsBuilder()
    x, y, z = (build.input(name, f"float32[{dims}]") for name, dims in (("x", "$n,2"), ("y", "$n,2"), ("z", "$m,2")))
    result = run(build.graph(build.node("Add", x, y), build.node("Add", x, z)), text)
    assert ops(result.egraph, result.egraph.roots[0]) == {"Add", "Mul"}
    assert ops(result.egraph, result.egraph.roots[1]) == {"Add"}


def test_what_is_constant_is_known_and_not_rewritten() -> None:
    build = TermsBuilder()
    x, c = build.input("x", "float32[4]"), build.constant([1.0, 2.0, 3.0, 4.0])
    total = build.node("Add", x, build.node("Neg", build.node("Neg", c)))
    result = run(
        build.graph(total),
        "rule r: exact\n  Neg(Neg(x)) => x\nrule s: exact\n  Add(x, y) => Sub(x, Neg(y))\n  only if constant(y)\n",
    )
    assert result.matches["r"] == 0
    assert root_ops(result) == {"Add", "Sub"}
    constants = [eclass for eclass in result.egraph.classes if eclass.constant]
    assert len(constants) == 4


def test_what_has_to_vary_is_not_constant_whoever_made_it() -> None:
    build = TermsBuilder()
    x, gate = build.input("x", "float32[4,3]"), build.input("g", "float32[3]")
    c, d = build.constant(np.ones(3)), build.constant(np.full(3, 2.0))
    graph = build.graph(
        build.node("Mul", x, gate), build.node("Mul", x, c), build.node("Mul", build.node("Mul", x, c), d)
    )
    rules = (
        "rule joined: reassociates\n  Mul(Mul(x, c), d) => Mul(x, Mul(c, d))\n  only if constant(c, d)\n"
        "rule gated: reassociates\n  Mul(x, y) => Neg(x)\n  only if varying(x, y)\n"
    )
    result = run(graph, rules)
    assert [("Neg" in ops(result.egraph, root)) for root in result.egraph.roots] == [True, False, False]
    assert result.matches["joined"]


def test_a_star_matches_what_occurs() -> None:
    build = TermsBuilder()
    x, y, z = (build.input(name, "float32[2,3]") for name in "xyz")
    three = build.node("Concat", *(build.node("Relu", v) for v in (x, y, z)), axis=1)
    mixed = build.node("Concat", build.node("Relu", x), y, axis=0)
    text = "rule r: exact\n  Concat(*(Relu(v) for v in vs), axis=k) => Relu(Concat(*vs, axis=k))\n"
    result = run(build.graph(three, mixed), text)
    assert ops(result.egraph, result.egraph.roots[0]) == {"Concat", "Relu"}
    assert ops(result.egraph, result.egraph.roots[1]) == {"Concat"}


def test_two_roots_are_joined_at_once() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[4,2]")
    graph = build.graph(build.node("Relu", x), build.node("Neg", x))
    text = """
rule r: exact
  (Relu(x), Neg(x)) => (both[0], both[1])
  let both = Split(Concat(x, x, axis=0), axis=0, split=(4, 4))
"""
    result = run(graph, text)
    assert ops(result.egraph, result.egraph.roots[0]) == {"Relu", "Project"}
    assert ops(result.egraph, result.egraph.roots[1]) == {"Neg", "Project"}


SIBLINGS = """
rule merge: reassociates
  siblings(Conv(x, *w, *b, **a))
    => Split(Conv(x, Concat(*w, axis=0), Concat(*b, axis=0), **a), axis=1, split=dims(w, 0))
  when a.group == 1
  only if constant(w, b)
"""


def branches(count: int, dtype: str = "float32", odd: int | None = None) -> TermGraph:
    build = TermsBuilder()
    rng = np.random.default_rng(0)
    x = build.input("x", f"{dtype}[1,2,5,5]")
    roots = []
    for index in range(count):
        size = 1 if index == odd else 3
        w = build.constant(rng.standard_normal((index + 1, 2, size, size)), dtype)
        roots.append(build.conv(x, w, build.constant(rng.standard_normal(index + 1), dtype)))
    return build.graph(*roots)


def test_siblings_are_merged_once_as_a_set() -> None:
    result = run(branches(5), SIBLINGS)
    assert result.matches == {"merge": 1}
    assert result.stopped_by == "saturated"
    for index, root in enumerate(result.egraph.roots):
        (projection,) = [node for node in result.egraph.classes[root].nodes if node.op == "Project"]
        assert projection.attrs["index"] == index
    merged = [eclass for eclass in result.egraph.classes if any(node.rule == "merge" for node in eclass.nodes)]
    assert parse_type("float32[1,15,3,3]") in [eclass.type for eclass in merged]


def test_siblings_of_eight_layers_of_attention_are_one_set() -> None:
    # Query, key and value of every layer of TASO's BERT, and its output, are products of one input.
    result = run(branches(25), SIBLINGS)
    assert result.matches == {"merge": 1}
    merged = [eclass for eclass in result.egraph.classes if any(node.rule == "merge" for node in eclass.nodes)]
    assert parse_type("float32[1,325,3,3]") in [eclass.type for eclass in merged]


def test_a_sibling_that_does_not_fit_is_left_out() -> None:
    result = run(branches(4, odd=1), SIBLINGS)
    merged = [any(node.op == "Project" for node in result.egraph.classes[root].nodes) for root in result.egraph.roots]
    assert merged == [True, False, True, True]


def test_a_convolution_and_its_folded_form_are_no_siblings() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[1,2,5,5]")
    conv = build.conv(x, build.constant(np.ones((2, 2, 3, 3))), build.constant(np.ones(2)))
    graph = build.graph(build.node("Mul", conv, build.constant(np.full((2, 1, 1), 3.0))))
    fold = (
        "rule fold: reassociates\n  Mul(Conv(x, w, b, **a), c) => Conv(x, Mul(w, scalar(3.0, like=w)), b, **a)\n"
        "  only if constant(w, c)\n"
    )
    result = run(graph, fold + SIBLINGS)
    assert result.matches == {"fold": 1, "merge": 0}


def test_limits_stop_with_a_valid_result() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[4]")
    graph = build.graph(build.node("Relu", x))
    grows = "rule r: exact\n  Relu(x) => Add(x, Relu(Mul(x, x)))\n"
    assert run(graph, grows, Limits(nodes=1000, iterations=3)).stopped_by == "iterations"
    assert run(graph, grows, Limits(nodes=30, iterations=500)).stopped_by == "nodes"
    assert run(graph, grows, Limits(nodes=10**6, iterations=10**6, seconds=0.3)).stopped_by == "seconds"


def test_reading_large_weights_leaves_the_e_graph_its_time() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }'
    )
    search = superopt.saturate(model, "identity").search
    clock = Clock(Watcher(), {"lower": 4.0})
    slow = replace(search, clock=clock, deadline=time.perf_counter() + 60)
    assert not slow.out_of_time
    assert slow.limits.seconds is not None
    assert slow.limits.seconds - slow.limits.reserve * 20_000 > 0, "four seconds for two nodes were for their weights"
    assert slow.limits.seconds < 60 - 4, "which are read again and written"
    assert replace(slow, deadline=time.perf_counter() + 12).out_of_time


def test_a_rule_that_finds_more_than_there_may_be_is_given_up_before_it_makes_anything() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[4]")
    crowded = [build.node("Neg", build.node("Add", x, build.constant(float(i)))) for i in range(9)]
    many = build.graph(*crowded, build.node("Sqrt", x))
    crowd = "rule crowd: exact\n  Neg(x) => Mul(x, x)\n"
    result = run(many, crowd + "rule one: exact\n  Sqrt(x) => Exp(x)\n", Limits(nodes=8, iterations=5))
    assert result.stopped_by == "nodes"
    assert [ops(result.egraph, root) for root in result.egraph.roots] == [{"Neg"}] * 9 + [{"Sqrt", "Exp"}]


def test_what_is_computed_from_itself_makes_nothing_more() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[2,2,1]")
    moved = build.node("Transpose", x, perm=[2, 1, 0])
    added = build.node("Add", build.constant(0.0), moved)
    result = saturate(build.graph(build.node("Mul", added, added)), rule_text.load("default"), Limits(), 21)
    assert result.stopped_by == "saturated"
    assert result.egraph.size < 60
    square = result.egraph.classes[result.egraph.roots[0]]
    assert "Transpose" in {node.op for node in square.nodes}


def test_the_same_graph_gives_the_same_classes() -> None:
    first, second = run(branches(5), SIBLINGS), run(branches(5), SIBLINGS)
    assert first.egraph.classes == second.egraph.classes


def test_bytes_of_strings_survive_the_engine() -> None:
    build = TermsBuilder()
    x = build.input('a "quoted"\\ name\twith\nall', "float32[$odd name,$;,2]")
    result = run(build.graph(build.node("Relu", x)), "")
    (node,) = result.egraph.classes[0].nodes
    assert node.attrs["name"] == 'a "quoted"\\ name\twith\nall'
    assert result.egraph.classes[0].type == TensorType("float32", ("odd name", ";", 2))


@pytest.mark.parametrize(
    ("type_text", "value", "matches"),
    [("[3]", [[1.0]], False), ("[2,3]", [[1.0]], True), ("[*]", [1.0], False), ("[*]", 1.0, True)],
)
def test_a_number_that_raises_the_rank_does_not_match(type_text: str, value: object, matches: bool) -> None:
    build = TermsBuilder()
    x = build.input("x", f"float32{type_text}")
    result = run(build.graph(build.node("Mul", x, build.constant(value))), "rule r: exact\n  Mul(x, 1) => x\n")  # type: ignore[arg-type]
    assert ("Input" in root_ops(result)) is matches
    assert result.clashes == ()


def test_siblings_of_a_nested_form() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[5,2]")
    rng = np.random.default_rng(1)
    roots = []
    for width in (3, 4):
        product = build.node("MatMul", x, build.constant(rng.standard_normal((2, width))))
        bias = build.constant(rng.standard_normal(width))
        roots.append(build.node("Add", *((bias, product) if width == 4 else (product, bias))))
    text = """
rule merge: reassociates
  siblings(Add(MatMul(x, *w), *b))
    => Split(Add(MatMul(x, Concat(*w, axis=1)), Concat(*b, axis=0)), axis=1, split=dims(w, 1))
  only if constant(w, b)
"""
    result = run(build.graph(*roots), text)
    assert result.matches == {"merge": 1}
    assert [("Project" in ops(result.egraph, root)) for root in result.egraph.roots] == [True, True]


def test_either_of_two_may_be_constant() -> None:
    text = "rule r: exact\n  MatMul(x, y) => Mul(x, y)\n  only if constant(x) or constant(y)\n"
    build = TermsBuilder()
    x, c = build.input("x", "float32[2,2]"), build.constant(np.ones((2, 2)))
    graph = build.graph(build.node("MatMul", x, c), build.node("MatMul", c, x), build.node("MatMul", x, x))
    result = run(graph, text)
    assert [("Mul" in ops(result.egraph, root)) for root in result.egraph.roots] == [True, True, False]


def test_a_transpose_moved_to_and_fro_past_a_constant_comes_to_rest() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[2,3]")
    turned = build.node("Transpose", x, perm=(1, 0))
    c = build.constant(np.ones((3, 2)))
    graph = build.graph(build.node("Transpose", build.node("Add", turned, c), perm=(1, 0)))
    text = """
rule sinks: exact
  Add(Transpose(x, perm=p), c) => Transpose(Add(x, Transpose(c, perm=inverse(p))), perm=p)
  only if constant(c)
rule twice: exact
  Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=composed(p, q))
rule nothing: exact
  Transpose(x, perm=p) => x
  when p == tuple(range(rank(x)))
"""
    result = run(graph, text)
    assert result.stopped_by == "saturated"
    assert "Add" in root_ops(result)


def test_a_node_whose_weights_become_those_of_one_set_aside_is_not_lost() -> None:
    build = TermsBuilder()
    x, c = build.input("x", "float32[2,2]"), build.constant(np.eye(2))
    graph = build.graph(build.node("Relu", build.node("MatMul", x, c)))
    text = """
rule turned-twice: exact
  Relu(MatMul(x, c)) => MatMul(x, Transpose(Transpose(doubled, perm=(1, 0)), perm=(1, 0)))
  let doubled = Mul(c, scalar(2.0, like=c))
  only if constant(c)
rule as-it-is: exact
  Relu(MatMul(x, c)) => MatMul(x, Mul(c, scalar(2.0, like=c)))
  only if constant(c)
rule straight: exact
  Transpose(Transpose(x, perm=p), perm=p) => x
"""
    result = run(graph, text)
    assert root_ops(result) == {"Relu", "MatMul"}


CHAINS = ("scales-of-scales", "shifts-of-shifts", "affine-of-affine")


def chained(count: int, ops: tuple[str, ...]) -> TermGraph:
    """A chain of so many scales and shifts, in turn, of numbers and of vectors."""
    build = TermsBuilder()
    rng = np.random.default_rng(3)
    term = build.input("x", "float32[$batch,4]")
    for index in range(count):
        term = build.node(ops[index % len(ops)], term, build.constant(rng.uniform(0.9, 1.1, (4,) if index % 3 else ())))
    return build.graph(term)


@pytest.mark.parametrize("ops", [("Mul", "Add"), ("Mul",), ("Add",), ("Add", "Add", "Mul")])
def test_a_chain_of_scales_and_shifts_becomes_one_of_each_in_a_graph_of_its_length(ops: tuple[str, ...]) -> None:
    sizes = []
    for count in (60, 240):
        result = saturate(chained(count, ops), rule_text.load("affine"), Limits(), 17)
        assert result.stopped_by == "saturated"
        sizes.append(result.egraph.size)
        source = result.egraph.class_of[0]
        reached = {source}
        for op in dict.fromkeys(("Mul", "Add")):
            reached |= {
                number
                for number, eclass in enumerate(result.egraph.classes)
                for node in eclass.nodes
                if node.op == op
                and reached & set(node.children)
                and any(result.egraph.classes[c].constant for c in node.children)
            }
        assert result.egraph.roots[0] in reached
        assert sum(result.matches[name] for name in CHAINS if name in result.matches) == 1
    assert sizes[1] < 4.4 * sizes[0]


def test_a_chain_ends_where_something_else_uses_it() -> None:
    build = TermsBuilder()
    x = build.input("x", "float32[4]")
    numbers = [build.constant(number) for number in (1.5, 2.5, 3.5, 4.5)]
    first = build.node("Mul", build.node("Mul", x, numbers[0]), numbers[1])
    second = build.node("Mul", build.node("Mul", first, numbers[2]), numbers[3])
    result = run(
        build.graph(second, build.node("Relu", first)),
        "rule r: reassociates\n  chain(Mul(Mul(x, c), d)) => Mul(x, Mul(c, d))\n  only if constant(c, d)\n",
    )
    assert result.matches == {"r": 2}
    made = [node for node in result.egraph.classes[result.egraph.roots[0]].nodes if node.rule == "r"]
    assert [node.children[0] for node in made] == [result.egraph.class_of[first]]


@pytest.mark.parametrize("right", ["Mul(Mul(x, c), d)", "Mul(x, Mul(d, d))"])
def test_a_whole_becomes_what_it_is_found_as(right: str) -> None:
    with pytest.raises(RuleError, match="was expected"):
        parse(f"rule r: reassociates\n  chain(Mul(Mul(x, c), d)) => {right}\n")


def test_an_argument_that_is_not_given_is_passed_on_but_not_computed_with() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 3, 4] x) => (float[2, 3, 4] y) <float[4] s = {1, 2, 3, 4}, float[4] c = {4, 3, 2, 1}> {
        t = Transpose<perm = [1, 0, 2]>(x)
        n = LayerNormalization(t, s)
        y = Mul(n, c)
    }""")
    rules = parse("""
rule scaled: reassociates
  Mul(LayerNormalization(x, s, b, **a), c) => LayerNormalization(x, Mul(s, c), Mul(b, c), **a)
rule shifted: reassociates
  LayerNormalization(x, s, b, axis=j, **a) => Add(LayerNormalization(x, s, None, axis=j, **a), b)
rule moved: reassociates
  LayerNormalization(Transpose(x, perm=p), s, b, axis=j, **a)
    => Transpose(LayerNormalization(x, s, b, axis=j, **a), perm=p)
  when j == len(p) - 1
""")
    result = superopt.saturate(model, rules).saturation
    nodes = [node for eclass in result.egraph.classes for node in eclass.nodes]
    assert result.matches["moved"]
    assert not [node for node in nodes if node.op in ("Add", "Mul") and ABSENT in node.children]
