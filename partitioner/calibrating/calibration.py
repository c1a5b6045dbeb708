"""The data that a plan is fitted to and judged by: two sets that share no image.

int8 scales are fitted to one set, agreement is measured on the other; a number measured on what it was fitted to means
nothing. Users bring few images, so each gives many rows: seeded crops at seeded scales, but all of one image on one
side, since two crops of one picture are almost the same data; what is given twice counts once. Which side an image goes
to follows how much the whole model finds in it, held-out first in each pair: a split by chance can leave the held-out
side without a single detection, and then nothing is measured at all.

Without data of the user's there is only seeded synthetic input. It serves to time and to prove exact ways, and is never
used to fit or to judge a lossy one: a network's answers to noise tell nothing about its answers to the world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from partitioner.calibrating.labels import Label, class_folders, read_labels
from partitioner.calibrating.rows import MAX_BYTES, Row, call_rows, digest, most_rows, read_rows
from partitioner.extensions import names_function
from shared.errors import UserError
from shared.request import Array, TensorSpec

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})
MAX_IMAGES = 256
SMALLEST_CROP = 0.4
ALIKE = 0.4
"""Share of the rows that goes to all images alike; the rest goes where the model finds something, or an agreement on
detections rests on a handful of them."""
SYNTHETIC = "seeded synthetic input (no --calibration): only exact ways are planned, nothing lossy can be judged by it"

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where rows come from: images of any size, or rows as they are. `real` is False for the built-in data. `labels` are the
    user's, one for each source, or none at all."""

    label: str
    images: tuple[_Bytes, ...]
    rows: tuple[Row, ...]
    real: bool
    labels: tuple[Label, ...] = ()

    def __len__(self) -> int:
        return len(self.images) or len(self.rows)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Rows to fit to and rows to judge by. `label` tells a person what they are. `labels` are those of the held-out rows, one
    for each, where the user gave them."""

    label: str
    fit: tuple[Row, ...]
    held_out: tuple[Row, ...]
    real: bool
    labels: tuple[Label, ...] = ()


def load_sources(path: Path | None, inputs: Sequence[TensorSpec], seed: int, labels: Path | None = None) -> Sources:
    """Sources from a folder of images, from an `.npz` with an array of rows for each input, from a function `module:function`
    that yields rows (`partitioner.calibrating.rows`), or built in.

    Images serve only a model whose single input is a uint8 image of shape (1, height, width, 3). `labels` is an `.npz` with
    one entry for each row, or the folder of images itself, where its folders are named by classes
    (`partitioner.calibrating.labels`).
    Raises `UserError`.
    """
    if path is None:
        if labels is not None:
            raise UserError(f"labels {labels}: there is no --calibration that they could be of")
        return Sources(SYNTHETIC, (), tuple(synthetic_row(inputs, seed + i) for i in range(32)), real=False)
    if path.is_dir():
        return _distinct(_load_images(path, inputs, labels))
    if path.suffix == ".npz":
        rows, name = read_rows(path, inputs), path.name
    elif not path.exists() and names_function(str(path)):
        rows, name = call_rows(str(path), inputs), str(path)
    else:
        what = "neither a folder of images nor an .npz file" if path.exists() else "no such file or folder"
        raise UserError(f"calibration {path}: {what}")
    known = () if labels is None else read_labels(labels, len(rows), more=len(rows) == most_rows(inputs))
    return _distinct(Sources(f"{len(rows)} rows of {name}", (), rows, real=True, labels=known))


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
            counts = _counts(sources, [evidence[index] for index in members], wanted)
            rows = [
                row
                for index, count in zip(members, counts, strict=True)
                for row in _crops(sources.images[index], inputs[0], _generator(seed, index), count)
            ]
        else:
            rows = [sources.rows[index] for index in members][:wanted]
        sets.append(tuple(rows))
    labels = tuple(sources.labels[index] for index in sides[1][: len(sets[1])]) if sources.labels else ()
    return Calibration(sources.label, sets[0], sets[1], sources.real, labels)


def _counts(sources: Sources, evidence: Sequence[float], wanted: int) -> list[int]:
    """Rows of each image. A label is that of the whole image, of which one row is made then."""
    if sources.labels:
        return [1 if index < wanted else 0 for index in range(len(evidence))]
    return _shares(evidence, wanted)


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


def _load_images(path: Path, inputs: Sequence[TensorSpec], labels: Path | None) -> Sources:
    if not is_image(inputs):
        raise UserError(
            f"calibration {path}: a folder of images needs --preprocess image; this model takes "
            f"{', '.join(f'{spec.name} {spec.dtype}{list(spec.shape)}' for spec in inputs)}: give an .npz of rows"
        )
    if labels is None:
        classes = [(file, -1) for file in _files(path)[:MAX_IMAGES]]
    elif labels.resolve() == path.resolve():
        classes = _dealt([(number, _files(folder)) for number, folder in class_folders(path).items()])[:MAX_IMAGES]
    else:
        raise UserError(
            f"labels {labels}: images take their labels from the folders that they lie in, named by the class's number; "
            f"expected {path} itself"
        )
    images: list[_Bytes] = []
    held = 0
    for file, _ in classes:
        image = _load_image(file)
        held += image.nbytes
        if held > MAX_BYTES and images:
            break
        images.append(image)
    known = tuple({"class": np.array([number], np.int64)} for _, number in classes[: len(images)] if number >= 0)
    return Sources(f"{len(images)} images of {path.name}", tuple(images), (), real=True, labels=known)


def _files(path: Path) -> list[Path]:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        raise UserError(f"calibration {path}: no image in it, expected files that end in {', '.join(sorted(SUFFIXES))}")
    return files


def _dealt(classes: Sequence[tuple[int, Sequence[Path]]]) -> list[tuple[Path, int]]:
    """Files with their classes, one of each class in turn, so that those that are left out are of no class in particular."""
    longest = max(len(files) for _, files in classes)
    return [(files[turn], number) for turn in range(longest) for number, files in classes if turn < len(files)]


def _load_image(file: Path) -> _Bytes:
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise UserError(f"calibration image {file}: cannot be read ({error})") from error


def _distinct(sources: Sources) -> Sources:
    """The sources without those that are given twice: one to fit to and the same to judge by would prove nothing."""
    contents = [digest((image,)) for image in sources.images] or [digest(row) for row in sources.rows]
    first: dict[bytes, int] = {}
    for index, content in enumerate(contents):
        first.setdefault(content, index)
    kept = sorted(first.values())
    if len(kept) == len(contents):
        return sources
    return Sources(
        f"{sources.label}, {len(contents) - len(kept)} of them given twice",
        tuple(sources.images[index] for index in kept if sources.images),
        tuple(sources.rows[index] for index in kept if sources.rows),
        sources.real,
        tuple(sources.labels[index] for index in kept if sources.labels),
    )
