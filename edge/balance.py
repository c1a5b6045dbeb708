"""Which way one request takes through the cloud, if any.

Candidates are the plan's routes times the nodes that are usable, each predicted end to end, with the chance that its answer
is back by when it must be. A way through the cloud is taken only where it is better than what the device will do anyway: more
agreement, or the same sooner. Where the device's answer is promised, no answer is risked, and what counts of a way is what it
can be expected to add: its chance times its gain in agreement. Work before sending may leave the device time for a cheaper
rung only: what is lost by that where the way is not in time is taken off. Where the device's answer is not promised, the
chance comes first. Among ways that are about as good in that, the highest agreement wins (where nothing is lost by trying it
also while it is much less likely), then the fewest bytes, then `shared.placement.LeastPredictedFinish`; and the way that was
taken last is kept where it is about as good in all of these, since each change of a way meets a colder connection.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from edge.nodes import Node
from edge.paths import Path
from shared.placement import LeastPredictedFinish, Offer
from shared.plan import Route

BACK_OFF = 4
"""How many times longer the pause between explorations of a path may become: a try costs bytes and disturbs the device."""

NEAR = 0.02
"""Ways whose worth differs by less than this share are as good as each other; the one that was taken last, by twice that."""

NEAR_INSURED = 0.2
"""The same where the device's answer is promised and is no worse for the way, of ways that agree as much."""

AGREES_MORE = 0.8
"""Where the device's answer is promised and no worse for it, the way that agrees most is taken if its worth is less than
that of the best by no more than this share: nothing is lost by trying it, an exact answer is worth more than what its
agreement adds, and low chances turn out too low (of ways told a chance of 0.1 to 0.4, three in five were in time on
generated links)."""

HEAVY = 0.5
"""A way of twice the bytes of another that agrees as much must be worth more than twice as much."""

FEWER = 0.9
"""Fewer bytes count from this share on."""

SOONER = 0.9
"""The way that was taken last is left for one that takes less than this share of its time."""

LIKELY = 0.5
"""A way that only gives the same sooner must be at least as likely as this to be in time."""


class Candidate(msgspec.Struct, frozen=True):
    """One way through the cloud: a route of the plan (by index) over a path to a node, and its prediction in nanoseconds.

    `chance` is the probability that the answer is back by when it must be. `typical_ns` is when it is typically back,
    `sure_ns` when it is back 95 times out of 100. `head_ns` is the part on the device before sending, `network_ns` the
    part on the network, its wait behind others and the start of TCP included, `node_ns` the part inside the node;
    `nbytes` is both directions together. `beside` is the agreement of the device's own answer where this way is taken.
    """

    route: Route
    index: int
    path: Path
    chance: float
    typical_ns: int
    sure_ns: int
    head_ns: int
    network_ns: int
    node_ns: int
    nbytes: int
    beside: float

    @property
    def node(self) -> Node:
        """The node that answers."""
        return self.path.node


class Insured(msgspec.Struct, frozen=True, gc=False):
    """What the device will do by itself: its agreement and typical finish. `promised` is whether the reserve holds it, and
    `displaces` the jobs of lesser classes whose promises have to be revoked for that."""

    agreement: float
    finish_ns: int
    promised: bool
    displaces: tuple[int, ...] = ()


NOT_INSURED = Insured(-1.0, 2**63 - 1, False)


class Usual(msgspec.Struct, frozen=True, gc=False):
    """The way that was taken last: a route by its index and the name of a path's data connection."""

    index: int
    link: str


class Considered(msgspec.Struct, frozen=True):
    """One choice among ways, for those who look on: for the request of this `number`, made at `now`, of an answer that must
    be back by `due_ns`. `found` is the way that was taken, None where it was the device alone; `exploring` whether it was
    taken only to learn. `least` is the least chance that a way must have. `yields_to` names the nodes that are pressed, from
    which the request steps back."""

    number: int
    now: int
    due_ns: int
    insured: Insured
    candidates: tuple[Candidate, ...]
    usual: Usual | None
    found: Candidate | None
    exploring: bool
    least: float
    yields_to: frozenset[str] = frozenset()


def no_less_likely(ways: Sequence[Candidate]) -> list[Candidate]:
    """Ways over one path, none less likely than another of as many bytes or more that is typically back no sooner. What was
    seen of each size is of its own time, so that a large exchange that nobody tried of late would else look better than the
    small ones that were tried while the link was at its worst."""
    likely = [max(o.chance for o in ways if o.nbytes >= w.nbytes and o.typical_ns >= w.typical_ns) for w in ways]
    return [w if w.chance == c else replace(w, chance=c) for w, c in zip(ways, likely, strict=True)]


