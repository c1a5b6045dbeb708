"""The model's output drawn on the image that it was found in, for a person to see that it is right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from shared.request import Array

SCALE = 4
THRESHOLD = 0.5
COLOUR = (255, 214, 10)


def detections(outputs: Mapping[str, Array], threshold: float = THRESHOLD) -> list[tuple[tuple[float, ...], float]]:
    """Boxes (left, top, right, bottom, as parts of the image) and their scores, best first.

    Of one row of the outputs `boxes` and `scores`. Boxes of which more than half lies in a better one are left out.
    """
    boxes = np.asarray(outputs["boxes"], dtype=np.float64).reshape(-1, 4)
    scores = np.asarray(outputs["scores"], dtype=np.float64).reshape(-1)
    kept: list[tuple[tuple[float, ...], float]] = []
    for index in np.argsort(-scores, kind="stable"):
        box = tuple(float(edge) for edge in boxes[index])
        if scores[index] >= threshold and all(_inside(box, better) <= 0.5 for better, _ in kept):
            kept.append((box, float(scores[index])))
    return kept


def draw(pixels: npt.NDArray[np.uint8], outputs: Mapping[str, Array], words: str, path: Path) -> int:
    """Write a PNG of the image (1, height, width, 3), enlarged, with its detections and a line of words.

    Returns how many detections were drawn.
    """
    _, height, width, _ = pixels.shape
    image = Image.fromarray(pixels[0]).resize((width * SCALE, height * SCALE), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    found = detections(outputs)
    for box, score in found:
        corners = [edge * side for edge, side in zip(box, (*image.size, *image.size), strict=True)]
        pen.rectangle(corners, outline=COLOUR, width=3)
        _label(pen, corners[0], corners[1] - 22, f"{score:.2f}")
    _label(pen, 8, 8, f"{words}: {len(found)} found")
    image.save(path)
    return len(found)


def _label(pen: ImageDraw.ImageDraw, x: float, y: float, words: str) -> None:
    left, top, right, bottom = pen.textbbox((x + 5, y + 2), words, font_size=18)
    pen.rectangle((left - 5, top - 3, right + 5, bottom + 4), fill=COLOUR)
    pen.text((x + 5, y + 2), words, fill=(0, 0, 0), font_size=18)


def _inside(box: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The share of `box` that lies in `other`."""
    wide = min(box[2], other[2]) - max(box[0], other[0])
    high = min(box[3], other[3]) - max(box[1], other[1])
    area = (box[2] - box[0]) * (box[3] - box[1])
    return max(0.0, wide) * max(0.0, high) / area if area > 0 else 1.0
