"""What differs between two models of one interface, as pairs of small models between values that both have.

That the regions agree means that the wholes do, by induction in the order of the new model: a value that both have by
name is right where its node is the original's, or where the region that ends in it computes the same from such values
before it. Nothing is asked of how the new model came about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import onnx
from onnx import helper

from superopt.models.model import Model, standard_domain
from superopt.models.scopes import captured_names, is_deterministic, running_order
from superopt.operators import dtype_number
from superopt.terms import TensorType

ValueTypes = Mapping[str, "TensorType | onnx.TypeProto | None"]

_RUN_BY_ONNXRUNTIME = ("", "ai.onnx.ml", "com.microsoft")


@dataclass(frozen=True)
class Region:
    """A rewritten region: values that both models have, and the nodes between them in each, by index."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    original: tuple[int, ...]
    new: tuple[int, ...]


class GraphIndex:
    """A model's main graph, looked up by the names of its values."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph = model.proto.graph
        self.nodes = list(self.graph.node)
        self.uses = [tuple(name for name in (*node.input, *captured_names(node)) if name) for node in self.nodes]
        self.makers = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.stored = {tensor.name: tensor for tensor in self.graph.initializer}
        self.sparse = {item.values.name: item for item in self.graph.sparse_initializer}
        self.inputs = {value.name: value for value in self.graph.input}
        self.outputs = tuple(value.name for value in self.graph.output)
        self.functions = {(standard_domain(item.domain), item.name): item for item in model.proto.functions}

    @cached_property
    def order(self) -> dict[int, int]:
        """The place of every node in an order in which they can run."""
        needs = [[self.makers[name] for name in names if name in self.makers] for names in self.uses]
        return {index: place for place, index in enumerate(running_order(needs, range(len(needs))))}

    def place(self, name: str) -> int:
        """When a value is there; inputs and initializers are there from the start."""
        return self.order[self.makers[name]] if name in self.makers else -1

    def cone(self, outputs: Iterable[str], stops: Callable[[str], bool]) -> tuple[list[int], list[str]]:
        """The nodes that make some values, and what they are made from where it ``stops``."""
        nodes: set[int] = set()
        found: dict[str, None] = {}
        stack: list[int] = []
        for name in outputs:
            if name in self.makers:
                stack.append(self.makers[name])
            elif stops(name):
                found.setdefault(name)
        while stack:
            index = stack.pop()
            if index in nodes:
                continue
            nodes.add(index)
            for name in self.uses[index]:
                if stops(name):
                    found.setdefault(name)
                elif name in self.makers:
                    stack.append(self.makers[name])
        return sorted(nodes, key=self.order.__getitem__), list(found)

    def is_computable(self, name: str) -> bool:
        """Whether the node that makes a value is one that can be run anywhere, and again."""
        node = self.nodes[self.makers[name]]
        key = (standard_domain(node.domain), node.op_type)
        return (key in self.functions or key[0] in _RUN_BY_ONNXRUNTIME) and is_deterministic(node, self.functions)

    def cut(self, region: Region, nodes: Sequence[int], named: Sequence[str], types: ValueTypes) -> Model:
        """The model of some nodes alone; ``named`` are its outputs as they are called here."""
        names = dict.fromkeys(name for index in nodes for name in self.uses[index])
        names.update(dict.fromkeys(named))
        # What one of two has a default for, the other has, though it may have no use for it any more.
        names.update(dict.fromkeys(name for name in region.inputs if name in self.inputs))
        proto = onnx.ModelProto(ir_version=self.model.proto.ir_version)
        proto.opset_import.extend(self.model.proto.opset_import)
        proto.functions.extend(self.model.proto.functions)
        graph = proto.graph
        graph.name = "region"
        graph.node.extend(self.nodes[index] for index in nodes)
        for name, output in zip(named, region.outputs, strict=True):
            if name != output:
                graph.node.append(helper.make_node("Identity", [name], [output]))
        fed = set(region.inputs)
        for name in names:
            # An overridable initializer is an input that has a default.
            if name in self.stored and (name not in fed or name in self.inputs):
                graph.initializer.append(self.stored[name])
                if proto.ir_version < 4 and name not in fed:
                    tensor = self.stored[name]
                    graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
            elif name in self.sparse:
                graph.sparse_initializer.append(self.sparse[name])
        graph.input.extend(_value_info(name, types.get(name)) for name in region.inputs)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in region.outputs)
        return replace(self.model, proto=proto, source=None)


class Difference:
    """The regions in which a new model differs from the original; ``types`` tell the types of values by name."""

    def __init__(self, original: Model, new: Model) -> None:
        self.old, self.new = GraphIndex(original), GraphIndex(new)
        self._same_meaning = original.opsets == new.opsets
        self._same_functions = list(original.proto.functions) == list(new.proto.functions)
        old, other = self.old, self.new
        self.common = frozenset(
            name
            for name in (*other.makers, *other.inputs)
            if (name in other.makers and name in old.makers)
            or (name in other.inputs and name in old.inputs and self._same_stored(name))
        )
        self.renamed: dict[int, tuple[str, ...]] = {}
        self.pairs: dict[str, tuple[str, str]] = {}
        self.kept = {index for index in range(len(other.nodes)) if self._is_kept(index)}

    def regions(self, stops: Collection[str] | None = None) -> list[Region]:
        """The regions, in the order of the new model; they begin at ``stops`` (at all common values, if None)."""
        at = self.common if stops is None else self.common & frozenset(stops)
        pending = list(self.new.outputs)
        seen: set[str] = set()
        wanted: list[Region] = []
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            index = self.new.makers.get(name)
            if index is not None and index in self.kept:
                pending.extend(self.renamed.get(index, self.new.uses[index]))
            elif index is not None or name in self.new.outputs or name in self.pairs:
                if index is None and self._is_same(name):
                    continue
                region = self.region((name,), at)
                wanted.append(region)
                pending.extend(region.inputs)
        return self._grouped(sorted(wanted, key=lambda region: (self._place(region.outputs[0]), region.outputs[0])))

    def region(self, outputs: tuple[str, ...], stops: Collection[str]) -> Region:
        """The region that ends in some values and begins at ``stops``, or where nothing is before."""
        last = min((self._place(name) for name in outputs), default=0)

        def ends(name: str) -> bool:
            if name not in self.common:
                return False
            if name in self.new.makers:
                return name in stops and self.new.place(name) < last
            return True

        names = self._named(outputs)
        new, inputs = self.new.cone([name for _, name in names], ends)
        old, more = self.old.cone([name for name, _ in names], ends)
        region = Region(tuple(sorted({*inputs, *more})), outputs, tuple(old), tuple(new))
        # Where one node makes several values in one of the two, it cannot be given one of them.
        made = self._made(region) & set(region.inputs)
        return self.region(outputs, set(stops) - made) if made else region

    def models(self, region: Region, types: ValueTypes) -> tuple[Model, Model]:
        """Both ways to compute the outputs of a region from its inputs: the original's, and the new model's."""
        names = self._named(region.outputs)
        original = self.old.cut(region, region.original, [name for name, _ in names], types)
        new = self.new.cut(region, region.new, [name for _, name in names], types)
        return original, new

    def _named(self, outputs: Sequence[str]) -> list[tuple[str, str]]:
        """What the outputs of a region are called in the original and in the new model."""
        return [self.pairs.get(name, (name, name)) for name in outputs]

    def _place(self, output: str) -> int:
        return self.new.place(self.pairs.get(output, (output, output))[1])

    def is_made(self, name: str) -> bool:
        """Whether the original computes a value by a node that can be run."""
        return name in self.old.makers and self.old.is_computable(name)

    def dependent(self, region: Region) -> list[str]:
        """The inputs of a region that the original computes from others of them: they cannot be chosen freely."""
        found = []
        for name in region.inputs:
            if self.is_made(name):
                others = set(region.inputs) - {name}
                # A default binds what the lambda would look up late; mypy infers no type for it.
                _, reached = self.old.cone([name], lambda at, others=others: at in others)  # type: ignore[misc]
                if reached:
                    found.append(name)
        return found

    def _same_stored(self, name: str) -> bool:
        """Whether an input has the same default in both, or none."""
        return self.old.stored.get(name) == self.new.stored.get(name)

    def _is_kept(self, index: int) -> bool:
        """Whether a node of the new model is the original's, and so are the names of all that it uses."""
        node = self.new.nodes[index]
        name = next((name for name in node.output if name), None)
        place = self.old.makers.get(name) if name is not None else None
        if place is None or not self._same_meaning:
            return False
        other = self.old.nodes[place]
        if not self._same_functions and (standard_domain(node.domain) or self.new.uses[index] != tuple(node.input)):
            return False
        alike = (
            (node.op_type, node.domain) == (other.op_type, other.domain)
            and [bool(used) for used in node.input] == [bool(used) for used in other.input]
            and node.output[:] == other.output[:]
            and {item.name: item for item in node.attribute} == {item.name: item for item in other.attribute}
        )
        uses, others = self.new.uses[index], self.old.uses[place]
        if not alike or len(uses) != len(others):
            return False
        if uses == others and all(self._is_same(used) for used in uses):
            return True
        # What cannot be run can be in no region: that it is given the same is shown input by input.
        if name is None or self.old.is_computable(name):
            return False
        wanted = []
        for used, was in zip(uses, others, strict=True):
            pair = used if used == was and self._is_same(used) else f"{used} for {was}"
            if pair != used:
                self.pairs[pair] = (was, used)
            wanted.append(pair)
        self.renamed[index] = tuple(wanted)
        return True

    def _is_same(self, name: str) -> bool:
        if name in self.common:
            return True
        if name in self.new.makers or name in self.old.makers or name in self.old.inputs or name in self.new.inputs:
            return False
        if name in self.new.stored:
            return self._same_stored(name)
        return name in self.new.sparse and self.old.sparse.get(name) == self.new.sparse[name]

    def _grouped(self, regions: Sequence[Region]) -> list[Region]:
        """Parts that share new nodes as one, unless it would have to be given what it computes."""
        groups: list[Region] = []
        owner: dict[int, int] = {}
        for region in regions:
            place = next((owner[index] for index in region.new if index in owner), None)
            merged = None if place is None else self._together(groups[place], region)
            if place is None or merged is None:
                place = len(groups)
                groups.append(region)
            else:
                groups[place] = merged
            for index in region.new:
                owner.setdefault(index, place)
        return groups

    def _together(self, left: Region, right: Region) -> Region | None:
        old, new = sorted({*left.original, *right.original}), sorted({*left.new, *right.new})
        region = Region(
            tuple(sorted({*left.inputs, *right.inputs})),
            (*left.outputs, *right.outputs),
            tuple(sorted(old, key=self.old.order.__getitem__)),
            tuple(sorted(new, key=self.new.order.__getitem__)),
        )
        return None if self._made(region) & set(region.inputs) else region

    def _made(self, region: Region) -> set[str]:
        """The values that the nodes of a region make, in either model."""
        return {name for index in region.original for name in self.old.nodes[index].output if name} | {
            name for index in region.new for name in self.new.nodes[index].output if name
        }


def _value_info(name: str, kind: TensorType | onnx.TypeProto | None) -> onnx.ValueInfoProto:
    if isinstance(kind, onnx.TypeProto):
        return onnx.ValueInfoProto(name=name, type=kind)
    if kind is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, dtype_number(kind.dtype), kind.shape)
