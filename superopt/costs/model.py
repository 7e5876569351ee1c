"""``CostModel``: the price of a node from a formula, or from the clock where its instance was timed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from superopt.costs.instances import single
from superopt.costs.operands import Operand
from superopt.terms import CONST, INPUT, PROJECT, Attrs, ValueType
from superopt.workload import NOMINAL, Sizes, is_depthwise, is_grouped, work

FREE = frozenset({INPUT, CONST, PROJECT})
"""What is not an operator: a graph input, a constant (its bytes are priced apart), an output of a node that is
priced."""


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


@dataclass(frozen=True)
class Fusion:
    """Operators that the runtime computes inside the operator before them: their price is multiplied by ``factor``.

    It counts where an argument is made by one of ``behind``, and the other arguments are constant if ``constant`` says
    so.
    """

    operators: tuple[str, ...]
    behind: tuple[str, ...]
    factor: float
    constant: bool = False


@dataclass(frozen=True)
class CostModel:
    """The price of a node: ``node`` + ``flop`` x flops and ``byte`` x traffic, added up or the larger one (a roofline).

    ``constant_byte`` is the price of each byte of a constant that the model stores, ``kept_constant`` that of a node
    whose inputs are all constant and which is left to be computed (runtimes do so once, when they load the model).
    ``instances`` are prices of instances by their keys: they stand before the formula. ``plus`` are other models whose
    prices are added, each multiplied by its weight.
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
    fusions: tuple[Fusion, ...] = ()
    instances: Mapping[str, float] = field(default_factory=dict, repr=False)
    plus: tuple[tuple[float, CostModel], ...] = ()

    @cached_property
    def hash(self) -> str:
        """A hash of everything that a price depends on."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
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
        """The price of a node's instance, without what a runtime fuses; None where there is none."""
        if not self.instances or op in FREE:
            return None
        instance = single(op, attrs, operands, result, sizes)
        price = None if instance is None else self.instances.get(instance.key)
        return None if price is None else price * self._fused(op, operands)

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
        return (self.node * family.node + running + others) * self._fused(op, operands)

    @cached_property
    def _families(self) -> Mapping[str, tuple[Family, ...]]:
        return _by_operator(self.families.values())

    @cached_property
    def _fusions(self) -> Mapping[str, tuple[Fusion, ...]]:
        return _by_operator(self.fusions)

    def family(self, op: str, attrs: Attrs, operands: Sequence[Operand | None], sizes: Sizes = NOMINAL) -> Family:
        """The family that a node belongs to; one without operators where none names it."""
        for family in self._families.get(op, ()):
            if family.kind == "any":
                return family
            weight = sizes.shape(operands[1].type) if len(operands) > 1 and operands[1] is not None else ()
            if is_depthwise(attrs, weight) if family.kind == "depthwise" else is_grouped(attrs, weight):
                return family
        return _ORDINARY

    def _fused(self, op: str, operands: Sequence[Operand | None]) -> float:
        for fusion in self._fusions.get(op, ()):
            given = [operand for operand in operands if operand is not None]
            makers = [operand for operand in given if not operand.producers.isdisjoint(fusion.behind)]
            if makers and (not fusion.constant or sum(not operand.constant for operand in given) == 1):
                return fusion.factor
        return 1.0


_ORDINARY = Family(())

F = TypeVar("F", bound="Family | Fusion")


def _by_operator(items: Iterable[F]) -> Mapping[str, tuple[F, ...]]:
    found: dict[str, tuple[F, ...]] = {}
    for item in items:
        for op in item.operators:
            found[op] = (*found.get(op, ()), item)
    return found
