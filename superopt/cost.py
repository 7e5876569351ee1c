"""Cost models by name or file, and what a whole model costs."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from superopt import shipped
from superopt.bodies.bodies import bodies
from superopt.costs.database import Database, Place, default_path
from superopt.costs.files import parse
from superopt.costs.fitting import fitted, reorder_byte
from superopt.costs.grouping import groups
from superopt.costs.layout import conversions
from superopt.costs.model import FREE, CostModel, Family
from superopt.costs.operands import Operand, content_of
from superopt.costs.timing import Runtime, channels_of_a_block
from superopt.errors import CostModelError, EvaluationError, OptionError
from superopt.inputs.sample import sample
from superopt.lowering.lower import Lowered, lower
from superopt.models.model import Model
from superopt.models.model import load as load_model
from superopt.terms import ABSENT, CONST, OPAQUE, TensorType, TermGraph, ValueType, constant_nodes
from superopt.workload import Sizes

if TYPE_CHECKING:
    import onnx_ir

__all__ = [
    "FREE", "CostBreakdown", "CostModel", "Family", "NodeCost", "Operand", "constant_nodes", "cost",
    "graph_cost", "load", "measured", "model_cost",
]  # fmt: skip

MEASURED = "measured"
"""The name of the model that prices what was timed here; ``measured@PROVIDER`` is that of another provider."""

_SIZE_AT_MOST = 2**63 - 1
"""What ONNX has room for in a dimension."""

FORMULA = "onnxruntime"
"""The model that is fitted to what was timed, for what was not."""


def load(name_or_path: str | Path, runtime: Runtime | None = None) -> CostModel:
    """The cost model of this name among those that ship, or in this TOML file.

    ``measured`` is made of what ``superopt measure`` has timed on this machine, for ``runtime``'s provider and threads
    (by default the CPU, with threads as onnxruntime chooses); ``measured@PROVIDER`` names another provider. Raises
    ``CostModelError`` (``file: what, expected``).
    """
    return _load(name_or_path, runtime, ())


def _load(name_or_path: str | Path, runtime: Runtime | None, adding: tuple[Path, ...]) -> CostModel:
    """``adding`` are the files that are being read, each of which adds the next one, the last of them this model."""
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise CostModelError(f"cost: {name_or_path!r} is no cost model, expected a name, a file or a CostModel")
    name, at, provider = str(name_or_path).partition("@")
    if name == MEASURED:
        where = runtime or Runtime()
        return measured(replace(where, provider=provider) if at else where)
    path = Path(name_or_path)
    if path.suffix != ".toml":
        known = [*sorted(file.stem for file in shipped.cost_models_dir().glob("*.toml")), MEASURED]
        if path.is_file() and str(name_or_path) not in known:
            raise CostModelError(
                f"{name_or_path}: the file's name does not end in .toml, expected a cost model in TOML"
            )
        if str(name_or_path) not in known:
            raise CostModelError(
                f"{name_or_path}: no such cost model, expected a .toml file or one of {', '.join(known)}"
            )
        path = shipped.cost_models_dir() / f"{name_or_path}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CostModelError(f"{path}: cannot be read ({error.strerror}), expected a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CostModelError(f"{path}: {error}, expected a TOML file") from error
    except RecursionError as error:
        raise CostModelError(f"{path}: lists in lists too deep to be read, expected a cost model") from error
    here = path.resolve()
    if here in adding:
        ring = " adds ".join(file.name for file in (*adding[adding.index(here) :], here))
        raise CostModelError(f"{path}: adds itself ({ring}), expected models in [plus] that do not")
    return parse(data, str(path), lambda other: _load(other, None, (*adding, here)))


def measured(runtime: Runtime, database: Database | None = None) -> CostModel:
    """The model of what a database has timed on this machine with a runtime: an instance that was timed costs its
    seconds, any other what a roofline says that is fitted to those; conversions of layout cost something where some
    were timed. Nothing is timed here.

    Raises ``CostModelError`` where the database cannot be read, ``OptionError`` where the provider is not there.
    """
    runtime.check()
    found = (database or Database(default_path())).timings(Place.here(runtime))
    seconds = {key: timing.seconds for key, timing in found.items()}
    byte = reorder_byte(seconds)
    block = channels_of_a_block(runtime) if byte else 0
    formula = fitted(load(FORMULA), seconds)
    return replace(formula, name=MEASURED, file="", instances=seconds, block=block, reorder_byte=byte)


@dataclass(frozen=True, slots=True)
class NodeCost:
    """What one node costs, in the unit of the breakdown; ``timed`` says that its instance was measured, ``body`` that
    it stands in the body of an If, Loop or Scan, ``fused`` names the form in which the runtime makes it part of an
    operator: the whole is then paid at one of the nodes."""

    name: str
    op: str
    cost: float
    type: ValueType = None
    timed: bool = False
    body: bool = False
    fused: str = ""


@dataclass(frozen=True)
class CostBreakdown:
    """What a model costs to run, node by node, every body once, and the bytes of its constants (which ``total`` does
    not price)."""

    total: float
    unit: str
    model: str
    nodes: tuple[NodeCost, ...]
    constant_bytes: int

    @property
    def timed(self) -> float:
        """The fraction of the total that was measured, rather than computed from a formula."""
        return sum(item.cost for item in self.nodes if item.timed) / self.total if self.total else 0.0


def operands_of(graph: TermGraph, constant: Sequence[bool]) -> list[Operand]:
    """What each node of a graph is as an argument."""
    return [
        Operand(
            value_type, fixed, content_of(graph.constants[str(node.attrs["key"])]) if node.op == CONST else ""
        )
        for node, value_type, fixed in zip(graph.nodes, graph.types, constant, strict=True)
    ]  # fmt: skip


def graph_cost(
    graph: TermGraph, cost_model: CostModel, sizes: Mapping[str, int] | None = None, names: Sequence[str] | None = None
) -> CostBreakdown:
    """What a graph costs to run under a cost model: a node that is constant costs nothing; one that needs tensors in
    another layout than they have pays for their conversion, which is done once for all who need it.

    ``sizes`` are the nominal sizes of symbolic dimensions, ``names`` what its nodes are called (``%3`` where not
    given).
    """
    constant = constant_nodes(graph)
    nominal = Sizes(dict(sizes or {}))
    operands = operands_of(graph, constant)
    paid: dict[int, tuple[float, bool, str]] = {}
    following: set[int] = set()
    for group in groups(graph, cost_model.fusions, operands).values():
        following.update(group.parts if group.follows else ())
        price, timed = cost_model.fused(group, nominal)
        fusion = group.match.fusion
        paid.update(dict.fromkeys(group.parts, (0.0, timed, fusion.rule.name)))
        named = [place for place, part in group.parts.items() if part.op == fusion.priced_as]
        paid[(named or list(group.parts))[-1]] = (price, timed, fusion.rule.name)
    layouts = conversions(graph, operands, following, nominal, cost_model.block)
    converted: dict[int, float] = {}
    for each in layouts.conversions:
        converted[each.at] = converted.get(each.at, 0.0) + cost_model.converted(each.way, each.value, nominal)
    paid.update((place, (0.0, False, "")) for place in layouts.free)
    priced = []
    for index, node in enumerate(graph.nodes):
        if node.op in FREE:
            continue
        if index not in paid:
            given = [None if arg == ABSENT else operands[arg] for arg in node.args]
            asked = (node.op, node.attrs, given, graph.types[index], nominal)
            alone = None if constant[index] else cost_model.timed(*asked)
            price = 0.0 if constant[index] else cost_model.formula(*asked) if alone is None else alone
            paid[index] = (price, alone is not None, "")
        op = graph.opaque[str(node.attrs["key"])].op_type if node.op == OPAQUE else node.op
        price, timed, form = paid[index]
        name = names[index] if names else f"%{index}"
        priced.append(NodeCost(name, op, price + converted.get(index, 0.0), graph.types[index], timed, fused=form))
    stored = sorted({str(node.attrs["key"]) for node in graph.nodes if node.op == CONST})
    total = sum(item.cost for item in priced)
    return CostBreakdown(
        _finite(total, cost_model),
        cost_model.unit,
        cost_model.name,
        tuple(priced),
        sum(graph.constants[key].nbytes for key in stored),
    )


def _with_bodies(lowered: Lowered) -> list[Lowered]:
    return [lowered, *(lower(body) for body in bodies(lowered.model))]


def model_cost(lowered: Lowered, cost_model: CostModel, sizes: Mapping[str, int] | None = None) -> CostBreakdown:
    """What a model costs to run, node by node, every body in it once; nodes carry the names of the values that they
    make, the first one where there are several."""
    graphs = _with_bodies(lowered)
    parts = [graph_cost(each.graph, cost_model, sizes, value_names(each)) for each in graphs]
    nodes = [
        item if number == 0 else replace(item, body=True) for number, part in enumerate(parts) for item in part.nodes
    ]
    return CostBreakdown(
        _finite(sum(part.total for part in parts), cost_model), cost_model.unit, cost_model.name, tuple(nodes),
        sum(part.constant_bytes for part in parts),
    )  # fmt: skip


def _finite(total: float, cost_model: CostModel) -> float:
    if math.isinf(total):
        raise CostModelError(
            f"{cost_model.file or cost_model.name}: the prices of the model add up to infinity, expected smaller prices"
        )
    return total


def value_names(lowered: Lowered) -> list[str]:
    """What the model calls its terms: a value's first name, the first output of an operator with several, ``%3`` where
    it has no name for it."""
    names: dict[int, str] = {}
    for name, term in lowered.value_terms.items():
        names.setdefault(term, name)
    for term, index in lowered.sources.items():
        outputs = [name for name in lowered.model.proto.graph.node[index].output if name]
        if outputs:
            names.setdefault(term, outputs[0])
    return [names.get(index, f"%{index}") for index in range(len(lowered.graph.nodes))]


def cost(
    model: Model | str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    cost_model: CostModel | str = FORMULA,
    sizes: Mapping[str, int] | None = None,
) -> CostBreakdown:
    """What a model costs to run under a cost model (a ``CostModel``, the name of one that ships, or a TOML file), node
    by node, every body of an If, Loop or Scan once.

    Nodes carry the names of the values that they make. ``sizes`` are the sizes that symbolic dimensions are priced at;
    those that are not given have the sizes of the most ordinary inputs that the model runs on, as for ``superopt cost``
    (the model is run to find these). Raises ``InputError`` where the model, the cost model or a size is at fault.
    """
    chosen = cost_model if isinstance(cost_model, CostModel) else load(cost_model)
    lowered = lower(model if isinstance(model, Model) else load_model(model))
    return model_cost(lowered, chosen, _sizes(lowered, {} if sizes is None else sizes))


def _sizes(lowered: Lowered, given: Mapping[str, Any]) -> Mapping[str, int]:
    """The sizes that are given, and those of ordinary inputs for the other symbols of a model."""
    if not isinstance(given, Mapping):
        raise OptionError(f"sizes: {given!r}, expected sizes by the names of symbolic dimensions")
    symbols = {
        dim
        for part in _with_bodies(lowered)
        for value in part.graph.types
        for kind in (value if isinstance(value, tuple) else (value,))
        if isinstance(kind, TensorType)
        for dim in kind.shape or ()
        if isinstance(dim, str)
    }
    for symbol, size in given.items():
        if symbol not in symbols:
            known = ", ".join(sorted(symbols)) or "none: every dimension has a size"
            raise OptionError(f"sizes: {symbol!r} is no symbolic dimension of the model, expected {known}")
        # Whole numbers of numpy are as good as Python's.
        if isinstance(size, bool) or not hasattr(size, "__index__") or not 0 <= size <= _SIZE_AT_MOST:
            shown = "a number out of range" if isinstance(size, int) and abs(size) > _SIZE_AT_MOST else repr(size)
            raise OptionError(f"sizes: {symbol} = {shown}, expected a whole number from 0 to {_SIZE_AT_MOST}")
    if symbols <= given.keys():
        return given
    try:
        feeds = sample(lowered.model, count=1)
    except EvaluationError:
        return given  # As ``superopt cost`` does for a model that runs on no inputs.
    return {**feeds.feeds[0].dims, **given}
