"""A model's main graph as terms in normal form, and all that emitting needs to find its way back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from superopt.errors import InferenceError, ModelError
from superopt.lowering.normalize import normal_form
from superopt.lowering.site import NotNormal, Site, modelled, read_attributes
from superopt.models.inference import contradicts, refined, value_types
from superopt.models.model import Model, standard_domain
from superopt.models.scopes import captured_names, is_deterministic, names_of_training, running_order
from superopt.models.tensors import constant_of_array, constant_of_sparse, constant_of_tensor
from superopt.operators import NEWEST_OPSET, dtype_number, operator
from superopt.shapes import infer_node
from superopt.terms import (
    ABSENT,
    CONST,
    INPUT,
    OPAQUE,
    PROJECT,
    Attrs,
    Constant,
    Node,
    OpaqueOperator,
    TensorType,
    TermGraph,
    ValueType,
    needed,
    type_text,
)

OLDEST_OPSET = 7
"""Models of an older opset are read, but every operator in them is left alone."""


@dataclass(frozen=True, eq=False)
class Lowered:
    """A model's main graph in normal form.

    ``root_names`` name the roots of ``graph``: the graph outputs, then what training refers to. ``value_terms`` tells
    the term of every named value that is still there, in order of the model. ``node_terms`` tells per original node
    what it became (a bundle where it has several outputs, a Const for a Constant node, None where nothing needs it any
    more), and ``sources`` the first original node of a term. ``opaque_sources`` finds the original node of an opaque
    key. ``constants`` are all constants of the model that were looked at, with those that became attributes, and
    ``constant_keys`` their keys by the name of the value. ``constant_inputs`` are the graph inputs that were taken for
    their initializers. ``in_order`` is false where the model's nodes do not come in an order in which they can run.
    """

    model: Model
    graph: TermGraph
    root_names: tuple[str, ...]
    value_terms: Mapping[str, int]
    node_terms: tuple[int | None, ...]
    sources: Mapping[int, int]
    opaque_sources: Mapping[str, int]
    constants: Mapping[str, Constant] = field(repr=False)
    constant_keys: Mapping[str, str] = field(repr=False)
    constant_inputs: frozenset[str] = frozenset()
    in_order: bool = True


def lower(model: Model, initializers_are_constant: bool = False) -> Lowered:
    """The main graph in normal form; what has none is opaque, with the reason.

    Raises ModelError on a graph that is broken.
    """
    graph = model.proto.graph
    listed = {value.name for value in graph.input}
    stored = [tensor.name for tensor in graph.initializer]
    constant_inputs = frozenset(name for name in stored if name in listed and initializers_are_constant)
    try:
        layout = _layout(model.proto)
        builder = _Builder(model, constant_inputs)
        for index in layout.order:
            if layout.live[index]:
                builder.add_node(index)
        root_names = tuple(dict.fromkeys([*(output.name for output in graph.output), *layout.pinned]))
        roots = [builder.term(name) for name in root_names]
    except ModelError as error:
        raise ModelError(f"{model.label}: {error}") from error
    return builder.finished(root_names, roots, layout.order == sorted(layout.order))


@dataclass(frozen=True)
class _Layout:
    """How nodes hang together: an order to run in, which are needed, and values that training refers to."""

    order: Sequence[int]
    live: Sequence[bool]
    pinned: Sequence[str]


def _layout(proto: onnx.ModelProto) -> _Layout:
    graph = proto.graph
    makers = _makers(graph)
    needs: list[list[int]] = []
    for node in graph.node:
        names = [name for name in (*node.input, *captured_names(node)) if name]
        for name in names:
            if name not in makers:
                raise ModelError(f"node {node.name or node.op_type!r} uses value {name!r}, which nothing makes")
        needs.append([makers[name] for name in names if makers[name] >= 0])
    for output in graph.output:
        if output.name not in makers:
            raise ModelError(f"nothing makes output {output.name!r}")
    pinned = [name for name in names_of_training(proto) if name in makers]
    live = [False] * len(needs)
    stack = [makers[name] for name in (*(output.name for output in graph.output), *pinned)]
    while stack:
        index = stack.pop()
        if index >= 0 and not live[index]:
            live[index] = True
            stack.extend(needs[index])
    return _Layout(running_order(needs, list(range(len(needs)))), live, pinned)


def _makers(graph: onnx.GraphProto) -> dict[str, int]:
    """Which node makes each value, -1 for inputs and initializers."""
    inputs = [value.name for value in graph.input]
    listed = set(inputs)
    stored = [tensor.name for tensor in graph.initializer] + [item.values.name for item in graph.sparse_initializer]
    makers: dict[str, int] = {}
    outside = [*inputs, *(name for name in stored if name not in listed)]
    made = [(name, index) for index, node in enumerate(graph.node) for name in node.output if name]
    for name, index in [*((name, -1) for name in outside), *made]:
        if name in makers or not name:
            raise ModelError(f"value {name!r} is made twice, expected once" if name else "a value without a name")
        makers[name] = index
    return makers


class _Builder:
    """Collects terms, each once, and where they came from."""

    def __init__(self, model: Model, constant_inputs: frozenset[str]) -> None:
        self.model = model
        self.constant_inputs = constant_inputs
        self.opsets = model.opsets
        self.opset = model.opset
        graph = model.proto.graph
        self.types_by_name = value_types(model, constant_inputs)
        self.functions = {(standard_domain(item.domain), item.name): item for item in model.proto.functions}
        self.inputs = {value.name for value in graph.input} - constant_inputs
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.sparse = {sparse.values.name: sparse for sparse in graph.sparse_initializer}
        self.used = {name for node in graph.node for name in (*node.input, *captured_names(node))}
        self.used.update(output.name for output in graph.output)
        self.nodes: list[Node] = []
        self.types: list[ValueType] = []
        self.index: dict[Node, int] = {}
        self.constants: dict[str, Constant] = {}
        self.opaque: dict[str, OpaqueOperator] = {}
        self.value_terms: dict[str, int] = {}
        self.node_terms: list[int | None] = [None] * len(graph.node)
        self.sources: dict[int, int] = {}
        self.opaque_sources: dict[str, int] = {}
        self.constant_keys: dict[str, str] = {}

    def add(self, node: Node, known: ValueType) -> int:
        found = self.index.get(node)
        if found is None:
            found = self.index[node] = len(self.nodes)
            self.nodes.append(node)
            self.types.append(known)
        elif self.types[found] is None:
            self.types[found] = known
        return found

    def add_constant(self, constant: Constant, name: str | None) -> int:
        self.constants.setdefault(constant.key, constant)
        if name is not None:
            self.constant_keys[name] = constant.key
        return self.add(Node(CONST, (), Attrs.of(key=constant.key)), constant.type)

    def term(self, name: str) -> int:
        """The term of a value; leaves are made when they are first used."""
        found = self.value_terms.get(name)
        if found is None:
            folder = self.model.folder
            if name in self.inputs:
                found = self.add(Node(INPUT, (), Attrs.of(name=name)), self.types_by_name.get(name))
            elif name in self.model.held and name in self.initializers:
                found = self.add_constant(self.model.held[name], name)
            elif name in self.initializers:
                found = self.add_constant(constant_of_tensor(self.initializers[name], folder), name)
            else:
                found = self.add_constant(constant_of_sparse(self.sparse[name], folder), name)
            self.value_terms[name] = found
        return found

    def value_of(self, term: int) -> NDArray[np.generic] | None:
        node = self.nodes[term]
        return self.constants[str(node.attrs["key"])].array() if node.op == CONST else None

    def add_node(self, index: int) -> None:
        node = self._plain(self.model.proto.graph.node[index])
        constant = _constant_node(node, self.model) if standard_domain(node.domain) == "" else None
        if constant is not None:
            term = self.add_constant(constant, node.output[0])
            self.value_terms[node.output[0]] = term
        else:
            try:
                term = self._normal(node)
            except NotNormal as reason:
                term = self._opaque(index, node, str(reason))
        self.node_terms[index] = term
        self.sources.setdefault(term, index)

    def _plain(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """CastLike as the Cast that it is where the type it looks at is known; any other node as it stands.

        What exporters cast so is a constant most of the time, and no constant while it hangs on an input."""
        known = [self.types[self.term(name)] for name in node.input if name] if node.op_type == "CastLike" else []
        if len(known) != 2 or standard_domain(node.domain) or ("", node.op_type) in self.functions:
            return node
        like = known[1]
        if not isinstance(like, TensorType):
            return node
        cast = onnx.helper.make_node("Cast", node.input[:1], node.output, node.name, to=dtype_number(like.dtype))
        cast.attribute.extend(node.attribute)
        return cast

    def _normal(self, node: onnx.NodeProto) -> int:
        spec = operator(node.op_type)
        if (standard_domain(node.domain), node.op_type) in self.functions:
            raise NotNormal("a function of the model")
        if standard_domain(node.domain) or spec is None:
            raise NotNormal("an operator that no rule knows")
        if not OLDEST_OPSET <= self.opset <= NEWEST_OPSET:
            raise NotNormal(f"opset {self.opset}, expected {OLDEST_OPSET} to {NEWEST_OPSET}")
        attrs, version = read_attributes(node, spec, self.opset)
        outputs = [name for name in node.output if name]
        wanted = [name for name in outputs if name in self.used]
        if spec.form.bundle:
            if len(outputs) < len(node.output):
                raise NotNormal("an output without a name")
        elif [*node.output[:1]] != wanted or (node.op_type == "BatchNormalization" and len(outputs) > 1):
            raise NotNormal("outputs that are not modelled")
        args = [self.term(name) if name else ABSENT for name in node.input]
        for arg in args:
            if arg != ABSENT and not modelled(self.types[arg]):
                known = self.types[arg]
                raise NotNormal("a type is not known" if known is None else f"type {type_text(known)} is not modelled")
        types = [self.types_by_name.get(name) for name in node.output]
        site = Site(
            node, spec, version, self.opset, attrs, args, types[0],
            self.types.__getitem__, self.value_of, lambda array: self.add_constant(constant_of_array(array), None),
        )  # fmt: skip
        normal = normal_form(site)
        types = self._checked_types(normal, types)
        if not spec.form.bundle:
            term = self.add(normal, types[0])
            self.value_terms[node.output[0]] = term
            return term
        return self._bundle(normal, node, types)

    def _checked_types(self, normal: Node, types: Sequence[TensorType | None]) -> list[TensorType | None]:
        """The types of a node's outputs: what inference over the whole model and over the node alone say together."""
        try:
            alone = infer_node(normal, self.types)
        except InferenceError as error:
            raise NotNormal(f"not as ONNX wants it: {error}") from None
        parts = alone if isinstance(alone, tuple) else (alone,)
        if any(contradicts(*pair, ()) for pair in zip(types, parts, strict=False)):
            # Versions of an operator that infer other shapes mean other things. What follows from a wrong one is wrong.
            self.types_by_name = {name: self.types_by_name.get(name) for name in self.inputs}
            raise NotNormal("its shape was another in this opset")
        together = [refined(*pair) for pair in zip(types, parts, strict=False)]
        for known in together:
            if not modelled(known):
                raise NotNormal("a type is not known" if known is None else f"type {known} is not modelled")
        return together

    def _bundle(self, bundle: Node, node: onnx.NodeProto, types: Sequence[TensorType | None]) -> int:
        term = self.add(bundle, tuple(types))
        for position, name in enumerate(node.output):
            if name:
                part = self.add(Node(PROJECT, (term,), Attrs.of(index=position)), types[position])
                self.value_terms[name] = part
        return term

    def _opaque(self, index: int, node: onnx.NodeProto, reason: str) -> int:
        domain = standard_domain(node.domain)
        bare = onnx.NodeProto()
        bare.CopyFrom(node)
        for unnamed in ("name", "input", "output", "doc_string", "metadata_props"):
            bare.ClearField(unnamed)
        data = bare.SerializeToString(deterministic=True)
        deterministic = is_deterministic(node, self.functions)
        outputs = "".join("1" if name else "0" for name in node.output)
        unique = "" if deterministic else f"#{index}"
        key = hashlib.sha256(f"{len(node.input)},{outputs}{unique}:".encode() + data).hexdigest()[:32]
        self.opaque[key] = OpaqueOperator(
            domain, node.op_type, self.opsets.get(domain, 0), data, len(node.output), deterministic, reason
        )
        self.opaque_sources.setdefault(key, index)
        args = [self.term(name) if name else ABSENT for name in node.input]
        args += [self.term(name) for name in captured_names(node)]
        types = [self.types_by_name.get(name) for name in node.output]
        return self._bundle(Node(OPAQUE, tuple(args), Attrs.of(key=key)), node, types)

    def finished(self, root_names: tuple[str, ...], roots: Sequence[int], in_order: bool) -> Lowered:
        """The record, without terms that only lowering itself had a use for."""
        kept = needed(self.nodes, roots)
        place = {term: position for position, term in enumerate(kept)}
        nodes = [self.nodes[term] for term in kept]
        moved = tuple(
            Node(node.op, tuple(arg if arg == ABSENT else place[arg] for arg in node.args), node.attrs)
            for node in nodes
        )
        keys = {str(node.attrs["key"]) for node in moved if node.op in (CONST, OPAQUE)}
        graph = TermGraph(
            moved,
            tuple(self.types[term] for term in kept),
            tuple(place[root] for root in roots),
            {key: constant for key, constant in self.constants.items() if key in keys},
            {key: known for key, known in self.opaque.items() if key in keys},
        )
        return Lowered(
            self.model,
            graph,
            root_names,
            {name: place[term] for name, term in self.value_terms.items() if term in place},
            tuple(None if term is None else place.get(term) for term in self.node_terms),
            {place[term]: index for term, index in self.sources.items() if term in place},
            self.opaque_sources,
            self.constants,
            self.constant_keys,
            self.constant_inputs,
            in_order,
        )


