"""What FORMS says of every operator, held against what its kernel does; and that no module forgets an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import defs

from superopt import rule_text, shapes
from superopt.errors import EvaluationError, InferenceError
from superopt.inputs import input_roles
from superopt.kernels import FLOAT64, apply, evaluate_graph
from superopt.laws import error_steps, sides
from superopt.laws.instances import instances
from superopt.operators import FORMS, NEWEST_OPSET, named, operator
from superopt.rounding import rounding_bound
from superopt.shapes import infer
from superopt.sizes.shapes import SHAPES
from superopt.terms import Attrs, AttrValue, TensorType
from tests.test_kernels import CASES, NOT_RATIONAL, NOT_RING, complete

Array = NDArray[Any]
Args = list["Array | None"]
MANY = 160
"""Elements of an argument up to which each is changed by itself."""


def cases(op: str) -> Iterator[tuple[Attrs, Args]]:
    """The cases of an operator, in float64, without what is not a number."""
    for name, given, args in CASES:
        if name == op:
            entered = [None if arg is None else np.asarray(FLOAT64.enter(np.asarray(arg))) for arg in args]
            yield (
                complete(op, given),
                [arg if arg is None or arg.dtype.kind != "f" else np.asarray(np.nan_to_num(arg, posinf=9, neginf=-9))
                 for arg in entered],
            )  # fmt: skip


def results(op: str, attrs: Attrs, args: Sequence[Array | None]) -> tuple[Array, ...]:
    return apply(op, attrs, args, FLOAT64)


def floating(args: Args) -> list[int]:
    return [place for place, arg in enumerate(args) if arg is not None and arg.dtype.kind == "f"]


def replaced(args: Args, place: int, array: Array | None) -> Args:
    return [array if at == place else arg for at, arg in enumerate(args)]


def influences(op: str, attrs: Attrs, args: Args) -> int:
    """By how many elements of one argument an element of the result is changed, at most."""
    base, most = results(op, attrs, args), 0
    for place, arg in enumerate(args):
        if arg is None or arg.size > MANY:
            continue
        count = [np.zeros(part.shape, np.int64) for part in base]
        for turn, at in enumerate(np.ndindex(arg.shape)):
            moved, far = arg.copy(), 9.37 if turn % 2 else -9.37
            moved[at] = ~moved[at] if arg.dtype.kind == "b" else moved[at] + (far if arg.dtype.kind == "f" else 1)
            try:
                there = results(op, attrs, replaced(args, place, moved))
            except EvaluationError:
                continue  # an index that is out of range now
            for seen, mine, other in zip(count, base, there, strict=True):
                seen += (mine != other) & ~((mine != mine) & (other != other))
        most = max([most, *(int(seen.max(initial=0)) for seen in count)])
    return most


def held(op: str, attrs: Attrs, args: Args) -> bool:
    """Whether every element of the result is one of an argument, or zero, which pads."""
    known = np.concatenate([np.zeros(1), *(np.ravel(arg).astype(np.float64) for arg in args if arg is not None)])
    return all(bool(np.isin(part.astype(np.float64), known).all()) for part in results(op, attrs, args))


def additive(op: str, attrs: Attrs, args: Args, places: Sequence[int]) -> bool:
    """Whether the result is the sum of results where these arguments are sums."""
    generator = np.random.default_rng(0)
    shapes = {place: (0 if (arg := args[place]) is None else arg.shape) for place in places}
    one, other = ({place: generator.normal(size=shape) for place, shape in shapes.items()} for _ in range(2))

    def at(given: dict[int, Array]) -> Array:
        return results(op, attrs, [given.get(place, arg) for place, arg in enumerate(args)])[0]

    return np.allclose(at({place: one[place] + other[place] for place in places}), at(one) + at(other))


def is_pointwise(op: str) -> bool:
    return all(influences(op, attrs, args) <= 1 for attrs, args in cases(op))


def is_chosen(op: str) -> bool:
    """Beside what ``held`` says: no error grows."""
    for attrs, args in cases(op):
        moved = [
            arg if arg is None or arg.dtype.kind != "f" else arg + 0.3 * np.cos(np.arange(arg.size)).reshape(arg.shape)
            for arg in args
        ]
        if not held(op, attrs, args) or args[0] is None:
            return False
        for mine, other in zip(results(op, attrs, args), results(op, attrs, moved), strict=True):
            if mine.dtype.kind == "f" and np.max(np.abs(mine - other), initial=0) > 0.3001:
                return False
    return True


def is_moved(op: str) -> bool:
    """Beside what ``held`` says: other values move the same way."""
    for attrs, args in cases(op):
        if attrs.get("reduction", "none") != "none":
            continue  # ScatterND with a reduction: whoever relies on it looks
        turned = [arg if arg is None or arg.dtype.kind != "f" else -arg for arg in args]
        pairs = zip(results(op, attrs, args), results(op, attrs, turned), strict=True)
        turns = all(np.array_equal(one, -two) for one, two in pairs if one.dtype.kind == "f")
        if not turns or not held(op, attrs, args):
            return False
    return True


def is_summed(op: str) -> bool:
    return all(additive(op, attrs, args, floating(args)) for attrs, args in cases(op) if floating(args))


def is_bilinear(op: str) -> bool:
    for attrs, args in cases(op):
        bare = args
        if len(args) == 3 and op != "Einsum":
            bare = replaced(args, 2, None if args[2] is None else np.zeros_like(args[2]))
        factors = [place for place in floating(args) if place < 2 or op == "Einsum"]
        if not all(additive(op, attrs, bare, [place]) for place in factors):
            return False
    return True


def is_mixed(op: str) -> bool:
    return not is_pointwise(op)


def is_told(op: str) -> bool:
    return all(influences(op, attrs, args) == 0 for attrs, args in cases(op))


IS_MADE: dict[str, Callable[[str], bool]] = {
    "told": is_told, "moved": is_moved, "chosen": is_chosen, "pointwise": is_pointwise, "summed": is_summed,
    "bilinear": is_bilinear, "mixed": is_mixed,
}  # fmt: skip
"""From the narrowest to the widest: an operator is of the first kind that it is of."""

WIDER = {
    "Where": "by its condition, it moves either",
    "Sum": "of each argument one", "Mean": "of each argument one",
    "Resize": "a sum, but with weights", "STFT": "a sum of products, but with what is no argument",
}  # fmt: skip
"""Operators of a wider kind than the first."""


@pytest.mark.parametrize("op", FORMS)
def test_a_result_is_made_as_the_form_says(op: str) -> None:
    form = FORMS[op]
    assert IS_MADE[form.made](op)
    if not form.discrete:  # what is decided has no elements to follow
        first = next(made for made, holds in IS_MADE.items() if holds(op))
        assert (first != form.made) == (op in WIDER)


def test_what_is_said_of_how_results_are_made_can_be_wrong() -> None:
    """Each kind is denied to an operator that comes near it."""
    near = {
        "pointwise": "CumSum", "chosen": "ThresholdedRelu", "moved": "Max", "summed": "ReduceL1", "bilinear": "Mod",
        "mixed": "PRelu", "told": "Ceil",
    }  # fmt: skip
    assert set(near) == set(IS_MADE)
    for made, op in near.items():
        assert not IS_MADE[made](op), (made, op)


def types_of(args: Args) -> list[TensorType | None]:
    return [arg if arg is None else TensorType(KIND.get(arg.dtype.kind, str(arg.dtype)), arg.shape) for arg in args]


KIND = {"f": "float32"}
"""Of a case's arguments when they have been entered."""


