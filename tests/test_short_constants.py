"""Where a model may not grow, a large constant that a rule writes shortly is left for the runtime to unfold."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import superopt
from tests.models import from_text, run

FRAME = 128


def spectrum(length: int = FRAME) -> onnx.ModelProto:
    """A windowed Fourier transform and a product that makes up most of the model's bytes."""
    window = np.hanning(length).astype(np.float32)
    random = np.random.default_rng(0)
    product = random.standard_normal((length // 2 + 1, 80)).astype(np.float32)
    return from_text(
        """g (float[batch, samples] x) => (float[batch, frames, 80] y) {
            step = Constant<value = int64 {16}>()
            f = STFT(x, step, window)
            s = ReduceSumSquare<axes = [-1], keepdims = 0>(f)
            y = MatMul(s, w)
        }""",
        {"window": window, "w": product},
    )


@pytest.mark.parametrize("length", [FRAME, 90])
def test_the_fourier_matrix_is_unfolded_by_the_runtime_where_it_may_not_be_stored(length: int) -> None:
    model = spectrum(length)
    result = superopt.optimize(model, select="modelled", max_growth=0.1)
    report, stored = result.report, result.model
    assert report["verified"]
    assert report["rules_used"].count("stft-as-conv") == 1
    (conv,) = [node for node in stored.graph.node if node.op_type == "Conv"]
    assert conv.input[1] not in {tensor.name for tensor in stored.graph.initializer}
    matrix = 2 * (length // 2 + 1) * length * 4
    assert stored.ByteSize() < model.ByteSize() + matrix / 10
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 1600)).astype(np.float32)}
    (expected,), (found,) = run(model, inputs).values(), run(stored, inputs).values()
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_it_is_stored_where_the_model_may_grow() -> None:
    stored = superopt.optimize(spectrum(), select="modelled", max_growth="none").model
    (conv,) = [node for node in stored.graph.node if node.op_type == "Conv"]
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in stored.graph.initializer}
    assert weights[conv.input[1]].shape == (2 * (FRAME // 2 + 1), 1, FRAME)


def test_constants_of_the_model_itself_are_not_written_out_in_operators() -> None:
    """A folded BatchNormalization takes as many bytes as the weight that it went into: nothing is saved by not
    folding it, however dear bytes are."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((16, 8, 3, 3)).astype(np.float32),
        **{name: random.uniform(0.5, 1.5, 16).astype(np.float32) for name in ("scale", "shift", "mean", "var")},
    }
    model = from_text(
        """g (float[1, 8, 8, 8] x) => (float[1, 16, 6, 6] y) {
            c = Conv(x, w)
            y = BatchNormalization(c, scale, shift, mean, var)
        }""",
        weights,
    )
    stored = superopt.optimize(model, select="modelled", max_growth=0).model
    assert [node.op_type for node in stored.graph.node] == ["Conv"]
