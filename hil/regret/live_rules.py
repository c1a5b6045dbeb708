"""What real processes came to on a link, in the words of `hil.regret.words`, and what an oracle would have had of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from edge.cloud_way import BEST, DEVICE
from hil.ledger import Entry
from hil.links.trace import Trace
from hil.regret.oracle import Asked, Choice, Ways, best
from hil.regret.timeline import Timeline
from hil.regret.words import Row
from shared.plan import Plan, RangeTime, contract_digest
from shared.settings import EdgeSettings

ORACLE = "oracle"


def agreements(plan: Plan) -> dict[str, float]:
    """The agreement of every fidelity that an answer may claim, as its words."""
    found = {"exact": 1.0}
    for rung in plan.ladder:
        found[str(plan.rung_fidelity(rung))] = rung.agreement
    for route in plan.routes:
        coding = plan.cuts[route.cut].coding(route.coding)
        if coding is not None:
            fidelity = plan.cloud_fidelity(coding, route.agreement)
            found[str(fidelity)] = fidelity.agreement
    return found


def row_of(policy: str, entries: Sequence[Entry], marked: Sequence[bool], plan: Plan) -> Row:
    """What came of the frames under a policy; those during which the machine stalled are left out. Bytes are not known."""
    known = agreements(plan)
    clear = [entry for entry, mark in zip(entries, marked, strict=True) if not mark]
    timely = [entry for entry in clear if entry.kind == "on_time"]
    frames = max(1, len(clear))
    return Row(
        policy,
        len(timely) / frames,
        sum(entry.fidelity == "exact" for entry in timely) / frames,
        sum(known[entry.fidelity] for entry in timely) / frames,
        0,
        0,
        ways=dict(Counter(entry.fidelity or entry.kind for entry in clear)),
    )


def together(rows: Sequence[tuple[int, Row]], policy: str) -> Row:
    """One row of several, each with how many frames it counts for."""
    frames = max(1, sum(count for count, _ in rows))

    def mean(values: Sequence[float]) -> float:
        return sum(count * value for (count, _), value in zip(rows, values, strict=True)) / frames

    ways: Counter[str] = Counter()
    for _, row in rows:
        ways.update(row.ways)
    return Row(
        policy,
        mean([row.on_time for _, row in rows]),
        mean([row.exact for _, row in rows]),
        mean([row.agreement for _, row in rows]),
        0,
        0,
        ways=dict(ways),
    )


def as_served(plan: Plan, cloud_ms: float) -> Plan:
    """The plan with what a node really takes for the whole model, shared among its segments as its profile says."""
    cloud = plan.profile("cloud")
    whole = None if cloud is None else cloud.time(0, 0, len(plan.programs[0].segments))
    if cloud is None or whole is None:
        return plan
    by = cloud_ms * 1000.0 / whole.p50_us
    ranges = tuple(RangeTime(r.program, r.first, r.last, r.batch, r.p50_us * by, r.p99_us * by) for r in cloud.ranges)
    profiles = tuple(msgspec.structs.replace(p, ranges=ranges) if p.side == "cloud" else p for p in plan.profiles)
    return msgspec.structs.replace(plan, profiles=profiles)


def oracle_row(plan: Plan, trace: Trace, into_ns: int, times_ns: Sequence[int], deadline_ms: float) -> Row:
    """The most that any policy could have had of requests at these times after the first, the trace being `into_ns` old."""
    guard_ns = int(EdgeSettings().insurance.guard_ms * 1e6)
    rolled = trace.taken(np.roll(np.arange(trace.steps), -(into_ns // (trace.step_us * 1000) % trace.steps)))
    within = into_ns % (trace.step_us * 1000)
    up, down = (Timeline(side, trace.step_us) for side in (rolled.up, rolled.down))
    ways = Ways(plan, contract_digest(plan), up, down)
    asked: list[Asked] = []
    for at in times_ns:
        begin = at + within
        asked.append(ways.asked(begin, begin + int(deadline_ms * 1e6) - guard_ns, 1.0, 1.0))
    figures = [best(asked, up, worth).worth / max(1, len(asked)) for worth in (_one, _exact, _agreement)]
    chosen = best(asked, up, _agreement).chosen
    return Row(
        ORACLE, figures[0], figures[1], figures[2], 0, 0, ways=dict(Counter(c.name if c else "none" for c in chosen))
    )


def policies(plan: Plan) -> tuple[str, ...]:
    """What is played with the agent: its choice, and each route. The device alone is the control of every run."""
    return (BEST, *(f"{route.cut}/{route.coding}" for route in plan.routes))


CONTROL = DEVICE
"""What the control's row is called."""


def _one(choice: Choice) -> float:
    del choice
    return 1.0


def _exact(choice: Choice) -> float:
    return float(choice.exact)


def _agreement(choice: Choice) -> float:
    return choice.agreement
