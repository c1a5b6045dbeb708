from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from partitioner.calibration import SYNTHETIC, crop_resized, divide, load_sources, probe_rows, synthetic_row
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
