"""The style sheet of the report: light, dark and paper, from a phone's width to a desk's."""

from __future__ import annotations

_LIGHT = (
    "--paper:#fff;--card:#f7f9fb;--ink:#17212b;--soft:#52606d;--rule:#dbe2e8;--grid:#e6ebef;--good:#1a7f4b;"
    "--goodbg:#e8f5ee;--bad:#b0321d;--on:#fff;--k0:#67727d;--k1:#2f6fb3;--k2:#b55610;--k3:#12827a;--k4:#a0418c;"
    "--k5:#76760f;--k6:#b8393f;--k7:#5b4fb5;--k8:#7d5a3c;--k9:#4d7d22;--k10:#1f7f9f;--fill:.2"
)
_DARK = (
    "--paper:#11171d;--card:#18212a;--ink:#e6ecf1;--soft:#a3b1be;--rule:#2c3843;--grid:#25303a;--good:#5fcf95;"
    "--goodbg:#15291f;--bad:#ff8d78;--on:#0e1419;--k0:#93a0ac;--k1:#6aa9ea;--k2:#f0a05a;--k3:#4cc4b6;--k4:#dd86c8;"
    "--k5:#c9c65a;--k6:#ef7f80;--k7:#a59cf2;--k8:#c9a183;--k9:#9ccb6b;--k10:#66c2e0;--fill:.26"
)
_COLOURS = "".join(f".k{n}{{--c:var(--k{n})}}" for n in range(11))

PALETTE = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}" + _COLOURS
)
"""The colours as variables, for light, dark and paper."""

DRAWING = """
svg text{
  font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; fill:var(--ink);
  font-variant-numeric:tabular-nums;
}
svg .tick,svg .weak{fill:var(--soft)}
svg .title{fill:var(--soft)}
.grid{stroke:var(--grid);stroke-width:1}
.grid.faint{stroke-opacity:.6}
.frame{fill:none;stroke:var(--rule)}
.region{fill:var(--c);fill-opacity:var(--fill)}
.border{fill:none;stroke:var(--ink);stroke-opacity:.55;stroke-width:1.1}
.hatch{fill:url(#late)}
.hatchline{stroke:var(--ink);stroke-opacity:.3;stroke-width:1}
.badge circle{fill:var(--c)}
svg .inside{fill:var(--on)}
svg .badge text{fill:var(--on);font-weight:600}
.badge.weak{opacity:.7}
.plate{fill:var(--paper);fill-opacity:.82}
svg .name{font-weight:500}
.here circle{fill:var(--paper);stroke:var(--ink);stroke-width:2}
.here .dot{fill:var(--ink);stroke:none}
svg .here text{font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}
.curve{fill:none;stroke:var(--c);stroke-width:2}
.curve.input{stroke-dasharray:7 4}
.curve.split{stroke-dasharray:2 3}
.curve.faint{stroke-width:1;stroke-opacity:.5}
line.due{stroke:var(--bad);stroke-width:1.5}
svg text.due{fill:var(--bad)}
line.asked{stroke:var(--ink);stroke-dasharray:1 3}
.callout{stroke:var(--ink);stroke-width:1;fill:var(--ink)}
.leader{stroke:var(--soft);stroke-width:.8;stroke-opacity:.7}
.row{stroke:var(--grid)}
.point{stroke:var(--c);stroke-width:2;fill:var(--paper)}
.point.full{fill:var(--c)}
.point.hollow{stroke-opacity:.75}
.stage.device{fill:var(--k2)}
.stage.link{fill:var(--k1)}
.stage.cloud{fill:var(--k3)}
.stage.overhead{fill:var(--k5)}
.stage.total{fill:var(--soft)}
.stage.thin{fill-opacity:.55}
.bar .device{background:var(--k2)}
.bar .link{background:var(--k1)}
.bar .cloud{background:var(--k3)}
.bar .overhead{background:var(--k5)}
.stem{stroke:var(--soft);stroke-width:1.4}
.stem.dense{stroke-width:.6}
.stem.estimated{stroke-opacity:.55;fill:var(--paper)}
.segment{fill:var(--card);stroke:var(--soft)}
.band{fill:var(--good);fill-opacity:.14}
.whisker{stroke:var(--k1);stroke-width:2}
"""
"""The rules of what the drawings are made of."""

ALONE = (
    f"svg.chart{{{_LIGHT};background:var(--paper)}}"
    f"@media screen and (prefers-color-scheme:dark){{svg.chart{{{_DARK}}}}}svg.chart{{--c:var(--k0)}}" + _COLOURS
)
"""The colours as variables of one drawing (of class `chart`) that stands alone, on a ground of its own."""

