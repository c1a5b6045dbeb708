"""`headtail plan --conditions`: the regret that a bundle states is that of brute force over all closed sets of its model."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from graphs import Net, classifier
from records import record
from search_cases import Brute
from test_places import two_branches
from typer.testing import CliRunner

from hil import explain_cli
from partitioner import plan_cli
from partitioner.build import Made, make
from partitioner.costs.cost import HEADER_BYTES
from partitioner.explanations.explanation import explain
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.graph.recipe import Recipe, build
from partitioner.grids.family import KeptRoute, conditions_at
from partitioner.grids.grid import GridPoint, parse_grid
from partitioner.grids.regret import Regret, words
from partitioner.options import PlanOptions, check_options
from partitioner.records.file import read_record
from partitioner.records.record import decode_record, encode_record
from partitioner.search.problem import Problem
from shared.errors import BundleError, UserError
from shared.plan import REPORT_FILE
from shared.request import Array

RUNNER = CliRunner()

GRID = """
rates = ["1mbit", "30mbit", "1gbit"]
round_trips = ["0ms", "300us"]
device_ratios = [1, 30, 300]
[weights]
rates = [1, 2, 1]
"""
NETS: dict[str, tuple[Callable[[], Net], str]] = {
    "classifier": (lambda: classifier(64), "1,3,64,64"),
    "two branches": (two_branches, "1,3,32,32"),
}


def command(main: Callable[..., None]) -> typer.Typer:
    """One verb as the whole of a command."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    return app


def options_for(folder: Path, name: str, **changes: object) -> PlanOptions:
    net, shape = NETS[name]
    rows: dict[str, Array] = {"x": np.random.default_rng(1).standard_normal((64, *map(int, shape.split(",")[1:])))}
    np.savez(folder / "rows.npz", x=rows["x"].astype(np.float32))
    options = PlanOptions(
        model=net().save(folder / "m.onnx"),
        out=folder / "m.plan",
        shapes=(shape,),
        calibration=folder / "rows.npz",
        metric="relative",
        min_agreement=0.9,
        lower_rungs=False,
        quick=True,
        grid=parse_grid(GRID, "grid.toml"),
    )
    return replace(options, **changes)  # type: ignore[arg-type]


def times_by_coding(
    problem: Problem, points: tuple[GridPoint, ...], header_bytes: int
) -> dict[str, tuple[Brute, Array]]:
    """For each coding all closed sets, and their times (floats, sets x points) where all that crosses travels so."""
    codings = {choice.coding for value in problem.values for choice in value.choices} - {"made again"}
    found: dict[str, tuple[Brute, Array]] = {}
    for coding in sorted(codings):
        alone = Problem(
            problem.groups,
            tuple(
                replace(v, choices=tuple(c for c in v.choices if c.coding in {coding, "made again"}))
                for v in problem.values
            ),
        )
        brute = Brute.of(alone)
        costs = [brute.costs(conditions_at(point, header_bytes)) for point in points]
        found[coding] = brute, np.stack(costs, axis=1)
    return found


def routes_of(made: Made, options: PlanOptions) -> list[KeptRoute]:
    """The bundle's routes as groups and codings, by the operators of the cuts that were loaded."""
    nodes = find_groups(CutFinder(build(Recipe(options.model, options.shapes)))).nodes
    return [
        KeptRoute(
            frozenset(g for g, mine in enumerate(nodes) if mine <= set(made.weighing.loaded[way.cut].cut.nodes)),
            way.coding,
        )
        for way in made.weighing.routes
    ]


