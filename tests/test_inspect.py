"""What `headtail inspect` says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from graphs import Net, centre_detector, classifier
from onnx import helper, numpy_helper
from typer.testing import CliRunner

from partitioner.graph.recipe import Recipe
from partitioner.inspections.cli import main, show, size
from partitioner.inspections.inspection import Inspection, inspect_model
from partitioner.inspections.view import percent
from partitioner.terminal import PlainConsole
from shared.errors import ModelError


def look(net: Net, folder: Path, *shapes: str) -> Inspection:
    return inspect_model(Recipe(net.save(folder / "net.onnx"), shapes))


def test_facts_cuts_and_warnings_of_an_old_model(tmp_path: Path) -> None:
    found = look(centre_detector(), tmp_path, "1,3,32,32")
    assert (found.opset, found.ir_version, found.problem) == (9, 4, "")
    assert found.inputs[0].shape == "(10, 3, 64, 64)"
    assert [value.name for value in found.outputs] == ["heat", "size", "offset", "points"]
    assert found.operators["Conv"] == 9
    assert found.batchable
    assert [cut.name for cut in found.cuts] == ["input", "c1", "c2", "joined", "neck", "output"]
    c1 = found.cuts[1]
    assert (c1.raw_bytes, c1.int8_bytes, c1.producer) == (8 * 16 * 16 * 4, 8 * 16 * 16, "Relu")
    assert 0 < c1.share_before < 1
    assert any("initializers are listed as inputs" in warning for warning in found.warnings)
    assert any("opset 9 is older" in warning for warning in found.warnings)


def test_pixels_and_peaks_are_part_of_what_is_cut(tmp_path: Path) -> None:
    path = centre_detector().save(tmp_path / "net.onnx")
    found = inspect_model(Recipe(path, ("1,3,32,32",), "image", "peaks:k=4"))
    assert found.cuts[0].tensors[0].dtype == "uint8"
    assert [spec.name for spec in found.cuts[-1].tensors] == ["boxes", "scores", "landmarks"]


def warnings_of(net: Net, folder: Path, *shapes: str) -> str:
    return "\n".join(look(net, folder, *shapes).warnings)


def test_an_unsorted_graph_and_poisoned_sizes_are_mentioned(tmp_path: Path) -> None:
    net = classifier()
    net.nodes.reverse()
    net.inputs[0].type.tensor_type.shape.dim[0].dim_value = -1
    said = warnings_of(net, tmp_path, "1,3,16,16")
    assert "not in an order" in said
    assert "'x' has literal sizes below one" in said


def test_constant_weights_are_mentioned_since_they_prove_nothing(tmp_path: Path) -> None:
    net = classifier()
    assert "one value repeated" not in warnings_of(net, tmp_path)
    net.weights = [
        numpy_helper.from_array(np.full(numpy_helper.to_array(t).shape, 0.1, np.float32), t.name) for t in net.weights
    ]
    assert "one value repeated" in warnings_of(net, tmp_path)


def test_weights_that_an_operator_fills_with_one_value_are_mentioned_as_well(tmp_path: Path) -> None:
    net = classifier()
    for weight in list(net.weights):
        shape = net.hold(f"{weight.name}.shape", np.array(list(weight.dims), np.int64))
        net.nodes.insert(0, helper.make_node("ConstantOfShape", [shape], [weight.name]))
        net.weights.remove(weight)
    assert "one value repeated" in warnings_of(net, tmp_path)


def test_a_baked_in_batch_and_missing_single_cuts_are_mentioned(tmp_path: Path) -> None:
    net = Net()
    net.input("x", [2, 8])
    net.add("ReduceSum", ["x", net.hold("axes", np.array([0]))], "total", keepdims=1)
    net.add("Add", ["x", "total"], "y")
    net.output("y")
    said = warnings_of(net, tmp_path)
    assert "cannot be batched" in said
    assert "no single tensor separates" in said


def test_an_operator_that_nobody_has_is_the_problem_and_the_rest_is_still_shown(tmp_path: Path) -> None:
    net = classifier()
    net.add("Magic", ["logits"], "y", domain="com.example")
    net.domains["com.example"] = 1
    net.outputs.clear()
    net.output("y")
    found = look(net, tmp_path, "1,3,16,16")
    assert "com.example:Magic is unknown to every installed provider" in found.problem
    assert found.operators["com.example:Magic"] == 1
    assert found.cuts == ()
    assert any("outside the standard" in warning for warning in found.warnings)


def test_an_open_axis_is_the_problem(tmp_path: Path) -> None:
    net = classifier()
    net.inputs[0].type.tensor_type.shape.dim[2].dim_param = "height"
    found = look(net, tmp_path)
    assert "--shape x=1,3,?,16" in found.problem


def test_all_operators_that_nobody_has_are_named_and_those_made_of_others_are_not(tmp_path: Path) -> None:
    net = Net()
    net.add("Magic", [net.input("x", [1, 4])], "a", domain="com.example")
    net.add("Spell", ["a"], "b", domain="com.example")
    net.add("HardSwish", ["b"], "y")
    net.domains["com.example"] = 1
    net.output("y")
    assert look(net, tmp_path).unsupported == ("com.example:Magic", "com.example:Spell")


def test_control_flow_eight_bits_and_types_of_weights_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Net()
    x = net.input("x", ["batch", 4])
    net.add("QuantizeLinear", [x, net.hold("s", np.float32(0.1)), net.hold("z", np.uint8(3))], "q")
    net.add("MatMulInteger", ["q", net.hold("w", np.arange(16, dtype=np.int8).reshape(4, 4)), "z"], "i")
    net.add("Cast", ["i"], "f", to=1)
    body = helper.make_graph(
        [helper.make_node("Relu", ["f"], ["r"])], "body", [], [helper.make_tensor_value_info("r", 1, None)]
    )
    net.add("If", [net.hold("yes", np.array(True))], "y", then_branch=body, else_branch=body)
    net.output("y", ["batch", 4])
    path = net.save(tmp_path / "net.onnx")
    main(path, ["1,4"])
    said = " ".join(capsys.readouterr().out.split())
    assert "control flow: 1 If" in said
    assert "quantised: 1 QuantizeLinear, 0 DequantizeLinear, 1 MatMulInteger" in said
    assert "16 B int8" in said
    found = inspect_model(Recipe(path, ("1,4",)))
    assert found.quantisation.integer == {"MatMulInteger": 1}
    assert not found.quantisation.dynamic
    cut = next(cut for cut in found.cuts if cut.name == "q")
    assert (cut.quantised, cut.raw_bytes, cut.cheapest, cut.cheapest_bytes) == (True, 4, "raw", 4)


def test_values_whose_size_depends_on_the_data_are_counted(tmp_path: Path) -> None:
    net = Net()
    net.add("Relu", [net.input("x", [1, 8])], "some")
    net.add("NonZero", ["some"], "places")
    net.add("Cast", ["places"], "float", to=1)
    net.add("ReduceSum", ["float"], "y", keepdims=0)
    net.output("y")
    assert look(net, tmp_path).sized_by_data == 2


def test_a_picture_is_cheapest_as_jpeg_and_floats_in_four_bits(tmp_path: Path) -> None:
    path = classifier().save(tmp_path / "net.onnx")
    found = inspect_model(Recipe(path, ("1,3,16,16",), "image"))
    assert [(cut.cheapest, cut.cheapest_bytes) for cut in found.cuts[:2]] == [("jpeg90", 77), ("int4", 256)]


def test_json_holds_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = classifier().save(tmp_path / "net.onnx")
    main(path, ["1,3,16,16"], json=True)
    said = json.loads(capsys.readouterr().out)
    assert [cut["name"] for cut in said["cuts"]] == ["input", "stem", "block", "pooled", "flat", "output"]
    assert said["inputs"] == [{"name": "x", "dtype": "float32", "shape": "(batch, 3, 16, 16)"}]


def test_a_problem_is_raised_after_what_is_known_was_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = classifier()
    net.inputs[0].type.tensor_type.shape.dim[2].dim_param = "height"
    with pytest.raises(ModelError, match="--shape"):
        main(net.save(tmp_path / "net.onnx"))
    assert "1 Gemm" in capsys.readouterr().out


def test_tables_show_names_with_brackets_as_they_are(tmp_path: Path) -> None:
    net = classifier()
    for node in net.nodes:
        for fields in (node.input, node.output):
            for position, name in enumerate(fields):
                fields[position] = name.replace("stem", "stem[red]")
    for tensor in net.weights:
        tensor.name = tensor.name.replace("stem", "stem[red]")
    console = PlainConsole(width=160)
    with console.capture() as told:
        show(look(net, tmp_path, "1,3,16,16"), console)
    assert "stem[red]" in told.get()


def test_a_narrow_terminal_shows_every_number_and_name_whole(tmp_path: Path) -> None:
    found = look(classifier(), tmp_path, "1,3,16,16")
    console = PlainConsole(width=80)
    with console.capture() as told:
        show(found, console)
    lines = told.get()
    assert "…" not in lines
    assert max(map(len, lines.splitlines())) <= 80
    for cut in found.cuts:
        assert percent(cut.share_before) in lines
        assert f"{size(cut.cheapest_bytes)} {cut.cheapest}" in lines


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (589_824, "589.8 KB"), (7_300_000, "7.3 MB")]
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_the_command_line_reads_repeated_shapes(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(main)
    net = Net()
    net.add("Add", [net.input("a", ["n", "m"]), net.input("b", ["n", "m"])], "s")
    net.add("Softmax", ["s"], "y")
    net.output("y")
    path = net.save(tmp_path / "net.onnx")
    result = CliRunner().invoke(app, [str(path), "--shape", "a=1,4", "--shape", "b=1,4", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["cuts"][0]["raw_bytes"] == 32
