"""What the rig of real processes makes of its entries, and of a trace for its oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from plans import INT8_ROUTE, RAW_ROUTE, make_plan

from hil.ledger import Entry
from hil.links.trace import Direction, Trace
from hil.regret.live_rules import agreements, as_served, oracle_row, policies, row_of, together
from hil.scenarios.find import load_scenario
from hil.scenarios.scenario import Fleet
from shared.plan import Plan

MS = 1_000_000


def plan_of() -> Plan:
    return make_plan(edge_ms=(20.0, 4.0), routes=(RAW_ROUTE, INT8_ROUTE))[1]


def trace_of(outages: list[bool]) -> Trace:
    steps = len(outages)
    side = Direction(np.full(steps, 2.0), np.zeros(steps), np.zeros(steps), np.array(outages, np.bool_))
    return Trace(10_000, side, side)


def test_a_row_counts_frames_without_stalls_by_what_was_claimed() -> None:
    plan = plan_of()
    entries = [
        Entry(0, "on_time", fidelity="exact"),
        Entry(0, "on_time", fidelity="lossy(int8)"),
        Entry(0, "on_time", fidelity="rung(small, 0.9)"),
        Entry(0, "late", fidelity="exact"),
        Entry(0, "missed"),
    ]
    row = row_of("best", entries, [False, False, False, False, True], plan)
    assert (row.on_time, row.exact) == (0.75, 0.25)
    assert row.agreement == pytest.approx((1.0 + 0.97 + 0.9) / 4)
    assert set(agreements(plan)) == {"exact", "lossy(int8)", "rung(small, 0.9)"}
    assert policies(plan) == ("best", "0/raw", "1/int8")


def test_rows_of_several_runs_count_by_their_frames() -> None:
    plan = plan_of()
    good = row_of("device", [Entry(0, "on_time", fidelity="exact")] * 3, [False] * 3, plan)
    bad = row_of("device", [Entry(0, "missed")], [False], plan)
    assert together([(3, good), (1, bad)], "device").on_time == 0.75


def test_the_oracle_sees_the_trace_as_it_was_played() -> None:
    """Half of the trace lets nothing pass; where it was half over at the first frame, the second half comes first."""
    plan = plan_of()
    trace = trace_of([True] * 50 + [False] * 50)
    times = [i * 50 * MS for i in range(10)]  # half a second
    assert oracle_row(plan, trace, 0, times, 20.0).exact == 0.0
    assert oracle_row(plan, trace, 500 * MS, times, 20.0).exact > 0.9
    assert oracle_row(plan, trace, 250 * MS, times, 20.0).exact == pytest.approx(0.5, abs=0.11)


def test_the_oracle_takes_the_node_as_slow_as_it_is() -> None:
    plan = plan_of()
    trace = trace_of([False] * 100)
    times = [i * 50 * MS for i in range(10)]
    assert oracle_row(as_served(plan, 10.0), trace, 0, times, 20.0).exact == 1.0
    assert oracle_row(as_served(plan, 17.0), trace, 0, times, 20.0).exact == 0.0


def test_a_scenario_may_fix_the_agents_route(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text('name = "one"\nabout = "x"\n[fleet]\nroute = "0/raw"\n[[links]]\nname = "air"\n')
    assert load_scenario(path).fleet.route == "0/raw"
    assert Fleet().route == "best"