def shapes_told(op: str) -> set[str]:
    """What shapes of results can be said to be, after all cases."""
    found = {"first", "broadcast"}
    for attrs, args in cases(op):
        given = [arg.shape for arg in args if arg is not None]
        shape = results(op, attrs, args)[0].shape
        if shape != given[0]:
            found.discard("first")
        try:
            if shape != np.broadcast_shapes(*given):
                found.discard("broadcast")
        except ValueError:
            found.discard("broadcast")
    return found or {"own"}


def stretches(op: str) -> bool:
    """Whether onnx says that a first argument of one element is stretched along the second."""
    attrs, args = next(cases(op))
    types = types_of(args)
    sizes = ((1,), (7, 3))
    types[:2] = [kind and TensorType(kind.dtype, shape) for kind, shape in zip(types, sizes, strict=False)]
    try:
        found = shapes._by_onnx(op, attrs, types, tuple(arg is not None for arg in args))
    except InferenceError:
        return False
    return isinstance(found, TensorType) and found.shape == (7, 3)


@pytest.mark.parametrize("op", FORMS)
def test_a_result_has_the_shape_that_the_form_says(op: str) -> None:
    found, said = shapes_told(op), FORMS[op].shaped
    assert said in found
    if len(found) > 1:
        assert said == ("broadcast" if stretches(op) else "first")


def always(op: str, holds: Callable[[Attrs, Args, tuple[Array, ...]], bool]) -> bool:
    """Whether this holds in every case with a float."""
    found = [holds(attrs, args, results(op, attrs, args)) for attrs, args in cases(op) if floating(args)]
    return bool(found) and all(found)


def whole(attrs: Attrs, args: Args, parts: tuple[Array, ...]) -> bool:
    return all(part.dtype.kind in "iub" or bool(np.all(part == np.rint(part))) for part in parts)


