"""Pins, the device's memory and the other demands: what a plan obeys, and what is said where nothing does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_places import groups_of, two_branches
from test_plan import SIDE, options, write_images, write_model

from partitioner.build import make, make_plan
from partitioner.demands.constraints import Figures, binding, broken, refuse
from partitioner.demands.pins import find_pins
from partitioner.explanations.explanation import explain
from partitioner.graph.groups import Groups
from partitioner.graph.recipe import Recipe, build
from partitioner.options import LinkGuess, PlanOptions, parse_bytes
from partitioner.records.file import read_record
from shared.cli import run
from shared.commands import Command
from shared.errors import Unsatisfiable, UserError
from shared.slots import segments_of

FAST = LinkGuess(1000.0, 0.1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demands")
    write_model(folder / "small.onnx")
    write_images(folder / "images")
    return folder


def asked(place: Path, name: str, **changes: object) -> PlanOptions:
    return options(place, name, **{"edge_slowdown": 1000.0, "link": FAST, **changes})


def impossible(place: Path, **changes: object) -> str:
    """What is said, and that nothing was written."""
    before = sorted(place.iterdir())
    with pytest.raises(Unsatisfiable) as caught:
        make_plan(asked(place, "never.plan", **changes))
    assert sorted(place.iterdir()) == before
    return str(caught.value)


# Pins


def group_with(groups: Groups, name: str) -> int:
    nodes = groups.finder.model.proto.graph.node
    return next(g for g, members in enumerate(groups.nodes) for n in members if name in nodes[n].output)


def test_a_pin_names_a_tensor_an_operator_or_several_by_a_pattern() -> None:
    groups = groups_of(two_branches())
    left, right, last = (group_with(groups, name) for name in ("left", "right", "y"))
    pins = find_pins(["left=edge", "y=cloud"], groups, private_input=False)
    assert pins.edge == {left}
    assert pins.cloud == {last}
    both = find_pins(["*t=edge"], groups, private_input=True)
    assert both.edge == {left, right}
    assert both.private_input


def test_an_unknown_name_is_an_error_with_near_ones() -> None:
    groups = groups_of(two_branches())
    with pytest.raises(UserError, match=r"pin 'lefd': no operator .* near are left"):
        find_pins(["lefd=edge"], groups, private_input=False)
    with pytest.raises(UserError, match=r"an input is made by no operator; --private-input"):
        find_pins(["x=edge"], groups, private_input=False)


def test_pins_against_each_other_and_against_a_private_input_are_named() -> None:
    groups = groups_of(two_branches())
    with pytest.raises(Unsatisfiable, match=r"--pin y=edge needs what --pin left=cloud keeps in the cloud"):
        find_pins(["y=edge", "left=cloud"], groups, private_input=False)
    with pytest.raises(Unsatisfiable, match=r"--private-input and --pin left=cloud leave no cut"):
        find_pins(["left=cloud"], groups, private_input=True)


def test_what_is_pinned_is_on_its_side_of_every_route_and_the_device_insures_all_the_same(place: Path) -> None:
    made = make(asked(place, "pinned.plan", pins=("r1=edge", "r3=cloud"), edge_slowdown=1.0, deadline_ns=10**9))
    ways = made.weighing
    assert ways.best is not None
    assert ways.best.kind == "split"  # the device alone would be as good, and is insurance only
    assert {c.kind for c in ways.candidates} == {"device", "split"}
    groups = made.weighing.loaded
    for route in ways.routes:
        graph = build(Recipe(place / "small.onnx", (f"1,3,{SIDE},{SIDE}",), "image:mean=128,std=64")).proto.graph
        before = {name for node in groups[route.cut].cut.nodes for name in graph.node[node].output}
        assert "r1" in before
        assert "r3" not in before
    assert made.plan.ladder[0].name == "whole"
    _, record = read_record(made.path)
    winner = explain(record, record.asked).winner
    assert winner is not None
    assert winner.kind == "split"
    assert any("insure every request" in note for note in record.notes)


# The device's memory


def sizes(place: Path) -> tuple[int, int]:
    """Bytes of weights of the whole model, and of what lies before r1: 8 x 3 x 3 x 3 floats."""
    whole = 4 * (8 * 27 + 16 * 72 + 32 * 144 + 32 * 5)
    return whole, 4 * 8 * 27


def test_a_device_that_holds_the_whole_model_is_as_without_a_limit(place: Path) -> None:
    made = make(asked(place, "roomy.plan", device_memory=1 << 20))
    assert made.plan.ladder[0].name == "whole"
    assert made.plan.routes


def test_a_device_too_small_for_the_whole_model_is_insured_by_a_smaller_one_and_loads_heads_only(
    place: Path, tmp_path: Path
) -> None:
    small = write_small(tmp_path / "tiny.onnx")
    whole, head = sizes(place)
    made = make(
        asked(
            place,
            "narrow.plan",
            device_memory=whole - 1,
            rungs=(f"model:{small}",),
            lower_rungs=True,
            rung_resolutions=(),
            min_agreement=0.0,
            private_input=True,
        )
    )
    names = [rung.name for rung in made.plan.ladder]
    assert names
    assert "whole" not in names
    plan = made.plan
    assert segments_of(plan, "edge", 0) == max((route.cut for route in plan.routes), default=0) < len(plan.cuts) - 1
    assert {route.cut for route in plan.routes} != {0}
    assert head < whole
    assert any("no least share" in note for note in made.weighing.notes)


def write_small(path: Path) -> Path:
    """Another model with the same inputs and outputs, and few weights."""
    weight = numpy_helper.from_array(np.full((3, 5), 0.1, np.float32), "w")
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 5])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def test_a_device_too_small_for_any_rung_is_told_how_much_would_do(place: Path) -> None:
    said = impossible(place, device_memory=100, lower_rungs=False)
    assert said.startswith("--device-memory: no rung that answers on the device fits into 100 bytes")
    need = int(re.search(r"the nearest that would do is (\d+)B", said)[1])  # type: ignore[index]
    impossible(place, device_memory=need - 1, lower_rungs=False)
    assert make(asked(place, "enough.plan", device_memory=need, lower_rungs=False)).plan.ladder[0].name == "whole"


# Nothing does


def test_a_pin_with_too_few_bytes_names_the_rate_that_would_do(place: Path) -> None:
    narrow = {"pins": ("r3=cloud",), "calibration": None, "private_input": True}
    said = impossible(place, **narrow, max_bytes_per_second=300_000)
    assert said.startswith("--max-bytes-per-second 300000:")
    need = int(re.search(r"nearest that would do is (\d+)", said)[1])  # type: ignore[index]
    assert "max-bytes" in impossible(place, **narrow, max_bytes_per_second=need - 1001)
    assert make(asked(place, "wide.plan", **narrow, max_bytes_per_second=need)).plan.routes


def test_a_pin_with_too_large_a_share_names_the_share_that_would_do(place: Path) -> None:
    early = {"pins": ("r2=cloud",), "calibration": None}
    said = impossible(place, **early, least_share=0.9)
    assert said.startswith("--least-share 0.9:")
    nearest = float(re.search(r"nearest that would do is ([\d.]+)", said)[1])  # type: ignore[index]
    assert 0.0 < nearest < 0.9
    assert make(asked(place, "earlier.plan", **early, least_share=nearest)).plan.routes


def test_a_forced_cut_that_agrees_or_weighs_too_much_is_named(place: Path) -> None:
    said = impossible(place, force_cuts=("r1",), max_bytes_per_second=1000 * 300)
    assert said.startswith("--max-bytes-per-second 300000: a cut that is forced")
    assert "nearest that would do is" in said
    assert impossible(place, force_cuts=("r1",), pins=("r2=edge",)).startswith("--pin r2=edge: a cut that is forced")


BASE = Figures(sends_input=False, pins_kept=True, share=0.5, bytes_up=1000, memory=0, agreement=1.0)


def figures(**changes: object) -> Figures:
    return dataclasses.replace(BASE, **changes)  # type: ignore[arg-type]


def demands(**changes: object) -> PlanOptions:
    fields: dict[str, object] = {"cadence_hz": 10.0, "force_cuts": ("c",), **changes}
    return PlanOptions(Path("m.onnx"), Path("m.plan"), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ways", "wanted", "said"),
    [
        ([figures(bytes_up=2000)], {"max_bytes_per_second": 10_000}, r"--max-bytes-per-second 10000: .* is 20001"),
        ([figures(share=0.3), figures(share=0.4)], {"least_share": 0.5}, r"--least-share 0.5: .* is 0.4"),
        ([figures(agreement=0.8123)], {"min_agreement": 0.9}, r"--min-agreement 0.9: .* is 0.812"),
        ([figures(memory=300)], {"device_memory": 200}, r"--device-memory of 200 bytes: .* is 300B"),
        ([figures(sends_input=True)], {"private_input": True}, r"--private-input: "),
        ([figures(pins_kept=False)], {"pins": ("a=edge",)}, r"--pin a=edge: "),
        (
            [figures(share=0.1, bytes_up=9000)],
            {"least_share": 0.5, "max_bytes_per_second": 10_000},
            r"no value of it alone",
        ),
    ],
)
def test_the_demand_that_binds_is_named_with_the_nearest_value(
    ways: list[Figures], wanted: dict[str, object], said: str
) -> None:
    asked = demands(**wanted)
    assert re.match(said if said.startswith("--") else f".*{said}", str(refuse(binding(ways, asked), asked)))


def test_a_value_that_is_told_as_the_nearest_is_obeyed() -> None:
    way = figures(bytes_up=1234)
    told = str(refuse(binding([way], demands(max_bytes_per_second=100)), demands(max_bytes_per_second=100)))
    need = int(re.search(r"is (\d+)$", told)[1])  # type: ignore[index]
    assert broken(way, demands(max_bytes_per_second=need)) == ()
    assert broken(way, demands(max_bytes_per_second=need - 20)) == ("bytes",)


def test_the_command_ends_with_status_four_and_one_line(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    verb = Command("plan", "Decide.", "partitioner.plan_cli:main")
    arguments = [str(place / "small.onnx"), "--shape", f"1,3,{SIDE},{SIDE}", "--cadence", "1000", "--quick"]
    for extra, words in (
        (["--device-memory", "100B"], "--device-memory"),
        (["--pin", "r1=cloud", "--pin", "r3=edge"], "contradict"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(["plan", *arguments, *extra, "-o", str(place / "no.plan")], [verb])
        lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("headtail: ")]
        assert ended.value.code == 4
        assert len(lines) == 1
        assert words in lines[0]
        assert not (place / "no.plan").exists()


@pytest.mark.parametrize(("text", "nbytes"), [("64MiB", 64 << 20), ("1.5 kb", 1500), ("7B", 7), ("2GiB", 2 << 30)])
def test_a_size_is_read_with_its_unit(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["64", "MiB", "0B", "-1MiB", "1TB"])
def test_a_bad_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(UserError, match="size"):
        parse_bytes(text)
