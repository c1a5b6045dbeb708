"""Sees which requests of an agent end without an answer in time, and keeps them as dead letters. Pure.

It stands around the broker and looks at what goes in and out, so that the broker's state, and with it every snapshot of the
journal, stays free of it. What a client takes back before its deadline, or puts a newer frame in place of, is no dead letter;
what it takes back later, without having been pushed an answer, is one. What does not fit the model was refused at the agent's
door before it became a request, and is only counted there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.events import Action, Arrived, ClientGone, Event, Hold, Resolve, Withdrawn
from shared.letters import Letter, Letters
from shared.plan import Plan
from shared.ports import Machine
from shared.request import Answer, Missed, Outcome, Rejected, Request, Stages, Superseded

_NO_ANSWER = (Missed, Rejected)


class EdgeLetters:
    """A broker that is another, and whose failures go into `letters`. `inputs`: whether with what they held."""

    def __init__(self, machine: Machine, plans: Mapping[str, Plan], letters: Letters, *, inputs: bool = False) -> None:
        """`plans` by contract digest."""
        self._handle = machine.handle
        self._models = {contract: plan.name for contract, plan in plans.items()}
        self._letters = letters
        self._inputs = inputs
        self._open: dict[tuple[str, int], tuple[Request, int]] = {}
        """What is open, and when it came."""
        self._held: set[tuple[str, int]] = set()
        """Of these, what has been pushed an answer."""

    def handle(self, event: Event, now: int) -> list[Action]:
        """What the broker says."""
        actions = self._handle(event, now)
        self.see(event, actions, now)
        return actions

    def see(self, event: Event, actions: Sequence[Action], now: int) -> None:
        """Take a step that the broker has made."""
        match event:
            case Arrived(request):
                self._open.setdefault((request.client, request.sequence), (request, now))
            case Withdrawn():
                self._withdrawn((event.client, event.sequence), now)
            case ClientGone():
                for key in [key for key in self._open if key[0] == event.client]:
                    del self._open[key]
                    self._held.discard(key)
            case _:
                pass
        for action in actions:
            if isinstance(action, Resolve):
                self._ended(event, action, now)
            elif isinstance(action, Hold):
                self._held.add((action.client, action.sequence))

    def _withdrawn(self, key: tuple[str, int], now: int) -> None:
        known = self._open.pop(key, None)
        if known is not None and now >= known[0].deadline_ns and key not in self._held:
            self._bury(*known, Missed("agent", "its client gave it up at its deadline"), now)
        self._held.discard(key)

    def _ended(self, event: Event, action: Resolve, now: int) -> None:
        outcome = action.outcome
        if isinstance(outcome, Rejected) and outcome.reason == "duplicate" and isinstance(event, Arrived):
            # The one of the same name goes on.
            self._bury(event.request, now, outcome, now)
            return
        key = (action.client, action.sequence)
        known = self._open.pop(key, None)
        self._held.discard(key)
        if known is not None and _failed(outcome, known[0], now):
            self._bury(*known, outcome, now)

    def _bury(self, request: Request, came_ns: int, outcome: Outcome, now: int) -> None:
        before = max(0, came_ns - request.scheduled_ns)
        stages: Stages = {"client": before} if before else {}
        match outcome:
            case Missed():
                reason, detail = "missed", outcome.detail
                stages[outcome.stage] = stages.get(outcome.stage, 0) + now - came_ns
            case Rejected():
                reason, detail = outcome.reason, outcome.detail
                stages["edge_queue" if reason == "revoked" else "agent"] = now - came_ns
            case Answer():
                reason, detail = "late", f"answered by {outcome.node or 'the device'}, rung {outcome.rung}"
                stages |= outcome.stages
            case Superseded():
                return
        letter = Letter(
            who=request.client,
            incarnation=0,
            sequence=request.sequence,
            attempt=0,
            model=self._models.get(request.plan, ""),
            contract=request.plan,
            priority=request.priority,
            rows=request.rows,
            cut=0,
            coding="raw",
            came_ns=request.scheduled_ns,
            due_ns=request.deadline_ns,
            ended_ns=now,
            reason=reason,
            detail=detail,
            stages=stages,
        )
        self._letters.add(letter, request.inputs if self._inputs else ())


def _failed(outcome: Outcome, request: Request, now: int) -> bool:
    return isinstance(outcome, _NO_ANSWER) or (isinstance(outcome, Answer) and now > request.deadline_ns)
