"""A node answers before it learns how long the launch took; when exactly its loop has the time for it changes nothing."""

from __future__ import annotations

import random
from functools import cache

from busy import busy_pair, recorders

from cloud.journal import NODE
from cloud.session import Session
from hil.journals import journal
from hil.pair import MS
from shared.events import Finished, Send
from shared.journal.file import Journal
from shared.journal.recorder import Recorder
from shared.journal.replay import Replay, verify
from shared.wire.messages import Reply


@cache
def busy() -> Journal:
    return journal(recorders(busy_pair())["b"])


def last_learnt_ns(session: Session) -> int:
    """When the last launch ended of which something is learnt."""
    return max([curve.seen_ns for curve in session.scheduler.latency._curves.values()], default=0)


def test_a_node_answers_before_it_learns_unless_something_waits_and_learns_before_its_loop_sleeps() -> None:
    replay = Replay(busy())
    session = replay.machine
    assert isinstance(session, Session)
    answered, waiting = [0, 0], False
    for step in replay.steps():
        if isinstance(step.event, Finished) and any(_is_reply(action) for action in step.actions):
            answered[waiting] += 1
            assert (last_learnt_ns(session) == step.now_ns) == waiting
            session.idle()
            assert last_learnt_ns(session) == step.now_ns
        waiting = session.scheduler.queued > 0
    assert min(answered) > 3


def _is_reply(action: object) -> bool:
    return isinstance(action, Send) and isinstance(action.message, Reply)


def test_when_a_nodes_loop_sleeps_changes_no_action() -> None:
    rng, replay = random.Random(1), Replay(busy(), states=False)
    for _ in replay.steps():
        if rng.random() < 0.5:
            assert isinstance(replay.machine, Session)
            replay.machine.idle()
    assert replay.difference is None


def test_snapshots_that_a_nodes_loop_makes_before_it_sleeps_are_those_of_a_replay() -> None:
    rng, given = random.Random(2), Replay(busy())
    session = NODE.build(busy().setup)
    assert isinstance(session, Session)
    recorder = Recorder(session, NODE, busy().setup, events=200)
    for step in given.steps():
        recorder.handle(step.event, step.now_ns)
        if rng.random() < 0.5:
            recorder.idle(MS)
            session.idle()
    found = journal(recorder)
    assert len(found.segments) > 1
    assert verify(found) is None
