"""Reading a graph: who makes a value, who uses it, in which order nodes can run.

A body of `If`, `Loop` or `Scan` may use values of the graph around it without naming them as inputs of its node. They
count as inputs of the node here, everywhere: a walker that reads `node.input` alone loses them, and the parts it makes
do not load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from onnx import AttributeProto, GraphProto, NodeProto

from shared.errors import ModelError

RANDOM = frozenset(
    {"RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"}
)
"""Operators whose result differs from run to run."""


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs held in a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _own_names(graph: GraphProto) -> set[str]:
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own.update(t.values.name for t in graph.sparse_initializer)
    for node in graph.node:
        own.update(node.output)
    return own


def _captures(graph: GraphProto) -> set[str]:
    used = {v.name for v in graph.output}
    for node in graph.node:
        used.update(node_inputs(node))
    return used - _own_names(graph)


def node_inputs(node: NodeProto) -> list[str]:
    """Names of all values that a node uses, captures of its bodies included, without repeats."""
    names = dict.fromkeys(name for name in node.input if name)
    for body in bodies(node):
        names.update(dict.fromkeys(sorted(_captures(body) - {""})))
    return list(names)


def node_outputs(node: NodeProto) -> list[str]:
    """Names of all values that a node makes."""
    return [name for name in node.output if name]


def producers(graph: GraphProto) -> dict[str, int]:
    """Index of the node that makes each value."""
    return {name: index for index, node in enumerate(graph.node) for name in node_outputs(node)}


def consumers(graph: GraphProto) -> dict[str, list[int]]:
    """Indices of the nodes that use each value, in order. Graph outputs are not counted."""
    users: dict[str, list[int]] = {}
    for index, node in enumerate(graph.node):
        for name in node_inputs(node):
            users.setdefault(name, []).append(index)
    return users


def initializer_names(graph: GraphProto) -> set[str]:
    """Names of all initializers of the outermost graph."""
    return {t.name for t in graph.initializer}


def topological_order(graph: GraphProto, model: str) -> list[int]:
    """Indices of the nodes so that each comes after what it uses; the order of the file where that is free.

    Raises:
        ModelError: a cycle, a value made twice, or a value that nothing makes.
    """
    made_by: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in node_outputs(node):
            if name in made_by:
                raise ModelError(f"{model}: value '{name}' is made by two operators")
            made_by[name] = index
    given = {v.name for v in graph.input} | initializer_names(graph)
    given.update(t.values.name for t in graph.sparse_initializer)
    waits: list[int] = []
    users: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        needs: set[int] = set()
        for name in node_inputs(node):
            if name in made_by:
                needs.add(made_by[name])
            elif name not in given:
                raise ModelError(f"{model}: operator {node.op_type} uses '{name}', which nothing in the graph makes")
        waits.append(len(needs))
        for need in needs:
            users.setdefault(need, []).append(index)
    ready = [index for index, count in enumerate(waits) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for user in users.get(index, ()):
            waits[user] -= 1
            if waits[user] == 0:
                heappush(ready, user)
    if len(order) != len(graph.node):
        stuck = next(i for i, count in enumerate(waits) if count > 0)
        raise ModelError(
            f"{model}: operator {graph.node[stuck].op_type} depends on its own output: the graph has a cycle"
        )
    return order


def useful_nodes(graph: GraphProto) -> set[int]:
    """Indices of the nodes on which some graph output depends. The graph may be in any order."""
    made_by = producers(graph)
    wanted = [v.name for v in graph.output]
    useful: set[int] = set()
    while wanted:
        index = made_by.get(wanted.pop())
        if index is not None and index not in useful:
            useful.add(index)
            wanted.extend(node_inputs(graph.node[index]))
    return useful


def constant_nodes(graph: GraphProto) -> set[int]:
    """Indices of the nodes that depend on weights alone, such as those that dequantise them. The graph is sorted.

    They belong to neither side of a cut: every part that needs one has it, and its runtime folds it when it loads."""
    known = initializer_names(graph)
    found: set[int] = set()
    for index, node in enumerate(graph.node):
        if node.op_type not in RANDOM and all(name in known for name in node_inputs(node)):
            found.add(index)
            known.update(node_outputs(node))
    return found


def shape_values(graph: GraphProto) -> set[str]:
    """Names of the values that are computed from shapes and constants alone. The graph is sorted."""
    fixed = initializer_names(graph)
    from_shapes: set[str] = set()
    for node in graph.node:
        names = node_inputs(node)
        chain = any(name in from_shapes for name in names) and all(n in from_shapes or n in fixed for n in names)
        fixed_result = node.domain in {"", "ai.onnx"} and node.op_type not in RANDOM
        if fixed_result and (node.op_type in {"Shape", "Size"} or chain):
            from_shapes.update(node_outputs(node))
    return from_shapes


def rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename values of a graph in place, inside bodies as far as they are captured there and not hidden."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        rename_in_node(node, names)


def rename_in_node(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename what a node uses and makes, in place."""
    for fields in (node.input, node.output):
        for position, name in enumerate(fields):
            if name in names:
                fields[position] = names[name]
    for body in bodies(node):
        own = _own_names(body)
        outer = {old: new for old, new in names.items() if old not in own}
        if outer:
            _rename_captures(body, outer)


def _rename_captures(body: GraphProto, names: Mapping[str, str]) -> None:
    # An output of a body may be a captured value; its name follows. ONNX forbids a body to hide an outer name, but a
    # new name must not meet one of the body's own either: callers choose names that no model uses.
    for value in body.output:
        value.name = names.get(value.name, value.name)
    for node in body.node:
        rename_in_node(node, names)
