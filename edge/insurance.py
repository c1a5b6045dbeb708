"""The local work that answers a request whatever the network does: which rung of the ladder, and its answer."""

from __future__ import annotations

from collections.abc import Sequence

from edge.account import local_stages
from edge.balance import NOT_INSURED, Insured
from edge.open_request import Open
from shared.errors import InvariantBroken
from shared.latency import WorkKey
from shared.plan import Rung, SegmentRange
from shared.request import Answer, Array, Buffer
from shared.reserve import Promise
from shared.scheduler import Scheduler


def rung_key(open_: Open, rung: Rung) -> WorkKey:
    """What running `rung` for this request is timed by."""
    segments = len(open_.plan.programs[rung.program].segments)
    return WorkKey(open_.request.plan, SegmentRange(rung.program, 0, segments))


def insure(scheduler: Scheduler, open_: Open, before_ns: int, now: int) -> tuple[Rung | None, Insured]:
    """The best rung that can be promised by `resolve_by`, after `before_ns` of the request's own other work.

    A rung that has a cheaper one below it is promised only if it would be in time even as slow as it was at its worst of
    late: there is no need to risk the answer for a better one. Where none can be promised, the one that is soonest done is
    taken unpromised if it is likely to be in time: a request that breaks nobody else's promise is tried, not refused.
    """
    request = open_.request
    wait = scheduler.predicted_wait(now)
    likely: tuple[Rung, int] | None = None
    cheapest = open_.plan.ladder[-1] if open_.plan.ladder else None
    for rung in open_.plan.ladder:
        key = rung_key(open_, rung)
        typical = scheduler.latency.typical(key, request.rows)
        slow = scheduler.latency.pessimistic if rung is cheapest else scheduler.latency.worst
        work = Promise(0, before_ns + slow(key, request.rows), open_.resolve_by, 0, request.priority)
        if scheduler.can_promise(now, work):
            return rung, Insured(rung.agreement, now + wait + before_ns + typical, True)
        finish = now + wait + before_ns + typical
        if finish <= open_.resolve_by and (likely is None or finish < likely[1]):
            likely = (rung, finish)
    if likely is None:
        return None, NOT_INSURED
    return likely[0], Insured(likely[0].agreement, likely[1], False)


def local_answer(open_: Open, outputs: Sequence[Array | Buffer], now: int) -> Answer:
    """The answer of the rung that ran for this request."""
    rung = open_.rung
    if rung is None:
        raise InvariantBroken(f"request {open_.id} has an answer of a rung that it never had")
    arrays = [o for o in outputs if not isinstance(o, bytes | bytearray | memoryview)]
    return Answer(
        outputs={spec.name: array for spec, array in zip(open_.plan.outputs, arrays, strict=True)},
        source="edge",
        node=None,
        rung=rung.name,
        cut=None,
        fidelity=open_.plan.rung_fidelity(rung),
        contract=open_.request.plan,
        stages=local_stages(open_.arrived_ns, *open_.ran, now),
    )
