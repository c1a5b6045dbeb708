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
from collections.abc import Callable, Iterable, Mapping

from edge.account import local_stages
from edge.admission import refusal
from edge.attempts import Attempts, Verdict
from edge.balance import Candidate, Considered, Insured
from edge.cloud_way import CloudWay
from edge.due import NEVER_NS
from edge.grants import Grants
from edge.hold import HoldMargin
from edge.insurance import Insurance, local_answer
from edge.local_work import LocalWork, Owner
from edge.nodes import MS, Nodes
from edge.open_request import FAILED, Attempt, Open
from edge.register import Register
from shared.decision import NOTHING
from shared.errors import InvariantBroken
from shared.events import (
    Action,
    AddressesChanged,
    Arrived,
    ClientGone,
    ClockJumped,
    DirectorySeen,
    Draining,
    Event,
    Failed,
    Finished,
    Hold,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    RowResult,
    SendFailed,
    StreamClosed,
    StreamOpened,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.plan import Plan, Rung
from shared.request import Answer, Missed, Outcome, Rejected, Request, Superseded
from shared.running import Launch
from shared.scheduler_setup import scheduler_of
from shared.settings import EdgeSettings


class Broker:
    """Requests, insurance and outcomes of one edge. `handle(event, now)` is the only door."""

    def __init__(self, settings: EdgeSettings, plans: Mapping[str, Plan], incarnation: int, rng: random.Random) -> None:
        """`plans` by contract digest. `incarnation` tells this process from those before it. `rng` comes seeded."""
        self._settings = settings
        self._plans = dict(plans)
        self._incarnation = incarnation
        self._guard_ns = int(settings.insurance.guard_ms * MS)
        self.scheduler = scheduler_of(
            plans, "edge", settings.execution, settings.batching, settings.scheduling, settings.limits.max_streams
        )
        self._work = LocalWork(self.scheduler)
        self._insurance = Insurance(self.scheduler, self._work, self._plans, settings.insurance)
        self._grants = Grants(self.scheduler, self._plans, self._guard_ns)
        self.nodes = Nodes(settings, tuple(plans), incarnation, rng)
        self._open = Register(settings.limits.max_open)
        self.counters: Counter[str] = Counter()
        self._ways = CloudWay(plans, incarnation, self.scheduler, settings, self.counters)
        self._attempts = Attempts(settings, self._open, self.nodes, self._ways, self._work, incarnation, self.counters)
        self._last_id = 0
        self._hold = HoldMargin(int(settings.insurance.hold_ms * MS), int(settings.insurance.hold_max_ms * MS))
        self._wake_at = 0
        self._asked = False
        """Whether the last event was a request."""
        self._nodes_due = NEVER_NS

    def busy(self) -> bool:
        """Whether there is work for the device, running or waiting."""
        return self.scheduler.running > 0 or self.scheduler.queued > 0

    def expects(self) -> str | None:
        """What is waited for: an `answer`, else a `request`; None while an executor's thread works, which needs the
        interpreter as well when it has done."""
        if self.scheduler.running:
            return None
        return "answer" if len(self._open) else "request"

    def idle(self) -> None:
        """The loop is about to sleep: learn from the last answer, where a request was decided since. What would be learnt
        before the next event anyhow is learnt while nobody waits; nothing else comes of it, so that a replay needs no call
        of this."""
        if self._asked:
            self._attempts.learn()

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event and say what is to be done. Raises `InvariantBroken` where a rule of our own is broken."""
        out: list[Action] = []
        asked = type(event) is Arrived
        if self._attempts.heard is not None and (self._asked or not asked):
            self._attempts.learn()
        self._asked = asked
        self.scheduler.pass_time(now)
        match event:
            case Arrived():
                self._arrived(event.request, now, out)
            case Finished():
                self._finished(event, now, out)
            case Received():
                self._settle(self._attempts.received(event, now, out), now, out)
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
                out += self._grants.client_gone(event.client)
            case StreamOpened():
                out += self._grants.opened(event)
            case StreamClosed():
                out += self._grants.closed(event)
            case LinkUp():
                out += self.nodes.connected(event.link, now, event.local)
            case LinkDown():
                path = self.nodes.disconnected(event.link)
                self._settle(self._attempts.lost([path] if path is not None else [], now, out), now, out)
            case SendFailed():
                self._settle(self._attempts.unsent(event, now, out), now, out)
            case AddressesChanged():
                dials, lost = self.nodes.moved_house(event)
                self.counters["redialled"] += len(dials)
                out += dials
                self._settle(self._attempts.lost(lost, now, out), now, out)
            case ClockJumped():
                self._jumped(now, out)
            case DirectorySeen():
                self._settle(self._attempts.directory(event.directory, now, out), now, out)
            case Draining():
                raise InvariantBroken("an edge is not told to leave")
        if now >= self._wake_at:
            self._timers_due(now, out)
        self._schedule(now, out)
        self._wake(now, out)
        return out

    # --- a request comes --------------------------------------------------------------------------------------------

    def _arrived(self, request: Request, now: int, out: list[Action]) -> None:
        plan = self._plans.get(request.plan)
        resolve_by = request.deadline_ns - self._guard_ns
        why = refusal(
            request,
            plan,
            known=self._open.of(request.client, request.sequence) is not None,
            open_now=len(self._open),
            max_open=self._settings.limits.max_open,
            decide_by=resolve_by,
            now=now,
        )
        if request.stream:
            self.scheduler.streams.arrived((request.client, request.stream), request.scheduled_ns, now)
        if plan is None or why is not None:
            out.append(Resolve(request.client, request.sequence, why or Rejected("no-route")))
            return
        if request.stream and request.latest_wins:
            self._supersede(request, now, out)
        self._last_id += 1
        open_ = Open(self._last_id, request, plan, now, resolve_by, resolve_by - self._hold.margin_ns())
        way, insured, exploring = self._choose(open_, now)
        if open_.rung is None and way is None:
            reason = "overload" if plan.ladder else "no-route"
            detail = "neither the device nor a node has the time"
            out.append(Resolve(request.client, request.sequence, Rejected(reason, detail)))
            return
        self._open.add(open_)
        if open_.rung is not None:
            for job in insured.displaces:
                self.scheduler.cancel(job)
            self._insurance.queue(open_, insured, now, cloud=way is not None and not exploring)
            for job in insured.displaces:
                self._revoked(job, now, out)
        if way is not None:
            self._attempts.begin(open_, way, exploring, now, out)
        if open_.hopeless():
            self._resolve(open_, Rejected("overload", open_.trouble), out)
        elif not open_.cloud_hoped():
            self._insurance.hasten(open_)

    def _choose(self, open_: Open, now: int) -> tuple[Candidate | None, Insured, bool]:
        """The rung, the way through the cloud, and whether that is only explored. Work before sending counts against the
        rung: a route whose head would cost the promise is none."""
        rung, insured = self._insurance.choose(open_, 0, now)
        open_.rung = rung
        paths = self.nodes.usable(open_.request.plan, now)
        if not paths:
            return None, insured, False
        beside: dict[int, float] = {}
        others: dict[int, tuple[Rung | None, Insured]] = {}
        for index in range(len(open_.plan.routes)):
            head = self._ways.head(open_, index)
            if head is None:
                beside[index] = insured.agreement
                continue
            before = self.scheduler.latency.pessimistic(head[0], open_.request.rows)
            other = self._insurance.choose(open_, before, now)
            if other[1].promised or not insured.promised:
                others[index] = other
                beside[index] = other[1].agreement
        way, exploring = self._ways.find(open_, paths, beside, insured, now)
        self.counters["explored"] += exploring
        if way is not None and way.index in others:
            open_.rung, insured = others[way.index]
        return way, insured, exploring

    # --- work for the device ------------------------------------------------------------------------------------------

    def _schedule(self, now: int, out: list[Action]) -> None:
        """Launch what can be launched. Whoever loses its job may ask for other work, or hasten what was put off, so that it
        is looked again until nothing is lost any more."""
        while True:
            decision = self.scheduler.schedule(now)
            if decision is NOTHING:
                return
            for job in decision.revoked:
                self._revoked(job.id, now, out)
            for launch in decision.overdue:
                self._overdue(launch, now, out)
            for run in decision.runs:
                for row in run.rows:
                    number, attempt = self._work.owner(row.job)
                    open_ = self._open.get(number)
                    if open_ is not None and not attempt:
                        self._insurance.began(open_, run, now)
                out.append(run)
            for job in decision.expired:
                self._job_lost(job.id, "the device had no time left", now, out)
            if decision.final and not decision.expired:
                return

    def _revoked(self, job: int, now: int, out: list[Action]) -> None:
        """A promise cannot be kept beside more important ones, or on a device that has slowed down. Its job has left the
        queue."""
        open_, attempt = self._owner(job)
        if open_ is None or attempt is not None:
            return
        self.counters["revoked"] += 1
        self._insurance.demote(open_, now)
        self._reconsider(open_, now, out)

    def _overdue(self, launch: Launch, now: int, out: list[Action]) -> None:
        """An executor is stuck: what it holds is run again on another, where there is one."""
        self.counters["overdue"] += 1
        for job in launch.jobs:
            number, attempt = self._work.owner(job.id)
            open_ = self._open.get(number)
            if open_ is not None and not attempt and self._insurance.move(open_, now):
                self._unwanted(job.id, out)

    def _owner(self, job: int) -> tuple[Open | None, Attempt | None]:
        number, attempt = self._work.settle(job)
        open_ = self._open.get(number)
        return open_, open_.attempt(attempt) if attempt and open_ is not None else None

    def _finished(self, event: Finished, now: int, out: list[Action]) -> None:
        launch, _ = self.scheduler.ended(event.run, event.began_ns, event.ended_ns)
        out += self._grants.speed_changed(now)
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
                self._insurance.ended(open_, event.began_ns, event.ended_ns)
                self._consider(open_, local_answer(open_, result.outputs, now), now, out)
            else:
                span = (event.began_ns, event.ended_ns, event.codec_ns)
                self._settle(self._attempts.head_done(open_, attempt, span, result.outputs, now, out), now, out)

    def _failed(self, event: Failed, now: int, out: list[Action]) -> None:
        launch, _ = self.scheduler.failed(event.run, now)
        out += self._grants.speed_changed(now)
        for job in launch.jobs:
            self._job_lost(job.id, event.detail or event.reason, now, out)

    def _job_lost(self, job: int, why: str, now: int, out: list[Action]) -> None:
        open_, attempt = self._owner(job)
        if open_ is None:
            return
        if attempt is not None:
            self._settle(self._attempts.head_lost(open_, attempt, now, out), now, out)
            return
        open_.rung_work = FAILED
        open_.trouble = why
        self._reconsider(open_, now, out)

    # --- attempts through the cloud -----------------------------------------------------------------------------------

    def _settle(self, verdicts: Iterable[Verdict], now: int, out: list[Action]) -> None:
        """Attempts have come to something, or to nothing."""
        for open_, answer in verdicts:
            if answer is None:
                self._reconsider(open_, now, out)
            elif open_.id in self._open:
                self._consider(open_, answer, now, out)

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
        if open_.held is not None:
            if open_.best_to_come() <= open_.held.agreement or now >= open_.hold_until:
                self._deliver_held(open_, now, out)
        elif open_.hopeless():
            if open_.revoked and not open_.attempts:
                self._resolve(open_, Rejected("revoked", open_.trouble), out)
            else:
                self._resolve(open_, Missed(open_.stage_at_fault(), open_.trouble), out)
        elif not open_.cloud_hoped():
            self._insurance.hasten(open_)

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
        jobs = self._attempts.end(open_, out)
        if open_.waiting_rung:
            self._unwanted(open_.rung_job, out)
        for job in jobs:
            self._unwanted(job, out)

    def _unwanted(self, job: int, out: list[Action]) -> None:
        abort = self._work.cancel(job)
        if abort is not None:
            out.append(abort)

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
                self._end(open_, Missed(open_.stage_at_fault(), open_.trouble), now, out)
        if now >= self._nodes_due:
            actions, lost, stalled = self.nodes.tick(now)
            out += actions
            self._settle(self._attempts.lost(lost, now, out), now, out)
            for path in stalled:
                self._settle(self._attempts.stalled(path, now, out), now, out)
        self._attempts.copies_due(now, out)

    def _jumped(self, now: int, out: list[Action]) -> None:
        """The host was suspended: everything is expired, and no clock offset holds any more."""
        out += self.nodes.jumped(now)
        self.scheduler.streams.forget_times()
        for open_ in self._open:
            self._end(open_, Missed("client", "the host was suspended"), now, out)

    def _end(self, open_: Open, without: Outcome, now: int, out: list[Action]) -> None:
        """Deliver what is held, or `without` where nothing is."""
        if open_.held is not None:
            self._deliver_held(open_, now, out)
        else:
            self._resolve(open_, without, out)

    def _wake(self, now: int, out: list[Action]) -> None:
        self._nodes_due = nodes = self.nodes.next_wakeup()
        at = min(nodes, self._open.due.soonest(), self._attempts.next_copy())
        work = self.scheduler.next_wakeup(now)
        if work is not None and work < at:
            at = work
        if at < NEVER_NS:
            at = at if at > now else now
            if at != self._wake_at:
                self._wake_at = at
                out.append(WakeAt(at))

    def watch(self, see: Callable[[Considered], None]) -> None:
        """Have `see` called with each choice among ways through the cloud. For replays: a broker that is watched has no
        snapshot."""
        self._ways.watch = see

    def owner(self, job: int) -> Owner:
        """The number of the request that a job works for, and of its attempt; zeros where nobody wants it any more. For those
        who look on."""
        return self._work.owner(job)

    def number(self, client: str, sequence: int) -> int:
        """The number by which nodes know a client's open request; 0 where it is not open. For those who look on."""
        open_ = self._open.of(client, sequence)
        return 0 if open_ is None else open_.id

    def validate(self) -> None:
        """Raises `InvariantBroken` where the machine's own books disagree. For tests and simulations."""
        self.scheduler.validate()
        self._open.validate()
        for number, _ in self._work.owners():
            if number not in self._open:
                raise InvariantBroken(f"a job works for request {number}, which is not open")
