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

Pixels = npt.NDArray[np.uint8]


class Frame(msgspec.Struct, frozen=True):
    """One image of the stream. `pixels` is uint8 of shape (1, height, width, 3); `name` tells what it shows; `face` is
    whether the astronaut's face is wholly in it."""

    name: str
    pixels: Pixels
    face: bool


def astronaut(height: int, width: int) -> Pixels:
    """The upper part of the astronaut with her face, scaled to (1, height, width, 3)."""
    image = Image.fromarray(cast(Callable[[], Pixels], skimage.data.astronaut)())
    return _scaled(image, (48, 0, 432, 384), height, width)


def make_frames(count: int, height: int, width: int, seed: int, face_share: float = 0.5) -> tuple[Frame, ...]:
    """`count` distinct frames. About `face_share` of them, the first one always, show the astronaut's face.

    The same seed gives the same frames. The crops keep the frames' proportions.
    """
    rng = np.random.default_rng(seed)
    loaders = {
        name: cast(Callable[[], Pixels], getattr(skimage.data, name)) for name in ("chelsea", "coffee", "rocket")
    }
    others = [(name, Image.fromarray(load())) for name, load in loaders.items()]
    portrait = Image.fromarray(cast(Callable[[], Pixels], skimage.data.astronaut)())
    frames: list[Frame] = []
    for number in range(count):
        if number == 0:
            frames.append(Frame("astronaut", astronaut(height, width), True))
        elif rng.random() < face_share:
            box = _box_around(rng, portrait, FACE_BOX, width / height)
            frames.append(Frame("astronaut", _scaled(portrait, box, height, width), True))
        else:
            name, image = others[int(rng.integers(len(others)))]
            frames.append(Frame(name, _scaled(image, _box(rng, image, width / height), height, width), False))
    return tuple(frames)


Box = tuple[int, int, int, int]


def _scaled(image: Image.Image, box: Box, height: int, width: int) -> Pixels:
    resized = image.resize((width, height), Image.Resampling.BILINEAR, box=box)
    return np.ascontiguousarray(np.asarray(resized, dtype=np.uint8)[None])


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
