from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from partitioner.calibrating import rows as calibration_rows
from partitioner.calibrating.calibration import SYNTHETIC, crop_resized, divide, load_sources, probe_rows, synthetic_row
from partitioner.extensions import open_metric
from shared.errors import UserError
from shared.request import TensorSpec

IMAGE = (TensorSpec("image", "uint8", (1, 16, 24, 3)),)
FLOATS = (TensorSpec("x", "float32", (1, 4)),)


def folder(path: Path, count: int) -> Path:
    """Images of one flat value each, so that a row tells which image it is of."""
    for index in range(count):
        Image.fromarray(np.full((40 + index, 60, 3), 10 * (index + 1), np.uint8)).save(path / f"{index}.png")
    return path


def test_fit_and_held_out_rows_share_no_image(tmp_path: Path) -> None:
    sources = load_sources(folder(tmp_path, 5), IMAGE, seed=0)
    data = divide(sources, IMAGE, [1.0] * 5, seed=0, fit=6, held_out=9)
    fit = {int(row[0].flat[0]) for row in data.fit}
    held = {int(row[0].flat[0]) for row in data.held_out}
    assert fit
    assert held
    assert not fit & held
    assert len(data.held_out) >= 9
    assert all(row[0].shape == (1, 16, 24, 3) and row[0].dtype == np.uint8 for row in data.fit + data.held_out)


def test_the_image_with_the_most_evidence_is_held_out(tmp_path: Path) -> None:
    sources = load_sources(folder(tmp_path, 3), IMAGE, seed=0)
    data = divide(sources, IMAGE, [0.0, 0.0, 4.0], seed=0, fit=2, held_out=4)
    assert 30 in {int(row[0].flat[0]) for row in data.held_out}


def test_the_same_seed_gives_the_same_rows_and_another_others(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for index in range(2):
        Image.fromarray(generator.integers(0, 255, (50, 50, 3), dtype=np.uint8)).save(tmp_path / f"{index}.png")
    sources = load_sources(tmp_path, IMAGE, seed=0)

    def rows(seed: int) -> list[bytes]:
        data = divide(sources, IMAGE, [1.0, 1.0], seed, fit=3, held_out=3)
        return [row[0].tobytes() for row in data.held_out]

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)
    assert len(set(rows(1))) == 3


def test_probes_are_some_rows_of_every_source(tmp_path: Path) -> None:
    sources = load_sources(folder(tmp_path, 3), IMAGE, seed=0)
    assert [len(rows) for rows in probe_rows(sources, IMAGE, 0, crops=2)] == [2, 2, 2]


def test_one_image_is_not_enough(tmp_path: Path) -> None:
    sources = load_sources(folder(tmp_path, 1), IMAGE, seed=0)
    with pytest.raises(UserError, match="at least 2"):
        divide(sources, IMAGE, [1.0], 0, fit=1, held_out=1)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(UserError, match="no image in it"):
        load_sources(tmp_path, IMAGE, 0)


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"not an image")
    with pytest.raises(UserError, match=r"broken\.png"):
        load_sources(tmp_path, IMAGE, 0)


def test_images_need_an_image_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--preprocess image"):
        load_sources(folder(tmp_path, 2), FLOATS, 0)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        load_sources(tmp_path / "nowhere", IMAGE, 0)


def test_rows_come_from_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, x=np.arange(24, dtype=np.float32).reshape(6, 4))
    sources = load_sources(path, FLOATS, 0)
    data = divide(sources, FLOATS, [1.0] * 6, 0, fit=9, held_out=9)
    assert len(data.fit) == len(data.held_out) == 3
    assert data.real
    values = [float(row[0][0, 0]) for row in data.fit + data.held_out]
    assert sorted(values) == [0, 4, 8, 12, 16, 20]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.zeros((4, 4), np.float32)}, "no array 'x'"),
        ({"x": np.zeros((4, 5), np.float32)}, "expected float32"),
        ({"x": np.zeros((4, 4), np.float64)}, "expected float32"),
    ],
)
def test_an_npz_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=words):
        load_sources(path, FLOATS, 0)


@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (np.inf, "an infinity"), (-np.inf, "an infinity")])
def test_an_npz_with_no_numbers_in_it_is_refused_by_row_and_input(tmp_path: Path, value: float, words: str) -> None:
    rows = np.zeros((6, 4), np.float32)
    rows[3, 2] = value
    np.savez(tmp_path / "rows.npz", x=rows)
    with pytest.raises(UserError, match=rf"rows\.npz: 'x': row 3 holds {words}: expected finite numbers"):
        load_sources(tmp_path / "rows.npz", FLOATS, 0)


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    path.write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(UserError, match="cannot be read"):
        load_sources(path, FLOATS, 0)


