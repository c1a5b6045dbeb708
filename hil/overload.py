"""`headtail bench --only overload`: what a real node serves at twice the highest rate that it can hold.

The node is a process of its own whose one executor is a timed wait (`hil.timed_node`). First the highest rate is searched
with 99 % on time by 25 ms; then, five times in turn, a new node is asked that rate and another twice as much. What a node has
executed it says itself at its end, and so it is known how much of that was for nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from hil.load.figures import EPSILON_NS, figures_of
from hil.load.node_target import NodeTarget
from hil.load.opening import WEIGHT, frames_of
from hil.load.play import play
from hil.load.rows import LATE, ON_TIME
from hil.load.search import Found, RateSearch
from hil.load.sender import MOST_SHARE, bottleneck, sender_of
from hil.load.show import found_words
from hil.monitor import Monitor, Noise
from hil.overload_rules import (
    DEVICE,
    MOST_FALL,
    MOST_WASTED,
    RUNS,
    SHARE,
    SOURCE,
    TIMES,
    Overload,
    Pair,
    Side,
    executed_rows,
    told,
)
from hil.own_node import OwnNode
from hil.process_time import used_s
from hil.timed_node import timed_settings, write_timed
from shared.bundle import Bundle, load_bundle
from shared.errors import HeadtailError
from shared.plan import RAW

WARM_UP_S = 1.0
SEARCH_S = 10.0
"""The most that one rate is tried for."""

SEED = 7

Progress = Callable[[str], None]


def measure(seconds: float, progress: Progress) -> Overload:
    """Search, then `RUNS` runs of so many seconds at each rate. Raises `HeadtailError` where a node does not come up, or no
    rate was found."""
    with (
        tempfile.TemporaryDirectory(prefix="headtail-overload-") as folder,
        Monitor(Noise().late_ms) as monitor,
    ):
        bundle = load_bundle(write_timed(Path(folder), DEVICE, 0))
        found = _highest(bundle, min(seconds, SEARCH_S), monitor, progress)
        if found.rate_per_s <= 0.0:
            raise HeadtailError("no rate was found that the node holds: the machine is too busy to measure on")
        pairs: list[Pair] = []
        for number in range(RUNS):
            progress(f"run {number + 1} of {RUNS}")
            sides = [_side(bundle, times * found.rate_per_s, seconds, SEED + number, monitor) for times in (1.0, TIMES)]
            pairs.append(Pair(sides[0], sides[1]))
    return Overload(found, tuple(pairs))


def _highest(bundle: Bundle, seconds: float, monitor: Monitor, progress: Progress) -> Found:
    seeking = RateSearch(SOURCE.rate_per_s, SHARE)
    while seeking.rate is not None:
        progress(f"searching: {seeking.rate:,.4g}/s")
        side = _side(bundle, seeking.rate, seconds, SEED, monitor)
        seeking.told(side.figures.on_time_share, not side.why)
    return seeking.found()


def _side(bundle: Bundle, rate_per_s: float, seconds: float, seed: int, monitor: Monitor) -> Side:
    """One rate on a node of its own."""
    source = msgspec.structs.replace(SOURCE, rate_per_s=rate_per_s)
    settings = timed_settings([bundle.path], "tcp://127.0.0.1:7711")
    with OwnNode(bundle.path, 1, settings, WEIGHT) as node:
        endpoint = node.endpoint()
        frames = frames_of(bundle, RAW)
        with closing(NodeTarget(endpoint, bundle.contract, bundle.plan, RAW.name, frames, source.priority)) as target:
            monitor.take()
            before = used_s(node.pid)
            played = play([target], [source], WARM_UP_S + seconds, seed)
            after = used_s(node.pid)
            seen = monitor.take_all()
        stats = node.end()
    every = played.rows
    rows = every.since(played.began_ns + round(WARM_UP_S * 1e9))
    held_up = every.held_up(seen.stalls)
    late = (every.kind == LATE) & held_up
    overdue = ((rows.ended_ns == 0) | (rows.ended_ns > rows.due_ns + EPSILON_NS)) & ~rows.held_up(seen.stalls)
    sender = sender_of(rows, source, played.thread_busy, played.process_busy, played.unsent[0])
    return Side(
        rate_per_s=rate_per_s,
        figures=figures_of(rows, seconds),
        executed=executed_rows(stats.launches),
        on_time=int(np.count_nonzero(every.kind == ON_TIME)),
        held_up=int(np.count_nonzero(late)),
        overdue=int(np.count_nonzero(overdue)),
        words=told(stats.counters),
        node_busy=(after - before) / (WARM_UP_S + seconds),
        why=bottleneck(sender, MOST_SHARE),
    )


def show(found: Overload, console: Console) -> bool:
    """Show every run; whether the limits are kept in each."""
    console.print(found_words(found.found))
    title = f"At the highest rate and at {TIMES:g} times that, {SOURCE.deadline_ms:g} ms, one executor"
    table = Table(title=title, box=None, pad_edge=False)
    table.add_column("run")
    for name in (
        "offered /s",
        "on time",
        "on time /s",
        "late",
        "refused",
        "executed",
        "for nothing",
        "no word",
        "node busy",
    ):
        table.add_column(name, justify="right")
    for number, pair in enumerate(found.pairs):
        for side in (pair.at, pair.beyond):
            table.add_row(
                str(number + 1) if side is pair.at else "",
                f"{side.figures.offered_per_s:,.0f}",
                f"{side.figures.on_time_share:.2%}",
                f"{side.figures.on_time_per_s:,.1f}",
                f"{side.figures.kinds['late']:,}",
                f"{side.figures.kinds['rejected']:,}",
                f"{side.executed:,}",
                f"{side.wasted:,}{f' (+{side.held_up:,} held up)' if side.held_up else ''}",
                f"{side.overdue:,}",
                f"{side.node_busy:.0%}",
            )
    console.print(table)
    console.print(
        "Executed is the node's own count from its start on; for nothing are rows of it that were not on time by the load "
        "generator's clock, without those during which the machine stood still. The device is a timed wait."
    )
    for number, pair in enumerate(found.pairs):
        if pair.why:
            console.print(f"Run {number + 1}: NOT JUDGED: {pair.why}.", style="yellow")
        words = "; ".join(pair.broken)
        console.print(
            f"Run {number + 1}: goodput falls by {pair.fall:.1%}: {f'EXCEEDED: {words}' if words else 'kept'}.",
            style="bold red" if words and not pair.why else None,
        )
    console.print(
        f"Limits, in each run: goodput falls by less than {MOST_FALL:.0%}, at most {MOST_WASTED:.1%} of the executed rows "
        f"are for nothing, and there is word of every request by its deadline (and {EPSILON_NS / 1e6:g} ms): "
        f"{'kept' if found.holds else 'NOT KEPT'}."
    )
    return found.holds
