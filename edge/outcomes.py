"""The client's machine: it owns every outcome and the timer behind it.

The promise lives with the caller. Whatever happens to the agent, each request that this machine has taken ends in exactly
one outcome, no later than its deadline: the agent's own outcome if it came, else the best provisional answer that the
agent had pushed, else `Missed("agent")`. The machine never sees a tensor of a request: it knows a request by its
sequence, its scheduled time and its deadline, and asks the shell to send what belongs to that sequence.

One rule covers start, restart and reconnection: *at each attach, every open request that this incarnation of the agent
has not been asked is asked*. So requests made before the agent is there wait for it, and requests that an agent took
with it into its grave are asked of the next one, if it comes in time. That is safe, since a request has no side effect and
since this machine lets one outcome through. Letting them run out instead would save a few lines and lose answers
at long deadlines. The provisional answer of a dead agent stays valid: it was made from the right tensor.

An answer that is kept for the deadline is delivered a margin before it, the measured p99.9 of a wake-up's lateness within
bounds: a timer fires after its time, never before, so that one set to the deadline itself would make every such answer late.
"""

from __future__ import annotations

from itertools import islice
from typing import Literal

import msgspec

from edge.due import DueTimes
from edge.hold import HoldMargin
from shared.events import ClockJumped, Hold, Resolve, Tick, WakeAt, Withdrawn
from shared.request import Answer, Missed, Outcome, Rejected, Stage, Stages, Superseded

SETTLE_NS = 700_000
"""The least time before its deadline at which a request is answered with a kept answer."""

SETTLE_MOST_NS = 1_500_000
"""The most, on a machine that wakes its processes late."""

RETRY_NS = 1_000_000
"""Pause before a request is handed over again that the transport had no room for."""

RETRY_BATCH = 16
"""How many requests are handed over again at once."""

GREET_NS = 50_000_000
"""Pause between two greetings of an agent that does not answer them."""

# --- events of this machine alone; it takes `Withdrawn`, `Hold`, `Resolve`, `Tick` and `ClockJumped` as well ------------


