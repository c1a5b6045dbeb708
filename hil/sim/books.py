"""What the checks remember: a book for each process, kept from its events and actions alone.

A machine's own bookkeeping may be what is wrong, so that it cannot vouch for itself: what was asked, sent, launched, leased
and lent is written down here a second time, from what went in and came out. Where something cannot be known from outside
(whose job a row is, what is promised), the machine is asked (`hil.sim.books_inside`), and what it says is held against
the book.

A book has no opinion. `*_ns` is local time of the process.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop

from cloud.kept import Identity
from cloud.session import Session
from edge.broker import Broker
from edge.front import Front
from edge.outcomes import AskedOf
from edge.owed import Entry, Owed
from edge.paths import ways_of
from hil.sim import books_inside as inside
from hil.sim.watch import Seen
from shared.events import Run
from shared.latency import WorkKey
from shared.memory import PoolKey
from shared.plan import Coding
from shared.queue import Job
from shared.request import Answer, Array, Buffer, Outcome, Request
from shared.running import OVERDUE, OVERDUE_LEAST_NS
from shared.scheduler import Scheduler
from shared.wire.messages import Infer

MS = 1_000_000
Key = tuple[str, int]
"""A client's name to its agent, and a sequence."""


def ms(ns: int) -> str:
    """Nanoseconds as milliseconds, for a story."""
    return f"{ns / MS:.3f} ms"


class Book:
    """What every book has: its timer as it was asked for, and when the process last did something."""

    def __init__(self, host: Seen) -> None:
        self.host = host
        self.wake_ns: int | None = None
        """When the process is to be woken, as it last asked; None where it has not since it was last woken."""
        self.wake_before_ns: int | None = None
        """What that was before this step."""
        self.before_ns = 0
        """When it took the step before this one."""
        self.step = 0

    @property
    def name(self) -> str:
        """Which process it is, or which part of it, for a story."""
        return f"{self.host.name}#{self.host.incarnation}"


class Asked:
    """A request that a client has taken and not answered."""

    __slots__ = ("asked_ns", "contracts", "request")

    def __init__(self, request: Request, asked_ns: int) -> None:
        self.request = request
        self.asked_ns = asked_ns
        self.contracts: tuple[str, ...] = ()
        """What its agents were asked for; empty where there is no agent but its own."""


class ClientBook(Book):
    """What a client's application asked and got."""

    def __init__(self, host: Seen, owed: Owed[Entry] | Owed[AskedOf]) -> None:
        super().__init__(host)
        self.owed = owed
        self.edge: EdgeBook | None = None
        """The book of the broker that it carries."""
        self.open: dict[int, Asked] = {}
        self.due: list[tuple[int, int]] = []
        """Deadline and sequence of what is open, and of some that are over: a heap."""
        self.closing: Asked | None = None
        """The request that the outcome in hand ends; None where it ends none that is open."""
        self.delivered: dict[int, Outcome] = {}
        """Outcomes that the machine gave and the application has not got yet."""
        self.waiting: dict[int, Request] = {}
        """What the application has asked and the machine has not got yet."""
        self.asked = 0
        self.ended: Counter[str] = Counter()
        self.withdrawn = 0

    def soonest(self) -> int | None:
        """The next deadline of what is open."""
        due, open_ = self.due, self.open
        while due:
            if due[0][1] in open_:
                return due[0][0]
            heappop(due)
        return None


class OutRun:
    """A run that is out on an executor."""

    __slots__ = ("aborted", "begun", "due_ns", "key", "launched_ns", "overdue_ns", "pool", "rows", "run", "typical_ns")

    def __init__(self, run: Run, key: WorkKey, launched_ns: int, typical_ns: int, longest_ns: int) -> None:
        self.run = run
        self.key = key
        self.rows = sum([row.rows for row in run.rows])
        self.launched_ns = launched_ns
        self.typical_ns = launched_ns + typical_ns
        self.due_ns = launched_ns + longest_ns
        """When it is over in the worst case that is planned for."""
        self.overdue_ns = launched_ns + max(OVERDUE * longest_ns, longest_ns + OVERDUE_LEAST_NS)
        """From when on nobody can tell when it will be over."""
        self.pool = None if run.range.empty else PoolKey(run.contract, run.range.program, run.range.first)
        self.aborted = False
        self.begun = False


