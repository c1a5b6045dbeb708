"""A model drawn by `headtail inspect`: what is in the files, and in a real browser that nothing overlaps or is cut off."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from browser import Tab, find_browser, open_tab
from graphs import Net, centre_detector, classifier
from typer.testing import CliRunner

from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.graph.recipe import Recipe, build
from partitioner.graph.traits import Quantisation
from partitioner.inspections.cli import main
from partitioner.inspections.folding import Border, Part, fold
from partitioner.inspections.inspection import CutRow, Inspection, Value, look_at
from partitioner.inspections.page import render_page, render_svg
from partitioner.inspections.view import View, mark_words, percent, view_of
from partitioner.profiles.file import save_profile
from partitioner.profiles.record import BatchTimes, Bucket, DeviceProfile, GroupTime, Machine, Origin, Quantiles
from shared.errors import UserError
from shared.request import TensorSpec

BROWSER = find_browser()
PROBE = (Path(__file__).parent / "report_probe.js").read_text(encoding="utf-8")
PHONE, DESK, PAPER = 390, 1280, 688
VIEWS = (
    (PHONE, "light", "screen"),
    (PHONE, "dark", "screen"),
    (DESK, "light", "screen"),
    (DESK, "dark", "screen"),
    (PAPER, "light", "print"),
)


def call(*arguments: object) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, UserError):
        return 2, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def made_up(groups: int, seed: int = 1) -> View:
    """A model of so many groups with long names, many lanes and many cuts."""
    rng = random.Random(seed)
    kinds = ("Conv", "BatchNormalization", "GlobalAveragePool", "QuantizeLinear", "LayerNormalization", "MatMul")
    parts: list[Part] = []
    for index in range(groups):
        users = {index + 1, min(groups - 1, index + rng.randrange(1, 40))} if index + 1 < groups else set[int]()
        operators = {rng.choice(kinds): rng.randrange(1, 4) for _ in range(3)}
        name = f"/model/backbone/layer{index}/very_long_residual_block_{index}/Add_output_0"
        parts.append(Part(name, operators, rng.random() ** 6, tuple(sorted(users - {index}))))
    total = sum(part.cost for part in parts)
    places = [0, *sorted(rng.sample(range(1, groups), min(groups - 1, groups // 2)))]
    cuts = [
        CutRow(
            name="input" if not place else parts[place - 1].name,
            producer="Conv",
            tensors=(TensorSpec("t", "float32", (1, 64, 56, 56)),),
            raw_bytes=802_816_000 // (number + 1),
            int8_bytes=200_704_000 // (number + 1),
            share_before=sum(part.cost for part in parts[:place]) / total,
            quantised=False,
            cheapest="int4",
            cheapest_bytes=100_352_000 // (number + 1 + number % 3),
        )
        for number, place in enumerate(places)
    ]
    borders = [Border(number, place, cuts[number].cheapest_bytes) for number, place in enumerate(places)]
    found = Inspection(
        file="a-very-long-name-of-a-model-with-no-spaces-in-it_v12.onnx",
        size_bytes=10**8,
        opset=17,
        ir_version=8,
        parameters=25_000_000,
        weight_bytes=10**8,
        operators=dict.fromkeys(kinds, groups),
        inputs=(Value("x", "float32", "(1, 3, 224, 224)"),),
        outputs=(Value("y", "float32", "(1, 1000)"),),
        warnings=(),
        weights_by_type={"float": 10**8},
        control_flow={},
        quantisation=Quantisation(0, 0, {}, False),
        cuts=(*cuts, cuts[-1]),
    )
    folded = fold(parts, [[0]], [groups - 1], borders)
    return View(
        found=found,
        groups=groups,
        fold=folded,
        costs=tuple(percent(row.cost / total) for row in folded.rows),
        marks={row: mark_words(cuts[border.number]) for row, border in folded.marks.items()},
        most=max(row.cost for row in folded.rows),
        most_words="12.3 %",
        costed="the estimated share of the compute",
    )


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if BROWSER is None:
        pytest.skip("no chromium: apt-get install chromium lets this test run")
    with open_tab(BROWSER, tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.mark.parametrize("groups", [50, 800])
def test_nothing_overlaps_or_is_cut_off_at_any_width(groups: int, tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(render_page(made_up(groups)), encoding="utf-8")
    pictures = os.environ.get("REPORT_PICTURES")
    for width, scheme, medium in VIEWS:
        tab.show(page, width, scheme, medium)
        told = tab.evaluate(PROBE)
        assert isinstance(told, dict)
        assert told["faults"] == [], (width, scheme, medium)
        assert told["labels"] >= min(groups, 50)
        assert told["paper"] == ("rgb(17, 23, 29)" if scheme == "dark" else "rgb(255, 255, 255)")
        tallest = tab.evaluate("Math.max(...[...document.querySelectorAll('figure svg')].map(e => e.clientHeight))")
        assert isinstance(tallest, int | float)
        assert tallest < 980, "a strip that is taller than a page of paper is torn by printing"
        if pictures:
            tab.picture(Path(pictures) / f"inspect-{groups}-{width}-{scheme}-{medium}.png")
    assert tab.evaluate("performance.getEntriesByType('resource').length + document.scripts.length") == 0


@pytest.mark.parametrize("groups", [2, 800])
def test_the_svg_file_stands_alone_and_nothing_in_it_overlaps(groups: int, tab: Tab, tmp_path: Path) -> None:
    drawn = render_svg(made_up(groups))
    root = ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    page = tmp_path / "page.html"
    page.write_text(
        f"<!doctype html><body style='margin:0'><figure style='margin:0'>{drawn}</figure>", encoding="utf-8"
    )
    tab.show(page, 1500, "dark")
    told = tab.evaluate(PROBE)
    assert isinstance(told, dict)
    outer = [
        fault for fault in told["faults"] if ": text of " not in fault
    ]  # nested drawings are not scaled by themselves
    assert outer == []
    file = tmp_path / "graph.svg"
    file.write_text(drawn, encoding="utf-8")
    tab.show(file, 1500, "dark")
    assert tab.evaluate("getComputedStyle(document.querySelector('.ground')).fill") == "rgb(17, 23, 29)"


def test_groups_costs_and_cuts_of_a_model_are_drawn(tmp_path: Path) -> None:
    model = centre_detector().save(tmp_path / "net.onnx")
    svg, html = tmp_path / "net.svg", tmp_path / "net.html"
    status, said = call(model, "--shape", "1,3,32,32", "--svg", svg, "--html", html)
    assert status == 0, said
    view = view_of(look_at(Recipe(model, ("1,3,32,32",))))
    assert sum(row.parts for row in view.fold.rows) == view.groups
    assert abs(sum(row.cost for row in view.fold.rows) - 1.0) < 1e-6
    assert [mark.name for _, mark in sorted(view.marks.items())] == ["input", "c1", "c2", "joined", "neck"]
    for drawn in (svg.read_text(encoding="utf-8"), html.read_text(encoding="utf-8")):
        for words in ("c1", "8.2 KB, 1.0 KB as int4", "joined"):
            assert words in drawn
    root = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    kernels = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("class") == "kernel"]
    fills = [float(e.get("fill-opacity", "1")) for e in kernels]
    assert max(fills) == pytest.approx(0.92)
    assert len(set(fills)) > 3


def profile_of(model: Path, shape: str) -> DeviceProfile:
    """A profile in which the last group takes ten times as long as each other one."""
    whole = build(Recipe(model, (shape,)))
    groups = find_groups(CutFinder(whole))
    times = [100.0] * (len(groups.nodes) - 1) + [1000.0]
    total = sum(times)
    each = tuple(GroupTime(groups.name_of(n), "conv", Quantiles(time, time, time)) for n, time in enumerate(times))
    batch = BatchTimes(1, Quantiles(total, total, total), each, 10, True, 0.0, 1.0)
    machine = Machine("a device", "CPUExecutionProvider", 1, 30.0, {})
    origin = Origin("measured", "here")
    bucket = Bucket(whole.digest, whole.inputs, (batch,))
    return DeviceProfile(1, "edge", model.name, "none", "none", origin, machine, (bucket,), (), 0.0)


def test_a_profile_colours_the_drawing_by_its_times_and_one_of_another_model_is_refused(tmp_path: Path) -> None:
    model = classifier().save(tmp_path / "net.onnx")
    profile = tmp_path / "car.profile"
    save_profile(profile_of(model, "1,3,16,16"), profile)
    html = tmp_path / "net.html"
    status, said = call(model, "--shape", "1,3,16,16", "--html", html, "--profile", profile)
    assert status == 0, said
    drawn = html.read_text(encoding="utf-8")
    assert "times on a device, measured" in drawn
    assert "1.00 ms" in drawn
    html.unlink()
    status, said = call(model, "--shape", "1,3,32,32", "--html", html, "--profile", profile)
    assert (status, html.exists()) == (2, False)
    assert "car.profile: the profile is of another model" in said
    status, said = call(model, "--profile", profile)
    assert status == 2
    assert "--svg FILE or --html FILE" in said


def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    status, said = call(tmp_path / "nowhere.onnx", "--svg", tmp_path / "no" / "net.svg")
    assert status == 2
    assert "net.svg: cannot be written" in said


def test_a_model_that_cannot_run_is_not_drawn_and_says_why(tmp_path: Path) -> None:
    net = Net()
    net.add("Magic", [net.input("x", [1, 4])], "y", domain="com.example")
    net.domains["com.example"] = 1
    net.output("y")
    svg = tmp_path / "net.svg"
    status, said = call(net.save(tmp_path / "net.onnx"), "--svg", svg)
    assert (status, svg.exists()) == (2, False)
    assert "com.example:Magic" in said
