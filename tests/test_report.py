"""The report says what the explanation says, in every chart and table, and needs nothing else."""

from __future__ import annotations

import html
import itertools
import re
from pathlib import Path

import msgspec
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from records import ASKED, SEVERAL, away, device, record
from tiny import make_bundle
from typer.testing import CliRunner

from partitioner.charts import svg
from partitioner.charts.layout import spread_out, widest_places
from partitioner.charts.scales import LinearScale, LogScale, decades
from partitioner.charts.svg import drawing, shortened, tag, text_width
from partitioner.explanations.explanation import explain
from partitioner.records.compared import compared
from partitioner.records.record import RECORD_FILE, Source, encode_record
from partitioner.reports.charts import Picture, front_dots
from partitioner.reports.cli import main
from partitioner.reports.page import render
from partitioner.reports.parts import facts, figure, paragraph, plain_table, section
from partitioner.reports.style import STYLE
from shared.bundle import load_bundle, write_manifest
from shared.plan import REPORT_FILE, contract_digest


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_bundle(tmp_path_factory.mktemp("report"), name="several")
    (path / RECORD_FILE).write_bytes(encode_record(record()))
    write_manifest(path)
    return path


@pytest.fixture(scope="module")
def page(bundle: Path) -> str:
    return render(record(), load_bundle(bundle).plan)


def test_the_page_needs_nothing_else(page: str) -> None:
    for outside in ("<script", "http://", "https://", "src=", "<link", "@import", "@font-face"):
        assert outside not in page
    assert re.findall(r"url\(([^)]*)\)", page) == ["#late"]
    assert '<meta name="viewport"' in page
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page


def test_the_verdict_is_that_of_the_explanation(page: str) -> None:
    winner = explain(record(), ASKED).winner
    assert winner is not None
    (verdict,) = re.findall(r'<p class="verdict">(.*?)</p>', page)
    assert f"p50 {winner.p50_us / 1000:.2f} ms, p99 {winner.p99_us / 1000:.2f} ms" in verdict
    (best,) = re.findall(r"<tr class=best>(.*?)</tr>", page)
    assert winner.label in best
    assert f"<td>{winner.p50_us / 1000:.2f}</td>" in best


def test_every_change_of_the_explanation_is_in_the_page(page: str) -> None:
    table = page[page.index('id="changes"') : page.index('id="time"')]
    for change in explain(record(), ASKED).changes:
        assert f"{change.value:.4g}" in table
        assert html.escape(change.winner) in table


def test_the_maps_show_who_the_explanation_says_wins() -> None:
    picture = Picture.of(record())
    for regions in picture.maps:
        for x in (0.05, 0.3, 0.55, 0.8, 0.97):
            column = regions.column(regions.across.value(x))
            for part in column.intervals:
                here = ASKED.at("link.rate", regions.across.value(column.x))
                told = explain(record(), here.at(regions.up.axis, (part.low + part.high) / 2)).winner
                assert told is not None
                assert (told.label, told.in_time) == (part.winner, part.in_time)


def test_letters_are_the_same_in_charts_and_tables(page: str) -> None:
    picture = Picture.of(record())
    cells = re.findall(r'<b class="letter k(\d+)">(\w+)</b><span class="way">(.*?)</span>', page)
    assert len(cells) == len(picture.marks)
    for colour, letter, label in cells:
        mark = picture.marks[html.unescape(label)]
        assert (mark.colour, mark.letter) == (int(colour), letter)
    assert len({mark.letter for mark in picture.marks.values()}) == len(picture.marks)


def test_what_is_on_the_front_is_beaten_by_nothing() -> None:
    dots = front_dots(Picture.of(record()))
    for dot in dots:
        better = [
            other
            for other in dots
            if (other.time_ms, -other.agreement, other.up_kb) != (dot.time_ms, -dot.agreement, dot.up_kb)
            and other.time_ms <= dot.time_ms
            and other.agreement >= dot.agreement
            and other.up_kb <= dot.up_kb
        ]
        assert dot.front == (not better)
    assert any(dot.front for dot in dots)
    assert not all(dot.front for dot in dots)


def test_the_written_files_are_compared_with_what_was_expected(bundle: Path) -> None:
    plan = load_bundle(bundle).plan
    ways = (device("whole", 0.2, 1.0), away("input", "raw", 0.0, 0.4, 4000))
    pairs = {pair.words: pair for pair in compared(record(ways, best=0, routes=(1,)), plan)}
    edge = plan.profile("edge")
    assert edge is not None
    whole = edge.time(0, 0, len(plan.cuts) - 1)
    assert whole is not None
    assert pairs["whole on the device"].ratio == pytest.approx(whole.p50_us / 200.0)


def test_a_name_that_looks_like_markup_is_shown_as_it_is(bundle: Path) -> None:
    ways = (*SEVERAL[:6], away("<b>&", "raw", 0.5, 6.0, 9000))
    text = render(record(ways, name="<i>x", best=6, routes=(6,)), load_bundle(bundle).plan)
    assert "<i>x" not in text
    assert "<b>&" not in text
    assert "&lt;b&gt;&amp;" in text


def test_a_profile_whose_file_is_named_like_markup_is_shown_as_it_is(bundle: Path) -> None:
    evil = "<img src=x onerror=alert(1)>.profile"
    sides = Source("measured", evil, evil, evil)
    text = render(msgspec.structs.replace(record(), edge=sides, cloud=sides), load_bundle(bundle).plan)
    assert "<img" not in text
    assert text.count(html.escape(evil)) > 2


