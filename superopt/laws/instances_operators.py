"""Proposals for pointwise operators, reductions and what else there is: types of unbound arguments, and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from superopt.laws.instances_dice import DTYPES, FLOATS, Dice, Proposal, Request, axes_of, axis_of, product, under
from superopt.laws.instances_kinds import ALONG, RAISED, SMALLER, VAST
from superopt.laws.instances_linear import LINEAR
from superopt.laws.instances_movement import MOVEMENT
from superopt.laws.instances_resizing import RESIZING
from superopt.operators import named, operator
from superopt.terms import AttrValue

Shape = tuple[int, ...]


def propose(request: Request, dice: Dice) -> Proposal:
    """What this operator's unknown arguments and attributes might be; it may turn out ill typed."""
    function = _PROPOSERS.get(request.op)
    if function is not None:
        proposal = function(request, dice)
    else:
        spec = operator(request.op)
        several = spec is None or spec.arity is None or spec.arity > 1
        proposal = _broadcast(request, dice) if several else _pointwise(request, dice)
    _plain_attributes(request, dice, proposal)
    return proposal


def _plain_attributes(request: Request, dice: Dice, proposal: Proposal) -> None:
    """Values for attributes that no proposer knows: numbers of few bits, and what the rule's text compares with."""
    spec = operator(request.op)
    if spec is None:
        return
    for name in spec.attributes:
        if name in proposal.attrs:
            continue
        default = spec.default(name)
        if name in _CHOICES:
            proposal.attrs[name] = dice.pick(_CHOICES[name])
        elif isinstance(default, float):
            proposal.attrs[name] = default if dice.chance(0.3) else dice.number()
        elif isinstance(default, int):
            proposal.attrs[name] = default if dice.chance(0.5) else dice.integer((0, 1))
        elif default is not None:
            proposal.attrs[name] = default


_CHOICES: Mapping[str, tuple[AttrValue, ...]] = {
    "approximate": ("none", "tanh"),
    "direction": ("LEFT", "RIGHT"),
    "detect_negative": (0, 1),
    "ratio": (0.0, 0.5),
}


def _fresh(request: Request, dice: Dice, least: int = 0, most: int = 5) -> Shape:
    known = request.shape(0)
    if known is not None:
        return known
    hint = request.hinted
    return hint if hint is not None and least <= len(hint) <= most else dice.shape(least, most)


def _pointwise(request: Request, dice: Dice) -> Proposal:
    return Proposal([_fresh(request, dice)] + [None] * (len(request.args) - 1))


def _broadcast(request: Request, dice: Dice) -> Proposal:
    count = len(request.args)
    known = [request.shape(position) for position in range(count)]
    have = [shape for shape in known if shape is not None]
    out = request.hinted
    if out is None:
        out = max(have, key=lambda shape: (len(shape), product(shape))) if have else dice.shape()
        if have and len(out) < 3 and dice.chance(0.3):
            out = (*dice.shape(1, 2), *out)
        out = tuple(dice.size() if dim == 1 and dice.chance(0.15) else dim for dim in out)
    if request.kind == RAISED or (request.kind in (ALONG, SMALLER) and have and out):
        return Proposal(_of_kind(request.kind, known, out, dice))
    full = dice.between(0, count - 1)
    if len(out) > 1 and have == [] and count == 2 and dice.chance(0.1):
        # Each is stretched along the other.
        owners = [dice.between(0, 2) for _ in out]
        return Proposal([tuple(1 if own == at else dim for own, dim in zip(owners, out, strict=True)) for at in (0, 1)])
    shapes: list[Shape | None] = []
    for position, shape in enumerate(known):
        spread = under(dice, out)
        shapes.append(shape if shape is not None else out if position == full else spread)
    return Proposal(shapes)


