"""Predicted against measured: a dot for each part at the ratio of what was measured to what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.charts.frame import Box
from partitioner.charts.scales import LogScale
from partitioner.charts.svg import drawing, line, rect, shortened, tag, text

NARROW = 430.0
ROW, TALL_ROW = 24.0, 38.0
HEAD, FOOT = 26.0, 24.0
WORDS, VALUES = 200.0, 128.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A part that was predicted and measured, in microseconds."""

    words: str
    predicted_us: float
    measured_us: float

    @property
    def ratio(self) -> float:
        """Measured for each predicted."""
        return self.measured_us / self.predicted_us


def draw_ratios(pairs: Sequence[Pair], title: str, width: float) -> str:
    """The drawing; the band is a tenth to either side."""
    narrow = width < NARROW
    step = TALL_ROW if narrow else ROW
    height = HEAD + len(pairs) * step + FOOT
    inside = Box(8.0 if narrow else WORDS, HEAD, width - VALUES, height - FOOT)
    reach = max([2.0, *(max(p.ratio, 1 / p.ratio) for p in pairs)]) * 1.05
    scale = LogScale(1 / reach, reach, inside.left, inside.right, 2)
    parts = [
        rect(scale.at(1 / 1.1), inside.top, scale.at(1.1) - scale.at(1 / 1.1), inside.height, "band"),
        text(4.0, 13.0, "ratio", class_="title"),
        text(width - 4.0, 13.0, "measured / predicted, ms", "end", "title"),
    ]
    for tick in scale.ticks():
        if tick.words:
            x = scale.at(tick.value)
            parts.append(line(x, inside.top, x, inside.bottom, "grid"))
            parts.append(text(x, inside.bottom + 16.0, tick.words, "middle", "tick"))
    for number, pair in enumerate(pairs):
        top = inside.top + number * step
        y = top + (step - 9.0 if narrow else step / 2)
        if narrow:
            parts.append(text(4.0, top + 14.0, shortened(pair.words, width - 8.0)))
        else:
            parts.append(text(inside.left - 10.0, y + 4.2, shortened(pair.words, WORDS - 14.0), "end"))
        parts.append(line(inside.left, y, inside.right, y, "row"))
        parts.append(line(scale.at(1.0), y, scale.at(pair.ratio), y, "whisker"))
        parts.append(tag("circle", cx=scale.at(pair.ratio), cy=y, r=4.5, class_="point full k1"))
        values = f"{pair.measured_us / 1000:.3g} / {pair.predicted_us / 1000:.3g}"
        parts.append(text(width - 4.0, y + 4.2, values, "end", "value"))
    told = "; ".join(f"{p.words}: {p.ratio:.2f}" for p in pairs)
    return drawing(width, height, title, told, *parts)
