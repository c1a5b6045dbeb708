"""Rows for the models of `hil.ladders`, as functions that `--calibration module:function` takes, and rungs for those that
take lines.

Rows are judged by and fitted to in turn, beginning with one that is judged by, as in `hil.splits.rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hil.frames import make_frames
from hil.splits.pictures import line_picture, load_photographs
from hil.splits.rows import SIDES
from hil.splits.sentences import sentences_of
from partitioner.graph.builder import Builder
from partitioner.graph.compose import join
from partitioner.graph.load import load_model
from partitioner.graph.model import Model
from partitioner.graph.normalise import normalise
from shared.request import Array

ROWS = 96
SEED = 31
FACES_SIZE = 320
LABEL_SIZE = 48, 192
READER_AXES = 3
"""An answer of a reader is of the shape (1, steps, symbols)."""
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}


def faces() -> Iterator[Array]:
    """Crops of photographs, most of which show one face once or more, (1, 320, 320, 3). Both sides see the same face."""
    return (frame.pixels for frame in make_frames(ROWS, FACES_SIZE, FACES_SIZE, SEED))


def labels_of_text() -> Iterator[Array]:
    """Single lines of text over parts of photographs, every other pair upside down, (1, 48, 192, 3)."""
    seen, said = {side: load_photographs(side) for side in SIDES}, {side: sentences_of(side) for side in SIDES}
    for number in range(ROWS):
        side = SIDES[number % 2]
        row = line_picture(np.random.default_rng([SEED, number]), seen[side], *LABEL_SIZE, said[side])
        yield row if number % 4 < 2 else np.ascontiguousarray(row[:, ::-1, ::-1])


def three_quarters(model: Path, rows: Sequence[Mapping[str, Array]], folder: Path) -> Path:
    """A rung: a model of lines on lines of three quarters of their width."""
    return _narrowed(model, rows, folder, 0.75)


def half(model: Path, rows: Sequence[Mapping[str, Array]], folder: Path) -> Path:
    """A rung: a model of lines on lines of half their width."""
    return _narrowed(model, rows, folder, 0.5)


def _narrowed(path: Path, rows: Sequence[Mapping[str, Array]], folder: Path, share: float) -> Path:
    """A model of lines that are squeezed first. A reader's answer has fewer steps then; each stands as often as it takes to
    fill the whole's, which changes nothing that is read: what is the same twice in a row is read once."""
    (image,) = rows[0].values()
    height, width = image.shape[1:3]
    read = load_model(path)
    name = read.inputs[0].name
    small = normalise(read, {name: (1, 3, height, round(width * share))})
    steps = normalise(read, {name: (1, 3, height, width)}).outputs[0].shape[1]
    front = Builder("squeeze", small.opset)
    squeezed = front.add(
        "Resize",
        front.input(name, "float32", (1, 3, height, width)),
        "",
        front.constant(np.array([1.0, 1.0, 1.0, share], np.float32)),
        **LINEAR,
    )
    made = join(front.model([squeezed], small.batchable), small, {name: squeezed})
    target = folder / "narrow.onnx"
    whole = made if len(made.outputs[0].shape) < READER_AXES else _stretched(made, steps)
    target.write_bytes(whole.proto.SerializeToString())
    return target


def _stretched(model: Model, steps: int) -> Model:
    """The model with so many steps in its answer, of the shape (1, steps, symbols)."""
    spec = model.outputs[0]
    back = Builder("stretch", model.opset)
    given = back.input("given", spec.dtype, spec.shape)
    places = np.arange(steps) * spec.shape[1] // steps
    back.add("Gather", given, back.numbers(*places.tolist()), output=spec.name, axis=1)
    return join(model, back.model([spec.name], model.batchable), {"given": spec.name})
