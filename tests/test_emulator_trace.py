"""Traces as sources of shapes, their way into the emulator, and when what is sent into one arrives."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.emulator.fates import Fates
from hil.emulator.shape import Passing, Shape
from hil.emulator.trace_chunks import CHUNK_STEPS, Load, Loading, trace_chunks
from hil.emulator.trace_source import TraceSource, trace_sources
from hil.emulator.trace_told import arrivals_ns, judged, loss_at
from hil.emulator.way import Way
from hil.links.trace import Direction, Trace
from shared.errors import UserError

MS = 1_000_000
SIZE = 64
QUEUE = 1 << 30

Step = tuple[float, float, float, bool]
"""Delay in ms, rate in Mbit/s, loss, outage."""


def direction(*steps: Step) -> Direction:
    columns = np.array(steps, np.float64).T
    return Direction(columns[0], columns[1], columns[2], columns[3] > 0)


def times(*values_ns: int) -> np.ndarray:
    return np.array(values_ns, np.int64)


def all_of(count: int) -> np.ndarray:
    return np.ones(count, np.bool_)


UP = direction((1.0, 5.0, 0.1, False), (2.0, 0.0, 0.2, True), (3.0, 6.0, 0.3, False))
DOWN = direction((4.0, 7.0, 0.0, False), (5.0, 7.0, 0.0, False), (6.0, 7.0, 0.0, False))
TRACE = Trace(10_000, UP, DOWN)

steps = st.lists(
    st.tuples(st.sampled_from([0.0, 3.0, 25.0]), st.sampled_from([0.0, 2.0]), st.just(0.0), st.booleans()),
    min_size=1,
    max_size=6,
)


def test_each_direction_has_its_own_delay_rate_and_loss_an_outage_is_a_stall_and_the_end_is_the_beginning() -> None:
    up, down = trace_sources(TRACE, 5000)
    shapes = [
        Shape(delay_ms=1.0, rate_mbit=5.0, loss=0.1, queue_bytes=5000),
        Shape(delay_ms=2.0, loss=0.2, queue_bytes=5000, passing=Passing.STALLED),
        Shape(delay_ms=3.0, rate_mbit=6.0, loss=0.3, queue_bytes=5000),
    ]
    assert [up.at(ms * MS) for ms in (0, 10, 20, 30, 40, 590)] == [*shapes, shapes[0], shapes[1], shapes[2]]
    assert [up.at(at) for at in (10 * MS - 1, 30 * MS - 1)] == [shapes[0], shapes[2]]
    assert [down.at(ms * MS).delay_ms for ms in (0, 10, 20, 30)] == [4.0, 5.0, 6.0, 4.0]
    assert down.at(0).rate_mbit == 7.0


@given(steps, st.integers(0, 200 * MS))
def test_the_next_change_is_the_first_time_at_which_the_shape_is_another(many: list[Step], now: int) -> None:
    source = TraceSource("up", 10_000, direction(*many), QUEUE)
    change = source.next_ns(now)
    if change is None:
        assert len(set(many)) == 1
        return
    assert change > now
    assert source.at(change) != source.at(change - 1) == source.at(now)
    assert all(source.at(at) == source.at(now) for at in range(now, change, 10 * MS))


@pytest.mark.parametrize(
    ("trace", "word"),
    [
        (
            Trace(10_000, UP, direction((1.0, 0.0, 0.0, False), (9e4, 0.0, 0.0, False), (1.0, 0.0, 0.0, False))),
            "down_delay",
        ),
        (Trace(10_000, direction((1.0, 2e5, 0.0, False)), direction((1.0, 0.0, 0.0, False))), "up_rate_mbit.*step 0"),
        (Trace(999, UP, DOWN), r"0\.999 ms"),
    ],
)
def test_a_trace_that_the_emulator_cannot_play_is_refused_by_what_is_wrong(trace: Trace, word: str) -> None:
    with pytest.raises(UserError, match=word):
        trace_sources(trace, QUEUE)


def test_a_long_trace_comes_in_pieces_that_each_fit_a_pipe_and_is_the_same_to_the_last_bit() -> None:
    rng = np.random.default_rng(1)
    many = 2 * CHUNK_STEPS + 1
    up, down = (
        Direction(rng.random(many) * 50, rng.random(many) * 9, rng.random(many), rng.random(many) < 0.2) for _ in "ud"
    )
    loading = Loading()
    lines = [msgspec.json.encode(piece) for piece in trace_chunks(Trace(10_000, up, down))]
    for line in lines:
        loading.add(msgspec.json.decode(line, type=Load))
    came = loading.take(20_000)
    assert len(lines) == 3
    assert max(map(len, lines)) < 1 << 16
    assert came.step_us == 20_000
    for told, got in ((up, came.up), (down, came.down)):
        for name in ("delay_ms", "rate_mbit", "loss", "outage"):
            assert np.array_equal(getattr(told, name), getattr(got, name))


def test_pieces_out_of_order_or_broken_are_refused_and_a_new_beginning_forgets_the_old() -> None:
    loading = Loading()
    (piece,) = trace_chunks(TRACE)
    loading.add(piece)
    for wrong in (Load(2, piece.steps), Load(3, piece.steps[:-1]), Load(3, b"")):
        with pytest.raises(UserError, match="piece"):
            loading.add(wrong)
    loading.add(piece)
    assert loading.take(10_000).steps == TRACE.steps
    with pytest.raises(UserError, match="no trace"):
        loading.take(10_000)


def test_a_packet_waits_for_the_end_of_an_outage_wherever_on_its_way_it_is() -> None:
    link = direction((4.0, 0.0, 0.0, False), (4.0, 0.0, 0.0, True), (7.0, 0.0, 0.0, False))
    sent = times(1 * MS, 8 * MS, 12 * MS, 31 * MS)
    # At once; 2 ms before the outage and 2 after it; after it, with the delay of then; in the next round.
    expected = [5 * MS, 22 * MS, 27 * MS, 35 * MS]
    assert np.abs(arrivals_ns(link, 10_000, sent, all_of(4), SIZE) - expected).max() <= 10


def test_a_packet_takes_its_time_at_the_rate_also_where_that_changes_and_one_that_is_lost_holds_up_no_other() -> None:
    link = direction((8.0, 0.064, 0.0, False), (0.0, 0.128, 0.0, False))
    sent = times(6 * MS, 6 * MS)
    # 512 bits: 256 in the 4 ms at 64 kbit/s, the rest in 2 ms; then 4 ms.
    assert arrivals_ns(link, 10_000, sent, all_of(2), SIZE).tolist() == [12 * MS, 16 * MS]
    sent = times(1 * MS, 5 * MS)
    fast = direction((8.0, 0.0, 0.0, False), (0.0, 0.0, 0.0, False))
    slow_first = arrivals_ns(fast, 5_000, sent, all_of(2), SIZE)
    assert np.abs(slow_first - [9 * MS, 9 * MS]).max() <= 10
    assert abs(arrivals_ns(fast, 5_000, sent, np.array([False, True]), SIZE).item(1) - 5 * MS) <= 10


def test_where_nothing_ever_passes_nothing_can_be_told() -> None:
    with pytest.raises(UserError, match="nothing passes"):
        arrivals_ns(direction((1.0, 0.0, 0.0, True)), 10_000, times(0), all_of(1), SIZE)


@given(
    steps.filter(lambda many: not all(step[3] for step in many)),
    st.lists(st.integers(1, 40 * MS), min_size=1, max_size=20),
)
def test_the_emulator_on_virtual_time_and_the_sums_over_the_trace_say_the_same(
    many: list[Step], pauses: list[int]
) -> None:
    link = direction(*many)
    # Away from the borders of steps, where either side is right.
    sent = [at + 1_003_457 - at % 500_000 for at in np.cumsum(pauses).tolist()]
    way = Way(Fates(1), 0)
    way.play(TraceSource("up", 10_000, link, QUEUE), 0)
    came: dict[int, int] = {}

    def advance(until: int | None) -> None:
        now = 0
        while len(came) < len(sent):
            following = way.next_ns(max(now, last))
            if following is None or (until is not None and following > until):
                return
            now = following
            for packet in way.take(now):
                came[int.from_bytes(packet[:4], "big")] = now

    last = 0
    for number, at in enumerate(sent):
        advance(at)
        last = at
        way.offer(number.to_bytes(4, "big") + bytes(SIZE - 4), at)
    advance(None)
    told = arrivals_ns(link, 10_000, times(*sent), all_of(len(sent)), SIZE)
    assert np.abs(told - [came[number] for number in range(len(sent))]).max() <= 1000


def test_the_chance_of_loss_is_that_of_the_step_in_which_a_packet_is_sent() -> None:
    assert loss_at(UP, 10_000, times(0, 10 * MS, 29 * MS, 31 * MS)).tolist() == [0.1, 0.2, 0.3, 0.1]


def test_what_is_early_late_or_lost_too_often_is_found() -> None:
    count = 400
    sent = np.arange(count, dtype=np.int64) * 5 * MS
    told = sent + 20 * MS
    none = np.zeros(count)

    def verdicts(came_ns: np.ndarray, came: np.ndarray, loss: np.ndarray) -> set[str]:
        return {row.verdict for row in judged("up", sent, told, came_ns, came, loss)}

    assert verdicts(told + MS, all_of(count), none) == {"as told"}
    assert "WRONG" in verdicts(told - 2 * MS, all_of(count), none)
    assert "LATE" in verdicts(told + 4 * MS, all_of(count), none)
    lost = all_of(count)
    lost[::40] = False
    assert verdicts(told, lost, np.full(count, 10 / count)) == {"as told"}
    assert "WRONG" in verdicts(told, lost, none)
    assert "WRONG" in verdicts(told, all_of(count), np.full(count, 0.1))
    assert "WRONG" in verdicts(told, ~all_of(count), none)


@pytest.mark.parametrize(
    ("expected", "held", "verdict"),
    [(39, 42, "as told"), (42, 39, "as told"), (28, 45, "LATE"), (52, 30, "WRONG")],
)
def test_a_packet_more_or_less_in_an_outage_does_not_make_a_quantile_wrong(
    expected: int, held: int, verdict: str
) -> None:
    sent = np.arange(4000, dtype=np.int64) * 5 * MS
    told, came = sent + 10 * MS, sent + 10 * MS
    told[:expected] += 100 * MS
    came[:held] += 100 * MS
    rows = judged("up", sent, told, came, all_of(4000), np.zeros(4000))
    assert {row.what: row.verdict for row in rows}["delay up, p99"] == verdict
    assert {row.what: row.verdict for row in rows}["delay up, most"] == "as told"


def test_the_longest_gap_is_told_and_measured_between_the_packets_that_came() -> None:
    sent = times(0, 5 * MS, 10 * MS, 15 * MS)
    came = np.array([True, False, True, True])
    row = judged("down", sent, sent + MS, sent + times(1, 1, 9, 9) * MS, came, np.full(4, 0.5))[-1]
    assert (row.what, row.told, row.measured, row.verdict) == ("longest gap down", "10.00 ms", "18.00 ms", "LATE")
