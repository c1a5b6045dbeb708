"""Cuts drawn at random reach every closed set, and a sweep tells a right cut from a wrong one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
import typer
from graphs import Net, centre_detector, classifier
from typer.testing import CliRunner

from hil import cut_everywhere, cut_everywhere_cli, model_zoo
from hil.cut_everywhere import Swept, Whole, sweep
from hil.cut_everywhere_cli import Refused, holds, run
from hil.fetch import WheelFile, cache_folder
from hil.model_zoo import TRAINED, ZOO, ZooModel, zoo_model
from hil.model_zoo_inputs import Feed, make_inputs
from partitioner.graph import normalise as normalise_module
from partitioner.graph.cuts import CandidateCut, CutFinder, find_cuts
from partitioner.graph.model import Model
from partitioner.graph.run import sample_inputs
from partitioner.graph.sampling import sample_cuts
from partitioner.graph.split import Chain, Splitter
from partitioner.graph.walk import node_inputs, producers
from shared.errors import ModelError, UserError
from shared.request import TensorSpec


def branches() -> Model:
    """Three branches of two steps each between a stem and a sum."""
    net = Net()
    net.input("x", ["n", 6])
    net.add("Softmax", ["x"], "stem")
    for branch in "abc":
        net.add("MatMul", ["stem", net.weight(f"{branch}.w", 6, 6)], f"{branch}1")
        net.add("Softmax", [f"{branch}1"], f"{branch}2")
    net.add("Concat", ["a2", "b2", "c2"], "all", axis=1)
    net.add("MatMul", ["all", net.weight("w", 18, 4)], "y")
    net.output("y")
    return net.normal()


def test_drawn_cuts_reach_every_closed_set_that_several_tensors_cross() -> None:
    model = branches()
    finder = CutFinder(model)
    possible: set[frozenset[int]] = set()
    for count in range(1, 4):
        for names in combinations(finder.places(), count):
            try:
                cut = finder.at(*names)
            except ModelError:
                continue
            if len(cut.tensors) > 1:
                possible.add(frozenset(cut.nodes))
    drawn, _ = sample_cuts(finder, np.random.default_rng(0), 100)
    assert {frozenset(cut.nodes) for cut in drawn} == possible
    assert len(possible) == 3**3 - 1  # each branch untouched, begun or done; where none is begun, one tensor crosses


def test_drawn_cuts_are_closed_distinct_and_come_from_their_seed() -> None:
    model = centre_detector().normal("1,3,32,32")
    finder = CutFinder(model)
    drawn, _ = sample_cuts(finder, np.random.default_rng(3), 12)
    again, _ = sample_cuts(finder, np.random.default_rng(3), 12)
    assert [cut.name for cut in drawn] == [cut.name for cut in again]
    assert len({frozenset(cut.nodes) for cut in drawn}) == len(drawn) > 5
    graph = model.proto.graph
    made_by = producers(graph)
    for cut in drawn:
        for index in cut.nodes:
            assert {made_by[n] for n in node_inputs(graph.node[index]) if n in made_by} <= set(cut.nodes)
    sizes = sorted(drawn, key=lambda cut: len(cut.nodes))
    assert any(not set(a.nodes) <= set(b.nodes) for a, b in combinations(sizes, 2))


def test_a_chain_has_no_cut_that_several_tensors_cross() -> None:
    net = Net()
    net.input("x", ["n", 6])
    for index in range(4):
        net.add("Softmax", [net.add("MatMul", ["x" if index == 0 else f"s{index - 1}", net.weight(f"w{index}", 6, 6)], f"m{index}")], f"s{index}")  # fmt: skip  # noqa: E501
    net.output("s3")
    assert sample_cuts(CutFinder(net.normal()), np.random.default_rng(0), 5)[0] == ()


def rows(model: Model) -> list[dict[str, np.ndarray]]:
    return [sample_inputs(model, 1, seed) for seed in (1, 2)]


@pytest.mark.parametrize("net", [classifier(), centre_detector()], ids=["classifier", "detector"])
def test_every_cut_of_a_small_model_gives_the_very_same(net: Net) -> None:
    model = net.normal("1,3,32,32" if net.opset == 9 else "1,3,16,16")
    swept = sweep("small", model, rows(model), 8, 0)
    assert swept.single + swept.many >= 6
    assert swept.bit_equal == swept.single + swept.many
    assert swept.excluded == ()
    assert swept.worst_ulps <= cut_everywhere.LIMITS_ULPS["float32"]
    assert holds(swept)


def test_a_cut_that_changes_answers_is_excluded_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tails that are given the ends of two branches take the one for the other."""
    model = branches()
    right = Splitter.split

    def swapped(self: Splitter, cuts: Sequence[CandidateCut]) -> Chain:
        chain = right(self, cuts)
        tail = chain.parts[-1]
        if {"a2", "b2"} <= {spec.name for spec in tail.inputs}:
            for node in tail.proto.graph.node:
                names = [{"a2": "b2", "b2": "a2"}.get(name, name) for name in node.input]
                del node.input[:]
                node.input.extend(names)
        return chain

    monkeypatch.setattr(Splitter, "split", swapped)
    swept = sweep("branches", model, rows(model), 30, 0)
    wrong = [cut for cut in swept.excluded if "unoptimised, head and tail are" in cut.reason]
    assert wrong
    assert len(wrong) == len(swept.excluded) < swept.single + swept.many
    assert swept.bit_equal == swept.single + swept.many - len(wrong)
    assert not holds(swept)


