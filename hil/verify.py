"""`headtail verify`: proves a plan on a cloud node that it starts for that, or on one that is there.

It ends with status 0 only where every way of the plan gave the answers it should, and where the node itself counted every
tail that was asked of it: a tail that had quietly run here would prove nothing. A node of another's is not ended to learn
its count; there the time of the tail that each of its replies states is what counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloud.launches import LaunchCount
from hil.asker import Asker
from hil.own_node import OwnNode
from hil.proof import SLACK, TOLERANCE, Proof, prove_cuts, prove_rungs
from hil.references import SingleProcess
from hil.samples import LEAST_JUDGED, Samples, samples_of
from partitioner.terminal import PlainConsole
from shared.bundle import Bundle, load_bundle
from shared.endpoints import check_endpoint
from shared.errors import HeadtailError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was proven, on what. `ran` and `asked` are rows of tails by cut: by the node's own count (or its replies, where it
    is not `own`), and as they were asked for."""

    bundle: Bundle
    node: str
    samples: Samples
    proofs: tuple[Proof, ...]
    asked: dict[int, int]
    ran: dict[int, int]
    own: bool = True

    @property
    def failed(self) -> tuple[Proof, ...]:
        """The ways that are not what they ought to be."""
        return tuple(proof for proof in self.proofs if not proof.holds)

    @property
    def holds(self) -> bool:
        """Whether all answers were right and the node ran every tail."""
        return not self.failed and self.asked == self.ran


def verify(
    path: Path,
    told: Callable[[Proof], None] = lambda _: None,
    *,
    node: str | None = None,
    calibration: Path | None = None,
    slack: float = SLACK,
) -> Verdict:
    """Prove the plan in this folder; `told` hears of each proof as it is made. `node` is the endpoint of a node that serves
    the plan, without which one is started; `calibration` a source of rows beside the golden vectors, on which agreements of
    lossy codings and rungs may be `slack` below the plan's.

    Raises `BundleError` for a bundle that is damaged, `UserError` for rows that do not fit it, `HeadtailError` where the node
    fails.
    """
    bundle = load_bundle(path)
    profile = bundle.plan.profile("cloud")
    threads = profile.threads if profile else 1
    runner = SingleProcess(bundle, threads)
    samples = samples_of(bundle, runner, calibration)
    proofs: list[Proof] = []

    def take(proof: Proof) -> None:
        proofs.append(proof)
        told(proof)

    def ask(endpoint: str) -> tuple[str, dict[int, int]]:
        with Asker(endpoint, bundle.contract) as asker:
            name = asker.greet().node
            for proof in prove_cuts(bundle, runner, asker, samples, slack):
                take(proof)
            return name, asker.tails()

    if node is not None:
        name, ran = ask(node)
    else:
        with OwnNode(path, threads) as started:
            name, _ = ask(started.endpoint())
            ran = rows_by_cut(bundle, started.end().launches)
    for proof in prove_rungs(bundle, runner, threads, samples, slack):
        take(proof)
    asked: Counter[int] = Counter()
    for proof in proofs:
        if proof.cut is not None:
            asked[proof.cut] += proof.rows * proof.requests
    return Verdict(bundle, name, samples, tuple(proofs), dict(asked), ran, node is None)


def rows_by_cut(bundle: Bundle, launches: Sequence[LaunchCount]) -> dict[int, int]:
    """Rows of this plan's tails that a node counted, by the cut at which they entered."""
    last = len(bundle.plan.cuts) - 1
    rows: Counter[int] = Counter()
    for launch in launches:
        if (launch.contract, launch.program, launch.last) == (bundle.contract, 0, last):
            rows[launch.first] += launch.rows * launch.count
    return dict(rows)


