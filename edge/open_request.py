"""What the broker remembers of a request while it is open. Data with names, no decisions."""

from __future__ import annotations

from enum import Enum

import msgspec

from edge.balance import Candidate
from edge.nodes import Node
from edge.paths import Path
from shared.plan import Plan, Route, Rung
from shared.request import Answer, Array, Buffer, Request, Stage


class Work(Enum):
    """How far the local work of a request is."""

    NONE = "none"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


QUEUED, RUNNING, DONE, FAILED = Work.QUEUED, Work.RUNNING, Work.DONE, Work.FAILED
"""The same by names of their own: to look one up in its class takes a tenth of a microsecond."""

WAITING = (QUEUED, RUNNING)


class Attempt(msgspec.Struct, eq=False):
    """One try at an answer from the cloud. `alive` until it is answered, refused, lost or no longer wanted.

    `way` is what was predicted of it, `paths` those on which copies of it were sent, `path` first. `exploring`: it was
    predicted too late and is only tried, to learn: it is not cancelled. `awaited`: an answer is held for it; not while its
    node is stalled. `copy_ns` is when a further copy is to be sent, `head` when the work before sending began and ended, and
    what of it was coding; zeros where there is none."""

    number: int
    way: Candidate
    node: Node
    path: Path
    route: Route
    route_index: int
    exploring: bool
    awaited: bool
    alive: bool = True
    job: int = 0
    sent_ns: int = 0
    copy_ns: int = 0
    head: tuple[int, int, int] = (0, 0, 0)
    paths: list[Path] = []


class Open(msgspec.Struct, eq=False):
    """An open request: its timers, its local work, its attempts, and the best answer so far.

    `planned_ns` is when a rung that was put off is to be done at the latest; 0 where it was not. `revoked`: its promise was.
    `ran` is when the rung began and ended, `encoded` what is ready to be sent, by the route's index."""

    id: int
    request: Request
    plan: Plan
    arrived_ns: int
    resolve_by: int
    hold_until: int
    rung: Rung | None = None
    rung_job: int = 0
    rung_work: Work = Work.NONE
    planned_ns: int = 0
    revoked: bool = False
    ran: tuple[int, int] = (0, 0)
    attempts: list[Attempt] = []
    encoded: dict[int, tuple[Array | Buffer, ...]] = {}
    held: Answer | None = None
    trouble: str = ""

    def attempt(self, number: int) -> Attempt | None:
        """The attempt of this number."""
        return self.attempts[number - 1] if 0 < number <= len(self.attempts) else None

    @property
    def waiting_rung(self) -> bool:
        """Whether the device may still give an answer."""
        return self.rung_work in WAITING

    def best_to_come(self) -> float:
        """The best agreement that is worth waiting for; negative where nothing may come."""
        best = self.rung.agreement if self.rung is not None and self.rung_work in WAITING else -1.0
        for attempt in self.attempts:
            if attempt.alive and attempt.awaited and attempt.route.agreement > best:
                best = attempt.route.agreement
        return best

    def cloud_hoped(self) -> bool:
        """Whether somebody waits for the cloud."""
        return bool(self.attempts) and any(a.alive and a.awaited for a in self.attempts)

    def hopeless(self) -> bool:
        """Whether nothing is under way that could still answer."""
        return self.rung_work not in WAITING and not any(a.alive for a in self.attempts)

    def stage_at_fault(self) -> Stage:
        """What ate the budget of a request that has no answer."""
        sent = any(a.sent_ns for a in self.attempts)
        if self.rung_work is RUNNING or (self.rung_work is FAILED and not sent):
            return "rung"
        if self.rung_work is not QUEUED and sent:
            return "uplink"
        return "edge_queue"
