"""Loading plans into onnxruntime: what cannot run here is refused by name before anything is served."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from tiny import inputs_for, make_bundle, run_chain, write_plan

from shared.bundle import load_bundle, write_manifest
from shared.errors import BundleError, ModelError, SettingsError, UserError
from shared.executors import ort
from shared.executors.ort import load_programs
from shared.plan import Plan, SegmentRange
from shared.request import TensorSpec
from shared.settings import Execution
from shared.slots import Side

CPU = Execution()
replace = msgspec.structs.replace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_bundle(tmp_path, "chain", max_batch=3)


def load(path: Path, side: Side = "edge") -> ort.OrtPrograms:
    return load_programs(load_bundle(path), CPU, side, 3)


def rewrite(path: Path, name: str, model: onnx.ModelProto) -> None:
    """Put another model in a segment's place, digests and all."""
    (path / name).write_bytes(model.SerializeToString())
    plan = load_plan(path)
    digests = plan.digests | {name: hashlib.sha256((path / name).read_bytes()).hexdigest()}
    write_plan(path, replace(plan, digests=digests))
    write_manifest(path)


def load_plan(path: Path) -> Plan:
    return msgspec.json.decode((path / "plan.json").read_bytes(), type=Plan)


@pytest.mark.parametrize("rows", [1, 3])
def test_every_range_gives_what_its_segments_give_one_by_one(path: Path, rows: int) -> None:
    programs = load(path)
    plan = programs.plan
    reference = run_chain(path, plan.programs[0].segments, {"image": inputs_for(plan, rows)[0]})
    for first in range(4):
        for last in range(first, 4):
            feeds = {spec.name: reference[spec.name] for spec in plan.cuts[first].tensors}
            made = programs.run(SegmentRange(0, first, last), feeds, programs.interrupt())
            assert len(made) == len(plan.cuts[last].tensors)
            for spec, array in zip(plan.cuts[last].tensors, made, strict=True):
                np.testing.assert_allclose(array, reference[spec.name], rtol=1e-5, atol=1e-6)


def test_all_sessions_of_the_process_share_one_arena_and_keep_weights_out_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    ort._share_arena.cache_clear()
    monkeypatch.setattr(onnxruntime, "create_and_register_allocator", lambda *of: made.append(of))
    sessions = [session for _ in range(2) for session in load(path)._sessions.values()]
    assert len(sessions) > 2
    for session in sessions:
        options = session.get_session_options()
        for entry in ("session.use_env_allocators", "session.use_device_allocator_for_initializers"):
            assert options.get_session_config_entry(entry) == "1"
    assert len(made) == 1
    ort._share_arena.cache_clear()


@pytest.mark.parametrize("fault", ["An allocator for this device has already been registered for sharing.", "no room"])
def test_an_arena_that_the_application_made_is_shared_and_what_keeps_one_from_being_made_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : {fault}")

    ort._share_arena.cache_clear()
    monkeypatch.setattr(onnxruntime, "create_and_register_allocator", refuse)
    if "already" in fault:
        assert load(path)._sessions
    else:
        with pytest.raises(UserError, match=r"onnxruntime \S+ makes no arena to share: no room$"):
            load(path)
    ort._share_arena.cache_clear()


def test_a_rung_gives_the_plans_outputs_and_other_answers(path: Path) -> None:
    programs = load(path)
    image = inputs_for(programs.plan, 2)[0]
    small = programs.run(SegmentRange(1, 0, 1), {"image": image}, programs.interrupt())
    whole = programs.run(SegmentRange(0, 0, 3), {"image": image}, programs.interrupt())
    assert [a.shape for a in small] == [a.shape for a in whole] == [(2, 5), (2,)]
    assert not np.allclose(small[0], whole[0], atol=1e-3)


def test_a_node_does_not_load_the_rungs(path: Path) -> None:
    programs = load(path, "cloud")
    with pytest.raises(ModelError, match="not loaded on this side"):
        programs.run(SegmentRange(1, 0, 1), {"image": inputs_for(programs.plan)[0]}, programs.interrupt())


def test_tensors_that_are_finished_early_are_passed_along(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, "passing", elements=4)
    programs = load_programs(load_bundle(path), CPU, "edge", 2)
    x = np.array([[1, 2, 3, 4]], np.float32)
    late, early, same = programs.run(SegmentRange(0, 0, 2), {"x": x}, programs.interrupt())
    assert (late == 2 - x).all()
    assert (early == 2 * x).all()
    assert (same == x).all()


