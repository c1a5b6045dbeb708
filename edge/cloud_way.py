"""Ways through the cloud for one request: predicting and choosing one, asking, and checking what comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from edge.account import cloud_stages, uplink_share
from edge.balance import NOT_INSURED, Candidate, Considered, Insured, Usual, choose, explore, no_less_likely, soonest
from edge.link_budget import Budget
from edge.nodes import MS
from edge.open_request import Attempt, Open
from edge.paths import UP, Path, Sent
from edge.yielding import may_yield, yields
from shared.errors import InvariantBroken, SettingsError
from shared.events import Send
from shared.latency import Latency, WorkKey
from shared.placement import LeastPredictedFinish
from shared.plan import Coding, Plan, Route, SegmentRange
from shared.request import Answer, Array, Buffer, Fidelity
from shared.scheduler import Scheduler
from shared.settings import EdgeSettings
from shared.wire.messages import Infer, Reply, Tensor, tensor_table

BEST, DEVICE = "best", "device"
"""What the setting `route` may be beside the name of a route."""


class Output(msgspec.Struct, frozen=True):
    """How one of an answer's frames is read."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    nbytes: int


class RouteFacts(msgspec.Struct, frozen=True):
    """What does not change of a route: computed once. `head` is None where the input is sent as it is.
    `sent` and `answered` are the tensors of request and reply by rows, `outputs` how the latter are read."""

    route: Route
    coding: Coding
    head: WorkKey | None
    tail_ns: int
    fidelity: Fidelity
    sent: tuple[tuple[Tensor, ...], ...]
    answered: tuple[tuple[Tensor, ...], ...]
    outputs: tuple[tuple[Output, ...], ...]