class WorkBook(Book):
    """What is out on a process's executors, and which slots that takes."""

    def __init__(self, host: Seen, scheduler: Scheduler) -> None:
        super().__init__(host)
        self.scheduler = scheduler
        self.out: dict[int, OutRun] = {}
        self.busy: Counter[int] = Counter()
        """Runs that are out, by executor."""
        self.jobs: dict[int, int] = {}
        """Runs that are out, by job."""
        self.slots: dict[tuple[PoolKey, int], int] = {}
        """Runs that are out, by slot."""
        self.freed: Counter[tuple[PoolKey, int]] = Counter()
        self.last_run = 0
        self.launched: OutRun | None = None
        """The run in hand."""
        self.ended: OutRun | None = None
        """The run that the event in hand ended; None where that is none that was out."""
        self.changed = False
        """Whether a run began or ended in this step."""
        self.slow_ns = -1
        """When an overrun was last seen: a run that took longer than the worst case, or that was handled later."""


class Attempt:
    """A request that an edge has sent to a node and that is not answered. `copy`: another copy of it was out there
    already."""

    __slots__ = ("copy", "infer", "key", "sent_ns", "step", "typical_ns")

    def __init__(self, infer: Infer, key: Key, sent_ns: int, typical_ns: int, step: int, *, copy: bool) -> None:
        self.copy = copy
        self.infer = infer
        self.key = key
        self.sent_ns = sent_ns
        self.typical_ns = typical_ns
        self.step = step


class PathView:
    """A path to a node, as an edge can know it from what it got and sent."""

    def __init__(self, node: NodeView) -> None:
        self.node = node
        self.linked = False
        self.welcomed = False
        self.greeted = False
        """Whether the node ever answered a greeting on it."""
        self.greeted_by = 0
        """The incarnation of the node that did so last."""
        self.out: dict[tuple[int, int], Attempt] = {}
        """Copies that were sent on it and not answered on it."""
        self.moved_step = -1
        """In which step its data connection last carried something."""
        self.seen = False
        """Whether anything ever came back on it that was sent at a known time."""
        self.probes = 0
        """Probes that were sent and not answered, in a row."""
        self.lost = False
        """Whether it was lost after it had been greeted, and has not been greeted again."""
        self.return_ns = 0
        """The earliest time at which it may be used again."""

    def lose(self) -> None:
        """What is out on it will not come, and nothing may be sent until the node has greeted on it again."""
        for key in list(self.out):
            self.drop(key)
        self.welcomed = False
        self.lost = self.lost or self.greeted

    def forget(self) -> None:
        """The edge has left the node: what comes next is a node that it never knew."""
        self.lose()
        self.linked = self.greeted = self.lost = False
        self.return_ns = self.probes = self.greeted_by = 0
        node = self.node
        node.incarnation, node.contracts, node.credits, node.draining = 0, (), 0, False

    def drop(self, key: tuple[int, int]) -> None:
        """A copy will not be answered here; where it was the last, nor is its attempt."""
        self.out.pop(key, None)
        if not any(key in path.out for path in self.node.paths):
            self.node.out.pop(key, None)


class NodeView:
    """A node, as an edge can know it from what it got and sent."""

    def __init__(self, name: str, paths: int) -> None:
        self.name = name
        self.listed = True
        """Whether it is in the directory."""
        self.incarnation = 0
        self.draining = False
        """Whether this incarnation has said that it is about to leave."""
        self.contracts: tuple[str, ...] = ()
        self.credits = 0
        self.out: dict[tuple[int, int], Attempt] = {}
        """Attempts that are answered on no path yet: each holds a credit."""
        self.asked: deque[tuple[int, int]] = deque(maxlen=256)
        """Attempts that it was asked of late, each copy by itself."""
        self.paths = [PathView(self) for _ in range(paths)]


