"""Cost models: what a node costs given its types, read from TOML files; and what a whole model costs."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import onnx

from superopt import shipped
from superopt.errors import CostModelError
from superopt.lowering.lower import lower
from superopt.models.model import Model
from superopt.models.model import load as load_model
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, Attrs, TermGraph, ValueType
from superopt.workload import NOMINAL, Sizes, is_depthwise, is_grouped, work

if TYPE_CHECKING:
    import onnx_ir

FREE = frozenset({INPUT, CONST, PROJECT})
"""What is not an operator: a graph input, a constant (its bytes are priced apart), an output of a node that is
priced."""


@dataclass(frozen=True, slots=True)
class Operand:
    """What a node's price may depend on of one argument: its type, whether it is constant, and the operators that make
    it (of the class, in an e-graph)."""

    type: ValueType
    constant: bool = False
    producers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Family:
    """Operators that run alike: factors on the model's price of a node, of a flop and of a byte of traffic.

    ``kind`` narrows convolutions: ``depthwise`` (one input channel a group), ``grouped`` (several groups, not
    depthwise). ``block`` is the vector width in channels that a group's channels are padded up to.
    """

    operators: tuple[str, ...]
    node: float = 1.0
    flop: float = 1.0
    byte: float = 1.0
    kind: Literal["any", "depthwise", "grouped"] = "any"
    block: int = 1


@dataclass(frozen=True)
class Fusion:
    """Operators that the runtime computes inside the operator before them: their price is multiplied by ``factor``.

    It counts where an argument is made by one of ``behind``, and the other arguments are constant if ``constant`` says
    so.
    """

    operators: tuple[str, ...]
    behind: tuple[str, ...]
    factor: float
    constant: bool = False


@dataclass(frozen=True)
class CostModel:
    """The price of a node: ``node`` + ``flop`` x flops and ``byte`` x traffic, added up or the larger one (a roofline).

    ``constant_byte`` is the price of each byte of a constant that the model stores, ``kept_constant`` that of a node
    whose inputs are all constant and which is left to be computed (runtimes do so once, when they load the model).
    """

    name: str
    unit: str
    combine: Literal["sum", "max"] = "sum"
    node: float = 0.0
    flop: float = 0.0
    byte: float = 0.0
    constant_byte: float = 0.0
    kept_constant: float = 0.0
    families: Mapping[str, Family] = field(default_factory=dict)
    fusions: tuple[Fusion, ...] = ()

    @property
    def hash(self) -> str:
        """A hash of everything that a price depends on."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def price(
        self, op: str, attrs: Attrs, operands: Sequence[Operand | None], result: ValueType, sizes: Sizes = NOMINAL
    ) -> float:
        """What running one node costs, in ``unit``; operands are None where an argument is absent."""
        if op in FREE:
            return 0.0
        family = self._family(op, attrs, operands, sizes)
        types = [None if operand is None else operand.type for operand in operands]
        amount = work(op, attrs, types, result, sizes, family.block)
        compute = self.flop * family.flop * amount.flops
        memory = self.byte * family.byte * amount.traffic
        running = max(compute, memory) if self.combine == "max" else compute + memory
        return (self.node * family.node + running) * self._fused(op, operands)

    @cached_property
    def _families(self) -> Mapping[str, tuple[Family, ...]]:
        return _by_operator(self.families.values())

    @cached_property
    def _fusions(self) -> Mapping[str, tuple[Fusion, ...]]:
        return _by_operator(self.fusions)

    def _family(self, op: str, attrs: Attrs, operands: Sequence[Operand | None], sizes: Sizes) -> Family:
        for family in self._families.get(op, ()):
            if family.kind == "any":
                return family
            weight = sizes.shape(operands[1].type) if len(operands) > 1 and operands[1] is not None else ()
            if is_depthwise(attrs, weight) if family.kind == "depthwise" else is_grouped(attrs, weight):
                return family
        return _ORDINARY

    def _fused(self, op: str, operands: Sequence[Operand | None]) -> float:
        for fusion in self._fusions.get(op, ()):
            given = [operand for operand in operands if operand is not None]
            makers = [operand for operand in given if not operand.producers.isdisjoint(fusion.behind)]
            if makers and (not fusion.constant or sum(not operand.constant for operand in given) == 1):
                return fusion.factor
        return 1.0


