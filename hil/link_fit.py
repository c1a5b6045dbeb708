"""A link's rate and round trip from what echoes of known sizes took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from partitioner.options import LinkGuess
from shared.errors import HeadtailError


@dataclass(frozen=True, slots=True)
class Echo:
    """Bytes of one echo there and back."""

    bytes_up: int
    bytes_down: int


def fit_link(extra_us: Mapping[Echo, float]) -> LinkGuess:
    """The link of one rate for both directions that fits echoes best, by least squares: microseconds that each took more
    than without the link.

    Raises `HeadtailError` where they are of one size only, or do not take longer with more bytes.
    """
    sizes = np.array([echo.bytes_up + echo.bytes_down for echo in extra_us], float)
    if np.unique(sizes).size < 2:
        raise HeadtailError("echoes of one size do not tell a link's rate from its round trip")
    byte_us, rtt_us = np.polyfit(sizes, np.array(list(extra_us.values())), 1).tolist()
    if byte_us <= 0.0:
        raise HeadtailError("echoes of more bytes did not take longer: the machine was too busy to measure the link")
    return LinkGuess(round(8.0 / byte_us, 1), round(max(0.0, rtt_us) / 1000.0, 3))
