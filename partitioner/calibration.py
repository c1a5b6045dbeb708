"""The data that a plan is fitted to and judged by: two sets that share no image.

int8 scales are fitted to one set, agreement is measured on the other; a number measured on what it was fitted to means
nothing. Users bring few images, so each gives many rows: seeded crops at seeded scales, but all of one image on one
side, since two crops of one picture are almost the same data. Which side an image goes to follows how much the whole
model finds in it, held-out first in each pair: a split by chance can leave the held-out side without a single
detection, and then nothing is measured at all.

Without data of the user's there is only seeded synthetic input. It serves to time and to prove exact ways, and is never
used to fit or to judge a lossy one: a network's answers to noise tell nothing about its answers to the world.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from shared.errors import UserError
from shared.request import Array, TensorSpec

Row = tuple[Array, ...]
"""One row of cut 0's tensors, in the plan's order."""

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})
MAX_IMAGES = 256
MAX_ROWS = 4096
SMALLEST_CROP = 0.4
ALIKE = 0.4
"""Share of the rows that goes to all images alike; the rest goes where the model finds something, or an agreement on
detections rests on a handful of them."""
SYNTHETIC = "seeded synthetic input (no --calibration): only exact ways are planned, nothing lossy can be judged by it"

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where rows come from: images of any size, or rows as they are. `real` is False for the built-in data."""

    label: str
    images: tuple[_Bytes, ...]
    rows: tuple[Row, ...]
    real: bool

    def __len__(self) -> int:
        return len(self.images) or len(self.rows)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Rows to fit to and rows to judge by. `label` tells a person what they are."""

    label: str
    fit: tuple[Row, ...]
    held_out: tuple[Row, ...]
    real: bool


def load_sources(path: Path | None, inputs: Sequence[TensorSpec], seed: int) -> Sources:
    """Sources from a folder of images, from an `.npz` with an array of rows for each input, or built in.

    Images serve only a model whose single input is a uint8 image of shape (1, height, width, 3). Raises `UserError`.
    """
    if path is None:
        return Sources(SYNTHETIC, (), tuple(synthetic_row(inputs, seed + i) for i in range(32)), real=False)
    if path.is_dir():
        return _load_images(path, inputs)
    if path.suffix == ".npz":
        return _load_rows(path, inputs)
    what = "neither a folder of images nor an .npz file" if path.exists() else "no such file or folder"
    raise UserError(f"calibration {path}: {what}")


def probe_rows(sources: Sources, inputs: Sequence[TensorSpec], seed: int, crops: int) -> list[list[Row]]:
    """A few rows of each source, by which `divide` is told how much the model finds in it."""
    if not sources.images:
        return [[row] for row in sources.rows]
    return [_crops(image, inputs[0], _generator(seed, index), crops) for index, image in enumerate(sources.images)]


def divide(
    sources: Sources, inputs: Sequence[TensorSpec], evidence: Sequence[float], seed: int, *, fit: int, held_out: int
) -> Calibration:
    """Divide the sources in two and make about `fit` and `held_out` rows of them. Raises `UserError` with fewer than two.

    `evidence` says for each source how much the model finds in it: they are dealt in that order, held-out first.
    """
    known = len(sources)
    if known < 2:
        raise UserError(f"calibration: {sources.label}, and at least 2 are needed, one to fit to and one to judge by")
    order = sorted(range(known), key=lambda index: (-evidence[index], index))
    sides = (order[1::2], order[0::2])
    sets: list[tuple[Row, ...]] = []
    for members, wanted in zip(sides, (fit, held_out), strict=True):
        if sources.images:
            counts = _shares([evidence[index] for index in members], wanted)
            rows = [
                row
                for index, count in zip(members, counts, strict=True)
                for row in _crops(sources.images[index], inputs[0], _generator(seed, index), count)
            ]
        else:
            rows = [sources.rows[index] for index in members][:wanted]
        sets.append(tuple(rows))
    return Calibration(sources.label, sets[0], sets[1], sources.real)


def is_image(inputs: Sequence[TensorSpec]) -> bool:
    """Whether cut 0 is one uint8 image of shape (1, height, width, 3)."""
    first = inputs[0]
    image = first.dtype == "uint8" and len(first.shape) == 4 and first.shape[0] == 1 and first.shape[3] == 3
    return len(inputs) == 1 and image


def crop_resized(image: _Bytes, box: tuple[float, float, float, float], size: tuple[int, int]) -> _Bytes:
    """The part of an image (height, width, 3) in `box` (left, top, right, bottom; pixels), resized to `size` (height,
    width), bilinear."""
    resized = Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BILINEAR, box=box)
    return np.asarray(resized, dtype=np.uint8)


def synthetic_row(inputs: Sequence[TensorSpec], seed: int) -> Row:
    """One seeded row: smooth noise for an image, normal noise for floats, 0 and 1 for whole numbers."""
    generator = np.random.default_rng([seed, 7])
    row: list[Array] = []
    for spec in inputs:
        kind = np.dtype(spec.dtype)
        if is_image([spec]):
            coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            smooth = crop_resized(coarse, (0, 0, 8, 8), (spec.shape[1], spec.shape[2])).astype(np.int16)
            grain = generator.integers(-8, 9, smooth.shape, dtype=np.int16)
            row.append(np.clip(smooth + grain, 0, 255).astype(np.uint8)[np.newaxis])
        elif kind.kind == "f":
            row.append(generator.standard_normal(spec.shape).astype(kind))
        else:
            row.append(generator.integers(0, 2, spec.shape).astype(kind))
    return tuple(row)


def _shares(evidence: Sequence[float], wanted: int) -> list[int]:
    """How many rows each image gives: a part to all alike, the rest to those in which the model finds something."""
    total = sum(evidence)
    alike = 1.0 if total <= 0 else ALIKE
    shares = [alike / len(evidence) + (1.0 - alike) * found / max(total, 1e-9) for found in evidence]
    return [max(1, math.ceil(wanted * share)) for share in shares]


def _generator(seed: int, index: int) -> np.random.Generator:
    return np.random.default_rng([seed, index])


def _crops(image: _Bytes, spec: TensorSpec, generator: np.random.Generator, count: int) -> list[Row]:
    """`count` rows of one image: first the largest centred crop of the input's aspect, then seeded places and scales."""
    size = (spec.shape[1], spec.shape[2])
    rows: list[Row] = []
    high, wide = image.shape[:2]
    largest = min(high / size[0], wide / size[1])
    for index in range(count):
        share = 1.0 if index == 0 else float(generator.uniform(SMALLEST_CROP, 1.0))
        height, width = largest * size[0] * share, largest * size[1] * share
        across, down = (0.5, 0.5) if index == 0 else (float(v) for v in generator.uniform(0.0, 1.0, 2))
        left, top = (wide - width) * across, (high - height) * down
        rows.append((crop_resized(image, (left, top, left + width, top + height), size)[np.newaxis],))
    return rows