def same_size(attrs: Attrs, args: Args, parts: tuple[Array, ...]) -> bool:
    return args[0] is not None and (
        parts[0].dtype.kind != "f" or np.array_equal(np.abs(parts[0]), np.abs(args[0].astype(np.float64)))
    )


def commutes(op: str) -> bool:
    """Whether the operator's results are the same in either order of two arguments."""
    for attrs, args in cases(op):
        try:
            turned = results(op, attrs, args[::-1])
        except EvaluationError:
            return False  # divided by zero
        if not np.array_equal(results(op, attrs, args)[0], turned[0], equal_nan=True):
            return False
    return True


@pytest.mark.parametrize("op", FORMS)
def test_traits_are_true(op: str) -> None:
    form, spec = FORMS[op], operator(op)
    assert spec is not None
    schema = defs.get_schema(op, NEWEST_OPSET)
    bits = not any("float" in kind or "double" in kind for kind in schema.outputs[0].types)
    assert form.discrete == (form.made not in ("moved", "chosen") and (bits or always(op, whole)))
    assert not form.arithmetic or form.made in ("pointwise", "mixed")
    if form.made == "pointwise":
        assert form.exact == (not form.discrete and always(op, same_size))
    else:
        assert not form.exact
    assert form.reduces == ({"axes", "keepdims"} <= set(spec.attributes))
    assert form.windowed == ({"strides", "pads"} <= set(spec.attributes))
    second = schema.inputs[1].types if len(schema.inputs) > 1 and 1 not in (form.attribute_inputs or {}) else set()
    assert form.indexed == (form.made == "moved" and "tensor(int64)" in second and "tensor(float)" not in second)
    assert form.bundle == ("split" in spec.attributes)
    assert form.commutative == (spec.arity == 2 and form.shaped == "broadcast" and commutes(op))


@pytest.mark.parametrize("op", FORMS)
def test_a_result_has_another_type_where_the_operator_retypes(op: str) -> None:
    spec = operator(op)
    assert spec is not None
    kept = [
        any(
            arg is not None and arg.dtype.kind == results(op, attrs, args)[0].dtype.kind
            for arg in args[: spec.required]
        )
        for attrs, args in cases(op)
    ]
    assert all(kept) if not spec.retypes else op == "DequantizeLinear" or not all(kept)


def test_operators_of_a_ring_are_those_whose_kernels_know_no_others() -> None:
    rational = set(FORMS) - NOT_RING - NOT_RATIONAL
    assert rational >= sides.RING
    # A condition, another type, and an integer beside a float; what is decided is no number of a ring.
    others = {"Where", "Cast", "DequantizeLinear"} | set(named(lambda form: form.discrete))
    assert rational - sides.RING == others & rational


@pytest.mark.parametrize("op", named(lambda form: form.reduces))
def test_a_reduction_keeps_its_axes_as_ones(op: str) -> None:
    for attrs, args in cases(op):
        assert args[0] is not None
        axes, keep = attrs["axes"], attrs["keepdims"]
        assert isinstance(axes, tuple)
        dims = [1 if axis in axes else dim for axis, dim in enumerate(args[0].shape) if keep or axis not in axes]
        assert results(op, attrs, args)[0].shape == tuple(dims)


@pytest.mark.parametrize("op", named(lambda form: form.shaped != "own"))
def test_plain_shapes_are_what_onnx_infers_and_what_kernels_make(op: str) -> None:
    for attrs, args in cases(op):
        types = types_of(args)
        given = tuple(arg is not None for arg in args)
        own = shapes._written_out(op)
        found = shapes._by_onnx(op, attrs, types, given) if own is None else own(attrs, types)
        by_onnx = shapes._by_onnx(op, attrs, types, given)
        assert isinstance(found, TensorType)
        assert isinstance(by_onnx, TensorType)
        assert found.shape == results(op, attrs, args)[0].shape
        assert found.dtype == by_onnx.dtype
        assert by_onnx.shape in (found.shape, None)


def test_the_type_of_a_power_is_that_of_its_base_where_only_the_exponent_is_known() -> None:
    assert infer("Pow", Attrs(), [None, TensorType("int64", (2,))], (True, True)) is None


# What is not known of an operator is so because somebody said so, here.

NO_SIZES = set(
    """Einsum ArgMax ArgMin Split Pad Flatten Tile GatherElements GatherND Resize DepthToSpace SpaceToDepth Shape Size
    STFT""".split()
)
"""Operators of whose results' sizes by symbols nothing is known but what onnx infers."""

