"""Sample inputs: they run, they repeat, they keep to what symbols and indices mean; real ones are read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import superopt
from superopt import evaluate, probe
from superopt.errors import EvaluationError, FeedError
from superopt.evaluate import TOO_LARGE, TOO_LONG, Runner, same_bits
from superopt.inputs.derived_sizes import with_derived
from superopt.inputs.feeds import load_feed
from superopt.inputs.sample import sample
from superopt.lowering.lower import lower
from superopt.models.extent import extent_of
from superopt.models.model import Model, load
from superopt.models.narrow import computes_narrow
from tests.models import from_text

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any] | None]],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    out: int = FLOAT,
) -> Model:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info("y", out, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), ("com.microsoft", 1))]
    return load(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def relu(shape: list[Any] | None, dtype: int = FLOAT) -> Model:
    return model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (dtype, shape)}, out=dtype)


def test_same_seed_gives_the_same_inputs_and_another_seed_others() -> None:
    model = relu(["batch", 3, "h", "w"])
    one, two, other = sample(model), sample(model), sample(model, seed=1)
    for left, right in zip(one.values, two.values, strict=True):
        assert same_bits(left["x"], right["x"])
    assert not same_bits(one.values[0]["x"], other.values[0]["x"])


def test_open_dimensions_get_several_sizes_that_are_told() -> None:
    feeds = sample(relu(["batch", 3, "h", "w"]), count=3)
    assert [feed.dims for feed in feeds.feeds] == [
        {"batch": 1, "h": 224, "w": 224}, {"batch": 2, "h": 224, "w": 224}, {"batch": 1, "h": 64, "w": 64},
    ]  # fmt: skip
    assert feeds.values[2]["x"].shape == (1, 3, 64, 64)
    assert feeds.feeds[1].text == "seeded 1 (batch=2, h=224, w=224)"


def test_same_symbol_is_the_same_size_in_every_input() -> None:
    model = model_of(
        [helper.make_node("Add", ["a", "b"], ["y"])], {"a": (FLOAT, ["n", "t", 4]), "b": (FLOAT, ["n", "t", 4])}
    )
    for feed in sample(model).values:
        assert feed["a"].shape == feed["b"].shape


def test_sizes_are_tried_until_the_model_runs() -> None:
    # Only 48 pixels of width divide into what the reshape asks for.
    model = model_of(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (FLOAT, [1, 1, "h", "w"])}, {"s": np.asarray([48, 48])}
    )
    feeds = sample(model)
    assert feeds.feeds[0].dims == {"h": 48, "w": 48}
    assert feeds.failed
    assert "x[1, 1, 224, 224]" in feeds.failed[0]


def test_indices_stay_below_the_size_of_the_table_they_are_looked_up_in() -> None:
    table = np.arange(14, dtype=np.float32).reshape(7, 2)
    model = model_of(
        [helper.make_node("Cast", ["ids"], ["i"], to=INT), helper.make_node("Gather", ["t", "i"], ["y"])],
        {"ids": (TensorProto.INT32, ["batch", "seq"])}, {"t": table},
    )  # fmt: skip
    ids = np.concatenate([feed["ids"].ravel() for feed in sample(model, count=4).values])
    assert ids.dtype == np.int32
    assert set(ids.tolist()) == set(range(7))


def test_lengths_are_those_of_the_time_axis_and_masks_are_ones() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["x_lens"], ["l"], to=FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=FLOAT),
        helper.make_node("ReduceSum", ["m"], ["ms"], keepdims=0),
        helper.make_node("Add", ["s", "l"], ["t"]),
        helper.make_node("Add", ["t", "ms"], ["y"]),
    ]
    inputs = {"x": (FLOAT, ["n", "t"]), "x_lens": (INT, ["n"]), "attention_mask": (INT, ["n", "t"])}
    for feed in sample(model_of(nodes, inputs)).values:
        assert set(feed["x_lens"].tolist()) == {feed["x"].shape[1]}
        assert np.all(feed["attention_mask"] == 1)


def test_channels_and_rank_follow_from_the_convolution() -> None:
    w = np.ones((2, 5, 3, 3), np.float32)
    model = model_of(
        [helper.make_node("Conv", ["x", "w"], ["y"], group=2)], {"x": (FLOAT, None)}, {"w": np.tile(w, (2, 1, 1, 1))}
    )
    assert sample(model).values[0]["x"].shape == (1, 10, 224, 224)


def test_rank_that_is_not_known_is_tried() -> None:
    model = model_of([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": (FLOAT, None)})
    assert sample(model).values[0]["x"].ndim == 2


def test_given_shapes_are_used_and_decide_their_symbols_elsewhere() -> None:
    model = model_of([helper.make_node("Add", ["a", "b"], ["y"])], {"a": (FLOAT, ["n", 4]), "b": (FLOAT, ["n", 4])})
    feeds = sample(model, shapes={"a": (5, 4)})
    assert all(feed["a"].shape == feed["b"].shape == (5, 4) for feed in feeds.values)
    for wrong, what in (
        ({"a": (5, 3)}, "does not fit"),
        ({"q": (1,)}, "'q' is not an input"),
        ({"a": (4,)}, "does not fit"),
    ):
        with pytest.raises(FeedError, match=what):
            sample(model, shapes=wrong)


def test_every_kind_of_input_is_made() -> None:
    for dtype in (TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.UINT8):
        model = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (dtype, ["n", 3])}, out=dtype)
        (feed, *_) = sample(model).values
        assert feed["x"].dtype == helper.tensor_dtype_to_np_dtype(dtype)
        assert same_bits(Runner(model).run(feed)["y"], feed["x"])
    text = model_of(
        [helper.make_node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [2])}, out=TensorProto.STRING
    )
    assert all(isinstance(word, str) for word in sample(text).values[0]["x"])


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "DOUBLE", "INT64", "UINT8", "BOOL", "STRING"])
@pytest.mark.parametrize("name", ["x", "mask", "sample_rate", "length"])
def test_a_single_number_is_an_array(dtype: str, name: str) -> None:
    kind = getattr(TensorProto, dtype)
    model = model_of([helper.make_node("Identity", [name], ["y"])], {name: (kind, [])}, out=kind)
    for feed in sample(model).values:
        assert isinstance(feed[name], np.ndarray)
        assert feed[name].shape == ()


def test_sequences_are_lists() -> None:
    info = helper.make_tensor_sequence_value_info("x", FLOAT, [2, "k"])
    graph = helper.make_graph(
        [helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=1)], "g", [info],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )  # fmt: skip
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    (feed, *_) = sample(model).values
    assert [item.shape[0] for item in feed["x"]] == [2, 2]


def test_inputs_with_a_default_are_left_to_it() -> None:
    model = model_of(
        [helper.make_node("Mul", ["x", "k"], ["y"])],
        {"x": (FLOAT, [2]), "k": (FLOAT, [2])},
        {"k": np.ones(2, np.float32)},
    )
    assert list(sample(model).values[0]) == ["x"]


def test_what_gives_only_nan_gets_positive_numbers() -> None:
    w = np.eye(9, dtype=np.float32) * 0 + 1
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("ReduceMin", ["s"], ["m"], keepdims=0),
        helper.make_node("Neg", ["m"], ["n"]),
        helper.make_node("ReduceMax", ["s"], ["t"], keepdims=0),
        helper.make_node("Abs", ["t"], ["a"]),
        helper.make_node("Sub", ["t", "a"], ["z"]),
        helper.make_node("Add", ["z", "n"], ["u"]),
        helper.make_node("Neg", ["u"], ["v"]),
        helper.make_node("Log", ["v"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, [40, 9])}, {"w": w})
    assert np.isfinite(Runner(model).run(sample(model).values[0])["y"]).all()


def test_sizes_of_one_and_none_come_last_and_only_when_asked_for() -> None:
    model = relu(["n", 3])
    assert all(feed["x"].size for feed in sample(model).values)
    assert sample(model, edge_sizes=True).values[-1]["x"].shape == (0, 3)


def test_a_cache_is_tried_empty_and_steps_one_by_one() -> None:
    nodes = [helper.make_node("Concat", ["past", "x"], ["y"], axis=1)]
    model = model_of(nodes, {"past": (FLOAT, ["batch", "past_len", 4]), "x": (FLOAT, ["batch", "seq", 4])})
    plain = [feed.dims for feed in sample(model).feeds]
    assert [feed.dims for feed in sample(model, edge_sizes=True).feeds if feed.dims not in plain] == [
        {"batch": 1, "past_len": 1, "seq": 1}, {"batch": 1, "past_len": 0, "seq": 32},
        {"batch": 0, "past_len": 32, "seq": 32},
    ]  # fmt: skip


def test_an_empty_batch_that_ends_onnxruntime_does_not_end_us() -> None:
    """GRU does in onnxruntime 1.32: nothing to assert is left where it does."""
    weights = {"w": np.ones((1, 9, 2), np.float32), "r": np.ones((1, 9, 3), np.float32)}
    nodes = [helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=3)]
    model = model_of(nodes, {"x": (FLOAT, ["seq", "batch", 2])}, weights)
    assert sample(model, edge_sizes=True).feeds


def test_what_does_not_outlive_an_empty_input_is_not_run_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "outlives", lambda *_: "it ends the process (signal 6)")
    nodes = [helper.make_node("Elu", ["x"], ["y"], alpha=0.375)]  # known to no other test, so not tried before
    model = model_of(nodes, {"x": (FLOAT, ["n", 3])})
    assert all(feed["x"].size for feed in sample(model, edge_sizes=True).values)
    with pytest.raises(EvaluationError, match=r"onnxruntime does not run it: it ends the process \(signal 6\)"):
        Runner(model).run({"x": np.ones((0, 3), np.float32)})


def attention_over_pixels(product: onnx.NodeProto) -> Model:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["f"]),
        helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        product,
        helper.make_node("Softmax", ["p"], ["a"], axis=-1),
        helper.make_node("MatMul", ["a", "t"], ["y"]),
    ]
    return model_of(nodes, {"x": (FLOAT, ["b", 2, "h", "w"])}, {"s": np.array([0, 2, -1])})


@pytest.mark.skipif(not probe.LIMITS_MEMORY, reason="this system does not limit a process's memory")
def test_values_that_nobody_can_foresee_are_not_larger_than_memory() -> None:
    """ONNX does not know what another domain's operator makes: at 224 x 224 it is 10 GB here."""
    fused = helper.make_node("FusedMatMul", ["t", "t"], ["p"], domain="com.microsoft", transB=1)
    model = attention_over_pixels(fused)
    assert not extent_of(model.proto, {"x": (1, 2, 224, 224)}).complete
    found = sample(model)
    assert TOO_LARGE in found.failed[0]
    assert all(feed.dims["h"] <= 128 for feed in found.feeds)


