"""What must hold for every drawn model, checked with onnxruntime and onnx.reference alone: nothing here asks superopt
whether superopt is right."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import superopt
from superopt.emitting.emit import emit
from superopt.lowering.lower import lower
from superopt.models.model import load, serialized
from superopt.rules import RuleSet
from tests.fuzz.draft import number
from tests.fuzz.graphs import Feed, Fuzzed, bundled
from tests.rounds import session

OUTPUT_FACTOR = 4.0
"""How many times as far from the truth as the original the new model may be: superopt promises 2, over its feeds."""

NOISE_FACTOR = 32.0
"""How many times the original's own movement counts, when its inputs move by one unit in the last place."""

ROUNDINGS = 64.0
"""How many roundings of the largest value are no difference: a drawn model makes about as many."""

NODES = 2000
"""Where saturation is cut short: what it finds in the first iterations is as right or wrong as what comes later."""

CHAOS = 0.02
"""From this relative movement on, the original itself does not say what its output is."""


class Skipped(Exception):
    """The drawn model says nothing: onnxruntime does not run it."""


_sessions = functools.lru_cache(maxsize=3)(session)
"""A model is run on several feeds in a row."""


def outputs_of(model: bytes, feed: Feed) -> list[Any]:
    outputs: list[Any] = _sessions(model).run(None, dict(feed))
    return outputs


def original_outputs(case: Fuzzed, feed: Feed) -> list[Any]:
    try:
        return outputs_of(case.model.SerializeToString(), feed)
    except Exception as error:  # onnxruntime's own exceptions have no common base but this
        raise Skipped(str(error)) from None


def is_finite(case: Fuzzed, feed: Feed) -> bool:
    """Whether no value of a single graph is infinite or NaN on a feed."""
    return all(np.isfinite(value).all() for value in intermediates(case, feed) if value.dtype.kind == "f")


def groups(parts: Sequence[Fuzzed]) -> tuple[list[Fuzzed], int]:
    """Models to check, and how many parts are in none: those that run and stay finite, bundled, and one that does not
    stay finite. Of such little is promised, and the rules that are left out for it are looked for anew each time."""
    alike: dict[bool, list[Fuzzed]] = {True: [], False: []}
    for part in parts:
        with contextlib.suppress(Skipped):
            alike[is_finite(part, part.feed("plain"))].append(part)
    del alike[False][1:]
    return [bundled(found) for found in alike.values() if found], len(parts) - sum(map(len, alike.values()))


def check_round_trip(case: Fuzzed) -> None:
    """Loaded, lowered, and written anew from its terms, a model computes the same bits."""
    feed = case.feed("special")
    expected = original_outputs(case, feed)
    lowered = lower(load(case.model))
    assert serialized(emit(lowered, lowered.graph)) == case.model.SerializeToString()
    anew = emit(lowered, lowered.graph, reuse_nodes=False)
    onnx.checker.check_model(anew.proto)
    same_interface(case.model, anew.proto)
    same_bits(case, feed, expected, outputs_of(serialized(anew), feed))


def check_optimized(case: Fuzzed, numeric: str, rules: RuleSet) -> superopt.Result:
    """Optimized, a model agrees with the original as its numeric class promises, and nothing had to be left out."""
    plain = case.feed("plain")
    expected = original_outputs(case, plain)
    finite = all(is_finite(part, part.feed("plain")) for part in case.graphs)
    before = case.model.SerializeToString()
    result = superopt.optimize(
        case.model, numeric=numeric, rules=rules, select="modelled", input_shape=case.shapes, seed=case.seed,
        limit={"nodes": NODES},
    )  # fmt: skip
    assert case.model.SerializeToString() == before, "the caller's model was changed"
    report, new = result.report, result.model
    onnx.checker.check_model(new, full_check=True)
    same_interface(case.model, new)
    assert report["changed"] or new.SerializeToString() == before, "not changed, but other bytes"
    assert new.ByteSize() <= 1.05 * len(before) or data_bytes(new) <= data_bytes(case.model) + 0.05 * len(before)
    assert report["cost"]["after"] <= report["cost"]["before"] * (1 + 1e-9)
    data = new.SerializeToString()
    if numeric == "exact":
        for kind in ("plain", "special"):
            feed = case.feed(kind)
            same_bits(case, feed, original_outputs(case, feed), outputs_of(data, feed))
    elif finite:
        close_values(case, plain, expected, outputs_of(data, plain))
    else:
        outputs_of(data, plain)
    if (finite or numeric == "exact") and not is_narrow(case):
        assert not report["left_out"], f"rules left out: {report['left_out']}"
        assert not report["problems"], f"problems: {report['problems']}"
        assert report["verified"]
    for size in (1, 4):
        check_at_size(case, size, data, exact=numeric == "exact")
    return result


