"""Pictures such as detectors and readers of plates and text are meant for, drawn over photographs from a seed.

Nobody ships photographs of number plates or of captchas that may be passed on, so plates, signs and letters are drawn, in
perspective of size, angle, light and blur, over the photographs inside scikit-image. What is fitted to and what is judged
by share no photograph: `Side` says which of them a picture is made from.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import skimage.data
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Side = Literal["judge", "fit"]
Pixels = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Photographs = Sequence[Image.Image]

PHOTOGRAPHS: dict[Side, tuple[str, ...]] = {"judge": ("astronaut", "coffee"), "fit": ("chelsea", "rocket")}
PLATE_BLUE: Colour = (28, 62, 170)
PLATE_ASPECT = 440 / 140
"""Width over height of a Chinese plate of a car, which is white on blue."""
PLATE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
GRAIN = 4.0
"""Standard deviation of the noise of a sensor, in steps of 255."""


def load_photographs(side: Side) -> tuple[Image.Image, ...]:
    """The photographs of one side."""
    loads = (cast("Callable[[], Pixels]", getattr(skimage.data, name)) for name in PHOTOGRAPHS[side])
    return tuple(Image.fromarray(load()).convert("RGB") for load in loads)


def plate_picture(random: np.random.Generator, photographs: Photographs, size: int) -> Pixels:
    """A photograph with one to three number plates in it, (1, size, size, 3)."""
    canvas = photograph(random, photographs, size, size)
    for place in range(int(random.integers(1, 4))):
        wide = int(random.uniform(0.2, 0.5) * size)
        plate = _plate(random).resize((wide, round(wide / PLATE_ASPECT)), Image.Resampling.LANCZOS)
        _paste(random, canvas, plate, band=(place / 3, (place + 1) / 3), tilt=8.0)
    return finished(random, canvas)


def letters_picture(random: np.random.Generator, photographs: Photographs, size: int) -> Pixels:
    """A photograph with four to eight single letters in it, as captchas have them, (1, size, size, 3)."""
    canvas = photograph(random, photographs, size, size)
    many = int(random.integers(4, 9))
    for place in range(many):
        letter = str(random.choice(list(string.ascii_uppercase + string.digits)))
        stamp = _words(letter, int(random.uniform(0.1, 0.2) * size), _bright(random), padding=2)
        _paste(random, canvas, stamp, band=((place % 4) / 4, (place % 4 + 1) / 4), tilt=30.0)
    return finished(random, canvas)


def signs_picture(random: np.random.Generator, photographs: Photographs, size: int, sentences: Sequence[str]) -> Pixels:
    """A photograph with three to six lines of text over it, some of them on a board of one colour, (1, size, size, 3)."""
    canvas = photograph(random, photographs, size, size)
    many = int(random.integers(3, 7))
    for place in range(many):
        words = _part(random, sentences, int(random.integers(4, 24)))
        stamp = _words(words, int(random.uniform(0.045, 0.11) * size), _bright(random), padding=4, board=_dark(random))
        _paste(random, canvas, stamp, band=(place / many, (place + 1) / many), tilt=3.0)
    return finished(random, canvas)


def line_picture(
    random: np.random.Generator, photographs: Photographs, height: int, width: int, sentences: Sequence[str]
) -> Pixels:
    """One line of text over a part of a photograph, (1, height, width, 3)."""
    canvas = photograph(random, photographs, height, width)
    words = _words(_part(random, sentences, int(random.integers(10, 30))), 64, _bright(random), padding=6)
    scale = min((height - 6) / words.height, (width - 10) / words.width)
    words = words.resize(
        (max(1, int(words.width * scale)), max(1, int(words.height * scale))), Image.Resampling.LANCZOS
    )
    canvas.paste(words, (5, (height - words.height) // 2), words)
    return finished(random, canvas)


def photograph(random: np.random.Generator, photographs: Photographs, height: int, width: int) -> Image.Image:
    """A crop of one of the photographs, of a seeded place, size and brightness."""
    whole = photographs[int(random.integers(len(photographs)))]
    share = float(random.uniform(0.45, 1.0)) * min(whole.width / width, whole.height / height)
    wide, high = width * share, height * share
    left, top = float(random.uniform(0, whole.width - wide)), float(random.uniform(0, whole.height - high))
    view = whole.resize((width, height), Image.Resampling.BILINEAR, box=(left, top, left + wide, top + high))
    gain = float(random.uniform(0.55, 1.0))
    return view.point(lambda value: int(value * gain))


def finished(random: np.random.Generator, canvas: Image.Image) -> Pixels:
    """The picture as a camera would give it: a little blur, a little noise."""
    blurred = np.asarray(canvas.filter(ImageFilter.GaussianBlur(float(random.uniform(0.2, 0.8)))), np.float32)
    noisy = blurred + random.normal(0.0, GRAIN, blurred.shape)
    return np.ascontiguousarray(np.clip(np.rint(noisy), 0, 255).astype(np.uint8)[np.newaxis])


def _plate(random: np.random.Generator) -> Image.Image:
    plate = Image.new("RGBA", (440, 140), (*PLATE_BLUE, 255))
    draw = ImageDraw.Draw(plate)
    draw.rounded_rectangle((5, 5, 434, 134), radius=12, outline=(245, 245, 245), width=5)
    letters = [str(random.choice(list(PLATE_LETTERS + string.digits))) for _ in range(7)]
    font = ImageFont.load_default(size=100)
    for place, letter in enumerate(letters):
        x = 46 + place * 57 + (16 if place > 1 else 0)
        draw.text((x, 70), letter, font=font, fill=(250, 250, 250), anchor="mm", stroke_width=3)
    draw.ellipse((139, 64, 151, 76), fill=(250, 250, 250))
    return plate


def _words(words: str, height: int, colour: Colour, padding: int, board: Colour | None = None) -> Image.Image:
    font = ImageFont.load_default(size=height)
    left, top, right, bottom = font.getbbox(words)
    size = (int(right - left) + 2 * padding, int(bottom - top) + 2 * padding)
    stamp = Image.new("RGBA", size, (*(board or (0, 0, 0)), 255 if board else 0))
    ImageDraw.Draw(stamp).text(
        (padding - left, padding - top),
        words,
        font=font,
        fill=colour,
        stroke_width=0 if board else 1,
        stroke_fill=(20, 20, 20),
    )
    return stamp


def _paste(
    random: np.random.Generator, canvas: Image.Image, stamp: Image.Image, band: tuple[float, float], tilt: float
) -> None:
    """Turn a stamp and put it into a horizontal band of the canvas (shares of its height), made smaller where it is wider."""
    if stamp.width > canvas.width - 8:
        scale = (canvas.width - 8) / stamp.width
        stamp = stamp.resize((canvas.width - 8, max(6, int(stamp.height * scale))), Image.Resampling.LANCZOS)
    turned = stamp.rotate(float(random.uniform(-tilt, tilt)), Image.Resampling.BICUBIC, expand=True)
    left = int(random.integers(0, max(1, canvas.width - turned.width)))
    low, high = band[0] * canvas.height, band[1] * canvas.height - turned.height
    top = int(random.uniform(low, max(low + 1.0, high)))
    canvas.paste(turned, (left, min(top, canvas.height - turned.height)), turned)


def _part(random: np.random.Generator, sentences: Sequence[str], letters: int) -> str:
    """Whole words of a sentence, about so many letters."""
    words = sentences[int(random.integers(len(sentences)))].split()
    first = int(random.integers(0, max(1, len(words) - 2)))
    taken = words[first]
    for word in words[first + 1 :]:
        if len(taken) + 1 + len(word) > letters:
            break
        taken += f" {word}"
    return taken[:letters]


def _bright(random: np.random.Generator) -> Colour:
    red, green, blue = (int(value) for value in random.integers(190, 256, 3))
    return red, green, blue


def _dark(random: np.random.Generator) -> Colour | None:
    if random.random() < 0.4:
        return None
    red, green, blue = (int(value) for value in random.integers(0, 90, 3))
    return red, green, blue
