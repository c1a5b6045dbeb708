"""Faults of the wire and of the client: codec, clock offsets, outcomes, timers."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

import msgspec

import edge.stub
from edge.cloud_way import CloudWay
from edge.outcomes import Outcomes
from edge.owed import Owed
from planted.plant import Bug, bug
from shared.events import Resolve, WakeAt
from shared.offset import OffsetInterval
from shared.request import Missed


@bug(
    "offset's age ignored",
    "What is known of another clock is as good as when it was new",
    OffsetInterval,
    "_age",
    "clock",
)
def age_ignored(right: Any, self: Any, now: int) -> None:
    self._at = max(self._at, now)


@bug(
    "offset of the wrong end",
    "A message's own time on its way is taken for nothing",
    OffsetInterval,
    "peer_sent",
    "clock",
)
def offset_of_the_wrong_end(right: Any, self: Any, sent_ns: int, received_ns: int) -> int:
    low = right(self, sent_ns, received_ns)
    self._high = self._low
    return low


@bug("budget counted twice", "A node is told of 5 ms more than are left", CloudWay, "ask")
def budget_counted_twice(right: Any, self: Any, open_: Any, attempt: Any, path: Any, now: int) -> Any:
    send = right(self, open_, attempt, path, now)
    later = send.message.budget_ns + 5_000_000
    return msgspec.structs.replace(send, message=msgspec.structs.replace(send.message, budget_ns=later))


@bug("client's outcome lost", "A request without an answer at its deadline is forgotten", Outcomes, "_on_tick")
def outcome_lost(right: Any, self: Any, now: int, actions: list[Any]) -> None:
    right(self, now, actions)
    actions[:] = [a for a in actions if not (isinstance(a, Resolve) and isinstance(a.outcome, Missed))]


@bug("client's outcome given twice", "The agent's outcome is handed to the application twice", Outcomes, "_on_resolve")
def outcome_twice(right: Any, self: Any, agent: int, event: Any, now: int, actions: list[Any]) -> None:
    right(self, agent, event, now, actions)
    actions += [a for a in actions if isinstance(a, Resolve)][:1]


@bug(
    "on time by the scheduled time",
    "An answer is on time where it is there when its request was due",
    Owed,
    "_accounted",
)
def on_time_by_the_scheduled_time(right: Any, self: Any, answer: Any, entry: Any, now: int, *, kept: bool) -> Any:
    return right(self, answer, entry, now, kept=kept).replace(on_time=now <= entry.since_ns)


@bug("client's deadline shifted", "The client's timer is 2 ms late", Outcomes, "_on_asked")
def client_deadline_shifted(right: Any, self: Any, event: Any, now: int, actions: list[Any]) -> None:
    right(self, msgspec.structs.replace(event, deadline_ns=event.deadline_ns + 2_000_000), now, actions)


@bug("client's stages short", "The client's own time is in no stage", Owed, "_accounted")
def stages_short(right: Any, self: Any, answer: Any, entry: Any, now: int, *, kept: bool) -> Any:
    accounted = right(self, answer, entry, now, kept=kept)
    return accounted.replace(stages={stage: ns for stage, ns in accounted.stages.items() if stage != "client"})


@bug("client's timer not set anew", "The client keeps its wake-up where an earlier one is needed", Outcomes, "_wake")
def client_timer(right: Any, self: Any, actions: list[Any]) -> None:
    before = self._wake_ns
    right(self, actions)
    if before is not None and actions and isinstance(actions[0], WakeAt) and actions[0].at_ns < before:
        actions.pop(0)


@bug("outputs' names swapped", "Outputs are given the names of one another", edge.stub, "from_header")
def names_swapped(right: Any, header: Any, frames: Any, names: Any) -> Any:
    answer = right(header, frames, names)
    outputs = dict(zip(reversed(answer.outputs), answer.outputs.values(), strict=True))
    return answer.replace(outputs=outputs)


WIRE: tuple[Bug, ...] = tuple(value for value in globals().values() if isinstance(value, Bug))
