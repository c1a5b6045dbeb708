"""One direction of the emulated link on virtual time: when packets come, which are lost, in which order, what is queued."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.emulator.direction import Direction
from hil.emulator.fates import Fates
from hil.emulator.shape import GilbertElliott, Passing, Shape
from shared.errors import UserError

MS = 1_000_000
SEED = 7


def packet(number: int, size: int = 1000) -> bytes:
    return number.to_bytes(4, "big") + bytes(size - 4)


def number_of(data: bytes) -> int:
    return int.from_bytes(data[:4], "big")


def direction(shape: Shape, seed: int = SEED) -> Direction:
    return Direction(shape, Fates(seed))


def run_out(way: Direction, now: int, until: int = 1 << 62) -> list[tuple[int, int]]:
    """What comes out by `until`: the time that the direction itself said, and the packet's number."""
    out: list[tuple[int, int]] = [(now, number_of(data)) for data in way.take(now)]
    while (at := way.next_ns(now)) is not None and at <= until:
        assert at > now
        now = at
        out.extend((now, number_of(data)) for data in way.take(now))
    return out


def offer_all(way: Direction, count: int, now: int = 0, gap_ns: int = 0, size: int = 1000) -> list[tuple[int, int]]:
    """Offer packets 0, 1, ... and let all come out."""
    out: list[tuple[int, int]] = []
    for number in range(count):
        way.offer(packet(number, size), now)
        if gap_ns:
            out += run_out(way, now, now + gap_ns)
            now += gap_ns
    return out + run_out(way, now)


def losses(shape: Shape, count: int) -> list[bool]:
    """Which of the first `count` packets are lost."""
    fates = Fates(SEED)
    return [fates.draw(shape).lost for _ in range(count)]


def test_a_packet_comes_out_after_its_delay_and_not_a_nanosecond_before() -> None:
    way = direction(Shape(delay_ms=3.0))
    way.offer(packet(0), 5 * MS)
    assert way.next_ns(5 * MS) == 8 * MS
    assert way.take(8 * MS - 1) == []
    assert [number_of(data) for data in way.take(8 * MS)] == [0]


def test_a_queue_drains_at_the_rate() -> None:
    way = direction(Shape(rate_mbit=8.0, delay_ms=2.0, queue_bytes=100_000))
    assert offer_all(way, 10) == [((number + 1) * MS + 2 * MS, number) for number in range(10)]


def test_a_rate_that_divides_nothing_is_exact_in_the_long_run() -> None:
    way = direction(Shape(rate_mbit=7.0, queue_bytes=3_000_000))
    at, _ = offer_all(way, 3000, size=999)[-1]
    exact_ns = 3000 * 999 * 8 * 1000 / 7
    assert 0 <= at - exact_ns < 1


def test_an_idle_link_saves_up_its_burst_and_no_more() -> None:
    way = direction(Shape(rate_mbit=8.0, burst_bytes=3000))
    assert [at for at, _ in offer_all(way, 5, now=100 * MS)] == [100 * MS, 100 * MS, 100 * MS, 101 * MS, 102 * MS]
    assert [at for at, _ in offer_all(way, 1, now=103 * MS)] == [103 * MS]
    assert [at for at, _ in offer_all(way, 2, now=103 * MS)] == [104 * MS, 105 * MS]


def test_a_link_without_a_burst_saves_up_nothing() -> None:
    way = direction(Shape(rate_mbit=8.0))
    assert [at for at, _ in offer_all(way, 2, now=100 * MS)] == [101 * MS, 102 * MS]


