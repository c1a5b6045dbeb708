"""The bounds of a crowd: no node is offered more than it lends, and the load does not swing once it has settled."""

from __future__ import annotations

import msgspec

from hil.crowd.play import WINDOW_NS, Crowd, Outcome, Seen

OFFERED = 1.2
"""Most requests that may be out at a node, in parts of its credit."""

SETTLES_S = 2.0
"""How long after the beginning, the death and the return the load may swing."""

SWING = 0.5
"""Most by which what a node is sent may differ from its mean once it has settled, in parts of the mean."""

TOGETHER = 5
"""Windows that are summed up to judge swings by: a quarter of a second."""

ON_TIME = 0.99


class Judged(msgspec.Struct, frozen=True):
    """What a crowd came to. `offered` is the most that any node had out, in parts of its credit; `swing` the most by which a
    settled node's load differed from its mean, in parts of that; `faults` what is over a bound, in words."""

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
            differs = _swing(seen, first_s, last_s)
            swing = max(swing, differs)
            if differs > SWING:
                faults.append(
                    f"{seen.node} swings by {100 * differs:.0f} % of its load {name}, from {first_s:g} to {last_s:g} s; "
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
        ("while one is away", crowd.dies_s + SETTLES_S, crowd.returns_s),
        ("after its return", crowd.returns_s + SETTLES_S, crowd.seconds),
    )
    return tuple(s for s in stretches if s[1] < s[2] and not (dies and s[0] == "while one is away"))


def _swing(seen: Seen, first_s: float, last_s: float) -> float:
    windows = seen.sent[int(first_s * 1e9) // WINDOW_NS : int(last_s * 1e9) // WINDOW_NS]
    sums = [sum(windows[i : i + TOGETHER]) for i in range(0, len(windows) - TOGETHER + 1, TOGETHER)]
    mean = sum(sums) / len(sums) if sums else 0.0
    return max(abs(s - mean) for s in sums) / mean if mean else 0.0
