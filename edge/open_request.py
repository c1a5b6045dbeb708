"""What the broker remembers of a request while it is open. Data with names, no decisions."""

from __future__ import annotations

from enum import Enum

from edge.balance import Candidate
from edge.paths import Path
from shared.plan import Plan, Rung
from shared.request import Answer, Array, Buffer, Request, Stage


class Work(Enum):
    """How far the local work of a request is."""

    NONE = "none"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_WAITING = (Work.QUEUED, Work.RUNNING)


class Attempt:
    """One try at an answer from the cloud. `alive` until it is answered, refused, lost or no longer wanted."""

    __slots__ = (
        "alive",
        "awaited",
        "copy_ns",
        "exploring",
        "head",
        "job",
        "node",
        "number",
        "path",
        "paths",
        "route",
        "route_index",
        "sent_ns",
        "way",
    )

    def __init__(self, number: int, way: Candidate, *, exploring: bool) -> None:
        self.number = number
        self.node = way.node
        self.path = way.path
        self.paths: list[Path] = []
        """The paths on which copies of it were sent, `path` first."""
        self.copy_ns = 0
        """When a further copy is to be sent; 0 where none is."""
        self.route = way.route
        self.route_index = way.index
        self.way = way
        """What was predicted of it."""
        self.exploring = exploring
        """Whether it was predicted too late and is only tried, to learn: it is not cancelled."""
        self.awaited = not exploring
        """Whether an answer is held for it. Not while its node is stalled."""
        self.alive = True
        self.job = 0
        self.head: tuple[int, int, int] = (0, 0, 0)
        """When the work before sending began and ended, and what of it was coding; zeros where there was none."""
        self.sent_ns = 0


class Open:
    """An open request: its timers, its local work, its attempts, and the best answer so far."""

    __slots__ = (
        "arrived_ns",
        "attempts",
        "encoded",
        "held",
        "hold_until",
        "id",
        "plan",
        "planned_ns",
        "ran",
        "request",
        "resolve_by",
        "revoked",
        "rung",
        "rung_job",
        "rung_work",
        "trouble",
    )

    def __init__(self, number: int, request: Request, plan: Plan, arrived_ns: int) -> None:
        self.id = number
        self.request = request
        self.plan = plan
        self.arrived_ns = arrived_ns
        self.resolve_by = 0
        self.hold_until = 0
        self.rung: Rung | None = None
        self.rung_job = 0
        self.rung_work = Work.NONE
        self.planned_ns = 0
        """When a rung that was put off is to be done at the latest; 0 where it was not."""
        self.revoked = False
        """Whether its promise was revoked."""
        self.ran: tuple[int, int] = (0, 0)
        """When the rung began and ended."""
        self.attempts: list[Attempt] = []
        self.encoded: dict[int, tuple[Array | Buffer, ...]] = {}
        """What is ready to be sent, by the route's index."""
        self.held: Answer | None = None
        self.trouble = ""

    def attempt(self, number: int) -> Attempt | None:
        """The attempt of this number."""
        return self.attempts[number - 1] if 0 < number <= len(self.attempts) else None

    @property
    def waiting_rung(self) -> bool:
        """Whether the device may still give an answer."""
        return self.rung_work in _WAITING

    def best_to_come(self) -> float:
        """The best agreement that is worth waiting for; negative where nothing may come."""
        best = self.rung.agreement if self.rung is not None and self.waiting_rung else -1.0
        for attempt in self.attempts:
            if attempt.alive and attempt.awaited and attempt.route.agreement > best:
                best = attempt.route.agreement
        return best

    def cloud_hoped(self) -> bool:
        """Whether somebody waits for the cloud."""
        return any(a.alive and a.awaited for a in self.attempts)

    def hopeless(self) -> bool:
        """Whether nothing is under way that could still answer."""
        return not self.waiting_rung and not any(a.alive for a in self.attempts)

    def stage_at_fault(self) -> Stage:
        """What ate the budget of a request that has no answer."""
        sent = any(a.sent_ns for a in self.attempts)
        if self.rung_work is Work.RUNNING or (self.rung_work is Work.FAILED and not sent):
            return "rung"
        if self.rung_work is not Work.QUEUED and sent:
            return "uplink"
        return "edge_queue"
