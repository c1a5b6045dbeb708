"""The classical ways of forming batches, by themselves and in a node's scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import X, make_input, make_plan

from cloud.session import Session
from shared.errors import SettingsError
from shared.events import Action, Finished, Received, RowResult, Run, Send, Tick, WakeAt
from shared.forming import Fixed, SizeOrDelay, Step, forming_of
from shared.plan import Plan
from shared.settings import CloudSettings, NodeBatching, NodeGroup, NodeScheduling
from shared.settings_check import check
from shared.wire.messages import PROTOCOL, Cancel, Hello, Infer, Refusal, Tensor

MS = 1_000_000
CONTRACT, PLAN = make_plan(cloud_ms=1.0)
_, STEEP = make_plan(cloud_ms=1.0, batch_slope=1.5)
LINK = "edge:1:data"
T0 = 1000 * MS


class Node:
    """A session, what it asked for last, and whom it refused."""

    def __init__(self, plan: Plan = PLAN, max_queued: int = 1024, **batching: object) -> None:
        settings = CloudSettings(
            node=NodeGroup(credits=1000),
            batching=NodeBatching(max_batch_size=4, **batching),  # type: ignore[arg-type]
            scheduling=NodeScheduling(max_queued=max_queued),
        )
        self.session = Session(check(settings), {CONTRACT: plan}, "node", 7)
        self.session.handle(Received(LINK, Hello(PROTOCOL, "edge", 1, "data", (CONTRACT,))), T0)
        self.wake_ns = 0
        self.asked = 0
        self.refused: dict[int, str] = {}

    def ask(self, now: int, budget_ms: int = 20, priority: int = 1, rows: int = 1) -> list[Run]:
        self.asked += 1
        tensors = (Tensor("float32", (rows, *X.shape[1:])),)
        message = Infer(1, self.asked, 1, CONTRACT, 0, "raw", rows, priority, budget_ms * MS, now, tensors)
        return self.take(self.session.handle(Received(LINK, message, (make_input(0, rows)[0].tobytes(),)), now))

    def cancel(self, request: int, now: int) -> list[Run]:
        return self.take(self.session.handle(Received(LINK, Cancel(1, request, 1)), now))

    def tick(self, now: int) -> list[Run]:
        return self.take(self.session.handle(Tick(0), now))

    def end(self, run: Run, now: int, took: int) -> list[Run]:
        results = tuple(RowResult(row.job, (make_input(0, row.rows)[0][:, :4],)) for row in run.rows)
        return self.take(self.session.handle(Finished(run.run, results, now - took, now), now))

    def take(self, actions: Sequence[Action]) -> list[Run]:
        self.session.validate()
        self.wake_ns = next((a.at_ns for a in actions if isinstance(a, WakeAt)), self.wake_ns)
        refusals = [a.message for a in actions if isinstance(a, Send) and isinstance(a.message, Refusal)]
        self.refused |= {refusal.sequence: refusal.reason for refusal in refusals}
        return [a for a in actions if isinstance(a, Run)]


def test_a_fixed_batch_waits_for_all_its_rows_or_its_latest_start() -> None:
    fixed = Fixed()
    assert fixed.opens_ns(7, 1 * MS, 9 * MS, 8) == 9 * MS
    assert fixed.opens_ns(8, 1 * MS, 9 * MS, 8) == 0
    assert fixed.most("model", 8) == 8


@pytest.mark.parametrize(
    ("size", "rows", "latest", "opens"),
    [(4, 3, 9, 3), (4, 4, 9, 0), (0, 7, 9, 3), (0, 8, 9, 0), (100, 8, 9, 0), (4, 3, 2, 2)],
)
def test_size_or_delay_waits_for_either_and_never_beyond_the_latest_start(
    size: int, rows: int, latest: int, opens: int
) -> None:
    assert SizeOrDelay(size, 2 * MS).opens_ns(rows, 1 * MS, latest * MS, 8) == opens * MS


def test_a_step_grows_by_one_while_full_launches_keep_the_objective_and_falls_by_a_tenth() -> None:
    step = Step(5 * MS)
    sizes: list[int] = []
    for _ in range(12):
        most = step.most("model", 64)
        sizes.append(most)
        step.ended("model", most, most * MS)  # a millisecond a row: six rows are too slow
    assert sizes[:6] == [1, 2, 3, 4, 5, 6]
    assert set(sizes[6:]) == {5, 6}
    step.ended("model", 1, MS)
    assert step.most("model", 64) in {5, 6}, "a launch that was not full teaches nothing"
    assert (step.most("other", 64), step.most("model", 2)) == (1, 2)


def test_the_settings_name_the_way() -> None:
    assert forming_of(NodeBatching()) is None
    assert isinstance(forming_of(NodeBatching(batch_strategy="fixed")), Fixed)
    assert isinstance(forming_of(NodeBatching(batch_strategy="step")), Step)
    made = forming_of(NodeBatching(batch_strategy="size_or_delay", min_batch_size=3, max_batch_latency_ms=1.5))
    assert made is not None
    assert made.opens_ns(2, 0, 9 * MS, 8) == 1.5 * MS
    assert made.opens_ns(3, 0, 9 * MS, 8) == 0


def test_a_node_waits_for_a_fixed_batch_and_begins_what_does_not_fill_at_its_latest_start() -> None:
    node = Node(batch_strategy="fixed")
    assert [node.ask(T0 + n) for n in range(3)] == [[], [], []]
    (full,) = node.ask(T0 + 3)
    assert len(full.rows) == 4
    assert node.end(full, T0 + 2 * MS, MS) == []
    assert node.ask(T0 + 3 * MS) == []
    begun: list[Run] = []
    at = 0
    while not begun:
        at = node.wake_ns
        assert node.tick(at - 1) == []
        begun = node.tick(at)
    assert [len(run.rows) for run in begun] == [1]
    assert T0 + 19 * MS < at < T0 + 22 * MS


def test_a_node_waits_for_size_or_delay() -> None:
    node = Node(batch_strategy="size_or_delay", min_batch_size=2, max_batch_latency_ms=5.0)
    assert node.ask(T0) == []
    assert node.wake_ns == T0 + 5 * MS
    (pair,) = node.ask(T0 + MS)
    assert len(pair.rows) == 2
    assert node.end(pair, T0 + 3 * MS, MS) == []
    assert node.ask(T0 + 4 * MS) == []
    assert node.tick(T0 + 9 * MS - 1) == []
    (late,) = node.tick(T0 + 9 * MS)
    assert len(late.rows) == 1


def test_a_node_finds_its_batch_step_by_step() -> None:
    node = Node(batch_strategy="step", max_batch_latency_ms=5.0)
    sizes: list[int] = []
    (run,) = node.ask(T0)
    for n in range(12):
        node.ask(T0 + n)
    now = T0
    for _ in range(4):
        sizes.append(len(run.rows))
        now += MS
        (run,) = node.end(run, now, MS)
    assert sizes == [1, 2, 3, 4]


def rows_of(run: Run) -> int:
    return sum(row.rows for row in run.rows)


def test_a_batch_has_its_size_where_a_row_more_costs_more_than_a_launch_of_its_own() -> None:
    node = Node(STEEP, batch_strategy="fixed")
    assert [node.ask(T0 + n, 100) for n in range(3)] == [[], [], []]
    (full,) = node.ask(T0 + 3, 100)
    assert rows_of(full) == 4


def test_what_is_less_important_and_has_less_time_is_not_held_back_for_the_head_of_its_group() -> None:
    node = Node(batch_strategy="fixed")
    assert node.ask(T0, 50, priority=0) == []
    assert node.ask(T0 + 1, 10, priority=2) == []
    at = node.wake_ns
    assert at < T0 + 9 * MS
    assert [rows_of(run) for run in node.tick(at)] == [2]


def test_requests_of_several_rows_are_stepped_up_as_well() -> None:
    node = Node(batch_strategy="step", max_batch_latency_ms=50.0)
    (run,) = node.ask(T0, 5000, rows=2)
    for _ in range(10):
        node.ask(T0, 5000, rows=2)
    sizes: list[int] = []
    for n in range(1, 5):
        sizes.append(rows_of(run))
        (run,) = node.end(run, T0 + n * MS, MS)
    assert sizes == [2, 2, 4, 4]


def test_a_node_forgets_when_those_came_that_left_though_an_old_one_waits() -> None:
    """Else it grows for as long as that one waits: `validate` says so."""
    node = Node(max_queued=4, batch_strategy="fixed")
    node.ask(T0, 60_000)
    for n in range(20):
        node.ask(T0 + n, 60_000)
        node.cancel(node.asked, T0 + n)


@pytest.mark.parametrize(
    ("batching", "said"),
    [
        ({"min_batch_size": 5}, "min_batch_size: is 5; expected at most max_batch_size, 4"),
        ({"batch_strategy": "step", "max_batch_latency_ms": 0.0}, "expected more than 0 with 'step'"),
    ],
)
def test_settings_that_no_way_could_keep_are_refused(batching: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Node(**batching)  # type: ignore[arg-type]


REQUESTS = st.lists(st.tuples(st.integers(0, 30), st.integers(12, 60), st.integers(1, 4)), min_size=1, max_size=30)
"""When each comes after the one before and with how much time, in milliseconds, and its rows."""


@given(st.sampled_from(["fixed", "size_or_delay", "step"]), st.sampled_from([PLAN, STEEP]), REQUESTS)
def test_nobody_is_late_for_having_waited_for_more(way: str, plan: Plan, requests: list[tuple[int, int, int]]) -> None:
    """Who is refused for want of time found the executor taken meanwhile; no launch is larger than may be."""
    node = Node(plan, batch_strategy=way, max_batch_latency_ms=5.0)
    came: dict[int, int] = {}
    taken: list[tuple[int, int]] = []
    now, running, ends = T0, None, 0

    def until(then: int) -> None:
        nonlocal now, running, ends
        while (at := min(ends if running else then, node.wake_ns if node.wake_ns > now else then)) < then:
            now = at
            if running and now >= ends:
                began = node.end(running, now, now - taken[-1][0])
                running = None
            else:
                began = node.tick(now)
            note(began)
        now = then

    def note(began: list[Run]) -> None:
        nonlocal running, ends
        for run in began:
            assert running is None
            assert 0 < rows_of(run) <= 4
            running, ends = run, now + round(2 * MS * (1 + (0.25 if plan is PLAN else 1.5) * (rows_of(run) - 1)))
            taken.append((now, ends))

    for gap, budget, rows in requests:
        until(now + gap * MS)
        note(node.ask(now, budget, rows=rows))
        came[node.asked] = now
    until(now + 100 * MS)
    assert node.session.scheduler.queued == 0
    assert running is None
    for request in node.refused:
        budget = requests[request - 1][1] * MS
        first, last = came[request], came[request] + budget
        assert any(begin < last and first < end for begin, end in taken), f"request {request} was held back for nothing"


@pytest.mark.parametrize(("late_ms", "lost"), [(0.9, 0), (5.0, 2)])
def test_a_timer_that_always_comes_late_costs_no_more_than_is_learned_from(late_ms: float, lost: int) -> None:
    node = Node(batch_strategy="fixed")
    now = T0
    for _ in range(10):
        node.ask(now)
        while node.session.scheduler.queued:
            now = node.wake_ns + round(late_ms * MS)
            for run in node.tick(now):
                now += 2 * MS
                node.end(run, now, 2 * MS)
        now += 100 * MS
    assert len(node.refused) == lost
