"""Whether one instance of a rule keeps the rule's promise: types, exact arithmetic, float64, and a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from superopt.errors import EvaluationError, InferenceError
from superopt.kernels import FLOAT64, DivisionFault, NotInRing, evaluate_graph, modular
from superopt.laws.differences import equal_bits, first_of, identical, largest, same_type, stated
from superopt.laws.error_bounds import ROUNDOFF, Bounded
from superopt.laws.instances import MOST_ELEMENTS, Instance, elements
from superopt.laws.instances_content import whole
from superopt.laws.runtime import run
from superopt.laws.short_types import rounded
from superopt.laws.sides import SILENT, Finding, Sides, Verdict
from superopt.laws.trials import far_numbers, trials
from superopt.laws.variants import Variant
from superopt.terms import TermGraph
from superopt.values import Unknown, Value

Array = NDArray[np.generic]


def judge(instance: Instance) -> Verdict:
    """Whether this instance keeps the promise of its rule's numeric class."""
    try:
        right = instance.right()
    except Unknown:
        # What a condition or attribute cannot know, no match can: the rule would not have applied.
        return SILENT
    except InferenceError as error:
        return Verdict(Finding("typed", f"the right side is not well typed: {error}", instance), True)
    return judge_sides(instance, right) if elements(right) <= MOST_ELEMENTS else SILENT


def judge_variant(variant: Variant) -> Verdict:
    """Whether a variant of an instance keeps it, as far as it can be computed."""
    if variant.problem is not None:
        return Verdict(Finding("typed", variant.problem, variant.instance, variant.right), True)
    if variant.right is None or not variant.judged or elements(variant.right) > MOST_ELEMENTS:
        return SILENT
    return judge_sides(variant.instance, variant.right, thorough=False)


def judge_sides(instance: Instance, right: TermGraph, *, thorough: bool = True) -> Verdict:
    """Whether the right side that the rule has made of an instance keeps the promise; unless ``thorough``, for its own
    contents alone and not in the runtime."""
    for mine, other in zip(instance.left.roots, right.roots, strict=True):
        if not same_type(instance.left.types[mine], right.types[other]):
            evidence = f"types differ: {instance.left.types[mine]} on the left, {right.types[other]} on the right"
            return Verdict(Finding("typed", evidence, instance, right), True)
    sides = Sides(instance, right)
    with np.errstate(all="ignore"):
        try:
            real = (_in_ring(sides) if sides.in_ring else None) or SILENT
            if real.finding is None:
                # Where bits are compared in the runtime, that will tell.
                over = _over_reals(sides, thorough, told=real.telling or sides.rule.numeric == "exact")
                real = Verdict(over.finding, real.telling or over.telling)
        except EvaluationError:
            # No value on a side (an index out of range, an integer divided by zero), or no kernel: the runtime knows.
            real = SILENT
        if real.finding is not None or not thorough:
            return real
        ran = _in_runtime(sides, True, real.telling)
        return Verdict(ran.finding, real.telling or ran.telling or _tells(sides))


def _tells(sides: Sides) -> bool:
    """Whether an instance on which nothing differs says something, where no comparison so far needed to know that."""
    try:
        return _in_ring(sides) is not None or _evaluated(sides, sides.instance.arrays).telling
    except EvaluationError:
        return False


def judge_large(instance: Instance) -> Verdict:
    """Whether the bits are the same at large sizes, where kernels block and vectorize differently."""
    try:
        right = instance.right()
    except (Unknown, InferenceError):
        return SILENT
    if elements(right) > MOST_ELEMENTS:
        return SILENT
    return _in_runtime(Sides(instance, right), specials=False, told=True)


def judge_pair(instance: Instance, right: TermGraph) -> Verdict:
    """Whether a given right side agrees with the left one in the runtime; in float64, where the runtime says nothing.

    Raises EvaluationError where a side cannot be computed.
    """
    sides = Sides(instance, right)
    with np.errstate(all="ignore"):
        ran = _in_runtime(sides, specials=False, told=False)
        return ran if ran.telling or ran.finding is not None else _over_reals(sides, specials=False)


def _in_ring(sides: Sides) -> Verdict | None:
    """Agreement modulo a prime; None where the operators have no meaning there or nothing follows."""
    generator = sides.generator
    algebra = modular(seed=int(generator.integers(1 << 30)))
    inputs: dict[str, Array] = {}
    for name, array in sides.instance.arrays.items():
        random = array.dtype.kind == "f" and sides.free(name)
        inputs[name] = np.asarray(generator.integers(1, algebra.prime, array.shape)) if random else array
    try:
        left = evaluate_graph(sides.instance.left, inputs, algebra)
        right = evaluate_graph(sides.right, inputs, algebra)
    except NotInRing:
        return None
    for mine, other in zip(left, right, strict=True):
        if mine.shape != other.shape or not np.array_equal(mine, other):
            if sides.in_ring:
                return sides.finding(f"different modulo {algebra.prime}", inputs, mine, other)
            return None
    return Verdict(None, True)


