"""The one place where the checks reach into the private parts of the machines: everything else asks here.

The checks keep books of their own and hold them against the machines', so that they must see what a machine's public names
do not show. That is gathered here, so that a machine that changes inside changes one file of the checks. Nothing is changed
by looking, with one exception: `spy_on` puts a `Spy` between a client or an agent and its broker, which hands everything on
as it is and tells what it saw. Without it the broker's own outcomes could not be told from those of its owner.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cloud.kept import Identity
from cloud.seen import BITS, Seen
from cloud.session import Session
from edge.broker import Broker
from edge.direct import Direct
from edge.due import DueTimes
from edge.front import Front
from edge.nodes import Node
from edge.open_request import Open
from edge.outcomes import AskedOf
from edge.owed import Entry, Owed
from edge.paths import Path
from edge.register import Register
from edge.stub import Stub
from shared.errors import InvariantBroken
from shared.events import Action, Event
from shared.memory import Arena, PoolKey
from shared.offset import DRIFT_PPM, OffsetInterval
from shared.plan import Plan
from shared.ports import Machine
from shared.queue import DeadlineQueue, Job
from shared.scheduler import Scheduler
from shared.settings import CloudSettings, EdgeSettings

Told = Callable[[Event, Sequence[Action], int], None]
"""What a spy calls after each step: the event, the actions, and the local time."""


class Spy:
    """A machine that is another, and tells of each of its steps."""

    def __init__(self, machine: Machine, told: Told) -> None:
        self.machine = machine
        self._handle = machine.handle
        self._told = told

    def handle(self, event: Event, now: int) -> list[Action]:
        """What the machine says."""
        actions = self._handle(event, now)
        self._told(event, actions, now)
        return actions


def spy_on(owner: Front | Direct, told: Told) -> Broker:
    """From now on `told` hears of each step of the owner's broker, which is returned."""
    broker = owner._broker
    if not isinstance(broker, Broker):
        raise InvariantBroken(f"the checks know brokers, and no {type(broker).__name__}")
    owner._broker = Spy(broker, told)
    return broker


def owed(client: Stub | Direct) -> Owed[Entry] | Owed[AskedOf]:
    """A client's own books."""
    return client._outcomes.owed if isinstance(client, Stub) else client.owed


def most_open(books: Owed[Entry] | Owed[AskedOf]) -> int:
    """How many requests a client may hold open."""
    return books._max_open


def greetings(client: Stub) -> list[int]:
    """When the client greets agents that are not there or do not answer."""
    return [agent.greet_ns for agent in client._outcomes._agents._agents if agent.greet_ns is not None]


def most_due(due: DueTimes) -> int:
    """How many times may be kept."""
    return due._limit


def register(broker: Broker) -> Register:
    """The broker's open requests."""
    return broker._open


def opened(broker: Broker, client: str, sequence: int) -> Open | None:
    """The broker's own entry of an open request."""
    return broker._open.of(client, sequence)


def edge_settings(broker: Broker) -> EdgeSettings:
    """An edge's settings."""
    return broker._settings


def edge_plans(broker: Broker) -> Mapping[str, Plan]:
    """An edge's plans, by contract digest."""
    return broker._plans


def peer_of(broker: Broker) -> tuple[str, int]:
    """How an edge calls itself to nodes: name and incarnation."""
    return broker._settings.agent.name, broker._incarnation


def edge_nodes(broker: Broker) -> Mapping[str, Node]:
    """The nodes as the edge sees them."""
    return broker.nodes.by_name


def ejected(broker: Broker, node: str, now: int) -> bool:
    """Whether an edge means to leave a node alone."""
    record = broker.nodes.outliers._records.get(node)
    return record is not None and now < record.until


def paths_of(broker: Broker, node: str) -> Sequence[Path]:
    """The paths to a node, as the edge sees them; none where it does not know the node."""
    found = broker.nodes.by_name.get(node)
    return found.paths if found is not None else ()


def path_of(broker: Broker, link: str) -> Path:
    """The path that one of an edge's connections belongs to, as the edge sees it."""
    return broker.nodes._by_link[link]


