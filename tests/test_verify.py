"""Verification lets right rewrites pass, in chaotic networks too, and stops wrong ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt.evaluate import is_empty
from superopt.inputs.sample import sample
from superopt.lowering.lower import lower
from superopt.models.model import Model, load
from superopt.reference import float64_truth
from superopt.verification import distance
from superopt.verification.distance import Spread, class_agreement, error
from superopt.verification.evidence import Evidence, gather, multiplications, noise_of
from superopt.verification.perturb import perturbed_feed, perturbed_model
from superopt.verification.verify import Verification, _Judge, verify

Array = np.ndarray[Any, Any]


def model_of(
    nodes: list[onnx.NodeProto],
    initializers: dict[str, Array],
    shape: list[int | str],
    *,
    outputs: tuple[str, ...] = ("y",),
    dtype: int = TensorProto.FLOAT,
    out_dtype: int = TensorProto.FLOAT,
) -> Model:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, out_dtype, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )  # fmt: skip
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def network(
    layers: int, gain: float, *, fold: bool, wrong: Callable[[dict[str, Array]], None] | None = None, pool: bool = True
) -> Model:
    """Convolutions with batch normalization and ReLU, apart or folded; a gain over 2 makes it chaotic."""
    rng = np.random.default_rng(11)
    nodes, weights, value = [], {}, "x"
    channels = 6
    for layer in range(layers):
        w = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / np.float32(math.sqrt(9 * channels))
        s = np.full(channels, gain, np.float32) * rng.uniform(0.9, 1.1, channels).astype(np.float32)
        t, m = (rng.standard_normal((2, channels)) * 0.1).astype(np.float32)
        v = rng.uniform(0.5, 1.5, channels).astype(np.float32)
        names = {key: f"{key}{layer}" for key in ("w", "b", "s", "t", "m", "v")}
        if fold:
            k = s.astype(np.float64) / np.sqrt(v.astype(np.float64) + float(np.float32(1e-5)))
            weights[names["w"]] = (w * k.reshape(-1, 1, 1, 1)).astype(np.float32)
            weights[names["b"]] = (t - m * k).astype(np.float32)
            nodes.append(helper.make_node("Conv", [value, names["w"], names["b"]], [f"n{layer}"], pads=[1, 1, 1, 1]))
        else:
            weights.update({names["w"]: w, names["s"]: s, names["t"]: t, names["m"]: m, names["v"]: v})
            nodes.append(helper.make_node("Conv", [value, names["w"]], [f"c{layer}"], pads=[1, 1, 1, 1]))
            parameters = [names[key] for key in ("s", "t", "m", "v")]
            nodes.append(helper.make_node("BatchNormalization", [f"c{layer}", *parameters], [f"n{layer}"]))
        nodes.append(helper.make_node("Sin" if gain > 2 else "Relu", [f"n{layer}"], [f"r{layer}"]))
        value = f"r{layer}"
    if wrong is not None:
        wrong(weights)
    nodes.append(helper.make_node("GlobalAveragePool" if pool else "Identity", [value], ["y"]))
    return model_of(nodes, weights, [1, channels, 8, 8])


def judged(original: Model, new: Model, **options: Any) -> Verification:
    return verify(original, new, sample(original), **options)


def one_percent(name: str) -> Callable[[dict[str, Array]], None]:
    def change(weights: dict[str, Array]) -> None:
        weights[name] = weights[name] * np.float32(1.01)

    return change


@pytest.mark.parametrize("layers", [1, 100])
def test_folding_batch_normalization_passes(layers: int) -> None:
    result = judged(network(layers, 1.4, fold=False), network(layers, 1.4, fold=True))
    assert result.agree, result.reason
    assert result.truth == "float64"
    (output,) = result.outputs
    assert output["new_error"] is not None
    assert output["original_error"] is not None
    assert 0 < output["new_error"]["max_abs"] <= 2 * output["original_error"]["max_abs"] + 8 * output["noise"] + 1e-6
    assert output["difference"] is not None
    assert output["difference"]["max_abs"] > 0


def test_folding_batch_normalization_in_a_chaotic_network_passes() -> None:
    result = judged(network(100, 4.0, fold=False), network(100, 4.0, fold=True))
    assert result.agree, result.reason
    (output,) = result.outputs
    assert output["difference"] is not None
    assert output["difference"]["max_abs"] > 1e-3  # it is chaotic: what starts as 1e-7 is seen
    assert output["noise"] > 1e-3


@pytest.mark.parametrize("layers", [1, 20])
@pytest.mark.parametrize("weight", ["w0", "b0"])
def test_one_percent_of_a_weight_fails(layers: int, weight: str) -> None:
    result = judged(
        network(layers, 1.4, fold=False, pool=False),
        network(layers, 1.4, fold=True, wrong=one_percent(weight), pool=False),
    )
    assert not result.agree
    assert result.conclusive
    assert result.outputs[0]["problem"] is not None
    assert "expected at most" in result.reason


def test_one_weight_of_many_fails() -> None:
    def change(weights: dict[str, Array]) -> None:
        weights["w3"][2, 3, 1, 1] *= np.float32(1.01)

    original = network(5, 1.4, fold=False, pool=False)
    assert not judged(original, network(5, 1.4, fold=True, wrong=change, pool=False)).agree


def test_wrong_rewrite_fails_where_there_is_no_truth() -> None:
    x, two = np.zeros(0), {"k": np.asarray([2.0], np.float32), "q": np.asarray([2.02], np.float32)}
    assert x.size == 0

    def with_custom(scale: str) -> Model:
        # What onnxruntime computes in its own way only: no float64 evaluation of a random operator's kind.
        noise = helper.make_node("RandomUniformLike", ["x"], ["r"], seed=3.0)
        zero = helper.make_node("Sub", ["r", "r"], ["z"])
        return model_of(
            [noise, zero, helper.make_node("Mul", ["x", scale], ["m"]), helper.make_node("Add", ["m", "z"], ["y"])],
            two, [4, 5],
        )  # fmt: skip

    good, bad = judged(with_custom("k"), with_custom("k")), judged(with_custom("k"), with_custom("q"))
    assert good.agree, good.reason
    assert good.truth.startswith("none: ")
    assert not bad.agree


def test_exact_compares_bits() -> None:
    k = {"a": np.full(3, 1 / 3, np.float32), "b": np.full(3, 3, np.float32), "c": np.full(3, 1 / 9, np.float32)}
    twice = model_of(
        [helper.make_node("Mul", ["x", "a"], ["t"]), helper.make_node("Mul", ["t", "a"], ["y"])], k, [5, 3]
    )
    once = model_of([helper.make_node("Mul", ["x", "c"], ["y"])], k, [5, 3])
    same = model_of(
        [
            helper.make_node("Mul", ["x", "a"], ["t"]),
            helper.make_node("Identity", ["t"], ["u"]),
            helper.make_node("Mul", ["a", "u"], ["y"]),
        ],
        k, [5, 3],
    )  # fmt: skip
    assert judged(twice, same, numeric="exact").agree
    verdict = judged(twice, once, numeric="exact")
    assert not verdict.agree
    assert "elements differ on feed 0, expected the same bits" in verdict.reason
    assert judged(twice, once).agree


def test_any_nan_is_any_nan_and_signed_zeros_are_bits() -> None:
    quiet = np.asarray([0x7FC00000, 0x00000000], np.uint32).view(np.float32)
    other = np.asarray([0x7FC12345, 0x00000000], np.uint32).view(np.float32)
    negative = np.asarray([0x7FC00000, 0x80000000], np.uint32).view(np.float32)

    def constant(value: Array) -> Model:
        nodes = [helper.make_node("Identity", ["c"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
        return model_of(nodes, {"c": value}, [2], outputs=("y", "z"))

    assert judged(constant(quiet), constant(other), numeric="exact").agree
    assert not judged(constant(quiet), constant(negative), numeric="exact").agree
    assert judged(constant(quiet), constant(negative)).agree
    assert not judged(constant(quiet), constant(np.zeros(2, np.float32))).agree
    assert judged(constant(quiet), constant(np.zeros(2, np.float32)), ignoring=("nan",)).agree


def test_shapes_types_and_names_of_outputs_must_be_the_same() -> None:
    base = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, [2, 3])
    turned = model_of([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], {}, [2, 3])
    cast = model_of(
        [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Cast", ["z"], ["y"], to=TensorProto.DOUBLE)],
        {}, [2, 3], out_dtype=TensorProto.DOUBLE,
    )  # fmt: skip
    renamed = model_of([helper.make_node("Relu", ["x"], ["q"])], {}, [2, 3], outputs=("q",))
    for new, what in ((turned, "float32[3, 2], expected float32[2, 3]"), (cast, "float64"), (renamed, "missing")):
        result = judged(base, new)
        assert not result.agree
        assert what in result.reason


def test_integers_are_equal_but_for_near_ties() -> None:
    def top(scale: float, bias: Array) -> Model:
        nodes = [
            helper.make_node("Mul", ["x", "k"], ["m"]),
            helper.make_node("Add", ["m", "b"], ["s"]),
            helper.make_node("ArgMax", ["s"], ["y"], axis=1),
        ]
        k = np.asarray([scale], np.float32)
        return model_of(nodes, {"k": k, "b": bias}, [16, 50], out_dtype=TensorProto.INT64)

    zero, shifted = np.zeros(50, np.float32), np.linspace(0, 3, 50, dtype=np.float32)
    assert judged(top(1.0, zero), top(2.0, zero)).agree
    result = judged(top(1.0, zero), top(1.0, shifted))
    assert not result.agree
    assert "of 16 elements differ" in result.reason


def test_classes_are_counted() -> None:
    rng = np.random.default_rng(5)
    w = rng.standard_normal((8, 10)).astype(np.float32)
    moved = w + rng.standard_normal((8, 10)).astype(np.float32)
    base, same, other = (
        model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": v}, [4, 8]) for v in (w, w, moved)
    )
    good, bad = judged(base, same).outputs[0], judged(base, other).outputs[0]
    assert (good["top1"], good["top5"]) == (1.0, 1.0)
    assert bad["top1"] is not None
    assert bad["top5"] is not None
    assert bad["top1"] < 1
    assert 0 < bad["top5"] < 1
    assert judged(network(1, 1.0, fold=False), network(1, 1.0, fold=True)).outputs[0]["top1"] is None
    assert class_agreement([(np.asarray([[5.0, 4, 3, 2, 1, 0]]), np.asarray([[5.0, 4, 3, 2, 0, 1]]))]) == (1.0, 0.8)


def test_random_outputs_are_compared_with_the_randomness_held() -> None:
    def noisy(scale: float) -> Model:
        nodes = [
            helper.make_node("RandomNormalLike", ["x"], ["r"]),
            helper.make_node("Mul", ["r", "k"], ["s"]),
            helper.make_node("Add", ["x", "s"], ["y"]),
        ]
        return model_of(nodes, {"k": np.asarray([scale], np.float32)}, [4, 4])

    assert judged(noisy(2.0), noisy(2.0), numeric="exact").agree
    assert judged(noisy(2.0), noisy(2.0)).agree
    assert not judged(noisy(2.0), noisy(2.1)).agree


def test_model_that_cannot_be_run_is_not_verified() -> None:
    custom = model_of([helper.make_node("Mystery", ["x"], ["y"], domain="no.such")], {}, [2])
    custom.proto.opset_import.append(helper.make_opsetid("no.such", 1))
    feeds = [{"x": np.zeros(2, np.float32)}]
    result = verify(custom, custom, feeds)
    assert not result.agree
    assert not result.conclusive
    assert result.reason.startswith("cannot run: ")
    plain = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, [2])
    result = verify(plain, custom, feeds)
    assert not result.agree
    assert "the new model does not run" in result.reason


def test_model_without_kernels_in_onnxruntime_is_compared_by_its_terms() -> None:
    rng = np.random.default_rng(3)
    w, k = rng.standard_normal((4, 3, 3, 3)), rng.uniform(0.5, 2, 4)

    def double(fold: bool, factor: float = 1.0) -> Model:
        if fold:
            nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
            weights = {"w": w * k.reshape(-1, 1, 1, 1) * factor}
        else:
            nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Mul", ["c", "k"], ["y"])]
            weights = {"w": w, "k": k.reshape(-1, 1, 1)}
        return model_of(nodes, weights, [1, 3, 6, 6], dtype=TensorProto.DOUBLE, out_dtype=TensorProto.DOUBLE)

    good = judged(double(False), double(True))
    assert good.agree, good.reason
    assert "does not run" in good.truth
    assert not judged(double(False), double(True, 1.0001)).agree


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_judged_by_their_own_digits(dtype: str) -> None:
    number = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[dtype]
    kind = np.dtype(np.float16) if dtype == "float16" else np.dtype(ml_dtypes.bfloat16)

    def scaled(*factors: float) -> Model:
        nodes, weights, value = [], {}, "x"
        for index, factor in enumerate(factors):
            weights[f"k{index}"] = np.asarray([factor]).astype(kind)
            nodes.append(helper.make_node("Mul", [value, f"k{index}"], [f"m{index}"]))
            value = f"m{index}"
        nodes += [
            helper.make_node("Cast", [value], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Cast", ["wide"], ["y"], to=number),
        ]
        return model_of(nodes, weights, [8, 8], dtype=number, out_dtype=number)

    if dtype == "bfloat16":
        scaled = cast_around(number, kind)
    good, bad = judged(scaled(1.1, 1.3), scaled(1.43)), judged(scaled(1.1, 1.3), scaled(1.6))
    assert good.agree, good.reason
    assert not bad.agree


def cast_around(number: int, kind: np.dtype[Any]) -> Callable[..., Model]:
    """onnxruntime multiplies no bfloat16 itself: the product is taken in float32."""

    def scaled(*factors: float) -> Model:
        nodes, weights, value = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT)], {}, "f"
        for index, factor in enumerate(factors):
            weights[f"k{index}"] = np.asarray([factor]).astype(kind).astype(np.float32)
            nodes.append(helper.make_node("Mul", [value, f"k{index}"], [f"m{index}"]))
            value = f"m{index}"
        nodes.append(helper.make_node("Cast", [value], ["y"], to=number))
        return model_of(nodes, weights, [8, 8], dtype=number, out_dtype=number)

    return scaled


@pytest.mark.parametrize(("share", "agrees"), [(0.9, True), (1.1, False)])
@pytest.mark.parametrize("bound", ["largest", "mean", "truth", "within"])
def test_the_bound_is_the_one_that_is_stated(bound: str, share: float, agrees: bool) -> None:
    count, within, error_of_original = 4096, 1e-2 if bound == "within" else 0.0, 1e-3
    x = np.linspace(1, 2, count, endpoint=False, dtype=np.float32)
    original = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, [count])
    evidence = gather(original, [{"x": x}])
    evidence.widen(0)
    noise, rounding = noise_of(evidence, 0, "y", 0), 2.0**-24
    moved = np.zeros(count)
    if bound == "mean":
        moved[:] = share * (2 + 6 / 64) * (noise.rms + rounding * math.sqrt(np.mean(np.square(x))))
    elif bound == "truth":
        evidence.truth = {"y": x.astype(np.float64) + error_of_original}
        moved[:] = error_of_original - share * 2 * error_of_original
    else:
        moved[0] = share * (8 * noise.largest + 8 * rounding * x.max() + within * x.max())
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Add", ["r", "moved"], ["y"])]
    new = model_of(nodes, {"moved": moved.astype(np.float32)}, [count])
    verdict = verify(original, new, [{"x": x}], within=within, evidence=evidence)
    assert verdict.agree == agrees, verdict.reason


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (lambda value: value * 1.01, "by "),
        (lambda value: np.where(value == value.max(), np.inf, value), "not finite in the same places"),
        (lambda value: value[..., 0], "shapes "),
    ],
)
def test_what_the_original_is_far_from_is_not_its_truth(
    spoiled: Callable[[Array], Array], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def far(*given: Any) -> Any:
        found = float64_truth(*given)
        return replace(found, values=tuple(spoiled(value) for value in found.values))

    monkeypatch.setattr("superopt.verification.evidence.float64_truth", far)
    verdict = judged(network(1, 1.4, fold=False), network(1, 1.4, fold=True))
    assert verdict.agree, verdict.reason
    assert verdict.truth.startswith(f"none: float64 and onnxruntime differ beyond rounding on the original: y, {said}")


def test_what_optimizations_make_of_the_new_model_is_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    run_optimized = Evidence.run_optimized

    def spoiled(evidence: Evidence, model: Model) -> Mapping[int, Any]:
        found = run_optimized(evidence, model)
        if model is evidence.model:
            return found
        return {place: {name: value * 1.01 for name, value in outputs.items()} for place, outputs in found.items()}

    original, new = network(1, 1.4, fold=False), network(1, 1.4, fold=True)
    assert judged(original, new).agree
    monkeypatch.setattr(Evidence, "run_optimized", spoiled)
    verdict = judged(original, new)
    assert not verdict.agree
    assert "with optimizations on" in verdict.reason


def test_one_evidence_serves_several_new_models() -> None:
    original = network(3, 1.4, fold=False)
    feeds = sample(original).values
    evidence = gather(original, feeds)
    assert verify(original, network(3, 1.4, fold=True), feeds, evidence=evidence).agree
    assert not verify(original, network(3, 1.4, fold=True, wrong=one_percent("w1")), feeds, evidence=evidence).agree
    assert verify(original, network(3, 1.4, fold=True), feeds, evidence=evidence).agree


def test_errors_are_absolute_relative_and_in_ulps() -> None:
    reference = np.asarray([1.0, -4.0, 0.0, np.nan, 2.0**-130])
    value = np.asarray([1 + 2.0**-22, -4 - 2.0**-21, 0.0, 1.0, 2.0**-130]).astype(np.float64)
    found = error([(value, reference)], np.dtype(np.float32))
    assert found is not None
    assert found["max_abs"] == 2.0**-21
    assert found["max_rel"] == 2.0**-22
    assert found["max_ulp"] == 2.0
    assert found["mean_ulp"] == (2 + 1) / 4
    assert error([(np.full(2, np.nan), np.full(2, np.nan))], np.dtype(np.float32)) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_a_ulp_is_the_distance_to_the_next_number(dtype: type[np.generic]) -> None:
    kind = np.dtype(dtype)
    unsigned = np.dtype(f"u{kind.itemsize}")
    largest = int(np.asarray(ml_dtypes.finfo(kind).max, kind).view(unsigned))
    bits = np.asarray([place * (largest - 1) // 1000 for place in range(1001)], unsigned)
    here, there = (numbers.view(kind).astype(np.float64) for numbers in (bits, bits + unsigned.type(1)))
    np.testing.assert_array_equal(distance.ulp(here, kind), there - here)


def test_spreads_neither_overflow_nor_vanish() -> None:
    assert distance.spread(np.asarray([1e300, 0.0])) == Spread(1e300, 1e300 / math.sqrt(2))
    assert distance.spread(np.asarray([1e-300, -1e-300])).rms == pytest.approx(1e-300)
    assert distance.spread(np.asarray([np.nan, np.inf])) == Spread()


def test_perturbation_moves_every_float_by_one_unit_and_nothing_else() -> None:
    x = np.concatenate([np.random.default_rng(0).standard_normal(1000), [0.0, np.inf, np.nan]]).astype(np.float32)
    moved = perturbed_feed({"x": x, "i": np.arange(3)}, seed=1)
    steps = np.abs(moved["x"][:1000].view(np.int32).astype(np.int64) - x[:1000].view(np.int32))
    np.testing.assert_array_equal(steps, 1)
    np.testing.assert_array_equal(moved["x"][1000:], x[1000:])
    np.testing.assert_array_equal(moved["i"], np.arange(3))
    model = network(1, 1.0, fold=True)
    other = perturbed_model(model, seed=1)
    assert other is not None
    before, after = (numpy_helper.to_array(m.proto.graph.initializer[0]) for m in (model, other))
    assert np.all((before != after) | (before == 0))
    assert perturbed_model(model_of([helper.make_node("Relu", ["x"], ["y"])], {}, [2]), seed=1) is None


def test_work_is_counted_in_multiplications() -> None:
    lowered = lower(network(2, 1.0, fold=True))
    assert multiplications(lowered.graph) == 2 * 6 * 8 * 8 * (6 * 3 * 3)
    w = np.zeros((4, 5), np.float32)
    product = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, [2, 3, 4])
    assert multiplications(lower(product).graph) == 2 * 3 * 4 * 5
    turned = model_of([helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], {"w": w}, [7, 5])
    assert multiplications(lower(turned).graph) == 7 * 4 * 5
    up = model_of(
        [helper.make_node("ConvTranspose", ["x", "k"], ["y"])], {"k": np.zeros((3, 2, 2, 2), np.float32)}, [1, 3, 5, 5]
    )
    assert multiplications(lower(up).graph) == 75 * 2 * 2 * 2


def test_original_that_optimizations_break_is_judged_without_them() -> None:
    # onnxruntime fuses this LayerNormalization though the scale does not fit, and then does not run it.
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1]),
        helper.make_node("Sub", ["x", "m"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "e"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["s"]),
        helper.make_node("Div", ["d", "s"], ["n"]),
        helper.make_node("Mul", ["n", "scale"], ["q"]),
        helper.make_node("Add", ["q", "bias"], ["y"]),
    ]
    weights = {
        "two": np.asarray(2, np.float32), "e": np.asarray(1e-5, np.float32),
        "scale": np.ones(1, np.float32), "bias": np.zeros(4, np.float32),
    }  # fmt: skip
    model = model_of(nodes, weights, [2, 3, 4])
    runs = gather(model, sample(model)).optimized_outputs is not None
    result = judged(model, model, numeric="exact")
    assert result.agree, f"{result.reason} (optimized: {runs})"


def test_a_sequence_may_be_longer_on_another_feed() -> None:
    """As many maps come out as rows go in, and the truth is known of the first feed alone."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 2]>
    g (float[n, 2] x) => (seq(map(int64, float)) y) {
        a = Identity(x)
        p = Softmax(a)
        y = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1]>(p)
    }""")
    report = superopt.optimize(model, select="modelled").report
    assert report["verified"]
    assert report["changed"]
    assert len(report["feeds"]) > 1


def test_bits_are_the_same_with_weights_prepacked() -> None:
    """A product of one row with a weight that is constant takes another kernel than with one that is computed."""
    w = np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32)
    turned = model_of(
        [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["x", "t"], ["y"])],
        {"w": w}, ["batch", "seq", 64],
    )  # fmt: skip
    folded = model_of([helper.make_node("MatMul", ["x", "t"], ["y"])], {"t": w.T.copy()}, ["batch", "seq", 64])
    feeds = sample(turned, edge_sizes=True)
    assert verify(turned, folded, feeds).agree
    verdict = verify(turned, folded, feeds, "exact")
    assert not verdict.agree
    assert "with weights prepacked" in verdict.reason
    result = superopt.optimize(turned.proto, numeric="exact", select="modelled")
    assert result.report["verified"]
    assert not result.report["problems"]


def test_what_fails_on_an_empty_batch_alone_is_told_apart() -> None:
    def reshaped(*targets: list[int]) -> Model:
        names = ["x", *(f"r{place}" for place in range(len(targets) - 1)), "y"]
        steps = range(len(targets))
        nodes = [helper.make_node("Reshape", [names[step], f"s{step}"], [names[step + 1]]) for step in steps]
        return model_of(nodes, {f"s{step}": np.asarray(targets[step]) for step in steps}, ["batch", 4])

    whole, inferred = reshaped([0, 2, 2]), reshaped([0, 2, -1])
    feeds = sample(whole, edge_sizes=True)
    verdict = verify(whole, inferred, feeds)
    assert not verdict.agree
    assert verdict.on_empty
    assert "on inputs without elements" in verdict.reason
    assert verify(whole, inferred, sample(whole)).agree
    wrong = verify(whole, reshaped([0, 4], [0, 2, 2, 1]), feeds)
    assert not wrong.agree
    assert not wrong.on_empty


def test_a_result_too_large_to_be_tried_on_an_empty_batch_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(by: float) -> Model:
        return model_of([helper.make_node("Mul", ["x", "w"], ["y"])], {"w": np.full(4, by, np.float32)}, ["batch", 4])

    feeds = sample(scaled(3), edge_sizes=True)
    assert any(is_empty(feed) for feed in feeds.values)
    evidence = gather(scaled(3), feeds)
    monkeypatch.setattr("superopt.evaluate._MOST_TRIED", 0)
    assert verify(scaled(3), scaled(3), feeds, evidence=evidence).agree
    assert not verify(scaled(3), scaled(2), feeds, evidence=evidence).agree


def test_a_rule_that_fails_on_an_empty_batch_alone_is_left_out() -> None:
    rule = superopt.parse_rules("""
