"""The partitioner as functions: the page's example runs, the options are those of the command line, and what a user plugs
in is taken all the way to a node."""

from __future__ import annotations

import contextlib
import html
import inspect
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doc_blocks import DOCS, blocks_of, install_codec
from test_plan import SIDE, write_images, write_model

import partitioner
from hil.verify import verify as verify_on_a_node
from partitioner import api, plan_cli, profile_cli
from partitioner.explanations import cli as explain_cli
from partitioner.inspections import cli as inspect_cli
from partitioner.reports import cli as report_cli
from shared.bundle import load_bundle
from shared.codecs.installed import installed
from shared.errors import BundleError, ModelError, UserError

PAGE = blocks_of(DOCS / "python.md")
SHAPE = f"1,3,{SIDE},{SIDE}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with a small model, photos, and the page's modules, which child processes find as well."""
    write_model(tmp_path / "small.onnx")
    write_images(tmp_path / "photos")
    for name, code in PAGE.files.items():
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    installed.cache_clear()
    yield tmp_path
    installed.cache_clear()
    for name in PAGE.files:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_the_page_runs_as_it_stands(place: Path) -> None:
    names: dict[str, object] = {}
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        for step in PAGE.steps:
            exec(compile(step, "docs/python.md", "exec"), names)  # the page's own code is what is tested
    made = names["made"]
    assert isinstance(made, partitioner.Planned)
    assert made.path == Path("small.plan")
    assert load_bundle(place / "small.plan").plan == made.plan == partitioner.read_plan("small.plan").plan
    assert partitioner.read_plan("small.plan").record == made.record
    assert made.plan.chosen in told.getvalue()
    assert "input: 12288 bytes raw, 0% of the compute before it" in told.getvalue()
    page = (place / "small.html").read_text()
    assert html.escape(made.plan.chosen) in page
    charts = list(place.glob("*.svg"))
    assert {chart.stem for chart in charts} >= {"winners-by-rate-and-round-trip", "latency-by-rate", "ladder", "cuts"}
    assert all(
        chart.read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg" class="chart"') for chart in charts
    )


def test_what_the_page_plugs_in_is_planned_with_and_served_by_a_node(place: Path) -> None:
    asked = {"shape": SHAPE, "preprocess": "image", "calibration": "photos", "force_cut": "r2", "codec": "shuffled"}
    with pytest.raises(UserError, match="no codec 'shuffled' is installed here"):
        partitioner.plan("small.onnx", "own.plan", **asked)
    install_codec(place, "shuffled", "shuffled:Shuffled")
    made = partitioner.plan(
        "small.onnx",
        "own.plan",
        **asked,
        metric="close_enough:within_a_tenth",
        rung="halved:half_size",
        min_agreement=0.0,
        cadence=1000,
        quick=True,
    )
    assert made.record.metric == "close_enough:within_a_tenth"
    [shuffled] = [way for way in made.record.ways if way.cut == "r2" and way.coding == "shuffled"]
    assert shuffled.agreement == 1.0
    assert shuffled.measured
    assert any(way.rung == "own-half_size" and way.agreement is not None for way in made.record.ways)
    coding = made.plan.cuts[1].coding("shuffled")
    assert coding is not None
    assert coding.lossless
    here = partitioner.verify(made)
    assert here.holds
    assert ("r2", "shuffled", True) in {(check.way, check.coding, check.exact) for check in here.checks}
    verdict = verify_on_a_node(made.path)
    assert verdict.holds
    assert "shuffled" in {proof.coding for proof in verdict.proofs}


def test_a_bundle_that_gives_other_answers_does_not_hold(place: Path) -> None:
    made = partitioner.plan("small.onnx", "a.plan", shape=SHAPE, force_cut="r2", cadence=1000, quick=True)
    assert partitioner.verify("a.plan").holds
    write_model(place / "small.onnx", fill=0.01)
    partitioner.plan("small.onnx", "b.plan", shape=SHAPE, force_cut="r2", cadence=1000, quick=True)
    (place / "a.plan" / "golden.npz").write_bytes((place / "b.plan" / "golden.npz").read_bytes())
    with pytest.raises(BundleError, match=r"golden\.npz is damaged"):
        partitioner.verify(made)
    from shared.bundle import write_manifest

    write_manifest(place / "a.plan")
    found = partitioner.verify(made)
    assert not found.holds
    assert {check.way for check in found.checks if not check.holds} == {"input", "r2", "rung whole"}


