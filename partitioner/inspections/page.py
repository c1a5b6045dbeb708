"""A model's drawing as one SVG file, and as a page with its cuts and facts. Neither needs anything else."""

from __future__ import annotations

from pathlib import PurePath

from partitioner.charts.column import draw_column, side_by_side
from partitioner.charts.markup import escape
from partitioner.charts.svg import drawing, rect, shortened, tag, text, text_width
from partitioner.inspections.view import View, bytes_in_words, percent, sends
from partitioner.reports.parts import facts, paragraph, plain_table, section
from partitioner.reports.style import PALETTE, STYLE

COLUMNS = 4
HEAD = 130.0
GAP = 22.0
STEPS = 5
SWATCH = 34.0

GRAPH_STYLE = """
.kernel{fill:var(--k2);stroke:var(--k2);stroke-opacity:.7;stroke-width:1}
.kernel.paper{fill:var(--paper);stroke:none}
.kernel.under{fill:var(--card);stroke-opacity:.5}
.wire{stroke:var(--soft);stroke-width:1.3}
.wire.side{stroke-width:1;stroke-opacity:.75}
.cut{stroke:var(--k1);stroke-width:1.4;stroke-dasharray:6 3}
.cut.other{stroke-dasharray:2 2}
.end{fill:var(--soft)}
.ground{fill:var(--paper)}
svg .title{fill:var(--soft)}
svg .cutname{fill:var(--k1);font-weight:600}
svg .heading{font-size:17px;font-weight:600}
.strips{
  display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,322px),1fr));gap:1.2rem 1.1rem;
  align-items:start;margin-top:1.2rem;
}
.heat{display:inline-block;width:2.1rem;height:.95rem;border-radius:3px;border:1px solid var(--k2);position:relative}
.heat i{position:absolute;inset:0;background:var(--k2)}
.line{display:inline-block;width:2.1rem;border-top:2px dashed var(--k1)}
.line.other{width:1.1rem;border-top-style:dotted}
.stack{
  display:inline-block;width:2rem;height:.9rem;border-radius:3px;border:1px solid var(--k2);background:var(--paper);
  box-shadow:3px 3px 0 -1px var(--card),3px 3px 0 0 var(--k2);
}
@media print{.strips{grid-template-columns:repeat(2,minmax(0,1fr));gap:.8rem 1rem}}
"""
_TEXT = (
    'text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--ink);'
    "font-variant-numeric:tabular-nums}svg .name{font-weight:500}"
)


def render_svg(view: View) -> str:
    """The drawing as one SVG file, light or dark as its reader is."""
    strips = draw_column(view.fold, view.costs, view.marks, _name(view), view.most)
    inside, width, height = side_by_side(strips, COLUMNS, GAP, HEAD)
    room = width - 2 * GAP
    head = [text(GAP, 32.0, shortened(_name(view), room, 17.0), class_="heading")]
    told = (*_counted(view), f"Colour: {view.costed}.")
    head += [text(GAP, 52.0 + 17.0 * n, shortened(words, room), class_="title") for n, words in enumerate(told)]
    style = tag("style", PALETTE + _TEXT + GRAPH_STYLE)
    page = drawing(
        width,
        height,
        f"The graph of {_name(view)}",
        " ".join(_counted(view)),
        style,
        rect(0.0, 0.0, width, height, "ground"),
        *head,
        *_scale(view),
        inside,
    )
    return page.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def render_page(view: View) -> str:
    """The drawing with the table of all cuts and what else is known of the model, as one HTML page."""
    found = view.found
    parts = [
        f'<p class="kicker">headtail inspect</p><h1>{escape(_name(view))}</h1>',
        f'<dl class="tiles">{_tiles(view)}</dl>',
        *(paragraph(warning) for warning in found.warnings),
        section("graph", "The graph", paragraph(" ".join(_counted(view))), _legend(view), _strips(view)),
        section("cuts", "Where it may be cut", paragraph(_ABOUT_CUTS, "soft"), _cuts(view)),
        section("file", "The file", _facts(view)),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(_name(view))}</title><style>{STYLE}{GRAPH_STYLE}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{"".join(parts)}</main></body></html>\n'


_ABOUT_CUTS = (
    "Bytes are those of one row. The cheapest coding is told without having encoded anything: int4 before it is compressed, "
    "a picture as a photograph would be. headtail plan measures both, and what they do to the answers."
)


