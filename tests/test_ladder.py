"""Rungs other than lower resolutions: 8 bits, and models of the user's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import Net, classifier
from onnx import numpy_helper

from partitioner.graph.model import Model
from partitioner.graph.quantise import quantise
from partitioner.graph.recipe import Recipe, build
from partitioner.graph.run import run_model, sample_inputs
from partitioner.graph.split import split
from partitioner.graph.weights import write_programs
from partitioner.ladder import judge, other_rungs, parse_rung, supplied_model
from partitioner.running import Tensors, load_file, load_part
from shared.errors import ModelError, UserError

IMAGE = "image:mean=127.5,std=64"


def images(count: int, seed: int, side: int = 16) -> list[Tensors]:
    """Rows of smooth images of one tone each, so that their classes differ."""
    random = np.random.default_rng(seed)
    tones = random.integers(0, 256, (count, 1, 1, 1, 3))
    noise = random.integers(-30, 31, (count, 1, side, side, 3))
    return [(row,) for row in np.clip(tones + noise, 0, 255).astype(np.uint8)]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return Recipe(classifier().save(tmp_path_factory.mktemp("ladder") / "whole.onnx"), ("1,3,16,16",), IMAGE)


@pytest.fixture(scope="module")
def whole(recipe: Recipe) -> Model:
    return build(recipe)


@pytest.fixture(scope="module")
def int8(recipe: Recipe, whole: Model) -> Model:
    made, notes = other_rungs(["int8"], recipe, whole, images(24, 1), must=True, threads=1)
    assert notes == []
    assert [name for name, _, _ in made] == ["int8"]
    return made[0][1]


def test_int8_looks_like_the_whole_and_agrees_on_held_out_rows(whole: Model, int8: Model) -> None:
    assert (int8.inputs, int8.outputs, int8.batchable) == (whole.inputs, whole.outputs, True)
    held_out = images(40, 2)
    answer = load_part(whole, 1)
    reference = [answer(row) for row in held_out]
    rung = judge(("int8", int8, load_part(int8, 1)), "top1", reference, held_out)
    assert 0.8 <= rung.agreement <= 1.0
    assert judge(("int8", int8, load_part(int8, 1)), "exact", reference, held_out).agreement < 1.0


def test_only_the_model_itself_is_quantised(whole: Model, int8: Model) -> None:
    kinds = {tensor.name: tensor.data_type for tensor in int8.proto.graph.initializer}
    nodes = int8.proto.graph.node
    made_by = {name: node for node in nodes for name in node.output}
    convolutions = [node for node in nodes if node.op_type == "Conv"]
    assert len(convolutions) == 3
    for node in convolutions:
        weight = made_by[node.input[1]]
        assert weight.op_type == "DequantizeLinear"
        assert kinds[weight.input[0]] == onnx.TensorProto.INT8
        scales = next(t for t in int8.proto.graph.initializer if t.name == weight.input[1])
        assert list(scales.dims) == [8], "one scale for each channel"
    for node in nodes:
        if node.name.startswith("pre/"):
            assert all(name == "image" or made_by.get(name, node).name.startswith("pre/") for name in node.input)
    before = [node.op_type for node in whole.proto.graph.node if node.name.startswith("pre/")]
    after = [node.op_type for node in nodes if node.name.startswith("pre/")]
    assert [kind for kind in after if kind not in {"QuantizeLinear", "DequantizeLinear"}] == before


def test_ranges_are_those_of_the_rows_that_it_is_fitted_to(caplog: pytest.LogCaptureFixture) -> None:
    model = classifier().normal("1,3,16,16")

    def first_scale(size: float) -> float:
        rows = [{"x": np.full((1, 3, 16, 16), value, np.float32)} for value in (-size, size)]
        made = quantise(model, {node.name for node in model.proto.graph.node}, rows)
        held = {t.name: t for t in made.proto.graph.initializer}
        node = next(n for n in made.proto.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "x")
        return float(numpy_helper.to_array(held[node.input[1]]))

    assert first_scale(1.0) == pytest.approx(2 / 255, rel=0.02)
    assert first_scale(4.0) == pytest.approx(8 / 255, rel=0.02)
    assert caplog.records == [], "the library's advice is not for the user"


def test_a_written_rung_answers_as_it_did(int8: Model, tmp_path: Path) -> None:
    (program,) = write_programs({"int8": split(int8, [])}, tmp_path)
    (segment,) = program.segments
    part = load_file(tmp_path / segment.file, segment.inputs, segment.outputs, 1)
    for row in images(3, 5):
        (wanted,) = load_part(int8, 1)(row)
        np.testing.assert_array_equal(part(row)[0], wanted)


def test_what_cannot_be_quantised_is_said() -> None:
    model = classifier().normal("1,3,16,16")
    names = {node.name for node in model.proto.graph.node}
    rows = [sample_inputs(model)]
    with pytest.raises(ModelError, match="needs rows to fit"):
        quantise(model, names, [])
    with pytest.raises(ModelError, match="it is quantised already"):
        quantise(quantise(model, names, rows), names, rows)
    with pytest.raises(ModelError, match="none of Conv, ConvTranspose, Gemm, MatMul"):
        quantise(model, set(), rows)


def test_dynamic_int8_is_refused_with_its_reason(recipe: Recipe, whole: Model) -> None:
    wanted = [parse_rung("int8-dynamic")]
    with pytest.raises(UserError, match=r"dynamic int8 is refused: there are 3 convolutions, which take 4 to 12 times"):
        other_rungs(wanted, recipe, whole, images(2, 1), must=True, threads=1)
    net = Net()
    net.input("x", ["n", 4])
    net.add("MatMul", ["x", net.weight("w", 4, 3)], "y")
    net.output("y")
    with pytest.raises(UserError, match=r"over a whole batch"):
        other_rungs(wanted, recipe, net.normal("1,4"), images(2, 1), must=True, threads=1)


@pytest.mark.parametrize("name", ["int8", "exit"])
def test_what_is_fitted_needs_data(recipe: Recipe, whole: Model, name: str) -> None:
    with pytest.raises(UserError, match=f"rung {name} needs --calibration"):
        other_rungs([parse_rung(name)], recipe, whole, [], must=True, threads=1)


def test_a_rung_that_cannot_be_made_is_a_note_unless_it_must(tmp_path: Path) -> None:
    net = Net()
    net.input("x", ["n", 4])
    net.add("Relu", ["x"], "y")
    net.output("y")
    recipe = Recipe(net.save(tmp_path / "light.onnx"), ("1,4",))
    model = build(recipe)
    fit: list[Tensors] = [(np.ones((1, 4), np.float32),)]
    made, notes = other_rungs(["int8"], recipe, model, fit, must=False, threads=1)
    assert made == []
    assert len(notes) == 1
    assert notes[0].startswith("no rung int8: light.onnx: it has none of")
    with pytest.raises(ModelError, match="it has none of"):
        other_rungs(["int8"], recipe, model, fit, must=True, threads=1)


# a smaller model of the user's


def small(side: int = 16, classes: int = 7, output: str = "logits", rows: str | int = "batch", name: str = "x") -> Net:
    net = Net(seed=9)
    net.input(name, [rows, 3, side, side])
    net.add("GlobalAveragePool", [name], "pooled")
    net.add("Flatten", ["pooled"], "flat", axis=1)
    net.add("Gemm", ["flat", net.weight("w", 3, classes), net.weight("b", classes)], output)
    net.output(output, [rows, classes])
    return net


def test_a_smaller_model_answers_in_place_of_the_whole(recipe: Recipe, whole: Model, tmp_path: Path) -> None:
    path = small(name="picture").save(
        tmp_path / "tiny one.onnx"
    )  # behind the image, its own input's name does not matter
    made, _ = other_rungs([parse_rung(f"model:{path}")], recipe, whole, (), must=True, threads=1)
    (name, model, part) = made[0]
    assert name == "model-tiny-one"
    assert (model.inputs, model.outputs, model.batchable) == (whole.inputs, whole.outputs, whole.batchable)
    row = images(1, 3)[0]
    (answer,) = part(row)
    np.testing.assert_allclose(answer, run_model(model, {"image": row[0]})["logits"], rtol=1e-5)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (small(classes=6), r"output 1 is 'logits' float32\[1, 6\], expected 'logits' float32\[1, 7\]"),
        (small(output="scores"), r"output 1 is 'scores' float32\[1, 7\], expected 'logits' float32\[1, 7\]"),
    ],
)
def test_a_model_with_another_interface_is_refused(
    recipe: Recipe, whole: Model, tmp_path: Path, net: Net, words: str
) -> None:
    with pytest.raises(ModelError, match=r"other\.onnx: it cannot stand in for whole\.onnx: " + words):
        supplied_model(recipe, net.save(tmp_path / "other.onnx"), whole)


def test_a_model_with_other_inputs_is_refused(tmp_path: Path) -> None:
    recipe = Recipe(small().save(tmp_path / "whole.onnx"), ("1,3,16,16",))
    whole = build(recipe)
    with pytest.raises(ModelError, match=r"input 1 is 'y' float32\[1, 3, 16, 16\], expected 'x' float32"):
        supplied_model(recipe, small(name="y").save(tmp_path / "other.onnx"), whole)
    more = small()
    more.add("Neg", ["logits"], "minus")
    more.output("minus")
    with pytest.raises(ModelError, match=r"output 2 is 'minus' float32\[1, 7\], expected none"):
        supplied_model(recipe, more.save(tmp_path / "other.onnx"), whole)


def test_a_model_of_one_row_is_no_rung_of_a_model_of_many(tmp_path: Path) -> None:
    recipe = Recipe(small().save(tmp_path / "whole.onnx"), ("1,3,16,16",))
    one = small(output="plain")
    one.add("ReduceMean", ["plain"], "mean", axes=[0], keepdims=1)  # an answer that mixes its rows
    one.add("Add", ["plain", "mean"], "logits")
    one.outputs.clear()
    one.output("logits", ["batch", 7])
    with pytest.raises(ModelError, match=r"cannot stand in for whole\.onnx: it does not take several rows at once"):
        supplied_model(recipe, one.save(tmp_path / "mixed.onnx"), build(recipe))


@pytest.mark.parametrize("text", ["int4", "model:", "model", ""])
def test_other_names_of_rungs_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected int8, exit, model:PATH or module:function"):
        parse_rung(text)


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.onnx': there is no such file"):
        parse_rung(f"model:{tmp_path / 'nowhere.onnx'}")


def test_two_models_of_one_file_name_are_refused(recipe: Recipe, whole: Model, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    paths = [small().save(tmp_path / "s.onnx"), small().save(tmp_path / "a" / "s.onnx")]
    with pytest.raises(UserError, match="two rungs are models of one file name"):
        other_rungs(paths, recipe, whole, (), must=True, threads=1)