@pytest.mark.parametrize(("name", "max_regret"), [("classifier", 0.02), ("two branches", 0.0)])
def test_the_regret_that_a_bundle_states_is_that_of_brute_force(name: str, max_regret: float, tmp_path: Path) -> None:
    options = options_for(tmp_path, name, max_regret=max_regret)
    made = make(options)
    kept = made.weighing.kept
    assert kept is not None
    _, record_ = read_record(made.path)
    stated = record_.regret
    assert stated is not None
    assert (stated.max_regret, stated.points) == (max_regret, options.grid)
    header_bytes = 2 * HEADER_BYTES + sum(spec.nbytes() for spec in made.plan.cuts[-1].tensors)
    tables = times_by_coding(kept.problem, stated.points, header_bytes)
    least = np.min([costs.min(axis=0) for _, costs in tables.values()], axis=0)
    brute, costs = next(iter(tables.values()))
    rows = [costs[brute.whole][0]]
    routes = routes_of(made, options)
    for route in routes:
        brute, costs = tables[route.coding]
        wanted = np.isin(np.arange(brute.inside.shape[1]), sorted(route.cut))
        rows.append(costs[(brute.inside == wanted).all(axis=1)][0])
    regrets = np.min(rows, axis=0) / least - 1.0
    weights = np.array([point.weight for point in stated.points])
    assert stated.worst == pytest.approx(regrets.max(), abs=1e-7)
    assert stated.mean == pytest.approx(regrets @ weights / weights.sum(), abs=1e-7)
    assert stated.worst <= max_regret + 1e-7
    assert len(routes) == len(made.plan.routes) > 0
    assert made.weighing.best in (*made.weighing.routes, *made.weighing.rungs)
    told = words(stated.lost)
    assert told in html.unescape((made.path / REPORT_FILE).read_text())
    shown = RUNNER.invoke(command(explain_cli.main), [str(made.path)])
    assert " ".join(told.split()) in " ".join(shown.output.split())
    in_json = json.loads(RUNNER.invoke(command(explain_cli.main), [str(made.path), "--json"]).output)["regret"]
    assert (in_json["worst"], in_json["mean"], in_json["within"]) == (stated.worst, stated.mean, True)


def test_a_coding_that_agrees_too_little_is_taken_from_the_routes_and_said(tmp_path: Path) -> None:
    made = make(options_for(tmp_path, "two branches", min_agreement=1.0))
    kept = made.weighing.kept
    assert kept is not None
    assert all(way.agreement == 1.0 for way in made.weighing.routes)
    assert any("agreed too little" in note for note in kept.notes)


def test_the_conditions_are_read_before_anything_else_is_done(tmp_path: Path) -> None:
    options = options_for(tmp_path, "classifier")
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("300us", "-1us"))
    arguments = [str(options.model), "--out", str(options.out), "--conditions", str(grid)]
    result = RUNNER.invoke(command(plan_cli.main), arguments)
    assert isinstance(result.exception, UserError)
    assert re.match(rf"{re.escape(str(grid))}: round_trips, value 2: duration '-1us'", str(result.exception))
    assert not options.out.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"force_cuts": ("stem",)}, "leave out --force-cut or --conditions"),
        ({"max_regret": -0.1}, "largest regret -0.1: expected 0 or more"),
        ({"max_regret": float("nan")}, "largest regret nan"),
    ],
)
def test_options_that_do_not_go_together_are_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        check_options(options_for(tmp_path, "classifier", **changes))


def test_a_record_without_a_time_for_each_condition_is_refused() -> None:
    points = (GridPoint(1.0, 0.0, 1.0), GridPoint(2.0, 0.0, 1.0))
    whole = record(regret=Regret(0.02, "exact", points, (1.0, 1.0), (1.0, 1.01)))
    assert decode_record(encode_record(whole), "here") == whole
    assert whole.regret is not None
    assert explain(whole, whole.asked).regret == whole.regret.lost
    broken = encode_record(whole).replace(b'"method": "exact"', b'"method": "guessed"')
    with pytest.raises(BundleError, match="regret"):
        decode_record(broken, "here")
    short = re.sub(rb'"least_us": \[[^]]*\]', b'"least_us": [1.0]', encode_record(whole))
    with pytest.raises(BundleError, match="for each of its combinations"):
        decode_record(short, "here")
