"""The version of superopt, and of what it stands on."""

from __future__ import annotations

__version__ = "0.1.0"

_FOUNDATIONS = ("egglog", "highspy", "numpy", "onnx", "onnx-ir", "onnxruntime", "ortools")


def versions() -> dict[str, str]:
    """The versions that a result may depend on, by package; ``absent`` for one that is not installed."""
    import platform  # these two take longer to load than all else that `superopt --help` needs of us
    from importlib import metadata

    found = {"superopt": __version__, "python": platform.python_version()}
    for package in _FOUNDATIONS:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found
