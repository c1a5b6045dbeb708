"""`headtail tune`: measure the deployed pair, compare with the plan, plan again by what was measured, and push.

It asks a running agent as any application does, at the stream's pace, in turn with the plan's own deadline and with one that
the quickest rung alone can hold, so that the device is heard of where the cloud mostly answers. What comes of it is
computed from the record (`hil.tune_drift`, `hil.tune_replan`).
"""

from __future__ import annotations

import sys
import termios
import time
import tty
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from edge.client import Client
from hil.tune_drift import LEAST_ANSWERS, Part, seen_in
from hil.tune_replan import Tuning, tune
from partitioner.explanations.explanation import Explanation
from partitioner.records.file import read_record
from partitioner.records.record import RECORD_FILE, Record, encode_record
from partitioner.records.revision import revise_bundle
from partitioner.reports.page import render
from partitioner.terminal import PlainConsole
from partitioner.words import milliseconds
from shared.bundle import Bundle, load_bundle
from shared.endpoints import check_endpoint
from shared.errors import BundleError, HeadtailError, UserError
from shared.plan import PLAN_FILE, REPORT_FILE
from shared.request import Answer, Outcome

ATTACH_S = 10.0
WARM = 4
"""Requests before the first that counts: connections, caches."""
RUNG_FACTOR = 1.5
"""The short deadline, as a multiple of what the quickest rung takes by its p99."""
PUSH_KEY = "p"

_WORDS: dict[Part, str] = {
    "device": "runs on the device",
    "codec": "encoding and decoding",
    "link": "time on the link",
    "cloud": "runs in the cloud",
    "overhead": "beside work and link",
}


def main(
    plan: Annotated[Path, typer.Argument(help="The bundle, NAME.plan, that the agent serves.")],
    agent: Annotated[str, typer.Option(help="The agent, ipc://PATH.")],
    requests: Annotated[int, typer.Option(help="Requests that are asked.", min=2 * LEAST_ANSWERS, max=100_000)] = 120,
    bound: Annotated[
        float, typer.Option(help="By what share a part must be longer or shorter to have drifted.", min=0.01, max=100.0)
    ] = 0.25,
    push: Annotated[bool, typer.Option("--push", help="Replace the plan without asking for a key.")] = False,
) -> None:
    """Measure the deployed pair, compare it with the plan's prediction, plan again by what drifted, and show the difference.

    Nothing is cut or judged anew, and the contract stays. Status 1 where nothing could be compared, or nothing of
    the cloud where the best way goes through it; then nothing is pushed either.
    """
    check_endpoint(agent, binds=False)
    console = PlainConsole()
    bundle, record = read_record(plan)
    with console.status("asking the agent"):
        outcomes = measure(agent, bundle, record, requests)
    answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
    tuning = tune(bundle.plan, record, seen_in(answers, bundle.plan), bound)
    show(tuning, len(outcomes), len(answers), console)
    if not tuning.drift:
        console.print("nothing could be compared: no way of the record was seen often enough")
        raise typer.Exit(1)
    if tuning.unheard:
        console.print(
            f"whether the plan holds is not known: its best way is {tuning.unheard}, and by the cloud there came fewer than "
            f"{LEAST_ANSWERS} answers of one way; is a node running, and does the agent reach it?"
        )
        raise typer.Exit(1)
    if not tuning.drifted:
        console.print("the plan holds: nothing drifted")
        return
    if push or (sys.stdin.isatty() and _key(console)):
        write(tuning, bundle)
        console.print(f"pushed: {plan} is replaced, of the same contract")
        console.print(
            "agent and nodes read a plan when they start: copy it to each, and restart them to take the new one"
        )
    else:
        console.print(f"not pushed: {plan} is as it was (--push replaces it)")


