"""The report of a plan, one HTML page that needs nothing else: what was chosen, against what, and under which conditions.

It is written for the person who must decide whether to trust the plan, so it shows the ways that lost as well, says of
each number whether it was measured or estimated, and names machine, versions and data. Everything in it comes from the
record and the plan, so it can be written again at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from partitioner.charts.markup import escape
from partitioner.charts.ratios import draw_ratios
from partitioner.choose import ordered
from partitioner.costs.cost import Candidate, predict
from partitioner.explanations import words
from partitioner.explanations.explanation import Explanation
from partitioner.grids import regret
from partitioner.inversions import inversion
from partitioner.records.compared import compared
from partitioner.records.record import Proven, Record
from partitioner.reports import charts
from partitioner.reports.charts import Picture
from partitioner.reports.parts import facts, figure, letter, pair, paragraph, plain_table, section, table
from partitioner.reports.style import STYLE
from partitioner.words import ms, share, size
from shared.plan import Plan, Profile, contract_digest

MAX_ROWS = 60
"""Ways in the table of all ways; the record has the others."""

_PATTERN = (
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>'
    '<pattern id="late" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="hatchline" x1="0" y1="0" x2="0" y2="7"/></pattern></defs></svg>'
)


def render(record: Record, plan: Plan) -> str:
    """The report as one HTML page without scripts or links."""
    picture = Picture.of(record)
    parts = [
        _head(record, picture.explanation),
        section("split", "Does a split pay?", paragraph(words.split(picture.explanation))),
        _where(picture),
        _regret(record),
        _inversions(record),
        _changes(picture.explanation),
        _time(picture),
        _model(picture),
        _ways(picture),
        _files(record, plan),
        _conditions(record, plan),
        _machine(record, plan),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Plan {escape(record.name)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{_PATTERN}<main>{"".join(parts)}</main></body></html>\n'


def _head(record: Record, explanation: Explanation) -> str:
    winner = explanation.winner
    late = winner is None or not winner.in_time
    parts = [
        f'<p class="kicker">headtail plan</p><h1>{escape(record.name)}</h1>',
        f'<p class="verdict{" late" if late else ""}">{escape(words.verdict(explanation, record))}</p>',
    ]
    if winner is not None:
        tiles = (
            ("Middle (p50)", f"{ms(winner.p50_us)} ms", "predicted"),
            ("99 of 100 (p99)", f"{ms(winner.p99_us)} ms", f"deadline {record.asked.deadline_ms:g} ms"),
            ("Agreement", share(winner.agreement), f"asked for: {record.asked.min_agreement:g}"),
            ("Sent for one answer", size(winner.bytes_up) if winner.bytes_up else "nothing", "by the device"),
        )
        cells = "".join(
            f"<div><dt>{escape(a)}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in tiles
        )
        parts.append(f'<dl class="tiles">{cells}</dl>')
        parts.append(paragraph(words.why(explanation)))
    parts.append(
        paragraph(f"Asked for: {words.conditions(record.asked, record.edge)}. {words.sources(explanation)}", "soft")
    )
    if record.forced:
        parts.append(paragraph(f"The routes are forced to {', '.join(record.forced)}, whatever wins.", "soft"))
    parts += [paragraph(remark) for remark in words.remarks(explanation)]
    return f"<header>{''.join(parts)}</header>"


def _where(picture: Picture) -> str:
    asked = picture.record.asked
    late = "" if all(m.all_in_time for m in picture.maps) else " Hatched: even the best way is late there."
    winners = {label for regions in picture.maps for label in regions.winners}
    legend = "".join(
        f"<li>{letter(mark)}<span>{escape(label)}</span></li>"
        for mark, label in charts.marked([way.label for way in picture.ways if way.label in winners], picture.marks)
    )
    return section(
        "where",
        "Which way wins where",
        paragraph(
            f"The winner at a deadline of {asked.deadline_ms:g} ms and an agreement of at least {asked.min_agreement:g}, "
            f"among the ways that were measured. The ring is what was asked for.{late}"
        ),
        pair(
            figure(
                lambda width: charts.rtt_map(picture, width),
                f"On {words.device(picture.record.edge, asked.edge_slowdown)}.",
                "By rate and round trip",
            ),
            figure(
                lambda width: charts.ratio_map(picture, width),
                f"At a round trip of {asked.link.rtt_ms:g} ms.",
                "By rate and device",
            ),
        ),
        f'<ul class="legend">{legend}</ul>',
    )


def _changes(explanation: Explanation) -> str:
    return section(
        "changes",
        "What would have to change",
        paragraph("The nearest value of each condition alone at which another way wins, all else as asked."),
        plain_table(
            "Nearest changes", ("condition", "where", "who wins then"), words.changes(explanation), (1, 2), fit=True
        ),
    )


def _time(picture: Picture) -> str:
    record, winner = picture.record, picture.explanation.winner
    figures = [
        figure(
            lambda width: charts.latency(picture, width),
            f"At a round trip of {record.asked.link.rtt_ms:g} ms; letters as in the table of all ways. Whole lines run on "
            "the device, dashed ones send the input, dotted ones a split. The upright line is the asked rate.",
            "Latency against the rate of the link",
        ),
        figure(
            lambda width: charts.front(picture, width),
            "Filled: no other way is at least as good in all three and better in one. Energy is not shown, since nothing "
            "here measured it.",
            "Latency, agreement and bytes",
        ),
    ]
    if winner is not None:
        figures.append(
            figure(
                lambda width: charts.waterfall(winner, record.asked.deadline_ms, width),
                "The middle of each stage; the thin bar reaches to p99.",
                f"Where the time goes: {winner.label}",
            )
        )
    if record.rungs:
        figures.append(
            figure(
                lambda width: charts.ladder(record, width),
                "The ways to answer on the device that the bundle holds, best first; what the promise rests on.",
                "The ladder",
            )
        )
    return section("time", "Time, agreement and bytes", pair(*figures))


def _model(picture: Picture) -> str:
    if not charts.crossings(picture.record, picture.marks):
        return ""
    return section(
        "model",
        "Where the model may be cut",
        pair(
            figure(
                lambda width: charts.chain(picture, width),
                "A stem is a place to cut and reaches to the raw size of what crosses there; one with a small head was only "
                "estimated. Dots with letters are codings that were measured. Below, the segments of this bundle, cut "
                "where a route needs it.",
                "What crosses where",
            ),
            _comment(picture.record, picture.explanation),
        ),
    )


def _comment(record: Record, explanation: Explanation) -> str:
    cuts = {way.cut for way in record.ways if way.kind == "split"}
    measured = sorted({way.cut for way in record.ways if way.kind == "split" and way.measured})
    told = (
        f"{len(cuts)} places between the input and the outputs were considered. {len(measured)} of them "
        f"{'was' if len(measured) == 1 else 'were'} cut, loaded, timed and judged: "
        f"{', '.join(measured) or 'none'}."
    )
    if not (explanation.unmeasured or record.forced) and len(measured) < len(cuts):
        told += " The others were estimated, and lose even with the benefit of the doubt."
    return f"<div><h3>How far it was looked</h3>{paragraph(told)}</div>"


def _ways(picture: Picture) -> str:
    record = picture.record
    asked = record.asked
    candidates = ordered(record.candidates(asked.edge_slowdown), asked.link, asked.deadline_ns)
    order = {way.label: number for number, way in enumerate(picture.ways)}
    candidates.sort(key=lambda c: order.get(c.label, len(order)))
    shown = candidates[:MAX_ROWS]
    longest = max([1.0, *(predict(way, asked.link).total.p50_us for way in picture.ways)])
    kept = {record.ways[place].on(1.0).label: "route" for place in record.routes}
    kept |= {record.ways[place].on(1.0).label: "rung" for place in record.rungs}
    winner = picture.explanation.winner
    rows = [
        _way(picture, c, longest, kept.get(c.label, ""), winner is not None and c.label == winner.label) for c in shown
    ]
    header = (
        "way",
        "in the plan",
        "p50 ms",
        "p99 ms",
        "where the time goes",
        "device ms",
        "sent KB",
        "reply KB",
        "agreement",
        "by",
    )
    more = len(candidates) - len(shown)
    return section(
        "ways",
        "All ways, best first",
        paragraph(
            "In time by p99 first, then agreement, then time; splits that are in nothing better than sending the input, and "
            "estimates, come last. The bars end at the slowest measured way."
            + (f" {more} more are in the record." if more > 0 else "")
        ),
        '<ul class="legend" aria-label="colours of the bars">'
        + "".join(
            f'<li><span class="bar" style="width:1.6rem"><i class="{kind}" style="width:100%"></i></span>{name}</li>'
            for kind, name in (
                ("device", "device"),
                ("link", "link"),
                ("cloud", "cloud"),
                ("overhead", "the request itself"),
            )
        )
        + "</ul>",
        table("All ways", header, rows, (1, 4, 9)),
    )


def _way(picture: Picture, candidate: Candidate, longest_us: float, kept: str, best: bool) -> str:
    asked = picture.record.asked
    prediction = predict(candidate, asked.link)
    late = prediction.total.p99_us * 1000.0 > asked.deadline_ns
    unknown = math.isnan(candidate.agreement)
    parts = (
        ("device", prediction.edge_us),
        ("link", prediction.uplink_us + prediction.downlink_us),
        ("cloud", prediction.cloud_us),
        ("overhead", prediction.overhead_us),
    )
    bar = "".join(
        f'<i class="{kind}" style="width:{100 * us / longest_us:.1f}%"></i>' for kind, us in parts if us > 0.0
    )
    told = ", ".join(f"{kind} {ms(us)} ms" for kind, us in parts if us > 0.0)
    cells = (
        f'<td>{letter(picture.marks.get(candidate.label))}<span class="way">{escape(candidate.label)}</span></td>',
        f'<td class="l">{"chosen" if best else kept}</td>',
        f"<td>{ms(prediction.total.p50_us)}</td>",
        f"<td{' class=late' if late else ''}>{ms(prediction.total.p99_us)}{' late' if late else ''}</td>",
        f'<td class="l"><span class="bar" role="img" aria-label="{escape(told)}">{bar}</span></td>',
        f"<td>{ms(prediction.edge_us)}</td>",
        f"<td>{candidate.bytes_up / 1000:.1f}</td>",
        f"<td>{candidate.bytes_down / 1000:.1f}</td>",
        f"<td>{'unknown' if unknown else share(candidate.agreement)}</td>",
        f'<td class="l">{escape(words.timed(candidate.measured, picture.record.edge, picture.record.cloud))}</td>',
    )
    return f"<tr{' class=best' if best else ''}>{''.join(cells)}</tr>"


def _files(record: Record, plan: Plan) -> str:
    pairs = compared(record, plan)
    drawn = ""
    if pairs:
        drawn = pair(
            figure(
                lambda width: draw_ratios(pairs, "Measured against predicted", width),
                "Parts of the bundle's own files, timed once more after they were written, against what the weighing "
                "expected. The band is a tenth to either side of 1.",
                "Predicted and measured",
            ),
            f"<div><h3>Proof</h3>{_proofs(record.proofs)}</div>",
        )
    else:
        drawn = _proofs(record.proofs)
    return section(
        "files", "The files that were written", drawn, *(_profile(profile, plan) for profile in plan.profiles)
    )


def _proofs(proofs: Iterable[Proven]) -> str:
    rows = [(p.what, p.coding, str(p.rows), f"{p.value:.1e}" if p.exact else share(min(1.0, p.value))) for p in proofs]
    return paragraph(
        "Head and tail of the written files against the model before it was cut: the largest relative difference where "
        "nothing is lost, else the agreement on held-out data.",
        "soft",
    ) + plain_table("Proof", ("cut or rung", "coding", "rows", "value"), rows, (1,))


def _profile(profile: Profile, plan: Plan) -> str:
    names = [cut.name for cut in plan.cuts]
    rows = [
        (
            f"{names[r.first]} to {names[r.last]}" if r.program == 0 else plan.programs[r.program].name,
            str(r.batch),
            ms(r.p50_us),
            ms(r.p99_us),
        )
        for r in profile.ranges
    ]
    codecs = [
        (f"{names[c.cut]} as {c.coding}", f"{c.encode_us / 1000:.3f}", f"{c.decode_us / 1000:.3f}")
        for c in profile.codecs
    ]
    told = (
        f"{profile.device}, {profile.provider}, threads: {profile.threads}, slowed {profile.slowdown:g} times, at "
        f"{profile.cadence_hz:g} Hz."
    )
    return (
        f"<h3>Profile of the {profile.side}</h3>{paragraph(told, 'soft')}"
        + plain_table(f"Times of the {profile.side}", ("what runs", "rows", "p50 ms", "p99 ms"), rows)
        + plain_table(f"Codings of the {profile.side}", ("coding", "encode ms", "decode ms"), codecs)
    )


def _regret(record: Record) -> str:
    """What the routes lose over the grid of conditions that they were kept for; nothing where there was none."""
    if record.regret is None:
        return ""
    return section("regret", "What the routes lose elsewhere", paragraph(regret.words(record.regret.lost)))


def _inversions(record: Record) -> str:
    """What decoders made of what routes send; nothing where that was not checked."""
    if not record.inversions:
        return ""
    return section(
        "inversion",
        "What can be seen of the input",
        paragraph(inversion.CAUTION),
        *(paragraph(inversion.words(found)) for found in record.inversions),
    )


def _conditions(record: Record, plan: Plan) -> str:
    asked, data = record.asked, record.data
    rows = (
        ("deadline", f"{asked.deadline_ms:g} ms"),
        ("link", str(asked.link)),
        ("device", words.device(record.edge, asked.edge_slowdown)),
        ("times of the device", words.source(record.edge)),
        ("times of the cloud", words.source(record.cloud)),
        ("objective", f"{record.objective.name}: {record.objective}"),
        ("frames", f"{record.cadence_hz:g} a second"),
        ("least agreement", f"{asked.min_agreement:g}"),
        ("agreement is", f"{record.metric}: {record.metric_means}"),
        (
            "data",
            f"{data.label}; {data.rows_fitted} rows fitted to, {data.rows_judged} others judged by, with {data.findings} "
            "findings in them",
        ),
        ("forced cuts", ", ".join(record.forced) or "none"),
        ("the plan says", plan.chosen),
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in record.notes)
    return section(
        "conditions",
        "Conditions and data",
        facts("Conditions", rows),
        f'<ul class="notes">{notes}</ul>' if notes else "",
    )


def _machine(record: Record, plan: Plan) -> str:
    machine = record.machine
    rows = (
        ("processor", machine.processor),
        ("system", machine.system),
        ("python", machine.python),
        *machine.packages.items(),
        ("model", plan.model),
        ("opset, IR", f"{plan.opset}, {plan.ir_version}"),
        ("contract", contract_digest(plan)),
        ("rows may be joined", f"up to {plan.max_batch}" if plan.batchable else "no"),
        ("threads, seed", f"{record.threads}, {record.seed}"),
        ("made in", f"{record.seconds:.1f} s{', quickly' if record.quick else ''}"),
    )
    return section("machine", "Machine and versions", facts("Machine and versions", rows))
