"""Object detectors in kind: several scales, heads that share weights, boxes decoded by constants."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.classifiers import inverted_residual
from benchmarks.network import FULL, Network, Size, Value


def tiny_yolo(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int = 1) -> onnx.ModelProto:
    """Tiny-YOLOv3 in kind (arXiv 1804.02767): LeakyRelu, pools, a route with upsampling, two heads of boxes."""
    network = Network("tiny-yolo", opset=opset, seed=seed)
    image = max(64, size.image // 32 * 32)
    x = network.input("image", (batch, 3, image, image))
    route = x
    for index, out in enumerate((16, 32, 64, 128, 256, 512)):
        x = network.conv_bn(x, size.channels(out), 3, act="LeakyRelu")
        if out == 256:
            route = x
        x = network.pool("MaxPool", x, 2, 2) if index < 5 else network.pool("MaxPool", x, 2, 1, (0, 0, 1, 1))
    x = network.conv_bn(x, size.channels(1024), 3, act="LeakyRelu")
    x = network.conv_bn(x, size.channels(256), 1, act="LeakyRelu")
    coarse = network.conv_bn(x, size.channels(512), 3, act="LeakyRelu")
    lateral = network.conv_bn(x, size.channels(128), 1, act="LeakyRelu")
    fine = network.concat([upsample(network, lateral), route])
    fine = network.conv_bn(fine, size.channels(256), 3, act="LeakyRelu")
    for name, level in (("coarse", coarse), ("fine", fine)):
        boxes, scores = _yolo_head(network, level, min(size.classes, 80))
        network.output(boxes, f"{name}_boxes")
        network.output(scores, f"{name}_scores")
    return network.model()


def upsample(network: Network, x: Value) -> Value:
    """Twice as high and wide, nearest, as the opset writes it."""
    shape = (*x.shape[:2], x.dim(2) * 2, x.dim(3) * 2)
    if network.opset < 9:
        return network.node("Upsample", [x], shape, mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])
    scales = network.parameter(np.array([1, 1, 2, 2], np.float32), "scales")
    if network.opset < 10:
        return network.node("Upsample", [x, scales], shape, mode="nearest")
    if network.opset == 10:
        return network.node("Resize", [x, scales], shape, mode="nearest")
    roi = network.parameter(np.zeros(0, np.float32), "roi") if network.opset < 13 else ""
    return network.node(
        "Resize",
        [x, roi, scales],
        shape,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _yolo_head(network: Network, x: Value, classes: int) -> tuple[Value, Value]:
    """Three anchors a cell: centres by Sigmoid plus the grid, sizes by Exp times the anchor, scores by Sigmoid."""
    anchors, fields = 3, 5 + classes
    raw = network.conv(x, anchors * fields, 1, bias=True)
    batch, high, wide = raw.dim(0), raw.dim(2), raw.dim(3)
    raw = network.reshape(raw, (batch, anchors, fields, high, wide), (batch, anchors, fields, high, wide))
    raw = network.transpose(raw, (0, 1, 3, 4, 2))
    parts = split(network, raw, (2, 2, 1 + classes))
    grid = np.stack(np.meshgrid(np.arange(wide), np.arange(high)), -1).astype(np.float32)[None, None]
    centre = network.node("Sigmoid", [parts[0]], parts[0].shape)
    centre = network.node("Add", [centre, network.parameter(grid, "grid")], centre.shape)
    centre = network.node("Div", [centre, network.parameter(np.array([wide, high], np.float32), "cells")], centre.shape)
    extent = network.node("Exp", [network.node("Mul", [parts[1], network.scalar(0.5)], parts[1].shape)], parts[1].shape)
    anchor = network.random.uniform(0.05, 0.6, (1, anchors, 1, 1, 2)).astype(np.float32)
    extent = network.node("Mul", [extent, network.parameter(anchor, "anchors")], extent.shape)
    boxes = network.concat([centre, extent], axis=4)
    boxes = network.reshape(boxes, (batch, -1, 4), (batch, anchors * high * wide, 4))
    scores = network.node("Sigmoid", [parts[2]], parts[2].shape)
    return boxes, network.reshape(scores, (batch, -1, 1 + classes), (batch, anchors * high * wide, 1 + classes))


def split(network: Network, x: Value, sizes: tuple[int, ...]) -> list[Value]:
    """Split along the last axis into pieces of these sizes."""
    shapes = [(*x.shape[:-1], size) for size in sizes]
    axis = len(x.shape) - 1
    if network.opset < 13:
        return network.nodes("Split", [x], shapes, axis=axis, split=list(sizes))
    given = network.parameter(np.array(sizes, np.int64), "split")
    return network.nodes("Split", [x, given], shapes, axis=axis)


def ssd(*, opset: int = 17, seed: int = 0, size: Size = FULL, batch: int = 1, shared: bool = True) -> onnx.ModelProto:
    """A detector whose levels share their heads' convolutions but not the BatchNormalization behind them.

    As in RetinaNet and EfficientDet: folding must copy the shared weight for every level. With ``shared=False`` each
    level has its own, as in SSD (arXiv 1512.02325).
    """
    network = Network("ssd", opset=opset, seed=seed)
    x = network.input("image", (batch, 3, size.image, size.image))
    x = network.conv_bn(x, size.channels(32), 3, stride=2, act="Relu6")
    levels = []
    wide = size.channels(64)
    for out in (32, 64, 96, 128, 160):
        x = inverted_residual(network, x, 2 * x.channels, size.channels(out), 3, 2, act="Relu6")
        levels.append(network.conv_bn(x, wide, 1, act=""))
        if x.dim(2) == 1:
            break
    boxes = _ssd_head(network, levels, 4, shared=shared)
    scores = _ssd_head(network, levels, min(size.classes, 20) + 1, shared=shared)
    network.output(_decoded(network, boxes), "boxes")
    network.output(network.node("Sigmoid", [scores], scores.shape), "scores")
    return network.model()


def _ssd_head(network: Network, levels: list[Value], fields: int, *, shared: bool) -> Value:
    anchors, wide = 3, levels[0].channels
    weights: list[str] | None = None
    if shared:
        weights = [
            network.parameter(network.weight((wide, wide, 3, 3), wide * 9), "head.weight"),
            network.parameter(network.weight((anchors * fields, wide, 3, 3), wide * 9), "head.out.weight"),
        ]
    rows = []
    for level in levels:
        inner = network.conv(level, wide, 3, weight=weights[0] if weights else None)
        inner = network.activation(network.batch_norm(inner), "Relu6")
        raw = network.conv(inner, anchors * fields, 3, weight=weights[1] if weights else None, bias=True)
        raw = network.transpose(raw, (0, 2, 3, 1))
        count = raw.dim(1) * raw.dim(2) * anchors
        rows.append(network.reshape(raw, (raw.dim(0), -1, fields), (raw.dim(0), count, fields)))
    return network.concat(rows, axis=1)


def _decoded(network: Network, raw: Value) -> Value:
    """Box regressions applied to anchors: centre + 0.1 * offset * extent, extent * exp(0.2 * offset)."""
    count = raw.dim(1)
    centres, extents = split(network, raw, (2, 2))
    anchor_centre = network.random.uniform(0, 1, (1, count, 2)).astype(np.float32)
    anchor_extent = network.random.uniform(0.05, 0.5, (1, count, 2)).astype(np.float32)
    scaled = network.node("Mul", [centres, network.scalar(0.1)], centres.shape)
    scaled = network.node("Mul", [scaled, network.parameter(anchor_extent, "anchor")], centres.shape)
    centre = network.node("Add", [scaled, network.parameter(anchor_centre, "anchor")], centres.shape)
    grown = network.node("Exp", [network.node("Mul", [extents, network.scalar(0.2)], extents.shape)], extents.shape)
    extent = network.node("Mul", [grown, network.parameter(anchor_extent, "anchor")], extents.shape)
    return network.concat([centre, extent], axis=2)