@pytest.mark.skipif(not probe.LIMITS_MEMORY, reason="this system does not limit a process's memory")
def test_a_run_in_a_process_of_its_own_has_the_memory_that_it_is_given() -> None:
    model = model_of([helper.make_node("Expand", ["x", "s"], ["y"])], {"x": (FLOAT, [1])}, {"s": np.array([1 << 28])})
    feed = {"x": np.ones(1, np.float32)}
    assert probe.outlives(model.proto.SerializeToString(), {}, feed, memory=1 << 32) is None
    assert probe.outlives(model.proto.SerializeToString(), {}, feed, memory=1 << 29) is not None


def test_special_values_come_last_among_floats_alone() -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    model = model_of(nodes, {"x": (FLOAT, [40, 9]), "i": (INT, [2])})
    plain, special = sample(model).values, sample(model, special=True).values
    assert len(special) == len(plain) + 1
    values = special[-1]["x"]
    assert np.isnan(values).any()
    assert np.isposinf(values).any()
    assert np.isneginf(values).any()
    assert (np.signbit(values) & (values == 0)).any()
    assert np.isfinite(values).mean() > 0.8
    assert same_bits(special[-1]["i"], plain[0]["i"])


def test_model_that_runs_on_nothing_says_why() -> None:
    model = model_of([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (FLOAT, [3])}, {"s": np.asarray([2, 2])})
    with pytest.raises(EvaluationError, match=r"it runs with, inputs may tell some; one try was x\[3\]: "):
        sample(model)


