"""`headtail sim crowd`: many edges on a few nodes on virtual time, one of which dies and returns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hil.crowd.play import WINDOW_NS, Crowd, Outcome, play
from hil.crowd.rules import OFFERED, SWING, Judged, judge
from hil.regret.chart import Line, Panel, page, rolling
from hil.regret.world import Turns
from hil.written import require_place, write_text
from shared.errors import UserError
from shared.lateness import LatenessFigures

NO = 1
DEFAULT = Crowd()


class Result(msgspec.Struct, frozen=True):
    """What came of it, what it was judged, and how long it took. `turns`: what a message to a node took there."""

    judged: Judged
    outcome: Outcome
    wall_s: float
    turns: LatenessFigures = LatenessFigures()


def main(
    edges: Annotated[int, typer.Option(min=1, max=5000, help="Edges.")] = DEFAULT.edges,
    nodes: Annotated[int, typer.Option(min=2, max=64, help="Nodes, the first of which dies.")] = DEFAULT.nodes,
    hz: Annotated[float, typer.Option(min=0.1, max=100.0, help="Requests of each edge a second.")] = DEFAULT.hz,
    credits_: Annotated[int, typer.Option("--credits", min=1, help="What each node lends in all.")] = DEFAULT.credits,
    executors: Annotated[int, typer.Option(min=1, max=64, help="Executors of each node.")] = DEFAULT.executors,
    tail_ms: Annotated[
        float, typer.Option("--tail-ms", min=0.01, max=1000.0, help="A request on one of them.")
    ] = DEFAULT.tail_ms,
    dies_s: Annotated[float, typer.Option("--dies-s", min=0.0, help="When the first node dies.")] = DEFAULT.dies_s,
    returns_s: Annotated[float, typer.Option("--returns-s", min=0.0, help="When it is back.")] = DEFAULT.returns_s,
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Length of the run.")] = DEFAULT.seconds,
    seed: Annotated[int, typer.Option(min=0, help="Same options and seed: same run.")] = DEFAULT.seed,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw what each node was offered over time.")] = None,
    codec: Annotated[
        bool, typer.Option("--codec", help="Send messages through the wire's codec, and time the nodes' turns.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Let many edges ask a few nodes while one of these dies and returns.

    Exit status 1 where a node is offered more than 1.2 times the credit that it lends, where what a node is sent swings by
    more than half of an even share later than 2 s after a change, or where less than 99 % of the requests are in time.
    """
    if not 0.0 < dies_s < returns_s < seconds:
        raise UserError(
            f"--dies-s {dies_s:g}, --returns-s {returns_s:g}, --seconds {seconds:g}: expected a death before the return, and "
            "both within the run"
        )
    require_place(svg)
    crowd = Crowd(
        edges=edges,
        nodes=nodes,
        hz=hz,
        tail_ms=tail_ms,
        executors=executors,
        credits=credits_,
        dies_s=dies_s,
        returns_s=returns_s,
        seconds=seconds,
        seed=seed,
    )
    began = time.monotonic()
    turns = Turns(time.perf_counter_ns)
    outcome = play(crowd, turns if codec else None)
    if not outcome.requests:
        raise UserError(
            f"--hz {hz:g}, --seconds {seconds:g}: no request counts; expected a longer run, or more of them"
        )
    result = Result(judge(outcome), outcome, time.monotonic() - began, turns.took.figures())
    if svg is not None:
        write_text(svg, drawn(outcome))
    typer.echo(msgspec.json.format(msgspec.json.encode(result)).decode() if as_json else told(result))
    if result.judged.faults:
        raise typer.Exit(NO)


def told(result: Result) -> str:
    """The result in words."""
    judged, outcome = result.judged, result.outcome
    refused = ", ".join(f"{count:,} {reason}" for reason, count in sorted(outcome.refused.items())) or "none"
    lines = [
        f"{outcome.crowd.edges} edges on {outcome.crowd.nodes} nodes: {outcome.requests:,} requests in "
        f"{outcome.crowd.seconds:g} s, simulated in {result.wall_s:.1f} s",
        f"in time {100 * judged.on_time:.2f} %, answered by a node {100 * judged.cloud:.1f} %; "
        f"{100 * judged.served:.1f} % of the edges had such an answer",
        f"a node was offered up to {judged.offered:.2f} times its credit (bound {OFFERED:g})",
        f"what a settled node was sent was off its mean by up to {100 * judged.swing:.0f} % of an even share "
        f"(bound {100 * SWING:.0f} %)",
        f"refused: {refused}",
    ]
    if result.turns.count:
        lines.append(
            f"a node's turn, by this machine's clock: p50 {result.turns.p50_ms:.3f} ms, p99 {result.turns.p99_ms:.3f} ms, "
            f"the longest of {result.turns.count:,} {result.turns.max_ms:.2f} ms"
        )
    lines += judged.faults
    return "\n".join(lines)


def drawn(outcome: Outcome) -> str:
    """What each node was offered and sent over time, as SVG."""
    crowd = outcome.crowd
    step = WINDOW_NS / 1e9
    away = ((crowd.dies_s, crowd.returns_s),)
    out = tuple(Line(s.node, tuple((i * step, float(n)) for i, n in enumerate(s.most_out))) for s in outcome.nodes)
    sent = tuple(
        Line(s.node, rolling([(i * step, n / step) for i, n in enumerate(s.sent)], 2 / crowd.hz)) for s in outcome.nodes
    )
    return page(
        f"{crowd.edges} edges on {crowd.nodes} nodes; one is away where it is shaded",
        [
            Panel("out at each node", "requests", out, away, OFFERED * crowd.credits),
            Panel("sent to each node, over two periods of an edge", "requests a second", sent, away),
        ],
    )
