"""Made-up models with seeded weights, in the shape of networks that people ship.

python -m benchmarks.models NAME OUT.onnx [--opset 17] [--seed 0] [--tiny]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks import classifiers, detectors, inception, reparameterized, taso_networks, transformers
from benchmarks.network import FULL, TINY, Network, Size, Value

BUILDERS: dict[str, Callable[..., onnx.ModelProto]] = {
    "mobileone-s0": reparameterized.mobileone_s0,
    "mobileone-s0-plain": partial(reparameterized.mobileone_s0, form="plain"),
    "repvgg-a0": reparameterized.repvgg_a0,
    "repvgg-a0-plain": partial(reparameterized.repvgg_a0, form="plain"),
    "fastvit-like": reparameterized.fastvit_like,
    "repghost-like": reparameterized.repghost_like,
    "resnet50": classifiers.resnet50,
    "resnext50": classifiers.resnext50,
    "densenet121": classifiers.densenet121,
    "inception-v3": inception.inception_v3,
    "squeezenet": classifiers.squeezenet,
    "mobilenet-v3-small": classifiers.mobilenet_v3_small,
    "convnext-atto": classifiers.convnext_atto,
    "efficientnet-lite": classifiers.efficientnet_lite,
    "tiny-yolo": detectors.tiny_yolo,
    "ssd": detectors.ssd,
    "ssd-unshared": partial(detectors.ssd, shared=False),
    "bert": transformers.bert,
    "bert-lora": partial(transformers.bert, lora=8),
    "vit-tiny": transformers.vit_tiny,
    "nasnet-a": taso_networks.nasnet_a,
    "nasrnn": taso_networks.nasrnn,
    "taso-bert": taso_networks.taso_bert,
    "vgg19": taso_networks.vgg19,
}


def build(name: str, *, opset: int = 17, seed: int = 0, size: Size = FULL) -> onnx.ModelProto:
    """The model of this name in ``BUILDERS``; raises KeyError for another name."""
    return BUILDERS[name](opset=opset, seed=seed, size=size)


def deep(nodes: int, *, opset: int = 17, seed: int = 0, channels: int = 8, image: int = 8) -> onnx.ModelProto:
    """A made-up network of about ``nodes`` nodes with small tensors: what the optimizer's own time is measured on.

    Units in turn: a residual block, branches to merge, a per-channel affine, a pair of transposes, and branches that
    are concatenated; each has weights of its own. After every ten, a tenth of the result is added to the stem's:
    without that, a rounding error would outgrow the signal within a thousand layers and no result could be verified.
    """
    network = Network(f"deep-{nodes}", opset=opset, seed=seed)
    stem = x = network.conv_bn(network.input("input", (1, channels, image, image)), channels, 3)
    units = (_residual_unit, _branched_unit, _affine_unit, _transposed_unit, _concatenated_unit)
    for index in itertools.count():
        x = units[index % len(units)](network, x)
        if index % 10 == 9:
            x = network.add(stem, network.node("Mul", [x, network.scalar(0.1)], x.shape))
        if network.size >= nodes - 1:
            break
    network.output(network.activation(x, "Relu"), "output")
    return network.model()


def _residual_unit(network: Network, x: Value) -> Value:
    inner = network.conv_bn(network.conv_bn(x, x.channels, 3), x.channels, 3, act="")
    return network.activation(network.add(inner, x), "Relu")


def _branched_unit(network: Network, x: Value) -> Value:
    parts = [network.conv_norm_parameters(x, x.channels, kernel) for kernel in (3, 1)]
    return reparameterized.branched(network, x, parts, network.norm_parameters(x.channels), "train")


def _affine_unit(network: Network, x: Value) -> Value:
    x = network.conv(x, x.channels, 1, bias=True)
    for op in ("Mul", "Add"):
        values = network.random.uniform(0.8, 1.2, (x.channels, 1, 1)).astype(np.float32)
        x = network.node(op, [x, network.parameter(values, "affine")], x.shape)
    return network.activation(network.batch_norm(x), "Relu")


def _transposed_unit(network: Network, x: Value) -> Value:
    turned = network.activation(network.transpose(x, (0, 2, 3, 1)), "Relu")
    return network.batch_norm(network.transpose(turned, (0, 3, 1, 2)))


def _concatenated_unit(network: Network, x: Value) -> Value:
    return network.concat([network.conv_bn(x, x.channels // 2, kernel) for kernel in (1, 3)])


def parameters_as_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with every initializer made a Constant node, as some exporters write it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    constants = [
        onnx.helper.make_node("Constant", [], [tensor.name], f"{tensor.name}_constant", value=tensor)
        for tensor in model.graph.initializer
    ]
    nodes = [*constants, *model.graph.node]
    del made.graph.node[:], made.graph.initializer[:]
    made.graph.node.extend(nodes)
    return made


def parameters_as_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with every initializer listed as a graph input too, as files of IR version 3 had to."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.ir_version = 3
    for tensor in model.graph.initializer:
        dims = list(numpy_helper.to_array(tensor).shape)
        made.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, dims))
    return made


def main() -> None:
    """Write one model to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=main.__doc__)
    parser.add_argument("name", help=f"one of {', '.join(BUILDERS)}, or deep-N for N nodes")
    parser.add_argument("path", type=Path, metavar="OUT.onnx")
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="few channels, few layers, a small image")
    given = parser.parse_args()
    if given.name.startswith("deep-") and given.name[5:].isdecimal():
        model = deep(int(given.name[5:]), opset=given.opset, seed=given.seed)
    elif given.name in BUILDERS:
        model = build(given.name, opset=given.opset, seed=given.seed, size=TINY if given.tiny else FULL)
    else:
        parser.error(f"there is no model called {given.name}")
    onnx.save(model, given.path)
    print(f"{given.path}: {len(model.graph.node)} nodes, {given.path.stat().st_size / 1e6:.1f} MB, opset {given.opset}")


if __name__ == "__main__":
    main()
