"""``CostModel``: the price of a node from a formula, or from the clock where its instance was timed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal

from superopt.costs import checks
from superopt.costs.fusions import NONE, FusionMatch, Fusions, right_type
from superopt.costs.fusions import load as load_fusions
from superopt.costs.instances import InstanceNode, instance_of, single
from superopt.costs.layout import Layout, Way, conversion_instance, layout
from superopt.costs.operands import Operand
from superopt.errors import CostModelError
from superopt.shipped import FUSIONS
from superopt.terms import ABSENT, CONST, INPUT, PROJECT, Attrs, ValueType
from superopt.workload import NOMINAL, Sizes, is_depthwise, is_grouped, work

FREE = frozenset({INPUT, CONST, PROJECT})
"""What is not an operator: a graph input, a constant (its bytes are priced apart), an output of a node that is
priced."""

PRICES = ("node", "flop", "byte", "constant_byte", "kept_constant", "reorder_byte")
"""The fields of a cost model that are prices."""


@dataclass(frozen=True)
class Family:
    """Operators that run alike: factors on the model's price of a node, of a flop and of a byte of traffic.

    ``kind`` narrows convolutions: ``depthwise`` (one input channel a group), ``grouped`` (several groups, not
    depthwise). ``block`` is the vector width in channels that a group's channels are padded up to.
    """

    operators: tuple[str, ...]
    node: float = 1.0
    flop: float = 1.0
    byte: float = 1.0
    kind: Literal["any", "depthwise", "grouped"] = "any"
    block: int = 1

    def __post_init__(self) -> None:
        if self.operators != ():
            checks.operators("operators", self.operators)
        for key in ("node", "flop", "byte"):
            checks.number(key, getattr(self, key))
        checks.choice("kind", self.kind, ("any", "depthwise", "grouped"))
        checks.convolutions("kind", self.kind, self.operators)
        checks.channels("block", self.block, " in a family")


@dataclass(frozen=True)
class CostModel:
    """The price of a node: ``node`` + ``flop`` x flops and ``byte`` x traffic, added up or the larger one (a roofline).

    ``constant_byte`` is the price of each byte of a constant that the model stores, ``kept_constant`` that of a node
    whose inputs are all constant and which is left to be computed (runtimes do so once, when they load the model).
    ``fuses`` names the forms that the runtime makes one operator of (``rules/NAME.rules``), none where it is empty.
    ``instances`` are prices of instances by their keys: they stand before the formula. ``plus`` are other models whose
    prices are added, each multiplied by its weight. ``block`` is how many channels a block of the runtime's own layout
    has (0: it has none, and nothing is converted), ``reorder_byte`` the price of a byte that is converted into it or
    out of it. ``file`` is where it was read from, if it was, for errors to name.

    Raises ``CostModelError`` for a field that is none of this.
    """

    name: str
    unit: str
    combine: Literal["sum", "max"] = "sum"
    node: float = 0.0
    flop: float = 0.0
    byte: float = 0.0
    constant_byte: float = 0.0
    kept_constant: float = 0.0
    families: Mapping[str, Family] = field(default_factory=dict)
    fuses: str = ""
    instances: Mapping[str, float] = field(default_factory=dict, repr=False)
    plus: tuple[tuple[float, CostModel], ...] = ()
    block: int = 0
    reorder_byte: float = 0.0
    file: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        checks.text("name", self.name)
        checks.text("unit", self.unit)
        checks.choice("combine", self.combine, ("sum", "max"))
        prices = [checks.number(key, getattr(self, key)) for key in PRICES]
        for name, family in checks.table("family", self.families).items():
            if not isinstance(family, Family):
                raise CostModelError(f"family.{name} = {family!r}, expected a table [family.{name}]")
            checks.operators("operators", family.operators)
        checks.choice("fuses", self.fuses, ("", *FUSIONS))
        prices += [checks.number(key, price) for key, price in checks.table("instance", self.instances).items()]
        prices += self._weights()
        if self.block != 0 or not isinstance(self.block, int) or isinstance(self.block, bool):
            checks.channels("block", self.block, " in [price]")
        if not any(prices):
            # Every choice would be as good as any other.
            raise CostModelError("no price above 0 in [price], [plus] or [instance], expected at least one")
        for key in self.instances:
            checks.instance(key)

    def _weights(self) -> list[float]:
        """The checked weights of the models that are added."""
        weights = []
        for item in self.plus if isinstance(self.plus, tuple) else (self.plus,):
            if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], CostModel):
                raise CostModelError(f"plus has {item!r}, expected pairs of a weight and a CostModel")
            weights.append(checks.number(f"plus: {item[1].name}", item[0]))
        return weights

    @cached_property
    def hash(self) -> str:
        """A hash of everything that a price depends on."""
        fields = asdict(self, dict_factory=lambda items: {key: value for key, value in items if key != "file"})
        text = json.dumps([fields, self.fusions.hash], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def price(
        self, op: str, attrs: Attrs, operands: Sequence[Operand | None], result: ValueType, sizes: Sizes = NOMINAL
    ) -> float:
        """What running one node costs, in ``unit``; operands are None where an argument is absent."""
        timed = self.timed(op, attrs, operands, result, sizes)
        return self.formula(op, attrs, operands, result, sizes) if timed is None else timed

    def timed(
        self, op: str, attrs: Attrs, operands: Sequence[Operand | None], result: ValueType, sizes: Sizes = NOMINAL
    ) -> float | None:
        """The price of a node's instance; None where there is none."""
        if not self.instances or op in FREE:
            return None
        instance = single(op, attrs, operands, result, sizes)
        return None if instance is None else self.instances.get(instance.key)

    def formula(
        self, op: str, attrs: Attrs, operands: Sequence[Operand | None], result: ValueType, sizes: Sizes = NOMINAL
    ) -> float:
        """The price of a node by the formula, whatever was timed."""
        if op in FREE:
            return 0.0
        family = self.family(op, attrs, operands, sizes)
        types = [None if operand is None else operand.type for operand in operands]
        amount = work(op, attrs, types, result, sizes, family.block)
        compute = self.flop * family.flop * amount.flops
        memory = self.byte * family.byte * amount.traffic
        running = max(compute, memory) if self.combine == "max" else compute + memory
        others = sum(weight * other.price(op, attrs, operands, result, sizes) for weight, other in self.plus)
        return self.node * family.node + running + others

    def layout(
        self, op: str, attrs: Attrs, operands: Sequence[Operand | None], result: ValueType, sizes: Sizes = NOMINAL
    ) -> Layout:
        """How the runtime takes a node's tensors."""
        return layout(op, attrs, operands, result, sizes, self.block)

    def converted(self, way: Way, value: ValueType, sizes: Sizes = NOMINAL) -> float:
        """What bringing a tensor into the runtime's own layout costs, or out of it."""
        instance = conversion_instance(way, value, sizes, self.block) if self.instances else None
        timed = None if instance is None else self.instances.get(instance.key)
        return self.reorder_byte * sizes.nbytes(value) if timed is None else timed

    @cached_property
    def _families(self) -> Mapping[str, tuple[Family, ...]]:
        return _by_operator(self.families.values())

    @cached_property
    def fusions(self) -> Fusions:
        """The forms that the runtime makes one operator of. Raises RuleError where there is no such file."""
        return load_fusions(self.fuses) if self.fuses else NONE

    def fused(self, group: Group, sizes: Sizes = NOMINAL) -> tuple[float, bool]:
        """What a group of nodes costs that the runtime makes one operator of, and whether that was timed."""
        instance = instance_of(group.parts, group.operands, sizes) if self.instances else None
        timed = None if instance is None else self.instances.get(instance.key)
        if timed is not None:
            return timed, True
        prices = {
            name: self.price(part.op, part.attrs, [group.operand(arg) for arg in part.args], part.type, sizes)
            for name, part in group.parts.items()
        }
        alike = [name for name, part in group.parts.items() if part.op == group.match.fusion.priced_as]
        if alike:
            whole = prices.pop(max(alike, key=lambda name: prices[name]))
        else:
            right = right_type(group.match)
            if right is None:
                return sum(prices.values()), False
            attrs, names, kind = right
            given = [group.named(name) for name in names]
            whole = self.price(group.match.fusion.priced_as, attrs, given, kind, sizes)
        return whole + group.match.fusion.kept * sum(prices.values()), False

    def family(self, op: str, attrs: Attrs, operands: Sequence[Operand | None], sizes: Sizes = NOMINAL) -> Family:
        """The family that a node belongs to; one without operators where none names it."""
        for family in self._families.get(op, ()):
            if family.kind == "any":
                return family
            weight = sizes.shape(operands[1].type) if len(operands) > 1 and operands[1] is not None else ()
            if is_depthwise(attrs, weight) if family.kind == "depthwise" else is_grouped(attrs, weight):
                return family
        return _ORDINARY


@dataclass(frozen=True)
class Group:
    """Nodes that a runtime makes one operator of: its ``parts`` by number, in topological order, what they are given,
    and the form that they have."""

    match: FusionMatch
    parts: Mapping[int, InstanceNode]
    operands: Mapping[int, Operand]

    @property
    def follows(self) -> bool:
        """Whether the operator keeps the layout that it is given: a convolution, or an activation."""
        activation = self.match.fusion.priced_as in ("Gelu", "Sigmoid")
        return activation or any(part.op == "Conv" for part in self.parts.values())

    def operand(self, place: int | None) -> Operand | None:
        """What a node or leaf is as an argument."""
        if place is None:
            return None
        return Operand(self.parts[place].type) if place in self.parts else self.operands[place]

    def named(self, name: str | None) -> Operand | None:
        """What a variable of the form stands for."""
        place = ABSENT if name is None else self.match.places[name]
        return None if place == ABSENT else self.operands.get(place)


_ORDINARY = Family(())


def _by_operator(items: Iterable[Family]) -> Mapping[str, tuple[Family, ...]]:
    found: dict[str, tuple[Family, ...]] = {}
    for item in items:
        for op in item.operators:
            found[op] = (*found.get(op, ()), item)
    return found
