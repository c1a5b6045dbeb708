"""What `headtail sim regret` prints, and whether what it found is within its bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from hil.links.words import aligned
from hil.regret.predicted import Predicted

POINTS = 100.0
ON_TIME_POINTS, EXACT_POINTS = 0.5, 5.0
"""Most that the policy may lose against the oracle in the mean over all traces, in percentage points."""

ROUNDING = 1e-9


class Row(msgspec.Struct, frozen=True):
    """A case under one policy. Shares are of all requests; `agreement` is the mean over all, where one without an answer in
    time counts 0. Bytes are those on the link."""

    policy: str
    on_time: float
    exact: float
    agreement: float
    bytes_up: int
    bytes_down: int
    predictions: dict[str, Predicted] = {}
    counters: dict[str, int] = {}
    ways: dict[str, int] = {}


class CaseRows(msgspec.Struct, frozen=True):
    """A case: its trace by name, what was asked, and every policy's row: ours, the fixed ones, the oracle's."""

    name: str
    deadline_ms: float
    requests: int
    seconds: float
    rows: tuple[Row, ...]

    def row(self, policy: str) -> Row:
        """The row of a policy."""
        return next(row for row in self.rows if row.policy == policy)


class Regret(msgspec.Struct, frozen=True):
    """How far the policy is from the oracle in the mean, in percentage points, and the fixed routes that it does not beat:
    those whose mean agreement is higher, or that are more often in time."""

    on_time_points: float
    exact_points: float
    agreement_points: float
    unbeaten: tuple[str, ...]
    within: bool


def mean(cases: Sequence[CaseRows], policy: str) -> Row:
    """A policy's row in the mean over all cases, each of which counts the same."""
    rows = [case.row(policy) for case in cases]
    return Row(
        policy,
        sum(r.on_time for r in rows) / len(rows),
        sum(r.exact for r in rows) / len(rows),
        sum(r.agreement for r in rows) / len(rows),
        sum(r.bytes_up for r in rows),
        sum(r.bytes_down for r in rows),
        together(r.predictions for r in rows),
    )


def together(many: Iterable[dict[str, Predicted]]) -> dict[str, Predicted]:
    """Predictions of several runs, by route."""
    found: dict[str, Predicted] = {}
    for predictions in many:
        for route, predicted in predictions.items():
            found[route] = found.get(route, Predicted()).plus(predicted)
    return found


def regret(cases: Sequence[CaseRows], policy: str, best: str) -> Regret:
    """What `policy` loses against `best` in the mean over all cases, and what it does not beat."""
    ours, most = mean(cases, policy), mean(cases, best)
    others = [row.policy for row in cases[0].rows if row.policy not in (policy, best)]
    means = [mean(cases, other) for other in others]
    unbeaten = tuple(
        m.policy for m in means if m.agreement > ours.agreement + ROUNDING or m.on_time > ours.on_time + ROUNDING
    )
    losses = [
        POINTS * (b - o)
        for o, b in ((ours.on_time, most.on_time), (ours.exact, most.exact), (ours.agreement, most.agreement))
    ]
    within = losses[0] <= ON_TIME_POINTS and losses[1] <= EXACT_POINTS and not unbeaten
    return Regret(losses[0], losses[1], losses[2], unbeaten, within)


def table(case: CaseRows, best: str) -> str:
    """One case, a line for each policy."""
    head = f"{case.name}: {case.requests} requests in {case.seconds:g} s, each due after {case.deadline_ms:g} ms\n"
    return head + _rows(case.rows, case.row(best))


def mean_table(cases: Sequence[CaseRows], best: str) -> str:
    """The mean over all cases, a line for each policy; bytes are those of all."""
    rows = [mean(cases, row.policy) for row in cases[0].rows]
    return f"mean of {len(cases)} {'trace' if len(cases) == 1 else 'traces'}\n{_rows(rows, mean(cases, best))}"


def verdict(found: Regret) -> str:
    """The regret in words."""
    lines = [
        f"regret: {found.on_time_points:.2f} points of the on-time share (bound {ON_TIME_POINTS:g}), "
        f"{found.exact_points:.2f} of the share of exact answers (bound {EXACT_POINTS:g}), "
        f"{found.agreement_points:.2f} of the mean agreement"
    ]
    if found.unbeaten:
        lines.append(f"not beaten: {', '.join(found.unbeaten)}")
    else:
        lines.append("every fixed route is beaten")
    return "\n".join(lines)


def predictions_table(predictions: dict[str, Predicted]) -> str:
    """How often each route came later than the broker's own margin said, a line for each."""
    rows: list[tuple[str, ...]] = [("route", "judged", "later than predicted", "share", "given up before")]
    for route, p in sorted(predictions.items()):
        share = f"{POINTS * p.share:.1f} %" if p.judged else ""
        rows.append((route, f"{p.judged:,}", f"{p.exceeded:,}", share, f"{p.untold:,}"))
    return aligned(rows)


def _rows(rows: Sequence[Row], most: Row) -> str:
    told: list[tuple[str, ...]] = [
        ("route", "on time", "regret", "exact", "regret", "agreement", "regret", "MB up", "MB down")
    ]
    told += [
        (
            row.policy,
            f"{POINTS * row.on_time:.2f} %",
            f"{POINTS * (most.on_time - row.on_time):.2f}",
            f"{POINTS * row.exact:.2f} %",
            f"{POINTS * (most.exact - row.exact):.2f}",
            f"{row.agreement:.4f}",
            f"{POINTS * (most.agreement - row.agreement):.2f}",
            f"{row.bytes_up / 1e6:.1f}",
            f"{row.bytes_down / 1e6:.1f}",
        )
        for row in rows
    ]
    return aligned(told)
