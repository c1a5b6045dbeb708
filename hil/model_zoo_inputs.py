"""Inputs such as the models of the zoo are meant for: photographs, lines of text, sound, words, bytes of files.

Noise is the easy case for a comparison: it rarely comes near the decisions of a trained model, and a rare branch is not
taken. What is made here comes from a seed and from images inside scikit-image alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec
import numpy as np
import skimage.data
from PIL import Image

from hil.frames import Pixels, make_frames
from shared.request import Array, TensorSpec

Kind = Literal["image", "text", "voice", "spectrum", "tokens", "bytes"]

SAMPLES_HZ = 16_000
VOICE_HZ = 140.0
WORDS = 30_000
"""About as many different tokens as a vocabulary of English word pieces has."""
PADDING = 256
"""What stands behind the end of a short file."""

Channels = tuple[float, float, float]


class Feed(msgspec.Struct, frozen=True):
    """How inputs are made. `mean` and `std` are subtracted from and divided into the 0 to 255 of an image, per channel."""

    kind: Kind
    mean: Channels = (127.5, 127.5, 127.5)
    std: Channels = (127.5, 127.5, 127.5)


IMAGENET = Feed("image", (123.7, 116.3, 103.5), (58.4, 57.1, 57.4))


def make_inputs(feed: Feed, specs: Sequence[TensorSpec], seed: int) -> dict[str, Array]:
    """One row for the inputs of a model, by name. The same seed gives the same arrays."""
    random = np.random.default_rng(seed)
    return {spec.name: _make(feed, spec, random) for spec in specs}


def _make(feed: Feed, spec: TensorSpec, random: np.random.Generator) -> Array:
    if feed.kind in {"image", "text"}:
        made = _image(feed, spec.shape, random)
    elif feed.kind == "voice":
        made = _voice(spec, random)
    elif feed.kind == "spectrum":
        made = _spectrum(spec.shape, random)
    elif feed.kind == "tokens":
        made = _tokens(spec, random)
    else:
        made = _bytes(spec.shape, random)
    return np.array(made, np.dtype(spec.dtype), order="C")


def _image(feed: Feed, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    _, _, height, width = shape
    if feed.kind == "text":
        pixels = _line_of_text(height, width, random)
    else:
        frames = make_frames(2, height, width, int(random.integers(1 << 30)))
        pixels = frames[1].pixels[0]
    mean, std = np.array(feed.mean, np.float32), np.array(feed.std, np.float32)
    scaled = (pixels.astype(np.float32) - mean) / std
    return np.asarray(scaled.transpose(2, 0, 1)[None])


def _line_of_text(height: int, width: int, random: np.random.Generator) -> Pixels:
    load = cast("Callable[[], Pixels]", skimage.data.page)
    page = Image.fromarray(load()).convert("RGB")
    wide = min(page.width, max(40, round(36 * width / height)))
    high = max(1, min(page.height, round(wide * height / width)))
    left, top = (int(random.integers(0, room + 1)) for room in (page.width - wide, page.height - high))
    view = page.resize((width, height), Image.Resampling.BILINEAR, box=(left, top, left + wide, top + high))
    return np.asarray(view, np.uint8)


def _voice(spec: TensorSpec, random: np.random.Generator) -> Array:
    """A voiced sound, a state in the middle of speech, or the sample rate."""
    if len(spec.shape) == 0:
        return np.array(SAMPLES_HZ)
    if len(spec.shape) > 2:
        return np.asarray(np.tanh(0.5 * random.standard_normal(spec.shape)))
    *_, samples = spec.shape
    time_s = np.arange(samples) / SAMPLES_HZ
    pitch = VOICE_HZ * random.uniform(0.8, 1.6)
    tones = sum(np.sin(2 * np.pi * pitch * k * time_s + random.uniform(0, 6)) / k for k in range(1, 20))
    return np.asarray(0.1 * tones + 0.005 * random.standard_normal(spec.shape))


def _spectrum(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Bands of energy that come and go, in the range of a normalised log-mel spectrum (about -1 to 1.5)."""
    _, bands, frames = shape
    envelope = np.clip(np.convolve(random.standard_normal(frames + 40), np.ones(41) / 6, "valid"), -1, 2)
    ripples = np.cos(np.linspace(0, 20, bands)[:, None] + np.cumsum(0.1 * random.standard_normal(frames)))
    slope = np.linspace(0.8, -0.6, bands)[:, None]
    return np.asarray(
        np.clip(0.4 * envelope + 0.4 * ripples + slope + 0.1 * random.standard_normal((bands, frames)), -1, 1.5)[None]
    )


def _tokens(spec: TensorSpec, random: np.random.Generator) -> Array:
    """A sentence with padding behind it, its mask, or the types of its words, told apart by the input's name."""
    words = spec.shape[-1] * 3 // 4
    tokens = np.zeros(spec.shape, np.int64)
    if "mask" in spec.name:
        tokens[..., :words] = 1
    elif "type" not in spec.name:
        tokens[..., :words] = random.integers(1000, WORDS, (*spec.shape[:-1], words))
    return tokens


def _bytes(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """The beginning and the end of a file: this one, from a place that the seed chooses."""
    content = np.frombuffer(Path(__file__).read_bytes(), np.uint8).astype(np.int64)
    start = int(random.integers(0, len(content) // 2))
    taken = content[start : start + shape[-1] * 7 // 8]
    line = np.full(shape[-1], PADDING)
    line[: len(taken)] = taken
    return np.broadcast_to(line, shape)
