"""What only operands of one kind show wrong is found at every seed: each kind takes its turn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from superopt import rule_text
from superopt.laws import laws
from superopt.laws.instances import Instance, instances
from superopt.laws.instances_clues import applications
from superopt.laws.instances_kinds import (
    ACROSS,
    ALONG,
    ASKEW,
    BEYOND,
    COPIED,
    CROP,
    EVEN,
    GAPS,
    GROWN,
    KINDS,
    LEADING,
    LOWER,
    OTHERS,
    OVERHANG,
    RAISED,
    REMAINDER,
    ROOT,
    SMALLER,
    SOLE,
    STEPS,
    STRIDED,
    VAST,
    VECTOR_BEFORE,
    VECTOR_BEHIND,
    VECTORS,
    Turns,
)
from superopt.rules import Rule
from superopt.terms import Attrs
from superopt.values import Value

SEEDS = range(20)

WRONG = {
    "a vector between two matrices": (
        "reassociates\n MatMul(MatMul(x, y), z) => MatMul(x, MatMul(y, z))\n when rank(x) >= 2, rank(z) >= 2"
    ),
    "a vector between, the other way": "reassociates\n MatMul(x, MatMul(y, z)) => MatMul(MatMul(x, y), z)",
    "a power of a power of what is negative": (
        "reassociates\n Pow(Pow(x, a), b) => Pow(x, Mul(a, b))\n"
        " when floating(x), same_dtype(x, a, b), rank(a) == 0, rank(b) == 0\n only if constant(a, b)"
    ),
    "elements that no window holds": (
        "reassociates\n GlobalAveragePool(AveragePool(x, **a)) => GlobalAveragePool(x)\n"
        " when unpadded(a.pads), a.strides == a.kernel_shape, a.ceil_mode == 0, all(d == 1 for d in a.dilations)"
    ),
    "windows that are not full": (
        "reassociates\n GlobalAveragePool(AveragePool(x, **a)) => GlobalAveragePool(x)\n"
        " when unpadded(a.pads), a.strides == a.kernel_shape, a.ceil_mode == 1, all(d == 1 for d in a.dilations)"
    ),
    "another type than the condition's": (
        'exact\n Where(Not(c), x, y) => Where(Not(c), Cast(Cast(x, to="bool"), to=dtype(x)), y)'
    ),
    "another type than a condition's of two": (
        'exact\n Where(And(c, d), x, y) => Where(And(c, d), Cast(Cast(x, to="bool"), to=dtype(x)), y)'
    ),
    "another type than what is compared": (
        "exact\n Where(Less(c, d), x, y) => Where(Less(c, d), Cast(Cast(x, to=dtype(c)), to=dtype(x)), y)"
    ),
    "what is scattered into what is there": "exact\n ScatterND(x, i, u, reduction=r) => ScatterND(x, i, u)",
    "what is scattered and multiplied": "exact\n ScatterND(Neg(x), i, Neg(u), **a) => Neg(ScatterND(x, i, u, **a))",
    "places of a batch": "exact\n GatherND(x, i, batch_dims=b) => GatherND(x, i)",
    "an exponent of another type": "exact\n Pow(x, y) => Cast(Pow(Cast(x, to=dtype(y)), y), to=dtype(x))",
    "a pad that takes away": ("exact\n Pad(Pad(x, v, pads=p), v, pads=q) => Pad(x, v, pads=tuple_sum(p, q))"),
    "an axis of one element that was there": (
        "exact\n Squeeze(Unsqueeze(x, axes=k), axes=j) => x\n when len(j) == len(k)"
    ),
    "a number on the border of what is allowed": (
        "reassociates\n Mul(x, c) => x\n when abs(number(c) - 1) < 0.001, rank(c) <= rank(x)\n only if constant(c)"
    ),
    "half precision by way of single precision": (
        'exact\n Exp(x) => Cast(Exp(Cast(x, to="float32")), to="float16")\n when dtype(x) == "float16"'
    ),
    "half precision of products by way of single precision": (
        'exact\n MatMul(x, y) => Cast(MatMul(Cast(x, to="float32"), Cast(y, to="float32")), to="float16")\n'
        ' when dtype(x) == "float16"'
    ),
    "the largest of elements that no window holds": (
        "exact\n GlobalMaxPool(MaxPool(x, **a)) => GlobalMaxPool(x)\n"
        " when unpadded(a.pads), a.strides == a.kernel_shape, a.ceil_mode == 0, all(d == 1 for d in a.dilations)"
    ),
    "space between the taps along one axis that is forgotten": (
        "reassociates\n AveragePool(x, dilations=q, **r) => AveragePool(x, dilations=(1, 1), **r)\n"
        " when len(r.kernel_shape) == 2"
    ),
    "space between the taps along the one axis that has several": (
        "reassociates\n MaxPool(x, **a) => MaxPool(x, **a, dilations=(1, 1))\n"
        " when len(a.kernel_shape) == 2, a.kernel_shape[0] == 1"
    ),
    "steps of what is otherwise a product": (
        "reassociates\n Conv(x, w, b, **a) => Add(Mul(x, Reshape(w, shape=column(dim(w, 0), rank(w) - 1))),"
        " Reshape(b, shape=column(dim(w, 0), rank(w) - 1)))\n"
        " when all(k == 1 for k in kernel(w)), unpadded(a.pads), dim(w, 1) == 1, dim(x, 1) == dim(w, 0)"
    ),
    "steps of a Slice that are forgotten": (
        "exact\n Gather(Slice(x, axes=h, starts=b, ends=e, steps=t), c, axis=h[0])"
        " => Gather(x, Add(c, scalar(b[0], like=c)), axis=h[0])\n when len(h) == 1, b[0] >= 0, at_least(c, 0)"
    ),
    "a shape of a lower rank": "exact\n Expand(x, shape=s) => x\n when len(s) < rank(x)",
    "an epsilon that is none of a model's": (
        "reassociates\n LayerNormalization(x, s, b, **a) => LayerNormalization(x, s, b, **a, epsilon=0.0009765625)\n"
        " when a.epsilon < 0.001"
    ),
    "an epsilon that is forgotten": (
        "reassociates\n GroupNormalization(x, s, b, epsilon=e, **a) => GroupNormalization(x, s, b, epsilon=0.5, **a)"
    ),
}
"""Rules that are wrong for one kind of operands alone."""


def rule_of(text: str) -> Rule:
    (rule,) = rule_text.parse("rule r: " + text)
    return rule


@pytest.mark.parametrize("what", WRONG)
def test_what_one_kind_of_operands_shows_wrong_is_found_at_every_seed(what: str) -> None:
    rule = rule_of(WRONG[what])
    assert [seed for seed in SEEDS if laws.refuted(rule, seed=seed) is None] == []


USUALLY = {
    "what stretches along an axis": (
        "exact\n Split(Add(x, y), axis=k, split=s)[0] => Add(Split(x, axis=k, split=s)[0], y)\n"
        " when rank(y) == rank(x), dim(y, 0) == 1"
    ),
    "what alone is large": "reassociates\n Where(Expand(c, shape=s), x, y) => Where(c, x, y)",
    "what alone is large, of two that are chosen": "reassociates\n Where(c, Expand(x, shape=s), y) => Where(c, x, y)",
    "an end behind the last": (
        "exact\n Slice(Slice(x, axes=h, starts=s, ends=e, steps=(1,)), axes=h, starts=b, ends=f, steps=(1,))"
        " => Slice(x, axes=h, starts=(s[0] + b[0],), ends=(s[0] + f[0],), steps=(1,))\n"
        " when len(h) == 1, s[0] >= 0, b[0] >= 0, e[0] >= 0, f[0] >= 0"
    ),
    "a size that is copied": "exact\n Reshape(Squeeze(x, axes=k), shape=t) => Reshape(x, shape=t)",
    "a window with gaps that is made larger": (
        "reassociates\n Conv(x, w, b, **a)"
        " => Conv(x, Pad(w, None, pads=(0, 0, 1, 1, 0, 0, 1, 1)), b, **a, pads=tuple_sum(a.pads, (1, 1, 1, 1)))\n"
        " when rank(w) == 4"
    ),
    "one element of a higher rank": (
        "reassociates\n Mul(x, c) => Mul(x, scalar(number(c), like=x))\n only if constant(c)"
    ),
    "a scale along another axis than the last": (
        "reassociates\n MatMul(RMSNormalization(x, s, axis=j, **a), w)\n"
        " => MatMul(RMSNormalization(x, ones(dim(x, -1), like=x), axis=j, **a),"
        " Mul(w, Reshape(s, shape=(size(s), 1))))\n"
        " when rank(w) >= 2, along(s, -2, rank(x), dim(x, -1))\n only if constant(s, w), known(s), precise(x)"
    ),
    "what is grown behind the last step": (
        "reassociates\n ConvTranspose(x, w, b, **a) => ConvTranspose(x, w, b, **a, output_padding=(0,))\n"
        " when rank(w) == 3"
    ),
    "space between taps, turned": (
        "reassociates\n Conv(Transpose(x, perm=(0, 1, 3, 2)), Transpose(w, perm=(0, 1, 3, 2)), b, **a)"
        " => Transpose(Conv(x, w, b, **a), perm=(0, 1, 3, 2))\n"
        " when a.strides[0] == a.strides[1], a.pads[0] == a.pads[1], a.pads[2] == a.pads[3]"
    ),
    "one place beside several": (
        "reassociates\n Add(ConvTranspose(x, w, b, **a), ConvTranspose(x, u, c, **a))"
        " => ConvTranspose(x, Add(w, u), Add(b, c), **a)"
    ),
    "a constant of rank 1 beside two vectors": (
        "reassociates\n MatMul(Mul(x, c), y) => Mul(MatMul(x, y), c)\n when single(c), rank(c) <= 1"
    ),
    "a size that is copied of fewer": "exact\n Reshape(Flatten(x, axis=k), shape=t) => Reshape(x, shape=t)",
}
"""Rules that are wrong for one kind of operands among others of this kind."""


@pytest.mark.parametrize("what", USUALLY)
def test_what_one_kind_of_operands_may_show_wrong_is_found_at_most_seeds(what: str) -> None:
    rule = rule_of(USUALLY[what])
    assert len([seed for seed in SEEDS[:8] if laws.refuted(rule, seed=seed) is None]) <= 2


NEEDED = (
    ("average-as-conv-after-pointwise-conv", "p.ceil_mode == 0"),
    ("lowest-pad-into-max-pool", "all((item == 1 for item in a.dilations))"),
    ("select-before-cast", "value_cast(dtype(x), dtype(x), t)"),
    ("transpose-sinks-through-cast", "value_cast(dtype(x), dtype(x), t)"),
)


@pytest.mark.parametrize(("name", "condition"), NEEDED)
def test_what_one_kind_shows_needed_is_not_idle(name: str, condition: str) -> None:
    rule = rule_text.load("all")[name]
    assert condition in [expr.text for expr in rule.when]
    assert [seed for seed in SEEDS[:6] if condition in laws.check(rule, points=8, seed=seed, fires=False).idle] == []


_LEFT_OVER = {rows * columns for rows in (3, 7, 11) for columns in (5, 9, 13)}


def kinds_of(op: str, one: Instance) -> set[str]:
    """The kinds that an instance of an operator's own rule is of."""
    bound = one.binding
    x, y, attrs = bound["x"], bound.get("y"), bound.get("a")
    if op == "Pad" and isinstance(attrs, Attrs):
        return {CROP} if any(pad < 0 for pad in attrs["pads"]) else set()  # type: ignore[operator, union-attr]
    if op == "Reshape" and isinstance(attrs, Attrs):
        return {COPIED} if attrs["shape"] in ((0, -1), (-1, 0)) else set()
    if op == "Transpose" and isinstance(attrs, Attrs):
        return {LEADING} if attrs["perm"][:2] == (1, 0) and attrs["perm"][2:] else set()  # type: ignore[index]
    if op == "Squeeze" and isinstance(attrs, Attrs) and isinstance(x, Value):
        return {OTHERS} if x.shape.count(1) > len(attrs["axes"]) else set()  # type: ignore[arg-type]
    if op == "Cast" and isinstance(attrs, Attrs) and isinstance(x, Value):
        return {VAST} if attrs["to"] == "uint32" and x.tensor.size in _LEFT_OVER else set()
    if op.endswith("LayerNormalization") or op == "RMSNormalization":
        scale = bound["s"]
        assert isinstance(x, Value)
        assert isinstance(scale, Value)
        return {ACROSS} if scale.shape == (x.shape[-1], 1) and x.shape[-1] != 1 else set()
    if op == "Slice" and isinstance(attrs, Attrs) and isinstance(x, Value):
        ends = dict(zip(attrs["axes"], attrs["ends"], strict=True))  # type: ignore[arg-type]
        beyond = any(end > x.shape[axis] for axis, end in ends.items())  # type: ignore[call-overload]
        strided = any(step == 2 for step in attrs["steps"])  # type: ignore[union-attr]
        return {kind for kind, here in ((BEYOND, beyond), (STRIDED, strided)) if here}
    if op == "Expand" and isinstance(attrs, Attrs) and isinstance(x, Value):
        return {LOWER} if len(attrs["shape"]) < len(x.shape) else set()  # type: ignore[arg-type]
    if op.startswith("Conv") and isinstance(attrs, Attrs) and isinstance(x, Value):
        return _convolution_kinds(one.arrays["w"].shape[2:], attrs, x)
    if isinstance(attrs, Attrs) and isinstance(x, Value):
        return _window_kinds(x, attrs)
    if op == "MatMul" and isinstance(x, Value) and isinstance(y, Value):
        found = {kind for kind, part in ((VECTOR_BEFORE, x), (VECTOR_BEHIND, y)) if part.rank == 1}
        return found if len(found) < 2 else {VECTORS}
    exponents, bases = one.arrays["y"], np.asarray(one.arrays["x"], np.float64)
    if not exponents.size or not np.any(bases < 0):
        return set()
    return {kind for kind, number in ((EVEN, 2.0), (ROOT, 0.5)) if (exponents == number).all()}


