"""Which way a plan takes, which routes it keeps and which rungs its ladder has.

The order of preference is the objective's (`partitioner.demands.objective`), by default first what is on time by its
p99, then what agrees most with the whole model, then what is fastest; among ways that are all late, the fastest. A
weighted sum of time and agreement was rejected: nobody can say what a millisecond is worth in agreement, while a
deadline and a least agreement can be said.

Routes are the ways that win under the stated link and deadline or under ones around them (slower, faster, nearer, farther,
looser), since the link will not stay as stated and every request brings its own deadline; at run time an edge picks among
them. A split that never wins gets no segment of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

from partitioner.costs.cost import Candidate, Spread, predict
from partitioner.demands.objective import EQUAL, LATENCY, Objective, Preference
from partitioner.options import LinkGuess

MAX_ROUTES = 6
RATE_FACTORS = (1.0, 0.1, 0.25, 0.5, 2.0, 4.0)
RTT_FACTORS = (1.0, 0.5, 3.0)
DEADLINE_FACTORS = (1.0, 2.0, 4.0)
WHOLE = "whole"
NOISE = 0.9
"""A split must be better by more than a tenth in something to be looked at beside the input."""


def rank(
    candidates: Sequence[Candidate],
    link: LinkGuess,
    deadline_ns: int,
    min_agreement: float,
    objective: Objective = LATENCY,
) -> list[Candidate]:
    """All candidates of enough agreement, best first by the objective."""

    def key(candidate: Candidate) -> Preference:
        total, amount = predict(candidate, link).total, objective.amount(candidate, link)
        return objective.preference(total, candidate.agreement, candidate.label, deadline_ns, amount)

    return sorted((c for c in candidates if acceptable(c, min_agreement)), key=key)


def acceptable(candidate: Candidate, min_agreement: float) -> bool:
    """Whether its agreement was measured and is enough."""
    return not math.isnan(candidate.agreement) and candidate.agreement >= min_agreement


def contenders(candidates: Sequence[Candidate], min_agreement: float, forced: Collection[str] = ()) -> list[Candidate]:
    """Those that may win: measured and of enough agreement, without splits that are in nothing better than the input. Where
    cuts are `forced`, only these and the device, whatever they are no better than."""
    usable = [c for c in candidates if c.measured and acceptable(c, min_agreement)]
    if forced:
        return [c for c in usable if c.kind == "device" or c.cut in forced]
    return without_dominated(usable)


def ordered(candidates: Sequence[Candidate], link: LinkGuess, deadline_ns: int) -> list[Candidate]:
    """All candidates, best first; then splits that are no better than the input, last those of unknown agreement."""
    worse = _dominated(candidates)
    ranked = rank([c for c, out in zip(candidates, worse, strict=True) if not out], link, deadline_ns, 0.0)
    ranked += rank([c for c, out in zip(candidates, worse, strict=True) if out], link, deadline_ns, 0.0)
    unknown = [c for c in candidates if math.isnan(c.agreement)]
    return ranked + sorted(unknown, key=lambda c: predict(c, link).total.p50_us)


def without_dominated(candidates: Sequence[Candidate]) -> list[Candidate]:
    """All but the splits that are no better than sending the input, by more than the noise of timing: in work of the
    device, in bytes, in work of the cloud, and in agreement. They would win by chance."""
    return [c for c, out in zip(candidates, _dominated(candidates), strict=True) if not out]


def _dominated(candidates: Sequence[Candidate]) -> list[bool]:
    """For each candidate whether it is a split that is no better than sending the input."""
    inputs = [c for c in candidates if c.kind == "input"]
    return [c.kind == "split" and any(_no_better(c, other) for other in inputs) for c in candidates]


def _no_better(split: Candidate, other: Candidate) -> bool:
    pairs = (
        (split.head.p50_us + split.encode.p50_us, other.head.p50_us + other.encode.p50_us),
        (split.decode.p50_us + split.tail.p50_us, other.decode.p50_us + other.tail.p50_us),
        (split.bytes_up + split.bytes_down, other.bytes_up + other.bytes_down),
    )
    return other.agreement >= split.agreement - EQUAL and all(mine >= NOISE * theirs for mine, theirs in pairs)


def choose_routes(
    candidates: Sequence[Candidate],
    link: LinkGuess,
    deadline_ns: int,
    min_agreement: float,
    objective: Objective = LATENCY,
) -> list[Candidate]:
    """The cloud's ways worth having, best first under the stated link; none where the device always wins."""
    winners: list[Candidate] = []
    ways = [c for c in without_dominated(candidates) if acceptable(c, min_agreement)]
    for rate, rtt in itertools.product(RATE_FACTORS, RTT_FACTORS):
        near = LinkGuess(link.rate_mbit * rate, link.rtt_ms * rtt)
        timed = [(c, predict(c, near).total, objective.amount(c, near)) for c in ways]
        for factor in DEADLINE_FACTORS:
            best = _first(timed, round(deadline_ns * factor), objective)
            winners.extend(c for c in best if c.kind != "device" and c not in winners)
    ordered = rank(winners, link, deadline_ns, min_agreement, objective)
    return ordered[:MAX_ROUTES]