def _over_reals(sides: Sides, specials: bool, *, told: bool = False) -> Verdict:
    """Agreement in float64 within what rounding in float64 explains; and no operand's NaN or infinity is lost."""
    arrays = sides.instance.arrays
    found = _evaluated(sides, arrays, told=told)
    if found.finding is not None or not specials:
        return found
    for other in (*sides.with_large_integers, *far_numbers(sides.rule, arrays, sides.free, lambda: sides.generator)):
        try:
            there = _evaluated(sides, other, told=True)
        except EvaluationError:
            continue  # The left side has no value there.
        if there.finding is not None:
            return there
    if sides.rule.numeric == "exact" or sides.seed % 2:
        # What is lost on one instance is lost on others: every second one will do.
        return found
    for name, array in arrays.items():
        value = sides.instance.binding[name]
        if array.dtype.kind != "f" or not sides.free(name) or (isinstance(value, Value) and value.constant):
            continue
        for special_value, excuse in ((np.nan, "nan"), (np.inf, "infinity")):
            if excuse in sides.rule.ignoring:
                continue
            filled = {**arrays, name: whole(array, special_value)}
            lost = _lost(sides, filled, f"{name} is {special_value} everywhere")
            if lost is not None:
                return lost
    return found


def _evaluated(sides: Sides, arrays: Mapping[str, Array], *, told: bool = False) -> Verdict:
    """Agreement in float64. Raises EvaluationError where the left side has no value, or the right side no kernel.

    Where it need not be ``told`` whether the instance says something, bounds are not asked for what is equal.
    """
    values, _ = sides.traced("left", arrays)
    try:
        others, _ = sides.traced("right", arrays)
    except DivisionFault as fault:
        return sides.finding(f"on the right side alone: {fault}", arrays, values[0], np.zeros(0))
    if told and identical(values, others):
        return SILENT
    left = sides.bounded("left", arrays, ROUNDOFF["float64"])
    right = sides.bounded("right", arrays, ROUNDOFF["float64"])
    return _compare(sides, "in float64", arrays, left, right)


def _lost(sides: Sides, arrays: Mapping[str, Array], what: str) -> Verdict | None:
    """A finding where the left side is not finite and the right side is, or where they decide otherwise."""
    left = evaluate_graph(sides.instance.left, arrays, FLOAT64)
    if any(mine.dtype.kind == "b" for mine in left):
        decided = _evaluated(sides, arrays, told=True)
        return None if decided.finding is None else decided
    if all(mine.dtype.kind != "f" or np.all(np.isfinite(mine)) for mine in left):
        return None
    right = evaluate_graph(sides.right, arrays, FLOAT64)
    for mine, other in zip(left, right, strict=True):
        if mine.dtype.kind == "f" and other.dtype.kind == "f":
            excused = (
                np.isinf(mine) if "infinity" in sides.rule.ignoring else np.isnan(mine) & ("nan" in sides.rule.ignoring)
            )
            if np.any(~np.isfinite(mine) & np.isfinite(other) & ~excused):
                return sides.finding(f"NaN or infinity is lost where {what}", arrays, mine, other)
    return None


