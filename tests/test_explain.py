"""Who wins under which conditions, and exactly where that changes."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from records import ASKED, SEVERAL, away, device, random_conditions, random_ways, record
from tiny import make_bundle
from typer.testing import CliRunner

from hil.explain_cli import main
from partitioner.choose import contenders, rank
from partitioner.costs.conditions import AXES, LIMITS, Axis, Conditions, parse_span
from partitioner.costs.cost import Candidate, predict
from partitioner.crossings import Contest
from partitioner.explanations.explanation import explain
from partitioner.explanations.regions import Range, map_regions
from partitioner.options import LinkGuess
from partitioner.records.file import read_record
from partitioner.records.record import RECORD_FILE, Record, Way, decode_record, encode_record
from shared.bundle import write_manifest
from shared.errors import BundleError, UserError

CONTINUOUS: tuple[Axis, ...] = ("link.rate", "link.rtt", "edge-slowdown", "deadline")
WIDE: dict[Axis, tuple[float, float]] = {
    "link.rate": (0.5, 5000.0),
    "link.rtt": (0.0, 120.0),
    "edge-slowdown": (1.0, 80.0),
    "deadline": (0.3, 300.0),
    "min-agreement": (0.0, 1.0),
}


def brute(found: Record, conditions: Conditions) -> list[Candidate]:
    """The order of ways as the plan's own rule gives it, without any of what is to be tested."""
    entrants = contenders(found.candidates(conditions.edge_slowdown), conditions.min_agreement, found.forced)
    return rank(entrants, conditions.link, conditions.deadline_ns, conditions.min_agreement, found.objective)


def grid(axis: Axis, count: int) -> list[float]:
    low, high = WIDE[axis]
    if low == 0.0:
        return [high * step / count for step in range(count + 1)]
    return [low * (high / low) ** (step / count) for step in range(count + 1)]


def check_against_a_grid(found: Record, conditions: Conditions, axis: Axis) -> None:
    intervals = Contest.of(found).along(conditions, axis, *WIDE[axis])
    assert (intervals[0].low, intervals[-1].high) == WIDE[axis]
    for left, right in itertools.pairwise(intervals):
        assert left.high == right.low
        assert (left.winner, left.in_time) != (right.winner, right.in_time)
        step = 1e-6 * max(1.0, left.high)
        for part, value in ((left, left.high - step), (right, right.low + step)):
            if part.high - part.low > 3 * step:
                best = next(iter(brute(found, conditions.at(axis, value))), None)
                assert part.winner == (best.label if best else ""), value
    for value in grid(axis, 150):
        here = [part for part in intervals if part.low <= value <= part.high]
        if any(math.isclose(value, end, rel_tol=1e-6, abs_tol=1e-6) for part in here for end in (part.low, part.high)):
            continue
        there = conditions.at(axis, value)
        best = next(iter(brute(found, there)), None)
        assert here[0].winner == (best.label if best else "")
        if best:
            assert here[0].in_time == (predict(best, there.link).total.p99_us * 1000.0 <= there.deadline_ns)


@settings(max_examples=40, deadline=None)
@given(random_ways(), random_conditions, st.sampled_from(AXES))
def test_the_winner_of_every_interval_is_the_one_of_a_fine_grid(
    ways: tuple[Way, ...], conditions: Conditions, axis: Axis
) -> None:
    check_against_a_grid(record(ways), conditions, axis)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("deadline_ms", [12.0, 30.0, 45.0])
def test_the_same_holds_where_many_ways_win(axis: Axis, deadline_ms: float) -> None:
    conditions = ASKED.at("deadline", deadline_ms)
    check_against_a_grid(record(), conditions, axis)
    assert len({part.winner for part in Contest.of(record()).along(ASKED, "deadline", *WIDE["deadline"])}) >= 4


@settings(max_examples=40, deadline=None)
@given(random_ways(), random_conditions)
def test_a_change_is_where_the_winner_changes_and_none_is_nearer(ways: tuple[Way, ...], conditions: Conditions) -> None:
    found = record(ways)
    explanation = explain(found, conditions)
    order = brute(found, conditions)
    assert [standing.label for standing in explanation.standings] == [candidate.label for candidate in order]
    here = order[0].label if order else ""
    for change in explanation.changes:
        if change.winner == here or change.value == conditions.value(change.axis):
            continue
        start = conditions.value(change.axis)
        between = [start + (change.value - start) * step / 40 for step in range(40)]
        winners = {next(iter(brute(found, conditions.at(change.axis, value))), None) for value in between}
        assert {winner.label if winner else "" for winner in winners} == {here}
        beyond = change.value + math.copysign(max(1e-6, abs(change.value) * 1e-6), change.value - start)
        if change.axis == "min-agreement" or not LIMITS[change.axis][0] < beyond < LIMITS[change.axis][1]:
            continue
        after = Contest.of(found).along(conditions, change.axis, *sorted((change.value, beyond)))
        assert change.winner in {part.winner for part in after}


