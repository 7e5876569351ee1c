"""The numeric backend: constant terms become constants, computed in float64, rounded once, and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from superopt.crosscheck import NOT_CHECKED, blocks, check_equal, second_values
from superopt.errors import EvaluationError, NumericError, RangeError
from superopt.evaluate import Runner
from superopt.kernels import FLOAT64, Array, apply, dtype_of
from superopt.models.tensors import constant_of_array
from superopt.operators import FORMS, STAYS
from superopt.reference import OpaqueRunner, round_to
from superopt.rounding import rounding_bound
from superopt.term_model import term_model, value_name
from superopt.terms import (
    ABSENT,
    CONST,
    OPAQUE,
    PROJECT,
    Attrs,
    Constant,
    Node,
    TensorType,
    TermGraph,
    ValueType,
    constant_nodes,
    needed,
    type_text,
)

_BATCH_BYTES = 1 << 28
"""How many bytes of float64 one batch of constants may need at a time, about."""


def constant_terms(graph: TermGraph) -> tuple[bool, ...]:
    """Which terms may become constants: those that are, and deterministic operators of such, but for what ``STAYS``."""
    return constant_nodes(graph, STAYS)


def materialize(
    graph: TermGraph,
    runtime: frozenset[int] = frozenset(),
    context: onnx.ModelProto | None = None,
    own: frozenset[int] = frozenset(),
) -> TermGraph:
    """The graph with its constant terms as constants, but for those in ``runtime``, which stay operators.

    Each is evaluated in float64 and rounded once to its type, and every array is checked with a second evaluator.
    ``context`` is the model that opaque operators come from; terms that are its ``own`` may leave the range of their
    type, as they do there.
    Raises NumericError where the two disagree, RangeError where a constant leaves the range of its type, and
    EvaluationError where a term cannot be computed.
    """
    constant = constant_terms(graph)
    kept = [
        index in runtime or (node.op == PROJECT and node.args[0] in runtime) for index, node in enumerate(graph.nodes)
    ]
    folds = [constant[i] and not kept[i] and node.op != CONST for i, node in enumerate(graph.nodes)]
    # A sequence is never a constant of a model, however it was made.
    foldable = {index for index, fold in enumerate(folds) if fold and isinstance(graph.types[index], TensorType)}
    wanted = [index for index in needed(graph.nodes, graph.roots, foldable) if index in foldable]
    _refuse_unfolding(graph, wanted)
    made: dict[int, Constant] = {}
    lost: list[int] = []
    for batch in _batches(graph, wanted):
        computed, out_of_range = _computed(graph, batch, context)
        made.update(computed)
        lost += [index for index in out_of_range if index not in own]
    if lost:
        what = f"constant %{lost[0]} ({graph.nodes[lost[0]].op})"
        raise RangeError(f"{what} leaves the range of {type_text(graph.types[lost[0]])}", tuple(lost))
    return replaced(graph, made)


def _refuse_unfolding(graph: TermGraph, wanted: Sequence[int]) -> None:
    """Raises EvaluationError where a value on the way would be too large for any memory: a few bytes of an Expand, a
    Tile or a ConstantOfShape may stand for terabytes."""
    for index in needed(graph.nodes, wanted):
        size = _elements(graph.types[index])
        if graph.nodes[index].op != CONST and size > _MOST_ELEMENTS:
            raise EvaluationError(
                f"constant %{index} ({graph.nodes[index].op}) has {size} elements, expected at most {_MOST_ELEMENTS}"
            )


def _batches(graph: TermGraph, wanted: Sequence[int]) -> list[list[int]]:
    """Terms in groups whose values, with all that they are made of, fit into memory together."""
    batches: list[list[int]] = []
    held: set[int] = set()
    size = 0
    for index in wanted:
        cone = needed(graph.nodes, [index])
        need = _float64_bytes(graph, (term for term in cone if term not in held))
        if not batches or size + need > _BATCH_BYTES:
            batches.append([])
            held, size = set(), 0
            need = _float64_bytes(graph, cone)
        batches[-1].append(index)
        held.update(cone)
        size += need
    return batches


def _float64_bytes(graph: TermGraph, terms: Iterable[int]) -> int:
    return 8 * sum(_elements(graph.types[term]) for term in terms)


def _elements(kind: ValueType) -> int:
    return (kind.size or 0) if isinstance(kind, TensorType) else 0


def _computed(
    graph: TermGraph, wanted: Sequence[int], context: onnx.ModelProto | None
) -> tuple[dict[int, Constant], list[int]]:
    """The values of terms, and which of them leave the range of their types."""
    cone = needed(graph.nodes, wanted)
    values: dict[int, tuple[Array | None, ...]] = {}
    bounds: dict[int, float] = {}
    leaves: dict[int, Array] = {}
    opaque = OpaqueRunner(context)
    loose: set[int] = set()
    for index in cone:
        node = graph.nodes[index]
        args = [None if arg == ABSENT or node.op == PROJECT else values[arg][0] for arg in node.args]
        loose_arg = any(arg in loose for arg in node.args)
        if node.op == CONST:
            values[index] = (FLOAT64.enter(graph.constants[str(node.attrs["key"])].array()),)
            bounds[index] = 0.0
        elif node.op == PROJECT:
            values[index] = (values[node.args[0]][int(str(node.attrs["index"]))],)
            bounds[index] = bounds[node.args[0]]
        elif node.op == OPAQUE:
            values[index] = opaque(graph, index, args, FLOAT64)
            bounds[index] = 0.0
        else:
            results = apply(node.op, node.attrs, args, FLOAT64)
            values[index] = results
            given = [0.0 if arg == ABSENT else bounds[arg] for arg in node.args]
            bounds[index] = rounding_bound(node.op, node.attrs, args, given, results)
        if loose_arg or node.op in NOT_CHECKED:
            loose.add(index)
        # What no second evaluator can compute (an opaque operator's result) is a leaf for both.
        value = values[index][0] if len(values[index]) == 1 else None
        if node.op == CONST or (node.op == PROJECT and graph.nodes[node.args[0]].op == OPAQUE):
            if value is None:
                value = values[index][0]
            if value is not None:
                leaves[index] = value
    reached = needed(graph.nodes, wanted, leaves)
    order = [index for index in reached if index not in leaves]
    used = {index: leaves[index] for index in reached if index in leaves}
    second = second_values(graph, order, used, wanted)
    # Weights are large: what is not needed any more makes room for what is.
    values = {index: values[index] for index in wanted}
    leaves.clear()
    used.clear()
    made: dict[int, Constant] = {}
    out_of_range: list[int] = []
    for place, index in enumerate(wanted):
        value, other = values.pop(index)[0], second[place]
        second[place] = np.zeros(0)
        what = f"constant %{index} ({graph.nodes[index].op})"
        if value is None:
            raise EvaluationError(f"{what} has no value")
        bound = bounds[index]
        if index in loose:
            bound = max(bound, 2.0**-20 * float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0)))
        check_equal(what, value, other, bound)
        del other
        made[index] = _rounded(what, value, graph.types[index])
        if _leaves_range(value, made[index]):
            out_of_range.append(index)
    return made, out_of_range


_SMALLEST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126}


def _leaves_range(value: Array, made: Constant) -> bool:
    """Whether a finite element became infinite, or all that is not zero is so small that the type has few of its bits.

    Beside larger ones a small element is a rounding error like others; alone, it is what everything is multiplied by.
    """
    smallest = _SMALLEST_NORMAL.get(made.type.dtype)
    if smallest is None or value.dtype != np.float64:
        return False
    largest, loses_bits = 0.0, False
    for exact, rounded in blocks(value, made.array()):
        finite = np.isfinite(exact)
        kept = np.asarray(rounded, np.float64)
        if bool(np.any(finite & ~np.isfinite(kept))):
            return True
        largest = max(largest, float(np.max(np.abs(exact), initial=0.0, where=finite)))
        loses_bits = loses_bits or bool(np.any(finite & (kept != exact)))
    return 0.0 < largest < smallest and loses_bits


def _rounded(what: str, value: Array, kind: ValueType) -> Constant:
    if not isinstance(kind, TensorType):
        raise NumericError(f"{what}: its type is not known")
    shape = kind.shape
    if shape is not None and (
        len(shape) != value.ndim
        or any(isinstance(dim, int) and dim != size for dim, size in zip(shape, value.shape, strict=True))
    ):
        raise NumericError(f"{what}: shape {list(value.shape)}, expected {kind}")
    if "float" in kind.dtype and value.dtype == np.float64:
        return constant_of_array(round_to(value, kind.dtype), kind.dtype)
    if kind.dtype != "string" and value.dtype != dtype_of(kind.dtype):
        raise NumericError(f"{what}: {value.dtype}, expected {kind}")
    return constant_of_array(np.asarray(value), kind.dtype)


def replaced(graph: TermGraph, made: Mapping[int, Constant]) -> TermGraph:
    """The graph with some terms as constants, without what nothing needs any more; equal terms are one."""
    order = needed(graph.nodes, graph.roots, made)
    nodes: list[Node] = []
    types: list[ValueType] = []
    place: dict[int, int] = {}
    index_of: dict[Node, int] = {}
    constants: dict[str, Constant] = {}
    opaque = {}
    for index in order:
        node, kind = graph.nodes[index], graph.types[index]
        if index in made:
            constant = made[index]
            node, kind = Node(CONST, (), Attrs.of(key=constant.key)), constant.type
            constants[constant.key] = constant
        else:
            node = Node(node.op, tuple(arg if arg == ABSENT else place[arg] for arg in node.args), node.attrs)
            if node.op == CONST:
                key = str(node.attrs["key"])
                constants.setdefault(key, graph.constants[key])
            elif node.op == OPAQUE:
                key = str(node.attrs["key"])
                opaque[key] = graph.opaque[key]
        found = index_of.get(node)
        if found is None:
            found = index_of[node] = len(nodes)
            nodes.append(node)
            types.append(kind)
        place[index] = found
    return TermGraph(tuple(nodes), tuple(types), tuple(place[root] for root in graph.roots), constants, opaque)


def bits_of_packing(graph: TermGraph) -> frozenset[int]:
    """The constant terms that are computed anew in each run and whose bits, or those of what uses them, depend on
    whether onnxruntime packs weights when it loads a model: products and all that is made of them, and their weights.

    A weight that is a constant of the model is packed, and may then have a kernel that adds in another order (MatMul
    with a single row does): the same numbers, other last bits.
    """
    constant = constant_terms(graph)
    found: set[int] = set()
    for index, node in enumerate(graph.nodes):
        product = node.op in FORMS and FORMS[node.op].made == "bilinear"
        if constant[index] and (product or any(arg in found for arg in node.args)):
            found.add(index)
        weights = node.args[1:] if product else node.args if node.op == OPAQUE else ()
        found.update(
            arg
            for arg in weights
            if arg != ABSENT and constant[arg] and graph.nodes[arg].op != CONST and _is_weight(graph, arg)
        )
    return frozenset(found)


def _is_weight(graph: TermGraph, term: int) -> bool:
    kind = graph.types[term]
    return isinstance(kind, TensorType) and kind.rank is not None and kind.rank >= 2 and "float" in kind.dtype


def settle(
    graph: TermGraph,
    threshold: int | None = 4096,
    context: onnx.ModelProto | None = None,
    kept: frozenset[int] = frozenset(),
) -> TermGraph:
    """The graph with what was constant in the original as constants: the bits that onnxruntime gives, unoptimized.

    A term is settled where its bytes are no more than those it is made of plus ``threshold`` (None: however large),
    and it is not to be ``kept``. What onnxruntime does not run stays an operator. ``context`` is the model that opaque
    operators come from.
    """
    return replaced(graph, settled(graph, threshold, context, kept))


def settled(
    graph: TermGraph,
    threshold: int | None = 4096,
    context: onnx.ModelProto | None = None,
    kept: frozenset[int] = frozenset(),
) -> dict[int, Constant]:
    """The terms that ``settle`` makes constants, and their values."""
    constant = constant_terms(graph)
    bytes_of = [0] * len(graph.nodes)
    chosen: list[int] = []
    for index, node in enumerate(graph.nodes):
        if not constant[index]:
            continue
        source = sum(bytes_of[arg] for arg in dict.fromkeys(node.args) if arg != ABSENT)
        kind = graph.types[index]
        bytes_of[index] = source
        if node.op == CONST:
            bytes_of[index] = graph.constants[str(node.attrs["key"])].nbytes
        elif isinstance(kind, TensorType) and kind.is_static and kind.dtype != "string":
            size = Constant("", kind, lambda: np.zeros(0)).nbytes
            if index not in kept and (threshold is None or size <= source + threshold):
                chosen.append(index)
                bytes_of[index] = size
    if not chosen:
        return {}
    try:
        return _run_by_onnxruntime(graph, chosen, {}, context)
    except EvaluationError:
        pass
    made: dict[int, Constant] = {}
    for index in chosen:
        try:
            made.update(_run_by_onnxruntime(graph, [index], made, context))
        except EvaluationError:
            continue  # it stays an operator, as the docstring says
    return made


def _run_by_onnxruntime(
    graph: TermGraph, wanted: Sequence[int], known: Mapping[int, Constant], context: onnx.ModelProto | None
) -> dict[int, Constant]:
    leaves = {
        index: known[index] if index in known else graph.constants[str(graph.nodes[index].attrs["key"])]
        for index in needed(graph.nodes, wanted, known)
        if index in known or graph.nodes[index].op == CONST
    }
    order = [index for index in needed(graph.nodes, wanted, leaves) if index not in leaves]
    types = {index: constant.type for index, constant in leaves.items()}
    model = term_model(graph, order, types, wanted, context=context)
    feed = {value_name(index): constant.array() for index, constant in leaves.items()}
    results = Runner(model).run(feed)
    made: dict[int, Constant] = {}
    for index, item in zip(wanted, model.graph.output, strict=True):
        value, kind = results[item.name], graph.types[index]
        if not isinstance(value, np.ndarray) or not isinstance(kind, TensorType):
            raise EvaluationError(f"%{index} is not a tensor")
        if value.dtype != dtype_of(kind.dtype) or value.shape != kind.shape:
            raise EvaluationError(f"%{index} is {value.dtype}{list(value.shape)}, expected {kind}")
        made[index] = constant_of_array(value, kind.dtype)
    return made


_MOST_ELEMENTS = 2**30
"""The largest constant that is made: 8 GiB in float64."""