NO_BOUND = set(
    """Acos Acosh Asin Atanh Celu Cosh Elu Gelu HardSwish Mish Selu Shrink Sinh Swish Tan ThresholdedRelu
    DequantizeLinear BatchNormalization LpPool InstanceNormalization LayerNormalization RMSNormalization
    GroupNormalization LRN LpNormalization Softmax LogSoftmax ReduceL2 ReduceLogSumExp ReduceLogSum Resize
    STFT""".split()
)
"""Operators whose rounding has no bound: half of float64's digits are asked for."""

NO_STEP = set(
    """InstanceNormalization LayerNormalization RMSNormalization GroupNormalization LRN LpNormalization Softmax
    LogSoftmax LpPool Resize STFT Einsum""".split()
)
"""Operators whose error is found by moving all arguments at once."""


def test_sizes_of_every_operator_are_known_or_said_not_to_be() -> None:
    assert {op for op in FORMS if op not in SHAPES} == NO_SIZES


def test_rounding_of_every_operator_is_bounded_or_said_not_to_be() -> None:
    unbounded = set()
    for op in FORMS:
        bounds = [
            rounding_bound(op, attrs, args, [0.0] * len(args), results(op, attrs, args)) for attrs, args in cases(op)
        ]
        if bounds and min(bounds) == np.inf:
            unbounded.add(op)
    assert unbounded == NO_BOUND


def test_every_operator_has_a_step_of_error_analysis_or_is_said_to_have_none() -> None:
    known = {*error_steps.MOVES, *error_steps.DISCRETE, *error_steps._RULES, *error_steps._POINTWISE}
    assert set(FORMS) - known == NO_STEP


@pytest.mark.parametrize("op", FORMS)
def test_an_operator_can_be_drawn_for_laws(op: str) -> None:
    """What is proposed for it is well typed and can be computed: a new operator may need a proposer of its own."""
    spec = operator(op)
    assert spec is not None
    term = f"{op}({', '.join('abcde'[: spec.arity or 2])}, **r){'[0]' if spec.form.bundle else ''}"
    (rule,) = rule_text.parse(f"rule drawn: exact\n  Identity({term}) => {term}\n").rules
    drawn = list(instances(rule, points=8, seed=0))
    assert drawn
    computed = 0
    for instance in drawn:
        try:
            evaluate_graph(instance.left, instance.arrays, FLOAT64)
        except EvaluationError:
            continue
        computed += 1
    assert computed


def test_data_of_indices_stays_indices_through_what_moves_and_chooses() -> None:
    assert {"Reshape", "DepthToSpace", "Where", "ReduceMax", "Cast"} <= input_roles._CARRYING
    assert not {"Gather", "ScatterND", "Mul", "ReduceSum", "Shape"} & input_roles._CARRYING


def test_what_is_exact_has_no_rounding() -> None:
    x, places = np.arange(6.0).reshape(3, 2) / 3, np.asarray([[0], [2]])
    args: Args = [x, places, x[:2] / 7]
    for reduction, expected in (("none", 0.25), ("max", 0.25), ("add", np.inf), ("mul", np.inf)):
        attrs = Attrs.of({"reduction": reduction})
        made = results("ScatterND", attrs, args)
        assert rounding_bound("ScatterND", attrs, args, [0.0, 0.0, 0.25], made) == expected
    assert rounding_bound("Floor", Attrs(), [x], [0.0], (np.floor(x),)) == 0
    assert rounding_bound("Floor", Attrs(), [x], [1e-9], (np.floor(x),)) == np.inf
    assert rounding_bound("Where", Attrs(), [x > 1, x, x], [0.0, 0.5, 0.25], (x,)) == 0.5


@pytest.mark.parametrize(
    ("op", "attrs", "args"),
    [
        ("QuantizeLinear", {"output_dtype": ""}, [TensorType("float32", (2,)), TensorType("float32", ()), None]),
        ("QuantizeLinear", {"output_dtype": "wide"}, [TensorType("float32", (2,)), TensorType("float32", ()), None]),
        ("MaxPool", {"kernel_shape": (2, 2), "pads": (1, 1)}, [TensorType("float32", (1, 1, 4, 4))]),
        ("MaxPool", {"kernel_shape": (2, 2), "dilations": (1,)}, [TensorType("float32", (1, 1, 4, 4))]),
        ("QuantizeLinear", {"axis": 0}, [TensorType("float32", (4, 2)), TensorType("float32", (2, 2)), None]),
        (
            "DequantizeLinear",
            {"axis": 0, "block_size": 3},
            [TensorType("int8", (4, 2)), TensorType("float32", (4, 2)), None],
        ),
    ],
)
def test_what_has_no_type_is_refused_by_an_error_of_ours(
    op: str, attrs: dict[str, AttrValue], args: list[TensorType | None]
) -> None:
    spec = operator(op)
    assert spec is not None
    with pytest.raises(InferenceError, match=op):
        infer(op, Attrs.of({**dict(spec.defaults.items), **attrs}), args)
