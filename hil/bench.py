"""`headtail bench`: what depends on how fast and how quiet the machine is, and is therefore no test.

Each part has limits of its own, and a module of its own: round trips beside a raw echo (`hil.round_trips`) and, with
them, what `infer()` adds on the device alone (`hil.local_cost`), two streams on one executor (`hil.two_streams`), how
soon a request is refused (`hil.refusals`), what recording costs (`hil.journal_cost`), the exact search and a plan for
3,000 operators (`hil.search_bench`, `hil.plan_bench`), whether what a plan predicts is what its requests then take
(`hil.predictions`); and, which take long and are asked for by name, what a long run leaves behind (`hil.leak`) and
whether the search is right on every model of the zoo (`hil.search_proof`), what rungs of three trained models cost and
keep (`hil.ladders`), what changing the cut under load costs (`hil.switching`), whether second copies over two connections
keep a lossy link in time (`hil.duplicates`), how soon the cloud answers again after the device's address has changed
(`hil.moves`), what a tight class loses beside background work (`hil.background`), what is served at twice the highest
rate (`hil.overload`), and for how long a node's loop stalls that serves many connections (`hil.connections`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from hil import (
    background,
    connections,
    duplicates,
    journal_cost,
    ladders,
    local_cost,
    moves,
    overload,
    plan_bench,
    predictions,
    refusals,
    round_trips,
    search_bench,
    search_proof,
    switching,
)
from hil.bench_cli import Part
from hil.fetch import cache_folder
from hil.leak import FORMS, GROWTH, HITS, Leak, LeakRig
from hil.model_zoo import ZOO
from hil.monitor import Noise
from hil.results import PhaseResult
from hil.two_streams import StreamsRig
from hil.two_streams_rules import LESSER, STRICT, TwoStreams
from hil.weight import add_weight
from hil.written import require_place, write_json
from partitioner.terminal import PlainConsole

STRETCH = 50_000
TIMED_STRETCH = 5_000
LEAST_STRETCHES = 4
REFUSALS = 200
CHANGES = 10

Progress = Callable[[str], None]


def play_streams(frames: int, progress: Progress) -> TwoStreams:
    """Both streams, `frames` strict ones in each act."""
    with (
        tempfile.TemporaryDirectory(prefix="headtail-streams-") as folder,
        StreamsRig(Path(folder), Noise()) as rig,
    ):
        return rig.play_all(frames, progress)


def run_leaks(requests: int, seconds: float, progress: Progress) -> list[Leak]:
    """Both forms, `requests` each, for `seconds` at most where that is not 0."""
    stretch = max(1, min(TIMED_STRETCH if seconds else STRETCH, requests // LEAST_STRETCHES))
    found: list[Leak] = []
    for form in FORMS:
        with tempfile.TemporaryDirectory(prefix="headtail-leak-") as folder, LeakRig(form, Path(folder)) as rig:
            found.append(rig.run(requests, stretch, progress, seconds))
    return found


def run_search(tree: dict[str, object], console: Console, progress: Progress) -> bool:
    """Time the exact search and a large plan, show both, and note them in the tree; whether the limits are kept."""
    progress("search")
    searched = [found for size in search_bench.SIZES for found in search_bench.measure(size, search_bench.SOLVES)]
    progress(f"a plan for {plan_bench.NODES} operators")
    with tempfile.TemporaryDirectory(prefix="headtail-plan-") as folder:
        planned = plan_bench.measure(Path(folder))
    tree["search"] = msgspec.to_builtins(searched)
    tree["planning"] = msgspec.to_builtins(planned)
    kept = [search_bench.show(searched, console), plan_bench.show(planned, console)]
    return all(kept)


def show_streams(report: TwoStreams, console: Console) -> bool:
    """Show every act; whether all rules hold."""
    load = STRICT.load + LESSER.load
    table = Table(title=f"Two streams on one executor, {load:.0%} of it theirs")
    for column in ("act", "stream", "frames", "on time", "late", "missed", "rejected", "p50 ms", "p99 ms", "machine"):
        table.add_column(column, justify="left" if column in ("act", "stream", "machine") else "right")
    for played in report.acts:
        for name, result in ((STRICT.name, played.strict), (LESSER.name, played.lesser)):
            if result is not None:
                table.add_row(played.act.name if result is played.strict else "", name, *_cells(result))
    console.print(table)
    for rule in report.rules:
        style = None if rule.holds or not rule.judged else "bold red"
        console.print(f"{rule.word}: {rule.phase}{': ' if rule.phase else ''}{rule.expected}: {rule.told}", style=style)
    console.print(f"Two streams: {report.words}.")
    return report.holds


def _cells(result: PhaseResult) -> tuple[str, ...]:
    return (
        str(result.frames),
        f"{result.on_time_share:.1%}",
        str(result.late),
        str(result.missed),
        str(result.rejected),
        f"{result.p50_ms:.1f}",
        f"{result.p99_ms:.1f}",
        result.marks,
    )


def show_leaks(leaks: list[Leak], console: Console) -> bool:
    """Show each process at the end of the first and of the last stretch; whether nothing was left and memory held still."""
    table = Table(title="After a long run, at rest")
    for column in ("form", "process", "requests", "resident MB", "growth", "descriptors", "threads"):
        table.add_column(column, justify="left" if column in ("form", "process") else "right")
    for leak in leaks:
        for name, samples in leak.samples.items():
            first, last, before, after = samples[0], samples[-1], leak.before[name], leak.after[name]
            style = None if leak.growth[name] < GROWTH else "bold red"
            table.add_row(
                leak.form,
                name,
                f"{first.requests} to {last.requests}",
                f"{first.resident_kb / 1024:.1f} to {last.resident_kb / 1024:.1f}",
                f"{leak.growth[name]:.2%}",
                f"{before.descriptors}, {after.descriptors} after",
                f"{before.threads}, {after.threads} after",
                style=style,
            )
    console.print(table)
    for leak in leaks:
        for name, slots in leak.slots.items():
            console.print(
                f"{leak.form}, {name}: {slots.hit_rate:.2%} of {slots.leases + slots.refused} slots that were asked for were "
                f"there, {slots.high_water} of {slots.slots} in use at once, {slots.unused_share:.0%} of their bytes unused."
            )
        outcomes = ", ".join(f"{count} {kind}" for kind, count in leak.outcomes.items())
        console.print(f"{leak.form}: {leak.seconds:.0f} s; {outcomes}.")
        for words in leak.broken:
            console.print(f"  LEFT: {words}", style="bold red")
    good = all(leak.within and not leak.broken for leak in leaks)
    limit = "kept" if good else "EXCEEDED"
    console.print(
        f"Limit: resident memory grows by less than {GROWTH:.0%} after the first stretch, {HITS:.0%} of the slots are there, "
        f"nothing is left: {limit}."
    )
    return good


def run_parts(
    only: Sequence[Part] | None,
    *,
    turns: int,
    requests: int,
    frames: int,
    rounds: int,
    seconds: float,
    copies: int,
    outcomes: int,
    minutes: float,
    report: Path | None,
) -> None:
    """Measure these parts, or the first six where none is named, and show them; the numbers are those of
    `hil.bench_cli`. Raises `typer.Exit` with status 1 over a limit."""
    require_place(report)
    console = PlainConsole(highlight=True)
    add_weight()
    parts = only or [Part.ROUND_TRIPS, Part.STREAMS, Part.REFUSALS, Part.JOURNAL, Part.SEARCH, Part.PREDICTIONS]
    tree: dict[str, object] = {"cpus": os.cpu_count(), "python": sys.version.split()[0]}
    good = True
    with console.status("starting") as status:
        if Part.ROUND_TRIPS in parts:
            figures = round_trips.measure(turns, requests, status.update)
            tree |= msgspec.to_builtins(figures)
            alone = local_cost.measure(turns, requests, status.update)
            tree["local"] = msgspec.to_builtins(alone)
            good &= round_trips.show(figures, console)
            good &= local_cost.show(alone, console)
        if Part.STREAMS in parts:
            streams = play_streams(frames, status.update)
            tree["streams"] = msgspec.to_builtins(streams)
            good &= show_streams(streams, console)
        if Part.REFUSALS in parts:
            status.update("refusals")
            refused = refusals.measure(REFUSALS)
            tree["refusals"] = msgspec.to_builtins(refused)
            good &= refusals.show(refused, console)
        if Part.JOURNAL in parts:
            costs = journal_cost.measure()
            tree["journal"] = msgspec.to_builtins(costs)
            good &= journal_cost.show(costs, console)
        if Part.SEARCH in parts:
            good &= run_search(tree, console, status.update)
        if Part.PREDICTIONS in parts:
            compared = predictions.measure(rounds, status.update)
            tree["predictions"] = predictions.as_tree(compared)
            good &= predictions.show(compared, console)
        if Part.SEARCH_PROOF in parts:
            models = [model for model in ZOO if not model.refused]
            proofs = list(search_proof.prove_zoo(models, cache_folder(), search_proof.CONDITIONS, status.update))
            tree["search-proof"] = msgspec.to_builtins(proofs)
            good &= search_proof.show(proofs, console)
        if Part.LEAK in parts:
            leaks = run_leaks(outcomes, 60 * minutes, console.print)
            tree["leak"] = msgspec.to_builtins(leaks)
            good &= show_leaks(leaks, console)
        if Part.LADDER in parts:
            found = ladders.measure(seconds, status.update)
            tree["ladder"] = msgspec.to_builtins(found)
            good &= ladders.show(found, console)
        if Part.SWITCHING in parts:
            switched = switching.measure(seconds, status.update)
            tree["switching"] = msgspec.to_builtins(switched)
            good &= switching.show(switched, console)
        if Part.DUPLICATES in parts:
            duplicated = duplicates.measure(copies, status.update)
            tree["duplicates"] = msgspec.to_builtins(duplicated)
            good &= duplicates.show(duplicated, console)
        if Part.ADDRESS in parts:
            moved = moves.measure(CHANGES, status.update)
            tree["address"] = msgspec.to_builtins(moved)
            good &= moves.show(moved, console)
        if Part.BACKGROUND in parts:
            beside = background.measure(seconds, status.update)
            tree["background"] = msgspec.to_builtins(beside)
            good &= background.show(beside, console)
        if Part.CONNECTIONS in parts:
            status.update("connections")
            crowd = connections.measure(seconds)
            tree["connections"] = msgspec.to_builtins(crowd)
            good &= connections.show(crowd, console)
        if Part.OVERLOAD in parts:
            twice = overload.measure(seconds, status.update)
            tree["overload"] = msgspec.to_builtins(twice)
            good &= overload.show(twice, console)
    if report is not None:
        write_json(report, tree)
    if not good:
        raise typer.Exit(1)
