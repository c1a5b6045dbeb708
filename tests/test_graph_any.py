"""Graphs drawn at random: wherever they may be cut, the parts give what the whole gives."""

from __future__ import annotations

from itertools import pairwise

from graphs import Net, chained
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioner.graph.cuts import CutFinder
from partitioner.graph.model import Model
from partitioner.graph.run import difference, run_model, sample_inputs
from partitioner.graph.split import split
from partitioner.graph.walk import node_inputs, node_outputs
from shared.errors import ModelError

WIDTH = 6
ONE = ("Relu", "Sigmoid", "Neg", "Softmax", "product")
TWO = ("Add", "Mul", "Sub")


@st.composite
def nets(draw: st.DrawFn) -> Net:
    """Up to twelve operators on rows of six numbers, joined in any way; every value that nothing uses is an output."""
    net = Net(seed=draw(st.integers(0, 1000)))
    values = [net.input(f"x{index}", ["n", WIDTH]) for index in range(draw(st.integers(1, 2)))]
    used: set[str] = set()
    for index in range(draw(st.integers(2, 12))):
        op = draw(st.sampled_from(ONE + TWO))
        sources = [draw(st.sampled_from(values[-4:])) for _ in range(2 if op in TWO else 1)]
        used.update(sources)
        if op == "product":
            values.append(net.add("MatMul", [sources[0], net.weight(f"w{index}", WIDTH, WIDTH)], f"v{index}"))
        else:
            values.append(net.add(op, sources, f"v{index}"))
    inputs = {value.name for value in net.inputs}
    for name in values:
        if name not in inputs and (name not in used or draw(st.integers(0, 9)) == 0):
            net.output(name)
    if draw(st.booleans()):
        net.nodes.reverse()
    return net


def inner_names(model: Model) -> list[str]:
    return [name for node in model.proto.graph.node for name in node_outputs(node)]


@settings(max_examples=25)
@given(nets(), st.data())
def test_any_allowed_cut_of_any_graph_gives_the_same(net: Net, data: st.DataObject) -> None:
    model = net.normal()
    finder = CutFinder(model)
    for cut in finder.single()[1:-1]:
        assert len(cut.tensors) == 1
        assert chained(model, [cut], rows=2) <= 1e-5, cut.name
    name = data.draw(st.sampled_from(inner_names(model)))
    try:
        cut = finder.at(name)
    except ModelError:
        return
    graph = model.proto.graph
    for index in cut.nodes:  # closed: whatever a node needs is made before the cut as well
        for source in node_inputs(graph.node[index]):
            makers = [i for i, node in enumerate(graph.node) if source in node_outputs(node)]
            assert set(makers) <= set(cut.nodes)
    assert chained(model, [cut], rows=2) <= 1e-5


@settings(max_examples=15)
@given(nets())
def test_the_single_cuts_are_nested_and_complete(net: Net) -> None:
    model = net.normal()
    finder = CutFinder(model)
    single = finder.single()
    for before, after in pairwise(single):
        assert set(before.nodes) < set(after.nodes)
    found = {cut.name for cut in single}
    for name in inner_names(model):
        try:
            cut = finder.at(name)
        except ModelError:
            continue
        assert (len(cut.tensors) == 1) == (name in found), name


@settings(max_examples=15)
@given(nets())
def test_normalising_changes_no_answer_and_frees_the_rows(net: Net) -> None:
    model = net.normal()
    assert model.batchable
    (part,) = split(model, []).parts
    inputs = sample_inputs(model, 3)
    whole, alone = run_model(model, inputs), run_model(part, inputs)
    assert max(difference(whole[name], alone[name]) for name in whole) == 0.0
