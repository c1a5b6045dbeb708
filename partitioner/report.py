"""The report of a plan, one HTML file that needs nothing else: what was chosen, against what, and under which conditions.

It is written for the person who must decide whether to trust the plan, so it shows the ways that lost as well, says of
each number whether it was measured or estimated, and names machine, versions and data.
"""

from __future__ import annotations

import html
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from partitioner.agreement import describe
from partitioner.choose import rank, without_dominated
from partitioner.cost import Candidate, predict
from partitioner.machine import device_name, library_version
from partitioner.options import LinkGuess
from partitioner.study import Study
from partitioner.verify_local import Check
from partitioner.weigh import Weighing
from shared.plan import Plan, Profile, contract_digest

RATES_MBIT = (5.0, 20.0, 50.0, 100.0, 200.0, 1000.0)
RTTS_MS = (0.5, 2.0, 6.0, 20.0)
PACKAGES = ("headtail", "onnx", "onnxruntime", "numpy", "simplejpeg")

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b2a33;background:#fff}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem;border-bottom:1px solid #cfd8dc}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.86rem}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #e6ecef}th:first-child,td:first-child{text-align:left}
th{background:#f3f6f8}tr.best{background:#dff3e4}tr.kept{background:#eef6fb}td.late{color:#a33}
.bar{display:flex;height:.7rem;width:18rem}.bar i{display:block;height:100%}.note{color:#566}
table.facts td{text-align:left}table.facts th{text-align:left}
p.chosen{font-size:1.05rem;background:#dff3e4;padding:.7rem 1rem;border-left:4px solid #2e8b57}
"""
COLOURS = (("device", "#c76b29"), ("uplink", "#7aa6c2"), ("cloud", "#2f6690"), ("downlink", "#b8cfdc"))


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a report tells of."""

    study: Study
    weighing: Weighing
    plan: Plan
    checks: tuple[Check, ...]
    seconds: float


def render(findings: Findings) -> str:
    """The report as one HTML page without scripts or links."""
    plan = findings.plan
    parts = [
        f"<h1>Plan {_text(plan.name)}</h1>",
        f'<p class="chosen">{_text(plan.chosen)}</p>',
        _conditions(findings),
        _candidates(findings),
        _elsewhere(findings),
        _ladder(findings),
        _proof(findings.checks),
        *(_profile(profile) for profile in plan.profiles),
        _machine(findings),
    ]
    head = f'<meta charset="utf-8"><title>Plan {_text(plan.name)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def ordered(weighing: Weighing, link: LinkGuess, deadline_ns: int) -> list[Candidate]:
    """All candidates, best first; then splits that are no better than the input, last those of unknown agreement."""
    ways = without_dominated(weighing.candidates)
    ranked = rank(ways, link, deadline_ns, 0.0)
    ranked += rank([c for c in weighing.candidates if c not in ways], link, deadline_ns, 0.0)
    unknown = [c for c in weighing.candidates if math.isnan(c.agreement)]
    return ranked + sorted(unknown, key=lambda c: predict(c, link).total.p50_us)


def _conditions(findings: Findings) -> str:
    options = findings.study.options
    rows = [
        ("deadline", f"{options.deadline_ns / 1e6:g} ms"),
        ("link", str(options.link)),
        ("edge", f"this machine, {options.edge_slowdown:g} times slower"),
        ("frames", f"{options.cadence_hz:g} a second"),
        ("least agreement", f"{options.min_agreement:g}"),
        ("agreement is", f"{findings.plan.metric}: {describe(findings.plan.metric)}"),
        (
            "data",
            f"{findings.study.data.label}; {len(findings.study.data.fit)} rows fitted to, "
            f"{len(findings.study.data.held_out)} others judged by, with {findings.study.found} findings in them",
        ),
        ("forced cuts", ", ".join(options.force_cuts) or "none"),
    ]
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in findings.weighing.notes)
    return f"<h2>Conditions</h2>{_table(('condition', 'value'), rows, 'facts')}{notes}"


def _candidates(findings: Findings) -> str:
    weighing, options = findings.weighing, findings.study.options
    header = ("way", "p50 ms", "p99 ms", "where the time goes", "device ms", "up KB", "down KB", "agreement", "by")
    lines: list[str] = []
    candidates = ordered(weighing, options.link, options.deadline_ns)
    longest = max((predict(c, options.link).total.p50_us for c in candidates), default=1.0)
    for candidate in candidates:
        prediction = predict(candidate, options.link)
        late = prediction.total.p99_us * 1000 > options.deadline_ns
        kind = "best" if candidate == weighing.best else "kept" if candidate in weighing.routes else ""
        parts = (prediction.edge_us, prediction.uplink_us, prediction.cloud_us, prediction.downlink_us)
        cells = [
            f"<td>{_text(candidate.label)}</td>",
            f"<td>{prediction.total.p50_us / 1000:.2f}</td>",
            f'<td class="{"late" if late else ""}">{prediction.total.p99_us / 1000:.2f}</td>',
            f"<td>{_bar(parts, longest)}</td>",
            f"<td>{prediction.edge_us / 1000:.2f}</td>",
            f"<td>{candidate.bytes_up / 1000:.1f}</td>",
            f"<td>{candidate.bytes_down / 1000:.1f}</td>",
            f"<td>{'unknown' if math.isnan(candidate.agreement) else f'{candidate.agreement:.3f}'}</td>",
            f"<td>{'measured' if candidate.measured else 'estimate'}</td>",
        ]
        lines.append(f'<tr class="{kind}">{"".join(cells)}</tr>')
    legend = ", ".join(f'<span style="color:{colour}">■</span> {name}' for name, colour in COLOURS)
    return (
        "<h2>All ways, best first</h2><p>On time by p99 first, then agreement, then time. Green is the choice, blue the "
        "other routes of the plan; a red p99 is past the deadline. Splits that are in nothing better than sending "
        "the input come after the others. A way whose agreement is unknown would not have won with "
        f"full agreement, and was not measured. {legend}</p>"
        f"<table><tr>{''.join(f'<th>{h}</th>' for h in header)}</tr>{''.join(lines)}</table>"
    )


def _elsewhere(findings: Findings) -> str:
    """Which way would win under other links."""
    options = findings.study.options
    usable = [c for c in findings.weighing.candidates if c.measured]
    rows: list[tuple[str, ...]] = []
    for rate in RATES_MBIT:
        best = [
            next(iter(rank(usable, LinkGuess(rate, rtt), options.deadline_ns, options.min_agreement)), None)
            for rtt in RTTS_MS
        ]
        rows.append((f"{rate:g} Mbit/s", *(c.label if c else "none" for c in best)))
    return (
        "<h2>Which way wins where</h2><p>The same deadline and device, by rate and round trip; measured ways only.</p>"
        + _table(("rate", *(f"{rtt:g} ms" for rtt in RTTS_MS)), rows)
    )


def _ladder(findings: Findings) -> str:
    times = {c.rung: c.head for c in findings.weighing.rungs}
    rows = [
        (r.name, f"{times[r.name].p50_us / 1000:.2f}", f"{times[r.name].p99_us / 1000:.2f}", f"{r.agreement:.3f}")
        for r in findings.plan.ladder
    ]
    return f"<h2>Ladder: ways to answer on the device</h2>{_table(('rung', 'p50 ms', 'p99 ms', 'agreement'), rows)}"


def _proof(checks: Iterable[Check]) -> str:
    rows = [(c.cut, c.coding, str(c.rows), f"{c.value:.2e}" if c.coding == "raw" else f"{c.value:.3f}") for c in checks]
    return (
        "<h2>Proof</h2><p>Head and tail of the written files against the model before it was cut: the largest relative "
        "difference where the coding is exact, else the agreement on held-out data.</p>"
        + _table(("cut or rung", "coding", "rows", "value"), rows)
    )


def _profile(profile: Profile) -> str:
    rows = [
        (f"{r.program}: {r.first} to {r.last}", str(r.batch), f"{r.p50_us / 1000:.2f}", f"{r.p99_us / 1000:.2f}")
        for r in profile.ranges
    ]
    codecs = [
        (f"cut {c.cut} as {c.coding}", f"{c.encode_us / 1000:.3f}", f"{c.decode_us / 1000:.3f}") for c in profile.codecs
    ]
    return (
        f"<h2>Profile of the {profile.side}</h2><p>{_text(profile.device)}, {profile.provider}, threads: {profile.threads}, "
        f"slowed {profile.slowdown:g} times, at {profile.cadence_hz:g} Hz.</p>"
        + _table(("program: segments", "rows", "p50 ms", "p99 ms"), rows)
        + "<br>"
        + _table(("coding", "encode ms", "decode ms"), codecs)
    )


def _machine(findings: Findings) -> str:
    plan = findings.plan
    rows = [
        ("processor", device_name()),
        ("system", platform.platform()),
        ("python", platform.python_version()),
        *((name, library_version(name)) for name in PACKAGES),
        ("model", plan.model),
        ("opset, IR", f"{plan.opset}, {plan.ir_version}"),
        ("contract", contract_digest(plan)),
        ("rows may be joined", f"up to {plan.max_batch}" if plan.batchable else "no"),
        ("seed", str(findings.study.options.seed)),
        ("made in", f"{findings.seconds:.1f} s"),
    ]
    return f"<h2>Machine and versions</h2>{_table(('what', 'value'), rows, 'facts')}"


def _bar(parts_us: Sequence[float], longest_us: float) -> str:
    widths = [100.0 * part / max(longest_us, 1e-9) for part in parts_us]
    pieces = [
        f'<i style="width:{width:.1f}%;background:{colour}"></i>'
        for width, (_, colour) in zip(widths, COLOURS, strict=True)
    ]
    return f'<span class="bar">{"".join(pieces)}</span>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="{kind}"><tr>{head}</tr>{body}</table>'


def _text(value: str) -> str:
    return html.escape(value)
