"""Image classifiers as exporters write them: convolutions without bias, BatchNormalization apart."""

from __future__ import annotations

import onnx

from benchmarks.network import FULL, Network, Size, Value
from benchmarks.reparameterized import layer_scale


def resnet50(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """ResNet-50 (arXiv 1512.03385), stride in the 3x3 convolutions."""
    return _residual("resnet50", opset, seed, size, batch, groups=1, expansion=4)


def resnext50(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """ResNeXt-50 32x4d (arXiv 1611.05431): 32 groups in every 3x3 convolution, 4 when it is made smaller."""
    return _residual("resnext50", opset, seed, size, batch, groups=32 if size.width == 1.0 else 4, expansion=2)


def _residual(
    name: str, opset: int, seed: int, size: Size, batch: int | str, *, groups: int, expansion: int
) -> onnx.ModelProto:
    network = Network(name, opset=opset, seed=seed)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = network.conv_bn(x, size.channels(64), 7, stride=2)
    x = network.pool("MaxPool", x, 3, 2, (1, 1, 1, 1))
    for stage, repeats in enumerate((3, 4, 6, 3)):
        out = size.channels(256 * 2**stage)
        for index in range(size.repeats(repeats)):
            stride = 2 if stage and index == 0 else 1
            shortcut = network.conv_bn(x, out, 1, stride=stride, act="") if index == 0 else x
            inner = network.conv_bn(x, out // expansion, 1)
            inner = network.conv_bn(inner, inner.channels, 3, stride=stride, groups=groups)
            inner = network.conv_bn(inner, out, 1, act="")
            x = network.activation(network.add(inner, shortcut), "Relu")
    network.output(network.classifier(x, size.classes), "scores")
    return network.model()


def densenet121(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """DenseNet-121 (arXiv 1608.06993): BatchNormalization and Relu before each convolution, everything concatenated."""
    network = Network("densenet121", opset=opset, seed=seed)
    growth = size.channels(32)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = network.conv_bn(x, size.channels(64), 7, stride=2)
    x = network.pool("MaxPool", x, 3, 2, (1, 1, 1, 1))
    for stage, repeats in enumerate((6, 12, 24, 16)):
        if stage:
            x = network.conv(_normed(network, x), x.channels // 2, 1)
            x = network.pool("AveragePool", x, 2, 2) if x.dim(2) > 1 else x
        for _ in range(size.repeats(repeats)):
            new = network.conv(_normed(network, x), 4 * growth, 1)
            new = network.conv(_normed(network, new), growth, 3)
            x = network.concat([x, new])
    network.output(network.classifier(_normed(network, x), size.classes), "scores")
    return network.model()


def _normed(network: Network, x: Value) -> Value:
    return network.activation(network.batch_norm(x), "Relu")


def squeezenet(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """SqueezeNet 1.1 (arXiv 1602.07360): two convolutions of one input, concatenated."""
    network = Network("squeezenet", opset=opset, seed=seed)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = network.activation(network.conv(x, size.channels(64), 3, stride=2, pad=0, bias=True), "Relu")
    for index, (squeeze, expand) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if index in (0, 2, 4):
            x = network.pool("MaxPool", x, 3, 2) if x.dim(2) > 2 else x
        inner = network.activation(network.conv(x, size.channels(squeeze), 1, bias=True), "Relu")
        out = size.channels(expand)
        sides = [network.activation(network.conv(inner, out, kernel, bias=True), "Relu") for kernel in (1, 3)]
        x = network.concat(sides)
    x = network.activation(network.conv(x, size.classes, 1, bias=True), "Relu")
    flat = network.node("Flatten", [network.global_pool(x)], x.shape[:2], axis=1)
    network.output(network.node("Softmax", [flat], flat.shape, axis=1), "probabilities")
    return network.model()


def mobilenet_v3_small(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """MobileNetV3-small (arXiv 1905.02244): hard swish and squeeze-and-excitation."""
    network = Network("mobilenet-v3-small", opset=opset, seed=seed)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = network.conv_bn(x, size.channels(16), 3, stride=2, act="HardSwish")
    for kernel, middle, out, gated, act, stride in (
        (3, 16, 16, True, "Relu", 2),
        (3, 72, 24, False, "Relu", 2),
        (3, 88, 24, False, "Relu", 1),
        (5, 96, 40, True, "HardSwish", 2),
        (5, 240, 40, True, "HardSwish", 1),
        (5, 240, 40, True, "HardSwish", 1),
        (5, 120, 48, True, "HardSwish", 1),
        (5, 144, 48, True, "HardSwish", 1),
        (5, 288, 96, True, "HardSwish", 2),
        (5, 576, 96, True, "HardSwish", 1),
        (5, 576, 96, True, "HardSwish", 1),
    ):
        x = inverted_residual(
            network, x, size.channels(middle), size.channels(out), kernel, stride, act=act, gated=gated
        )
    x = network.conv_bn(x, size.channels(576), 1, act="HardSwish")
    flat = network.node("Flatten", [network.global_pool(x)], x.shape[:2], axis=1)
    hidden = network.activation(network.linear(flat, size.channels(1024)), "HardSwish")
    network.output(network.linear(hidden, size.classes, gain=4.0), "scores")
    return network.model()


def convnext_atto(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """ConvNeXt (arXiv 2201.03545) at the size that timm calls atto: two pointwise convolutions in each block, and
    LayerNormalization over the channels between two Transposes."""
    network = Network("convnext-atto", opset=opset, seed=seed)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = _norm_of_channels(network, network.conv(x, size.channels(40), 4, stride=4, pad=0, bias=True))
    for stage, (out, repeats) in enumerate(((40, 2), (80, 2), (160, 6), (320, 2))):
        if stage:
            x = network.conv(_norm_of_channels(network, x), size.channels(out), 2, stride=2, pad=0, bias=True)
        for _ in range(size.repeats(repeats)):
            inner = _norm_of_channels(network, network.conv(x, x.channels, 7, groups=x.channels, bias=True))
            inner = network.activation(network.conv(inner, 4 * x.channels, 1, bias=True), "Gelu")
            x = network.add(layer_scale(network, network.conv(inner, x.channels, 1, bias=True)), x)
    flat = network.node("Flatten", [network.global_pool(x)], x.shape[:2], axis=1)
    network.output(network.linear(network.layer_norm(flat), size.classes, gain=4.0), "scores")
    return network.model()


def _norm_of_channels(network: Network, x: Value) -> Value:
    return network.transpose(network.layer_norm(network.transpose(x, (0, 2, 3, 1))), (0, 3, 1, 2))


def efficientnet_lite(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int | str = 1) -> onnx.ModelProto:
    """EfficientNet-Lite0 in kind: inverted residuals with Relu6 and without squeeze-and-excitation."""
    network = Network("efficientnet-lite", opset=opset, seed=seed)
    x = network.input("input", (batch, 3, size.image, size.image))
    x = network.conv_bn(x, size.channels(32), 3, stride=2, act="Relu6")
    for kernel, expand, out, repeats, stride in (
        (3, 1, 16, 1, 1),
        (3, 6, 24, 2, 2),
        (5, 6, 40, 2, 2),
        (3, 6, 80, 3, 2),
        (5, 6, 112, 3, 1),
        (5, 6, 192, 4, 2),
        (3, 6, 320, 1, 1),
    ):
        for index in range(size.repeats(repeats)):
            x = inverted_residual(
                network, x, expand * x.channels, size.channels(out), kernel, stride if index == 0 else 1, act="Relu6"
            )
    x = network.conv_bn(x, size.channels(1280), 1, act="Relu6")
    network.output(network.classifier(x, size.classes), "scores")
    return network.model()


def inverted_residual(
    network: Network, x: Value, middle: int, out: int, kernel: int, stride: int, *, act: str, gated: bool = False
) -> Value:
    """Expand by 1x1, depthwise, perhaps a gate, project by 1x1; added to the input where shapes allow."""
    inner = network.conv_bn(x, middle, 1, act=act) if middle != x.channels else x
    inner = network.conv_bn(inner, middle, kernel, stride=stride, groups=middle, act=act)
    if gated:
        inner = _squeeze_and_excite(network, inner)
    projected = network.conv_bn(inner, out, 1, act="")
    return network.add(projected, x) if stride == 1 and out == x.channels else projected


def _squeeze_and_excite(network: Network, x: Value) -> Value:
    gate = network.activation(network.conv(network.global_pool(x), max(8, x.channels // 4), 1, bias=True), "Relu")
    gate = network.conv(gate, x.channels, 1, bias=True)
    return network.node("Mul", [x, network.hard_sigmoid(gate)], x.shape)
