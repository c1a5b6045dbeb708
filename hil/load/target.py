"""What is loaded: an agent through its client, or a node as an edge would ask it."""

from __future__ import annotations

from typing import Protocol

from hil.load.rows import Recorder


class Target(Protocol):
    """Takes requests and says what came of them. All of it is called on one thread."""

    unsent: int
    """Requests that the connection did not take."""

    def fileno(self) -> int:
        """Readable when there may be something to `take`."""
        ...

    def pending(self) -> bool:
        """Whether there is something to take although the descriptor may not show it."""
        ...

    def room(self) -> int:
        """How many requests more may be sent now. A closed loop keeps to it; what an open loop sends beyond it is refused."""
        ...

    def send(self, place: int, scheduled_ns: int, due_ns: int, now: int) -> None:
        """Send the request that the recorder calls `place`. Where it cannot leave, it ends there and then."""
        ...

    def take(self) -> list[int]:
        """Note all that has come since; the places of the requests that have ended. Raises `HeadtailError` where the target
        has gone."""
        ...

    def lead_to(self, recorder: Recorder) -> None:
        """Note in this recorder from now on. What belongs to the one before is forgotten."""
        ...

    def close(self) -> None:
        """Say good-bye."""
        ...