def _first(timed: Sequence[tuple[Candidate, Spread, float]], deadline_ns: int, objective: Objective) -> list[Candidate]:
    """The one that is preferred, of candidates with their times and amounts; none of none."""
    ranked = ((objective.preference(total, c.agreement, c.label, deadline_ns, amount), c) for c, total, amount in timed)
    best = min(ranked, key=lambda pair: pair[0], default=None)
    return [] if best is None else [best[1]]


def choose_rungs(rungs: Sequence[Candidate], min_agreement: float) -> list[Candidate]:
    """The ladder: by falling agreement, each rung faster than every better one, so that each earns its memory.

    A rung below the least agreement is left out, the whole model never: it is what the others are measured by.
    """
    kept: list[Candidate] = []
    for rung in sorted(rungs, key=lambda r: (-r.agreement, r.rung != WHOLE, r.head.p50_us)):
        whole = rung.rung == WHOLE
        faster = all(rung.head.p50_us < better.head.p50_us for better in kept)
        if whole or (faster and acceptable(rung, min_agreement)):
            kept.append(rung)
    return kept


def explain(best: Candidate | None, candidates: Sequence[Candidate], link: LinkGuess, deadline_ns: int) -> str:
    """One sentence: what is chosen, when it is expected, and what it beats."""
    if best is None:
        return "no way reaches the least agreement that was asked for"
    total = predict(best, link).total
    deadline_ms = deadline_ns / 1e6
    on_time = total.p99_us <= deadline_ns / 1000.0
    verdict = f"within the deadline of {deadline_ms:g} ms" if on_time else f"past the deadline of {deadline_ms:g} ms"
    where = {
        "device": f"run {best.rung!r} on the device",
        "input": f"send the input as {best.coding} and run everything in the cloud",
        "split": f"cut at {best.cut!r}, send it as {best.coding} and finish in the cloud",
    }[best.kind]
    times = (
        f"p50 {total.p50_us / 1000:.2f} ms, p99 {total.p99_us / 1000:.2f} ms, {verdict}, agreement {best.agreement:.3f}"
    )
    return f"{where}: {times}, over {link}{_rival(best, candidates, link)}"


def _rival(best: Candidate, candidates: Sequence[Candidate], link: LinkGuess) -> str:
    """What the best device way would take, or the best cloud way where the device was chosen."""
    others = [c for c in candidates if (c.kind == "device") != (best.kind == "device") and not math.isnan(c.agreement)]
    if not others:
        return ""
    rival = min(others, key=lambda c: (-round(c.agreement / EQUAL), predict(c, link).total.p99_us))
    total = predict(rival, link).total
    return f" (against p99 {total.p99_us / 1000:.2f} ms, agreement {rival.agreement:.3f}, by {rival.label})"
