"""The camera of the demo: seeded crops and scalings of natural images that come inside scikit-image.

Only images that are files of the installed package are used, so that no frame needs a download. The astronaut is there
for her face: a good share of the frames shows it, at several sizes and places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt
import skimage.data
from PIL import Image

FACE_BOX = (172, 60, 276, 200)
"""Left, upper, right, lower edge of the face in scikit-image's astronaut, in pixels, a little generous."""

PORTRAIT = "astronaut"
PORTRAIT_SHARE = 0.7
OTHERS = ("chelsea", "coffee", "rocket")

Pixels = npt.NDArray[np.uint8]


class Frame(msgspec.Struct, frozen=True):
    """One image of the stream. `pixels` is uint8 of shape (1, height, width, 3); `name` tells what it shows; `face` is
    whether the astronaut's face is in it."""

    name: str
    pixels: Pixels
    face: bool


def astronaut(height: int, width: int) -> Pixels:
    """The upper part of the astronaut with her face, scaled to (1, height, width, 3)."""
    view = Image.fromarray(_load(PORTRAIT)).resize((width, height), Image.Resampling.BILINEAR, box=(48, 0, 432, 384))
    return np.ascontiguousarray(np.asarray(view, dtype=np.uint8)[None])


def make_frames(count: int, height: int, width: int, seed: int) -> tuple[Frame, ...]:
    """`count` distinct frames. The first is the astronaut; most of the others show her face, once or more.

    A frame is one view or, one time in four, a wall of four smaller ones, so that faces come in very different
    sizes and a lower resolution has something to miss. The same seed gives the same frames. Crops keep the proportions.
    """
    rng = np.random.default_rng(seed)
    views = _Views(rng, width / height)
    frames = [Frame("astronaut", astronaut(height, width), True)]
    while len(frames) < count:
        tiles = int(rng.choice((1, 1, 1, 2)))
        canvas = Image.new("RGB", (width, height))
        names: list[str] = []
        for place in range(tiles * tiles):
            row, column = divmod(place, tiles)
            left, top = column * width // tiles, row * height // tiles
            size = (column + 1) * width // tiles - left, (row + 1) * height // tiles - top
            name, view = views.take(size)
            canvas.paste(view, (left, top))
            names.append(name)
        shown = "+".join(dict.fromkeys(names))
        frames.append(Frame(shown, np.ascontiguousarray(np.asarray(canvas, dtype=np.uint8)[None]), PORTRAIT in names))
    return tuple(frames[:count])


class _Views:
    """Crops of the images, most often of the portrait with the face in it."""

    def __init__(self, rng: np.random.Generator, ratio: float) -> None:
        self._rng = rng
        self._ratio = ratio
        self._portrait = Image.fromarray(_load(PORTRAIT))
        self._others = [(name, Image.fromarray(_load(name))) for name in OTHERS]

    def take(self, size: tuple[int, int]) -> tuple[str, Image.Image]:
        """What is seen, and the view, of `size` (width, height)."""
        if self._rng.random() < PORTRAIT_SHARE:
            name, image = PORTRAIT, self._portrait
            box = _box_around(self._rng, image, FACE_BOX, self._ratio)
        else:
            name, image = self._others[int(self._rng.integers(len(self._others)))]
            box = _box(self._rng, image, self._ratio)
        return name, image.resize(size, Image.Resampling.BILINEAR, box=box)


def _load(name: str) -> Pixels:
    return cast(Callable[[], Pixels], getattr(skimage.data, name))()


Box = tuple[int, int, int, int]


def _box(rng: np.random.Generator, image: Image.Image, ratio: float) -> Box:
    """A crop of a random size, at least half of what fits, anywhere."""
    most = min(image.height, image.width / ratio)
    high = int(most * rng.uniform(0.5, 1.0))
    wide = int(high * ratio)
    left = int(rng.integers(0, image.width - wide + 1))
    top = int(rng.integers(0, image.height - high + 1))
    return left, top, left + wide, top + high


def _box_around(rng: np.random.Generator, image: Image.Image, inner: Box, ratio: float) -> Box:
    """A crop of a random size with all of `inner` in it."""
    least = max(inner[3] - inner[1], (inner[2] - inner[0]) / ratio) * 1.4
    high = int(rng.uniform(least, min(image.height, image.width / ratio)))
    wide = int(high * ratio)
    left = int(rng.integers(max(0, inner[2] - wide), min(inner[0], image.width - wide) + 1))
    top = int(rng.integers(max(0, inner[3] - high), min(inner[1], image.height - high) + 1))
    return left, top, left + wide, top + high
