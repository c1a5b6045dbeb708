"""Whether what is predicted of a link is true of it, over generated traces: 95 times in 100 means 95 times in 100."""

from __future__ import annotations

import sys

import pytest
from link_world import Size, exceeded, play, reliability, trace_of

SMALL, LARGE = Size(9_000, 2_000), Size(30_000, 2_000)
BORDERS = (0.0, 0.2, 0.5, 0.8, 0.95, 1.01)
LINKS = [("good_edge_site", 20.0), ("urban_5g", 60.0)]


@pytest.mark.parametrize(("name", "deadline_ms"), LINKS)
def test_the_predicted_p95_of_a_route_is_exceeded_by_a_twentieth_of_its_requests(name: str, deadline_ms: float) -> None:
    for seed in (1, 2, 3):
        told = play(trace_of(name, seed, 60.0), (SMALL, LARGE), hertz=30.0, deadline_ms=deadline_ms, seed=seed)
        shares = [exceeded(told, size) for size in (0, 1)]
        sys.stdout.write(
            f"{name}, seed {seed}: exceeded by {shares[0]:.1%} of the small, {shares[1]:.1%} of the large\n"
        )
        assert all(0.03 <= share <= 0.07 for share in shares)


@pytest.mark.parametrize(("name", "deadline_ms"), LINKS)
def test_the_chance_that_is_told_is_about_the_share_that_is_in_time(name: str, deadline_ms: float) -> None:
    told = play(trace_of(name, 4, 120.0), (SMALL, LARGE), hertz=30.0, deadline_ms=deadline_ms, seed=4)
    for many, mean, share in reliability(told, BORDERS, deadline_ms):
        sys.stdout.write(f"{name}: {many} told {mean:.2f}, {share:.2f} in time\n")
        assert many < 100 or abs(mean - share) <= 0.25
