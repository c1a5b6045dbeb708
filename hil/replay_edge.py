"""Requests as an edge's journal shows them. A request is called `CLIENT:SEQUENCE`, or by the number that nodes know it by."""

from __future__ import annotations

from edge.broker import Broker
from hil.replay_lives import Life, Runs, came, ms, nbytes
from shared.events import (
    Abort,
    Action,
    Arrived,
    ClientGone,
    Event,
    Failed,
    Finished,
    Hold,
    Received,
    Resolve,
    Run,
    Send,
    SendFailed,
    Withdrawn,
)
from shared.journal.replay import Replayed
from shared.request import Answer, Missed, Rejected, Request, Stage
from shared.wire.messages import Cancel, Infer, Refusal, Reply

Key = tuple[str, int]


class EdgeLives:
    """Reads requests off the replay of a broker."""

    def __init__(self, broker: Broker) -> None:
        self.all: list[Life] = []
        self._broker = broker
        self._runs = Runs()
        self._open: dict[Key, Life] = {}
        self._deadlines: dict[Key, int] = {}
        self._numbers: dict[int, Life] = {}
        self._since: dict[str, tuple[Stage, int]] = {}
        """Where an open request's time goes just now, and since when."""

    def see(self, step: Replayed) -> None:
        """Take the next step."""
        now = step.now_ns
        self._event(step.event, now)
        if isinstance(step.event, Arrived):
            request = step.event.request
            number = self._broker.number(request.client, request.sequence)
            if number:
                life = self._numbers.setdefault(number, self._open[request.client, request.sequence])
                life.number = number
        for action in step.actions:
            self._action(action, now)

    # --- events -----------------------------------------------------------------------------------------------------

    def _event(self, event: Event, now: int) -> None:
        match event:
            case Arrived():
                self._arrived(event.request, now)
            case Received(message=Reply() | Refusal() as message):
                life = self._numbers.get(message.sequence)
                if life is not None:
                    why = f": {message.reason}" if isinstance(message, Refusal) else ""
                    life.saw(now, f"{came(event, event.link)}, attempt {message.attempt}{why}")
            case Finished():
                for life in self._runs.finished(event, now):
                    self._turn(life, "hold", now)
            case Failed():
                for life in self._runs.failed(event, now):
                    self._turn(life, "agent", now)
            case SendFailed(message=Infer() as message):
                life = self._numbers.get(message.sequence)
                if life is not None:
                    life.saw(now, f"attempt {message.attempt} could not be sent on {event.link}")
            case Withdrawn():
                self._withdrawn((event.client, event.sequence), now, "its client withdrew it")
            case ClientGone():
                for key in [key for key in self._open if key[0] == event.client]:
                    self._withdrawn(key, now, "its client left")
            case _:
                pass

    def _arrived(self, request: Request, now: int) -> None:
        key = (request.client, request.sequence)
        stream = f"stream {request.stream}, " if request.stream else ""
        rows = f"{request.rows} row{'s' * (request.rows != 1)}"
        life = Life(
            id=f"{request.client}:{request.sequence}",
            about=f"{stream}class {request.priority}, {rows}, {nbytes(request.inputs)} bytes",
            began_ns=request.scheduled_ns,
            arrived_ns=now,
            budget_ns=request.deadline_ns - request.scheduled_ns,
        )
        life.saw(now, f"arrived at the agent: {life.about}")
        life.spent("client", now - request.scheduled_ns)
        self.all.append(life)
        if key not in self._open:
            self._open[key] = life
            self._deadlines[key] = request.deadline_ns
            self._since[life.id] = ("edge_queue", now)

    def _withdrawn(self, key: Key, now: int, why: str) -> None:
        life = self._open.get(key)
        if life is not None:
            life.saw(now, why)
            self._close(key, now)
            life.ended(now, "withdrawn", detail=why)

    # --- actions ----------------------------------------------------------------------------------------------------

    def _action(self, action: Action, now: int) -> None:
        match action:
            case Run():
                self._launched(action, now)
            case Send():
                self._sent(action, now)
            case Abort():
                self._runs.aborted(action, now)
            case Hold(answer=answer):
                life = self._open.get((action.client, action.sequence))
                if life is not None:
                    life.saw(now, f"answer of {_maker(answer)} pushed to the client, and held")
            case Resolve():
                self._resolved(action, now)
            case _:
                pass

    def _launched(self, run: Run, now: int) -> None:
        workers: list[Life] = []
        for row in run.rows:
            number, attempt = self._broker.owner(row.job)
            life = self._numbers.get(number)
            if life is not None:
                workers.append(life)
                self._turn(life, "head" if attempt else "rung", now)
        self._runs.launched(run, workers, now)

    def _sent(self, send: Send, now: int) -> None:
        message = send.message
        if not isinstance(message, Infer | Cancel):
            return
        life = self._numbers.get(message.sequence)
        if life is None:
            return
        if isinstance(message, Cancel):
            life.saw(now, f"attempt {message.attempt} cancelled on {send.link}")
        else:
            what = f"cut {message.cut} as {message.coding}, {nbytes(send.frames)} bytes"
            life.saw(now, f"attempt {message.attempt} sent on {send.link}: {what}, {ms(message.budget_ns)} ms left")

    def _resolved(self, resolve: Resolve, now: int) -> None:
        key = (resolve.client, resolve.sequence)
        life = self._open.get(key)
        outcome = resolve.outcome
        if life is None or (isinstance(outcome, Rejected) and outcome.reason == "duplicate"):
            return
        deadline_ns = self._deadlines[key]
        self._close(key, now, outcome.stage if isinstance(outcome, Missed) else None)
        match outcome:
            case Answer():
                life.stages = {stage: span for stage, span in life.stages.items() if stage == "client"}
                life.stages |= outcome.stages
                life.ended(now, "answer", on_time=now <= deadline_ns, by=_maker(outcome))
            case Missed():
                life.ended(now, "missed", on_time=False, detail=_told(outcome.stage, outcome.detail))
            case Rejected():
                life.ended(now, "rejected", on_time=False, detail=_told(outcome.reason, outcome.detail))
            case _:
                life.ended(now, "superseded")
        life.saw(now, f"resolved: {life.end} {life.by or life.detail}".rstrip())

    # --- time -------------------------------------------------------------------------------------------------------

    def _turn(self, life: Life, stage: Stage, now: int) -> None:
        """From now on the request's time goes to `stage`."""
        if life.id in self._since:
            before, since = self._since[life.id]
            life.spent(before, now - since)
            self._since[life.id] = (stage, now)

    def _close(self, key: Key, now: int, at_fault: Stage | None = None) -> None:
        life = self._open.pop(key)
        del self._deadlines[key]
        stage, since = self._since.pop(life.id)
        life.spent(at_fault or stage, now - since)


def _told(word: str, detail: str) -> str:
    return f"{word}: {detail}" if detail else word


def _maker(answer: Answer) -> str:
    where = "the device" if answer.node is None else answer.node
    return f"{where}: {answer.rung}, {answer.fidelity}"
