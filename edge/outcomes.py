"""The client's machine: it owns every outcome and the timer behind it.

The promise lives with the caller. Whatever happens to the agent, each request that this machine has taken ends in exactly
one outcome, no later than its deadline: the agent's own outcome if it came, else the best provisional answer that the
agent had pushed, else `Missed("agent")`. The machine never sees a tensor of a request: it knows a request by its
sequence, its scheduled time and its deadline, and asks the shell to send what belongs to that sequence.

One rule covers start, restart, reconnection and the standby agent: *whenever the agent that is to be asked comes, comes back
or changes, every open request that this incarnation of it has not been asked is asked of it, unless another agent that
speaks has it already*. So requests made before the agent is there wait for it, and requests that an agent took with it into
its grave, or sits on without a word, are asked of the next one, if it comes in time. That is safe, since a request has no
side effect and since this machine lets one outcome through. Letting them run out instead would save a few lines and lose
answers at long deadlines. The provisional answer of a dead agent stays valid: it was made from the right tensor. Whom to
ask is decided by `edge.agents`.

An answer that is kept for the deadline is delivered a margin before it, the measured p99.9 of a wake-up's lateness within
bounds: a timer fires after its time, never before, so that one set to the deadline itself would make every such answer late.
"""

from __future__ import annotations

from itertools import islice
from typing import Literal

import msgspec

from edge.agents import GREET_NS, PRIMARY, STANDBY, Agents
from edge.client_events import (
    AgentAttached,
    AgentLost,
    Ask,
    Asked,
    ClientAction,
    ClientEvent,
    Closed,
    Connected,
    Declined,
    Drop,
    Greet,
    Heard,
    Unsent,
)
from edge.due import DueTimes
from edge.hold import HoldMargin
from shared.events import ClockJumped, Hold, Resolve, Tick, WakeAt, Withdrawn
from shared.lateness import Lateness
from shared.request import Answer, Missed, Outcome, Rejected, Stages, Superseded

SETTLE_NS = 700_000
"""The least time before its deadline at which a request is answered with a kept answer."""

SETTLE_MOST_NS = 1_500_000
"""The most, on a machine that wakes its processes late."""

RETRY_NS = 1_000_000
"""Pause before a request is handed over again that the transport had no room for."""

RETRY_BATCH = 16
"""How many requests are handed over again at once."""

RESCUE_LEAST_NS = 1_000_000
"""A request that has less time left is not asked of the standby agent: no rung is so quick."""


_NO_ANSWER = (Missed, Rejected)
"""Outcomes that another agent may better."""