def data_bytes(model: onnx.ModelProto) -> int:
    """The bytes of all constants of the main graph: in a tiny model names and attributes alone are some percent."""
    tensors = [*model.graph.initializer]
    tensors += [a.t for node in model.graph.node for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in tensors)


def check_at_size(case: Fuzzed, size: int, new: bytes, exact: bool) -> None:
    """At another size of the symbolic dimensions the new model runs where the original does."""
    parts = [resized(part, size, finite=not exact) for part in case.graphs]
    if all(part is old for part, old in zip(parts, case.graphs, strict=True)):
        return
    other = bundled(parts)
    if case.parts:
        other = dataclasses.replace(case, inputs=other.inputs, parts=tuple(parts))
    feed = other.feed("plain")
    expected = original_outputs(other, feed)
    if exact:
        same_bits(other, feed, expected, outputs_of(new, feed))
    elif all(is_finite(part, part.feed("plain")) for part in other.graphs):
        close_values(other, feed, expected, outputs_of(new, feed))


def resized(case: Fuzzed, size: int, finite: bool) -> Fuzzed:
    """A single graph at that size of its symbolic dimension; as it is where it has none, does not run at that size, or,
    if it must, does not stay finite."""
    open_inputs = {
        item.name for item in case.model.graph.input if any(dim.dim_param for dim in item.type.tensor_type.shape.dim)
    }
    if not open_inputs:
        return case
    inputs = tuple(
        dataclasses.replace(value, shape=(size, *value.shape[1:])) if value.name in open_inputs else value
        for value in case.inputs
    )
    other = dataclasses.replace(case, inputs=inputs)
    feed = other.feed("plain")
    try:
        original_outputs(other, feed)
        return case if finite and not is_finite(other, feed) else other
    except Skipped:
        return case


def same_interface(old: onnx.ModelProto, new: onnx.ModelProto) -> None:
    assert list(old.graph.input) == list(new.graph.input)
    assert list(old.graph.output) == list(new.graph.output)
    assert list(old.opset_import) == list(new.opset_import)


def same_bits(case: Fuzzed, feed: Feed, expected: Sequence[Any], found: Sequence[Any]) -> None:
    """Equal bits; Skipped where they depend on the order of the original's own nodes."""
    try:
        same_values(expected, found, case.model)
    except AssertionError:
        if order_matters(case, feed):
            raise Skipped("the order of nodes decides the bits") from None
        raise


def is_narrow(case: Fuzzed) -> bool:
    """Whether bits may depend on which nodes stand beside each other, as ``order_matters`` says, and the original may
    be more exact than its types: there it is right to leave rules out, or to give up."""
    types = {number(value.dtype) for value in case.inputs} | {
        tensor.data_type for tensor in case.model.graph.initializer
    }
    cast = {a.i for node in case.model.graph.node if node.op_type == "Cast" for a in node.attribute}
    return onnx.TensorProto.FLOAT16 in types | cast


def order_matters(case: Fuzzed, feed: Feed) -> bool:
    """Whether the original gives other bits when its nodes are listed in another order.

    onnxruntime computes float16 where it has no kernel in float32, and leaves out roundings to float16 between two such
    nodes as they come.
    """
    expected = original_outputs(case, feed)
    for seed in range(8):
        try:
            same_values(expected, outputs_of(reordered(case.model, seed).SerializeToString(), feed), case.model)
        except AssertionError:
            return True
    return False


