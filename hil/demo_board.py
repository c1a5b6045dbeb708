"""What a person sees while the demo runs: the steps, the table of the phases, the verdict.

On a terminal the table grows in place; elsewhere each phase becomes a line when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console

from hil.live import COLUMNS, NUMBERS, Board, Line, LiveTable
from hil.phases import Phase
from hil.results import PhaseResult
from hil.verdict import BROKEN, HOLDS, NOT_JUDGED, Verdict

REDRAW_S = 0.3
WIDTHS = (44, 9, 4, 6, 4, 7, 7, 14, 13, 20, 23, 0)
"""Of the table's columns where there is no terminal, in characters."""


STYLES = {HOLDS: "green", BROKEN: "bold red", NOT_JUDGED: "yellow"}


class DemoBoard:
    """Writes to `console`. Times are since `began_s` of `time.monotonic()`."""

    def __init__(self, console: Console, began_s: float) -> None:
        self._console = console
        self._began_s = began_s
        self._titles: list[str] = []
        self._results: list[PhaseResult] = []
        self._live = LiveTable(terminal=False)
        self._drawn_s = 0.0

    def say(self, words: str) -> None:
        """Tell a step, with the time since the demo began."""
        self._console.print(
            f"[{time.monotonic() - self._began_s:5.1f} s] {words}", highlight=False, markup=False, soft_wrap=True
        )

    def detail(self, words: str) -> None:
        """Tell a part of a step, where somebody is watching."""
        if self._console.is_terminal:
            self._console.print(f"          {words}", highlight=False, markup=False, style="dim")

    def expect(self, phases: Sequence[Phase]) -> None:
        """From now on these phases are played."""
        self._titles = [phase.title for phase in phases]
        self._live = LiveTable(self._console.is_terminal)
        self._live.show(self._board(None))
        if not self._console.is_terminal:
            self._print("phase", COLUMNS[1:])

    def watch(self, phase: Phase, state: str, result: PhaseResult) -> None:
        """Show how a phase is going, and how it went. Phases that are not expected (trials) are not shown."""
        if phase.title not in self._titles:
            return
        if state == "done":
            self._results.append(result)
            if not self._console.is_terminal:
                self._print(phase.title, _cells(result, final=True))
        elif time.monotonic() - self._drawn_s < REDRAW_S:
            return
        self._drawn_s = time.monotonic()
        self._live.show(self._board(None if state == "done" else result))

    def finish(self) -> None:
        """Leave the table as it is, and tell which phases ought to have been played once more."""
        self._live.close(self._board(None))
        self._live = LiveTable(terminal=False)
        for result in self._results:
            if result.not_repeated_because:
                self._console.print(
                    f"the machine stalled and it was not repeated: {result.title}: {result.not_repeated_because}",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )

    def verdict(self, verdict: Verdict, titles: dict[str, str]) -> None:
        """Show every rule with its figure."""
        for rule in verdict.rules:
            where = titles.get(rule.phase, "all phases")
            self._console.print(
                f"{rule.word:10}  {where}: {rule.expected}; found {rule.told}",
                style=STYLES[rule.word],
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        style = "bold green" if verdict.holds else "bold red"
        self._console.print(f"verdict: {verdict.words}", style=style, highlight=False, soft_wrap=True)

    def path(self, words: str) -> None:
        """Name a file that was written, in one piece however long."""
        self._console.print(f"  {words}", highlight=False, soft_wrap=True, markup=False)

    def _board(self, running: PhaseResult | None) -> Board:
        lines: list[Line] = []
        for number, title in enumerate(self._titles):
            if number < len(self._results):
                lines.append(Line(title, "done", _cells(self._results[number], final=True)))
            elif number == len(self._results) and running is not None:
                lines.append(Line(title, "running", _cells(running, final=False)))
            else:
                lines.append(Line(title, "waiting"))
        return Board(tuple(lines))

    def _print(self, title: str, cells: Sequence[str]) -> None:
        padded = [
            f"{cell:>{width}}" if number in NUMBERS else f"{cell:{width}}"
            for number, (cell, width) in enumerate(zip((title, *cells), WIDTHS, strict=True))
        ]
        self._console.print("  ".join(padded).rstrip(), highlight=False, soft_wrap=True, markup=False)


def _cells(result: PhaseResult, final: bool) -> tuple[str, ...]:
    """The table's cells after the title. While a phase runs, what is open is not lost yet."""
    answered = sum(result.by_source.values())
    return (
        f"{result.on_time}/{result.frames if final else answered}",
        str(result.late),
        str(result.missed),
        str(result.lost) if final else "",
        f"{result.p50_ms:.1f}",
        f"{result.p99_ms:.1f}",
        f"{result.machine_lateness_p99_ms:.2f}" if final else "",
        result.marks if final else "",
        _counts(result.by_source),
        _counts(result.by_rung),
        _counts(result.by_fidelity),
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
