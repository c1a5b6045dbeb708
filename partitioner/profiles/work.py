"""What a profile must know of a model's groups: where kernels come from, and what each group computes and moves."""

from __future__ import annotations

from partitioner.graph.compute import CONVOLUTIONS, PRODUCTS, RECURRENT, operations
from partitioner.graph.groups import Groups
from partitioner.graph.model import tensor_bytes
from partitioner.graph.observe import Fact
from partitioner.graph.walk import constant_nodes, node_inputs, node_outputs, producers
from partitioner.profiles.mapping import Origins
from partitioner.profiles.record import OperatorKind
from partitioner.profiles.roofline import Work

_CONV = frozenset({*CONVOLUTIONS, "ConvTranspose"})
_MATMUL = frozenset({*PRODUCTS, *RECURRENT})


def origins_of(groups: Groups) -> Origins:
    """The group of each operator and of each value that it makes, by name."""
    nodes = groups.finder.model.proto.graph.node
    by_node: dict[str, int] = {}
    by_value: dict[str, int] = {}
    for group, members in enumerate(groups.nodes):
        for index in members:
            by_node[nodes[index].name] = group
            by_value.update(dict.fromkeys(node_outputs(nodes[index]), group))
    return Origins(by_node, by_value)


def kind_of(groups: Groups, group: int) -> OperatorKind:
    """The kind of the operators that compute most in a group."""
    nodes = groups.finder.model.proto.graph.node
    shares: dict[OperatorKind, float] = {}
    for index in sorted(groups.nodes[group]):
        op_type = nodes[index].op_type
        kind: OperatorKind = "conv" if op_type in _CONV else "matmul" if op_type in _MATMUL else "other"
        shares[kind] = shares.get(kind, 0.0) + groups.finder.share_of(index)
    return max(shares, key=lambda kind: shares[kind])


def work_of(groups: Groups) -> tuple[Work, ...]:
    """What each group computes for one row, the bytes that it exchanges with others, and its weights.

    A weight that several groups use counts for each of them; what is made from weights alone counts as the weights that it is
    made from.
    """
    model = groups.finder.model
    graph = model.proto.graph
    names = [name for node in graph.node for name in node_outputs(node)]
    specs = [*model.inputs, *(groups.finder.spec_of(name) for name in names)]
    facts = {spec.name: Fact(spec, steady=True, rowwise=True) for spec in specs}
    counted = operations(model.proto, facts)
    held = {tensor.name: tensor_bytes(tensor) for tensor in graph.initializer}
    made_by, constant = producers(graph), constant_nodes(graph)
    moved = [0] * len(groups.nodes)
    for value in groups.values:
        nbytes = value.spec.nbytes() if value.spec.dtype else 0
        for group in (*value.consumers, *(() if value.producer is None else (value.producer,))):
            moved[group] += nbytes
    found: list[Work] = []
    for index, members in enumerate(groups.nodes):
        waiting = [name for node in members for name in node_inputs(graph.node[node])]
        used: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in used and made_by.get(name, -1) in constant:
                waiting.extend(node_inputs(graph.node[made_by[name]]))
            used.add(name)
        found.append(
            Work(
                name=groups.name_of(index),
                kind=kind_of(groups, index),
                operations=sum(counted[node] for node in members),
                activation_bytes=moved[index],
                weight_bytes=sum(held[name] for name in used if name in held),
            )
        )
    return tuple(found)
