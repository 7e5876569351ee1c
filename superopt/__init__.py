"""Optimizes ONNX models by equality saturation.

    result = superopt.optimize("model.onnx")
    result.save("model.opt.onnx")
    print(result.report["latency"])

Names are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from superopt.version import __version__

if TYPE_CHECKING:
    from superopt.cost import CostBreakdown, CostModel, cost
    from superopt.engine.saturate import Limits
    from superopt.errors import InputError, RuleError, SuperoptError, VerificationError
    from superopt.options import Options
    from superopt.pipeline import optimize, verify
    from superopt.result import Result
    from superopt.rule_text import load as load_rules
    from superopt.rule_text import parse as parse_rules
    from superopt.rules import Rule, RuleSet
    from superopt.stages import check_rules, extract, saturate

_HOME = {
    "CostBreakdown": ("superopt.cost", "CostBreakdown"),
    "CostModel": ("superopt.cost", "CostModel"),
    "InputError": ("superopt.errors", "InputError"),
    "Limits": ("superopt.engine.saturate", "Limits"),
    "Options": ("superopt.options", "Options"),
    "Result": ("superopt.result", "Result"),
    "Rule": ("superopt.rules", "Rule"),
    "RuleError": ("superopt.errors", "RuleError"),
    "RuleSet": ("superopt.rules", "RuleSet"),
    "SuperoptError": ("superopt.errors", "SuperoptError"),
    "VerificationError": ("superopt.errors", "VerificationError"),
    "check_rules": ("superopt.stages", "check_rules"),
    "cost": ("superopt.cost", "cost"),
    "extract": ("superopt.stages", "extract"),
    "load_rules": ("superopt.rule_text", "load"),
    "optimize": ("superopt.pipeline", "optimize"),
    "parse_rules": ("superopt.rule_text", "parse"),
    "saturate": ("superopt.stages", "saturate"),
    "verify": ("superopt.pipeline", "verify"),
}

__all__ = [
    "CostBreakdown",
    "CostModel",
    "InputError",
    "Limits",
    "Options",
    "Result",
    "Rule",
    "RuleError",
    "RuleSet",
    "SuperoptError",
    "VerificationError",
    "__version__",
    "check_rules",
    "cost",
    "extract",
    "load_rules",
    "optimize",
    "parse_rules",
    "saturate",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'superopt' has no attribute {name!r}")
    module, attribute = _HOME[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """``cost`` and ``verify`` are functions here and modules inside: importing a module must not hide the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
