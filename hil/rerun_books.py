"""What a rerun holds a machine to: one outcome for each request, by its deadline, and no answer to what was not asked."""

from __future__ import annotations

from collections import Counter

from shared.events import Arrived, ClientGone, Received, Resolve, Send, Withdrawn
from shared.journal.replay import Replayed
from shared.request import Answer, Rejected
from shared.wire.messages import Infer, Refusal, Reply

MOST_FAULTS = 20
"""Faults after which nobody reads on."""

Key = tuple[str, int]
Attempt = tuple[int, int, int]


class RerunBooks:
    """Reads every step of a machine. `on_time` counts the requests that were answered on time, on a node the attempts that
    were answered. `late_start`: the journal's beginning is forgotten, so that what was asked before it may be answered."""

    def __init__(self, *, late_start: bool) -> None:
        self._late_start = late_start
        self._known: set[Key | Attempt] = set()
        self.faults: list[str] = []
        self.on_time = 0
        self.strict_from_ns: int | None = None
        """Since when timers come when they should, so that nothing that is due after that may be late."""
        self._due: dict[Key, int] = {}
        self._asked: Counter[Attempt] = Counter()

    def fault(self, story: str) -> None:
        """Note something that does not hold."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(story)

    @property
    def last_due_ns(self) -> int:
        """When the last of the open requests is due."""
        return max(self._due.values(), default=0)

    def took(self, step: Replayed) -> None:
        """The machine has taken a step."""
        again = False
        match step.event:
            case Arrived(request=request):
                key = (request.client, request.sequence)
                again = key in self._due
                self._known.add(key)
                if not again:
                    self._due[key] = request.deadline_ns
            case Withdrawn():
                self._due.pop((step.event.client, step.event.sequence), None)
            case ClientGone():
                self._due = {key: due for key, due in self._due.items() if key[0] != step.event.client}
            case Received(message=Infer() as message):
                attempt = (message.incarnation, message.sequence, message.attempt)
                self._asked[attempt] += 1
                self._known.add(attempt)
            case _:
                pass
        for action in step.actions:
            if isinstance(action, Resolve):
                self._resolved(action, step, again=again)
            elif isinstance(action, Send) and isinstance(action.message, Reply | Refusal):
                self._answered(action.message, step)

    def close(self, now: int) -> None:
        """The machine takes no further step until `now`, which is later than everything it has to do."""
        for (client, sequence), due_ns in self._due.items():
            if due_ns < now:
                self.fault(f"request {client}:{sequence} has no outcome after its deadline")

    def _resolved(self, resolve: Resolve, step: Replayed, *, again: bool) -> None:
        outcome = resolve.outcome
        if again and isinstance(outcome, Rejected) and outcome.reason == "duplicate":
            return
        key = (resolve.client, resolve.sequence)
        if self._from_before(key):
            return
        due_ns = self._due.pop(key, None)
        name = f"request {resolve.client}:{resolve.sequence}"
        if due_ns is None:
            self.fault(f"step {step.number}: {name} has an outcome and is not open")
        elif isinstance(outcome, Answer) and step.now_ns <= due_ns:
            self.on_time += 1
        elif step.now_ns > due_ns and self._timely(due_ns) and not isinstance(step.event, Arrived):
            self.fault(
                f"step {step.number}: {name} is decided {(step.now_ns - due_ns) / 1e6:.3f} ms after its deadline"
            )

    def _from_before(self, asked: Key | Attempt) -> bool:
        """Whether this was asked before the journal begins, and is answered for the first time."""
        before = self._late_start and asked not in self._known
        self._known.add(asked)
        return before

    def _timely(self, due_ns: int) -> bool:
        return self.strict_from_ns is not None and due_ns > self.strict_from_ns

    def _answered(self, message: Reply | Refusal, step: Replayed) -> None:
        attempt = (message.incarnation, message.sequence, message.attempt)
        if self._from_before(attempt):
            return
        self._asked[attempt] -= 1
        if self._asked[attempt] < 0:
            self.fault(f"step {step.number}: attempt {attempt} is answered and was not asked, or is over")
        self.on_time += isinstance(message, Reply)