STYLE = (
    PALETTE
    + """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{
  margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
  overflow-wrap:break-word;
}
main{max-width:1120px;margin:0 auto;padding:2.2rem 1.25rem 4rem}
h1{font-size:2rem;line-height:1.2;margin:.1rem 0 1.2rem;overflow-wrap:anywhere}
h2{font-size:1.3rem;line-height:1.3;margin:3rem 0 .4rem}
h3{font-size:1rem;margin:1.8rem 0 .5rem}
.pair h3{margin-top:0}
p{margin:.4rem 0 .8rem;max-width:75ch}
.kicker{margin:0;color:var(--soft);font-size:.85rem;letter-spacing:.06em;text-transform:uppercase}
.soft,figcaption{color:var(--soft);font-size:.9rem}
figcaption{margin-top:.6rem;max-width:75ch}
.verdict{
  background:var(--goodbg); border-left:4px solid var(--good); border-radius:0 8px 8px 0; padding:1rem 1.25rem;
  max-width:none; font-size:1.2rem; line-height:1.45; margin:0 0 1rem;
}
.verdict.late{border-color:var(--bad);background:var(--card)}
.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:.75rem;margin:0 0 1.2rem}
.tiles div{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.7rem .9rem}
.tiles dt{color:var(--soft);font-size:.85rem}
.tiles dd{margin:0;font-size:1.35rem;line-height:1.3;font-variant-numeric:tabular-nums}
.tiles small{display:block;color:var(--soft);font-size:.85rem}
.pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1.5rem 1.75rem;margin-top:1.2rem}
figure{margin:0;min-width:0}
figure svg{display:block;max-width:100%;height:auto}
.narrow{display:none}
.scroll{overflow-x:auto;margin:.8rem 0;border:1px solid var(--rule);border-radius:8px}
.scroll:focus-visible{outline:2px solid var(--k1);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.42rem .65rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
tr:last-child>*{border-bottom:0}
thead th{color:var(--soft);font-weight:600;background:var(--card);vertical-align:bottom}
th.l,td.l,th:first-child,td:first-child{text-align:left}
td.wrap{white-space:normal;min-width:15rem;overflow-wrap:anywhere}
tbody th{font-weight:400}
tr.best>*{background:var(--goodbg)}
td.late{color:var(--bad)}
.facts th{color:var(--soft);width:11rem;vertical-align:top}
.bar{display:flex;overflow:hidden;height:.8rem;width:8rem}
.bar i{flex:none;display:block;height:100%;border-right:1px solid var(--paper)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.35rem 1.4rem;padding:0;margin:1rem 0 0;font-size:.9rem}
.legend li{display:flex;align-items:center;gap:.5rem;min-width:0}
.legend span,td span.way{overflow-wrap:anywhere}
.letter{
  flex:none; display:inline-block; min-width:1.25rem; height:1.25rem; padding:0 .2rem; border-radius:.7rem;
  background:var(--c); color:var(--on); font-size:.78rem; line-height:1.25rem; text-align:center;
  font-weight:600;
}
td .letter{margin-right:.5rem}
.swatch{flex:none;width:1.6rem;height:1.1rem}
.notes{padding-left:1.2rem;color:var(--soft);font-size:.95rem}
"""
    + DRAWING
    + """
@media (max-width:999px){
  .pair{grid-template-columns:minmax(0,1fr)}
}
@media (max-width:599px){
  main{padding:1.2rem 1rem 3rem}
  h1{font-size:1.6rem}
  h2{margin-top:2.4rem}
  .tiles{grid-template-columns:repeat(2,1fr)}
  .verdict{font-size:1.08rem}
  .wide{display:none}
  .narrow{display:block}
  .fit table{table-layout:fixed}
  .fit th:first-child{width:31%}
  .fit th:last-child{width:40%}
  .fit th,.fit td{white-space:normal;overflow-wrap:anywhere;padding:.4rem .5rem}
  .facts th{width:7.5rem}
  .facts th,.facts td{white-space:normal;padding:.4rem .6rem}
  .scroll{margin:.8rem 0}
}
@media print{
  @page{margin:14mm}
  body{font-size:10.5pt;print-color-adjust:exact;-webkit-print-color-adjust:exact}
  main{padding:0;max-width:none}
  h1{font-size:18pt;margin-bottom:.6rem}
  h2,h3{break-after:avoid}
  h2{font-size:13pt;margin-top:1.3rem}
  .verdict{font-size:12pt;padding:.6rem .9rem}
  .tiles dd{font-size:13pt}
  figure,.tiles,.verdict,tr{break-inside:avoid}
  .pair{grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem}
  .wide{display:none}
  .narrow{display:block}
  .scroll{overflow:visible;border:0}
  th,td{padding:.25rem .4rem;white-space:normal}
  table{font-size:8pt}
  .bar{width:6rem}
  td.wrap{min-width:0}
}
"""
)
