"""A classifier's early exit: what is fitted, where it answers, and that the rest is not run where it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import Net, classifier
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioner.graph.early_exit import Exit, exit_place, with_exit
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from partitioner.graph.run import run_model, sample_inputs
from partitioner.graph.split import split
from partitioner.graph.weights import write_programs
from partitioner.ladder import judge
from partitioner.ladder.exits import exit_rung
from partitioner.ladder.logistic import choose_gate, fit_logistic
from partitioner.running import Tensors, load_file, load_part
from shared.errors import ModelError
from shared.request import TensorSpec

CLASSES = 7


def head(channels: int, gate: float, *, classes: int = CLASSES, seed: int = 4) -> Exit:
    random = np.random.default_rng(seed)
    weights = random.standard_normal((2 * channels, classes)).astype(np.float32)
    return Exit(weights, np.zeros(classes, np.float32), gate, probabilities=False)


def place_of(model: Model) -> TensorSpec:
    return exit_place(model, 0.5).tensors[0]


@pytest.fixture(scope="module")
def model() -> Model:
    return classifier().normal("1,3,16,16")


def fails_behind(place: str) -> Model:
    """A classifier of which everything behind `place` fails whenever it is run: it takes what lies outside a table."""
    net = classifier()
    net.outputs.clear()
    net.hold("table", np.zeros((1, CLASSES), np.float32))
    net.hold("far", np.array(1000, np.float32))
    net.hold("axes", np.array([1], np.int64))
    net.add("ReduceSum", ["logits", net.hold("one", np.array([1], np.int64))], "sum", keepdims=0)
    net.add("Mul", ["sum", net.hold("zero", np.array(0, np.float32))], "nought")
    net.add("Add", ["nought", "far"], "beyond")
    net.add("Cast", ["beyond"], "index", to=7)
    net.add("Gather", ["table", "index"], "taken", axis=0)
    net.output("taken", ["batch", CLASSES])
    read = net.read()
    return replace(
        read,
        inputs=(TensorSpec("x", "float32", (1, 3, 16, 16)),),
        outputs=(TensorSpec("taken", "float32", (1, CLASSES)),),
    )


def test_the_rest_is_not_run_where_the_exit_is_sure() -> None:
    broken = fails_behind("stem")
    stem = TensorSpec("stem", "float32", (1, 8, 8, 8))
    with pytest.raises(ModelError, match="out of data bounds"):
        run_model(broken, sample_inputs(broken))
    early = with_exit(broken, stem, head(8, gate=0.0))
    answer = run_model(early, sample_inputs(broken))["taken"]
    assert answer.shape == (1, CLASSES)
    with pytest.raises(ModelError, match="out of data bounds"):
        with_exit(broken, stem, head(8, gate=1.1))


def test_a_row_gets_the_exits_answer_where_that_is_sure_and_else_the_models(model: Model) -> None:
    place = place_of(model)
    always, never = (with_exit(model, place, head(place.shape[1], gate)) for gate in (0.0, 1.1))
    inputs = sample_inputs(model, rows=6, seed=3)
    exits, whole = run_model(always, inputs)["logits"], run_model(model, inputs)["logits"]
    np.testing.assert_allclose(run_model(never, inputs)["logits"], whole, rtol=1e-5, atol=1e-6)
    assert not np.allclose(exits, whole)
    chance = np.exp(exits) / np.exp(exits).sum(axis=1, keepdims=True)
    sureness = np.sort(chance.max(axis=1))
    gate = float((sureness[2] + sureness[3]) / 2)
    mixed = with_exit(model, place, head(place.shape[1], gate))
    sure = chance.max(axis=1, keepdims=True) >= gate
    assert 0 < int(sure.sum()) < 6
    wanted = np.where(sure, exits, whole)
    np.testing.assert_allclose(run_model(mixed, inputs)["logits"], wanted, rtol=1e-5, atol=1e-6)
    for row in range(6):
        one = {"x": inputs["x"][row : row + 1]}
        np.testing.assert_allclose(run_model(mixed, one)["logits"], wanted[row : row + 1], rtol=1e-5, atol=1e-6)


def test_a_written_exit_shares_the_models_weights(model: Model, tmp_path: Path) -> None:
    place = place_of(model)
    early = with_exit(model, place, head(place.shape[1], 0.3))
    _, program = write_programs({"whole": split(model, []), "exit": split(early, [])}, tmp_path)
    (segment,) = program.segments
    part = load_file(tmp_path / segment.file, segment.inputs, segment.outputs, 1)
    for seed in range(4):
        row = sample_inputs(model, seed=seed)
        wanted = run_model(early, row)["logits"]
        np.testing.assert_allclose(part((row["x"],))[0], wanted, rtol=1e-5, atol=1e-6)
    big = [t for t in model.proto.graph.initializer if np.prod(t.dims) * 4 > 1024]
    assert (tmp_path / "weights.bin").stat().st_size == sum(int(np.prod(t.dims)) * 4 for t in big)


def test_a_head_of_another_size_is_refused(model: Model) -> None:
    place = place_of(model)
    with pytest.raises(ModelError, match=rf"needs weights \[{2 * place.shape[1]}, 7\], got \[6, 7\]"):
        with_exit(model, place, head(3, 0.5))


# the rung


def tones(count: int, seed: int) -> list[Tensors]:
    """Rows of images of one tone each with little noise: easy ones."""
    random = np.random.default_rng(seed)
    colours = random.integers(0, 256, (count, 1, 1, 1, 3))
    noise = random.integers(-4, 5, (count, 1, 16, 16, 3))
    return [(row,) for row in np.clip(colours + noise, 0, 255).astype(np.uint8)]


@pytest.mark.parametrize("postprocess", ["none", "topk:k=3"])
def test_a_fitted_exit_agrees_on_held_out_rows(tmp_path: Path, postprocess: str) -> None:
    recipe = Recipe(
        classifier().save(tmp_path / "whole.onnx"), ("1,3,16,16",), "image:mean=127.5,std=64", postprocess=postprocess
    )
    whole = build(recipe)
    rung = exit_rung(recipe, whole, tones(64, 1))
    assert any(node.op_type == "If" for node in rung.proto.graph.node)
    assert (rung.inputs, rung.outputs, rung.batchable) == (whole.inputs, whole.outputs, True)
    held_out = tones(40, 2)
    answer = load_part(whole, 1)
    reference = [answer(row) for row in held_out]
    assert 0.8 <= judge(("exit", rung, load_part(rung, 1)), "top1", reference, held_out).agreement <= 1.0
    part = load_part(rung, 1)
    early = [not np.allclose(part(row)[0], wanted[0]) for row, wanted in zip(held_out, reference, strict=True)]
    assert np.mean(early) >= 0.2, "the exit answers some of them"


def test_too_few_rows_and_no_classifier_are_refused(tmp_path: Path) -> None:
    recipe = Recipe(classifier().save(tmp_path / "whole.onnx"), ("1,3,16,16",), "image")
    with pytest.raises(ModelError, match="at least 16 rows to be fitted to, got 3"):
        exit_rung(recipe, build(recipe), tones(3, 1))
    net = Net()
    net.input("x", ["n", 3, 8, 8])
    net.conv("x", "map", (3, 4))
    net.output("map", ["n", 4, 8, 8])
    other = Recipe(net.save(tmp_path / "maps.onnx"), ("1,3,8,8",))
    with pytest.raises(ModelError, match=r"one output of float32\[1, classes\]; it has map float32\[1, 4, 8, 8\]"):
        exit_rung(other, build(other), [(np.zeros((1, 3, 8, 8), np.float32),)] * 16)


def test_an_exit_that_is_hardly_ever_sure_is_refused(tmp_path: Path) -> None:
    net = Net()
    net.input("x", ["n", 3, 16, 16])
    net.add("Relu", [net.conv("x", "map.conv", (3, 4))], "map")
    net.add("Relu", [net.conv("map", "again.conv", (4, 4))], "again")
    net.add("Flatten", ["again"], "places", axis=1)  # where things lie decides, which no mean of a channel tells
    net.add("Gemm", ["places", net.hold("w", net.random.standard_normal((1024, 7)).astype(np.float32))], "logits")
    net.output("logits", ["n", 7])
    recipe = Recipe(net.save(tmp_path / "whole.onnx"), ("1,3,16,16",))
    random = np.random.default_rng(0)
    noise: list[Tensors] = [(random.standard_normal((1, 3, 16, 16)).astype(np.float32),) for _ in range(24)]
    with pytest.raises(ModelError, match=r"would be sure and right in \d+% of the rows, at least 20% are expected"):
        exit_rung(recipe, build(recipe), noise)


# the fit


def test_logistic_regression_finds_classes_apart_and_depends_on_no_scale() -> None:
    random = np.random.default_rng(1)
    classes = np.arange(60) % 3
    features = np.eye(3)[classes] * 4 + random.standard_normal((60, 3)) * 0.1
    fitted = fit_logistic(features, classes, 4)
    found = fitted.probabilities(features)
    assert (found.argmax(axis=1) == classes).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found[:, 3].max() < 0.1, "a class that never occurs is unlikely"
    scaled = fit_logistic(features * 1000 - 7, classes, 4).probabilities(features * 1000 - 7)
    np.testing.assert_allclose(scaled, found, atol=1e-4)


def test_a_feature_that_never_moves_does_no_harm() -> None:
    features = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 5.0], [1.0, 5.0]])
    found = fit_logistic(features, np.array([0, 0, 1, 1]), 2).probabilities(features)
    assert (found.argmax(axis=1) == [0, 0, 1, 1]).all()
    assert np.isfinite(found).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9]), st.booleans()), min_size=1, max_size=12))
def test_behind_the_gate_every_answer_was_right(rows: list[tuple[float, bool]]) -> None:
    sureness, right = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    gate = choose_gate(sureness, right)
    if gate is None:
        assert not right[sureness == sureness.max()].all()
        return
    assert right[sureness >= gate].all()
    lower = sureness[sureness < gate]
    if len(lower):
        assert not right[sureness >= lower.max()].all(), "and the gate stands no higher than it must"