def test_a_provider_that_this_runtime_lacks_is_named(path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'CUDAExecutionProvider' is not in .* which has .*CPUExecutionProvider"):
        load_programs(load_bundle(path), Execution(provider="CUDAExecutionProvider"), "edge", 1)


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_session_that_silently_runs_elsewhere_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with CUDA's own libraries missing: the provider is offered, and the session falls back to the CPU."""
    monkeypatch.setattr(ort._Runtime, "providers", lambda _: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(SettingsError, match="would run on 'CPUExecutionProvider'"):
        load_programs(load_bundle(path), Execution(provider="CUDAExecutionProvider"), "edge", 1)


@pytest.mark.parametrize(("opset", "ir_version", "word"), [(99, 8, "Opset 99"), (17, 99, "IR version: 99")])
def test_a_model_newer_than_the_runtime_is_refused_at_load(path: Path, opset: int, ir_version: int, word: str) -> None:
    model = onnx.load(path / "whole-1.onnx", load_external_data=False)
    model.opset_import[0].version = opset
    model.ir_version = ir_version
    rewrite(path, "whole-1.onnx", model)
    with pytest.raises(BundleError, match=rf"whole-1\.onnx: onnxruntime .* cannot load it .*{word}") as refused:
        load(path)
    assert "\n" not in str(refused.value)
    assert "onnxruntime_src" not in str(refused.value)


def test_a_segment_that_is_not_onnx_is_named(path: Path) -> None:
    (path / "whole-2.onnx").write_bytes(b"not a model at all")
    plan = load_plan(path)
    digest = hashlib.sha256(b"not a model at all").hexdigest()
    write_plan(path, replace(plan, digests=plan.digests | {"whole-2.onnx": digest}))
    write_manifest(path)
    with pytest.raises(BundleError, match=r"whole-2\.onnx: .* cannot load it"):
        load(path)


def test_a_segment_with_other_names_than_the_plan_says_is_named(path: Path) -> None:
    model = onnx.load(path / "whole-1.onnx", load_external_data=False)
    model.graph.output[1].name = model.graph.node[2].output[0] = "other"
    rewrite(path, "whole-1.onnx", model)
    with pytest.raises(BundleError, match=r"whole-1\.onnx: takes \['wide'\] and gives \['deep', 'other'\]"):
        load(path)


def test_tensors_that_come_out_otherwise_than_planned_are_named(path: Path) -> None:
    plan = load_plan(path)
    wrong = replace(
        plan.cuts[1], tensors=(TensorSpec("wide", "float32", (1, 6, 16, 17)),), codings=plan.cuts[0].codings[:1]
    )
    routes = tuple(r for r in plan.routes if r.coding == "raw")
    write_plan(path, replace(plan, cuts=(plan.cuts[0], wrong, *plan.cuts[2:]), routes=routes, profiles=()))
    write_manifest(path)
    with pytest.raises(BundleError, match=r"'wide' comes out as float32\(1, 6, 16, 16\) at 1 rows"):
        load(path)


def test_a_batch_size_that_is_baked_in_is_found_at_load(path: Path) -> None:
    model = onnx.load(path / "whole-2.onnx", load_external_data=False)
    flat = next(tensor for tensor in model.graph.initializer if tensor.name == "flat")
    flat.int64_data[0] = 1
    rewrite(path, "whole-2.onnx", model)
    with pytest.raises(BundleError, match=r"does not run at 3 rows.*whole-2"):
        load(path)


def test_golden_vectors_that_differ_name_the_program(path: Path) -> None:
    with np.load(path / "golden.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["out/1/logits"] = arrays["out/1/logits"] + np.float32(0.1)
    np.savez(path / "golden.npz", **arrays)
    write_manifest(path)
    with pytest.raises(
        BundleError, match=r"golden vectors differ: program 'whole', vector 1, output 'logits', by up to 0\.1"
    ):
        load(path)


def test_golden_integers_must_be_exact(path: Path) -> None:
    with np.load(path / "golden.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["out/0/best"] = arrays["out/0/best"] + 1
    np.savez(path / "golden.npz", **arrays)
    write_manifest(path)
    with pytest.raises(BundleError, match="output 'best', by up to 1"):
        load(path)


def test_a_run_that_was_stopped_ends_as_a_models_error(path: Path) -> None:
    programs = load(path)
    interrupt = programs.interrupt()
    interrupt.stop()
    with pytest.raises(ModelError, match="terminate"):
        programs.run(SegmentRange(0, 0, 3), {"image": inputs_for(programs.plan)[0]}, interrupt)


def test_wrong_feeds_end_as_a_models_error(path: Path) -> None:
    programs = load(path)
    with pytest.raises(ModelError, match="segment whole-0: Unexpected input data type"):
        programs.run(SegmentRange(0, 0, 3), {"image": np.zeros((1, 32, 32, 3), np.float32)}, programs.interrupt())


def test_nan_passes_through(tmp_path: Path) -> None:
    programs = load_programs(load_bundle(make_bundle(tmp_path, "identity", elements=3)), CPU, "edge", 1)
    x = np.array([[np.nan, np.inf, 1.0]], np.float32)
    (y,) = programs.run(SegmentRange(0, 0, 1), {"x": x}, programs.interrupt())
    assert y.tobytes() == x.tobytes()


def test_executors_import_without_the_runtime() -> None:
    code = "import sys, shared.executors.build; sys.exit('onnxruntime' in sys.modules or 'onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_device_without_the_whole_model_among_its_rungs_loads_only_what_lies_before_its_cuts(path: Path) -> None:
    plan = load_plan(path)
    write_plan(
        path,
        replace(plan, ladder=plan.ladder[1:], routes=tuple(route for route in plan.routes if route.cut <= 1)),
    )
    write_manifest(path)
    programs = load(path)
    image = {"image": inputs_for(plan)[0]}
    assert programs.run(SegmentRange(0, 0, 1), image, programs.interrupt())
    assert programs.run(SegmentRange(1, 0, 1), image, programs.interrupt())
    with pytest.raises(ModelError):
        programs.run(SegmentRange(0, 0, 3), image, programs.interrupt())


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_the_first_run_that_is_stopped_while_serving_reads_no_code_into_memory(path: Path) -> None:
    code = f"""
from pathlib import Path
from shared.bundle import load_bundle
from shared.errors import ModelError
from shared.executors.ort import load_programs
from shared.plan import SegmentRange
from shared.settings import Execution

def resident_kb() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Rss")).split()[1])

bundle = load_bundle({str(path)!r})
programs = load_programs(bundle, Execution(), "edge", 3)
feeds = {{spec.name: array for spec, array in zip(bundle.plan.inputs, bundle.golden()[0].inputs)}}
whole = SegmentRange(0, 0, 3)
programs.run(whole, feeds, programs.interrupt())
interrupt = programs.interrupt()
interrupt.stop()
before = resident_kb()
try:
    programs.run(whole, feeds, interrupt)
except ModelError:
    print(resident_kb() - before)
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(found.stdout) < 300
