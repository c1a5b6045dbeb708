"""Where a graph may be cut, and that what is cut there gives what the whole gives."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import Net, centre_detector, chained, classifier
from onnx import TensorProto, helper

from partitioner.graph import cuts as cuts_module
from partitioner.graph.cuts import CutFinder, cut_at, find_cuts
from partitioner.graph.model import Model
from shared.errors import ModelError
from shared.request import TensorSpec


def names(model: Model) -> list[str]:
    return [cut.name for cut in find_cuts(model)]


def crossing(model: Model, *at: str) -> list[str]:
    return [spec.name for spec in cut_at(model, *at).tensors]


def quantised(model_side: int = 8) -> Net:
    """Two convolutions between quantise-dequantise pairs."""
    net = Net(seed=5)
    net.input("x", ["n", 3, model_side, model_side])

    def pair(source: str, name: str, scale: float) -> str:
        net.hold(f"{name}.scale", np.float32(scale))
        net.hold(f"{name}.zero", np.uint8(128))
        net.add("QuantizeLinear", [source, f"{name}.scale", f"{name}.zero"], f"{name}.q")
        return net.add("DequantizeLinear", [f"{name}.q", f"{name}.scale", f"{name}.zero"], f"{name}.dq")

    def conv(source: str, name: str, channels: tuple[int, int]) -> str:
        net.hold(f"{name}.w8", net.random.integers(-127, 127, (channels[1], channels[0], 3, 3)).astype(np.int8))
        net.add("DequantizeLinear", [f"{name}.w8", net.hold(f"{name}.ws", np.float32(0.005))], f"{name}.wf")
        return net.add("Conv", [source, f"{name}.wf"], name, pads=[1, 1, 1, 1])

    a = pair("x", "in", 0.03)
    b = pair(conv(a, "c1", (3, 8)), "one", 0.05)
    c = pair(conv(b, "c2", (8, 8)), "two", 0.1)
    net.add("GlobalAveragePool", [c], "y")
    net.output("y")
    return net


def test_the_list_begins_with_the_input_ends_with_the_outputs_and_shares_grow() -> None:
    found = find_cuts(classifier().normal("1,3,16,16"))
    assert (found[0].name, found[-1].name) == ("input", "output")
    assert (found[0].share, found[-1].share) == (0.0, 1.0)
    assert [cut.share for cut in found] == sorted(cut.share for cut in found)
    assert found[0].tensors == (TensorSpec("x", "float32", (1, 3, 16, 16)),)
    assert found[-1].raw_bytes == 7 * 4


def test_every_single_tensor_cut_of_a_residual_model_is_found_and_no_other() -> None:
    model = classifier().normal("1,3,16,16")
    assert names(model) == ["input", "stem", "block", "pooled", "flat", "output"]


def test_bytes_count_a_row_raw_and_with_floats_at_one_byte() -> None:
    stem = next(cut for cut in find_cuts(classifier().normal("1,3,16,16")) if cut.name == "stem")
    assert stem.raw_bytes == 8 * 8 * 8 * 4
    assert stem.int8_bytes == 8 * 8 * 8


@pytest.mark.parametrize("rows", [1, 2])
def test_each_cut_of_each_model_gives_what_the_whole_gives(rows: int) -> None:
    for net, shape in ((classifier(), "1,3,16,16"), (centre_detector(), "1,3,32,32"), (quantised(), "1,3,8,8")):
        model = net.normal(shape)
        found = find_cuts(model)
        for cut in found[1:-1]:
            assert chained(model, [cut], rows) <= 1e-6, cut.name
        assert chained(model, found, rows) <= 1e-6


def test_no_cut_falls_between_a_convolution_and_its_activation() -> None:
    model = classifier().normal("1,3,16,16")
    assert "stem.conv" not in names(model)
    with pytest.raises(
        ModelError, match=r"'stem\.conv' lies inside operators that run as one; the next border is 'stem'"
    ):
        cut_at(model, "stem.conv")


def test_no_cut_falls_inside_a_normalisation_written_out_in_operators() -> None:
    net = Net(opset=13)  # an opset without a normalisation of its own: only the runtime joins them
    net.input("x", ["n", 5, 16])
    net.add("MatMul", ["x", net.weight("w", 16, 16)], "h")
    net.add("ReduceMean", ["h"], "mean", axes=[-1])
    net.add("Sub", ["h", "mean"], "centred")
    net.add("Pow", ["centred", net.hold("two", np.float32(2))], "squared")
    net.add("ReduceMean", ["squared"], "variance", axes=[-1])
    net.add("Add", ["variance", net.hold("eps", np.float32(1e-5))], "safe")
    net.add("Sqrt", ["safe"], "deviation")
    net.add("Div", ["centred", "deviation"], "normal")
    net.add("Mul", ["normal", net.weight("gain", 16)], "scaled")
    net.add("Add", ["scaled", net.weight("shift", 16)], "ready")
    net.add("MatMul", ["ready", net.weight("v", 16, 4)], "y")
    net.output("y")
    model = net.normal()
    assert names(model) == ["input", "h", "ready", "output"]


def test_a_cut_across_a_residual_carries_every_tensor_that_crosses() -> None:
    model = classifier().normal("1,3,16,16")
    assert crossing(model, "block.a") == ["stem", "block.a"]
    assert chained(model, [cut_at(model, "block.a")], 2) <= 1e-6


def test_a_skip_connection_travels_along_through_later_parts() -> None:
    model = centre_detector().normal("1,3,32,32")
    assert crossing(model, "c3") == ["c2", "c3"]
    assert "neck" in names(model)
    cuts = [cut_at(model, name) for name in ("c1", "c3", "up", "neck")]
    assert chained(model, cuts, 2) <= 1e-6


def test_a_cut_may_be_named_by_several_tensors() -> None:
    model = centre_detector().normal("1,3,32,32")
    cut = cut_at(model, "up", "skip")
    assert cut.name == "up,skip"
    assert {spec.name for spec in cut.tensors} == {"up", "skip"}
    assert chained(model, [cut]) <= 1e-6


def test_outputs_finished_before_the_cut_travel_along() -> None:
    model = centre_detector().normal("1,3,32,32")
    assert crossing(model, "size") == ["neck", "size"]
    assert chained(model, [cut_at(model, "size")], 2) <= 1e-6


def test_an_input_needed_late_crosses_every_cut() -> None:
    net = Net()
    net.input("x", ["n", 6])
    net.input("late", ["n", 6])
    net.add("MatMul", ["x", net.weight("a", 6, 6)], "h1")
    net.add("MatMul", ["h1", net.weight("b", 6, 6)], "h2")
    net.add("Add", ["h2", "late"], "y")
    net.output("y")
    model = net.normal()
    assert names(model) == ["input", "output"]
    assert crossing(model, "h1") == ["late", "h1"]
    assert chained(model, [cut_at(model, "h1")], 2) == 0.0


def captured_body() -> Net:
    """An `If` whose bodies use a tensor and a weight of the graph around them, which its node does not list."""
    net = Net()
    net.input("x", ["n", 6])
    net.add("MatMul", ["x", net.weight("w", 6, 6)], "h")
    net.add("Relu", ["h"], "kept")
    net.add("MatMul", ["kept", net.weight("v", 6, 6)], "g")
    net.add("ReduceMax", ["g"], "top", keepdims=0)
    net.add("Greater", ["top", net.hold("limit", np.float32(-100))], "positive")
    net.weight("u", 6, 6)

    def body(op: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("MatMul", ["kept", "u"], [f"{op}.inner"]),
            helper.make_node(op, [f"{op}.inner", "g"], [f"{op}.out"]),
        ]
        out = helper.make_tensor_value_info(f"{op}.out", TensorProto.FLOAT, None)
        return helper.make_graph(nodes, f"{op}.body", [], [out])

    net.add("If", ["positive"], "chosen", then_branch=body("Add"), else_branch=body("Sub"))
    net.add("MatMul", ["chosen", net.weight("t", 6, 3)], "y")
    net.output("y")
    return net


def test_what_a_body_captures_crosses_the_cut() -> None:
    model = captured_body().normal()
    assert names(model)[1:-1] == ["kept", "chosen"]
    assert set(crossing(model, "g")) == {"kept", "g"}
    for name in ("kept", "g", "chosen"):
        assert chained(model, [cut_at(model, name)], 2) == 0.0, name


def test_a_quantised_model_is_cut_at_its_quantised_tensors_bit_exactly() -> None:
    model = quantised().normal("1,3,8,8")
    found = find_cuts(model)[1:-1]
    assert {"one.q", "two.q"} <= {cut.name for cut in found}
    assert all(spec.dtype == "uint8" for cut in found if cut.name.endswith(".q") for spec in cut.tensors)
    assert not [cut.name for cut in found if cut.name.endswith(".dq") or cut.name in {"c1", "c2"}]
    for name in ("one.q", "two.q"):
        assert chained(model, [cut_at(model, name)], 2) == 0.0
    with pytest.raises(ModelError, match="inside operators that run as one"):
        cut_at(model, "one.dq")


def test_operators_on_weights_alone_belong_to_no_side() -> None:
    model = quantised().normal("1,3,8,8")
    assert "c1.wf" in {output for node in model.proto.graph.node for output in node.output}
    with pytest.raises(ModelError, match="depends on weights alone"):
        cut_at(model, "c1.wf")
    assert crossing(model, "one.q") == ["one.q"]


def data_dependent() -> Net:
    net = Net()
    net.input("x", ["n", 6])
    net.add("MatMul", ["x", net.weight("w", 6, 6)], "h")
    net.add("NonZero", ["h.relu"], "where")
    net.nodes.insert(1, helper.make_node("Relu", ["h"], ["h.relu"]))
    net.add("Cast", ["where"], "floats", to=TensorProto.FLOAT)
    net.add("ReduceSum", ["floats", net.hold("axes", np.array([1]))], "total", keepdims=0)
    net.output("total")
    return net


def test_no_cut_falls_at_a_tensor_whose_size_depends_on_data() -> None:
    model = data_dependent().normal("2,6")
    assert "where" not in names(model)
    assert "h.relu" in names(model)
    with pytest.raises(ModelError, match="'where' would cross, which has a size that depends on data"):
        cut_at(model, "where")


def test_a_tensor_without_a_row_axis_in_front_does_not_cross_where_rows_are_joined() -> None:
    net = Net()
    net.input("x", ["n", 4, 6])
    net.add("MatMul", ["x", net.weight("w", 6, 6)], "h")
    net.add("Transpose", ["h"], "time first", perm=[1, 0, 2])
    net.nodes.append(
        helper.make_node(
            "GRU", ["time first", net.weight("gw", 1, 9, 6), net.weight("gr", 1, 9, 3)], ["all", "last"], hidden_size=3
        )
    )
    net.add("Squeeze", ["last", net.hold("axis", np.array([0]))], "y")
    net.output("y")
    model = net.normal()
    assert model.batchable
    assert names(model) == ["input", "h", "output"]
    with pytest.raises(ModelError, match="which has no row axis in front"):
        cut_at(model, "time first")


def test_a_name_that_is_not_there_lists_near_ones() -> None:
    with pytest.raises(ModelError, match="no operator makes 'stemm'; cuts are for instance stem"):
        cut_at(classifier().normal("1,3,16,16"), "stemm")


def test_the_input_and_the_last_output_are_no_inner_cuts() -> None:
    model = classifier().normal("1,3,16,16")
    with pytest.raises(ModelError, match="'x' is an input"):
        cut_at(model, "x")
    with pytest.raises(ModelError, match="leaves nothing for the other side"):
        cut_at(model, "logits")
    with pytest.raises(ModelError, match="leaves nothing for the other side"):
        cut_at(model, "output")


def tower(blocks: int) -> Net:
    net = Net()
    net.input("x", ["n", 4])
    here = "x"
    for index in range(blocks):
        net.add("MatMul", [here, net.weight(f"w{index}", 4, 4)], f"m{index}")
        net.add("Softmax", [f"m{index}"], f"s{index}")
        here = f"s{index}"
    net.output(here)
    return net


def test_finding_cuts_is_linear_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = cuts_module.node_inputs

    def counted(node: onnx.NodeProto) -> list[str]:
        asked[-1] += 1
        return real(node)

    monkeypatch.setattr(cuts_module, "node_inputs", counted)
    found: list[int] = []
    for blocks in (20, 80):
        finder = CutFinder(tower(blocks).normal())
        asked.append(0)
        found.append(len(finder.single()))
    assert found == [2 * 20 + 1, 2 * 80 + 1]
    assert asked[1] <= 4 * asked[0] + 8


def test_the_set_of_a_cut_is_a_set() -> None:
    first, second = find_cuts(classifier().normal("1,3,16,16"))[1:3]
    assert first.nodes < second.nodes
    assert set(second.nodes - first.nodes) == set(second.nodes) - set(first.nodes)
    assert first.nodes == frozenset(first.nodes)
    assert hash(first.nodes) == hash(frozenset(first.nodes))


def branches(*names: str) -> Net:
    """One relu of its own for each name, joined at the end."""
    net = Net()
    net.input("x", ["n", 4])
    for name in names:
        net.add("MatMul", ["x", net.weight(f"{name}.w", 4, 4)], f"{name}.mm")
        net.add("Relu", [f"{name}.mm"], name)
    net.add("Concat", list(names), "y", axis=1)
    net.output("y")
    return net


def test_a_cut_of_tensors_with_long_names_has_a_short_one_of_its_own() -> None:
    names = [f"encoder/branch_{letter}/stage_1/output" for letter in "abc"]
    finder = CutFinder(branches(*names).normal())
    several = finder.at(*names)
    assert several.name == f"{names[0]} and 2 more"
    assert {spec.name for spec in several.tensors} == set(names)
    assert finder.at(*names).name == finder.of_nodes(several.nodes).name == several.name
    assert finder.at(names[0], names[1]).name == f"{names[0]} and 1 more"
    assert finder.at(names[0], names[2]).name == f"{names[0]} and 1 more (2)"
    assert finder.at(names[0]).name == names[0]
    assert CutFinder(branches("left", "right").normal()).at("left", "right").name == "left,right"