def test_a_change_of_rate_counts_from_its_moment_also_for_the_packet_on_the_wire() -> None:
    way = direction(Shape(rate_mbit=8.0))
    way.offer(packet(0), 0)
    way.configure(Shape(rate_mbit=16.0), MS // 2)
    assert run_out(way, MS // 2) == [(MS // 2 + MS // 4, 0)]


def test_changes_that_come_faster_than_packets_starve_none() -> None:
    way = direction(Shape(rate_mbit=0.8))
    way.offer(packet(0), 0)
    for step in range(1, 10):
        way.configure(Shape(rate_mbit=0.8, delay_ms=step % 2), step * MS)
    assert run_out(way, 9 * MS) == [(11 * MS, 0)]


def test_a_full_queue_drops_from_its_tail() -> None:
    way = direction(Shape(rate_mbit=8.0, queue_bytes=3500))
    assert [number for _, number in offer_all(way, 5)] == [0, 1, 2]
    counts = way.counts()
    assert (counts.offered, counts.delivered, counts.overflowed) == (5, 3, 2)
    way.offer(packet(9), 4 * MS)
    assert run_out(way, 4 * MS) == [(5 * MS, 9)]


def test_independent_loss_takes_its_share_and_single_packets() -> None:
    lost = losses(Shape(loss=0.1), 50_000)
    # Four standard deviations: 4 * sqrt(0.1 * 0.9 / 50,000) = 0.0054.
    assert sum(lost) / 50_000 == pytest.approx(0.1, abs=0.0054)
    assert sum(a and b for a, b in pairwise(lost)) / sum(lost) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(("share", "packets"), [(0.02, 5.0), (0.1, 1.5), (0.3, 20.0)])
def test_bursty_loss_has_the_share_and_the_mean_burst_that_were_told(share: float, packets: float) -> None:
    model = GilbertElliott.of(share, packets)
    lost = losses(Shape(bursts=model), 100_000)
    bursts = [len(list(run)) for gone, run in groupby(lost) if gone]
    assert sum(lost) / 100_000 == pytest.approx(share, rel=0.12)
    assert sum(bursts) / len(bursts) == pytest.approx(packets, rel=0.12)
    assert (model.share, model.mean_burst) == (pytest.approx(share), pytest.approx(packets))


def test_a_good_link_of_the_chain_may_lose_packets_too() -> None:
    model = GilbertElliott(enter=0.1, leave=0.3, bad_loss=0.5, good_loss=0.1)
    assert model.share == pytest.approx(0.2)
    assert sum(losses(Shape(bursts=model), 50_000)) / 50_000 == pytest.approx(0.2, rel=0.05)


def test_which_packets_are_lost_depends_on_their_number_and_the_seed_alone() -> None:
    shape = Shape(loss=0.2, bursts=GilbertElliott.of(0.1, 3.0))
    plain = {number for number, gone in enumerate(losses(shape, 500)) if not gone}
    assert {number for _, number in offer_all(direction(shape), 500)} == plain
    slow = Shape(0.5, 4.0, 50.0, loss=0.2, bursts=shape.bursts, queue_bytes=1_000_000, reorder=0.3, reorder_ms=9.0)
    assert {number for _, number in offer_all(direction(slow), 500, gap_ns=77_777)} == plain
    assert {number for _, number in offer_all(direction(shape, SEED + 1), 500)} != plain


def test_which_packets_a_burst_takes_does_not_depend_on_when_bursts_were_switched_on() -> None:
    early, late = Fates(SEED), Fates(SEED)
    bursts = Shape(bursts=GilbertElliott.of(0.3, 3.0))
    for _ in range(100):
        early.draw(Shape(bursts=GilbertElliott(enter=0.0, leave=1.0)))
        late.draw(Shape())
    assert [early.draw(bursts) for _ in range(200)] == [late.draw(bursts) for _ in range(200)]


def test_loss_of_everything_and_of_nothing_are_exact() -> None:
    assert offer_all(direction(Shape(loss=1.0)), 100) == []
    assert len(offer_all(direction(Shape(loss=0.0)), 100)) == 100


def test_a_lost_packet_has_used_its_time_on_the_link() -> None:
    way = direction(Shape(rate_mbit=8.0, loss=1.0))
    way.offer(packet(0), 0)
    way.take(0)
    way.configure(Shape(rate_mbit=8.0), 0)
    way.offer(packet(1), 0)
    assert run_out(way, 0) == [(2 * MS, 1)]


def test_jitter_is_added_within_its_bound_and_keeps_the_order() -> None:
    out = offer_all(direction(Shape(delay_ms=5.0, jitter_ms=4.0)), 2000, gap_ns=5 * MS)
    extras = [at - number * 5 * MS - 5 * MS for at, number in out]
    assert min(extras) >= 0
    assert max(extras) <= 4 * MS
    assert sum(extras) / len(extras) == pytest.approx(2 * MS, rel=0.1)
    crowded = offer_all(direction(Shape(delay_ms=5.0, jitter_ms=4.0)), 2000, gap_ns=MS // 100)
    assert [number for _, number in crowded] == list(range(2000))


def test_a_reordered_packet_is_overtaken_by_exactly_those_that_come_within_its_hold() -> None:
    out = offer_all(direction(Shape(delay_ms=1.0, reorder=0.1, reorder_ms=2.5)), 1000, gap_ns=MS)
    late = {number for at, number in out if at != (number + 1) * MS}
    assert {at - (number + 1) * MS for at, number in out if number in late} == {2_500_000}
    assert len(late) / 1000 == pytest.approx(0.1, abs=0.04)
    order = [number for _, number in out]
    for number in late - {997, 998, 999}:
        overtook = order[: order.index(number)]
        expected = [n for n in (number + 1, number + 2) if n not in late]
        assert [n for n in overtook if n > number] == expected


def test_a_packet_that_is_held_back_waits_for_no_other() -> None:
    shape = Shape(delay_ms=1.0, jitter_ms=4.0, reorder=0.5, reorder_ms=2.0)
    fates = Fates(SEED)
    drawn = [fates.draw(shape) for _ in range(100)]
    held = {number: 3 * MS + fate.jitter_ns for number, fate in enumerate(drawn) if fate.held}
    assert {number: at for at, number in offer_all(direction(shape), 100) if number in held} == held


def test_a_stall_lets_nothing_pass_and_keeps_what_the_queue_holds() -> None:
    way = direction(Shape(delay_ms=5.0, queue_bytes=3000))
    way.offer(packet(0), 0)
    way.configure(Shape(delay_ms=5.0, queue_bytes=3000, passing=Passing.STALLED), 2 * MS)
    for number in range(1, 6):
        way.offer(packet(number), (10 + number) * MS)
    assert way.next_ns(50 * MS) is None
    assert way.take(50 * MS) == []
    way.configure(Shape(delay_ms=5.0, queue_bytes=3000), 102 * MS)
    assert run_out(way, 102 * MS) == [(105 * MS, 0), *((107 * MS, number) for number in (1, 2, 3))]
    assert way.counts().overflowed == 2


def test_a_stall_freezes_the_packet_on_the_wire() -> None:
    way = direction(Shape(rate_mbit=8.0))
    way.offer(packet(0), 0)
    way.configure(Shape(rate_mbit=8.0, passing=Passing.STALLED), MS // 4)
    way.configure(Shape(rate_mbit=8.0), 50 * MS)
    assert run_out(way, 50 * MS) == [(50 * MS + 3 * MS // 4, 0)]


def test_a_blackout_drops_what_is_queued_what_is_under_way_and_what_comes() -> None:
    way = direction(Shape(rate_mbit=8.0, delay_ms=5.0))
    for number in range(3):
        way.offer(packet(number), 0)
    way.configure(Shape(rate_mbit=8.0, delay_ms=5.0, passing=Passing.DARK), 2 * MS)
    way.offer(packet(3), 3 * MS)
    way.configure(Shape(rate_mbit=8.0, delay_ms=5.0), 10 * MS)
    way.offer(packet(4), 10 * MS)
    assert run_out(way, 10 * MS) == [(16 * MS, 4)]
    assert (way.counts().darkened, way.counts().inside) == (4, 0)


def test_a_shorter_delay_overtakes_nothing() -> None:
    way = direction(Shape(delay_ms=10.0))
    way.offer(packet(0), 0)
    way.configure(Shape(delay_ms=1.0), MS)
    way.offer(packet(1), MS)
    assert run_out(way, MS) == [(10 * MS, 0), (10 * MS, 1)]


def test_a_new_seed_begins_the_fates_anew() -> None:
    shape = Shape(loss=0.5)
    way = direction(shape)
    first = [number for _, number in offer_all(way, 200)]
    way.reseed(Fates(SEED))
    assert [number for _, number in offer_all(way, 200)] == first


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delay_ms", -1.0),
        ("jitter_ms", float("nan")),
        ("rate_mbit", -0.1),
        ("loss", 1.1),
        ("reorder", -0.1),
        ("reorder_ms", float("inf")),
        ("queue_bytes", 1499),
        ("burst_bytes", -1),
    ],
)
def test_a_shape_that_no_link_has_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(UserError, match=field):
        Shape(**{field: value})


def test_a_burst_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match=r"0\.9"):
        GilbertElliott.of(0.9, 1.0)
    with pytest.raises(UserError, match="packets"):
        GilbertElliott.of(0.1, 0.5)
    with pytest.raises(UserError, match="leave"):
        GilbertElliott(0.5, 0.0)


shapes = st.builds(
    Shape,
    delay_ms=st.floats(0, 20),
    jitter_ms=st.floats(0, 5),
    rate_mbit=st.sampled_from([0.0, 0.7, 20.0, 333.0]),
    burst_bytes=st.sampled_from([0, 4000]),
    queue_bytes=st.sampled_from([2000, 9000, 100_000]),
    loss=st.sampled_from([0.0, 0.3]),
    bursts=st.sampled_from([None, GilbertElliott.of(0.2, 2.0)]),
    passing=st.sampled_from([*Passing, Passing.OPEN, Passing.OPEN]),
)
steps = st.lists(st.tuples(st.integers(0, 3 * MS), st.one_of(st.integers(4, 1500), shapes)), min_size=1, max_size=40)


@given(shapes, steps, st.integers(0, 9))
def test_whatever_happens_packets_add_up_keep_their_order_and_the_queue_its_bound(
    first: Shape, happens: list[tuple[int, int | Shape]], seed: int
) -> None:
    way = direction(first, seed)
    now, sent, came, shape, bound = 0, 0, list[int](), first, first.queue_bytes
    for wait, what in happens:
        now += wait
        came += [number_of(data) for data in way.take(now)]
        if isinstance(what, Shape):
            shape = what
            bound = max(bound, what.queue_bytes)
            way.configure(what, now)
        else:
            way.offer(packet(sent, what), now)
            sent += 1
        counts = way.counts()
        assert way.queued_bytes <= bound
        assert counts.offered == sent
        gone = counts.lost + counts.overflowed + counts.darkened
        assert counts.offered == counts.delivered + gone + counts.inside
    way.configure(Shape(delay_ms=shape.delay_ms), now)
    came += [number_of(data) for data in way.take(now)]
    came += [number for _, number in run_out(way, now)]
    assert came == sorted(set(came))
    assert way.counts().inside == 0
    assert way.counts().delivered == len(came)