def _compare(
    sides: Sides, where: str, arrays: Mapping[str, Array], left: list[Bounded], right: list[Bounded],
    values: tuple[list[Array], list[Array]] | None = None,
) -> Verdict:  # fmt: skip
    """Whether values differ by no more than their bounds allow; by default the values that have the bounds."""
    telling, allowed = False, np.zeros(())
    sound = all(np.all(np.isfinite(array)) for array in arrays.values() if array.dtype.kind == "f")
    for place, (mine, other) in enumerate(zip(left, right, strict=True)):
        first, second = (mine.value, other.value) if values is None else (values[0][place], values[1][place])
        bound = np.nan_to_num(mine.bound + other.bound, nan=np.inf, posinf=np.inf)
        if values is not None and sides.alike:
            # What is rounded to types alone is rounded the same way everywhere, or is no longer the same number.
            bound = np.zeros_like(bound)
        if first.shape != second.shape:
            return sides.finding(f"different shapes {where}", arrays, first, second)
        if first.dtype.kind != "f":
            wrong, allowed = (first != second) & (bound == 0), np.zeros(())
            telling = telling or bool(np.any(bound == 0))
        else:
            a, b = first.astype(np.float64), second.astype(np.float64)
            finite, most = np.isfinite(a), largest(sides.instance.left, place)
            # A bound is about values in range: beyond, the promise ends.
            known = np.isfinite(mine.value.astype(np.float64)) & (np.abs(mine.value) < most)
            allowed = bound + stated(sides.rule, a, finite)
            wrong = finite & known & ~(np.abs(a - b) <= allowed) & np.isfinite(allowed)
            wrong |= (
                finite & known & ~np.isfinite(b) & np.isfinite(mine.bound if values is not None and sound else bound)
            )
            if sound and not other.strayed:
                # NaN or an infinity that the left side does not have, by no overflow and no rounding.
                wrong |= finite & known & np.isfinite(mine.bound) & ~np.isfinite(b) & ~np.isfinite(other.value)
            if not sides.rule.ignoring and mine.peak < most / 4:
                # Nothing overflowed: what is not finite on the left is so over the reals, or by underflow; but nothing
                # is lost with the NaN that two underflows make of a number.
                numbers = np.isnan(a) & np.isfinite(mine.value.astype(np.float64))
                wrong |= ~finite & np.isfinite(b) & ~numbers
            scale = np.max(np.abs(a), initial=0.0, where=finite)
            telling = telling or bool(np.any(finite & (bound <= 0.01 * scale)))
        if np.any(wrong):
            return sides.finding(f"different {where}{first_of(wrong, first, second, allowed)}", arrays, first, second)
    return Verdict(None, telling)


def _in_runtime(sides: Sides, specials: bool, told: bool) -> Verdict:
    """Agreement in onnxruntime; it may have been ``told`` already that the instance says something."""
    exact = sides.rule.numeric == "exact"
    judged = _same_bits if exact else _within_bounds
    contents = sides.instance.arrays
    if exact:
        drawn = {name for name, array in contents.items() if array.dtype.kind == "f" and sides.free(name)}
        contents = {
            name: np.asarray(sides.generator.standard_normal(array.shape), array.dtype) if name in drawn else array
            for name, array in contents.items()
        }
    found = judged(sides, contents, told)
    free = frozenset(name for name in contents if sides.free(name))
    tried = trials(sides.rule, sides.right, contents, free, lambda: sides.generator) if specials else ()
    for arrays in (*tried, *(sides.with_large_integers if specials else ())):
        if found.finding is not None:
            break
        after = judged(sides, arrays, told or found.telling)
        found = Verdict(after.finding, found.telling or after.telling)
    return found


def _within_bounds(sides: Sides, arrays: Mapping[str, Array], told: bool) -> Verdict:
    ran = sides.program.run(arrays)
    if isinstance(ran, str):
        return _refused(sides, arrays, ran)
    if told and identical(ran["left"], ran["right"]):
        return SILENT
    try:
        left = sides.bounded("left", arrays, None)
        right = sides.bounded("right", arrays, None)
    except EvaluationError:
        return SILENT
    return _compare(sides, "in onnxruntime", arrays, left, right, (list(ran["left"]), list(ran["right"])))


def _same_bits(sides: Sides, arrays: Mapping[str, Array], told: bool) -> Verdict:
    ran = sides.program.run(arrays)
    found = (
        _refused(sides, arrays, ran)
        if isinstance(ran, str)
        else _equal(sides, "in onnxruntime", arrays, ran["left"], ran["right"])
    )
    if found.finding is not None:
        return found
    if sides.retyped is not None:
        return sides.finding(sides.retyped, arrays, np.zeros(0), np.zeros(0))
    if not sides.short:
        return found
    try:
        left, right = (rounded(graph, arrays) for graph in (sides.instance.left, sides.right))
    except EvaluationError:
        return found
    return _equal(sides, "where every value is rounded to its type", arrays, left, right)


def _equal(
    sides: Sides, where: str, arrays: Mapping[str, Array], left: Sequence[Array], right: Sequence[Array]
) -> Verdict:
    """Whether values are the same bit by bit."""
    for mine, other in zip(left, right, strict=True):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return sides.finding(f"different shapes {where}", arrays, mine, other)
        wrong = ~equal_bits(mine, other, sides.rule)
        if np.any(wrong):
            return sides.finding(f"different bits {where}{first_of(wrong, mine, other)}", arrays, mine, other)
    return Verdict(None, True)


def _refused(sides: Sides, arrays: Mapping[str, Array], message: str) -> Verdict:
    """A finding where the runtime computes the left side but not the right, and not for its element types."""
    alone = run({"left": sides.instance.left}, arrays)
    if isinstance(alone, str) or "NOT_IMPLEMENTED" in message or "INVALID_GRAPH" in message:
        return SILENT
    return sides.finding(f"onnxruntime refuses the right side: {message}", arrays, alone["left"][0], np.zeros(0))
