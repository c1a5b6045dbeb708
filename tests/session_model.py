"""What a node owes its peers: a simple model that `cloud.session.Session` is driven beside, and held against at each step.

It knows a request by its frame, which holds a number of its own, so that what runs, and what is answered with, can be told
without looking into the session.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from plans import INT8, MID, RAW_ROUTE, X, Y, make_plan

from cloud.peers import SILENT_NS
from cloud.session import Session
from shared.events import Abort, Action, ClockJumped, Event, Failed, Received, Row, Run, Send, SendFailed, Tick, WakeAt
from shared.latency import WorkKey
from shared.plan import SegmentRange
from shared.settings import CloudSettings
from shared.wire.messages import Bye, Cancel, Hello, Infer, Message, Refusal, Reply, Tensor, Welcome

MS = 1_000_000
START = 10_000_000 * MS
CONTRACT, PLAN = make_plan(cloud_ms=1.0, routes=(RAW_ROUTE,), batch_slope=0.25)
WAYS = ((0, "raw"), (1, "raw"), (1, INT8.name))
"""Cuts and codings that the plan has."""
AHEAD = {"one": 0, "two": 7_000_000 * MS, "three": -3_000_000 * MS}
"""How far each peer's clock is ahead of the node's."""
LAST = 2
"""The cut of the outputs."""
ODD = 999_999
"""Sequence of requests that do not fit the plan."""

Identity = tuple[str, int, int, int]
Who = tuple[str, int]
"""Name and incarnation of a peer."""


@dataclass
class Asked:
    """A request. `state`: `open` (let in), `running`, `over` (answered, refused, or its peer is gone). `due` is its deadline
    on the node's clock, by the true offset."""

    identity: Identity
    link: str
    message: Infer
    frame: bytes
    due: int
    state: str = "open"
    at: int = 0
    """The cut up to which it has run."""

    def __post_init__(self) -> None:
        self.at = self.message.cut

    @property
    def open(self) -> bool:
        return self.state != "over"


def make_message(
    who: Who, sequence: int, attempt: int, way: tuple[int, str], rows: int, budget: int, priority: int, now: int
) -> Infer:
    tensors = (Tensor("float32", (X, MID)[way[0]].at(rows)),)
    return Infer(who[1], sequence, attempt, CONTRACT, *way, rows, priority, budget, now + AHEAD[who[0]], tensors)


