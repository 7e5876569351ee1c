"""The models whose speed is claimed: networks built in code, and files that packages ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from benchmarks import models, zoo
from benchmarks.network import FULL, Size

LEAST = 0.98
"""No model may fall below this multiple of the original's speed."""


@dataclass(frozen=True)
class Case:
    """A model of the suite. ``shapes`` are those of the inputs that the model leaves open, ``wanted`` how many times
    faster it has to become."""

    name: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    wanted: float = LEAST
    file: str = ""
    """The name in ``benchmarks.zoo`` of a model that a package ships; empty for one that is built."""

    def write(self, path: Path, size: Size = FULL) -> None:
        """Writes the model; fetches its package first where it is a file that is not there yet."""
        if not self.file:
            onnx.save(models.build(self.name, size=size), path)
            return
        (found,) = [case for case in zoo.models(only=[self.file]) if case.name == self.file]
        path.write_bytes(found.path.read_bytes())


_TOKENS = {"input_ids": (1, 128), "attention_mask": (1, 128)}
_SPEECH = {"waveforms": (1, 16_000), "waveforms_lens": (1,)}  # a second at 16 kHz

SUITE = {
    case.name: case
    for case in (
        Case("mobileone-s0", wanted=3.0),
        Case("repvgg-a0", wanted=1.08),
        Case("fastvit-like"),
        Case("repghost-like"),
        Case("densenet121", wanted=1.04),
        Case("resnet50"),
        Case("resnext50"),
        Case("inception-v3"),
        Case("squeezenet"),
        Case("nasnet-a"),
        Case("nasrnn"),
        Case("mobilenet-v3-small"),
        Case("convnext-atto"),
        Case("bert", shapes=_TOKENS, wanted=1.10),
        Case("bert-lora", shapes=_TOKENS),
        Case("vit-tiny"),
        Case("whisper80", shapes=_SPEECH, wanted=5.0, file="whisper80"),
        Case("gigaam-v3", shapes=_SPEECH, file="gigaam_v3"),
        Case("pp-ocr-classifier", shapes={"x": (1, 3, 48, 192)}, wanted=1.3, file="ch_ppocr_mobile_v2.0_cls_infer"),
    )
    if case.file or case.name in models.BUILDERS
}
"""The suite by name, in the order of the table."""
