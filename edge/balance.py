"""Which way one request takes through the cloud, if any.

Candidates are the plan's routes times the nodes that are usable, each predicted end to end. The chance of being on time
comes first: among those that are surely on time (margin included) the highest agreement wins, and of the nodes that can
give it `shared.scheduler.LeastPredictedFinish` picks one; where none is sure, the way that is likely to be soonest is taken.
A way through the cloud
is taken only where it is better than what the device will do anyway: more agreement, or the same sooner.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edge.nodes import Node
from shared.plan import Route
from shared.scheduler import LeastPredictedFinish, Offer

BACK_OFF = 4
"""How many times longer the pause between explorations of a node may become: a try costs bytes and disturbs the device."""


class Candidate(msgspec.Struct, frozen=True):
    """One way through the cloud: a route of the plan (by index) at a node, and its prediction in nanoseconds.

    `typical_ns` is when the answer is typically back, `sure_ns` when it is back 97 times out of 100, `head_ns` the
    part on the device before sending, `node_ns` the part inside the node, `nbytes` both directions together.
    """

    route: Route
    index: int
    node: Node
    typical_ns: int
    sure_ns: int
    head_ns: int
    node_ns: int
    nbytes: int


class Insured(msgspec.Struct, frozen=True, gc=False):
    """What the device will do by itself: its agreement and typical finish. `promised` is whether the reserve holds it, and
    `displaces` the jobs of lesser classes whose promises have to be revoked for that."""

    agreement: float
    finish_ns: int
    promised: bool
    displaces: tuple[int, ...] = ()


NOT_INSURED = Insured(-1.0, 2**63 - 1, False)


def choose(
    candidates: Sequence[Candidate], insured: Insured, due_ns: int, policy: LeastPredictedFinish
) -> Candidate | None:
    """The way to take, or None where the device alone is as good. `due_ns` is when the answer must be back."""
    useful = [c for c in candidates if _betters(c, insured)]
    sure = [c for c in useful if c.sure_ns <= due_ns]
    if not sure:
        return soonest([c for c in useful if c.typical_ns <= due_ns])
    best = max(c.route.agreement for c in sure)
    at_node: dict[str, Candidate] = {}
    for way in sure:
        other = at_node.get(way.node.name)
        if way.route.agreement == best and (other is None or way.typical_ns < other.typical_ns):
            at_node[way.node.name] = way
    offer = policy.pick([Offer(name, way.typical_ns) for name, way in at_node.items()])
    return None if offer is None else at_node[offer.place]


def _betters(candidate: Candidate, insured: Insured) -> bool:
    if not insured.promised or candidate.route.agreement > insured.agreement:
        return True
    return candidate.route.agreement == insured.agreement and candidate.typical_ns < insured.finish_ns


def explore(candidates: Sequence[Candidate], insured: Insured, now: int, interval_ns: int) -> Candidate | None:
    """A way that is predicted too late, to be tried all the same, or None. Only where the device's own answer is promised
    and would be bettered, and for each node not more often than once in `interval_ns`, which doubles with each try that led
    to nothing, up to `BACK_OFF` times."""
    if not insured.promised:
        return None
    due = [c for c in candidates if now >= c.node.explore_at and c.route.agreement > insured.agreement]
    picked = soonest(due)
    if picked is not None:
        picked.node.explore_at = now + interval_ns * min(2**picked.node.explored, BACK_OFF)
        picked.node.explored += 1
    return picked


def soonest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The candidate that is typically back first; None where there is none."""
    return min(candidates, key=lambda c: c.typical_ns, default=None)
