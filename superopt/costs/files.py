"""Cost models as TOML files: read, with errors that name what was expected, and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from superopt.costs.model import CostModel, Family
from superopt.errors import CostModelError
from superopt.shipped import FUSIONS

_PRICES = ("node", "flop", "byte", "constant_byte", "kept_constant")


def parse(data: Mapping[str, Any], file: str, load: Callable[[str], CostModel]) -> CostModel:
    """The cost model that a TOML document describes; ``file`` is named in errors, ``load`` finds the models that it
    adds to its own prices. Raises CostModelError."""
    reader = _Reader(file)
    reader.known(data, "the file", ("name", "unit", "fuses", "price", "family", "plus", "instance"))
    price = reader.table(data, "price")
    reader.known(price, "[price]", ("combine", *_PRICES))
    combine = reader.choice(price, "combine", ("sum", "max"), "sum")
    numbers = {key: reader.number(price, key, 0.0) for key in _PRICES}
    families = {name: reader.family(name, item) for name, item in reader.table(data, "family").items()}
    fuses = reader.choice(data, "fuses", ("", *FUSIONS), "")
    instances, others = reader.table(data, "instance"), reader.table(data, "plus")
    return CostModel(
        name=reader.text(data, "name"), unit=reader.text(data, "unit"), combine=combine, families=families,
        fuses=fuses,
        instances={key: reader.number(instances, key, 0.0) for key in instances},
        plus=tuple((reader.number(others, other, 1.0), load(other)) for other in others), **numbers,
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
        if not isinstance(value, str) or not value:
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a text")
        return value

    def number(self, data: Mapping[str, Any], key: str, default: float) -> float:
        value = data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a finite number that is not negative")
        return float(value)

    def choice(self, data: Mapping[str, Any], key: str, choices: Sequence[str], default: str) -> Any:
        value = data.get(key, default)
        if value not in choices:
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected one of {', '.join(choices)}")
        return value

    def names(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = data.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a list of operator names")
        return tuple(value)

    def family(self, name: str, data: Any) -> Family:
        where = f"[family.{name}]"
        if not isinstance(data, dict):
            raise CostModelError(f"{self.file}: family.{name} = {data!r}, expected a table {where}")
        self.known(data, where, ("operators", "node", "flop", "byte", "kind", "block"))
        block = data.get("block", 1)
        if isinstance(block, bool) or not isinstance(block, int) or block < 1:
            raise CostModelError(f"{self.file}: block = {block!r} in {where}, expected a whole number of channels")
        factors = {key: self.number(data, key, 1.0) for key in ("node", "flop", "byte")}
        kind = self.choice(data, "kind", ("any", "depthwise", "grouped"), "any")
        return Family(self.names(data, "operators"), kind=kind, block=block, **factors)


def toml(model: CostModel, comment: str) -> str:
    """A cost model as the text of a TOML file, with a comment on top."""
    lines = [*(f"# {line}".rstrip() for line in comment.splitlines())]
    lines += [f"name = {json.dumps(model.name)}", f"unit = {json.dumps(model.unit)}"]
    lines += [f"fuses = {json.dumps(model.fuses)}"] if model.fuses else []
    lines += ["", "[price]"]
    lines.append(f"combine = {json.dumps(model.combine)}")
    lines += [f"{key} = {getattr(model, key)!r}" for key in _PRICES if getattr(model, key)]
    for name, family in model.families.items():
        lines += ["", f"[family.{json.dumps(name)}]", f"operators = {json.dumps(list(family.operators))}"]
        lines += [f"{key} = {getattr(family, key)!r}" for key in ("node", "flop", "byte") if getattr(family, key) != 1]
        lines += [f"kind = {json.dumps(family.kind)}"] if family.kind != "any" else []
        lines += [f"block = {family.block}"] if family.block != 1 else []
    if model.instances:
        lines += ["", "[instance]"]
        lines += [f"{json.dumps(key)} = {price!r}" for key, price in model.instances.items()]
    return "\n".join(lines) + "\n"
