"""Transformers as PyTorch exports them: separate or joined projections, shapes computed at run time where dynamic."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.network import FULL, Network, Size, Value


def bert(
    *,
    opset: int = 17,
    seed: int = 0,
    size: Size = FULL,
    batch: int | str = "batch",
    words: int | str = "sequence",
    lora: int = 0,
) -> onnx.ModelProto:
    """A BERT-like text classifier (arXiv 1810.04805) that reads its first token: queries, keys and values apart, batch
    and length dynamic.

    ``lora`` is the rank of the adapters of queries and values (arXiv 2106.09685), which are not merged; 0 for none.
    """
    network = Network("bert-lora" if lora else "bert", opset=opset, seed=seed)
    wide, heads = size.channels(256), 4
    vocabulary = 4000 if size.width == 1.0 else 100
    ids = network.input("input_ids", (batch, words), TensorProto.INT64)
    mask = network.input("attention_mask", (batch, words), TensorProto.INT64)
    table = network.random.normal(0.0, 1.0, (vocabulary, wide)).astype(np.float32)
    x = network.node("Gather", [network.parameter(table, "embeddings"), ids], (batch, words, wide), axis=0)
    x = network.layer_norm(x)
    bias = _mask_bias(network, mask)
    for _ in range(size.repeats(6)):
        ranks = (lora, 0, lora)
        projected = [_heads(network, _adapted(network, x, wide, rank), heads) for rank in ranks]
        x = network.layer_norm(network.add(network.linear(_attention(network, projected, heads, bias), wide), x))
        hidden = network.gelu(network.linear(x, 4 * wide))
        x = network.layer_norm(network.add(network.linear(hidden, wide), x))
    zero = network.parameter(np.array(0, np.int64), "first")
    first = network.node("Gather", [x, zero], (batch, wide), axis=1)
    pooled = network.node("Tanh", [network.linear(first, wide)], (batch, wide))
    network.output(network.linear(pooled, min(size.classes, 8), gain=4.0), "logits")
    return network.model()


def _adapted(network: Network, x: Value, out: int, rank: int) -> Value:
    """A linear layer, and beside it the product of two thin ones, scaled by alpha / rank = 2."""
    plain = network.linear(x, out)
    if not rank:
        return plain
    down = network.parameter(network.weight((x.dim(-1), rank), x.dim(-1)), "lora_a")
    up = network.parameter(network.weight((rank, out), rank, gain=0.01), "lora_b")
    thin = network.node("MatMul", [x, down], (*x.shape[:-1], rank))
    wide = network.node("MatMul", [thin, up], plain.shape)
    return network.add(plain, network.node("Mul", [wide, network.scalar(2.0)], plain.shape))


def _mask_bias(network: Network, mask: Value) -> Value:
    """0 where the mask is 1, a large negative number where it is 0, as [batch, 1, 1, words]."""
    batch, words = mask.shape
    shape = (batch, 1, 1, words)
    if network.opset < 13:
        wide = network.node("Unsqueeze", [mask], shape, axes=[1, 2])
    else:
        axes = network.parameter(np.array([1, 2], np.int64), "axes")
        wide = network.node("Unsqueeze", [mask, axes], shape)
    real = network.node("Cast", [wide], shape, to=TensorProto.FLOAT)
    inverted = network.node("Sub", [network.scalar(1.0), real], shape)
    return network.node("Mul", [inverted, network.scalar(-10000.0)], shape)


def _heads(network: Network, x: Value, heads: int) -> Value:
    """[batch, words, wide] -> [batch, heads, words, wide / heads]."""
    batch, words, wide = x.shape[0], x.shape[1], x.dim(2)
    split = network.reshape(x, (0, 0, heads, wide // heads), (batch, words, heads, wide // heads))
    return network.transpose(split, (0, 2, 1, 3))


def _attention(network: Network, projected: list[Value], heads: int, bias: Value | None) -> Value:
    """softmax(q k' / sqrt(d) + bias) v, heads joined again."""
    query, key, value = projected
    batch, _, words, wide = value.shape
    each = value.dim(3)
    scores_shape = (batch, heads, words, words)
    turned = network.transpose(key, (0, 1, 3, 2))
    scores = network.node("MatMul", [query, turned], scores_shape)
    scores = network.node("Div", [scores, network.scalar(math.sqrt(each))], scores_shape)
    if bias is not None:
        scores = network.node("Add", [scores, bias], scores_shape)
    weights = network.node("Softmax", [scores], scores_shape, axis=-1 if network.opset >= 11 else 3)
    mixed = network.node("MatMul", [weights, value], (batch, heads, words, wide))
    mixed = network.transpose(mixed, (0, 2, 1, 3))
    return network.reshape(mixed, (0, 0, heads * each), (batch, words, heads * each))


def vit_tiny(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int = 1) -> onnx.ModelProto:
    """ViT-tiny (arXiv 2010.11929) with 16x16 patches: queries, keys and values from one product."""
    network = Network("vit-tiny", opset=opset, seed=seed)
    wide, heads = (192, 3) if size.width == 1.0 else (32, 2)
    image = network.input("input", (batch, 3, size.image, size.image))
    patches = network.conv(image, wide, 16, stride=16, pad=0, bias=True)
    count = patches.dim(2) * patches.dim(3)
    x = network.reshape(patches, (batch, wide, count), (batch, wide, count))
    x = network.transpose(x, (0, 2, 1))
    token = network.random.normal(0.0, 0.5, (batch, 1, wide)).astype(np.float32)
    start = Value(network.parameter(token, "class_token"), (batch, 1, wide))
    x = network.concat([start, x], axis=1)
    position = network.random.normal(0.0, 0.5, (1, count + 1, wide)).astype(np.float32)
    x = network.node("Add", [x, network.parameter(position, "position")], x.shape)
    for _ in range(size.repeats(12)):
        joined = network.linear(network.layer_norm(x), 3 * wide)
        five = (batch, count + 1, 3, heads, wide // heads)
        turned = network.transpose(network.reshape(joined, five, five), (2, 0, 3, 1, 4))
        projected = []
        for index in range(3):
            at = network.parameter(np.array(index, np.int64), "index")
            projected.append(network.node("Gather", [turned, at], turned.shape[1:], axis=0))
        x = network.add(x, network.linear(_attention(network, projected, heads, None), wide))
        hidden = network.gelu(network.linear(network.layer_norm(x), 4 * wide))
        x = network.add(x, network.linear(hidden, wide))
    at = network.parameter(np.array(0, np.int64), "index")
    first = network.node("Gather", [network.layer_norm(x), at], (batch, wide), axis=1)
    network.output(network.linear(first, size.classes, gain=4.0), "scores")
    return network.model()
