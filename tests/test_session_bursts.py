"""A node that is asked much at once, and more than it can do."""

from __future__ import annotations

from test_session import FRAMES, LINK, MS, T0, finish, give, greeted, infer

from shared.events import Received, Run, Send
from shared.settings import NodeGroup
from shared.wire.messages import Refusal, Reply


def test_messages_that_came_together_are_launched_together() -> None:
    s = greeted()
    for number in (1, 2):
        assert s.handle(Received(LINK, infer(number), FRAMES, more=True), T0) == []
    (run,) = [a for a in give(s, infer(3), frames=FRAMES) if isinstance(a, Run)]
    assert len(run.rows) == 3


def test_the_credit_of_an_edge_whose_requests_come_too_late_shrinks_and_grows_again() -> None:
    s = greeted(node=NodeGroup(credits=8))
    granted: list[int] = []
    for number in range(1, 20):
        (send,) = give(s, infer(number, budget_ns=1), T0 + number * 20 * MS, frames=FRAMES)
        assert isinstance(send, Send)
        assert isinstance(send.message, Refusal)
        assert send.message.reason == "expired"
        granted.append(send.message.load.credits)
    assert granted[:3] == [6, 4, 4]
    assert set(granted[3:]) == {4}
    now = T0 + 1000 * MS
    for number in range(100, 160):
        now += 5 * MS
        (run,) = [a for a in give(s, infer(number, sent_ns=now), now, frames=FRAMES) if isinstance(a, Run)]
        (send,) = finish(s, run, now + 2 * MS)
        assert isinstance(send, Send)
        assert isinstance(send.message, Reply)
        granted.append(send.message.load.credits)
    assert granted[-1] == 8
