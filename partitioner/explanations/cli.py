"""`headtail explain`: what a bundle's record says under given conditions, as text or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from partitioner import api
from partitioner.costs.conditions import TITLES, show_value
from partitioner.explanations import words
from partitioner.explanations.explanation import STAGES, Explanation, Standing
from partitioner.grids import regret
from partitioner.inversions import inversion
from partitioner.planned import read_plan
from partitioner.records.record import Record
from partitioner.terminal import PlainConsole
from partitioner.words import ms, share

WIDE_COLUMNS = 110
"""A terminal of so many columns shows every stage."""


def main(
    plan: Path,
    *,
    link: str | None = None,
    edge_slowdown: float | None = None,
    deadline: str | None = None,
    min_agreement: float | None = None,
    what_if: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Say which way of a plan wins under these conditions, why, and what would have to change for another to win. What each
    argument may be, the command's help says (`hil.explain_cli`)."""
    planned = read_plan(plan)
    explanation = api.explain(
        planned,
        link=link,
        edge_slowdown=edge_slowdown,
        deadline=deadline,
        min_agreement=min_agreement,
        what_if=what_if or (),
    )
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(explanation), indent=1))
        return
    _show(PlainConsole(), explanation, planned.record)


def _show(console: Console, explanation: Explanation, record: Record) -> None:
    asked = "as the plan was asked for" if explanation.asked else "not what the plan was asked for"
    console.print(f"{explanation.name}: {words.verdict(explanation, record)}", style="bold")
    if explanation.winner is not None:
        console.print(words.why(explanation))
    console.print(f"Under {words.conditions(explanation.conditions, explanation.edge)} ({asked}).")
    console.print(f"{words.sources(explanation)}\n")
    if explanation.standings:
        console.print(_standings(explanation, console.width), "")
    changes = _table("Another way wins where one condition changes", ("condition", "where", "who wins then"))
    for row in words.changes(explanation):
        changes.add_row(*row)
    console.print(changes, "")
    for part in explanation.what_if:
        over = _table(f"Who wins by {TITLES[part.axis]}", ("from", "to", "who wins"))
        for interval in part.intervals:
            ends = (show_value(part.axis, interval.low), show_value(part.axis, interval.high))
            over.add_row(*ends, words.winner_of(interval.winner, interval.in_time))
        console.print(over, "")
    console.print(words.split(explanation))
    if explanation.regret is not None:
        console.print(regret.words(explanation.regret))
    for found in record.inversions:
        console.print(inversion.words(found))
    for remark in words.remarks(explanation):
        console.print(f"note: {remark}")


def _standings(explanation: Explanation, columns: int) -> Table:
    """The winner and the runners-up, stage by stage, or by device, link and cloud where the terminal is not wide. A stage
    that nobody has is left out."""
    standings = explanation.standings
    names, parts = _stages(standings, columns >= WIDE_COLUMNS)
    table = _table(
        "Ways, best first; the middle of each stage in ms",
        ("way", "p50", "p99", *names, "up KB", "agrees", "why not"),
        texts={"way", "why not"},
    )
    for standing, times in zip(standings, parts, strict=True):
        table.add_row(
            standing.label,
            ms(standing.p50_us),
            ms(standing.p99_us),
            *(ms(time_us) if time_us > 0.0 else "-" for time_us in times),
            f"{standing.bytes_up / 1000:.1f}",
            share(standing.agreement),
            words.reason(standing, standings[0]),
        )
    return table


def _stages(standings: Sequence[Standing], wide: bool) -> tuple[list[str], list[list[float]]]:
    """The names of the stages that some way has, and each way's times of them in microseconds."""
    if wide:
        names, times = list(STAGES), [list(standing.stages.parts()) for standing in standings]
    else:
        names = ["device", "link", "cloud", "overhead"]
        all_stages = [standing.stages for standing in standings]
        times = [
            [s.head_us + s.encode_us, s.uplink_us + s.downlink_us, s.decode_us + s.tail_us, s.overhead_us]
            for s in all_stages
        ]
    used = [place for place in range(len(names)) if any(row[place] > 0.0 for row in times)]
    return [names[place] for place in used], [[row[place] for place in used] for row in times]


def _table(title: str, header: tuple[str, ...], texts: set[str] | None = None) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=None, padding=(0, 1), pad_edge=False)
    for name in header:
        left = texts is None or name in texts
        table.add_column(
            name, justify="left" if left else "right", overflow="fold", no_wrap=not left, header_style="bold"
        )
    return table
