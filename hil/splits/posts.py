"""What stands behind the models of the study, as operators: the answer in the form in which an application takes it.

A reader that gives 6,625 scores for each of 40 steps would send a megabyte back to say twenty letters, and every way through
the cloud would lose by its reply alone. So each answer is reduced, on whichever side the model ends, to what the model's own
package makes of it: the best boxes, a map of yes and no, letters, the mean of the words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from partitioner.graph.builder import Builder
from partitioner.graph.model import Model
from shared.errors import ModelError
from shared.request import Array

Post = Callable[[Model], Model]
"""Makes the model that stands behind a model, whose inputs are named as the outputs that they take."""

STRIDES = (8, 16, 32)
PLATE_SIDES = ((24, 48), (96, 192), (384, 768))
"""Sides of the plate detector's anchors at each of `STRIDES`, in pixels."""
VARIANCES = (0.1, 0.2)
BOXES = 64
"""The best boxes that are kept, before those that overlap are dropped by whoever takes the answer."""
TEXT_THRESHOLD = 0.3
"""The probability at which the text detector's own package calls a pixel text."""
BITS = 8
PREFIX = "behind"


def plate_boxes(model: Model) -> Model:
    """`boxes` (1, 64, 4: x1, y1, x2, y2 in pixels) and `scores` (1, 64) of a detector of RetinaFace's kind."""
    _, _, high, wide = model.inputs[0].shape
    build = Builder(PREFIX, model.opset)
    loc, conf = _take(build, model, "loc"), _take(build, model, "conf")
    anchors = _anchors(high, wide)
    score = build.add("Gather", conf, build.scalar(1, "int64"), axis=2)
    scores, at = _best(build, score)
    shift = _columns(build, loc, 0, 2)
    centres = build.add(
        "Add",
        build.constant(anchors[:, :, :2]),
        build.add("Mul", shift, build.constant(np.multiply(anchors[:, :, 2:], VARIANCES[0], dtype=np.float32))),
    )
    growth = build.add("Exp", build.add("Mul", _columns(build, loc, 2, 4), build.scalar(VARIANCES[1])))
    sizes = build.add("Mul", growth, build.constant(anchors[:, :, 2:]))
    return _corners(build, model, centres, sizes, scores, at)


def yolox_boxes(model: Model) -> Model:
    """`boxes` (1, 64, 4: x1, y1, x2, y2 in pixels) and `scores` (1, 64) of a YOLOX of one class."""
    _, _, high, wide = model.inputs[0].shape
    build = Builder(PREFIX, model.opset)
    output = _take(build, model, "output")
    grid, stride = _grid(high, wide)
    objectness = build.add("Gather", output, build.scalar(4, "int64"), axis=2)
    score = build.add("Mul", objectness, build.add("Gather", output, build.scalar(5, "int64"), axis=2))
    scores, at = _best(build, score)
    centres = build.add(
        "Mul", build.add("Add", _columns(build, output, 0, 2), build.constant(grid)), build.constant(stride)
    )
    sizes = build.add("Mul", build.add("Exp", _columns(build, output, 2, 4)), build.constant(stride))
    return _corners(build, model, centres, sizes, scores, at)


def text_map(model: Model) -> Model:
    """`text` (1, 1, height, width / 8), uint8: which pixels are text, eight of a row in a byte, the first the highest bit."""
    name = model.outputs[0].name
    _, _, high, wide = model.outputs[0].shape
    build = Builder(PREFIX, model.opset)
    given = _take(build, model, name)
    yes = build.add("Cast", build.add("GreaterOrEqual", given, build.scalar(TEXT_THRESHOLD)), to=1)
    eights = build.add("Reshape", yes, build.numbers(0, 1, high, wide // BITS, BITS))
    weights = build.constant(np.array([[2 ** (BITS - 1 - bit)] for bit in range(BITS)], np.float32))
    packed = build.add("Squeeze", build.add("MatMul", eights, weights), build.numbers(4))
    build.add("Cast", packed, output="text", to=2)
    return build.model(["text"], model.batchable)


def letters(model: Model) -> Model:
    """`letters` (1, steps), int64: the best symbol of each step of a reader."""
    build = Builder(PREFIX, model.opset)
    given = _take(build, model, model.outputs[0].name)
    build.add("ArgMax", given, output="letters", axis=2, keepdims=0)
    return build.model(["letters"], model.batchable)


def mean_of_words(model: Model) -> Model:
    """`embedding` (1, features): the mean over all words, of a model whose rows have no padding."""
    build = Builder(PREFIX, model.opset)
    given = _take(build, model, model.outputs[0].name)
    build.add("ReduceMean", given, output="embedding", axes=[1], keepdims=0)
    return build.model(["embedding"], model.batchable)


def write_post(post: Post, model: Model, path: Path) -> Path:
    """Write what stands behind `model` to a file. Raises `ModelError` where the file cannot be written."""
    try:
        path.write_bytes(post(model).proto.SerializeToString(deterministic=True))
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from error
    return path


def _take(build: Builder, model: Model, name: str) -> str:
    """Declare an output of the model as an input."""
    spec = next(spec for spec in model.outputs if spec.name == name)
    return build.input(name, spec.dtype, spec.shape)


def _columns(build: Builder, value: str, first: int, last: int) -> str:
    return build.add("Slice", value, build.numbers(first), build.numbers(last), build.numbers(2))


def _best(build: Builder, score: str) -> tuple[str, str]:
    """The best scores (1, 64), and where they are, (1, 64, 4) for gathering rows of boxes."""
    scores, at = build.add_many(
        "TopK", score, build.numbers(BOXES), outputs=["scores", ""], axis=1, largest=1, sorted=1
    )
    wide = build.add("Unsqueeze", at, build.numbers(2))
    return scores, build.add("Concat", wide, wide, wide, wide, axis=2)


def _corners(build: Builder, model: Model, centres: str, sizes: str, scores: str, at: str) -> Model:
    half = build.add("Mul", sizes, build.scalar(0.5))
    ends = build.add("Sub", centres, half), build.add("Add", centres, half)
    build.add("GatherElements", build.add("Concat", *ends, axis=2), at, output="boxes", axis=1)
    return build.model(["boxes", scores], model.batchable)


def _anchors(high: int, wide: int) -> Array:
    """(1, anchors, 4: centre x, centre y, width, height), float32, in pixels, in the order of the detector's outputs."""
    anchors = [
        ((column + 0.5) * stride, (row + 0.5) * stride, side, side)
        for stride, sides in zip(STRIDES, PLATE_SIDES, strict=True)
        for row, column, side in itertools.product(range(-(-high // stride)), range(-(-wide // stride)), sides)
    ]
    return np.array([anchors], np.float32)


def _grid(high: int, wide: int) -> tuple[Array, Array]:
    """The cell (1, cells, 2: x, y) and the stride (1, cells, 1) of each of YOLOX's answers, float32."""
    cells = [
        (column, row, stride)
        for stride in STRIDES
        for row, column in itertools.product(range(high // stride), range(wide // stride))
    ]
    table = np.array([cells], np.float32)
    return table[:, :, :2], table[:, :, 2:]
