"""What a user does not allow is in no plan: a private input, cuts that lie too early, too many bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_places import two_branches
from test_plan import options, write_images, write_model

from partitioner.build import make, make_plan
from partitioner.options import LinkGuess, PlanOptions
from shared.errors import UserError


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("constraints")
    write_model(folder / "small.onnx")
    write_images(folder / "images")
    return folder


def test_a_private_input_is_never_sent_and_early_cuts_are_left_out(place: Path) -> None:
    made = make(
        options(
            place,
            "private.plan",
            edge_slowdown=1000.0,
            link=LinkGuess(1000.0, 0.1),
            private_input=True,
            least_share=0.2,
        )
    )
    weighing = made.weighing
    assert {c.kind for c in weighing.candidates} == {"device", "split"}
    looked_at = {name: loaded.cut for name, loaded in weighing.loaded.items() if name != "input"}
    assert {c.cut for c in weighing.candidates if c.kind == "split" and c.measured} == set(looked_at)
    assert looked_at
    for cut in looked_at.values():
        assert cut.share >= 0.2
        assert not {tensor.name for tensor in cut.tensors} & {tensor.name for tensor in made.plan.inputs}
    assert all(route.cut > 0 for route in made.plan.routes)
    assert any("rebuild the input" in note for note in weighing.notes)
    assert not any("no least share" in note for note in weighing.notes)


def test_ways_that_send_too_much_are_left_out(place: Path) -> None:
    most = 1500
    made = make(
        options(
            place,
            "narrow.plan",
            edge_slowdown=1000.0,
            link=LinkGuess(1000.0, 0.1),
            max_bytes_per_second=most * 1000,  # at 1,000 requests a second
        )
    )
    away = [c for c in made.weighing.candidates if c.kind != "device"]
    assert all(c.bytes_up <= most for c in away)
    silent = make(options(place, "silent.plan", edge_slowdown=1000.0, max_bytes_per_second=1000))
    assert {c.kind for c in silent.weighing.candidates} == {"device"}
    assert silent.plan.routes == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"least_share": 1.0}, "least share"),
        ({"max_bytes_per_second": 999}, "at least a byte"),
        ({"private_input": True, "force_cuts": ("input",)}, "cannot be sent"),
    ],
)
def test_constraints_that_make_no_sense_are_refused_before_any_work(
    place: Path, changes: dict[str, object], words: str
) -> None:
    told: list[str] = []
    with pytest.raises(UserError, match=words):
        make_plan(options(place, "bad.plan", **changes), told.append)
    assert told == []


def test_a_rung_of_8_bits_that_is_asked_for_is_made_judged_and_kept_where_it_pays(place: Path) -> None:
    made = make(options(place, "quantised.plan", rungs=("int8",), min_agreement=0.0))
    (rung,) = [c for c in made.weighing.candidates if c.rung == "int8"]
    assert 0.0 <= rung.agreement <= 1.0
    kept = {r.name for r in made.plan.ladder}
    assert "whole" in kept
    assert ("int8" in kept) == (rung in made.weighing.rungs)
    assert ("int8" in kept) != any("int8 is left out" in note for note in made.weighing.notes)


@pytest.mark.parametrize(
    ("rungs", "words"), [(("exit",), "not yet"), (("int9",), "expected int8"), (("model:no.onnx",), "no such file")]
)
def test_a_rung_that_cannot_be_is_refused_before_any_work(place: Path, rungs: tuple[str, ...], words: str) -> None:
    told: list[str] = []
    with pytest.raises(UserError, match=words):
        make_plan(options(place, "bad.plan", rungs=rungs), told.append)
    assert told == []


def test_a_model_that_no_single_tensor_separates_is_cut_at_several(tmp_path: Path) -> None:
    net = two_branches()
    net.output("left", ["batch", 4, 8, 8])
    made = make(
        PlanOptions(
            net.save(tmp_path / "two.onnx"),
            tmp_path / "two.plan",
            shapes=("1,3,32,32",),
            link=LinkGuess(1.0, 2.0),
            cadence_hz=1000.0,
            quick=True,
        )
    )
    splits = [c for c in made.weighing.candidates if c.kind == "split"]
    assert splits
    assert any(c.measured for c in splits)
    assert {len(made.weighing.loaded[c.cut].cut.tensors) for c in splits if c.measured} == {2}
    for route in {way.cut for way in made.weighing.routes if way.kind == "split"}:
        crossing = ", ".join(spec.name for spec in made.weighing.loaded[route].cut.tensors)
        assert any(note.endswith(f"there cross 2 tensors: {crossing}") for note in made.weighing.notes)