def test_two_ways_cross_where_the_algebra_says() -> None:
    """The device takes 20 ms at ratio 4; the input 2 + 7 ms, 6 ms round trip, 102,200 bytes: equal at 163.52 Mbit/s."""
    ways = (
        device("whole", 5.0, 1.0, 0.0),
        away("input", "jpeg90", 0.0, 6.8, 100_000, encode_ms=0.5, excess_ms=0.0),
    )
    conditions = Conditions(LinkGuess(300.0, 6.0), 4.0, 100_000_000, 0.5)
    (change,) = [c for c in explain(record(ways), conditions).changes if c.axis == "link.rate"]
    assert (change.direction, change.winner) == ("down", "device: whole")
    assert change.value == pytest.approx(102_200 * 8 / 5000.0)


def test_a_winner_that_comes_to_be_late_is_told_as_such() -> None:
    ways = (device("whole", 5.0, 1.0, 1.0),)
    conditions = Conditions(LinkGuess(300.0, 6.0), 4.0, 30_000_000, 0.5)
    explanation = explain(record(ways), conditions)
    told = {(c.axis, c.direction): c for c in explanation.changes}
    assert set(told) == {("edge-slowdown", "up"), ("deadline", "down")}
    assert told["edge-slowdown", "up"].value == pytest.approx(29.0 / 5.0)
    assert told["deadline", "down"].value == pytest.approx(21.0)
    assert not told["deadline", "down"].in_time


def test_the_least_agreement_takes_the_lead_from_those_that_have_too_little() -> None:
    conditions = ASKED.at("deadline", 25.0).at("link.rate", 5.0)
    explanation = explain(record(), conditions)
    assert explanation.winner is not None
    (up,) = [c for c in explanation.changes if c.axis == "min-agreement" and c.direction == "up"]
    assert up.value == explanation.winner.agreement


def test_a_split_that_never_wins_is_said_to_win_nowhere() -> None:
    ways = (device("whole", 5.0, 1.0), away("input", "raw", 0.0, 5.0, 1000), away("r1", "raw", 2.0, 4.0, 50_000))
    answer = explain(record(ways), ASKED).split
    assert (answer.wins_here, answer.wins_somewhere, answer.example) == (False, False, None)
    several = explain(record(), ASKED.at("link.rate", 5000.0)).split
    assert several.wins_somewhere
    assert several.example is not None
    assert brute(record(), several.example)[0].kind == "split"


def test_a_way_that_was_never_measured_is_named_and_never_wins() -> None:
    ways = (device("whole", 5.0, 1.0), away("r1", "int8", 0.1, 0.5, 1000, None, measured=False))
    explanation = explain(record(ways), ASKED)
    assert explanation.winner is not None
    assert explanation.winner.label == "device: whole"
    assert explanation.unmeasured == ("r1 as int8",)


def test_forced_cuts_stand_against_the_device_alone() -> None:
    explanation = explain(record(forced=("neck",)), ASKED)
    assert {s.label for s in explanation.standings if s.kind != "device"} == {"neck as int8"}


def test_where_no_way_agrees_enough_nothing_wins() -> None:
    ways = (away("input", "jpeg90", 0.0, 5.0, 1000, 0.9),)
    explanation = explain(record(ways, best=None, routes=(), rungs=()), ASKED.at("min-agreement", 0.95))
    assert explanation.winner is None
    assert [(c.axis, c.direction, c.value) for c in explanation.changes] == [("min-agreement", "down", 0.9)]


