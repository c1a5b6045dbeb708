"""Values that hold what an input holds, element by element: normalised, quantised, converted or only laid out anew.

To send such a value is to send the input. Where an input must stay on the device, so must these.
"""

from __future__ import annotations

from partitioner.graph.fusion import ELEMENTWISE, LAYOUTS
from partitioner.graph.model import Model
from partitioner.graph.walk import constant_nodes, initializer_names, node_inputs, node_outputs


def copies_of_inputs(model: Model) -> frozenset[str]:
    """The inputs, and every value that is made of one of them alone by operators that give an element for each element.
    Linear in the graph, whose nodes stand in an order in which they can run."""
    graph = model.proto.graph
    constant = constant_nodes(graph)
    fixed = initializer_names(graph) | {name for index in constant for name in node_outputs(graph.node[index])}
    copies = {spec.name for spec in model.inputs}
    for index, node in enumerate(graph.node):
        used = [name for name in node_inputs(node) if name not in fixed]
        if index not in constant and node.op_type in ELEMENTWISE | LAYOUTS and used and copies.issuperset(used):
            copies.update(node_outputs(node))
    return frozenset(copies)
