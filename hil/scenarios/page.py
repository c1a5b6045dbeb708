"""The report of a scenario as one HTML file that needs nothing else: no script, no font, no image from elsewhere."""

from __future__ import annotations

from hil.scenarios.drawing import STYLE as DRAWN
from hil.scenarios.drawing import colour_of, timeline
from hil.scenarios.figures import ArmFigures
from hil.scenarios.report import Report
from hil.scenarios.timeline import words
from partitioner.charts.markup import escape
from partitioner.reports.parts import facts, paragraph, plain_table, section
from partitioner.reports.style import STYLE

WIDE, NARROW = 1060.0, 340.0

OWN = (
    DRAWN
    + """
.verdict.open{border-color:var(--k5);background:var(--card)}
td.wrap{white-space:normal}
"""
)


def page(report: Report) -> str:
    """The page."""
    scenario, figures, judged = report.scenario, report.figures, report.judgement
    kind = "" if judged.holds else " late" if judged.broken else " open"
    test = figures.test
    body = [
        '<p class="kicker">headtail hil</p>',
        f"<h1>{escape(scenario.name)}</h1>",
        f'<p class="verdict{kind}"><b>{escape(judged.word)}</b>: {escape(_sentence(report))}</p>',
        _tiles(report),
        paragraph(scenario.about),
        section("timeline", "Every frame", _figure(report), _legend(test, figures.control)),
        section("faults", "What went wrong when", _faults(report)) if report.struck else "",
        section("budgets", "Budgets", _rules(report)),
        section("figures", "Figures", _arms(report)),
        section("run", "The run", _run(report)),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(scenario.name)}: headtail hil</title><style>{STYLE}{OWN}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _sentence(report: Report) -> str:
    judged = report.judgement
    if judged.broken:
        return "; ".join(f"{rule.expected}, found {rule.found}" for rule in judged.broken) + "."
    if judged.noisy:
        return f"{judged.noisy}."
    return f"all {len(judged.rules)} rules."


def _tiles(report: Report) -> str:
    test, control, oracle = report.figures.test, report.figures.control, report.figures.oracle
    tiles = (
        ("on time", f"{test.share:.1%}", f"the control {control.share:.1%}"),
        ("by the cloud, on time", f"{test.cloud_share:.1%}", f"an oracle {oracle:.1%}"),
        ("frames", f"{test.frames}", f"and {control.frames} of the control"),
        ("machine stalled during", f"{test.marked}", "which count in no share"),
    )
    told = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for what, value, more in tiles
    )
    return f'<dl class="tiles">{told}</dl>'


def _figure(report: Report) -> str:
    stall_ms = report.scenario.noise.stall_ms
    caption = (
        "Red line: the deadline. Red dots were late, crosses have no answer. Pale ones are marked: a process that does "
        f"nothing but wake up every millisecond came {stall_ms:g} ms late or later meanwhile, or 1 ms at "
        "the deadline. Grey bands are faults, red "
        "ones gaps of the link."
    )
    return (
        f'<figure><div class="wide">{timeline(report, WIDE)}</div><div class="narrow">{timeline(report, NARROW)}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _legend(*arms: ArmFigures) -> str:
    sources = sorted({source for arm in arms for source in arm.by_source})
    items = "".join(
        f'<li><b class="letter k{colour_of(source)}">&nbsp;</b><span>answered by {escape(_who(source))}</span></li>'
        for source in sources
    )
    return f'<ul class="legend">{items}</ul>'


def _who(source: str) -> str:
    return "the device" if source == "edge" else source


def _faults(report: Report) -> str:
    rows = [
        (
            str(one.fault + 1),
            words(report.scenario.faults[one.fault]),
            ", ".join(one.victims) or "-",
            f"{one.begin_ms / 1e3:.2f} s",
            "-" if one.end_ms is None else f"{one.end_ms / 1e3:.2f} s",
        )
        for one in report.struck
    ]
    return plain_table("faults", ("", "fault", "struck", "began", "over"), rows, (1, 2))


def _rules(report: Report) -> str:
    rows = [(rule.word, rule.expected, rule.found) for rule in report.judgement.rules]
    return plain_table("budgets", ("", "expected", "found"), rows, (1, 2), fit=True)


def _arms(report: Report) -> str:
    test, control = report.figures.test, report.figures.control
    names = (
        "frames", "marked", "on_time", "late", "missed", "rejected", "superseded", "lost", "duplicated", "wrong",
        "told_late", "p50_ms", "p99_ms",
    )  # fmt: skip
    told = {"told_late": "called on time too late", "p50_ms": "p50 of answers, ms", "p99_ms": "p99 of answers, ms"}
    rows = [
        (told.get(name, name.replace("_", " ")), f"{getattr(test, name):g}", f"{getattr(control, name):g}")
        for name in names
    ]
    rows += [
        (what, _counts(one), _counts(other))
        for what, one, other in (
            ("answered by", test.by_source, control.by_source),
            ("fidelity", test.by_fidelity, control.by_fidelity),
            ("not answered", test.misses, control.misses),
        )
    ]
    return plain_table("figures", ("", "with the cloud", "control"), rows, fit=True)


def _run(report: Report) -> str:
    it, machine = report.environment, report.machine
    rows = [
        ("network", report.backend),
        ("tries", f"{len(report.earlier) + 1}" + "".join(f"; set aside: {one.noisy}" for one in report.earlier)),
        (
            "the machine's own lateness",
            f"p50 {machine.p50_ms:.2f}, p99 {machine.p99_ms:.2f}, p99.9 {machine.p999_ms:.2f}, at most "
            f"{machine.max_ms:.1f} ms of {machine.count} wake-ups, on the worst of its cores",
        ),
        *(("note", note) for note in report.notes),
        ("journals", ", ".join(report.journals) or "none"),
        ("machine", f"{it.processor}, {it.cores} cores, {it.system}"),
        ("software", f"Python {it.python}, headtail {it.headtail}"),
        ("scheduler's weight", ", ".join(it.weight) or "none granted"),
        ("took", f"{report.seconds:.0f} s"),
    ]
    return facts("the run", rows)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