def link_parts(link: str) -> tuple[str, str, int]:
    """Of an edge's connection to a node: the node, what it carries, the path."""
    node, _, rest = link.rpartition("/")
    kind, _, number = rest.partition(".")
    return node, kind, int(number or 0)


class EdgeRequest:
    """A request that is open at a broker."""

    __slots__ = (
        "arrived_ns",
        "broken_run",
        "displaced",
        "heads",
        "held",
        "number",
        "promised_ns",
        "request",
        "resolve_by",
    )

    def __init__(self, request: Request, arrived_ns: int, resolve_by: int, number: int) -> None:
        self.request = request
        self.arrived_ns = arrived_ns
        self.resolve_by = resolve_by
        self.number = number
        """What the broker calls it; 0 where it was over before the step's end."""
        self.held: Answer | None = None
        self.promised_ns: int | None = None
        """Since when its answer is promised."""
        self.broken_run = False
        """Whether a run for it came to nothing."""
        self.displaced = False
        """Whether a more important promise has taken the place of its own."""
        self.heads: list[tuple[Array | Buffer, ...]] = []
        """What the work before sending gave for it."""


class Promised:
    """A promised job that waits: whose it is, since when, and its time in the worst case when last looked at."""

    __slots__ = ("job", "key", "longest_ns", "since_ns")

    def __init__(self, job: Job, key: Key, longest_ns: int, since_ns: int) -> None:
        self.job = job
        self.key = key
        self.longest_ns = longest_ns
        self.since_ns = since_ns


class EdgeBook(WorkBook):
    """What a broker was asked, what it sent, what it gave."""

    def __init__(self, host: Seen, broker: Broker, front: Front | None) -> None:
        super().__init__(host, broker.scheduler)
        self.front = front
        settings = inside.edge_settings(broker)
        self.broker = broker
        self.plans = inside.edge_plans(broker)
        self.peer, self.incarnation = inside.peer_of(broker)
        self.guard_ns = int(settings.insurance.guard_ms * MS)
        self.stall_ns = int(settings.link.stall_ms * MS)
        self.probe_losses = settings.link.probe_losses
        self.pause_ns = int(settings.link.return_pause_ms[0] * MS)
        self.most_outstanding = settings.link.max_outstanding
        self.open: dict[Key, EdgeRequest] = {}
        self.numbers: dict[int, Key] = {}
        self.due: list[tuple[int, Key]] = []
        self.nodes = {node.name: NodeView(node.name, len(ways_of(node))) for node in settings.nodes}
        self.epoch = settings.fleet.epoch
        """Of the directory that counts."""
        self.closing: EdgeRequest | None = None
        """The request that the outcome or withdrawal in hand ends."""
        self.twice: Key | None = None
        """The request that came in this step although it is open."""
        self.replied: tuple[NodeView, Attempt] | None = None
        """The attempt that the event in hand answered."""
        self.sending: tuple[PathView, Attempt] | None = None
        """The attempt in hand."""
        self.work_of: dict[int, tuple[Key, int]] = {}
        """Whose request and which attempt (0: the rung) the jobs that are out work for."""
        self.promised: dict[int, Promised] = {}
        """Promised jobs that wait."""
        self.streams: dict[tuple[str, int], int] = {}
        """Classes of the streams that are announced, by client and number."""
        self.put_off = False
        """Whether promised work was ever put off."""

    @property
    def name(self) -> str:
        """Which process it is, for a story; of one that has a client as well, its broker."""
        return super().name if self.front is not None else f"{super().name}'s broker"

    def soonest(self) -> int | None:
        """When the next open request is to be over."""
        due, open_ = self.due, self.open
        while due:
            if due[0][1] in open_:
                return due[0][0]
            heappop(due)
        return None

    def open_by(self, number: int) -> EdgeRequest | None:
        """The open request that the broker calls so."""
        key = self.numbers.get(number)
        return None if key is None else self.open.get(key)