def test_a_part_that_does_not_load_is_excluded_with_the_runtimes_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier().normal("1,3,16,16")
    right = Splitter.split

    def broken(self: Splitter, cuts: Sequence[CandidateCut]) -> Chain:
        chain = right(self, cuts)
        chain.parts[-1].proto.graph.node[0].op_type = "Nonsense"
        return chain

    monkeypatch.setattr(Splitter, "split", broken)
    swept = sweep("broken", model, rows(model), 0, 0)
    assert len(swept.excluded) == swept.single
    assert {cut.reason for cut in swept.excluded if "operator Nonsense" not in cut.reason} == set()
    assert not holds(swept)


def test_what_optimising_may_move_is_limited_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier().normal("1,3,16,16")
    whole = Whole(model, rows(model))
    cut = find_cuts(model)[1]
    assert whole.apart(cut)[2] == ""
    moved = [{name: array * np.float32(1.01) for name, array in row.items()} for row in whole.answers["all"]]
    whole.answers["all"] = moved
    plain, optimised, reason = whole.apart(cut)
    assert plain == 0.0
    assert optimised > cut_everywhere.LIMITS_ULPS["float32"]
    assert reason.startswith("optimised, head and tail are")


# --- the zoo ------------------------------------------------------------------------------------------------------------


def test_models_of_the_zoo_are_told_apart_pinned_and_licensed() -> None:
    assert len({model.name for model in ZOO}) == len(ZOO) == 21
    for model in TRAINED:
        assert isinstance(model.source, WheelFile)
        assert len(model.source.wheel_sha256) == len(model.source.member_sha256) == 64
        assert "==" in model.source.requirement
    assert all(model.licence in {"MIT", "Apache-2.0", "BSD-2-Clause"} for model in ZOO)
    with pytest.raises(UserError, match="'nobody' is not in the zoo; there are silero-vad-op15"):
        zoo_model("nobody")


@pytest.mark.parametrize("model", ZOO, ids=lambda model: model.name)
def test_inputs_come_from_their_seed_and_fit(model: ZooModel) -> None:
    shapes = {
        "voice": [("input", "float32", (1, 576)), ("state", "float32", (2, 1, 128)), ("sr", "int64", ())],
        "tokens": [("input_ids", "int64", (1, 64)), ("attention_mask", "int64", (1, 64))],
        "bytes": [("bytes", "int32", (1, 2048))],
        "spectrum": [("input_features", "float32", (1, 80, 100))],
        "image": [("x", "float32", (1, 3, 32, 48))],
        "text": [("x", "float32", (1, 3, 24, 64))],
    }
    specs = [TensorSpec(*values) for values in shapes[model.feed.kind]]
    first, again, other = (make_inputs(model.feed, specs, seed) for seed in (1, 1, 2))
    for spec in specs:
        assert (first[spec.name].shape, first[spec.name].dtype.name) == (spec.shape, spec.dtype)
        np.testing.assert_array_equal(first[spec.name], again[spec.name])
        assert np.isfinite(first[spec.name]).all()
    assert any(not np.array_equal(first[name], other[name]) for name in first)


