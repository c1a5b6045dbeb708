"""Scenarios as files: what is taken, what is refused and how, and what happens when."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from edge.cloud_way import BEST, DEVICE, name
from hil import small_plans
from hil.emulator.shape import Shape
from hil.scenarios.carried import cannot_carry
from hil.scenarios.check import ON_THE_WHOLE, ROUTES, check_scenario
from hil.scenarios.find import find, load_scenario, shipped, traces
from hil.scenarios.runs import Ways, adapted
from hil.scenarios.scenario import Fault, Fleet, LinkPart, Scenario, Stream, shortened
from hil.scenarios.timeline import Struck, asleep, frames, spans, steps, unreachable, words
from shared.errors import SettingsError, UserError

SECOND = 1_000_000_000
PLAIN = 'name = "x"\nabout = "a trial"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "x.toml"
    path.write_text(PLAIN + text, encoding="utf-8")
    return path


def scenario(*faults: Fault, seconds: float = 10.0, rate_hz: float = 30.0, every: int = 1) -> Scenario:
    stream = Stream(rate_hz=rate_hz, seconds=seconds, control_every=every)
    return Scenario(name="x", about="a trial", stream=stream, faults=faults)


@pytest.mark.parametrize("path", shipped().values(), ids=lambda path: path.stem)
def test_every_shipped_scenario_is_taken_and_long_enough(path: Path) -> None:
    one = load_scenario(path)
    assert one.name == path.stem
    assert 10 <= one.stream.seconds <= 60
    for arm in ("test", "control"):
        assert sum(frame.arm == arm for frame in frames(one)) >= 300
    for fault in one.faults:
        assert words(fault)
    for trace in traces(one).values():
        assert trace.duration_us >= one.stream.seconds * 1e6


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[stream]\nrate = 30", "stream.rate: unknown key; did you mean 'rate_hz'?"),
        ("[stream]\nrate_hz = 0.5", "stream.rate_hz: is 0.5; expected"),
        ('[fleet]\nroute = "1/raw"', "fleet.route: is '1/raw'; expected one of best, device, 0/raw"),
        ("[[links]]\nup = { loss = 1.5 }", "x.toml: links[0].up: loss is 1.5; expected 0 to 1"),
        ('[[faults]]\nat_s = 1.0\nkind = "explode"', "faults[0].kind: is 'explode'; expected one of 'c"),
        ('[[faults]]\nat_s = 1.0\nkind = "stop"\non = "node-a"', "faults[0].for_s: is 0.0; expected more than 0"),
        ('[[faults]]\nat_s = 90.0\nkind = "kill"\non = "edge"', "faults[0].at_s: is 90.0; expected less than 20"),
        (
            '[[faults]]\nat_s = 1.0\nkind = "kill"\non = "node-c"',
            "faults[0].on: is 'node-c'; expected one of edge, control",
        ),
        ('[[faults]]\nat_s = 1.0\nkind = "kill"\non = "device"', "faults[0].on: is 'device'"),
        ('[[faults]]\nat_s = 1.0\nkind = "cpu"\nfor_s = 1.0\non = "edge"', "faults[0].on: is 'edge'; expected nothing"),
        ('[[faults]]\nat_s = 1.0\nkind = "readdress"', "faults[0].link: is ''; expected one of air"),
        (
            '[[faults]]\nat_s = 1.0\nkind = "kill"\non = "edge"\nlink = "air"',
            "faults[0].link: is 'air'; expected nothing",
        ),
        ('[[faults]]\nat_s = 1.0\nkind = "meddle"\non = "node-a"\nfor_s = 1.0', "faults[0].what"),
        (
            '[[faults]]\nat_s = 1.0\nkind = "meddle"\non = "edge"\nfor_s = 1.0\nwhat = ["cut"]',
            "faults[0].what: is ['cut']; expected corrupt or truncate",
        ),
        (
            '[[faults]]\nat_s = 1.0\nkind = "kill"\non = "edge"\nfor_s = 2.0\nrepeat = 3\nevery_s = 1.0',
            "faults[0].every_s: is 1.0; expected more than for_s",
        ),
        (
            '[[links]]\nname = "air"\ntrace = "a.csv"\nmodel = "b.toml"',
            "links[0].model: is 'b.toml'; expected a trace or",
        ),
        ('[[links]]\nname = "air"\n[[links]]\nname = "air"', "links[0].name: is 'air'; expected each name once"),
        (
            '[[links]]\nname = "air"\ntrace = "a.csv"\n[[faults]]\nat_s = 1.0\nkind = "stall"\nfor_s = 1.0',
            "faults[0].link: is ''; expected a link of constant shape, which air is not",
        ),
        ("[stream]\nblock_s = 11.0", "stream.block_s: is 11.0; expected at most half of stream.seconds"),
        ("[stream]\nblock_s = 2.0\ncontrol_every = 2", "stream.control_every: is 2; expected 1 beside"),
        ('[model]\nroutes = ["rar"]', "model.routes: is 'rar'; expected one of raw"),
        ('[[links]]\nname = "air"\nup = { delay_ms = -1.0 }', "delay_ms is -1; expected 0 to 60000"),
        ('[[links]]\nname = "air"\nup = { delay = 1.0 }', "links[0].up.delay: unknown key; did you mean 'delay_ms'?"),
    ],
)
def test_what_is_wrong_is_refused_with_its_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError) as error:
        load_scenario(written(tmp_path, text))
    assert told in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "x.toml"))


def test_paths_of_links_are_relative_to_the_scenarios_file(tmp_path: Path) -> None:
    one = load_scenario(written(tmp_path, '[[links]]\nname = "air"\ntrace = "drive.csv"'))
    assert one.links[0].trace == str(tmp_path.resolve() / "drive.csv")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", ".x", "-x", "x\\ny"])
def test_a_scenarios_name_names_a_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f'name = "{name}"\nabout = "a trial"\n', encoding="utf-8")
    with pytest.raises(SettingsError, match=r"x.toml: name: is .* expected"):
        load_scenario(path)


def test_ways_are_called_as_an_agent_calls_them() -> None:
    assert {word: name(route) for word, route in small_plans.ROUTES.items()} == ROUTES
    assert ON_THE_WHOLE == (BEST, DEVICE)


def test_a_folder_of_a_scenarios_name_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good_link").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find("good_link") == shipped()["good_link"]


@pytest.mark.parametrize(
    "short", [scenario(seconds=0.01), scenario(Fault(at_s=0.0, kind="suspend", on="device", for_s=20.0))]
)
def test_a_run_without_frames_is_refused(short: Scenario) -> None:
    with pytest.raises(SettingsError, match="hold no frame of each arm; expected"):
        adapted(short, Ways(Path()))


def test_a_report_says_which_trace_was_played() -> None:
    one = adapted(scenario(), Ways(Path(), trace=Path("drive.csv")))
    assert one.about == "a trial Here the link air plays drive.csv instead."
    assert one.links[0].trace == str(Path("drive.csv").resolve())


def test_a_name_that_is_none_is_told_with_those_that_are() -> None:
    assert find("node_crash").stem == "node_crash"
    with pytest.raises(UserError, match=r"'nothing' is no scenario; expected a file or one of .*good_edge_site"):
        find("nothing")


def test_frames_of_the_control_lie_halfway_between_those_that_are_judged() -> None:
    found = frames(scenario(rate_hz=10.0, seconds=1.0))
    assert [frame.arm for frame in found] == ["test", "control"] * 10
    gaps = {second.at_ns - first.at_ns for first, second in pairwise(found)}
    assert gaps == {50_000_000}
    assert sum(frame.arm == "control" for frame in frames(scenario(rate_hz=10.0, seconds=1.0, every=3))) == 4


def test_arms_take_turns_where_the_scenario_says_so() -> None:
    one = Scenario(name="x", about="y", stream=Stream(rate_hz=10.0, seconds=4.0, block_s=1.0))
    found = frames(one)
    assert [frame.arm for frame in found] == (["test"] * 10 + ["control"] * 10) * 2
    assert {second.at_ns - first.at_ns for first, second in pairwise(found)} == {100_000_000}


def test_a_suspended_device_asks_nothing() -> None:
    one = scenario(Fault(at_s=2.0, kind="suspend", on="device", for_s=1.5))
    assert asleep(one) == [(2 * SECOND, 3_500_000_000)]
    assert not [frame for frame in frames(one) if 2.0 <= frame.at_ns / 1e9 < 3.5]
    assert len(frames(one)) == 600 - 90
    assert asleep(scenario(Fault(at_s=2.0, kind="suspend", on="node-a", for_s=1.5))) == []


def test_a_fault_that_is_repeated_begins_and_ends_each_time() -> None:
    one = scenario(Fault(at_s=1.0, kind="stop", on="node-a", for_s=0.5, repeat=3, every_s=2.0))
    assert [(step.at_ns / 1e9, step.turn, step.begins) for step in steps(one)] == [
        (1.0, 0, True), (1.5, 0, False), (3.0, 1, True), (3.5, 1, False), (5.0, 2, True), (5.5, 2, False),
    ]  # fmt: skip
    assert [(span.begin_ns / 1e9, span.end_ns / 1e9) for span in spans(one)] == [(1.0, 1.5), (3.0, 3.5), (5.0, 5.5)]


def test_what_ends_at_a_moment_ends_before_what_begins_then() -> None:
    one = scenario(Fault(at_s=2.0, kind="kill", on="node-b"), Fault(at_s=1.0, kind="stop", on="node-a", for_s=1.0))
    assert [(step.fault, step.begins) for step in steps(one)] == [(1, True), (1, False), (0, True)]
    assert spans(one)[1].end_ns == 10 * SECOND, "a kill without an end lasts to the end of the run"


def test_no_node_is_there_only_while_all_are_struck() -> None:
    one = scenario(
        Fault(at_s=1.0, kind="kill", on="node-a", for_s=3.0),
        Fault(at_s=2.0, kind="stop", on="node-b", for_s=3.0),
        Fault(at_s=2.5, kind="heat", on="node-b", for_s=3.0),
    )
    struck = [
        Struck(0, 1000.0, 4000.0, ("node-a",)),
        Struck(1, 2000.0, 5000.0, ("node-b",)),
        Struck(2, 2500.0, 5500.0, ("node-b",)),
    ]
    assert unreachable(one, struck) == [(2 * SECOND, 4 * SECOND)]
    assert unreachable(one, struck[:1]) == []
    assert unreachable(one, [Struck(0, 1000.0, 4000.0, ("edge",))]) == [(SECOND, 4 * SECOND)], "nor without the agent"


def test_a_scenario_is_shortened_with_its_faults() -> None:
    short = shortened(scenario(Fault(at_s=4.0, kind="stop", on="node-a", for_s=2.0), seconds=20.0), 5.0)
    assert (short.faults[0].at_s, short.faults[0].for_s, short.stream.seconds) == (1.0, 0.5, 5.0)
    check_scenario(short)


def test_what_the_proxy_cannot_carry_is_named() -> None:
    lossy = LinkPart(up=Shape(loss=0.1))
    assert not cannot_carry(scenario(Fault(at_s=1.0, kind="stall", for_s=1.0)))
    assert cannot_carry(scenario(Fault(at_s=1.0, kind="dark", for_s=1.0))) == "a fault 'dark'"
    assert cannot_carry(Scenario(name="x", about="y", links=(lossy,))) == "loss and reordering"
    assert cannot_carry(Scenario(name="x", about="y", links=(LinkPart(), LinkPart(name="b")))) == "two links"


def test_nodes_and_the_vehicles_processes_have_names() -> None:
    one = Scenario(name="x", about="y", fleet=Fleet(nodes=3, standby=True))
    assert one.nodes == ("node-a", "node-b", "node-c")
    assert one.vehicle == ("edge", "standby", "control")
