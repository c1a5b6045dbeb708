"""What a set of promises can be kept, with releases and classes, and which streams fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.reserve import Periodic, Promise, first_broken, keep, streams_fit


def test_a_long_job_goes_around_an_expected_one_that_it_would_make_late() -> None:
    expected = Promise(-1, 4, 20, release_ns=10, priority=0)
    long = Promise(1, 9, 60, priority=2)
    longer = Promise(1, 17, 60, priority=2)
    assert first_broken([0], [expected, long]) is None
    assert first_broken([0], [expected, longer]) is None
    assert first_broken([0], [expected, Promise(1, 17, 30, priority=2)]) == Promise(1, 17, 30, priority=2)


def test_an_important_job_with_a_late_deadline_does_not_push_out_a_lesser_one_with_an_early_one() -> None:
    assert first_broken([0], [Promise(1, 10, 50, priority=0), Promise(2, 4, 12, priority=2)]) is None


def test_an_expected_frame_gets_its_place_before_lesser_work_with_an_earlier_deadline() -> None:
    frame = Promise(-1, 5, 12, release_ns=6, priority=0)
    assert first_broken([0], [Promise(1, 9, 11, priority=2), frame]) == Promise(-1, 5, 12, 6, 0)
    assert first_broken([0], [Promise(1, 6, 11, priority=2), frame]) is None


def test_the_important_are_kept_where_not_all_can_be() -> None:
    high, middle, low = Promise(1, 6, 10, 0, 0), Promise(2, 5, 10, 0, 1), Promise(3, 4, 10, 0, 2)
    assert keep([0], (), [low, middle, high]) == [high, low]
    assert keep([0], [high], [low, middle]) == [low]
    assert keep([0], [high, middle], [low]) is None


def test_an_executor_of_which_nobody_knows_when_it_is_free_keeps_no_promise() -> None:
    never = 1 << 62
    assert first_broken([never], [Promise(1, 1, 100)]) == Promise(1, 1, 100)
    assert first_broken([never, 0], [Promise(1, 1, 100)]) is None


def test_a_stream_does_not_fit_behind_a_job_that_may_block_it() -> None:
    strict = Periodic(period_ns=33, deadline_ns=10, duration_ns=4)
    assert streams_fit([strict], 1)
    assert streams_fit([strict, Periodic(16, 50, 5)], 1)
    assert not streams_fit([strict, Periodic(16, 50, 11)], 1)
    assert streams_fit([strict, Periodic(16, 50, 11)], 2)


def test_a_load_of_equal_streams_fits_below_the_whole_and_not_above() -> None:
    stream = Periodic(10, 10, 2)
    assert streams_fit([stream] * 4, 1)
    assert not streams_fit([stream] * 6, 1)
    assert streams_fit([stream] * 8, 2)


PERIODIC = st.builds(Periodic, st.integers(4, 30), st.integers(2, 40), st.integers(1, 8))
PHASES = st.lists(st.integers(0, 29), min_size=4, max_size=4)


@given(st.lists(PERIODIC, min_size=1, max_size=4), PHASES)
def test_no_frame_of_streams_that_fit_is_ever_late_whatever_their_phases(
    streams: list[Periodic], phases: list[int]
) -> None:
    if not streams_fit(streams, 1):
        return
    jobs = sorted(
        (phase + n * s.period_ns, phase + n * s.period_ns + s.deadline_ns, s.duration_ns)
        for s, phase in zip(streams, phases, strict=False)
        for n in range(12)
    )
    now = 0
    while jobs:
        ready = [job for job in jobs if job[0] <= now]
        if not ready:
            now = jobs[0][0]
            continue
        job = min(ready, key=lambda j: j[1])
        jobs.remove(job)
        now += job[2]
        assert now <= job[1]


SPANS = st.integers(1, 9)
PROMISES = st.lists(
    st.builds(Promise, st.just(0), SPANS, st.integers(1, 60), st.integers(0, 30), st.integers(0, 2)), max_size=5
)


@given(PROMISES, st.integers(0, 20))
def test_a_set_that_is_said_to_be_kept_has_a_schedule_that_keeps_it(promises: list[Promise], free: int) -> None:
    if first_broken([free], promises) is None:
        assert possible(free, promises)


@given(PROMISES, st.integers(0, 20))
def test_a_set_that_is_ready_and_said_to_be_broken_has_no_schedule_on_one_executor(
    promises: list[Promise], free: int
) -> None:
    ready = [Promise(p.job, p.duration_ns, p.deadline_ns) for p in promises]
    assert (first_broken([free], ready) is None) == possible(free, ready)


def possible(now: int, promises: list[Promise]) -> bool:
    """By trying every order."""
    for i, promise in enumerate(promises):
        ended = max(now, promise.release_ns) + promise.duration_ns
        if ended <= promise.deadline_ns and possible(ended, promises[:i] + promises[i + 1 :]):
            return True
    return not promises
