"""What a client owes its callers: one outcome for each request that it has taken, no later than its deadline.

Both forms of a client keep these books, whoever works on the requests: agents that may die (`edge.outcomes`), or a broker in
the same loop (`edge.direct`). They never see a tensor of a request: they know it by its sequence, its scheduled time and its
deadline.

An answer that is kept for the deadline is delivered a margin before it, the measured p99.9 of a wake-up's lateness within
bounds: a timer fires after its time, never before, so that one set to the deadline itself would make every such answer late.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from edge.due import DueTimes
from edge.hold import HoldMargin
from shared.events import Hold, Resolve
from shared.lateness import Lateness
from shared.request import Answer, Missed, Outcome, Rejected, Stages, Superseded

SETTLE_NS = 700_000
"""The least time before its deadline at which a request is answered with a kept answer."""

SETTLE_MOST_NS = 1_500_000
"""The most, on a machine that wakes its processes late."""

NO_ANSWER = (Missed, Rejected)
"""Outcomes that an answer may better."""


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


class Entry(msgspec.Struct, gc=False):
    """An open request. `since_ns`: from when its time is counted: when it was due, or when it came where that was earlier,
    since an agent begins with what it is asked ahead of time. `kept`: the answer that is given at the deadline where nothing
    better comes, and since when."""

    since_ns: int
    deadline_ns: int
    kept: Answer | None = None
    kept_ns: int = 0


E = TypeVar("E", bound=Entry)


class Owed(Generic[E]):
    """The open requests of one client, when each is due, and what came of all. Not thread-safe: one loop feeds it.

    `max_open` bounds the open requests; one more is `Rejected("too-many-open")`. `client` is echoed in each `Resolve`.
    `lateness` counts how long after its deadline each outcome was decided.
    """

    def __init__(self, client: str, max_open: int) -> None:
        self._client = client
        self._max_open = max_open
        self._closed = False
        self.open: dict[int, E] = {}
        """By sequence."""
        self.due = DueTimes(self.open, max_open)
        self.margin = HoldMargin(SETTLE_NS, SETTLE_MOST_NS)
        self.counts = Counts()
        self.lateness = Lateness()

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closed

    def take(self, sequence: int, scheduled_ns: int, entry: E, now: int) -> Resolve | None:
        """A request comes, counted from `scheduled_ns`: it is open from now on, unless this is its outcome at once."""
        counts, open_ = self.counts, self.open
        counts.asked += 1
        if self._closed or entry.deadline_ns <= now or len(open_) >= self._max_open:
            refusal = self._refusal(scheduled_ns, entry.deadline_ns, now)
            self._count(refusal)
            return Resolve(self._client, sequence, refusal)
        open_[sequence] = entry
        counts.open = len(open_)
        self.due.add(entry.deadline_ns, sequence)
        return None

    def withdraw(self, sequence: int) -> E | None:
        """Nobody wants this outcome any more; what was known of the request, where it was open."""
        entry = self.open.pop(sequence, None)
        if entry is not None:
            self.counts.withdrawn += 1
            self.counts.open = len(self.open)
        return entry

    def keep(self, told: Hold, now: int) -> None:
        """The best answer so far, as the agent tells: it is kept for the deadline."""
        entry = self.open.get(told.sequence)
        if entry is None:
            self.counts.ignored += 1
            return
        if entry.kept is None or told.answer.agreement >= entry.kept.agreement:
            if entry.kept is None:
                self.due.add(entry.deadline_ns - self.margin.margin_ns(), told.sequence)
            entry.kept = told.answer
            entry.kept_ns = now

    def settle(self, told: Resolve, entry: E, now: int) -> Resolve:
        """The agent's last word on an open request, with the whole of its time: what was kept, where that was meant, or is
        better than none."""
        outcome, held = told.outcome, told.held
        if held:
            outcome = entry.kept or Missed("agent", "the agent's answer was lost on its way")
        elif entry.kept is not None and isinstance(outcome, NO_ANSWER):
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
        return self._end(told.sequence, entry, outcome, now)

    def overdue(self, now: int, why: str) -> list[Resolve]:
        """End what is due: with the answer that is kept, or at the deadline without one, since `why`."""
        ended: list[Resolve] = []
        for sequence in self.due.due(now):
            entry = self.open[sequence]
            if entry.kept is not None:
                ended.append(self._end(sequence, entry, self._accounted(entry.kept, entry, now, kept=True), now))
            elif entry.deadline_ns <= now:
                missed = Missed("agent", why, max(0, now - entry.since_ns))
                ended.append(self._end(sequence, entry, missed, now))
        return ended

    def jumped(self, jump_ns: int, now: int) -> list[Resolve]:
        """The host was suspended: whatever was open is over."""
        detail = f"the host was suspended for {jump_ns / 1e6:.0f} ms"
        return [
            self._end(sequence, entry, Missed("client", detail, max(0, now - entry.since_ns)), now)
            for sequence, entry in list(self.open.items())
        ]

    def close(self, now: int) -> list[Resolve]:
        """End every open request, and take no more."""
        self._closed = True
        return [
            self._end(sequence, entry, Rejected("closed", "the client was closed", max(0, now - entry.since_ns)), now)
            for sequence, entry in list(self.open.items())
        ]

    # --- inside -------------------------------------------------------------------------------------------------------

    def _refusal(self, scheduled_ns: int, deadline_ns: int, now: int) -> Missed | Rejected:
        """Why one is not taken."""
        elapsed = max(0, now - scheduled_ns)
        if self._closed:
            return Rejected("closed", "the client is closed", elapsed)
        if deadline_ns <= now:
            late_ms = (now - deadline_ns) / 1e6
            return Missed("client", f"asked {late_ms:.3f} ms after its deadline", elapsed)
        return Rejected("too-many-open", f"{self._max_open} requests are open already", elapsed)

    def _end(self, sequence: int, entry: E, outcome: Outcome, now: int) -> Resolve:
        del self.open[sequence]
        self.counts.open = len(self.open)
        self.lateness.add(now - entry.deadline_ns)
        self._count(outcome)
        return Resolve(self._client, sequence, outcome)

    def _accounted(self, answer: Answer, entry: E, now: int, *, kept: bool) -> Answer:
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
        return replace(answer, elapsed_ns=elapsed, stages=stages, on_time=now <= entry.deadline_ns)

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
