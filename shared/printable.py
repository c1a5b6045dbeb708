"""Words of unknown origin as a terminal or a page may show them.

The names of a model's tensors are any Unicode. A terminal obeys control characters, and XML allows hardly any. What steers
the direction of text shows one name as another ("Trojan Source", CVE-2021-42574).
"""

from __future__ import annotations

_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks, embeddings, overrides and isolates of the bidirectional algorithm (Unicode Standard Annex 9)."""

_SEPARATORS = (0x2028, 0x2029)

_REPLACED = {
    **{code: 0x2400 + code for code in range(0x20) if code != 0x0A},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF, *_DIRECTIONS, *_SEPARATORS), 0xFFFD),
}


def printable(words: str) -> str:
    """The words with every control character but the end of a line replaced by one that is seen: those of ASCII by their
    pictures (`␛` for escape), those of C1, separators of lines, what turns the direction of text, and what XML cannot hold,
    by `�`."""
    return words.translate(_REPLACED)
