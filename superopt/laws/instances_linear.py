"""Proposals for products and normalizations: types of unbound arguments, and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from superopt.laws.instances_dice import Dice, Proposal, Request, under
from superopt.laws.instances_kinds import ACROSS, VECTOR_BEFORE, VECTOR_BEHIND, VECTORS
from superopt.laws.instances_windows import conv, conv_transpose, pool
from superopt.terms import AttrValue

Shape = tuple[int, ...]

EPSILONS = (1.0, 0.5, 0.25, 0.0009765625, *(float(np.float32(usual)) for usual in (1e-5, 1e-5, 1e-6, 1e-12)))
"""Such as show in what is computed, and those that models have."""


def channelwise(request: Request, dice: Dice) -> Proposal:
    """BatchNormalization, InstanceNormalization: a vector a channel."""
    x = request.shape(0, 2) or request.hinted
    known = next((request.shape(i, 1) for i in range(1, len(request.args)) if request.shape(i, 1) is not None), None)
    if x is None or len(x) < 2:
        least = 3 if request.op == "InstanceNormalization" else 2
        x = dice.shape(least, 5)
        if known:
            x = (x[0], known[0], *x[2:])
    epsilon = dice.again("epsilon", dice.pick(EPSILONS), 0.3)
    dtypes: dict[int, str] = {}
    if request.op == "BatchNormalization" and dice.chance(0.3):
        other = dice.pick(("float32", "float64", request.dtype(dice)))
        third = dice.pick(("float32", "float64", other, other))
        dtypes = {1: other, 2: other, 3: third, 4: third}
    return Proposal([x, *[(x[1],) for _ in request.args[1:]]], {"epsilon": epsilon}, dtypes)


def layer_norm(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0) or request.hinted or dice.shape(1, 4)
    axis = request.int("axis")
    if request.kind == ACROSS and request.shape(0) is None and axis is None:
        x = (*dice.shape(1, 2), *(dice.between(2, 4),) * 2)
        axis = len(x) - 2
    axis = dice.integer(range(len(x))) if axis is None and x else axis or 0
    tail = x[axis:]
    params: list[Shape | None] = [tail if dice.chance(0.8) else under(dice, tail) for _ in request.args[1:]]
    if request.kind == ACROSS and len(tail) > 1:
        params[0] = (tail[-2], 1)
    attrs = {"axis": axis, "epsilon": dice.pick(EPSILONS), "stash_type": 1}
    return Proposal([x, *params], dict(attrs))


def group_norm(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0, 3) or request.hinted
    groups = request.int("num_groups")
    if x is None or len(x) < 3:
        groups = groups or dice.pick((1, 2, 3))
        x = (dice.pick((1, 2)), groups * dice.channels(), *dice.shape(1, 2))
    groups = groups or dice.pick([g for g in range(1, x[1] + 1) if x[1] % g == 0])
    return Proposal([x, (x[1],), (x[1],)], {"num_groups": groups, "epsilon": dice.pick(EPSILONS), "stash_type": 1})


def _with_vector(request: Request, dice: Dice, a: Shape | None, b: Shape | None) -> Proposal | None:
    """A product with a vector on the side where one is wanted, or on both, or with some vector where one is to come
    out."""
    out, kind = request.hinted, request.kind
    if kind is None and a is None and b is None and out is not None and len(out) == 1:
        kind = dice.pick((VECTOR_BEFORE, VECTOR_BEHIND))
    if kind == VECTORS:
        length = (1 if dice.chance(0.5) else dice.size(),)
        return Proposal([a or (b or length)[:1], b or (a or length)[-1:]])
    out = out if out else dice.shape(1, 2)
    if kind == VECTOR_BEHIND and b is None and a != ():
        a = a or (*out, dice.size())
        return Proposal([a, a[-1:]])
    if kind == VECTOR_BEFORE and a is None and b != ():
        b = b or (*out[:-1], dice.size(), out[-1])
        return Proposal([b[-2:][:1], b])
    return None


def matmul(request: Request, dice: Dice) -> Proposal:
    a, b, hint = request.shape(0), request.shape(1), request.hinted
    vector = _with_vector(request, dice, a, b)
    if vector is not None:
        return vector
    if a is None and b is None:
        rows, columns = dice.size(), dice.size()
        lead: Shape = ()
        if hint is not None and len(hint) >= 2:
            *front, rows, columns = hint
            lead = tuple(front)
        elif dice.chance(0.4):
            lead = tuple(dice.pick((1, 2, 3)) for _ in range(dice.between(1, 2)))
        again = dice.again("inner", dice.size(), 0.25)
        inner = again if isinstance(again, int) else 1
        kind = dice.random.random()
        if kind < 0.45:
            a, b = (*lead, rows, inner), (inner, columns)
        elif kind < 0.55:
            # One matrix times many.
            a, b = (rows, inner), (*(lead or (dice.pick((1, 2, 3)),)), inner, columns)
        elif kind < 0.8:
            a, b = (*lead, rows, inner), (*under(dice, lead), inner, columns)
        elif kind < 0.87:
            lead = lead or (dice.pick((1, 2, 3)),)
            a, b = (*under(dice, lead), rows, inner), (*lead, inner, columns)
        elif kind < 0.92:
            a, b = (inner,), (*lead, inner, columns)
        elif kind < 0.97:
            a, b = (*lead, rows, inner), (inner,)
        else:
            a, b = (inner,), (inner,)
    elif b is None and a is not None:
        inner = a[-1] if a else 1
        columns = hint[-1] if hint else dice.size()
        lead = a[:-2]
        kind = dice.random.random()
        b = (inner, columns) if kind < 0.6 else (*under(dice, lead), inner, columns)
        if hint is not None and len(hint) > max(len(a), 2) and dice.chance(0.7):
            b = (*hint[:-2], inner, columns)
        elif 0.6 < kind < 0.72:
            b = (dice.pick((1, 2, 3)), *b)
        if kind > 0.93:
            b = (inner,)
    elif a is None and b is not None:
        inner = b[-2] if len(b) >= 2 else b[0] if b else 1
        lead = b[:-2] if dice.chance(0.5) else tuple(dice.pick((1, 2)) for _ in range(dice.between(0, 2)))
        if hint is not None and len(hint) >= 2 and dice.chance(0.9):
            a = (*hint[:-1], inner)
        else:
            a = (*lead, dice.size(), inner) if dice.chance(0.85) else (inner,)
    return Proposal([a, b])


def gemm(request: Request, dice: Dice) -> Proposal:
    a, b, c, hint = request.shape(0), request.shape(1), request.shape(2), request.hinted
    first, second = request.int("transA"), request.int("transB")
    first = dice.pick((0, 0, 1)) if first is None else first
    second = dice.pick((0, 1)) if second is None else second
    hint = hint if hint is not None and len(hint) == 2 else None
    rows = a[1 if first else 0] if a is not None and len(a) == 2 else hint[0] if hint else dice.size()
    inner = a[0 if first else 1] if a is not None and len(a) == 2 else None
    if inner is None:
        inner = b[1 if second else 0] if b is not None and len(b) == 2 else dice.size()
    columns = b[0 if second else 1] if b is not None and len(b) == 2 else hint[1] if hint else dice.size()
    if c is None:
        line, whole = (columns,), (rows, columns)
        options: tuple[Shape, ...] = (line, line, whole, (1, columns), (rows, 1), (1,), (), (1, 1))
        c = dice.pick(options)
    attrs: dict[str, AttrValue] = {
        "transA": first, "transB": second,
        "alpha": 1.0 if dice.chance(0.5) else dice.number(), "beta": 1.0 if dice.chance(0.5) else dice.number(),
    }  # fmt: skip
    a, b = (inner, rows) if first else (rows, inner), (columns, inner) if second else (inner, columns)
    return Proposal([a, b, c], attrs)


LINEAR: Mapping[str, Callable[[Request, Dice], Proposal]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "AveragePool": pool,
    "MaxPool": pool,
    "LpPool": pool,
    "BatchNormalization": channelwise,
    "InstanceNormalization": channelwise,
    "LayerNormalization": layer_norm,
    "RMSNormalization": layer_norm,
    "GroupNormalization": group_norm,
    "MatMul": matmul,
    "Gemm": gemm,
}
"""What proposes the arguments and attributes of an operator, by its name."""
