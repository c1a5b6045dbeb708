"""The demo's report as one HTML file that needs nothing else: no script, no font, no image from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path

from hil.report import PlanSummary, Report
from hil.report_svg import legend, panel, shares
from hil.results import PhaseResult
from hil.verdict import BROKEN, HOLDS, NOT_JUDGED
from partitioner.charts.markup import escape

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; background: #f8fafc; margin: 0 auto; padding: 24px;
       max-width: 1360px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 32px 0 8px; } h3 { font-size: 14px; margin: 0; }
p { margin: 4px 0; max-width: 100ch; } small, .faint { color: #6b7280; }
.verdict { display: inline-block; padding: 2px 12px; border-radius: 12px; color: #fff; font-weight: 600; }
.holds { background: #15803d; } .fails { background: #dc2626; }
.card { overflow-x: auto; background: #fff; border: 1px solid #e5e7eb; border-radius: 8px; padding: 12px 14px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(540px, 1fr)); gap: 14px; }
.images { display: flex; flex-wrap: wrap; gap: 14px; }
.images img { width: 384px; image-rendering: pixelated; display: block; }
table { border-collapse: collapse; width: 100%; font-size: 12.5px; }
th, td { text-align: right; padding: 3px 6px; border-bottom: 1px solid #e5e7eb; white-space: nowrap; }
th { color: #6b7280; font-weight: 600; } .words { text-align: left; white-space: pre; } td.long { white-space: normal; }
.figures table { font-size: 11.5px; } .figures th { white-space: normal; } .figures th, .figures td { padding: 3px 5px; }
.yes { color: #15803d; font-weight: 600; } .no { color: #dc2626; font-weight: 600; } .open { color: #b45309; }
ul { margin: 4px 0; padding-left: 20px; } code { font-size: 12px; overflow-wrap: anywhere; }
"""


def write_html(report: Report, path: Path, images: Sequence[tuple[str, Path]]) -> None:
    """Write the page. `images` are titles and PNG files to be shown in it."""
    path.write_text(page(report, [(title, file.read_bytes()) for title, file in images]), encoding="utf-8")


def page(report: Report, images: Sequence[tuple[str, bytes]]) -> str:
    """The page. `images` are titles and the contents of PNG files."""
    verdict, words = "holds" if report.verdict.holds else "fails", escape(report.verdict.words)
    body = [
        "<h1>headtail demo</h1>",
        f'<p><span class="verdict {verdict}">{words}</span> '
        f"deadline <b>{report.deadline_ms:g} ms</b>, forced split {report.split_deadline_ms:g} ms, "
        f"device {report.slowdown:g} times slower than this machine, {report.seconds:.0f} s in all</p>",
        f"<p>{escape(report.deadline_why)}</p>",
        *(f"<p>{escape(note)}</p>" for note in report.notes),
        "<h2>Shares of the frames</h2>",
        f'<p class="faint">Answered on time by the cloud and by the edge, and not in time. On the right: on time in all.</p>'
        f'<div class="card">{shares(report.phases)}</div>',
        f"<h2>Every frame</h2><p>{legend()}</p>",
        f'<div class="panels">{"".join(_panel(number, result) for number, result in enumerate(report.phases, 1))}</div>',
        "<h2>Figures</h2>",
        f'<div class="card figures">{_figures(report.phases)}</div>',
        "<h2>Verdict</h2>",
        f'<div class="card">{_rules(report)}</div>',
        "<h2>Plans</h2>",
        *(_plan(plan) for plan in report.plans),
    ]
    if images:
        body.append("<h2>What the model found</h2>")
        body.append(f'<div class="images">{"".join(_image(title, content) for title, content in images)}</div>')
    body.append("<h2>Where this ran</h2>")
    body.append(_environment(report))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>headtail demo</title>'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _panel(number: int, result: PhaseResult) -> str:
    marks = [f"{result.on_time_share:.1%} on time", f"deadline {result.deadline_ms:g} ms"]
    if result.repeated:
        marks.append("played a second time, as the machine had stalled")
    if result.machine_stalled:
        why = f", and it was not repeated: {result.not_repeated_because}" if result.not_repeated_because else ""
        marks.append(f"the machine stalled{' again' if result.repeated else ''}{why}")
    return (
        f'<div class="card"><h3>{number}. {escape(result.title)}</h3><small>{escape(", ".join(marks))}</small>'
        f"{panel(result)}</div>"
    )


