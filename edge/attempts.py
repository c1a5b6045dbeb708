"""The tries of open requests at answers from the cloud: sent, answered, refused, lost, given up, tried elsewhere.

An attempt may be out in several copies, each on another path to its node, which runs it once and answers on every path that
it came on. The first answer counts; a copy that is lost matters only where it was the last.

Who asked has the answer before anything is learnt of it: what it says of link, clock and node to come is taken in when the
next thing happens that is no request, or right after the next request was decided (`learn`). What decisions rest on exactly,
such as what is out and what a node lends, is changed at once.

Methods put what is to be sent into `out`, and return *verdicts*: for an open request an answer that has come, or None where
something that might have answered will not. What follows from a verdict is the broker's to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from edge.balance import NOT_INSURED, Candidate, Insured
from edge.cloud_way import CloudWay
from edge.copies import Copies, best_spare
from edge.due import DueTimes
from edge.local_work import LocalWork
from edge.nodes import REPLACED, Nodes
from edge.open_request import Attempt, Open
from edge.paths import STALLED, UP, Path, Sent
from edge.register import Register
from shared.directory import Directory, from_message
from shared.errors import SettingsError
from shared.events import Action, Received, Send, SendFailed
from shared.latency import WorkKey
from shared.request import Answer, Array, Buffer
from shared.settings import EdgeSettings
from shared.settings_check import check
from shared.wire.messages import Bye, Cancel, Drain, Infer, NodeList, ProbeReply, Refusal, Reply, Welcome

MAX_ATTEMPTS = 3
RETRY = frozenset({"overload", "credit", "expired", "failed", "hello", "contract", "draining"})
"""Refusals after which another node may still answer."""
REFUSALS = RETRY | {
    "input",
    "size",
    "duplicate",
    "cancelled",
}  # others are counted as one: a node cannot fill the counters

HALF = 0.5
"""A copy goes out on a path only where it is at least as likely as this that the path carries anything in time."""

OF_ONE_COPY = frozenset({"duplicate", "hello", "size", "input"})
"""Refusals that say nothing of the attempt's other copies."""

Verdict = tuple[Open, Answer | None]


class Heard(msgspec.Struct, frozen=True):
    """An answer of which nothing is learnt yet: on which path it came and when, what had been expected of its copy, how long
    that had waited for what was before it, and how long the node took."""

    path: Path
    sent: Sent
    message: Reply
    at_ns: int
    waited_ns: int
    node_ns: int


