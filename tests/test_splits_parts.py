"""What the study of when to split is made from: post-processing, judges, sentences, spectra, pictures, and its measuring."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from graphs import Net, classifier

import hil.splits.measure
from hil.splits import judges, posts, rows
from hil.splits.findings import FORMAT, Findings, decode_findings, encode_findings
from hil.splits.measure import measure, unsteadiness
from hil.splits.pictures import PHOTOGRAPHS, load_photographs, plate_picture
from hil.splits.sentences import WordPieces, sentences_of
from hil.splits.speech import RATE_HZ, spectrum
from hil.splits.subjects import SUBJECTS, Subject
from partitioner.extensions import load_function, open_metric
from partitioner.graph.compose import join
from partitioner.graph.load import load_model
from partitioner.graph.normalise import normalise
from partitioner.running import load_part
from shared.errors import ModelError
from shared.request import Array


def behind(net: Net, post: posts.Post, tmp_path: Path, value: Array) -> dict[str, Array]:
    """What a model gives that passes its input on, with a post-processing behind it that went through its file."""
    model = net.normal()
    path = posts.write_post(post, model, tmp_path / "behind.onnx")
    second = load_model(path)
    wires = {spec.name: spec.name for spec in model.outputs}
    shapes = {spec.name: spec.shape for spec in model.outputs}
    return load_part(join(model, normalise(second, shapes), wires), 1).named((value,))


def passing(name: str, *shape: int, side: int = 0) -> Net:
    """An input of (1, 3, side, side) of which nothing but the shape counts, or `shape` itself, passed on as `name`."""
    net = Net()
    net.input("x", list(shape))
    net.add("Identity", ["x"], name)
    net.output(name, list(shape))
    return net


def test_a_readers_letters_are_the_best_symbol_of_each_step(tmp_path: Path) -> None:
    scores = np.random.default_rng(1).random((1, 6, 9), np.float32)
    found = behind(passing("scores", 1, 6, 9), posts.letters, tmp_path, scores)
    np.testing.assert_array_equal(found["letters"], scores.argmax(axis=2))


def test_a_map_of_text_is_packed_so_that_its_judge_reads_the_same_pixels(tmp_path: Path) -> None:
    heat = np.random.default_rng(2).random((1, 1, 16, 16), np.float32)
    found = behind(passing("heat", 1, 1, 16, 16), posts.text_map, tmp_path, heat)
    assert found["text"].dtype == np.uint8
    assert found["text"].shape == (1, 1, 16, 2)
    np.testing.assert_array_equal(np.unpackbits(found["text"], axis=-1), heat >= posts.TEXT_THRESHOLD)


def test_the_mean_of_words_is_that(tmp_path: Path) -> None:
    words = np.random.default_rng(3).random((1, 5, 4), np.float32)
    found = behind(passing("words", 1, 5, 4), posts.mean_of_words, tmp_path, words)
    np.testing.assert_allclose(found["embedding"], words.mean(axis=1), rtol=1e-6)


SIDE = 64
CELLS = sum((SIDE // stride) ** 2 for stride in posts.STRIDES)


def detector(outputs: dict[str, tuple[int, ...]]) -> Net:
    """A model of an image whose outputs are cut from the image's values, row by row."""
    net = Net()
    net.input("image", [1, 3, SIDE, SIDE])
    net.add("Reshape", ["image", net.hold("flat.shape", np.array([1, -1], np.int64))], "flat")
    start = 0
    for name, shape in outputs.items():
        size = int(np.prod(shape))
        ends = [net.hold(f"{name}.{n}", np.array([v], np.int64)) for n, v in enumerate((start, start + size, 1))]
        net.add("Slice", ["flat", *ends], f"{name}.flat")
        net.add("Reshape", [f"{name}.flat", net.hold(f"{name}.shape", np.array(shape, np.int64))], name)
        net.output(name, list(shape))
        start += size
    return net


def image_of(*arrays: Array) -> Array:
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    image = np.zeros(3 * SIDE * SIDE, np.float32)
    image[: len(flat)] = flat
    return image.reshape(1, 3, SIDE, SIDE)


