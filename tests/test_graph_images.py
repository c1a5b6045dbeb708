"""Pixels in front of a model and peaks or classes behind it, as operators of the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import Net, centre_detector, chained, classifier
from onnx import TensorProto

from partitioner.graph.cuts import cut_at, find_cuts
from partitioner.graph.images import ImageInput, with_image_input
from partitioner.graph.model import Model
from partitioner.graph.peaks import Peaks, with_peaks
from partitioner.graph.processing import parse_postprocess, parse_preprocess, with_postprocess
from partitioner.graph.recipe import Recipe, build, build_at_resolution
from partitioner.graph.run import run_model, sample_inputs
from partitioner.graph.split import split
from partitioner.graph.topk import TopK, with_topk
from shared.errors import ModelError, UserError
from shared.request import Array, TensorSpec


def pixels(rows: int = 1, side: int = 16, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (rows, side, side, 3), dtype=np.uint8)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("bgr", [False, True])
def test_pixels_become_the_models_input(rows: int, bgr: bool) -> None:
    model = classifier().normal("1,3,16,16")
    mean, std = (120.0, 110.0, 100.0), (60.0, 50.0, 40.0)
    image = with_image_input(model, ImageInput(mean, std, bgr))
    assert image.inputs == (TensorSpec("image", "uint8", (1, 16, 16, 3)),)
    assert (image.outputs, image.batchable, image.name) == (model.outputs, True, model.name)
    given = pixels(rows)
    ordered = given[..., ::-1] if bgr else given
    floats = ((ordered.astype(np.float32) - np.float32(mean)) / np.float32(std)).transpose(0, 3, 1, 2)
    wanted = run_model(model, {"x": np.ascontiguousarray(floats)})["logits"]
    np.testing.assert_allclose(run_model(image, {"image": given})["logits"], wanted, rtol=1e-5, atol=1e-5)


def test_a_model_that_takes_channels_last_is_served() -> None:
    net = Net()
    net.input("x", ["n", 8, 8, 3])
    net.add("ReduceMean", ["x"], "y", axes=[1, 2], keepdims=0)
    net.output("y")
    image = with_image_input(net.normal(), ImageInput())
    given = pixels(2, 8)
    np.testing.assert_allclose(run_model(image, {"image": given})["y"], given.mean((1, 2)), rtol=1e-5)


@pytest.mark.parametrize(("size", "blocks"), [(32, True), (24, False), (8, False)])
def test_an_image_of_another_size_is_resized_in_the_graph(size: int, blocks: bool) -> None:
    net = Net()
    net.input("x", ["n", 3, 16, 16])
    net.add("Neg", ["x"], "negative")
    net.add("Neg", ["negative"], "y")
    net.output("y")
    image = with_image_input(net.normal(), ImageInput(), (size, size))
    assert image.inputs[0].shape == (1, size, size, 3)
    given = pixels(2, size)
    got = run_model(image, {"image": given})["y"]
    assert got.shape == (2, 3, 16, 16)
    if blocks:
        wanted = given.reshape(2, 16, 2, 16, 2, 3).mean((2, 4)).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    else:
        centre = (np.arange(16) + 0.5) * size / 16 - 0.5
        low = np.clip(np.floor(centre).astype(int), 0, size - 1)
        high, part = np.clip(low + 1, 0, size - 1), np.clip(centre - low, 0, 1)
        rows = given[:, low] * (1 - part)[None, :, None, None] + given[:, high] * part[None, :, None, None]
        both = rows[:, :, low] * (1 - part)[None, None, :, None] + rows[:, :, high] * part[None, None, :, None]
        np.testing.assert_allclose(got, both.transpose(0, 3, 1, 2), atol=0.01)


def test_a_model_without_an_image_is_refused() -> None:
    net = Net()
    net.add("Relu", [net.input("x", ["n", 10])], "y")
    net.output("y")
    with pytest.raises(ModelError, match=r"'image' needs one input of shape N,3,height,width.*x float32\[1, 10\]"):
        with_image_input(net.normal(), ImageInput())


def decode(maps: dict[str, Array], row: int, k: int, least: float) -> tuple[Array, Array, Array]:
    """The decoding of the reference code, one cell at a time, with neighbours instead of overlaps."""
    heat, size, offset, points = (maps[name][row].astype(np.float64) for name in ("heat", "size", "offset", "points"))
    height, width = heat.shape[1:]
    padded = np.pad(heat[0], 1, constant_values=-np.inf)
    cells = [
        (heat[0, y, x], y, x)
        for y in range(height)
        for x in range(width)
        if heat[0, y, x] >= least and heat[0, y, x] == padded[y : y + 3, x : x + 3].max()
    ]
    boxes, scores, marks = np.zeros((k, 4)), np.zeros(k), np.zeros((k, 10))
    for index, (score, y, x) in enumerate(sorted(cells, reverse=True)[:k]):
        tall, wide = np.exp(size[0, y, x]) * 4, np.exp(size[1, y, x]) * 4
        x1 = min(max(0, (x + offset[1, y, x] + 0.5) * 4 - wide / 2), width * 4)
        y1 = min(max(0, (y + offset[0, y, x] + 0.5) * 4 - tall / 2), height * 4)
        boxes[index] = [x1, y1, min(x1 + wide, width * 4), min(y1 + tall, height * 4)]
        for j in range(5):
            marks[index, 2 * j] = points[2 * j + 1, y, x] * wide + x1
            marks[index, 2 * j + 1] = points[2 * j, y, x] * tall + y1
        scores[index] = score
    scale = np.array([width * 4, height * 4])
    return boxes / np.tile(scale, 2), scores, marks / np.tile(scale, 5)


@pytest.mark.parametrize("rows", [1, 2])
def test_peaks_are_those_of_the_reference_decoding(rows: int) -> None:
    model = centre_detector().normal("1,3,32,32")
    inputs = sample_inputs(model, rows, scale=2.0)
    maps = run_model(model, inputs)
    least = float(np.quantile(maps["heat"], 0.92))
    found = run_model(with_peaks(model, Peaks(k=8, min_score=least)), inputs)
    assert (found["boxes"].shape, found["scores"].shape, found["landmarks"].shape) == (
        (rows, 8, 4),
        (rows, 8),
        (rows, 8, 10),
    )
    for row in range(rows):
        boxes, scores, marks = decode(maps, row, 8, least)
        assert 0 < np.count_nonzero(scores) < 8
        np.testing.assert_allclose(found["scores"][row], scores, rtol=1e-5)
        np.testing.assert_allclose(found["boxes"][row], boxes, atol=1e-5)
        np.testing.assert_allclose(found["landmarks"][row], marks, atol=1e-5)


def test_what_is_below_the_least_score_is_exactly_zero() -> None:
    model = with_peaks(centre_detector().normal("1,3,32,32"), Peaks(k=16, min_score=0.999999))
    found = run_model(model, sample_inputs(model))
    assert all(not array.any() for array in found.values())


def test_a_detector_without_landmarks_gives_boxes_and_scores() -> None:
    model = with_peaks(centre_detector(landmarks=False).normal("1,3,32,32"), Peaks(k=4))
    assert [spec.name for spec in model.outputs] == ["boxes", "scores"]


def test_maps_can_be_named_and_wrong_names_are_explained() -> None:
    model = centre_detector().normal("1,3,32,32")
    swapped = with_peaks(model, Peaks(k=4, min_score=0.01, scale="offset", offset="size"))
    plain = with_peaks(model, Peaks(k=4, min_score=0.01))
    inputs = sample_inputs(model)
    assert not np.allclose(run_model(swapped, inputs)["boxes"], run_model(plain, inputs)["boxes"])
    with pytest.raises(ModelError, match="heatmap=nope is no output"):
        with_peaks(model, Peaks(heatmap="nope"))
    with pytest.raises(ModelError, match="no output serves as heatmap"):
        with_peaks(model, Peaks(heatmap="size"))
    with pytest.raises(ModelError, match="no output serves as heatmap"):
        with_peaks(classifier().normal("1,3,16,16"), Peaks())
    with pytest.raises(ModelError, match="k=100 peaks of a map of 8x8 cells"):
        with_peaks(model, Peaks(k=100))


@pytest.mark.parametrize("softmax", [False, True])
def test_the_best_classes_are_named_with_their_scores(softmax: bool) -> None:
    model = classifier().normal("1,3,16,16")
    inputs = sample_inputs(model, 2)
    logits = run_model(model, inputs)["logits"]
    found = run_model(with_topk(model, TopK(3, softmax)), inputs)
    np.testing.assert_array_equal(found["classes"], np.argsort(-logits, axis=1)[:, :3])
    if softmax:
        logits = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(found["scores"], -np.sort(-logits, axis=1)[:, :3], rtol=1e-5)


def test_more_classes_than_there_are_and_other_outputs_are_refused() -> None:
    with pytest.raises(ModelError, match="k=8 of 7 classes"):
        with_topk(classifier().normal("1,3,16,16"), TopK(8))
    with pytest.raises(ModelError, match="one output of shape N,classes"):
        with_topk(centre_detector().normal("1,3,32,32"), TopK())


def own_post(name: str, opset: int = 17) -> Net:
    net = Net(opset=opset)
    net.input(name, ["n", 7])
    net.add("Abs", [name], "stem")  # a name that the model uses inside
    net.add("ReduceMax", ["stem"], "flat", axes=[1], keepdims=0)
    net.output("flat", ["n"])  # an output that the model has as an inner value
    return net


@pytest.mark.parametrize("opset", [13, 17])
def test_a_file_of_ones_own_goes_behind_and_names_do_not_meet(tmp_path: Path, opset: int) -> None:
    model = classifier().normal("1,3,16,16")
    path = own_post("scores_in", opset).save(tmp_path / "post.onnx")
    joined = with_postprocess(model, path)
    inputs = sample_inputs(model, 2)
    wanted = np.abs(run_model(model, inputs)["logits"]).max(1)
    np.testing.assert_allclose(run_model(joined, inputs)["flat"], wanted, rtol=1e-5)
    assert chained(joined, find_cuts(joined)) <= 1e-6


def test_a_file_whose_input_is_no_output_of_the_model_is_refused(tmp_path: Path) -> None:
    path = own_post("logits").save(tmp_path / "post.onnx")
    with pytest.raises(
        ModelError, match=r"post\.onnx: input 'logits' is no output of net\.onnx, which gives heat, size"
    ):
        with_postprocess(centre_detector().normal("1,3,32,32"), path)
    wrong = Net()
    wrong.input("logits", ["n", 7], TensorProto.INT64)
    wrong.add("Abs", ["logits"], "y")
    wrong.output("y", None, TensorProto.INT64)
    with pytest.raises(ModelError, match=r"is int64, but net\.onnx gives float32"):
        with_postprocess(classifier().normal("1,3,16,16"), wrong.save(tmp_path / "wrong.onnx"))


def test_the_texts_of_preprocessing_are_read() -> None:
    assert parse_preprocess("none") is None
    assert parse_preprocess("image") == ImageInput()
    assert parse_preprocess("image:mean=127.5,std=1/2/3,bgr") == ImageInput((127.5,) * 3, (1.0, 2.0, 3.0), True)


def test_the_texts_of_postprocessing_are_read() -> None:
    assert parse_postprocess("none") is None
    assert parse_postprocess("dir/own.onnx") == Path("dir/own.onnx")
    assert parse_postprocess("topk:k=3,softmax") == TopK(3, True)
    assert parse_postprocess("peaks") == Peaks()
    assert parse_postprocess("peaks:k=5,min_score=0.5,heatmap=537,exp=false") == Peaks(5, 0.5, "537", exp=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("picture", "expected none or image"),
        ("none:bgr", "unknown option 'bgr'"),
        ("image:mean=1/2", "three joined by '/'"),
        ("image:mean=x", "mean must be a number, not 'x'"),
        ("image:std=0", "std must not be 0"),
        ("image:bgr=yes", "bgr must be true or false, not 'yes'"),
        ("image:gamma=2", "unknown option 'gamma'; there are mean, std, bgr"),
        ("image:mean=", "is not KEY=VALUE"),
        ("image:bgr,bgr", "given twice"),
    ],
)
def test_a_misspelt_preprocessing_is_explained(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_preprocess(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nms", "expected none, peaks"),
        ("peaks:k=0", "k must be a positive whole number, not '0'"),
        ("peaks:min_score=0", "min_score must be above 0"),
        ("peaks:min_score=nan", "min_score must be a number"),
        ("topk:classes=3", "unknown option 'classes'; there are k, softmax"),
    ],
)
def test_a_misspelt_postprocessing_is_explained(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_postprocess(text)


def detector_recipe(folder: Path, **more: str) -> Recipe:
    path = centre_detector().save(folder / "faces.onnx")
    given = {"preprocess": "image:mean=127,std=60", "postprocess": "peaks:k=8,min_score=0.3", **more}
    return Recipe(path, ("1,3,32,32",), **given)


def outputs_of(model: Model, image: Array) -> dict[str, Array]:
    return run_model(model, {"image": image})


@pytest.mark.parametrize("rows", [1, 2])
def test_a_detector_from_pixels_to_peaks_is_cut_anywhere(tmp_path: Path, rows: int) -> None:
    whole = build(detector_recipe(tmp_path))
    assert whole.inputs == (TensorSpec("image", "uint8", (1, 32, 32, 3)),)
    assert [spec.name for spec in whole.outputs] == ["boxes", "scores", "landmarks"]
    assert whole.batchable
    found = find_cuts(whole)
    assert {"c1", "c2", "neck"} <= {cut.name for cut in found}
    assert chained(whole, found, rows) <= 1e-6
    assert chained(whole, [cut_at(whole, name) for name in ("c1", "c3", "neck")], rows) <= 1e-6


def test_pixels_laid_out_anew_or_as_floats_are_no_cut(tmp_path: Path) -> None:
    names = [cut.name for cut in find_cuts(build(detector_recipe(tmp_path, preprocess="image")))]
    assert names[:2] == ["input", "c1"]


def test_a_lower_resolution_keeps_the_interface_and_the_weights(tmp_path: Path) -> None:
    recipe = detector_recipe(tmp_path)
    whole, small = build(recipe), build_at_resolution(recipe, 16, 16)
    assert (small.inputs, small.outputs, small.batchable) == (whole.inputs, whole.outputs, True)
    assert small.digest != whole.digest

    def weights(model: Model) -> set[str]:
        return {t.name for part in split(model, []).parts for t in part.proto.graph.initializer if len(t.raw_data) > 64}

    assert weights(small) == weights(whole)
    image = pixels(1, 32)
    assert {name: array.shape for name, array in outputs_of(small, image).items()} == {
        name: array.shape for name, array in outputs_of(whole, image).items()
    }


def test_a_lower_resolution_runs_the_model_on_the_smaller_image(tmp_path: Path) -> None:
    recipe = detector_recipe(tmp_path, preprocess="image")
    small = build_at_resolution(recipe, 16, 16)
    direct = build(Recipe(recipe.path, ("1,3,16,16",), "none", recipe.postprocess))
    image = pixels(1, 32)
    halved = image.reshape(1, 16, 2, 16, 2, 3).mean((2, 4), dtype=np.float32).transpose(0, 3, 1, 2)
    wanted = run_model(direct, {direct.inputs[0].name: np.ascontiguousarray(halved)})
    for name, array in outputs_of(small, image).items():
        np.testing.assert_allclose(array, wanted[name], atol=1e-4)


def test_a_lower_resolution_needs_an_image_and_outputs_that_keep_their_shape(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs --preprocess image"):
        build_at_resolution(detector_recipe(tmp_path, preprocess="none"), 16, 16)
    with pytest.raises(ModelError, match="needs outputs that keep their shape"):
        build_at_resolution(detector_recipe(tmp_path, postprocess="none"), 16, 16)
    with pytest.raises(ModelError, match=r"faces\.onnx.*"):
        build_at_resolution(detector_recipe(tmp_path), 20, 20)
