"""Whether rows can be joined is proven by running, and graphs are loosened where that is safe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import Net, chained, op_types
from onnx import TensorProto, helper

from partitioner.graph.cuts import cut_at, find_cuts
from partitioner.graph.observe import joined, observe
from partitioner.graph.run import run_model, sample_inputs
from shared.errors import ModelError
from shared.request import TensorSpec


def dense(net: Net, source: str, output: str, size: int = 12) -> str:
    net.add("MatMul", [source, net.weight(f"{output}.w", size, size)], f"{output}.mm")
    return net.add("Relu", [f"{output}.mm"], output)


def with_reshape(target: list[int]) -> Net:
    net = Net()
    net.input("x", [1, 3, 4])
    net.add("Relu", ["x"], "a")
    net.add("Reshape", ["a", net.hold("target", np.array(target, np.int64))], "flat")
    net.add("MatMul", ["flat", net.weight("w", target[-1], 5)], "y")
    net.output("y")
    return net


def rows_agree(net: Net, *shapes: str) -> bool:
    model = net.normal(*shapes)
    one, two = sample_inputs(model, 1, 11), sample_inputs(model, 1, 12)
    both = run_model(model, {name: np.concatenate([one[name], two[name]]) for name in one})
    apart = [run_model(model, one), run_model(model, two)]
    return all(np.allclose(both[n], np.concatenate([a[n] for a in apart]), atol=1e-5) for n in both)


def test_a_batch_size_baked_into_a_reshape_is_taken_out() -> None:
    model = with_reshape([1, 12]).normal()
    assert model.batchable
    assert rows_agree(with_reshape([1, 12]))


def test_a_batch_size_multiplied_into_the_first_axis_is_taken_out() -> None:
    assert with_reshape([3, 4]).normal().batchable
    assert rows_agree(with_reshape([3, 4]))


def test_a_model_that_mixes_rows_is_pinned_to_the_stated_shape() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("ReduceSum", ["x", net.hold("axes", np.array([0]))], "total", keepdims=1)
    net.add("Add", ["x", "total"], "y")
    net.output("y")
    model = net.normal("2,4")
    assert not model.batchable
    assert model.inputs[0].shape == (2, 4)
    assert model.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_a_range_taken_over_the_whole_batch_is_noticed() -> None:
    net = Net()
    net.input("x", ["n", 32])
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]))
    net.add("DequantizeLinear", ["q", "scale", "zero"], "y")
    net.output("y")
    assert not net.normal().batchable


def test_a_batch_that_is_not_in_front_is_not_taken_for_one() -> None:
    net = Net()
    net.input("x", ["n", 8])
    net.input("state", [2, 1, 8])
    net.add("ReduceMean", ["state"], "mean", axes=[0], keepdims=0)
    net.add("Add", ["x", "mean"], "y")
    net.add("Mul", ["state", net.hold("half", np.float32(0.5))], "next")
    net.output("y")
    net.output("next")
    model = net.normal("x=1,8")
    assert not model.batchable
    assert model.inputs[1].shape == (2, 1, 8)


def test_a_scalar_input_forbids_batches() -> None:
    net = Net()
    net.input("x", ["n", 8])
    net.add("Mul", ["x", net.input("gain", [])], "y")
    net.output("y")
    assert not net.normal().batchable


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_chain_of_shapes_neither_crosses_a_cut_nor_breaks_the_batch(rows: int) -> None:
    net = Net()
    net.input("x", ["n", 3, 4])
    net.add("Relu", ["x"], "a")
    net.add("Shape", ["a"], "shape")
    net.add("Gather", ["shape", net.hold("zero", np.array([0]))], "batch")
    net.add("Concat", ["batch", net.hold("rest", np.array([-1]))], "target", axis=0)
    dense(net, "a", "b", 4)
    dense(net, "b", "c", 4)
    net.add("Reshape", ["c", "target"], "flat")
    net.add("MatMul", ["flat", net.weight("w", 12, 5)], "y")
    net.output("y")
    model = net.normal()
    assert model.batchable
    assert "Shape" not in op_types(model)
    cut = cut_at(model, "b")
    assert [spec.name for spec in cut.tensors] == ["b"]
    assert chained(model, [cut], rows) <= 1e-6


def recurrent() -> Net:
    """A recurrent layer that begins with zeros of a size that is asked of the input, far away from it."""
    net = Net()
    net.input("x", ["n", 4, 6])
    net.add("Shape", ["x"], "shape")
    net.add("Gather", ["shape", net.hold("zero", np.array([0]))], "batch")
    net.hold("one", np.array([1]))
    net.add("Concat", ["one", "batch", net.hold("units", np.array([3]))], "size", axis=0)
    net.add("Expand", [net.hold("nothing", np.float32(0)), "size"], "start")
    dense(net, "x", "h", 6)
    net.add("Transpose", ["h"], "steps", perm=[1, 0, 2])
    gates = ["steps", net.weight("gw", 1, 12, 6), net.weight("gr", 1, 12, 3), "", "", "start", "start"]
    net.nodes.append(helper.make_node("LSTM", gates, ["all", "last"], hidden_size=3))
    net.add("Squeeze", ["last", net.hold("axis", np.array([0]))], "state")
    net.add("MatMul", ["state", net.weight("w", 3, 2)], "y")
    net.output("y")
    return net


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_zeros_with_which_a_layer_begins_are_made_where_the_layer_is(rows: int) -> None:
    model = recurrent().normal()
    assert model.batchable
    assert all(node.name for node in model.proto.graph.node)
    for name in ("h", "state"):
        cut = cut_at(model, name)
        assert [spec.name for spec in cut.tensors] == [name]
        assert chained(model, [cut], rows) <= 1e-6


def test_a_size_that_does_not_grow_evenly_with_the_rows_stays_right() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("Relu", ["x"], "a")
    net.add("Shape", ["x"], "shape")
    net.add("Gather", ["shape", net.hold("zero", np.array(0))], "batch")
    net.add("Mul", ["batch", "batch"], "squared")
    net.add("Cast", ["squared"], "float", to=TensorProto.FLOAT)
    net.add("Div", ["float", "float"], "unity")
    net.add("Mul", ["a", "unity"], "y")
    net.output("y")
    assert rows_agree(net)
    assert net.normal().batchable


def test_sizes_that_do_not_depend_on_the_batch_are_frozen() -> None:
    net = Net()
    net.input("x", ["n", 3, 8, 8])
    net.conv("x", "small", (3, 4), strides=[2, 2])
    net.add("Shape", ["x"], "shape", start=2)
    net.add("Shape", ["small"], "front", end=2)
    net.add("Concat", ["front", "shape"], "sizes", axis=0)
    net.add("Resize", ["small", "", "", "sizes"], "y", mode="nearest")
    net.output("y")
    model = net.normal()
    assert model.batchable
    assert model.outputs[0].shape == (1, 4, 8, 8)


def test_values_are_known_to_be_rowwise_steady_or_neither() -> None:
    net = Net()
    net.input("x", ["n", 6])
    net.add("Relu", ["x"], "rows")
    net.add("Transpose", ["rows"], "turned", perm=[1, 0])
    net.add("Transpose", ["turned"], "back", perm=[1, 0])
    net.add("NonZero", ["rows"], "where")
    net.add("Cast", ["where"], "floats", to=TensorProto.FLOAT)
    net.add("ReduceMean", ["floats"], "mean", keepdims=0)
    net.add("Mul", ["mean", net.hold("none", np.float32(0))], "nothing")
    net.add("Add", ["back", "nothing"], "y")
    net.output("y")
    as_it_is = replace(net.read(), inputs=(TensorSpec("x", "float32", (1, 6)),), batchable=True)
    facts = observe(as_it_is)
    assert facts["rows"].rowwise
    assert facts["turned"].steady
    assert not facts["turned"].rowwise
    assert not facts["where"].steady


def test_joined_wants_rows_in_order_and_allows_rounding() -> None:
    a, b = np.ones((1, 4), np.float32), np.arange(4, dtype=np.float32)[None]
    assert joined(a, b, np.concatenate([a, b]))
    assert joined(a, b, np.concatenate([a, b]) * np.float32(1 + 1e-7))
    assert not joined(a, b, np.concatenate([b, a]))
    assert not joined(a, b, np.concatenate([a, b], axis=1))


def test_a_pinned_model_is_cut_as_well() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("ReduceSum", ["x", net.hold("axes", np.array([0]))], "total", keepdims=1)
    dense(net, "total", "a", 4)
    dense(net, "a", "b", 4)
    net.output("b")
    model = net.normal("3,4")
    names = [cut.name for cut in find_cuts(model)]
    assert "a" in names
    assert chained(model, [cut_at(model, "a")]) == 0.0


def rows_of_a_net(first: int | str) -> Net:
    net = Net()
    net.input("x", [first, 3])
    net.output(dense(net, "x", "y", 3))
    net.weights.clear()
    net.weight("y.w", 3, 3)
    return net


def test_a_shape_of_several_rows_is_refused_with_the_one_that_was_meant() -> None:
    for first in ("n", 1):
        with pytest.raises(ModelError, match=r"'x=2,3': the first axis of 'x' counts the rows.*expected 1,3"):
            rows_of_a_net(first).normal("2,3")
    assert rows_of_a_net("n").normal("1,3").inputs[0].shape == (1, 3)


def test_a_file_that_fixes_its_rows_keeps_them_stated_or_not() -> None:
    for texts in ((), ("2,3",)):
        model = rows_of_a_net(2).normal(*texts)
        assert model.inputs[0].shape == (2, 3)
    with pytest.raises(ModelError, match="expected 1,3"):
        rows_of_a_net(2).normal("4,3")
