"""What the bench says of the search and of planning, and that choosing among ways never compares all with all."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from records import away
from rich.console import Console

from hil import plan_bench, search_bench, search_proof
from hil.long_model import write_long_model
from hil.plan_bench import Planning, Step
from hil.search_bench import SearchFigures
from hil.search_proof import ModelProof
from partitioner import choose
from partitioner.costs.cost import Candidate, Prediction
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.graph.load import read_model
from partitioner.graph.normalise import normalise
from partitioner.options import LinkGuess

FIGURES = SearchFigures("residual", 800, 801, 1.0, 49.0, 90.0, 100.0, 5, 20)
PROOF = ModelProof("m", 3, 4, 8, 2, 60, 0, ())


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def text(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def test_a_plan_of_the_bench_is_timed_step_by_step(tmp_path: Path) -> None:
    planning = plan_bench.measure(tmp_path, 24)
    assert planning.steps[0].what == "reading and normalising the model"
    assert planning.steps[-1].what == "writing the report"
    assert planning.ways > 3
    shown = console()
    assert plan_bench.show(planning, shown) == planning.within
    assert "searching among all cuts" in text(shown)


def test_the_long_model_has_the_operators_asked_for_and_two_branches_in_each_block(tmp_path: Path) -> None:
    model = normalise(read_model(write_long_model(tmp_path / "long.onnx", 60)), {})
    assert len(model.proto.graph.node) == 60
    finder = CutFinder(model)
    assert len(finder.single()) == 2 + 9
    assert len(find_groups(finder).nodes) > 20


def test_a_limit_that_is_exceeded_is_said_and_fails_the_bench() -> None:
    slow = Planning(3000, 10, (Step("searching among all cuts", 19.0, 1.0), Step("writing the report", 1.1, 1.0)))
    for show, kept, exceeded in (
        (plan_bench.show, replace(slow, steps=slow.steps[:1]), slow),
        (search_bench.show, (FIGURES,), (replace(FIGURES, solve_ms=51.0),)),
    ):
        good, bad = console(), console()
        assert show(kept, good)  # type: ignore[operator]
        assert not show(exceeded, bad)  # type: ignore[operator]
        assert "kept" in text(good)
        assert "EXCEEDED" in text(bad)
    assert replace(FIGURES, groups=3000, solve_ms=51.0).within


def test_a_model_that_was_not_compared_whole_breaks_the_rule() -> None:
    assert search_proof.show([PROOF], console())
    for broken in (replace(PROOF, sets=None, cases=0), replace(PROOF, wrong=("one",))):
        shown = console()
        assert not search_proof.show([PROOF, broken], shown)
        assert "BROKEN" in text(shown)


@pytest.mark.parametrize("ways", [50, 500])
def test_choosing_routes_predicts_each_way_once_for_a_link(ways: int, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted: Counter[str] = Counter()
    right = choose.predict

    def counted(candidate: Candidate, link: LinkGuess) -> Prediction:
        predicted[candidate.label] += 1
        return right(candidate, link)

    monkeypatch.setattr(choose, "predict", counted)
    candidates = [away(f"cut {n}", "raw", 1.0 + n, 5.0, 1000 * (ways - n), 1.0).on(1.0) for n in range(ways)]
    routes = choose.choose_routes(candidates, LinkGuess(100.0, 2.0), 10_000_000, 0.5)
    links = len(choose.RATE_FACTORS) * len(choose.RTT_FACTORS)
    assert routes
    assert max(predicted.values()) <= links + 1
