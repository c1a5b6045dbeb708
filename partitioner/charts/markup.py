"""Plain words as markup."""

from __future__ import annotations

import html

from shared.printable import printable


def escape(words: str) -> str:
    """The words as text or as the value of an attribute, in HTML and XML, with control characters replaced."""
    return html.escape(printable(words))
