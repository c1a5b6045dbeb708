from __future__ import annotations

import pytest

from partitioner.costs.cost import Spread
from partitioner.costs.estimate import anchors, remainder, spread_heads
from partitioner.graph.cuts import CandidateCut
from partitioner.ladder import default_resolutions, size_at
from shared.errors import UserError
from shared.request import TensorSpec


def cut(name: str, share: float) -> CandidateCut:
    return CandidateCut(name, (TensorSpec(name, "float32", (1, 4)),), "Relu", frozenset(), share)


CUTS = [cut("a", 0.1), cut("b", 0.5), cut("c", 0.9)]
WHOLE = Spread(2000.0, 3000.0)


def test_heads_between_timed_ones_lie_by_their_share() -> None:
    heads = spread_heads(CUTS, {"a": 200.0, "c": 1000.0}, 1000.0, WHOLE)
    # warm: a 200, b halfway between 200 and 1000, c 1000; the whole takes twice as long at the stream's pace
    assert heads["a"] == Spread(400.0, 600.0)
    assert heads["b"] == Spread(1200.0, 1800.0)
    assert heads["c"] == WHOLE


def test_a_head_is_never_faster_than_one_before_it_nor_slower_than_the_whole() -> None:
    heads = spread_heads(CUTS, {"a": 800.0, "b": 500.0, "c": 1500.0}, 1000.0, WHOLE)
    assert heads["a"].p50_us == heads["b"].p50_us == pytest.approx(1600.0)
    assert heads["c"].p50_us == 2000.0


def test_the_tail_is_what_is_left() -> None:
    assert remainder(WHOLE, Spread(500.0, 600.0)) == Spread(1500.0, 2400.0)
    assert remainder(WHOLE, Spread(2500.0, 3500.0)) == Spread(0.0, 0.0)


def test_anchors_are_spread_over_the_compute() -> None:
    cuts = [cut(str(index), share) for index, share in enumerate([0.0, 0.01, 0.02, 0.5, 0.98, 1.0])]
    assert [c.name for c in anchors(cuts, 3)] == ["0", "3", "5"]
    assert anchors(cuts, 10) == cuts
    assert len(anchors(cuts, 1)) == 1


def test_default_resolutions_are_two_thirds_and_a_half_in_multiples_of_32() -> None:
    assert default_resolutions(192) == (128, 96)
    assert default_resolutions(320) == (224, 160)
    assert default_resolutions(64) == (32,)
    assert default_resolutions(32) == ()


def test_a_resolution_keeps_the_proportion() -> None:
    image = TensorSpec("image", "uint8", (1, 192, 384, 3))
    assert size_at(96, image) == (96, 192)


@pytest.mark.parametrize(("resolution", "words"), [(192, "less than"), (0, "more than 0"), (100, "multiple of 32")])
def test_a_resolution_that_makes_no_rung_is_refused(resolution: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        size_at(resolution, TensorSpec("image", "uint8", (1, 192, 192, 3)))
