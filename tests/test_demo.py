"""The demo on real processes, short and with a tiny model: its accounts, not its speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console
from tiny import make_bundle

from hil.course import Course, Plans
from hil.demo import Show, play
from hil.demo_board import DemoBoard
from hil.demo_settings import DeadlineGroup, DemoSettings, DeviceGroup, StreamGroup, TimeGroup
from hil.ledger import Entry
from hil.phases import Heat, Phase, demo_phases
from hil.planning import Planned
from hil.plant import Plant
from hil.references import references
from hil.report import Report
from hil.rig import Rig
from shared.bundle import load_bundle
from shared.request import Array

FRAMES = 20
SETTINGS = DemoSettings(
    stream=StreamGroup(frames=FRAMES, rate_hz=100.0, images=6, height=32, width=32),
    deadline=DeadlineGroup(choices_ms=(200.0,), trial_frames=20, hold_share=0.0, headroom=0.0),
    device=DeviceGroup(slowdown=1.0, rung_resolutions=(32,)),
    time=TimeGroup(budget_s=1.0),
)
IMAGES: tuple[Array, ...] = tuple(
    np.random.default_rng(seed).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8) for seed in range(6)
)


def bundles(folder: Path) -> tuple[Planned, Planned]:
    made = (make_bundle(folder, name="main"), make_bundle(folder, name="split", seed=1))
    main, split = (Planned(load_bundle(path), 0.0) for path in made)
    return main, split


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One whole demo, all phases."""
    folder = tmp_path_factory.mktemp("demo")
    main, split = bundles(folder)
    with (folder / "said.txt").open("w") as said:
        board = DemoBoard(Console(file=said), time.monotonic())
        return play(Show(SETTINGS, main, split, IMAGES, folder, time.monotonic(), 200.0, warm_s=1.0), board)


def test_every_phase_is_played_and_every_frame_has_one_right_outcome(report: Report) -> None:
    expected = demo_phases(FRAMES, SETTINGS.links.good, SETTINGS.links.slow, Heat(2.0, ("small",)))
    assert [result.name for result in report.phases] == [phase.name for phase in expected]
    for result in report.phases:
        assert result.frames == FRAMES
        assert result.adds_up
        assert (result.lost, result.duplicated, result.wrong) == (0, 0, 0), result.wrong_because
        assert len(result.timeline) == FRAMES


def test_the_faults_happened_and_nobody_answers_from_the_dead(report: Report) -> None:
    by_name = {result.name: result for result in report.phases}
    told = {name: [words for _, words in result.faults] for name, result in by_name.items()}
    assert told["stalled-link"] == ["link stalled", "link passes again"]
    assert told["one-node-killed"] == ["cloud-a killed"]
    assert told["both-killed"] == ["cloud-a killed", "cloud-b killed"]
    assert told["nodes-back"] == ["cloud-a started again", "cloud-b started again"]
    assert "cloud" not in by_name["both-killed"].by_source
    assert all("cloud" not in result.by_source for result in report.phases if result.kind == "control")


def test_the_report_tells_plans_deadline_and_verdict(report: Report) -> None:
    assert [plan.name for plan in report.plans] == ["main", "split"]
    assert (report.deadline_ms, report.split_deadline_ms) == (200.0, 200.0)
    assert report.deadline_why
    assert report.verdict.rules[0].holds
    assert report.verdict.rules[1].holds
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


Playing = Callable[[Plant | None], list[Entry]]


@pytest.fixture(scope="module")
def playing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    """Plays a phase of an agent without a cloud, with a fault planted or none, on one rig."""
    folder = tmp_path_factory.mktemp("planted")
    main, split = bundles(folder)
    known = references(main.bundle, IMAGES)
    paths = [main.bundle.path, split.bundle.path]
    phase = Phase("short", "control", "short", FRAMES, agent="control")
    with Rig(folder, paths, 1.0, SETTINGS.links.good, 2.0) as rig:
        rig.wait_ready()
        with Course(rig, SETTINGS, Plans("main", "split"), IMAGES, known, lambda *_: None) as course:
            course.attach()
            yield lambda plant: course.player.play(phase, "main", 500.0, plant).ledger.close(known)


@pytest.mark.parametrize(
    ("plant", "lost", "duplicated", "wrong"),
    [(None, 0, 0, 0), ("duplicated", 0, 1, 0), ("swapped", 0, 0, 2), ("dropped", 1, 0, 0)],
)
def test_a_planted_fault_shows_in_the_account(
    playing: Playing, plant: Plant | None, lost: int, duplicated: int, wrong: int
) -> None:
    entries = playing(plant)
    assert len(entries) == FRAMES
    assert sum(entry.kind == "lost" for entry in entries) == lost
    assert sum(entry.duplicates for entry in entries) == duplicated
    assert sum(bool(entry.why_wrong) for entry in entries) == wrong