def _of_kind(kind: str, known: list[Shape | None], out: Shape, dice: Dice) -> list[Shape | None]:
    """Shapes for what is not known beside what is: one that varies along one axis alone, none along one axis, or one
    element of a higher rank."""
    if kind == RAISED:
        # Mostly the last, where constants stand.
        free = [place for place, shape in enumerate(known) if shape is None] or [0]
        raised = free[-1] if dice.chance(0.7) else dice.pick(free)
        made = [(1,) * (len(out) + 1) if place == raised else out for place in range(len(known))]
        return [fresh if shape is None else shape for shape, fresh in zip(known, made, strict=True)]
    axis = dice.pick([axis for axis, dim in enumerate(out) if dim > 1] or [0])
    if kind == ALONG:
        alone = tuple(dim if at == axis else 1 for at, dim in enumerate(out))
        return [alone if shape is None else shape for shape in known]
    others = (*out[:axis], 1, *out[axis + 1 :])
    return [(others if dice.chance(0.5) else under(dice, others)) if shape is None else shape for shape in known]


def _prelu(request: Request, dice: Dice) -> Proposal:
    x = _fresh(request, dice)
    return Proposal([x, under(dice, x)])


def _clip(request: Request, dice: Dice) -> Proposal:
    return Proposal([_fresh(request, dice), (), ()])


def _pow(request: Request, dice: Dice) -> Proposal:
    """The exponent's element type need not be the base's: that of the base is the result's."""
    proposal = _broadcast(request, dice)
    free = [place for place in (1, 0) if request.args[place] is None]
    if free and request.kind is None and dice.chance(0.3):
        taken = request.dtype(dice)
        others = ("int64", "int32") if taken in FLOATS else FLOATS[:2]
        proposal.dtypes[free[0]] = dice.pick(others)
    return proposal


def _where(request: Request, dice: Dice) -> Proposal:
    proposal = _broadcast(request, dice)
    proposal.dtypes[0] = "bool"
    return proposal


def _cast(request: Request, dice: Dice) -> Proposal:
    to = request.hint.dtype if request.hint is not None else dice.any_dtype(DTYPES, even=dice.chance(0.5))
    if "saturate" not in request.attrs and dice.chance(0.25):
        to = dice.pick(_EIGHT_BITS)
    elif request.hint is None and dice.chance(0.15):
        to = dice.pick(_NARROW)
    if request.kind == VAST:
        to = "uint32"
    # Runtimes refuse it for others.
    saturate = dice.pick((0, 1)) if to in _EIGHT_BITS else 1
    proposal = Proposal([_fresh(request, dice)], {"to": to, "saturate": saturate, "round_mode": "up"})
    # What is no operator cannot be of a narrow type: that is asked for in vain there.
    proposal.dtypes[0] = dice.pick(_NARROW) if dice.chance(0.25) else dice.any_dtype(DTYPES)
    if request.kind == VAST:
        proposal.dtypes[0] = dice.pick(FLOATS[:2])
        # Three are left over where vectors are of four.
        proposal.shapes[0] = request.shape(0) or (dice.pick((3, 7, 11)), dice.pick((5, 9, 13)))
    return proposal


_EIGHT_BITS = ("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz")
_NARROW = ("bfloat16", "int4", "uint4", *_EIGHT_BITS)
"""Element types that runtimes make of others and of which they make others, and that numpy does not have."""


def _with_axis(request: Request, dice: Dice) -> Proposal:
    """Softmax, LogSoftmax, CumSum, LpNormalization: one axis, the shape stays."""
    x = _fresh(request, dice, 1)
    attrs: dict[str, AttrValue] = {"axis": axis_of(request, dice, len(x)), "p": dice.pick((1, 2))}
    if request.op == "CumSum":
        attrs |= {"exclusive": dice.pick((0, 1)), "reverse": dice.pick((0, 1))}
    return Proposal([x], attrs)