rule four-times-negated: exact
  Neg(Neg(Neg(Neg(x)))) => Reshape(Reshape(x, shape=(0, 2, -1)), shape=(0, -1))
  when rank(x) == 2, dim(x, 1) == 4
""")
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(["x", "a", "b", "c", "y"])]
    model = model_of(nodes, {}, ["batch", 4])
    report = superopt.optimize(
        model.proto, rules=rule, select="modelled", cost="nodes", trust_rules=True, max_growth=None
    ).report
    assert [one["rule"] for one in report["left_out"]] == ["four-times-negated"]
    assert "on inputs without elements" in report["left_out"][0]["because"]


def test_where_no_rule_is_guilty_of_what_an_empty_batch_comes_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_empty(self: _Judge, *_: object, **__: object) -> dict[str, str]:
        return {"y": "on inputs without elements: it does not run"}

    monkeypatch.setattr(_Judge, "on_empty", on_empty)
    nodes = [helper.make_node("Neg", ["c"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])]
    model = model_of(nodes, {"c": np.ones(4, np.float32)}, ["batch", 4])
    report = superopt.optimize(model.proto, rules=superopt.RuleSet(), select="modelled").report
    assert report["changed"]
    assert report["problems"] == ["y: on inputs without elements: it does not run"]


def test_optimizations_that_break_the_original_are_no_evidence() -> None:
    """onnxruntime 1.32 takes a Split in two and a Split in three of one value for the same before opset 18."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 14]>
    g (int64[n, 1, 6, 1] x) => (int64[a, b, c, d] y, int64[e, f, h, i] z) <int64[2] parts = {2, 1}> {
        p, q, r = Split<axis = 2>(x)
        z = Add(p, r)
        s, t = Split<axis = 2>(x)
        u, v = Split<axis = 2>(t, parts)
        y = Concat<axis = 2>(u, v)
    }""")
    report = superopt.optimize(proto, select="modelled").report
    assert report["changed"]
    assert report["left_out"] == []


def test_products_of_constants_keep_their_bits() -> None:
    """A vector times a matrix, both of the model: onnxruntime has other last bits where it has packed the matrix."""
    random = np.random.default_rng(3)
    weights = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in (("a", (17,)), ("b", (17, 64)))
    }
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Abs", ["p"], ["q"]),
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Add", ["i", "q"], ["y"]),
    ]
    exact = superopt.optimize(model_of(nodes, weights, [3, 64]).proto, numeric="exact", select="modelled")
    assert [node.op_type for node in exact.model.graph.node] == ["MatMul", "Abs", "Add"]
    assert exact.report["problems"] == []
    folded = superopt.optimize(model_of(nodes, weights, [3, 64]).proto, select="modelled").model
    assert [node.op_type for node in folded.graph.node] == ["Add"]
