"""Bundles: a whole one loads, and each way to damage one is refused by the name of the file at fault."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import make_bundle, run_chain, write_plan

from shared.bundle import finish_bundle, load_bundle, write_manifest
from shared.errors import BundleError
from shared.plan import MANIFEST, PLAN_FILE, Coding, Cut, Plan, Program, RangeTime, Route, Rung, contract_digest
from shared.plan_rules import plan_faults
from shared.request import TensorSpec

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "chain.plan"))


def refused(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        load_bundle(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


def test_a_whole_bundle_loads_with_its_contract_and_files(bundle: Path) -> None:
    loaded = load_bundle(bundle)
    assert loaded.name == "chain"
    assert loaded.contract == contract_digest(loaded.plan)
    assert loaded.files["whole-0.onnx"] == bundle / "whole-0.onnx"


def test_golden_vectors_are_the_whole_models_own(bundle: Path) -> None:
    loaded = load_bundle(bundle)
    vectors = loaded.golden()
    assert len(vectors) == 2
    for vector in vectors:
        made = run_chain(bundle, loaded.plan.programs[0].segments, {"image": vector.inputs[0]})
        assert np.array_equal(vector.outputs[0], made["logits"])
        assert np.array_equal(vector.outputs[1], made["best"])


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "no bundle" in refused(tmp_path / "nothing.plan")


def test_a_copy_without_manifest_is_refused(bundle: Path) -> None:
    (bundle / MANIFEST).unlink()
    assert f"{MANIFEST} is missing" in refused(bundle)


@pytest.mark.parametrize("name", ["plan.json", "weights.bin", "whole-1.onnx", "golden.npz", "report.html"])
def test_a_missing_a_truncated_and_a_changed_file_are_each_named(bundle: Path, name: str) -> None:
    whole = (bundle / name).read_bytes()
    (bundle / name).write_bytes(whole[:-1])
    assert f"{name} is damaged" in refused(bundle)
    (bundle / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert f"{name} is damaged" in refused(bundle)
    (bundle / name).unlink()
    assert f"{name} is missing" in refused(bundle)


def test_a_file_that_is_not_listed_is_named(bundle: Path) -> None:
    (bundle / "other.bin").write_bytes(b"weights of another version")
    assert "other.bin is not in manifest.json" in refused(bundle)


def test_links_and_folders_are_refused(bundle: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "weights.bin"
    (bundle / "weights.bin").rename(elsewhere)
    (bundle / "weights.bin").symlink_to(elsewhere)
    assert "weights.bin is a link" in refused(bundle)
    (bundle / "weights.bin").unlink()
    (bundle / "weights.bin").mkdir()
    assert "weights.bin is a link or a folder" in refused(bundle)
    (bundle / MANIFEST).rename(tmp_path / MANIFEST)
    (bundle / MANIFEST).symlink_to(tmp_path / MANIFEST)
    assert f"{MANIFEST} is a link" in refused(bundle)


def test_a_pipe_in_the_manifests_place_is_refused_and_not_waited_for(bundle: Path) -> None:
    (bundle / MANIFEST).unlink()
    os.mkfifo(bundle / MANIFEST)
    assert f"{MANIFEST} is not a plain file" in refused(bundle)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", "..", "manifest.json"])
def test_a_manifest_may_name_only_files_of_its_own_folder(bundle: Path, name: str) -> None:
    text = msgspec.json.decode((bundle / MANIFEST).read_bytes())
    text["files"][name] = "0" * 64
    (bundle / MANIFEST).write_bytes(msgspec.json.encode(text))
    assert repr(name) in refused(bundle)


@pytest.mark.parametrize("file", [MANIFEST, PLAN_FILE])
def test_another_format_is_called_another_format(bundle: Path, file: str) -> None:
    text = msgspec.json.decode((bundle / file).read_bytes())
    text |= {"format": 2, "a_new_field": 1}
    (bundle / file).write_bytes(msgspec.json.encode(text))
    if file != MANIFEST:
        write_manifest(bundle)
    assert f"{file} has format 2, this version reads format 1" in refused(bundle)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.binary(max_size=60), st.sampled_from((b"[" * 3000, b'{"format":1,"x":' + b"[" * 3000))))
def test_any_manifest_or_plan_that_is_not_one_is_refused(bundle: Path, text: bytes) -> None:
    kept = {name: (bundle / name).read_bytes() for name in (MANIFEST, PLAN_FILE)}
    (bundle / MANIFEST).write_bytes(text)
    assert MANIFEST in refused(bundle)
    (bundle / PLAN_FILE).write_bytes(text)
    write_manifest(bundle)
    assert PLAN_FILE in refused(bundle)
    for name, whole in kept.items():
        (bundle / name).write_bytes(whole)


def test_a_wrong_type_in_the_plan_is_named_by_its_path(bundle: Path) -> None:
    text = msgspec.json.decode((bundle / PLAN_FILE).read_bytes())
    text["cuts"][1]["tensors"][0]["shape"] = [1, "six"]
    (bundle / PLAN_FILE).write_bytes(msgspec.json.encode(text))
    write_manifest(bundle)
    assert "$.cuts[1].tensors[0].shape[1]" in refused(bundle)


def test_plan_and_manifest_must_agree_about_what_changes_answers(bundle: Path) -> None:
    """New weights under an old plan: the manifest is right, the contract is not."""
    changed = bytearray((bundle / "weights.bin").read_bytes())
    changed[0] ^= 1
    (bundle / "weights.bin").write_bytes(changed)
    write_manifest(bundle)
    assert "do not agree about weights.bin" in refused(bundle)


def test_a_golden_file_that_does_not_fit_the_plan_is_named(bundle: Path) -> None:
    for arrays, message in (
        ({}, "no golden vectors"),
        ({"in/0/image": np.zeros((1, 32, 32, 3), np.uint8)}, "no 'out/0/logits'"),
        ({"in/0/image": np.zeros((1, 8, 8, 3), np.uint8)}, "expected uint8"),
    ):
        np.savez(bundle / "golden.npz", **arrays)
        write_manifest(bundle)
        with pytest.raises(BundleError, match=message):
            load_bundle(bundle).golden()
    (bundle / "golden.npz").write_bytes(b"not an archive")
    write_manifest(bundle)
    with pytest.raises(BundleError, match=r"golden\.npz cannot be read"):
        load_bundle(bundle).golden()


def _cut(plan: Plan, index: int, cut: Cut) -> Plan:
    return replace(plan, cuts=(*plan.cuts[:index], cut, *plan.cuts[index + 1 :]))


def _segment(plan: Plan, program: int, index: int, **changes: object) -> Plan:
    segments = list(plan.programs[program].segments)
    segments[index] = replace(segments[index], **changes)
    programs = list(plan.programs)
    programs[program] = Program(programs[program].name, tuple(segments))
    return replace(plan, programs=tuple(programs))


def _coding(plan: Plan, index: int, coding: Coding) -> Plan:
    return _cut(plan, index, replace(plan.cuts[index], codings=(coding,)))


def _profile(plan: Plan, **changes: object) -> Plan:
    return replace(plan, profiles=(replace(plan.profiles[0], **changes),))


FAULTS: list[tuple[Callable[[Plan], Plan], str]] = [
    (lambda p: replace(p, cuts=p.cuts[:1]), "cuts: 1"),
    (lambda p: replace(p, cuts=p.cuts[:3]), "3 segments for 3 cuts"),
    (lambda p: replace(p, programs=()), "programs: none"),
    (lambda p: replace(p, max_batch=0), "max_batch: 0"),
    (lambda p: replace(p, batchable=False), "max_batch: 8 does not fit batchable=False"),
    (lambda p: _cut(p, 2, replace(p.cuts[2], name="wide")), "'wide' is there 2 times"),
    (lambda p: _cut(p, 1, Cut("wide", ())), "0 tensors"),
    (lambda p: _cut(p, 1, Cut("wide", (TensorSpec("wide", "float31", (1,)),))), "float31"),
    (lambda p: _cut(p, 1, Cut("wide", (TensorSpec("wide", "float32", (1, -1)),))), "negative"),
    (lambda p: _cut(p, 1, Cut("wide", (TensorSpec("wide", "float32", ()),))), "no batch axis"),
    (lambda p: _cut(p, 1, Cut("wide", (TensorSpec("wide", "float32", (1, 1 << 40)),))), "more than"),
    (lambda p: _cut(p, 1, replace(p.cuts[1], codings=())), "no coding"),
    (lambda p: _coding(p, 1, Coding("j", "jpeg", quality=90)), "jpeg is for one uint8"),
    (lambda p: _coding(p, 0, Coding("j", "jpeg", quality=0)), "quality 0"),
    (lambda p: _coding(p, 0, Coding("i", "int8", scales=((1.0,) * 32,))), "floating"),
    (lambda p: _coding(p, 1, Coding("i", "int8", scales=((1.0,),))), "1 scales for the 6 channels"),
    (lambda p: _coding(p, 1, Coding("i", "int8")), "scales for 0 tensors"),
    (lambda p: _coding(p, 1, Coding("i", "int8", scales=((0.0,) * 6,))), "not a positive number"),
    (lambda p: _coding(p, 3, Coding("i", "int8", scales=((1.0,) * 5, (1.0,)))), "only raw"),
    (lambda p: _segment(p, 0, 1, inputs=("wide", "ghost")), "takes ['ghost'], which do not cross cut 1"),
    (lambda p: _segment(p, 0, 1, outputs=("deep",)), "does not make ['pooled'] of cut 2"),
    (lambda p: _segment(p, 0, 1, file="other.onnx"), "no digest of 'other.onnx'"),
    (lambda p: _segment(p, 1, 0, inputs=("ghost",)), "nothing before it makes ['ghost']"),
    (lambda p: _segment(p, 1, 0, outputs=("logits",)), "does not make the outputs ['best']"),
    (lambda p: replace(p, programs=(p.programs[0], Program("none", ()))), "no segment"),
    (lambda p: replace(p, name=""), "name: 0 characters"),
    (lambda p: replace(p, name="n" * 129), "name: 129 characters"),
    (lambda p: replace(p, ladder=(Rung("whole", 2, 1.0),)), "no program 2"),
    (lambda p: replace(p, ladder=(Rung("whole", -1, 1.0),)), "no program -1"),
    (lambda p: replace(p, ladder=p.ladder[::-1]), "do not fall"),
    (lambda p: replace(p, routes=(Route(3, "raw", 1.0, 1, 1),)), "cut 3 is not one of 0 to 2"),
    (lambda p: replace(p, routes=(Route(-1, "raw", 1.0, 1, 1),)), "cut -1 is not one of"),
    (lambda p: replace(p, routes=(Route(1, "zip", 1.0, 1, 1),)), "has no coding 'zip'"),
    (lambda p: replace(p, routes=(Route(0, "raw", 1.5, 1, 1),)), "agreement 1.5"),
    (lambda p: replace(p, routes=(Route(0, "raw", 1.0, -1, 1),)), "-1 bytes up"),
    (lambda p: replace(p, ladder=(Rung("whole", 0, -0.5),)), "agreement -0.5"),
    (lambda p: _profile(p, ranges=(RangeTime(0, 0, 1, 1, 1.0, 1e308),)), "p99 1e+308"),
    (lambda p: _profile(p, codecs=(replace(p.profiles[0].codecs[0], decode_us=-1.0),)), "-1.0 us"),
    (lambda p: _profile(p, slowdown=0.5), "slowdown 0.5"),
    (lambda p: _profile(p, ranges=(RangeTime(0, 1, 9, 1, 1.0, 2.0),)), "no range 1 to 9"),
    (lambda p: _profile(p, ranges=(RangeTime(0, 0, 1, 1, 3.0, 2.0),)), "do not fit together"),
    (lambda p: _profile(p, codecs=(replace(p.profiles[0].codecs[0], cut=7),)), "at cut 7"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_plan_that_contradicts_itself_is_refused(
    original: Path, bundle: Path, change: Callable[[Plan], Plan], message: str
) -> None:
    plan = change(load_bundle(original).plan)
    assert any(message in fault for fault in plan_faults(plan))
    write_plan(bundle, plan)
    write_manifest(bundle)
    assert PLAN_FILE in refused(bundle)


def test_the_tests_own_bundles_have_no_faults(tmp_path: Path) -> None:
    for kind in ("identity", "chain", "passing"):
        for batchable in (True, False):
            path = make_bundle(tmp_path, kind, name=f"{kind}-{batchable}", batchable=batchable)
            assert list(plan_faults(load_bundle(path).plan)) == []


def test_a_finished_bundle_replaces_the_old_one(bundle: Path, tmp_path: Path) -> None:
    fresh = make_bundle(tmp_path / "work", "identity")
    old = load_bundle(bundle).contract
    finish_bundle(fresh, bundle)
    assert load_bundle(bundle).contract != old
    assert not fresh.exists()
    assert [entry.name for entry in bundle.parent.iterdir() if entry.name.endswith(".old")] == []
    again = make_bundle(tmp_path / "again", "identity")
    finish_bundle(again, tmp_path / "new.plan")
    assert load_bundle(tmp_path / "new.plan").name == "identity"


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError])
def test_finishing_that_is_interrupted_leaves_one_whole_bundle_and_nothing_beside_it(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    before: bool,
    reason: type[BaseException],
) -> None:
    fresh = make_bundle(tmp_path / "work", "identity")
    known = {load_bundle(path).contract for path in (bundle, fresh)}
    rename, rmtree, steps = Path.rename, shutil.rmtree, itertools.count()

    def interrupted(do: Callable[[], object]) -> None:
        hit = next(steps) == step
        if hit and before:
            raise reason
        do()
        if hit:
            raise reason

    monkeypatch.setattr(Path, "rename", lambda self, to: interrupted(lambda: rename(self, to)))
    monkeypatch.setattr(shutil, "rmtree", lambda path, **more: interrupted(lambda: rmtree(path, **more)))
    with pytest.raises(reason):
        finish_bundle(fresh, bundle)
    assert load_bundle(bundle).contract in known
    assert [entry.name for entry in bundle.parent.iterdir() if entry.name.startswith(".")] == []


def test_finishing_never_removes_what_is_not_a_bundle(bundle: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("mine")
    with pytest.raises(BundleError, match="precious: is in the way"):
        finish_bundle(bundle, precious)
    with pytest.raises(BundleError, match=r"thesis\.txt: is in the way"):
        finish_bundle(bundle, precious / "thesis.txt")
    assert (precious / "thesis.txt").read_text() == "mine"
    (bundle / MANIFEST).unlink()
    with pytest.raises(BundleError, match="not complete"):
        finish_bundle(bundle, tmp_path / "new.plan")