def test_the_best_box_of_a_yolox_is_decoded_by_its_cell_and_stride(tmp_path: Path) -> None:
    output = np.zeros((1, CELLS, 6), np.float32)
    cell = 64 + 5  # the second grid (stride 16) begins after 64 cells; its row 1, column 1
    output[0, cell] = [0.5, 0.25, np.log(2.0), np.log(3.0), 0.9, 0.8]
    found = behind(detector({"output": output.shape}), posts.yolox_boxes, tmp_path, image_of(output))
    assert found["scores"][0, 0] == pytest.approx(0.72)
    centre, size = np.array([1.5 * 16, 1.25 * 16]), np.array([32.0, 48.0])
    np.testing.assert_allclose(found["boxes"][0, 0], [*(centre - size / 2), *(centre + size / 2)], rtol=1e-5)


def test_the_best_box_of_the_plate_detector_is_decoded_by_its_anchor(tmp_path: Path) -> None:
    anchors = 2 * CELLS
    loc, conf = np.zeros((1, anchors, 4), np.float32), np.zeros((1, anchors, 2), np.float32)
    place = 2 * (64 + 5) + 1  # stride 16, row 1, column 1, the larger of its two sides
    loc[0, place], conf[0, place] = [1.0, -0.5, np.log(2.0) / 0.2, 0.0], [0.1, 0.9]
    net = detector({"loc": loc.shape, "conf": conf.shape})
    found = behind(net, posts.plate_boxes, tmp_path, image_of(loc, conf))
    assert found["scores"][0, 0] == pytest.approx(0.9)
    side = posts.PLATE_SIDES[1][1]
    centre = np.array([1.5 * 16 + 0.1 * side, 1.5 * 16 - 0.05 * side])
    size = np.array([2.0 * side, side])
    np.testing.assert_allclose(found["boxes"][0, 0], [*(centre - size / 2), *(centre + size / 2)], rtol=1e-4)


# --- judges ---


def boxes(*found: tuple[float, float, float, float, float]) -> dict[str, Array]:
    table = np.array(found, np.float32).reshape(1, -1, 5)
    return {"boxes": table[..., :4], "scores": table[..., 4]}


def test_a_box_that_overlaps_a_better_one_counts_for_nothing() -> None:
    one, twice = boxes((0, 0, 10, 10, 0.9)), boxes((0, 0, 10, 10, 0.9), (1, 0, 11, 10, 0.8), (30, 30, 40, 40, 0.4))
    assert judges.boxes([one], [twice]) == 1.0
    assert judges.boxes([one], [boxes((5, 0, 15, 10, 0.9))]) == 0.0


def test_readings_are_compared_by_what_is_read_without_blanks_and_repeats() -> None:
    def read(*symbols: int) -> dict[str, Array]:
        return {"letters": np.array([symbols], np.int64)}

    assert judges.letters([read(0, 7, 7, 0, 6000)], [read(7, 0, 0, 6000, 6000)]) == 1.0
    assert judges.letters([read(1, 2, 3, 4)], [read(1, 2, 3, 5)]) == pytest.approx(0.75)


def test_turns_are_compared_by_the_decision_and_not_by_the_probability() -> None:
    said = [{"logits": np.array([[p]], np.float32)} for p in (0.1, 0.6, 0.9, 0.4)]
    other = [{"logits": np.array([[p]], np.float32)} for p in (0.4, 0.9, 0.4, 0.1)]
    assert judges.turn_ends(said, other) == 0.75


def test_maps_of_text_are_compared_by_their_areas() -> None:
    full, half = ({"text": np.array([[[[value]]]], np.uint8)} for value in (0b11110000, 0b11000000))
    assert judges.text_map([full], [full]) == 1.0
    assert judges.text_map([full], [half]) == pytest.approx((2 / 4 + 4 / 6) / 2)


# --- what the models are shown ---


def test_words_become_the_longest_pieces_that_are_known_and_passages_are_full() -> None:
    known = ["[UNK]", "[CLS]", "[SEP]", "un", "##break", "##able", "##b", ".", "cafe", "a"]
    pieces = WordPieces({piece: number for number, piece in enumerate(known)})
    assert [known[n] for n in pieces.encode("Unbreakable café. xyz")] == [
        "un",
        "##break",
        "##able",
        "cafe",
        ".",
        "[UNK]",
    ]
    (first, second) = pieces.passages(["a a a", "cafe."], 4)
    assert [known[n] for n in first[0]] == ["[CLS]", "a", "a", "[SEP]"]
    assert [known[n] for n in second[0]] == ["[CLS]", "a", "cafe", "[SEP]"]


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {}}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.json: no tokenizer of word pieces"):
        WordPieces.read(path)


