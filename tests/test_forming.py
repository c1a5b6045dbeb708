"""The classical ways of forming batches, by themselves and in a node's scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from plans import X, make_input, make_plan

from cloud.session import Session
from shared.events import Action, Finished, Received, RowResult, Run, Tick, WakeAt
from shared.forming import Fixed, SizeOrDelay, Step, forming_of
from shared.settings import CloudSettings, NodeBatching
from shared.wire.messages import PROTOCOL, Hello, Infer, Tensor

MS = 1_000_000
CONTRACT, PLAN = make_plan(cloud_ms=1.0)
FRAMES = (make_input()[0].tobytes(),)
LINK = "edge:1:data"
T0 = 1000 * MS


class Node:
    """A session and what it asked for last."""

    def __init__(self, **batching: object) -> None:
        settings = CloudSettings(batching=NodeBatching(max_batch_size=4, **batching))  # type: ignore[arg-type]
        self.session = Session(settings, {CONTRACT: PLAN}, "node", 7)
        self.session.handle(Received(LINK, Hello(PROTOCOL, "edge", 1, "data", (CONTRACT,))), T0)
        self.wake_ns = 0
        self.asked = 0

    def ask(self, now: int) -> list[Run]:
        self.asked += 1
        tensors = (Tensor("float32", X.shape),)
        message = Infer(1, self.asked, 1, CONTRACT, 0, "raw", 1, 1, 20 * MS, now, tensors)
        return self.take(self.session.handle(Received(LINK, message, FRAMES), now))

    def tick(self, now: int) -> list[Run]:
        return self.take(self.session.handle(Tick(0), now))

    def end(self, run: Run, now: int, took: int) -> list[Run]:
        results = tuple(RowResult(row.job, (make_input()[0][:, :4],)) for row in run.rows)
        return self.take(self.session.handle(Finished(run.run, results, now - took, now), now))

    def take(self, actions: Sequence[Action]) -> list[Run]:
        self.session.validate()
        self.wake_ns = next((a.at_ns for a in actions if isinstance(a, WakeAt)), self.wake_ns)
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
