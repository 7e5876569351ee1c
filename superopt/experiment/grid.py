"""The cells of an experiment: what each is about, and the key that its content gives it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from superopt.cost import CostModel
from superopt.cost import load as load_cost_model
from superopt.errors import InputError, ModelError, OptionError
from superopt.models.external import tensors
from superopt.models.model import load as load_model
from superopt.models.tensors import blocks, external_range, is_external
from superopt.options import DEFAULT_COST_MODEL, DEFAULT_RULES, Options
from superopt.rule_text import load as load_rules
from superopt.rule_text import shipped_names
from superopt.rules import RuleSet
from superopt.version import versions

LeaveOut = Literal["rules", "families"]
LEAVE_OUTS: tuple[LeaveOut, ...] = ("rules", "families")
"""What may be left out, one at a time: a rule text (all its operators and both directions that have its name), or all
rules of a file."""


@dataclass(frozen=True)
class Cell:
    """One model under one rule set, cost model and limits.

    ``rules_name`` is what the user called the rules; ``left_out`` is the rule or family that is missing from them.
    ``digest`` is a hash of the model with its data files. ``verify`` and ``latency`` ask for what takes a run of the
    model.
    """

    model: str
    digest: str
    rules_name: str
    rules: RuleSet
    options: Options
    cost: CostModel
    left_out: str | None = None
    verify: bool = True
    latency: bool = False

    @property
    def key(self) -> str:
        """A hash of all that the cell's figures depend on, the versions of libraries included."""
        settings = {name: value for name, value in self.options.settings.items() if name not in ("rules", "cost")}
        content = {
            "model": self.digest,
            "rules": self.rules.hash,
            "cost": self.cost.hash,
            "settings": settings,
            "verify": self.verify,
            "latency": self.latency,
            "versions": versions(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]

    @property
    def label(self) -> str:
        """What progress lines and tables call it."""
        without = f" without {self.left_out}" if self.left_out else ""
        limit = ",".join(f"{name}={value}" for name, value in self.options.limit.items()) or "default limits"
        return f"{Path(self.model).name} | {self.rules_name}{without} | {self.cost.name} | {limit}"

    def without(self, name: str, by: LeaveOut) -> Cell:
        """The same with a rule or a family left out; neither verified nor timed."""
        kept = RuleSet(tuple(rule for rule in self.rules if unit(rule.name, rule.file, by) != name))
        return replace(self, rules=kept, left_out=name, verify=False, latency=False)


def unit(rule: str, file: str, by: LeaveOut) -> str:
    """What is left out together with a rule: its text's name, or its file's."""
    return rule.partition("[")[0] if by == "rules" else Path(file).name.removesuffix(".rules")


@dataclass(frozen=True)
class Grid:
    """What an experiment ranges over, by name: paths of models, rule sets, cost models, limits.

    ``common`` are the options that all cells share. Raises ``InputError`` where a rule set or a cost model is not
    there, or none of the models can be read; the cells of one that cannot fail by themselves.
    """

    models: tuple[str, ...]
    rules: tuple[str, ...] = (DEFAULT_RULES,)
    costs: tuple[str, ...] = (DEFAULT_COST_MODEL,)
    limits: tuple[Mapping[str, int | float], ...] = ({},)
    common: Options = field(default_factory=Options)
    verify: bool = True
    latency: bool = False

    def cells(self) -> Iterator[Cell]:
        """Every combination, models outermost."""
        if not self.models:
            raise OptionError("experiment: no models are named, expected at least one")
        rules = {name: named_rules(name) for name in self.rules}
        costs = [load_cost_model(name) for name in self.costs]
        for model, digest in self._digests().items():
            for name, rule_set in rules.items():
                for cost in costs:
                    for limit in self.limits:
                        chosen = replace(self.common, limit=dict(limit), select="modelled")
                        yield Cell(
                            model, digest, name, rule_set, chosen, cost, verify=self.verify, latency=self.latency
                        )

    def _digests(self) -> dict[str, str]:
        """The hash of each model, or of why there is none."""
        found: dict[str, str] = {}
        unread: list[InputError] = []
        for model in dict.fromkeys(self.models):
            try:
                found[model] = model_digest(model)
            except InputError as error:
                unread.append(error)
                found[model] = hashlib.sha256(f"{model}: {error}".encode()).hexdigest()
        if len(unread) == len(found):
            raise unread[0]
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """The grid as JSON."""
        shared = {name: value for name, value in self.common.settings.items() if name not in ("rules", "cost", "limit")}
        return {
            "models": list(self.models),
            "rules": list(self.rules),
            "costs": list(self.costs),
            "limits": [dict(limit) for limit in self.limits],
            "verify": self.verify,
            "latency": self.latency,
            **shared,
        }


def named_rules(name: str) -> RuleSet:
    """The rules of a set or file, or of several joined by ``+`` (``default+taso``). Raises ``RuleError``."""
    if name in shipped_names() or Path(name).exists() or "+" not in name:
        return load_rules(name)
    rules = RuleSet()
    for part in name.split("+"):
        rules = rules + load_rules(part.strip())
    return rules


def model_digest(path: str) -> str:
    """A hash of a model's file and of the parts of data files that it refers to. Raises ``ModelError``."""
    model = load_model(path)
    try:
        digest = hashlib.sha256(Path(path).read_bytes())
        for tensor in tensors(model.proto):
            if is_external(tensor):
                for block in blocks(*external_range(tensor, model.folder)):
                    digest.update(block)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}, expected a model with its data files") from error
    return digest.hexdigest()


def units(rules: RuleSet, matches: Mapping[str, int], by: LeaveOut) -> Sequence[str]:
    """What can be left out of rules to any effect: all that matched, in order; the rest changes nothing."""
    found = {unit(rule.name, rule.file, by): None for rule in rules if matches.get(rule.name)}
    return tuple(found)
