"""`headtail bench --only predictions`: are the times that a plan predicts those that its requests then take?

For each of a few trained models (`hil.prediction_cases`) a plan is made on this machine with forced cuts, so that its record
predicts many ways to answer. Then each of them is asked some hundred times, from a client through a real agent and a real
node of their own processes, over the shaped link of the demo; each has a bundle that leaves no choice (`hil.one_way`).
The error is the difference of what the record predicts and the median of what was measured, from the call to the outcome.

So that the machine's moods do not decide: link and what a request costs beside its work are measured right before; ways are
asked in blocks that take turns in rounds, at the cadence that the plan was made for, the first of each block not counted;
and all processes have the same weight. Virtual machines were seen on which the same work takes a third longer from one
second to the next, so that what the plan was told of work a minute ago says little: after each block of requests one range
of the bundle is timed anew, as the plan's own profile was (`hil.predictions_turns`), and what the plan would predict from
that is judged. What it did predict is shown beside. Nothing is fitted to these requests: overhead and link are measured with
probes of their own (`hil.overhead`, `hil.link_echo`).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hil import overhead
from hil.demo_settings import LinksGroup
from hil.fetch import cache_folder
from hil.link_echo import measure_link
from hil.monitor import Monitor
from hil.one_way import only_route, only_rung, write_variant
from hil.phases import LinkShape
from hil.prediction_cases import CASES, Case, options_of
from hil.predictions_rules import MEDIAN_LIMIT, P95_LIMIT, Compared, Parts, Verdict, judge, middle_stages
from hil.predictions_turns import Turns
from hil.way_rig import BLOCK, Asked, Taken, WayRig, play
from partitioner.build import make
from partitioner.costs.cost import Candidate, predict
from partitioner.costs.overhead import Overhead
from partitioner.costs.overhead_file import write_overhead
from partitioner.options import LinkGuess
from partitioner.records.file import read_record
from shared.bundle import Bundle
from shared.errors import HeadtailError
from shared.lateness import LatenessFigures
from shared.request import Array

LINK_ROUNDS = 4
OVERHEAD_ROUNDS = 5
SEED = 7
SWITCH_S = 0.0005
"""Thread switch interval of this process, which is the application here."""

Progress = Callable[[str], None]


class Report(msgspec.Struct, frozen=True):
    """All comparisons, what they say, the link as it was told to the proxy and as echoes found it, what a request was found
    to cost, and how late a 1 ms timer of the machine came meanwhile."""

    compared: tuple[Compared, ...]
    verdict: Verdict
    told: LinkShape
    link: LinkGuess
    overhead: Overhead
    machine: LatenessFigures


def measure(rounds: int, progress: Progress, cases: Sequence[Case] = CASES) -> Report:
    """Compare all ways of all cases, each asked in so many rounds.

    Raises `HeadtailError` where a process fails, and `ModelError` where a model cannot be had."""
    told = LinksGroup().good
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with tempfile.TemporaryDirectory(prefix="headtail-predictions-") as name, Monitor(1.0) as monitor:
            folder = Path(name)
            progress("measuring the shaped link by echoes")
            link = measure_link(told, LINK_ROUNDS)
            cost = overhead.measure(OVERHEAD_ROUNDS, max(case.cadence_hz for case in cases), progress)
            write_overhead(cost, folder / "host.overhead")
            compared = [one for case in cases for one in _compare(case, folder, link, told, rounds, progress)]
            return Report(tuple(compared), judge(compared), told, link, cost, monitor.take())
    finally:
        sys.setswitchinterval(before)


def _compare(
    case: Case, folder: Path, link: LinkGuess, told: LinkShape, rounds: int, progress: Progress
) -> list[Compared]:
    """Plan one model, and ask it in each of its ways."""
    options = replace(options_of(case, folder, cache_folder(), link, SEED), overhead=folder / "host.overhead")
    make(options, lambda words: progress(f"{case.name}: {words}"))
    bundle, record = read_record(options.out)
    known = {way.label: way for way in record.candidates(record.asked.edge_slowdown) if way.measured}
    missing = [label for label in case.ways if label not in known]
    if missing:
        raise HeadtailError(f"the plan of {case.name} does not know the way {missing[0]!r}, only {', '.join(known)}")
    rows = _rows(folder / f"{case.name}.npz")
    ways = folder / case.name
    asked = {label: _variant(bundle, known[label], f"{case.name}-{n}", ways, rows) for n, label in enumerate(case.ways)}
    progress(f"{case.name}: loading {len(asked)} ways")
    turns = Turns(bundle, rows, case.cadence_hz, [known[label] for label in case.ways])
    with WayRig(ways, [ways / f"{one.model}.plan" for one in asked.values()], told) as rig:
        rig.wait_answered(list(asked.values()))
        progress(f"{case.name}: asking {len(asked)} ways in turn")
        taken = play(rig, list(asked.values()), rounds, case.cadence_hz, turns.step)
    return [
        _compared(case.name, known[label], turns.settled(known[label]), record.asked.link, taken[one.model])
        for label, one in asked.items()
    ]


def _rows(file: Path) -> tuple[dict[str, Array], ...]:
    """The rows of the data that the plan was made from."""
    with np.load(file, allow_pickle=False) as stored:
        arrays: dict[str, Array] = {name: np.asarray(stored[name]) for name in stored.files}
    count = min(len(array) for array in arrays.values())
    return tuple({name: array[row : row + 1] for name, array in arrays.items()} for row in range(count))


def _variant(bundle: Bundle, way: Candidate, name: str, folder: Path, rows: tuple[dict[str, Array], ...]) -> Asked:
    away = way.kind != "device"
    plan = bundle.plan
    only = only_route(plan, name, way.cut, way.coding) if away else only_rung(plan, name, way.rung)
    write_variant(bundle, only, folder)
    return Asked(name, "cloud" if away else "edge", rows)


def _compared(model: str, way: Candidate, in_turns: Candidate, link: LinkGuess, taken: Sequence[Taken]) -> Compared:
    found = predict(in_turns, link)
    parts = (found.edge_us, found.uplink_us, found.cloud_us, found.downlink_us, found.overhead_us)
    times_ms = [one.time_us / 1e3 for one in taken]
    blocks = [times_ms[first : first + BLOCK] for first in range(0, len(times_ms), BLOCK)]
    return Compared(
        model=model,
        way=way.label,
        routed=way.kind != "device",
        planned_ms=predict(way, link).total.p50_us / 1e3,
        predicted=Parts(*(part / 1e3 for part in parts)),
        measured_ms=statistics.median(times_ms),
        requests=len(taken),
        stages=middle_stages([one.stages for one in taken]),
        rounds_ms=tuple(statistics.median(block) for block in blocks),
    )


def as_tree(report: Report) -> dict[str, object]:
    """The report for a file of JSON, with each error and each drift."""
    tree: dict[str, object] = msgspec.to_builtins(report)
    tree["compared"] = [
        {**msgspec.to_builtins(one), "error": one.error, "planned_error": one.planned_error, "drift": one.drift}
        for one in report.compared
    ]
    return tree | {"limits": {"median": MEDIAN_LIMIT, "p95": P95_LIMIT}, "within": report.verdict.within}


def show(report: Report, console: Console) -> bool:
    """Show every comparison; whether the limits are kept."""
    link, cost, verdict = report.link, report.overhead, report.verdict
    requests = min(one.requests for one in report.compared)
    table = Table(title=f"p50 of {requests} requests each in ms, over {report.told}", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("model", "way", "planned", "in turns", "measured", "error", "rounds"):
        table.add_column(column, justify="left" if column in {"model", "way"} else "right")
    for one in report.compared:
        style = None if abs(one.error) <= P95_LIMIT else "bold red"
        times = (f"{time_ms:.2f}" for time_ms in (one.planned_ms, one.predicted.total, one.measured_ms))
        table.add_row(one.model, one.way, *times, f"{one.error:+.1%}", f"±{one.drift:.1%}", style=style)
    console.print(table)
    console.print(
        f"Echoes of plain sockets found the link to be {link}. A request costs beside its work "
        f"{cost.device_us / 1e3:.2f} ms on the device and {cost.cloud_us / 1e3:.2f} ms through the cloud, "
        f"{cost.head_us / 1e3:.2f} ms more where the device works first, and {cost.local_byte_us:.2g} and "
        f"{cost.network_byte_us:.2g} µs a byte. `in turns` is what the plan "
        f"would predict from the work's time between these requests, and what `error` is of; `rounds` is how far the rounds "
        f"of one way were apart. What the plans said before was off by {verdict.planned_median:.1%} at the median. "
        f"A 1 ms timer of the machine came {report.machine.p50_ms:.2f} ms late (p50), "
        f"{report.machine.p99_ms:.2f} ms (p99)."
    )
    kept = "kept" if verdict.within else "EXCEEDED" if verdict.ample else "NOT JUDGED, too little was compared"
    console.print(
        f"Predictions: {verdict.routes} routes of {verdict.models} models; error {verdict.median:.1%} at the median and "
        f"{verdict.p95:.1%} at the 95th percentile. Limit: {MEDIAN_LIMIT:.0%} and {P95_LIMIT:.0%}: {kept}."
    )
    return verdict.within