class Attempts:
    """All attempts of one edge. Their state is in `Open.attempts` and, for what is out, in `Node.out` and `Path.out`."""

    def __init__(
        self,
        settings: EdgeSettings,
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
        self._copies = Copies(settings.duplicates)
        self._follow = settings.fleet.follow
        self._copies_due = DueTimes(requests, settings.limits.max_open)
        self.heard: Heard | None = None
        """The last answer, until something is learnt of it."""

    # --- going out ------------------------------------------------------------------------------------------------------

    def begin(self, open_: Open, way: Candidate, exploring: bool, now: int, out: list[Action]) -> None:
        """Try this way: send at once, or queue the work that comes before."""
        path, number = way.path, len(open_.attempts) + 1
        attempt = Attempt(number, way, path.node, path, way.route, way.index, exploring, awaited=not exploring)
        open_.attempts.append(attempt)
        head = self._ways.head(open_, way.index)
        if head is None:
            self._send(open_, attempt, now, out)
            return
        key, coding = head
        by = self._head_due(open_, key, now)
        attempt.job = self._work.queue((open_.id, attempt.number), open_.request, key, coding, by, now, promised=False)
        attempt.alive = attempt.job != 0

    def _head_due(self, open_: Open, key: WorkKey, now: int) -> int:
        """When the work before sending must be done: while its request's own rung waits, so soon that this is typically in
        time after it, so that it begins before the rung, which runs in the flight's time; at the request's end where that
        cannot be. Whether the promise holds however slow they are is seen at the launch: with that room here as well, an
        executor that wakes half a millisecond late would refuse the work, and with it the cloud."""
        last = open_.resolve_by - 1
        before_rung = last - self._work.waits_ns(open_.rung_job)
        return before_rung if now + self._work.typical_ns(key, open_.request) <= before_rung else last

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
        usable = self._nodes.usable(open_.request.plan, now)
        if attempt.path not in usable:
            attempt.alive = False
            return self._elsewhere(open_, attempt, usable, now, out)
        self._send(open_, attempt, now, out)
        return []

    def head_lost(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> list[Verdict]:
        """The work before sending came to nothing: a way that needs none of it may still be in time."""
        if not attempt.alive:
            return [(open_, None)]
        attempt.alive = False
        return self._elsewhere(open_, attempt, self._nodes.usable(open_.request.plan, now), now, out)

    def _send(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> None:
        """The first copy goes out, and a second one with it where that is wanted."""
        out.append(self._ways.ask(open_, attempt, attempt.path, now))
        self._copies.first(attempt.way.nbytes)
        if attempt.exploring or len(attempt.node.paths) < 2:
            return
        due_ns = open_.hold_until
        spare = self._spare(open_.request.plan, attempt, due_ns, now)
        if spare is None:
            return
        way = attempt.way
        exchange_ns = spare.back_ns(way.nbytes, way.node_ns, now) - now
        at = self._copies.wanted_at(way.chance, way.nbytes, way.typical_ns, exchange_ns, due_ns, now)
        if at is None:
            return
        if at <= now:
            self._copy(open_, attempt, spare, now, out)
        else:
            attempt.copy_ns = at
            self._copies_due.add(at, open_.id)

    def _spare(self, contract: str, attempt: Attempt, due_ns: int, now: int) -> Path | None:
        """The path for a further copy, if any may still carry one in time."""
        spare = [p for p in self._nodes.spare(attempt.node, contract, attempt.paths) if p.still(due_ns, now) >= HALF]
        return best_spare(attempt.path, spare, attempt.way.nbytes)

    def _copy(self, open_: Open, attempt: Attempt, path: Path, now: int, out: list[Action]) -> None:
        nbytes = attempt.way.nbytes
        if self._ways.affords(open_, nbytes, now) and self._copies.pay(nbytes):
            self._counters["copies"] += 1
            self._ways.spend(open_, nbytes, now)
            out.append(self._ways.ask(open_, attempt, path, now))

    def copies_due(self, now: int, out: list[Action]) -> None:
        """Send the copies that have waited for their first ones long enough."""
        for number in self._copies_due.due(now):
            open_ = self._open.get(number)
            for attempt in open_.attempts if open_ is not None else ():
                if open_ is None or not 0 < attempt.copy_ns <= now:
                    continue
                attempt.copy_ns = 0
                spare = self._spare(open_.request.plan, attempt, open_.hold_until, now)
                if attempt.alive and attempt.awaited and spare is not None:
                    self._copy(open_, attempt, spare, now, out)

    def next_copy(self) -> int:
        """When `copies_due` has something to do next; `NEVER_NS` where it has nothing."""
        return self._copies_due.soonest()

    def end(self, open_: Open, out: list[Action]) -> list[int]:
        """The request is over: cancel what is out for it. Returns jobs that nobody wants any more."""
        unwanted: list[int] = []
        for attempt in open_.attempts:
            if attempt.alive and attempt.sent_ns == 0:
                unwanted.append(attempt.job)
            elif attempt.alive and not attempt.exploring:
                self._cancel(open_, attempt, self._carrying(open_, attempt), out)
            attempt.alive = False
        return unwanted

    def _cancel(self, open_: Open, attempt: Attempt, paths: Iterable[Path], out: list[Action]) -> None:
        out += [Send(path.data, Cancel(self._incarnation, open_.id, attempt.number)) for path in paths]

    def _carrying(self, open_: Open, attempt: Attempt) -> list[Path]:
        """The paths on which a copy of this attempt is out."""
        key = (open_.id, attempt.number)
        return [path for path in attempt.paths if key in path.out]

    def _over(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> list[Verdict]:
        """The node does not answer this attempt: another may."""
        attempt.alive = False
        others = [p for p in self._nodes.usable(open_.request.plan, now) if p.node is not attempt.node]
        return self._elsewhere(open_, attempt, others, now, out)

    def _without(self, open_: Open, attempt: Attempt, now: int, out: list[Action]) -> list[Verdict]:
        """Nobody should wait for the copies that are out, if any: their paths are at fault, and the node may still answer on
        another, without running it twice. Where there is none, another node may."""
        node, key = attempt.node, (open_.id, attempt.number)
        spare = None if attempt.exploring else self._spare(open_.request.plan, attempt, open_.hold_until, now)
        lent = key in node.out or len(node.out) < node.credits
        if (
            spare is not None
            and lent
            and spare.back_ns(attempt.way.nbytes, attempt.way.node_ns, now) <= open_.hold_until
        ):
            self._counters["moved"] += 1
            attempt.alive = attempt.awaited = True
            out.append(self._ways.ask(open_, attempt, spare, now))
            return [(open_, None)]
        others = [p for p in self._nodes.usable(open_.request.plan, now) if p.node is not node]
        return self._elsewhere(open_, attempt, others, now, out)

    def _elsewhere(
        self, open_: Open, attempt: Attempt, paths: Sequence[Path], now: int, out: list[Action]
    ) -> list[Verdict]:
        """Nobody should wait for this attempt: try one of these paths with what is already encoded, if there is time. Work
        that has just come to nothing is not tried again."""
        attempt.awaited = False
        if len(open_.attempts) < MAX_ATTEMPTS:
            insured = NOT_INSURED
            if open_.rung is not None and (open_.held is not None or open_.waiting_rung):
                insured = Insured(open_.rung.agreement, open_.resolve_by, True)
            beside = dict.fromkeys(range(len(open_.plan.routes)), insured.agreement)
            if attempt.job and attempt.route_index not in open_.encoded:
                del beside[attempt.route_index]
            way, exploring = self._ways.find(open_, paths, beside, insured, now)
            if way is not None:
                self.begin(open_, way, exploring, now, out)
        return [(open_, None)]

    # --- coming in ------------------------------------------------------------------------------------------------------

    def received(self, event: Received, now: int, out: list[Action]) -> list[Verdict]:
        """A node said something."""
        path = self._nodes.of_link(event.link)
        message = event.message
        if path is None:
            self._counters["unknown-link"] += 1
            return []
        if event.link == path.data:
            self._nodes.moved(path, now)
        match message:
            case Reply():
                return self._reply(path, message, event, now, out)
            case Refusal():
                return self._refused(path, message, now, out)
            case ProbeReply() if event.link == path.data:
                path.padded(message, now)
            case ProbeReply():
                out += self._nodes.probed(path, message, now)
            case Welcome():
                if event.link == path.data:
                    greetings, lost = self._nodes.welcomed(path, message, now)
                    out += greetings
                    return self.lost(lost, now, out)
            case NodeList():
                return self._told(message, now, out)
            case Drain():
                self._nodes.drains(path.node, message)
            case Bye():
                if message.reason == REPLACED:
                    self._counters["replaced"] += 1
                out += self._nodes.left(path, message.reason, now)
                return self.lost([path], now, out)
            case _:
                self._counters["unexpected-message"] += 1
        return []

    def _told(self, message: NodeList, now: int, out: list[Action]) -> list[Verdict]:
        """A node tells which nodes there are."""
        if not self._follow or message.epoch <= self._nodes.epoch:
            return []
        try:
            directory = check(from_message(message))
        except SettingsError:
            self._counters["bad-directory"] += 1
            return []
        return self.directory(directory, now, out)

    def directory(self, directory: Directory, now: int, out: list[Action]) -> list[Verdict]:
        """A directory was found."""
        actions, lost = self._nodes.follow(directory, now)
        self._counters["directories"] += bool(actions)
        out += actions
        return self._moved_away(lost, now, out)

    def _moved_away(self, paths: Iterable[Path], now: int, out: list[Action]) -> list[Verdict]:
        return [verdict for path in paths for verdict in self._give_up(path, now, out, lost=True)]

    def _answered(self, path: Path, message: Reply | Refusal, now: int) -> tuple[Open | None, Attempt | None]:
        """Settle a copy, its attempt's credit where it is the first answer, and learn the load; the request and attempt where
        they are still wanted."""
        node = path.node
        key = (message.sequence, message.attempt)
        sent = path.out.pop(key, None) if message.incarnation == self._incarnation else None
        node.load(message.load, message.pressure)
        if sent is None:
            self._counters["unknown-reply"] += 1
            return None, None
        if isinstance(message, Reply):
            node_ns = sum(message.stages.values())
            self.heard = Heard(path, sent, message, now, path.answered(sent, node_ns, now), node_ns)
        else:
            node.offset.peer_sent(message.sent_ns, now)
            if message.reason in ("expired", "cancelled"):
                path.refused(sent, now)
            elif message.reason in OF_ONE_COPY and node.carries(key):
                self._counters["copy-refused"] += 1
                return None, None
        first = node.out.pop(key, None) is not None
        open_ = self._open.get(message.sequence)
        attempt = open_.attempt(message.attempt) if open_ is not None else None
        if attempt is None or not attempt.alive or attempt.node is not node:
            self._counters["late-reply" if first else "copy-reply"] += 1
            return None, None
        return open_, attempt

    def learn(self) -> None:
        """Take in what the last answer says, if that was not done yet."""
        heard, self.heard = self.heard, None
        if heard is not None:
            path, message, at_ns = heard.path, heard.message, heard.at_ns
            path.node.offset.peer_sent(message.sent_ns, at_ns)
            path.learn(heard.sent, heard.node_ns, heard.waited_ns, at_ns)
            self._nodes.outliers.answered(path.node.name, self._ways.slowness(message), at_ns)

    def _reply(self, path: Path, message: Reply, event: Received, now: int, out: list[Action]) -> list[Verdict]:
        open_, attempt = self._answered(path, message, now)
        if open_ is None or attempt is None:
            return []
        answer = self._ways.answer(open_, attempt, message, event.frames, now)
        attempt.alive = False
        if len(attempt.paths) > 1 and self._carrying(open_, attempt):
            # The node need not answer once more what has not come to it yet.
            self._cancel(open_, attempt, [path], out)
        if answer is None:
            self._counters["wrong-reply"] += 1
            return self._over(open_, attempt, now, out)
        return [(open_, answer)]

    def _refused(self, path: Path, message: Refusal, now: int, out: list[Action]) -> list[Verdict]:
        self._counters[f"refused-{message.reason if message.reason in REFUSALS else 'other'}"] += 1
        if message.reason == "hello":
            out += self._nodes.unknown_to(path, now)
        if message.reason == "failed":
            self._nodes.outliers.failed(path.node.name, now)
        open_, attempt = self._answered(path, message, now)
        if open_ is None or attempt is None:
            return []
        attempt.alive = False
        return self._over(open_, attempt, now, out) if message.reason in RETRY else [(open_, None)]

    def unsent(self, event: SendFailed, now: int, out: list[Action]) -> list[Verdict]:
        """A message could not be handed to the transport."""
        self._counters["send-failed"] += 1
        path = self._nodes.of_link(event.link)
        if path is None or not isinstance(event.message, Infer):
            return []
        key = (event.message.sequence, event.message.attempt)
        path.out.pop(key, None)
        if path.node.carries(key):
            return []
        path.node.out.pop(key, None)
        open_ = self._open.get(event.message.sequence)
        attempt = open_.attempt(event.message.attempt) if open_ is not None else None
        if open_ is None or attempt is None or not attempt.alive:
            return []
        attempt.alive = False
        return self._without(open_, attempt, now, out)

    # --- giving up ------------------------------------------------------------------------------------------------------

    def lost(self, paths: Iterable[Path], now: int, out: list[Action]) -> list[Verdict]:
        """What was sent on these paths will not be answered there."""
        paths = list(paths)
        for path in paths:
            self._fails(path, now)
        return [verdict for path in paths for verdict in self._give_up(path, now, out, lost=True)]

    def stalled(self, path: Path, now: int, out: list[Action]) -> list[Verdict]:
        """Nobody waits for this path any more, though what is out there may still come: where nothing else is under way it is
        hoped for."""
        self._fails(path, now)
        return self._give_up(path, now, out, lost=False)

    def _fails(self, path: Path, now: int) -> None:
        """Nothing comes on this path: that is the node's fault where nothing comes on any."""
        if not any(other.state is UP for other in path.node.paths):
            self._nodes.outliers.failed(path.node.name, now)

    def _give_up(self, path: Path, now: int, out: list[Action], *, lost: bool) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for open_ in self._open:
            for attempt in [a for a in open_.attempts if a.alive and path in a.paths]:
                carrying = self._carrying(open_, attempt)
                attempt.alive = bool(carrying)
                if any(other.state is not STALLED for other in carrying):
                    continue
                if lost or attempt.awaited:
                    verdicts += self._without(open_, attempt, now, out)
        return verdicts
