"""Networks that are trained with parallel branches and shipped with one convolution in their place.

``form="train"`` builds the branches, ``form="plain"`` the same function with the branches merged by hand in float64, so
the two are both a workload and an answer to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from benchmarks.network import FULL, Array, ConvNorm, Network, Norm, Size, Value


def merged(branches: Sequence[ConvNorm], identity: Norm | None) -> tuple[Array, Array]:
    """The weight and bias of the one convolution that equals the sum of the branches, in float64.

    Kernels are odd and centred; the identity branch is a BatchNormalization alone. RepVGG (arXiv 2101.03697), 3.3.
    """
    largest = max((branch.weight for branch in branches), key=lambda weight: weight.shape[-1])
    out, per_group, _, kernel = largest.shape
    total = np.zeros((out, per_group, kernel, kernel))
    bias = np.zeros(out)
    centre = kernel // 2
    for branch in branches:
        reach = branch.weight.shape[-1] // 2
        inside = slice(centre - reach, centre + reach + 1)
        scale, shift = branch.norm.affine()
        total[:, :, inside, inside] += branch.weight * scale[:, None, None, None]
        bias += shift
    if identity is not None:
        scale, shift = identity.affine()
        rows = np.arange(out)
        total[rows, rows % per_group, centre, centre] += scale
        bias += shift
    return total.astype(np.float32), bias.astype(np.float32)


def branched(
    network: Network, x: Value, branches: Sequence[ConvNorm], identity: Norm | None, form: str, *, act: str = "Relu"
) -> Value:
    """The activated sum of the branches and, if there is one, of the normalized input."""
    if form == "plain":
        weight, bias = merged(branches, identity)
        first = branches[0]
        total = network.conv(
            x,
            weight.shape[0],
            weight.shape[2],
            stride=first.stride,
            groups=first.groups,
            weight=weight,
            bias_values=bias,
        )
    else:
        parts = [network.batch_norm(x, identity)] if identity is not None else []
        total = network.add(*parts, *(network.conv_norm(x, branch) for branch in branches))
    return network.activation(total, act) if act else total


def mobileone_block(
    network: Network,
    x: Value,
    out: int,
    kernel: int,
    form: str,
    *,
    stride: int = 1,
    groups: int = 1,
    branches: int = 4,
    act: str = "Relu",
) -> Value:
    """MobileOne (arXiv 2206.04040), figure 3: k convolutions, a 1x1 beside 3x3 ones, a skip where shapes allow."""
    identity = network.norm_parameters(out) if out == x.channels and stride == 1 else None
    kernels = [1] * (kernel > 1) + [kernel] * branches
    parts = [network.conv_norm_parameters(x, out, size, stride=stride, groups=groups) for size in kernels]
    return branched(network, x, parts, identity, form, act=act)


def mobileone_s0(
    *, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1, form: str = "train"
) -> onnx.ModelProto:
    """MobileOne-S0: stages of depthwise 3x3 and pointwise 1x1 blocks, four convolution branches each."""

    def body(network: Network, x: Value, form: str) -> Value:
        x = mobileone_block(network, x, size.channels(48), 3, form, stride=2, branches=1)
        for out, repeats in ((48, 2), (128, 8), (256, 10), (1024, 1)):
            for index in range(size.repeats(repeats)):
                stride = 2 if index == 0 else 1
                x = mobileone_block(network, x, x.channels, 3, form, stride=stride, groups=x.channels)
                x = mobileone_block(network, x, size.channels(out), 1, form)
        return x

    return _in_form(form, "mobileone-s0", body, opset, seed, size, batch)


def repvgg_a0(
    *, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1, form: str = "train"
) -> onnx.ModelProto:
    """RepVGG-A0 (arXiv 2101.03697): dense 3x3, 1x1 and identity branches."""

    def body(network: Network, x: Value, form: str) -> Value:
        for out, repeats in ((48, 1), (48, 2), (96, 4), (192, 14), (1280, 1)):
            for index in range(size.repeats(repeats)):
                stride = 2 if index == 0 else 1
                x = mobileone_block(network, x, size.channels(out), 3, form, stride=stride, branches=1)
        return x

    return _in_form(form, "repvgg-a0", body, opset, seed, size, batch)


def _in_form(
    form: str,
    name: str,
    body: Callable[[Network, Value, str], Value],
    opset: int,
    seed: int,
    size: Size,
    batch: int | str,
) -> onnx.ModelProto:
    """A classifier with this body; the plain form takes the statistics that the training form measures."""

    def built(network: Network, form: str) -> onnx.ModelProto:
        x = network.input("input", (batch, 3, size.image, size.image))
        network.output(network.classifier(body(network, x, form), size.classes), "scores")
        return network.model()

    network = Network(f"{name}-train", opset=opset, seed=seed)
    model = built(network, "train")
    if form == "train":
        return model
    return built(Network(f"{name}-plain", opset=opset, seed=seed, statistics=network.statistics), "plain")


def fastvit_like(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """FastViT (arXiv 2303.14189) in training form: RepMixer blocks with layer scale, a large-kernel embedding."""
    network = Network("fastvit-like", opset=opset, seed=seed)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = mobileone_block(network, x, size.channels(48), 3, "train", stride=2, branches=1, act="Gelu")
    x = mobileone_block(network, x, x.channels, 3, "train", stride=2, groups=x.channels, branches=1, act="Gelu")
    for stage, (out, repeats) in enumerate(((48, 2), (96, 2), (192, 4))):
        if stage:
            x = large_kernel_embedding(network, x, size.channels(out))
        for _ in range(size.repeats(repeats)):
            x = repmixer(network, x)
            x = conv_ffn(network, x)
    network.output(network.classifier(x, size.classes), "scores")
    return network.model()


def large_kernel_embedding(network: Network, x: Value, out: int) -> Value:
    """Depthwise 7x7 and 3x3 branches of stride 2, then a pointwise block."""
    groups = x.channels
    parts = [network.conv_norm_parameters(x, groups, kernel, stride=2, groups=groups) for kernel in (7, 3)]
    x = branched(network, x, parts, None, "train", act="Gelu")
    return mobileone_block(network, x, out, 1, "train", branches=1, act="Gelu")


def repmixer(network: Network, x: Value) -> Value:
    """x + layer_scale * (mixer(x) - norm(x)): all linear, one depthwise convolution in the end."""
    mixed = mobileone_block(network, x, x.channels, 3, "train", groups=x.channels, branches=1, act="")
    normed = network.batch_norm(x)
    change = network.node("Sub", [mixed, normed], x.shape)
    return network.add(x, layer_scale(network, change))


def layer_scale(network: Network, x: Value) -> Value:
    values = network.random.uniform(0.1, 0.5, (x.channels, 1, 1)).astype(np.float32)
    return network.node("Mul", [network.parameter(values, "layer_scale"), x], x.shape)


def conv_ffn(network: Network, x: Value) -> Value:
    """A depthwise 7x7 with BatchNormalization, then two pointwise convolutions around GELU, scaled and added."""
    inner = network.conv_bn(x, x.channels, 7, groups=x.channels, act="")
    inner = network.activation(network.conv(inner, x.channels * 3, 1, bias=True), "Gelu")
    return network.add(x, layer_scale(network, network.conv(inner, x.channels, 1, bias=True)))


def repghost_like(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """RepGhost (arXiv 2211.06088) in training form: a depthwise branch and a bare BatchNormalization, added."""
    network = Network("repghost-like", opset=opset, seed=seed)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = network.conv_bn(x, size.channels(16), 3, stride=2)
    for middle, out, stride in ((8, 16, 1), (24, 24, 2), (36, 24, 1), (36, 40, 2), (60, 40, 1), (120, 80, 2)):
        shortcut = x
        x = repghost_module(network, x, size.channels(middle), act="Relu")
        if stride == 2:
            x = network.conv_bn(x, x.channels, 3, stride=2, groups=x.channels, act="")
        x = repghost_module(network, x, size.channels(out), act="")
        if stride == 2 or shortcut.channels != x.channels:
            shortcut = network.conv_bn(shortcut, shortcut.channels, 3, stride=stride, groups=shortcut.channels, act="")
            shortcut = network.conv_bn(shortcut, x.channels, 1, act="")
        x = network.add(x, shortcut)
    network.output(network.classifier(x, size.classes), "scores")
    return network.model()


def repghost_module(network: Network, x: Value, out: int, *, act: str) -> Value:
    primary = network.conv_bn(x, out, 1, act=act)
    parts = [network.conv_norm_parameters(primary, out, 3, groups=out)]
    return branched(network, primary, parts, network.norm_parameters(out), "train", act=act)
