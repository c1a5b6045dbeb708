"""`headtail verify` on small bundles: a real node process, the real wire."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
import numpy as np
import pytest
import typer
from tiny import inputs_for, make_bundle
from typer.testing import CliRunner

from cloud.launches import LaunchCount
from hil.asker import Asker
from hil.own_node import OwnNode
from hil.proof import TOLERANCE, Proof, difference, named, prove_cuts
from hil.references import SingleProcess
from hil.samples import LEAST_JUDGED
from hil.verify import Verdict, main, rows_by_cut, verify
from shared.bundle import Bundle, load_bundle, write_manifest
from shared.errors import BundleError, HeadtailError, UserError
from shared.plan import GOLDEN_FILE, PLAN_FILE, Plan, Route
from shared.request import Array, Buffer


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("verify"), "chain")


@pytest.fixture(scope="module")
def verdict(chain: Path) -> Verdict:
    return verify(chain)


def test_every_cut_coding_and_rung_is_proven(verdict: Verdict) -> None:
    plan = verdict.bundle.plan
    tried = {(proof.cut, proof.coding) for proof in verdict.proofs if proof.cut is not None}
    assert tried == {(i, coding.name) for i, cut in enumerate(plan.cuts[:-1]) for coding in cut.codings}
    assert {p.way for p in verdict.proofs if p.cut is None} == {f"rung {rung.name}" for rung in plan.ladder}
    for way in (True, False):
        assert {p.rows for p in verdict.proofs if (p.cut is None) is way} == {1, 2, 4}
    assert verdict.holds


def test_the_node_counted_every_tail(verdict: Verdict) -> None:
    assert verdict.ran == verdict.asked
    assert set(verdict.asked) == set(range(len(verdict.bundle.plan.cuts) - 1))
    assert all(rows > 0 for rows in verdict.asked.values())


def test_a_tail_that_did_not_run_in_the_node_proves_nothing(verdict: Verdict) -> None:
    short = {**verdict.ran, 0: verdict.ran[0] - 1}
    assert not dataclasses.replace(verdict, ran=short).holds
    assert not dataclasses.replace(verdict, ran={}).holds


def test_only_tails_of_this_plan_count(verdict: Verdict) -> None:
    bundle = verdict.bundle
    last = len(bundle.plan.cuts) - 1
    launches = [
        LaunchCount(bundle.contract, 0, 1, last, 2, 3),
        LaunchCount(bundle.contract, 0, 1, last, 1, 4),
        LaunchCount(bundle.contract, 0, 0, 1, 1, 50),
        LaunchCount(bundle.contract, 1, 0, last, 1, 60),
        LaunchCount("another", 0, 1, last, 1, 70),
    ]
    assert rows_by_cut(bundle, launches) == {1: 10}


def test_other_answers_than_the_golden_ones_are_seen(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, "chain")
    with np.load(path / GOLDEN_FILE) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["out/0/logits"] = arrays["out/0/logits"] * 1.01
    np.savez(path / GOLDEN_FILE, **arrays)
    write_manifest(path)
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(path)])
    assert result.exit_code == 1, result.output
    assert "not proven" in " ".join(result.output.split())


class OtherAnswers:
    """Tails that are run by the model's own files, but answer one request with another's answer."""

    def __init__(self, bundle: Bundle) -> None:
        self.golden = bundle.golden()

    def ask(self, plan: Plan, cut: int, coding: str, frames: Sequence[Buffer], rows: int) -> dict[str, Array]:
        return named(plan.cuts[-1], [np.concatenate([a] * rows) for a in self.golden[0].outputs])


def judged(folder: Path, rung: float, int8: float) -> tuple[Path, Path]:
    """The chain with these agreements stated of its cheaper rung and of its int8 routes, and rows to judge them by."""
    path = make_bundle(folder, "chain")
    plan = msgspec.json.decode((path / PLAN_FILE).read_bytes(), type=Plan)
    ladder = tuple(msgspec.structs.replace(r, agreement=rung) if r.program else r for r in plan.ladder)
    kept = tuple(r for r in plan.routes if r.coding == "raw")
    routes = (*kept, Route(1, "int8", int8, 500, 500), Route(2, "int8", int8, 500, 500))
    changed = msgspec.structs.replace(plan, ladder=ladder, routes=routes, metric="relative")
    (path / PLAN_FILE).write_bytes(msgspec.json.encode(changed))
    write_manifest(path)
    rows = np.concatenate([inputs_for(plan, seed=seed)[0] for seed in range(LEAST_JUDGED)])
    np.savez(folder / "rows.npz", **{plan.inputs[0].name: rows})
    return path, folder / "rows.npz"


def call(*arguments: object) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.split())


def test_a_rung_and_a_coding_that_agree_less_than_planned_are_named(tmp_path: Path) -> None:
    path, rows = judged(tmp_path, rung=0.99, int8=0.0)
    status, said = call(path, "--calibration", rows)
    assert status == 1
    assert "rung small: agrees by" in said
    assert "the plan says 0.990, and 0.02 less is allowed" in said
    assert "as int8: agrees by" not in said
    status, said = call(path)
    assert status == 0, said
    assert "agreement was not judged" in said


def test_a_node_that_is_there_runs_the_tails_and_its_replies_say_so(tmp_path: Path) -> None:
    path, rows = judged(tmp_path, rung=0.0, int8=0.0)
    bundle = load_bundle(path)
    with OwnNode(path, 1) as node:
        verdict = verify(path, node=node.endpoint(), calibration=rows)
        counted = rows_by_cut(bundle, node.end().launches)
    assert verdict.holds
    assert verdict.ran == verdict.asked == counted
    assert {p.coding for p in verdict.proofs if p.agreement is not None} == {"int8", ""}
    assert all(p.requests == -(-(2 + LEAST_JUDGED) // p.rows) for p in verdict.proofs)
    assert verdict.samples.given == LEAST_JUDGED


def test_an_endpoint_or_rows_that_are_none_are_refused(chain: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tcp://host:port"):
        main(chain, node="nowhere")
    with pytest.raises(UserError, match="no such file or folder"):
        verify(chain, calibration=tmp_path / "nowhere")


def test_a_swapped_answer_is_seen(chain: Path) -> None:
    bundle = load_bundle(chain)
    proofs = list(prove_cuts(bundle, SingleProcess(bundle), OtherAnswers(bundle)))
    assert not any(proof.holds for proof in proofs)


def test_the_command_says_what_was_proven(chain: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(chain)])
    assert result.exit_code == 0, result.output
    assert "by its own count" in " ".join(result.output.split())
    assert "every tail ran in the node" in result.output


def test_a_damaged_bundle_is_refused_by_name(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, "identity")
    (path / GOLDEN_FILE).write_bytes(b"damaged")
    with pytest.raises(BundleError, match=GOLDEN_FILE):
        verify(path)


def test_a_node_that_does_not_serve_the_contract_is_an_error(chain: Path) -> None:
    with OwnNode(chain, 1) as node, Asker(node.endpoint(), "0" * 64) as asker:
        with pytest.raises(HeadtailError, match="does not serve"):
            asker.greet()
        node.end()


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with OwnNode(tmp_path / "nowhere.plan", 1) as node, pytest.raises(HeadtailError, match=r"nowhere\.plan"):
        node.endpoint()


def test_a_refusal_names_its_reason(chain: Path) -> None:
    bundle = load_bundle(chain)
    with OwnNode(chain, 1) as node, Asker(node.endpoint(), bundle.contract) as asker:
        asker.greet()
        with pytest.raises(HeadtailError, match="refused"):
            asker.ask(bundle.plan, 0, "no-such-coding", [np.zeros(bundle.plan.inputs[0].shape, np.uint8).data], 1)


def test_one_that_comes_while_all_credit_is_lent_waits_for_its_own(chain: Path) -> None:
    """An agent that is there gives back what is more than its share when it next hears from the node."""
    bundle = load_bundle(chain)
    golden = bundle.golden()[0]
    frames = [array.tobytes() for array in golden.inputs]
    with (
        OwnNode(chain, 1) as node,
        nullcontext(node.endpoint()) as endpoint,
        Asker(endpoint, bundle.contract, peer="agent") as agent,
        Asker(endpoint, bundle.contract) as asker,
    ):
        assert agent.greet().credits == 64
        assert asker.greet().credits == 0
        heard = threading.Timer(0.3, lambda: agent.ask(bundle.plan, 0, "raw", frames, 1))
        heard.start()
        outputs = asker.ask(bundle.plan, 0, "raw", frames, 1)
        heard.join()
        assert outputs.keys() == {spec.name for spec in bundle.plan.outputs}


def test_differences_are_relative_and_strict_about_shape_and_type() -> None:
    one = {"y": np.array([1.0, 100.0], np.float32)}
    near = {"y": np.array([1.0, 100.01], np.float32)}
    assert difference(one, one) == 0.0
    assert difference(one, near) == pytest.approx(1e-4, rel=1e-2)
    assert difference(one, {"y": one["y"].astype(np.float64)}) == float("inf")
    assert difference(one, {"z": one["y"]}) == float("inf")
    assert difference(one, {"y": np.array([1.0, np.nan], np.float32)}) == float("inf")
    nan = {"y": np.array([np.nan], np.float32)}
    assert difference(nan, nan) == 0.0
    assert Proof("way", "raw", 1, 1, TOLERANCE).holds
    assert not Proof("way", "raw", 1, 1, TOLERANCE * 2).holds
