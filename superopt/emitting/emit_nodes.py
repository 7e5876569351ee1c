"""Terms written as nodes: the original's where there is one, else from the normal form in the model's own opset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import defs, helper

from superopt.emitting.naming import FreshNames, Names, all_names, projections
from superopt.forms import onnx_form
from superopt.lowering.lower import Lowered
from superopt.lowering.site import attribute_kind
from superopt.models.model import standard_domain
from superopt.models.scopes import inner_names, rename_captured
from superopt.models.tensors import constant_of_array
from superopt.operators import FORMS, operator
from superopt.terms import ABSENT, CONST, INPUT, OPAQUE, PROJECT, AttrValue, Constant, Node, TermGraph


@dataclass(frozen=True)
class Written:
    """Nodes, not yet in order, and what they need.

    ``nodes`` come with the place in the original that they would like. ``constants`` are used under these names.
    ``terms`` tells the term of each value by name.
    """

    nodes: Sequence[tuple[int, onnx.NodeProto]]
    constants: Mapping[str, Constant]
    terms: Mapping[str, int]


class NodeWriter:
    """Writes the terms of a graph, given in order, as nodes; gives names to values that have none."""

    def __init__(
        self,
        lowered: Lowered,
        graph: TermGraph,
        live: Sequence[int],
        same: Mapping[int, int],
        twins: Mapping[int, int],
        captured: Mapping[int, tuple[str, ...]],
        names: Names,
    ) -> None:
        self._lowered, self._graph, self._same, self._twins, self._captured = lowered, graph, same, twins, captured
        self._originals = lowered.model.proto.graph.node
        self._new_of = {old: new for new, old in twins.items()}
        self._names = dict(names.of_term)
        self._aliases = names.aliases
        self._projections = projections(graph, live)
        self._fresh = FreshNames(all_names(lowered.model.proto) | lowered.model.reserved)
        self._taken = set(self._names.values()) | {name for name, _ in names.aliases}
        self._named: set[int | None] = {self._source(term) for term in self._twins}
        self._sources_of: defaultdict[str, set[int]] = defaultdict(set)
        for term, original in enumerate(lowered.graph.nodes):
            if original.op == OPAQUE and term in lowered.sources:
                self._sources_of[str(original.attrs["key"])].add(lowered.sources[term])
        self._ranks: dict[int, int] = {}
        self._nodes: list[tuple[int, onnx.NodeProto]] = []
        self._constants: dict[str, Constant] = {}
        self._held = {key: name for name, key in reversed(list(lowered.constant_keys.items()))}
        for term, name in self._names.items():
            if graph.nodes[term].op == CONST:
                self._held[str(graph.nodes[term].attrs["key"])] = name

    def add(self, term: int) -> None:
        """Writes a term whose arguments have been written."""
        node = self._graph.nodes[term]
        self._ranks[term] = self._rank(term, node)
        if node.op in (INPUT, CONST, PROJECT):
            return
        if node.op == OPAQUE:
            written = self._opaque(term, node)
        else:
            written = self._reused(term) or self._anew(term, node)
        self._nodes.append((self._ranks[term], written))

    def finished(self) -> Written:
        """All that was written, with the nodes that give outputs a second name."""
        second = self._identities() if self._aliases else {}
        for name, term in self._aliases:
            source = self._name(term, name)
            node = _renamed(second[name], [source], [name]) if name in second else self._identity(source, name)
            self._nodes.append((self._ranks[term], node))
        for term in self._graph.roots:
            self._name(term, "output")
        return Written(self._nodes, self._constants, {name: term for term, name in self._names.items()})

    def _rank(self, term: int, node: Node) -> int:
        source = None if node.op in (INPUT, CONST) else self._source(term)
        if source is not None:
            return source
        return max((self._ranks[arg] for arg in node.args if arg != ABSENT), default=-1)

    def _source(self, term: int) -> int | None:
        """The original node that makes this value, by index; that of a bundle makes the values that are read of it."""
        values = [term, *self._projections.get(term, {}).values()]
        old = next((self._same[value] for value in values if value in self._same), None)
        if old is None:
            return None
        node = self._lowered.graph.nodes[old]
        return self._lowered.sources.get(node.args[0] if node.op == PROJECT else old)

    def _name(self, term: int, hint: str) -> str:
        """The name of a value that is used now; ``hint`` is for a new constant."""
        node = self._graph.nodes[term]
        if node.op == CONST:
            return self._constant(self._graph.constants[str(node.attrs["key"])], hint)
        return self._names[term]

    def _own(self, term: int, name: str) -> str:
        """The name that an operator which is not understood has for a constant; else nothing. Others may hold the same
        under another name, but runtimes let some operators write into what they read."""
        node = self._graph.nodes[term]
        if node.op != CONST or self._lowered.constant_keys.get(name) != node.attrs["key"]:
            return ""
        self._constants[name] = self._graph.constants[str(node.attrs["key"])]
        return name

    def _constant(self, constant: Constant, hint: str) -> str:
        name = self._held.get(constant.key)
        if name is None:
            name = self._held[constant.key] = self._fresh.make(hint)
        self._constants[name] = constant
        return name

    def _outputs(self, term: int, original: Sequence[str], base: str) -> list[str]:
        """Names of a node's outputs; of one that nothing uses, the original's where it is still free."""
        values = self._projections.get(term, {})
        if not self._is_bundle(term):
            values = {0: term}
        names = []
        for index in range(max([len(original), *(index + 1 for index in values)])):
            value = values.get(index)
            if value is not None:
                if value not in self._names:
                    self._names[value] = self._fresh.make(f"{base}_output" if index == 0 else f"{base}_output_{index}")
                name = self._names[value]
            else:
                name = original[index] if index < len(original) else ""
                if name in self._taken:
                    name = self._fresh.make(f"{name}_unused")
            if name:
                self._taken.add(name)
            names.append(name)
        return names

    def _is_bundle(self, term: int) -> bool:
        spec = operator(self._graph.nodes[term].op)
        return spec is None or spec.form.bundle

    def _reused(self, term: int) -> onnx.NodeProto | None:
        """The original node, with other names where its neighbours have other names now; None where there is none, or
        where an input of it is gone: one that only told a type, as of a CastLike."""
        if term not in self._twins:
            return None
        lowered = self._lowered
        original = self._originals[lowered.sources[self._twins[term]]]
        sources = [(name, self._new_of.get(lowered.value_terms.get(name, ABSENT))) for name in original.input]
        if any(name and new is None and name not in lowered.constant_keys for name, new in sources):
            return None
        inputs = [self._read(name, new) if name else "" for name, new in sources]
        return _renamed(original, inputs, self._outputs(term, original.output, original.name or original.op_type))

    def _read(self, name: str, new: int | None) -> str:
        """What is read now in the place of a value of the original: its new term, or the constant that it was."""
        if new is not None:
            return self._name(new, name)
        return self._constant(self._lowered.constants[self._lowered.constant_keys[name]], name)

    def _opaque(self, term: int, node: Node) -> onnx.NodeProto:
        source = self._opaque_source(term, str(node.attrs["key"]))
        original = self._originals[source]
        base = original.name or original.op_type
        count = len(original.input)
        inputs = [
            "" if arg == ABSENT else self._own(arg, name) or self._name(arg, f"{base}_input")
            for arg, name in zip(node.args, (*original.input, *self._captured[term]), strict=True)
        ]
        written = _renamed(original, inputs[:count], self._outputs(term, original.output, base))
        changed = {old: new for old, new in zip(self._captured[term], inputs[count:], strict=True) if old != new}
        if changed:
            written = _renamed(written, written.input, written.output, copy=True)
            local = set(inner_names(written)) - set(changed)
            for old, new in changed.items():
                if new in local:
                    # The subgraph has a value of its own of this name: only a name that nothing has is safe in it.
                    alias = self._fresh.make(old)
                    self._nodes.append((self._ranks[term], self._identity(new, alias)))
                    changed[old] = alias
            rename_captured(written, changed)
        if term not in self._twins:
            if source in self._named and written.name:
                written = _renamed(written, written.input, written.output, copy=True)
                written.name = self._fresh.make(written.name)
            self._named.add(source)
        return written

    def _opaque_source(self, term: int, key: str) -> int:
        """The original node that an opaque term is: of several that say the same, the one that makes its values."""
        if term in self._twins:
            return self._lowered.sources[self._twins[term]]
        source = self._source(term)
        return source if source in self._sources_of[key] else self._lowered.opaque_sources[key]

    def _anew(self, term: int, node: Node) -> onnx.NodeProto:
        """A node from the normal form; it has the name of the original's node for this value, if that is alike."""
        graph = self._graph
        types = [None if arg == ABSENT else graph.types[arg] for arg in node.args]
        constants = [self._constant_at(arg) for arg in node.args]
        present = tuple(arg != ABSENT for arg in node.args)
        form = onnx_form(node.op, node.attrs, present, self._lowered.model.opset, types, constants)
        source = self._source(term)
        original = self._originals[source] if source is not None else None
        written = onnx.NodeProto(op_type=form.op_type)
        alike = original if original is not None and original.op_type == form.op_type else None
        if alike is not None and alike.domain in ("", "ai.onnx"):
            # Nodes that share a name keep it; only a second node for one of the original's has another.
            written.name = self._fresh.make(alike.name) if source in self._named and alike.name else alike.name
            self._named.add(source)
            for name in ("domain", "doc_string"):
                if alike.HasField(name):
                    setattr(written, name, getattr(alike, name))
            written.metadata_props.extend(alike.metadata_props)
        else:
            written.name = self._fresh.make(form.op_type)
        base = written.name or form.op_type
        outputs = self._split_outputs(term, node, base)
        schema = defs.get_schema(form.op_type, max_inclusive_version=self._lowered.model.opset)
        for position, item in enumerate(form.inputs):
            label = schema.inputs[min(position, len(schema.inputs) - 1)].name
            if item is None:
                written.input.append("")
            elif isinstance(item, int):
                written.input.append(self._name(node.args[item], f"{base}_{label}"))
            else:
                written.input.append(self._constant(constant_of_array(item), f"{base}_{label}"))
        bias = FORMS[node.op].zero_bias
        if bias is not None and len(written.input) == bias and alike is not None and _has(alike, bias):
            # A bias of zeros makes what underflows to -0.0 a 0.0.
            written.input.append(self._name(node.args[bias], f"{base}_bias"))
        written.output.extend(outputs)
        for name in sorted(form.attributes):
            attribute = _attribute(name, form.attributes[name], schema)
            if attribute != schema.attributes[name].default_value:
                written.attribute.append(attribute)
        return written

    def _constant_at(self, term: int) -> Constant | None:
        node = self._graph.nodes[term] if term != ABSENT else None
        return self._graph.constants[str(node.attrs["key"])] if node is not None and node.op == CONST else None

    def _identities(self) -> Mapping[str, onnx.NodeProto]:
        """The original's Identity nodes, by what they make: an output that needs one keeps its own."""
        nodes = (node for node in self._originals if node.op_type == "Identity" and not standard_domain(node.domain))
        return {node.output[0]: node for node in nodes if len(node.output) == 1}

    def _identity(self, source: str, target: str) -> onnx.NodeProto:
        return helper.make_node("Identity", [source], [target], self._fresh.make(f"Identity_{target}"))

    def _split_outputs(self, term: int, node: Node, base: str) -> list[str]:
        sizes = node.attrs.get("split")
        count = len(sizes) if self._is_bundle(term) and isinstance(sizes, tuple) else 1
        outputs = self._outputs(term, [""] * count, base)
        return [name or self._fresh.make(f"{base}_output_{index}") for index, name in enumerate(outputs)]


def _has(node: onnx.NodeProto, place: int) -> bool:
    return len(node.input) > place and bool(node.input[place])


def _renamed(
    original: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str], copy: bool = False
) -> onnx.NodeProto:
    """The node with these inputs and outputs: itself where they are its own, else a copy."""
    inputs, outputs = list(inputs), list(outputs)
    if not copy and inputs == list(original.input) and outputs == list(original.output):
        return original
    node = onnx.NodeProto()
    node.CopyFrom(original)
    del node.input[:]
    del node.output[:]
    node.input.extend(inputs)
    node.output.extend(outputs)
    return node


def _attribute(name: str, value: AttrValue, schema: defs.OpSchema) -> onnx.AttributeProto:
    """An attribute of the kind that the schema wants."""
    kind = attribute_kind(schema.attributes[name])
    floats = kind in (onnx.AttributeProto.FLOATS, onnx.AttributeProto.FLOAT)
    if isinstance(value, tuple):
        return helper.make_attribute(name, [float(item) if floats else item for item in value], attr_type=kind)
    return helper.make_attribute(name, float(value) if floats else value, attr_type=kind)