def _convolution_kinds(taps: tuple[int, ...], attrs: Attrs, x: Value) -> set[str]:
    strides, dilations, pads = (np.asarray(attrs[name]) for name in ("strides", "dilations", "pads"))
    gaps = int(np.sum((np.asarray(taps) > 1) & (dilations > 1)))
    plain = not pads.any() and max(dilations) == 1
    found = {GAPS} if gaps else set()
    found |= {ASKEW} if gaps == 1 and min(dilations) == 1 and max(strides) == 1 and not pads.any() else set()
    found |= {STEPS} if plain and min(strides) > 1 else set()
    found |= {GROWN} if any(attrs.get("output_padding", ())) else set()  # type: ignore[arg-type]
    return found | ({SOLE} if set(taps) == {1} and x.shape[2:] == (3,) * len(taps) and pads.all() else set())


def _window_kinds(x: Value, attrs: Attrs) -> set[str]:
    kernel, strides, dilations, pads = (attrs[name] for name in ("kernel_shape", "strides", "dilations", "pads"))
    assert isinstance(kernel, tuple)
    found = set()
    for axis, size in enumerate(x.shape[2:] if x.shape else ()):
        taps, step, gap = (int(values[axis]) for values in (kernel, strides, dilations))  # type: ignore[index]
        around = int(pads[axis]) + int(pads[axis + len(kernel)])  # type: ignore[index]
        left = (int(size or 0) + around - (taps - 1) * gap - 1) % step
        found |= {OVERHANG if attrs["ceil_mode"] else REMAINDER} if left else set()
        found |= {GAPS} if taps > 1 and gap > 1 else set()
    uneven = sorted(dilations)[:2] == [1, 2]  # type: ignore[arg-type]
    return found | ({ASKEW} if uneven and GAPS in found else set())