COLUMNS = (
    "phase", "frames", "on time", "late", "missed", "rejected", "superseded", "lost", "duplicated", "wrong",
    "by source", "by rung", "by fidelity", "p50 ms", "p99 ms", "machine p99 ms",
)  # fmt: skip


def _figures(results: Sequence[PhaseResult]) -> str:
    rows = [
        _row(
            "td",
            (
                f"{number}. {result.name}\n{result.marks}".strip(), result.frames,
                result.on_time, result.late, result.missed, result.rejected,
                result.superseded, result.lost, result.duplicated, result.wrong, _counts(result.by_source),
                _counts(result.by_rung), _counts(result.by_fidelity), f"{result.p50_ms:.2f}", f"{result.p99_ms:.2f}",
                f"{result.machine_lateness_p99_ms:.2f}",
            ),
            {0, 10, 11, 12},
        )
        for number, result in enumerate(results, 1)
    ]  # fmt: skip
    return f"<table>{_row('th', COLUMNS, {0, 10, 11, 12})}{''.join(rows)}</table>"


MARKS = {HOLDS: "yes", BROKEN: "no", NOT_JUDGED: "open"}


def _rules(report: Report) -> str:
    titles = {result.name: result.title for result in report.phases}
    rows = [
        f'<tr><td class="words {MARKS[rule.word]}">{escape(rule.word)}</td>'
        f'<td class="words long">{escape(titles.get(rule.phase, rule.phase) or "all phases")}</td>'
        f'<td class="words long">{escape(rule.expected)}</td><td class="words long">{escape(rule.told)}</td></tr>'
        for rule in report.verdict.rules
    ]
    head = '<tr><th></th><th class="words">phase</th><th class="words">expected</th><th class="words">found</th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def _plan(plan: PlanSummary) -> str:
    return (
        f'<div class="card" style="margin-bottom: 14px"><h3>{escape(plan.name)}</h3><p>{escape(plan.chosen)}</p>'
        f'<p class="faint">made in {plan.seconds:.1f} s, agreement measured as {escape(plan.metric)}, '
        f"contract <code>{escape(plan.contract)}</code></p>"
        f"<p>Cuts</p>{_list(plan.cuts)}<p>Ways through the cloud</p>{_list(plan.routes)}"
        f"<p>Rungs on the device</p>{_list(plan.rungs)}</div>"
    )


def _environment(report: Report) -> str:
    it = report.environment
    libraries = ", ".join(f"{name} {number}" for name, number in it.libraries.items())
    weight = ", ".join(it.weight) or "none"
    return (
        f'<div class="card"><p>{escape(it.processor)}, {it.cores} cores, {escape(it.system)}</p>'
        f"<p>Python {escape(it.python)}, headtail {escape(it.headtail)}, {escape(libraries)}</p>"
        f"<p>Scheduler's weight granted to the processes: {escape(weight)}</p></div>"
    )


def _image(title: str, content: bytes) -> str:
    data = b64encode(content).decode("ascii")
    return f'<div class="card"><h3>{escape(title)}</h3><img alt="{escape(title)}" src="data:image/png;base64,{data}"></div>'


def _list(items: Iterable[str]) -> str:
    lines = [f"<li>{escape(item)}</li>" for item in items]
    return f"<ul>{''.join(lines)}</ul>" if lines else '<p class="faint">none</p>'


def _counts(counts: dict[str, int]) -> str:
    return "\n".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _row(tag: str, cells: Sequence[object], words: set[int]) -> str:
    opened = [f'<{tag} class="words">' if index in words else f"<{tag}>" for index in range(len(cells))]
    made = [f"{start}{escape(str(cell))}</{tag}>" for start, cell in zip(opened, cells, strict=True)]
    return f"<tr>{''.join(made)}</tr>"