def main(
    plan: Annotated[Path, typer.Argument(help="The bundle, NAME.plan.")],
    node: Annotated[
        str | None, typer.Option(help="Run the tails in this node, tcp://HOST:PORT, which serves the plan.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Real inputs: a folder of images, an .npz of rows, or module:function, as headtail plan takes them."
        ),
    ] = None,
    slack: Annotated[
        float, typer.Option(help="How far an agreement on these may be below the plan's.", min=0.0, max=1.0)
    ] = SLACK,
) -> None:
    """Prove a plan: head here, tail in a cloud node, every cut, coding and rung, at one row and more, against the whole.

    It ends with status 1, and names what it is, where something disagrees more than the plan says.
    """
    if node is not None:
        check_endpoint(node, binds=False)
    console = PlainConsole(highlight=True)  # names of tensors and files are not ours
    with console.status("starting a node and loading the plan") as status:

        def told(proof: Proof) -> None:
            status.update(Text(f"{proof.way} as {proof.coding}" if proof.coding else proof.way))

        try:
            verdict = verify(plan, told, node=node, calibration=calibration, slack=slack)
        except HeadtailError as error:
            if isinstance(error, ValueError):
                raise
            console.print(f"{plan}: not proven: {error}", highlight=False)
            raise typer.Exit(1) from None
    _show(console, verdict)
    if not verdict.holds:
        raise typer.Exit(1)


def _show(console: Console, verdict: Verdict) -> None:
    plan = verdict.bundle.plan
    table = Table(title=f"{plan.name}, contract {verdict.bundle.contract[:12]}", title_justify="left")
    for name in ("way", "coding", "rows", "requests", "largest difference", "agreement", ""):
        table.add_column(name, overflow="fold")
    for proof in verdict.proofs:
        shown = "0" if proof.difference == 0.0 else f"{proof.difference:.1e}"
        counts = (str(proof.rows), str(proof.requests), shown, _agreed(proof))
        table.add_row(proof.way, proof.coding, *counts, _word(proof))
    console.print(table)
    console.print(
        f"equal: within {TOLERANCE:g} of max(1, |value|). an exact coding is held against the whole model's answers, a "
        "lossy one against the same halves in one process, a rung against its program in one process",
        style="dim",
    )
    console.print(f"on {verdict.samples.label}", highlight=False)
    if not verdict.samples.judged:
        console.print(
            f"agreement was not judged: that takes --calibration with {LEAST_JUDGED} rows or more", highlight=False
        )
    for cut, asked in sorted(verdict.asked.items()):
        ran = verdict.ran.get(cut, 0)
        console.print(
            f"tails from cut {cut} {plan.cuts[cut].name!r}: {asked} rows asked for, {ran} run by node {verdict.node!r} "
            + ("by its own count" if verdict.own else "by the times in its replies"),
            highlight=False,
        )
    for proof in verdict.failed:
        console.print(_fault(proof), highlight=False)
    failed = len(verdict.failed)
    if verdict.holds:
        console.print(f"proven: {len(verdict.proofs)} ways, every tail ran in the node")
    elif failed:
        console.print(f"not proven: {failed} of {len(verdict.proofs)} ways differ")
    else:
        console.print("not proven: the node did not run all the tails that it was asked for")


def _word(proof: Proof) -> str:
    if not proof.equal:
        return "DIFFERS"
    return "equal" if proof.agrees else "DISAGREES"


def _agreed(proof: Proof) -> str:
    if proof.agreement is None or proof.stated is None:
        return ""
    return f"{proof.agreement:.3f} ({proof.stated:.3f} planned)"


def _fault(proof: Proof) -> str:
    """What is wrong with a way, in a sentence."""
    what = f"{proof.way} as {proof.coding}" if proof.coding else proof.way
    if not proof.equal:
        return f"{what}: differs by {proof.difference:.1e} at {proof.rows} rows, more than {TOLERANCE:g}"
    return f"{what}: agrees by {proof.agreement:.3f}, the plan says {proof.stated:.3f}, and {proof.slack:g} less is allowed"
