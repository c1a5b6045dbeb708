"""The normal form: each kind of fault that files bring along is gone, and the answers are the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import Net, centre_detector, classifier, op_types
from onnx import TensorProto, helper, numpy_helper

from partitioner.graph import normalise as normalise_module
from partitioner.graph import passes
from partitioner.graph.model import Model
from partitioner.graph.normalise import normalise, structured
from partitioner.graph.run import check_same, run_model, sample_inputs
from partitioner.graph.shapes import parse_shapes
from shared.errors import ModelError
from shared.request import TensorSpec


def test_old_fixed_model_with_weights_as_inputs_becomes_one_input_at_the_stated_shape() -> None:
    model = centre_detector().normal("1,3,32,32")
    assert [value.name for value in model.proto.graph.input] == ["image.1"]
    assert model.inputs == (TensorSpec("image.1", "float32", (1, 3, 32, 32)),)
    assert [spec.shape for spec in model.outputs] == [(1, 1, 8, 8), (1, 2, 8, 8), (1, 2, 8, 8), (1, 10, 8, 8)]
    assert model.opset == passes.PREFERRED_OPSET
    assert model.batchable


def test_initializers_listed_as_inputs_no_longer_block_folding() -> None:
    net = Net(ir_version=4)
    net.input("x", ["n", 3, 8, 8])
    net.conv("x", "conv", (3, 4))
    for name in ("scale", "bias", "mean"):
        net.weight(name, 4)
    net.hold("var", np.ones(4, np.float32))
    net.add("BatchNormalization", ["conv", "scale", "bias", "mean", "var"], "y")
    net.output("y")
    net.inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in net.weights]
    assert op_types(net.normal()) == ["Conv"]


def test_an_unsorted_file_is_sorted() -> None:
    net = classifier()
    net.nodes.reverse()
    model = net.normal("1,3,16,16")
    straight = classifier().normal("1,3,16,16")
    assert check_same(straight, model, sample_inputs(model), 1e-6) <= 1e-6
    onnx.checker.check_model(model.proto)


def test_unused_weights_and_operators_are_dropped() -> None:
    net = classifier()
    net.weight("nobody", 1000)
    net.add("Exp", ["logits"], "dead end")
    model = net.normal("1,3,16,16")
    assert "nobody" not in {t.name for t in model.proto.graph.initializer}
    assert "Exp" not in op_types(model)


@pytest.mark.parametrize("literal", [-1, 0])
def test_literal_sizes_below_one_do_not_poison_shapes(literal: int) -> None:
    net = classifier()
    for value in (*net.inputs, *net.outputs):
        value.type.tensor_type.shape.dim[0].dim_value = literal
    net.inputs[0].type.tensor_type.shape.dim[2].dim_value = literal
    model = net.normal("1,3,16,16")
    assert model.batchable
    assert model.outputs == (TensorSpec("logits", "float32", (1, 7)),)


def test_an_open_axis_must_be_stated() -> None:
    net = classifier()
    net.inputs[0].type.tensor_type.shape.dim[3].dim_param = "width"
    with pytest.raises(ModelError, match=r"'x' has open axes \(batch, 3, 16, width\).*--shape x=1,3,16,\?"):
        net.normal()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("1,3,-2,16",), "positive numbers"),
        (("1,3,16",), "has 4 axes"),
        (("y=1,3,16,16",), "no input 'y'; it has x"),
        (("1,3,16,16", "x=1,3,16,16"), "has a shape already"),
        (("",), "positive numbers|has 4 axes"),
        (("1,three,16,16",), "positive numbers"),
    ],
)
def test_a_shape_that_does_not_fit_is_explained(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        parse_shapes(classifier().read(), texts)


def test_a_shape_without_a_name_needs_a_single_input() -> None:
    net = Net()
    net.add("Add", [net.input("a", ["n", 2]), net.input("b", ["n", 2])], "y")
    net.output("y")
    with pytest.raises(ModelError, match="has inputs a, b; write NAME=1,2"):
        parse_shapes(net.read(), ("1,2",))


def test_a_shape_at_which_the_model_cannot_run_is_named() -> None:
    net = classifier()
    net.add("Reshape", ["logits", net.hold("seven", np.array([-1, 7, 1]))], "y")
    net.add("Add", ["x", net.weight("fixed", 1, 3, 16, 16)], "z")
    net.outputs.clear()
    net.output("y")
    net.output("z")
    with pytest.raises(ModelError, match=r"net\.onnx: .*"):
        net.normal("1,3,20,20")


def test_what_is_saved_is_portable() -> None:
    model = classifier().normal("1,3,16,16")
    assert {node.domain for node in model.proto.graph.node} <= {"", "ai.onnx"}
    assert "Relu" in op_types(model)  # joined with the convolution only on the machine that runs it
    assert [opset.domain for opset in model.proto.opset_import] == [""]


def test_16_bit_floats_stay_without_the_casts_of_a_processor() -> None:
    net = Net()
    net.input("x", ["n", 16], TensorProto.FLOAT16)
    for index in range(3):
        net.hold(f"w{index}", net.random.standard_normal((16, 16)).astype(np.float16) / np.float16(4))
        net.add("MatMul", ["x" if index == 0 else f"h{index - 1}", f"w{index}"], f"h{index}")
    net.output("h2", None, TensorProto.FLOAT16)
    model = net.normal()
    assert "Cast" not in op_types(model)
    assert model.outputs[0].dtype == "float16"


def test_weights_stored_as_integers_are_not_blown_up() -> None:
    net = Net()
    net.input("x", ["n", 256])
    net.hold("w8", net.random.integers(-127, 127, (256, 256)).astype(np.int8))
    net.add("Cast", ["w8"], "w.cast", to=TensorProto.FLOAT)
    net.add("Mul", ["w.cast", net.hold("scale", np.float32(0.01))], "w")
    net.add("MatMul", ["x", "w"], "y")
    net.output("y")
    model = net.normal()
    assert model.weight_bytes < 256 * 256 * 2


def test_functions_of_the_file_are_inlined() -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("Twice", ["x"], "y", domain="local")
    net.output("y", ["n", 4])
    net.domains["local"] = 1
    proto = net.proto()
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    proto.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    read = Model(proto, "f.onnx", net.read().inputs, net.read().outputs)
    model = normalise(read, {})
    assert op_types(model) == ["Add"]
    assert {opset.domain for opset in model.proto.opset_import} == {""}


def test_types_behind_an_operator_that_inference_does_not_know_come_from_a_run() -> None:
    net = Net()
    net.domains["com.microsoft"] = 1
    net.input("x", ["n", 8])
    net.add("MatMul", ["x", net.weight("w", 8, 8)], "h")
    net.add("QuickGelu", ["h"], "g", domain="com.microsoft")
    net.add("MatMul", ["g", net.weight("v", 8, 4)], "y")
    net.output("y")
    assert net.normal().outputs == (TensorSpec("y", "float32", (1, 4)),)


def test_a_pass_that_changed_an_answer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: Model) -> Model:
        for tensor in model.proto.graph.initializer:
            if tensor.name == "head.b":
                tensor.CopyFrom(numpy_helper.from_array(np.full(7, 9, np.float32), "head.b"))
        return model

    monkeypatch.setattr(normalise_module, "fold", broken)
    with pytest.raises(ModelError, match="output 'logits' changed by"):
        classifier().normal("1,3,16,16")


def test_a_cycle_and_a_value_from_nowhere_are_named() -> None:
    net = classifier()
    net.nodes[0].input[0] = "block"
    with pytest.raises(ModelError, match="cycle"):
        structured(net.read())
    net.nodes[0].input[0] = "ghost"
    with pytest.raises(ModelError, match="'ghost'"):
        structured(net.read())


def test_the_digest_names_graph_and_weights() -> None:
    first, again = classifier().normal("1,3,16,16"), classifier().normal("1,3,16,16")
    assert first.digest == again.digest
    other = classifier()
    other.weights[0].CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(other.weights[0]) * 2, other.weights[0].name)
    )
    assert other.normal("1,3,16,16").digest != first.digest
    assert classifier().normal("1,3,20,20").digest != first.digest


def test_normalising_leaves_what_it_was_given_alone() -> None:
    read = classifier().read()
    before = read.proto.SerializeToString(deterministic=True)
    normalise(read, {"x": (1, 3, 16, 16)})
    assert read.proto.SerializeToString(deterministic=True) == before


def test_running_it_gives_what_the_file_gives() -> None:
    read = centre_detector().read()
    fixed = normalise(read, {})  # at the ten rows that the file fixes
    assert fixed.inputs[0].shape == (10, 3, 64, 64)
    assert run_model(fixed, sample_inputs(fixed))["heat"].shape == (10, 1, 16, 16)


def test_an_output_whose_size_depends_on_the_data_is_refused() -> None:
    net = Net()
    net.input("x", [1, 4])
    net.add("NonZero", ["x"], "places")
    net.output("places", elem_type=TensorProto.INT64)
    with pytest.raises(ModelError, match="size of output 'places' depends on the data"):
        net.normal()


def test_an_output_that_is_drawn_anew_each_time_is_refused() -> None:
    net = Net()
    net.input("x", [1, 4])
    net.add("RandomNormalLike", ["x"], "noise")
    net.add("Add", ["x", "noise"], "y")
    net.output("y")
    with pytest.raises(ModelError, match="'y' is another one each time"):
        net.normal()


def test_an_input_too_large_for_any_memory_is_refused_by_its_bytes() -> None:
    with pytest.raises(ModelError, match=r"input 'x' of shape 1,3,99999999,99999999 takes .* bytes, expected at most"):
        classifier().normal("1,3,99999999,99999999")


def test_an_output_that_is_a_list_is_refused_by_name() -> None:
    net = Net()
    net.input("x", [1, 4])
    net.add("SequenceConstruct", ["x", "x"], "pair")
    net.outputs.append(helper.make_tensor_sequence_value_info("pair", TensorProto.FLOAT, None))
    with pytest.raises(ModelError, match="'pair' is not a tensor of numbers"):
        net.normal()


def test_an_output_of_strings_is_refused_by_name() -> None:
    net = Net()
    net.input("x", [1, 4])
    net.add("Cast", ["x"], "text", to=TensorProto.STRING)
    net.output("text", elem_type=TensorProto.STRING)
    with pytest.raises(ModelError, match="'text' is not a tensor of numbers"):
        net.normal()


def test_a_model_without_inputs_is_refused() -> None:
    net = Net()
    net.add("Relu", [net.weight("w", 1, 4)], "y")
    net.output("y")
    with pytest.raises(ModelError, match="takes no input"):
        net.normal()


def test_a_model_that_only_hands_its_input_back_is_refused() -> None:
    net = Net()
    net.input("x", [1, 4])
    net.add("Relu", ["x"], "unused")
    net.output("x", [1, 4])
    with pytest.raises(ModelError, match="no operator is needed for its outputs"):
        net.normal()
