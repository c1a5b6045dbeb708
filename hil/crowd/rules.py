"""The bounds of a crowd: no node is offered more than it lends, and the load does not swing once it has settled."""

from __future__ import annotations

import math

import msgspec

from hil.crowd.play import WINDOW_NS, Crowd, Outcome, Seen

OFFERED = 1.2
"""Most requests that may be out at a node, in parts of its credit."""

SETTLES_S = 2.0
"""How long after the beginning, the death and the return the load may swing."""

SWING = 0.5
"""Most by which what a node is sent may differ from its mean once it has settled, in parts of an even share of all that the
nodes are sent."""

TOGETHER_S = 0.25
"""Swings are judged by sums over at least this time: over whole periods of the edges, so that their own rhythm is none."""

ON_TIME = 0.99
AWAY = "while one is away"


class Judged(msgspec.Struct, frozen=True):
    """What a crowd came to. `offered` is the most that any node had out, in parts of its credit; `swing` the most by which
    what a settled node was sent differed from its mean, in parts of an even share; `faults` what is over a bound."""

    offered: float
    swing: float
    on_time: float
    cloud: float
    served: float
    faults: tuple[str, ...]


def judge(outcome: Outcome) -> Judged:
    """Hold what was seen against the bounds."""
    crowd = outcome.crowd
    faults: list[str] = []
    offered = 0.0
    swing = 0.0
    for seen in outcome.nodes:
        most = max(seen.most_out, default=0) / crowd.credits
        offered = max(offered, most)
        if most > OFFERED:
            faults.append(f"{seen.node} was offered {most:.2f} times its credit; the bound is {OFFERED:g}")
        for name, first_s, last_s in settled(crowd, dies=seen is outcome.nodes[0]):
            live = crowd.nodes - (name == AWAY)
            differs = _swing(seen, crowd, first_s, last_s) * live / _all(outcome, crowd, first_s, last_s)
            swing = max(swing, differs)
            if differs > SWING:
                faults.append(
                    f"{seen.node} swings by {100 * differs:.0f} % of an even share {name}, "
                    f"from {first_s:g} to {last_s:g} s; "
                    f"the bound is {100 * SWING:.0f} %"
                )
    on_time = outcome.on_time / outcome.requests
    if on_time < ON_TIME:
        faults.append(f"{100 * on_time:.2f} % of the requests were answered in time; the bound is {100 * ON_TIME:g} %")
    return Judged(
        offered, swing, on_time, outcome.cloud / outcome.requests, outcome.served / crowd.edges, tuple(faults)
    )


def settled(crowd: Crowd, *, dies: bool) -> tuple[tuple[str, float, float], ...]:
    """The stretches, in seconds, in which nothing should swing; those of the node that dies leave out its absence."""
    stretches = (
        ("at first", SETTLES_S, crowd.dies_s),
        (AWAY, crowd.dies_s + SETTLES_S, crowd.returns_s),
        ("after its return", crowd.returns_s + SETTLES_S, crowd.seconds),
    )
    return tuple(s for s in stretches if s[1] < s[2] and not (dies and s[0] == AWAY))


def _sums(seen: Seen, crowd: Crowd, first_s: float, last_s: float) -> list[int]:
    """What was sent in each stretch of whole periods."""
    periods = math.ceil(TOGETHER_S * crowd.hz)
    many = max(1, round(periods / crowd.hz * 1e9 / WINDOW_NS))
    windows = seen.sent[int(first_s * 1e9) // WINDOW_NS : int(last_s * 1e9) // WINDOW_NS]
    return [sum(windows[i : i + many]) for i in range(0, len(windows) - many + 1, many)]


def _swing(seen: Seen, crowd: Crowd, first_s: float, last_s: float) -> float:
    """The most by which a stretch differs from the mean of all."""
    sums = _sums(seen, crowd, first_s, last_s)
    mean = sum(sums) / len(sums) if sums else 0.0
    return max((abs(s - mean) for s in sums), default=0.0)


def _all(outcome: Outcome, crowd: Crowd, first_s: float, last_s: float) -> float:
    """What all nodes were sent in a stretch in the mean."""
    many = [_sums(seen, crowd, first_s, last_s) for seen in outcome.nodes]
    return max(1.0, sum(sum(sums) for sums in many) / max(1, len(many[0])))