_ORDINARY = Family(())

F = TypeVar("F", bound="Family | Fusion")


def _by_operator(items: Iterable[F]) -> Mapping[str, tuple[F, ...]]:
    found: dict[str, tuple[F, ...]] = {}
    for item in items:
        for op in item.operators:
            found[op] = (*found.get(op, ()), item)
    return found


def load(name_or_path: str | Path) -> CostModel:
    """The cost model of this name among those that ship, or in this TOML file.

    Raises ``CostModelError`` (``file: what, expected``).
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        known = sorted(file.stem for file in shipped.cost_models_dir().glob("*.toml"))
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
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CostModelError(f"{path}: cannot be read ({error.strerror}), expected a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CostModelError(f"{path}: {error}, expected a TOML file") from error
    return parse(data, str(path))


def parse(data: Mapping[str, Any], file: str) -> CostModel:
    """The cost model that a TOML document describes; ``file`` is named in errors."""
    reader = _Reader(file)
    reader.known(data, "the file", ("name", "unit", "price", "family", "fusion"))
    price = reader.table(data, "price")
    reader.known(price, "[price]", ("combine", "node", "flop", "byte", "constant_byte", "kept_constant"))
    combine = reader.choice(price, "combine", ("sum", "max"), "sum")
    numbers = {
        key: reader.number(price, key, 0.0) for key in ("node", "flop", "byte", "constant_byte", "kept_constant")
    }
    families = {name: reader.family(name, item) for name, item in reader.table(data, "family").items()}
    entries = data.get("fusion", [])
    if not isinstance(entries, list):
        raise CostModelError(f"{file}: fusion is not a list, expected [[fusion]] tables")
    return CostModel(
        name=reader.text(data, "name"), unit=reader.text(data, "unit"), combine=combine, families=families,
        fusions=tuple(reader.fusion(item) for item in entries), **numbers,
    )  # fmt: skip


@dataclass(frozen=True)
class _Reader:
    """Reads parts of a TOML document, and says what was expected where they are wrong."""

    file: str

    def known(self, data: Mapping[str, Any], where: str, keys: Sequence[str]) -> None:
        for key in data:
            if key not in keys:
                raise CostModelError(f"{self.file}: {where} has {key!r}, expected only {', '.join(keys)}")

    def table(self, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a table [{key}]")
        return value

    def text(self, data: Mapping[str, Any], key: str) -> str:
        value = data.get(key)
        if not isinstance(value, str) or not value:
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a text")
        return value

    def number(self, data: Mapping[str, Any], key: str, default: float) -> float:
        value = data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a finite number that is not negative")
        return float(value)

    def choice(self, data: Mapping[str, Any], key: str, choices: Sequence[str], default: str) -> Any:
        value = data.get(key, default)
        if value not in choices:
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected one of {', '.join(choices)}")
        return value

    def names(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = data.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise CostModelError(f"{self.file}: {key} = {value!r}, expected a list of operator names")
        return tuple(value)

    def family(self, name: str, data: Any) -> Family:
        where = f"[family.{name}]"
        if not isinstance(data, dict):
            raise CostModelError(f"{self.file}: family.{name} = {data!r}, expected a table {where}")
        self.known(data, where, ("operators", "node", "flop", "byte", "kind", "block"))
        block = data.get("block", 1)
        if isinstance(block, bool) or not isinstance(block, int) or block < 1:
            raise CostModelError(f"{self.file}: block = {block!r} in {where}, expected a whole number of channels")
        factors = {key: self.number(data, key, 1.0) for key in ("node", "flop", "byte")}
        kind = self.choice(data, "kind", ("any", "depthwise", "grouped"), "any")
        return Family(self.names(data, "operators"), kind=kind, block=block, **factors)

    def fusion(self, data: Any) -> Fusion:
        if not isinstance(data, dict):
            raise CostModelError(f"{self.file}: fusion {data!r}, expected a table")
        self.known(data, "[[fusion]]", ("operators", "behind", "factor", "constant"))
        constant = data.get("constant", False)
        if not isinstance(constant, bool):
            raise CostModelError(f"{self.file}: constant = {constant!r} in [[fusion]], expected true or false")
        return Fusion(
            self.names(data, "operators"), self.names(data, "behind"), self.number(data, "factor", 0.0), constant
        )


@dataclass(frozen=True, slots=True)
class NodeCost:
    """What one node costs, in the unit of the breakdown."""

    name: str
    op: str
    cost: float


@dataclass(frozen=True)
class CostBreakdown:
    """What a model costs to run, node by node, and the bytes of its constants (which ``total`` does not price)."""

    total: float
    unit: str
    model: str
    nodes: tuple[NodeCost, ...]
    constant_bytes: int


def constant_nodes(graph: TermGraph) -> tuple[bool, ...]:
    """Which nodes of a graph need no input of the model, and give the same each time."""
    constant: list[bool] = []
    for node in graph.nodes:
        varies = node.op == INPUT
        if node.op == OPAQUE:
            varies = not graph.opaque[str(node.attrs["key"])].deterministic
        constant.append(not varies and all(constant[arg] for arg in node.args if arg != ABSENT))
    return tuple(constant)


def graph_cost(
    graph: TermGraph, cost_model: CostModel, sizes: Mapping[str, int] | None = None, names: Sequence[str] | None = None
) -> CostBreakdown:
    """What a graph costs to run under a cost model: a node that is constant costs nothing.

    ``sizes`` are the nominal sizes of symbolic dimensions, ``names`` what its nodes are called (``%3`` where not
    given).
    """
    constant = constant_nodes(graph)
    nominal = Sizes(dict(sizes or {}))
    operands = [
        Operand(value_type, fixed, frozenset((node.op,)))
        for node, value_type, fixed in zip(graph.nodes, graph.types, constant, strict=True)
    ]
    priced = []
    for index, node in enumerate(graph.nodes):
        if node.op in FREE:
            continue
        given = [None if arg == ABSENT else operands[arg] for arg in node.args]
        price = 0.0 if constant[index] else cost_model.price(node.op, node.attrs, given, graph.types[index], nominal)
        op = graph.opaque[str(node.attrs["key"])].op_type if node.op == OPAQUE else node.op
        priced.append(NodeCost(names[index] if names else f"%{index}", op, price))
    stored = sorted({str(node.attrs["key"]) for node in graph.nodes if node.op == CONST})
    total = sum(item.cost for item in priced)
    return CostBreakdown(
        total, cost_model.unit, cost_model.name, tuple(priced), sum(graph.constants[key].nbytes for key in stored)
    )


def cost(
    model: TermGraph | Model | str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    cost_model: CostModel | str = "onnxruntime",
    sizes: Mapping[str, int] | None = None,
) -> CostBreakdown:
    """What a model costs to run under a cost model (a ``CostModel``, the name of one that ships, or a TOML file), by
    node.

    Nodes carry their names, or their first output's. ``sizes`` are the nominal sizes of symbolic dimensions. Raises
    ``ModelError`` and ``CostModelError``.
    """
    chosen = cost_model if isinstance(cost_model, CostModel) else load(cost_model)
    if isinstance(model, TermGraph):
        return graph_cost(model, chosen, sizes)
    lowered = lower(model if isinstance(model, Model) else load_model(model))
    names = [f"%{index}" for index in range(len(lowered.graph.nodes))]
    for index, source in lowered.sources.items():
        node = lowered.model.proto.graph.node[source]
        names[index] = node.name or next((name for name in node.output if name), names[index])
    return graph_cost(lowered.graph, chosen, sizes, names)
