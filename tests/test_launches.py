from __future__ import annotations

from cloud.launches import LaunchCount, Launches
from shared.events import Failed, Finished, Row, Run, Tick
from shared.plan import RAW, SegmentRange


def run(number: int, rows: tuple[int, ...], first: int = 1) -> Run:
    parts = tuple(Row(job, count, (), RAW) for job, count in enumerate(rows))
    return Run(number, 0, "c1", SegmentRange(0, first, 2), parts, 0, 0)


def test_finished_launches_are_counted_by_range_and_rows() -> None:
    launches = Launches()
    for number, rows in enumerate([(1,), (1,), (1, 2), (1,)]):
        launches.started(run(number, rows, first=number // 3))
        launches.ended(Finished(number, (), 0, 1))
    assert launches.counts() == (
        LaunchCount("c1", 0, 0, 2, 1, 2),
        LaunchCount("c1", 0, 0, 2, 3, 1),
        LaunchCount("c1", 0, 1, 2, 1, 1),
    )


def test_launches_that_came_to_nothing_are_not_counted() -> None:
    launches = Launches()
    launches.started(run(1, (1,)))
    launches.ended(Tick())
    launches.ended(Failed(1, "window"))
    launches.ended(Finished(1, (), 0, 1))
    launches.ended(Finished(2, (), 0, 1))
    assert launches.counts() == ()
