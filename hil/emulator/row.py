"""One line of a check."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One thing that was told, what was measured, whether it is right, and whether the machine was quick enough."""

    what: str
    told: str
    measured: str
    right: bool
    timely: bool = True

    @property
    def verdict(self) -> str:
        """The line's judgement in words."""
        if not self.right:
            return "WRONG"
        return "as told" if self.timely else "LATE"
