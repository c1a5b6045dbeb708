"""The post-processing of a detector by centre points, as operators behind the model.

Such a detector gives maps: how likely an object's centre is in each cell, how large it would be, where in the cell the
centre lies, and where its landmarks are. At 224×224 the maps of a face detector are 188 KB, the peaks behind them 3 KB.
The decoding is that of CenterFace (https://arxiv.org/abs/1911.03599, and its reference code); overlaps are removed as in
"Objects as Points" (https://arxiv.org/abs/1904.07850): only a cell that is the largest of its 3×3 neighbours counts.

Everything below the least score is exactly zero, before the best cells are chosen: otherwise differences in the last
bit would reorder cells that hold noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from partitioner.graph.builder import Builder
from partitioner.graph.compose import join
from partitioner.graph.model import Model
from partitioner.graph.passes import OLDEST_OPSET
from shared.errors import ModelError
from shared.request import TensorSpec

ROLES = ("heatmap", "scale", "offset", "landmarks")


@dataclass(frozen=True, slots=True)
class Peaks:
    """`k` objects at most, none below `min_score`. The maps are named outputs of the model; empty names are found by
    their channels: 1 for the heat map, 2 for the size (height, width, as logarithms of cells where `exp`), 2 for the
    offset (down, across), an even number above 2 for landmarks (down, across for each; may be missing)."""

    k: int = 32
    min_score: float = 0.2
    heatmap: str = ""
    scale: str = ""
    offset: str = ""
    landmarks: str = ""
    exp: bool = True


def with_peaks(model: Model, peaks: Peaks) -> Model:
    """The model with outputs `boxes` (N, k, 4) as x1, y1, x2, y2, `scores` (N, k), falling, and, where it has landmarks,
    `landmarks` (N, k, 2 m) as x, y of each; all float32, coordinates as parts of the image's width and height.

    Raises:
        ModelError: the maps are not there, do not fit together, or have fewer cells than `k`.
    """
    if model.opset < OLDEST_OPSET:
        raise ModelError(
            f"{model.name}: opset {model.opset} could not be converted to one that postprocess 'peaks' takes"
        )
    heatmap, scale, offset, landmarks = _maps(model, peaks)
    height, width = heatmap.shape[2:]
    if not 0 < peaks.k <= height * width:
        raise ModelError(
            f"{model.name}: k={peaks.k} peaks of a map of {height}x{width} cells; at most {height * width} fit"
        )
    points = landmarks.shape[1] // 2 if landmarks else 0
    build = Builder("post", model.opset)
    used = [spec for spec in (heatmap, scale, offset, landmarks) if spec is not None]
    values = {spec.name: build.input(f"post/{spec.name}", spec.dtype, spec.shape) for spec in used}
    floats = [
        build.add("Cast", values[spec.name], to=1) if spec.dtype != "float32" else values[spec.name] for spec in used
    ]

    scores, cells = _best(build, floats[0], peaks)
    across, down = _positions(build, cells, width)
    maps = build.add("Concat", *floats[1:], axis=1) if len(floats) > 2 else floats[1]
    channels = 4 + 2 * points
    flat = build.add("Reshape", maps, build.numbers(0, channels, height * width))
    wanted = build.add("Unsqueeze", cells, build.numbers(1))
    wanted = build.add("Expand", wanted, build.numbers(1, channels, 1))
    found = build.add("GatherElements", flat, wanted, axis=2)
    one_by_one = build.add_many("Split", found, build.numbers(*[1] * channels), outputs=[""] * channels, axis=1)
    channel = [build.add("Squeeze", part, build.numbers(1)) for part in one_by_one]

    size = [build.add("Exp", value) if peaks.exp else value for value in channel[:2]]
    tall, wide = (_divide(build, value, cells_) for value, cells_ in zip(size, (height, width), strict=True))
    left, right = _extent(build, across, channel[3], wide, width)
    top, bottom = _extent(build, down, channel[2], tall, height)
    real = build.add("Cast", build.add("Greater", scores, build.scalar(0.0)), to=1)
    stack = _stacker(build, real)
    outputs = [stack([left, top, right, bottom], "boxes"), build.add("Identity", scores, output="scores")]
    if points:
        marks: list[str] = []
        for point in range(points):
            mark_down, mark_across = channel[4 + 2 * point], channel[5 + 2 * point]
            marks.append(build.add("Add", build.add("Mul", mark_across, wide), left))
            marks.append(build.add("Add", build.add("Mul", mark_down, tall), top))
        outputs.append(stack(marks, "landmarks"))
    back = build.model(outputs, model.batchable)
    return join(model, back, {values[spec.name]: spec.name for spec in used})


def _best(build: Builder, heat: str, peaks: Peaks) -> tuple[str, str]:
    """Scores and flat cell numbers (N, k) of the best cells."""
    around = build.add("MaxPool", heat, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    strong = build.add("GreaterOrEqual", heat, build.scalar(peaks.min_score))
    peak = build.add("And", build.add("Equal", heat, around), strong)
    scores = build.add("Where", peak, heat, build.scalar(0.0))
    flat = build.add("Flatten", scores, axis=1)
    best = build.add_many("TopK", flat, build.numbers(peaks.k), outputs=["", ""], axis=1, largest=1, sorted=1)
    return best[0], best[1]


def _positions(build: Builder, cells: str, width: int) -> tuple[str, str]:
    """Column and row of flat cell numbers, as floats."""
    across_all = build.constant(np.array(width, np.int64))
    row = build.add("Div", cells, across_all)
    column = build.add("Sub", cells, build.add("Mul", row, across_all))
    return build.add("Cast", column, to=1), build.add("Cast", row, to=1)


def _divide(build: Builder, value: str, by: int) -> str:
    return build.add("Div", value, build.scalar(by))


def _extent(build: Builder, cell: str, offset: str, size: str, cells: int) -> tuple[str, str]:
    """Begin and end of the boxes on one axis, inside the image."""
    centre = build.add("Add", build.add("Add", cell, offset), build.scalar(0.5))
    centre = _divide(build, centre, cells)
    begin = build.add("Sub", centre, build.add("Mul", size, build.scalar(0.5)))
    low, high = build.scalar(0.0), build.scalar(1.0)
    begin = build.add("Clip", begin, low, high)
    return begin, build.add("Clip", build.add("Add", begin, size), low, high)


def _stacker(build: Builder, real: str) -> Callable[[list[str], str], str]:
    last = build.numbers(2)
    mask = build.add("Unsqueeze", real, last)

    def stack(values: list[str], name: str) -> str:
        parts = [build.add("Unsqueeze", value, last) for value in values]
        return build.add("Mul", build.add("Concat", *parts, axis=2), mask, output=name)

    return stack


def _maps(model: Model, peaks: Peaks) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec | None]:
    free = {spec.name: spec for spec in model.outputs if len(spec.shape) == 4}
    names = (peaks.heatmap, peaks.scale, peaks.offset, peaks.landmarks)
    named = dict(zip(ROLES, names, strict=True))
    for role, name in named.items():
        if name and name not in free:
            raise ModelError(f"{model.name}: {role}={name} is no output with four axes; there are {_shown(model)}")
    left = [spec for spec in free.values() if spec.name not in named.values()]
    chosen: dict[str, TensorSpec] = {}
    for role in ROLES:
        spec = free.get(named[role]) or next((s for s in left if _fits(role, s.shape[1])), None)
        if spec is not None and _fits(role, spec.shape[1]):
            chosen[role] = spec
            left = [s for s in left if s.name != spec.name]
        elif role != "landmarks" or named[role]:
            raise ModelError(
                f"{model.name}: no output serves as {role} for postprocess 'peaks'; there are {_shown(model)}"
            )
    sizes = {spec.shape[2:] for spec in chosen.values()}
    if len(sizes) > 1:
        raise ModelError(f"{model.name}: the maps of postprocess 'peaks' differ in size; there are {_shown(model)}")
    return chosen["heatmap"], chosen["scale"], chosen["offset"], chosen.get("landmarks")


def _fits(role: str, channels: int) -> bool:
    if role == "heatmap":
        return channels == 1
    if role == "landmarks":
        return channels > 2 and channels % 2 == 0
    return channels == 2


def _shown(model: Model) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in model.outputs)
