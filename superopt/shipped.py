"""Where the data that ships with superopt lies: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

FUSIONS = ("onnxruntime", "taso-kernels")
"""The files among ``rules/`` that say what a runtime fuses: cost models read them, nothing is rewritten by them."""


def _directory(name: str) -> Path:
    in_wheel = _PACKAGE / name
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / name


def rules_dir() -> Path:
    """The directory of the shipped ``.rules`` files and of ``sources.bib``."""
    return _directory("rules")


def rule_files() -> tuple[Path, ...]:
    """The shipped files of rewrite rules, in order of name; not those that say what a runtime fuses."""
    return tuple(path for path in sorted(rules_dir().glob("*.rules")) if path.stem not in FUSIONS)


def cost_models_dir() -> Path:
    """The directory of the shipped cost models."""
    return _directory("cost_models")