def test_mistakes_are_errors_of_headtails_own(place: Path) -> None:
    with pytest.raises(UserError, match=r"duration '20': expected a number with a unit"):
        partitioner.plan("small.onnx", "x.plan", deadline="20")
    with pytest.raises(ModelError, match=r"nowhere\.onnx: there is no such file"):
        partitioner.inspect("nowhere.onnx")
    with pytest.raises(BundleError, match=r"nowhere\.plan: there is no bundle"):
        partitioner.explain("nowhere.plan")
    with pytest.raises(UserError, match=r"y\.txt: expected a path that ends in \.profile"):
        partitioner.profile("small.onnx", "y.txt", shape=SHAPE)
    assert not list(place.glob("*.plan"))


def test_a_model_is_drawn_with_its_cuts(place: Path) -> None:
    drawn = partitioner.draw("small.onnx", shape=SHAPE, preprocess="image")
    assert drawn.svg.startswith("<svg ")
    assert "r2" in drawn.svg
    assert drawn.page.startswith("<!doctype html>")
    with pytest.raises(ModelError, match="cannot be drawn"):
        partitioner.draw("small.onnx", shape="1,4,64,64")


def test_a_profile_is_returned_and_written(place: Path) -> None:
    told: list[float] = []
    found = partitioner.profile(
        "small.onnx",
        "here.profile",
        shape=SHAPE,
        batch=[1],
        seconds=0,
        cadence=1000,
        progress=lambda _, done: told.append(done),
    )
    assert found.side == "edge"
    assert [times.batch for times in found.buckets[0].batches] == [1]
    assert (place / "here.profile").is_file()
    assert told == sorted(told)
    assert 0.0 <= told[0] <= told[-1] <= 1.0


VERBS: list[tuple[Callable[..., object], Callable[..., object], set[str]]] = [
    (api.plan, plan_cli.main, set()),
    (api.explain, explain_cli.main, {"as_json"}),
    (api.report, report_cli.main, set()),
    (api.inspect, inspect_cli.main, {"json", "svg", "html", "profile"}),
    (api.draw, inspect_cli.main, {"json", "svg", "html"}),
    (api.profile, profile_cli.measure_here, set()),
]


@pytest.mark.parametrize(("function", "verb", "shown"), VERBS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_options_are_those_of_the_command_line(
    function: Callable[..., object], verb: Callable[..., object], shown: set[str]
) -> None:
    mine, theirs = inspect.signature(function).parameters, inspect.signature(verb).parameters
    assert set(mine) - {"progress"} == set(theirs) - shown
    for name in set(mine) & set(theirs):
        given, known = mine[name].default, theirs[name].default
        assert given in (known, ()) or inspect.Parameter.empty in (given, known), name


def test_importing_the_partitioner_imports_nothing_else() -> None:
    program = "import sys, partitioner; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"numpy", "msgspec", "onnx", "onnxruntime", "scipy", "typer"}
    with pytest.raises(AttributeError, match="has no attribute 'plans'"):
        partitioner.plans  # type: ignore[attr-defined]  # noqa: B018
    folder = Path(partitioner.__file__).parent
    assert not [name for name in partitioner.__all__ if (folder / f"{name}.py").exists()]  # a module would hide it


def test_reading_and_explaining_a_plan_loads_no_model_and_no_runtime(place: Path) -> None:
    partitioner.plan("small.onnx", "a.plan", shape=SHAPE, cadence=1000, quick=True)
    program = (
        "import sys, partitioner; partitioner.report('a.plan', out='a.html').charts(); "
        "partitioner.explain('a.plan'); print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not {name.partition(".")[0] for name in done.stdout.split()} & {"onnx", "onnxruntime", "scipy"}