def _reduce(request: Request, dice: Dice) -> Proposal:
    keep = request.int("keepdims")
    keep = dice.integer((0, 1)) if keep is None else keep
    x, out = request.shape(0), request.hinted
    if x is None:
        x = dice.shape(1)
        if out is not None and keep:
            x = tuple(dice.size() if dim == 1 and dice.chance(0.5) else dim for dim in out)
            axes = request.ints("axes") or tuple(axis for axis, dim in enumerate(out) if dim == 1)
            return Proposal([x], {"axes": axes, "keepdims": keep})
        if out is not None:
            axes = request.ints("axes") or (dice.between(0, len(out)),)
            grown = list(out)
            for axis in axes:
                grown.insert(axis, dice.size())
            return Proposal([tuple(grown)], {"axes": axes, "keepdims": keep})
    return Proposal([x], {"axes": axes_of(request, dice, len(x)), "keepdims": keep})


def _arg_reduce(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0) or dice.shape(1)
    attrs = {
        "axis": axis_of(request, dice, len(x)),
        "keepdims": dice.pick((0, 1)),
        "select_last_index": dice.pick((0, 1)),
    }
    return Proposal([x], dict(attrs))


def _shape_of(request: Request, dice: Dice) -> Proposal:
    x = request.shape(0) or dice.shape(1)
    start, end = (dice.between(0, len(x)) if dice.chance(0.3) else at for at in (0, len(x)))
    attrs: dict[str, AttrValue] = {"start": start} if end == len(x) else {"start": start, "end": end}
    return Proposal([x], attrs, {0: dice.any_dtype(DTYPES)})


def _global_pool(request: Request, dice: Dice) -> Proposal:
    x, out = request.shape(0), request.hinted
    if x is None:
        x = dice.shape(3, 5)
        if out is not None and len(out) >= 3:
            x = (*out[:2], *(dice.few() for _ in out[2:]))
    return Proposal([x])


def _lrn(request: Request, dice: Dice) -> Proposal:
    x = _fresh(request, dice, 3)
    alpha, beta, bias = dice.pick((0.5, 0.25, 1.0)), dice.pick((0.75, 0.5, 1.0)), dice.pick((1.0, 0.5, 2.0))
    return Proposal([x], {"size": dice.pick((1, 3, 5)), "alpha": alpha, "beta": beta, "bias": bias})


_QUANTIZED = ("int8", "uint8", "int8", "uint8", "int16", "uint16")


