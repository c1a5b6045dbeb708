"""The edge's machine: every request gets its answer from the device, and a better one from the cloud where it comes.

    Arrived --> choose a rung that the device can promise (the insurance)
            --> choose a way through the cloud that is better and predicted on time
            --> head or encoding first, send, then the rung while the cloud works
    a better answer comes     --> Resolve at once, abort the rung
    the rung is done first    --> Hold (pushed to the client); Resolve at `hold_until`, or at once if the cloud is hopeless
    `resolve_by` passes       --> Resolve with what is held, else Missed(the stage that ate the budget)

Only decisions are here: time is an argument, and whoever drives the machine carries out its actions. Choosing a way is
`edge.cloud_way`, watching nodes is `edge.nodes`, ordering the device's work is `shared.scheduler`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from edge.account import local_stages
from edge.admission import refusal
from edge.balance import NOT_INSURED, Candidate, Insured
from edge.cloud_way import CloudWay
from edge.hold import HoldMargin
from edge.insurance import insure, local_answer, rung_key
from edge.local_work import LocalWork
from edge.nodes import MS, Node, Nodes
from edge.open_request import Attempt, Open, Work
from edge.register import Register
from shared.errors import InvariantBroken
from shared.events import (
    Action,
    Arrived,
    ClientGone,
    ClockJumped,
    Event,
    Failed,
    Finished,
    Hold,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    RowResult,
    Send,
    SendFailed,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.plan import Plan, Rung
from shared.request import Answer, Missed, Outcome, Rejected, Request, Superseded
from shared.scheduler import scheduler_of
from shared.settings import EdgeSettings
from shared.wire.messages import Bye, Cancel, Infer, ProbeReply, Refusal, Reply, Welcome

MAX_ATTEMPTS = 3
RETRY = frozenset({"overload", "credit", "expired", "failed", "hello", "contract"})
"""Refusals after which another node may still answer."""
REFUSALS = RETRY | {
    "input",
    "size",
    "duplicate",
    "cancelled",
}  # others are counted as one: a node cannot fill the counters


class Broker:
    """Requests, insurance and outcomes of one edge. `handle(event, now)` is the only door."""

    def __init__(self, settings: EdgeSettings, plans: Mapping[str, Plan], incarnation: int, rng: random.Random) -> None:
        """`plans` by contract digest. `incarnation` tells this process from those before it. `rng` comes seeded."""
        self._settings = settings
        self._plans = dict(plans)
        self._incarnation = incarnation
        self._guard_ns = int(settings.insurance.guard_ms * MS)
        self.scheduler = scheduler_of(plans, "edge", settings.execution, settings.batching, settings.scheduling)
        self._work = LocalWork(self.scheduler)
        self.nodes = Nodes(settings, tuple(plans), incarnation, rng)
        self._ways = CloudWay(plans, incarnation, self.scheduler, int(settings.link.explore_interval_ms * MS))
        self._open = Register(settings.limits.max_open)
        self._last_id = 0
        self._hold = HoldMargin(int(settings.insurance.hold_ms * MS), int(settings.insurance.hold_max_ms * MS))
        self._wake_at = 0
        self._nodes_due: int | None = None
        self.counters: Counter[str] = Counter()

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event and say what is to be done. Raises `InvariantBroken` where a rule of our own is broken."""
        out: list[Action] = []
        match event:
            case Arrived():
                self._arrived(event.request, now, out)
            case Finished():
                self._finished(event, now, out)
            case Received():
                self._received(event, now, out)
            case Tick():
                self._hold.woke(event.late_ns)
            case Failed():
                self._failed(event, now, out)
            case Withdrawn():
                open_ = self._open.of(event.client, event.sequence)
                if open_ is not None:
                    self._close(open_, out)
            case ClientGone():
                for open_ in self._open.of_client(event.client):
                    self._close(open_, out)
            case LinkUp():
                out += self.nodes.connected(event.link, now)
            case LinkDown():
                self._lost(self.nodes.disconnected(event.link), now, out)
            case SendFailed():
                self._send_failed(event, now, out)
            case ClockJumped():
                self._jumped(now, out)
        self._timers_due(now, out)
        self._schedule(now, out)
        self._wake(now, out)
        return out

    # --- a request comes --------------------------------------------------------------------------------------------

    def _arrived(self, request: Request, now: int, out: list[Action]) -> None:
        plan = self._plans.get(request.plan)
        why = refusal(
            request,
            plan,
            known=self._open.of(request.client, request.sequence) is not None,
            open_now=len(self._open),
            max_open=self._settings.limits.max_open,
            decide_by=request.deadline_ns - self._guard_ns,
            now=now,
        )
        if plan is None or why is not None:
            out.append(Resolve(request.client, request.sequence, why or Rejected("no-route")))
            return
        if request.stream and request.latest_wins:
            self._supersede(request, now, out)
        self._last_id += 1
        open_ = Open(self._last_id, request, plan, now)
        open_.resolve_by = request.deadline_ns - self._guard_ns
        open_.hold_until = open_.resolve_by - self._hold.margin_ns()
        way, insured, exploring = self._choose(open_, now)
        if open_.rung is None and way is None:
            reason = "overload" if plan.ladder else "no-route"
            detail = "neither the device nor a node has the time"
            out.append(Resolve(request.client, request.sequence, Rejected(reason, detail)))
            return
        self._open.add(open_)
        if open_.rung is not None:
            self._queue_rung(open_, insured)
        if way is not None:
            self._try(open_, way, exploring, now, out)
        self._reconsider(open_, now, out)

    def _choose(self, open_: Open, now: int) -> tuple[Candidate | None, Insured, bool]:
        """The rung, the way through the cloud, and whether that is only explored. Work before sending counts against the
        rung: a route whose head would cost the promise is none."""
        rung, insured = insure(self.scheduler, open_, 0, now)
        nodes = self.nodes.usable(open_.request.plan)
        rungs: dict[int, tuple[Rung | None, Insured]] = {}
        for index in range(len(open_.plan.routes)) if nodes else ():
            head = self._ways.head(open_, index)
            if head is None:
                rungs[index] = (rung, insured)
                continue
            before = self.scheduler.latency.pessimistic(head[0], open_.request.rows)
            other = insure(self.scheduler, open_, before, now)
            if other[1].promised or not insured.promised:
                rungs[index] = other
        way, exploring = self._ways.find(open_, nodes, rungs, insured, now)
        self.counters["explored"] += exploring
        open_.rung, insured = (rung, insured) if way is None else rungs[way.index]
        return way, insured, exploring

    # --- work for the device ------------------------------------------------------------------------------------------

    def _queue_rung(self, open_: Open, insured: Insured) -> None:
        if open_.rung is None:
            raise InvariantBroken(f"request {open_.id} has no rung to queue")
        key = rung_key(open_, open_.rung)
        by = open_.resolve_by
        open_.rung_job = self._work.queue((open_.id, 0), open_.request, key, None, by, promised=insured.promised)
        open_.rung_work = Work.QUEUED if open_.rung_job else Work.FAILED
        if not open_.rung_job:
            open_.trouble = "the device's queue is full"

    def _schedule(self, now: int, out: list[Action]) -> None:
        decision = self.scheduler.schedule(now)
        for run in decision.runs:
            for row in run.rows:
                number, attempt = self._work.owner(row.job)
                open_ = self._open.get(number)
                if open_ is not None and not attempt:
                    open_.rung_work = Work.RUNNING
            out.append(run)
        for job in decision.expired:
            self._job_lost(job.id, "the device had no time left", now, out)

    def _owner(self, job: int) -> tuple[Open | None, Attempt | None]:
        number, attempt = self._work.settle(job)
        open_ = self._open.get(number)
        return open_, None if open_ is None else open_.attempt(attempt)

    def _finished(self, event: Finished, now: int, out: list[Action]) -> None:
        launch, _ = self.scheduler.ended(event.run, event.ended_ns - event.began_ns)
        results = {r.job: r for r in event.results}
        for job in launch.jobs:
            result = results.get(job.id) or RowResult(job.id, (), "the executor gave no result")
            if result.error:
                self.counters["work-failed"] += 1
                self._job_lost(job.id, result.error, now, out)
                continue
            open_, attempt = self._owner(job.id)
            if open_ is None:
                continue
            if attempt is None:
                open_.rung_work = Work.DONE
                open_.ran = (event.began_ns, event.ended_ns)
                self._consider(open_, local_answer(open_, result.outputs, now), now, out)
            elif attempt.alive:
                attempt.head = (event.began_ns, event.ended_ns, event.codec_ns)
                open_.encoded[attempt.route_index] = result.outputs
                if attempt.node in self.nodes.usable(open_.request.plan):
                    out.append(self._ways.ask(open_, attempt, now))
                else:
                    self._attempt_over(open_, attempt, now, out)

    def _failed(self, event: Failed, now: int, out: list[Action]) -> None:
        launch, _ = self.scheduler.failed(event.run, now)
        for job in launch.jobs:
            self._job_lost(job.id, event.detail or event.reason, now, out)

    def _job_lost(self, job: int, why: str, now: int, out: list[Action]) -> None:
        open_, attempt = self._owner(job)
        if open_ is None:
            return
        if attempt is not None:
            attempt.alive = False
        else:
            open_.rung_work = Work.FAILED
            open_.trouble = why
        self._reconsider(open_, now, out)

    # --- attempts through the cloud -----------------------------------------------------------------------------------

    def _try(self, open_: Open, way: Candidate, exploring: bool, now: int, out: list[Action]) -> None:
        attempt = Attempt(len(open_.attempts) + 1, way, exploring=exploring)
        open_.attempts.append(attempt)
        head = self._ways.head(open_, way.index)
        if head is None:
            out.append(self._ways.ask(open_, attempt, now))
            return
        key, coding = head
        by = open_.resolve_by - 1  # before its own rung
        attempt.job = self._work.queue((open_.id, attempt.number), open_.request, key, coding, by, promised=False)
        attempt.alive = attempt.job != 0

    def _attempt_over(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> None:
        """An attempt failed."""
        attempt.alive = False
        self._elsewhere(open_, attempt, now, out)

    def _elsewhere(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> None:
        """Nobody should wait for this attempt: try another node with what is already encoded, if there is time."""
        attempt.awaited = False
        if len(open_.attempts) < MAX_ATTEMPTS:
            insured = NOT_INSURED
            if open_.rung is not None and (open_.held is not None or open_.waiting_rung):
                insured = Insured(open_.rung.agreement, open_.resolve_by, True)
            nodes = [n for n in self.nodes.usable(open_.request.plan) if n is not attempt.node]
            way, exploring = self._ways.find(open_, nodes, range(len(open_.plan.routes)), insured, now)
            if way is not None:
                self._try(open_, way, exploring, now, out)
        self._reconsider(open_, now, out)

    def _received(self, event: Received, now: int, out: list[Action]) -> None:
        node = self.nodes.of_link(event.link)
        message = event.message
        if node is None:
            self.counters["unknown-link"] += 1
            return
        if event.link == node.data:
            self.nodes.moved(node)
        match message:
            case Reply():
                self._reply(node, message, event, now, out)
            case Refusal():
                self._refused(node, message, now, out)
            case ProbeReply():
                out += self.nodes.probed(node, message, now)
            case Welcome():
                if event.link == node.data and self.nodes.welcomed(node, message, now):
                    self._lost(node, now, out)
            case Bye():
                out += self.nodes.left(node, message.reason, now)
                self._lost(node, now, out)
            case _:
                self.counters["unexpected-message"] += 1

    def _answered(self, node: Node, message: Reply | Refusal, now: int) -> tuple[Open | None, Attempt | None]:
        """Settle an attempt's credit and learn its load; the request and attempt where they are still wanted."""
        mine = message.incarnation == self._incarnation
        sent = node.out.pop((message.sequence, message.attempt), None) if mine else None
        node.load(message.load)
        if sent is None:
            self.counters["unknown-reply"] += 1
            return None, None
        node.offset.peer_sent(message.sent_ns, now)
        if isinstance(message, Reply):
            node.answered(sent, sum(message.stages.values()), now)
        elif message.reason == "expired":
            node.answered(sent, 0, now)
        open_ = self._open.get(message.sequence)
        attempt = open_.attempt(message.attempt) if open_ is not None else None
        if attempt is None or not attempt.alive or attempt.node is not node:
            self.counters["late-reply"] += 1
            return None, None
        return open_, attempt

    def _reply(self, node: Node, message: Reply, event: Received, now: int, out: list[Action]) -> None:
        open_, attempt = self._answered(node, message, now)
        if open_ is None or attempt is None:
            return
        answer = self._ways.answer(open_, attempt, message, event.frames, now)
        attempt.alive = False
        if answer is None:
            self.counters["wrong-reply"] += 1
            self._attempt_over(open_, attempt, now, out)
        else:
            self._consider(open_, answer, now, out)

    def _refused(self, node: Node, message: Refusal, now: int, out: list[Action]) -> None:
        self.counters[f"refused-{message.reason if message.reason in REFUSALS else 'other'}"] += 1
        if message.reason == "hello":
            out += self.nodes.unknown_to(node, now)
        open_, attempt = self._answered(node, message, now)
        if open_ is None or attempt is None:
            return
        attempt.alive = False
        if message.reason in RETRY:
            self._attempt_over(open_, attempt, now, out)
        else:
            self._reconsider(open_, now, out)

    def _send_failed(self, event: SendFailed, now: int, out: list[Action]) -> None:
        self.counters["send-failed"] += 1
        node = self.nodes.of_link(event.link)
        if node is None or not isinstance(event.message, Infer):
            return
        node.out.pop((event.message.sequence, event.message.attempt), None)
        open_ = self._open.get(event.message.sequence)
        attempt = open_.attempt(event.message.attempt) if open_ is not None else None
        if open_ is not None and attempt is not None and attempt.alive:
            self._attempt_over(open_, attempt, now, out)

    def _lost(self, node: Node | None, now: int, out: list[Action]) -> None:
        """What was sent to this node will not come."""
        if node is not None:
            self._give_up(node, now, out, lost=True)

    def _give_up(self, node: Node, now: int, out: list[Action], *, lost: bool) -> None:
        """Nobody waits for this node any more. What is out at a node that is only stalled, not lost, may still come, and
        where nothing else is under way it is hoped for."""
        for open_ in self._open:
            for attempt in [a for a in open_.attempts if a.alive and a.node is node and a.sent_ns]:
                if lost or attempt.awaited:
                    attempt.alive = not lost
                    self._elsewhere(open_, attempt, now, out)

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def _consider(self, open_: Open, answer: Answer, now: int, out: list[Action]) -> None:
        """An answer is there: deliver it, or hold it where something better may still come."""
        if open_.held is not None and answer.agreement <= open_.held.agreement:
            self._reconsider(open_, now, out)
        elif open_.best_to_come() <= answer.agreement or now >= open_.hold_until:
            self._resolve(open_, answer, out)
        else:
            open_.held = answer
            out.append(Hold(open_.request.client, open_.request.sequence, answer))
            self._open.due.add(open_.hold_until, open_.id)

    def _reconsider(self, open_: Open, now: int, out: list[Action]) -> None:
        """Something that might have answered will not. Deliver what is held where nothing better can come."""
        if open_.id not in self._open:
            return
        to_come = open_.best_to_come()
        if open_.held is not None:
            if to_come <= open_.held.agreement or now >= open_.hold_until:
                self._deliver_held(open_, now, out)
        elif open_.hopeless():
            self._resolve(open_, Missed(open_.stage_at_fault(), open_.trouble), out)

    def _deliver_held(self, open_: Open, now: int, out: list[Action]) -> None:
        held = open_.held
        if held is None:
            raise InvariantBroken(f"request {open_.id} holds no answer to deliver")
        if held.source == "edge":
            stages = local_stages(open_.arrived_ns, *open_.ran, now)
        else:
            waited = now - open_.arrived_ns - sum(held.stages.values())
            stages = held.stages | {"hold": held.stages.get("hold", 0) + waited}
        self._resolve(open_, held.replace(stages=stages), out, held=True)

    def _resolve(self, open_: Open, outcome: Outcome, out: list[Action], *, held: bool = False) -> None:
        out.append(Resolve(open_.request.client, open_.request.sequence, outcome, held))
        self._close(open_, out)

    def _close(self, open_: Open, out: list[Action]) -> None:
        """Forget a request: cancel what still works for it."""
        self._open.remove(open_)
        unwanted = [open_.rung_job] if open_.waiting_rung else []
        for attempt in open_.attempts:
            if attempt.alive and attempt.sent_ns == 0:
                unwanted.append(attempt.job)
            elif attempt.alive and not attempt.exploring:
                out.append(Send(attempt.node.data, Cancel(self._incarnation, open_.id, attempt.number)))
            attempt.alive = False
        out += [abort for job in unwanted if (abort := self._work.cancel(job)) is not None]

    def _supersede(self, request: Request, now: int, out: list[Action]) -> None:
        """A newer frame takes the place of the stream's open one, which keeps the answer that it has, if any."""
        older = self._open.newest_of_stream(request)
        if older is not None:
            self._end(older, Superseded(), now, out)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _timers_due(self, now: int, out: list[Action]) -> None:
        for number in self._open.due.due(now):
            open_ = self._open.get(number)
            if open_ is None:
                continue
            if now >= open_.resolve_by or (open_.held is not None and now >= open_.hold_until):
                self._cloud_silent(open_, now)
                self._end(open_, Missed(open_.stage_at_fault(), open_.trouble), now, out)
        if self._nodes_due is not None and now >= self._nodes_due:
            actions, lost, stalled = self.nodes.tick(now)
            out += actions
            for node in lost:
                self._lost(node, now, out)
            for node in stalled:
                self._give_up(node, now, out, lost=False)

    def _cloud_silent(self, open_: Open, now: int) -> None:
        """The cloud did not answer in time: what that says about the link."""
        for attempt in open_.attempts:
            if attempt.alive and attempt.sent_ns:
                attempt.node.estimate.gave_up(attempt.nbytes, now - attempt.sent_ns - attempt.node_ns)

    def _jumped(self, now: int, out: list[Action]) -> None:
        """The host was suspended: everything is expired, and no clock offset holds any more."""
        for node in self.nodes.by_name.values():
            node.offset.reset()
        for open_ in self._open:
            self._end(open_, Missed("client", "the host was suspended"), now, out)

    def _end(self, open_: Open, without: Outcome, now: int, out: list[Action]) -> None:
        """Deliver what is held, or `without` where nothing is."""
        if open_.held is not None:
            self._deliver_held(open_, now, out)
        else:
            self._resolve(open_, without, out)

    def _wake(self, now: int, out: list[Action]) -> None:
        self._nodes_due = self.nodes.next_wakeup()
        soonest = (self._open.due.soonest(), self._nodes_due, self.scheduler.next_wakeup(now))
        times = [at for at in soonest if at is not None]
        if times:
            at = max(min(times), now)
            if at != self._wake_at:
                self._wake_at = at
                out.append(WakeAt(at))

    def validate(self) -> None:
        """Raises `InvariantBroken` where the machine's own books disagree. For tests and simulations."""
        self.scheduler.validate()
        self._open.validate()
        for number, _ in self._work.owners():
            if number not in self._open:
                raise InvariantBroken(f"a job works for request {number}, which is not open")