def _name(view: View) -> str:
    return PurePath(view.found.file).name


def _counted(view: View) -> tuple[str, str]:
    """How many operators, groups and cuts there are, and what of them is drawn, in two sentences."""
    operators = sum(view.found.operators.values())
    rows = len(view.fold.rows)
    folded = f", drawn in {rows} rows: what is cheap is folded" if rows < view.groups else ""
    cuts = max(0, len(view.found.cuts) - 1)
    marked = len(view.fold.marks)
    told = f"{cuts} cuts of one tensor" if cuts != 1 else "one cut, the input"
    some = (
        f", of which {marked} are marked: the input, and of those that send less than every cut before them the clearest"
        if marked < cuts
        else ""
    )
    return f"{operators:,} operators in {view.groups:,} groups that run as one{folded}.", f"{told.capitalize()}{some}."


def _tiles(view: View) -> str:
    found = view.found
    inner = found.cuts[1:-1]
    least = min(inner, key=lambda cut: cut.cheapest_bytes, default=None)
    tiles = (
        ("Weights", bytes_in_words(found.weight_bytes), f"{found.parameters:,} parameters"),
        ("Operators", f"{sum(found.operators.values()):,}", f"{view.groups:,} groups"),
        ("Input", bytes_in_words(found.cuts[0].raw_bytes), "raw, for one row"),
        (
            "Smallest cut inside",
            bytes_in_words(least.cheapest_bytes) if least else "none",
            f"as {least.cheapest}, {percent(least.share_before)} before it" if least else "of one tensor",
        ),
    )
    return "".join(
        f"<div><dt>{escape(a)}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in tiles
    )


def _legend(view: View) -> str:
    heats = "".join(f'<span class="heat"><i style="opacity:{_opacity(step):.2f}"></i></span>' for step in range(STEPS))
    items = [f"{heats}<span>nothing to {escape(view.most_words)}: {escape(view.costed)}</span>"]
    if view.fold.marks:
        items.append('<span class="line"></span><span>a cut, and what it sends</span>')
    if view.fold.others:
        items.append('<span class="line other"></span><span>a cut that is only in the table</span>')
    if any(row.parts > 1 for row in view.fold.rows):
        items.append('<span class="stack"></span><span>several groups</span>')
    return f'<ul class="legend">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def _opacity(step: int) -> float:
    return 0.05 + 0.87 * step / (STEPS - 1)


def _scale(view: View) -> list[str]:
    """The colours' legend of the SVG file."""
    parts = [text(GAP, HEAD - 18.0, "nothing", class_="title")]
    x = GAP + text_width("nothing") + 8.0
    for step in range(STEPS):
        parts.append(rect(x, HEAD - 29.0, SWATCH, 14.0, "kernel", fill_opacity=_opacity(step)))
        x += SWATCH + 2.0
    return [*parts, text(x + 6.0, HEAD - 18.0, view.most_words, class_="title")]


def _strips(view: View) -> str:
    strips = draw_column(view.fold, view.costs, view.marks, _name(view), view.most)
    return f'<div class="strips">{"".join(f"<figure>{strip.svg}</figure>" for strip in strips)}</div>'


def _cuts(view: View) -> str:
    rows = [
        (
            cut.name,
            " ".join(dict.fromkeys(spec.dtype for spec in cut.tensors)),
            " ".join("x".join(map(str, spec.shape)) or "scalar" for spec in cut.tensors),
            sends(cut),
            percent(cut.share_before),
        )
        for cut in view.found.cuts
    ]
    return plain_table("cuts", ("cut", "type", "shape", "sends", "compute before"), rows, (1, 2, 3))


def _facts(view: View) -> str:
    found = view.found
    rows = [
        ("Size", f"{bytes_in_words(found.size_bytes)}, opset {found.opset}, file format {found.ir_version}"),
        *(("Input", f"{v.name}: {v.dtype} {v.shape}") for v in found.inputs),
        *(("Output", f"{v.name}: {v.dtype} {v.shape}") for v in found.outputs),
        ("Operators", ", ".join(f"{count} {name}" for name, count in found.operators.items())),
        ("Batches", "yes, proven with two rows" if found.batchable else "no"),
    ]
    return facts("the file", rows)
