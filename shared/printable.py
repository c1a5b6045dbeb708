"""Words of unknown origin as a terminal or a page may show them.

The names of a model's tensors are any Unicode. A terminal obeys control characters, and XML allows hardly any.
"""

from __future__ import annotations

_REPLACED = {
    **{code: 0x2400 + code for code in range(0x20) if code != 0x0A},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD),
}


def printable(words: str) -> str:
    """The words with every control character but the end of a line replaced by one that is seen: those of ASCII by their
    pictures (`␛` for escape), those of C1, and what XML cannot hold, by `�`."""
    return words.translate(_REPLACED)
