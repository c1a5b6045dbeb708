"""What no policy can do better: the best sequence of choices of somebody who knows the link's whole future.

Each request may be answered by a rung of the device, by a route of the plan through the cloud, or not at all. What an
answer needs is counted as kindly as the network's model (`hil.regret.tcp`) allows at all:

* A way through the cloud costs its head on the device, its bytes on the way up, the tail, its bytes on the way down. The
  window is always open, nothing is lost, no other traffic is in the way down, the node is never busy; where the delay falls,
  the packet that would have come sooner by leaving later counts.
* The way up has the trace's capacity. Of the requests that take it, one after the other in the order in which they came,
  each begins when it is ready and the link is free.
* The device's executor does one thing after the other: heads and rungs, in the order in which requests came. A way through
  the cloud needs no rung, since what comes of it is known.

No policy's figures exceed these. A policy's bytes of a request do not begin to leave before its head is done and do not
reach the node's answer sooner than an idle link, an open window and an idle node would have them; so each answer that a
policy had in time is one of this page's by itself. And what the policy had sent for all of them together has passed the link
within its capacity, each between its release and the latest time at which it could leave; for intervals that are nested in
no other, that is possible in some order only where it is possible in the order of the requests (the earliest due first is
optimal for one machine with preemption: Horn, "Some simple scheduling algorithms", 1974). Where a request's interval would
lie within another's, it is widened here until it does not: released no later than the next request comes, due no sooner
than any before it. The same holds for the executor. `tests/test_regret_oracle.py` holds the search against all sequences
one by one, and policies against the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from hil.regret.tcp import HEADER_BYTES, SEGMENT_BYTES
from hil.regret.timeline import Timeline
from shared.latency import Latency, WorkKey
from shared.plan import Plan, SegmentRange

NAME_OF_NONE = "none"


class Choice(msgspec.Struct, frozen=True):
    """One way to answer one request, in nanoseconds of the trace and bytes with all headers.

    `device_ns` is the executor's time, counted as a part of the best batch, `alone_ns` what one request takes at least.
    `released` is when its bytes may begin to leave at the earliest, and `latest` when the last of them must have left.
    """

    name: str
    agreement: float
    exact: bool
    device_ns: int
    alone_ns: int
    nbytes: int = 0
    released: int = 0
    latest: int = 0


class Asked(msgspec.Struct, frozen=True):
    """One request: when it comes, when its answer is due at the edge, and the choices that could be in time by themselves."""

    at: int
    due: int
    choices: tuple[Choice, ...]


class Best(msgspec.Struct, frozen=True):
    """The most that any sequence of choices is worth, and one that is: for each request a choice, or None."""

    worth: float
    chosen: tuple[Choice | None, ...]


class _Reached(msgspec.Struct, frozen=True, gc=False):
    worth: float
    link_free: int
    device_free: int
    before: _Reached | None
    choice: Choice | None


def best(asked: Sequence[Asked], up: Timeline, worth: Callable[[Choice], float]) -> Best:
    """The best sequence by the sum of `worth`, which is not negative. Exact: of the states that the choices so far lead to,
    those are kept to which no other is equal or better in worth, in when the link is free, and in when the device is.

    `asked` is in the order of arrival, with dues in the same order. Choices that are worth nothing are left out.
    """
    states = [_Reached(0.0, 0, 0, None, None)]
    latest_before = 0
    for index, request in enumerate(asked):
        following = asked[index + 1].at if index + 1 < len(asked) else 1 << 62
        valued = [(worth(choice), choice) for choice in request.choices]
        reached: list[_Reached] = []
        for state in states:
            link, device = max(state.link_free, request.at), max(state.device_free, request.at)
            reached.append(_Reached(state.worth, link, device, state, None))
            for value, choice in valued:
                if value <= 0.0:
                    continue
                done = device + choice.device_ns
                if choice.device_ns and max(done, request.at + choice.alone_ns) > request.due:
                    continue
                left = link
                if choice.nbytes:
                    left = up.leave(max(link, min(choice.released, following)), choice.nbytes)
                    if left > max(choice.latest, latest_before):
                        continue
                device_then = done if choice.device_ns else device
                reached.append(_Reached(state.worth + value, left, device_then, state, choice))
        latest_before = max([latest_before, *(choice.latest for choice in request.choices)])
        states = _front(reached, following)
    found = at = max(states, key=lambda state: state.worth)
    chosen: list[Choice | None] = []
    while at.before is not None:
        chosen.append(at.choice)
        at = at.before
    return Best(found.worth, tuple(reversed(chosen)))


def _front(reached: list[_Reached], following: int) -> list[_Reached]:
    """Those that no other dominates, once the next request has come."""
    ranked = sorted(reached, key=lambda s: (-s.worth, max(s.link_free, following), max(s.device_free, following)))
    kept: list[_Reached] = []
    for state in ranked:
        link, device = max(state.link_free, following), max(state.device_free, following)
        if not any(max(k.link_free, following) <= link and max(k.device_free, following) <= device for k in kept):
            kept.append(state)
    return kept


class Ways:
    """What each request of a plan could choose over one link."""

    def __init__(self, plan: Plan, contract: str, up: Timeline, down: Timeline) -> None:
        self._plan = plan
        self._up = up
        self._down = down
        self._edge = Latency.of([(contract, plan)], "edge")
        self._cloud = Latency.of([(contract, plan)], "cloud")
        last = len(plan.cuts) - 1
        self._routes = [
            (
                route,
                WorkKey(contract, SegmentRange(0, 0, route.cut), encode=coded) if route.cut or coded else None,
                WorkKey(contract, SegmentRange(0, route.cut, last), decode=coded),
                plan.cuts[route.cut].coding(route.coding),
            )
            for route in plan.routes
            for coded in [_coded(plan, route.cut, route.coding)]
        ]
        self._rungs = [
            (rung, WorkKey(contract, SegmentRange(rung.program, 0, len(plan.programs[rung.program].segments))))
            for rung in plan.ladder
        ]

    def asked(self, at: int, due: int, edge_factor: float, cloud_factor: float) -> Asked:
        """A request that comes at `at` and whose answer is due at the edge at `due`, with how much longer than typical its
        work takes on each side."""
        choices: list[Choice] = []
        for rung, key in self._rungs:
            alone = int(self._edge.typical(key) * edge_factor)
            if at + alone <= due:
                work = int(self._least(key) * edge_factor)
                choices.append(Choice(rung.name, rung.agreement, rung.program == 0, work, alone))
        for route, head, tail, coding in self._routes:
            if coding is None:
                continue
            alone = int(self._edge.typical(head) * edge_factor) if head is not None else 0
            work = int(self._least(head) * edge_factor) if head is not None else 0
            tail_ns = int(self._cloud.typical(tail) * cloud_factor)
            nbytes, back = packets(route.bytes_up), packets(route.bytes_down)
            first = self._up.leave(at + alone, nbytes)
            latest = self._latest(first, due, tail_ns, back)
            if latest is not None:
                fidelity = self._plan.cloud_fidelity(coding, route.agreement)
                exact = fidelity.kind == "exact"
                name = f"{route.cut}/{route.coding}"
                choices.append(Choice(name, fidelity.agreement, exact, work, alone, nbytes, at + alone, latest))
        return Asked(at, due, tuple(choices))

    def _least(self, key: WorkKey) -> float:
        """Time of one row in the batch that is best for it."""
        return min(self._edge.typical(key, rows) / rows for rows in range(1, self._plan.max_batch + 1))

    def _back(self, left: int, tail_ns: int, nbytes: int) -> int:
        """When the answer is back of what has left the device by `left`."""
        return self._down.earliest(self._down.leave(self._up.earliest(left) + tail_ns, nbytes))

    def _latest(self, first: int, due: int, tail_ns: int, nbytes: int) -> int | None:
        """The latest time to leave at which the answer is back by `due`; None where `first` is too late already."""
        if self._back(first, tail_ns, nbytes) > due:
            return None
        low, high = first, due
        while high - low > 1_000:
            middle = (low + high) // 2
            if self._back(middle, tail_ns, nbytes) <= due:
                low = middle
            else:
                high = middle
        return high


def packets(nbytes: int) -> int:
    """Bytes of a message on the link: with the headers of its packets."""
    return nbytes + HEADER_BYTES * -(-nbytes // SEGMENT_BYTES)


def _coded(plan: Plan, cut: int, name: str) -> str:
    coding = plan.cuts[cut].coding(name)
    return coding.name if coding is not None and coding.coded else ""
