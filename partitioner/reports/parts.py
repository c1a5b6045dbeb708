"""The pieces that a report is written with: tables, figures in two widths, letters of ways.

Words are taken plain and escaped here, not by the caller; only what is named a drawing, a part or a ready-made row is markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from partitioner.charts.frame import Mark
from partitioner.charts.markup import escape

WIDE, NARROW = 520.0, 340.0
"""Widths, in pixels, for which each figure is drawn: half of a desk's page, and a phone's. A drawing that is only shrunk
cannot be read on a phone."""


def figure(draw: Callable[[float], str], caption: str, heading: str = "") -> str:
    """A figure, drawn twice; the style sheet shows the one that fits."""
    title = f"<h3>{escape(heading)}</h3>" if heading else ""
    return (
        f'<figure>{title}<div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def section(anchor: str, title: str, *parts: str) -> str:
    """A section with its heading."""
    head = f'<h2 id="{escape(anchor)}">{escape(title)}</h2>'
    return f'<section aria-labelledby="{escape(anchor)}">{head}{"".join(parts)}</section>'


def pair(*figures: str) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pair">{"".join(figures)}</div>'


def paragraph(words: str, class_: str = "") -> str:
    """A paragraph of plain words."""
    return f"<p{_class(class_)}>{escape(words)}</p>"


def letter(mark: Mark | None) -> str:
    """A way's letter; nothing for a way without one."""
    return f'<b class="letter k{mark.colour}">{mark.letter}</b>' if mark else ""


def table(name: str, header: Sequence[str], rows: Iterable[str], lefts: Sequence[int] = (), fit: bool = False) -> str:
    """A table that scrolls inside its own box where it is too wide. Rows are ready made; columns of numbers `lefts` beside
    the first stand on the left."""
    heads = "".join(
        f'<th scope="col"{_class("l" if n in lefts else "")}>{escape(h)}</th>' for n, h in enumerate(header)
    )
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return _scroll(name, "fit" if fit else "", body)


def plain_table(
    name: str, header: Sequence[str], rows: Iterable[Sequence[str]], lefts: Sequence[int] = (), fit: bool = False
) -> str:
    """A table of plain words; one that is to `fit` breaks its lines on a phone rather than scroll."""

    def row(cells: Sequence[str]) -> str:
        return (
            f"<tr>{''.join(f'<td{_class(_side(n, lefts))}>{escape(cell)}</td>' for n, cell in enumerate(cells))}</tr>"
        )

    return table(name, header, [row(cells) for cells in rows], lefts, fit)


def facts(name: str, rows: Iterable[tuple[str, str]]) -> str:
    """A table of two columns: what, and what it is."""
    body = "".join(
        f'<tr><th scope="row">{escape(what)}</th><td class="l wrap">{escape(value)}</td></tr>' for what, value in rows
    )
    return _scroll(name, "facts", f"<table><tbody>{body}</tbody></table>")


def _scroll(name: str, class_: str, body: str) -> str:
    """A box that scrolls sideways, by the keyboard as well."""
    return (
        f'<div{_class(f"scroll {class_}".strip())} tabindex="0" role="region" aria-label="{escape(name)}">{body}</div>'
    )


def _side(column: int, lefts: Sequence[int]) -> str:
    return "l" if column in lefts else ""


def _class(name: str) -> str:
    return f' class="{escape(name)}"' if name else ""
