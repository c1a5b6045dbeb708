"""How well a broker's predictions held: of each attempt when it was predicted to be surely back, and when it was."""

from __future__ import annotations

import msgspec

from edge.broker import Broker
from hil.regret.world import EDGE_CLOCK_NS
from shared.wire.messages import Cancel, Infer, Message, Refusal, Reply

Key = tuple[str, int, int]


class Predicted(msgspec.Struct, frozen=True):
    """Of the attempts by one route: how many ended in a way that tells, how many of them came later than predicted, and how
    many were given up before the predicted time, which tells nothing."""

    judged: int = 0
    exceeded: int = 0
    untold: int = 0

    @property
    def share(self) -> float:
        """Share of the judged ones that came later than predicted; 0 where there are none."""
        return self.exceeded / self.judged if self.judged else 0.0

    def plus(self, other: Predicted) -> Predicted:
        """Both together."""
        return Predicted(self.judged + other.judged, self.exceeded + other.exceeded, self.untold + other.untold)


class Predictions:
    """The books of one broker's predictions. Times are the world's."""

    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._open: dict[Key, tuple[str, int]] = {}
        self._told: dict[str, Predicted] = {}

    def look(self, broker: Broker) -> None:
        """Whose predictions they are."""
        self._broker = broker

    def sent(self, link: str, message: Message, now: int) -> None:
        """The broker has sent something."""
        if isinstance(message, Infer):
            surely = self._surely(link, message)
            if surely is not None:
                key = (link, message.sequence, message.attempt)
                self._open[key] = (f"{message.cut}/{message.coding}", surely - EDGE_CLOCK_NS)
        elif isinstance(message, Cancel):
            self._ended(link, message, now, answered=False)

    def received(self, link: str, message: Message, now: int) -> None:
        """The broker has got something."""
        if isinstance(message, Reply):
            self._ended(link, message, now, answered=True)
        elif isinstance(message, Refusal):
            self._open.pop((link, message.sequence, message.attempt), None)

    def told(self) -> dict[str, Predicted]:
        """What is known so far, by route."""
        return dict(self._told)

    def _ended(self, link: str, message: Reply | Cancel, now: int, *, answered: bool) -> None:
        found = self._open.pop((link, message.sequence, message.attempt), None)
        if found is None:
            return
        route, surely = found
        late = now > surely
        judged = answered or late
        one = Predicted(int(judged), int(judged and late), int(not judged))
        self._told[route] = self._told.get(route, Predicted()).plus(one)

    def _surely(self, link: str, message: Infer) -> int | None:
        """When the answer is predicted to be back with the broker's own margin, by the edge's clock; None where the broker
        has given the attempt up already."""
        path = None if self._broker is None else self._broker.nodes.of_link(link)
        sent = None if path is None else path.out.get((message.sequence, message.attempt))
        return None if sent is None else sent.sure_ns