@settings(max_examples=8, deadline=None)
@given(random_ways(), random_conditions)
def test_a_map_agrees_with_the_explanation_at_every_column(ways: tuple[Way, ...], conditions: Conditions) -> None:
    found = record(ways)
    across, up = Range("link.rate", 1.0, 1000.0), Range("link.rtt", 0.5, 100.0)
    regions = map_regions(Contest.of(found), conditions, across, up)
    for column in regions.columns[:: max(1, len(regions.columns) // 12)]:
        for part in column.intervals:
            middle = (part.low + part.high) / 2
            there = conditions.at("link.rate", across.value(column.x)).at("link.rtt", middle)
            best = next(iter(brute(found, there)), None)
            assert part.winner == (best.label if best else "")
            assert regions.at(across.value(column.x), middle) == (part.winner, part.in_time)


def test_the_asked_factor_and_any_other_can_be_applied_to_a_record() -> None:
    slowed = device("whole", 7.0, 1.0).on(4.0)
    assert Way.of(slowed, 4.0).on(1.0).head.p50_us == pytest.approx(7000.0)
    assert Way.of(slowed, 4.0).on(9.0).head.p99_us == pytest.approx(device("whole", 7.0, 1.0).on(9.0).head.p99_us)


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode_record(encode_record(record()), "here") == record()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 2, this version reads format 1"),
        ({"best": 99}, "no way 99"),
        ({"surprise": 1}, "surprise"),
        ({"cadence_hz": -1.0}, "cadence_hz"),
        ({"ways": "none"}, "ways"),
    ],
)
def test_a_record_of_another_format_or_a_broken_one_is_refused_by_name(change: dict[str, object], words: str) -> None:
    tree = msgspec.json.decode(encode_record(record()))
    with pytest.raises(BundleError, match=words) as told:
        decode_record(msgspec.json.encode({**tree, **change}), "some.plan")
    assert str(told.value).startswith("some.plan: weighing.json")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = make_bundle(tmp_path, name="several")
    (path / RECORD_FILE).write_bytes(encode_record(record()))
    write_manifest(path)
    return path


def test_a_bundle_without_a_record_or_a_damaged_one_is_refused(bundle: Path) -> None:
    assert read_record(bundle)[1] == record()
    (bundle / RECORD_FILE).write_bytes(encode_record(record(seed=1)))
    with pytest.raises(BundleError, match=r"weighing\.json is damaged"):
        read_record(bundle)
    (bundle / RECORD_FILE).unlink()
    write_manifest(bundle)
    with pytest.raises(BundleError, match="make the plan again"):
        read_record(bundle)


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_tells_the_winner_the_changes_and_the_ranges(bundle: Path) -> None:
    text = run(str(bundle), "--link", "20mbit,6ms", "--what-if", "link.rate=1..1000mbit")
    explanation = explain(record(), ASKED.at("link.rate", 20.0), [parse_span("link.rate=1..1000mbit")])
    assert explanation.winner is not None
    assert explanation.winner.label in text
    for part in explanation.what_if[0].intervals:
        assert part.winner in text
        assert f"{part.high:.4g} Mbit/s" in text
    assert "not what the plan was asked for" in text


def test_json_is_the_explanation(bundle: Path) -> None:
    from partitioner.explanations.explanation import Explanation

    told = msgspec.json.decode(run(str(bundle), "--json", "--edge-slowdown", "3"), type=Explanation)
    assert told == explain(record(), ASKED.at("edge-slowdown", 3.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rate=1..10mbit", "an axis of link.rate"),
        ("link.rate=10..1mbit", "lower end first"),
        ("link.rate=1..10", "mbit"),
        ("edge-slowdown=0..4", "1 times slower to 1000"),
        ("min-agreement=0..x", "plain number"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_span(text)


def test_a_range_takes_its_unit_from_the_end() -> None:
    assert parse_span("link.rate=500kbit..1gbit") == parse_span("link.rate=0.5..1000mbit")
    assert parse_span("link.rtt=0..50ms").low == 0.0


def test_explaining_loads_no_runtime_and_no_graph_library(bundle: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom partitioner.records.file import read_record\n"
        "from partitioner.explanations.explanation import explain\n"
        "import partitioner.explanations.cli, partitioner.reports.cli\n"
        f"_, record = read_record(Path({str(bundle)!r}))\nexplain(record, record.asked)\n"
        "heavy = {'onnxruntime', 'onnx', 'scipy', 'PIL', 'simplejpeg', 'zmq'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


def test_the_several_regions_have_several_winners() -> None:
    regions = map_regions(Contest.of(record()), ASKED, Range("link.rate", 1.0, 1000.0), Range("link.rtt", 0.5, 100.0))
    assert len(SEVERAL) == 15
    kinds = {label.split(":")[0].split(" ")[0] for label in regions.winners}
    assert {"device", "input"} < kinds