def test_built_in_rows_are_said_to_be_synthetic() -> None:
    sources = load_sources(None, (*FLOATS, TensorSpec("ids", "int64", (1, 3))), 0)
    assert not sources.real
    assert sources.label == SYNTHETIC
    first, second = sources.rows[0], sources.rows[1]
    assert first[0].dtype == np.float32
    assert set(first[1].flat) <= {0, 1}
    assert first[0].tobytes() != second[0].tobytes()
    assert synthetic_row(IMAGE, 3)[0].std() > 5


def test_a_crop_shows_the_part_that_was_asked_for() -> None:
    image = np.zeros((20, 20, 3), np.uint8)
    image[10:, 10:] = 200
    assert crop_resized(image, (12, 12, 20, 20), (4, 4)).min() == 200
    assert crop_resized(image, (0, 0, 8, 8), (4, 4)).max() == 0


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 4), min_size=2, max_size=12), st.integers(0, 5))
def test_nothing_is_judged_by_what_it_was_fitted_to(tmp_path: Path, values: list[int], seed: int) -> None:
    rows = np.repeat(np.array(values, np.float32)[:, None], 4, axis=1)
    sources = load_sources(saved(tmp_path / "rows.npz", x=rows), FLOATS, 0)
    assert len(sources) == len(set(values))
    if len(sources) < 2:
        with pytest.raises(UserError, match="at least 2 are needed"):
            divide(sources, FLOATS, [1.0], seed, fit=9, held_out=9)
        return
    data = divide(sources, FLOATS, [float(seed + i) for i in range(len(sources))], seed, fit=9, held_out=9)
    fit, held = ({row[0].tobytes() for row in side} for side in (data.fit, data.held_out))
    assert fit
    assert held
    assert not fit & held


def test_an_image_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    folder(tmp_path, 2)
    (tmp_path / "again.png").write_bytes((tmp_path / "0.png").read_bytes())
    sources = load_sources(tmp_path, IMAGE, 0)
    assert len(sources) == 2
    assert sources.label.endswith("3 images of " + tmp_path.name + ", 1 of them given twice")


# rows of a function


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of the user's with functions that yield rows, right and wrong ones, and a metric."""
    name = "rows_of_" + "".join(c for c in tmp_path.name if c.isalnum())
    (tmp_path / f"{name}.py").write_text(
        """
import itertools
import numpy as np

TAKEN = []
two = 2

def right():
    held = np.zeros((1, 4), np.float32)
    for number in range(6):
        held[:] = number
        yield {"x": held}

def bare():
    return [np.full((1, 4), number, np.float32) for number in range(3)]

def endless():
    for number in itertools.count():
        TAKEN.append(number)
        yield np.full((1, 4), number, np.float32)

def wide():
    yield np.zeros((1, 4), np.float32)
    yield np.zeros((1, 5), np.float32)

def double():
    yield {"x": np.zeros((1, 4))}

def other():
    yield {"y": np.zeros((1, 4), np.float32)}

def listed():
    yield [0.0, 0.0, 0.0, 0.0]

def none():
    return iter(())

def number():
    return 3

def holes():
    yield np.zeros((1, 4), np.float32)
    yield np.array([[0, 1, np.nan, 3]], np.float32)

def endless_numbers():
    yield np.array([[0, 1, -np.inf, 3]], np.float32)

def fails():
    yield np.zeros((1, 4), np.float32)
    raise OSError("the disk is gone")

def same(reference, other):
    return float(all((a["y"] == b["y"]).all() for a, b in zip(reference, other)))
"""
    )
    (tmp_path / f"{name}_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(("function", "count"), [("right", 6), ("bare", 3)])
def test_a_function_yields_rows(mine: str, function: str, count: int) -> None:
    sources = load_sources(Path(f"{mine}:{function}"), FLOATS, 0)
    assert sources.real
    assert sources.label == f"{count} rows of {mine}:{function}"
    assert [float(row[0][0, 0]) for row in sources.rows] == list(range(count))


def test_an_endless_function_is_asked_for_no_more_than_is_kept(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_rows, "MAX_BYTES", 10 * 16)
    sources = load_sources(Path(f"{mine}:endless"), FLOATS, 0)
    assert len(sources) == 10
    taken = importlib.import_module(mine).TAKEN
    assert taken == list(range(10))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("wide", r"row 1: 'x' is float32\[1, 5\], expected float32\[1, 4\]"),
        ("double", r"row 0: 'x' is float64\[1, 4\], expected float32\[1, 4\]"),
        ("other", r"row 0: no array 'x', only y"),
        ("listed", r"row 0: 'x' is list, expected a numpy array"),
        ("holes", r"row 1: 'x' holds NaN: expected finite numbers"),
        ("endless_numbers", r"row 0: 'x' holds an infinity: expected finite numbers"),
        ("none", r"yielded no row"),
        ("number", r"returned int, expected rows to iterate over"),
        ("fails", r"failed after 1 rows: OSError: the disk is gone"),
        ("missing", r"has no function 'missing'"),
        ("two", r"has no function 'two'"),
    ],
)
def test_what_a_function_yields_is_checked(mine: str, function: str, words: str) -> None:
    with pytest.raises(UserError, match=f"calibration '{mine}:{function}'.*{words}"):
        load_sources(Path(f"{mine}:{function}"), FLOATS, 0)