def test_real_inputs_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "feed.npz"
    np.savez(path, x=np.ones((4, 3, 8, 8)))
    feeds = sample(relu(["batch", 3, "h", "w"]), given=path)
    assert len(feeds.feeds) == 1
    assert feeds.values[0]["x"].dtype == np.float32
    assert feeds.feeds[0].dims == {"batch": 4, "h": 8, "w": 8}
    assert feeds.feeds[0].text == f"{path} (batch=4, h=8, w=8)"


def test_items_of_a_sequence_and_narrow_floats_are_read_from_a_file(tmp_path: Path) -> None:
    info = helper.make_tensor_sequence_value_info("x", TensorProto.BFLOAT16, None)
    graph = helper.make_graph(
        [helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)], "g", [info],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, None)],
    )  # fmt: skip
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    items = {"x[1]": np.ones(3, ml_dtypes.bfloat16), "x[0]": np.zeros(2, ml_dtypes.bfloat16)}
    np.savez(tmp_path / "feed.npz", **items)
    (feed,) = sample(model, given=tmp_path / "feed.npz").values
    assert [item.shape for item in feed["x"]] == [(2,), (3,)]
    assert feed["x"][0].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"q": np.ones(2)}, "'q' is not an input, expected x"),
        ({}, "no array for input x"),
        ({"x": np.ones((2, 4))}, r"x has shape \[2, 4\], expected \[n, 3\]"),
        ({"x": np.asarray([["a", "b", "c"]])}, "expected float32"),
        ({"x": [np.ones(2), np.ones(3)]}, "inhomogeneous|expected"),
        ({"x[1]": np.ones((1, 3))}, "items"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(FeedError, match=what):
        sample(relu(["n", 3]), given=given)


def test_integers_are_not_cut(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (TensorProto.INT8, [2])}, out=TensorProto.INT8)
    assert sample(model, given={"x": np.asarray([1, 2])}).values[0]["x"].dtype == np.int8
    with pytest.raises(FeedError, match="expected int8"):
        sample(model, given={"x": np.asarray([1, 300])})
    with pytest.raises(FeedError, match=r"expected an \.npz file"):
        sample(model, given=tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(FeedError, match=r"expected an \.npz file"):
        sample(model, given=tmp_path / "text.npz")


def test_floats_are_not_rounded_silently() -> None:
    exact = np.asarray([0.5, np.nan, -np.inf])
    (feed,) = sample(relu([3]), given={"x": exact}).values
    assert feed["x"].dtype == np.float32
    np.testing.assert_array_equal(feed["x"], exact)
    for value in (0.1, 1e300):
        with pytest.raises(FeedError, match=r"x is float64 of values that its type does not hold, expected float32"):
            sample(relu([3]), given={"x": np.asarray([0.5, value, 1.0])})


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("missing.npz", "cannot be read: No such file or directory"),
        ("folder", "cannot be read: Is a directory"),
        ("text.npz", "not an .npz file"),
        ("empty.npz", "not an .npz file"),
        ("single.npy", "not an .npz file"),
        ("objects.npz", "x is no array of plain numbers or texts"),
        ("cut.npz", "a damaged .npz file"),
    ],
)
def test_a_file_that_is_no_feed_is_refused_in_our_words(name: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "single.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", x=np.asarray([{}], dtype=object))
    np.savez_compressed(tmp_path / "whole.npz", x=np.arange(300.0))
    data = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[:60] + bytes(20) + data[80:])
    with pytest.raises(FeedError) as caught:
        load_feed(tmp_path / name)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name}: {what}")
    assert message.endswith(", expected an .npz file of arrays by input name")
    assert "pickle" not in message


