"""An explanation in words, for the terminal and for the report: short sentences with their numbers."""

from __future__ import annotations

from partitioner.costs.conditions import LIMITS, TITLES, Axis, Conditions, show_value
from partitioner.explanations.explanation import (
    TRIED_RATES_MBIT,
    TRIED_RTT_MS,
    TRIED_SLOWDOWNS,
    Change,
    Explanation,
    Standing,
)
from partitioner.records.record import Record, Source
from partitioner.words import action, milliseconds, share

NOTHING = "no way"
"""What wins where none is of enough agreement."""
CLOSE_US = 10.0
"""A p99 that is nearer than this to the deadline is told in more digits, or it would read the same."""

_SIDES: dict[tuple[Axis, str], str] = {
    ("link.rate", "down"): "below",
    ("link.rate", "up"): "above",
    ("link.rtt", "down"): "below",
    ("link.rtt", "up"): "above",
    ("edge-slowdown", "down"): "less than",
    ("edge-slowdown", "up"): "more than",
    ("deadline", "down"): "below",
    ("deadline", "up"): "from",
    ("min-agreement", "down"): "up to",
    ("min-agreement", "up"): "above",
}


def device(edge: Source, slowdown: float) -> str:
    """The device: this machine, or that of a profile, slower by a factor."""
    times = f"{slowdown:g} times slower"
    if edge.kind == "here":
        return "this machine" if slowdown == 1.0 else f"a device {times}"
    return f"the device of {edge.file}" + ("" if slowdown == 1.0 else f", {times}")


def conditions(asked: Conditions, edge: Source) -> str:
    """The conditions in a line."""
    return (
        f"{asked.link}, {device(edge, asked.edge_slowdown)}, a deadline of {asked.deadline_ms:g} ms, an agreement of at "
        f"least {asked.min_agreement:g}"
    )


def source(side: Source) -> str:
    """Where the times of one side come from."""
    if side.kind == "here":
        return "measured on the machine that made the plan"
    machine = f" on {side.device}" if side.device else ""
    told = "measured" if side.kind == "measured" else f"NOT MEASURED, {side.kind.upper()}"
    return f"from {side.file}: {told}{machine} ({side.how})"


def sources(explanation: Explanation) -> str:
    """Where the times of both sides come from, and what the best way is best in where that is not latency."""
    aim = explanation.objective
    told = "" if aim.name == "latency" else f" The objective is {aim.name}: {aim}."
    return f"Times of the device: {source(explanation.edge)}. Times of the cloud: {source(explanation.cloud)}.{told}"


def timed(measured: bool, edge: Source, cloud: Source) -> str:
    """By what a way's times are known: `estimate` where it was not cut and timed, `measured` where both sides are of the
    machine that made the plan, else the kind of profile that they rest on."""
    if not measured:
        return "estimate"
    kinds = {edge.kind, cloud.kind}
    for kind, told in (("estimated", "estimated profile"), ("scaled", "scaled profile"), ("measured", "profile")):
        if kind in kinds:
            return told
    return "measured"


def verdict(explanation: Explanation, record: Record) -> str:
    """One sentence: what to do, when the answer is expected, and how faithful it is."""
    winner = explanation.winner
    if winner is None:
        return f"No measured way reaches an agreement of {explanation.conditions.min_agreement:g} with the whole model."
    candidate = next(c for c in record.candidates(1.0) if c.label == winner.label)
    what = action(candidate)
    deadline = f"the deadline of {explanation.conditions.deadline_ms:g} ms"
    within = f"within {deadline}" if winner.in_time else f"past {deadline}, as every other way is"
    deadline_us = explanation.conditions.deadline_ns / 1000.0
    close = abs(winner.p99_us - deadline_us) < CLOSE_US
    p99 = f"{winner.p99_us / 1000.0:.4f} ms" if close else milliseconds(winner.p99_us)
    return (
        f"{what[0].upper()}{what[1:]}: p50 {milliseconds(winner.p50_us)}, p99 {p99}, {within}, "
        f"agreement {share(winner.agreement)}."
    )


def why(explanation: Explanation) -> str:
    """Why the winner is before the runner-up."""
    if len(explanation.standings) < 2:
        return "It is the only measured way of enough agreement."
    winner, second = explanation.standings[:2]
    if not winner.in_time and explanation.objective.name == "on-time":
        return f"No way is in time by its p99. It is the likeliest to be; {second.label} takes {milliseconds(second.p99_us)}."
    if not winner.in_time:
        return f"No way is in time. It is the soonest by p99; {second.label} takes {milliseconds(second.p99_us)}."
    late = sum(not standing.in_time for standing in explanation.standings)
    if second.reason == "late":
        return f"It is the only way in time: {late} of {len(explanation.standings)} are late by their p99."
    tail = f" {late} of {len(explanation.standings)} ways are late by their p99." if late else ""
    if second.reason == "amount":
        mine, theirs = (explanation.objective.told(standing.amount) for standing in (winner, second))
        return f"Of the ways in time it takes least: {mine} against {theirs} by {second.label}.{tail}"
    if second.reason == "margin":
        return (
            f"It has the largest margin before the deadline, in spreads of its own time; {second.label} has less.{tail}"
        )
    if second.reason == "agreement":
        return (
            f"Of the ways in time it agrees most with the whole model: {share(winner.agreement)} against "
            f"{share(second.agreement)} by {second.label}.{tail}"
        )
    return (
        f"Of the ways in time it agrees as much as any, and is the fastest: {second.label} takes "
        f"{milliseconds(second.p50_us)}.{tail}"
    )


