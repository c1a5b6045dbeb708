"""Many edges as one machine: each greets a node on a connection of its own and asks at a steady pace.

It decides nothing as an edge does: it asks whatever comes back. Each request has one outcome, a reply, a refusal, or neither
by the time that it is given; what comes after that, or twice, is counted.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from shared.errors import InvariantBroken
from shared.events import Action, Event, LinkDown, LinkUp, Received, Send, SendFailed, Tick, WakeAt
from shared.lateness import Lateness, LatenessFigures
from shared.plan import Plan
from shared.wire.messages import PROTOCOL, Bye, Hello, Infer, Refusal, Reply, Tensor, Welcome

PATIENCE_NS = 5_000_000_000
"""When a request without an answer is lost: far beyond its budget."""


class CallersFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of them: requests that were made, those that were answered and refused (by reason), those that could not be
    handed over, those without an outcome, those with more than one, connections that broke, and how long answers took."""

    connections: int
    asked: int
    answered: int
    refused: dict[str, int]
    unsent: int
    lost: int
    again: int
    broken: int
    round_trips: LatenessFigures


class Callers:
    """`connections` edges that ask `each` times, once in `period_ns`, for `budget_ns`. Pure: `handle(event, now)`."""

    def __init__(
        self, contract: str, plan: Plan, frame: bytes, connections: int, each: int, period_ns: int, budget_ns: int
    ) -> None:
        self.links = tuple(f"edge-{index}" for index in range(connections))
        self.done = False
        self._contract = contract
        self._tensors = tuple(Tensor(spec.dtype, spec.shape) for spec in plan.inputs)
        self._frame = frame
        self._each = each
        self._period_ns = period_ns
        self._budget_ns = budget_ns
        self._asked: dict[str, int] = {}
        self._due: deque[tuple[int, str]] = deque()
        """When each connection asks next, in order."""
        self._open: dict[tuple[str, int], int] = {}
        self._oldest: deque[tuple[int, tuple[str, int]]] = deque()
        """Each request with the time at which it is lost, in order."""
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._round_trips = Lateness()

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event and say what is to be sent."""
        out: list[Action] = []
        match event:
            case LinkUp():
                out.append(Send(event.link, Hello(PROTOCOL, event.link, 1, "data", (self._contract,))))
            case LinkDown():
                self._counts["broken"] += 1
            case Received():
                self._received(event, now)
            case SendFailed():
                self._unsent(event)
            case Tick():
                pass
            case _:
                raise InvariantBroken(f"callers do not know the event {type(event).__name__}")
        self._ask(now, out)
        self._give_up(now)
        if len(self._asked) == len(self.links) and not self._due and not self._open:
            self.done = True
        elif self._due or self._oldest:
            out.append(WakeAt(min(queue[0][0] for queue in (self._due, self._oldest) if queue)))
        return out

    def figures(self) -> CallersFigures:
        """What came of them so far."""
        counts = self._counts
        return CallersFigures(
            connections=len(self._asked),
            asked=sum(self._asked.values()),
            answered=counts["answered"],
            refused=dict(self._refused),
            unsent=counts["unsent"],
            lost=counts["lost"] + len(self._open),
            again=counts["again"],
            broken=counts["broken"],
            round_trips=self._round_trips.figures(),
        )

    def _received(self, event: Received, now: int) -> None:
        message = event.message
        match message:
            case Welcome():
                if event.link in self._asked:
                    return
                self._asked[event.link] = 0
                if len(self._asked) == len(self.links):
                    # All are there: they begin spread evenly over one period.
                    step = self._period_ns // len(self.links)
                    self._due.extend((now + index * step, link) for index, link in enumerate(self.links))
            case Reply() | Refusal():
                sent = self._open.pop((event.link, message.sequence), None)
                if sent is None:
                    self._counts["again"] += 1
                elif isinstance(message, Reply):
                    self._counts["answered"] += 1
                    self._round_trips.add(now - sent)
                else:
                    self._refused[message.reason] += 1
            case Bye():
                self._counts["broken"] += 1
            case _:
                pass

    def _unsent(self, event: SendFailed) -> None:
        message = event.message
        if isinstance(message, Infer) and self._open.pop((event.link, message.sequence), None) is not None:
            self._counts["unsent"] += 1

    def _ask(self, now: int, out: list[Action]) -> None:
        while self._due and self._due[0][0] <= now:
            due, link = self._due.popleft()
            self._asked[link] += 1
            sequence = self._asked[link]
            if sequence < self._each:
                self._due.append((due + self._period_ns, link))
            self._open[link, sequence] = now
            self._oldest.append((now + self._budget_ns + PATIENCE_NS, (link, sequence)))
            message = Infer(
                incarnation=1,
                sequence=sequence,
                attempt=0,
                contract=self._contract,
                cut=0,
                coding="raw",
                rows=1,
                priority=1,
                budget_ns=self._budget_ns,
                sent_ns=now,
                tensors=self._tensors,
            )
            out.append(Send(link, message, (self._frame,)))

    def _give_up(self, now: int) -> None:
        oldest = self._oldest
        while oldest and (oldest[0][0] <= now or oldest[0][1] not in self._open):
            if self._open.pop(oldest.popleft()[1], None) is not None:
                self._counts["lost"] += 1