@pytest.mark.parametrize("nameless", ["?", "-1", "None"])
def test_dimensions_that_are_called_by_no_name_need_not_be_equal(nameless: str) -> None:
    model = from_text("g (float[1, 3, h, w] x) => (float[1, 3, i, j] y) { y = Relu(x) }")
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_param = nameless
    feeds = sample(load(model), shapes={"x": (1, 3, 48, 192)})
    assert feeds.values[0]["x"].shape == (1, 3, 48, 192)
    graph = lower(load(model)).graph
    (read,) = [kind for node, kind in zip(graph.nodes, graph.types, strict=True) if node.op == "Input"]
    height, width = read.shape[2:]
    assert height is None or height != width


@pytest.mark.parametrize("place", ["input", "initializer", "cast", "body"])
def test_a_model_computes_in_few_bits_wherever_these_stand(place: str) -> None:
    texts = {
        "input": "g (float16[2] x) => (float16[2] y) { y = Relu(x) }",
        "initializer": "g (float[2] x) => (float[2] y) <float16[2] h = {1, 2}> { y = Relu(x) }",
        "cast": "g (float[2] x) => (float[2] y) { h = Cast<to=10>(x) y = Cast<to=1>(h) }",
        "body": "g (float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] a) "
        "{ h = Cast<to=16>(x) a = Cast<to=1>(h) }, else_branch = e () => (float[2] b) { b = Relu(x) }> }",
    }
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>' + texts[place])
    assert computes_narrow(model)
    assert not computes_narrow(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>g (float[2] x) => (float[2] y) { y = Relu(x) }')
    )


