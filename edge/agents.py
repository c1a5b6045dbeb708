"""Whom a client asks: its agent, or the standby agent while that one is away or silent.

The primary is asked whenever it is there and speaks. It is *silent* when it owes an answer to some request, has said
nothing at all for as long as the client's patience, and has not answered a greeting meanwhile: half of the tightest budget
that was handed to it since it last owed nothing, 4 to 100 ms. The greeting, which any live agent answers at once, goes out
after half of that. One word of any kind ends the silence.

So an agent is judged by whether it lives and not by how long it thinks. Asking the standby about each request that has no
answer by some part of its deadline was rejected: an agent that is busy, or holds an answer back for a better one, or begins
as late as it may, would have its work done twice just when the device has least to spare. Doing so for no request, and
waiting until one has run out, was rejected as well: the requests that are open at that moment could still be answered.
"""

from __future__ import annotations

from collections.abc import Callable

PRIMARY = 0
STANDBY = 1

GREET_NS = 50_000_000
"""Pause between two greetings of an agent that does not answer them."""

GREET_SILENT_NS = 1_000_000_000
"""Pause between two greetings of a silent agent: the first one waits for it in its socket."""

PATIENCE_LEAST_NS = 4_000_000
PATIENCE_MOST_NS = 100_000_000
"""How long an agent may say nothing: between a machine's ordinary hiccups and what a person would notice."""


class _Agent:
    __slots__ = ("greet_ns", "incarnation", "silent")

    def __init__(self) -> None:
        self.incarnation: int | None = None
        self.greet_ns: int | None = None
        self.silent = False


class _Silence:
    """Watches the primary. `quiet_since_ns` is its last word, or when it began to owe one."""

    __slots__ = ("check_ns", "greeted", "patience_ns", "quiet_since_ns")

    def __init__(self) -> None:
        self.check_ns: int | None = None
        self.patience_ns = PATIENCE_MOST_NS
        self.quiet_since_ns = 0
        self.greeted = False

    def owes(self, budget_ns: int, now: int) -> None:
        patience_ns = min(max(budget_ns // 2, PATIENCE_LEAST_NS), PATIENCE_MOST_NS)
        if self.check_ns is None:
            self.quiet_since_ns = now
            self.patience_ns = patience_ns
            self.greeted = False
            self.check_ns = now + patience_ns // 2
        elif patience_ns < self.patience_ns:
            self.patience_ns = patience_ns
            self.check_ns = min(self.check_ns, now + patience_ns // 2)

    def heard(self, now: int) -> None:
        self.quiet_since_ns = now
        self.greeted = False

    def rest(self) -> None:
        self.check_ns = None


class Agents:
    """One agent, or two: `PRIMARY` and `STANDBY`. `silences` counts how often the primary was found silent."""

    def __init__(self, *, standby: bool) -> None:
        self._agents = (_Agent(), _Agent()) if standby else (_Agent(),)
        self._silence = _Silence()
        self.silences = 0

    @property
    def count(self) -> int:
        """How many there are, attached or not."""
        return len(self._agents)

    @property
    def asking(self) -> int | None:
        """Whom to ask now; None where nobody is there."""
        primary = self._agents[PRIMARY]
        if primary.incarnation is not None and not primary.silent:
            return PRIMARY
        if len(self._agents) > 1 and self._agents[STANDBY].incarnation is not None:
            return STANDBY
        return None if primary.incarnation is None else PRIMARY

    def incarnation(self, agent: int) -> int | None:
        """Of its process; None while it is not attached."""
        return self._agents[agent].incarnation

    def speaks(self, agent: int, incarnation: int | None) -> bool:
        """Whether this agent is attached, in this incarnation, and not silent."""
        known = self._agents[agent]
        return known.incarnation is not None and known.incarnation == incarnation and not known.silent

    # --- what happens -------------------------------------------------------------------------------------------------

    def connected(self, agent: int, now: int) -> bool:
        """The way to an agent is open; whether it is to be greeted."""
        known = self._agents[agent]
        if known.incarnation is not None:
            return False
        known.greet_ns = now + GREET_NS
        return True

    def attached(self, agent: int, incarnation: int, now: int) -> bool:
        """An agent has answered a greeting; False where that was known."""
        known = self._agents[agent]
        known.greet_ns = None
        spoke = self.heard(agent, now)
        if known.incarnation == incarnation:
            return spoke
        known.incarnation = incarnation
        return True

    def lost(self, agent: int, greet_ns: int | None) -> None:
        """An agent is away; it is greeted again at `greet_ns`."""
        known = self._agents[agent]
        known.incarnation = None
        known.greet_ns = greet_ns
        known.silent = False
        if agent == PRIMARY:
            self._silence.rest()

    def heard(self, agent: int, now: int) -> bool:
        """An agent has said something; whether that has ended its silence."""
        if agent != PRIMARY:
            return False
        self._silence.heard(now)
        known = self._agents[PRIMARY]
        if not known.silent:
            return False
        known.silent = False
        known.greet_ns = None
        return True

    def asked(self, agent: int, deadline_ns: int, now: int) -> None:
        """A request was handed to an agent."""
        if agent == PRIMARY and len(self._agents) > 1 and not self._agents[PRIMARY].silent:
            self._silence.owes(deadline_ns - now, now)

    # --- time ---------------------------------------------------------------------------------------------------------

    def greetings(self, now: int) -> list[int]:
        """Agents that are to be greeted now."""
        due: list[int] = []
        for number, agent in enumerate(self._agents):
            if agent.greet_ns is not None and agent.greet_ns <= now:
                agent.greet_ns = now + (GREET_SILENT_NS if agent.silent else GREET_NS)
                due.append(number)
        return due

    def looks(self, now: int, owes: Callable[[], bool]) -> tuple[bool, bool]:
        """Look after the primary: whether it is to be greeted, and whether it was found silent. `owes` tells whether it
        owes an answer to any request."""
        silence, primary = self._silence, self._agents[PRIMARY]
        if silence.check_ns is None or now < silence.check_ns:
            return False, False
        if primary.silent or not owes():
            silence.rest()
            return False, False
        half = silence.patience_ns // 2
        if now - silence.quiet_since_ns < half:
            silence.check_ns = silence.quiet_since_ns + half
            return False, False
        if not silence.greeted:
            silence.greeted = True
            silence.check_ns = max(now + half, silence.quiet_since_ns + silence.patience_ns)
            return True, False
        silence.rest()
        primary.silent = True
        primary.greet_ns = now + GREET_SILENT_NS
        self.silences += 1
        return False, True

    def soonest(self) -> int | None:
        """When there is something to do by time."""
        soonest = self._silence.check_ns
        for agent in self._agents:
            if agent.greet_ns is not None and (soonest is None or agent.greet_ns < soonest):
                soonest = agent.greet_ns
        return soonest

    def close(self) -> None:
        """Greet nobody any more."""
        for agent in self._agents:
            agent.greet_ns = None
        self._silence.rest()