def test_what_is_judged_by_and_what_is_fitted_to_share_nothing() -> None:
    assert not set(PHOTOGRAPHS["judge"]) & set(PHOTOGRAPHS["fit"])
    judged, fitted = set(sentences_of("judge")), set(sentences_of("fit"))
    assert len(judged) > 200
    assert len(fitted) > 200
    assert not judged & fitted


def test_a_picture_is_that_of_its_seed_and_of_its_side() -> None:
    seen = load_photographs("judge")
    one, same, other = (plate_picture(np.random.default_rng(seed), seen, 96) for seed in (1, 1, 2))
    assert one.shape == (1, 96, 96, 3)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_tone_is_brightest_in_the_mel_band_that_it_falls_into() -> None:
    time_s = np.arange(2 * RATE_HZ) / RATE_HZ
    low, high = (spectrum(np.sin(2 * np.pi * hertz * time_s)) for hertz in (300.0, 3000.0))
    assert low.shape == (1, 80, 800)
    assert low.dtype == np.float32
    # 300 Hz is 4.5 mel, 3 kHz is 15 + 27 ln 3 / ln 6.4 = 30.98 mel of 45.25 in 81 steps
    assert int(low[0, :, 700].argmax()) == pytest.approx(4.5 / (45.25 / 81) - 1, abs=1)
    assert int(high[0, :, 700].argmax()) == pytest.approx(30.98 / (45.25 / 81) - 1, abs=1)
    assert low[0, :, 100].max() < low[0, :, 700].max()


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_subject_names_rows_and_a_judge_that_exist(subject: Subject) -> None:
    assert load_function(subject.rows, "rows")
    assert open_metric(subject.judge).name == subject.judge
    assert subject.judged <= rows.ROWS // 2


# --- measuring ---


def squares() -> Iterator[Array]:
    """Rows for the small model: 24 noisy squares."""
    for seed in range(24):
        random = np.random.default_rng(seed)
        image = np.full((1, 16, 16, 3), random.integers(0, 200), np.uint8)
        image[0, 4:12, 4:12] += random.integers(0, 56, (8, 8, 3), dtype=np.uint8)
        yield image


def test_a_model_is_measured_by_every_road_and_comes_back_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = classifier()
    path = net.save(tmp_path / "small.onnx")
    entry = SimpleNamespace(
        shapes=("1,3,16,16",), path=lambda cache: path, normal=lambda cache: net.normal("1,3,16,16")
    )
    monkeypatch.setattr(hil.splits.measure, "zoo_model", lambda name: entry)
    told: list[str] = []
    words = ("Small", "image:mean=127.5,std=127.5", None, f"{__name__}:squares", "top1", 8, 2)
    subject = Subject("small", *words, takes="", gives="", data="", counts="")
    found = measure(subject, tmp_path, 0.0, told.append, cadence_hz=1000.0)
    assert decode_findings(encode_findings(Findings(FORMAT, (found,))), "here").models == (found,)
    assert {way.road for way in found.ways} == {"device", "raw", "coded", "split"}
    assert found.rows_judged == 8
    assert 1 <= len(found.cuts) <= 2
    assert all(not cut.name.startswith("pre/") for cut in found.cuts)
    assert {way.cut for way in found.ways if way.kind == "split"} == {cut.name for cut in found.cuts}
    assert all(way.exposes for way in found.ways if way.kind == "input")
    assert {"jpeg75", "jpeg90", "jpeg95", "qoi"} <= {way.coding for way in found.ways if way.road == "coded"}
    assert all(way.head_us > 0.0 for way in found.ways if way.kind != "input")
    assert found.runs >= 8


def test_unsteadiness_is_what_two_halves_of_the_runs_differ_by() -> None:
    assert unsteadiness([[10.0, 10.0, 11.0, 11.0]]) == pytest.approx(1 / 11)
    assert unsteadiness([[5.0, 5.0, 5.0, 5.0], [7.0]]) == 0.0
    assert unsteadiness([]) == 0.0