class CloudWay:
    """All routes of all plans of this edge. Of requests it remembers only which way was taken last for each contract."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        incarnation: int,
        scheduler: Scheduler,
        settings: EdgeSettings,
        counters: Counter[str],
    ) -> None:
        """Raises `SettingsError` where the setting `route` names no route of one of the plans."""
        for plan in plans.values():
            known = (BEST, DEVICE, *(name(route) for route in plan.routes))
            if settings.route not in known:
                raise SettingsError(
                    f"route: {settings.route!r} is no route of the plan {plan.name}; expected one of {', '.join(known)}"
                )
        link, limits = settings.link, settings.limits
        self._fixed = settings.route
        self._incarnation = incarnation
        self._budget = Budget(link.budget_mb_per_hour * 1e6, limits.max_clients + limits.max_streams)
        self._scheduler = scheduler
        self._explore_ns = int(link.explore_interval_ms * MS)
        self._least = link.least_chance
        self._pressure = settings.pressure
        self._counters = counters
        self._policy = LeastPredictedFinish()
        self._usual: dict[str, Usual] = {}
        self.watch: Callable[[Considered], None] | None = None
        """Sees each choice; for a replay only, since no snapshot can hold it."""
        cloud = Latency.of(plans.items(), "cloud")
        self._facts = {
            contract: tuple(_facts(contract, plan, r, cloud) for r in plan.routes) for contract, plan in plans.items()
        }
        self._tails = {
            (contract, facts.route.cut, facts.route.coding): facts.tail_ns
            for contract, ways in self._facts.items()
            for facts in ways
        }
        """How long a node's run of one row typically takes by the plan."""

    def find(
        self, open_: Open, paths: Sequence[Path], routes: Mapping[int, float], insured: Insured, now: int
    ) -> tuple[Candidate | None, bool]:
        """The way to take over these paths among these routes (by index, with the agreement of what the device does beside
        each), and whether it is only an exploration.

        Where a route is fixed it is taken, at the node that is predicted to be soonest back. Else None where the device alone
        is as good, or nothing has a chance to be on time. Where the device has no answer at all, the soonest is tried
        whatever its prediction: the alternative is certain failure, and only a try can find out that a link has recovered.
        """
        due = open_.hold_until if insured.promised else open_.resolve_by
        candidates = self.predict(open_, paths, routes, due, now)
        if self._budget:
            left = self._budget.left((open_.request.client, open_.request.stream), now)
            candidates = [c for c in candidates if c.nbytes <= left]
        usual = self._usual.get(open_.request.plan)
        exploring = False
        considered, pressed = candidates, self._yields_to(open_, paths, insured)
        if self._fixed == BEST:
            if pressed:
                candidates = [c for c in candidates if c.node.name not in pressed]
            found = choose(candidates, insured, now, self._policy, self._least, usual)
        else:
            considered = candidates = [c for c in candidates if name(c.route) == self._fixed]
            found = soonest(candidates)
        if found is not None:
            if usual is None or usual.index != found.index or usual.link != found.path.data:
                self._usual[open_.request.plan] = Usual(found.index, found.path.data)
        elif candidates and insured is NOT_INSURED:
            found = soonest(candidates)
        elif candidates:
            found = explore([c for c in candidates if now + c.head_ns < due], insured, now, self._explore_ns)
            exploring = found is not None
        if found is not None:
            self.spend(open_, found.nbytes, now)
        elif pressed:
            self._counters["stepped-back"] += 1
        if self.watch is not None and considered:
            ways = tuple(considered)
            self.watch(Considered(open_.id, now, due, insured, ways, usual, found, exploring, self._least, pressed))
        return found, exploring

    def _yields_to(self, open_: Open, paths: Sequence[Path], insured: Insured) -> frozenset[str]:
        """The nodes of these paths from which a request steps back since they are pressed. A route that is fixed is taken
        whatever a node says."""
        if not any(path.node.pressure for path in paths) or self._fixed != BEST:
            return frozenset()
        priority = open_.request.priority
        if not may_yield(self._pressure, priority, insured):
            return frozenset()
        number = open_.id + self._incarnation
        return frozenset(path.node.name for path in paths if yields(path.node.pressure, priority, number))

    def predict(
        self, open_: Open, paths: Sequence[Path], routes: Mapping[int, float], due_ns: int, now: int
    ) -> list[Candidate]:
        """Each of these routes (as for `find`) over each of these paths, with its chance to be back by `due_ns`."""
        facts = self._facts[open_.request.plan]
        found: list[Candidate] = []
        for path in paths:
            most = path.still(due_ns, now)
            ways = [self._predict(open_, i, facts[i], path, beside, most, due_ns, now) for i, beside in routes.items()]
            found += no_less_likely(ways) if len(ways) > 1 else ways
        return found

    def head(self, open_: Open, index: int) -> tuple[WorkKey, Coding | None] | None:
        """The device's work before route `index` can be sent, and how its result is encoded; None where there is none, or
        it has been done for this request."""
        facts = self._facts[open_.request.plan][index]
        if facts.head is None or index in open_.encoded:
            return None
        return facts.head, facts.coding

    def affords(self, open_: Open, nbytes: int, now: int) -> bool:
        """Whether the budget of a request's stream has so many bytes left."""
        return not self._budget or nbytes <= self._budget.left((open_.request.client, open_.request.stream), now)

    def spend(self, open_: Open, nbytes: int, now: int) -> None:
        """So many bytes go out for a request, or come back."""
        self._budget.spend((open_.request.client, open_.request.stream), nbytes, now)

    def ask(self, open_: Open, attempt: Attempt, path: Path, now: int) -> Send:
        """The message of an attempt whose tensors are ready, on `path`: a copy of it is out there from now on."""
        request = open_.request
        route = attempt.route
        frames = open_.encoded.get(attempt.route_index, request.inputs)
        sent = self._sent(open_, attempt, path, now)
        if not attempt.paths:
            attempt.sent_ns = now
        attempt.paths.append(path)
        key = (open_.id, attempt.number)
        path.out[key] = sent
        path.node.out.setdefault(key, sent)
        back_ns = self._least_back(open_, attempt, path, now) if path.node.wait_ns else 0
        message = Infer(
            incarnation=self._incarnation,
            sequence=open_.id,
            attempt=attempt.number,
            contract=request.plan,
            cut=route.cut,
            coding=route.coding,
            rows=request.rows,
            priority=request.priority,
            budget_ns=open_.resolve_by - now - back_ns,
            sent_ns=now,
            tensors=self._facts[request.plan][attempt.route_index].sent[request.rows],
        )
        return Send(path.data, message, frames)

    @staticmethod
    def _least_back(open_: Open, attempt: Attempt, path: Path, now: int) -> int:
        """What of the time that is left the node is not told, since others wait there, and it should do nothing that comes
        back too late; where nobody does, it may as well try to be quicker than it usually is. Of copies the first decides,
        and the answer goes out on every path that is up. What bytes take was seen a while ago, and what is too late by that
        is sent only to find out whether it still holds."""
        node = path.node
        hopeful = attempt.way.typical_ns <= open_.resolve_by
        nbytes = attempt.route.bytes_down * open_.request.rows if hopeful else 0
        _, high_ns = node.offset.bounds(now)
        return min(each.estimate.least_ns(nbytes, high_ns) for each in node.paths if each is path or each.state is UP)

    def _sent(self, open_: Open, attempt: Attempt, path: Path, now: int) -> Sent:
        """What is expected of a copy that goes out now: of the first what was predicted of its attempt, of a further one
        what this path is like now."""
        way, estimate = attempt.way, path.estimate
        up = attempt.route.bytes_up * open_.request.rows
        network_ns, typical_ns, sure_ns = way.network_ns, way.typical_ns, way.sure_ns
        if attempt.paths:
            network_ns = estimate.network_ns(way.nbytes) + estimate.extra_ns(up, now)
            typical_ns = now + network_ns + way.node_ns
            sure_ns = typical_ns + estimate.margin_ns(way.nbytes, network_ns, now)
        startup_ns, upto_bytes = estimate.sent(up, now)
        path.warm.used(up, now)
        return Sent(
            sent_ns=now,
            typical_ns=typical_ns,
            due_ns=open_.resolve_by,
            nbytes=way.nbytes,
            exploring=attempt.exploring,
            network_ns=network_ns,
            startup_ns=startup_ns,
            upto_bytes=upto_bytes,
            sure_ns=sure_ns,
            node_ns=way.node_ns,
        )

    def answer(
        self, open_: Open, attempt: Attempt, message: Reply, frames: Sequence[Buffer], now: int
    ) -> Answer | None:
        """The answer that a reply carries, or None where it does not answer exactly what was asked."""
        request, route, node = open_.request, attempt.route, attempt.node
        asked = (request.plan, route.cut, route.coding, request.rows)
        facts = self._facts[request.plan][attempt.route_index]
        expected = facts.outputs[request.rows]
        if (
            asked != (message.contract, message.cut, message.coding, message.rows)
            or message.tensors != facts.answered[request.rows]
            or len(frames) != len(expected)
        ):
            return None
        outputs: dict[str, Array] = {}
        for output, frame in zip(expected, frames, strict=True):
            if memoryview(frame).nbytes != output.nbytes:
                return None
            outputs[output.name] = np.frombuffer(frame, output.dtype).reshape(output.shape)
        node_ns = sum(message.stages.values())
        share = uplink_share(attempt.sent_ns, message.sent_ns - node_ns, now, node_ns, node.offset.bounds(now))
        return Answer(
            outputs=outputs,
            source="cloud",
            node=node.name,
            rung=open_.plan.programs[0].name,
            cut=route.cut,
            fidelity=facts.fidelity,
            contract=request.plan,
            stages=cloud_stages(open_.arrived_ns, attempt.sent_ns, now, attempt.head, message.stages, share, now),
        )

    def slowness(self, reply: Reply) -> float:
        """How many times as long as the plan says a node's run took; 1 where this edge knows no such way."""
        tail_ns = self._tails.get((reply.contract, reply.cut, reply.coding))
        return reply.stages.get("tail", 0) / (tail_ns * reply.rows) if tail_ns else 1.0

    def _predict(
        self, open_: Open, index: int, facts: RouteFacts, path: Path, beside: float, most: float, due_ns: int, now: int
    ) -> Candidate:
        rows = open_.request.rows
        head_ns = 0
        if facts.head is not None and index not in open_.encoded:
            wait_ns = self._scheduler.predicted_wait(now, open_.request.priority)
            head_ns = wait_ns + self._scheduler.latency.typical(facts.head, rows)
        route, estimate = facts.route, path.estimate
        up = route.bytes_up * rows
        nbytes = up + route.bytes_down * rows
        network_ns = estimate.network_ns(nbytes) + estimate.extra_ns(up, now + head_ns)
        node_ns = path.node.wait_ns + facts.tail_ns * rows
        typical_ns = now + head_ns + network_ns + node_ns
        chance, margin_ns = estimate.judge(nbytes, network_ns, due_ns - typical_ns, now)
        chance = chance if chance < most else most
        sure_ns = typical_ns + margin_ns
        return Candidate(route, index, path, chance, typical_ns, sure_ns, head_ns, network_ns, node_ns, nbytes, beside)


def name(route: Route) -> str:
    """What a route is called in settings and tables: CUT/CODING."""
    return f"{route.cut}/{route.coding}"


def _facts(contract: str, plan: Plan, route: Route, cloud: Latency) -> RouteFacts:
    coding = plan.cuts[route.cut].coding(route.coding)
    if coding is None:
        raise InvariantBroken(f"plan {plan.name}: a route names coding {route.coding}, which cut {route.cut} lacks")
    coded = coding.name if coding.coded else ""
    head = WorkKey(contract, SegmentRange(0, 0, route.cut), encode=coded) if route.cut or coded else None
    tail = WorkKey(contract, SegmentRange(0, route.cut, len(plan.cuts) - 1), decode=coded)
    return RouteFacts(
        route,
        coding,
        head,
        cloud.typical(tail),
        plan.cloud_fidelity(coding, route.agreement),
        tensor_table(plan.cuts[route.cut].tensors, plan.max_batch),
        tensor_table(plan.outputs, plan.max_batch),
        tuple(
            tuple(Output(s.name, np.dtype(s.dtype).newbyteorder("<"), s.at(rows), s.nbytes(rows)) for s in plan.outputs)
            for rows in range(plan.max_batch + 1)
        ),
    )
