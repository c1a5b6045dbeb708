"""Small decoders that rebuild an input from what a cut sends (`partitioner.inversions.inversion` says what for).

`by place`: each place of a map predicts its own piece of the picture from the channels there and at the eight places around
it. One linear map serves all places, so that a few pictures give thousands of examples. `by row`: all that crosses predicts
all of the input, by ridge regression in its dual form (Saunders, Gammerman and Vovk, *Ridge Regression Learning Algorithm in
Dual Variables*, ICML 1998). It needs no maps, and learns little from few rows. The penalty of either is chosen by rows
that are kept back from those to fit to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.request import Array

POINTS = 32
"""Points a side at which pictures are rebuilt, and places a side that are told apart."""
MOST_VALUES = 1024
"""Values at which an input is rebuilt that is no picture."""
MOST_SEEN = 1 << 14
"""Values that the decoder by row sees of what crosses, spread evenly."""
MOST_CHANNELS = 32
"""Principal components of the channels of a map that the decoder by place sees."""
PICTURE_CHANNELS = 4
RIDGES = (1e-6, 1e-4, 1e-2, 1.0)
"""Strengths of the penalty, as shares of the mean square of a feature."""
KEPT_BACK = 4
"""One of so many rows to fit to is kept back to choose the penalty by."""

Wide = npt.NDArray[np.float64]
Picked = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Sight:
    """What decoders see of what crossed for one row: `values` (at most `MOST_SEEN`), and the largest map (height, width,
    channels) at no more than `POINTS` a side, None where there is none."""

    values: Wide
    map: Wide | None


Decoder = Callable[[Sequence[Sight]], Wide]
"""From what is seen of some rows to their inputs, flattened: (rows, values)."""


def look(tensors: Sequence[Array]) -> Sight:
    """What decoders see of the tensors that crossed for one row. What is not finite counts as 0."""
    flat = np.concatenate([np.asarray(_finite(array).reshape(-1)) for array in tensors])
    picked = np.linspace(0, flat.size - 1, min(flat.size, MOST_SEEN)).astype(np.intp)
    maps = [array for array in tensors if array.ndim == 4 and array.shape[2] * array.shape[3] > 1]
    if not maps:
        return Sight(flat[picked], None)
    widest = max(maps, key=lambda array: array.shape[2] * array.shape[3])
    last = np.moveaxis(_finite(widest)[0], 0, 2)
    return Sight(flat[picked], _resized(last, min(POINTS, last.shape[0]), min(POINTS, last.shape[1])))


def rebuilt_shape(row: Array) -> tuple[int, ...]:
    """What is rebuilt of an input of this form: height, width and channels of a picture, else a number of values."""
    picture = _as_picture(row)
    if picture is None:
        return (min(MOST_VALUES, row.size),)
    return min(POINTS, picture.shape[0]), min(POINTS, picture.shape[1]), picture.shape[2]


def shrink(row: Array, shape: tuple[int, ...]) -> Wide:
    """An input of one row at a shape of `rebuilt_shape`, by the mean over what falls on a point, flattened."""
    picture = _as_picture(row)
    if picture is None:
        return np.asarray(_averages(row.size, shape[0]) @ _finite(row).reshape(-1))
    return _resized(picture, shape[0], shape[1]).reshape(-1)


def fit_by_row(inputs: Wide, seen: Sequence[Sight]) -> Decoder:
    """The decoder by row of inputs (rows, values), four rows at least."""
    features = np.stack([sight.values for sight in seen])
    centre, mean = features.mean(axis=0), inputs.mean(axis=0)
    scale = max(float((features - centre).std()), 1e-12)
    known = (features - centre) / scale
    gram: Wide = known @ known.T

    def weights(rows: Picked, ridge: float) -> Wide:
        part = gram[np.ix_(rows, rows)]
        return _solved(part, ridge, inputs[rows] - mean)

    kept, back = _kept_back(len(known))
    errors = [_square(inputs[back] - mean - gram[np.ix_(back, kept)] @ weights(kept, ridge)) for ridge in RIDGES]
    final = weights(np.arange(len(known)), RIDGES[int(np.argmin(errors))])

    def decode(sights: Sequence[Sight]) -> Wide:
        values = np.stack([sight.values for sight in sights])
        return np.asarray(mean + ((values - centre) / scale @ known.T) @ final)

    return decode


def fit_by_place(inputs: Wide, maps: Wide, shape: tuple[int, int, int]) -> Callable[[Wide], Wide]:
    """The decoder by place of inputs of this shape, flattened (rows, values), from maps (rows, height, width, channels): it
    takes such maps. A map that is coarser than the picture predicts a block for each place."""
    grid = (min(maps.shape[1], shape[0]), min(maps.shape[2], shape[1]))
    block = (math.ceil(shape[0] / grid[0]), math.ceil(shape[1] / grid[1]))
    fine = (grid[0] * block[0], grid[1] * block[1])
    small = np.stack([_resized(one, *grid) for one in maps])
    turn = _components(small.reshape(-1, small.shape[3]))
    wanted = np.stack([_blocks(_resized(row.reshape(shape), *fine), grid, block) for row in inputs])
    seen = np.stack([_around(one @ turn) for one in small])
    kept, back = _kept_back(len(seen))
    errors = [_square(wanted[back] - line(seen[back])) for line in _lines(seen[kept], wanted[kept])]
    final = _lines(seen, wanted)[int(np.argmin(errors))]

    def decode(others: Wide) -> Wide:
        rows = [_unblocked(final(_around(_resized(one, *grid) @ turn)), grid, block) for one in others]
        return np.stack([_resized(row, shape[0], shape[1]).reshape(-1) for row in rows])

    return decode


@dataclass(frozen=True, slots=True)
class _Line:
    """A linear map with a constant."""

    centre: Wide
    mean: Wide
    weights: Wide

    def __call__(self, features: Wide) -> Wide:
        return np.asarray((features - self.centre) @ self.weights + self.mean)


def _lines(features: Wide, wanted: Wide) -> list[_Line]:
    """One linear map for each penalty of `RIDGES`, by least squares over rows and places, which come first."""
    x, y = features.reshape(-1, features.shape[-1]), wanted.reshape(-1, wanted.shape[-1])
    centre, mean = x.mean(axis=0), y.mean(axis=0)
    x = x - centre
    square: Wide = x.T @ x
    right: Wide = x.T @ (y - mean)
    return [_Line(centre, mean, _solved(square, ridge, right)) for ridge in RIDGES]


def _solved(square: Wide, ridge: float, right: Wide) -> Wide:
    """The weights that `square`, with the penalty on its diagonal, turns into `right`."""
    penalty = ridge * max(float(np.trace(square)), 1e-12) / len(square)
    return np.asarray(np.linalg.solve(square + penalty * np.eye(len(square)), right), np.float64)


def _kept_back(rows: int) -> tuple[Picked, Picked]:
    """Rows to fit to and rows to choose the penalty by."""
    numbers = np.arange(rows)
    return numbers[numbers % KEPT_BACK != 0], numbers[numbers % KEPT_BACK == 0]


def _finite(array: Array) -> Wide:
    return np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _as_picture(row: Array) -> Wide | None:
    """Height, width and channels of a row that looks like a picture: four axes, few channels on the last or the second."""
    if row.ndim != 4 or row.shape[0] != 1:
        return None
    values: Wide = _finite(row)[0]
    if row.shape[3] <= PICTURE_CHANNELS:
        return values
    return np.moveaxis(values, 0, 2) if row.shape[1] <= PICTURE_CHANNELS else None


def _averages(source: int, target: int) -> Wide:
    """The matrix (target, source) that gives each of `target` equal pieces the mean of what it covers of `source` points."""
    edges = np.linspace(0.0, source, target + 1)
    points = np.arange(source)
    covered = np.minimum(edges[1:, None], points + 1) - np.maximum(edges[:-1, None], points)
    covered = np.maximum(covered, 0.0)
    return np.asarray(covered / covered.sum(axis=1, keepdims=True))


def _resized(maps: Wide, height: int, width: int) -> Wide:
    """A map (height, width, channels) brought to another size by means."""
    down = np.tensordot(_averages(maps.shape[0], height), maps, axes=(1, 0))
    across = np.tensordot(_averages(maps.shape[1], width), down, axes=(1, 1))
    return np.asarray(across.transpose(1, 0, 2))


def _components(vectors: Wide) -> Wide:
    """The matrix (channels, components) onto the first principal components, each of variance 1."""
    centred = vectors - vectors.mean(axis=0)
    spread, turned = np.linalg.eigh(centred.T @ centred / len(vectors))
    order = np.argsort(-spread, kind="stable")[:MOST_CHANNELS]
    least = max(float(spread.max()), 1e-12) * 1e-9
    return np.asarray(turned[:, order] / np.sqrt(np.maximum(spread[order], least)))


def _around(maps: Wide) -> Wide:
    """A map (height, width, channels) to what is seen from each place of it: (places, 9 x channels)."""
    height, width, _ = maps.shape
    wide = np.pad(maps, ((1, 1), (1, 1), (0, 0)), mode="edge")
    parts = [wide[y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return np.asarray(np.concatenate(parts, axis=2).reshape(height * width, -1))


def _blocks(picture: Wide, grid: tuple[int, int], block: tuple[int, int]) -> Wide:
    """A picture (height, width, channels) as its blocks: (places, values of a block)."""
    parts = picture.reshape(grid[0], block[0], grid[1], block[1], -1).transpose(0, 2, 1, 3, 4)
    return np.asarray(parts.reshape(grid[0] * grid[1], -1))


def _unblocked(blocks: Wide, grid: tuple[int, int], block: tuple[int, int]) -> Wide:
    parts = blocks.reshape(grid[0], grid[1], block[0], block[1], -1).transpose(0, 2, 1, 3, 4)
    return np.asarray(parts.reshape(grid[0] * block[0], grid[1] * block[1], -1))


def _square(error: Wide) -> float:
    return float(np.mean(np.square(error)))
