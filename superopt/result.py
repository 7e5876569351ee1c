"""What a run gives back: a model, and a report on how it came about."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

import onnx

from superopt.models import model as models
from superopt.models.model import Model
from superopt.report import Report


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of ``optimize``: ``save`` it, or take the message; ``report`` is the JSON document."""

    optimized: Model
    report: Report
    external_data: str = "same"

    def __repr__(self) -> str:
        nodes, cost = self.report["nodes"], self.report["cost"]
        verdict = self.report["verified_by"] if self.report["verified"] else "no, this is the original"
        return (
            f"<{self.report['source']}: {nodes['before']} -> {nodes['after']} nodes, cost ({cost['model']}) "
            f"{cost['before']:.4g} -> {cost['after']:.4g} {cost['unit']}; "
            f"rules: {', '.join(self.report['rules_used']) or 'none'}; verified: {verdict}>"
        )

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model as one message, with all its data inside. Raises ``ModelError`` over 2 GB: use ``save`` then."""
        return models.message_copy(self.optimized)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model whole or not at all; its weights go where ``external_data`` says, as they lay before if
        ``same``.

        Raises ``ModelError`` where it cannot be written.
        """
        models.save(self.optimized, path, self.external_data)