def test_a_model_of_several_inputs_needs_them_by_name(mine: str) -> None:
    with pytest.raises(UserError, match=r"row 0 is ndarray, expected a mapping with x, mask"):
        load_sources(Path(f"{mine}:bare"), (*FLOATS, TensorSpec("mask", "bool", (1, 2))), 0)


def test_a_module_that_is_not_there_or_fails_is_named(mine: str) -> None:
    with pytest.raises(UserError, match=r"there is no module 'nowhere_at_all'; expected one that is installed"):
        load_sources(Path("nowhere_at_all:rows"), FLOATS, 0)
    with pytest.raises(UserError, match=r"the module fails with ZeroDivisionError"):
        load_sources(Path(f"{mine}_broken:rows"), FLOATS, 0)


def test_a_metric_is_opened_by_name_or_function(mine: str) -> None:
    metric = open_metric(f"{mine}:same")
    row = {"y": np.ones(2)}
    assert metric.name == f"{mine}:same"
    assert metric.judge([row], [row]) == 1.0
    assert open_metric("text:blank=last").name == "text:blank=last"
    with pytest.raises(UserError, match="has no function 'nothing'"):
        open_metric(f"{mine}:nothing")
    with pytest.raises(UserError, match=r"'toq1' is unknown.*did you mean 'top1'"):
        open_metric("toq1")


# labels


def test_labels_stay_with_their_rows(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    rows = saved(tmp_path / "rows.npz", x=np.repeat(values[:, None], 4, axis=1))
    labels = saved(tmp_path / "labels.npz", **{"class": np.arange(6) * 10})
    sources = load_sources(rows, FLOATS, 0, labels)
    data = divide(sources, FLOATS, [3.0, 1, 5, 2, 4, 0], 0, fit=9, held_out=2)
    assert [
        (float(row[0][0, 0]), int(label["class"][0])) for row, label in zip(data.held_out, data.labels, strict=True)
    ] == [
        (2.0, 20),
        (0.0, 0),
    ]


def test_labels_must_be_as_many_as_rows(tmp_path: Path) -> None:
    rows = saved(tmp_path / "rows.npz", x=np.zeros((6, 4), np.float32))
    with pytest.raises(UserError, match=r"labels .*'class' is int64\[5\], expected 6 rows of it"):
        load_sources(rows, FLOATS, 0, saved(tmp_path / "labels.npz", **{"class": np.arange(5)}))
    with pytest.raises(UserError, match="no such file"):
        load_sources(rows, FLOATS, 0, tmp_path / "nothing.npz")
    with pytest.raises(UserError, match="no --calibration"):
        load_sources(None, FLOATS, 0, tmp_path / "labels.npz")


def test_labels_of_images_are_their_folders(tmp_path: Path) -> None:
    for number in (3, 17):
        (tmp_path / str(number)).mkdir()
        for index in range(2):
            Image.fromarray(np.full((40, 60, 3), 10 * number + index, np.uint8)).save(
                tmp_path / str(number) / f"{index}.png"
            )
    sources = load_sources(tmp_path, IMAGE, 0, tmp_path)
    data = divide(sources, IMAGE, [1.0] * 4, 0, fit=9, held_out=9)
    assert len(data.fit) == len(data.held_out) == len(data.labels) == 2
    for row, label in zip(data.held_out, data.labels, strict=True):
        assert int(row[0].flat[0]) // 10 == int(label["class"][0])
    with pytest.raises(UserError, match=r"labels .*expected .* itself"):
        load_sources(tmp_path, IMAGE, 0, tmp_path / "3")


def test_images_without_folders_of_classes_have_no_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected folders named by the number of the class"):
        load_sources(folder(tmp_path, 2), IMAGE, 0, tmp_path)
