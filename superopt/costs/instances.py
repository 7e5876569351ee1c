"""Operator instances: an operator, or several that a runtime makes one of, with all that its running time depends on;
and the small model that it is timed in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from superopt.costs.operands import Operand
from superopt.errors import EvaluationError, InferenceError
from superopt.forms import onnx_form
from superopt.models.scopes import captured_names
from superopt.models.tensors import constant_of_array
from superopt.operators import dtype_number, named, numpy_dtype
from superopt.terms import ABSENT, OPAQUE, PROJECT, Attrs, Constant, Node, OpaqueOperator, TensorType, ValueType
from superopt.workload import Sizes

OPSETS = (17, 21, 24)
"""An instance is written at the first of these that has its operators: what runs is the same kernel."""

BLOCKED = "blocked@"
"""Begins the names of nodes that are there for the layout of what they make."""

_INDEXED = frozenset(named(lambda form: form.indexed))


@dataclass(frozen=True, slots=True)
class InstanceInput:
    """What an instance is given: a tensor of this type, constant or not, with its values where they count."""

    dtype: str
    shape: tuple[int, ...]
    constant: bool
    content: str = ""


@dataclass(frozen=True)
class OperatorInstance:
    """Operators in normal form over leaves: arguments of ``nodes`` count the leaves, then the nodes.

    ``outputs`` is by node how many outputs it has. The last node's are the results. ``opaque`` is what an ``Opaque``
    node stands for.
    """

    leaves: tuple[InstanceInput, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    opaque: OpaqueOperator | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """The canonical text: equal for instances that are alike."""
        leaves = [[leaf.dtype, list(leaf.shape), leaf.constant, leaf.content] for leaf in self.leaves]
        nodes = [[node.op, node.attrs.text, list(node.args)] for node in self.nodes]
        return json.dumps([leaves, nodes, list(self.outputs)], separators=(",", ":"))

    @property
    def name(self) -> str:
        """For people: operators and the shapes of what varies, ``Conv+Relu 1x64x56x56``."""
        operators = "+".join(
            self.opaque.op_type if node.op == OPAQUE and self.opaque else node.op for node in self.nodes
        )
        shapes = ["x".join(map(str, leaf.shape)) or "scalar" for leaf in self.leaves if not leaf.constant]
        return " ".join([operators, *shapes])


def instance_of_key(key: str) -> OperatorInstance:
    """The instance whose key this is. Raises ValueError for another text."""
    leaves, nodes, outputs = json.loads(key)
    return OperatorInstance(
        tuple(InstanceInput(dtype, tuple(shape), constant, content) for dtype, shape, constant, content in leaves),
        tuple(Node(op, tuple(args), Attrs(attrs)) for op, attrs, args in nodes),
        tuple(outputs),
    )


@dataclass(frozen=True)
class InstanceNode:
    """One node of an instance to be: its operator, the names of its arguments (None for an absent one), its type."""

    op: str
    attrs: Attrs
    args: tuple[int | None, ...]
    type: ValueType


def instance_of(
    parts: Mapping[int, InstanceNode],
    operands: Mapping[int, Operand],
    sizes: Sizes,
    opaque: OpaqueOperator | None = None,
) -> OperatorInstance | None:
    """The instance that these nodes are, in topological order and named by numbers, over these operands; symbols are
    taken for their nominal sizes. None where a type is not known."""
    leaves: list[InstanceInput] = []
    place: dict[int, int] = {}
    for part in parts.values():
        for arg in part.args:
            if arg is None or arg in parts or arg in place:
                continue
            operand = operands[arg]
            if not isinstance(operand.type, TensorType):
                return None
            place[arg] = len(leaves)
            leaves.append(
                InstanceInput(operand.type.dtype, sizes.shape(operand.type), operand.constant, operand.content)
            )
    nodes: list[Node] = []
    outputs: list[int] = []
    for name, part in parts.items():
        args = tuple(ABSENT if arg is None else place[arg] for arg in part.args)
        place[name] = len(leaves) + len(nodes)
        nodes.append(Node(part.op, args, part.attrs))
        outputs.append(len(part.type) if isinstance(part.type, tuple) else 1)
    return OperatorInstance(tuple(leaves), tuple(nodes), tuple(outputs), opaque)


def single(
    op: str, attrs: Attrs, operands: Sequence[Operand | None], result: ValueType, sizes: Sizes,
    opaque: OpaqueOperator | None = None,
) -> OperatorInstance | None:  # fmt: skip
    """The instance of one operator; each argument is taken for a tensor of its own."""
    given = {index: operand for index, operand in enumerate(operands) if operand is not None}
    args = tuple(None if operand is None else index for index, operand in enumerate(operands))
    return instance_of({len(operands): InstanceNode(op, attrs, args, result)}, given, sizes, opaque)


def instance_model(instance: OperatorInstance, *, blocked: bool = False) -> onnx.ModelProto:
    """The model of an instance: what varies is a graph input, what is constant an initializer.

    With ``blocked`` a tensor that is added to a convolution's result goes through a pool of one element first, named
    ``BLOCKED...``: it is then in the layout that it has where it comes from another convolution. What a convolution
    with a HardSwish makes goes through one afterwards: the runtime leaves those apart at the end of a graph. Raises
    EvaluationError where no opset has its operators.
    """
    problem: Exception | None = None
    opsets = OPSETS if instance.opaque is None or instance.opaque.domain else (instance.opaque.version,)
    for opset in opsets:
        try:
            return _model(instance, opset, _added(instance) if blocked else (), pooled=blocked and _swishes(instance))
        except InferenceError as error:
            problem = error
    raise EvaluationError(f"{instance.name}: cannot be written as a model: {problem}")


def _added(instance: OperatorInstance) -> tuple[int, ...]:
    """The leaves that are added to what a convolution makes."""
    if not any(node.op == "Conv" for node in instance.nodes):
        return ()
    added = {arg for node in instance.nodes if node.op == "Add" for arg in node.args if arg < len(instance.leaves)}
    return tuple(
        arg for arg in sorted(added) if not instance.leaves[arg].constant and len(instance.leaves[arg].shape) == 4
    )


def _swishes(instance: OperatorInstance) -> bool:
    """Whether it is a convolution with a HardSwish, whole or as a product."""
    ops = [node.op for node in instance.nodes]
    return "Conv" in ops and (ops[-1] == "HardSwish" or (ops[-1] == "Mul" and "HardSigmoid" in ops))


def _model(instance: OperatorInstance, opset: int, added: Sequence[int], *, pooled: bool = False) -> onnx.ModelProto:
    initializers = [
        numpy_helper.from_array(leaf_value(instance, index), f"leaf{index}")
        for index, leaf in enumerate(instance.leaves)
        if leaf.constant
    ]
    types: list[ValueType] = [TensorType(leaf.dtype, leaf.shape) for leaf in instance.leaves]
    constants: list[Constant | None] = [
        _constant(leaf.dtype, leaf.shape, leaf.content) if leaf.constant and leaf.content else None
        for leaf in instance.leaves
    ]
    names = [[f"leaf{index}"] for index in range(len(instance.leaves))]
    nodes: list[onnx.NodeProto] = []
    for leaf in added:
        names[leaf] = [f"{BLOCKED}{leaf}"]  # a node in the blocked layout has its name of this
        nodes.append(helper.make_node("MaxPool", [f"leaf{leaf}"], names[leaf], names[leaf][0], kernel_shape=[1, 1]))
    for index, (node, count) in enumerate(zip(instance.nodes, instance.outputs, strict=True)):
        if node.op == PROJECT:
            names.append([names[node.args[0]][int(str(node.attrs["index"]))]])
            types.append(None)
            constants.append(None)
            continue
        outs = [f"node{index}.{place}" for place in range(count)]
        given = ["" if arg == ABSENT else names[arg][0] for arg in node.args]
        if node.op == OPAQUE:
            nodes.append(_opaque_node(instance, given, outs))
        else:
            form = onnx_form(
                node.op, node.attrs, tuple(arg != ABSENT for arg in node.args), opset,
                [None if arg == ABSENT else types[arg] for arg in node.args],
                [None if arg == ABSENT else constants[arg] for arg in node.args],
            )  # fmt: skip
            entries = []
            for place, item in enumerate(form.inputs):
                if item is None or isinstance(item, int):
                    entries.append("" if item is None else given[item])
                else:
                    entries.append(f"node{index}.input{place}")
                    initializers.append(numpy_helper.from_array(np.asarray(item), entries[-1]))
            attributes: dict[str, Any] = dict(form.attributes)
            nodes.append(helper.make_node(form.op_type, entries, outs, **attributes))
        names.append(outs)
        types.append(None)
        constants.append(None)
    if pooled:
        end = f"{BLOCKED}end"
        nodes.append(helper.make_node("MaxPool", names[-1], [end], end, kernel_shape=[1, 1]))
        names.append([end])
    inputs = [
        helper.make_tensor_value_info(f"leaf{index}", dtype_number(leaf.dtype), leaf.shape)
        for index, leaf in enumerate(instance.leaves)
        if not leaf.constant
    ]
    results = [onnx.ValueInfoProto(name=name) for name in names[-1]]
    imports = [helper.make_opsetid("", opset)]
    if instance.opaque is not None and instance.opaque.domain:
        imports.append(helper.make_opsetid(instance.opaque.domain, instance.opaque.version or 1))
    graph = helper.make_graph(nodes, "instance", inputs, results, initializers)
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _opaque_node(instance: OperatorInstance, given: list[str], outs: list[str]) -> onnx.NodeProto:
    if instance.opaque is None:
        raise EvaluationError(f"{instance.name}: what the operator is was not kept")
    made: onnx.NodeProto = onnx.NodeProto.FromString(instance.opaque.node)
    if captured_names(made) or any(attribute.HasField("g") for attribute in made.attribute):
        raise EvaluationError(f"{instance.opaque.op_type}: has subgraphs, which are priced by themselves")
    made.input.extend(given)
    made.output.extend(outs)
    return made


def inputs_of(instance: OperatorInstance) -> dict[str, NDArray[np.generic]]:
    """What the model of an instance is run on, by name of input."""
    return {
        f"leaf{index}": leaf_value(instance, index) for index, leaf in enumerate(instance.leaves) if not leaf.constant
    }


def leaf_value(instance: OperatorInstance, index: int) -> NDArray[np.generic]:
    """A value for a leaf: its own where that counts; else numbers that are ordinary to any operator: floats from 0.25
    to 1, ones among integers (a divisor must not be zero), zeros where they are indices. Raises EvaluationError for
    what is no number."""
    leaf = instance.leaves[index]
    if leaf.content:
        return np.array(_constant(leaf.dtype, leaf.shape, leaf.content).array())
    try:
        dtype = numpy_dtype(leaf.dtype)
    except (InferenceError, KeyError, ValueError) as error:
        raise EvaluationError(f"a {leaf.dtype} tensor cannot be made up") from error
    if np.dtype(dtype).kind in "OSU":
        raise EvaluationError(f"a {leaf.dtype} tensor cannot be made up")
    if leaf.dtype.startswith(("float", "bfloat", "complex")):
        return np.random.default_rng(index).uniform(0.25, 1.0, leaf.shape).astype(dtype)
    indices = instance.opaque is not None or any(node.op in _INDEXED for node in instance.nodes)
    return np.zeros(leaf.shape, dtype) if indices else np.ones(leaf.shape, dtype)


@lru_cache(maxsize=1 << 10)
def _constant(dtype: str, shape: tuple[int, ...], content: str) -> Constant:
    values = [float(value) if isinstance(value, str) else value for value in json.loads(content)]
    return constant_of_array(np.array(values).astype(numpy_dtype(dtype)).reshape(shape))
