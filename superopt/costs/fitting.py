"""A roofline fitted to what was timed: for what was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from superopt.costs.instances import InstanceInput, OperatorInstance, instance_of_key
from superopt.costs.layout import WAYS
from superopt.costs.model import CostModel, Family
from superopt.costs.operands import Operand
from superopt.shapes import infer
from superopt.terms import ABSENT, OPAQUE, TensorType
from superopt.workload import NOMINAL

LEAST = 3
"""Timed instances of an operator from which it has a factor of its own."""

_SHORTEST = 1e-7
"""Seconds below which a ratio says nothing."""


def fitted(model: CostModel, seconds: Mapping[str, float]) -> CostModel:
    """The model scaled to the seconds of instances by their keys: each operator of a family by the median ratio of
    measured to predicted where there are enough of it, all others by the median of these.

    With nothing timed it is the model itself.
    """
    ratios: dict[tuple[str, str], list[float]] = {}
    for key, taken in seconds.items():
        priced = _price(model, instance_of_key(key))
        if priced is not None and taken > _SHORTEST and priced[1] > 0:
            ratios.setdefault(priced[0], []).append(taken / priced[1])
    if not ratios:
        return model
    every = median([ratio for found in ratios.values() for ratio in found])
    families: dict[str, Family] = {}
    for (op, name), found in sorted(ratios.items()):
        if len(found) >= LEAST:
            family = model.families.get(name, Family((op,)))
            families[f"{name or 'plain'}, {op}"] = _scaled(replace(family, operators=(op,)), median(found) / every)
    return replace(
        model, node=model.node * every, flop=model.flop * every, byte=model.byte * every,
        families={**_in_order(families), **model.families},
    )  # fmt: skip


def reorder_byte(seconds: Mapping[str, float]) -> float:
    """Seconds for a byte of a tensor that is converted into the blocked layout or out of it: the median over those
    conversions that were timed; 0 where none was."""
    found = []
    for key, taken in seconds.items():
        if any(way in key for way in WAYS):
            (leaf,) = instance_of_key(key).leaves
            found.append(taken / max(1, NOMINAL.nbytes(_type(leaf))))
    return median(found) if found else 0.0


def _in_order(families: Mapping[str, Family]) -> dict[str, Family]:
    """Narrow kinds before those that take any."""
    return dict(sorted(families.items(), key=lambda item: item[1].kind == "any"))


def _scaled(family: Family, factor: float) -> Family:
    return replace(family, node=family.node * factor, flop=family.flop * factor, byte=family.byte * factor)


def formula_of(model: CostModel, instance: OperatorInstance) -> float:
    """About what an instance costs by a model's formula: one of several operators what the most expensive of them does,
    as far as that can be told from the leaves; 0 where it cannot."""
    found = [_price(model, replace(instance, nodes=(node,), outputs=(1,))) for node in instance.nodes]
    return max((priced[1] for priced in found if priced is not None), default=0.0)


def _price(model: CostModel, instance: OperatorInstance) -> tuple[tuple[str, str], float] | None:
    """The operator and family of an instance of one operator, and its price by the formula."""
    if len(instance.nodes) != 1 or instance.nodes[0].op == OPAQUE:
        return None
    (node,) = instance.nodes
    if any(arg >= len(instance.leaves) for arg in node.args):
        return None
    operands = [
        None if arg == ABSENT else Operand(_type(instance.leaves[arg]), instance.leaves[arg].constant)
        for arg in node.args
    ]
    types = [None if operand is None else operand.type for operand in operands]
    result = infer(node.op, node.attrs, types, [operand is not None for operand in operands])
    family = model.family(node.op, node.attrs, operands)
    name = next((name for name, known in model.families.items() if known is family), "")
    return (node.op, name), model.formula(node.op, node.attrs, operands, result)


def _type(leaf: InstanceInput) -> TensorType:
    return TensorType(leaf.dtype, leaf.shape)
