"""The local work that answers a request whatever the network does: which rung, whether it is promised, and its answer.

A rung is *promised* where the forward schedule keeps it beside all that is promised already and the frames that are
expected of streams as important. Where none can be, promises of lesser classes are displaced for the cheapest (for a frame of
a stream, for the one that the stream was granted); where that does not help either, the rung that is soonest done is taken
unpromised if it is likely to be in time: a request that breaks nobody else's promise is tried, not refused. A rung that has a
cheaper one below it is promised only if it would be in time even as slow as it was at its worst of late: there is no need to
risk the answer for a better one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from edge.account import local_stages
from edge.balance import NOT_INSURED, Insured
from edge.late import LateStart
from edge.local_work import LocalWork
from edge.open_request import DONE, FAILED, QUEUED, RUNNING, Open
from shared.errors import InvariantBroken
from shared.events import Run
from shared.latency import WorkKey
from shared.plan import Plan, Rung, SegmentRange
from shared.request import Answer, Array, Buffer
from shared.reserve import Promise
from shared.scheduler import Scheduler
from shared.settings import Insurance as Settings

MS = 1_000_000
Arrays = Sequence[Array]
NEWEST = 1 << 62
"""The number of a job that is only asked about: above all others, as that of the next job will be."""


def rung_key(contract: str, plan: Plan, rung: Rung) -> WorkKey:
    """What running `rung` is timed by."""
    return WorkKey(contract, SegmentRange(rung.program, 0, len(plan.programs[rung.program].segments)))


class Insurance:
    """Rungs of all open requests of one edge. It keeps no books of its own but those of when rungs are warm."""

    def __init__(self, scheduler: Scheduler, work: LocalWork, plans: Mapping[str, Plan], settings: Settings) -> None:
        """`plans` by contract."""
        self._keys = {
            (contract, rung.program): rung_key(contract, plan, rung)
            for contract, plan in plans.items()
            for rung in plan.ladder
        }
        self._scheduler = scheduler
        self._work = work
        self._late = LateStart(int(settings.warm_ms * MS)) if settings.mode == "late" else None

    def choose(self, open_: Open, before_ns: int, now: int) -> tuple[Rung | None, Insured]:
        """The best rung that can be promised by `resolve_by`, after `before_ns` of the request's own other work; else one
        that may be tried; else none."""
        ladder, scheduler = open_.plan.ladder, self._scheduler
        for rung in ladder:
            if scheduler.can_promise(now, self._promise(open_, rung, before_ns)):
                return rung, Insured(rung.agreement, self._typical(open_, rung, before_ns, now), True)
        for rung in self._floor(open_) if scheduler.promises else ():
            lesser = scheduler.displaced(now, self._promise(open_, rung, before_ns))
            if lesser is not None:
                finish = self._typical(open_, rung, before_ns, now)
                return rung, Insured(rung.agreement, finish, True, tuple(lesser))
        return self._likely(open_, ladder, before_ns, now)

    def queue(self, open_: Open, insured: Insured, now: int, *, cloud: bool) -> bool:
        """Queue the rung that was chosen, put off where the settings ask for it and `cloud` is hoped for. False where the
        queue is full."""
        rung = open_.rung
        if rung is None:
            raise InvariantBroken(f"request {open_.id} has no rung to queue")
        key = self._keys[open_.request.plan, rung.program]
        by = open_.resolve_by
        begins = 0
        if cloud and insured.promised and self._late is not None:
            longest = self._scheduler.latency.worst(key, open_.request.rows)
            begins = self._late.begins(key, longest, by, now)
            open_.planned_ns = begins + longest if begins else 0
        open_.rung_job = self._work.queue(
            (open_.id, 0), open_.request, key, None, by, now, promised=insured.promised, earliest_ns=begins
        )
        open_.rung_work = QUEUED if open_.rung_job else FAILED
        if not open_.rung_job:
            open_.trouble = "the device's queue is full"
        return open_.rung_job != 0

    def hasten(self, open_: Open) -> None:
        """Nothing is hoped for from the cloud any more: what was put off may begin."""
        if open_.planned_ns and open_.rung_work is QUEUED:
            open_.planned_ns = 0
            self._scheduler.hasten(open_.rung_job)

    def began(self, open_: Open, run: Run, now: int) -> None:
        """The rung of a request was launched."""
        open_.rung_work = RUNNING
        if self._late is not None:
            self._late.began(WorkKey(run.contract, run.range), now)

    def ended(self, open_: Open, began_ns: int, ended_ns: int) -> None:
        """The rung of a request is done."""
        open_.rung_work = DONE
        open_.ran = (began_ns, ended_ns)
        if self._late is not None and open_.planned_ns:
            self._late.ended(open_.planned_ns, ended_ns)

    def demote(self, open_: Open, now: int) -> bool:
        """The promise of a request that waits was revoked: a cheaper rung is promised, or one is tried unpromised. False
        where nothing is likely to be in time."""
        ladder = open_.plan.ladder
        former = open_.rung
        below = ladder[ladder.index(former) + 1 :] if former is not None else ()
        open_.revoked = True
        for rung in below:
            if self._scheduler.can_promise(now, self._promise(open_, rung, 0)):
                open_.rung = rung
                insured = Insured(rung.agreement, self._typical(open_, rung, 0, now), True)
                return self.queue(open_, insured, now, cloud=False)
        tried, insured = self._likely(open_, below if former is None else (former, *below), 0, now)
        if tried is None:
            open_.rung_work = FAILED
            open_.trouble = "its promise was revoked: the device has no time left for it"
            return False
        open_.rung = tried
        return self.queue(open_, insured, now, cloud=False)

    def move(self, open_: Open, now: int) -> bool:
        """The executor on which the rung of this request runs is overdue: run it again on another. False where there is
        none, or no room in the queue, and the overdue one is waited for."""
        if self._scheduler.executors < 2 or open_.rung is None:
            return False
        insured = Insured(
            open_.rung.agreement, now, self._scheduler.can_promise(now, self._promise(open_, open_.rung, 0))
        )
        former = (open_.rung_job, open_.rung_work, open_.trouble)
        if self.queue(open_, insured, now, cloud=False):
            return True
        open_.rung_job, open_.rung_work, open_.trouble = former
        return False

    def _floor(self, open_: Open) -> Sequence[Rung]:
        """The rungs for which lesser promises are displaced: what a stream was granted, then the cheapest."""
        ladder = open_.plan.ladder
        granted = self._scheduler.streams.granted((open_.request.client, open_.request.stream))
        rungs = [r for r in ladder[:-1] if granted == self._keys[open_.request.plan, r.program]]
        return (*rungs, *ladder[-1:])

    def _likely(self, open_: Open, rungs: Sequence[Rung], before_ns: int, now: int) -> tuple[Rung | None, Insured]:
        likely: tuple[Rung, int] | None = None
        for rung in rungs:
            finish = self._typical(open_, rung, before_ns, now)
            if finish <= open_.resolve_by and (likely is None or finish < likely[1]):
                likely = (rung, finish)
        if likely is None:
            return None, NOT_INSURED
        return likely[0], Insured(likely[0].agreement, likely[1], False)

    def _promise(self, open_: Open, rung: Rung, before_ns: int) -> Promise:
        latency = self._scheduler.latency
        slow = latency.pessimistic if rung is open_.plan.ladder[-1] else latency.worst
        key = self._keys[open_.request.plan, rung.program]
        duration = before_ns + slow(key, open_.request.rows)
        return Promise(NEWEST, duration, open_.resolve_by, 0, open_.request.priority)

    def _typical(self, open_: Open, rung: Rung, before_ns: int, now: int) -> int:
        key = self._keys[open_.request.plan, rung.program]
        wait = self._scheduler.predicted_wait(now, open_.request.priority)
        return now + wait + before_ns + self._scheduler.latency.typical(key, open_.request.rows)


def local_answer(open_: Open, outputs: Sequence[Array | Buffer], now: int) -> Answer:
    """The answer of the rung that ran for this request."""
    rung = open_.rung
    if rung is None:
        raise InvariantBroken(f"request {open_.id} has an answer of a rung that it never had")
    return Answer(
        outputs={spec.name: array for spec, array in zip(open_.plan.outputs, cast(Arrays, outputs), strict=True)},
        source="edge",
        node=None,
        rung=rung.name,
        cut=None,
        fidelity=open_.plan.rung_fidelity(rung),
        contract=open_.request.plan,
        stages=local_stages(open_.arrived_ns, *open_.ran, now),
    )