ALONE = {op: set(kinds) - {ALONG, SMALLER, RAISED} for op, kinds in KINDS.items()}
"""The kinds that an operator's own operands can be of; the others are of what stands beside an operator's result."""


@pytest.mark.parametrize("op", [op for op, kinds in ALONE.items() if kinds])
def test_every_kind_is_drawn_at_every_seed(op: str) -> None:
    known = {"MatMul": "MatMul(x, y)", "Pow": "Pow(x, y)", "Pad": "Pad(x, v, **a)"}
    known |= {
        "LayerNormalization": "LayerNormalization(x, s, b, **a)",
        "RMSNormalization": "RMSNormalization(x, s, **a)",
    }
    known |= {conv: f"{conv}(x, w, b, **a)" for conv in ("Conv", "ConvTranspose")}
    term = known.get(op, f"{op}(x, **a)")
    rule = rule_of(f"reassociates\n {term} => {term}")
    for seed in SEEDS:
        drawn = Counter(kind for one in instances(rule, points=24, seed=seed) for kind in kinds_of(op, one))
        assert ALONE[op] <= set(drawn)


def test_a_kind_that_conditions_exclude_is_given_up() -> None:
    rule = rule_of("reassociates\n MatMul(x, y) => MatMul(x, y)\n when rank(x) == 2, rank(y) == 2")
    turns = Turns.of([part for root in rule.left for part in applications(root)], forever=False)
    assert len(turns.waiting) == len(KINDS["MatMul"])
    for number in range(60):
        turn = turns.next(number)
        turns.taken(turn, turn is None)
    assert not turns.waiting
    again = Turns.of([part for root in rule.left for part in applications(root)], forever=True)
    for number in range(60):
        turn = again.next(number)
        again.taken(turn, turn is None or turn.kind == VECTOR_BEFORE)
    assert [turn.kind for turn in again.waiting] == [VECTOR_BEFORE]
