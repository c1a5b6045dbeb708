"""The machine of a client whose agents may die: it owns every outcome and the timer behind it.

The promise lives with the caller. Whatever happens to the agent, each request that this machine has taken ends in exactly
one outcome, no later than its deadline: the agent's own outcome if it came, else the best provisional answer that the
agent had pushed, else `Missed("agent")`. The books of that are `edge.owed`; here is whom to ask. The machine asks the shell
to send what belongs to a sequence.

One rule covers start, restart, reconnection and the standby agent: *whenever the agent that is to be asked comes, comes back
or changes, every open request that this incarnation of it has not been asked is asked of it, unless another agent that
speaks has it already*. So requests made before the agent is there wait for it, and requests that an agent took with it into
its grave, or sits on without a word, are asked of the next one, if it comes in time. That is safe, since a request has no
side effect and since this machine lets one outcome through. Letting them run out instead would save a few lines and lose
answers at long deadlines. The provisional answer of a dead agent stays valid: it was made from the right tensor. Whom to
ask is decided by `edge.agents`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

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
from edge.due import NEVER_NS
from edge.owed import NO_ANSWER, Counts, Entry, Owed
from shared.events import ClockJumped, Hold, Resolve, Tick, WakeAt, Withdrawn
from shared.lateness import Lateness

RETRY_NS = 1_000_000
"""Pause before a request is handed over again that the transport had no room for."""

RETRY_BATCH = 16
"""How many requests are handed over again at once."""

RESCUE_LEAST_NS = 1_000_000
"""A request that has less time left is not asked of the standby agent: no rung is so quick."""


class AskedOf(Entry, gc=False):
    """An open request, and who works on it. `asked`: the incarnation of each agent that was asked last. `refused`: those that
    will give no answer."""

    asked: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    refused: frozenset[int] = frozenset()


class Outcomes:
    """Requests and their outcomes, as seen by one client. Not thread-safe: one loop feeds it.

    `max_open` bounds the open requests; one more is `Rejected("too-many-open")`. `client` is echoed in each `Resolve`. With
    `standby` there are two agents. `lateness` counts how long after its deadline each outcome was decided.
    """

    def __init__(self, client: str, max_open: int, *, standby: bool = False) -> None:
        self.owed: Owed[AskedOf] = Owed(client, max_open)
        self._open = self.owed.open
        self._unsent: dict[int, None] = {}
        self._agents = Agents(standby=standby)
        self._retry_ns: int | None = None
        self._wake_ns: int | None = None
        self.counts: Counts = self.owed.counts
        self.lateness: Lateness = self.owed.lateness

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
                self.owed.margin.woke(event.late_ns)
                self._on_tick(now, actions)
            case Withdrawn():
                self._on_withdrawn(event.sequence, actions)
            case Unsent():
                self._on_unsent(event, now)
            case Declined():
                self._on_declined(event)
            case Connected():
                if not self.owed.closed and self._agents.connected(event.agent, now):
                    actions.append(Greet(event.agent))
            case AgentAttached():
                self._on_attached(event, now, actions)
            case AgentLost():
                greet_ns = now + GREET_NS if event.again and not self.owed.closed else None
                self._agents.lost(event.agent, greet_ns)
                self._reconsider(now, actions)
            case ClockJumped():
                self._ended(self.owed.jumped(event.jump_ns, now), actions)
            case Closed():
                self._agents.close()
                self._ended(self.owed.close(now), actions)
        self._wake(actions)
        return actions

    # --- the application ----------------------------------------------------------------------------------------------

    def _on_asked(self, event: Asked, now: int, actions: list[ClientAction]) -> None:
        sequence = event.sequence
        entry = AskedOf(min(event.scheduled_ns, now), event.deadline_ns)
        refusal = self.owed.take(sequence, event.scheduled_ns, entry, now)
        if refusal is not None:
            actions.append(refusal)
            return
        asking = self._agents.asking
        if asking is not None and not self._unsent:
            self._ask(sequence, entry, asking, now, actions)
        else:
            self._unsent[sequence] = None

    def _on_withdrawn(self, sequence: int, actions: list[ClientAction]) -> None:
        entry = self.owed.withdraw(sequence)
        if entry is None:
            return
        self._unsent.pop(sequence, None)
        actions += [Drop(sequence, agent) for agent in entry.asked if self._works(entry, agent)]

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
            self.owed.keep(word, now)
        elif word is not None:
            self._on_resolve(agent, word, now, actions)
        if speaks_again:
            self._reconsider(now, actions)

    def _on_resolve(self, agent: int, event: Resolve, now: int, actions: list[ClientAction]) -> None:
        entry = self._open.get(event.sequence)
        if entry is None:
            self.counts.ignored += 1
            return
        others: list[int] = []
        if len(entry.asked) > 1:
            others = [other for other in entry.asked if other != agent and self._works(entry, other)]
        if others and (entry.kept is None if event.held else isinstance(event.outcome, NO_ANSWER)):
            entry.refused |= {agent}
            return
        self._ended((self.owed.settle(event, entry, now),), actions)
        actions += [Drop(event.sequence, other) for other in others]

    # --- whom to ask --------------------------------------------------------------------------------------------------

    def _works(self, entry: AskedOf, agent: int) -> bool:
        """Whether this agent has the request and may still answer it."""
        asked = entry.asked.get(agent)
        return asked is not None and asked == self._agents.incarnation(agent) and agent not in entry.refused

    def _wanted(self, entry: AskedOf, asking: int, now: int) -> bool:
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

    def _ask(self, sequence: int, entry: AskedOf, agent: int, now: int, actions: list[ClientAction]) -> None:
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
        silence = "no agent was attached" if self._agents.asking is None else "the agent did not answer"
        self._ended(self.owed.overdue(now, silence), actions)
        greet, silent = self._agents.looks(now, self._primary_owes)
        if silent:
            self.counts.silences += 1
            self._reconsider(now, actions)
        due = [*self._agents.greetings(now), *([PRIMARY] if greet else [])]
        actions += [Greet(agent) for agent in due]
        if self._retry_ns is not None and self._retry_ns <= now:
            self._ask_waiting(now, actions)

    def _primary_owes(self) -> bool:
        """Whether the primary has a request without having pushed an answer to it."""
        return any(entry.kept is None and self._works(entry, PRIMARY) for entry in self._open.values())

    def _wake(self, actions: list[ClientAction]) -> None:
        wake, other, retry = self.owed.due.soonest(), self._agents.soonest(), self._retry_ns
        if other is not None and other < wake:
            wake = other
        if retry is not None and retry < wake:
            wake = retry
        if wake < NEVER_NS and wake != self._wake_ns:
            self._wake_ns = wake
            actions.insert(0, WakeAt(wake))

    def _ended(self, ended: Iterable[Resolve], actions: list[ClientAction]) -> None:
        """Requests are over."""
        for resolve in ended:
            if self._unsent:
                self._unsent.pop(resolve.sequence, None)
            actions.append(resolve)
