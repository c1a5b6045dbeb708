"""What an answer teaches is taken in once nobody waits for it; when exactly the loop has the time for it changes nothing."""

from __future__ import annotations

import random
from functools import cache

import msgspec
from busy import busy_pair, recorders
from plans import RAW_ROUTE, make_input, make_plan

from edge.broker import Broker
from edge.journal import EDGE
from hil.journals import journal
from hil.pair import MS, Pair
from shared.events import Arrived, Received, Resolve, Tick
from shared.journal.file import Journal
from shared.journal.recorder import Recorder
from shared.journal.replay import Replay, verify
from shared.settings import EdgeSettings, NodeAddress
from shared.wire.messages import Reply


class Answered:
    """An edge in the state in which the first answer of its node leaves it."""

    def __init__(self) -> None:
        contract, plan = make_plan(routes=(RAW_ROUTE,))
        nodes = (NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"),)
        pair = Pair({contract: plan}, EdgeSettings(nodes=nodes), journal=10_000)
        pair.run(50)
        self.request = pair.request(make_input(1), 30.0)
        pair._feed(pair.edge, Arrived(self.request))
        pair.run(30)
        replay = Replay(journal(recorders(pair)["edge"]))
        assert isinstance(replay.machine, Broker)
        self.broker = replay.machine
        (self.path,) = self.broker.nodes.paths()
        self.before = 0
        for step in replay.steps():
            if isinstance(step.event, Arrived):
                self.before = self.learnt()  # of padding
            if isinstance(step.event, Received) and isinstance(step.event.message, Reply):
                self.now, self.actions = step.now_ns, step.actions
                return

    def ask(self) -> None:
        later = {"sequence": self.request.sequence + 1, "scheduled_ns": self.now, "deadline_ns": self.now + 30 * MS}
        self.request = msgspec.structs.replace(self.request, **later)
        self.broker.handle(Arrived(self.request), self.now)

    def learnt(self) -> int:
        return sum(sizes.seen for sizes in self.path.estimate._sizes.values()) - self.before


def test_an_answer_is_handed_over_before_anything_is_learnt_of_it() -> None:
    edge = Answered()
    assert any(isinstance(action, Resolve) for action in edge.actions)
    assert edge.learnt() == 0


def test_it_is_learnt_of_when_the_next_thing_happens() -> None:
    edge = Answered()
    edge.broker.handle(Tick(), edge.now + MS)
    assert edge.learnt() == 1


def test_the_next_request_goes_out_before_and_it_is_learnt_of_before_the_loop_sleeps() -> None:
    edge = Answered()
    edge.ask()
    assert edge.path.out
    assert edge.learnt() == 0
    edge.broker.idle()
    edge.broker.idle()
    assert edge.learnt() == 1


def test_the_request_after_that_is_decided_with_what_was_learnt() -> None:
    edge = Answered()
    edge.ask()
    edge.ask()
    assert edge.learnt() == 1


def test_a_loop_that_sleeps_before_the_next_request_learns_no_sooner_than_one_that_does_not() -> None:
    edge = Answered()
    edge.broker.idle()
    assert edge.learnt() == 0


@cache
def busy() -> Journal:
    return journal(recorders(busy_pair())["edge"])


def test_when_a_loop_sleeps_changes_no_action() -> None:
    rng, replay = random.Random(1), Replay(busy(), states=False)
    for _ in replay.steps():
        if rng.random() < 0.5:
            assert isinstance(replay.machine, Broker)
            replay.machine.idle()
    assert replay.difference is None


def test_snapshots_that_a_loop_makes_before_it_sleeps_are_those_of_a_replay() -> None:
    rng, given = random.Random(2), Replay(busy())
    broker = EDGE.build(busy().setup)
    assert isinstance(broker, Broker)
    recorder = Recorder(broker, EDGE, busy().setup, events=200)
    for step in given.steps():
        recorder.handle(step.event, step.now_ns)
        if rng.random() < 0.5:
            recorder.idle(MS)
            broker.idle()
    found = journal(recorder)
    assert len(found.segments) > 1
    assert verify(found) is None
