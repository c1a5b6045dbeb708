"""From a model to a bundle, end to end, on a network small enough for seconds."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from typer.testing import CliRunner

from partitioner.build import Made, make, make_all, make_plan
from partitioner.costs.cost import predict
from partitioner.explanations.explanation import explain
from partitioner.options import LinkGuess, PlanOptions
from partitioner.records.file import read_record
from partitioner.reports.page import render
from shared.bundle import load_bundle
from shared.codecs import frame_bounds
from shared.errors import ModelError, UserError
from shared.plan import GOLDEN_FILE, REPORT_FILE, contract_digest

SIDE = 64


def write_model(path: Path, fill: float | None = None) -> Path:
    """Three convolutions with seeded random weights, mean over the picture, five classes. `fill` makes them constant."""
    generator = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.sqrt(2.0 / np.prod(shape[1:]))
        values = np.full(shape, fill) if fill is not None else generator.standard_normal(shape) * scale
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c3"], ["r3"]),
        helper.make_node("GlobalAveragePool", ["r3"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w4"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 5])],
        [weight("w1", 8, 3, 3, 3), weight("w2", 16, 8, 3, 3), weight("w3", 32, 16, 3, 3), weight("w4", 32, 5)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def write_images(folder: Path, count: int = 6) -> Path:
    folder.mkdir()
    generator = np.random.default_rng(2)
    for index in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        coarse.resize((96, 80), Image.Resampling.BICUBIC).save(folder / f"{index}.png")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    write_model(folder / "small.onnx")
    write_images(folder / "images")
    return folder


def options(place: Path, name: str, **changes: object) -> PlanOptions:
    settings: dict[str, object] = {
        "shapes": (f"1,3,{SIDE},{SIDE}",),
        "preprocess": "image:mean=128,std=64",
        "calibration": place / "images",
        "metric": "relative",
        "cadence_hz": 1000.0,
        "quick": True,
    }
    return PlanOptions(place / "small.onnx", place / name, **{**settings, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def slow_device(place: Path) -> Made:
    """A device so slow that only the cloud is on time."""
    return make(options(place, "slow.plan", edge_slowdown=1000.0, link=LinkGuess(1000.0, 0.1)))


@pytest.fixture(scope="module")
def forced(place: Path) -> Made:
    return make(options(place, "forced.plan", force_cuts=("r1", "r2")))


def test_a_slow_device_with_a_good_link_sends_its_input(slow_device: Made) -> None:
    assert slow_device.weighing.best is not None
    assert slow_device.weighing.best.kind == "input"
    bundle = load_bundle(slow_device.path)
    assert bundle.plan == slow_device.plan
    assert bundle.plan.routes[0].cut == 0
    assert "everything in the cloud" in bundle.plan.chosen


def test_segments_are_made_only_where_a_route_cuts(slow_device: Made) -> None:
    used = {route.cut for route in slow_device.plan.routes} - {0}
    assert len(slow_device.plan.programs[0].segments) == len(used) + 1


def test_a_fast_device_needs_no_cloud(place: Path) -> None:
    made = make(options(place, "fast.plan", deadline_ns=50_000_000))
    assert made.weighing.best is not None
    assert made.weighing.best.kind == "device"
    assert made.plan.routes == ()
    assert len(made.plan.cuts) == 2


def test_the_ladder_begins_with_the_whole_model(slow_device: Made) -> None:
    ladder = slow_device.plan.ladder
    assert (ladder[0].name, ladder[0].program, ladder[0].agreement) == ("whole", 0, 1.0)
    assert all(slow_device.plan.programs[rung.program].name == rung.name for rung in ladder)


def test_forced_cuts_are_the_only_routes_in_every_coding_that_is_good_enough(forced: Made) -> None:
    plan = forced.plan
    assert [cut.name for cut in plan.cuts] == ["input", "r1", "r2", "output"]
    coded = {index: forced.weighing.loaded[plan.cuts[index].name].coded for index in (1, 2)}
    for offered in coded.values():
        assert [one.coding.name for one in offered] == ["raw", "fp16", "int8", "int6", "int4"]
        assert all(one.agreement > 0.9 for one in offered[:3])
        assert [one.agreement for one in offered] == sorted((one.agreement for one in offered), reverse=True)
    assert {(route.cut, route.coding) for route in plan.routes} == {
        (index, one.coding.name) for index, offered in coded.items() for one in offered if one.agreement >= 0.5
    }
    assert {(1, "raw"), (1, "int8"), (2, "raw"), (2, "int8")} <= {(route.cut, route.coding) for route in plan.routes}
    assert "forced to r1, r2" in plan.chosen
    assert len(plan.programs[0].segments) == 3


def test_an_image_is_offered_without_loss_and_as_a_jpeg_of_half_and_of_full_colour(slow_device: Made) -> None:
    offered = {one.coding.name: one for one in slow_device.weighing.loaded["input"].coded}
    assert list(offered) == ["raw", "qoi", "jpeg90", "jpeg90-444"]
    assert offered["qoi"].agreement == 1.0
    assert offered["jpeg90"].bytes_up < offered["jpeg90-444"].bytes_up < offered["raw"].bytes_up
    kept = {coding.name for coding in slow_device.plan.cuts[0].codings}
    assert kept == {"raw", *(route.coding for route in slow_device.plan.routes if route.cut == 0)}


def test_raw_routes_agree_fully_and_bytes_count_headers(forced: Made) -> None:
    sizes = {(route.cut, route.coding): route.bytes_up for route in forced.plan.routes}
    for route in forced.plan.routes:
        cut = forced.plan.cuts[route.cut]
        coding = cut.coding(route.coding)
        assert coding is not None
        low, high = frame_bounds(coding, cut.tensors[0], 1)
        if route.coding in {"raw", "fp16", "int8"}:
            share = {"raw": 1, "fp16": 2, "int8": 4}[route.coding]
            assert low == high == cut.tensors[0].nbytes() // share
        else:
            assert route.bytes_up < sizes[route.cut, "int8"]
        assert low < route.bytes_up < high + 1000
        assert 20 < route.bytes_down < 1000
        if route.coding == "raw":
            assert route.agreement == 1.0


def test_profiles_hold_every_launch_and_codec(forced: Made) -> None:
    edge, cloud = forced.plan.profile("edge"), forced.plan.profile("cloud")
    assert edge is not None
    assert cloud is not None
    for profile in (edge, cloud):
        have = {(r.program, r.first, r.last, r.batch) for r in profile.ranges}
        for cut in (1, 2):
            for batch in (1, 2, 4):
                assert {(0, 0, cut, batch), (0, cut, 3, batch), (0, 0, 3, batch)} <= have
        assert {(c.cut, c.coding) for c in profile.codecs} >= {(1, "int8"), (2, "raw"), (3, "raw")}


def test_the_edge_is_the_measured_machine_slowed(place: Path, slow_device: Made) -> None:
    edge, cloud = slow_device.plan.profile("edge"), slow_device.plan.profile("cloud")
    assert edge is not None
    assert cloud is not None
    assert (edge.slowdown, cloud.slowdown) == (1000.0, 1.0)
    for slowed, measured in zip(edge.ranges, cloud.ranges, strict=True):
        assert slowed.p50_us == pytest.approx(measured.p50_us * 1000, rel=0.01)


def test_golden_vectors_are_the_whole_models_answers(forced: Made) -> None:
    golden = load_bundle(forced.path).golden()
    assert len(golden) >= 2
    assert all(one.inputs[0].shape == (1, SIDE, SIDE, 3) and one.outputs[0].shape == (1, 5) for one in golden)
    assert len({one.outputs[0].tobytes() for one in golden}) == len(golden)
    assert (forced.path / GOLDEN_FILE).exists()


def test_golden_vectors_are_of_rows_in_which_something_is_found(tmp_path: Path) -> None:
    """Of 32 rows, six have a box that counts, and three of those are held out: they must be among the few."""
    boxes = np.tile(np.array([0.1, 0.1, 0.5, 0.5], np.float32), (1, 1, 1))
    graph = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["scores"]), helper.make_node("Add", ["z", "b"], ["boxes"])],
        "found",
        [
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 1]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 1, 4]),
        ],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1]),
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 1, 4]),
        ],
        [numpy_helper.from_array(boxes, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "found.onnx"))
    scores = np.arange(32, dtype=np.float32).reshape(32, 1) / 100  # no two alike: what is given twice counts once
    scores[26:] += 0.5
    np.savez(tmp_path / "rows.npz", s=scores, z=np.zeros((32, 1, 4), np.float32))
    path = make_plan(
        PlanOptions(
            tmp_path / "found.onnx",
            tmp_path / "found.plan",
            calibration=tmp_path / "rows.npz",
            cadence_hz=1000.0,
            quick=True,
        )
    )
    assert sum(float(one.outputs[0].max()) > 0.5 for one in load_bundle(path).golden()) == 3


def test_a_model_with_a_scalar_input_is_planned(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "rate"], ["y"])],
        "scaled",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4]),
            helper.make_tensor_value_info("rate", TensorProto.FLOAT, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "scaled.onnx"))
    path = make_plan(PlanOptions(tmp_path / "scaled.onnx", tmp_path / "scaled.plan", cadence_hz=1000.0, quick=True))
    bundle = load_bundle(path)
    assert [spec.shape for spec in bundle.plan.inputs] == [(1, 4), ()]
    assert not bundle.plan.batchable


def test_the_report_stands_alone_and_tells_all(forced: Made) -> None:
    text = (forced.path / REPORT_FILE).read_text()
    for words in ("r1 as int8", "input as jpeg90", "device: whole", contract_digest(forced.plan), "onnxruntime"):
        assert words in text
    for outside in ("<script", "http://", "https://", "src=", "<link"):
        assert outside not in text


def test_the_record_explains_the_plan_as_it_was_chosen(slow_device: Made, forced: Made) -> None:
    for made in (slow_device, forced):
        _, record = read_record(made.path)
        explanation = explain(record, record.asked)
        best, winner = made.weighing.best, explanation.winner
        assert best is not None
        assert winner is not None
        assert winner.label == best.label
        assert winner.p99_us == pytest.approx(predict(best, record.asked.link).total.p99_us)
        assert len(record.ways) == len(made.weighing.candidates)
        assert [record.ways[place].cut for place in record.routes] == [route.cut for route in made.weighing.routes]
        assert (made.path / REPORT_FILE).read_text() == render(record, made.plan)
    assert read_record(forced.path)[1].forced == ("r1", "r2")


def test_a_second_plan_takes_the_place_of_the_first(place: Path) -> None:
    first = make(options(place, "again.plan"))
    second = make_plan(options(place, "again.plan", force_cuts=("input",)))
    assert second == first.path
    assert load_bundle(second).plan.routes != first.plan.routes
    assert [p.name for p in place.iterdir() if p.name.startswith(".")] == []


def test_plans_that_differ_in_their_cuts_share_one_study(place: Path) -> None:
    told: list[str] = []
    first = options(place, "first.plan", force_cuts=("r1",))
    both = make_all((first, options(place, "second.plan", force_cuts=("r1", "r2"))), told.append)
    assert [made.path for made in both] == [place / "first.plan", place / "second.plan"]
    assert [{plan.cuts[route.cut].name for route in plan.routes} for plan in (made.plan for made in both)] == [
        {"r1"},
        {"r1", "r2"},
    ]
    assert [load_bundle(made.path).plan.name for made in both] == ["first", "second"]
    once = ("normalising the model", "making and judging", "estimating", "timing the whole", "cutting and timing at r1")
    for words in once:
        assert sum(words in line for line in told) == 1, words
    assert sum("proving that head and tail" in line for line in told) == 2
    assert [made.weighing.loaded.keys() for made in both] == [{"input", "r1"}, {"input", "r1", "r2"}]


def test_a_plan_of_the_same_files_takes_over_the_profile_and_no_other_does(place: Path) -> None:
    told: list[str] = []
    wanted = [("a.plan", ("input", "r1")), ("b.plan", ("r1",)), ("c.plan", ("r2",))]
    a, b, c = make_all([options(place, name, force_cuts=cuts) for name, cuts in wanted], told.append)
    assert sum("timing the segments" in line for line in told) == 2
    for one, other in zip(a.plan.profiles, b.plan.profiles, strict=True):
        assert one.ranges == other.ranges
        assert {(1, "raw"), (1, "int8")} <= {(codec.cut, codec.coding) for codec in other.codecs}
    for made in (b, c):
        wanted_codecs = {(index, k.name) for index, cut in enumerate(made.plan.cuts) for k in cut.codings}
        assert {(codec.cut, codec.coding) for codec in made.plan.profiles[0].codecs} == wanted_codecs
    assert load_bundle(b.path).plan.profiles == b.plan.profiles


def test_plans_that_differ_in_more_are_not_made_from_one_study(place: Path) -> None:
    with pytest.raises(ValueError, match="one study"):
        make_all((options(place, "one.plan"), options(place, "two.plan", seed=9)))
    with pytest.raises(ModelError, match="r2"):
        make_all((options(place, "one.plan"), options(place, "two.plan", force_cuts=("r22",))))
    assert not (place / "one.plan").exists()


def test_without_data_nothing_lossy_is_planned(place: Path) -> None:
    made = make(options(place, "blind.plan", calibration=None, force_cuts=("input", "r1")))
    assert {route.coding for route in made.plan.routes} == {"raw"}
    assert [rung.name for rung in made.plan.ladder] == ["whole"]
    assert "synthetic" in (made.path / REPORT_FILE).read_text()


def test_the_least_agreement_holds_for_routes_and_rungs(place: Path) -> None:
    made = make(options(place, "strict.plan", metric="exact", min_agreement=1.0, force_cuts=("r1", "input")))
    assert {(route.cut, route.coding) for route in made.plan.routes} == {(0, "raw"), (0, "qoi"), (1, "raw")}
    assert [rung.name for rung in made.plan.ladder] == ["whole"]


def test_an_unknown_cut_names_the_near_ones(place: Path) -> None:
    with pytest.raises(ModelError, match="r2"):
        make_plan(options(place, "bad.plan", force_cuts=("r22",)))
    assert not (place / "bad.plan").exists()


def test_a_file_that_is_no_model_is_refused(place: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is not ONNX")
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        make_plan(PlanOptions(broken, tmp_path / "b.plan"))
    with pytest.raises(UserError, match="no such file"):
        make_plan(PlanOptions(tmp_path / "missing.onnx", tmp_path / "b.plan"))


def test_an_unknown_metric_is_refused_before_any_timing(place: Path) -> None:
    with pytest.raises(UserError, match="relative, segmentation"):
        make_plan(options(place, "bad.plan", metric="accuracy"))


def test_something_else_in_the_way_is_kept_and_refused_before_any_work(place: Path) -> None:
    other = place / "other.plan"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    (place / "link.plan").symlink_to(place / "nowhere")
    told: list[str] = []
    for name in ("other.plan", "link.plan"):
        with pytest.raises(UserError, match="in the way"):
            make_plan(options(place, name), told.append)
    assert told == []
    assert (other / "letter.txt").read_text() == "mine"


def test_the_command_ends_with_the_table_and_the_sentence(place: Path) -> None:
    import typer

    from partitioner.plan_cli import main

    app = typer.Typer()
    app.command()(main)
    arguments = ["--shape", f"1,3,{SIDE},{SIDE}", "--preprocess", "image", "--calibration", str(place / "images")]
    arguments += ["--metric", "relative", "--cadence", "1000", "--quick", "--force-cut", "r2", "--deadline", "20ms"]
    result = CliRunner().invoke(app, [str(place / "small.onnx"), "-o", str(place / "cli.plan"), *arguments])
    assert result.exit_code == 0, result.output
    assert "r2 as int8" in result.output
    assert "forced to r2" in result.output
    assert load_bundle(place / "cli.plan").plan.name == "cli"


def test_names_that_look_like_markup_are_shown_as_they_are(place: Path) -> None:
    import typer

    from partitioner.plan_cli import main

    app = typer.Typer()
    app.command()(main)
    out = place / "a[" / "x]b.plan"
    arguments = ["--shape", f"1,3,{SIDE},{SIDE}", "--cadence", "1000", "--quick", "-o", str(out)]
    result = CliRunner().invoke(app, [str(place / "small.onnx"), *arguments], env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    assert "a[/x]b.plan: " in result.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_plan_that_is_ended_in_the_middle_leaves_nothing(place: Path, tmp_path: Path, number: signal.Signals) -> None:
    # Whoever runs the tests in the background may have had interrupts ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; from shared.cli import main; main()", "plan", str(place / "small.onnx")]
    arguments = ["--shape", f"1,3,{SIDE},{SIDE}", "--cadence", "1", "-o", str(tmp_path / "ended.plan")]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("timing the whole model" in line for line in process.stdout)
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
