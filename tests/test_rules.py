"""The shipped rules: every file parses, every rule has a name of its own and a source, and known results come out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from superopt import rule_text
from superopt.engine.saturate import Limits, saturate
from superopt.expressions import Binding
from superopt.instantiate import holds, instantiate, numbers_match
from superopt.kernels import FLOAT64, apply, evaluate_graph
from superopt.rules import Rule, RuleSet
from superopt.shipped import rule_files, rules_dir
from superopt.terms import Attrs, AttrValue, TensorType
from superopt.values import FUNCTIONS, Value
from tests.terms_builder import TermsBuilder

Array = NDArray[np.generic]

ALL = rule_text.load("all")
FILES = list(rule_files())
UNUSED = {"centered", "same_pads", "wider"}
"""Functions that no shipped rule calls, kept since rule files of others are likely to."""


def test_there_are_rules_of_every_family_of_the_first_day() -> None:
    stems = {path.stem for path in FILES}
    assert {"batchnorm", "affine", "siblings", "reparameterize", "groups", "compose", "movement", "identity"} <= stems
    assert len(ALL) > 250


def test_names_are_unique_over_all_files() -> None:
    names = [rule.name for path in FILES for rule in rule_text.load(path)]
    assert len(names) == len(set(names)) == len(ALL)


def test_sets_name_files_that_exist() -> None:
    sets = tomllib.loads((rules_dir() / "sets.toml").read_text(encoding="utf-8"))
    assert "default" in sets
    for entry in sets.values():
        assert set(entry["files"]) <= {path.stem for path in FILES}


def test_every_rule_has_a_source_and_every_source_a_rule() -> None:
    keys = set(re.findall(r"^@\w+\{([^,]+),", (rules_dir() / "sources.bib").read_text(encoding="utf-8"), re.MULTILINE))
    for rule in ALL:
        assert rule.sources or rule.rejected, rule.name
        assert {source.partition("[")[0] for source in rule.sources} <= keys, rule.name
    assert {source.partition("[")[0] for rule in ALL for source in rule.sources} == keys


def test_every_file_says_what_it_is_about() -> None:
    for path in FILES:
        assert path.read_text(encoding="utf-8").startswith("# "), path.name


def test_every_function_is_called_by_some_rule() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FILES)
    assert {name for name in FUNCTIONS if not re.search(rf"\b{name}\(", text)} == UNUSED


def test_default_rules_do_not_commute_or_reassociate() -> None:
    names = {rule.name for rule in rule_text.load("default")}
    assert not names & {rule.name for rule in rule_text.load("associativity")}


def test_the_guide_is_at_most_two_pages() -> None:
    assert len((rules_dir() / "README.md").read_text(encoding="utf-8").split()) < 1300


# Known results: a rule's right side under a binding made by hand.


def value(array: Array, *, constant: bool = True) -> Value:
    held = np.asarray(array)
    return Value(TensorType(held.dtype.name, held.shape), constant, (lambda: held) if constant else None)


def conditions_hold(rule: Rule, binding: Binding) -> bool:
    return holds((*rule.when, *rule.only_if), binding) and numbers_match(rule, binding)


def results(
    name: str, arrays: Mapping[str, Array], **attributes: AttrValue | Attrs
) -> tuple[list[Array], list[Array]] | None:
    """Both sides of a rule in float64; ``x`` and ``y`` are not constant. None where the rule does not apply."""
    rule = ALL[name]
    binding: Binding = {
        **{key: value(array, constant=key not in ("x", "y")) for key, array in arrays.items()}, **attributes
    }  # fmt: skip
    if not conditions_hold(rule, binding):
        return None
    sides = [instantiate(side, binding) for side in (rule.left, rule.right)]
    inputs = dict(arrays)
    left, right = (evaluate_graph(side, inputs, FLOAT64) for side in sides)
    return left, right


def agrees(name: str, arrays: Mapping[str, Array], **attributes: AttrValue | Attrs) -> bool:
    found = results(name, arrays, **attributes)
    assert found is not None, f"{name} does not apply"
    for left, right in zip(*found, strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(np.asarray(right, np.float64), np.asarray(left, np.float64), rtol=1e-9, atol=1e-9)
    return True


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def window(
    kernel: int, *, group: int = 1, pads: tuple[int, ...] | None = None, stride: int = 1, dilation: int = 1
) -> Attrs:
    half = dilation * (kernel // 2)
    return Attrs.of(
        group=group, pads=pads or (half,) * 4, strides=(stride, stride), dilations=(dilation, dilation)
    )  # fmt: skip


BATCHNORM = {"s": random(6, seed=1), "t": random(6, seed=2), "m": random(6, seed=3), "v": np.abs(random(6, seed=4))}


@pytest.mark.parametrize("group", [1, 2, 3])
def test_batchnorm_into_convtranspose_scales_per_group(group: int) -> None:
    arrays = {"x": random(1, 6, 4, 4), "w": random(6, 6 // group, 3, 3), "b": random(6, seed=9), **BATCHNORM}
    attrs = window(3, group=group, stride=2).replaced(output_padding=(1, 1))
    assert agrees("fold-batchnorm-into-convtranspose", arrays, a=attrs, e=1e-5)


@pytest.mark.parametrize("bias", [(6,), (1, 6), (3, 6), (3, 1), (1,), ()])
@pytest.mark.parametrize("transposed", [0, 1])
def test_batchnorm_into_gemm_with_any_bias_alpha_and_beta(bias: tuple[int, ...], transposed: int) -> None:
    arrays = {
        "x": random(3, 4),
        "w": random(6, 4) if transposed else random(4, 6),
        "b": random(*bias, seed=5),
        **BATCHNORM,
    }
    assert agrees("fold-batchnorm-into-gemm", arrays, f=0.5, g=2.0, p=0, q=transposed, e=1e-3)


def test_short_statistics_do_not_fold_without_a_cast() -> None:
    arrays: dict[str, Array] = {"x": random(1, 6, 4, 4), **BATCHNORM}
    assert agrees("batchnorm-as-mul-and-add", arrays, e=1e-5)
    arrays["x"] = arrays["x"].astype(np.float16)
    assert results("batchnorm-as-mul-and-add", arrays, e=1e-5) is None
    found = results("mixed-batchnorm-as-mul-and-add", arrays, e=1e-5)
    assert found is not None
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "applies"),
    [((6, 1, 1), True), ((1, 6, 1, 1), True), ((), True), ((1,), True), ((6,), False), ((6, 1), False),
     ((2, 1, 1, 1), False), ((1, 1, 1, 1, 1), False), ((1, 6, 4, 1), False)],
)  # fmt: skip
def test_a_scale_after_conv_must_vary_along_the_channel_alone(shape: tuple[int, ...], applies: bool) -> None:
    arrays = {"x": random(2, 4, 4, 4), "w": random(6, 2, 3, 3), "b": random(6), "c": random(*shape, seed=7)}
    if applies:
        assert agrees("scale-after-conv", arrays, a=window(3, group=2))
        assert agrees("shift-after-conv", arrays, a=window(3, group=2))
    else:
        assert results("scale-after-conv", arrays, a=window(3, group=2)) is None
        assert results("shift-after-conv", arrays, a=window(3, group=2)) is None


def test_a_shift_before_conv_needs_an_unpadded_one_and_a_scale_does_not() -> None:
    arrays = {"x": random(2, 4, 4, 4), "w": random(6, 2, 3, 3), "b": random(6), "c": random(4, 1, 1, seed=7)}
    unpadded = window(3, group=2, pads=(0, 0, 0, 0))
    assert agrees("shift-before-conv", arrays, a=unpadded)
    assert results("shift-before-conv", arrays, a=window(3, group=2)) is None
    assert agrees("scale-before-conv", arrays, a=window(3, group=2))


@pytest.mark.parametrize(
    ("first", "second"),
    [((3, 3, (1, 1, 1, 1)), (1, 1, (0, 0, 0, 0))), ((1, 3, (0, 1, 0, 1)), (3, 1, (1, 0, 1, 0))),
     ((3, 3, (1, 1, 1, 1)), (5, 5, (2, 2, 2, 2))), ((2, 2, (0, 0, 1, 1)), (2, 2, (1, 1, 0, 0)))],
)  # fmt: skip
@pytest.mark.parametrize("stride", [1, 2])
def test_convs_of_different_kernels_add_up(
    first: tuple[int, int, tuple[int, ...]], second: tuple[int, int, tuple[int, ...]], stride: int
) -> None:
    arrays = {
        "x": random(2, 4, 7, 8), "w": random(6, 2, *first[:2]), "b": random(6), "u": random(6, 2, *second[:2], seed=3),
        "d": random(6, seed=4),
    }  # fmt: skip
    attrs = [window(1, group=2, pads=pads, stride=stride) for _, _, pads in (first, second)]
    assert agrees("sum-of-convs", arrays, a=attrs[0], c=attrs[1])
    assert agrees("difference-of-convs", arrays, a=attrs[0], c=attrs[1])


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_identity_and_batchnorm_branches_become_kernels(group: int, dilation: int) -> None:
    arrays = {"x": random(2, 4, 6, 6), "w": random(4, 4 // group, 3, 3), "b": random(4)}
    attrs = window(3, group=group, dilation=dilation)
    assert agrees("conv-plus-identity", arrays, a=attrs)
    statistics = {name: array[:4] for name, array in BATCHNORM.items()}
    assert agrees("conv-plus-batchnorm", {**arrays, **statistics}, a=attrs, e=1e-5)


def test_identity_needs_a_kernel_that_holds_it() -> None:
    arrays = {"x": random(2, 4, 6, 6), "w": random(4, 4, 3, 3), "b": random(4)}
    for attrs in (window(3, stride=2), window(3, pads=(0, 0, 0, 0)), window(3, pads=(1, 1, 1, 2))):
        assert results("conv-plus-identity", arrays, a=attrs) is None


@pytest.mark.parametrize(
    ("outputs", "group", "name"),
    [(4, 2, "ungroup-conv"), (8, 4, "halve-groups"), (12, 6, "third-of-groups"), (12, 6, "halve-groups")],
)
def test_group_reduction_puts_rows_into_their_slots(outputs: int, group: int, name: str) -> None:
    arrays = {"x": random(1, 2 * group, 5, 5), "w": random(outputs, 2, 3, 3), "b": random(outputs)}
    assert agrees(name, arrays, a=window(3, group=group))


def test_group_reduction_of_the_report_gives_the_enlarged_kernel() -> None:
    weight = np.ones((4, 2, 3, 3), np.float32)
    binding: Binding = {"x": value(random(1, 4, 5, 5), constant=False), "w": value(weight), "b": value(random(4))}
    binding = {**binding, "a": window(3, group=2)}
    graph = instantiate(ALL["ungroup-conv"].right, binding)
    kept: dict[int, Array] = {}
    evaluate_graph(graph, {"x": random(1, 4, 5, 5), "w": weight, "b": random(4)}, FLOAT64, kept)
    made = kept[graph.nodes[graph.roots[0]].args[1]]
    assert made.shape == (4, 4, 3, 3)
    assert made[:, :, 1, 1].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


def test_double_groups_only_where_the_zeros_allow_it() -> None:
    weight = random(4, 4, 3, 3)
    arrays = {"x": random(1, 4, 5, 5), "w": weight, "b": random(4)}
    assert results("double-groups", arrays, a=window(3)) is None
    weight[:2, 2:] = 0
    weight[2:, :2] = 0
    assert agrees("double-groups", arrays, a=window(3))


def test_average_pool_joins_a_conv_only_if_it_divides_evenly() -> None:
    arrays = {"x": random(2, 4, 6, 6), "w": random(4, 4, 3, 3), "b": random(4)}
    pool = Attrs.of(
        kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(1, 1), dilations=(1, 1), ceil_mode=0, count_include_pad=1
    )  # fmt: skip
    assert agrees("conv-plus-average-pool", arrays, a=window(3), p=pool)
    assert results("conv-plus-average-pool", arrays, a=window(3), p=pool.replaced(count_include_pad=0)) is None


def test_batchnorm_never_passes_an_activation() -> None:
    lefts = [rule for rule in ALL if rule.rejected is None and "BatchNormalization(Relu" in rule.text.replace("\n", "")]
    assert lefts == []
    arrays = {"x": random(2, 3), "c": np.array([1, -2, 3], np.float32)}
    assert results("scale-through-relu", arrays) is None
    assert agrees("scale-through-relu", {**arrays, "c": np.array([1, 2, 3], np.float32)})


def test_adding_zero_is_exact_for_the_negative_one_alone() -> None:
    x = random(2, 3)
    for zero, exact in ((np.float32(0.0), False), (np.float32(-0.0), True)):
        assert (results("add-of-negative-zero", {"x": x, "c": np.array(zero)}) is not None) == exact
        assert (results("sub-of-positive-zero", {"x": x, "c": np.array(zero)}) is not None) != exact
    assert results("add-of-negative-zero", {"x": x, "c": np.full((4, 2, 3), np.float32(-0.0))}) is None


@pytest.mark.parametrize("name", ["int32-by-uint8", "float32-by-float64"])
def test_lossy_casts_stay(name: str) -> None:
    source, through = name.split("-by-")
    binding: Binding = {"x": Value(TensorType(source, (2,))), "t": through, "u": source}
    assert conditions_hold(ALL["lossless-cast-and-back"], binding) == (name == "float32-by-float64")


def test_families_are_named_by_their_operator() -> None:
    family: list[Rule] = [rule for rule in ALL if rule.name.startswith("idempotent-twice[")]
    assert len(family) == 6
    assert "idempotent-twice[Relu]" in {rule.name for rule in family}


def test_a_softmax_along_another_axis_is_none_before_opset_13() -> None:
    build = TermsBuilder()
    moved = build.node("Transpose", build.input("x", "float32[2,3,4]"), perm=(0, 2, 1))
    graph = build.graph(build.node("Softmax", moved, axis=2))
    rules = RuleSet((ALL["transpose-sinks-through-softmax[Softmax]"],))
    for opset, known in ((12, {"Softmax"}), (13, {"Softmax", "Transpose"})):
        egraph = saturate(graph, rules, Limits(nodes=100, iterations=2), opset).egraph
        assert {node.op for node in egraph.classes[egraph.roots[0]].nodes} == known


@pytest.mark.parametrize("bounds", [(np.nan, 1.0), (-1.0, np.nan), (np.nan, None), (None, np.nan)])
def test_a_bound_that_is_nan_bounds_nothing(bounds: tuple[float | None, float | None]) -> None:
    x = np.array([-2, 0.5, 2, np.nan], np.float32)
    args = [x, *(None if bound is None else np.array(bound, np.float32) for bound in bounds)]
    low, high = (None if bound is None or np.isnan(bound) else np.array(bound, np.float32) for bound in bounds)
    (ours,) = apply("Clip", Attrs(), args, FLOAT64)
    (without,) = apply("Clip", Attrs(), [x, low, high], FLOAT64)
    np.testing.assert_array_equal(ours, without)
