"""What the fields of a cost model may be, however it is made: in a file or in Python."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import defs

from superopt.costs.instances import instance_of_key
from superopt.errors import CostModelError
from superopt.operators import FORMS
from superopt.terms import OPAQUE

_BLOCK_AT_MOST = 1 << 20
"""Channels that a vector may have: no device comes near."""

_SHOWN = 60
"""Characters of a wrong value that an error shows."""


def text(key: str, value: Any) -> str:
    """A text of one line, as every check here the value itself. Raises CostModelError, as every check here."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise CostModelError(f"{key} = {_shown(value)}, expected a text of one line")
    return value


def number(key: str, value: Any) -> float:
    """A price, or a factor on one."""
    # A whole number may be larger than any float.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise CostModelError(f"{key} = {_shown(value)}, expected a finite number that is not negative")
    return float(value)


def choice(key: str, value: Any, choices: Sequence[str]) -> Any:
    """One of some words; an empty one is for none of the others."""
    if not isinstance(value, str) or value not in choices:
        raise CostModelError(f"{key} = {_shown(value)}, expected one of {', '.join(filter(None, choices))}")
    return value


def channels(key: str, value: Any, where: str) -> int:
    """How many channels a block has."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _BLOCK_AT_MOST:
        raise CostModelError(
            f"{key} = {_shown(value)}{where}, expected a whole number of channels from 1 to {_BLOCK_AT_MOST}"
        )
    return value


def operators(key: str, value: Any) -> tuple[str, ...]:
    """Names of operators; of other domains than ONNX's own with them: com.microsoft.Gelu."""
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(item, str) for item in value):
        raise CostModelError(f"{key} = {_shown(value)}, expected a list of operator names")
    for name in value:
        if "." not in name and name != OPAQUE and not defs.has(name):
            near = difflib.get_close_matches(name, FORMS, 1)
            meant = f" (is {near[0]} meant?)" if near else ""
            raise CostModelError(
                f"{key} has {_shown(name)}, expected operators of ONNX, or DOMAIN.NAME of others{meant}"
            )
    return tuple(value)


def convolutions(key: str, value: str, names: Sequence[str]) -> None:
    """A kind that narrows convolutions does nothing to other operators."""
    others = [name for name in names if "Conv" not in name]
    if value != "any" and others:
        raise CostModelError(f"{key} = {value!r} of {others[0]}, expected any: only convolutions are of a kind")


def table(key: str, value: Any) -> Mapping[str, Any]:
    """A mapping whose keys are texts."""
    if not isinstance(value, Mapping):
        raise CostModelError(f"{key} = {_shown(value)}, expected a table [{key}]")
    for name in value:
        if not isinstance(name, str):
            raise CostModelError(f"{key} has {_shown(name)}, expected a text")
    return value


def instance(key: str) -> None:
    """The key of an instance. A price under another text would be of nothing."""
    try:
        known = instance_of_key(key).key == key
    except (ValueError, TypeError, AttributeError, RecursionError):
        known = False
    if not known:
        raise CostModelError(f"[instance] has {_shown(key)}, expected keys as superopt measure --output writes them")


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a whole number of more than 20 digits"
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
