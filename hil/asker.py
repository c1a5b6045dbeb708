"""An edge with no choice of its own: it asks a node for the tail of one named cut, in one named coding, and waits.

A broker picks its route by itself, so that a proof of every route cannot be made with it. This speaks the same protocol
over the same transport, one request at a time.
"""

from __future__ import annotations

import select
import time
from collections import Counter, deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from shared.errors import HeadtailError
from shared.events import Event, LinkDown, LinkUp, Received, Send
from shared.plan import Plan
from shared.request import Array, Buffer
from shared.transport import Dealers
from shared.wire.codec import array_of, decode_node
from shared.wire.messages import PROTOCOL, Bye, Hello, Infer, Refusal, Reply, Tensor, Welcome

PEER = "verify"
LINK = "data"
PATIENCE_S = 30.0
TURN_MS = 50
CREDIT_S = 0.05
"""Until it asks again where all credit is lent."""


Answer = TypeVar("Answer", Welcome, Reply)
Happening = TypeVar("Happening", LinkUp, Received)


class _NoCreditError(HeadtailError):
    """The node has lent all its credit to others."""


class Asker:
    """One data connection to one node. Use it as a context manager.

    Raises `HeadtailError` where the node does not answer within `patience_s`, refuses, or does not serve the contract.
    """

    def __init__(
        self, endpoint: str, contract: str, patience_s: float = PATIENCE_S, *, peer: str = PEER, waiting: int = 4
    ) -> None:
        """`peer` is its name among the node's edges, `waiting` how many messages may wait to leave."""
        self._endpoint = endpoint
        self._peer = peer
        self._contract = contract
        self._patience_s = patience_s
        self._incarnation = time.monotonic_ns()
        self._sequence = 0
        self._frames: tuple[Buffer, ...] = ()
        self._tails: Counter[int] = Counter()
        self._events: deque[Event] = deque()
        self._dealers = Dealers(peer, self._incarnation, decode_node, send_mark=waiting)
        self._dealers.connect(LINK, endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def dealers(self) -> Dealers:
        """The connection, `LINK`, for whoever asks more than one request at a time."""
        return self._dealers

    @property
    def incarnation(self) -> int:
        """What its requests must say of who asks."""
        return self._incarnation

    def hello(self) -> Hello:
        """Its greeting."""
        return Hello(PROTOCOL, self._peer, self._incarnation, "data", (self._contract,))

    def greet(self) -> Welcome:
        """Connect and greet; the node's welcome. Raises `HeadtailError` where the node lacks the contract."""
        self._next("the connection", LinkUp)
        if not self._dealers.send(Send(LINK, self.hello())):
            raise HeadtailError("the node took no greeting")
        welcome = self._message("the welcome", Welcome)
        if self._contract not in welcome.contracts:
            raise HeadtailError(f"the node {welcome.node} does not serve contract {self._contract[:12]}")
        return welcome

    def ask(self, plan: Plan, cut: int, coding: str, frames: Sequence[Buffer], rows: int) -> dict[str, Array]:
        """The plan's outputs from the tensors of `cut`, written in `coding` as `frames`. Where all credit is lent it asks
        again: others give some back when they next hear from the node. Raises `HeadtailError`."""
        end = time.monotonic() + self._patience_s
        while True:
            try:
                return self._ask(plan, cut, coding, frames, rows)
            except _NoCreditError:
                if time.monotonic() >= end:
                    raise
                time.sleep(CREDIT_S)

    def _ask(self, plan: Plan, cut: int, coding: str, frames: Sequence[Buffer], rows: int) -> dict[str, Array]:
        self._sequence += 1
        tensors = tuple(Tensor(spec.dtype, spec.at(rows)) for spec in plan.cuts[cut].tensors)
        message = Infer(
            incarnation=self._incarnation,
            sequence=self._sequence,
            attempt=1,
            contract=self._contract,
            cut=cut,
            coding=coding,
            rows=rows,
            priority=1,
            budget_ns=round(self._patience_s * 1e9),
            sent_ns=time.monotonic_ns(),
            tensors=tensors,
        )
        if not self._dealers.send(Send(LINK, message, tuple(frames))):
            raise HeadtailError("the node took no request")
        reply = self._message("an answer", Reply)
        if (reply.sequence, reply.cut, reply.coding) != (self._sequence, cut, coding):
            raise HeadtailError(
                f"an answer came for another request: {reply.sequence}, cut {reply.cut}, {reply.coding}"
            )
        if reply.stages.get("tail", 0) > 0:
            self._tails[cut] += rows
        return {
            spec.name: array_of(tensor, frame)
            for spec, tensor, frame in zip(plan.outputs, reply.tensors, self._frames, strict=True)
        }

    def tails(self) -> dict[int, int]:
        """Rows of which the node said that it ran the tail, by cut."""
        return dict(self._tails)

    def close(self) -> None:
        """Say goodbye and disconnect."""
        self._dealers.send(Send(LINK, Bye("closing")))
        self._dealers.close()

    def _message(self, what: str, kind: type[Answer]) -> Answer:
        """The next message, which must be of this kind."""
        received = self._next(what, Received)
        match received.message:
            case Refusal(reason=reason, detail=detail):
                kind_of = _NoCreditError if reason == "credit" else HeadtailError
                raise kind_of(f"the node refused: {reason} ({detail})")
            case Bye(reason=reason):
                raise HeadtailError(f"the node left: {reason}")
            case _:
                pass
        if not isinstance(received.message, kind):
            raise HeadtailError(f"{type(received.message).__name__} came instead of {what}")
        self._frames = received.frames
        return received.message

    def _next(self, what: str, kind: type[Happening]) -> Happening:
        """Wait for the next event of this kind; others are passed over, the loss of the connection is an error."""
        poller = select.poll()
        poller.register(self._dealers.fileno(), select.POLLIN)
        end_ns = time.monotonic_ns() + round(self._patience_s * 1e9)
        while time.monotonic_ns() < end_ns:
            self._events.extend(self._dealers.drain())
            while self._events:
                event = self._events.popleft()
                if isinstance(event, kind):
                    return event
                if isinstance(event, LinkDown):
                    raise HeadtailError(f"the connection to the node was lost while waiting for {what}")
            if not self._dealers.pending():
                poller.poll(TURN_MS)
        raise HeadtailError(f"{self._endpoint}: {what} did not come within {self._patience_s:g} s")
