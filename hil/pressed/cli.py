"""`headtail sim pressure`: a node that is asked too much, with pressure told to its edges and without."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer

from hil.pressed.play import KINDS, OFF_MS, Kind, Outcome, Press, play
from hil.pressed.rules import Pair, judge
from shared.errors import UserError

NO = 1
DEFAULT = Press()
LOADS = (0.5, 1.0, 1.5, 2.0)
NAMES: dict[Kind, str] = {
    "needs": "needs the node",
    "able": "could do without",
    "spare": "could, of the class below",
}


class Result(msgspec.Struct, frozen=True):
    """What came of each load, what is over a bound, and how long it took."""

    pairs: tuple[Pair, ...]
    faults: tuple[str, ...]
    wall_s: float


def main(
    loads: Annotated[
        list[float] | None, typer.Option("--load", min=0.05, max=20.0, help="Asked for, in parts of what the node can.")
    ] = None,
    edges: Annotated[int, typer.Option(min=10, max=5000, help="Edges.")] = DEFAULT.edges,
    executors: Annotated[int, typer.Option(min=1, max=64, help="Executors of the node.")] = DEFAULT.executors,
    tail_ms: Annotated[
        float, typer.Option("--tail-ms", min=0.01, max=1000.0, help="A request on one of them.")
    ] = DEFAULT.tail_ms,
    deadline_ms: Annotated[
        float, typer.Option("--deadline-ms", min=10.0, max=10_000.0, help="When an answer is due.")
    ] = DEFAULT.deadline_ms,
    return_ms: Annotated[
        float, typer.Option("--return-ms", min=1.0, max=60_000.0, help="The node's setting.")
    ] = DEFAULT.return_ms,
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Length of each run.")] = DEFAULT.seconds,
    seed: Annotated[int, typer.Option(min=0, help="Same options and seed: same runs.")] = DEFAULT.seed,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Ask a node too much, with and without pressure told to its edges, of which some can do without it.

    The first 4 s of a run are not counted. Exit status 1 where pressure changes anything at half of the load or less, or
    where at one and a half times the load or more it lets fewer requests be in time, or more be refused.
    """
    if seconds <= DEFAULT.settled_s:
        raise UserError(f"--seconds {seconds:g}: expected more than the {DEFAULT.settled_s:g} s that are not counted")
    began = time.monotonic()
    pairs: list[Pair] = []
    for load in loads or LOADS:
        press = Press(load, edges, executors, tail_ms, deadline_ms, seconds, return_ms=return_ms, seed=seed)
        silent = play(msgspec.structs.replace(press, return_ms=OFF_MS))
        if not silent.requests:
            raise UserError(
                f"--load {load:g}, --tail-ms {tail_ms:g}, --seconds {seconds:g}: no request counts; expected a longer "
                "run, or more of them"
            )
        pairs.append(Pair(silent, play(press)))
    faults = tuple(fault for pair in pairs for fault in judge(pair))
    result = Result(tuple(pairs), faults, time.monotonic() - began)
    typer.echo(msgspec.json.format(msgspec.json.encode(result)).decode() if as_json else told(result))
    if faults:
        raise typer.Exit(NO)


def told(result: Result) -> str:
    """The result in words."""
    lines: list[str] = []
    for pair in result.pairs:
        press = pair.told.press
        lines += [
            f"{press.load:g} times what the node can: {press.edges} edges, {pair.told.requests:,} requests",
            f"  refused by the node {pair.silent.turned_down:,} -> {pair.told.turned_down:,}, highest level "
            f"{pair.told.most:.2f} classes",
        ]
        for kind, (_, priority) in KINDS.items():
            lines.append(f"  {NAMES[kind]} (class {priority}): {_fared(kind, pair.silent, pair.told)}")
    lines.append(f"without -> with pressure; simulated in {result.wall_s:.1f} s")
    lines += result.faults
    return "\n".join(lines)


def _fared(kind: Kind, silent: Outcome, told: Outcome) -> str:
    before, after = silent.kinds[kind], told.kinds[kind]
    return (
        f"in time {before.share(before.on_time):.1%} -> {after.share(after.on_time):.1%}, "
        f"from the node {before.share(before.cloud):.1%} -> {after.share(after.cloud):.1%}, "
        f"agreement {before.agreement:.3f} -> {after.agreement:.3f}"
    )