@pytest.mark.parametrize("rows", [2**31, 2**40, 2**62])
def test_inputs_beyond_all_memory_are_not_made_up(rows: int) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{rows}, 4] x) => (float[{rows}, 4] y) {{ y = Relu(x) }}'
    )
    with pytest.raises(EvaluationError, match="numbers to make up"):
        sample(load(model))
    assert superopt.optimize(model).report["verified"]


@pytest.mark.parametrize(
    ("symbols", "sizes", "derived"),
    [
        (["past", "seq", "past + seq"], {"past": 3, "seq": 2}, {"past + seq": 5}),
        (["n", "2*n", "n//3", "n-20"], {"n": 10}, {"2*n": 20, "n//3": 3, "n-20": 0}),
        (["past_len", "seq_len", "total_len"], {"past_len": 7, "seq_len": 1}, {"total_len": 8}),
        (["past_seq", "past_seq + 1"], {"past_seq": 0}, {"past_seq + 1": 1}),
        (["a+b", "a"], {"a": 1, "a+b": 4}, {}),
        (["n", "n**n", "f(n)", "n.m+1", "-n"], {"n": 2}, {}),
        (["total", "seq", "past_a", "past_b"], {"seq": 1}, {}),
    ],
)  # fmt: skip
def test_symbols_that_follow_from_others(symbols: list[str], sizes: dict[str, int], derived: dict[str, int]) -> None:
    assert with_derived(sizes, symbols) == {**sizes, **derived}


def test_images_in_which_every_pixel_attends_to_every_other_are_small() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["f"]),
        helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "f"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1),
    ]
    model = model_of(nodes, {"x": (FLOAT, [1, 3, "height", "width"])}, {"s": np.asarray([1, 3, -1])})
    feeds = sample(model).feeds
    assert [feed.dims["height"] for feed in feeds] == [64, 32, 64]
    # Where nothing smaller runs, what is large is run.
    nodes = [helper.make_node("MatMul", ["t", "x"], ["y"])]
    large = model_of(nodes, {"t": (FLOAT, ["n", 6000, 1]), "x": (FLOAT, [1, 1, 6000])})
    assert sample(large).feeds[0].dims == {"n": 1}


@pytest.mark.parametrize("symbol", ["past_length + 1", "what_is_seen"])
def test_a_decoder_is_given_as_many_steps_as_its_mask_counts(symbol: str) -> None:
    mask, ids, past = "attention_mask", "ids", "past"
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Cast", [ids], ["new"], to=TensorProto.FLOAT),
                helper.make_node("Concat", [past, "new"], ["all"], axis=1),
                helper.make_node("Add", ["all", mask], ["y"]),
            ],
            "decoder",
            [
                helper.make_tensor_value_info(ids, TensorProto.INT64, ["batch", "new_length"]),
                helper.make_tensor_value_info(mask, TensorProto.FLOAT, ["batch", symbol]),
                helper.make_tensor_value_info(past, TensorProto.FLOAT, ["batch", "past_length"]),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", symbol])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    found = sample(load(model))
    assert len(found.feeds) == 3
    for feed in found.feeds:
        assert feed.dims[symbol] == feed.dims["past_length"] + feed.dims["new_length"]
    assert len({feed.dims["past_length"] for feed in found.feeds}) > 1


def test_a_loop_that_never_ends_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superopt.inputs.sample._LONGEST_LOOP", 0.5)
    body = onnx.parser.parse_graph(
        "body (int64 i, bool go, float s) => (bool on, float t) { t = Tanh (s)  two = Constant <value = float {2.0}> ()"
        " on = Less (t, two) }"
    )
    nodes = [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)]
    model = model_of(nodes, {"x": (FLOAT, [])}, {"yes": np.array(True)})
    with pytest.raises(EvaluationError, match=TOO_LONG):
        sample(model)
    result = superopt.optimize(model.proto, select="modelled")
    assert result.model.SerializeToString() == model.proto.SerializeToString()


def test_an_attention_whose_scores_no_value_shows_is_tried_apart() -> None:
    nodes = [helper.make_node("Attention", ["x", "x", "x"], ["y"], q_num_heads=1, kv_num_heads=1)]
    assert not extent_of(model_of(nodes, {"x": (FLOAT, [1, 9, 4])}).proto, {"x": (1, 9, 4)}).complete
