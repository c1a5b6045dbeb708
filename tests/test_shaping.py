"""The shaped link on virtual time: when bytes come out, what is held, what a stall does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.shaping import PACKET, Shape, Shaper

MS = 1_000_000


def run_out(shaper: Shaper[str], now: int) -> list[tuple[int, str, bytes]]:
    """Everything that comes out, each with the time at which the shaper itself said that it would."""
    out: list[tuple[int, str, bytes]] = []
    while (at := shaper.next_ns(now)) is not None:
        assert at >= now
        now = at
        taken = shaper.take(now)
        assert taken
        out.extend((now, tag, data) for tag, data in taken)
    return out


def test_a_message_arrives_after_its_bytes_at_the_rate_and_the_delay() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=20.0, delay_ms=3.0))
    shaper.put("a", bytes(10 * PACKET), 5 * MS)
    out = run_out(shaper, 5 * MS)
    assert len(out) == 10
    assert out[0][0] == 5 * MS + PACKET * 400 + 3 * MS
    assert out[-1][0] == 5 * MS + 10 * PACKET * 400 + 3 * MS


def test_an_unlimited_link_only_delays() -> None:
    shaper: Shaper[str] = Shaper(Shape(delay_ms=1.0))
    shaper.put("a", bytes(100_000), 0)
    assert {at for at, _, _ in run_out(shaper, 0)} == {MS}


def test_nothing_comes_out_early() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=8.0, delay_ms=1.0))
    shaper.put("a", b"x", 0)
    due = 1000 + MS
    assert shaper.take(due - 1) == []
    assert shaper.take(due) == [("a", b"x")]


def test_connections_share_the_link_in_order() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=8.0))
    shaper.put("big", bytes(1000), 0)
    shaper.put("probe", bytes(100), 10)
    assert [(at, tag) for at, tag, _ in run_out(shaper, 10)] == [(1_000_000, "big"), (1_100_000, "probe")]


def test_an_idle_link_gathers_no_credit_for_a_burst() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=8.0))
    shaper.put("a", bytes(1000), 0)
    assert run_out(shaper, 0)[-1][0] == MS
    shaper.put("a", bytes(1000), 100 * MS)
    assert run_out(shaper, 100 * MS)[-1][0] == 101 * MS


def test_a_mark_keeps_its_place_behind_the_bytes() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=8.0, delay_ms=2.0))
    shaper.put("a", b"last words", 0)
    shaper.put("a", b"", 0)
    assert [data for _, _, data in run_out(shaper, 0)] == [b"last words", b""]


def test_a_full_link_has_no_room_until_bytes_come_out() -> None:
    shape = Shape(rate_mbit=20.0, delay_ms=3.0, queue_kb=16)
    shaper: Shaper[str] = Shaper(shape)
    assert shape.bound == 30_000
    shaper.put("a", bytes(30_000), 0)
    assert shaper.room() == 0
    shaper.take(3 * MS + PACKET * 400)
    assert shaper.room() == PACKET


def test_a_stall_freezes_the_queue_and_what_is_under_way() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=8.0, delay_ms=5.0))
    shaper.put("a", bytes(1000), 0)
    shaper.stall(True, 2 * MS)
    shaper.stall(True, 3 * MS)
    assert shaper.next_ns(50 * MS) is None
    assert shaper.take(50 * MS) == []
    shaper.put("b", bytes(1000), 60 * MS)
    shaper.stall(False, 102 * MS)
    out = run_out(shaper, 102 * MS)
    assert [(at, tag) for at, tag, _ in out] == [(106 * MS, "a"), (108 * MS, "b")]


def test_a_stall_holds_back_even_what_takes_no_time() -> None:
    shaper: Shaper[str] = Shaper(Shape())
    shaper.stall(True, MS)
    shaper.put("a", b"x", 2 * MS)
    assert shaper.take(3 * MS) == []
    shaper.stall(False, 4 * MS)
    assert shaper.take(4 * MS) == [("a", b"x")]


def test_a_change_of_shape_counts_for_what_has_not_left_the_queue() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=8.0))
    shaper.put("a", bytes(2 * PACKET), 0)
    first = PACKET * 1000
    shaper.configure(Shape(rate_mbit=80.0, delay_ms=1.0), first)
    assert [at for at, _, _ in run_out(shaper, first)] == [first, first + PACKET * 100 + MS]


def test_a_shorter_delay_does_not_reorder() -> None:
    shaper: Shaper[str] = Shaper(Shape(delay_ms=10.0))
    shaper.put("a", b"first", 0)
    shaper.next_ns(0)
    shaper.configure(Shape(delay_ms=1.0), MS)
    shaper.put("a", b"second", MS)
    assert [data for _, _, data in run_out(shaper, MS)] == [b"first", b"second"]


def test_a_dropped_connection_leaves_nothing_behind() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=8.0))
    shaper.put("gone", bytes(5000), 0)
    shaper.put("here", bytes(100), 0)
    shaper.drop("gone")
    assert shaper.held == 100
    assert {tag for _, tag, _ in run_out(shaper, 0)} == {"here"}


def test_a_lump_ends_with_a_packet_and_never_past_the_message() -> None:
    shaper: Shaper[str] = Shaper(Shape(rate_mbit=200.0, delay_ms=1.0))
    shaper.put("a", bytes(5 * PACKET), 0)
    packet = round(PACKET * 8000 / 200)
    assert shaper.next_ns(0) == packet + MS
    assert shaper.next_ns(0, grain_ns=2 * packet) == 3 * packet + MS
    assert shaper.next_ns(0, grain_ns=100 * packet) == 5 * packet + MS


@given(
    st.lists(st.tuples(st.integers(0, 3 * MS), st.integers(1, 6000)), min_size=1, max_size=20),
    st.sampled_from([0.0, 1.0, 20.0, 200.0]),
    st.floats(0, 20),
)
def test_every_byte_comes_out_once_in_order_and_not_before_its_time(
    puts: list[tuple[int, int]], rate_mbit: float, delay_ms: float
) -> None:
    shape = Shape(rate_mbit=rate_mbit, delay_ms=delay_ms)
    shaper: Shaper[str] = Shaper(shape)
    now, sent, received = 0, b"", b""
    earliest = 0
    for number, (wait, size) in enumerate(puts):
        now += wait
        received += b"".join(data for _, data in shaper.take(now))
        data = bytes([number]) * size
        shaper.put("a", data, now)
        sent += data
        earliest = now + shape.delay_ns + shape.serialise_ns(size % PACKET or min(size, PACKET))
    out = run_out(shaper, now)
    assert received + b"".join(data for _, _, data in out) == sent
    assert shaper.held == 0
    assert not out or out[-1][0] >= earliest
    if not out:
        assert earliest <= now


@pytest.mark.parametrize(
    ("rate", "delay", "bound"), [(200.0, 1.0, 100_000), (20.0, 3.0, 32 * 1024), (0.0, 5.0, 32 * 1024)]
)
def test_the_bound_is_twice_the_bandwidth_delay_product_or_the_least_queue(
    rate: float, delay: float, bound: int
) -> None:
    assert Shape(rate_mbit=rate, delay_ms=delay).bound == bound
