"""Faults of the edge: the broker, its attempts and nodes, its agent's front."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

import msgspec

import edge.broker
from edge.attempts import Attempts
from edge.broker import Broker
from edge.cloud_way import CloudWay
from edge.front import Front
from edge.local_work import LocalWork
from edge.nodes import Nodes
from edge.open_request import Work
from edge.outliers import Outliers
from edge.paths import State
from edge.register import Register
from planted.plant import Bug, bug
from shared.events import Hold, Resolve, WakeAt
from shared.plan import Plan
from shared.request import EXACT, Missed, Superseded


@bug("cancelled work runs", "Work that is cancelled stays in the device's queue", LocalWork, "cancel")
def cancelled_work_runs(right: Any, self: Any, job: int) -> None:
    self._owners.pop(job, None)


@bug(
    "superseded frame runs",
    "A newer frame ends an older one's request, and leaves its work",
    Broker,
    "_supersede",
    "streams",
)
def superseded_frame_runs(right: Any, self: Any, request: Any, now: int, out: list[Any]) -> None:
    older = self._open.newest_of_stream(request)
    if older is not None:
        out.append(Resolve(older.request.client, older.request.sequence, Superseded()))
        self._open.remove(older)


@bug("held answer delivered twice", "What was held is delivered, and once more", Broker, "_deliver_held")
def held_answer_twice(right: Any, self: Any, open_: Any, now: int, out: list[Any]) -> None:
    right(self, open_, now, out)
    out.append(out[-1] if isinstance(out[-1], Resolve) else next(a for a in reversed(out) if isinstance(a, Resolve)))


@bug("outcome never delivered", "A request that ends without an answer ends without a word", Broker, "_resolve")
def outcome_never_delivered(
    right: Any, self: Any, open_: Any, outcome: Any, out: list[Any], *, held: bool = False
) -> None:
    if isinstance(outcome, Missed):
        self._close(open_, out)
    else:
        right(self, open_, outcome, out, held=held)


@bug("deadline shifted", "A request is due 3 ms later at the broker than its client said", Broker, "_arrived")
def deadline_shifted(right: Any, self: Any, request: Any, now: int, out: list[Any]) -> None:
    right(self, msgspec.structs.replace(request, deadline_ns=request.deadline_ns + 3_000_000), now, out)


@bug("stage forgotten", "The time that an answer of the device was held is in no stage", edge.broker, "local_stages")
def stage_forgotten(right: Any, *args: Any) -> Any:
    return {stage: ns for stage, ns in right(*args).items() if stage != "hold"}


@bug("lossy called exact", "An answer behind a lossy coding is called exact", Plan, "cloud_fidelity", "weak")
def lossy_called_exact(right: Any, self: Any, coding: Any, agreement: float) -> Any:
    return EXACT


@bug("rung called whole", "An answer of a cheaper rung is called exact", Plan, "rung_fidelity")
def rung_called_whole(right: Any, self: Any, rung: Any) -> Any:
    return EXACT


@bug("max_open ignored", "The broker takes more requests than it may hold open", edge.broker, "refusal")
def max_open_ignored(right: Any, *args: Any, **facts: Any) -> Any:
    return right(*args, **{**facts, "max_open": 1 << 30})


@bug("clock jump ignored", "The edge goes on after a suspension as if nothing had been", Broker, "_jumped", "clock")
def clock_jump_ignored(right: Any, self: Any, now: int, out: list[Any]) -> None:
    pass


@bug(
    "attempt not checked",
    "A reply to any attempt of a request is taken for the reply to its last",
    Attempts,
    "_answered",
    "weak",
)
def attempt_not_checked(right: Any, self: Any, path: Any, message: Any, now: int) -> Any:
    open_ = self._open.get(message.sequence)
    if open_ is None or not open_.attempts or not open_.attempts[-1].alive:
        return right(self, path, message, now)
    last = open_.attempts[-1]
    for known in last.node.paths:
        known.out.pop((message.sequence, last.number), None)
    last.node.out.pop((message.sequence, last.number), None)
    path.node.load(message.load)
    return open_, last


@bug("timer not set anew", "A wake-up is asked for only where it is later than the one before", Broker, "_wake")
def timer_not_set_anew(right: Any, self: Any, now: int, out: list[Any]) -> None:
    before = self._wake_at
    right(self, now, out)
    if out and isinstance(out[-1], WakeAt) and now < before and out[-1].at_ns < before:
        out.pop()


@bug("stalled node used", "A node whose answer is overdue is asked all the same", Nodes, "overdue", "network")
def stalled_node_used(right: Any, self: Any, path: Any, now: int) -> bool:
    return False


@bug("lost node used", "A node whose connection is gone is asked all the same", Nodes, "_lose", "network")
def lost_node_used(right: Any, self: Any, path: Any, state: State) -> Any:
    before, credits_ = path.state, path.node.credits
    right(self, path, state)
    path.state, path.node.credits = before, credits_
    return path


@bug("answer held and not pushed", "A held answer is not pushed to the client", Broker, "_consider")
def answer_not_pushed(right: Any, self: Any, open_: Any, answer: Any, now: int, out: list[Any]) -> None:
    right(self, open_, answer, now, out)
    out[:] = [action for action in out if not isinstance(action, Hold)]


@bug("credit exceeded", "An edge sends more than a node lent", Nodes, "usable")
def credit_exceeded(right: Any, self: Any, contract: str, now: int) -> Any:
    return [p for p in self.paths() if p.state is State.UP and contract in p.node.contracts]


@bug(
    "another cut sent",
    "The number of a way is taken for that of its cut, and the input is sent as that cut",
    CloudWay,
    "ask",
    "weak",
)
def another_cut_sent(right: Any, self: Any, open_: Any, attempt: Any, path: Any, now: int) -> Any:
    encoded = open_.encoded
    try:
        open_.encoded = {open_.plan.routes[index].cut: frames for index, frames in encoded.items()}
        return right(self, open_, attempt, path, now)
    finally:
        open_.encoded = encoded


@bug("answer to another client", "An agent gives outcomes to whoever attached first", Front, "_resolve")
def answer_to_another(right: Any, self: Any, resolve: Any) -> Any:
    first = next(iter(self._sessions), resolve.client)
    return right(self, msgspec.structs.replace(resolve, client=first))


@bug("request without a timer", "A request is open, and nothing wakes the broker for it", Register, "add")
def request_without_timer(right: Any, self: Any, open_: Any) -> None:
    right(self, open_)
    self.due._heap = [item for item in self.due._heap if item[1] != open_.id]


@bug("wake-ups for nothing", "A broker that has nothing to do asks to be woken all the same", Broker, "_wake")
def wake_ups_for_nothing(right: Any, self: Any, now: int, out: list[Any]) -> None:
    right(self, now, out)
    if not len(self._open) and not self.scheduler.running and self._wake_at > now + 20_000_000:
        self._wake_at = now + 20_000_000
        out[:] = [*(action for action in out if not isinstance(action, WakeAt)), WakeAt(self._wake_at)]


@bug(
    "work lost, request left",
    "Work of the device that failed leaves its request waiting for it",
    Broker,
    "_job_lost",
    "executor",
)
def work_lost(right: Any, self: Any, job: int, why: str, now: int, out: list[Any]) -> None:
    open_, _ = self._owner(job)
    if open_ is not None:
        open_.rung_work = Work.FAILED


@bug("answer of another row", "The rows of a batch are told apart one place too late", Broker, "_finished")
def answer_of_another_row(right: Any, self: Any, event: Any, now: int, out: list[Any]) -> None:
    results = event.results
    if len(results) > 1 and len({len(r.outputs) for r in results}) == 1:
        turned = [*results[1:], results[0]]
        results = tuple(msgspec.structs.replace(r, outputs=t.outputs) for r, t in zip(results, turned, strict=True))
    right(self, msgspec.structs.replace(event, results=results), now, out)


@bug("leaving node used", "A node that says that it is about to leave is asked all the same", Nodes, "drains", "paths")
def leaving_node_used(right: Any, self: Any, node: Any, message: Any) -> None:
    pass


@bug(
    "every node left alone",
    "Nodes are left alone for doing badly, however many already are",
    Outliers,
    "_eject",
    "weak",
)
def every_node_left_alone(right: Any, self: Any, record: Any, now: int) -> None:
    record.until = now + 1_000_000_000


EDGE: tuple[Bug, ...] = tuple(value for value in globals().values() if isinstance(value, Bug))
