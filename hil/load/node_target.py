"""A node, asked directly: one edge with one connection and no agent, for requests of one class.

It keeps to the credit that the node lends it, as an edge must: a request beyond it is not sent and ends as refused for
`no-credit`; it probes, and so hears of more. It does not cancel at the deadline as an edge does, so that what a node does too
late is seen.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence

import msgspec

from edge.link import LinkEstimate
from hil.asker import LINK, Asker
from hil.load.rows import MISSED, REJECTED, Recorder
from shared.errors import HeadtailError, UserError
from shared.events import Event, LinkDown, Received, Send
from shared.offset import OffsetInterval
from shared.plan import Plan
from shared.request import Buffer
from shared.settings import Link
from shared.wire.messages import Bye, Drain, Infer, Probe, ProbeReply, Refusal, Reply, Tensor, Welcome

GUARD_NS = 500_000
"""The node is told of a deadline that is so much sooner, for the way back: an agent's own default."""

TOO_LATE = "too late to begin"
"""How the detail ends of a refusal by an executor, which came to the launch too late."""

AT_LAUNCH = "expired-at-launch"
PROBE_NS = 100_000_000
WAITING = 4096
"""Messages that may wait to leave."""

NAMES = itertools.count(1)


class NodeTarget:
    """Implements `hil.load.target.Target`. `frames`: what requests send in turn, each the tensors of cut 0 in `coding`.
    Raises `HeadtailError` where the node does not answer or does not serve the contract."""

    def __init__(
        self,
        endpoint: str,
        contract: str,
        plan: Plan,
        coding: str,
        frames: Sequence[tuple[Buffer, ...]],
        priority: int,
        patience_s: float = 10.0,
    ) -> None:
        self._contract = contract
        self._coding = coding
        self._frames = frames
        self._priority = priority
        self._tensors = tuple(Tensor(spec.dtype, spec.shape) for spec in plan.cuts[0].tensors)
        self._places: dict[int, int] = {}
        self._sequence = 0
        self._recorder = Recorder()
        self._ended: list[int] = []
        self.unsent = 0
        self._asker = Asker(endpoint, contract, patience_s, peer=f"load-{os.getpid()}-{next(NAMES)}", waiting=WAITING)
        try:
            welcome = self._asker.greet()
        except BaseException:
            self._asker.close()
            raise
        self._credits = welcome.credits
        self._probe = Probe(0, 0, 0, 0)
        self._way = LinkEstimate(Link())
        self._clock = OffsetInterval()
        self._waits = False
        self._link = self._asker.dealers

    def fileno(self) -> int:
        """The connection's."""
        return self._link.fileno()

    def pending(self) -> bool:
        """Whether the connection has something that its descriptor does not show."""
        return bool(self._ended) or self._link.pending()

    def room(self) -> int:
        """What is left of the credit."""
        return self._credits - len(self._places)

    def send(self, place: int, scheduled_ns: int, due_ns: int, now: int) -> None:
        """Send it with what is left of its deadline, less the guard and, where others wait, the shortest way there and
        back, as an edge does."""
        if self.room() <= 0:
            self._refuse(place, REJECTED, "no-credit", now)
            return
        self._sequence += 1
        sent_ns = time.monotonic_ns()
        message = Infer(
            incarnation=self._asker.incarnation,
            sequence=self._sequence,
            attempt=0,
            contract=self._contract,
            cut=0,
            coding=self._coding,
            rows=1,
            priority=self._priority,
            budget_ns=due_ns - GUARD_NS - (self._back_ns(sent_ns) if self._waits else 0) - sent_ns,
            sent_ns=sent_ns,
            tensors=self._tensors,
        )
        if self._link.send(Send(LINK, message, self._frames[place % len(self._frames)])):
            self._places[self._sequence] = place
        else:
            self.unsent += 1
            self._refuse(place, MISSED, "unsent", now)

    def take(self) -> list[int]:
        """Note replies and refusals; probe where it is time to. Raises `UserError` where the node takes no such requests."""
        now = time.monotonic_ns()
        if now >= self._probe.sent_ns + PROBE_NS:
            self._probe = msgspec.structs.replace(self._probe, number=self._probe.number + 1, sent_ns=now)
            self._link.send(Send(LINK, self._probe))
        for event in self._link.drain():
            self._heard(event)
        ended, self._ended = self._ended, []
        return ended

    def lead_to(self, recorder: Recorder) -> None:
        """Note in this one from now on."""
        self._recorder = recorder
        self._places.clear()
        self._ended.clear()
        self.unsent = 0

    def close(self) -> None:
        """Say good-bye and disconnect."""
        self._asker.close()

    def _heard(self, event: Event) -> None:
        if isinstance(event, LinkDown):
            raise HeadtailError("the connection to the node was lost")
        if not isinstance(event, Received):
            return
        match event.message:
            case Reply(sequence=sequence, stages=stages, load=load):
                self._credits, self._waits = load.credits, load.wait_ns > 0
                place = self._places.pop(sequence, None)
                if place is not None:
                    self._recorder.answered(place, dict[str, int](stages.items()), time.monotonic_ns())
                    self._ended.append(place)
            case Refusal(reason="input", detail=detail):
                raise UserError(f"the node takes none of these requests: {detail}")
            case Refusal(sequence=sequence, reason=reason, detail=detail, load=load):
                self._credits, self._waits = load.credits, load.wait_ns > 0
                place = self._places.pop(sequence, None)
                if place is not None:
                    word = AT_LAUNCH if detail.endswith(TOO_LATE) else reason
                    self._refuse(place, REJECTED, word, time.monotonic_ns())
            case ProbeReply(sent_ns=sent_ns, load=load) as answered:
                self._credits, self._waits = load.credits, load.wait_ns > 0
                now = time.monotonic_ns()
                self._way.came_back(now - sent_ns)
                self._clock.peer_received(answered.probe_sent_ns, answered.received_ns, now)
                self._probe = msgspec.structs.replace(self._probe, last_sent_ns=sent_ns, last_received_ns=now)
            case Welcome(credits=credits_):
                self._credits = credits_
            case Bye(reason="hello"):
                self._greet_again()
            case Bye(reason=reason):
                raise HeadtailError(f"the node left: {reason}")
            case Drain():
                raise HeadtailError("the node is about to leave")
            case _:
                pass

    def _back_ns(self, now: int) -> int:
        return self._way.least_ns(0, self._clock.bounds(now)[1])

    def _greet_again(self) -> None:
        """The node has forgotten this edge, and with it what it was asked."""
        now = time.monotonic_ns()
        for place in self._places.values():
            self._refuse(place, MISSED, "forgotten", now)
        self._places.clear()
        self._credits = 0
        self._link.send(Send(LINK, self._asker.hello()))

    def _refuse(self, place: int, kind: int, word: str, now: int) -> None:
        self._recorder.refused(place, kind, word, now)
        self._ended.append(place)