def _load_images(path: Path, inputs: Sequence[TensorSpec]) -> Sources:
    if not is_image(inputs):
        raise UserError(
            f"calibration {path}: a folder of images needs --preprocess image; this model takes "
            f"{', '.join(f'{spec.name} {spec.dtype}{list(spec.shape)}' for spec in inputs)}: give an .npz of rows"
        )
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        raise UserError(f"calibration {path}: no image in it, expected files that end in {', '.join(sorted(SUFFIXES))}")
    images = tuple(_load_image(file) for file in files[:MAX_IMAGES])
    return Sources(f"{len(images)} images of {path.name}", images, (), real=True)


def _load_image(file: Path) -> _Bytes:
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"calibration image {file}: cannot be read ({error})") from error


def _load_rows(path: Path, inputs: Sequence[TensorSpec]) -> Sources:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"calibration {path}: cannot be read as .npz ({error})") from error
    count = MAX_ROWS
    for spec in inputs:
        array = arrays.get(spec.name)
        if array is None:
            raise UserError(
                f"calibration {path}: no array {spec.name!r}, only {', '.join(sorted(arrays)) or 'nothing'}"
            )
        if array.dtype != np.dtype(spec.dtype) or array.shape[1:] != spec.shape[1:] or array.ndim != len(spec.shape):
            raise UserError(
                f"calibration {path}: {spec.name!r} is {array.dtype}{list(array.shape)}, "
                f"expected {spec.dtype}{['rows', *spec.shape[1:]]}"
            )
        count = min(count, array.shape[0] // max(1, spec.shape[0]))
    rows = tuple(
        tuple(np.ascontiguousarray(arrays[spec.name][i * spec.shape[0] : (i + 1) * spec.shape[0]]) for spec in inputs)
        for i in range(count)
    )
    return Sources(f"{count} rows of {path.name}", (), rows, real=True)
