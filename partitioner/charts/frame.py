"""What charts with two axes share: the box, the grid, the ticks and the titles of the axes, and the badges of ways."""

from __future__ import annotations

from dataclasses import dataclass

from partitioner.charts.scales import Scale, number
from partitioner.charts.svg import SIZE, line, rect, tag, text, text_width

LEFT = 46.0
TOP = 26.0
BOTTOM = 42.0
BADGE = 9.0
"""Radius of a badge, in pixels."""


@dataclass(frozen=True, slots=True)
class Box:
    """The inside of a chart, in pixels from the drawing's upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """From side to side."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """From top to bottom."""
        return self.bottom - self.top


@dataclass(frozen=True, slots=True)
class Mark:
    """How a way is shown in every drawing: its letter, and the number of its colour (0 is grey)."""

    letter: str
    colour: int


def box(width: float, height: float, most_across: float, most_up: float, right: float = 24.0) -> Box:
    """The usual box in a drawing of this size, with room for the largest numbers of both axes, and on the right for what
    stands there."""
    left = max(LEFT, text_width(number(most_up)) + 12.0)
    return Box(left, TOP, width - max(right, text_width(number(most_across)) / 2 + 2.0), height - BOTTOM)


def grid(inside: Box, across: Scale, up: Scale) -> str:
    """The lines of the grid, to be drawn below everything."""
    parts: list[str] = []
    for tick in across.ticks():
        x = across.at(tick.value)
        parts.append(line(x, inside.top, x, inside.bottom, "grid" if tick.words else "grid faint"))
    for tick in up.ticks():
        y = up.at(tick.value)
        parts.append(line(inside.left, y, inside.right, y, "grid" if tick.words else "grid faint"))
    return "".join(parts)


def axes(inside: Box, across: Scale, up: Scale, across_title: str, up_title: str) -> str:
    """The frame, the ticks' words and the titles, to be drawn above everything. The upright axis' title stands on top of it,
    where it can be read without turning the head."""
    parts = [rect(inside.left, inside.top, inside.width, inside.height, "frame")]
    below = [tick for tick in across.ticks() if tick.words]
    beside = [tick for tick in up.ticks() if tick.words]
    parts += [text(across.at(tick.value), inside.bottom + 16.0, tick.words, "middle", "tick") for tick in below]
    parts += [text(inside.left - 7.0, up.at(tick.value) + 4.0, tick.words, "end", "tick") for tick in beside]
    middle = (inside.left + inside.right) / 2
    half = text_width(across_title) / 2
    middle = max(middle, half + 2.0)
    parts.append(text(middle, inside.bottom + 35.0, across_title, "middle", "title"))
    parts.append(text(4.0, inside.top - 11.0, up_title, "start", "title"))
    return "".join(parts)


def badge(x: float, y: float, mark: Mark, class_: str = "") -> str:
    """A way's letter on a disc of its colour, centred at a place."""
    return tag(
        "g",
        tag("circle", cx=x, cy=y, r=BADGE),
        text(x, y + 4.2, mark.letter, "middle"),
        class_=f"badge k{mark.colour} {class_}".strip(),
    )


def label_width(words: str) -> float:
    """How wide a label with a small margin is."""
    return text_width(words, SIZE) + 6.0


def in_words(low: float, high: float, unit: str) -> str:
    """A range for descriptions: `1 to 1,000 Mbit/s`."""
    return f"{number(low)} to {number(high)} {unit}"
