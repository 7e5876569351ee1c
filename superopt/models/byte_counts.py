"""How many bytes a model takes."""

from __future__ import annotations

from superopt.models.external import tensors
from superopt.models.model import Model, serialized
from superopt.models.tensors import is_external, tensor_bytes


def model_bytes(model: Model) -> int:
    """The bytes of a model: its file, and the data that lies in files beside it."""
    beside = sum(tensor_bytes(tensor) for tensor in tensors(model.proto) if is_external(tensor))
    return len(serialized(model)) + beside


def stored_bytes(model: Model) -> int:
    """The bytes of a model's tensors alone, without what names, attributes and types take."""
    return sum(tensor_bytes(tensor) for tensor in tensors(model.proto))
