"""One line of the doctor: what was found, how good that is, and what to do about it."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.lateness import LatenessFigures

Verdict = Literal["ok", "look", "bad"]


class Finding(msgspec.Struct, frozen=True):
    """`verdict`: `ok`, `look` (worth a look) or `bad`. `advice` says what to do, in plain words. `stops`: the promise cannot
    be kept on this host while this is so."""

    group: str
    name: str
    value: str
    verdict: Verdict = "ok"
    advice: str = ""
    stops: bool = False


def grade(amount: float, look: float, bad: float) -> Verdict:
    """`ok` up to `look`, then `look`, from `bad` on `bad`."""
    if amount >= bad:
        return "bad"
    return "look" if amount > look else "ok"


def spread(figures: LatenessFigures) -> str:
    """Quantiles in one line."""
    return (
        f"p50 {figures.p50_ms:.2f}, p99 {figures.p99_ms:.2f}, p99.9 {figures.p999_ms:.2f}, max {figures.max_ms:.2f} ms"
    )