def measure(agent: str, bundle: Bundle, record: Record, requests: int) -> list[Outcome]:
    """The outcomes of so many requests with the golden inputs, one after another at the plan's cadence.

    Raises `HeadtailError` where no agent is there, `UserError` where it serves another plan.
    """
    names = [spec.name for spec in bundle.plan.inputs]
    frames = [dict(zip(names, one.inputs, strict=True)) for one in bundle.golden()]
    long_ms = record.asked.deadline_ms
    quickest = [record.ways[place].on(record.asked.edge_slowdown).head.p99_us for place in record.rungs]
    short_ms = min(long_ms, min(quickest, default=long_ms * 1000.0) * RUNG_FACTOR / 1000.0 + 1.0)
    outcomes: list[Outcome] = []
    with Client(agent, name="tune") as client:
        if not client.wait_attached(ATTACH_S):
            raise HeadtailError(f"{agent}: no agent is there")
        served = client.models().get(bundle.name)
        if served is None:
            raise UserError(f"{agent}: the agent serves {', '.join(client.models()) or 'nothing'}, not {bundle.name}")
        if served.contract != bundle.contract:
            raise UserError(
                f"{agent}: the agent serves another version of {bundle.name} (contract {served.contract[:12]}, the "
                f"bundle's is {bundle.contract[:12]})"
            )
        due_ns = time.monotonic_ns()
        for number in range(WARM + requests):
            time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            due_ns = max(due_ns, time.monotonic_ns()) + round(1e9 / record.cadence_hz)
            deadline_ms = short_ms if number % 2 else long_ms
            outcome = client.infer(frames[number % len(frames)], deadline_ms, model=bundle.name)
            if number >= WARM:
                outcomes.append(outcome)
    return outcomes


def write(tuning: Tuning, bundle: Bundle) -> None:
    """Put the new plan, its record and its report into the bundle, which stays whole at every moment.

    Raises `UserError` where it cannot be written, `BundleError` where it was damaged, or another contract lies there now.
    """
    now = load_bundle(bundle.path).contract
    if now != bundle.contract:
        raise BundleError(
            f"{bundle.path}: was replaced by another plan meanwhile (contract {now[:12]}, it was {bundle.contract[:12]}): "
            "nothing is pushed"
        )
    revise_bundle(
        bundle.path,
        {
            PLAN_FILE: msgspec.json.format(msgspec.json.encode(tuning.plan), indent=1),
            RECORD_FILE: encode_record(tuning.record),
            REPORT_FILE: render(tuning.record, tuning.plan).encode("utf-8"),
        },
    )


def show(tuning: Tuning, asked: int, answered: int, console: Console) -> None:
    """Print what was seen, what drifted, and who wins before and after."""
    console.print(f"{asked} requests, {answered} answered")
    ways = _table("way", "answers", *(_WORDS[part] for part in _WORDS))
    for way in tuning.seen:
        ways.add_row(way.label, str(way.answers), *(milliseconds(way.parts_us[part]) for part in _WORDS))
    console.print(ways)
    drift = _table("part", "predicted", "measured", "times", "")
    for one in tuning.drift:
        times = (milliseconds(one.predicted_us), milliseconds(one.measured_us), f"{one.ratio:.3g}")
        drift.add_row(_WORDS[one.part], *times, "DRIFTED" if one.drifted else "as planned")
    console.print(drift)
    if tuning.seen and all(one.part != "overhead" for one in tuning.drift):
        console.print(
            "what a request costs beside work and link is not in this plan's record, so that no prediction here has it: "
            "measure it with headtail overhead and plan with --overhead"
        )
    if not tuning.drifted:
        return
    console.print(f"link: {tuning.before.conditions.link} planned, {tuning.after.conditions.link} seen")
    if tuning.before.conditions.link != tuning.after.conditions.link and not tuning.fitted:
        console.print("rate and round trip were not told apart: that takes answers by ways of different bytes")
    _show_difference(tuning.before, tuning.after, console)
    if tuning.beyond:
        console.print(
            f"best would be {tuning.beyond}, for which this bundle has no files: make the plan again with headtail plan"
        )


def _show_difference(before: Explanation, after: Explanation, console: Console) -> None:
    old = {standing.label: standing for standing in before.standings}
    table = _table("way", "p50 before", "after", "p99 before", "after", "in time")
    for standing in after.standings:
        was = old.get(standing.label)
        table.add_row(
            standing.label,
            milliseconds(was.p50_us) if was else "",
            milliseconds(standing.p50_us),
            milliseconds(was.p99_us) if was else "",
            milliseconds(standing.p99_us),
            "yes" if standing.in_time else "no",
        )
    console.print(table)
    winners = [e.winner.label if e.winner else "no way" for e in (before, after)]
    if winners[0] == winners[1]:
        console.print(f"{winners[0]} still wins")
    else:
        console.print(f"{winners[1]} wins now, {winners[0]} won before")


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", overflow="fold", header_style="bold")
    return table


def _key(console: Console) -> bool:
    """Wait for one key of the terminal."""
    console.print(f"press {PUSH_KEY} to push this plan, any other key to leave the old one")
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        return sys.stdin.read(1).lower() == PUSH_KEY
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