class Counts(msgspec.Struct):
    """What came of the requests so far. `asked` is the sum of all outcomes, `withdrawn` and `open`.

    `ignored`: messages for requests or streams that are unknown or over. `misaccounted`: answers whose stages exceeded the
    elapsed time. `attaches`: how often an agent came or came back. `silences`: how often the primary agent was found silent,
    `standby`: requests that the standby agent was asked. `padded`: requests that had an outcome and were padded to a bucket.
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
    silences: int = 0
    standby: int = 0
    padded: int = 0


class _Open(msgspec.Struct, gc=False):
    """`since_ns`: from when its time is counted: when it was due, or when it came where that was earlier, since an agent
    begins with what it is asked ahead of time. `asked`: the incarnation of each agent that was asked last. `refused`: those
    that will give no answer."""

    since_ns: int
    deadline_ns: int
    asked: dict[int, int] = {}
    refused: frozenset[int] = frozenset()
    kept: Answer | None = None
    kept_ns: int = 0


class Outcomes:
    """Requests and their outcomes, as seen by one client. Not thread-safe: one loop feeds it.

    `max_open` bounds the open requests; one more is `Rejected("too-many-open")`. `client` is echoed in each `Resolve`. With
    `standby` there are two agents. `lateness` counts how long after its deadline each outcome was decided.
    """

    def __init__(self, client: str, max_open: int, *, standby: bool = False) -> None:
        self._client = client
        self._max_open = max_open
        self._margin = HoldMargin(SETTLE_NS, SETTLE_MOST_NS)
        self._open: dict[int, _Open] = {}
        self._due = DueTimes(self._open, max_open)
        self._unsent: dict[int, None] = {}
        self._agents = Agents(standby=standby)
        self._retry_ns: int | None = None
        self._closed = False
        self._wake_ns: int | None = None
        self.counts = Counts()
        self.lateness = Lateness()

    @property
    def attached(self) -> bool:
        """Whether an agent is there to be asked."""
        return self._agents.asking is not None

    @property
    def asking(self) -> int | None:
        """The agent that is asked now, `PRIMARY` or `STANDBY`; None where none is there."""
        return self._agents.asking

    @property
    def agents(self) -> int:
        """How many agents there are, attached or not."""
        return self._agents.count

    def there(self, agent: int) -> bool:
        """Whether this agent is attached, silent or not."""
        return self._agents.incarnation(agent) is not None

    def handle(self, event: ClientEvent, now: int) -> list[ClientAction]:
        """Take one event and say what is to be done about it. `now` in nanoseconds of CLOCK_MONOTONIC.

        A `WakeAt` comes first, so that a newer one that another action leads to at once is not undone by it.
        """
        actions: list[ClientAction] = []
        match event:
            case Asked():
                self._on_asked(event, now, actions)
            case Resolve() | Hold():
                self._on_heard(PRIMARY, event, now, actions)
            case Heard():
                self._on_heard(event.agent, event.word, now, actions)
            case Tick():
                self._margin.woke(event.late_ns)
                self._on_tick(now, actions)
            case Withdrawn():
                self._on_withdrawn(event.sequence, actions)
            case Unsent():
                self._on_unsent(event, now)
            case Declined():
                self._on_declined(event)
            case Connected():
                if not self._closed and self._agents.connected(event.agent, now):
                    actions.append(Greet(event.agent))
            case AgentAttached():
                self._on_attached(event, now, actions)
            case AgentLost():
                greet_ns = now + GREET_NS if event.again and not self._closed else None
                self._agents.lost(event.agent, greet_ns)
                self._reconsider(now, actions)
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
        if self._closed or event.deadline_ns <= now or len(self._open) >= self._max_open:
            refusal = self._refusal(event, now)
            self._count(refusal)
            actions.append(Resolve(self._client, sequence, refusal))
            return
        entry = self._open[sequence] = _Open(min(event.scheduled_ns, now), event.deadline_ns)
        self.counts.open = len(self._open)
        self._due.add(event.deadline_ns, sequence)
        asking = self._agents.asking
        if asking is not None and not self._unsent:
            self._ask(sequence, entry, asking, now, actions)
        else:
            self._unsent[sequence] = None

    def _refusal(self, event: Asked, now: int) -> Missed | Rejected:
        """Why this one is not taken."""
        elapsed = max(0, now - event.scheduled_ns)
        if self._closed:
            return Rejected("closed", "the client is closed", elapsed)
        if event.deadline_ns <= now:
            late_ms = (now - event.deadline_ns) / 1e6
            return Missed("client", f"asked {late_ms:.3f} ms after its deadline", elapsed)
        return Rejected("too-many-open", f"{self._max_open} requests are open already", elapsed)

    def _on_withdrawn(self, sequence: int, actions: list[ClientAction]) -> None:
        entry = self._open.pop(sequence, None)
        if entry is None:
            return
        self.counts.withdrawn += 1
        self.counts.open = len(self._open)
        self._unsent.pop(sequence, None)
        actions += [Drop(sequence, agent) for agent in entry.asked if self._works(entry, agent)]

    def _on_closed(self, now: int, actions: list[ClientAction]) -> None:
        self._closed = True
        self._agents.close()
        for sequence, entry in list(self._open.items()):
            outcome = Rejected("closed", "the client was closed", max(0, now - entry.since_ns))
            self._finish(sequence, outcome, now, actions)

    # --- the agents ---------------------------------------------------------------------------------------------------

    def _on_attached(self, event: AgentAttached, now: int, actions: list[ClientAction]) -> None:
        if self._agents.incarnation(event.agent) != event.incarnation:
            self.counts.attaches += 1
        if self._agents.attached(event.agent, event.incarnation, now):
            self._reconsider(now, actions)

    def _on_unsent(self, event: Unsent, now: int) -> None:
        entry = self._open.get(event.sequence)
        if entry is not None:
            entry.asked.pop(event.agent, None)
            self._unsent[event.sequence] = None
            self._retry_ns = now + RETRY_NS

    def _on_declined(self, event: Declined) -> None:
        entry = self._open.get(event.sequence)
        if entry is not None:
            entry.refused |= {event.agent}

    def _on_heard(self, agent: int, word: Hold | Resolve | None, now: int, actions: list[ClientAction]) -> None:
        speaks_again = self._agents.heard(agent, now)
        if isinstance(word, Hold):
            self._on_hold(word, now)
        elif word is not None:
            self._on_resolve(agent, word, now, actions)
        if speaks_again:
            self._reconsider(now, actions)

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

    def _on_resolve(self, agent: int, event: Resolve, now: int, actions: list[ClientAction]) -> None:
        entry = self._open.get(event.sequence)
        if entry is None:
            self.counts.ignored += 1
            return
        outcome = event.outcome
        held = event.held
        if held:
            outcome = entry.kept or Missed("agent", "the agent's answer was lost on its way")
        others: list[int] = []
        if len(entry.asked) > 1:
            others = [other for other in entry.asked if other != agent and self._works(entry, other)]
        if isinstance(outcome, _NO_ANSWER):
            if others:
                entry.refused |= {agent}
                return
            if entry.kept is not None:
                outcome, held = entry.kept, True
        match outcome:
            case Answer():
                outcome = self._accounted(outcome, entry, now, kept=held)
            case Missed():
                outcome = Missed(outcome.stage, outcome.detail, max(0, now - entry.since_ns))
            case Rejected():
                outcome = Rejected(outcome.reason, outcome.detail, max(0, now - entry.since_ns))
            case Superseded():
                outcome = Superseded(max(0, now - entry.since_ns))
        self._finish(event.sequence, outcome, now, actions)
        if others:
            actions += [Drop(event.sequence, other) for other in others]

    # --- whom to ask --------------------------------------------------------------------------------------------------

    def _works(self, entry: _Open, agent: int) -> bool:
        """Whether this agent has the request and may still answer it."""
        asked = entry.asked.get(agent)
        return asked is not None and asked == self._agents.incarnation(agent) and agent not in entry.refused

    def _wanted(self, entry: _Open, asking: int, now: int) -> bool:
        """Whether the request is to be asked of agent `asking`."""
        if entry.asked.get(asking) == self._agents.incarnation(asking):
            return False
        if asking == STANDBY and (entry.kept is not None or entry.deadline_ns - now < RESCUE_LEAST_NS):
            return False
        return not any(
            self._works(entry, other) and self._agents.speaks(other, entry.asked[other]) for other in entry.asked
        )

    def _reconsider(self, now: int, actions: list[ClientAction]) -> None:
        """Whom to ask may have changed."""
        asking = self._agents.asking
        if asking is None:
            self._retry_ns = None
            return
        for sequence, entry in self._open.items():
            if self._wanted(entry, asking, now):
                self._unsent[sequence] = None
        self._ask_waiting(now, actions)

    def _ask(self, sequence: int, entry: _Open, agent: int, now: int, actions: list[ClientAction]) -> None:
        incarnation = self._agents.incarnation(agent)
        if incarnation is None:
            return
        entry.asked[agent] = incarnation
        if entry.refused:
            entry.refused -= {agent}
        self._agents.asked(agent, entry.deadline_ns, now)
        if agent == STANDBY:
            self.counts.standby += 1
        actions.append(Ask(sequence, agent))

    def _ask_waiting(self, now: int, actions: list[ClientAction]) -> None:
        asking = self._agents.asking
        self._retry_ns = None
        if asking is None:
            return
        for sequence in list(islice(self._unsent, RETRY_BATCH)):
            del self._unsent[sequence]
            entry = self._open[sequence]
            if self._wanted(entry, asking, now):
                self._ask(sequence, entry, asking, now, actions)
        if self._unsent:
            self._retry_ns = now + RETRY_NS

    # --- time ---------------------------------------------------------------------------------------------------------

    def _on_tick(self, now: int, actions: list[ClientAction]) -> None:
        self._wake_ns = None
        for sequence in self._due.due(now):
            entry = self._open[sequence]
            if entry.kept is not None:
                self._finish(sequence, self._accounted(entry.kept, entry, now, kept=True), now, actions)
            elif entry.deadline_ns <= now:
                self._finish(sequence, self._missed(entry, now), now, actions)
        greet, silent = self._agents.looks(now, self._primary_owes)
        if silent:
            self.counts.silences += 1
            self._reconsider(now, actions)
        due = [*self._agents.greetings(now), *([PRIMARY] if greet else [])]
        actions += [Greet(agent) for agent in due]
        if self._retry_ns is not None and self._retry_ns <= now:
            self._ask_waiting(now, actions)

    def _on_jump(self, jump_ns: int, now: int, actions: list[ClientAction]) -> None:
        for sequence, entry in list(self._open.items()):
            elapsed = max(0, now - entry.since_ns)
            detail = f"the host was suspended for {jump_ns / 1e6:.0f} ms"
            self._finish(sequence, Missed("client", detail, elapsed), now, actions)

    def _primary_owes(self) -> bool:
        """Whether the primary has a request without having pushed an answer to it."""
        return any(entry.kept is None and self._works(entry, PRIMARY) for entry in self._open.values())

    def _missed(self, entry: _Open, now: int) -> Missed:
        elapsed = max(0, now - entry.since_ns)
        if self._agents.asking is None:
            return Missed("agent", "no agent was attached", elapsed)
        return Missed("agent", "the agent did not answer", elapsed)

    def _wake(self, actions: list[ClientAction]) -> None:
        wake, other, retry = self._due.soonest(), self._agents.soonest(), self._retry_ns
        if other is not None and (wake is None or other < wake):
            wake = other
        if retry is not None and (wake is None or retry < wake):
            wake = retry
        if wake is not None and wake != self._wake_ns:
            self._wake_ns = wake
            actions.insert(0, WakeAt(wake))

    # --- endings ------------------------------------------------------------------------------------------------------

    def _finish(self, sequence: int, outcome: Outcome, now: int, actions: list[ClientAction]) -> None:
        entry = self._open.pop(sequence)
        self.lateness.add(now - entry.deadline_ns)
        if self._unsent:
            self._unsent.pop(sequence, None)
        self.counts.open = len(self._open)
        self._count(outcome)
        actions.append(Resolve(self._client, sequence, outcome))

    def _accounted(self, answer: Answer, entry: _Open, now: int, *, kept: bool) -> Answer:
        elapsed = now - entry.since_ns if now > entry.since_ns else 0
        stages: Stages = dict(answer.stages)
        left = elapsed - sum(stages.values())
        if left < 0 or min(stages.values(), default=0) < 0:
            self.counts.misaccounted += 1
            stages = {"agent": elapsed}
            left = 0
        if kept:
            held = min(max(0, now - entry.kept_ns), left)
            stages["hold"] = stages.get("hold", 0) + held
            left -= held
        stages["client"] = stages.get("client", 0) + left
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