def _quantize(request: Request, dice: Dice) -> Proposal:
    x, scale = _fresh(request, dice, 1), request.shape(1)
    axis, block = axis_of(request, dice, len(x)), request.int("block_size")
    valid = 0 <= axis < len(x)
    params: Shape = () if dice.chance(0.5) or not valid else (x[axis],)
    if block is None and scale is not None and len(scale) > 1:
        block = dice.pick((1, 2, 3))
        if request.shape(0) is None and len(scale) > axis >= 0:
            x = (*scale[:axis], scale[axis] * block, *scale[axis + 1 :])
    elif block is None:
        block = dice.pick((1, 2, 3)) if valid and scale is None and dice.chance(0.25) else 0
    if block and valid and scale is None:
        params = (*x[:axis], -(-x[axis] // block), *x[axis + 1 :])
    # No type is given but where no zero point has it, or the same.
    small, result = dice.pick(_QUANTIZED), ""
    if dice.chance(0.5):
        result = small if 2 not in request.absent else dice.pick(_QUANTIZED)
    wide = dice.pick(("float32", "float32", "float32", "float16"))
    dtypes = {0: wide, 1: wide, 2: small}
    if request.op == "DequantizeLinear":
        dtypes = {0: small, 1: wide, 2: small}
        result = dice.pick(("", "", "float32", "float16"))
    attrs: dict[str, AttrValue] = {
        "axis": axis, "block_size": block, "saturate": 1, "output_dtype": result, "precision": 0,
    }  # fmt: skip
    return Proposal([x, params, params], attrs, dtypes)


def _einsum(request: Request, dice: Dice) -> Proposal:
    """Sizes by letter; those of an ellipsis by their place from the end."""
    known = request.attrs.get("equation")
    equation = known if isinstance(known, str) else _equation(request, dice)
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    sizes: dict[str, int] = {}
    for place, term in enumerate(terms):
        sizes |= dict(zip(_letters(term, request.shape(place)), request.shape(place) or (), strict=False))
    dots = tuple(f"-{place}" for place in range(dice.between(0, 2), 0, -1))
    shapes: list[Shape | None] = []
    for term in terms:
        head, found, tail = term.partition("...")
        letters = (*head, *(dots[dice.between(0, 1) if len(dots) > 1 else 0 :] if found else ()), *tail)
        shapes.append(tuple(sizes.setdefault(letter, dice.size()) for letter in letters))
    return Proposal(shapes, {"equation": equation})


def _letters(term: str, shape: Shape | None) -> tuple[str, ...]:
    """The letters of an operand of this shape, with those of its ellipsis."""
    head, dots, tail = term.partition("...")
    count = len(shape or ()) - len(head) - len(tail)
    return (*head, *(f"-{place}" for place in range(count, 0, -1) if dots), *tail)


def _equation(request: Request, dice: Dice) -> str:
    """One of the usual equations, or one that is made of letters at random."""
    count = len(request.args)
    if count == 2 and dice.chance(0.4):
        return dice.pick(_USUAL_EQUATIONS)
    ranks = [None if shape is None else len(shape) for shape in map(request.shape, range(count))]
    letters = dice.pick(("ij", "ijk", "abcd", "bhqkd"))
    terms: list[str] = []
    for rank in ranks:
        length = min(dice.between(0 if dice.chance(0.1) else 1, len(letters)) if rank is None else rank, 5)
        terms.append("".join(dice.random.sample((letters + "uvwxyz")[: max(len(letters), length)], length)))
    used = sorted(set("".join(terms)))
    if dice.chance(0.1):
        return ",".join(terms)
    kept = [letter for letter in used if dice.chance(0.65)]
    dice.random.shuffle(kept)
    if dice.chance(0.15):
        dotted = [term if dice.chance(0.2) else f"...{term}" for term in terms]
        return f"{','.join(dotted)}->...{''.join(kept)}"
    return f"{','.join(terms)}->{''.join(kept)}"


_USUAL_EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "ij,ij->i", "bhid,bhjd->bhij", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "bsd,df->bsf",
    "i,j->ij", "i,i->", "ij,ij->ij", "ij,j", "bij,kij->bk", "bsd,dhk->bshk", "nij,njk -> nik", "...d,df->...f",
    "ij,bjk->bik", "ij,ik->jk",
)  # fmt: skip


def _stft(request: Request, dice: Dice) -> Proposal:
    length, x = dice.between(1, 9), request.shape(0)
    if x is None:
        x = (dice.between(1, 3), length + dice.between(0, 20), *((dice.pick((1, 2)),) if dice.chance(0.4) else ()))
    one, step = request.int("onesided"), dice.between(1, length)
    attrs = {"frame_step": step, "frame_length": length, "onesided": dice.pick((0, 1)) if one is None else one}
    return Proposal([x, (length,)], dict(attrs))


_PROPOSERS: Mapping[str, Callable[[Request, Dice], Proposal]] = {
    **LINEAR,
    **MOVEMENT,
    **RESIZING,
    **dict.fromkeys(("Softmax", "LogSoftmax", "CumSum", "LpNormalization"), _with_axis),
    **dict.fromkeys(named(lambda form: form.reduces), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_reduce),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    "PRelu": _prelu, "Clip": _clip, "Pow": _pow, "Where": _where, "Cast": _cast, "Einsum": _einsum, "Shape": _shape_of,
    "Size": _shape_of, "LRN": _lrn, "STFT": _stft,
}  # fmt: skip
