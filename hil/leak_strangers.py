"""Those who come to a node in a leak run, do something wrong or go in the middle of it, and never say good-bye.

Each greets as an edge of one of a few names, in an incarnation of its own, asks for something, and closes its connection:
with the request under way, or once it was refused. What they ask is well-formed, so that it gets as far as it can: frames of
a size that cannot be, frames that nothing can be decoded from, a contract that nobody serves, more credit than there is.
"""

from __future__ import annotations

import random
import select
import time
from pathlib import Path

from shared.bundle import load_bundle
from shared.errors import HeadtailError
from shared.events import Event, LinkUp, Received, Send
from shared.plan import Plan
from shared.request import Buffer
from shared.transport import Dealers
from shared.wire.codec import decode_node
from shared.wire.messages import PROTOCOL, Hello, Infer, Message, Refusal, Reply, Tensor, Welcome

NAMES = 4
LINK = "data"
BUDGET_NS = 100_000_000
PATIENCE_S = 60.0
"""The node stands still now and then."""

TURN_MS = 50
NOBODYS = "0" * 64
DAMAGED = bytes(1200)
"""As long as a JPEG may be, and none."""


class Strangers:
    """Strangers at one node, which serves `bundle`, whose input may come as `jpeg90`."""

    def __init__(self, endpoint: str, bundle: Path) -> None:
        loaded = load_bundle(bundle)
        self._endpoint = endpoint
        self._contract = loaded.contract
        self._plan: Plan = loaded.plan
        self._came = 0

    def come(self, count: int, rng: random.Random) -> None:
        """So many, one after the other. Raises `HeadtailError` where the node does not answer."""
        for _ in range(count):
            self._came += 1
            dealers = Dealers(f"stranger-{self._came % NAMES}", self._came, decode_node)
            try:
                dealers.connect(LINK, self._endpoint)
                self._ask(dealers, rng)
            finally:
                dealers.close()

    def _ask(self, dealers: Dealers, rng: random.Random) -> None:
        _until(dealers, LinkUp)
        contracts = (self._contract,)
        _say(dealers, Hello(PROTOCOL, f"stranger-{self._came % NAMES}", self._came, "data", contracts))
        _until(dealers, Welcome)
        picture = bytes(self._plan.inputs[0].nbytes())
        kind = rng.choice(("left", "short", "damaged", "unknown", "many"))
        match kind:
            case "short":
                _say(dealers, self._infer(1), (picture[:-1],))
            case "damaged":
                _say(dealers, self._infer(1, coding="jpeg90"), (DAMAGED,))
            case "unknown":
                _say(dealers, self._infer(1, contract=NOBODYS), (picture,))
            case "many":
                for sequence in range(1, 9):
                    dealers.send(Send(LINK, self._infer(sequence), (picture,)))
            case _:
                _say(dealers, self._infer(1), (picture,))
        if kind != "left":
            _until(dealers, (Refusal, Reply))

    def _infer(self, sequence: int, coding: str = "raw", contract: str = "") -> Infer:
        spec = self._plan.inputs[0]
        return Infer(
            incarnation=self._came,
            sequence=sequence,
            attempt=0,
            contract=contract or self._contract,
            cut=0,
            coding=coding,
            rows=1,
            priority=2,
            budget_ns=BUDGET_NS,
            sent_ns=time.monotonic_ns(),
            tensors=(Tensor(spec.dtype, spec.shape),),
        )


def _say(dealers: Dealers, message: Message, frames: tuple[Buffer, ...] = ()) -> None:
    if not dealers.send(Send(LINK, message, frames)):
        raise HeadtailError("the node took no message of a stranger")


def _until(dealers: Dealers, kind: type | tuple[type, ...]) -> None:
    """Wait until an event or a message of this kind has come."""
    poller = select.poll()
    poller.register(dealers.fileno(), select.POLLIN)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if any(isinstance(_what(event), kind) for event in dealers.drain()):
            return
        if not dealers.pending():
            poller.poll(TURN_MS)
    raise HeadtailError(f"the node did not answer a stranger within {PATIENCE_S:g} s")


def _what(event: Event) -> object:
    return event.message if isinstance(event, Received) else event