def job_owner(broker: Broker, job: int) -> tuple[int, int]:
    """Number of the open request and of the attempt (0: the rung) that a job works for; zeros where nobody wants it."""
    return broker._work.owner(job)


def job_owners(broker: Broker) -> int:
    """How many jobs the broker knows owners of."""
    return len(broker._work._owners)


def kept_by(client: Stub | Direct) -> int:
    """How many requests a client keeps to hand over."""
    return len(client._requests if isinstance(client, Stub) else client._padded)


def asked_of(front: Front) -> int:
    """How many requests of its clients an agent knows as open."""
    return sum(len(session.requests) for session in front._sessions.values())


def most_streams(scheduler: Scheduler) -> int:
    """How many streams may be announced."""
    return scheduler.streams._limit


def most_clients(front: Front) -> int:
    """How many clients may be attached to an agent."""
    return front._max_clients


def session_settings(session: Session) -> CloudSettings:
    """A node's settings."""
    return session._settings


def session_plans(session: Session) -> Mapping[str, Plan]:
    """A node's plans, by contract digest."""
    return session._plans


def job_of(session: Session, identity: Identity) -> int | None:
    """The job of a request that was let in."""
    return session._by_identity.get(identity)


def admitted(session: Session) -> Mapping[Identity, int]:
    """Everything that was let in and is not over."""
    return session._by_identity


def granted(session: Session) -> Mapping[str, int]:
    """Credits by account."""
    return session.peers.credits._granted


def out_of(session: Session) -> Mapping[str, int]:
    """Credits in use by account."""
    return session.peers.credits._out


def capacity(session: Session) -> int:
    """Credits in all."""
    return session.peers.credits._capacity


def peers_known(session: Session) -> int:
    """How many peers a node knows."""
    return len(session.peers._by_name)


def remembered(session: Session) -> list[tuple[int, int]]:
    """How many attempts are remembered of each peer, gone or not, and how many may be."""
    peers = session.peers
    left = (Seen.of(peers._remember, kept) for kept in peers._left.values())
    seen = [*(p.attempts for p in peers.all()), *left]
    return [
        (
            sum(word.bit_count() for words in s._words.values() for word in words.values()),
            s._limit + BITS * max(1, len(s._words)),
        )
        for s in seen
    ]


def kept_answers(session: Session) -> int:
    """How many answers are kept for copies that may come."""
    return len(session._kept.replies)


def peers_left(session: Session) -> int:
    """Of how many peers that have left attempts are remembered."""
    return len(session.peers._left)


def queue(scheduler: Scheduler) -> DeadlineQueue:
    """What waits."""
    return scheduler._queue


def promised(scheduler: Scheduler) -> Mapping[int, Job]:
    """What waits and is promised, by job."""
    return scheduler._queue.promised


def waiting(scheduler: Scheduler) -> Mapping[int, Job]:
    """What waits, by job."""
    return scheduler._queue.jobs


def launched_jobs(scheduler: Scheduler, run: int) -> tuple[Job, ...]:
    """The jobs of a run that is out; none where it is not."""
    launch = scheduler._running._launches.get(run)
    return () if launch is None else launch.jobs


def most_waiting(scheduler: Scheduler) -> int:
    """How much may wait."""
    return scheduler._queue._limit


def arena(scheduler: Scheduler) -> Arena:
    """The slots."""
    return scheduler.arena


def slots(arena_: Arena, key: PoolKey) -> int:
    """How many slots a pool has; 0 where there is none such."""
    pool = arena_._pools.get(key)
    return 0 if pool is None else len(pool.held)


def generation(arena_: Arena, key: PoolKey, slot: int) -> int:
    """How often a slot was freed."""
    return arena_._pools[key].generations[slot]


def bounds(interval: OffsetInterval, now: int) -> tuple[int | None, int | None]:
    """What `OffsetInterval.bounds` would say, without ageing it."""
    widening = -(-max(0, now - interval._at) * DRIFT_PPM // 1_000_000)
    low, high = interval._low, interval._high
    return (None if low is None else low - widening), (None if high is None else high + widening)
