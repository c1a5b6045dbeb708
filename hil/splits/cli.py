"""`headtail when-to-split`: writes the page from what was measured, and measures it anew where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from hil.fetch import cache_folder
from hil.splits.findings import NOTHING_FOUND, Findings, decode_findings, encode_findings
from hil.splits.overview import draw_overview
from hil.splits.page import MAP, write_page
from hil.splits.subjects import ORDER, SUBJECTS, Subject, subject_of
from hil.splits.words import Outcome
from partitioner.terminal import PlainConsole
from shared.errors import UserError

PAGE = "when-to-split.md"
DATA = "when-to-split.json"


def main(
    folder: Annotated[Path, typer.Option(help="Where the page, its map and the measured data are.")] = Path("docs"),
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure first: about ten minutes, on a machine that has nothing else to do."),
    ] = False,
    model: Annotated[
        list[str] | None, typer.Option(help="Measure this one only, and keep the others; may be repeated.")
    ] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Measure only what the data have not yet.")] = False,
    timing: Annotated[float, typer.Option(min=1.0, max=600.0, help="Seconds of timing for each model.")] = 30.0,
) -> None:
    """Write the page that says when a cut pays, for six trained models, from what was measured of them."""
    if not folder.is_dir():
        raise UserError(f"folder {folder}: there is none; expected the one with {PAGE}")
    if (model or missing) and not measure:
        raise UserError("--model and --missing say what to measure: give --measure, too")
    console = PlainConsole()
    findings = _read(folder / DATA, needed=not measure)
    if measure:
        known = {finding.name for finding in findings.models}
        wanted = [subject_of(name) for name in dict.fromkeys(model)] if model else list(SUBJECTS)
        wanted = [subject for subject in wanted if not (missing and subject.name in known)]
        findings = _measure(wanted, findings, folder, timing, console)
    _write(folder, findings)
    console.print(f"{folder / PAGE}: {len(findings.models)} models")


def _measure(wanted: list[Subject], findings: Findings, folder: Path, timing_s: float, console: Console) -> Findings:
    """Measure, and keep each model as soon as it is done, so that nothing is lost where the next one fails."""
    from hil.splits.measure import measure  # what it imports is heavy, and nothing of it is needed to write the page

    cache = cache_folder()
    with console.status("starting") as status:
        for subject in wanted:

            def progress(words: str, title: str = subject.title) -> None:
                status.update(Text(f"{title}: {words}"))

            finding = measure(subject, cache, timing_s, progress)
            findings = findings.with_model(finding, ORDER)
            (folder / DATA).write_bytes(encode_findings(findings))
            console.print(
                f"{subject.title}: {len(finding.cuts)} cuts, {len(finding.ways)} ways, {finding.seconds:.0f} s; "
                f"halves of the runs differ by {finding.unsteady:.1%}, {finding.disturbed:.0%} of the runs were disturbed"
            )
    return findings


def _read(path: Path, *, needed: bool) -> Findings:
    if not path.is_file():
        if needed:
            raise UserError(f"{path}: no such file; headtail when-to-split --measure makes it")
        return NOTHING_FOUND
    findings = decode_findings(path.read_bytes(), str(path))
    for finding in findings.models:
        subject_of(finding.name)
    return findings


def _write(folder: Path, findings: Findings) -> None:
    if not findings.models:
        raise UserError(f"{folder / DATA}: nothing was measured yet; headtail when-to-split --measure does it")
    outcomes = [Outcome.of(subject_of(finding.name).title, finding) for finding in findings.models]
    (folder / PAGE).write_text(write_page(findings), encoding="utf-8")
    (folder / MAP).write_text(draw_overview(outcomes) + "\n", encoding="utf-8")
