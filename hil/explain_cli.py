"""`headtail explain`: of a plan, which way wins under given conditions; of a running agent, which ways were weighed and why
one won (`--live`). The first is the partitioner's, the second needs the edge, so that both meet here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from hil.explain_live import LiveTold, RequestTold, explain_journal, journal_of
from hil.explain_why import ChoiceTold
from partitioner.explanations.cli import main as explain_plan
from partitioner.terminal import PlainConsole
from shared.errors import InputError


def main(
    plan: Annotated[Path | None, typer.Argument(help="The bundle, NAME.plan.")] = None,
    link: Annotated[str | None, typer.Option(help="Rate and round trip to the cloud, such as 50mbit,20ms.")] = None,
    edge_slowdown: Annotated[
        float | None, typer.Option(help="How many times slower than the machine of its times the device is.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="When an answer is due, such as 20ms.")] = None,
    min_agreement: Annotated[float | None, typer.Option(help="The least agreement with the whole model.")] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Who wins over a range of one condition: link.rate=10..1000mbit, link.rtt=1..50ms, edge-slowdown=1..16, "
            "deadline=5..100ms or min-agreement=0.5..1; may be repeated."
        ),
    ] = None,
    live: Annotated[
        Path | None,
        typer.Option(
            help="Instead of a plan: the configuration file of an agent that runs on this host, or a journal that one saved."
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="With --live: so many requests, the last. 5 by default.")
    ] = None,
    request: Annotated[str, typer.Option(help="With --live: this request, CLIENT:SEQUENCE or its number.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Say which way of a plan wins under these conditions, why, and what would have to change for another to win.

    What is not given is as the plan was asked for. Nothing is measured again, and no model is loaded.

    With --live: which ways through the cloud the last requests of a running agent weighed, with their predicted times and the
    chance of being in time, and why one was taken. The agent saves its journal for that, and goes on.
    """
    of_plan = {
        "PLAN": plan,
        "--link": link,
        "--edge-slowdown": edge_slowdown,
        "--deadline": deadline,
        "--min-agreement": min_agreement,
        "--what-if": what_if,
    }
    if live is not None:
        for name, value in of_plan.items():
            if value:
                raise InputError(f"{name}: expected none beside --live, which is about an agent and not a plan")
        _live(live, last or 5, request, as_json=as_json)
        return
    if plan is None:
        raise InputError("PLAN: expected a bundle, NAME.plan, or --live and an agent's configuration file or journal")
    if request or last is not None:
        raise InputError("--last, --request: expected only with --live")
    explain_plan(
        plan,
        link=link,
        edge_slowdown=edge_slowdown,
        deadline=deadline,
        min_agreement=min_agreement,
        what_if=what_if,
        as_json=as_json,
    )


def _live(where: Path, last: int, wanted: str, *, as_json: bool) -> None:
    found = explain_journal(journal_of(where), last, wanted)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
    else:
        show(PlainConsole(), found)
    if found.difference is not None:
        raise typer.Exit(1)


def show(console: Console, found: LiveTold) -> None:
    """What was considered, for a person."""
    console.print(f"agent {found.agent}, journal of {found.saved}")
    if not found.requests:
        console.print("It holds no request.")
    for one in found.requests:
        console.print()
        _show_request(console, one)
    if found.difference is not None:
        console.print(f"\nWhat is told ends early: this code decides otherwise than the agent did: {found.difference}")


def _show_request(console: Console, one: RequestTold) -> None:
    took = "" if one.took_ns is None else f" after {one.took_ns / 1e6:.1f} ms"
    late = {None: "", True: ", on time", False: ", NOT on time"}[one.on_time]
    number = f" (number {one.number})" if one.number else ""
    console.print(
        f"{one.id}{number}, {one.budget_ns / 1e6:g} ms: {one.end}{took}{late}: {one.by}".rstrip(": "), style="bold"
    )
    if one.without:
        console.print(f"  {one.without}")
    for choice in one.choices:
        _show_choice(console, choice)


def _show_choice(console: Console, choice: ChoiceTold) -> None:
    console.print(f"  {choice.verdict}; an answer had to be back after {choice.due_ms:.1f} ms; {choice.device}")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)  # so that a terminal of 80 columns takes it
    for name in ("", "way", "chance", "typical", "p95 ms", "device", "network", "node", "bytes", "agrees", "why"):
        left = name in ("", "way", "why")
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for way in choice.ways:
        table.add_row(
            ">" if way.taken else " ",
            f"{way.cut}/{way.coding} at {way.node}",
            f"{way.chance:.2f}",
            f"{way.typical_ms:.1f}",
            f"{way.p95_ms:.1f}",
            f"{way.head_ms:.1f}",
            f"{way.network_ms:.1f}",
            f"{way.node_ms:.1f}",
            f"{way.nbytes:,}",
            f"{way.agreement:.3f}",
            way.why,
        )
    console.print(table)