def number_frame(number: int, message: Infer) -> bytes:
    """A frame that holds `number`, as long as this request needs it."""
    spec = (X, MID)[message.cut]
    if message.coding == "raw":
        return np.full(spec.at(message.rows), number, np.float32).tobytes()
    return number.to_bytes(8, "little") + bytes(spec.nbytes(message.rows) // 4 - 8)


def names(message: Message, asked: Infer) -> bool:
    assert isinstance(message, Reply | Refusal)
    given = (message.incarnation, message.sequence, message.attempt)
    return given == (asked.incarnation, asked.sequence, asked.attempt)


class SessionModel:
    """A session and what it owes."""

    def __init__(self, settings: CloudSettings) -> None:
        self.session = Session(settings, {CONTRACT: PLAN}, "node", 7)
        self.limit = settings.limits.max_peers
        self.now = START
        self.wake_at: int | None = None
        self.known: dict[str, Who] = {}
        """Who greeted on a connection."""
        self.heard: dict[Who, int] = {}
        self.left: list[Who] = []
        self.asked: dict[bytes, Asked] = {}
        self.executed: set[tuple[Identity, int]] = set()
        """Attempts, each with the cut from which it ran."""
        self.runs: dict[int, Run] = {}
        self.aborted: set[int] = set()
        self.number = 0

    # --- what may happen ----------------------------------------------------------------------------------------------

    def give(self, link: str, message: Message, frames: tuple[bytes, ...] = ()) -> list[Message]:
        """A message comes in; what is sent."""
        return self.feed(Received(link, message, frames))

    def infer(self, link: str, message: Infer) -> None:
        peer = link.partition(":")[0]
        self.number += 1
        frame = number_frame(self.number, message)
        identity = (peer, message.incarnation, message.sequence, message.attempt)
        due = message.sent_ns + message.budget_ns - AHEAD[peer]
        self.feed(Received(link, message, (frame,)), fresh=Asked(identity, link, message, frame, due))
        if self.known.get(link) == identity[:2]:
            self.heard[identity[:2]] = self.now

    def greet(self, link: str, message: Hello) -> None:
        welcome = self.give(link, message)
        if not any(isinstance(answer, Welcome) for answer in welcome):
            others = set(self.known.values())
            assert len(others) >= self.limit, "a peer is turned away though there is room"
            assert not any(self.now - self.heard[who] > SILENT_NS and not self.open_of(who) for who in others)

    def cancel(self, link: str, message: Infer) -> None:
        """A peer does not want this any more: it is over from now on, where it was not before."""
        self.give(link, Cancel(message.incarnation, message.sequence, message.attempt))
        identity = (link.partition(":")[0], message.incarnation, message.sequence, message.attempt)
        assert not self.is_open(identity) or link not in self.known, "what was cancelled is open"

    def leave(self, link: str, word: bool) -> None:
        """A peer says good-bye, or what is sent to it does not arrive."""
        self.forget(self.known[link])
        self.feed(Received(link, Bye("closing")) if word else SendFailed(link, Bye("")))

    def suspend(self) -> None:
        """The node's clock fell behind all others: what it was asked is over, and every peer must greet anew."""
        links = set(self.known)
        for who in set(self.known.values()):
            self.forget(who)
        actions = self.session.handle(ClockJumped(MS), self.now)
        for action in actions:
            if not isinstance(action, Send):
                self.judge(action, Tick(), None, frozenset(), None)
        assert {a.link for a in actions if isinstance(a, Send) and a.message == Bye("hello")} == links

    def end(self, run: int, event: Event, good: AbstractSet[bytes] = frozenset()) -> None:
        """A run is over; `good` are the frames of the rows that have a result."""
        self.aborted.discard(run)
        self.feed(event, ended=self.runs.pop(run), good=good)

    def pass_time(self, ns: int) -> None:
        end = self.now + ns
        while self.wake_at is not None and self.wake_at <= end:
            self.now, self.wake_at = max(self.now, self.wake_at), None
            self.feed(Tick())
        self.now = max(self.now, end)

    def end_everything(self) -> None:
        while self.runs or self.session.scheduler.queued:
            self.pass_time(300 * MS)
            for run in list(self.runs):
                self.end(run, Failed(run, "error"))
        assert not any(asked.open for asked in self.asked.values()), "at rest a request is open"

    # --- what must come of it -----------------------------------------------------------------------------------------

    def feed(
        self,
        event: Event,
        *,
        fresh: Asked | None = None,
        ended: Run | None = None,
        good: AbstractSet[bytes] = frozenset(),
    ) -> list[Message]:
        going_on = [] if ended is None else self.go_on(ended, good)
        actions = self.session.handle(event, self.now)
        self.session.validate()
        self.forget_silent()
        refused = self.first_refusal(actions, fresh)
        if fresh is not None and refused is None:
            assert self.known.get(fresh.link) == fresh.identity[:2], "a stranger's request is let in"
            assert not self.is_open(fresh.identity), "twice let in"
            self.asked[fresh.frame] = fresh
        for action in actions:
            self.judge(action, event, ended, good, refused)
        owed = [] if ended is None else [self.asked_by(row) for row in ended.rows]
        left = [asked for asked in owed if asked.open and asked not in going_on]
        assert not left, "a run has ended, and what it was for is still open"
        return [a.message for a in actions if isinstance(a, Send)]

    def go_on(self, ended: Run, good: AbstractSet[bytes]) -> list[Asked]:
        """Of the requests of a run those of which it was a first part, and which are still wanted."""
        asked = [self.asked_by(row) for row in ended.rows]
        going_on = [a for a in asked if a.state == "running" and a.frame in good and ended.range.last < LAST]
        for one in going_on:
            one.state, one.at = "open", ended.range.last
        return going_on

    def first_refusal(self, actions: list[Action], fresh: Asked | None) -> Refusal | None:
        """The refusal that answers a request which is not let in."""
        if fresh is None:
            return None
        for action in actions:
            if (
                isinstance(action, Send)
                and isinstance(action.message, Refusal)
                and names(action.message, fresh.message)
            ):
                word = action.message.reason
                if word == "expired":
                    self.expect_late(fresh)
                assert word == "duplicate" or not self.is_open(fresh.identity) or fresh.link not in self.known
                return action.message
        return None

    def expect_late(self, asked: Asked) -> None:
        tail = SegmentRange(0, asked.message.cut, 2)
        coding = "" if asked.message.coding == "raw" else asked.message.coding
        typical = self.session.scheduler.latency.typical(WorkKey(CONTRACT, tail, coding), asked.message.rows)
        assert self.now + typical > asked.due, "a request is called late that could be in time"

    def judge(
        self, action: Action, event: Event, ended: Run | None, good: AbstractSet[bytes], refused: Refusal | None
    ) -> None:
        match action:
            case Run():
                self.launched(action)
            case Abort():
                assert action.run in self.runs, "a run is aborted that is not out"
                wanted = any(self.asked_by(row).open for row in self.runs[action.run].rows)
                assert not wanted or isinstance(event, Received), "a run is aborted that is wanted"
                self.aborted.add(action.run)
            case WakeAt():
                assert action.at_ns >= self.now
                self.wake_at = action.at_ns
            case Send(message=Welcome()):
                self.welcomed(action.link, event)
            case Send(message=Reply() as reply):
                self.answered(self.owed(action, reply), reply, action, good)
            case Send(message=Refusal() as refusal):
                if refusal is not refused and refusal.sequence != ODD:
                    self.owed(action, refusal).state = "over"
            case _:
                pass

    def launched(self, run: Run) -> None:
        assert run.run not in self.runs
        assert all(other.executor != run.executor for other in self.runs.values()), "two runs on one executor"
        self.runs[run.run] = run
        for row in run.rows:
            asked = self.asked_by(row)
            assert asked.state == "open", f"a run for a request that is {asked.state}"
            assert (asked.identity, run.range.first) not in self.executed, "a request runs twice"
            assert (run.range.first, row.rows) == (asked.at, asked.message.rows)
            met = any(other.state == "open" and other.at == run.range.last for other in self.asked.values())
            assert run.range.last == LAST or met or asked.message.priority > 0, "a first part is run for nobody's sake"
            self.executed.add((asked.identity, run.range.first))
            asked.state = "running"

    def answered(self, asked: Asked, reply: Reply, send: Send, good: AbstractSet[bytes]) -> None:
        assert asked.frame in good, "an answer of a row that has none"
        message = asked.message
        told = (reply.contract, reply.cut, reply.coding, reply.rows)
        assert told == (message.contract, message.cut, message.coding, message.rows)
        array = np.asarray(send.frames[0])
        assert array.shape == Y.at(reply.rows)
        assert np.all(array == self.number_of(asked.frame)), "another's answer"
        assert min(reply.stages.values()) >= 0
        asked.state = "over"

    def owed(self, send: Send, message: Reply | Refusal) -> Asked:
        """The one open request that this answers."""
        found = [a for a in self.asked.values() if a.open and a.link == send.link and names(message, a.message)]
        assert len(found) == 1, f"{message} answers {len(found)} open requests"
        return found[0]

    def welcomed(self, link: str, event: Event) -> None:
        assert isinstance(event, Received)
        assert isinstance(event.message, Hello)
        who = (event.message.peer, event.message.incarnation)
        for former in {w for w in self.known.values() if w[0] == who[0] and w != who}:
            self.forget(former)
        self.left = [w for w in self.left if w != who]
        self.known[link] = who
        self.heard[who] = self.now

    # --- what the model knows -----------------------------------------------------------------------------------------

    def asked_by(self, row: Row) -> Asked:
        """The request that a row of a run works for."""
        given = row.inputs[0]
        if not isinstance(given, np.ndarray):
            return self.asked[bytes(given)]
        number = int(given.flat[0])
        return next(asked for frame, asked in self.asked.items() if self.number_of(frame) == number)

    def number_of(self, frame: bytes) -> int:
        """The number in the frame of a known request."""
        if self.asked[frame].message.coding == "raw":
            return int(np.frombuffer(frame, np.float32)[0])
        return int.from_bytes(frame[:8], "little")

    def is_open(self, identity: Identity) -> bool:
        return any(a.identity == identity and a.open for a in self.asked.values())

    def open_of(self, who: Who) -> list[Asked]:
        return [a for a in self.asked.values() if a.identity[:2] == who and a.open]

    def forget(self, gone: Who) -> None:
        """This incarnation of a peer is gone: nothing is owed to it. What it had asked is remembered, of twice as many peers
        as there may be."""
        self.left = [who for who in self.left if who != gone] + [gone]
        if len(self.left) > 2 * self.limit:
            forgotten = self.left.pop(0)
            self.executed = {ran for ran in self.executed if ran[0][:2] != forgotten}
        self.known = {link: who for link, who in self.known.items() if who != gone}
        for asked in self.open_of(gone):
            asked.state = "over"

    def forget_silent(self) -> None:
        """Who was silent for long and has nothing here may be forgotten by the session at any time."""
        for link, who in list(self.known.items()):
            if self.session.peers.of_link(link) is None and self.now - self.heard[who] > SILENT_NS:
                assert not self.open_of(who)
                self.forget(who)

    def validate(self) -> None:
        """What always holds: credit is what is open, nothing is open of a peer that is gone, what waits has a timer."""
        out = 0
        for who in set(self.known.values()):
            owed = len(self.open_of(who))
            assert self.session.peers.credits.out(f"{who[0]}:{who[1]}") == owed, "credit and open requests differ"
            out += owed
        assert sum(asked.open for asked in self.asked.values()) == out, "a request of a peer that is gone is open"
        if self.session.scheduler.queued:
            assert self.wake_at is not None
            assert self.wake_at >= self.now