def choose(
    candidates: Sequence[Candidate],
    insured: Insured,
    now: int,
    policy: LeastPredictedFinish,
    least: float,
    usual: Usual | None = None,
) -> Candidate | None:
    """The way to take, or None where the device alone is as good, or no way has a chance of `least` or more."""
    worth = [(w, c) for c in candidates if (w := worth_of(c, insured, least)) > 0.0]
    if not worth:
        return None
    if len(worth) == 1:
        return worth[0][1]
    # What takes the link for much longer for the same answer makes those that follow late.
    light = [(w, c) for w, c in worth if not any(_spares(o, c) and v >= HEAVY * w for v, o in worth)]
    worth = light or worth
    best = max(w for w, _ in worth)
    agreement = max(c.route.agreement for w, c in worth if w >= best * (1.0 - _near(c, insured, AGREES_MORE)))
    alike = [(w, c) for w, c in worth if c.route.agreement == agreement]
    best = max(w for w, _ in alike)
    near = [c for w, c in alike if w >= best * (1.0 - _near(c, insured, NEAR_INSURED))]
    fewest = min(c.nbytes for c in near) / FEWER
    at_node: dict[str, Candidate] = {}
    for way in near:
        if way.nbytes <= fewest:
            other = at_node.get(way.node.name)
            if other is None or way.typical_ns < other.typical_ns:
                at_node[way.node.name] = way
    offer = policy.pick([Offer(name, way.typical_ns) for name, way in at_node.items()])
    if offer is None:
        return None
    found = at_node[offer.place]
    if usual is None or (usual.index == found.index and usual.link == found.path.data):
        return found
    for w, kept in worth:
        if (
            kept.index == usual.index
            and kept.path.data == usual.link
            and w >= best * (1.0 - _near(kept, insured, NEAR_INSURED) - NEAR)
            and kept.route.agreement >= agreement
            and kept.nbytes <= fewest
            and found.typical_ns - now >= SOONER * (kept.typical_ns - now)
        ):
            return kept
    return found


def _near(way: Candidate, insured: Insured, where_free: float) -> float:
    """By which share a way may be worth less than the best: `where_free` where nothing is lost by trying it."""
    return where_free if insured.promised and way.beside >= insured.agreement else NEAR


def _spares(light: Candidate, heavy: Candidate) -> bool:
    """Whether a way gives as good an answer for half of the bytes, or fewer, and costs the device no better one."""
    as_good = light.route.agreement >= heavy.route.agreement and light.beside >= heavy.beside
    return as_good and 2 * light.nbytes <= heavy.nbytes


def worth_of(candidate: Candidate, insured: Insured, least: float) -> float:
    """What a way can be expected to add to what the device does; 0 where it is not worth a try."""
    chance = candidate.chance
    if chance < least:
        return 0.0
    if not insured.promised:
        return chance
    gain = candidate.route.agreement - insured.agreement
    loss = max(0.0, insured.agreement - candidate.beside)
    if gain > 0.0:
        return max(0.0, chance * gain - (1.0 - chance) * loss)
    if gain == loss == 0.0 and chance >= LIKELY and candidate.typical_ns < insured.finish_ns:
        return chance * 1e-9
    return 0.0


def explore(candidates: Sequence[Candidate], insured: Insured, now: int, interval_ns: int) -> Candidate | None:
    """A way that is predicted too late, to be tried all the same, or None. Only where the device's own answer is promised
    and would be bettered, and for each path not more often than once in `interval_ns`, which doubles with each try that led
    to nothing, up to `BACK_OFF` times. Ways that leave the device's answer as it is come before those that cost something."""
    if not insured.promised:
        return None
    due = [c for c in candidates if now >= c.path.explore_at and c.route.agreement > insured.agreement]
    due = [c for c in due if c.beside >= insured.agreement] or due
    first = soonest(due)
    if first is None:
        return None
    # Every second try is of the fewest bytes: where the rate has fallen, it may be in time where the soonest is not.
    picked = min(due, key=lambda c: (c.nbytes, c.typical_ns)) if first.path.explored % 2 else first
    picked.path.explore_at = now + interval_ns * min(2**picked.path.explored, BACK_OFF)
    picked.path.explored += 1
    return picked


def soonest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The candidate that is typically back first; None where there is none."""
    return min(candidates, key=lambda c: c.typical_ns, default=None)
