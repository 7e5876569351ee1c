"""Cost models as TOML files: read, with errors that name what was expected, and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from superopt.costs import checks
from superopt.costs.model import PRICES, CostModel, Family
from superopt.errors import CostModelError

_FAMILY = ("operators", "node", "flop", "byte", "kind", "block")


def parse(data: Mapping[str, Any], file: str, load: Callable[[str], CostModel]) -> CostModel:
    """The cost model that a TOML document describes; ``file`` is named in errors, ``load`` finds the models that it
    adds to its own prices. Raises CostModelError."""
    with _naming(file):
        fields, weights = _fields(data)
    plus = tuple((weight, load(other)) for other, weight in weights.items())
    with _naming(file):
        return CostModel(**fields, plus=plus, file=file)


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Puts the file's name before what is wrong with it."""
    try:
        yield
    except CostModelError as error:
        raise CostModelError(f"{file}: {error}") from error


def _fields(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """The fields of a cost model as a document has them, and the weights of the models that it adds."""
    _known(data, "the file", ("name", "unit", "fuses", "price", "family", "plus", "instance"))
    price = checks.table("price", data.get("price", {}))
    _known(price, "[price]", ("combine", "block", *PRICES))
    if "block" in price:
        checks.channels("block", price["block"], " in [price]")
    if "price" in data and not price:
        raise CostModelError(f"[price] is empty, expected at least one of {', '.join(PRICES)}")
    families = checks.table("family", data.get("family", {}))
    instances = checks.table("instance", data.get("instance", {}))
    weights = checks.table("plus", data.get("plus", {}))
    fields = {
        "name": data.get("name"),
        "unit": data.get("unit"),
        "fuses": data.get("fuses", ""),
        "families": {name: _family(name, item) for name, item in families.items()},
        "instances": {key: checks.number(key, value) for key, value in instances.items()},
        **price,
        **{key: checks.number(key, price[key]) for key in PRICES if key in price},
    }
    return fields, {key: checks.number(key, value) for key, value in weights.items()}


def _family(name: str, data: Any) -> Family:
    where = f"[family.{name}]"
    if not isinstance(data, dict):
        raise CostModelError(f"family.{name} = {data!r}, expected a table {where}")
    _known(data, where, _FAMILY)
    operators = checks.operators("operators", data.get("operators"))
    if "block" in data:
        checks.channels("block", data["block"], f" in {where}")
    factors = {key: checks.number(key, data[key]) for key in ("node", "flop", "byte") if key in data}
    return Family(**{**data, "operators": operators, **factors})


def _known(data: Mapping[str, Any], where: str, keys: Sequence[str]) -> None:
    for key in data:
        if key not in keys:
            raise CostModelError(f"{where} has {key!r}, expected only {', '.join(keys)}")


def toml(model: CostModel, comment: str) -> str:
    """A cost model as the text of a TOML file, with a comment on top."""
    lines = [*(f"# {line}".rstrip() for line in comment.splitlines())]
    lines += [f"name = {json.dumps(model.name)}", f"unit = {json.dumps(model.unit)}"]
    lines += [f"fuses = {json.dumps(model.fuses)}"] if model.fuses else []
    lines += ["", "[price]"]
    lines.append(f"combine = {json.dumps(model.combine)}")
    lines += [f"{key} = {getattr(model, key)!r}" for key in PRICES if getattr(model, key)]
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
