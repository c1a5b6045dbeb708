"""Ways through the cloud for one request: predicting and choosing one, asking, and checking what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from edge.account import cloud_stages, uplink_share
from edge.balance import NOT_INSURED, Candidate, Insured, choose, explore, soonest
from edge.nodes import Node, Sent
from edge.open_request import Attempt, Open
from shared.errors import InvariantBroken
from shared.events import Send
from shared.latency import Latency, WorkKey
from shared.plan import Coding, Plan, Route, SegmentRange
from shared.request import Answer, Array, Buffer
from shared.scheduler import LeastPredictedFinish, Scheduler
from shared.wire.messages import Infer, Reply, Tensor, tensor_table


class RouteFacts(msgspec.Struct, frozen=True):
    """What does not change of a route: computed once. `head` is None where the input is sent as it is.
    `sent` and `answered` are the tensors of request and reply by rows."""

    route: Route
    coding: Coding
    head: WorkKey | None
    tail_ns: int
    sent: tuple[tuple[Tensor, ...], ...]
    answered: tuple[tuple[Tensor, ...], ...]


class CloudWay:
    """All routes of all plans of this edge. It keeps no state of requests."""

    def __init__(self, plans: Mapping[str, Plan], incarnation: int, scheduler: Scheduler, explore_ns: int) -> None:
        """`explore_ns`: how often a node is tried although it is predicted too late."""
        self._incarnation = incarnation
        self._scheduler = scheduler
        self._explore_ns = explore_ns
        self._policy = LeastPredictedFinish()
        cloud = Latency.of(plans.items(), "cloud")
        self._facts = {
            contract: tuple(_facts(contract, plan, r, cloud) for r in plan.routes) for contract, plan in plans.items()
        }

    def find(
        self, open_: Open, nodes: Sequence[Node], routes: Iterable[int], insured: Insured, now: int
    ) -> tuple[Candidate | None, bool]:
        """The way to take among these nodes and routes (by index), and whether it is only an exploration.

        None where the device alone is as good, or nothing is predicted on time. Where the device has no answer at all, the
        soonest is tried whatever its prediction: the alternative is certain failure, and only a try can find out that a link
        has recovered.
        """
        facts = self._facts[open_.request.plan]
        candidates = [self._predict(open_, i, facts[i], node, now) for i in routes for node in nodes]
        due = open_.hold_until if insured.promised else open_.resolve_by
        found = choose(candidates, insured, due, self._policy)
        if found is not None or not candidates:
            return found, False
        if insured is NOT_INSURED:
            return soonest(candidates), False
        found = explore([c for c in candidates if now + c.head_ns < due], insured, now, self._explore_ns)
        return found, found is not None

    def head(self, open_: Open, index: int) -> tuple[WorkKey, Coding | None] | None:
        """The device's work before route `index` can be sent, and how its result is encoded; None where there is none, or
        it has been done for this request."""
        facts = self._facts[open_.request.plan][index]
        if facts.head is None or index in open_.encoded:
            return None
        return facts.head, facts.coding

    def ask(self, open_: Open, attempt: Attempt, now: int) -> Send:
        """The message of an attempt whose tensors are ready; the attempt is out from now on."""
        request = open_.request
        route = attempt.route
        frames = open_.encoded.get(attempt.route_index, request.inputs)
        attempt.sent_ns = now
        sent = Sent(now, attempt.typical_ns, open_.resolve_by, attempt.nbytes, attempt.exploring)
        attempt.node.out[open_.id, attempt.number] = sent
        message = Infer(
            incarnation=self._incarnation,
            sequence=open_.id,
            attempt=attempt.number,
            contract=request.plan,
            cut=route.cut,
            coding=route.coding,
            rows=request.rows,
            priority=request.priority,
            budget_ns=open_.resolve_by - now,
            sent_ns=now,
            tensors=self._facts[request.plan][attempt.route_index].sent[request.rows],
        )
        return Send(attempt.node.data, message, frames)

    def answer(
        self, open_: Open, attempt: Attempt, message: Reply, frames: Sequence[Buffer], now: int
    ) -> Answer | None:
        """The answer that a reply carries, or None where it does not answer exactly what was asked."""
        request, route, node = open_.request, attempt.route, attempt.node
        specs = open_.plan.outputs
        asked = (request.plan, route.cut, route.coding, request.rows)
        facts = self._facts[request.plan][attempt.route_index]
        expected = facts.answered[request.rows]
        if asked != (message.contract, message.cut, message.coding, message.rows) or message.tensors != expected:
            return None
        if [memoryview(f).nbytes for f in frames] != [s.nbytes(request.rows) for s in specs]:
            return None
        outputs: dict[str, Array] = {s.name: s.view(f, request.rows) for s, f in zip(specs, frames, strict=True)}
        node_ns = sum(message.stages.values())
        share = uplink_share(attempt.sent_ns, message.sent_ns - node_ns, now, node_ns, node.offset.bounds(now))
        return Answer(
            outputs=outputs,
            source="cloud",
            node=node.name,
            rung=open_.plan.programs[0].name,
            cut=route.cut,
            fidelity=open_.plan.cloud_fidelity(facts.coding, route.agreement),
            contract=request.plan,
            stages=cloud_stages(open_.arrived_ns, attempt.sent_ns, now, attempt.head, message.stages, share, now),
        )

    def _predict(self, open_: Open, index: int, facts: RouteFacts, node: Node, now: int) -> Candidate:
        rows = open_.request.rows
        route = facts.route
        head_ns = 0
        if facts.head is not None and index not in open_.encoded:
            wait_ns = self._scheduler.predicted_wait(now, open_.request.priority)
            head_ns = wait_ns + self._scheduler.latency.typical(facts.head, rows)
        nbytes = (route.bytes_up + route.bytes_down) * rows
        node_ns = node.wait_ns + facts.tail_ns * rows
        typical = now + head_ns + node.estimate.network_ns(nbytes) + node_ns
        return Candidate(route, index, node, typical, typical + node.estimate.margin_ns(), head_ns, node_ns, nbytes)


def _facts(contract: str, plan: Plan, route: Route, cloud: Latency) -> RouteFacts:
    coding = plan.cuts[route.cut].coding(route.coding)
    if coding is None:
        raise InvariantBroken(f"plan {plan.name}: a route names coding {route.coding}, which cut {route.cut} lacks")
    coded = coding.name if coding.coded else ""
    head = WorkKey(contract, SegmentRange(0, 0, route.cut), encode=coded) if route.cut or coded else None
    tail = WorkKey(contract, SegmentRange(0, route.cut, len(plan.cuts) - 1), decode=coded)
    sent = tensor_table(plan.cuts[route.cut].tensors, plan.max_batch)
    return RouteFacts(route, coding, head, cloud.typical(tail), sent, tensor_table(plan.outputs, plan.max_batch))