def test_words_are_escaped_by_the_piece_that_takes_them() -> None:
    evil = "\"><b>'&"
    made = figure(lambda _: "", evil, evil) + section(evil, evil) + paragraph(evil, evil) + facts(evil, [(evil, evil)])
    made += plain_table(evil, (evil,), [(evil,)]) + drawing(1.0, 1.0, evil, evil) + tag("a", class_=evil)
    assert "<b>" not in made
    assert html.escape(evil) in made
    assert "&amp;amp;" not in made


def test_the_report_is_written_again_and_the_bundle_stays_whole(bundle: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    other = tmp_path / "page.html"
    before = load_bundle(bundle).contract
    for arguments in ([str(bundle)], [str(bundle), "-o", str(other)]):
        assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    loaded = load_bundle(bundle)
    assert loaded.contract == before
    assert contract_digest(loaded.plan) in other.read_text()
    assert (bundle / REPORT_FILE).read_text() == other.read_text() == render(record(), loaded.plan)
    failed = CliRunner().invoke(app, [str(bundle), "-o", str(tmp_path / "none" / "page.html")])
    assert "cannot be written" in str(failed.exception)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 300.0), min_size=1, max_size=12), st.floats(1.0, 20.0))
def test_labels_are_kept_apart_and_in_their_order(wanted: list[float], apart: float) -> None:
    places = spread_out(wanted, apart, 10.0, 290.0)
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    for left, right in itertools.pairwise(order):
        assert places[right] - places[left] >= apart - 1e-9
    assert min(places) >= 10.0 - 1e-9
    assert max(places) <= 290.0 + 1e-9


def test_a_label_stands_in_the_widest_part_of_its_region() -> None:
    picture = ("aaaaaaab", "aaaaaaab", "aaaaaaab", "aaaaaaab", "aaaaaaab", "bbbbbbbb")
    cells = {(x, y): letter for y, row in enumerate(picture) for x, letter in enumerate(row)}
    told = dict(widest_places(cells, 8, 6))
    assert (told["a"].column, told["a"].row, told["a"].reach) == (3, 2, 3)
    assert told["b"].reach == 1
    assert told["a"].cells == 35


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 1e4), st.floats(1.5, 1e4), st.floats(60.0, 900.0))
def test_named_ticks_of_a_logarithmic_axis_never_touch(low: float, ratio: float, width: float) -> None:
    low, high = decades(low, low * ratio)
    scale = LogScale(low, high, 0.0, width)
    named = [tick for tick in scale.ticks() if tick.words]
    assert len(named) >= 2
    for left, right in itertools.pairwise(named):
        half = (text_width(left.words) + text_width(right.words)) / 2
        assert scale.at(right.value) - scale.at(left.value) >= min(half, width / 2)
    assert scale.at(low) == 0.0
    assert scale.at(high) == pytest.approx(width)


def test_a_linear_axis_has_round_ticks() -> None:
    assert [tick.words for tick in LinearScale(0.0, 41.0, 0.0, 300.0).ticks()] == ["0", "10", "20", "30", "40"]


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    short = shortened("/model/backbone/layer4/Add_output_0 as int8", 120.0)
    assert short.startswith("/mod")
    assert short.endswith("int8")
    assert text_width(short) <= 120.0
    assert tag("a", class_="b", stroke_width=1.234) == '<a class="b" stroke-width="1.23"/>'


def one_by_one(words: str, width: float) -> str:
    """The same, by trying every length."""
    if text_width(words) <= width:
        return words
    for kept in range(len(words) - 1, 3, -1):
        candidate = f"{words[: (kept + 1) // 2]}…{words[len(words) - kept // 2 :]}"
        if text_width(candidate) <= width:
            return candidate
    return "…"


@given(st.text("aiMlw. 7", max_size=40), st.floats(0.0, 300.0))
def test_as_much_of_a_name_is_kept_as_fits(words: str, width: float) -> None:
    assert shortened(words, width) == one_by_one(words, width)


def test_shortening_a_very_long_name_looks_at_few_more_characters_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counted(words: str, size: float = svg.SIZE) -> float:
        nonlocal looked_at
        looked_at += len(words)
        assert looked_at < 2 * 20_000
        return text_width(words, size)

    monkeypatch.setattr(svg, "text_width", counted)
    assert 100 < len(svg.shortened("ab/i" * 5_000, 1_000.0)) < 1_000


def luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(c * 2 for c in colour)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_have_the_contrast_that_reading_needs(scheme: int) -> None:
    """WCAG 2.1, level AA: 4.5 to 1 for text."""
    block = re.findall(r":root\{([^}]*--paper[^}]*)\}", STYLE)[scheme]
    colours = dict(re.findall(r"--([a-z]+\d*):#([0-9a-f]{3,6})", block))
    for ink in ("ink", "soft", "bad"):
        for paper in ("paper", "card", "goodbg"):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
    for number in range(11):
        assert contrast(colours[f"k{number}"], colours["on"]) >= 4.5, number


def test_it_is_not_said_that_an_estimate_loses_where_it_may_win(bundle: Path) -> None:
    plan = load_bundle(bundle).plan
    words = "lose even with the benefit of the doubt"
    hopeful = (*SEVERAL, away("stem/cheap", "raw", 0.1, 0.5, 900, measured=False))
    assert words in render(record(), plan)
    assert words not in render(record(hopeful), plan)
    assert "Only estimated, and ahead of the winner" in render(record(hopeful), plan)
    assert words not in render(record(forced=("neck",)), plan)
