"""The forward schedule against an exact search over every order and every executor.

It may call a set broken that some order would keep, except on one executor where all is ready: there it is exact. It must
never call a set kept that no order keeps. What it calls kept can be carried out by its own rule, launch by launch.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from shared.reserve import Periodic, Promise, first_broken, keep, streams_fit


def exact(free_at: Sequence[int], promises: Sequence[Promise]) -> bool:
    """Whether any order on any executors keeps all promises: each begins as soon as its executor and itself are ready."""
    if not promises:
        return True
    for index, promise in enumerate(promises):
        rest = [*promises[:index], *promises[index + 1 :]]
        for executor in range(len(free_at)):
            ends = max(free_at[executor], promise.release_ns) + promise.duration_ns
            if ends <= promise.deadline_ns:
                free = [ends if e == executor else at for e, at in enumerate(free_at)]
                if exact(free, rest):
                    return True
    return False


@st.composite
def sets(draw: st.DrawFn, executors: int = 2, most: int = 5, released: bool = False) -> tuple[list[int], list[Promise]]:
    """When executors are free, and promises that are hard to keep: deadlines not far from what the work takes."""
    free = draw(st.lists(st.integers(0, 10), min_size=1, max_size=executors))
    ready = min(free) if released else 20
    promises = [
        Promise(
            job=number,
            duration_ns=draw(st.integers(1, 10)),
            deadline_ns=draw(st.integers(1, 40)),
            release_ns=draw(st.integers(0, ready)),
            priority=draw(st.integers(0, 2)),
        )
        for number in range(1, draw(st.integers(0, most)) + 1)
    ]
    return free, promises


@settings(max_examples=600)
@given(sets())
def test_what_is_called_kept_can_be_kept(given_: tuple[list[int], list[Promise]]) -> None:
    free, promises = given_
    before = list(free)
    broken = first_broken(free, iter(promises))
    assert free == before
    event(f"{'broken' if broken else 'kept'}")
    if broken is None:
        assert exact(free, promises)
    else:
        assert broken in promises


@settings(max_examples=400)
@given(sets(executors=1, most=6, released=True))
def test_on_one_executor_where_all_is_ready_it_is_exact(given_: tuple[list[int], list[Promise]]) -> None:
    free, promises = given_
    assert (first_broken(free, promises) is None) == exact(free, promises)


@settings(max_examples=300)
@given(sets(executors=1, most=4))
def test_a_promise_more_never_mends_what_is_broken(given_: tuple[list[int], list[Promise]]) -> None:
    free, promises = given_
    if not exact(free, promises):
        more = [*promises, Promise(99, 1, 1_000)]
        assert first_broken(free, more) is not None


@settings(max_examples=300)
@given(sets(), st.integers(0, 5))
def test_what_is_kept_of_a_set_can_be_kept_and_nothing_is_dropped_that_fits(
    given_: tuple[list[int], list[Promise]], split: int
) -> None:
    free, promises = given_
    certain, others = promises[:split], promises[split:]
    kept = keep(free, certain, others)
    if kept is None:
        assert first_broken(free, certain) is not None
        return
    assert set(kept) <= set(others)
    assert exact(free, [*certain, *kept])
    best = min(others, key=lambda p: (p.priority, p.deadline_ns, p.job), default=None)
    if best is not None and best not in kept:
        assert first_broken(free, [*certain, best]) is not None, "the most important is dropped though it fits"


def carry_out(free_at: list[int], promises: list[Promise]) -> list[Promise]:
    """Launch by launch: whenever an executor is free, begin what is ready and leaves the rest kept, in the order of
    deadlines; else wait. The promises that ended late, or never began."""
    free, waiting, late = list(free_at), sorted(promises, key=lambda p: (p.deadline_ns, p.job)), list[Promise]()
    times = sorted({*free, *(p.release_ns for p in promises)})
    while times and waiting:
        now = times.pop(0)
        for executor in [e for e, at in enumerate(free) if at <= now]:
            at = [max(now, other) for other in free]
            for promise in waiting:
                if promise.release_ns > now:
                    continue
                after = [now + promise.duration_ns if e == executor else other for e, other in enumerate(at)]
                rest = [p for p in waiting if p is not promise]
                if first_broken(after, rest) is None:
                    waiting = rest
                    free = [after[executor] if e == executor else other for e, other in enumerate(free)]
                    late += [promise] * (after[executor] > promise.deadline_ns)
                    times = sorted({*times, after[executor]})
                    break
    return late + waiting


@settings(max_examples=400)
@given(sets())
def test_what_is_kept_is_kept_by_launching_only_what_leaves_the_rest_kept(
    given_: tuple[list[int], list[Promise]],
) -> None:
    free, promises = given_
    if first_broken(free, promises) is None:
        assert carry_out(free, promises) == []


# --- streams ----------------------------------------------------------------------------------------------------------


@st.composite
def periodics(draw: st.DrawFn) -> list[Periodic]:
    return [
        Periodic(draw(st.integers(2, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 5)))
        for _ in range(draw(st.integers(0, 3)))
    ]


def frames(streams: Sequence[Periodic], phases: Sequence[int], until: int) -> list[Promise]:
    """The frames of streams whose first frames come at `phases`."""
    found: list[Promise] = []
    for stream, phase in zip(streams, phases, strict=True):
        for release in range(phase, until, stream.period_ns):
            found.append(Promise(len(found) + 1, stream.duration_ns, release + stream.deadline_ns, release))
    return found


def edf_misses(work: list[Promise]) -> bool:
    """Whether non-preemptive earliest deadline first, which never idles while there is work, is late with any."""
    now = 0
    waiting = list(work)
    while waiting:
        ready = [p for p in waiting if p.release_ns <= now]
        if not ready:
            now = min(p.release_ns for p in waiting)
            continue
        job = min(ready, key=lambda p: (p.deadline_ns, p.job))
        waiting.remove(job)
        now += job.duration_ns
        if now > job.deadline_ns:
            return True
    return False


@settings(max_examples=300)
@given(periodics(), st.lists(st.integers(0, 12), min_size=3, max_size=3))
def test_streams_that_fit_are_never_late_whatever_their_phases(streams: list[Periodic], phases: list[int]) -> None:
    fits = streams_fit(streams, 1)
    event("fit" if fits else "do not fit")
    if fits:
        assert not edf_misses(frames(streams, phases[: len(streams)], 60))


@settings(max_examples=200)
@given(periodics())
def test_streams_that_would_need_more_than_the_whole_do_not_fit(streams: list[Periodic]) -> None:
    if sum(s.duration_ns / s.period_ns for s in streams) > 1 or any(s.duration_ns > s.deadline_ns for s in streams):
        assert not streams_fit(streams, 1)
