"""SVG as strings: elements, text, and how wide a text is.

Colours are classes and variables of the page's style sheet, so that one drawing serves light, dark and paper. Libraries for
charts were looked at and left: those that draw maps of regions weigh hundreds of times what these functions do or need a
script, and none keeps labels apart. Widths of texts are estimates on the wide side, since the reader's font is not known.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from partitioner.charts.markup import escape

SIZE = 12.0
"""Size of the text of all charts, in pixels."""
LINE = 15.0
"""Distance of two lines of text."""

Anchor = Literal["start", "middle", "end"]

LEAST_KEPT = 4
"""Characters of a text that is shortened; where they have no room, the ellipsis stands alone."""
_NARROWEST = 0.38
"""Width of the narrowest characters, as a share of the size."""
_NARROW = frozenset("ijlft.,:;'|!I()[]/ ")
_WIDE = frozenset("mwMW@%")


def tag(name: str, *children: str, **attributes: str | float) -> str:
    """An element. In the attributes' names `_` stands for `-`, and one at the end is left out (`class_`). Their values are
    plain words, the children markup."""
    told = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{told}>{''.join(children)}</{name}>" if children else f"<{name}{told}/>"


def text(x: float, y: float, words: str, anchor: Anchor = "start", class_: str = "") -> str:
    """A line of text whose base line is at `y`."""
    return tag("text", escape(words), x=x, y=y, text_anchor=anchor, **({"class_": class_} if class_ else {}))


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str, **attributes: str | float) -> str:
    """A rectangle; one of negative width is drawn with none."""
    return tag("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), class_=class_, **attributes)


def path(points: list[tuple[float, float]], close: bool = False) -> str:
    """The data of a path through these points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("Z" if close else "")


def drawing(width: float, height: float, title: str, description: str, *parts: str) -> str:
    """A whole drawing of this size in pixels, which shrinks with its box. The title and the description are read aloud
    in its place."""
    return tag(
        "svg",
        tag("title", escape(title)),
        tag("desc", escape(description)),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_label=title,
    )


def text_width(words: str, size: float = SIZE) -> float:
    """About how many pixels wide a text of this size is, rather more than less."""
    units = sum(_NARROWEST if c in _NARROW else 0.92 if c in _WIDE else 0.64 for c in words)
    return units * size


def shortened(words: str, width: float, size: float = SIZE) -> str:
    """The text, or its beginning and its end around an ellipsis where it is wider than this. The time grows with the length
    of the text, not with its square: names of tensors may be thousands of characters long."""
    if text_width(words, size) <= width:
        return words

    def around(kept: int) -> str:
        front = (kept + 1) // 2
        return f"{words[:front]}…{words[len(words) - (kept - front) :]}"

    most = min(len(words) - 1, int(width / (_NARROWEST * size)))
    fitting = bisect_right(range(LEAST_KEPT, most + 1), width, key=lambda kept: text_width(around(kept), size))
    return around(LEAST_KEPT + fitting - 1) if fitting else "…"


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{round(value, 2):g}"