def test_a_package_that_cannot_be_fetched_is_one_clear_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(tmp_path))):
        monkeypatch.setenv(name, value)
    result = run(TRAINED[0], tmp_path, 5, 0, lambda _: None)
    assert isinstance(result, Refused)
    assert not result.expected
    assert "cannot fetch silero-vad==6.2.3 from the package index" in result.message
    assert f"put it into {tmp_path / 'zoo' / TRAINED[0].name}" in result.message
    assert not holds(result)


def test_a_refusal_that_is_known_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise ModelError("x.onnx: a body of operator If cannot take these shapes")

    monkeypatch.setattr(model_zoo, "fetch", refuse)
    assert holds(run(zoo_model("silero-vad"), tmp_path, 5, 0, lambda _: None))
    assert not holds(run(zoo_model("magika"), tmp_path, 5, 0, lambda _: None))


def test_the_command_shows_a_table_and_writes_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = classifier().save(tmp_path / "small.onnx")
    small = ZooModel("small", "small", "MIT", "a test", Feed("image"), ("1,3,16,16",))
    monkeypatch.setattr(model_zoo, "_light_path", lambda _: path)
    monkeypatch.setattr(cut_everywhere_cli, "zoo_model", lambda _: small)
    app = typer.Typer()
    app.command()(cut_everywhere_cli.main)
    result = CliRunner().invoke(app, ["--model", "small", "--many", "4", "--json", str(tmp_path / "found.json")])
    assert result.exit_code == 0, result.output
    assert "Head and tail against the whole" in result.output
    (found,) = msgspec.json.decode((tmp_path / "found.json").read_bytes(), type=list[Swept])
    assert found.model == "small"
    assert found.bit_equal == found.single + found.many > 0
    refused = CliRunner().invoke(app, ["--model", "small", "--json", str(tmp_path / "nowhere" / "found.json")])
    assert isinstance(refused.exception, UserError)


def fetched(name: str, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A trained model in its normal form; the test is skipped where it cannot be fetched."""
    for key, value in (("PIP_RETRIES", "0"), ("PIP_DEFAULT_TIMEOUT", "5")):
        monkeypatch.setenv(key, value)
    entry = zoo_model(name)
    cache = cache_folder()
    try:
        entry.path(cache)
    except ModelError as error:
        pytest.skip(str(error))
    return entry.normal(cache)


def test_the_voice_detector_is_cut_bit_exactly_wherever_a_value_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalise_module, "fold", lambda model: model)  # else no `If` with its captures would be left
    model = fetched("silero-vad-op15", monkeypatch)
    finder = CutFinder(model)
    assert any(node.op_type == "If" for node in model.proto.graph.node)
    finder._borders = set(finder._made_by)  # unoptimised there is no kernel to spare
    whole = Whole(model, [make_inputs(zoo_model("silero-vad-op15").feed, model.inputs, 0)])
    tried = 0
    for name in finder.places():
        try:
            cut = finder.at(name)
        except ModelError as error:
            assert "leaves nothing for the other side" in str(error)  # noqa: PT017
            continue
        plain, _, reason = whole.apart(cut)
        assert (plain, reason) == (0.0, ""), name
        tried += 1
    assert tried >= 48


def test_the_orientation_classifier_is_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fetched("orientation", monkeypatch)
    finder = CutFinder(model)
    feed = zoo_model("orientation").feed
    whole = Whole(model, [make_inputs(feed, model.inputs, 0)])
    drawn, _ = sample_cuts(finder, np.random.default_rng(0), 3)
    for cut in (*finder.single()[1:-1:9], *drawn):
        plain, _, reason = whole.apart(cut)
        assert (plain, reason) == (0.0, ""), cut.name
