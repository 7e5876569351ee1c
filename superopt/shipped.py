"""Where the data that ships with superopt lies: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _directory(name: str) -> Path:
    in_wheel = _PACKAGE / name
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / name


def rules_dir() -> Path:
    """The directory of the shipped ``.rules`` files and of ``sources.bib``."""
    return _directory("rules")


def cost_models_dir() -> Path:
    """The directory of the shipped cost models."""
    return _directory("cost_models")
