"""The functions that rules call: what they answer, and that they refuse what is not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superopt import conditions
from superopt import values as registry
from superopt.conditions import contents as values
from superopt.conditions import convolution, movement, selection, spectrum, types
from superopt.terms import Attrs, Dim, TensorType
from superopt.values import FUNCTIONS, Unknown, Value


def of(*shape: Dim, dtype: str = "float32") -> Value:
    return Value(TensorType(dtype, shape))


def known(array: Any) -> Value:
    held = np.asarray(array)
    return Value(TensorType(held.dtype.name, held.shape), True, lambda: held)


NOTHING = Value(None)
RANKLESS = Value(TensorType("float32", None))


def test_every_function_is_documented_and_typed() -> None:
    for function in FUNCTIONS.values():
        assert function.call.__doc__, function.name
        assert set(function.reads) <= set(function.parameters), function.name
        assert function.call.__module__ in {module.__name__ for module in conditions.THEMES}, function.name


def test_function_by_name() -> None:
    found = conditions.function("along")
    assert found is not None
    assert found.kind == "predicate"
    assert conditions.function("no_such") is None


@pytest.mark.parametrize(("number", "dtype"), [(1000, "int8"), (-1, "uint8"), (1e6, "float16"), (2**63, "int64")])
def test_a_scalar_that_its_type_does_not_have_is_unknown(number: float, dtype: str) -> None:
    with pytest.raises(Unknown, match=dtype):
        types.scalar(number, of(2, dtype=dtype))
    assert types.scalar(number, of(2, dtype="float64")) == number


@pytest.mark.parametrize("unknown", [NOTHING, RANKLESS])
def test_unknown_types_are_refused(unknown: Value) -> None:
    calls = (
        lambda: types.fits(unknown, of(2)), lambda: types.along(unknown, 0, 1, 2), lambda: types.rank(unknown),
        lambda: types.shape(unknown), lambda: types.same_shape(unknown, of(2)), lambda: types.trailing_axes(unknown),
        lambda: convolution.kernel(unknown), lambda: movement.reshaped_to_itself(unknown, (2,)),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(Unknown):
            call()


def test_contents_that_are_not_known_are_refused() -> None:
    for predicate in (values.zero, values.one, values.positive, values.negative_zero, values.invertible):
        with pytest.raises(Unknown):
            predicate(of(2))


def test_symbols_equal_themselves_alone() -> None:
    assert types.same_shape(of("n", 3), of("n", 3))
    assert not types.same_shape(of("n", 3), of("m", 3))
    assert not types.same_shape(of(None, 3), of(None, 3))
    assert types.fits(of("n", 1), of("n", 3))
    assert not types.fits(of("m", 1), of("n", 3))
    assert movement.expands_nothing(of("n", 3), (1, 3))
    assert not movement.expands_nothing(of("n", 3), (2, 3))
    with pytest.raises(Unknown):
        types.size(of("n", 3))


def test_fits_is_what_broadcasting_says() -> None:
    assert types.fits(of(3), of(2, 3))
    assert types.fits(of(), of(2, 3))
    assert not types.fits(of(1, 1, 1), of(2, 3))
    assert not types.fits(of(2), of(2, 3))
    assert not types.fits(of(3), of(2, 1))


def test_along_counts_from_either_end() -> None:
    assert types.along(of(6, 1, 1), 1, 4, 6)
    assert types.along(of(6), -1, 2, 6)
    assert not types.along(of(6), 1, 4, 6)
    assert not types.along(of(6, 1, 1), 1, 3, 6)
    assert not types.along(of(6, 1, 1), 1, 4, 5)
    assert not types.along(of(1), 3, 2, 5)


DTYPES = "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split()


@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_lossless_agrees_with_numpy(source: str, target: str) -> None:
    # numpy calls casts to another kind unsafe even where all values fit, and int64 to float64 safe where they do not.
    if types.lossless(source, target):
        kind = np.dtype(source)
        if kind.kind in "iu":
            edges = np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)
        elif kind.kind == "f":
            edges = np.array([np.finfo(kind).max, np.finfo(kind).tiny, np.finfo(kind).eps + 1], kind)
        else:
            edges = np.array([False, True])
        assert np.array_equal(edges.astype(target).astype(source), edges)
        assert np.array_equal(edges.astype(target).astype(np.longdouble), edges.astype(np.longdouble))
    elif np.can_cast(source, target, "safe"):
        assert (source[-2:], target) in {("64", "float64")}


def test_casts_by_way_of_another_type() -> None:
    assert types.value_cast("float16", "float32", "float64")
    assert types.value_cast("bool", "float32", "int32")
    assert not types.value_cast("float32", "float64", "int32")
    assert not types.value_cast("int32", "float32", "int32")
    assert not types.value_cast("int8", "int32", "string")


def test_invertible_keeps_reciprocals_normal() -> None:
    assert values.invertible(known(np.float32([0.5, -3])))
    assert not values.invertible(known(np.float32([0.5, 0])))
    assert not values.invertible(known(np.float32([1e-39])))
    assert not values.invertible(known(np.float32([3e38])))
    assert not values.invertible(known(np.float16([1e-5])))
    assert not values.invertible(known(np.array([2, 4])))


def test_equal_once_rounded_to_the_type() -> None:
    assert values.equals(known(np.float32(2**0.5)), 2**0.5)
    assert values.equals(known(np.float16([2**0.5])), 2**0.5)
    assert not values.equals(known(np.float64(np.float32(2**0.5))), 2**0.5)
    assert not values.equals(known(np.float32([1.0, 1.0])), 1)


def test_zeros_have_signs() -> None:
    assert values.zero(known(np.float32([0.0, -0.0])))
    assert not values.positive_zero(known(np.float32([0.0, -0.0])))
    assert not values.negative_zero(known(np.float32([0.0, -0.0])))
    assert values.negative_zero(known(np.float32([-0.0])))
    assert values.negative_zero(known(np.array([0])))
    assert not values.zero(known(np.float32([np.nan])))
    assert not values.positive(known(np.float32([np.inf])))


def test_matmul_ranks() -> None:
    for left, right in (((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (3, 2)), ((2, 3), (5, 3, 2))):
        product = np.matmul(np.zeros(left), np.zeros(right))
        assert types.product_rank(of(*left), of(*right)) == product.ndim
    with pytest.raises(Unknown):
        types.product_rank(of(), of(3))


def sliding(pads: tuple[int, ...], dilations: tuple[int, ...]) -> Attrs:
    return Attrs.of(pads=pads, dilations=dilations, strides=(1,) * len(dilations), group=1)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.integers(1, 3), st.integers(0, 3))
def test_frames_hold_both_kernels(taps: int, taps2: int, pad: int, pad2: int, dilation: int, end: int) -> None:
    """Every tap of both kernels reads the same offset in the frame as before, and the outputs have one size."""
    end2 = pad + end - dilation * (taps - 1) + dilation * (taps2 - 1) - pad2
    first, second = sliding((pad, end), (dilation,)), sliding((pad2, max(end2, 0)), (dilation,))
    try:
        margins = convolution.margins((taps,), first, (taps2,), second)
    except Unknown:
        assert end2 < 0 or (pad - pad2) % dilation or taps == 1 or taps2 == 1
        return
    margins2 = convolution.margins((taps2,), second, (taps,), first)
    (begin, finish), (spread,) = (
        convolution.frame_pads((taps,), first, (taps2,), second),
        convolution.frame_dilations((taps,), first, (taps2,), second),
    )
    whole = margins[2] + taps + margins[5]
    assert whole == margins2[2] + taps2 + margins2[5]
    assert min(*margins, *margins2, begin, finish) >= 0
    assert [tap * dilation - pad for tap in range(taps)] == [(margins[2] + tap) * spread - begin for tap in range(taps)]
    assert [tap * dilation - pad2 for tap in range(taps2)] == [
        (margins2[2] + tap) * spread - begin for tap in range(taps2)
    ]
    assert begin + finish - spread * (whole - 1) == pad + end - dilation * (taps - 1)


def test_kernels_that_do_not_align_have_no_frame() -> None:
    three = sliding((1, 1), (1,))
    for taps, attrs in ((3, sliding((2, 2), (1,))), (3, sliding((2, 2), (2,))), (2, sliding((1, 1), (1,)))):
        with pytest.raises(Unknown):
            convolution.margins((3,), three, (taps,), attrs)


def test_identity_kernels_are_the_identity_of_their_group() -> None:
    weight = of(4, 2, 3, 3)
    attrs = Attrs.of(pads=(1, 1, 1, 1), dilations=(1, 1), strides=(1, 1), group=2)
    made = convolution.identity_kernel(weight, attrs)
    assert [tuple(place) for place in np.argwhere(made)] == [(0, 0, 1, 1), (1, 1, 1, 1), (2, 0, 1, 1), (3, 1, 1, 1)]
    assert convolution.holds_identity(weight, attrs)
    assert not convolution.holds_identity(of(6, 2, 3, 3), attrs)
    assert not convolution.holds_identity(weight, attrs.replaced(pads=(0, 1, 2, 1), strides=(1, 2)))


@pytest.mark.parametrize(("rows", "group", "count"), [(4, 2, 2), (8, 4, 2), (12, 6, 3), (12, 6, 2), (6, 6, 3)])
def test_slots_are_those_of_the_groups(rows: int, group: int, count: int) -> None:
    mask = convolution.slot_mask(of(rows, 2, 1, 1), group, count)
    for row in range(rows):
        own = row // (rows // group) % count
        assert np.flatnonzero(mask[row, :, 0, 0]).tolist() == [2 * own, 2 * own + 1]


def test_reshapes_that_copy_and_infer() -> None:
    assert movement.reshaped_to_itself(of("n", 3, 4), (0, -1, 4))
    assert movement.reshaped_to_itself(of("n", 3, 4), (-1, 3, 4))
    assert not movement.reshaped_to_itself(of("n", 3, 4), (-1, 4, 3))
    assert not movement.reshaped_to_itself(of(2, 3), (-1, -1))
    assert not movement.reshaped_to_itself(of(2, 3), (2, 3, 1))


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_permutations_compose_and_invert(first: list[int], then: list[int]) -> None:
    array = np.arange(24).reshape(1, 2, 3, 4)
    assert np.array_equal(
        array.transpose(first).transpose(then), array.transpose(movement.composed(tuple(first), tuple(then)))
    )
    assert np.array_equal(array.transpose(first).transpose(movement.inverse(tuple(first))), array)


@given(st.permutations(range(4)), st.sets(st.integers(0, 3), min_size=1, max_size=3))
def test_reductions_pass_permutations(perm: list[int], axes: set[int]) -> None:
    array = np.arange(120).reshape(2, 3, 4, 5)
    chosen, order = sorted(axes), tuple(perm)
    expected = array.transpose(perm).sum(axis=tuple(chosen))
    found = array.sum(axis=movement.chosen(order, tuple(chosen))).transpose(movement.left_over(order, tuple(chosen)))
    assert np.array_equal(found, expected)


@given(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 3)),
    st.tuples(st.integers(0, 12), st.integers(0, 2**63 - 1), st.integers(1, 3)),
    st.booleans(),
)
def test_slices_of_slices_merge(inner: tuple[int, int, int], outer: tuple[int, int, int], same: bool) -> None:
    array = np.arange(100).reshape(10, 10)
    pairs = [(0, inner), (0 if same else 1, outer)]
    expected = array
    for axis, (start, end, step) in pairs:
        expected = expected[(slice(None),) * axis + (slice(start, end, step),)]
    first, second = (
        Attrs.of(axes=(axis,), starts=(start,), ends=(end,), steps=(step,)) for axis, (start, end, step) in pairs
    )
    found = array
    merged = zip(
        movement.merged_axes(first, second), movement.merged_starts(first, second), movement.merged_ends(first, second),
        movement.merged_steps(first, second), strict=True,
    )  # fmt: skip
    for axis, start, end, step in merged:
        found = found[(slice(None),) * axis + (slice(start, end, step),)]
    assert np.array_equal(found, expected)


def test_slices_from_the_end_are_refused() -> None:
    forwards = Attrs.of(axes=(0,), starts=(1,), ends=(4,), steps=(1,))
    for odd in (forwards.replaced(starts=(-3,)), forwards.replaced(steps=(-1,)), forwards.replaced(ends=(-1,))):
        with pytest.raises(Unknown):
            movement.merged_starts(forwards, odd)


def test_squeezes_and_unsqueezes_of_each_other() -> None:
    array = np.zeros((1, 2, 1, 3, 1))
    for inner, outer in (((0,), (1,)), ((2, 4), (0,)), ((4,), (0, 2))):
        kept = movement.squeezed_axes(inner, outer, array.ndim)
        assert np.squeeze(np.squeeze(array, inner), outer).shape == np.squeeze(array, kept).shape
    small = np.zeros((2, 3))
    for inner, outer in (((0,), (1,)), ((0, 2), (1,)), ((1,), (0, 3)), ((2,), (2,))):
        added = movement.unsqueezed_axes(inner, outer, small.ndim)
        assert np.expand_dims(np.expand_dims(small, inner), outer).shape == np.expand_dims(small, added).shape


def test_the_axis_of_an_operand_that_broadcasts() -> None:
    assert selection.own_axis(2, of(3, 4), of(2, 3, 4)) == 1
    assert selection.own_axis(1, of(5, 3, 4)) == 1
    with pytest.raises(Unknown):
        selection.own_axis(0, of(3, 4), of(2, 3, 4))


def test_who_varies_along_an_axis() -> None:
    x = of("batch", "words", 8)
    assert selection.constant_along(1, of(8), x)
    assert selection.constant_along(1, of(1, 8), x)
    assert not selection.constant_along(2, of(8), x)
    assert not selection.constant_along(1, of(None, 8), x)
    assert selection.constant_along_all((0, 1), of(8), x)
    assert not selection.constant_along_all((1, 2), of(8), x)
    assert selection.alike_along(1, x, of("words", 1))
    assert not selection.alike_along(1, x, of("length", 1))
    assert not selection.alike_along(0, x, of("words", 1))


def test_a_selection_is_of_one_or_of_few() -> None:
    assert selection.few_indices(of(1), of("batch", "words"), 1)
    assert selection.few_indices(of(2), of(3, 8), 1)
    assert not selection.few_indices(of(3), of(3, 8), 1)
    assert not selection.few_indices(of(1), of(8), 0)
    assert not selection.few_indices(of(), of(3, 8), 1)
    with pytest.raises(Unknown):
        selection.few_indices(of(2), of("batch", "words"), 1)


@pytest.mark.parametrize(
    ("shape", "target", "axis", "expected"),
    [
        (("b", "n", 12), (0, 0, 3, 4), 1, (0, 0, 3, 4)),
        ((2, 5, 12), (2, 5, 3, 4), 1, (0, 0, 3, 4)),
        ((2, "n", 12), (2, -1, 3, 4), 1, (0, 0, 3, 4)),
        ((2, 5, 12), (2, 5, -1), 0, (0, 5, -1)),
        ((2, 5, 12), (5, 2, 12), 0, None),
        ((2, "n", 12), (2, -1, 6), 1, None),
        (("b", "n", 12), (-1, 12), 0, None),
        ((2, 5, 12), (10, 12), 0, None),
        ((2, 5), (2,), 1, None),
    ],
)
def test_what_is_selected_is_reshaped_alike(
    shape: tuple[Dim, ...], target: tuple[int, ...], axis: int, expected: tuple[int, ...] | None
) -> None:
    if expected is None:
        with pytest.raises(Unknown):
            selection.shape_of_selected(of(*shape), target, axis)
    else:
        assert selection.shape_of_selected(of(*shape), target, axis) == expected


def test_axes_before_and_within() -> None:
    x = np.zeros((2, 1, 3, 1, 4))
    squeezed = np.squeeze(x, (1, 3))
    for axis in range(squeezed.ndim):
        assert x.shape[selection.axis_before(axis, (1, 3))] == squeezed.shape[axis]
        assert (
            squeezed.shape[selection.axis_within(selection.axis_before(axis, (1, 3)), (1, 3))] == squeezed.shape[axis]
        )
    with pytest.raises(Unknown):
        selection.axis_within(1, (1, 3))


def test_indices() -> None:
    assert selection.range_of(2, 5).tolist() == [2, 3, 4]
    assert selection.within(known([0, 2]), 0, 3)
    assert not selection.within(known([-1]), 0, 3)
    assert not selection.within(known([3]), 0, 3)


def test_pads_move_with_the_axes() -> None:
    x, perm, pads = np.zeros((2, 3, 4)), (2, 0, 1), (1, 2, 3, 4, 5, 6)
    widths = list(zip(pads[:3], pads[3:], strict=True))
    moved = movement.moved_pads(pads, perm)
    inner = np.pad(x, list(zip(moved[:3], moved[3:], strict=True)))
    assert np.pad(x.transpose(perm), widths).shape == inner.transpose(perm).shape


@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.parametrize("onesided", [0, 1])
def test_the_fourier_matrix_is_the_transform(length: int, onesided: int) -> None:
    frame = np.random.default_rng(length).standard_normal(length)
    expected = np.fft.rfft(frame) if onesided else np.fft.fft(frame)
    count, steps = spectrum.bins(length, onesided), spectrum.turn(length)
    table = np.asarray(spectrum.negative_cosines(steps, Value(TensorType("float64", ()))), np.float64)
    places = np.outer(np.arange(count), np.arange(length)) * (steps // length)
    real, imaginary = (table[abs((places + ahead) % steps - steps // 2)] @ frame for ahead in (0, steps // 4))
    np.testing.assert_allclose(real + 1j * imaginary, expected, atol=1e-12)


def test_a_second_function_of_one_name_is_refused() -> None:
    name = next(iter(FUNCTIONS))
    before = FUNCTIONS[name]

    def again(x: Any) -> bool:
        return True

    again.__name__ = name
    with pytest.raises(ValueError, match=f"{name} is a rule's function already"):
        registry.predicate()(again)
    assert FUNCTIONS[name] is before
