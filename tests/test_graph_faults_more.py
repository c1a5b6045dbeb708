"""Right behaviours from the list of known faults, tested nowhere else. `test_graph_faults.py` takes each out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import Net, chained, op_types
from onnx import TensorProto, helper, numpy_helper

from partitioner.graph import reweigh, ulps
from partitioner.graph.cuts import CutFinder, cut_at
from partitioner.graph.model import Model, as_read
from partitioner.graph.normalise import normalise, structured
from partitioner.graph.run import run_model, sample_inputs
from partitioner.graph.split import Splitter, split
from partitioner.graph.survey import oddities
from partitioner.graph.walk import producers
from shared.errors import InvariantBroken


def upsampled() -> Net:
    """Two levels of a feature pyramid: the coarse one is resized to the size of the fine one, which is asked of it, and so is
    a later one."""
    net = Net()
    net.input("x", ["n", 3, 16, 16])
    net.add("Relu", [net.conv("x", "fine.conv", (3, 4), strides=[2, 2])], "fine")
    net.add("Relu", [net.conv("fine", "coarse.conv", (4, 4), strides=[2, 2])], "coarse")
    net.add("Relu", [net.conv("coarse", "deep.conv", (4, 4))], "deep")
    net.add("Shape", ["fine"], "size")
    net.add("Resize", ["deep", "", "", "size"], "up", mode="nearest")
    net.add("Add", ["up", "fine"], "sum")
    net.add("Relu", [net.conv("sum", "low.conv", (4, 4), strides=[2, 2])], "low")
    net.add("Resize", ["low", "", "", "size"], "wide", mode="nearest")
    net.conv("wide", "y", (4, 2))
    net.output("y")
    return net


def test_a_chain_of_shapes_never_crosses_a_cut() -> None:
    model = upsampled().normal("1,3,16,16")
    assert model.batchable
    finder = CutFinder(model)
    for name in finder.places():
        if name == "y":
            continue
        cut = finder.at(name)
        assert {spec.dtype for spec in cut.tensors} == {"float32"}, name
        for rows in (1, 2):
            assert chained(model, [cut], rows) <= 1e-6, name


def shared_codes() -> Net:
    """A residual over a coarsely coded tensor: its codes are widened once, for a product and for the sum behind it."""
    net = Net()
    net.input("x", ["n", 12])
    net.add("MatMul", ["x", net.weight("w", 12, 12)], "h")
    net.add("Mul", ["h", net.hold("steps", np.float32(20))], "scaled")
    net.add("Cast", ["scaled"], "codes", to=TensorProto.INT8)
    net.add("Cast", ["codes"], "wide", to=TensorProto.FLOAT)
    net.add("MatMul", ["wide", net.weight("v", 12, 12)], "product")
    net.add("Softmax", ["product"], "branch")
    net.add("Add", ["branch", "wide"], "sum")
    net.add("MatMul", ["sum", net.weight("u", 12, 4)], "y")
    net.output("y")
    return net


def test_a_widened_tensor_that_both_sides_need_is_made_by_both() -> None:
    model = shared_codes().normal()
    cut = cut_at(model, "branch")
    assert {(spec.name, spec.dtype) for spec in cut.tensors} == {("codes", "int8"), ("branch", "float32")}
    chain = split(model, [cut])
    assert all("wide" in producers(part.proto.graph) for part in chain.parts)
    for rows in (1, 2):
        assert chained(model, [cut], rows) == 0.0
        assert chained(model, [cut_at(model, "codes"), cut, cut_at(model, "sum")], rows) == 0.0


def test_a_part_never_makes_again_what_is_not_cheap() -> None:
    model = shared_codes().normal()
    cut = cut_at(model, "branch")
    wrong = replace(cut, tensors=cut.tensors[:1])
    with pytest.raises(InvariantBroken, match="uses 'branch', which does not cross"):
        split(model, [wrong])


def test_an_unsorted_file_is_put_in_order_before_anything_walks_it() -> None:
    net = upsampled()
    net.nodes.reverse()
    proto = structured(net.read())
    known = {value.name for value in proto.graph.input} | {t.name for t in proto.graph.initializer} | {""}
    for node in proto.graph.node:
        assert known >= set(node.input), node.op_type
        known.update(node.output)


@pytest.mark.parametrize("literal", [-1, 0])
def test_literal_sizes_below_one_inside_the_graph_are_forgotten(literal: int) -> None:
    proto = upsampled().proto()
    for name in ("fine", "coarse", "deep", "sum"):
        proto.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [literal, 4, literal, 3]))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim.add().dim_value = 16
        del value.type.tensor_type.shape.dim[:]
        for size in (literal, 3 if value.name == "x" else 2, 16, 16):
            value.type.tensor_type.shape.dim.add().dim_value = size
    model = normalise(as_read(proto, "net.onnx"), {})
    assert model.inputs[0].shape == (1, 3, 16, 16)
    assert model.outputs[0].shape == (1, 2, 8, 8)
    for name in ("fine", "coarse", "deep"):
        assert chained(model, [cut_at(model, name)], 2) <= 1e-6


def half_chain() -> Model:
    net = Net()
    net.input("x", ["n", 16], TensorProto.FLOAT16)
    here = "x"
    for index in range(3):
        net.hold(f"w{index}", (net.random.standard_normal((16, 16)) / 4).astype(np.float16))
        net.add("Tanh", [net.add("MatMul", [here, f"w{index}"], f"m{index}")], f"h{index}")
        here = f"h{index}"
    net.output(here, None, TensorProto.FLOAT16)
    return net.normal()


def test_differences_are_counted_in_steps_of_the_tensors_own_type() -> None:
    one = np.ones(4, np.float16)
    assert ulps.ulps_apart(one, np.nextafter(one, np.float16(2))) == 1.0
    assert ulps.ulps_apart(one.astype(np.float32), np.nextafter(one.astype(np.float32), np.float32(2))) == 1.0
    model = half_chain()
    inputs = sample_inputs(model)
    wanted = run_model(model, inputs)
    values: dict[str, np.ndarray] = dict(inputs)
    for part in split(model, [cut_at(model, "h0"), cut_at(model, "h1")]).parts:
        values = run_model(part, values)
    assert ulps.ulps_apart(wanted["h2"], values["h2"]) <= 4.0


def constant_net() -> Net:
    """Two branches with the same constant in all their weights, so that either may be taken for the other."""
    net = Net()
    net.input("x", ["n", 8])
    for name in ("a", "b"):
        net.hold(f"{name}.w", np.full((8, 8), 0.02, np.float32))
        net.add("MatMul", ["x", f"{name}.w"], f"{name}.mm")
        net.add("Softmax", [f"{name}.mm"], name)
    net.add("Concat", ["a", "b"], "both", axis=1)
    net.hold("head.w", np.full((16, 5), 0.5, np.float32))
    net.add("MatMul", ["both", "head.w"], "logits")
    net.add("Softmax", ["logits"], "y")
    net.output("y")
    return net


def test_random_weights_show_a_wrong_cut_that_constant_ones_hide() -> None:
    read = reweigh.before_softmax(reweigh.with_random_weights(constant_net().read(), 1))
    assert [value.name for value in read.proto.graph.output] == ["logits"]
    drawn = constant_net()
    drawn.weights = list(read.proto.graph.initializer)
    drawn.outputs.clear()
    drawn.output("logits")
    model = drawn.normal("1,8")
    head, tail = Splitter(model).split([cut_at(model, "a", "b")]).parts
    inputs = sample_inputs(model)
    wanted, crossing = run_model(model, inputs), run_model(head, inputs)
    assert ulps.ulps_apart(wanted["logits"], run_model(tail, crossing)["logits"]) <= 4.0
    swapped = {"a": crossing["b"], "b": crossing["a"]}
    assert ulps.ulps_apart(wanted["logits"], run_model(tail, swapped)["logits"]) > 1000.0


def test_constant_weights_are_named_as_a_proof_of_nothing() -> None:
    assert any("proves a cut" in words for words in oddities(constant_net().read()))
    drawn = reweigh.with_random_weights(constant_net().read(), 1)
    assert not any("proves a cut" in words for words in oddities(drawn))


@pytest.mark.parametrize("batch_norm", [False, True])
def test_random_weights_come_from_their_seed_and_leave_what_is_no_weight(batch_norm: bool) -> None:
    net = Net()
    net.input("x", ["n", 3, 8, 8])
    net.hold("size", np.array([4, 3, 3, 3], np.int64))
    net.add("ConstantOfShape", ["size"], "w")
    net.add("Conv", ["x", "w"], "c")
    for name in ("scale", "bias", "mean", "var"):
        net.hold(name, np.zeros(4, np.float32))
    if batch_norm:
        net.add("BatchNormalization", ["c", "scale", "bias", "mean", "var"], "y")
    else:
        net.add("Relu", ["c"], "y")
    net.output("y")
    first, again, other = (reweigh.with_random_weights(net.read(), seed) for seed in (1, 1, 2))
    assert first.digest == again.digest != other.digest
    held = {t.name: numpy_helper.to_array(t) for t in first.proto.graph.initializer}
    assert held["w"].shape == (4, 3, 3, 3)
    assert held["size"].tolist() == [4, 3, 3, 3]
    assert (held["var"] > 0).all() if batch_norm else True
    assert len(np.unique(held["w"])) == held["w"].size
    assert "ConstantOfShape" not in op_types(first)
    run_model(normalise(first, {}), sample_inputs(normalise(first, {})))
