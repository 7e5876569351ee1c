"""Cost models as TOML files: read, with errors that name what was expected, and written."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import defs

from superopt.costs.model import CostModel, Family
from superopt.errors import CostModelError
from superopt.operators import FORMS
from superopt.shipped import FUSIONS
from superopt.terms import OPAQUE

_PRICES = ("node", "flop", "byte", "constant_byte", "kept_constant", "reorder_byte")

_BLOCK_AT_MOST = 1 << 20
"""Channels that a vector may have: no device comes near."""


def parse(data: Mapping[str, Any], file: str, load: Callable[[str], CostModel]) -> CostModel:
    """The cost model that a TOML document describes; ``file`` is named in errors, ``load`` finds the models that it
    adds to its own prices. Raises CostModelError."""
    reader = _Reader(file)
    reader.known(data, "the file", ("name", "unit", "fuses", "price", "family", "plus", "instance"))
    price = reader.table(data, "price")
    reader.known(price, "[price]", ("combine", "block", *_PRICES))
    combine = reader.choice(price, "combine", ("sum", "max"), "sum")
    numbers: Any = {key: reader.number(price, key, 0.0) for key in _PRICES}
    families = {name: reader.family(name, item) for name, item in reader.table(data, "family").items()}
    fuses = reader.choice(data, "fuses", ("", *FUSIONS), "")
    instances, others = reader.table(data, "instance"), reader.table(data, "plus")
    weights = {key: reader.number(others, key, 1.0) for key in others}
    timed = {key: reader.number(instances, key, 0.0) for key in instances}
    if "price" in data and not price:
        raise CostModelError(f"{file}: [price] is empty, expected at least one of {', '.join(_PRICES)}")
    if not any((*numbers.values(), *weights.values(), *timed.values())):
        # Every choice would be as good as any other.
        raise CostModelError(f"{file}: no price above 0 in [price], [plus] or [instance], expected at least one")
    return CostModel(
        name=reader.text(data, "name"), unit=reader.text(data, "unit"), combine=combine, families=families,
        fuses=fuses, block=reader.channels(price, "[price]") if "block" in price else 0,
        instances=timed,
        plus=tuple((weight, load(other)) for other, weight in weights.items()), **numbers,
    )  # fmt: skip


@dataclass(frozen=True)
class _Reader:
    """Reads parts of a TOML document, and says what was expected where they are wrong."""

    file: str

    def known(self, data: Mapping[str, Any], where: str, keys: Sequence[str]) -> None:
        for key in data:
            if key not in keys:
                raise CostModelError(f"{self.file}: {where} has {key!r}, expected only {', '.join(keys)}")

    def table(self, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a table [{key}]")
        return value

    def text(self, data: Mapping[str, Any], key: str) -> str:
        value = data.get(key)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a text of one line")
        return value

    def number(self, data: Mapping[str, Any], key: str, default: float) -> float:
        value = data.get(key, default)
        # A whole number of TOML may be larger than any float.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
            shown = repr(value) if isinstance(value, float) or not isinstance(value, int) else _short(value)
            raise CostModelError(f"{self.file}: {key} = {shown}, expected a finite number that is not negative")
        return float(value)

    def choice(self, data: Mapping[str, Any], key: str, choices: Sequence[str], default: str) -> Any:
        value = data.get(key, default)
        if value not in choices:
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected one of {', '.join(filter(None, choices))}")
        return value

    def names(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = data.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a list of operator names")
        for name in value:
            # Operators of other domains than ONNX's own are named with them: com.microsoft.Gelu.
            if "." not in name and name != OPAQUE and not defs.has(name):
                near = difflib.get_close_matches(name, FORMS, 1)
                meant = f" (is {near[0]} meant?)" if near else ""
                raise CostModelError(
                    f"{self.file}: {key} has {name!r}, expected operators of ONNX, or DOMAIN.NAME of others{meant}"
                )
        return tuple(value)

    def channels(self, data: Mapping[str, Any], where: str) -> int:
        block = data.get("block", 1)
        if isinstance(block, bool) or not isinstance(block, int) or not 1 <= block <= _BLOCK_AT_MOST:
            shown = _short(block) if isinstance(block, int) else repr(block)
            raise CostModelError(
                f"{self.file}: block = {shown} in {where}, "
                f"expected a whole number of channels from 1 to {_BLOCK_AT_MOST}"
            )
        return block

    def family(self, name: str, data: Any) -> Family:
        where = f"[family.{name}]"
        if not isinstance(data, dict):
            raise CostModelError(f"{self.file}: family.{name} = {data!r}, expected a table {where}")
        self.known(data, where, ("operators", "node", "flop", "byte", "kind", "block"))
        block = self.channels(data, where)
        factors = {key: self.number(data, key, 1.0) for key in ("node", "flop", "byte")}
        kind = self.choice(data, "kind", ("any", "depthwise", "grouped"), "any")
        return Family(self.names(data, "operators"), kind=kind, block=block, **factors)


def _short(number: int) -> str:
    return repr(number) if abs(number) < 10**20 else "a whole number of more than 20 digits"


def toml(model: CostModel, comment: str) -> str:
    """A cost model as the text of a TOML file, with a comment on top."""
    lines = [*(f"# {line}".rstrip() for line in comment.splitlines())]
    lines += [f"name = {json.dumps(model.name)}", f"unit = {json.dumps(model.unit)}"]
    lines += [f"fuses = {json.dumps(model.fuses)}"] if model.fuses else []
    lines += ["", "[price]"]
    lines.append(f"combine = {json.dumps(model.combine)}")
    lines += [f"{key} = {getattr(model, key)!r}" for key in _PRICES if getattr(model, key)]
    lines += [f"block = {model.block}"] if model.block else []
    for name, family in model.families.items():
        lines += ["", f"[family.{json.dumps(name)}]", f"operators = {json.dumps(list(family.operators))}"]
        lines += [f"{key} = {getattr(family, key)!r}" for key in ("node", "flop", "byte") if getattr(family, key) != 1]
        lines += [f"kind = {json.dumps(family.kind)}"] if family.kind != "any" else []
        lines += [f"block = {family.block}"] if family.block != 1 else []
    if model.instances:
        lines += ["", "[instance]"]
        lines += [f"{json.dumps(key)} = {price!r}" for key, price in model.instances.items()]
    return "\n".join(lines) + "\n"
