"""`headtail verify`: proves a plan on a cloud node that it starts for that.

It ends with status 0 only where every way of the plan gave the answers it should, and where the node itself counted every
tail that was asked of it: a tail that had quietly run here would prove nothing.
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
from hil.proof import TOLERANCE, Proof, prove_cuts, prove_rungs
from hil.references import SingleProcess
from shared.bundle import Bundle, load_bundle
from shared.errors import HeadtailError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was proven. `ran` and `asked` are rows of tails by cut: by the node's own count, and as they were asked for."""

    bundle: Bundle
    node: str
    proofs: tuple[Proof, ...]
    asked: dict[int, int]
    ran: dict[int, int]

    @property
    def holds(self) -> bool:
        """Whether all answers were right and the node ran every tail."""
        return all(proof.holds for proof in self.proofs) and self.asked == self.ran


def verify(path: Path, told: Callable[[Proof], None] = lambda _: None) -> Verdict:
    """Prove the plan in this folder; `told` hears of each proof as it is made.

    Raises `BundleError` for a bundle that is damaged, `HeadtailError` where the node fails.
    """
    bundle = load_bundle(path)
    profile = bundle.plan.profile("cloud")
    threads = profile.threads if profile else 1
    runner = SingleProcess(bundle, threads)
    proofs: list[Proof] = []

    def take(proof: Proof) -> None:
        proofs.append(proof)
        told(proof)

    with OwnNode(path, threads) as node:
        with Asker(node.endpoint(), bundle.contract) as asker:
            name = asker.greet().node
            for proof in prove_cuts(bundle, runner, asker):
                take(proof)
        stats = node.end()
    for proof in prove_rungs(bundle, runner, threads):
        take(proof)
    asked: Counter[int] = Counter()
    for proof in proofs:
        if proof.cut is not None:
            asked[proof.cut] += proof.rows * proof.requests
    return Verdict(bundle, name, tuple(proofs), dict(asked), rows_by_cut(bundle, stats.launches))


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
) -> None:
    """Prove a plan: head here, tail in a cloud node of its own, every cut and coding, every rung, against one process."""
    console = Console(markup=False)  # names of tensors and files are not ours
    with console.status("starting a node and loading the plan") as status:

        def told(proof: Proof) -> None:
            status.update(Text(f"{proof.way} as {proof.coding}" if proof.coding else proof.way))

        try:
            verdict = verify(plan, told)
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
    for name in ("way", "coding", "rows", "requests", "largest difference", ""):
        table.add_column(name, overflow="fold")
    for proof in verdict.proofs:
        shown = "0" if proof.difference == 0.0 else f"{proof.difference:.1e}"
        counts = (str(proof.rows), str(proof.requests), shown)
        table.add_row(proof.way, proof.coding, *counts, "equal" if proof.holds else "DIFFERS")
    console.print(table)
    console.print(
        f"equal: within {TOLERANCE:g} of max(1, |value|). raw is held against the whole model's golden answers, a lossy "
        "coding against the same halves in one process, a rung against its program in one process",
        style="dim",
    )
    for cut, asked in sorted(verdict.asked.items()):
        ran = verdict.ran.get(cut, 0)
        console.print(
            f"tails from cut {cut} {plan.cuts[cut].name!r}: {asked} rows asked for, {ran} run by node {verdict.node!r} "
            "by its own count",
            highlight=False,
        )
    failed = sum(not proof.holds for proof in verdict.proofs)
    if verdict.holds:
        console.print(f"proven: {len(verdict.proofs)} ways, every tail ran in the node")
    elif failed:
        console.print(f"not proven: {failed} of {len(verdict.proofs)} ways differ")
    else:
        console.print("not proven: the node did not run all the tails that it was asked for")
