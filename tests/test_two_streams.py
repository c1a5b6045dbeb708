"""The rules that two streams on one executor are held against, each seen to fail. The bench plays them."""

from __future__ import annotations

from msgspec.structs import replace

from hil.ledger import Entry
from hil.phases import Phase
from hil.results import PhaseResult, summarise
from hil.two_streams_rules import ACTS, LESSER, STRICT, Act, Played, Promised, TwoStreams, verdict_of
from shared.lateness import LatenessFigures

MS = 1_000_000
FRAMES = 300


def result(act: Act, misses: int, frames: int = FRAMES, *, stalled: bool = False) -> PhaseResult:
    kept = [Entry(n * 33 * MS, "on_time", 5 * MS, "edge", "small", "rung(small, 0.5)") for n in range(frames - misses)]
    lost = [Entry(n * 33 * MS, "missed", 10 * MS, detail="rung") for n in range(misses)]
    phase = Phase(act.name, "beside" if act.beside else "control", act.title, frames)
    return summarise(phase, [*kept, *lost], 10.0, 0, (), LatenessFigures(), stalled)


def played(act: Act, misses: int = 0, lesser: int = 0, *, stalled: bool = False) -> Played:
    promises = [Promised(0.0, STRICT.name, "small", "")]
    if act.beside:
        promises.append(Promised(0.0, LESSER.name, "small", ""))
    if act.beside and act.slowed:
        promises.append(Promised(2600.0, LESSER.name, "", "overload"))
    beside = result(act, lesser, 2 * FRAMES, stalled=stalled) if act.beside else None
    return Played(act, result(act, misses, stalled=stalled), beside, tuple(promises))


def report(**changed: Played) -> TwoStreams:
    """All acts as they ought to be, but for those that are given by name (with _ for -)."""
    return verdict_of(
        [
            changed.get(act.name.replace("-", "_"), played(act, misses=2, lesser=200 if act.slowed else 0))
            for act in ACTS
        ]
    )


def act(name: str) -> Act:
    return next(a for a in ACTS if a.name == name)


def broken(report: TwoStreams) -> list[tuple[str, str]]:
    return [(rule.phase, rule.found) for rule in report.rules if rule.judged and not rule.holds]


def test_the_streams_take_four_fifths_of_an_executor_and_the_lesser_job_is_longer_than_a_strict_frame_can_wait() -> (
    None
):
    assert abs(STRICT.load + LESSER.load - 0.8) < 0.01
    assert LESSER.job_ms + STRICT.job_ms > STRICT.deadline_ms
    assert STRICT.priority < LESSER.priority
    assert (STRICT.rate_hz, STRICT.deadline_ms, LESSER.rate_hz, LESSER.deadline_ms) == (30, 10, 60, 50)


def test_every_act_with_both_streams_stands_between_controls_at_its_own_speed() -> None:
    for slowed in (False, True):
        acts = [a for a in ACTS if a.slowed is slowed]
        assert [a.beside for a in acts] == [place % 2 == 1 for place in range(len(acts))]
        assert not acts[-1].beside


def test_all_is_well_where_the_strict_stream_misses_no_more_than_alone() -> None:
    found = report()
    assert found.holds, broken(found)
    assert found.words == "every judged rule holds"


def test_a_strict_stream_that_misses_more_than_a_point_beside_the_lesser_one_is_found() -> None:
    found = report(beside_2=played(act("beside-2"), misses=6))
    assert not found.holds
    assert broken(found) == [("beside-2", "98.0%")]
    assert report(beside_2=played(act("beside-2"), misses=5)).holds


def test_where_the_machine_stalled_shares_are_not_judged() -> None:
    found = report(beside_2=played(act("beside-2"), misses=60, stalled=True))
    assert found.holds
    assert found.words == "every judged rule holds; 1 not judged: the machine stalled"


def test_a_machine_that_stalled_in_most_acts_shows_nothing() -> None:
    found = report(
        beside_1=played(act("beside-1"), misses=60, stalled=True),
        beside_2=played(act("beside-2"), misses=60, stalled=True),
    )
    assert not found.holds
    assert "too noisy" in found.words


def test_a_strict_stream_without_a_promise_is_found() -> None:
    one = played(act("alone-1"))
    bare = replace(one, promises=(Promised(0.0, STRICT.name, "", "overload"),))
    assert broken(report(alone_1=bare)) == [("alone-1", "0.00 s: strict promised nothing (overload)")]


def test_a_lesser_stream_that_keeps_its_promise_longer_than_the_strict_one_is_found() -> None:
    one = played(act("beside-slowed"), misses=2, lesser=200)
    first = (*one.promises[:2], Promised(2600.0, STRICT.name, "", "overload"), one.promises[2])
    assert broken(report(beside_slowed=replace(one, promises=first))) == [
        ("beside-slowed", "2.60 s: strict promised nothing (overload)")
    ]
    after = (*one.promises, Promised(2700.0, STRICT.name, "", "overload"))
    assert report(beside_slowed=replace(one, promises=after)).holds


def test_a_slower_device_that_costs_the_strict_stream_more_than_the_lesser_one_is_found() -> None:
    slow = {name: played(act(name.replace("_", "-")), misses=100) for name in ("alone_slowed_1", "alone_slowed_2")}
    found = report(**slow, beside_slowed=played(act("beside-slowed"), misses=100, lesser=100))
    assert broken(found) == [("beside-slowed", "strict 66.7% on time, lesser 83.3%")]


def test_a_wrong_answer_to_the_lesser_stream_is_found() -> None:
    one = played(act("beside-1"))
    assert one.lesser is not None
    wrong = replace(one, lesser=replace(one.lesser, wrong=1))
    assert broken(report(beside_1=wrong)) == [("the lesser stream", "0 lost, 0 duplicated, 1 wrong of 1800 frames")]