class LetIn:
    """A request that a node has let in."""

    __slots__ = (
        "account",
        "at",
        "coding",
        "deadline_ns",
        "frames",
        "identity",
        "job",
        "links",
        "message",
        "outputs",
        "owed",
        "received_ns",
    )

    def __init__(
        self,
        identity: Identity,
        link: str,
        message: Infer,
        frames: tuple[Buffer, ...],
        job: int,
        received_ns: int,
        deadline_ns: int,
    ) -> None:
        self.identity = identity
        self.account = (identity[0], identity[1])
        self.links = [link]
        """The connections that it came on."""
        self.owed: list[str] = []
        """Those on which the answer or refusal of this step is still to be sent."""
        self.outputs: tuple[Array | Buffer, ...] | None = None
        """What it was answered with."""
        self.message = message
        self.at = message.cut
        """The cut up to which it has run,"""
        self.frames: tuple[Array | Buffer, ...] = frames
        """what it has there,"""
        self.coding = message.coding
        """and in which coding."""
        self.job = job
        self.received_ns = received_ns
        self.deadline_ns = deadline_ns
        """On the node's clock, read kindly: no true deadline is later."""


class Greeted:
    """A connection on which an edge has greeted."""

    __slots__ = ("connection", "incarnation", "path", "peer")

    def __init__(self, peer: str, incarnation: int, connection: str, path: int) -> None:
        self.path = path
        self.peer = peer
        self.incarnation = incarnation
        self.connection = connection


class NodeBook(WorkBook):
    """Who greeted a node, what it let in, ran and answered."""

    def __init__(self, host: Seen, session: Session) -> None:
        super().__init__(host, session.scheduler)
        self.session = session
        self.plans = inside.session_plans(session)
        self.links: dict[str, Greeted] = {}
        self.open: dict[Identity, LetIn] = {}
        self.by_job: dict[int, LetIn] = {}
        self.executed: set[tuple[Identity, int]] = set()
        """Requests, each with a segment that ran for it."""
        self.accounts: Counter[tuple[str, int]] = Counter()
        """Requests that are here, by peer and incarnation."""
        self.arrived: Identity | None = None
        """The request that came in this step, while it is neither let in nor refused."""
        self.closing: LetIn | None = None
        """The request that the answer or refusal in hand ends."""
        self.ending: dict[Identity, LetIn] = {}
        """Requests that ended in this step."""
        self.answered: dict[Identity, LetIn] = {}
        """Requests that were answered, while their deadlines last."""
        self.draining = False
        """Whether it was told to leave."""
        self.again: LetIn | None = None
        """The answered request of which a copy came in this step on another connection."""

    def forget(self, account: tuple[str, int]) -> None:
        """Nothing of this incarnation of a peer is wanted any more."""
        for let_in in [r for r in self.open.values() if r.account == account]:
            self.over(let_in)
        for link in [link for link, g in self.links.items() if (g.peer, g.incarnation) == account]:
            del self.links[link]

    def over(self, let_in: LetIn) -> None:
        """This request has ended."""
        del self.open[let_in.identity]
        del self.by_job[let_in.job]
        self.accounts[let_in.account] -= 1
        if not self.accounts[let_in.account]:
            del self.accounts[let_in.account]


def coded(coding: Coding | None) -> str:
    """A coding as times are looked up by: raw is a copy, and not named."""
    return coding.name if coding is not None and coding.coded else ""


def work_key(run: Run) -> WorkKey:
    """What this run is timed by."""
    first = run.rows[0]
    return WorkKey(run.contract, run.range, coded(first.decode), coded(first.encode))
