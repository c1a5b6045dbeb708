"""Other edges that ask the same nodes: `python -m hil.scenarios.crowd`, told by one line who asks whom.

They speak the protocol as an edge does, one connection each, and keep to their credits; what they are answered is counted and
thrown away. An agent for each would take the machine that is to be judged.
"""

from __future__ import annotations

import random
import select
import sys
import time
from collections.abc import Sequence

import msgspec

from hil.child import LineChild
from hil.small_plans import make_images
from hil.weight import add_weight
from shared.events import LinkUp, Received, Send
from shared.transport import Dealers
from shared.wire.codec import decode_node, raw_frame
from shared.wire.messages import PROTOCOL, Bye, Hello, Infer, Refusal, Reply, Tensor, Welcome

LINK = "data"
BUDGET_NS = 50_000_000


class Crowd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`count` edges, spread over `endpoints`, each asking for `contract` with images of `side`, `rate_hz` times a second."""

    endpoints: tuple[str, ...]
    contract: str
    side: int
    count: int
    rate_hz: float
    seed: int = 1


class CrowdCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of it: requests sent, answers, refusals, and turns without a credit to ask with."""

    sent: int = 0
    answers: int = 0
    refusals: int = 0
    without_credit: int = 0


class CrowdProcess(LineChild):
    """A crowd in the hands of a rig; `place` is what runs a command elsewhere."""

    def __init__(self, crowd: Crowd, place: Sequence[str] = ()) -> None:
        super().__init__("hil.scenarios.crowd", place=place)
        self.ask(msgspec.json.encode(crowd))

    def counts(self) -> CrowdCounts:
        """What came of it so far."""
        return msgspec.json.decode(self.ask(b"counts"), type=CrowdCounts)


class Edge:
    """One edge of a crowd."""

    def __init__(self, number: int, endpoint: str, crowd: Crowd, first_ns: int) -> None:
        self._crowd = crowd
        self._name = f"crowd-{number}"
        self._incarnation = time.time_ns()
        self._period_ns = round(1e9 / crowd.rate_hz)
        self._sequence = self._out = 0
        self._credits = 0
        image = make_images(1, number, crowd.side)[0]
        self._tensors = (Tensor("uint8", image.shape),)
        self._frames = (bytes(raw_frame(image)),)
        self.due_ns = first_ns
        self.dealers = Dealers(self._name, self._incarnation, decode_node)
        self.dealers.connect(LINK, endpoint)
        self.sent = self.answers = self.refusals = self.without_credit = 0

    def hear(self) -> None:
        """Take what has come."""
        for event in self.dealers.drain():
            if isinstance(event, LinkUp):
                self._out = self._credits = 0
                hello = Hello(PROTOCOL, self._name, self._incarnation, "data", (self._crowd.contract,))
                self.dealers.send(Send(LINK, hello))
            elif isinstance(event, Received):
                self._take(event.message)

    def turn(self, now: int) -> None:
        """Ask, if it is time and there is a credit."""
        if now < self.due_ns:
            return
        self.due_ns = max(self.due_ns + self._period_ns, now)
        if self._out >= self._credits:
            self.without_credit += 1
            return
        self._sequence += 1
        message = Infer(
            incarnation=self._incarnation,
            sequence=self._sequence,
            attempt=1,
            contract=self._crowd.contract,
            cut=0,
            coding="raw",
            rows=1,
            priority=1,
            budget_ns=BUDGET_NS,
            sent_ns=now,
            tensors=self._tensors,
        )
        if self.dealers.send(Send(LINK, message, self._frames)):
            self._out += 1
            self.sent += 1

    def _take(self, message: object) -> None:
        if isinstance(message, Welcome):
            self._credits = message.credits
        elif isinstance(message, Reply | Refusal):
            self._credits = message.load.credits
            self._out = max(0, self._out - 1)
            if isinstance(message, Reply):
                self.answers += 1
            else:
                self.refusals += 1

    def close(self) -> None:
        """Say goodbye."""
        self.dealers.send(Send(LINK, Bye("closing")))
        self.dealers.close()


def ask_on(crowd: Crowd) -> None:
    """Ask until the input ends; each line of it is answered by the counts so far."""
    rng = random.Random(crowd.seed)
    now = time.monotonic_ns()
    edges = [
        Edge(
            number,
            crowd.endpoints[number % len(crowd.endpoints)],
            crowd,
            now + round(rng.random() * 1e9 / crowd.rate_hz),
        )
        for number in range(crowd.count)
    ]
    poll = select.poll()
    commands = sys.stdin.fileno()
    for descriptor in (commands, *(edge.dealers.fileno() for edge in edges)):
        poll.register(descriptor, select.POLLIN)
    while True:
        waits_ms = max(0.0, (min(edge.due_ns for edge in edges) - time.monotonic_ns()) / 1e6)
        ready = [] if any(edge.dealers.pending() for edge in edges) else poll.poll(waits_ms)
        if commands in [descriptor for descriptor, _ in ready]:
            if not sys.stdin.buffer.readline():
                break
            _say(_sum(edges))
        now = time.monotonic_ns()
        for edge in edges:
            edge.hear()
            edge.turn(now)
    for edge in edges:
        edge.close()


def _sum(edges: Sequence[Edge]) -> CrowdCounts:
    return CrowdCounts(
        sum(edge.sent for edge in edges),
        sum(edge.answers for edge in edges),
        sum(edge.refusals for edge in edges),
        sum(edge.without_credit for edge in edges),
    )


def _say(counts: CrowdCounts) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(counts) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Read who is to be asked, and ask."""
    add_weight()
    crowd = msgspec.json.decode(sys.stdin.buffer.readline(), type=Crowd)
    _say(CrowdCounts())
    ask_on(crowd)


if __name__ == "__main__":
    main()
