"""The strips of latency, agreement and bytes say where their scales begin and end."""

from __future__ import annotations

import re

import pytest

from partitioner.charts.frame import Mark
from partitioner.charts.front import Dot, draw_front


@pytest.mark.parametrize("width", [340.0, 520.0])
def test_every_strip_has_the_tick_of_its_largest_decade(width: float) -> None:
    dots = [Dot("a", 9.0, 1.0, 262.4, True), Dot("b", 11.0, 0.9, 0.3, False), Dot("c", 17.0, 1.0, 0.0, False)]
    drawn = draw_front(dots, {dot.label: Mark(dot.label.upper(), 1) for dot in dots}, "front", width)
    places = {
        words: float(x) for x, words in re.findall(r'<text x="([\d.]+)"[^>]*class="tick"[^>]*>([^<]+)</text>', drawn)
    }
    assert {"0", "0.2", "500"} <= set(places)
    assert all(0.0 <= x <= width for x in places.values())