def reordered(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same nodes in another order in which each still comes after what it reads; those that are read by none, and
    lead to no output, may be lacking."""
    dice = np.random.default_rng(seed)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes = list(model.graph.node)
    if seed % 2:
        needed = {item.name for item in model.graph.output}
        for node in reversed(nodes):
            if needed & set(node.output):
                needed |= set(read(node))
        nodes = [node for node in nodes if needed & set(node.output)]
    waiting = {name for node in nodes for name in node.output}
    del made.graph.node[:]
    while nodes:
        ready = [place for place, node in enumerate(nodes) if not waiting & set(read(node))]
        node = nodes.pop(int(dice.choice(ready)))
        waiting -= set(node.output)
        made.graph.node.append(node)
    return made


def read(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads, its bodies included."""
    bodies = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    return [*node.input, *(name for body in bodies for inner in body.node for name in read(inner))]


def same_values(expected: Sequence[Any], found: Sequence[Any], model: onnx.ModelProto) -> None:
    """Equal bits, but that any NaN is equal to any NaN."""
    for a, b, item in zip(expected, found, model.graph.output, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{item.name}: {a.dtype}{a.shape} became {b.dtype}{b.shape}"
        both = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
        width = f"V{a.dtype.itemsize}"
        alike = both | (np.ascontiguousarray(a).view(width) == np.ascontiguousarray(b).view(width)).reshape(a.shape)
        assert alike.all(), f"{item.name}: {a[~alike][:3]} became {b[~alike][:3]}"


def close_values(case: Fuzzed, feed: Feed, expected: Sequence[Any], found: Sequence[Any]) -> None:
    """As close to the truth as the original, beyond what the original itself moves."""
    moved = [original_outputs(case, nudged(feed, seed)) for seed in range(3)]
    truth = [value for part in case.graphs for value in float64_outputs(part.model, part.feed("plain"))]
    narrow = [is_narrow(part) for part in case.graphs for _ in part.model.graph.output]
    for place, (a, b, item) in enumerate(zip(expected, found, case.model.graph.output, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{item.name}: {a.dtype}{a.shape} became {b.dtype}{b.shape}"
        if a.dtype.kind != "f":
            unsteady = np.zeros(a.shape, bool)
            for other in moved:
                unsteady |= other[place] != a
            if not unsteady.any():
                assert np.array_equal(a, b), f"{item.name}: {a[a != b][:3]} became {b[a != b][:3]}"
            continue
        wide = a.astype(np.float64)
        scale = float(np.max(np.abs(wide), initial=0.0))
        noise = max(float(np.max(np.abs(other[place] - wide), initial=0.0)) for other in moved)
        if noise > CHAOS * scale:
            continue
        # onnx.reference gives some operators another shape (GlobalMaxPool): that is no truth.
        known = truth[place]
        usable = known is not None and known.shape == a.shape and bool(np.isfinite(known).all())
        reference = known if known is not None and usable else wide
        error = float(np.max(np.abs(wide - reference), initial=0.0))
        if error > 1e-2 * scale + 1e-6 and a.dtype != np.float16:
            reference, error = wide, 0.0  # a reference that is so far off is another function
        # What is float32 here may have been float16 on the way, and was so in the original by name alone.
        eps = float(np.finfo(np.float16 if narrow[place] else a.dtype).eps)
        allowed = OUTPUT_FACTOR * error + NOISE_FACTOR * noise + ROUNDINGS * eps * scale
        off = float(np.max(np.abs(b.astype(np.float64) - reference), initial=0.0))
        assert np.isfinite(b).all(), f"{item.name} is not finite any more"
        assert off <= allowed + float(np.finfo(a.dtype).tiny), (
            f"{item.name}: {off:.3g} off, {allowed:.3g} allowed (the original is {error:.3g} off, moves {noise:.3g})"
        )


def nudged(feed: Feed, seed: int) -> Feed:
    """Every float moved by up to two units in the last place."""
    dice = np.random.default_rng(seed)
    moved = {}
    for name, array in feed.items():
        if array.dtype.kind == "f":
            steps = dice.integers(-2, 3, array.shape) * np.finfo(array.dtype).eps
            array = (array * (1 + steps)).astype(array.dtype)
        moved[name] = array
    return moved


def intermediates(case: Fuzzed, feed: Feed) -> list[np.ndarray[Any, Any]]:
    """The values of all nodes of the main graph. Raises Skipped."""
    wide = onnx.ModelProto()
    wide.CopyFrom(case.model)
    listed = {item.name for item in wide.graph.output}
    wide.graph.output.extend(
        onnx.ValueInfoProto(name=name) for node in wide.graph.node for name in node.output if name not in listed
    )
    return [np.asarray(value) for value in original_outputs(dataclasses.replace(case, model=wide), feed)]


def float64_outputs(model: onnx.ModelProto, feed: Feed) -> Sequence[np.ndarray[Any, Any] | None]:
    """The model's outputs in float64 by onnx.reference; None where that cannot run it."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen(wide.graph)
    doubled = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in feed.items()}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = [np.asarray(value) for value in ReferenceEvaluator(wide).run(None, doubled)]
    except Exception:  # onnx.reference raises whatever numpy and Python raise
        return [None] * len(model.graph.output)
    return outputs


_NARROW = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)


def _widen(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for item in (*graph.input, *graph.output):
        if item.type.tensor_type.elem_type in _NARROW:
            item.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                _widen(attribute.g)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i in _NARROW:
                attribute.i = onnx.TensorProto.DOUBLE


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
