"""The share of requests that were answered on time of late, as a recorder sees it, and when it has fallen.

On the edge a request is on time when the agent resolved it with an answer by its deadline; one that was missed, refused for
want of time or resources, or withdrawn by its client after its deadline is not. On a node an attempt is on time when it was
answered, and is not where it was refused as expired, failed or too much. Requests that say nothing of either
(superseded, cancelled, wrong) do not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from shared.events import Action, Arrived, ClientGone, Event, Resolve, Send, Withdrawn
from shared.request import Answer, Missed, Rejected
from shared.wire.messages import Refusal, Reply

CROWDED = frozenset({"overload", "no-route", "too-many-open"})
"""Reasons of a `Rejected` that count as not on time."""

LATE = frozenset({"expired", "overload", "failed", "credit"})
"""Reasons of a `Refusal` that count as not on time."""


class OnTimeShare:
    """Calls `fallen` where fewer than `below` of the last `window` requests were on time, once in `window` requests."""

    def __init__(self, below: float, window: int, fallen: Callable[[], None]) -> None:
        self._below = below
        self._window = window
        self._fallen = fallen
        self._recent: deque[bool] = deque()
        self._good = 0
        self._due: dict[tuple[str, int], int] = {}

    def look(self, now: int, event: Event, actions: Sequence[Action]) -> None:
        """See one step of the machine."""
        if isinstance(event, Arrived):
            request = event.request
            self._due[request.client, request.sequence] = request.deadline_ns
        elif isinstance(event, Withdrawn):
            due = self._due.pop((event.client, event.sequence), now)
            if due < now:
                self._count(False)
        elif isinstance(event, ClientGone):
            self._due = {key: due for key, due in self._due.items() if key[0] != event.client}
        for action in actions:
            if isinstance(action, Resolve):
                self._resolved(action, now)
            elif isinstance(action, Send):
                self._sent(action)

    def _resolved(self, resolve: Resolve, now: int) -> None:
        due = self._due.pop((resolve.client, resolve.sequence), now)
        match resolve.outcome:
            case Answer():
                self._count(now <= due)
            case Missed():
                self._count(False)
            case Rejected(reason=reason) if reason in CROWDED:
                self._count(False)
            case _:
                pass

    def _sent(self, send: Send) -> None:
        match send.message:
            case Reply():
                self._count(True)
            case Refusal(reason=reason) if reason in LATE:
                self._count(False)
            case _:
                pass

    def _count(self, good: bool) -> None:
        self._recent.append(good)
        self._good += good
        if len(self._recent) > self._window:
            self._good -= self._recent.popleft()
        if len(self._recent) == self._window and self._good < self._below * self._window:
            self._recent.clear()
            self._good = 0
            self._fallen()
