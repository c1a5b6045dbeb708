"""The console on which names of files and tensors are printed, which are not ours."""

from __future__ import annotations

from rich.console import Console, HighlighterType, JustifyMethod, OverflowMethod
from rich.style import Style
from rich.text import Text

from shared.printable import printable


class PlainConsole(Console):
    """A console that obeys no markup, makes no emoji and prints no control character of any string, in a table or alone."""

    def __init__(self, *, highlight: bool = False, width: int | None = None) -> None:
        super().__init__(markup=False, emoji=False, highlight=highlight, width=width)

    def render_str(
        self,
        text: str,
        *,
        style: str | Style = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        emoji: bool | None = None,
        markup: bool | None = None,
        highlight: bool | None = None,
        highlighter: HighlighterType | None = None,
    ) -> Text:
        """The string as text, as rich asks for every string that is printed."""
        return super().render_str(
            printable(text),
            style=style,
            justify=justify,
            overflow=overflow,
            emoji=emoji,
            markup=markup,
            highlight=highlight,
            highlighter=highlighter,
        )