class Asked(msgspec.Struct, frozen=True, gc=False):
    """The application asks for an outcome of request `sequence`, due at `deadline_ns`, counted from `scheduled_ns`."""

    sequence: int
    scheduled_ns: int
    deadline_ns: int


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The way to the agent is open; it has not been greeted yet."""


class AgentAttached(msgspec.Struct, frozen=True, gc=False):
    """The agent has answered the greeting. `incarnation` changes at each start of its process."""

    incarnation: int


class AgentLost(msgspec.Struct, frozen=True, gc=False):
    """The way to the agent is closed, or the agent will not be asked; with `again` a later greeting may help."""

    again: bool = False


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """The transport had no room for this request."""

    sequence: int


class Closed(msgspec.Struct, frozen=True, gc=False):
    """The application closes the client: open requests end now."""


ClientEvent = (
    Asked | Withdrawn | Hold | Resolve | Connected | AgentAttached | AgentLost | Unsent | Tick | ClockJumped | Closed
)

# --- actions; `Resolve` and `WakeAt` are those of shared.events -----------------------------------------------------------


class Greet(msgspec.Struct, frozen=True, gc=False):
    """Send the agent a greeting."""


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Send the agent the request that has this sequence."""

    sequence: int


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Tell the agent that this request is no longer wanted."""

    sequence: int


ClientAction = Greet | Ask | Drop | Resolve | WakeAt


class Counts(msgspec.Struct):
    """What came of the requests so far. `asked` is the sum of all outcomes, `withdrawn` and `open`.

    `ignored`: messages for requests that are unknown or over. `misaccounted`: answers whose stages exceeded the elapsed
    time. `attaches`: how often an agent answered the greeting.
    """

    asked: int = 0
    open: int = 0
    on_time: int = 0
    late: int = 0
    missed: int = 0
    rejected: int = 0
    superseded: int = 0
    withdrawn: int = 0
    ignored: int = 0
    misaccounted: int = 0
    attaches: int = 0


class _Open(msgspec.Struct, gc=False):
    scheduled_ns: int
    deadline_ns: int
    asked_of: int | None = None
    kept: Answer | None = None
    kept_ns: int = 0


class Outcomes:
    """Requests and their outcomes, as seen by one client. Not thread-safe: one loop feeds it.

    `max_open` bounds the open requests; one more is `Rejected("too-many-open")`. `client` is echoed in each `Resolve`.
    """

    def __init__(self, client: str, max_open: int) -> None:
        self._client = client
        self._max_open = max_open
        self._margin = HoldMargin(SETTLE_NS, SETTLE_MOST_NS)
        self._open: dict[int, _Open] = {}
        self._due = DueTimes(self._open, max_open)
        self._unsent: dict[int, None] = {}
        self._incarnation: int | None = None
        self._greet_ns: int | None = None
        self._retry_ns: int | None = None
        self._closed = False
        self._wake_ns: int | None = None
        self.counts = Counts()

    @property
    def attached(self) -> bool:
        """Whether an agent is there to be asked."""
        return self._incarnation is not None

    def handle(self, event: ClientEvent, now: int) -> list[ClientAction]:
        """Take one event and say what is to be done about it. `now` in nanoseconds of CLOCK_MONOTONIC.

        A `WakeAt` comes first, so that a newer one that another action leads to at once is not undone by it.
        """
        actions: list[ClientAction] = []
        match event:
            case Asked():
                self._on_asked(event, now, actions)
            case Resolve():
                self._on_resolve(event, now, actions)
            case Hold():
                self._on_hold(event, now)
            case Tick():
                self._margin.woke(event.late_ns)
                self._on_tick(now, actions)
            case Withdrawn():
                self._on_withdrawn(event.sequence, actions)
            case Unsent():
                self._on_unsent(event.sequence, now)
            case Connected():
                self._on_connected(now, actions)
            case AgentAttached():
                self._on_attached(event.incarnation, now, actions)
            case AgentLost():
                self._on_lost(now if event.again else None)
            case ClockJumped():
                self._on_jump(event.jump_ns, now, actions)
            case Closed():
                self._on_closed(now, actions)
        self._wake(actions)
        return actions

    # --- the application ----------------------------------------------------------------------------------------------

    def _on_asked(self, event: Asked, now: int, actions: list[ClientAction]) -> None:
        self.counts.asked += 1
        sequence = event.sequence
        elapsed = max(0, now - event.scheduled_ns)
        refusal: Outcome | None = None
        if self._closed:
            refusal = Rejected("closed", "the client is closed", elapsed)
        elif event.deadline_ns <= now:
            late_ms = (now - event.deadline_ns) / 1e6
            refusal = Missed("client", f"asked {late_ms:.3f} ms after its deadline", elapsed)
        elif len(self._open) >= self._max_open:
            refusal = Rejected("too-many-open", f"{self._max_open} requests are open already", elapsed)
        if refusal is not None:
            self._count(refusal)
            actions.append(Resolve(self._client, sequence, refusal))
            return
        self._open[sequence] = _Open(event.scheduled_ns, event.deadline_ns)
        self.counts.open = len(self._open)
        self._due.add(event.deadline_ns, sequence)
        if self._incarnation is not None and not self._unsent:
            self._ask(sequence, actions)
        else:
            self._unsent[sequence] = None

    def _on_withdrawn(self, sequence: int, actions: list[ClientAction]) -> None:
        entry = self._open.pop(sequence, None)
        if entry is None:
            return
        self.counts.withdrawn += 1
        self.counts.open = len(self._open)
        self._unsent.pop(sequence, None)
        if entry.asked_of is not None and entry.asked_of == self._incarnation:
            actions.append(Drop(sequence))

    def _on_closed(self, now: int, actions: list[ClientAction]) -> None:
        self._closed = True
        for sequence, entry in list(self._open.items()):
            outcome = Rejected("closed", "the client was closed", max(0, now - entry.scheduled_ns))
            self._finish(sequence, outcome, actions)

    # --- the agent ----------------------------------------------------------------------------------------------------

    def _on_connected(self, now: int, actions: list[ClientAction]) -> None:
        if self._incarnation is None and not self._closed:
            self._greet_ns = now + GREET_NS
            actions.append(Greet())

    def _on_attached(self, incarnation: int, now: int, actions: list[ClientAction]) -> None:
        self.counts.attaches += 1
        self._greet_ns = None
        self._incarnation = incarnation
        for sequence, entry in self._open.items():
            if entry.asked_of != incarnation:
                self._unsent[sequence] = None
        self._ask_waiting(now, actions)

    def _on_lost(self, again_ns: int | None) -> None:
        self._incarnation = None
        self._greet_ns = None if again_ns is None or self._closed else again_ns + GREET_NS
        self._retry_ns = None

    def _on_unsent(self, sequence: int, now: int) -> None:
        entry = self._open.get(sequence)
        if entry is not None:
            entry.asked_of = None
            self._unsent[sequence] = None
            self._retry_ns = now + RETRY_NS

    def _on_hold(self, event: Hold, now: int) -> None:
        entry = self._open.get(event.sequence)
        if entry is None:
            self.counts.ignored += 1
            return
        if entry.kept is None or event.answer.agreement >= entry.kept.agreement:
            first = entry.kept is None
            entry.kept = event.answer
            entry.kept_ns = now
            if first:
                self._due.add(entry.deadline_ns - self._margin.margin_ns(), event.sequence)

    def _on_resolve(self, event: Resolve, now: int, actions: list[ClientAction]) -> None:
        entry = self._open.get(event.sequence)
        if entry is None:
            self.counts.ignored += 1
            return
        outcome = event.outcome
        if event.held:
            outcome = entry.kept or Missed("agent", "the agent's answer was lost on its way")
        match outcome:
            case Answer():
                outcome = self._accounted(outcome, entry, now, kept=event.held)
            case Missed():
                outcome = Missed(outcome.stage, outcome.detail, max(0, now - entry.scheduled_ns))
            case Rejected():
                outcome = Rejected(outcome.reason, outcome.detail, max(0, now - entry.scheduled_ns))
            case Superseded():
                outcome = Superseded(max(0, now - entry.scheduled_ns))
        self._finish(event.sequence, outcome, actions)

    def _ask(self, sequence: int, actions: list[ClientAction]) -> None:
        self._open[sequence].asked_of = self._incarnation
        actions.append(Ask(sequence))

    def _ask_waiting(self, now: int, actions: list[ClientAction]) -> None:
        for sequence in list(islice(self._unsent, RETRY_BATCH)):
            del self._unsent[sequence]
            self._ask(sequence, actions)
        self._retry_ns = now + RETRY_NS if self._unsent else None

    # --- time ---------------------------------------------------------------------------------------------------------

    def _on_tick(self, now: int, actions: list[ClientAction]) -> None:
        self._wake_ns = None
        for sequence in self._due.due(now):
            entry = self._open[sequence]
            if entry.kept is not None:
                self._finish(sequence, self._accounted(entry.kept, entry, now, kept=True), actions)
            elif entry.deadline_ns <= now:
                self._finish(sequence, self._missed(entry, now), actions)
        if self._greet_ns is not None and self._greet_ns <= now:
            self._greet_ns = now + GREET_NS
            actions.append(Greet())
        if self._retry_ns is not None and self._retry_ns <= now:
            self._ask_waiting(now, actions)

    def _on_jump(self, jump_ns: int, now: int, actions: list[ClientAction]) -> None:
        for sequence, entry in list(self._open.items()):
            elapsed = max(0, now - entry.scheduled_ns)
            detail = f"the host was suspended for {jump_ns / 1e6:.0f} ms"
            self._finish(sequence, Missed("client", detail, elapsed), actions)

    def _missed(self, entry: _Open, now: int) -> Missed:
        elapsed = max(0, now - entry.scheduled_ns)
        if self._incarnation is None:
            return Missed("agent", "no agent was attached", elapsed)
        return Missed("agent", "the agent did not answer", elapsed)

    def _wake(self, actions: list[ClientAction]) -> None:
        times = [t for t in (self._due.soonest(), self._greet_ns, self._retry_ns) if t is not None]
        if times and (wake := min(times)) != self._wake_ns:
            self._wake_ns = wake
            actions.insert(0, WakeAt(wake))

    # --- endings ------------------------------------------------------------------------------------------------------

    def _finish(self, sequence: int, outcome: Outcome, actions: list[ClientAction]) -> None:
        del self._open[sequence]
        self._unsent.pop(sequence, None)
        self.counts.open = len(self._open)
        self._count(outcome)
        actions.append(Resolve(self._client, sequence, outcome))

    def _accounted(self, answer: Answer, entry: _Open, now: int, *, kept: bool) -> Answer:
        elapsed = max(0, now - entry.scheduled_ns)
        stages: Stages = dict(answer.stages)
        if min(stages.values(), default=0) < 0 or sum(stages.values()) > elapsed:
            self.counts.misaccounted += 1
            stages = {"agent": elapsed}
        if kept:
            held = min(max(0, now - entry.kept_ns), elapsed - sum(stages.values()))
            _add(stages, "hold", held)
        _add(stages, "client", elapsed - sum(stages.values()))
        return Answer(
            outputs=answer.outputs,
            source=answer.source,
            node=answer.node,
            rung=answer.rung,
            cut=answer.cut,
            fidelity=answer.fidelity,
            contract=answer.contract,
            elapsed_ns=elapsed,
            stages=stages,
            on_time=now <= entry.deadline_ns,
        )

    def _count(self, outcome: Outcome) -> None:
        kind = outcome_kind(outcome)
        setattr(self.counts, kind, getattr(self.counts, kind) + 1)


def _add(stages: Stages, stage: Stage, part_ns: int) -> None:
    stages[stage] = stages.get(stage, 0) + part_ns


OutcomeKind = Literal["on_time", "late", "missed", "rejected", "superseded"]


def outcome_kind(outcome: Outcome) -> OutcomeKind:
    """Which of the five sums an outcome counts in."""
    match outcome:
        case Answer():
            return "on_time" if outcome.on_time else "late"
        case Missed():
            return "missed"
        case Rejected():
            return "rejected"
        case Superseded():
            return "superseded"