def _constant_node(node: onnx.NodeProto, model: Model) -> Constant | None:
    """What a Constant node holds; None for other nodes, and for one that is not as ONNX wants it."""
    if node.op_type != "Constant" or len(node.attribute) != 1 or len(node.output) != 1 or node.input:
        return None
    attribute = node.attribute[0]
    kinds = onnx.AttributeProto
    match attribute.name, attribute.type:
        case "value", kinds.TENSOR:
            return constant_of_tensor(attribute.t, model.folder)
        case "sparse_value", kinds.SPARSE_TENSOR:
            return constant_of_sparse(attribute.sparse_tensor, model.folder)
        case "value_float", kinds.FLOAT:
            return constant_of_array(np.asarray(attribute.f, dtype=np.float32))
        case "value_floats", kinds.FLOATS:
            return constant_of_array(np.asarray(attribute.floats, dtype=np.float32))
        case "value_int", kinds.INT:
            return constant_of_array(np.asarray(attribute.i, dtype=np.int64))
        case "value_ints", kinds.INTS:
            return constant_of_array(np.asarray(attribute.ints, dtype=np.int64))
        case "value_string", kinds.STRING:
            strings = onnx.TensorProto(data_type=onnx.TensorProto.STRING, string_data=[attribute.s])
            return constant_of_tensor(strings, None)
        case "value_strings", kinds.STRINGS:
            strings = onnx.TensorProto(data_type=onnx.TensorProto.STRING, string_data=attribute.strings)
            strings.dims.append(len(attribute.strings))
            return constant_of_tensor(strings, None)
    return None
