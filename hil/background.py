"""`headtail bench --only background`: what any amount of background work costs a tight class, on one executor of a real node.

A node of its own process, whose one executor is a timed wait (`hil.timed_node`), is asked by two edges of one load generator:
the tight class at 10 ms, which takes 30 % of the executor, and a best-effort class that offers nothing, as much as the
executor could serve alone, twice and five times that. The acts are played in turn, a few seconds each.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hil.background_rules import (
    LESSER_DEVICE,
    MOST_LOST,
    TIGHT,
    TIGHT_DEVICE,
    TIMES,
    Background,
    Stretch,
    lesser,
    sum_up,
)
from hil.load.figures import figures_of
from hil.load.node_target import NodeTarget
from hil.load.opening import frames_of
from hil.load.play import play
from hil.load.sender import MOST_SHARE, bottleneck, sender_of
from hil.monitor import Monitor, Noise
from hil.process_time import used_s
from hil.services import Service, free_ports, run_folder, wait_ready
from hil.timed_node import timed_settings, write_timed
from shared.bundle import Bundle, load_bundle
from shared.plan import RAW

STRETCH_S = 5.0
WARM_UP_S = 0.5
READY_S = 60.0

Progress = Callable[[str], None]


def measure(seconds: float, progress: Progress) -> Background:
    """Play every act for so many seconds, in stretches of at most `STRETCH_S`. Raises `HeadtailError` where the node does
    not come up."""
    rounds = max(1, round(seconds / STRETCH_S))
    sockets = run_folder()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, sockets, ignore_errors=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headtail-background-")))
        bundles = [write_timed(folder, device, seed) for seed, device in enumerate((TIGHT_DEVICE, LESSER_DEVICE))]
        endpoint = f"tcp://127.0.0.1:{free_ports(1)[0]}"
        node = Service("node", "cloud", timed_settings(bundles, endpoint), folder)
        stack.callback(node.end)
        node.start()
        wait_ready([node], READY_S)
        monitor = stack.enter_context(Monitor(Noise().late_ms))
        loaded = [load_bundle(bundle) for bundle in bundles]
        found: list[Stretch] = []
        for number in range(rounds):
            for place in range(len(TIMES)):
                times = TIMES[(place + number) % len(TIMES)]
                progress(f"background {times:g} times, round {number + 1} of {rounds}")
                found.append(_stretch(times, min(seconds, STRETCH_S), number, endpoint, loaded, node.pid, monitor))
                node.check()
    return sum_up(found)


def _stretch(
    times: float, seconds: float, seed: int, endpoint: str, bundles: list[Bundle], node: int, monitor: Monitor
) -> Stretch:
    sources = [TIGHT, lesser(times)] if times else [TIGHT]
    with ExitStack() as stack:
        targets: list[NodeTarget] = []
        for source, bundle in zip(sources, bundles, strict=False):
            target = NodeTarget(
                endpoint, bundle.contract, bundle.plan, RAW.name, frames_of(bundle, RAW), source.priority
            )
            stack.callback(target.close)
            targets.append(target)
        monitor.take()
        before = used_s(node)
        played = play(targets, sources, WARM_UP_S + seconds, seed)
        after = used_s(node)
        seen = monitor.take_all()
    rows = played.rows.since(played.began_ns + round(WARM_UP_S * 1e9))
    tight = rows.of(0)
    sender = sender_of(tight, TIGHT, played.thread_busy, played.process_busy, sum(played.unsent))
    return Stretch(
        times=times,
        tight=figures_of(tight, seconds),
        kept=figures_of(tight.only(~tight.held_up(seen.stalls)), seconds),
        lesser=figures_of(rows.of(1), seconds) if times else None,
        why=bottleneck(sender, MOST_SHARE),
        node_busy=(after - before) / (WARM_UP_S + seconds),
    )


def show(found: Background, console: Console) -> bool:
    """Show every act and what it lost; whether the limit is kept in each."""
    table = Table(title="A tight class of 10 ms beside background work, one executor", box=None, pad_edge=False)
    table.add_column("background")
    for name in ("tight", "aside", "on time", "of all", "p99 ms", "other /s", "on time /s", "node busy", "left out"):
        table.add_column(name, justify="right", no_wrap=True)
    for act in found.acts:
        table.add_row(
            f"{act.times:g} times" if act.times else "none",
            f"{act.requests:,}",
            f"{act.aside:,}",
            f"{act.share:.3%}",
            f"{act.share_of_all:.3%}",
            "-" if act.p99_ms is None else f"{act.p99_ms:.2f}",
            f"{act.lesser_offered_per_s:,.0f}",
            f"{act.lesser_on_time_per_s:,.0f}",
            f"{act.node_busy:.0%}",
            str(act.left_out),
        )
    console.print(table)
    for act in found.acts:
        if act.late_by or act.without:
            console.print(f"beside {act.times:g} times: late by {_words(act.late_by)}; without {_words(act.without)}")
    console.print(
        "Aside are requests during which the machine itself stood still; left out are stretches in which the load generator "
        "was the bottleneck. The device is a timed wait."
    )
    for loss in found.losses:
        console.print(
            f"Limit: beside {loss.times:g} times the capacity the tight class loses at most {100 * MOST_LOST:g} points: "
            f"{loss.told}{loss.verdict}.",
            style=None if loss.verdict == "holds" else "bold red" if loss.verdict == "BROKEN" else "yellow",
        )
    return found.holds


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{word} {count}" for word, count in sorted(counts.items(), key=lambda each: -each[1])) or "none"
