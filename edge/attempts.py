"""The tries of open requests at answers from the cloud: sent, answered, refused, lost, given up, tried elsewhere.

Methods put what is to be sent into `out`, and return *verdicts*: for an open request an answer that has come, or None where
something that might have answered will not. What follows from a verdict is the broker's to decide.
"""

from __future__ import annotations

from collections import Counter

from edge.balance import NOT_INSURED, Candidate, Insured
from edge.cloud_way import CloudWay
from edge.local_work import LocalWork
from edge.nodes import Node, Nodes
from edge.open_request import Attempt, Open
from edge.register import Register
from shared.events import Action, Received, Send, SendFailed
from shared.request import Answer, Array, Buffer
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

Verdict = tuple[Open, Answer | None]


class Attempts:
    """All attempts of one edge. Their state is in `Open.attempts` and, for what is out, in `Node.out`."""

    def __init__(
        self,
        requests: Register,
        nodes: Nodes,
        ways: CloudWay,
        work: LocalWork,
        incarnation: int,
        counters: Counter[str],
    ) -> None:
        self._open = requests
        self._nodes = nodes
        self._ways = ways
        self._work = work
        self._incarnation = incarnation
        self._counters = counters

    # --- going out ------------------------------------------------------------------------------------------------------

    def begin(self, open_: Open, way: Candidate, exploring: bool, now: int, out: list[Action]) -> None:
        """Try this way: send at once, or queue the work that comes before."""
        attempt = Attempt(len(open_.attempts) + 1, way, exploring=exploring)
        open_.attempts.append(attempt)
        head = self._ways.head(open_, way.index)
        if head is None:
            out.append(self._ways.ask(open_, attempt, now))
            return
        key, coding = head
        by = open_.resolve_by - 1  # before its own rung
        attempt.job = self._work.queue((open_.id, attempt.number), open_.request, key, coding, by, now, promised=False)
        attempt.alive = attempt.job != 0

    def head_done(
        self,
        open_: Open,
        attempt: Attempt,
        span: tuple[int, int, int],
        outputs: tuple[Array | Buffer, ...],
        now: int,
        out: list[Action],
    ) -> list[Verdict]:
        """The work before sending is done: `span` is when it began, ended, and what of it was coding."""
        if not attempt.alive:
            return []
        attempt.head = span
        open_.encoded[attempt.route_index] = outputs
        if attempt.node not in self._nodes.usable(open_.request.plan):
            return self._over(open_, attempt, now, out)
        out.append(self._ways.ask(open_, attempt, now))
        return []

    def end(self, open_: Open, out: list[Action]) -> list[int]:
        """The request is over: cancel what is out for it. Returns jobs that nobody wants any more."""
        unwanted: list[int] = []
        for attempt in open_.attempts:
            if attempt.alive and attempt.sent_ns == 0:
                unwanted.append(attempt.job)
            elif attempt.alive and not attempt.exploring:
                out.append(Send(attempt.node.data, Cancel(self._incarnation, open_.id, attempt.number)))
            attempt.alive = False
        return unwanted

    def _over(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> list[Verdict]:
        """An attempt failed."""
        attempt.alive = False
        return self._elsewhere(open_, attempt, now, out)

    def _elsewhere(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> list[Verdict]:
        """Nobody should wait for this attempt: try another node with what is already encoded, if there is time."""
        attempt.awaited = False
        if len(open_.attempts) < MAX_ATTEMPTS:
            insured = NOT_INSURED
            if open_.rung is not None and (open_.held is not None or open_.waiting_rung):
                insured = Insured(open_.rung.agreement, open_.resolve_by, True)
            nodes = [n for n in self._nodes.usable(open_.request.plan) if n is not attempt.node]
            way, exploring = self._ways.find(open_, nodes, range(len(open_.plan.routes)), insured, now)
            if way is not None:
                self.begin(open_, way, exploring, now, out)
        return [(open_, None)]

    # --- coming in ------------------------------------------------------------------------------------------------------

    def received(self, event: Received, now: int, out: list[Action]) -> list[Verdict]:
        """A node said something."""
        node = self._nodes.of_link(event.link)
        message = event.message
        if node is None:
            self._counters["unknown-link"] += 1
            return []
        if event.link == node.data:
            self._nodes.moved(node, now)
        match message:
            case Reply():
                return self._reply(node, message, event, now, out)
            case Refusal():
                return self._refused(node, message, now, out)
            case ProbeReply():
                out += self._nodes.probed(node, message, now)
            case Welcome():
                if event.link == node.data and self._nodes.welcomed(node, message, now):
                    return self.lost(node, now, out)
            case Bye():
                out += self._nodes.left(node, message.reason, now)
                return self.lost(node, now, out)
            case _:
                self._counters["unexpected-message"] += 1
        return []

    def _answered(self, node: Node, message: Reply | Refusal, now: int) -> tuple[Open | None, Attempt | None]:
        """Settle an attempt's credit and learn its load; the request and attempt where they are still wanted."""
        mine = message.incarnation == self._incarnation
        sent = node.out.pop((message.sequence, message.attempt), None) if mine else None
        node.load(message.load)
        if sent is None:
            self._counters["unknown-reply"] += 1
            return None, None
        node.offset.peer_sent(message.sent_ns, now)
        if isinstance(message, Reply):
            node.answered(sent, sum(message.stages.values()), now)
        elif message.reason in ("expired", "cancelled"):
            node.refused(sent, now)
        open_ = self._open.get(message.sequence)
        attempt = open_.attempt(message.attempt) if open_ is not None else None
        if attempt is None or not attempt.alive or attempt.node is not node:
            self._counters["late-reply"] += 1
            return None, None
        return open_, attempt

    def _reply(self, node: Node, message: Reply, event: Received, now: int, out: list[Action]) -> list[Verdict]:
        open_, attempt = self._answered(node, message, now)
        if open_ is None or attempt is None:
            return []
        answer = self._ways.answer(open_, attempt, message, event.frames, now)
        attempt.alive = False
        if answer is None:
            self._counters["wrong-reply"] += 1
            return self._over(open_, attempt, now, out)
        return [(open_, answer)]

    def _refused(self, node: Node, message: Refusal, now: int, out: list[Action]) -> list[Verdict]:
        self._counters[f"refused-{message.reason if message.reason in REFUSALS else 'other'}"] += 1
        if message.reason == "hello":
            out += self._nodes.unknown_to(node, now)
        open_, attempt = self._answered(node, message, now)
        if open_ is None or attempt is None:
            return []
        attempt.alive = False
        return self._over(open_, attempt, now, out) if message.reason in RETRY else [(open_, None)]

    def unsent(self, event: SendFailed, now: int, out: list[Action]) -> list[Verdict]:
        """A message could not be handed to the transport."""
        self._counters["send-failed"] += 1
        node = self._nodes.of_link(event.link)
        if node is None or not isinstance(event.message, Infer):
            return []
        node.out.pop((event.message.sequence, event.message.attempt), None)
        open_ = self._open.get(event.message.sequence)
        attempt = open_.attempt(event.message.attempt) if open_ is not None else None
        return (
            self._over(open_, attempt, now, out) if open_ is not None and attempt is not None and attempt.alive else []
        )

    # --- giving up ------------------------------------------------------------------------------------------------------

    def lost(self, node: Node | None, now: int, out: list[Action]) -> list[Verdict]:
        """What was sent to this node will not come."""
        return [] if node is None else self._give_up(node, now, out, lost=True)

    def stalled(self, node: Node, now: int, out: list[Action]) -> list[Verdict]:
        """Nobody waits for this node any more, though what is out there may still come: where nothing else is under way it is
        hoped for."""
        return self._give_up(node, now, out, lost=False)

    def _give_up(self, node: Node, now: int, out: list[Action], *, lost: bool) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for open_ in self._open:
            for attempt in [a for a in open_.attempts if a.alive and a.node is node and a.sent_ns]:
                if lost or attempt.awaited:
                    attempt.alive = not lost
                    verdicts += self._elsewhere(open_, attempt, now, out)
        return verdicts