def reason(standing: Standing, winner: Standing) -> str:
    """Why a way is not the winner, in few words; `wins` for the winner."""
    if standing.reason == "late":
        return "late" if winner.in_time else "later"
    if standing.reason == "time":
        return f"+{milliseconds(standing.p50_us - winner.p50_us)}"
    if standing.reason in {"amount", "margin"}:
        return {"amount": "takes more", "margin": "less margin"}[standing.reason]
    return {"wins": "wins", "agreement": "agrees less", "label": "equal"}[standing.reason]


def change(found: Change) -> str:
    """Where another way wins: `below 174.8 Mbit/s`."""
    return f"{_SIDES[found.axis, found.direction]} {show_value(found.axis, found.value)}"


def winner_of(label: str, in_time: bool) -> str:
    """The winner's label, and whether it is late."""
    if not label:
        return f"{NOTHING} (none of enough agreement)"
    return label if in_time else f"{label} (late, as all are)"


def _then(found: Change, explanation: Explanation) -> str:
    winner = explanation.winner
    if winner is not None and found.winner == winner.label and found.in_time != winner.in_time:
        return f"{found.winner}, as here, but {'in time' if found.in_time else 'late, as all are'}"
    return winner_of(found.winner, found.in_time)


def steady(axis: Axis) -> str:
    """What is said of an axis along which nothing changes."""
    least, most = LIMITS[axis]
    return f"no change from {show_value(axis, least)} to {show_value(axis, most)}"


def changes(explanation: Explanation) -> list[tuple[str, str, str]]:
    """Rows of a table: condition, where it changes, who wins there."""
    rows: list[tuple[str, str, str]] = []
    for axis in LIMITS:
        found = [c for c in explanation.changes if c.axis == axis]
        rows += [(TITLES[axis], change(c), _then(c, explanation)) for c in found]
        if not found:
            rows.append((TITLES[axis], steady(axis), ""))
    return rows


def split(explanation: Explanation) -> str:
    """The honest answer whether a split pays."""
    answer = explanation.split
    conditions = explanation.conditions
    tried = (
        f"{len(TRIED_RATES_MBIT)} rates from {TRIED_RATES_MBIT[0]:g} to {TRIED_RATES_MBIT[-1]:,.0f} Mbit/s, "
        f"{len(TRIED_SLOWDOWNS)} device ratios from {TRIED_SLOWDOWNS[0]:g} to {TRIED_SLOWDOWNS[-1]:g}, and every round trip "
        f"up to {TRIED_RTT_MS[1]:g} ms"
    )
    same = f"at a deadline of {conditions.deadline_ms:g} ms and an agreement of at least {conditions.min_agreement:g}"
    winner = explanation.winner
    if answer.wins_here and winner is not None:
        other = next((s for s in explanation.standings if s.kind != "split"), None)
        beside = "" if other is None else f". The best way without one, {other.label}, is {_against(other, winner)}"
        return f"A split pays here: {winner.label} wins{beside}."
    here = "A split does not pay here"
    best = next((s for s in explanation.standings if s.label == answer.best), None)
    if best is not None and winner is not None:
        here += f": the best one, {best.label}, is {_against(best, winner)}"
    if answer.example is None:
        return f"{here}. It pays nowhere among what was tried {same}: {tried}."
    there = answer.example
    return (
        f"{here}. Among what was tried {same} ({tried}), the nearest where one wins in time is a link of {there.link} "
        f"and {device(explanation.edge, there.edge_slowdown)}."
    )


def _against(best: Standing, winner: Standing) -> str:
    if best.reason == "late" and not winner.in_time:
        return f"later, with a p99 of {milliseconds(best.p99_us)} against {milliseconds(winner.p99_us)}"
    if best.reason == "late":
        return f"late by its p99 of {milliseconds(best.p99_us)}"
    if best.reason in {"amount", "margin"}:
        return f"in time and {'takes more' if best.reason == 'amount' else 'has less margin'} by the objective"
    if best.reason == "agreement":
        return f"in time and agrees less, {share(best.agreement)} against {share(winner.agreement)}"
    return f"in time and takes {milliseconds(best.p50_us)} against {milliseconds(winner.p50_us)}"


def remarks(explanation: Explanation) -> list[str]:
    """What a reader ought to know beside: a winner that the bundle cannot take, and ways that were never measured."""
    found: list[str] = []
    winner = explanation.winner
    if winner is not None and not winner.kept:
        again = "" if explanation.asked else ": make the plan again for these conditions to have it"
        found.append(f"{winner.label} is none of the ways that this bundle can take{again}.")
    if explanation.unmeasured:
        found.append(
            f"Only estimated, and ahead of the winner if it agrees fully: {', '.join(explanation.unmeasured)}. Make the plan "
            "again for these conditions to have it measured."
        )
    return found
