"""A check of the simulator that does not hold: what was found, not an error of the program that looks."""

from __future__ import annotations


class Broken(Exception):
    """Check `check` (1 to 18, as numbered in `docs/testing.md`) is broken, as `story` tells in one line."""

    def __init__(self, check: int, story: str) -> None:
        super().__init__(f"check {check}: {story}")
        self.check = check
        self.story = story
